"""From a question to its statistic: the question's words, checked against the schema."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tacit import _validate
from tacit.data.source import STATE
from tacit.errors import InvalidValue
from tacit.tables import questions as ask
from tacit.tables.cells.axes import Axis, Steps, bins_of, key_axis
from tacit.tables.cells.measure import FRACTIONS
from tacit.tables.cells.values import value_of
from tacit.tables.language.forms import OfColumn
from tacit.tables.language.question import Question
from tacit.tables.statistics import checking, moments
from tacit.tables.statistics.discovery import BoughtBounds, Keys, LearnedBounds
from tacit.tables.statistics.selection import CANDIDATES, MOST_TOUCHED, Quantiles, Top
from tacit.tables.statistics.statistic import Statistic
from tacit.tables.statistics.units import UnitCount

if TYPE_CHECKING:
    from tacit.tables.table import Table

__all__ = ["statistic_of"]

MOST_GROUPS = 10_000_000


def statistic_of(question: Question, table: Table) -> Statistic:
    """The statistic that answers a question about a table; refused if the schema does not allow it."""
    if not isinstance(question, Question):
        raise InvalidValue("question", question, "one of tacit.tables.questions, or its text")
    schema, where = table.schema, table.condition(question.where)
    match question:
        case ask.Count():
            axes = _axes(table, question.groups)
            return moments.count(axes, where, _mass(table, axes))
        case ask.CountUnits():
            if table.unit.column is None:
                raise InvalidValue(
                    "unit",
                    "row",
                    "a column that names people",
                    "Count rows with count(), or declare the column: [unit] in the schema and the ledger.",
                )
            return UnitCount(where)
        case ask.Sum():
            axes = _axes(table, question.groups)
            return _of_column(
                question,
                table,
                where,
                lambda limits: moments.total(schema, question.column, limits, axes, where),
            )
        case ask.Mean():
            axes = _axes(table, question.groups)
            population = table.population_of(question.column)
            known = population if not axes and where is None else None
            return _of_column(
                question,
                table,
                where,
                lambda limits: moments.mean(schema, question.column, limits, axes, where)
                if known is None
                else moments.mean_of_known_n(schema, question.column, limits, known),
            )
        case ask.Variance() | ask.Std():
            axes, root = _axes(table, question.groups), isinstance(question, ask.Std)
            return _of_column(
                question,
                table,
                where,
                lambda limits: moments.variance(schema, question.column, limits, axes, where, root),
            )
        case ask.Quantile() | ask.Median():
            axes = _axes(table, question.groups)
            groups = math.prod(axis.size for axis in axes)
            if table.unit.column is not None and groups > MOST_TOUCHED:
                raise InvalidValue("by", groups, f"at most {MOST_TOUCHED} groups, where the unit is a person")

            def quantiles(limits: Any) -> Statistic:
                steps = Steps(value_of(schema, question.column, limits, resolution=CANDIDATES))
                confidence = question.confidence
                return Quantiles(axes, steps, question.fractions, question.scalar, confidence, where)

            return _of_column(question, table, where, quantiles)
        case ask.Histogram():
            _apart(question.groups, [question.column])
            bins = bins_of(schema, question.column, question.edges)
            axes = _few((*_axes(table, question.groups), bins))
            return moments.histogram(axes, where, _mass(table, axes))
        case ask.Crosstab():
            _apart(question.groups, question.names)
            axes = _axes(table, (*question.groups, *question.names))
            groups = len(question.groups)
            return moments.crosstab(axes, where, _mass(table, axes), question.margins, groups)
        case ask.Covariance() | ask.Correlation():
            names, scaled = question.names, isinstance(question, ask.Correlation)
            return _bounded(
                question.bounds,
                table,
                names,
                where,
                lambda limits: moments.covariance(schema, names, limits, where, scaled),
            )
        case ask.Keys():
            column = schema[question.column]
            if column.type not in ("text", "integer", "category") or column.categories is not None:
                raise InvalidValue(
                    "column",
                    question.column,
                    "of type text, integer or category, without declared categories",
                    "Declared keys are counted by histogram().",
                )
            return Keys(question.column, where)
        case ask.Top():
            axis = key_axis(schema, question.column, "column")
            if _validate.count("k", question.k, 1) > axis.size:
                raise InvalidValue("k", question.k, f"at most the number of keys, {axis.size}")
            return Top(axis, question.k, where)
        case ask.Bounds():
            return LearnedBounds(question.column, _learnable(table, question.column), where)
        case ask.Check():
            stored = tuple(name for name in schema if STATE + name in table.expression.columns)
            for name in question.columns or ():
                if name not in stored:
                    raise InvalidValue("column", name, "a column that the schema declares of the source")
            return checking.check(schema, tuple(question.columns or stored), where)
    raise InvalidValue("question", question, "one of tacit.tables.questions")


def _axes(table: Table, names: Sequence[str]) -> tuple[Axis, ...]:
    return _few(tuple(key_axis(table.schema, name) for name in names))


def _few(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes, unless they have more cells together than memory should hold."""
    if math.prod(axis.size for axis in axes) > MOST_GROUPS:
        names = [axis.column for axis in axes]
        raise InvalidValue("by", names, "such that there are at most ten million groups")
    return axes


def _apart(groups: Sequence[str], columns: Sequence[str]) -> None:
    """Refuse groups by a column that is counted itself: all cells but one would be empty in each."""
    for name in groups:
        if name in columns:
            raise InvalidValue("by", name, "another column than those that are counted", "Leave it out.")


def _mass(table: Table, axes: Sequence[Axis]) -> int:
    """Steps to a row of a count: one, or many where a person's row may count in part."""
    return FRACTIONS if axes and table.unit.column is not None else 1


def _learnable(table: Table, column: str) -> str:
    kind: str = table.schema[column].type
    if kind not in ("integer", "number"):
        raise InvalidValue("column", column, "of type integer or number, to have its bounds found")
    return kind


def _of_column(
    question: OfColumn, table: Table, where: Any, make: Callable[[Any], Statistic]
) -> Statistic:
    """The statistic of one column, within the question's bounds or within those that it buys first."""
    column, bounds = question.column, question.bounds
    if _bought(bounds):
        return _bounded(bounds, table, (column,), where, lambda found: make(found[column]))
    return make(bounds)


def _bounded(
    bounds: Any, table: Table, columns: Sequence[str], where: Any, make: Callable[[Any], Statistic]
) -> Statistic:
    """The statistic that ``make`` builds for given bounds, or one that buys them first, by column."""
    if not _bought(bounds):
        return make(bounds)
    return BoughtBounds(tuple((column, _learnable(table, column)) for column in columns), make, where)


def _bought(bounds: Any) -> bool:
    return isinstance(bounds, str) and bounds == "dp"
