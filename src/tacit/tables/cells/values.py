"""Columns as whole numbers of steps, which sums are made of.

A sum of floating-point numbers depends on their order, and one row can move it by more than its own
size (Casacuberta, Shoemate, Vadhan, Wagaman 2022). Here every value is first clipped to public
bounds and rounded to whole steps of a power of two, row by row; sums of whole numbers are exact in
any order and on any engine, and so are their sensitivities. At most 2^26 steps make up the range of a
column: rounding moves no value by more than 2^−27 of it.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from typing import Any

import ibis
import ibis.expr.types as ir

from tacit import _validate
from tacit.data.cleaning.expressions import clip
from tacit.errors import InvalidValue
from tacit.schema import LARGEST, Column, Schema

__all__ = ["EPOCH", "RESOLUTION", "Scale", "Value", "bounds_of", "numeric", "value_of"]

RESOLUTION = 26
"""log2 of the most steps in a range: squares of steps are then exact in float64."""

EPOCH = datetime.date(1970, 1, 1)
_WHOLE = ("integer", "boolean", "date")


@dataclass(frozen=True)
class Scale:
    """A range from ``lower`` to ``upper`` in ``width`` steps."""

    lower: float
    upper: float
    step: float
    width: int

    @classmethod
    def between(cls, lower: float, upper: float, *, whole: bool, resolution: int = RESOLUTION) -> Scale:
        """At most 2^resolution steps of a power of two, of at least 1 for whole columns."""
        extent = upper - lower
        exponent = math.frexp(extent)[1] - resolution
        if whole:
            exponent = max(exponent, 0)
        step = math.ldexp(1.0, exponent)
        return cls(lower, upper, step, math.floor(extent / step + 0.5))

    @classmethod
    def around_zero(cls, lower: float, upper: float, *, whole: bool) -> Scale:
        """Steps counted from zero; at most 2^RESOLUTION of them to the farther bound."""
        scale = cls.between(0, max(abs(lower), abs(upper)), whole=whole)
        return cls(lower, upper, scale.step, scale.width)

    @classmethod
    def fine(cls, lower: float, upper: float) -> Scale:
        """Exactly 2^RESOLUTION steps, for products of steps: every column has the same mass."""
        return cls(lower, upper, (upper - lower) / 2**RESOLUTION, 2**RESOLUTION)

    def at(self, steps: Any) -> Any:
        """The value that many steps above ``lower``."""
        return self.lower + steps * self.step


@dataclass(frozen=True)
class Value:
    """A numeric column on its scale; ``clipped`` where the bounds are not those of the schema."""

    column: str
    type: str
    scale: Scale
    clipped: bool

    @property
    def whole(self) -> bool:
        """Whether values are whole numbers to begin with."""
        return self.type in _WHOLE

    @property
    def exact(self) -> bool:
        """Whether every value is a whole number of steps, so that none is rounded."""
        return self.whole and (1 / self.scale.step).is_integer()

    def bounded(self, table: ir.Table) -> ir.NumericValue:
        """The values themselves, within the bounds."""
        number = numeric(table, self.column, self.type)
        return clip(number, self.scale.lower, self.scale.upper) if self.clipped else number

    def steps(self, table: ir.Table) -> ir.IntegerValue:
        """How many steps each value lies above the lower bound: 0 … width, or NULL."""
        number = self.bounded(table)
        if self.exact:
            return _times(number - int(self.scale.lower), self.scale.step)
        return _rounded((number.cast("float64") - float(self.scale.lower)) / self.scale.step)

    def signed_steps(self, table: ir.Table) -> ir.IntegerValue:
        """Each value in steps, negative where it is; for a scale around zero."""
        number = self.bounded(table)
        if self.exact:
            return _times(number, self.scale.step)
        return _rounded(number.cast("float64") / self.scale.step)

    def natural(self, numbers: Any) -> Any:
        """Numbers in the column's own terms: days become dates again."""
        if self.type != "date":
            return numbers
        return EPOCH + datetime.timedelta(days=round(float(numbers)))


def _times(number: ir.IntegerValue, step: float) -> ir.IntegerValue:
    """Whole numbers in steps of which there are a whole number to one: exact."""
    return number if step == 1 else number * round(1 / step)


def _rounded(number: ir.FloatingValue) -> ir.IntegerValue:
    """Half up, so that every engine agrees."""
    return (number + 0.5).floor().cast("int64")


def numeric(table: ir.Table, name: str, kind: str) -> ir.NumericValue:
    """A cleaned column as numbers: int64 for whole types, days since 1970 for dates, else float64."""
    column = table[name]
    if kind == "date":
        return column.delta(ibis.date(EPOCH.year, EPOCH.month, EPOCH.day), unit="day").cast("int64")
    return column.cast("int64") if kind in _WHOLE else column


def bounds_of(name: str, column: Column, bounds: Any) -> tuple[float, float]:
    """Public bounds of a column as numbers: those given, or those of the schema."""
    if column.type not in (*_WHOLE, "number"):
        raise InvalidValue(
            "column", name, f"numeric, but the schema calls it {column.type!r}", "Count it instead."
        )
    given = column.bounds if bounds is None else bounds
    if given is None and column.type == "boolean":
        return 0, 1
    if given is None:
        raise InvalidValue(
            "bounds",
            None,
            f"known for the column {name!r}",
            "Declare them in the schema, give bounds=(low, high) if they are public, or buy them with "
            "bounds='dp'.",
        )
    if isinstance(given, str) or not hasattr(given, "__len__") or len(given) != 2:
        raise InvalidValue("bounds", given, "a pair (low, high), or 'dp'")
    low, high = (number_of(name, column, bound) for bound in given)
    if max(abs(low), abs(high)) > 2.0**400:
        raise InvalidValue("bounds", given, "at most 2^400 in size", "Measure in another unit.")
    if not low < high:
        raise InvalidValue("bounds", given, "ordered, low before high")
    if high - low < 2.0**-400:
        raise InvalidValue("bounds", given, "at least 2^-400 apart", "Measure in another unit.")
    return low, high


def number_of(name: str, column: Column, given: Any) -> float:
    """A public constant of a column's type as a number."""
    if column.type == "date" and isinstance(given, datetime.date):
        return (given - EPOCH).days
    if column.type == "date":
        raise InvalidValue(name, given, "a datetime.date")
    number = _validate.finite(name, given)
    if column.type == "number":
        return number
    if number != math.floor(number) or abs(number) > LARGEST:
        raise InvalidValue(name, given, "a whole number within ±2^53, as the column holds")
    return int(number)


def value_of(
    schema: Schema, name: str, bounds: Any, scale: str = "between", resolution: int = RESOLUTION
) -> Value:
    """A column of the schema on a scale made of its bounds.

    ``between`` and ``around_zero`` have steps of at least 1 for whole columns, ``dense`` and
    ``dense_around_zero`` as many as for others, so that parts of a value can be counted; ``fine`` is for
    products.
    """
    column = schema[name]
    low, high = bounds_of(name, column, bounds)
    whole = column.type in _WHOLE
    made = {
        "between": lambda: Scale.between(low, high, whole=whole, resolution=resolution),
        "dense": lambda: Scale.between(low, high, whole=False),
        "around_zero": lambda: Scale.around_zero(low, high, whole=whole),
        "dense_around_zero": lambda: Scale.around_zero(low, high, whole=False),
        "fine": lambda: Scale.fine(low, high),
    }[scale]()
    return Value(name, column.type, made, clipped=bounds is not None)
