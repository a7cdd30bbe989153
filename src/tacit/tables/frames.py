"""Frames as Arrow tables, converted without exceptions and not before the first query.

The type that pandas gives a column depends on its values: whole numbers with one gap are floats,
mixed values are objects, and Arrow raises on objects it cannot make alike. So here every column of
objects becomes a fixed Arrow type that the declaration alone decides, value by value; what does not
fit is missing. Columns of any other type keep it, and the engine cleans them like those of a file; so
the types in which a frame holds its columns are taken as public.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tacit.errors import SourceMissing
from tacit.schema import Column
from tacit.tables.cleaning import BLANKS, LARGEST

__all__ = ["Frame", "frame_of"]

_NUMBER = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?)", re.I | re.A)
_DAY = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]|$)", re.A)
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds from 1970 to the ends of the years 1 … 9999."""
_MISSING = pa.string()
"""The type of a column without any value, which can be read as every other."""


@dataclass(frozen=True)
class Frame:
    """A frame of which only names and types have been looked at."""

    names: Sequence[Any]
    kind: Callable[[int, Column | None], pa.DataType]
    """The Arrow type of the column at a place, read as this declaration (None: as it is, for a unit)."""
    values: Callable[[int, Column | None], pa.Array | pa.ChunkedArray] = field(repr=False)
    """Its values, of that type."""


def frame_of(source: Any) -> Frame | None:
    """A pandas, polars or pyarrow frame; None for anything else. Imports none of the latter two."""
    library = type(source).__module__.partition(".")[0]
    if isinstance(source, pd.DataFrame):
        return _pandas(source)
    if library == "polars" and hasattr(source, "collect_schema"):
        return _polars(source)
    if library == "pyarrow" and isinstance(source, (pa.Table, pa.RecordBatch)):
        return _arrow(source)
    return None


def _pandas(frame: pd.DataFrame) -> Frame:
    def natural(place: int) -> pa.DataType | None:
        """The type of the column, if it has one that its values do not decide."""
        series = frame.iloc[:0, place]
        if series.dtype == object:
            return None
        stored = None
        with suppress(Exception):
            stored = pa.Array.from_pandas(series).type
        if isinstance(stored, pa.BaseExtensionType) or pd.api.types.is_complex_dtype(series.dtype):
            problem = f"Column {frame.columns[place]!r} is stored as {series.dtype}, which cannot be read."
            raise SourceMissing(problem, "Convert it to numbers, dates or text.", column=frame.columns[place])
        return None if stored is None else _readable(stored)

    def kind(place: int, column: Column | None) -> pa.DataType:
        stored = natural(place) or _fixed(column)
        return _MISSING if _hopeless(stored, column) else stored

    def values(place: int, column: Column | None) -> pa.Array | pa.ChunkedArray:
        series, stored = frame.iloc[:, place], natural(place)
        if stored is None and _fixed(column) != pa.string():
            return _converted(series.tolist(), _reader(column))
        if _hopeless(stored, column):
            return pa.nulls(len(series)).cast(_MISSING)
        plain = stored is not None or pd.api.types.infer_dtype(series, skipna=True) == "string"
        wanted = stored or pa.string()
        if column is None and series.dtype == np.float64:
            numbers = series.to_numpy()
            return pa.array(numbers, mask=~(np.abs(numbers) < LARGEST))
        with suppress(Exception):
            if plain:
                return _cast(pa.Array.from_pandas(series), wanted)
        return _converted(series.tolist(), _text if column is not None else _identity).cast(wanted)

    return Frame(list(frame.columns), kind, values)


def _hopeless(stored: pa.DataType | None, column: Column | None) -> bool:
    """Numbers for dates: pandas makes them of a column in which all is missing."""
    if stored is None or column is None or column.type != "date":
        return False
    plain = stored.value_type if pa.types.is_dictionary(stored) else stored
    is_a = pa.types
    number = is_a.is_integer(plain) or is_a.is_floating(plain) or is_a.is_decimal(plain)
    return bool(number or is_a.is_boolean(plain))


def _polars(frame: Any) -> Frame:
    empty = frame.clear() if hasattr(frame, "clear") else frame.head(0)
    names = frame.collect_schema().names()

    def at(source: Any, name: str) -> Any:
        part = source.select(name)
        return part.collect().to_series() if hasattr(part, "collect") else part.to_series()

    def natural(place: int) -> pa.DataType | None:
        series = at(empty, names[place])
        with suppress(Exception):
            return None if str(series.dtype) == "Object" else _readable(series.to_arrow().type)
        return None

    def kind(place: int, column: Column | None) -> pa.DataType:
        return natural(place) or _fixed(column)

    def values(place: int, column: Column | None) -> pa.Array | pa.ChunkedArray:
        series, plain = at(frame, names[place]), natural(place)
        if plain is None:
            return _converted(series.to_list(), _reader(column))
        return _cast(series.to_arrow(), plain)

    return Frame(names, kind, values)


