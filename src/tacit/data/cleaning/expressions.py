"""The rule of cleaning as Ibis expressions, for whatever engine runs them.

Every function here turns a column into an expression that depends on one row only and is total, as
:mod:`tacit.data.cleaning.rule` demands: the engine computes a value of the declared type or NULL, and raises
nothing. The same row gives the same value on DuckDB and on Spark in ANSI mode.

Some stored types cannot be what is declared, whatever they hold (:func:`accepts`): that is refused by the
types alone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir

from tacit.data.cleaning.rule import (
    BLANKS,
    DAY,
    FALSE,
    FIRST_DAY,
    LARGEST,
    LAST_DAY,
    NUMBER,
    TRUE,
    coded,
    kind_of,
    limits,
)
from tacit.errors import InvalidValue
from tacit.schema import Column

__all__ = [
    "absent",
    "accepts",
    "bounded",
    "clean",
    "clip",
    "family_of",
    "parsed",
    "pointed",
    "state",
    "total",
    "unit",
    "whole",
]

_NUMERIC = ("boolean", "integer", "wide", "float", "text", "null")
_ACCEPTED = {
    "integer": _NUMERIC,
    "number": _NUMERIC,
    "boolean": _NUMERIC,
    "code": _NUMERIC,
    "text": (*_NUMERIC, "date"),
    "date": ("date", "timestamp", "text", "null"),
}


def family_of(stored: dt.DataType) -> str:
    """How a stored type is read; ``wide`` types go through float64, ``nested`` ones not at all."""
    if stored.is_boolean():
        return "boolean"
    if stored.is_decimal() or stored.is_uint64():
        return "wide"
    if stored.is_integer():
        return "integer"
    if stored.is_floating():
        return "float"
    if stored.is_string() or stored.is_uuid():
        return "text"
    if stored.is_unknown() and "NULL" in str(stored):
        return "null"
    for name in ("date", "timestamp", "null"):
        if getattr(stored, f"is_{name}")():
            return name
    return "nested"


def accepts(stored: dt.DataType, column: Column) -> bool:
    """Whether values stored so can be read as the column is declared."""
    return family_of(stored) in _ACCEPTED[kind_of(column)]


def clean(value: ir.Value, column: Column) -> ir.Value:
    """What ``column`` declares of any expression: parsed, then bounded."""
    if not accepts(value.type(), column):
        raise InvalidValue("expression", str(value.type()), f"of a type that can be {column.type}")
    return bounded(parsed(value, column), column)


def parsed(value: ir.Value, column: Column, engine: str = "") -> ir.Value:
    """The column in a type of its kind, not yet bounded nor looked up among the categories.

    ``engine`` may name the backend, which then has less to check of text that is to be a number.
    """
    family, kind = family_of(value.type()), kind_of(column)
    if value.type().is_uuid():
        value = value.cast("string")
    if family == "null":
        null = {"code": "int64", "integer": "int64", "number": "float64", "text": "string"}
        return ibis.null(null.get(kind, kind))
    if kind == "text":
        return value if value.type().is_string() else _as_text(value, family)
    if kind == "date":
        return _as_date(value, family)
    if kind == "boolean" and family in ("boolean", "text"):
        return value if family == "boolean" else _truth(value)
    if family == "boolean":
        number = value.cast("int64")
        return number.cast("float64") if kind == "number" else number
    if family == "integer" and kind != "number":
        number = value.cast("int64") if value.type().is_unsigned_integer() else value
    elif family == "text":
        number = _number(value, engine)
    else:
        number = _nearest(value)
    if kind == "boolean":
        return ibis.cases((number == 1, True), (number == 0, False))
    return whole(number) if kind == "code" else number


def pointed(value: ir.Value, column: Column, decimal: str) -> ir.Value:
    """Text of a CSV file that is to be a number, with its decimal mark as a point.

    Point and comma change places, so that a point in a file of decimal commas is no decimal point.
    """
    if decimal == "." or kind_of(column) not in ("integer", "number", "code", "boolean"):
        return value
    return value.translate(",.", ".,") if value.type().is_string() else value


def bounded(value: ir.Value, column: Column) -> ir.Value:
    """A parsed column within its bounds or categories, missing values replaced if the schema says by what."""
    missing = column.missing
    if coded(column):
        return _among(value, column)
    if column.type in ("category", "text"):
        text = _stripped(value).nullif("")
        return text if missing is None else text.fill_null(missing)
    if column.type == "boolean":
        return value if missing is None else value.fill_null(missing)
    if column.type == "date":
        return clip(value, *limits(column), missing)
    if column.type == "integer":
        clipped = clip(value, *limits(column), missing)
        return clipped.floor() if clipped.type().is_floating() else clipped.cast("int64")
    if column.bounds is not None:
        return clip(value, *column.bounds, missing)
    if missing is None:
        return ibis.ifelse(value.isnan(), ibis.null("float64"), value)
    return ibis.cases((value <= math.inf, value), else_=float(missing))  # type: ignore[arg-type]


def absent(value: ir.Value) -> ir.BooleanValue:
    """Whether a stored value is missing; never NULL."""
    family = family_of(value.type())
    if family == "null":
        return ibis.literal(True)
    if value.type().is_string():
        return value.isnull() | (_stripped(value) == "").fill_null(False)
    return (value.isnull() | value.isnan()).fill_null(True) if family == "float" else value.isnull()


def state(missing: ir.BooleanValue, parsed: ir.Value, column: Column) -> ir.IntegerValue:
    """How far a value is what is declared, from whether it is missing and what it was read as; never NULL.

    0: it is; 1: it is missing; 2: it is outside of the bounds or categories; 3: it is not of the type.
    """
    unread = parsed.isnull() | parsed.isnan() if parsed.type().is_floating() else parsed.isnull()
    branches = [(missing, 1), (unread, 3)]
    if coded(column):
        branches.append((bounded(parsed, replace(column, other=None, missing=None)).isnull(), 2))
    elif column.bounds is not None:
        lower, upper = column.bounds
        value = parsed
        if column.type == "integer" and parsed.type().is_floating():
            value = clip(parsed, lower - 1, upper + 2).floor()  # Engines fail on the floor of infinity.
        branches.append(((value < lower) | (value > upper), 2))
    return ibis.cases(*((yes, ibis.literal(place, "int8")) for yes, place in branches), else_=0).cast("int8")


def clip(value: ir.Value, lower: Any, upper: Any, missing: Any = None) -> ir.Value:
    """``value`` within [lower, upper]; NaN and NULL become ``missing``, NULL by default.

    Not Ibis's own ``clip``, under which NaN becomes the upper bound, nor ``greatest`` and ``least``,
    which turn NULL into a bound on one engine and leave it on another.
    """
    stored = value.type()
    if stored.is_integer():
        if not all(float(bound).is_integer() for bound in (lower, upper)):
            return clip(value.cast("float64"), lower, upper, missing)
        lower, upper = int(lower), int(upper)
        if missing is None and lower <= stored.bounds.lower and stored.bounds.upper <= upper:
            return value
    if stored.is_floating():
        lower, upper = float(lower), float(upper)
        missing = None if missing is None else float(missing)
    above = value <= math.inf if stored.is_floating() else value > upper
    return ibis.cases(
        (value.between(lower, upper), value),
        (value < lower, lower),
        (above, upper),
        else_=ibis.null(stored) if missing is None else missing,
    )


def unit(value: ir.Value) -> ir.Value | None:
    """The unit column as a key: NULL where it is missing; None for a type that can be no key.

    Different values stay different, so no two people become one, and equal ones stay equal, so that nobody
    becomes two; text is taken without surrounding blanks. Whole numbers are int64; floats are float64, with
    one zero and without NaN; decimals, dates and whole numbers beyond int64 are their digits. Times are
    refused: engines write two of them alike where clocks are turned back.
    """
    family = family_of(value.type())
    if family in ("integer", "boolean"):
        return value.cast("int64")
    if family == "text":
        return _stripped(value.cast("string")).nullif("")
    if family == "float":
        number = value.cast("float64")
        return ibis.cases((number == 0, ibis.literal(0.0, "float64")), (number <= math.inf, number))
    if family == "null":
        return ibis.null("string")
    return value.cast("string") if family in ("wide", "date") else None


def total(value: ir.IntegerValue) -> ir.IntegerScalar:
    """The exact sum of whole numbers as int64, 0 over no rows.

    Up to 2³⁴ rows of at most 2²⁸ in size it can neither overflow nor be rounded. The engines widen a
    sum (DuckDB to 128 bits, which pandas would read as floats); this brings it back.
    """
    return value.cast("int64").sum().cast("decimal(38, 0)").cast("int64").fill_null(0)


def _constant(value: Any, kind: str) -> ir.Value:
    return ibis.null(kind) if value is None else ibis.literal(value, kind)


def _stripped(text: ir.StringValue) -> ir.StringValue:
    """Without surrounding blanks. Trimming is slow: it is left to text that has some, or begins below ``!``.

    Nothing here can raise in DuckDB's eyes either (``right`` could), so that it filters before it unpacks.
    """
    plain = text >= "!"
    for blank in BLANKS:
        plain &= ~text.endswith(blank)
    return ibis.ifelse(plain, text, text.strip())


def _number(text: ir.StringValue, engine: str) -> ir.FloatingValue:
    """Text as float64, if decimal: DuckDB also reads ``1_000`` and ``+-1``, Spark ``1d`` and ``0x1p3``."""
    lax = text.contains("_") | text.contains("+-")
    plain = ~lax if engine == "duckdb" else text.re_search(f"^[{BLANKS}]*{NUMBER}[{BLANKS}]*$")
    return ibis.ifelse(plain, text, ibis.null("string")).try_cast("float64")


def _nearest(number: ir.NumericValue) -> ir.FloatingValue:
    """The nearest float64. DuckDB's own cast is not always, from decimals that take it more than 64 bits."""
    stored = number.type()
    if stored.is_decimal() and (stored.precision or 38) > 18:
        return number.cast("string").try_cast("float64")
    return number.cast("float64")


