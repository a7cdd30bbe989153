"""Rényi divergences of one answer of the teachers, given how likely the answer is another than the winner.

If the winner is nearly sure, whoever sees the answer learns little (Papernot et al. 2017, 2018). ``log_q``
bounds ln Pr[answer ≠ winner] from above, for each query. All formulas are in logarithms: probabilities far
below 1e-300 and orders of several hundred, whole or not, lose no digits.

**One direction.** Theorem 6 of 2018 and theorem 3 of 2017 bound D(M(D)‖M(D′)) by q(D). The other direction is
not covered: with σ = 2 the votes (40, 10) have a bound of 0.0032 at order 8, and D(M(39, 11)‖M(40, 10)) is
0.0449. Both theorems need only an upper bound of q; with one that holds for the votes *and all their
neighbours*, each direction is an instance of the theorem. :func:`worst_gaps` gives it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.pate.votes import Int64

__all__ = [
    "checked_orders",
    "gaussian_divergence",
    "log_q_gaussian",
    "log_q_gumbel",
    "log_q_laplace",
    "log_q_threshold",
    "pure_divergence",
    "worst_gaps",
]

Array = NDArray[np.float64]
_UPWARDS = 1 + 1e-12
"""Rounding of the formulas below is well under this."""


def checked_orders(orders: ArrayLike) -> Array:
    """Rényi orders as float64, one or several, each above 1; whole numbers may be given as such."""
    try:
        found = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    except (TypeError, ValueError):
        raise InvalidValue("orders", type(orders), "numbers above 1") from None
    if found.ndim != 1 or not found.size or not (found > 1).all() or np.isinf(found).any():
        raise InvalidValue("orders", orders, "finite numbers above 1")
    return found


def gaps_of(votes: Int64) -> Int64:
    """How far each class is behind the winner; the winner itself (the first of equals) has −1."""
    winner = votes.argmax(axis=1)[:, None]
    gaps = np.take_along_axis(votes, winner, axis=1) - votes
    np.put_along_axis(gaps, winner, -1, axis=1)
    return gaps


def worst_gaps(gaps: Int64) -> Int64:
    """Gaps from which q is at least that of the votes and of every neighbour.

    A neighbour moves one vote. No gap shrinks by more than 2, and only one by more than 1; as every q here is
    a sum of a decreasing convex function over the gaps (or grows with such a sum), it is largest if the
    smallest gap shrinks by 2 and all others by 1. A gap that would fall below 0 is 0: then q ≥ 1/2, which
    every bound here answers with the data-independent one, whoever wins at the neighbour.
    """
    winner = gaps.argmin(axis=1)[:, None]
    second = gaps.view(np.uint64).argmin(axis=1)[:, None]  # −1 is the largest of unsigned numbers
    nearest = np.maximum(np.take_along_axis(gaps, second, axis=1) - 2, 0)
    shrunk = gaps - 1
    np.maximum(shrunk, 0, out=shrunk)
    np.put_along_axis(shrunk, second, nearest, axis=1)
    np.put_along_axis(shrunk, winner, -1, axis=1)
    return shrunk


def log_q_gaussian(gaps: Int64, sigma: float) -> Array:
    """ln q of GNMax, q = ½ Σ erfc(gap/2σ): the union bound (Papernot et al. 2018, proposition 7)."""
    return _union(gaps, lambda gap: log_ndtr(-gap / (sigma * math.sqrt(2.0))))


def log_q_laplace(gaps: Int64, gamma: float) -> Array:
    """ln q of LNMax, q = Σ (2 + γ·gap)/(4e^{γ·gap}) (Papernot et al. 2017, lemma 4)."""
    return _union(gaps, lambda gap: np.log((2 + gamma * gap) / 4) - gamma * gap)


def log_q_gumbel(gaps: Int64, epsilon: float) -> Array:
    """ln q of the exponential mechanism, exactly: q = S/(1 + S) with S = Σ e^{−ε·gap/2}."""
    total = _sum(gaps, lambda gap: -epsilon * gap / 2)
    return np.asarray(-np.logaddexp(0.0, -total))


def log_q_threshold(heights: NDArray[np.floating] | Int64, threshold: float, sigma: float) -> Array:
    """ln of the less likely outcome of the test height + N(0, σ²) ≥ threshold."""
    return np.asarray(log_ndtr(-np.abs(np.asarray(heights, dtype=float) - threshold) / sigma))


def _union(gaps: Int64, log_chance: Callable[[Array], Array]) -> Array:
    """ln Σ e^log_chance(gap) over the losing classes, at most ln(1 − 1/classes): the winner leads."""
    return np.minimum(_sum(gaps, log_chance), math.log1p(-1 / gaps.shape[1]))


def _sum(gaps: Int64, log_chance: Callable[[Array], Array]) -> Array:
    if not gaps.size:
        return np.zeros(len(gaps))
    largest = int(gaps.max())
    if largest < gaps.size:
        table = np.append(log_chance(np.arange(largest + 1, dtype=float)), -np.inf)
        logs = table[gaps]  # the winner's gap, −1, is the last entry
    else:
        logs = np.where(gaps < 0, -np.inf, log_chance(np.maximum(gaps, 0).astype(float)))
    peak = logs.max(axis=1, keepdims=True)
    logs -= peak
    with np.errstate(under="ignore"):
        return np.asarray(np.log(np.exp(logs, out=logs).sum(axis=1)) + peak[:, 0])


def gaussian_divergence(log_q: ArrayLike, sigma: float, orders: ArrayLike) -> Array:
    """The bound of theorem 6 (Papernot et al. 2018) at the μ₁, μ₂ of proposition 10, one row per ``log_q``.

    Never above the data-independent λ/σ², which holds where the conditions of the theorem do not.

    >>> gaussian_divergence(-30.0, 40.0, [2.0, 14.0]).tolist()
    [[5.89...e-14, 2.77...e-13]]
    """
    return _rows(_Gaussian, log_q, _validate.positive("sigma", sigma), orders)


def pure_divergence(log_q: ArrayLike, epsilon: float, orders: ArrayLike) -> Array:
    """Theorem 3 of Papernot et al. 2017 for an ε-private choice of the winner, one row per ``log_q``.

    The least of αε²/2, ε and, where q ≤ 1/(1 + e^ε), ln[(1−q)((1−q)/(1−e^ε q))^{α−1} + q e^{ε(α−1)}]/(α−1).
    """
    return _rows(_Pure, log_q, _validate.epsilon(epsilon), orders)


def total_gaussian(log_q: Array, weights: Array, sigma: float, orders: Array) -> Array:
    """Σ weight × :func:`gaussian_divergence`, at each order; equal queries are computed once."""
    return _total(_Gaussian, log_q, weights, sigma, orders)


def total_pure(log_q: Array, weights: Array, epsilon: float, orders: Array) -> Array:
    """Σ weight × :func:`pure_divergence`, at each order."""
    return _total(_Pure, log_q, weights, epsilon, orders)


class _Gaussian:
    """What of theorem 6 does not depend on the order, for an array of ln q."""

    def __init__(self, log_q: Array, sigma: float) -> None:
        self.variance = sigma * sigma
        self.log_q = np.minimum(log_q, -1e-300)
        second = sigma * np.sqrt(-self.log_q)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            eps_first, eps_second = (second + 1) / self.variance, second / self.variance
            room = (second - 1) * eps_second - second * (np.log1p(1 / second) + np.log1p(1 / (second - 1)))
            valid = (second > 1) & (-self.log_q > eps_second) & (self.log_q <= room)
            self.rest = _log1mexp(self.log_q)
            a = self.rest - _log1mexp(np.minimum((self.log_q + eps_second) * (1 - 1 / second), -1e-300))
            b = eps_first - self.log_q / second
        self.first = np.where(valid, second + 1, -np.inf)
        self.a, self.b = np.where(valid, a, 0.0), np.where(valid, b, 0.0)

    def at(self, order: float) -> Array:
        """The divergence at one order."""
        k = order - 1
        with np.errstate(under="ignore"):
            log_s = np.logaddexp(self.rest + k * self.a, self.log_q + k * self.b)
        bound = order / self.variance
        return np.where(order < self.first, np.minimum(np.maximum(log_s, 0.0) / k * _UPWARDS, bound), bound)


class _Pure:
    """What of theorem 3 does not depend on the order, for an array of ln q."""

    def __init__(self, log_q: Array, epsilon: float) -> None:
        self.epsilon = epsilon
        self.log_q = np.minimum(log_q, -1e-300)
        self.valid = self.log_q <= -np.logaddexp(0.0, epsilon)
        self.rest = _log1mexp(self.log_q)
        self.a = np.where(self.valid, self.rest - _log1mexp(np.minimum(self.log_q + epsilon, -1e-300)), 0.0)

    def at(self, order: float) -> Array:
        """The divergence at one order."""
        k = order - 1
        with np.errstate(under="ignore"):
            log_t = np.logaddexp(self.rest + k * self.a, self.log_q + k * self.epsilon)
        bound = min(self.epsilon * self.epsilon * order / 2, self.epsilon)
        return np.where(self.valid, np.minimum(np.maximum(log_t, 0.0) / k * _UPWARDS, bound), bound)


_Bound = type[_Gaussian] | type[_Pure]


def _rows(bound: _Bound, log_q: ArrayLike, parameter: float, orders: ArrayLike) -> Array:
    at = checked_orders(orders)
    logs = np.atleast_1d(np.asarray(log_q, dtype=float))
    if logs.ndim != 1 or not (logs <= 0).all():
        raise InvalidValue("log_q", type(log_q), "logarithms of probabilities, 0 or less")
    prepared = bound(logs, parameter)
    return np.stack([prepared.at(float(order)) for order in at], axis=1)


def _total(bound: _Bound, log_q: Array, weights: Array, parameter: float, orders: Array) -> Array:
    distinct, place = np.unique(log_q, return_inverse=True)
    weight = np.bincount(place, weights, minlength=distinct.size)
    prepared = bound(distinct, parameter)
    return np.array([float(weight @ prepared.at(float(order))) for order in orders])


def _log1mexp(x: Array) -> Array:
    """ln(1 − e^x) for x < 0."""
    with np.errstate(under="ignore", divide="ignore"):
        return np.where(x < -0.6931, np.log1p(-np.exp(x)), np.log(-np.expm1(x)))
