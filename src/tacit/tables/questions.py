"""The questions that tables and batches answer, defined once for both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.tables.cells.axes import Axis, Grid, bins_of, key_axis
from tacit.tables.cells.measure import FRACTIONS
from tacit.tables.cells.values import value_of
from tacit.tables.release import Release
from tacit.tables.statistics import moments
from tacit.tables.statistics.discovery import BoughtBounds, Keys, LearnedBounds
from tacit.tables.statistics.selection import CANDIDATES, MOST_TOUCHED, Quantiles, Top
from tacit.tables.statistics.statistic import Statistic
from tacit.tables.statistics.units import UnitCount

__all__ = ["Questions"]


class Questions:
    """The questions that can be asked of private data.

    Common to all of them:

    ``epsilon``, ``delta`` on a table, ``weight`` in a batch
        what the answer may cost. With δ > 0 the noise is Gaussian and composes better; without,
        Laplace.
    ``by``
        a column, or several, whose keys are public: one answer for each key or combination of
        keys. A row has one key, so groups cost no more than a single answer; each is noisier,
        having fewer rows.
    ``where``
        a condition on rows, see :meth:`tacit.tables.Table.filter`.
    ``bounds``
        None for those of the schema, (low, high) for public ones given here, ``"dp"`` to buy them with a
        fifth of the cost.
    ``label``
        how the charge is called in the ledger; the question itself if left out.
    """

    def _ask(self, make: Any, label: str | None, where: Any, **cost: Any) -> Release:
        raise NotImplementedError

    def count(
        self,
        *,
        by: str | Sequence[str] | None = None,
        where: Any = None,
        label: str | None = None,
        **cost: Any,
    ) -> Release:
        """How many rows there are; where the unit is a person, at most ``rows`` of each."""

        def make(text: str, table: Any, condition: Any) -> Statistic:
            axes = _axes(table, by)
            return moments.count(text, axes, condition, _mass(table, axes))

        return self._ask(make, label or _text("count()", by), where, **cost)

    def count_units(self, *, where: Any = None, label: str | None = None, **cost: Any) -> Release:
        """How many different units (people) have a row."""

        def make(text: str, table: Any, condition: Any) -> Statistic:
            if table.unit.column is None:
                raise InvalidValue("unit", "row", "a column that names people", "Count rows with count().")
            return UnitCount(text, condition)

        return self._ask(make, label or "count_units()", where, **cost)

    def sum(
        self,
        column: str,
        *,
        by: str | Sequence[str] | None = None,
        bounds: Any = None,
        where: Any = None,
        label: str | None = None,
        **cost: Any,
    ) -> Release:
        """The sum of a column; rows where it is missing add nothing."""

        def make(text: str, table: Any, condition: Any) -> Statistic:
            axes = _axes(table, by)
            return _bounded(
                text,
                table,
                (column,),
                bounds,
                condition,
                lambda given: moments.total(
                    text, table.schema, column, given.get(column, bounds), axes, condition
                ),
            )

        return self._ask(make, label or _text(f"sum({_column(column, bounds)})", by), where, **cost)

    def mean(
        self,
        column: str,
        *,
        by: str | Sequence[str] | None = None,
        bounds: Any = None,
        where: Any = None,
        label: str | None = None,
        **cost: Any,
    ) -> Release:
        """The mean of a column over the rows where it is there.

        Where the schema declares the number of rows and a constant for missing values, so that every
        row counts, the noise is smaller still: n is then known.
        """

        def make(text: str, table: Any, condition: Any) -> Statistic:
            axes = _axes(table, by)

            def statistic(given: dict[str, Any]) -> Statistic:
                limits = given.get(column, bounds)
                if table.every_row_counts(column) and not axes and condition is None:
                    known = table.schema.population
                    return moments.mean_of_known_n(text, table.schema, column, limits, known)
                return moments.mean(text, table.schema, column, limits, axes, condition)

            return _bounded(text, table, (column,), bounds, condition, statistic)

        return self._ask(make, label or _text(f"mean({_column(column, bounds)})", by), where, **cost)

    def variance(
        self,
        column: str,
        *,
        by: str | Sequence[str] | None = None,
        bounds: Any = None,
        where: Any = None,
        label: str | None = None,
        **cost: Any,
    ) -> Release:
        """The sample variance of a column."""
        return self._spread("variance", column, by, bounds, where, label, root=False, **cost)

    def std(
        self,
        column: str,
        *,
        by: str | Sequence[str] | None = None,
        bounds: Any = None,
        where: Any = None,
        label: str | None = None,
        **cost: Any,
    ) -> Release:
        """The sample standard deviation of a column."""
        return self._spread("std", column, by, bounds, where, label, root=True, **cost)

    def _spread(
        self,
        name: str,
        column: str,
        by: Any,
        bounds: Any,
        where: Any,
        label: str | None,
        *,
        root: bool,
        **cost: Any,
    ) -> Release:
        def make(text: str, table: Any, condition: Any) -> Statistic:
            axes = _axes(table, by)
            return _bounded(
                text,
                table,
                (column,),
                bounds,
                condition,
                lambda given: moments.variance(
                    text, table.schema, column, given.get(column, bounds), axes, condition, root
                ),
            )

        return self._ask(make, label or _text(f"{name}({_column(column, bounds)})", by), where, **cost)

    def quantile(
        self,
        column: str,
        q: float | Sequence[float],
        *,
        by: str | Sequence[str] | None = None,
        bounds: Any = None,
        interval: float | None = 0.95,
        where: Any = None,
        label: str | None = None,
        **cost: Any,
    ) -> Release:
        """The values below which the fractions ``q`` of the rows lie.

        ``interval`` is the confidence of the interval, which costs a quarter of the epsilon; None
        spends everything on the value.
        """
        scalar = not hasattr(q, "__len__")
        fractions = tuple(_fraction(one) for one in ([q] if scalar else q))  # type: ignore[union-attr]
        if not fractions or len(set(fractions)) < len(fractions):
            raise InvalidValue("q", q, "a fraction in (0, 1), or several different ones")
        confidence = None if interval is None else _validate.open_probability("interval", interval)

        def make(text: str, table: Any, condition: Any) -> Statistic:
            axes = _axes(table, by)
            groups = math.prod(axis.size for axis in axes)
            if table.unit.column is not None and groups > MOST_TOUCHED:
                raise InvalidValue("by", groups, f"at most {MOST_TOUCHED} groups, where the unit is a person")

            def statistic(given: dict[str, Any]) -> Statistic:
                value = value_of(table.schema, column, given.get(column, bounds), resolution=CANDIDATES)
                return Quantiles(text, axes, Grid(value), fractions, scalar, confidence, condition)

            return _bounded(text, table, (column,), bounds, condition, statistic)

        shown = f"{fractions[0]:g}" if scalar else "[" + ", ".join(f"{one:g}" for one in fractions) + "]"
        return self._ask(
            make, label or _text(f"quantile({_column(f'{column}, {shown}', bounds)})", by), where, **cost
        )

    def median(
        self,
        column: str,
        *,
        by: str | Sequence[str] | None = None,
        bounds: Any = None,
        interval: float | None = 0.95,
        where: Any = None,
        label: str | None = None,
        **cost: Any,
    ) -> Release:
        """The median of a column: :meth:`quantile` at one half."""
        text = label or _text(f"median({_column(column, bounds)})", by)
        return self.quantile(
            column, 0.5, by=by, bounds=bounds, interval=interval, where=where, label=text, **cost
        )

    def histogram(
        self,
        column: str,
        edges: int | Sequence[Any] | None = None,
        *,
        where: Any = None,
        label: str | None = None,
        **cost: Any,
    ) -> Release:
        """Counts over the categories of a column, or over bins of a numeric one.

        ``edges`` is a number of equal bins between the bounds, or increasing edges: bins are
        [e0, e1), …, the last one closed, and values outside are left out. One row is in one bin, so
        the histogram costs what one count costs.
        """

        def make(text: str, table: Any, condition: Any) -> Statistic:
            axes = (bins_of(table.schema, column, edges),)
            return moments.count(text, axes, condition, _mass(table, axes))

        return self._ask(make, label or f"histogram({column})", where, **cost)

    def crosstab(
        self,
        columns: str | Sequence[str],
        *,
        margins: bool = False,
        where: Any = None,
        label: str | None = None,
        **cost: Any,
    ) -> Release:
        """A contingency table of any number of columns with public keys.

        ``margins`` adds the sums, called All. Half of the cost goes to measuring them directly, and
        least squares makes table and margins consistent: sums over many cells become much more
        accurate, single cells less so.
        """
        names = _names(columns)

        def make(text: str, table: Any, condition: Any) -> Statistic:
            axes = _axes(table, names)
            return moments.crosstab(text, axes, condition, _mass(table, axes), margins)

        return self._ask(make, label or f"crosstab({', '.join(names)})", where, **cost)

    def covariance(
        self,
        columns: Sequence[str],
        *,
        bounds: Any = None,
        where: Any = None,
        label: str | None = None,
        **cost: Any,
    ) -> Release:
        """The covariance matrix of two or more columns, positive semidefinite."""
        return self._matrix("covariance", columns, bounds, where, label, scaled=False, **cost)

    def correlation(
        self,
        columns: Sequence[str],
        *,
        bounds: Any = None,
        where: Any = None,
        label: str | None = None,
        **cost: Any,
    ) -> Release:
        """The matrix of correlation coefficients of two or more columns."""
        return self._matrix("correlation", columns, bounds, where, label, scaled=True, **cost)

    def _matrix(
        self,
        name: str,
        columns: Sequence[str],
        bounds: Any,
        where: Any,
        label: str | None,
        *,
        scaled: bool,
        **cost: Any,
    ) -> Release:
        names = _names(columns)
        if len(names) < 2:
            raise InvalidValue("columns", columns, "at least two", "For a single column there is variance().")

        def make(text: str, table: Any, condition: Any) -> Statistic:
            return _bounded(
                text,
                table,
                names,
                bounds,
                condition,
                lambda given: moments.covariance(
                    text, table.schema, names, given or bounds, condition, scaled
                ),
            )

        return self._ask(make, label or f"{name}({_column(', '.join(names), bounds)})", where, **cost)

    def keys(self, column: str, *, where: Any = None, label: str | None = None, **cost: Any) -> Release:
        """The values of a column that enough units have, with how many have each; needs δ > 0.

        For columns whose keys are not known in advance. What few have stays unknown.
        """

        def make(text: str, table: Any, condition: Any) -> Statistic:
            known = table.schema[column]
            if known.type not in ("text", "integer", "category") or known.categories is not None:
                raise InvalidValue(
                    "column",
                    column,
                    "of type text, integer or category, without declared categories",
                    "Declared keys are counted by histogram().",
                )
            return Keys(text, column, condition)

        return self._ask(make, label or f"keys({column})", where, **cost)

    def top(
        self, column: str, k: int, *, where: Any = None, label: str | None = None, **cost: Any
    ) -> Release:
        """The ``k`` most frequent of a column's public keys, most frequent first, without counts."""

        def make(text: str, table: Any, condition: Any) -> Statistic:
            axis = key_axis(table.schema, column)
            if _validate.count("k", k, 1) > axis.size:
                raise InvalidValue("k", k, f"at most the number of keys, {axis.size}")
            return Top(text, axis, k, condition)

        return self._ask(make, label or f"top({column}, {k})", where, **cost)

    def bounds(self, column: str, *, where: Any = None, label: str | None = None, **cost: Any) -> Release:
        """Bounds around nearly all values of a numeric column, as powers of two."""

        def make(text: str, table: Any, condition: Any) -> Statistic:
            return LearnedBounds(text, column, _learnable(table, column), condition)

        return self._ask(make, label or f"bounds({column})", where, **cost)


