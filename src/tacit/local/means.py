"""Means: the release that is estimated from local reports of numbers or vectors, and its intervals.

The reports of n people stand for independent numbers, each of which has the person's own number as its mean,
lies within ``reach`` of it and has at most a known variance. Bernstein's inequality bounds how far their mean
is from the mean of the people's numbers, for every n and all values (Bernstein 1946; Boucheron, Lugosi and
Massart 2013, theorem 2.10).

Where only m of the n people were asked, at random, the mean of those m estimates that of all n. Drawing
people without replacement has exponential moments no larger than drawing with replacement has, by
Maclaurin's inequality for the elementary symmetric means of the people's moment generating functions. So the
bound holds for m independent draws whose variance includes that of the people's numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.guarantee import Guarantee
from tacit.tables.release import Answer, Release

__all__ = ["Means", "bernstein"]

Float64 = NDArray[np.float64]


class Means(Release):
    """An estimated mean, or one for each attribute or coordinate, with intervals and the guarantee.

    ``value`` is a number, or an array with one number per attribute or coordinate. ``interval(confidence,
    simultaneous=…)`` covers the mean of the bounded values of those who reported, at every number of reports.

    >>> import tacit
    >>> ages = tacit.local.Hybrid(bounds=(0, 100), epsilon=2.0, random_state=1)
    >>> found = ages.estimate(ages.randomize([30.0] * 500 + [50.0] * 500))
    >>> round(found.value), tuple(round(end) for end in found.interval()), found.reports, found.refused
    (39, (34, 43), 1000, 0)
    """

    def __init__(
        self, label: str, guarantee: Guarantee, answer: Answer | None = None, *, reports: int = 0,
        refused: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(label, guarantee, answer)
        self.reports = reports
        """How many reports were counted."""
        self.refused = refused
        """How many reports were left out, because the mechanism cannot make them."""

    @classmethod
    def of(
        cls, mechanism: Any, values: Float64, radius: Callable[[float], Float64], *, bounds: Any,
        reports: int, refused: int,
    ) -> Means:  # fmt: skip
        """The release of ``values``; each is wrong by more than ``radius(miss)`` with probability miss."""

        def interval(confidence: float, simultaneous: bool) -> tuple[NDArray[Any], NDArray[Any]]:
            reach = radius((1 - confidence) / (values.size if simultaneous else 1))
            lower, upper = bounds
            known = np.isfinite(values)
            low = np.where(known, np.clip(values - reach, lower, upper), lower)
            return low, np.where(known, np.clip(values + reach, lower, upper), upper)

        return cls(
            f"mean by {type(mechanism).__name__}",
            mechanism.guarantee,
            Answer(values, interval, float if values.ndim == 0 else np.asarray),
            reports=reports,
            refused=refused,
        )


def bernstein(variance: float, reach: float, count: Any, miss: float) -> Float64:
    """How far a mean of ``count`` independent numbers is from its expectation, but for a probability of miss.

    Each number has at most this variance and lies within ``reach`` of its mean.

    >>> float(bernstein(1.0, 3.0, 10_000, 0.05).round(4))
    0.0275
    """
    level = math.log(2 / miss)
    with np.errstate(divide="ignore", invalid="ignore"):
        part = reach * level / (3 * np.asarray(count, dtype=np.float64))
        found = part + np.sqrt(part**2 + 2 * variance * level / np.asarray(count, dtype=np.float64))
    return np.asarray(found * (1 + 1e-9))
