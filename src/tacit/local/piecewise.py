"""The piecewise mechanism for bounded numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from tacit.errors import InvalidValue
from tacit.local.numbers import NumberMechanism
from tacit.local.windows import Windows

__all__ = ["Piecewise", "piecewise_windows"]

FEWEST_CELLS = 12
"""There are at least 2^12 cells."""
MOST_CELLS = 48


@dataclass(frozen=True)
class Piecewise(NumberMechanism):
    """A number near the value, or with some probability any other number of a range.

    Relation: ``replace_one`` of one person's value. Event: ``Pure(ε)``. The report is one of 4,096 cells
    (more for ε above 12) with exact probabilities: e^ε times as likely for each cell of a window around the
    value as for each other cell. The window holds 1/(e^(ε/2) + 1) of all cells, as in the paper. So this is
    the published mechanism on a grid, and as unbiased; the published one has real numbers as reports, and
    float64 would tell values apart by their last bits.

    For a number t in [−1, 1] the variance is t²/(e^(ε/2) − 1) + (e^(ε/2) + 3)/(3(e^(ε/2) − 1)²), up to terms
    of the size of a cell squared: small in the middle, where :class:`Duchi` has its largest.

    ``bounds``, ``epsilon``: as in :class:`~tacit.local.numbers.NumberMechanism`, also for several numbers of
    each person.

    Wang, Xiao, Yang, Zhao, Hui, Shin, Shin and Yu 2019, "Collecting and analyzing multidimensional data with
    local differential privacy".

    >>> weights = Piecewise(bounds=(0, 200), epsilon=4.0, random_state=1)
    >>> found = weights.estimate(weights.randomize([70.0, 80.0] * 500))
    >>> round(found.value), [round(end) for end in found.interval()]
    (76, [71, 80])
    """

    def _made(self, epsilon: Fraction) -> Windows:
        return piecewise_windows(epsilon)


def piecewise_windows(epsilon: Fraction) -> Windows:
    """The windows of the piecewise mechanism: at least eight cells wide."""
    size = math.exp(min(float(epsilon), 1000.0) / 2) + 1
    digits = max(FEWEST_CELLS, math.ceil(math.log2(size)) + 3)
    if digits > MOST_CELLS:
        raise InvalidValue("epsilon", float(epsilon), "at most 60", "So large an epsilon protects nobody.")
    return Windows(1 << digits, max(1, round((1 << digits) / size)), epsilon)
