"""Axes: public partitions of the rows, by category or by bins of a numeric column."""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ibis
import ibis.expr.types as ir
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.schema import Column, Schema
from tacit.tables.cells.values import EPOCH, Value, bounds_of, number_of, numeric, value_of

if TYPE_CHECKING:
    from tacit.data.source import PrivateSource

__all__ = ["Axis", "Bins", "Categories", "Steps", "bins_of", "key_axis"]

MOST_KEYS = 100_000
"""The most groups or cells one axis may have."""

MOST_BINS = 2_000
"""The most bins between edges, each of which is a comparison in the query."""


class Axis:
    """A public list of cells; every row falls into one of them or, where it is missing, into none."""

    column: str

    @property
    def size(self) -> int:
        """How many cells."""
        raise NotImplementedError

    def labels(self) -> pd.Index:
        """The names of the cells."""
        raise NotImplementedError

    def key(self, source: PrivateSource, table: ir.Table) -> ir.Value:
        """The expression that the engine groups by."""
        raise NotImplementedError

    def index(self, source: PrivateSource, keys: pd.Series) -> NDArray[np.int64]:
        """The cell of each key that the engine found, −1 for none."""
        raise NotImplementedError


@dataclass(frozen=True)
class Categories(Axis):
    """The declared categories of a column, in their declared order."""

    column: str
    names: tuple[Any, ...]

    @property
    def size(self) -> int:
        return len(self.names)

    def labels(self) -> pd.Index:
        return pd.Index(list(self.names), name=self.column)

    def key(self, source: PrivateSource, table: ir.Table) -> ir.Value:
        return source.key(table, self.column)

    def index(self, source: PrivateSource, keys: pd.Series) -> NDArray[np.int64]:
        places = {name: place for place, name in enumerate(self.names)}
        found = [places.get(source.category(self.column, key), -1) for key in keys]
        return np.array(found, dtype=np.int64)


@dataclass(frozen=True)
class Steps(Axis):
    """Every step of a numeric column's scale."""

    value: Value

    @property
    def column(self) -> str:  # type: ignore[override]
        """The column of the value."""
        return self.value.column

    @property
    def size(self) -> int:
        return self.value.scale.width + 1

    def labels(self) -> pd.Index:
        scale = self.value.scale
        numbers = (scale.at(i) for i in range(self.size))
        whole = self.value.type == "integer" and float(scale.step).is_integer()
        found = [int(number) if whole else self.value.natural(number) for number in numbers]
        return pd.Index(found, name=self.column)

    @property
    def itself(self) -> bool:
        """Whether the steps are the values themselves; engines group by them faster than by an expression."""
        return self.value.whole and self.value.scale.step == 1

    def key(self, source: PrivateSource, table: ir.Table) -> ir.Value:
        return self.value.bounded(table) if self.itself else self.value.steps(table)

    def index(self, source: PrivateSource, keys: pd.Series) -> NDArray[np.int64]:
        lower = int(self.value.scale.lower) if self.itself else 0
        return _whole(keys - lower)


@dataclass(frozen=True)
class Bins(Axis):
    """[e0, e1), [e1, e2), …, the last bin closed; values outside fall into none."""

    column: str
    type: str
    edges: tuple[float, ...]
    names: tuple[Any, ...]
    inside: bool = False
    """Whether every value of the column lies between the first edge and the last."""

    @property
    def size(self) -> int:
        return len(self.edges) - 1

    @property
    def _width(self) -> float | None:
        """w where ⌊(x − e0)/w⌋ is the bin of every x; None where the edges are not that regular.

        Subtracting, dividing by a positive number and rounding down never reverse an order, in
        floating point either, so it is enough that each edge and the number just below it come out right.
        """
        edges = np.array(self.edges)
        if not np.isfinite(edges).all():
            return None
        width = (self.edges[-1] - self.edges[0]) / self.size
        below = np.nextafter(edges[1:], -np.inf)
        at, before = (np.floor((points - edges[0]) / width) for points in (edges, below))
        exact = (at == np.arange(self.size + 1)).all() and (before == np.arange(self.size)).all()
        return width if exact else None

    def labels(self) -> pd.Index:
        return pd.IntervalIndex.from_breaks(list(self.names), closed="left", name=self.column)

    def texts(self) -> tuple[str, ...]:
        """The bins as people write them: "17–24" and "65 and over" of whole numbers, dates as dates.

        Whole numbers and dates have both ends included. Of other numbers a bin is "[0, 10)", the end left
        out.
        """
        last, digits = self.size - 1, 6
        while len({f"{edge:.{digits}g}" for edge in self.edges}) <= self.size and digits < 17:
            digits += 1
        return tuple(
            _bin_text(self.type, low, high, digits, closed=place == last)
            for place, (low, high) in enumerate(itertools.pairwise(self.edges))
        )

    def key(self, source: PrivateSource, table: ir.Table) -> ir.Value:
        number = numeric(table, self.column, self.type)
        width = self._width
        if width is not None and self.inside:
            place = ((number.cast("float64") - self.edges[0]) / width).floor().cast("int64")
            return ibis.ifelse(place == self.size, self.size - 1, place)
        inside = number.notnull()
        if math.isfinite(self.edges[0]):
            inside &= number >= self.edges[0]
        if math.isfinite(self.edges[-1]):
            inside &= number <= self.edges[-1]
        return ibis.ifelse(inside, self._search(number, 0, self.size), ibis.null("int64"))

    def _search(self, number: ir.NumericValue, first: int, last: int) -> ir.IntegerValue:
        """The bin among first … last − 1, by bisection: log2 comparisons a row, exact at the edges."""
        if last - first == 1:
            return ibis.literal(first, "int64")
        middle = (first + last) // 2
        return ibis.ifelse(
            number < self.edges[middle],
            self._search(number, first, middle),
            self._search(number, middle, last),
        )

    def index(self, source: PrivateSource, keys: pd.Series) -> NDArray[np.int64]:
        return _whole(keys)


