"""What is drawn of a release: bars for counts, points for other numbers, heatmaps for tables of two columns.

Post-processing of what was released: drawing costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tacit.drawing.charts import Chart, Panel
from tacit.errors import TacitError
from tacit.guarantee import Guarantee, ceiling
from tacit.tables.lines import AnswerLines, Line, answer_of

if TYPE_CHECKING:
    from tacit.tables.release import Release

__all__ = ["chart_of", "drawable", "promise"]


def promise(guarantee: Guarantee) -> str:
    """The guarantee in one short sentence, for the foot of a plot.

    >>> from tacit import events
    >>> promise(Guarantee(0.5, 0.0, events.Pure(0.5)))
    'ε = 0.5, under add_remove of one row.'
    """
    seeded = " SEEDED NOISE, FOR TESTS ONLY: no privacy." if guarantee.noise == "seeded" else ""
    failure = f", δ = {float(ceiling(guarantee.delta, 4)):g}" if guarantee.delta else ""
    return (
        f"ε = {float(ceiling(guarantee.epsilon, 4)):g}{failure}, under {guarantee.relation} of one "
        f"{guarantee.unit}.{seeded}"
    )


def drawable(release: Release, confidence: float) -> bool:
    """Whether there is anything to draw: numbers or dates, and not names alone."""
    return all(not isinstance(line.value, str) or _date(line.value) for line in _known(release, confidence))


def _known(release: Release, confidence: float) -> Sequence[Line]:
    lines = answer_of(release, confidence).lines
    return lines or (Line((), "nothing"),)


def chart_of(release: Release, confidence: float = 0.95, *, alone: bool = True) -> Chart:
    """The chart of a release, with its title and its guarantee if it stands alone."""
    answer = answer_of(release, confidence)
    if not drawable(release, confidence):
        raise TacitError(
            f"{release.label} has no numbers to draw.",
            "Draw counts, sums, means, quantiles or tables; names without numbers are listed.",
        )
    made = release.filled()
    several = any(line.low is not None for line in answer.lines)
    note = f"Lines: {100 * confidence:g} % intervals for the noise." if several else ""
    matrix = hasattr(release.value, "columns")
    counts = made.cells and bool(answer.names)
    kind = "heatmap" if matrix else "bins" if made.bins is not None else "bars" if counts else "points"
    if matrix and several:
        note = f"±: half the {100 * confidence:g} % interval for the noise."
    parts = [promise(release.guarantee)] if alone else []
    return Chart(
        release.label if alone else "",
        kind,
        _heatmaps(answer, made.margins) if matrix else _panels(answer, made.groups),
        " ".join(filter(None, [*parts, note])),
        *_axes(answer, matrix, made.cells),
        signed=not made.cells,
    )


def _axes(answer: AnswerLines, matrix: bool, counts: bool) -> tuple[str, str]:
    """What names and numbers are called."""
    if matrix:
        return answer.names[-2:] if counts else ("", "")  # type: ignore[return-value]
    return answer.names[-1] if answer.names else "", "rows" if counts else ""


def _panels(answer: AnswerLines, groups: int) -> tuple[Panel, ...]:
    """One panel for each group, or one for all where there are no groups."""
    lead = len(answer.names) - 1 if groups == 0 else groups
    lead = max(lead, 0)
    by_group: dict[tuple[Any, ...], list[Line]] = {}
    for line in answer.lines:
        by_group.setdefault(line.keys[:lead], []).append(line)
    return tuple(
        Panel(
            [_name(line.keys[lead:]) for line in lines],
            *_numbers(lines),
            title=", ".join(f"{name} = {key}" for name, key in zip(answer.names, group, strict=False)),
            edges=_edges(lines),
        )
        for group, lines in by_group.items()
    )


def _edges(lines: Sequence[Line]) -> list[str]:
    """The edges of bins of numbers and dates; bins of whole numbers have names that say more."""
    ends = [line.edges for line in lines]
    if any(pair is None for pair in ends) or not lines[0].keys[-1].startswith(("[", "under")):
        dates = all(pair is not None and isinstance(pair[0], str) and _date(pair[0]) for pair in ends)
        if not dates:
            return []
    known = [pair for pair in ends if pair is not None]
    return [_edge(pair[0]) for pair in known] + [_edge(known[-1][1])]


def _edge(edge: Any) -> str:
    return f"{edge:.4g}" if isinstance(edge, float) else str(edge)


def _heatmaps(answer: AnswerLines, margins: bool) -> tuple[Panel, ...]:
    """One heatmap for each group, of the last two columns."""
    lead = len(answer.names) - 2
    by_group: dict[tuple[Any, ...], list[Line]] = {}
    for line in answer.lines:
        by_group.setdefault(line.keys[:lead], []).append(line)
    found = []
    for group, lines in by_group.items():
        rows = list(dict.fromkeys(str(line.keys[-2]) for line in lines))
        columns = list(dict.fromkeys(str(line.keys[-1]) for line in lines))
        told = ", ".join(f"{name} = {key}" for name, key in zip(answer.names, group, strict=False))
        found.append(Panel(rows, *_numbers(lines), title=told, columns=columns, sums=margins))
    return tuple(found)


def _numbers(lines: Sequence[Line]) -> tuple[list[Any], list[Any] | None, list[Any] | None]:
    values = [_drawn(line.value) for line in lines]
    if any(line.low is None or line.high is None for line in lines):
        return values, None, None
    return values, [_drawn(line.low) for line in lines], [_drawn(line.high) for line in lines]


def _drawn(value: Any) -> Any:
    """A number as it is, a date as one that matplotlib knows; nothing where there is none."""
    if value is None:
        return float("nan")
    return _date(value) if isinstance(value, str) else value


def _date(text: str) -> Any:
    from tacit.tables.language.condition import date_of

    return date_of(text)


def _name(keys: tuple[Any, ...]) -> str:
    return ", ".join(map(str, keys))
