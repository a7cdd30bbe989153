"""Privacy profiles δ(ε) of single terms: exact, vectorised, both directions.

A profile is a pair of functions on ε ≥ 0: ``forward(ε)`` is the hockey-stick divergence of the
dataset with the unit against the one without, ``backward(ε)`` the reverse. Together they are the
whole profile, since δ(−ε) = 1 − e^−ε + e^−ε·δ_reverse(ε). By Blackwell's theorem a profile that is
nowhere below the true one belongs to a pair of distributions that dominates, also under adaptive
composition (Zhu, Dong and Wang 2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx

from tacit import _gaussian, _objective, events
from tacit.accounting import shuffling
from tacit.accounting.terms import Amplified, Reversed, Selected, Term, Terms, Worst
from tacit.errors import UnsupportedEvent

Array = NDArray[np.float64]
Curve = Callable[[Array], Array]


@dataclass(frozen=True)
class Profile:
    """δ(ε) for ε ≥ 0 in both directions, and the largest loss (infinite if unbounded)."""

    forward: Curve
    backward: Curve
    largest_loss: float

    @property
    def symmetric(self) -> bool:
        return self.forward is self.backward


def of_term(term: Term, of_terms: Callable[[Terms], Profile]) -> Profile:
    """The profile of one term. ``of_terms`` supplies the profile of a whole multiset."""
    if isinstance(term, Amplified):
        return _amplified(term, of_terms)
    if isinstance(term, Reversed):
        profile = of_term(term.term, of_terms)
        return Profile(profile.backward, profile.forward, profile.largest_loss)
    if isinstance(term, Worst):
        return _envelope([of_terms(option) for option in term.options])
    if isinstance(term, Selected):
        raise UnsupportedEvent(
            "The best of several runs is known by its Rényi curve, so it has no loss distribution.",
            "Use method='rdp' or 'tightest'.",
            method="pld",
        )
    return _leaf(term)


def _leaf(event: events.Event) -> Profile:
    match event:
        case events.Gaussian(noise_multiplier=z):
            return _both(lambda eps: _gaussian.profile(z, eps), math.inf)
        case events.ObjectivePerturbation(noise_multiplier=z, log_determinant=c, directions=k):
            return _both(lambda eps: _objective.profile(z, c, k, eps), math.inf)
        case events.Laplace(scale=scale):
            loss = 1 / scale
            return _both(lambda eps: -np.expm1(np.minimum(eps - loss, 0.0) / 2), loss)
        case events.Pure(epsilon=loss):
            return _both(lambda eps: _response(eps, loss, 2), loss)
        case events.RandomizedResponse(epsilon=loss, categories=categories):
            return _both(lambda eps: _response(eps, loss, categories), loss)
        case events.Approximate(epsilon=loss, delta=failure):
            if loss == 0:
                return _both(lambda eps: np.full_like(eps, failure), math.inf)
            unbounded = math.inf if failure > 0 else loss
            return _both(lambda eps: failure + (1 - failure) * _response(eps, loss, 2), unbounded)
        case events.Shuffled():
            return _both(lambda eps: shuffling.profile(event, eps), event.event.epsilon)
        case events.BoundedRange(epsilon=loss):
            return _both(
                lambda eps: np.square(np.expm1(np.minimum(eps - loss, 0.0) / 2)) / -math.expm1(-loss), loss
            )
    raise UnsupportedEvent(
        f"{type(event).__name__} is known only by its Rényi curve, so it has no loss distribution.",
        "Use method='rdp' or 'tightest'.",
        event=event,
        method="pld",
    )


def _response(eps: Array, loss: float, categories: int) -> Array:
    """Randomized response: p − e^ε·r with p : r = e^loss : 1 and total p + (categories−1)·r = 1."""
    return -np.expm1(np.minimum(eps - loss, 0.0)) / (1 + (categories - 1) * math.exp(-loss))


def _amplified(term: Amplified, of_terms: Callable[[Terms], Profile]) -> Profile:
    """Privacy amplification by sampling, exact in the hockey-stick divergence.

    With e^ε = 1 + (e^ε′ − 1)/q (Balle, Barthe and Gaboardi 2018, advanced joint convexity):

    * one-sided, with the unit against without: q·δ(ε);
    * one-sided, without against with: c·δ′(ln(q·e^ε′/c)), c = 1 − e^ε′(1−q);
    * two-sided: q·H(P₁ ‖ (1−β)P₀ + βP₁′) ≤ q·[(1−β)·δ_near(ε) + β·δ(ε)], β = e^(ε′−ε).
    """
    q = term.rate
    inner = of_terms(term.inner)
    loss = math.inf
    if inner.largest_loss < 700:
        loss = math.log1p(q * math.expm1(inner.largest_loss)) * (1 + 1e-15)

    def unsampled(eps: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.where(eps < 600, np.log1p(np.expm1(np.minimum(eps, 600)) / q), eps - math.log(q))

    if term.near is None:

        def forward(eps: Array) -> Array:
            return np.where(eps < loss, q * inner.forward(unsampled(eps)), 0.0)

        def backward(eps: Array) -> Array:
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                share = 1 - np.expm1(np.minimum(eps, 600)) * ((1 - q) / q)
                at = np.where(share > 0, eps - np.log(np.maximum(share, 1e-300)), 0.0)
                return np.where(share > 0, q * share * inner.backward(at), 0.0)

        return Profile(forward, backward, loss)

    match term.inner:
        case ((events.Gaussian(noise_multiplier=z), 1),) if term.near_is_half and z > 0.05:
            return _both(lambda eps: opposite_gaussians(q, z, eps), math.inf)
    near = of_terms(term.near)

    def two_sided(eps: Array) -> Array:
        inside = unsampled(eps)
        beta = np.exp(eps - inside)
        far_delta = np.maximum(inner.forward(inside), inner.backward(inside))
        near_delta = np.maximum(near.forward(inside), near.backward(inside))
        return np.where(eps < loss, q * ((1 - beta) * near_delta + beta * far_delta), 0.0)

    return _both(two_sided, loss)


def opposite_gaussians(q: float, z: float, epsilon: Array) -> Array:
    """δ(ε) of (1−q)N(0, z²) + qN(½, z²) against (1−q)N(0, z²) + qN(−½, z²).

    This is the worst case of a Poisson-sampled Gaussian sum under ``replace_one``. For units at x
    and x′ within distance ½ of 0 the divergence is E (u − e^ε·v)₊ under N(0, z²I), with u growing in
    ⟨x, Y⟩ alone and v in ⟨x′, Y⟩ alone. By Price's theorem its derivative in the correlation of
    the two is −E[u′v′·1(u = e^ε·v)] ≤ 0, so the worst x′ points away from x; and on that line it
    grows with |x| and |x′|.

    The densities cross where w = e^{y/(2z²)} solves A·w² − (1−q)(e^ε−1)·w − e^ε·A = 0 with
    A = q·e^{−1/(8z²)}; writing δ with that identity leaves only sums of positive terms. Beyond
    ε = 300 the value at 300 bounds it. For z below 0.05 the numbers no longer fit into float64.
    """
    eps = np.minimum(epsilon, 300.0)
    growth = np.exp(eps)
    near = (1 - q) * np.expm1(eps)
    a = q * math.exp(-1 / (8 * z * z))
    w = (near + np.sqrt(np.square(near) + 4 * a * a * growth)) / (2 * a)
    y = 2 * z * z * np.log(w)
    scale = z * _gaussian.ROOT2
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        low, middle, high = erfcx((y - 0.5) / scale), erfcx(y / scale), erfcx((y + 0.5) / scale)
        body = a * w * (low - middle) + growth * a / w * (middle - high)
        return np.asarray(0.5 * np.exp(-np.square(y / scale)) * body)


def _envelope(profiles: list[Profile]) -> Profile:
    """The pointwise largest profile, which dominates each of them."""
    loss = max(profile.largest_loss for profile in profiles)

    def forward(eps: Array) -> Array:
        return np.asarray(np.maximum.reduce([profile.forward(eps) for profile in profiles]))

    if all(profile.symmetric for profile in profiles):
        return _both(forward, loss)
    return Profile(forward, lambda eps: np.maximum.reduce([p.backward(eps) for p in profiles]), loss)


def _both(curve: Curve, largest_loss: float) -> Profile:
    return Profile(curve, curve, largest_loss)
