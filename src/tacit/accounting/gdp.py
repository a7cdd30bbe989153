"""Gaussian differential privacy: μ of events, and a filter on Σμ² that is tight for Gaussian noise.

A mechanism is μ-GDP if telling any two neighbours apart from its output is at least as hard as telling
N(0, 1) from N(μ, 1): its trade-off function is nowhere below G_μ(α) = Φ(Φ⁻¹(1 − α) − μ) (Dong, Roth and
Su 2022). By Blackwell's theorem its output can then be drawn from one draw of either normal distribution,
by a rule that does not know which of the two it was.

**The filter** (Smith and Thakurta 2022; Koskela, Tobaben and Honkela 2023): each charge is μᵢ-GDP given all
earlier releases, and is chosen in view of them. If Σμᵢ² ≤ μ² on every path, all releases together are μ-GDP.
Proof. Let b be 0 for one neighbour and 1 for the other, and Yₜ = b·t + Wₜ with W a Brownian motion. Charge i
looks at the increment of Y over the next μᵢ² of time, which given the past is N(b·μᵢ², μᵢ²), so that its
ratio with μᵢ is N(b·μᵢ, 1), from which by Blackwell the release can be drawn. μᵢ depends on earlier
releases, hence on Y before that time and on coins that do not know b; increments are independent of
the past. So the whole sequence of releases is drawn from Y up to time μ², with a rule that does not know b.
Given its end, the path of Y is a Brownian bridge, whatever b is; so the sequence can be drawn from the end
alone, which is N(b·μ², μ²), as far apart as N(0, 1) and N(μ, 1). Nothing is lost: Gaussian releases with
Σμᵢ² = μ² are exactly μ-GDP. The whole δ of the budget serves to state this as (ε, δ).

**Which events are converted**, and how:

* Gaussian noise of multiplier z is (1/z)-GDP, by definition; repetitions and compositions add up μ².
* Whatever is ε-DP with δ = 0 (Laplace noise, randomized response, the exponential mechanism; also on a
  secret sample, at the amplified ε) is μ-GDP for μ = 2·Φ⁻¹(e^ε/(1 + e^ε)), the smallest μ that holds for
  all ε-DP mechanisms. Proof. Their trade-off functions are nowhere below
  f(α) = max(1 − e^ε·α, e^−ε·(1 − α), 0), which consists of two segments, from (0, 1) to (a, a) and from there
  to (1, 0), a = 1/(1 + e^ε). G_μ is convex and passes through (0, 1) and (1, 0); if G_μ(a) ≤ a, it lies below
  its chords on [0, a] and [a, 1], and they lie below f. Since G_μ(a) = Φ(−Φ⁻¹(a) − μ), this holds if and only
  if μ ≥ −2·Φ⁻¹(a).
* Of parts that share nobody, the worst counts.

Refused is everything else: Gaussian noise on a secret sample (its loss has the tail of the noise without
sampling, so no smaller μ holds), (ε, δ) events with δ > 0, and events known by a ρ or a Rényi curve alone,
such as discrete Gaussian noise.
"""

from __future__ import annotations

import math

from scipy.special import erfinv, log_expit, ndtri_exp

from tacit import _gaussian, events
from tacit.accounting import rdp
from tacit.accounting.terms import Selected, Term, Terms, Worst
from tacit.errors import UnsupportedEvent

__all__ = ["epsilon_at", "largest_squared", "pure", "squared"]

UP = 1 + 1e-14
"""Covers the rounding of a few operations and of the error function."""
LEAST = 5e-324
SMALL = 1e-12


def pure(epsilon: float) -> float:
    """The smallest μ for which every ε-DP mechanism is μ-GDP, rounded up.

    >>> round(pure(1.0), 4), round(pure(1e-9) * 1e9, 4)
    (1.232, 1.2533)
    """
    if epsilon < 1:
        mu = 2 * math.sqrt(2) * float(erfinv(math.tanh(epsilon / 2)))
    else:
        mu = -2 * float(ndtri_exp(log_expit(-epsilon)))
    return mu * UP


def squared(terms: Terms) -> float:
    """Σμ² of a composition, rounded up; UnsupportedEvent where a part is not GDP.

    >>> from tacit.accounting.terms import resolve
    >>> round(squared(resolve(events.Repeat(events.Gaussian(10.0), 25), "add_remove")), 9)
    0.25
    """
    return math.fsum(count * _squared(term) for term, count in terms) * UP


def _squared(term: Term) -> float:
    if isinstance(term, events.Gaussian):
        mu = 1 / term.noise_multiplier
        return max(mu * mu, LEAST)
    if isinstance(term, Worst):
        return max(squared(option) for option in term.options)
    loss = rdp.largest_loss(((term, 1),))
    if not math.isfinite(loss):
        raise UnsupportedEvent(
            f"{_named(term)} is not Gaussian differentially private, which is all that a ledger with "
            "filter='gaussian' counts.",
            "Charge Gaussian noise without sampling, or noise that needs no δ (Laplace); or make a ledger "
            "with "
            "filter='basic' or filter='renyi', which count every event. Nothing was charged.",
            event=term,
            method="gaussian",
        )
    mu = pure(loss)
    return max(mu * mu, LEAST) if loss > 0 else 0.0


def _named(term: Term) -> str:
    if isinstance(term, events.Event):
        return type(term).__name__
    return "The best of several runs" if isinstance(term, Selected) else "A release from a secret sample"


def largest_squared(epsilon: float, delta: float) -> float:
    """The largest μ² for which μ-GDP implies (epsilon, delta)-DP, rounded down.

    >>> round(largest_squared(1.0, 1e-6) ** 0.5, 4)
    0.2367
    """
    mu = 1 / _gaussian.noise_multiplier(epsilon, delta)
    return mu * mu / UP


def epsilon_at(mu_squared: float, delta: float) -> float:
    """ε at this δ of what is μ-GDP, rounded up.

    Where the closed form of the Gaussian loses its digits, by zCDP with ρ = μ²/2 (Bun and Steinke 2016).
    """
    if mu_squared == 0:
        return 0.0
    if delta == 0 or not math.isfinite(mu_squared):
        return math.inf
    if mu_squared < SMALL:
        rho = mu_squared / 2
        return (rho + 2 * math.sqrt(rho * math.log(1 / delta))) * UP
    return _gaussian.epsilon(1 / math.sqrt(mu_squared), delta)
