"""Matrices, labels and units as callers hand them over, read value by value.

NumPy gives a list the one type that fits all of its values, so that a single text would turn every other
value into text; scikit-learn's checks raise, and quote, what they do not like. Here every value is read by
itself, by :mod:`tacit.data.cleaning.rule`: what it becomes depends on it alone, and no value raises.

What is refused is refused by public facts: the type of the container, the types in which its columns are
stored and its shape. :func:`require_numbers` and :func:`require_targets` refuse what cannot be read by its
stored type (:mod:`tacit.data.cleaning.storage`); objects have none, and are read one by one. A list has no
shape but the lengths of its rows: :func:`declared_matrix` takes the number of columns that is declared, and a
row of another length is missing.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.exceptions import DataConversionWarning

from tacit.data.cleaning.rule import BLANKS
from tacit.data.cleaning.storage import family_of
from tacit.data.cleaning.values import number, numbers
from tacit.data.columns import unmasked
from tacit.errors import InvalidValue

__all__ = [
    "LISTED",
    "STORED",
    "assumed",
    "column",
    "declared_matrix",
    "matrix",
    "places",
    "real",
    "require_numbers",
    "require_targets",
    "single",
    "width_of",
]

Float64 = NDArray[np.float64]

STORED = "the types of the columns were chosen without the data"
"""An assumption of whatever reads arrays and frames: an entry may not have decided the type of a column."""
LISTED = "the number of columns was known without the data"
"""An assumption of whatever reads a list of rows whose length is not declared."""

_PLAIN = "biuf"


def matrix(X: Any) -> NDArray[Any]:
    """A matrix of numbers, NaN for whatever is none. Arrays of real numbers are left as they are.

    >>> matrix([[True, 1.5], ["x", "2"], [None, 3j]]).tolist()
    [[1.0, 1.5], [nan, 2.0], [nan, nan]]
    """
    if issparse(X):
        raise _sparse()
    if hasattr(X, "columns") and hasattr(X, "shape"):
        columns = [real(_of_frame(X, place)) for place in range(len(X.columns))]
        return np.column_stack(columns) if columns else np.zeros((len(X), 0))
    if not isinstance(X, np.ndarray) and hasattr(X, "__array__"):
        X = np.asarray(X)
    if isinstance(X, np.ma.MaskedArray):
        X = unmasked(X)
    if isinstance(X, np.ndarray):
        if X.ndim != 2:
            raise _two_dimensional(X.ndim)
        if X.dtype.kind == "c":
            raise InvalidValue("X", "complex", "real numbers", "Complex data not supported.")
        if X.dtype.kind in _PLAIN and X.dtype.itemsize <= 8:
            return np.asarray(X) if isinstance(X, np.matrix) else X
        return real(X.ravel()).reshape(X.shape)
    return _of_lists(X)


def require_numbers(X: Any) -> None:
    """Refuse a matrix with a column that is stored as text or as times; no value is looked at.

    >>> require_numbers(np.array([["1", "x"]]))
    Traceback (most recent call last):
    ...
    tacit.errors.InvalidValue: X must be stored as numbers, got 'text (<U1)'. ...
    """
    if hasattr(X, "columns") and hasattr(X, "shape"):
        for place, name in enumerate(X.columns):
            stored = getattr(_of_frame(X, place), "dtype", None)
            if family_of(stored) in _NO_NUMBERS:
                advice = (
                    "Leave it out, convert it to numbers, or let a tacit.estimators.Preprocessor read it."
                )
                raise InvalidValue(f"column {name!r} of X", f"{stored}", "stored as numbers", advice)
    elif isinstance(X, np.ndarray) and X.dtype.kind in "USmMT":
        told = f"{family_of(X.dtype)} ({X.dtype.str})"
        raise InvalidValue(
            "X", told, "stored as numbers", "Convert it with X.astype(float), or X.astype(object) for gaps."
        )


_NO_NUMBERS = ("text", "date", "timestamp")
_NUMBERS = ("boolean", "integer", "wide", "float")


def require_targets(y: Any, classes: Any = None) -> None:
    """Refuse targets stored in another type than their classes, or, without classes, than numbers.

    Labels that are numbers are none of classes that are text, and the other way round; only the type of y
    decides. Labels without a type, as in a list or an array of objects, are looked up one by one.
    """
    if hasattr(y, "columns") and len(y.columns) == 1:
        y = _of_frame(y, 0)
    stored = getattr(y, "dtype", None)
    family = family_of(stored)
    if family is None or family == "null":
        return
    listed = [] if classes is None or isinstance(classes, str) else list(classes)
    if not listed:
        if family in _NO_NUMBERS and classes is None:
            raise InvalidValue("y", f"{stored}", "stored as numbers", "Convert it: y.astype(float).")
        return
    worded = [isinstance(each, str) for each in listed]
    if all(worded) and family in (*_NUMBERS, "date", "timestamp"):
        advice = "Declare classes of the type in which y is stored, or convert y: y.astype(str)."
        raise InvalidValue("y", f"{stored}", "stored as text, as the declared classes are", advice)
    if not any(worded) and family in _NO_NUMBERS:
        advice = "Declare classes of the type in which y is stored, or convert y: y.astype(float)."
        raise InvalidValue("y", f"{stored}", "stored as numbers, as the declared classes are", advice)


def width_of(X: Any, declared: int | None) -> int:
    """The number of columns of X: by its shape, or for a list of rows the declared one, if there is one."""
    if _is_listed(X):
        return _usual_length(X) if declared is None else declared
    if hasattr(X, "columns") and hasattr(X, "shape"):
        return len(X.columns)
    if issparse(X):
        raise _sparse()
    if not hasattr(X, "__array__"):
        raise _no_matrix(X)
    shape = np.asarray(X).shape
    if len(shape) != 2:
        raise _two_dimensional(len(shape))
    return int(shape[1])


def _usual_length(X: Any) -> int:
    """The most frequent length of the rows of a list; of several that are equally frequent, the smallest.

    If the first row counted, one row would decide. With the most frequent length a row decides only where
    two are equally frequent, so :data:`LISTED` is among the assumptions of a fit to a list.
    """
    counts = Counter(length for row in X if (length := _length(row)) is not None)
    if not counts:
        raise _two_dimensional(1)
    most = max(counts.values())
    return min(length for length, count in counts.items() if count == most)


def _length(row: Any) -> int | None:
    """How many values a row of a list has, None for what is no row."""
    try:
        listed = isinstance(row, (list, tuple)) or (isinstance(row, np.ndarray) and row.ndim > 0)
        return len(row) if listed else None
    except Exception:
        return None


def declared_matrix(X: Any, width: int | None) -> NDArray[Any]:
    """As :func:`matrix`, but in a list a row of another kind or length than declared is all NaN.

    >>> declared_matrix([[1, 2], [3], 4, "56", (7, "8")], 2).tolist()
    [[1.0, 2.0], [nan, nan], [nan, nan], [nan, nan], [7.0, 8.0]]
    """
    columns = width_of(X, width)
    if not _is_listed(X):
        return matrix(X)
    missing = [None] * columns
    cells = [value for row in X for value in _cells(row, columns) or missing]
    return real(cells).reshape(len(X), columns)


def assumed(X: Any, declared: int | None) -> tuple[str, ...]:
    """What has to be assumed about X: that nothing of its shape and types was decided by a row."""
    return (STORED, LISTED) if _is_listed(X) and declared is None else (STORED,)


def _is_listed(X: Any) -> bool:
    """Whether X is a list of rows, or an array of objects that are rows."""
    if isinstance(X, np.ndarray):
        return X.ndim == 1 and X.dtype.kind == "O"
    return isinstance(X, Sequence) and not isinstance(X, (str, bytes)) and not hasattr(X, "__array__")


def _cells(row: Any, columns: int) -> list[Any] | None:
    """The values of a row of a list, None where there are not so many."""
    try:
        if isinstance(row, np.ndarray):
            return row.tolist() if row.shape == (columns,) else None
        if isinstance(row, (str, bytes)) or not (isinstance(row, Sequence) or hasattr(row, "tolist")):
            return None
        values = list(row)
    except Exception:
        return None
    return values if len(values) == columns else None


def _sparse() -> InvalidValue:
    return InvalidValue("X", "sparse", "dense", "Sparse input is not supported; use X.toarray().")


def _no_matrix(X: Any) -> InvalidValue:
    return InvalidValue("X", type(X).__name__, "a matrix: an array, a frame or a list of rows")


def _two_dimensional(dimensions: int) -> InvalidValue:
    advice = "Reshape your data: X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one row."
    return InvalidValue("X", f"Expected 2D array, got {dimensions}D array instead", "a matrix", advice)


def _of_frame(frame: Any, place: int) -> Any:
    return frame.iloc[:, place] if hasattr(frame, "iloc") else frame[frame.columns[place]]


def _of_lists(X: Any) -> Float64:
    if isinstance(X, (str, bytes)) or not isinstance(X, Sequence):
        raise _no_matrix(X)
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
        array = unmasked(values)
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


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    """An array that holds each value as it is; a list of one value counts as that value."""
    array = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        array[i] = single(value)
    return array


def single(value: Any) -> Any:
    """The value that a list, a tuple or an array of exactly one holds; any other value as it is.

    None for what cannot even be looked at, as its class or length raises.
    """
    try:
        if isinstance(value, (list, tuple)) and len(value) == 1:
            return value[0]
        if isinstance(value, np.ndarray) and value.size == 1:
            return value.ravel().tolist()[0]
    except Exception:
        return None
    return value


def real(values: Any) -> Float64:
    """float64, NaN for what is no number by :mod:`tacit.data.cleaning.rule`.

    >>> from decimal import Decimal
    >>> real([1, "2.5", None, 3j, Decimal("0.5"), [4]]).tolist()
    [1.0, 2.5, nan, nan, 0.5, 4.0]
    """
    if isinstance(getattr(values, "dtype", None), np.dtype) and values.dtype.kind != "O":
        return numbers(np.asarray(values))
    return numbers(_objects(values.tolist() if hasattr(values, "tolist") else list(values)))


def places(values: NDArray[Any], categories: Sequence[Any]) -> NDArray[np.int64]:
    """The place of each value among the categories, −1 for none of them.

    A value is one of the categories if it equals it, or else if both are read as the same number: a column
    of whole numbers that is stored as text, because of a single entry that is none, says the same.
    ``"true"`` and ``"false"`` are truth values. Categories that are the same number, as ``"1"`` and
    ``"1.0"``, are only told apart by equality.

    >>> places(_objects([1, "1", [1.0], "one", None, "0"]), [0, 1]).tolist()
    [1, 1, 1, -1, -1, 0]
    """
    known = {(each.item() if isinstance(each, np.generic) else each): i for i, each in enumerate(categories)}
    by_number = {number: i for each, i in known.items() if (number := _as_number(each)) is not None}
    alike = len(by_number) < sum(_as_number(each) is not None for each in known)
    if alike:
        by_number = {}
    if values.dtype.kind in "biuf":
        found = np.full(values.shape, -1, dtype=np.int64)
        numbers = {each: i for each, i in known.items() if isinstance(each, (bool, int, float))}
        for number, i in (numbers if alike else by_number).items():
            found[values == number] = i
        return found

    def place(value: Any) -> int:
        try:
            value = single(value)
            if value in known:
                return known[value]
            number = _as_number(value)
            return -1 if number is None else by_number.get(number, -1)
        except Exception:
            return -1

    listed = values.tolist()
    return np.fromiter(map(place, listed), np.int64, len(listed))


def _as_number(value: Any) -> float | int | None:
    """The number or truth value that a value or its text is, None for what is neither."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (bool, int, float)):
        return value if value == value else None
    if not isinstance(value, str):
        return None
    found = number(value)
    return {"true": True, "false": False}.get(value.strip(BLANKS).lower()) if found is None else found
