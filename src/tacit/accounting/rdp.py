"""Rényi differential privacy (Mironov 2017), alias the moments accountant.

A curve is the Rényi divergence at each order α > 1, with a probability of outright failure beside
it: (ε, δ) events count as ε-private with failure δ. Curves add under composition, also when each
step is chosen adaptively, so one curve times a count is a repetition.

A billion steps may each have a divergence below 1e-16, so every moment E e^{(α−1)L} is computed as
its excess over 1, in which nothing cancels, and never as a logarithm of nearly 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from tacit import _objective, events
from tacit.accounting import shuffling
from tacit.accounting.terms import Amplified, Reversed, Selected, Term, Terms, Worst
from tacit.errors import UnsupportedEvent

Array = NDArray[np.float64]

ORDERS: Array = np.unique(
    np.concatenate(
        [
            1 + np.geomspace(0.01, 1, 24),
            np.arange(2.25, 12, 0.25),
            np.arange(12, 65),
            np.round(np.geomspace(65, 1024, 60)),
            np.geomspace(1100, 1e7, 80),
        ]
    )
)
SAMPLED_ORDERS_LIMIT = 1024
"""Sampled curves are computed up to this order; beyond it they are taken as infinite."""
MAX_POINTS = 1 << 18
"""Orders that need more points of a quadrature than this are taken as infinite."""
LARGE = 300.0
"""Above this ε no divergence of a pure mechanism is told from ε itself, which bounds them all."""


@dataclass(frozen=True)
class Curve:
    """Divergences at ``orders`` and the probability ``failure`` that they do not hold."""

    orders: Array
    divergences: Array
    failure: float = 0.0

    def epsilon(self, delta: float) -> float:
        """The smallest ε any order certifies."""
        return float(np.min(self.epsilons(delta)))

    def epsilons(self, delta: float) -> Array:
        """The ε each order certifies (Canonne, Kamath and Steinke 2020, proposition 12)."""
        left = delta - self.failure
        if left <= 0:
            nothing = self.failure == 0 and not np.any(self.divergences)
            return np.full(len(self.orders), 0.0 if nothing else math.inf)
        a, d = self.orders, self.divergences
        with np.errstate(invalid="ignore"):
            values = d + np.log1p(-1 / a) - (math.log(left) + np.log(a)) / (a - 1)
            values = np.where(-np.expm1(-d) <= left**2, 0.0, values)
        return np.maximum(0.0, np.where(np.isnan(values), np.inf, values))

    def delta(self, epsilon: float) -> float:
        """The smallest δ any order certifies at ``epsilon``."""
        a, d = self.orders, self.divergences
        with np.errstate(over="ignore", invalid="ignore"):
            logs = (a - 1) * (d - epsilon + np.log1p(-1 / a)) - np.log(a)
            total_variation = 0.5 * np.log(-np.expm1(-d) + 1e-300)
        logs = np.where(np.isnan(logs), np.inf, logs)
        best = min(float(np.min(logs)), float(np.min(total_variation)), 0.0)
        return min(1.0, math.exp(best) + self.failure)


def curve(terms: Terms, orders: Array | None = None) -> Curve:
    """The Rényi curve of the composition of ``terms``."""
    at = _orders_for(terms) if orders is None else np.asarray(orders, dtype=float)
    total, log_success = np.zeros_like(at), 0.0
    for term, count in terms:
        divergences, failure = _one(term, tuple(at))
        total = total + count * divergences
        log_success += count * math.log1p(-failure)
    return Curve(at, total, -math.expm1(log_success))


def _orders_for(terms: Terms) -> Array:
    """The default orders and those at which a given curve is known."""
    own = [order for term, _ in terms if isinstance(term, events.Renyi) for order in term.orders]
    return np.unique(np.concatenate([ORDERS, own])) if own else ORDERS


@lru_cache(maxsize=512)
def _one(term: Term, orders: tuple[float, ...]) -> tuple[Array, float]:
    """The curve of one application of one term, at ``orders``, and its failure probability."""
    a = np.asarray(orders)
    match term:
        case Amplified():
            return _amplified(term, a)
        case Reversed(term=original):
            return _one(original, orders)
        case Worst(options=options):
            curves = [curve(option, a) for option in options]
            return np.maximum.reduce([c.divergences for c in curves]), max(c.failure for c in curves)
        case Selected():
            return _selected(term, a)
        case events.Gaussian(noise_multiplier=z):
            return a / (2 * z * z), 0.0
        case events.Laplace(scale=b):
            return _laplace(a, b), 0.0
        case events.Pure(epsilon=epsilon):
            return _response(a, epsilon, 2), 0.0
        case events.RandomizedResponse(epsilon=epsilon, categories=k):
            return _response(a, epsilon, k), 0.0
        case events.Approximate(epsilon=epsilon, delta=delta):
            return (_response(a, epsilon, 2) if epsilon > 0 else np.zeros_like(a)), delta
        case events.BoundedRange(epsilon=epsilon):
            return _bounded_range(a, epsilon), 0.0
        case events.Shuffled():
            return shuffling.divergence(term, a), 0.0
        case events.ZeroConcentrated(rho=rho):
            return rho * a, 0.0
        case events.ObjectivePerturbation(noise_multiplier=z, log_determinant=c, directions=k):
            return _objective.divergence(z, c, k, a), 0.0
        case events.Renyi(orders=known, divergences=values):
            return _interpolated(a, np.asarray(known), np.asarray(values)), 0.0
    raise UnsupportedEvent(f"No Rényi curve is known for {term!r}.", event=term, method="rdp")


def _divergence(a: Array, excess: Array, log_moment: Array) -> Array:
    """ln(1 + excess)/(α−1), or from ``log_moment`` where the excess is not small."""
    small = np.maximum(excess, 0.0) * (1 + 1e-9)
    logs = np.where(excess < 0.5, np.log1p(np.minimum(small, 1.0)), np.maximum(log_moment, 0.0))
    return np.asarray(logs / (a - 1))


def _laplace(a: Array, scale: float) -> Array:
    """Mironov 2017: the moment is (α·e^{(α−1)/b} + (α−1)·e^{−α/b})/(2α−1), at most 1 + α(α−1)/(2b²)
    to third order in 1/b."""
    up, down, total = (a - 1) / scale, a / scale, 2 * a - 1
    excess = (a * np.expm1(np.minimum(up, 1.0)) + (a - 1) * np.expm1(-down)) / total
    excess = np.where(down < 1e-3, up * down / 2 * (1 + down * down), np.where(up < 1, excess, np.inf))
    log_moment = np.logaddexp(np.log(a / total) + up, np.log((a - 1) / total) - down)
    return np.asarray(np.minimum(_divergence(a, excess, log_moment), 1 / scale))


def _response(a: Array, epsilon: float, categories: int) -> Array:
    """Randomized response; with two categories, the worst ε-private mechanism at every order."""
    if epsilon > LARGE:
        return np.full_like(a, epsilon)
    other = math.exp(-epsilon) / (1 + (categories - 1) * math.exp(-epsilon))
    up = (a - 1) * epsilon
    drift = -math.expm1(-epsilon) * np.expm1(np.minimum(up, 1.0)) * math.exp(epsilon)
    curvature = np.expm1(np.minimum(up, 1.0)) * -np.expm1(-up)
    excess = np.where(up < 1, other * (drift + curvature), np.inf)
    log_total = epsilon + math.log1p((categories - 1) * math.exp(-epsilon))
    log_moment = np.logaddexp(up + epsilon - log_total, -up - log_total)
    if categories > 2:
        log_moment = np.logaddexp(log_moment, math.log(categories - 2) - log_total)
    return np.asarray(np.minimum(_divergence(a, excess, log_moment), epsilon))


def _bounded_range(a: Array, epsilon: float) -> Array:
    """The worst two-point distribution whose losses are t and t − ε (Dong, Durfee, Rogers 2020).

    With P(loss = t) = p(t) = (1 − e^{t−ε})/(1 − e^{−ε}) and k = α − 1 the moment is
    e^{tk}·(C − D·e^t), which is largest at e^t = kC/((k+1)D). It is never above e^{kαε²/8}, which
    takes over where ε is so small that the formula loses its digits.
    """
    if epsilon > LARGE:
        return np.full_like(a, epsilon)
    k = a - 1
    with np.errstate(under="ignore"):
        rest = np.exp(-epsilon * k)
    d = -np.expm1(-epsilon * k) * math.exp(-epsilon) / -math.expm1(-epsilon)
    c = rest + -np.expm1(-epsilon * k) / -math.expm1(-epsilon)
    t = np.clip(np.log(k * c / ((k + 1) * d)), 0.0, epsilon)
    p = np.expm1(t - epsilon) / math.expm1(-epsilon)
    exact = t + np.log(rest + p * (1 - rest)) / k + 1e-15 / np.minimum(k, 1.0)
    bound = np.minimum(a * epsilon * epsilon / 8, epsilon)
    return np.asarray(np.minimum(np.maximum(exact, 0.0), bound))


def _interpolated(a: Array, known: Array, values: Array) -> Array:
    """Chords of (α−1)·D(α), which is convex and zero at α = 1; infinite beyond the last order."""
    nodes = np.concatenate([[1.0], known])
    heights = np.concatenate([[0.0], (known - 1) * values])
    inside = np.interp(a, nodes, heights) / (a - 1)
    return np.where(a <= known[-1], inside, np.inf)


def _amplified(term: Amplified, a: Array) -> tuple[Array, float]:
    inner = curve(term.inner, a)
    if inner.failure > 0:
        return inner.divergences, inner.failure
    bound = inner.divergences
    if math.isfinite(loss := largest_loss(term.inner)):
        amplified = math.log1p(term.rate * math.expm1(loss)) if loss < 700 else loss
        bound = np.minimum(bound, _response(a, amplified, 2))
    small = a <= SAMPLED_ORDERS_LIMIT
    sampled = np.full_like(a, np.inf)
    match (term.inner, term.near):
        case (((events.Gaussian(noise_multiplier=z), 1),), None):
            sampled[small] = [_sampled_gaussian(term.rate, z, order) for order in a[small]]
        case (((events.Gaussian(noise_multiplier=z), 1),), _) if term.near_is_half:
            sampled[small] = [_opposite_gaussians(term.rate, z, order) for order in a[small]]
        case _:
            sampled[small] = _generic_sampled(term, a[small])
    return np.minimum(bound, sampled), 0.0


def _selected(term: Selected, a: Array) -> tuple[Array, float]:
    """The best of a random number of runs, see :mod:`tacit._stopping`.

    The bound falls and then grows with the order; divergences only grow, so at each order the least bound of
    that order and all larger ones holds.
    """
    at = np.unique(np.concatenate([_orders_for(term.inner), a]))
    inner, loss, whole = curve(term.inner, at), largest_loss(term.inner), largest_loss(((term, 1),))
    found = term.stopping.divergences(at, inner.divergences, loss)
    if math.isfinite(whole):
        found = np.minimum(found, _response(at, whole, 2))
    least = np.minimum.accumulate(found[::-1])[::-1]
    return least[np.searchsorted(at, a)], term.stopping.failure(inner.failure)


def largest_loss(terms: Terms) -> float:
    """The ε of pure differential privacy, infinite where there is none."""
    total = 0.0
    for term, count in terms:
        match term:
            case events.Laplace(scale=b):
                loss = 1 / b
            case events.Pure() | events.BoundedRange() | events.RandomizedResponse():
                loss = term.epsilon
            case events.Shuffled(event=local):
                loss = local.epsilon
            case events.Approximate(epsilon=e, delta=0.0):
                loss = e
            case Worst(options=options):
                loss = max(largest_loss(option) for option in options)
            case Selected(inner=inner, stopping=stopping):
                inside = largest_loss(inner)
                loss = stopping.largest_loss(inside) if inside < math.inf else inside
            case Amplified(rate=q, inner=inner):
                inside = largest_loss(inner)
                loss = math.log1p(q * math.expm1(inside)) if inside < 700 else inside
            case _:
                return math.inf
        total += count * loss
    return total


def _sampled_gaussian(q: float, z: float, order: float) -> float:
    """Mironov, Talwar and Zhang 2019: ln E[((1−q) + q·e^{(2x−1)/(2z²)})^α] / (α−1), x ~ N(0, z²).

    At whole orders a binomial sum, of which the terms of 1 are taken out one by one.
    """
    if order == int(order):
        k = np.arange(2.0, order + 1)
        growth = k * (k - 1) / (2 * z * z)
        return _from_excess(_log_binomial(order, k, q) + _log_expm1(growth), order)
    points = _line(z, -1.0, order + 1.0)
    if points is None:
        return math.inf
    x, log_weight = points
    return _from_excess(log_weight + _log_gap(q, (2 * x - 1) / (2 * z * z), None, order), order)


def _opposite_gaussians(q: float, z: float, order: float) -> float:
    """The Rényi divergence of the worst pair under ``replace_one``, see profiles.opposite_gaussians."""
    points = _line(z, -order, order)
    if points is None:
        return math.inf
    x, log_weight = points
    up, down = (x - 0.25) / (2 * z * z), (-x - 0.25) / (2 * z * z)
    return _from_excess(log_weight + _log_gap(q, up, down, order), order)


def _log_gap(q: float, up: Array, down: Array | None, order: float) -> Array:
    """ln of v·[(u/v)^α − 1 − α(u/v − 1)], u = 1 + q(e^up − 1), v = 1 + q(e^down − 1) or 1.

    Its integral is the moment's excess over 1, because E u = E v = 1; by convexity it is nowhere
    negative. For u close to v it is α(α−1)/2·y² with y = u/v − 1, but for a factor below 1 + α|y|.
    """
    log_q, log_rest = math.log(q), math.log1p(-q)
    log_u = np.logaddexp(log_rest, log_q + up)
    log_v = np.zeros_like(up) if down is None else np.logaddexp(log_rest, log_q + down)
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        if down is None:
            y = q * np.expm1(np.minimum(up, 700.0))
        else:
            difference = np.exp(np.minimum(down, 700.0)) * np.expm1(np.minimum(up - down, 700.0))
            y = q * difference / np.exp(log_v)
        growth = order * (log_u - log_v)
        near = math.log(order * (order - 1) / 2) + 2 * np.log(np.abs(y)) + np.log1p(order * np.abs(y))
        far = np.expm1(np.minimum(growth, 30.0)) - order * y
        middle = np.log(np.maximum(far, 0.0) + 1e-15 * (1 + np.abs(order * y)))
        large = growth + np.log1p(-np.minimum((1 + order * y) * np.exp(-growth), 1.0) + 1e-15)
    gap = np.where(np.abs(y) * order < 1e-4, near, np.where(growth < 1, middle, large))
    return np.asarray(log_v + np.where(growth > 600, growth, gap))


def _from_excess(logs: Array, order: float) -> float:
    """ln(1 + Σe^logs)/(α−1), from above."""
    return float(np.logaddexp(0.0, log_excess) if (log_excess := _log_sum(logs)) > -30 else
                 math.exp(log_excess)) * (1 + 1e-9) / (order - 1)  # fmt: skip


def _line(z: float, low: float, high: float) -> tuple[Array, Array] | None:
    """Points and N(0, z²) log-weights of the trapezoidal rule, which converges exponentially here.

    The integrands are analytic in the strip |Im x| < πz², so a step of z²/4 leaves an error below
    e^{−8π²}; z/8 does the same for the Gaussian factor. None where that takes too many points.
    """
    step = min(z / 8, z * z / 4)
    if (high - low + 24 * z) / step > MAX_POINTS:
        return None
    x = np.arange(low - 12 * z, high + 12 * z, step)
    return x, -np.square(x / z) / 2 + math.log(step / (z * math.sqrt(2 * math.pi)))


def _log_binomial(order: float, k: Array, q: float) -> Array:
    """ln C(α, k)·(1−q)^{α−k}·q^k."""
    choose = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    return np.asarray(choose + (order - k) * math.log1p(-q) + k * math.log(q))


def _generic_sampled(term: Amplified, a: Array) -> Array:
    """Bounds from the inner curve alone, at whole orders and by chords between them.

    One-sided: Zhu and Wang 2019, theorem 6, whose first two terms complete the binomial sum of 1.
    Two-sided: Wang, Balle and Kasiviswanathan 2019, theorem 9, whose proof needs only that P₁, P₁′
    and P₀ are within the inner curve of each other.
    """
    q = term.rate
    whole = np.arange(2.0, math.ceil(a.max()) + 1)
    growth = (whole - 1) * curve(term.inner, whole).divergences
    nodes = np.unique(np.concatenate([[1.0], np.maximum(np.floor(a), 2), np.ceil(a)]))
    heights = np.zeros_like(nodes)
    for i, order in enumerate(nodes[1:], start=1):
        j, grown = whole[: int(order) - 1], growth[: int(order) - 1]
        if term.near is None:
            logs = _log_binomial(order, j, q) + np.logaddexp(_log_expm1(grown), math.log(2) + grown)
            logs[0] = _log_binomial(order, j[:1], q)[0] + _log_expm1(grown[:1])[0]
        else:
            log_choose = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
            logs = math.log(2) + log_choose + j * math.log(q) + grown
            second = min(math.log(2) + grown[0], math.log(4) + _log_expm1(grown[:1])[0])
            logs[0] = log_choose[0] + 2 * math.log(q) + second
        heights[i] = _from_excess(logs, order) * (order - 1)
    return np.asarray(np.interp(a, nodes, heights) / (a - 1))


def _log_sum(logs: Array) -> float:
    peak = float(logs.max())
    return peak if math.isinf(peak) else peak + math.log(float(np.exp(logs - peak).sum()))


def _log_expm1(x: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(x + np.log(-np.expm1(-x)))
