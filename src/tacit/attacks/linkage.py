"""Linkage: finding a known person in a table without names.

Narayanan and Shmatikov (2008) found people in a published table of film ratings from a handful of ratings
that they knew roughly. :func:`scoreboard` is their algorithm for sparse tables; :func:`link` is its plain
counterpart for tables of attributes, as Sweeney used for hospital records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit.errors import InvalidValue

__all__ = ["Linked", "link", "scoreboard"]

Record = Mapping[Any, tuple[float | None, float | None]]
"""What one person rated: item → (rating, day). None or NaN stands for what is not known."""


@dataclass(frozen=True)
class Linked:
    """The record that fits best, and how much better than the next it does.

    ``eccentricity`` is (best − second best) / standard deviation of the scores. ``record`` is the place of
    the best one, or None where it stands out by less than was asked.
    """

    record: int | None
    best: int
    eccentricity: float
    scores: NDArray[np.float64]


def scoreboard(
    known: Record,
    records: Sequence[Record],
    *,
    eccentricity: float = 1.5,
    rating_scale: float = 1.5,
    day_scale: float = 30.0,
) -> Linked:
    """Find in ``records`` the person of whom a few items are ``known``, with ratings and days roughly right.

    The score of a record is Σ over the known items that it has of wt(item)·(e^(−|Δrating|/``rating_scale``) +
    e^(−|Δday|/``day_scale``)), wt(item) = 1/ln(records that have it, 2 or more): rare items tell most. A
    rating or day that is not known, there or here, adds nothing. The best record is believed only if it is
    ``eccentricity`` standard deviations above the second best
    (Narayanan and Shmatikov 2008, "Robust de-anonymization of large sparse datasets", Scoreboard-RH).

    >>> records = [{"a": (5, 10), "b": (1, 20)}, {"a": (4, 300), "c": (2, 5)}, {"a": (1, 900)}, {"d": (3, 1)}]
    >>> scoreboard({"b": (1, 22), "a": (5, 12)}, records).record
    0
    """
    if len(records) < 2:
        raise InvalidValue("records", len(records), "two or more")
    least = _validate.non_negative("eccentricity", eccentricity)
    _validate.positive("rating_scale", rating_scale)
    _validate.positive("day_scale", day_scale)
    support = {item: sum(item in record for record in records) for item in known}
    weights = {item: 1 / math.log(max(count, 2)) for item, count in support.items()}
    scores = np.zeros(len(records))
    for place, record in enumerate(records):
        for item, (rating, day) in known.items():
            if item in record:
                other, when = record[item]
                close = _closeness(rating, other, rating_scale) + _closeness(day, when, day_scale)
                scores[place] += weights[item] * close
    return _judged(scores, least)


def link(known: ArrayLike, table: ArrayLike) -> NDArray[np.intp]:
    """For each row of ``known``, the one row of ``table`` with the same attributes, or −1.

    Both have the same columns, of any type that can be compared. A value that is missing (None, NaN or the NA
    of pandas) in ``known`` is not known, and fits anything; one that is missing in ``table`` fits no value
    that is known. A row is linked only if exactly one row of ``table`` fits.

    >>> link([["f", 1962, None], ["m", 1990, 2138]],
    ...      [["f", 1962, 2139], ["m", 1990, 2138], ["m", 1990, 2138]]).tolist()
    [0, -1]
    """
    wanted, rows = np.asarray(known, dtype=object), np.asarray(table, dtype=object)
    if wanted.ndim != 2 or rows.ndim != 2 or wanted.shape[1] != rows.shape[1]:
        raise InvalidValue("known", wanted.shape, f"rows with the {rows.shape[-1]} columns of the table")
    rows = rows.copy()
    rows[_missing(rows)] = None
    unknown = _missing(wanted)
    found = np.full(len(wanted), -1, dtype=np.intp)
    for place, person in enumerate(wanted):
        fits = np.ones(len(rows), dtype=bool)
        for column, value in enumerate(person):
            if not unknown[place, column]:
                fits &= np.asarray(rows[:, column] == value, dtype=bool)
        places = np.flatnonzero(fits)
        if places.size == 1:
            found[place] = places[0]
    return found


def _closeness(first: float | None, second: float | None, scale: float) -> float:
    """e^(−|difference|/scale), or 0 where one of both is not known."""
    if first is None or second is None or math.isnan(first) or math.isnan(second):
        return 0.0
    return math.exp(-abs(first - second) / scale)


def _missing(table: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values are None or do not equal themselves, as NaN and the NA of pandas do not."""

    def missing(value: Any) -> bool:
        try:
            return value is None or not bool(value == value)
        except TypeError:
            return True

    return np.array([missing(value) for value in table.ravel()], dtype=bool).reshape(table.shape)


def _judged(scores: NDArray[np.float64], least: float) -> Linked:
    order = np.argsort(-scores, kind="stable")
    best, second = int(order[0]), int(order[1])
    spread = float(scores.std())
    stands_out = (scores[best] - scores[second]) / spread if spread > 0 else 0.0
    sure = scores[best] > 0 and stands_out >= least
    return Linked(best if sure else None, best, float(stands_out), scores)
