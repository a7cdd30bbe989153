"""Hadamard response: one number of about log2 k bits, read by a fast Walsh–Hadamard transform.

Acharya, Sun and Zhang, "Hadamard response: estimating distributions privately, efficiently, and with little
communication" (2019). There are K = B·b possible reports, B blocks of b; both are powers of two. Category v
belongs to block v mod B and to row r = 1 + ⌊v/B⌋ of the Hadamard matrix of order b; its *set* are the s = b/2
numbers of its block in which that row is +1.

Why it is ε-differentially private. The report is in the set of the true category with probability p,
uniformly, and uniformly among the other K − s numbers otherwise. So each number has the probability p/s or
(1 − p)/(K − s), and the ratio of the two is at most e^ε as p ≤ s·e^ε/(s·e^ε + K − s), rounded down to a
multiple of 2^−60.

The estimate. A report counts +1 for a category if it is in its set, −1 if it is in the rest of its block,
and 0 in other blocks. Rows of the matrix are orthogonal, so every other category makes both signs equally
likely, and the true one has mean c = p − s·(1 − p)/(K − s). So (sum of the signs)/(n·c) is unbiased. A sign
is not 0 with probability π₁ = p + s(1 − p)/(K − s) if the true category is in the block and π₀ = 2s(1 −
p)/(K − s) if not, which gives the variance (F·π₁ + (1 − F)·π₀ − f·c²)/(n·c²) for frequency f and a block of
frequency F.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tacit import _validate
from tacit.local.oracle import Counted, FrequencyOracle, numbered, shares_interval
from tacit.mechanisms._base import Float64, Int64, tail
from tacit.mechanisms.randomized_response import favoured
from tacit.randomness import bernoulli, uniform

__all__ = ["HadamardResponse"]


@dataclass(frozen=True)
class SignsCounted(Counted):
    """``supporting`` are sums of signs; ``in_block`` counts the reports in the block of each category."""

    in_block: Int64


@dataclass(frozen=True)
class HadamardResponse(FrequencyOracle):
    """Hadamard response (Acharya, Sun and Zhang 2019), with the number of blocks of least variance.

    Guarantee: ε-local differential privacy; the event is ``Pure(ε)``. A report is one number of about log2
    k + 1 bits, and an estimate takes time n + K·log K. At low ε the variance is (e^ε + 1)²/(n(e^ε − 1)²),
    and it stays near the optimum at high ε, where there are about e^ε blocks.

    >>> oracle = HadamardResponse(categories=1000, epsilon=1.0, random_state=1)
    >>> oracle.blocks, oracle.order
    (1, 1024)
    >>> reports = oracle.randomize([7] * 6000 + [999] * 4000)
    >>> oracle.estimate(reports).value[[7, 8, 999]].round(2).tolist()
    [0.63, -0.01, 0.42]
    """

    @property
    def blocks(self) -> int:
        """The number of blocks, B: the power of two of least variance, for categories equally frequent."""
        choices = [1 << power for power in range(self.size.bit_length())]
        return min(choices, key=lambda blocks: _variance(self.epsilon, self.size, blocks))

    @property
    def order(self) -> int:
        """The order of the Hadamard matrix, b."""
        return _order(self.size, self.blocks)

    @property
    def keep(self) -> Fraction:
        """The probability p that the report is in the set of the true category."""
        half = self.order // 2
        return favoured(self.epsilon, half, self.blocks * self.order - half)

    @property
    def report_bits(self) -> float:
        """The size of one report in bits: log2 K."""
        return math.log2(self.blocks * self.order)

    def variance(self, frequency: Any, reports: int, *, block: Any = None) -> Any:
        """The variance of the estimate of a category of this frequency, from so many reports.

        ``block`` is the frequency of the block of the category, itself included; left out, all other
        categories are taken to be equally frequent.
        """
        _validate.count("reports", reports, 1)
        f = np.asarray(frequency, dtype=np.float64)
        neighbours = (-(-self.size // self.blocks) - 1) / (self.size - 1)
        inside = f + (1 - f) * neighbours if block is None else np.asarray(block, dtype=np.float64)
        contrast, same, different = (float(each) for each in self._chances())
        found = (inside * same + (1 - inside) * different - f * contrast**2) / (reports * contrast**2)
        return float(found) if found.ndim == 0 else found

    def frequencies(self, counted: Counted) -> Float64:
        """The unbiased estimates (sum of the signs)/(n·c)."""
        return np.asarray(counted.supporting / (counted.accepted * float(self._chances()[0])))

    def interval(self, counted: Counted, confidence: float, coordinates: int) -> tuple[Float64, Float64]:
        """Intervals in [0, 1]: of Clopper and Pearson for one block, by Bernstein's inequality for several.

        With several blocks a tenth of the probability to miss goes to an upper bound on the share Π of
        reports in the block. The signs lie within 1 + c of their means and have variances of mean at most
        Π.
        """
        miss, n = tail(confidence, coordinates), counted.accepted
        contrast = float(self._chances()[0])
        if not isinstance(counted, SignsCounted) or self.blocks == 1:
            low, high = shares_interval((counted.supporting + n) // 2, n, miss)
            return np.clip((2 * low - 1) / contrast, 0.0, 1.0), np.clip((2 * high - 1) / contrast, 0.0, 1.0)
        _, share = shares_interval(counted.in_block, n, miss / 5)
        level = math.log(2 / (0.9 * miss))
        reach = (1 + contrast) * level / 3
        away = reach + np.sqrt(reach**2 + 2 * level * n * share)
        ends = (counted.supporting - away, counted.supporting + away)
        low, high = (np.clip(end / (n * contrast), 0.0, 1.0) for end in ends)
        return low, high

    def _chances(self) -> tuple[Fraction, Fraction, Fraction]:
        """c, and the chances π₁ and π₀ of a report in the block of a category."""
        half = self.order // 2
        rest = (1 - self.keep) / (self.blocks * self.order - half)
        return self.keep - half * rest, self.keep + half * rest, 2 * half * rest

    def _places(self, codes: Int64) -> tuple[Int64, Int64]:
        return codes % self.blocks, 1 + codes // self.blocks

    def _law(self, code: int) -> dict[Any, Fraction]:
        b, total = self.order, self.blocks * self.order
        self._listable(total)
        inside, rest = self.keep / (b // 2), (1 - self.keep) / (total - b // 2)
        block, row = code % self.blocks, 1 + code // self.blocks
        return {
            report: inside if report // b == block and not (report % b & row).bit_count() % 2 else rest
            for report in range(total)
        }

    def _randomized(self, codes: Int64) -> Int64:
        """A number of the set with probability p, else one of the other numbers, each uniformly.

        Flipping, in a uniform number of the block, the lowest bit that the row has, changes its sign and maps
        the set and the rest of the block onto each other one to one.
        """
        b, total = self.order, self.blocks * self.order
        block, row = self._places(codes)
        kept = bernoulli(self._source, self.keep, codes.size)
        within = uniform(self._source, b, codes.size)
        elsewhere = uniform(self._source, total - b // 2, codes.size)
        negative = np.bitwise_count(within & row) % 2 == 1
        within = np.where(negative == kept, within ^ (row & -row), within)
        away = ~kept & (elsewhere >= b // 2)
        offset, place = np.divmod(np.maximum(elsewhere - b // 2, 0), b)
        block = np.where(away, (block + 1 + offset) % self.blocks, block)
        return np.asarray(block * b + np.where(away, place, within))

    def _counted(self, reports: Any) -> SignsCounted:
        accepted, refused = numbered(reports, self.blocks * self.order)
        cells = np.bincount(accepted, minlength=self.blocks * self.order).reshape(self.blocks, self.order)
        sums = _transformed(cells)
        block, row = self._places(np.arange(self.size))
        return SignsCounted(sums[block, row], accepted.size, refused, sums[block, 0])


def _order(size: int, blocks: int) -> int:
    """The least power of two with a row for each category of a block, besides the constant one."""
    return int(2 ** (-(-size // blocks)).bit_length())


def _variance(epsilon: float, size: int, blocks: int) -> float:
    """n × the variance of an estimate, if all categories are equally frequent."""
    odds, half = math.exp(min(epsilon, 30.0)), _order(size, blocks) // 2
    total = half * odds + 2 * half * blocks - half
    contrast = half * (odds - 1) / total
    return ((2 * half + half * (odds - 1) / blocks) / total - contrast**2 / size) / contrast**2


def _transformed(cells: Int64) -> Int64:
    """The Walsh–Hadamard transform of each row, in whole numbers."""
    sums, step = cells.copy(), 1
    while step < cells.shape[1]:
        pairs = sums.reshape(len(cells), -1, 2, step)
        sums = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        step *= 2
    return np.asarray(sums.reshape(cells.shape))
