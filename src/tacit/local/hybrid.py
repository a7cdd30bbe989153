"""The hybrid of Duchi's and the piecewise mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from tacit.local.numbers import NumberMechanism
from tacit.local.piecewise import piecewise_windows
from tacit.local.windows import Mixture, Windows

__all__ = ["Hybrid"]

_BITS = 60


@dataclass(frozen=True)
class Hybrid(NumberMechanism):
    """The piecewise mechanism or Duchi's, drawn at random, so that the largest variance is the least.

    Relation: ``replace_one`` of one person's value. Event: ``Pure(ε)``. The coin that chooses the mechanism
    does not depend on the value, and the report tells how it fell; both mechanisms are ε-private, and so is
    the report. For ε above 0.61 the piecewise mechanism is used with probability 1 − e^(−ε/2), which makes
    the variance the same for every value; below, it is Duchi's alone. All probabilities are exact rational
    numbers (:mod:`tacit.local.windows`).

    ``bounds``, ``epsilon``: as in :class:`~tacit.local.numbers.NumberMechanism`, also for several numbers of
    each person.

    Wang, Xiao, Yang, Zhao, Hui, Shin, Shin and Yu 2019, "Collecting and analyzing multidimensional data with
    local differential privacy".

    >>> people = Hybrid(bounds=([0, 0, 0], [120, 1, 1e6]), epsilon=5.0, random_state=1)
    >>> people.asked
    2
    >>> reports = people.randomize([[40, 0.3, 2e4], [60, 0.5, 3e4]] * 2000)
    >>> reports.shape, people.estimate(reports).value.round(1).tolist()
    ((4000, 3), [49.4, 0.4, 24190.0])
    """

    def _made(self, epsilon: Fraction) -> Windows | Mixture:
        duchi = Windows(2, 1, epsilon)
        if float(epsilon) <= _TURN:
            return duchi
        chance = Fraction(round(-math.expm1(-float(epsilon) / 2) * (1 << _BITS)), 1 << _BITS)
        return Mixture(chance, piecewise_windows(epsilon), duchi)


_TURN = math.log((-5 + 2 * (6353 - 405 * math.sqrt(241)) ** (1 / 3)
                  + 2 * (6353 + 405 * math.sqrt(241)) ** (1 / 3)) / 27)  # fmt: skip
"""ε* ≈ 0.61, below which a mixture has a larger worst variance than Duchi's mechanism (theorem 3 there)."""
