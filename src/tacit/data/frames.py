"""Frames as Arrow tables, converted without exceptions and not before the first query.

The type that pandas gives a column depends on its values: whole numbers with one gap are floats,
mixed values are objects, and Arrow raises on objects it cannot make alike. So here every column of
objects becomes a fixed Arrow type that the declaration alone decides, value by value; what does not
fit is missing. Columns of any other type keep it, and the engine cleans them like those of a file; so
the types in which a frame holds its columns are taken as public.

The column of the unit is converted so that two values are the same unit just if they are equal:
decimals become their digits, dates and times the whole number in which they are stored, categories the
value they stand for; text that is not UTF-8 is no unit. See :func:`_told_apart`.

All columns are taken at once (:attr:`Frame.taken`), so that the values of a row stay together. A Polars
LazyFrame whose plan does anything is refused: each time it is collected its rows may come in another order,
and one value can make it fail.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tacit.data.cleaning.rule import BLANKS, LARGEST, kind_of
from tacit.data.cleaning.values import reader, text, total
from tacit.errors import SourceMissing
from tacit.schema import Column

__all__ = ["Frame", "arrow_frame", "cast", "frame_of", "readable"]

_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds from 1970 to the ends of the years 1 … 9999."""
_TYPES = {
    "integer": pa.float64(),
    "number": pa.float64(),
    "code": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "text": pa.string(),
}
"""The type of objects that are read as this kind."""
_TEXT = Column("text")
_Values: TypeAlias = "pa.Array | pa.ChunkedArray"
_MISSING = pa.string()
"""The type of a column without any value, which can be read as every other."""


@dataclass(frozen=True)
class Frame:
    """A frame of which only names and types have been looked at."""

    names: Sequence[Any]
    kind: Callable[[int, Column | None], pa.DataType]
    """The Arrow type of the column at a place, read as this declaration (None: as it is, for a unit)."""
    values: Callable[[int, Column | None], _Values] = field(repr=False)
    """Its values, of that type."""
    taken: Callable[[Sequence[int]], Frame] = field(repr=False)
    """A frame of the columns at these places, read in one piece; later changes do not reach it."""
    untyped: Callable[[int], bool] = field(default_factory=lambda: lambda place: False, repr=False)
    """Whether the column at a place holds objects, of which each has its own type."""
    absent: Callable[[int], pa.Array] = field(
        default_factory=lambda: lambda place: pa.nulls(0, pa.bool_()), repr=False
    )
    """Which values of such a column are missing: None, NaN and the like, and blank text."""


def frame_of(source: Any) -> Frame | None:
    """A pandas, polars or pyarrow frame; None for anything else. Imports none of the latter two."""
    library = type(source).__module__.partition(".")[0]
    if isinstance(source, pd.DataFrame):
        return _pandas(source)
    if library == "polars" and hasattr(source, "collect_schema"):
        return _polars(source)
    if library == "pyarrow" and isinstance(source, (pa.Table, pa.RecordBatch)):
        return arrow_frame(source)
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
        return stored

    def kind(place: int, column: Column | None) -> pa.DataType:
        stored = natural(place)
        if stored is None:
            return _fixed(column)
        return _wanted(stored, column)

    def values(place: int, column: Column | None) -> _Values:
        series, stored = frame.iloc[:, place], natural(place)
        if stored is None and _fixed(column) != pa.string():
            return _converted(series.tolist(), column)
        plain = stored is not None or pd.api.types.infer_dtype(series, skipna=True) == "string"
        wanted = pa.string() if stored is None else _wanted(stored, column)
        if column is None and series.dtype == np.float64:
            numbers = series.to_numpy()
            return pa.array(numbers, mask=~(np.abs(numbers) < LARGEST))
        with suppress(Exception):
            if plain:
                return cast(pa.Array.from_pandas(series), wanted, unit=column is None)
        return _converted(series.tolist(), None if column is None else _TEXT).cast(wanted)

    def taken(places: Sequence[int]) -> Frame:
        return _pandas(frame.iloc[:, list(places)].copy())

    def missing(place: int) -> pa.Array:
        return _absent(frame.iloc[:, place].tolist())

    return Frame(list(frame.columns), kind, values, taken, lambda place: natural(place) is None, missing)


_IN_MEMORY = re.compile(r"DF \[[^\n]*\]; PROJECT [^\n]* COLUMNS")
"""How Polars explains a LazyFrame that is a frame in memory and nothing more."""


