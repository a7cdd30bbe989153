"""The columns of a table in memory, by name: of a frame, a mapping of arrays, a 2-D array or a list of rows.

Columns are found by their names and the shape of the table alone, which are public, like the types in which a
frame stores them. Their values come as they are stored, for :mod:`tacit.data.cleaning.values` to clean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.cleaning import storage
from tacit.data.cleaning.values import Values
from tacit.errors import InvalidValue, SourceMissing
from tacit.schema import Schema, hint_of

__all__ = ["Columns", "unmasked"]

Array = NDArray[Any]


class Columns:
    """The columns of X by name; only names and shapes are looked at before one is asked for."""

    def __init__(self, X: Any, schema: Schema, used: Sequence[str]) -> None:
        self.X = X
        self.places: dict[str, Any]
        if isinstance(X, Mapping) or hasattr(X, "columns"):
            names = list(X) if isinstance(X, Mapping) else list(X.columns)
            for name in used:
                _required(name, names, used)
                stored = getattr(X[name], "dtype", None)
                storage.require(name, storage.family_of(stored), stored, schema[name])
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


def _required(name: str, names: Sequence[Any], used: Sequence[str]) -> None:
    if names.count(name) == 1:
        return
    problem = f"X has {'more than one' if name in names else 'no'} column {name!r}."
    hint = hint_of(name, [str(other) for other in names if other not in used])
    raise SourceMissing(problem, hint or f"It has {', '.join(map(repr, names)):.200}.", column=name)


def _matrix(X: Any, schema: Schema, used: Sequence[str]) -> Array:
    """X as an array of two dimensions; a row of a list that is none of the schema's is missing throughout."""
    if isinstance(X, np.ma.MaskedArray):
        return unmasked(X)
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


def unmasked(values: np.ma.MaskedArray[Any, Any]) -> Array:
    """The values as objects, None where they are masked."""
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
        array = unmasked(series)
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
    """An array that holds each value as it is."""
    array = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        array[i] = value
    return array
