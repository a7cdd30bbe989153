"""Local hashing: the category is hashed to few values, and the hash is reported by randomized response.

Wang, Blocki, Li and Jha, "Locally differentially private protocols for frequency estimation" (2017), draw
the hash function of each person from a universal family. Here the range g is a prime, categories are
written as vectors of m digits over the field of g elements, and the hash of v is the inner product ⟨a, v⟩
modulo g, with a uniformly random vector a in each report. Two different categories have the same hash with
probability exactly 1/g, so the estimates are exactly unbiased; no function of the family needs to be
trusted to look random.

The number of reports that support v is Σ_a N[a, ⟨a, v⟩], where N[a, y] counts the reports (a, y). With the
Fourier transform Ñ[a, t] over y it is 1/g · Σ_t Σ_a Ñ[a, t]·ω^(−t⟨a, v⟩), and the substitution a' = t·a
turns the sum over a into one m-dimensional Fourier transform for all categories. So the time of an estimate
does not grow with reports × categories. Supports are whole numbers, and the transform is rounded to them.

Why it is ε-differentially private. The vector a is drawn without looking at the value. Given a, the report
y equals the hash of the value with probability p and each of the other g − 1 numbers with (1 − p)/(g − 1),
where p ≤ e^ε/(e^ε + g − 1): this is randomized response on the hash.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.local.oracle import Counted, SupportOracle, numbered
from tacit.mechanisms._base import Int64
from tacit.mechanisms.randomized_response import favoured
from tacit.randomness import Source, bernoulli, uniform

__all__ = ["LARGEST_RANGE", "LocalHashing", "agreeing", "best_range", "digits", "hashed", "responded"]

LARGEST_RANGE = 2039
"""The largest range of a hash, a prime; the best one is beyond it only for ε above 7.6."""

_TABLE = 2**22
"""The largest number of cells of a table that is transformed at once."""


@dataclass(frozen=True)
class LocalHashing(SupportOracle):
    """Optimal local hashing (Wang et al. 2017) with the range of least variance.

    Guarantee: ε-local differential privacy; the event is ``Pure(ε)``. The variance is close to that of
    :class:`OptimizedUnary`, 4e^ε/(n(e^ε − 1)²) for rare categories, and a report has only (m + 1)·log2 g
    bits, where g is near e^ε + 1 and g^m ≥ k. A report is one whole number, (index of a)·g + y.

    ``hash_range`` is g, a prime; the collector and all people must use the same one. Left out, it is the
    prime of least variance at frequency 1/k.

    >>> oracle = LocalHashing(categories=1000, epsilon=1.0, random_state=1)
    >>> oracle.hash_range, oracle.digits
    (3, 7)
    >>> reports = oracle.randomize([7] * 6000 + [999] * 4000)
    >>> oracle.estimate(reports).value[[7, 8, 999]].round(2).tolist()
    [0.58, 0.03, 0.42]
    """

    hash_range: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.hash_range:
            self._keep("hash_range", best_range(self.epsilon, 1 / self.size))
        _validate.count("hash_range", self.hash_range, 2)
        if self.hash_range > LARGEST_RANGE or not _is_prime(self.hash_range):
            raise InvalidValue("hash_range", self.hash_range, f"a prime of at most {LARGEST_RANGE}")

    @property
    def digits(self) -> int:
        """How many digits a category has over the field of g elements."""
        return digits(self.size, self.hash_range)

    @property
    def keep(self) -> Fraction:
        """The probability of reporting the hash of the true category."""
        return favoured(self.epsilon, 1, self.hash_range - 1)

    @property
    def other(self) -> Fraction:
        """The probability that a report supports a given other category: 1/g."""
        return Fraction(1, self.hash_range)

    @property
    def report_bits(self) -> float:
        """The size of one report in bits: (m + 1)·log2 g."""
        return (self.digits + 1) * math.log2(self.hash_range)

    def _law(self, code: int) -> dict[Any, Fraction]:
        g, vectors = self.hash_range, self.hash_range**self.digits
        self._listable(vectors * g)
        miss = (1 - self.keep) / (g - 1)
        hashes = hashed(np.arange(vectors), np.full(vectors, code), g, self.digits).tolist()
        return {
            vector * g + y: (self.keep if y == hashes[vector] else miss) / vectors
            for vector in range(vectors)
            for y in range(g)
        }

    def _randomized(self, codes: Int64) -> Int64:
        g = self.hash_range
        vectors = uniform(self._source, g**self.digits, codes.size)
        hashes = hashed(vectors, codes, g, self.digits)
        return vectors * g + responded(self._source, hashes, g, self.keep)

    def _counted(self, reports: Any) -> Counted:
        g, m = self.hash_range, self.digits
        accepted, refused = numbered(reports, g ** (m + 1))
        vectors, answers = np.divmod(accepted, g)
        inner = m if g ** (m + 1) <= _TABLE else m - 1
        last, vectors = np.divmod(vectors, g**inner)
        parts = [
            agreeing(vectors, (answers - last * value) % g, g, inner)
            for value in range(-(-self.size // g**inner))
        ]
        return Counted(np.concatenate(parts)[: self.size], accepted.size, refused)


def best_range(epsilon: float, frequency: float) -> int:
    """The prime g of least variance of an estimate of this frequency; about e^ε + 1 for rare categories."""
    odds = math.exp(min(epsilon, 30.0))
    best, least = 2, math.inf
    for g in range(2, LARGEST_RANGE + 1):
        if _is_prime(g):
            p, q = odds / (odds + g - 1), 1 / g
            variance = (frequency * p * (1 - p) + (1 - frequency) * q * (1 - q)) / (p - q) ** 2
            if variance < least:
                best, least = g, variance
            if g > odds + 100:
                break
    return best


def digits(categories: int, g: int) -> int:
    """The least m with g^m ≥ categories."""
    found = 1
    while g**found < categories:
        found += 1
    return found


def hashed(vectors: Int64, codes: Int64, g: int, m: int) -> Int64:
    """⟨a, v⟩ modulo g, for vectors and codes that are numbers of m digits in base g."""
    total = np.zeros(len(codes), dtype=np.int64)
    for _ in range(m):
        vectors, ours = np.divmod(vectors, g)
        codes, theirs = np.divmod(codes, g)
        total += ours * theirs
    return np.asarray(total % g)


def responded(source: Source, hashes: Int64, g: int, keep: Fraction) -> Int64:
    """Each hash with probability ``keep``, otherwise a uniform choice among the g − 1 other numbers."""
    kept = bernoulli(source, keep, hashes.size)
    away = 1 + uniform(source, g - 1, hashes.size)
    return np.asarray((hashes + np.where(kept, 0, away)) % g)


def agreeing(vectors: Int64, answers: Int64, g: int, m: int) -> Int64:
    """For every v of m digits, how many of the pairs (a, y) have ⟨a, v⟩ = y modulo g."""
    cells: NDArray[Any] = np.bincount(vectors * g + answers, minlength=g ** (m + 1)).reshape(-1, g)
    spectrum = np.fft.rfft(cells, axis=1)
    shape, field_elements = (g,) * m, np.arange(g)
    total: NDArray[Any] = np.zeros(shape, dtype=np.complex128)
    for t in range(1, g // 2 + 1):
        part = spectrum[:, t].reshape(shape)
        if t > 1:
            part = part[np.ix_(*[field_elements * pow(t, -1, g) % g] * m)]
        total += part
    sums = np.fft.ifftn(total).real.reshape(-1) * g**m if m else total.real.reshape(-1)
    return np.rint((len(vectors) + (1 if g == 2 else 2) * sums) / g).astype(np.int64)


def _is_prime(number: int) -> bool:
    return number >= 2 and all(number % factor for factor in range(2, math.isqrt(number) + 1))
