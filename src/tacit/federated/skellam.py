"""Skellam noise: what it costs, and how it is drawn exactly.

Sk(v), the difference of two independent Poisson variables of mean v/2, is an integer of mean 0 and variance
v. Shares add up: the sum of Sk(v₁) and Sk(v₂) is Sk(v₁ + v₂). So clients that draw their shares apart make,
in a sum that nobody sees in parts, noise whose distribution is known without approximation (Agarwal,
Kairouz and Liu 2021, "The Skellam mechanism for differentially private federated learning").

**Theorem.** Let v = τ(u) with τ(u) = ∫₀ᵘ dx/ρ(x), where ρ(1/c²) = (4/c³)·∫₀ᶜ sinh(cs/2)·e^(−s²/2) ds. For
integer vectors a, b at Euclidean distance D, no test tells a + Sk(v)ᵈ from b + Sk(v)ᵈ better than one tells
N(0, u) from N(D, u). In the terms of Dong, Roth and Su 2019, the Skellam mechanism is D/√u-GDP: whatever
bounds the real Gaussian of standard deviation √u bounds it too, under composition and sampling alike. The
published bound on its Rényi divergence holds for whole orders alone, and has a term in the ℓ1 norm; this
one has neither.

*Proof.* Let F be the distribution function of Sk(v), w = Φ⁻¹∘F on the integers, and c(v) = sup w(x+1) −
w(x). Sk(v) is log-concave, so the best tests of a shift by k are thresholds. Their errors are 1 − F(x) and
F(x−k) = Φ(w(x−k)) ≥ Φ(Φ⁻¹(F(x)) − k·c): those of a test of N(0, 1) against N(k·c, 1) or worse, and
randomising between two thresholds stays on that side because the trade-off curve of the Gaussian is convex.
Coordinates compose: d of them, shifted by kᵢ, are no easier than Gaussians with Σ(kᵢc)² = (D·c)². It
remains to bound c(v).

F satisfies ∂F(x)/∂v = ½F(x+1) + ½F(x−1) − F(x), as every coordinate of a symmetric random walk in
continuous time does. With F = Φ(w), a = w(x+1) − w(x) and b = w(x) − w(x−1) this reads ∂w(x)/∂v = ½∫₀ᵃ
e^(−ws−s²/2) ds − ½∫₀ᵇ e^(ws−s²/2) ds. At an x where w(x+1) − w(x) attains the supremum c, which it does
because the differences tend to 0 far out, the neighbouring differences are at most c, hence

    ∂[w(x+1) − w(x)]/∂v ≤ −∫₀ᶜ [sinh((w+c)s) − sinh(ws)]·e^(−s²/2) ds ≤ −2∫₀ᶜ sinh(cs/2)·e^(−s²/2) ds,

because sinh(A + h) − sinh(A) = 2·cosh(A + h/2)·sinh(h/2). The differences tend to 0 uniformly for v in a
compact interval, so that near any v > 0 the supremum is one over finitely many x: c is continuous, and its
upper right derivative is the largest of those at the x that attain it. So c falls at least as fast as the
solution y of y′ = −2∫₀ʸ sinh(ys/2)·e^(−s²/2) ds that comes down from infinity at v = 0, which bounds c from
above because c is finite at every v > 0, and u = 1/y² satisfies u′ = ρ(u). ∎

By sinh x ≥ x and e^(−x) ≥ 1 − x, ρ(u) ≥ 1 − 1/(4u), so τ(u) ≤ u + 0.51 + ¼·ln((4u−1)/3) for u ≥ 1: at any
variance of use, Skellam noise is worth Gaussian noise whose variance is smaller by a few units of the grid,
squared. (The truth is a third of a unit; tests compare.)

>>> from fractions import Fraction
>>> round(float(needed_variance(Fraction(10_000))), 2)
10002.88
>>> from tacit.randomness import Source
>>> skellam(Source(random_state=1), Fraction(50), 6).tolist()
[6, -1, 11, -11, 6, -7]
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.randomness import Source

__all__ = ["LARGEST_VARIANCE", "needed_variance", "skellam"]

Int64 = NDArray[np.int64]

LARGEST_VARIANCE = 2**24
"""The largest variance that is drawn from one table, which has some thirty entries for each standard
deviation. Noise of a larger variance is the sum of several draws."""
LARGEST_EFFECTIVE = 2**512
"""The largest variance of Gaussian noise that is matched: float64 takes its logarithm."""
MOST_PARTS = 2**20
"""The most draws that are added up for one draw of a larger variance."""

_AT_ONE = Fraction(51, 100)  # an upper bound of τ(1) − 1
_PRECISION = 160
_FIRST = 16  # digits of a uniform number that are drawn for everybody
_WORD = 64


def needed_variance(effective: Fraction) -> Fraction:
    """A variance of Skellam noise that protects as Gaussian noise of variance ``effective`` ≥ 1 does.

    The float64 arithmetic of the logarithm errs by less than 10^−12 of it, which is added, and by less than
    10^−15 besides; :data:`_AT_ONE` exceeds τ(1) − 1 = 0.50630… by more than that.
    """
    if not 1 <= effective <= LARGEST_EFFECTIVE:
        raise InvalidValue("effective", _magnitude(effective), "1 to 2^512 squared steps of the grid")
    excess = math.log((4 * float(effective) - 1) / 3) / 4
    return effective + _AT_ONE + Fraction(math.nextafter(excess * (1 + 1e-12), math.inf))


def skellam(source: Source, variance: Fraction, size: int) -> Int64:
    """``size`` independent draws of Sk(variance), exactly.

    A draw is the least k with U < F(k), where U is uniform. Sixteen digits of U settle most draws by a table;
    48 more settle all but one in 10^15, and for those both U and F are continued for as long as it takes.
    F comes from bounds in integer arithmetic, see :class:`_Bounds`. A variance above
    :data:`LARGEST_VARIANCE` is divided into equal parts, whose draws are added.
    """
    count = _validate.count("size", size)
    parts = max(1, math.ceil(variance / LARGEST_VARIANCE))
    if parts > MOST_PARTS:
        raise InvalidValue("variance", _magnitude(variance), f"at most {MOST_PARTS} times 2^24")
    sampler = _sampler(variance / parts)
    draws = sampler.draw(source, count)
    for _ in range(parts - 1):
        draws += sampler.draw(source, count)
    return draws


def _magnitude(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


class _Bounds:
    """Integers between which P(X ≥ j)·2^bits lies, for j = 1 … reach.

    P(X = k) is proportional to I_k(v), a modified Bessel function, and r(k) = I_{k+1}/I_k satisfies r(k−1)
    = 1/(2k/v + r(k)). This falls as r(k) grows, so from 0 ≤ r(2·reach) ≤ 1 follow bounds of all earlier
    ratios, rounded outwards and narrower with each step. Their products bound the probabilities relative to
    that of 0, and because ratios fall, a geometric series bounds what lies beyond ``reach``.
    """

    def __init__(self, variance: Fraction, precision: int) -> None:
        one = 1 << precision
        self.reach = math.isqrt(math.ceil(2 * precision * variance)) + precision
        doubled = 2 * variance.denominator << precision
        low, high = [0] * (self.reach + 1), [0] * (self.reach + 1)
        below, above = 0, one
        for k in range(2 * self.reach, 0, -1):
            step, rest = divmod(doubled * k, variance.numerator)
            below, above = (
                (one << precision) // (step + (rest > 0) + above),
                min(one, (one << precision) // (step + below) + 1),
            )
            if k <= self.reach + 1:
                low[k - 1], high[k - 1] = below, above
        least, most = [one], [one]
        for k in range(self.reach):
            least.append(least[-1] * low[k] >> precision)
            most.append((most[-1] * high[k] >> precision) + 1)
        ratio = high[self.reach]
        if ratio == one:
            raise InvalidValue("variance", float(variance), "small enough for the sampler's table")
        beyond = most[-1] * ratio // (one - ratio) + 1
        self.least, self.most = [0], [beyond]
        for k in range(self.reach, 0, -1):
            self.least.append(self.least[-1] + least[k])
            self.most.append(self.most[-1] + most[k])
        self.least.reverse()
        self.most.reverse()
        self.total = one + 2 * self.least[0], one + 2 * self.most[0]

    def tail(self, j: int, bits: int) -> tuple[int, int]:
        """Bounds of 2^bits·P(X ≥ j), for 1 ≤ j ≤ reach."""
        low, high = self.total
        return (self.least[j - 1] << bits) // high, (self.most[j - 1] << bits) // low + 1

    def upto(self, k: int, bits: int) -> tuple[int, int]:
        """Bounds of 2^bits·P(X ≤ k), for −reach ≤ k < reach."""
        if k < 0:
            return self.tail(-k, bits)
        low, high = self.tail(k + 1, bits)
        return (1 << bits) - high, (1 << bits) - low


class _Sampler:
    """Draws of Sk(variance) by inversion; see :func:`skellam`."""

    def __init__(self, variance: Fraction) -> None:
        if not 0 < variance <= LARGEST_VARIANCE:
            raise InvalidValue("variance", float(variance), "positive and at most 2^24")
        self.variance = variance
        self.first, self.thresholds = self._table(_PRECISION)
        shift = np.uint64(_WORD - _FIRST)
        starts = np.arange(1 << _FIRST, dtype=np.uint64) << shift
        self.places = np.searchsorted(self.thresholds, starts, side="left").astype(np.int32)
        self.busy = np.zeros(1 << _FIRST, dtype=np.bool_)
        self.busy[(self.thresholds >> shift).astype(np.int64)] = True
        self.values = (self.places + self.first).astype(np.int32)

    def _table(self, precision: int) -> tuple[int, NDArray[np.uint64]]:
        """The first k with ⌊2^64·F(k)⌋, and those of the following ones: of all that are neither 0 nor 2^64
        − 1, and of one more on either side.
        """
        bounds = _Bounds(self.variance, precision)
        guard = precision // 2
        lower = []
        for j in range(1, bounds.reach + 1):
            low, high = bounds.tail(j, _WORD + guard)
            unsettled = low >> guard != high >> guard or not low & ((1 << guard) - 1)
            if unsettled and high >> guard:
                return self._table(2 * precision)
            lower.append(low >> guard)
            if not lower[-1]:
                break
        largest = (1 << _WORD) - 1
        table = [*lower[::-1], *(largest - value for value in lower)]
        return -len(lower), np.array(table, dtype=np.uint64)

    def draw(self, source: Source, size: int) -> Int64:
        cells = source.words(size, np.uint16)
        values: Int64 = self.values[cells].astype(np.int64)
        open_ = np.flatnonzero(self.busy[cells])
        more = source.words(open_.size) >> np.uint64(_FIRST)
        drawn = cells[open_].astype(np.uint64) << np.uint64(_WORD - _FIRST) | more
        found = np.searchsorted(self.thresholds, drawn, side="right")
        values[open_] = found + self.first
        tied = np.flatnonzero((found > 0) & (self.thresholds[found - 1] == drawn))
        for i in tied:
            values[open_[i]] = self._settle(source, int(drawn[i]))
        return values

    def _settle(self, source: Source, drawn: int) -> int:
        """The draw whose U begins with the 64 digits ``drawn``."""
        bits = _WORD
        while True:
            drawn, bits = drawn << _WORD | source.bits(_WORD), bits + _WORD
            bounds = _Bounds(self.variance, bits + _PRECISION)
            k = -bounds.reach
            low, high = bounds.upto(k, bits)
            if drawn < high:
                continue
            while k < bounds.reach - 1 and high <= drawn:
                k += 1
                low, high = bounds.upto(k, bits)
            if drawn + 1 <= low:
                return k


_sampler = lru_cache(32)(_Sampler)
