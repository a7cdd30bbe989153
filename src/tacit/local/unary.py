"""Unary encoding: one bit per category, each flipped with a chance of its own.

The value is written as k bits of which only the bit of the true category is 1. The report has that bit with
probability p and each other bit with probability q, independently.

Why it is ε-differentially private. Two values differ in two bits of their encodings. The ratio of the
probabilities of a report is p/q or (1 − p)/(1 − q) in one of them and the inverse of one of these in the
other, so it is at most p(1 − q)/((1 − p)q), which is e^ε for

    symmetric (basic RAPPOR):  p = e^(ε/2)/(e^(ε/2) + 1),  q = 1 − p
    optimised:                 p = 1/2,                    q = 1/(e^ε + 1)

q is rounded up to a multiple of 2^−60, and every bit is drawn exactly.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tacit.local import bits
from tacit.local.oracle import Counted, SupportOracle
from tacit.mechanisms._base import Int64
from tacit.mechanisms.randomized_response import favoured
from tacit.randomness import bernoulli

__all__ = ["OptimizedUnary", "SymmetricUnary"]


@dataclass(frozen=True)
class _Unary(SupportOracle):
    @property
    def report_bits(self) -> float:
        """The size of one report in bits: k."""
        return float(self.size)

    def _law(self, code: int) -> dict[Any, Fraction]:
        self._listable(2 ** min(self.size, 64))
        chances = [self.keep if column == code else self.other for column in range(self.size)]
        return {
            bits.row_of([column for column, bit in enumerate(row) if bit], self.size): math.prod(
                (chance if bit else 1 - chance for bit, chance in zip(row, chances, strict=True)),
                start=Fraction(1),
            )
            for row in itertools.product((0, 1), repeat=self.size)
        }

    def _randomized(self, codes: Int64) -> bits.Rows:
        rows = bits.bernoulli_rows(self._source, self.other, codes.size, self.size)
        bits.set_bits(rows, codes, bernoulli(self._source, self.keep, codes.size))
        return rows

    def _counted(self, reports: Any) -> Counted:
        rows, refused = bits.well_formed(reports, self.size)
        return Counted(bits.column_counts(rows, self.size), len(rows), refused)


@dataclass(frozen=True)
class OptimizedUnary(_Unary):
    """Optimised unary encoding (Wang, Blocki, Li and Jha 2017): the true bit is a fair coin.

    Guarantee: ε-local differential privacy; the event is ``Pure(ε)``. The variance is close to
    4e^ε/(n(e^ε − 1)²) for rare categories, whatever k is; a report has k bits, packed in bytes.

    >>> oracle = OptimizedUnary(categories=10, epsilon=1.0, random_state=1)
    >>> reports = oracle.randomize([3] * 7000 + [8] * 3000)
    >>> reports.shape, reports.dtype
    ((10000, 2), dtype('uint8'))
    >>> found = oracle.estimate(reports)
    >>> found.value.round(2).tolist()
    [0.01, 0.0, -0.0, 0.72, -0.0, -0.0, 0.03, 0.0, 0.28, 0.02]
    >>> low, high = found.interval(simultaneous=True)
    >>> bool(low[3] < 0.7 < high[3])
    True
    """

    @property
    def keep(self) -> Fraction:
        """The probability that the bit of the true category is 1."""
        return Fraction(1, 2)

    @property
    def other(self) -> Fraction:
        """The probability that the bit of another category is 1."""
        return 1 - favoured(self.epsilon, 1, 1)


@dataclass(frozen=True)
class SymmetricUnary(_Unary):
    """Symmetric unary encoding, the basic one-time RAPPOR (Erlingsson, Pihur and Korolova 2014).

    Guarantee: ε-local differential privacy; the event is ``Pure(ε)``. Every bit is flipped with probability
    1/(e^(ε/2) + 1). The variance is above that of :class:`OptimizedUnary` for rare categories.

    >>> oracle = SymmetricUnary(categories=3, epsilon=1.0, random_state=1)
    >>> oracle.estimate(oracle.randomize([2] * 5000)).value.round(2).tolist()
    [0.04, -0.03, 1.01]
    """

    @property
    def keep(self) -> Fraction:
        """The probability that a bit is kept."""
        return favoured(self.epsilon / 2, 1, 1)

    @property
    def other(self) -> Fraction:
        """The probability that a bit is flipped."""
        return 1 - self.keep
