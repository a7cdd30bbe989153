"""The rule of cleaning on values in memory: on one value of Python's or NumPy's, and on whole arrays.

:func:`number`, :func:`truth`, :func:`day` and :func:`text` read one value as :mod:`tacit.data.cleaning.rule`
says; :func:`reader` makes one of them total. Arrays of numbers and times are read at once; of all other
arrays each distinct value is read once, by the same functions. So an array gives what its values give alone.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from tacit.data.cleaning.rule import BLANKS, DAY, FALSE, FIRST_DAY, LARGEST, LAST_DAY, NUMBER, TRUE, limits
from tacit.schema import Column

__all__ = [
    "Values",
    "bounded",
    "bounds_of",
    "category",
    "codes_of",
    "day",
    "number",
    "numbers",
    "reader",
    "text",
    "truth",
]

Array = NDArray[Any]
Float64 = NDArray[np.float64]

_NUMBER = re.compile(NUMBER)
_DAY = re.compile(f"({DAY})(?:[ T]|$)")
_DIGITS = re.compile(r"[0-9.eE+\-\n ]*")
_TRUTH = {**dict.fromkeys(TRUE, True), **dict.fromkeys(FALSE, False)}
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_PLAIN = frozenset({str, int, float, bool, type(None), datetime.date})
"""Types whose equal values are read alike, so that each is read once."""


def number(value: Any) -> float | None:
    """The value as float64; None for no number, and possibly NaN, which is missing too."""
    if isinstance(value, str):
        value = value.strip(BLANKS)
        return float(value) if _NUMBER.fullmatch(value) else None
    if isinstance(value, complex) and value.imag == 0:
        value = value.real
    if not isinstance(value, (int, float, Decimal, Fraction)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def truth(value: Any) -> bool | None:
    """The value as a truth value, None for none."""
    if isinstance(value, str):
        return _TRUTH.get(value.strip(BLANKS).lower())
    return {0.0: False, 1.0: True}.get(number(value))  # type: ignore[arg-type]


def day(value: Any) -> datetime.date | None:
    """The value as a day, None for none."""
    if isinstance(value, str):
        found = _DAY.match(value.strip(BLANKS))
        return datetime.date.fromisoformat(found[1]) if found else None
    if not isinstance(value, datetime.datetime):
        return value if isinstance(value, datetime.date) else None
    if value != value:
        return None
    if not FIRST_DAY.year <= value.year <= LAST_DAY.year:
        return LAST_DAY if value.year > 0 else FIRST_DAY
    try:
        return (value if value.tzinfo is None else value.astimezone(datetime.UTC)).date()
    except OverflowError:
        return LAST_DAY if value.year == LAST_DAY.year else FIRST_DAY


def text(value: Any) -> str | None:
    """The value as text, its blanks still around it; None for no text."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    found = number(value)
    return str(int(found)) if found is not None and abs(found) < LARGEST and found.is_integer() else None


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "integer": number,
    "number": number,
    "code": number,
    "boolean": truth,
    "date": day,
    "text": text,
}


def reader(kind: str) -> Callable[[Any], Any]:
    """How a value is read as this kind (see :func:`~tacit.data.cleaning.rule.kind_of`); raises nothing.

    >>> list(map(reader("number"), ["1e3", True, "1_000", None, np.float32(0.5)]))
    [1000.0, 1.0, None, None, 0.5]
    """
    return total(_READERS[kind])


