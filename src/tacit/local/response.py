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
from tacit.randomness import bernoulli, exp_bounds, uniform

__all__ = ["RandomizedResponse"]

_BITS, _PRECISION = 60, 160


@dataclass(frozen=True)
class RandomizedResponse(SupportOracle):
    """The report is the true category, or with odds of at most 1 : e^ε each, another one (Warner 1965).

    Guarantee: ε-local differential privacy; the event is ``RandomizedResponse(ε, k)``. With probability s the
    report is the true category, and otherwise any of all k, each alike; a value that is none of them always
    gives any. The odds of the true category are 1 + s·k/(1 − s) to 1, and s is the largest multiple of 2^−60
    at which they do not exceed e^ε; both draws are exact. The oracle of least variance for few categories,
    k < 3e^ε + 2 (Wang et al. 2017); the report has log2 k bits.

    >>> oracle = RandomizedResponse(categories=4, epsilon=2.0, random_state=1)
    >>> reports = oracle.randomize([0] * 600 + [3] * 400)
    >>> oracle.estimate(reports).value.round(2).tolist()
    [0.58, 0.0, 0.02, 0.39]
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
        _, away = exp_bounds(Fraction(self.epsilon), _PRECISION)
        gain = (1 << _PRECISION) - away
        sure = Fraction((gain << _BITS) // (gain + self.size * away), 1 << _BITS)
        return sure + (1 - sure) / self.size

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

    def randomize(self, values: Any) -> Int64:
        """A report for each of the values, a sequence with one value of each person."""
        codes = self._codes(values)
        sure = bernoulli(self._source, self.keep - self.other, codes.size)
        return np.where(sure & (codes >= 0), codes, uniform(self._source, self.size, codes.size))

    def _counted(self, reports: Any) -> Counted:
        accepted, refused = numbered(reports, self.size)
        return Counted(np.bincount(accepted, minlength=self.size), accepted.size, refused)
