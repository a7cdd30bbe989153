"""Units in memory: which rows belong to the same unit, and which of its rows are kept.

Two rows belong to the same unit just if the values that name it are equal. Nobody may become two units, whose
rows would then count twice; and no two people one, of whom some rows would be lost.
"""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from tacit.data.given import single
from tacit.randomness import Source

__all__ = ["bounded_units", "unit_numbers"]

_COMPARED = (bytes, datetime.date, datetime.datetime, datetime.time, datetime.timedelta, UUID)
"""Types, other than numbers and text, whose values are told apart by comparing them."""
_MOST_DIGITS = 10_000
"""Decimal numbers of more digits than this before or after the point are not made into fractions."""


def bounded_units(units: NDArray[Any], most: int, source: Source) -> NDArray[np.bool_]:
    """Which rows to keep so that no unit has more than ``most``: a random choice, blind to the rows.

    Rows without a unit (None or NaN) are not kept.
    """
    place = unit_numbers(units)
    order = np.lexsort((source.words(len(units)), place))
    ranked = place[order]
    starts = np.flatnonzero(np.diff(ranked, prepend=-2))
    rank = np.arange(len(units)) - np.repeat(starts, np.diff(np.append(starts, len(units))))
    kept = np.zeros(len(units), dtype=bool)
    kept[order] = (rank < most) & (ranked >= 0)
    return kept


def unit_numbers(units: NDArray[Any]) -> NDArray[np.int64]:
    """A number for each unit, the same for equal ones, −1 where there is none.

    Numbers are equal by value, of whatever type they are; a text is never a number. None, NaN and what
    pandas calls missing are no unit.

    >>> unit_numbers(np.array([1, 1.0, True, Decimal(1), "1", None, math.nan], dtype=object)).tolist()
    [0, 0, 0, 0, 1, -1, -1]
    """
    if units.dtype.kind in "mM":
        stamps = units.astype(np.int64)
        numbered = np.asarray(np.unique(stamps, return_inverse=True)[1], dtype=np.int64)
        return np.where(np.isnat(units), -1, numbered)
    if units.dtype.kind in "biu":
        return np.asarray(np.unique(units, return_inverse=True)[1], dtype=np.int64)
    numbers: dict[Any, int] = {}
    found = np.empty(len(units), dtype=np.int64)
    for i, unit in enumerate(units.tolist()):
        key = _key(unit)
        found[i] = -1 if key is None else numbers.setdefault(key, len(numbers))
    return found


def _key(unit: Any) -> Any:
    """A key that two units share exactly if they are the same; None for no unit.

    Nothing in it runs code that came with the data, such as a zone's: a key that raised when it is compared
    would take another person's rows along.
    """
    try:
        unit = single(unit)
        if isinstance(unit, (np.datetime64, datetime.datetime)):
            return _moment(unit)
        if isinstance(unit, np.timedelta64) and isinstance(unit.item(), int):
            return "duration", str(unit)
        if isinstance(unit, np.generic):
            unit = unit.item()
        if unit is None or bool(unit != unit):
            return None
        if isinstance(unit, (complex, np.complexfloating)):
            unit = unit.real if unit.imag == 0 else ("complex", unit.real, unit.imag)
        if isinstance(unit, (bool, int, float, Decimal, Fraction, np.longdouble)):
            return "number", _exact(unit)
        if isinstance(unit, (bytearray, memoryview)):
            unit = bytes(unit)
        if isinstance(unit, (list, tuple)):
            parts = tuple(("none",) if part is None else _key(part) for part in unit)
            return None if None in parts else ("several", parts)
        if type(unit) is datetime.time and (offset := unit.utcoffset()) is not None:
            past = datetime.datetime.combine(datetime.date.min, unit.replace(tzinfo=None))
            return "clock", past - datetime.datetime.min - offset
        if type(unit) in _COMPARED:
            return "value", unit.replace(tzinfo=None) if isinstance(unit, datetime.time) else unit, 0
        if isinstance(unit, str):
            return "text", str.__str__(unit)
        return type(unit).__name__, str.__str__(str(unit))
    except Exception:
        return None


def _moment(unit: Any) -> Any:
    """A time, whose class does not matter: pandas and NumPy have their own, with nanoseconds.

    With a zone it is the time in UTC, as a distance from the first day of the calendar: where clocks are
    turned back, the same hour comes twice.
    """
    if isinstance(unit, np.datetime64):
        if np.isnat(unit):
            return None
        known = unit.item()
        fine = np.datetime_data(unit.dtype) == ("ns", 1)
        whole = unit.astype("datetime64[us]").item() if fine else known
        if isinstance(whole, int):
            return "time", str(unit)
        return "value", whole, int(unit.astype(np.int64)) % 1000 if fine else 0
    if unit != unit:
        return None
    parts = (unit.year, unit.month, unit.day, unit.hour, unit.minute, unit.second, unit.microsecond)
    plain, nanoseconds = datetime.datetime(*parts), getattr(unit, "nanosecond", 0)
    offset = datetime.datetime(*parts, tzinfo=unit.tzinfo, fold=unit.fold).utcoffset()
    if offset is None:
        return "value", plain, nanoseconds
    return "instant", plain - datetime.datetime.min - offset, nanoseconds


def _exact(number: Any) -> Any:
    """A number such that equal ones are equal here, of whatever type they are."""
    if isinstance(number, Decimal) and not -_MOST_DIGITS < number.adjusted() < _MOST_DIGITS:
        sign, digits, exponent = number.as_tuple()
        whole = "".join(map(str, digits)).rstrip("0")
        return sign, whole, int(exponent) + len(digits) - len(whole)
    if isinstance(number, np.longdouble):
        return Fraction(*number.as_integer_ratio()) if np.isfinite(number) else float(number)
    if isinstance(number, float):
        number = float.__float__(number)
        return number if math.isinf(number) else Fraction(number)
    return Fraction(int.__int__(number) if isinstance(number, int) else number)