def total(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``read`` of Python's own values, also for NumPy's; None where it raises."""

    def safely(value: Any) -> Any:
        try:
            return read(_plain(value) if isinstance(value, np.generic) else value)
        except Exception:
            return None

    return safely


def _plain(value: np.generic) -> Any:
    """A NumPy value as Python's own; of a time, another on the same day in the years 1 … 9999."""
    if isinstance(value, np.longdouble):
        with np.errstate(all="ignore"):
            return float(np.float64(value))
    if isinstance(value, np.timedelta64):
        return None
    if not isinstance(value, np.datetime64) or np.isnat(value):
        return value.item()
    if value.dtype == "datetime64[D]" and isinstance(value.item(), datetime.date):
        return value.item()
    place = _EPOCH + int(_whole_days(np.array([value]))[0])
    within = min(max(place, FIRST_DAY.toordinal()), LAST_DAY.toordinal())
    return datetime.datetime.combine(datetime.date.fromordinal(within), datetime.time())


def category(column: Column, key: str | int | None) -> Any:
    """The category, ``other`` or None that a value belongs to once it is read as text or as a whole number.

    >>> sex = Column("category", categories=("Female", "Male"), other="another", missing="Male")
    >>> [category(sex, key) for key in ("Female", " Male ", "M", "", None)]
    ['Female', 'Male', 'another', 'Male', 'Male']
    >>> category(Column("text"), " any text ")
    'any text'
    """
    return _categorizer(column)(key)


def _categorizer(column: Column) -> Callable[[str | int | None], Any]:
    categories = None if column.categories is None else frozenset(column.categories)

    def found(key: str | int | None) -> Any:
        if key is None:
            return column.missing
        if not isinstance(key, str):
            return int(key) if categories is not None and key in categories else None
        stripped = key.strip(BLANKS)
        if categories is None:
            return stripped or column.missing
        if key in categories or stripped in categories:
            return key if key in categories else stripped
        return column.other if stripped else column.missing

    return found


@dataclass(frozen=True)
class Values:
    """The values of a column; with ``index``, those of the rows are ``stored[index]``."""

    stored: Array
    index: Array | None = None

    def __len__(self) -> int:
        return len(self.stored if self.index is None else self.index)

    def read(self, read: Callable[[Array], Array]) -> Array:
        """What ``read``, which maps an array value by value, makes of the rows."""
        return read(self.stored) if self.index is None else read(self.stored)[self.index]


def bounded(values: Values, column: Column) -> Float64:
    """A number, or a date in days since 1970, within its bounds; missing ones replaced, or NaN."""
    found = values.read(_days if column.type == "date" else numbers)
    with np.errstate(all="ignore"):
        if column.missing is not None:
            found = np.where(np.isnan(found), _as_number(column.missing), found)
        if column.type == "integer":
            found = np.floor(found)
        return np.asarray(np.clip(found, *bounds_of(column)))


def bounds_of(column: Column) -> tuple[float, float]:
    """The bounds as numbers, those that the rule sets if none are declared."""
    lower, upper = limits(column)
    return _as_number(lower), _as_number(upper)


def _as_number(constant: Any) -> float:
    return float(constant.toordinal() - _EPOCH if isinstance(constant, datetime.date) else constant)


def codes_of(values: Values, column: Column) -> NDArray[np.intp]:
    """The place of every row's category; that of ``other`` is after the last, none is −1."""
    categories = column.categories or ()
    places = {value: place for place, value in enumerate(categories)}
    if not isinstance(categories[0], str):
        return values.read(lambda stored: _whole_codes(stored, column, places))
    if column.other is not None:
        places[column.other] = len(categories)
    named = _categorizer(column)

    def place(value: Any) -> int:
        return places.get(named(text(value)), -1)

    def read(stored: Array) -> Array:
        absent = place(None)
        if stored.dtype.kind not in "iuf":
            return _each(stored, place, absent, np.intp)
        whole = {int(label): places[label] for label in categories if _canonical(label)}
        codes = _looked_up(stored, whole, places.get(column.other, -1))
        codes[~_is_whole(stored)] = absent
        return codes

    return values.read(read)


def _canonical(label: str) -> bool:
    """Whether a whole number that is read as text can be this text."""
    return bool(re.fullmatch("-?[0-9]{1,16}", label)) and str(int(label)) == label


def _is_whole(found: Array) -> NDArray[np.bool_]:
    if found.dtype.kind in "iu":
        return (found < LARGEST) & (found > -LARGEST)
    with np.errstate(all="ignore"):
        return np.asarray((np.floor(found) == found) & (np.abs(found) < LARGEST))


def _whole_codes(stored: Array, column: Column, places: Mapping[Any, int]) -> Array:
    """Places among categories that are whole numbers or truth values."""
    absent = -1 if column.missing is None else places[column.missing]
    read = truth if column.type == "boolean" else number
    found = stored if stored.dtype.kind in "iu" else numbers(stored, read)
    codes = _looked_up(found, {int(value): place for value, place in places.items()}, -1)
    codes[codes < 0 if column.type == "boolean" else ~_is_whole(found)] = absent
    return codes


def _looked_up(found: Array, places: Mapping[int, int], undeclared: int) -> Array:
    """The place of each number among whole numbers."""
    codes = np.full(len(found), undeclared, dtype=np.intp)
    if not places:
        return codes
    keys = np.array(sorted(places), dtype=np.int64)
    if found.dtype.kind == "u":
        found = np.minimum(found, np.uint64(2**62))
    with np.errstate(all="ignore"):
        sought = found.astype(np.float64 if found.dtype.kind == "f" else np.int64)
        near = np.minimum(np.searchsorted(keys, sought), len(keys) - 1)
        same = keys[near] == sought
    codes[same] = np.array([places[int(key)] for key in keys])[near[same]]
    return codes


def numbers(stored: Array, read: Callable[[Any], float | None] = number) -> Float64:
    """float64, NaN where there is no number."""
    with np.errstate(all="ignore"):
        if stored.dtype.kind in "biuf":
            return stored.astype(np.float64)
        if stored.dtype.kind == "c":
            return np.where(stored.imag == 0, stored.real, math.nan).astype(np.float64)
    return _each(stored, read, math.nan, np.float64)


def _days(stored: Array) -> Float64:
    """Days since 1970, NaN where there is no date."""
    if stored.dtype.kind == "M":
        return np.where(np.isnat(stored), np.nan, _whole_days(stored).astype(np.float64))

    def since(value: Any) -> float | None:
        found = day(value)
        return None if found is None else _as_number(found)

    return _each(stored, since, math.nan, np.float64)


_FINE = {"ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}
"""How many of these units a second has; only a part of the years 1 … 9999 can be told in them."""
_FAR = np.array(["-20000-01-01", "20000-01-01"], dtype="datetime64[D]")


def _whole_days(stored: Array) -> NDArray[np.int64]:
    """Days since 1970, up to the year 20000: NumPy's own conversion overflows for the farthest times."""
    unit, count = np.datetime_data(stored.dtype)
    if unit in _FINE and count == 1:
        seconds = np.floor_divide(stored.astype(np.int64), _FINE[unit])
        return np.floor_divide(seconds, 86_400)
    if unit not in _FINE:
        stored = np.clip(stored, *_FAR.astype(stored.dtype))
    return stored.astype("datetime64[D]").astype(np.int64)


def _each(stored: Array, read: Callable[[Any], Any], absent: Any, dtype: Any) -> Array:
    """What ``read`` makes of each value, ``absent`` where that is None or raises."""
    safely = total(read)

    def found(value: Any) -> Any:
        result = safely(value)
        return absent if result is None else result

    if stored.dtype.kind in "mV" or (stored.dtype.kind == "M" and stored.dtype != "datetime64[D]"):
        return np.full(len(stored), absent, dtype)
    values = stored.tolist()
    if stored.dtype.kind == "M":
        values = [value if isinstance(value, datetime.date) else None for value in values]
    kinds = _types_of(values)
    if not kinds <= _PLAIN:
        return np.fromiter(map(found, values), dtype, len(values))
    if len(kinds - {type(None)}) <= 1:
        distinct = list(set(values) - {None})
        once = dict(zip(distinct, _decimals(distinct, read) or map(found, distinct), strict=True))
        once[None] = absent
        return np.fromiter(map(once.__getitem__, values), dtype, len(values))
    keys = list(zip(map(type, values), values, strict=True))
    read_once = {key: found(key[1]) for key in set(keys)}
    return np.fromiter(map(read_once.__getitem__, keys), dtype, len(keys))


def _types_of(values: list[Any]) -> set[type]:
    """The types of the values; a class may raise when it is looked up, and is then like no other."""
    try:
        return set(map(type, values))
    except Exception:
        return {object}


def _decimals(texts: list[Any], read: Callable[[Any], Any]) -> list[float] | None:
    """All at once what :func:`number` makes of texts that are nothing but plain numbers; else None."""
    with suppress(TypeError, ValueError):
        if read is number and _DIGITS.fullmatch("\n".join(texts)):
            return list(map(float, texts))
    return None
