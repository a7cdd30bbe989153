"""How much one vote changes the data-dependent cost, near these votes and farther away.

The cost of an answer is a function β(q) of the bound q on Pr[answer ≠ winner] (:mod:`tacit.pate.bounds`),
equal to λ/σ² above a point q₀. Between neighbours q moves within [B_L(q), B_U(q)], so β moves by at most
max(β(B_U(q)) − β(q), β(q) − β(B_L(q))). If β does not decrease up to q₀ (condition C5) and β(B_U(q)) − β(q)
does not up to q₁ = B_L(q₀) (C6), the local sensitivity rises up to q₁, is largest from there to q₀ and falls
beyond; so the largest one within d votes is met on a straight walk towards that plateau (Papernot et al.
2018, appendix B.4; algorithms 3 to 5).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri_exp

from tacit.errors import TacitError
from tacit.pate.bounds import Array, gaps_of, gaussian_divergence, log_q_gaussian, log_q_threshold
from tacit.pate.votes import Int64

__all__ = [
    "Conditions",
    "answer_sensitivity",
    "plateau_start",
    "require_conditions",
    "threshold_sensitivity",
]

_POINTS = 2000
"""How many points the conditions are checked at."""
_ROUNDING = 1e-9
"""So close below q₀, relative to ln q₀, B_U(q) counts as q₀: rounding must not hide a jump of the cost."""


@lru_cache(maxsize=256)
def plateau_start(sigma: float, order: float) -> float:
    """ln q₀: from here on the cost of a GNMax answer is the data-independent one."""
    most = min(-((1 + 1 / sigma) ** 2), -(((order - 0.99) / sigma) ** 2), -1 / sigma**2)

    def gain(log_q: float) -> float:
        return float(np.log(_formula(log_q, sigma, order)) - math.log(order / sigma**2))

    if gain(most) < 0:
        return most
    least = 2 * most
    while gain(least) > 0:
        least *= 1.5
        if least < -1e6:
            raise TacitError("The votes never make an answer cheaper than the data-independent cost.")
    return float(brentq(gain, least, most, xtol=1e-14, rtol=1e-14))


def _formula(log_q: float, sigma: float, order: float) -> float:
    """Theorem 6 without its ceiling λ/σ²: what is compared with the ceiling to find q₀."""
    second = sigma * math.sqrt(-log_q)
    rest = math.log1p(-math.exp(log_q))
    a = rest - math.log1p(-math.exp((log_q + second / sigma**2) * (1 - 1 / second)))
    b = (second + 1) / sigma**2 - log_q / second
    return float(np.logaddexp(rest + (order - 1) * a, log_q + (order - 1) * b)) / (order - 1)


class Conditions:
    """C5 and C6 for one deviation, number of classes and order, checked at many points of the range of q.

    >>> Conditions(30.0, 10, 25.0, teachers=250).hold, Conditions(20.0, 10, 25.0, teachers=250).hold
    ((True, True), (True, False))
    """

    def __init__(self, sigma: float, classes: int, order: float, teachers: int) -> None:
        self.sigma, self.classes, self.order = sigma, classes, order
        start = plateau_start(sigma, order)
        least = math.log(classes - 1) + float(log_ndtr(-(teachers + 2) / (sigma * math.sqrt(2))))
        before = float(shifted(np.array([start]), sigma, classes, -1)[0])
        self.hold = self._rises(least, start, up=False), self._rises(least, before, up=True)

    def _rises(self, least: float, most: float, *, up: bool) -> bool:
        if least >= most:
            return True
        points = np.linspace(least, most, _POINTS)
        values = cost(points, self.sigma, self.order)
        if up:
            values = cost(shifted(points, self.sigma, self.classes, 1), self.sigma, self.order) - values
        slack = 1e-10 * np.abs(values[1:]) + 1e-300
        return bool((np.diff(values) >= -slack).all())


@lru_cache(maxsize=256)
def require_conditions(sigma: float, classes: int, order: float, teachers: int) -> None:
    """Refuse, by public facts alone, parameters for which the sensitivity below is not proven."""
    held = Conditions(sigma, classes, order, teachers).hold
    if not all(held):
        failed = " and ".join(name for name, holds in zip(("C5", "C6"), held, strict=True) if not holds)
        raise TacitError(
            f"Condition {failed} of Papernot et al. (2018) does not hold for sigma = {sigma:g}, {classes} "
            f"classes and order {order:g}: the sensitivity of the cost is unknown.",
            "Choose another order, or publish the data-independent cost.",
            conditions=held,
        )


def cost(log_q: Array, sigma: float, order: float) -> Array:
    """β: the cost of one answer."""
    bound = order / sigma**2
    below = gaussian_divergence(np.minimum(log_q, plateau_start(sigma, order)), sigma, [order])[:, 0]
    return np.where(log_q >= plateau_start(sigma, order), bound, below)


def shifted(log_q: Array, sigma: float, classes: int, direction: int) -> Array:
    """ln B_U(q) for direction 1, ln B_L(q) for −1: as far as one vote can move q."""
    share = math.log(classes - 1)
    quantile = ndtri_exp(np.minimum(log_q - share, math.log1p(-1e-15)))
    return np.asarray(np.minimum(share + log_ndtr(quantile + direction * math.sqrt(2) / sigma), 0.0))


def _local(log_q: Array, sigma: float, classes: int, order: float) -> Array:
    """The most by which one vote changes the cost, at each q."""
    start = plateau_start(sigma, order)
    before = float(shifted(np.array([start]), sigma, classes, -1)[0])
    at = np.where((before <= log_q) & (log_q <= start), before, log_q)
    here = cost(at, sigma, order)
    above = shifted(at, sigma, classes, 1)
    above = np.where(above >= start * (1 + _ROUNDING), start, above)  # the cost may jump at start
    up = cost(above, sigma, order) - here
    down = here - cost(shifted(at, sigma, classes, -1), sigma, order)
    return np.maximum(up, down)


def reach(teachers: int) -> int:
    """How many distances, 0, 1, …, are looked at: beyond the last of them nothing is left to be met.

    The heights of :func:`threshold_sensitivity` lie up to teachers + 1 votes apart. With fewer distances the
    lists of two neighbours would end at different places, and their smooth sensitivities would differ by more
    than a factor of e^β.
    """
    return teachers + 2


def answer_sensitivity(votes: Int64, teachers: int, sigma: float, order: float) -> Array:
    """The most by which one vote changes the cost of each answer, within 0, 1, … votes of these."""
    classes = votes.shape[1]
    start = plateau_start(sigma, order)
    before = float(shifted(np.array([start]), sigma, classes, -1)[0])
    walk = np.sort(votes, axis=1)[:, ::-1].copy()
    log_q = log_q_gaussian(gaps_of(walk), sigma)
    inwards = log_q > start
    open_ = inwards | (log_q < before)
    found = np.full((len(votes), reach(teachers)), _local(np.array([before]), sigma, classes, order)[0])
    found[open_, 0] = _local(log_q[open_], sigma, classes, order)
    for distance in range(1, reach(teachers)):
        open_ &= np.where(inwards, (log_q > start) & (walk[:, 1] > 0), log_q < before)
        if not open_.any():
            break
        step = np.where(inwards[open_], 1, -1)
        moving = walk[open_]
        moving[:, 0] += step
        moving[:, 1] -= step
        walk[open_] = np.sort(moving, axis=1)[:, ::-1]
        log_q[open_] = log_q_gaussian(gaps_of(walk[open_]), sigma)
        found[open_, distance] = _local(log_q[open_], sigma, classes, order)
    return np.maximum.accumulate(found, axis=1)


def threshold_sensitivity(
    heights: Int64, teachers: int, threshold: float, sigma: float, order: float, *, beyond: int = 0
) -> Array:
    """For each query, how much one vote changes the cost of its test, at most, within 0, 1, … votes of it.

    The largest count lies in [0, teachers]; ``beyond`` widens that range for a cost that is itself a maximum
    over neighbours. The published list is not monotone in the distance; here it is its running maximum.
    """
    low, high = -beyond, teachers + beyond
    places = np.arange(low, high + 1)
    log_q = log_q_threshold(places, threshold, sigma)
    steps = np.abs(np.diff(gaussian_divergence(log_q, math.sqrt(2) * sigma, [order])[:, 0]))
    local = np.maximum(np.append(steps, 0.0), np.insert(steps, 0, 0.0))
    distance = np.arange(reach(teachers))
    above = np.minimum(heights[:, None] + distance, high) - low
    below = np.maximum(heights[:, None] - distance, low) - low
    return np.maximum.accumulate(np.maximum(local[above], local[below]), axis=1)
