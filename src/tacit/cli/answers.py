"""Answers as they are printed and written: rich tables, JSON, CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from tacit.errors import InvalidValue
from tacit.guarantee import Guarantee

if TYPE_CHECKING:
    from tacit.tables import Release

__all__ = ["AnswerLines", "Line", "answer_of", "to_csv", "to_json", "to_tables"]


@dataclass(frozen=True)
class Line:
    """One number, date or name of an answer, with its group and, if it has one, its interval."""

    keys: tuple[Any, ...]
    value: Any
    low: Any = None
    high: Any = None
    edges: tuple[Any, Any] | None = None
    """Where the bin begins and where the next one does, if the line is one of a histogram's bins."""


@dataclass(frozen=True)
class AnswerLines:
    """A release as lines; ``names`` are those of the keys, and a single value has none."""

    label: str
    names: tuple[str, ...]
    lines: tuple[Line, ...]
    guarantee: Guarantee


def answer_of(release: Release, confidence: float) -> AnswerLines:
    """The release as lines of plain Python values; one that has no interval is shown without."""
    value = release.value
    try:
        frame: Any = release.to_frame(confidence)
    except InvalidValue:
        frame = None
    names: Sequence[Any] = ()
    keys: Iterable[tuple[Any, ...]]
    if hasattr(value, "index") and not isinstance(value, str | tuple | list):
        index = value.index if frame is None else frame.index
        names = [str(name or f"column {place}") for place, name in enumerate(index.names, 1)]
        keys = _keys(index)
    elif isinstance(value, tuple | list):
        names, keys = ["bound"] if len(value) == 2 else ["number"], _numbered(len(value))
    else:
        keys = [()]
    if frame is None:
        found = list(value) if names else [value]
        lines = [Line(key, _plain(one)) for key, one in zip(keys, found, strict=True)]
    else:
        columns = zip(frame["value"], frame["low"], frame["high"], strict=True)
        lines = [Line(key, *map(_plain, row)) for key, row in zip(keys, columns, strict=True)]
    if names and hasattr(value, "index") and not isinstance(value, str | tuple | list):
        lines = _with_edges(lines, value.index)
    return AnswerLines(release.label, tuple(names), tuple(lines), release.guarantee)


def _with_edges(lines: list[Line], index: Any) -> list[Line]:
    """The lines of a histogram with the edges of their bins, which the index of its value has."""
    bins = index.get_level_values(-1)
    if not hasattr(bins, "closed"):
        return lines
    ends = [(_plain(one.left), _plain(one.right)) for one in bins]
    return [replace(line, edges=edges) for line, edges in zip(lines, ends, strict=True)]


def _numbered(count: int) -> list[tuple[Any, ...]]:
    return [("lower",), ("upper",)] if count == 2 else [(number,) for number in range(1, count + 1)]


def _keys(index: Any) -> Iterator[tuple[Any, ...]]:
    several = index.nlevels > 1
    for key in index:
        yield tuple(_plain(part) for part in (key if several else (key,)))


def _plain(value: Any) -> Any:
    """A value of pandas or NumPy as one that JSON knows."""
    if hasattr(value, "to_pydatetime"):
        value = value.to_pydatetime().date() if value == value else None
    if hasattr(value, "item"):
        value = value.item()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def to_json(answers: Sequence[AnswerLines]) -> list[dict[str, Any]]:
    """The answers as JSON: a single one as value, low and high, a table as rows of these with keys."""
    return [{"label": answer.label, **_body(answer), "guarantee": _guarantee(answer)} for answer in answers]


def _guarantee(answer: AnswerLines) -> Any:
    return json.loads(answer.guarantee.to_json())


def _body(answer: AnswerLines) -> dict[str, Any]:
    def numbers(line: Line) -> dict[str, Any]:
        edges = {} if line.edges is None else {"edges": list(line.edges)}
        return {**edges, "value": line.value, "low": line.low, "high": line.high}

    if not answer.names:
        return numbers(answer.lines[0])
    return {
        "rows": [
            {"keys": dict(zip(answer.names, line.keys, strict=True)), **numbers(line)}
            for line in answer.lines
        ]
    }


def to_csv(answers: Sequence[AnswerLines]) -> str:
    """One line per number: the question, the keys of all questions, value, low, high."""
    names = list(dict.fromkeys(name for answer in answers for name in answer.names))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["question", *names, "value", "low", "high"])
    for answer in answers:
        for line in answer.lines:
            keys = dict(zip(answer.names, line.keys, strict=True))
            found = [*(keys.get(name) for name in names), line.value, line.low, line.high]
            writer.writerow([answer.label, *found])
    return text.getvalue()


def to_tables(answers: Sequence[AnswerLines], confidence: float) -> Iterator[str | Table]:
    """The answers for people: all single values in one table, then a title and a table for each other."""
    single = [answer for answer in answers if not answer.names]
    if single:
        rows = [(answer.label, *_shown(answer.lines)[0]) for answer in single]
        yield _table(["question"], rows, confidence)
    for answer in answers:
        if answer.names:
            shown = zip(answer.lines, _shown(answer.lines), strict=True)
            yield answer.label
            yield _table(
                answer.names, [(*map(str, line.keys), *numbers) for line, numbers in shown], confidence
            )
        if not answer.lines:
            yield "Nothing passed the threshold."


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], confidence: float) -> Table:
    table = Table()
    for name in names:
        table.add_column(escape(name), overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    intervals = any(row[-1] for row in rows)
    if intervals:
        table.add_column(f"{100 * confidence:.6g} % interval", no_wrap=True)
    for row in rows:
        table.add_row(*map(escape, row if intervals else row[:-1]))
    return table


def _shown(lines: Sequence[Line]) -> list[tuple[str, str]]:
    """Value and interval of each line, to as many decimals as the widths of the intervals are worth."""
    digits = [_digits(line) for line in lines]
    known = [one for one in digits if one is not None]
    alike = max(known) if known and max(known) - min(known) <= 2 else None
    shown = []
    for line, own in zip(lines, digits, strict=True):
        value, low, high = (
            _number(one, own if alike is None else alike) for one in (line.value, line.low, line.high)
        )
        shown.append((value, "" if line.low is None else f"{low} … {high}"))
    return shown


def _digits(line: Line) -> int | None:
    if (
        not isinstance(line.low, int | float)
        or not isinstance(line.high, int | float)
        or line.high <= line.low
    ):
        return None
    return min(12, max(0, 1 - math.floor(math.log10((line.high - line.low) / 2))))


def _number(value: Any, digits: int | None) -> str:
    if value is None:
        return "–"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.6g}" if digits is None or abs(value) >= 1e15 else f"{value:.{digits}f}"
