"""Reading the columns of a table as their schema declares them: row by row, and without exceptions.

The rules are those of :mod:`tacit.data.cleaning`, for arrays in memory. What a value becomes depends on it
and on the declared column; what fits no rule is missing. An exception that only some data cause
would tell something about them, so no value raises.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue, SourceMissing
from tacit.schema import Column, Schema, hint_of

__all__ = ["Rows", "Values", "bounded", "bounds_of", "codes_of"]

Array = NDArray[Any]
Float64 = NDArray[np.float64]

_BLANKS = " \t\n\r\v\f"
_LARGEST = 2**53
_NUMBER = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?)", re.I | re.A)
_DIGITS = re.compile(r"[0-9.eE+\-\n ]*", re.A)
_DAY = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]|$)", re.A)
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_PLAIN = frozenset({str, int, float, bool, type(None), datetime.date})
"""Types whose equal values are read alike, so that each is read once."""


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


class Rows:
    """The columns of X by name; only names and shapes are looked at before one is asked for."""

    def __init__(self, X: Any, schema: Schema, used: Sequence[str]) -> None:
        self.X = X
        self.places: dict[str, Any]
        if isinstance(X, Mapping) or hasattr(X, "columns"):
            names = list(X) if isinstance(X, Mapping) else list(X.columns)
            for name in used:
                _required(name, names, used)
            self.by_name, self.places = True, {name: name for name in used}
            self.number = len(X[used[0]]) if isinstance(X, Mapping) else len(X)
            return
        self.by_name = False
        self.X = _matrix(X, schema, used)
        width = self.X.shape[1] if self.X.ndim == 2 else None
        columns = list(schema) if width == len(schema.columns) else list(used)
        if width != len(columns):
            wanted = f"a frame, or a 2-D array of the {len(columns)} columns {', '.join(columns):.150}"
            raise InvalidValue("X", f"an array of shape {self.X.shape}", wanted)
        self.places = {name: columns.index(name) for name in used}
        self.number = len(self.X)

    def __getitem__(self, name: str) -> Values:
        if not self.by_name:
            return Values(self.X[:, self.places[name]])
        values = _values_of(name, self.X[name])
        if len(values) != self.number:
            raise InvalidValue(
                f"column {name!r}", f"{len(values)} values", f"as long as the others, {self.number}"
            )
        return values


def bounded(values: Values, column: Column) -> Float64:
    """A number, or a date in days since 1970, within its bounds; missing ones replaced, or NaN."""
    numbers = values.read(_days if column.type == "date" else _numbers)
    if column.type == "integer":
        numbers = np.floor(numbers)
    if column.missing is not None:
        numbers = np.where(np.isnan(numbers), _number_of(column.missing), numbers)
    return np.asarray(np.clip(numbers, *bounds_of(column)))


def bounds_of(column: Column) -> tuple[float, float]:
    """The declared bounds as numbers, infinite if there are none."""
    lower, upper = column.bounds or (-math.inf, math.inf)
    return _number_of(lower), _number_of(upper)


def codes_of(values: Values, column: Column) -> NDArray[np.intp]:
    """The place of every row's category; that of ``other`` is after the last, none is −1."""
    categories = column.categories or ()
    places = {value: place for place, value in enumerate(categories)}
    undeclared = -1 if column.other is None else len(categories)
    absent = -1 if column.missing is None else places.get(column.missing, undeclared)
    if not isinstance(categories[0], str):
        return values.read(lambda stored: _whole_codes(stored, column, places, absent))

    def place(value: Any) -> int:
        text = _text(value)
        if text is None:
            return absent
        if text in places:
            return places[text]
        text = text.strip(_BLANKS)
        return places.get(text, undeclared if text else absent)

    def read(stored: Array) -> Array:
        if stored.dtype.kind not in "iuf":
            return _each(stored, place, absent, np.intp)
        whole = {int(text): code for text, code in places.items() if _canonical(text)}
        codes = _looked_up(stored, whole, undeclared)
        codes[~_is_whole(stored)] = absent
        return codes

    return values.read(read)