def _polars(frame: Any) -> Frame:
    if hasattr(frame, "collect"):
        if not _IN_MEMORY.fullmatch(frame.explain(optimized=False)):
            problem = "A LazyFrame may give its rows in another order each time it is collected."
            raise SourceMissing(problem, "Collect it once and pass that: source.collect().")
        frame = frame.collect()
    names = frame.columns

    def natural(place: int) -> pa.DataType | None:
        series = frame.clear().to_series(place)
        with suppress(Exception):
            return None if str(series.dtype) == "Object" else series.to_arrow().type
        return None

    def kind(place: int, column: Column | None) -> pa.DataType:
        stored = natural(place)
        return _fixed(column) if stored is None else _wanted(stored, column)

    def values(place: int, column: Column | None) -> _Values:
        series, stored = frame.to_series(place), natural(place)
        if stored is None:
            return _converted(series.to_list(), column)
        return cast(series.to_arrow(), _wanted(stored, column), unit=column is None)

    def taken(places: Sequence[int]) -> Frame:
        whole = _polars(frame.clone())
        return Frame(
            [whole.names[place] for place in places],
            lambda place, column: whole.kind(places[place], column),
            lambda place, column: whole.values(places[place], column),
            lambda inner: whole.taken([places[place] for place in inner]),
            lambda place: whole.untyped(places[place]),
            lambda place: whole.absent(places[place]),
        )

    def missing(place: int) -> pa.Array:
        return _absent(frame.to_series(place).to_list())

    return Frame(names, kind, values, taken, lambda place: natural(place) is None, missing)


def arrow_frame(frame: pa.Table | pa.RecordBatch) -> Frame:
    """A table of pyarrow as a frame."""

    def kind(place: int, column: Column | None) -> pa.DataType:
        return _wanted(frame.schema.types[place], column)

    def values(place: int, column: Column | None) -> _Values:
        return cast(frame.column(place), kind(place, column), unit=column is None)

    return Frame(frame.schema.names, kind, values, lambda places: arrow_frame(frame.select(list(places))))


def _wanted(stored: pa.DataType, column: Column | None) -> pa.DataType:
    if column is None:
        return _told_apart(stored)
    return _fixed(column) if pa.types.is_null(_unwrapped(stored)) else readable(stored)


def _told_apart(stored: pa.DataType) -> pa.DataType:
    """The type in which two units are equal just if they were equal as stored.

    It loses nothing: a decimal is its digits, a date or a time the whole number that is stored. Types that
    can be no unit are left as they are, for the engine's rules to refuse.
    """
    is_a, stored = pa.types, _unwrapped(stored)
    if is_a.is_decimal(stored) or is_a.is_null(stored) or is_a.is_string_view(stored):
        return pa.string()
    if is_a.is_timestamp(stored) or is_a.is_date(stored):
        return pa.int64()
    return pa.float32() if is_a.is_float16(stored) else stored


def _unwrapped(stored: pa.DataType) -> pa.DataType:
    """The type of the values themselves, where it is stored as codes, as runs or under another name."""
    inner = _inner(stored)
    return stored if inner == stored else _unwrapped(inner)


