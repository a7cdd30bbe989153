"""The composition theorems that need only (ε, δ), ρ or σ of each step, as formulas.

They bound less tightly than :mod:`tacit.accounting.pld`, and are here to be compared with, to be
read, and to answer where nothing better applies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from tacit import events
from tacit.accounting import pld, rdp
from tacit.accounting.losses import Composed
from tacit.accounting.rdp import largest_loss
from tacit.accounting.terms import Amplified, Reversed, Selected, Term, Terms, Worst, merged
from tacit.errors import UnsupportedEvent

SHARES = (0.5, 0.1, 0.9, 0.01, 0.99)
"""Shares of δ tried for the slack of a composition theorem; the rest is split among the steps."""


def basic(terms: Terms, delta: float) -> float:
    """ε's add up and δ's add up. Steps without an ε of their own share what is left of δ."""
    return math.fsum(count * epsilon for epsilon, count in _steps(terms, delta))


def advanced(terms: Terms, delta: float) -> float:
    """Dwork, Rothblum and Vadhan 2010, in the sharper form of Kairouz, Oh and Viswanath.

    ε̃ = √(2 ln(1/δ′) Σε²) + Σ ε·(e^ε − 1)/(e^ε + 1), at δ̃ = Σδ + δ′.
    """

    def at(slack: float, steps: list[tuple[float, int]]) -> float:
        squares = math.fsum(n * e * e for e, n in steps)
        drift = math.fsum(n * e * math.tanh(e / 2) for e, n in steps)
        return math.sqrt(2 * math.log(1 / slack) * squares) + drift

    return _over_shares(terms, delta, at)


def optimal(terms: Terms, delta: float) -> float:
    """The exact k-fold composition of one (ε, δ) guarantee (Kairouz, Oh and Viswanath 2015).

    The worst case is randomized response, whose loss is ε·(k − 2·Binomial), so that δ′ is a sum of
    k + 1 terms, and δ̃ = 1 − (1−δ)^k·(1−δ′).
    """
    if len(terms) != 1 or terms[0][1] > 1_000_000:
        raise UnsupportedEvent("The optimal theorem is for one guarantee repeated.", method="optimal")
    term, times = terms[0]

    def at(epsilon: float, failure: float) -> float:
        slack = -math.expm1(math.log1p(-delta) - times * math.log1p(-failure))
        return _response_epsilon(epsilon, times, slack) if slack > 0 else math.inf

    if isinstance(term, events.Approximate):
        return at(term.epsilon, term.delta)
    if not _needs_share(term):
        return at(largest_loss(((term, 1),)), 0.0)
    each = [(delta - share * delta) / times for share in SHARES]
    return min(at(single(term, failure), failure) for failure in each) if delta > 0 else math.inf


def zcdp(terms: Terms, delta: float) -> float:
    """ρ's add up (Bun and Steinke 2016); the tight conversion of the line D(α) = ρα."""
    rho, failure = concentration(terms)
    left = delta - failure
    if rho == 0:
        return 0.0 if left >= 0 else math.inf
    if left <= 0:
        return math.inf
    centre = max(math.sqrt(math.log(1 / left) / rho), 1e-6)
    best, width = math.inf, 5.0
    for _ in range(3):
        orders = 1 + centre * np.geomspace(1 / width, width, 400)
        found = rdp.Curve(orders, rho * orders, failure).epsilons(delta)
        place = int(np.argmin(found))
        best = min(best, float(found[place]))
        centre, width = orders[place] - 1, width ** (2 / 100)
    return best


def moments(terms: Terms, delta: float) -> float:
    """The Gaussian moments accountant in closed form: the larger root of ε²/(4ρ) − ε/2 + ρ/4 + ln δ.

    With T steps at noise multiplier σ and ρ = T/(2σ²) the moments are α(t) = ρ(t + t²), and
    δ = min_t e^{α(t) − tε} = e^{−(ε−ρ)²/(4ρ)}; so ε = ρ + 2√(ρ ln(1/δ)). The tutorial this form is known
    from prints −ε for −ε/2 in the quadratic, which gives a valid but larger root.
    """
    match merged(terms):
        case ((events.Gaussian(noise_multiplier=sigma), 1),):
            rho = 1 / (2 * sigma * sigma)
            return rho + 2 * math.sqrt(rho * math.log(1 / delta)) if delta > 0 else math.inf
    raise UnsupportedEvent("The closed form is for Gaussian noise only.", method="moments")


