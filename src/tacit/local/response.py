"""Randomized response as a frequency oracle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tacit import events
from tacit.local.oracle import Counted, SupportOracle, numbered
from tacit.mechanisms._base import Int64
from tacit.mechanisms.randomized_response import favoured
from tacit.randomness import bernoulli, uniform

__all__ = ["RandomizedResponse"]


@dataclass(frozen=True)
class RandomizedResponse(SupportOracle):
    """The report is the true category, or with odds of at most 1 : e^ε each, another one (Warner 1965).

    Guarantee: ε-local differential privacy; the event is ``RandomizedResponse(ε, k)``. The true category is
    reported with the largest multiple p of 2^−60 not above e^ε/(e^ε + k − 1), any other with (1 − p)/(k −
    1), and both are drawn exactly. The oracle of least variance for few categories, k < 3e^ε + 2 (Wang et
    al. 2017); the report has log2 k bits.

    >>> oracle = RandomizedResponse(categories=4, epsilon=2.0, random_state=1)
    >>> reports = oracle.randomize([0] * 600 + [3] * 400)
    >>> oracle.estimate(reports).value.round(2).tolist()
    [0.57, 0.0, 0.01, 0.42]
    >>> oracle.event
    RandomizedResponse(epsilon=2.0, categories=4)
    """

    @property
    def event(self) -> events.Event:
        """What one report costs the person who sends it."""
        return events.RandomizedResponse(self.epsilon, self.size)

    @property
    def keep(self) -> Fraction:
        """The probability of reporting the true category."""
        return favoured(self.epsilon, 1, self.size - 1)

    @property
    def other(self) -> Fraction:
        """The probability of reporting a given other category."""
        return (1 - self.keep) / (self.size - 1)

    @property
    def report_bits(self) -> float:
        """The size of one report in bits: log2 k."""
        return math.log2(self.size)

    def _law(self, code: int) -> dict[Any, Fraction]:
        self._listable(self.size)
        return {report: self.keep if report == code else self.other for report in range(self.size)}

    def _randomized(self, codes: Int64) -> Int64:
        kept = bernoulli(self._source, self.keep, codes.size)
        away = 1 + uniform(self._source, self.size - 1, codes.size)
        return np.asarray((codes + np.where(kept, 0, away)) % self.size)

    def _counted(self, reports: Any) -> Counted:
        accepted, refused = numbered(reports, self.size)
        return Counted(np.bincount(accepted, minlength=self.size), accepted.size, refused)