def _arrow(frame: pa.Table | pa.RecordBatch) -> Frame:
    def kind(place: int, column: Column | None) -> pa.DataType:
        return _readable(frame.schema.types[place])

    def values(place: int, column: Column | None) -> pa.Array | pa.ChunkedArray:
        return _cast(frame.column(place), kind(place, column))

    return Frame(frame.schema.names, kind, values)


def _readable(stored: pa.DataType) -> pa.DataType:
    """The nearest type that the engine can read."""
    if pa.types.is_null(stored):
        return _MISSING
    if pa.types.is_float16(stored):
        return pa.float32()
    if pa.types.is_decimal(stored):
        return pa.float64()
    if pa.types.is_timestamp(stored):
        return pa.timestamp("us")
    return pa.date32() if pa.types.is_date(stored) else stored


def _cast(values: pa.Array | pa.ChunkedArray, wanted: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Values of a type that was found :func:`_readable`; none raises, here or later in the engine.

    Times are in UTC, within the years 1 … 9999. What is not UTF-8, which Arrow lets pass and others raise
    on, becomes U+FFFD.
    """
    if pa.types.is_timestamp(values.type):
        unit = values.type.unit
        factor = {"s": 10**6, "ms": 10**3}.get(unit, 1)
        low, high = _FIRST // factor, _LAST // factor
        whole = values.cast(pa.int64())
        if unit == "ns":
            whole = pc.divide(pc.subtract(whole, pc.if_else(pc.less(whole, 0), 999, 0)), 1000)
        whole = pc.max_element_wise(whole, low, skip_nulls=False)
        return pc.multiply(pc.min_element_wise(whole, high, skip_nulls=False), factor).cast(wanted)
    cast = values.cast(wanted, safe=False)
    is_a = pa.types
    text = (is_a.is_string, is_a.is_large_string, is_a.is_string_view, is_a.is_dictionary)
    if not any(kind(wanted) for kind in text):
        return cast
    with suppress(pa.ArrowInvalid):
        cast.validate(full=True)
        return cast
    stored = cast.cast(pa.binary()).to_pylist()
    texts = [None if value is None else value.decode("utf-8", "replace") for value in stored]
    return pa.array(texts, type=pa.string()).cast(cast.type)


def _fixed(column: Column | None) -> pa.DataType:
    """The one type that columns of objects get under this declaration."""
    return _TYPES[_reader(column)]


def _reader(column: Column | None) -> Callable[[Any], Any]:
    if column is None:
        return _identity
    if column.categories is not None and column.type != "boolean":
        return _text if isinstance(column.categories[0], str) else _number
    return {"number": _number, "integer": _number, "boolean": _truth, "date": _day}.get(column.type, _text)


def _converted(values: Iterable[Any], read: Callable[[Any], Any]) -> pa.Array:
    def total(value: Any) -> Any:
        try:
            if isinstance(value, np.generic):
                value = _plain(value)
            return None if value is pd.NaT else read(value)
        except Exception:
            return None

    return pa.array([total(value) for value in values], type=_TYPES[read])


def _plain(value: np.generic) -> Any:
    """A NumPy value as Python's own; a time beyond the years 1 … 9999 as the nearest one within."""
    if not isinstance(value, np.datetime64) or np.isnat(value):
        return value.item()
    day = value.astype("datetime64[D]").astype(np.int64)
    moment = value.astype("datetime64[us]").item()
    if isinstance(moment, datetime.datetime):
        return moment
    return datetime.datetime.max if day > 0 else datetime.datetime.min


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        value = value.strip(BLANKS)
        return float(value) if _NUMBER.fullmatch(value) else None
    if not isinstance(value, (int, float, Decimal)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _truth(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "1": True, "false": False, "0": False}.get(value.strip(BLANKS).lower())
    return {0.0: False, 1.0: True}.get(_number(value))  # type: ignore[arg-type]


def _day(value: Any) -> datetime.date | None:
    if isinstance(value, str):
        found = _DAY.match(value.strip(BLANKS))
        return datetime.date.fromisoformat(found[1]) if found else None
    if isinstance(value, datetime.datetime) and not 1 <= value.year <= 9999:
        return datetime.date.max if value.year > 0 else datetime.date.min
    if isinstance(value, datetime.datetime):
        return (value if value.tzinfo is None else value.astimezone(datetime.UTC)).date()
    return value if isinstance(value, datetime.date) else None


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float, Decimal)):
        whole = int(value)
        return str(whole) if whole == value and abs(whole) < LARGEST else None
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else None


def _identity(value: Any) -> str | None:
    """Text that tells two units apart; the same number is the same unit, whole or floating.

    A float of 2⁵³ or more is none, for it stands for several whole numbers.
    """
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        if isinstance(value, float) and abs(value) >= LARGEST:
            return None
        return str(int(value)) if value == int(value) else repr(float(value))
    return value.isoformat() if isinstance(value, datetime.datetime) else _text(value)


_TYPES: dict[Callable[[Any], Any], pa.DataType] = {
    _number: pa.float64(), _truth: pa.bool_(), _day: pa.date32(), _text: pa.string(), _identity: pa.string(),
}  # fmt: skip