def concentration(terms: Terms) -> tuple[float, float]:
    """ρ of zCDP and the probability of outright failure."""
    rho, log_success = 0.0, 0.0
    for term, count in terms:
        one, failure = _concentration(term)
        rho += count * one
        log_success += count * math.log1p(-failure)
    return rho, -math.expm1(log_success)


def _concentration(term: Term) -> tuple[float, float]:
    match term:
        case events.Gaussian(noise_multiplier=z):
            return 1 / (2 * z * z), 0.0
        case events.ZeroConcentrated(rho=rho):
            return rho, 0.0
        case events.BoundedRange(epsilon=e):
            return e * e / 8, 0.0
        case events.Approximate(epsilon=e, delta=d):
            return e * e / 2, d
        case events.Pure(epsilon=e) | events.RandomizedResponse(epsilon=e):
            return e * e / 2, 0.0
        case events.Laplace(scale=b):
            return 1 / (2 * b * b), 0.0
        case Worst(options=options):
            parts = [concentration(option) for option in options]
            return max(p[0] for p in parts), max(p[1] for p in parts)
        case Reversed(term=original):
            return _concentration(original)
        case Amplified(inner=inner):
            rho, failure = concentration(inner)
            loss = largest_loss(((term, 1),))
            return (min(rho, loss * loss / 2) if math.isfinite(loss) else rho), failure
        case Selected() if math.isfinite(loss := largest_loss(((term, 1),))):
            return loss * loss / 2, 0.0
    raise UnsupportedEvent(f"{type(term).__name__} has no zCDP bound.", event=term, method="zcdp")


def _steps(terms: Terms, delta: float) -> list[tuple[float, int]]:
    """Each step's ε and count, such that all their δ's together are at most ``delta``."""
    left = delta - math.fsum(n * t.delta for t, n in terms if isinstance(t, events.Approximate))
    sharing = sum(n for t, n in terms if _needs_share(t))
    if left < 0 or (sharing and left <= 0):
        return [(math.inf, 1)]
    steps = []
    for term, count in terms:
        if isinstance(term, events.Approximate):
            steps.append((term.epsilon, count))
        elif _needs_share(term):
            steps.append((single(term, left / sharing), count))
        else:
            steps.append((largest_loss(((term, 1),)), count))
    return steps


def _needs_share(term: Term) -> bool:
    return not isinstance(term, events.Approximate) and math.isinf(largest_loss(((term, 1),)))


@lru_cache(maxsize=1024)
def single(term: Term, delta: float) -> float:
    """ε of one application of ``term`` at ``delta``."""
    try:
        return pld.epsilon(((term, 1),), delta)
    except UnsupportedEvent:
        return rdp.curve(((term, 1),)).epsilon(delta)


def _over_shares(terms: Terms, delta: float, at: Callable[[float, list[tuple[float, int]]], float]) -> float:
    """The best ε over ways of splitting δ between the theorem's slack and the steps."""
    if not terms:
        return 0.0
    left = delta - math.fsum(n * t.delta for t, n in terms if isinstance(t, events.Approximate))
    if left <= 0:
        return math.inf
    if not any(_needs_share(term) for term, _ in terms):
        return at(left, _steps(terms, delta))
    return min(at(share * left, _steps(terms, delta - share * left)) for share in SHARES)


def _response_epsilon(epsilon: float, times: int, delta: float) -> float:
    """The smallest ε̃ with δ(ε̃) ≤ delta for ``times`` randomized responses of ``epsilon``."""
    if epsilon == 0 or math.isinf(epsilon):
        return epsilon
    flips = np.arange(times + 1)
    losses = (times - 2 * flips) * epsilon
    log_mass = (
        gammaln(times + 1) - gammaln(flips + 1) - gammaln(times - flips + 1)
        + (times - flips) * epsilon - times * (epsilon + math.log1p(math.exp(-epsilon)))
    )  # fmt: skip
    return Composed(np.asarray(losses[::-1], dtype=float), np.exp(log_mass)[::-1]).epsilon(delta)
