"""Votes of teachers, checked: how many teachers vote for each class, one row per query.

Votes are private: each teacher was trained on its own part of the rows. The number of queries, of classes and
of teachers is public.

A votes array that breaks a rule below is a mistake in the program that counted the votes, and no fact about a
row: whatever the rows are, a teacher casts one vote per query. So the checks may read the votes before
anything is charged, they raise, and the messages show the shape and the type of the array and none
of its values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue

__all__ = ["Int64", "Labels", "checked_votes", "described"]

Int64 = NDArray[np.int64]
Labels = NDArray[np.int64]

MOST_CLASSES = 2**16
MOST = 2**31
"""No class has more votes than this."""


def described(array: NDArray[Any]) -> str:
    """An array in an error message: its shape and type, never its private content."""
    return f"an array of shape {array.shape} and type {array.dtype}"


def as_array(name: str, given: Any) -> NDArray[Any]:
    """An array of numbers as it was given; masks, booleans, text and objects are refused."""
    if isinstance(given, np.ma.MaskedArray):
        raise InvalidValue(name, type(given), "without a mask", "Fill the masked entries by a public rule.")
    try:
        array = np.asarray(given)
    except ValueError:
        raise InvalidValue(name, type(given), "a rectangular array") from None
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise InvalidValue(name, described(array), "numbers", "Count the votes first, one row per query.")
    return array


def checked_votes(votes: Any, *, classes: int | None = None, teachers: int | None = None) -> Int64:
    """Votes as whole numbers of shape (queries, classes).

    Refused: another shape, fewer than two classes, NaN and fractions, numbers below 0, and rows that do not
    sum to ``teachers`` where that is declared. A class that nobody votes for is an ordinary class.

    >>> checked_votes([[3.0, 0.0, 1.0]], teachers=4).tolist()
    [[3, 0, 1]]
    >>> checked_votes([[3, 2]], teachers=4)
    Traceback (most recent call last):
    ...
    tacit.errors.InvalidValue: votes must be 4 in every row, one for each teacher, got 'an array of shape ...
    """
    array = as_array("votes", votes)
    if array.ndim != 2 or not 2 <= array.shape[1] <= MOST_CLASSES:
        requirement = "of shape (queries, classes), with 2 to 65536 classes"
        raise InvalidValue("votes", described(array), requirement, "Pass one row of counts per query.")
    if classes is not None and array.shape[1] != classes:
        raise InvalidValue("votes", described(array), f"of {classes} classes in every row")
    if array.size and not array.min() >= 0:  # the least of numbers with NaN is NaN
        raise InvalidValue("votes", described(array), "0 or more, without NaN")
    if array.size and array.max() > MOST:
        raise InvalidValue("votes", described(array), "at most 2^31, without infinities")
    counts: Int64 = array.astype(np.int64, copy=False)
    if array.dtype.kind == "f" and not np.array_equal(counts, array):
        raise InvalidValue("votes", described(array), "whole numbers", "Count the teachers' votes.")
    if teachers is not None and (counts.sum(axis=1) != teachers).any():
        requirement = f"{teachers} in every row, one for each teacher"
        raise InvalidValue("votes", described(array), requirement, "Let every teacher vote once per query.")
    return counts
