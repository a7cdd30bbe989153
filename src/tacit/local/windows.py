"""Windows: the randomizer of a place on a line, from which the mechanisms for numbers are made.

There are ``cells`` cells in a row, and a place s stands for a window of ``width`` cells, s … s + width − 1. The
report of a place is one cell: every cell of the window is e^ε times as likely as every cell outside it. That is
Duchi's mechanism for two cells and windows of one, and the piecewise mechanism for many.

**Guarantee.** A report has one of two probabilities, whatever the place: p/width in the window and
(1 − p)/(cells − width) outside. Their ratio is at most e^ε since p is the largest multiple of 2^−60 that is not
above width/(width + (cells − width)·e^−ε), computed with rational bounds of e^−ε. Both are rational numbers and
drawn with integers, so the law of a report is exactly that table.

**Numbers in between.** A number in [−1, 1] lies between two neighbouring places and goes to one of them at random,
so that the mean is kept. Its law is a mixture of two laws of the table, and the ratio of two mixtures is at most the
largest ratio of their parts. So the table, which is finite, proves the guarantee for every number, and the last bits
of a float never reach the report.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.randomness import Source, bernoulli, exp_bounds, uniform

__all__ = ["Windows"]

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

_BITS = 60
_PRECISION = 160


@dataclass(frozen=True)
class Windows:
    """The randomizer of the places 0 … ``cells`` − ``width``, of ε = ``epsilon``.

    >>> coin = Windows(cells=2, width=1, epsilon=Fraction(1))
    >>> [round(float(chance), 4) for chance in coin.law(0)], [round(float(v), 3) for v in coin.values()]
    ([0.7311, 0.2689], [-2.164, 2.164])
    """

    cells: int
    width: int
    epsilon: Fraction
    inside: Fraction = field(init=False, compare=False)
    """The probability that the report lies in the window."""
    step: float = field(init=False, compare=False)
    """By how much the values of two neighbouring cells differ, for numbers in [−1, 1]."""

    def __post_init__(self) -> None:
        _, high = exp_bounds(self.epsilon, _PRECISION)
        chance = (self.width << (_BITS + _PRECISION)) // (
            (self.width << _PRECISION) + (self.cells - self.width) * high
        )
        inside = Fraction(chance, 1 << _BITS)
        object.__setattr__(self, "inside", inside)
        object.__setattr__(self, "step", float(2 / (inside * self.cells - self.width)))

    @property
    def largest(self) -> float:
        """The largest value of a report."""
        return self.step * (self.cells - 1) / 2

    def law(self, place: int) -> list[Fraction]:
        """The probability of every cell as the report of a place."""
        outside = (1 - self.inside) / (self.cells - self.width)
        window = range(place, place + self.width)
        return [self.inside / self.width if cell in window else outside for cell in range(self.cells)]

    def places(self, numbers: Float64, source: Source) -> Int64:
        """A place for each number of [−1, 1]: one of the two around it, with the number as the mean."""
        last = self.cells - self.width
        exact = (numbers + 1.0) * (last / 2.0)
        lower = np.clip(np.floor(exact), 0, last - 1)
        upwards = (source.words(numbers.shape) >> np.uint64(11)) < (exact - lower) * 2.0**53
        return np.asarray(lower, dtype=np.int64) + upwards

    def draw(self, places: Int64, source: Source) -> Int64:
        """A report for each place."""
        count = places.size
        kept = bernoulli(source, self.inside, count)
        within = places.ravel() + uniform(source, self.width, count)
        other = uniform(source, self.cells - self.width, count)
        other += np.where(other >= places.ravel(), self.width, 0)
        return np.where(kept, within, other).reshape(places.shape)

    def values(self, reports: Any = None) -> Float64:
        """The number that each report stands for, which is unbiased: its mean is the person's own number."""
        cells = np.arange(self.cells) if reports is None else np.asarray(reports)
        return np.asarray((cells - (self.cells - 1) / 2.0) * self.step)

    def variance(self, numbers: Any) -> Float64:
        """The variance of the value of a report, for numbers in [−1, 1].

        With the centre of the line as the origin and a cell as the unit, the mean square of a cell in a window
        around w is w² + (width² − 1)/12; the mean square of all cells is (cells² − 1)/12.
        """
        number = np.asarray(numbers, dtype=np.float64)
        cells, width, inside = float(self.cells), float(self.width), float(self.inside)
        last = cells - width
        place = (number + 1.0) * last / 2.0
        fraction = place - np.floor(place)
        window = np.square(number * last / 2.0) + fraction * (1 - fraction) + (width**2 - 1) / 12
        outside = (cells * (cells**2 - 1) / 12 - width * window) / last
        return np.asarray(self.step**2 * (inside * window + (1 - inside) * outside) - np.square(number))