def _required(name: str, names: Sequence[Any], used: Sequence[str]) -> None:
    if names.count(name) == 1:
        return
    problem = f"X has {'more than one' if name in names else 'no'} column {name!r}."
    hint = hint_of(name, [str(other) for other in names if other not in used])
    raise SourceMissing(problem, hint or f"It has {', '.join(map(repr, names)):.200}.", column=name)


def _matrix(X: Any, schema: Schema, used: Sequence[str]) -> Array:
    """X as an array of two dimensions; a row of a list that is none of the schema's is missing throughout."""
    if isinstance(X, np.ma.MaskedArray):
        return _unmasked(X)
    if isinstance(X, np.ndarray) and not (X.ndim == 1 and X.dtype.kind == "O"):
        return X
    if not isinstance(X, (list, tuple, np.ndarray)):
        return np.asarray(X) if hasattr(X, "__array__") else np.empty(0)
    places = {len(used): [list(schema).index(name) for name in used], len(schema.columns): None}
    cells = np.full((len(X), len(schema.columns)), None, dtype=object)
    for i, row in enumerate(X):
        values = _listed(row)
        if len(values) in places:
            columns = places[len(values)]
            for j, cell in zip(range(len(values)) if columns is None else columns, values, strict=True):
                cells[i, j] = cell
    return cells


def _listed(row: Any) -> list[Any]:
    """The values of a row of a list, none for what is no row."""
    try:
        listed = isinstance(row, (list, tuple)) or (isinstance(row, np.ndarray) and row.ndim == 1)
        return list(row) if listed else []
    except Exception:
        return []


def _unmasked(values: np.ma.MaskedArray[Any, Any]) -> Array:
    filled = values.data.astype(object)
    filled[np.ma.getmaskarray(values)] = None
    return filled


def _values_of(name: str, series: Any) -> Values:
    """A column of a frame as an array: of numbers, of datetime64, or of objects."""
    dtype = getattr(series, "dtype", None)
    if type(dtype).__name__ == "CategoricalDtype":
        stored = _objects([*series.cat.categories.tolist(), None])
        return Values(stored, np.asarray(series.cat.codes, dtype=np.intp))
    if str(dtype) in ("str", "string") and hasattr(series, "factorize"):
        index, distinct = series.factorize()
        return Values(_objects([*distinct.tolist(), None]), np.asarray(index, dtype=np.intp))
    if isinstance(series, np.ma.MaskedArray):
        array = _unmasked(series)
    elif isinstance(dtype, np.dtype):
        array = np.asarray(series)
    elif getattr(dtype, "kind", "") in ("i", "u", "f") and hasattr(series, "isna"):
        array = np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    elif hasattr(series, "to_numpy"):
        array = np.asarray(series.to_numpy())
    else:
        array = _objects(list(series))
    if array.ndim != 1:
        raise InvalidValue(f"column {name!r}", f"an array of shape {array.shape}", "one value for each row")
    return Values(array)


def _objects(values: Sequence[Any]) -> Array:
    array = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        array[i] = value
    return array


def _number_of(constant: Any) -> float:
    return float(constant.toordinal() - _EPOCH if isinstance(constant, datetime.date) else constant)


def _canonical(text: str) -> bool:
    """Whether a whole number that is read as text can be this text."""
    return bool(re.fullmatch("-?[0-9]{1,16}", text, re.A)) and str(int(text)) == text


def _is_whole(numbers: Array) -> NDArray[np.bool_]:
    if numbers.dtype.kind in "iu":
        return (numbers < _LARGEST) & (numbers > -_LARGEST)
    return np.asarray((np.floor(numbers) == numbers) & (np.abs(numbers) < _LARGEST))


def _whole_codes(stored: Array, column: Column, places: Mapping[Any, int], absent: int) -> Array:
    """Places among categories that are whole numbers or truth values."""
    numbers = stored if stored.dtype.kind in "iu" else _numbers(stored, truth=column.type == "boolean")
    codes = _looked_up(numbers, {int(value): place for value, place in places.items()}, -1)
    if column.type == "boolean":
        codes[codes < 0] = absent
    else:
        codes[~_is_whole(numbers)] = absent
    return codes


