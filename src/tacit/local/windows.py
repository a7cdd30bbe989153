"""Windows: the randomizer of a place on a line, from which the mechanisms for numbers are made.

There are ``cells`` cells in a row, and a place s stands for a window of ``width`` cells, s … s + width − 1.
The report of a place is one cell: every cell of the window is e^ε times as likely as every cell outside it.
That is Duchi's mechanism for two cells and windows of one, and the piecewise mechanism for many cells.

**Guarantee.** A report has one of two probabilities, whatever the place: p/width in the window and
(1 − p)/(cells − width) outside. Their ratio is at most e^ε since p is the largest multiple of 2^−60 that is
not above width·e^ε/(width·e^ε + cells − width), computed with rational bounds of e^−ε. Both probabilities are
rational and are drawn with integers, so the law of a report is exactly that table.

**Numbers in between.** A number in [−1, 1] lies between two neighbouring places and goes to one of them at
random, so that the mean is kept. Its law is a mixture of two laws of the table, and the ratio of two mixtures
is at most the largest ratio of their parts. So the table, which is finite, proves the guarantee for every
number, and the last bits of a float never reach the report.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.mechanisms.randomized_response import favoured
from tacit.randomness import Source, bernoulli, uniform

__all__ = ["Mixture", "Windows"]

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

_UNIT = 2**53


@dataclass(frozen=True)
class Windows:
    """The randomizer of the places 0 … ``cells`` − ``width``, which is ``epsilon``-private.

    >>> coin = Windows(cells=2, width=1, epsilon=Fraction(1))
    >>> [round(float(chance), 4) for chance in coin.table(0)], coin.values(np.arange(2)).round(3).tolist()
    ([0.7311, 0.2689], [-2.164, 2.164])
    """

    cells: int
    width: int
    epsilon: Fraction
    inside: Fraction = field(init=False, compare=False)
    """The probability that the report lies in the window."""
    step: float = field(init=False, compare=False)
    """By how much the values of two neighbouring cells differ."""

    def __post_init__(self) -> None:
        inside = favoured(self.epsilon, self.width, self.cells - self.width)
        object.__setattr__(self, "inside", inside)
        object.__setattr__(self, "step", float(2 / (inside * self.cells - self.width)))

    @property
    def largest(self) -> float:
        """The largest value of a report."""
        return self.step * (self.cells - 1) / 2

    def table(self, place: int) -> list[Fraction]:
        """The probability of every cell as the report of a place."""
        outside = (1 - self.inside) / (self.cells - self.width)
        window = range(place, place + self.width)
        return [self.inside / self.width if cell in window else outside for cell in range(self.cells)]

    def law(self, number: float) -> list[Fraction]:
        """The probability of every cell as the report of a number in [−1, 1]."""
        lower, upwards = self._around(np.array([number]))
        place, chance = int(lower[0]), Fraction(int(upwards[0]), _UNIT)
        both = zip(self.table(place), self.table(place + 1), strict=True)
        return [(1 - chance) * one + chance * other for one, other in both]

    def draw(self, numbers: Float64, source: Source) -> Int64:
        """A report for each number of [−1, 1]."""
        lower, upwards = self._around(numbers.ravel())
        words = (source.words(numbers.size) >> np.uint64(11)).astype(np.int64)
        places = lower + (words < upwards)
        kept = bernoulli(source, self.inside, places.size)
        within = places + uniform(source, self.width, places.size)
        other = uniform(source, self.cells - self.width, places.size)
        other += np.where(other >= places, self.width, 0)
        return np.where(kept, within, other).reshape(numbers.shape)

    def _around(self, numbers: Float64) -> tuple[Int64, Int64]:
        """The place below each number, and 2^53 times the probability of the place above."""
        last = self.cells - self.width
        exact = (numbers + 1.0) * (last / 2.0)
        lower = np.clip(np.floor(exact), 0, last - 1)
        return lower.astype(np.int64), np.rint((exact - lower) * _UNIT).astype(np.int64)

    def values(self, reports: Int64) -> Float64:
        """The number that each report stands for. It is unbiased: its mean is the person's own number."""
        return np.asarray((reports - (self.cells - 1) / 2.0) * self.step)

    def variance(self, numbers: Any) -> Float64:
        """The variance of the value of a report, for numbers in [−1, 1]."""
        number = np.asarray(numbers, dtype=np.float64)
        place = (number + 1.0) * (self.cells - self.width) / 2.0
        fraction = place - np.floor(place)
        return self._variance(np.square(number), fraction * (1 - fraction))

    def variance_bound(self, squares: Float64) -> Float64:
        """At least the variance for every number with this square.

        Between two places the mean square of the place is the line between their squares: at most the square
        of the number and ¼, and at most the square of the last place.
        """
        last = float(self.cells - self.width)
        return self._variance(squares, np.minimum(0.25, np.square(last / 2) * (1 - squares)))

    @property
    def corners(self) -> tuple[float, ...]:
        """Between these squares of a number, :meth:`variance_bound` is a line."""
        return (0.0, 1 - 1 / float(self.cells - self.width) ** 2, 1.0)

    def _variance(self, square: Float64, rounding: Float64) -> Float64:
        """The variance for a number with this square, whose place has a variance of ``rounding``.

        With the centre of the line as the origin and a cell as the unit, the mean square of a cell in a
        window around w is w² + (width² − 1)/12; the mean square of all cells is (cells² − 1)/12.
        """
        cells, width, inside = float(self.cells), float(self.width), float(self.inside)
        last = cells - width
        window = square * (last / 2) ** 2 + rounding + (width**2 - 1) / 12
        outside = (cells * (cells**2 - 1) / 12 - width * window) / last
        return np.asarray(self.step**2 * (inside * window + (1 - inside) * outside) - square)


