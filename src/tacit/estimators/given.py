"""What callers hand over, read value by value.

NumPy gives a list the one type that fits all of its values, so that a single text would turn every other
value into text; scikit-learn's checks raise, and quote, what they do not like. Here every value is read by
itself: what it becomes depends on it alone, and nothing that it is raises.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.exceptions import DataConversionWarning

from tacit.errors import InvalidValue

__all__ = ["column", "group_numbers", "matrix", "real"]

Float64 = NDArray[np.float64]

_PLAIN = "biuf"
_NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating, Decimal, Fraction, str)


def matrix(X: Any) -> NDArray[Any]:
    """A matrix of numbers, NaN for whatever is none. Arrays of real numbers are left as they are.

    >>> matrix([[True, 1.5], ["x", "2"], [None, 3j]]).tolist()
    [[1.0, 1.5], [nan, 2.0], [nan, nan]]
    """
    if issparse(X):
        raise InvalidValue("X", "sparse", "dense", "Sparse input is not supported; use X.toarray().")
    if hasattr(X, "columns") and hasattr(X, "shape"):
        columns = [real(_of_frame(X, place)) for place in range(len(X.columns))]
        return np.column_stack(columns) if columns else np.zeros((len(X), 0))
    if not isinstance(X, np.ndarray) and hasattr(X, "__array__"):
        X = np.asarray(X)
    if isinstance(X, np.ma.MaskedArray):
        X = _unmasked(X)
    if isinstance(X, np.ndarray):
        if X.ndim != 2:
            raise _two_dimensional(X.ndim)
        if X.dtype.kind == "c":
            raise InvalidValue("X", "complex", "real numbers", "Complex data not supported.")
        if X.dtype.kind in _PLAIN and X.dtype.itemsize <= 8:
            return X
        return real(X.ravel()).reshape(X.shape)
    return _of_lists(X)


def _two_dimensional(dimensions: int) -> InvalidValue:
    advice = "Reshape your data: X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one row."
    return InvalidValue("X", f"Expected 2D array, got {dimensions}D array instead", "a matrix", advice)


def _of_frame(frame: Any, place: int) -> Any:
    return frame.iloc[:, place] if hasattr(frame, "iloc") else frame[frame.columns[place]]


def _of_lists(X: Any) -> Float64:
    if isinstance(X, (str, bytes)) or not isinstance(X, Sequence):
        raise InvalidValue("X", type(X).__name__, "a matrix: an array, a frame or a list of rows")
    rows = [row for row in X if not isinstance(row, (str, bytes)) and hasattr(row, "__len__")]
    if len(rows) < len(X):
        raise _two_dimensional(1)
    width = len(rows[0]) if rows else 0
    if any(len(row) != width for row in rows):
        raise InvalidValue("X", "rows of different lengths", "a matrix")
    return real([value for row in rows for value in row]).reshape(len(rows), width)


def column(name: str, values: Any, rows: int | None = None) -> NDArray[Any]:
    """One value per row; an array of numbers or text as it is, everything else as objects."""
    if values is None:
        needed = f"given: this requires {name} to be passed, but the target {name} is None"
        raise InvalidValue(name, None, needed)
    if hasattr(values, "columns") and len(values.columns) == 1:
        values = _of_frame(values, 0)
    dtype = getattr(values, "dtype", None)
    array: NDArray[Any]
    if isinstance(values, np.ma.MaskedArray):
        array = _unmasked(values)
    elif isinstance(dtype, np.dtype) or (dtype is None and hasattr(values, "__array__")):
        array = np.asarray(values)
    elif hasattr(values, "tolist") or hasattr(values, "to_list"):
        array = _objects(values.tolist() if hasattr(values, "tolist") else values.to_list())
    elif isinstance(values, Sequence) and not isinstance(values, (str, bytes)):
        array = _objects(values)
    else:
        raise InvalidValue(name, type(values).__name__, "one value for each row")
    if array.ndim == 2 and array.shape[1] == 1:
        message = "A column-vector y was passed when a 1d array was expected."
        warnings.warn(message, DataConversionWarning, stacklevel=3)
        array = array[:, 0]
    if array.ndim != 1:
        raise InvalidValue(name, f"an array of {array.ndim} dimensions", "one value for each row")
    if rows is not None and len(array) != rows:
        raise InvalidValue(name, "another number", "one value per row of X: inconsistent numbers of rows")
    return array


def _unmasked(values: np.ma.MaskedArray[Any, Any]) -> NDArray[Any]:
    array = values.data.astype(object)
    array[np.ma.getmaskarray(values)] = None
    return array


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    """An array that holds each value as it is; lists of one value count as that value."""
    array = np.empty(len(values), dtype=object)
    single = bool(values) and all(isinstance(value, (list, tuple)) and len(value) == 1 for value in values)
    for i, value in enumerate(values):
        array[i] = value[0] if single else value
    return array


def real(values: Any) -> Float64:
    """float64, NaN for what is no number.

    >>> real([1, "2.5", None, 3j, Decimal("0.5")]).tolist()
    [1.0, 2.5, nan, nan, 0.5]
    """
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in _PLAIN:
        with np.errstate(all="ignore"):
            return np.asarray(values).astype(np.float64)
    if isinstance(dtype, np.dtype) and dtype.kind == "c":
        stored = np.asarray(values).astype(np.complex128)
        return np.where(stored.imag == 0, stored.real, np.nan)
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    return np.fromiter((_real(value) for value in listed), np.float64, count=len(listed))


def _real(value: Any) -> float:
    if isinstance(value, (complex, np.complexfloating)):
        return float(value.real) if value.imag == 0 else math.nan
    if not isinstance(value, _NUMBERS):
        return math.nan
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]
    except Exception:
        return math.nan


def group_numbers(groups: NDArray[Any]) -> NDArray[np.int64]:
    """A number for each group, the same for equal ones, −1 where there is none.

    Numbers are equal by value, of whatever type they are; a text is never a number. None, NaN and what
    pandas calls missing are no group.

    >>> group_numbers(_objects([1, 1.0, True, Decimal(1), "1", None, math.nan])).tolist()
    [0, 0, 0, 0, 1, -1, -1]
    """
    if groups.dtype.kind in "biu":
        return np.asarray(np.unique(groups, return_inverse=True)[1], dtype=np.int64)
    numbers: dict[Any, int] = {}
    found = np.empty(len(groups), dtype=np.int64)
    for i, group in enumerate(groups.tolist()):
        key = _key(group)
        found[i] = -1 if key is None else numbers.setdefault(key, len(numbers))
    return found


def _key(group: Any) -> Any:
    try:
        if isinstance(group, np.generic):
            group = group.item()
        if group is None or bool(group != group):
            return None
        if isinstance(group, (bool, int, float, Decimal, Fraction)):
            if isinstance(group, Decimal) and group.adjusted() > 400:
                return "number", str(group.normalize())
            exact = Fraction(group) if not (isinstance(group, float) and math.isinf(group)) else group
            return "number", exact
        return (type(group).__name__ if not isinstance(group, str) else "text"), str(group)
    except Exception:
        return None