def _text(question: str, by: str | Sequence[str] | None) -> str:
    return question if by is None else f"{question} by {', '.join(_names(by))}"


def _column(column: str, bounds: Any) -> str:
    return f"{column}, bounds=dp" if isinstance(bounds, str) and bounds == "dp" else column


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if not names or len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
        raise InvalidValue("columns", columns, "names of columns, each once")
    return names


def _axes(table: Any, by: str | Sequence[str] | None) -> tuple[Axis, ...]:
    axes = () if by is None else tuple(key_axis(table.schema, name) for name in _names(by))
    cells = 1
    for axis in axes:
        cells *= axis.size
    if cells > 10_000_000:
        raise InvalidValue("by", by, "such that there are at most ten million groups")
    return axes


def _mass(table: Any, axes: Sequence[Axis]) -> int:
    return FRACTIONS if axes and table.unit.column is not None else 1


def _fraction(value: Any) -> float:
    return _validate.open_probability("q", value)


def _learnable(table: Any, column: str) -> str:
    kind: str = table.schema[column].type
    if kind not in ("integer", "number"):
        raise InvalidValue("column", column, "of type integer or number, to have its bounds found")
    return kind


def _bounded(text: str, table: Any, columns: Sequence[str], bounds: Any, where: Any, make: Any) -> Statistic:
    """The statistic, or one that buys the bounds first."""
    if not (isinstance(bounds, str) and bounds == "dp"):
        statistic: Statistic = make({})
        return statistic
    kinds = tuple((column, _learnable(table, column)) for column in columns)
    return BoughtBounds(text, kinds, make, where)