def _inner(stored: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(stored) or pa.types.is_run_end_encoded(stored):
        return stored.value_type
    wrapped = isinstance(stored, pa.BaseExtensionType) and not isinstance(stored, pa.UuidType)
    return stored.storage_type if wrapped else stored


def readable(stored: pa.DataType) -> pa.DataType:
    """The nearest type that the engine can read. Text stored as codes stays so: it is grouped faster."""
    if pa.types.is_dictionary(stored) and _is_text(stored.value_type):
        return stored
    stored = _unwrapped(stored)
    if pa.types.is_null(stored):
        return _MISSING
    if pa.types.is_float16(stored):
        return pa.float32()
    if pa.types.is_decimal(stored):
        return pa.float64()
    if pa.types.is_timestamp(stored):
        return pa.timestamp("us")
    return pa.date32() if pa.types.is_date(stored) else stored


def cast(values: _Values, wanted: pa.DataType, *, unit: bool = False, exact: bool = False) -> _Values:
    """Values of a type that was found :func:`_wanted`; none raises, here or later in the engine.

    Times are in UTC, within the years 1 … 9999. In text that is not UTF-8, which Arrow lets pass and others
    raise on, the bytes that do not fit become U+FFFD; if ``exact``, the text is missing. Of a ``unit``
    nothing may be replaced: its times are the numbers stored, and text is exact.
    """
    is_a = pa.types
    if values.type not in (wanted, _inner(values.type)):
        return cast(_decoded(values), wanted, unit=unit, exact=exact)
    if unit and (is_a.is_date(values.type) or is_a.is_timestamp(values.type)):
        whole = pa.int32() if is_a.is_date32(values.type) else pa.int64()
        return values.cast(whole).cast(wanted)
    if is_a.is_timestamp(values.type):
        ticks = values.type.unit
        factor = {"s": 10**6, "ms": 10**3}.get(ticks, 1)
        low, high = _FIRST // factor, _LAST // factor
        whole = values.cast(pa.int64())
        if ticks == "ns":
            thousands = pc.divide(whole, 1000)
            whole = pc.subtract(thousands, pc.less(whole, pc.multiply(thousands, 1000)).cast(pa.int64()))
        whole = pc.max_element_wise(whole, low, skip_nulls=False)
        return pc.multiply(pc.min_element_wise(whole, high, skip_nulls=False), factor).cast(wanted)
    if is_a.is_decimal(values.type) and is_a.is_floating(wanted):
        values = values.cast(pa.string())  # Arrow's own cast from decimals is often not to the nearest number
    made = values.cast(wanted, safe=False)
    if not _is_text(wanted.value_type if is_a.is_dictionary(wanted) else wanted):
        return made
    with suppress(pa.ArrowInvalid):
        made.validate(full=True)
        return made
    stored = made.cast(pa.binary()).to_pylist()
    texts = [None if value is None else _decode(value, replaced=not (unit or exact)) for value in stored]
    return pa.array(texts, type=pa.string()).cast(made.type)


def _is_text(stored: pa.DataType) -> bool:
    is_a = pa.types
    return bool(is_a.is_string(stored) or is_a.is_large_string(stored) or is_a.is_string_view(stored))


def _decoded(values: _Values) -> _Values:
    """The values as :func:`_inner` says."""
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([_decoded(chunk) for chunk in values.chunks], type=_inner(values.type))
    if isinstance(values.type, pa.BaseExtensionType):
        return values.storage
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else pc.run_end_decode(values)


def _decode(text: bytes, *, replaced: bool) -> str | None:
    try:
        return text.decode("utf-8", "replace" if replaced else "strict")
    except UnicodeDecodeError:
        return None


def _fixed(column: Column | None) -> pa.DataType:
    """The one type that columns of objects get under this declaration."""
    return pa.string() if column is None else _TYPES[kind_of(column)]


def _converted(values: Iterable[Any], column: Column | None) -> pa.Array:
    """Objects in their one type, read value by value."""
    read = _identified if column is None else reader(kind_of(column))
    return pa.array([read(value) for value in values], type=_fixed(column))


def _absent(values: Iterable[Any]) -> pa.Array:
    return pa.array(map(_is_absent, values), type=pa.bool_())


def _is_absent(value: Any) -> bool:
    try:
        if isinstance(value, str):
            return not value.strip(BLANKS)
        return value is None or value is pd.NA or bool(value != value)
    except Exception:
        return False


def _identified(value: Any) -> str | None:
    """:func:`_identity` of any object, None where it raises.

    Times of NumPy keep all their digits; those of its long numbers cannot be kept, so they are no unit.
    """
    with suppress(Exception):
        if isinstance(value, np.datetime64):
            coarse = np.datetime_data(value.dtype)[0] in _COARSE
            digits = np.datetime_as_string(value, "s" if coarse else None)
            return None if np.isnat(value) else _shortest(digits)
        return None if value is pd.NaT or isinstance(value, np.longdouble) else total(_identity)(value)
    return None


def _identity(value: Any) -> str | None:
    """Text that tells two units apart; the same number is the same unit, whole, decimal or floating.

    A float of 2⁵³ or more is none, for it stands for several whole numbers; text with half a surrogate
    pair is none, for it cannot be written down. Times with a zone are those in UTC.
    """
    if isinstance(value, bool):
        return text(value)
    if isinstance(value, float):
        if abs(value) >= LARGEST:
            return None
        return str(int(value)) if value == int(value) else _shortest(f"{Decimal(repr(value)):f}")
    if isinstance(value, Decimal):
        if not value.is_finite() or abs(value.adjusted()) > _MOST_DIGITS:
            return None
        return _shortest(f"{value:f}") if value else "0"
    if isinstance(value, datetime.datetime):
        moment = value if value.tzinfo is None else value.astimezone(datetime.UTC)
        digits, plus, zone = moment.isoformat().partition("+")
        return _shortest(digits) + plus + zone
    if isinstance(value, int):
        return str(int(value))
    return value.encode().decode() if isinstance(value, str) else text(value)


_MOST_DIGITS = 4000
_COARSE = ("Y", "M", "W", "D", "h", "m")


def _shortest(digits: str) -> str:
    """Without the zeros that end a fraction."""
    return digits.rstrip("0").rstrip(".") if "." in digits else digits
