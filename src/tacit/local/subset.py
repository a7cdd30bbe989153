"""Subset selection: the report is a set of d categories, of which the true one is likelier to be a member.

Ye and Barg, "Optimal schemes for discrete distribution estimation under locally differential privacy" (2018);
Wang et al., "Mutual information optimally local private discrete distribution estimation" (2016).

Why it is ε-differentially private. The true category is a member with probability p, and the rest of the
set is a uniform choice among the other categories. So a set has the probability p/C(k−1, d−1) if the true
category is a member and (1 − p)/C(k−1, d) if not; the ratio is p(k − d)/((1 − p)d), at most e^ε as p ≤
d·e^ε/(d·e^ε + k − d).

How a set is drawn exactly. Independent bits, all with the same chance, make every set of the same size
equally likely. Members are then removed, or others added, each by a uniform choice, until the size is
right; by symmetry every set of the right size remains equally likely, whatever the chance of the bits was.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tacit.local import bits
from tacit.local.oracle import Counted, SupportOracle
from tacit.mechanisms._base import Int64
from tacit.mechanisms.randomized_response import favoured
from tacit.randomness import Source, bernoulli, uniform

__all__ = ["SubsetSelection"]

_ROWS = 1 << 14


@dataclass(frozen=True)
class SubsetSelection(SupportOracle):
    """A random set of about k/(e^ε + 1) categories for each person (Ye and Barg 2018).

    Guarantee: ε-local differential privacy; the event is ``Pure(ε)``. No other oracle here has less
    variance where all categories are equally frequent; with d = 1 it is randomized response. A report is a
    row of k bits, packed in bytes, of which d are 1.

    >>> oracle = SubsetSelection(categories=10, epsilon=1.0, random_state=1)
    >>> oracle.members
    3
    >>> reports = oracle.randomize([3] * 7000 + [8] * 3000)
    >>> oracle.estimate(reports).value.round(2).tolist()
    [-0.0, 0.01, 0.0, 0.69, -0.01, -0.01, 0.0, -0.02, 0.29, 0.04]
    """

    @property
    def members(self) -> int:
        """The size d of a set, of least variance for categories equally frequent."""
        best = self.size / (math.exp(min(self.epsilon, 30.0)) + 1)
        choices = {max(1, min(each, self.size - 1)) for each in (math.floor(best), math.ceil(best))}
        return min(sorted(choices), key=lambda members: _variance(self.epsilon, self.size, members))

    @property
    def keep(self) -> Fraction:
        """The probability that the true category is a member."""
        return favoured(self.epsilon, self.members, self.size - self.members)

    @property
    def other(self) -> Fraction:
        """The probability that a given other category is a member."""
        return (self.members - self.keep) / (self.size - 1)

    @property
    def report_bits(self) -> float:
        """The size of one report in bits: the logarithm of the number of sets."""
        size, members = self.size, self.members
        log = math.lgamma(size + 1) - math.lgamma(members + 1) - math.lgamma(size - members + 1)
        return log / math.log(2)

    def _law(self, code: int) -> dict[Any, Fraction]:
        k, d = self.size, self.members
        self._listable(math.comb(k, d))
        inside, outside = self.keep / math.comb(k - 1, d - 1), (1 - self.keep) / math.comb(k - 1, d)
        return {
            bits.row_of(chosen, k): inside if code in chosen else outside
            for chosen in itertools.combinations(range(k), d)
        }

    def _randomized(self, codes: Int64) -> bits.Rows:
        parts = [
            self._sets(codes[start : start + _ROWS]) for start in range(0, max(1, codes.size), _ROWS)
        ]
        return np.concatenate(parts)

    def _sets(self, codes: Int64) -> bits.Rows:
        k, d = self.size, self.members
        start = max(0.0, d - math.sqrt(d * (1 - d / k))) / k if d >= 16 else 0.0
        rows = bits.bernoulli_rows(self._source, Fraction(math.floor(start * 4096), 4096), codes.size, k)
        bits.set_bits(rows, codes, bernoulli(self._source, self.keep, codes.size))
        _resize(rows, codes, d, k, self._source)
        return rows

    def _counted(self, reports: Any) -> Counted:
        rows, refused = bits.well_formed(reports, self.size)
        sets = bits.row_weights(rows) == self.members
        if not sets.all():
            refused += int((~sets).sum())
            rows = rows[sets]
        return Counted(bits.column_counts(rows, self.size), len(rows), refused)


def _variance(epsilon: float, size: int, members: int) -> float:
    """n × the variance of an estimate, if all categories are equally frequent."""
    odds = math.exp(min(epsilon, 30.0))
    p = members * odds / (members * odds + size - members)
    q = (members - p) / (size - 1)
    return (p * (1 - p) / size + (1 - 1 / size) * q * (1 - q)) / (p - q) ** 2


def _resize(rows: bits.Rows, fixed: Int64, members: int, size: int, source: Source) -> None:
    """Add or remove uniformly chosen members, except the fixed one, until every row has ``members`` ones."""
    weights = bits.row_weights(rows)
    wrong = np.flatnonzero(weights != members)
    while wrong.size:
        column = uniform(source, size, wrong.size)
        byte, mask = column >> 3, np.left_shift(np.uint8(1), (column & 7).astype(np.uint8))
        present = rows[wrong, byte] & mask != 0
        flip = (present == (weights[wrong] > members)) & (column != fixed[wrong])
        flipped = wrong[flip]
        rows[flipped, byte[flip]] ^= mask[flip]
        weights[flipped] += np.where(present[flip], -1, 1)
        wrong = wrong[weights[wrong] != members]
