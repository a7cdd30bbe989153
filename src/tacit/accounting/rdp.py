"""Rényi differential privacy (Mironov 2017), alias the moments accountant.

A curve is the Rényi divergence at each order α > 1, with a probability of outright failure beside
it: (ε, δ) events count as ε-private with failure δ. Curves add under composition, also when each
step is chosen adaptively, so one curve times a count is a repetition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from tacit import events
from tacit.accounting.terms import Amplified, Term, Terms, Worst
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


@dataclass(frozen=True)
class Curve:
    """Divergences at ``orders`` and the probability ``failure`` that they do not hold."""

    orders: Array
    divergences: Array
    failure: float = 0.0

    def epsilon(self, delta: float) -> float:
        """The smallest ε any order certifies (Canonne, Kamath and Steinke 2020, proposition 12)."""
        left = delta - self.failure
        if left <= 0:
            return 0.0 if self.failure == 0 and not np.any(self.divergences) else math.inf
        a, d = self.orders, self.divergences
        with np.errstate(invalid="ignore"):
            values = d + np.log1p(-1 / a) - (math.log(left) + np.log(a)) / (a - 1)
            values = np.where(-np.expm1(-d) <= left**2, 0.0, values)
        return float(max(0.0, np.nanmin(values)))

    def delta(self, epsilon: float) -> float:
        """The smallest δ any order certifies at ``epsilon``."""
        a, d = self.orders, self.divergences
        with np.errstate(over="ignore", invalid="ignore"):
            logs = (a - 1) * (d - epsilon + np.log1p(-1 / a)) - np.log(a)
            total_variation = 0.5 * np.log(-np.expm1(-d) + 1e-300)
        best = min(float(np.nanmin(logs)), float(np.nanmin(total_variation)), 0.0)
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
        case Worst(options=options):
            curves = [curve(option, a) for option in options]
            return np.maximum.reduce([c.divergences for c in curves]), max(c.failure for c in curves)
        case events.Gaussian(noise_multiplier=z):
            return a / (2 * z * z), 0.0
        case events.Laplace(scale=b):
            logs = np.stack([np.log(a / (2 * a - 1)) + (a - 1) / b, np.log((a - 1) / (2 * a - 1)) - a / b])
            return logsumexp(logs, axis=0) / (a - 1), 0.0
        case events.Pure(epsilon=epsilon):
            return _response(a, epsilon, 2), 0.0
        case events.RandomizedResponse(epsilon=epsilon, categories=k):
            return _response(a, epsilon, k), 0.0
        case events.Approximate(epsilon=epsilon, delta=delta):
            return (_response(a, epsilon, 2) if epsilon > 0 else np.zeros_like(a)), delta
        case events.BoundedRange(epsilon=epsilon):
            return _bounded_range(a, epsilon), 0.0
        case events.ZeroConcentrated(rho=rho):
            return rho * a, 0.0
        case events.Renyi(orders=known, divergences=values):
            return _interpolated(a, np.asarray(known), np.asarray(values)), 0.0
    raise UnsupportedEvent(f"No Rényi curve is known for {term!r}.", event=term, method="rdp")


def _response(a: Array, epsilon: float, categories: int) -> Array:
    """Randomized response; with two categories, the worst ε-private mechanism at every order."""
    log_total = epsilon + math.log1p((categories - 1) * math.exp(-epsilon))
    keep, other = epsilon - log_total, -log_total
    logs = [a * keep + (1 - a) * other, a * other + (1 - a) * keep]
    if categories > 2:
        logs.append(np.full_like(a, math.log(categories - 2) + other))
    return np.asarray(np.minimum(logsumexp(np.stack(logs), axis=0) / (a - 1), epsilon))


def _bounded_range(a: Array, epsilon: float) -> Array:
    """The worst two-point distribution whose losses are t and t − ε (Dong, Durfee, Rogers 2020).

    With P(loss = t) = p(t) = (1 − e^{t−ε})/(1 − e^{−ε}) and k = α − 1 the moment is
    e^{tk}·(C − D·e^t), which is largest at e^t = kC/((k+1)D).
    """
    k = a - 1
    with np.errstate(under="ignore"):
        rest = np.exp(-epsilon * k)
    d = -np.expm1(-epsilon * k) * math.exp(-epsilon) / -math.expm1(-epsilon)
    c = rest + -np.expm1(-epsilon * k) / -math.expm1(-epsilon)
    t = np.clip(np.log(k * c / ((k + 1) * d)), 0.0, epsilon)
    p = np.expm1(t - epsilon) / math.expm1(-epsilon)
    return np.asarray(np.minimum(t + np.log(rest + p * (1 - rest)) / k, epsilon))


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


def largest_loss(terms: Terms) -> float:
    """The ε of pure differential privacy, infinite where there is none."""
    total = 0.0
    for term, count in terms:
        match term:
            case events.Laplace(scale=b):
                loss = 1 / b
            case events.Pure() | events.BoundedRange() | events.RandomizedResponse():
                loss = term.epsilon
            case events.Approximate(epsilon=e, delta=0.0):
                loss = e
            case Worst(options=options):
                loss = max(largest_loss(option) for option in options)
            case Amplified(rate=q, inner=inner):
                inside = largest_loss(inner)
                loss = math.log1p(q * math.expm1(inside)) if inside < 700 else inside
            case _:
                return math.inf
        total += count * loss
    return total


def _sampled_gaussian(q: float, z: float, order: float) -> float:
    """Mironov, Talwar and Zhang 2019: ln E[((1−q) + q·e^{(2x−1)/(2z²)})^α] / (α−1), x ~ N(0, z²)."""
    if order == int(order):
        k = np.arange(int(order) + 1)
        logs = (
            gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
            + k * math.log(q) + (order - k) * math.log1p(-q)
            + k * (k - 1) / (2 * z * z)
        )  # fmt: skip
        return max(0.0, _log_sum(logs) / (order - 1))
    x, log_weight = _line(z, -1.0, order + 1.0)
    shifted = np.logaddexp(math.log1p(-q), math.log(q) + (2 * x - 1) / (2 * z * z))
    return max(0.0, _log_sum(log_weight + order * shifted) / (order - 1))


def _opposite_gaussians(q: float, z: float, order: float) -> float:
    """The Rényi divergence of the worst pair under ``replace_one``, see profiles.opposite_gaussians."""
    x, log_weight = _line(z, -order, order)
    up = np.logaddexp(math.log1p(-q), math.log(q) + (x - 0.25) / (2 * z * z))
    down = np.logaddexp(math.log1p(-q), math.log(q) + (-x - 0.25) / (2 * z * z))
    return max(0.0, _log_sum(log_weight + order * up + (1 - order) * down) / (order - 1))


def _line(z: float, low: float, high: float) -> tuple[Array, Array]:
    """Points and N(0, z²) log-weights of the trapezoidal rule, which converges exponentially here.

    The integrands are analytic in the strip |Im x| < πz², so a step of z²/4 leaves an error below
    e^{−8π²}; z/8 does the same for the Gaussian factor.
    """
    step = min(z / 8, z * z / 4)
    x = np.arange(low - 12 * z, high + 12 * z, step)
    return x, -np.square(x / z) / 2 + math.log(step / (z * math.sqrt(2 * math.pi)))


def _generic_sampled(term: Amplified, a: Array) -> Array:
    """Bounds from the inner curve alone, at whole orders and by chords between them.

    One-sided: Zhu and Wang 2019, theorem 6. Two-sided: Wang, Balle and Kasiviswanathan 2019,
    theorem 9, whose proof needs only that P₁, P₁′ and P₀ are within the inner curve of each other.
    """
    q = term.rate
    whole = np.arange(2.0, math.ceil(a.max()) + 1)
    growth = (whole - 1) * curve(term.inner, whole).divergences
    nodes = np.unique(np.concatenate([[1.0], np.maximum(np.floor(a), 2), np.ceil(a)]))
    heights = np.zeros_like(nodes)
    for i, order in enumerate(nodes[1:], start=1):
        j, terms = whole[: int(order) - 1], growth[: int(order) - 1]
        log_choose = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
        if term.near is None:
            logs = math.log(3) + log_choose + (order - j) * math.log1p(-q) + j * math.log(q) + terms
            logs[0] -= math.log(3)
            start = (order - 1) * math.log1p(-q) + math.log(order * q - q + 1)
        else:
            logs = math.log(2) + log_choose + j * math.log(q) + terms
            second = min(math.log(2) + terms[0], math.log(4) + _log_expm1(terms[0]))
            logs[0] = log_choose[0] + 2 * math.log(q) + second
            start = 0.0
        heights[i] = np.logaddexp(start, _log_sum(logs))
    return np.asarray(np.interp(a, nodes, heights) / (a - 1))


def _log_sum(logs: Array) -> float:
    peak = float(logs.max())
    return peak if math.isinf(peak) else peak + math.log(float(np.exp(logs - peak).sum()))


def _log_expm1(x: float) -> float:
    return x + math.log(-math.expm1(-x)) if x > 0 else -math.inf
