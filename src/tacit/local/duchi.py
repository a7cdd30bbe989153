"""Duchi's mechanism for bounded numbers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tacit.local.numbers import NumberMechanism
from tacit.local.windows import Windows

__all__ = ["Duchi"]


@dataclass(frozen=True)
class Duchi(NumberMechanism):
    """One bit per number: the upper or the lower bound, the nearer one more often.

    Relation: ``replace_one`` of one person's value. Event: ``Pure(ε)``. A number in [−1, 1] is rounded to −1
    or 1 at random, with the number as its mean, and the sign is kept with odds of at most e^ε : 1. That is
    Windows of one cell out of two (:mod:`tacit.local.windows`), with exact probabilities. The report stands
    for ±C, C = (e^ε + 1)/(e^ε − 1), so its variance is C² − t² for a number t: largest in the middle. Best
    for ε below 0.6; above, :class:`Hybrid` is better.

    ``bounds``, ``epsilon``: as in :class:`~tacit.local.numbers.NumberMechanism`, also for several numbers of
    each person.

    Duchi, Jordan and Wainwright 2018, "Minimax optimal procedures for locally private estimation"; several
    numbers as in Wang et al. 2019.

    >>> hours = Duchi(bounds=(0, 24), epsilon=1.0, random_state=1)
    >>> reports = hours.randomize([7.5, 8, None, 99] * 500)
    >>> reports[:4].tolist(), round(hours.estimate(reports).value, 1), hours.event
    ([1, 1, 1, 1], 12.1, Pure(epsilon=1.0))
    """

    def _made(self, epsilon: Fraction) -> Windows:
        return Windows(2, 1, epsilon)