def _looked_up(numbers: Array, places: Mapping[int, int], undeclared: int) -> Array:
    """The place of each number among whole numbers."""
    codes = np.full(len(numbers), undeclared, dtype=np.intp)
    if not places:
        return codes
    keys = np.array(sorted(places), dtype=np.int64)
    if numbers.dtype.kind == "u":
        numbers = np.minimum(numbers, np.uint64(2**62))
    sought = numbers.astype(np.float64 if numbers.dtype.kind == "f" else np.int64)
    near = np.minimum(np.searchsorted(keys, sought), len(keys) - 1)
    found = keys[near] == sought
    codes[found] = np.array([places[int(key)] for key in keys])[near[found]]
    return codes


def _numbers(stored: Array, truth: bool = False) -> Float64:
    """float64, NaN where there is no number."""
    if stored.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            return stored.astype(np.float64)
    return _each(stored, _truth if truth else _number, math.nan, np.float64)


def _days(stored: Array) -> Float64:
    """Days since 1970, NaN where there is no date."""
    if stored.dtype.kind == "M":
        days = stored.astype("datetime64[D]")
        return np.where(np.isnat(days), np.nan, days.astype(np.int64).astype(np.float64))
    return _each(stored, _day, math.nan, np.float64)


def _each(stored: Array, read: Callable[[Any], Any], absent: Any, dtype: Any) -> Array:
    """What ``read`` makes of each value, ``absent`` where that is None or raises."""

    def total(value: Any) -> Any:
        try:
            result = read(_plain(value) if isinstance(value, np.generic) else value)
        except Exception:
            return absent
        return absent if result is None else result

    if stored.dtype.kind in "mcV":
        return np.full(len(stored), absent, dtype)
    values = stored.tolist()
    if stored.dtype.kind == "M":
        values = (stored if stored.dtype == "datetime64[D]" else stored.astype("datetime64[us]")).tolist()
        values = [value if isinstance(value, datetime.date) else None for value in values]
    kinds = set(map(type, values))
    if not kinds <= _PLAIN:
        return np.fromiter(map(total, values), dtype, len(values))
    if len(kinds - {type(None)}) <= 1:
        distinct = list(set(values) - {None})
        once = dict(zip(distinct, _decimals(distinct, read) or map(total, distinct), strict=True))
        once[None] = absent
        return np.fromiter(map(once.__getitem__, values), dtype, len(values))
    keys = list(zip(map(type, values), values, strict=True))
    read_once = {key: total(key[1]) for key in set(keys)}
    return np.fromiter(map(read_once.__getitem__, keys), dtype, len(keys))


def _decimals(texts: list[Any], read: Callable[[Any], Any]) -> list[float] | None:
    """All at once what :func:`_number` makes of texts that are nothing but plain numbers; else None."""
    try:
        plain = read is _number and _DIGITS.fullmatch("\n".join(texts))
        return list(map(float, texts)) if plain else None
    except (TypeError, ValueError):
        return None


def _plain(value: np.generic) -> Any:
    """A NumPy value as Python's own; a time beyond the years 1 … 9999 as the nearest one within."""
    if not isinstance(value, np.datetime64) or np.isnat(value):
        return None if isinstance(value, np.timedelta64) else value.item()
    moment = value.item() if value.dtype == "datetime64[D]" else value.astype("datetime64[us]").item()
    if isinstance(moment, datetime.date):
        return moment
    return (
        datetime.datetime.max if value.astype("datetime64[D]").astype(np.int64) > 0 else datetime.datetime.min
    )


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        value = value.strip(_BLANKS)
        return float(value) if _NUMBER.fullmatch(value) else None
    if not isinstance(value, (int, float, Decimal)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _truth(value: Any) -> float | None:
    if isinstance(value, str):
        return {"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}.get(value.strip(_BLANKS).lower())
    return _number(value)


def _day(value: Any) -> float | None:
    if isinstance(value, str):
        found = _DAY.match(value.strip(_BLANKS))
        return _number_of(datetime.date.fromisoformat(found[1])) if found else None
    if isinstance(value, datetime.datetime):
        value = (value if value.tzinfo is None else value.astimezone(datetime.UTC)).date()
    return _number_of(value) if isinstance(value, datetime.date) else None


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float, Decimal)):
        if not -_LARGEST < value < _LARGEST:
            return None
        whole = int(value)
        return str(whole) if whole == value else None
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else None