def _truth(text: ir.StringValue) -> ir.BooleanValue:
    word = _stripped(text).lower()
    return ibis.cases((word.isin(TRUE), True), (word.isin(FALSE), False))


def whole(number: ir.NumericValue) -> ir.IntegerValue:
    """Whole numbers below 2⁵³ in size as int64, everything else NULL."""
    if number.type().is_integer():
        whole = number.cast("int64")
        wide = number.type().nbytes == 8
        return ibis.cases((whole.between(1 - LARGEST, LARGEST - 1), whole)) if wide else whole
    floor = clip(number, -LARGEST, LARGEST).floor()
    below = number.abs() < float(LARGEST)
    return ibis.cases(((floor.cast("float64") == number) & below, floor))


def _as_text(value: ir.Value, family: str) -> ir.StringValue:
    if family in ("float", "wide"):
        value = whole(_nearest(value))
    elif family == "integer":
        value = whole(value)
    written = value.cast("string")
    return ibis.cases((value.between(FIRST_DAY, LAST_DAY), written)) if family == "date" else written


def _as_date(value: ir.Value, family: str) -> ir.DateValue:
    if family == "text":
        text = _stripped(value.cast("string"))
        plain = text.re_search(f"^{DAY}([ T]|$)")
        return ibis.ifelse(plain, text.left(10), ibis.null("string")).try_cast("date")
    return value.try_cast("date") if family == "timestamp" else value


def _among(value: ir.Value, column: Column) -> ir.Value:
    """The declared categories of a parsed column; the same rule as :func:`category`."""
    categories = list(column.categories or ())
    missing, kind = column.missing, value.type()
    if not kind.is_string():
        declared = (value.isin(categories), value)
        return ibis.cases(declared) if missing is None else ibis.cases(declared, (value.isnull(), missing))
    stripped = _stripped(value)
    branches = [(value.isin(categories), value), (stripped.isin(categories), stripped)]
    if missing is not None or column.other is not None:
        branches.append((value.isnull() | (stripped == ""), _constant(missing, "string")))
    return ibis.cases(*branches, else_=_constant(column.other, "string"))