@dataclass(frozen=True)
class Mixture:
    """One of two randomizers, drawn without regard to the number; the report tells which it was.

    The first is used with probability ``chance``, and its reports are 0 … ``first.cells`` − 1; those of the
    second follow. If both are ε-private, so is the mixture: every report belongs to one of them, and has
    ``chance`` or 1 − ``chance`` times the probability that it has there.
    """

    chance: Fraction
    first: Windows
    second: Windows

    @property
    def cells(self) -> int:
        """The number of different reports."""
        return self.first.cells + self.second.cells

    @property
    def largest(self) -> float:
        """The largest value of a report."""
        return max(self.first.largest, self.second.largest)

    def law(self, number: float) -> list[Fraction]:
        """The probability of every report of a number in [−1, 1]."""
        first, second = self.first.law(number), self.second.law(number)
        return [self.chance * each for each in first] + [(1 - self.chance) * each for each in second]

    def draw(self, numbers: Float64, source: Source) -> Int64:
        """A report for each number of [−1, 1]; as many random bits are drawn whichever randomizer is used."""
        first = bernoulli(source, self.chance, numbers.size).reshape(numbers.shape)
        of_first, of_second = self.first.draw(numbers, source), self.second.draw(numbers, source)
        return np.where(first, of_first, of_second + self.first.cells)

    def values(self, reports: Int64) -> Float64:
        """The number that each report stands for, which is unbiased."""
        second = reports - self.first.cells
        return np.where(second < 0, self.first.values(reports), self.second.values(second))

    def variance(self, numbers: Any) -> Float64:
        """The variance of the value of a report, for numbers in [−1, 1]."""
        return self._mixed(self.first.variance(numbers), self.second.variance(numbers))

    def variance_bound(self, squares: Float64) -> Float64:
        """At least the variance for every number with this square."""
        return self._mixed(self.first.variance_bound(squares), self.second.variance_bound(squares))

    @property
    def corners(self) -> tuple[float, ...]:
        """Between these squares of a number, :meth:`variance_bound` is a line."""
        return (*self.first.corners, *self.second.corners)

    def _mixed(self, first: Float64, second: Float64) -> Float64:
        chance = float(self.chance)
        return np.asarray(chance * first + (1 - chance) * second)