def _whole(keys: pd.Series) -> NDArray[np.int64]:
    found: NDArray[np.int64] = keys.fillna(-1).to_numpy(dtype=np.int64)
    return found


def _bin_text(kind: str, low: float, high: float, digits: int, *, closed: bool) -> str:
    """The bin from ``low`` to ``high``, which belongs to it if ``closed``, in words of the column's kind."""
    start, end = f"{low:.{digits}g}", f"{high:.{digits}g}"
    if kind == "number":
        if math.isinf(low) or math.isinf(high):
            return _open_text(start, end, low, high, "up to" if closed else "under")
        return f"[{start}, {end}{']' if closed else ')'}"
    first = low if math.isinf(low) else math.ceil(low)
    final = high if math.isinf(high) else math.floor(high) if closed else math.ceil(high) - 1
    if final < first:
        return f"[{start}, {end})"
    start, end = _whole_text(kind, first), _whole_text(kind, final)
    if math.isinf(low) or math.isinf(high):
        return _open_text(start, end, first, final, "up to")
    if first == final:
        return start
    return f"{start} to {end}" if kind == "date" or first < 0 else f"{start}–{end}"


def _whole_text(kind: str, number: float) -> str:
    if math.isinf(number):
        return ""
    return str(EPOCH + datetime.timedelta(days=int(number))) if kind == "date" else str(int(number))


def _open_text(low: str, high: str, first: float, final: float, below: str) -> str:
    """A bin that is open at one end or at both."""
    if math.isinf(first) and math.isinf(final):
        return "all"
    return f"{below} {high}" if math.isinf(first) else f"{low} and over"


def key_axis(schema: Schema, name: str, argument: str = "by") -> Axis:
    """The public keys of a column that is grouped by, or that another ``argument`` names."""
    column = schema[name]
    if column.categories is not None:
        extra = () if column.other is None else (column.other,)
        return Categories(name, (*column.categories, *extra))
    if column.type in ("integer", "date") and column.bounds is not None:
        steps = Steps(value_of(schema, name, None))
        if steps.value.scale.step == 1 and steps.size <= MOST_KEYS:
            return steps
    raise InvalidValue(
        argument,
        name,
        "a column whose keys are public",
        "Declare its categories, or whole-number bounds, in the schema; or discover its keys with keys().",
    )


def bins_of(schema: Schema, name: str, edges: int | Sequence[Any] | None) -> Axis:
    """The bins of a histogram: categories, equal bins between the bounds, or the edges given."""
    column = schema[name]
    if edges is None and column.categories is None and (column.type == "number" or column.bounds is None):
        raise InvalidValue(
            "edges", None, f"given for the column {name!r}", "Name edges, or a number of bins."
        )
    if edges is None:
        return key_axis(schema, name)
    if column.categories is not None and column.type != "integer":
        raise InvalidValue("edges", edges, f"left out: {name!r} has categories")
    if isinstance(edges, int):
        return _equal_bins(name, column, _validate.count("edges", edges, 1))
    if isinstance(edges, str) or not hasattr(edges, "__len__") or len(edges) < 2:
        raise InvalidValue("edges", edges, "a number of bins, or at least two increasing edges")
    numbers = [_edge(name, column, edge) for edge in edges]
    if any(a >= b for a, b in itertools.pairwise(numbers)):
        raise InvalidValue("edges", list(edges), "increasing")
    return _bins(name, column, numbers, list(edges))


def _edge(name: str, column: Column, edge: Any) -> float:
    if isinstance(edge, float) and math.isinf(edge):
        return edge
    return number_of(name, Column("number") if column.type == "integer" else column, edge)


def _equal_bins(name: str, column: Column, count: int) -> Axis:
    if count > MOST_BINS:
        raise InvalidValue("edges", count, f"at most {MOST_BINS} bins")
    low, high = bounds_of(name, column, None)
    numbers = np.linspace(low, high, count + 1).tolist()
    if column.type == "date":
        numbers = sorted({round(number) for number in numbers})
    value = Value(name, column.type, scale=None, clipped=False)  # type: ignore[arg-type]
    return _bins(name, column, numbers, [value.natural(number) for number in numbers])


def _bins(name: str, column: Column, numbers: list[float], names: list[Any]) -> Axis:
    if len(numbers) - 1 > MOST_BINS:
        raise InvalidValue("edges", len(numbers), f"such that there are at most {MOST_BINS} bins")
    shown = [pd.Timestamp(edge) for edge in names] if column.type == "date" else names
    bounded = column.bounds is not None or column.type == "boolean"
    low, high = bounds_of(name, column, None) if bounded else (-math.inf, math.inf)
    inside = numbers[0] <= low and high <= numbers[-1]
    return Bins(name, column.type, tuple(numbers), tuple(shown), inside)
