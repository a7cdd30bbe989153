"""Releases as lines of plain values and of text, which tables, files, plots and pages are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tacit.errors import InvalidValue
from tacit.guarantee import Guarantee

if TYPE_CHECKING:
    from tacit.tables.release import Release

__all__ = ["AnswerLines", "Line", "answer_of", "shown"]


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
    elif frame is not None and getattr(value, "ndim", 0) == 1:
        names, keys = [str(frame.index.name or "number")], _keys(frame.index)
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


def shown(lines: Sequence[Line]) -> list[tuple[str, str]]:
    """Value and interval of each line, to as many decimals as the widths of the intervals are worth."""
    digits = [_digits(line) for line in lines]
    known = [one for one in digits if one is not None]
    alike = max(known) if known and max(known) - min(known) <= 2 else None
    texts = []
    for line, own in zip(lines, digits, strict=True):
        value, low, high = (
            _number(one, own if alike is None else alike) for one in (line.value, line.low, line.high)
        )
        texts.append((value, "" if line.low is None else f"{low} … {high}"))
    return texts


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
