"""Random stopping: how often a mechanism is run when only the best of its outputs is released.

A base mechanism Q is run K times on the same data, K being drawn without the data and kept secret, and the
output with the best score is released (Liu and Talwar 2019; Papernot and Steinke 2022). This module has the
distributions of K and what they do to a bound on Q.

**The density of the best.** Give every output an independent tie-breaker, so that scores are all different;
to take the first of equal scores has the same distribution, because the outputs are exchangeable. Let q be
the density of Q, F(y) the probability that an output of Q scores at most what y does, and φ(x) = E x^K. The
best of K has density q(y)·φ′(F(y)) at y, and releases nothing with probability φ(0). So for neighbours (q,
F), (q′, F′)

    ∫ q^λ·q′^(1−λ)·φ′(F)·(φ′(F)/φ′(F′))^(λ−1) + φ(0)

is the moment e^{(λ−1)·D_λ} of the best, and e^{loss} = (q/q′)·(φ′(F)/φ′(F′)) wherever something is released.

**Truncated negative binomial** (η > −1, γ in (0, 1]): φ′(x) = E K·(γ/(γ + (1−γ)(1−x)))^(η+1), and E K is its
largest value. g = γ + (1−γ)(1−F(y)) is the probability of an event after Q: an output scores above y, or a
coin of probability γ falls heads. By Hölder's inequality g′ ≤ (e^ε̂·g)^(1−1/λ̂) where D_λ̂(Q′‖Q) ≤ ε̂, and g
≥ γ; so g′/g ≤ e^{(1−1/λ̂)ε̂}·γ^(−1/λ̂), for every order λ̂, and never above 1/γ (λ̂ = 1). Together

    D_λ ≤ D_λ(Q) + (1+η)·[(1 − 1/λ̂)·D_λ̂(Q) + ln(1/γ)/λ̂] + ln(E K)/(λ − 1),

which is theorem 2 of Papernot and Steinke. If Q is ε-DP, then h = 1 − F and h′ satisfy h′ ≤ e^ε·h and
1 − h ≤ e^ε(1 − h′), so g′/g is largest at h = 1/(1 + e^ε): the loss is at most
ε + (1+η)·ln[(γ + (1−γ)p)/(γ + (1−γ)(1−p))] with p = e^ε/(1 + e^ε), which is below the (2+η)·ε of the paper
(3ε of Liu and Talwar for η = 1) and equal to it in the limit of γ → 0 and small ε.

**Poisson** (mean μ): φ′(x) = μ·e^{μ(x−1)}. With g = 1 − F(y), φ′(F)·(φ′(F)/φ′(F′))^(λ−1) is
μ·e^{μ·v}, v = (λ−1)·g′ − λ·g. By Hölder again v ≤ max over g of (λ−1)·min(1, (e^ε̂·g)^s) − λ·g, s = 1 − 1/λ̂:
at e^ε̂·g = min(1, ((λ−1)·s·e^ε̂/λ)^λ̂), where the derivative is zero or the minimum changes sides. If Q is ε-DP,
v is at most the larger of 0 and (λ−1)·tanh(ε/2) − 1/(1+e^ε), its values at the corners of the region that ε
leaves for (g, g′), and the loss is at most ε + μ·tanh(ε/2), because g′ − g ≤ tanh(ε/2).
Papernot and Steinke's theorem 6 is the case in which v ≤ (λ−1)·δ̂ from an (ε̂, δ̂) bound on Q.

**Failures.** If both neighbours' Q fail outright with probability δ (and keep to the bound otherwise), then
given that none of K runs fails, which has probability φ(1 − δ), K is of the same family: with
γ + (1−γ)δ for γ, or mean μ(1 − δ). Both have smaller bounds than the original, which is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import count

import numpy as np
from numpy.typing import NDArray

__all__ = ["NegativeBinomial", "Poisson", "Stopping", "gamma_of_mean"]

Array = NDArray[np.float64]

UP = 1 + 1e-12
"""Covers the rounding of a few operations."""


@dataclass(frozen=True)
class NegativeBinomial:
    """K ≥ 1 with P(K = k) ∝ (1−γ)^k·∏_{l<k} (l+η)/(l+1): geometric for η = 1, logarithmic for η = 0.

    >>> NegativeBinomial(1.0, 0.25).mean, round(NegativeBinomial(0.0, 0.25).mean, 4)
    (4.0, 2.164)
    """

    eta: float
    gamma: float

    @property
    def mean(self) -> float:
        """E K."""
        if self.gamma == 1:
            return 1.0
        log_gamma = math.log(self.gamma)
        if self.eta == 0:
            return (1 - self.gamma) / (self.gamma * -log_gamma)
        if self.eta * log_gamma < -700:
            return self.eta * (1 - self.gamma) / self.gamma
        return self.eta * (1 - self.gamma) / (self.gamma * -math.expm1(self.eta * log_gamma))

    def failure(self, one: float) -> float:
        """The probability, rounded up, that some run fails, if each does with probability ``one``."""
        return min(1.0, self.mean * one * UP)

    def largest_loss(self, loss: float) -> float:
        """ε of the best of K runs that are each ``loss``-DP."""
        if self.gamma == 1:
            return loss
        below = math.exp(-loss) / (1 + math.exp(-loss))
        high, low = (self.gamma + (1 - self.gamma) * share for share in (1 - below, below))
        return (loss + (1 + self.eta) * math.log(high / low)) * UP

    def divergences(self, orders: Array, own: Array, loss: float) -> Array:
        """D_λ of the best at ``orders``, of runs with divergences ``own`` there that are ``loss``-DP."""
        if self.gamma == 1:
            return own
        length = -math.log(self.gamma)
        ratio = min(length, float(np.min((1 - 1 / orders) * own + length / orders)))
        if math.isfinite(loss):
            ratio = min(ratio, (self.largest_loss(loss) - loss) / (1 + self.eta))
        spread = max(math.log(self.mean), 0.0) / (orders - 1)
        return np.asarray((own + (1 + self.eta) * ratio + spread) * UP)

    def missed(self, share: float) -> float:
        """E (1 − share)^K: the probability that no run is one of the kind that a ``share`` of them is.

        >>> NegativeBinomial(1.0, 0.25).missed(0.25)
        0.42857142857142855
        """
        if self.gamma == 1:
            return 1 - share
        rest, log_gamma = math.log(self.gamma + (1 - self.gamma) * share), math.log(self.gamma)
        if self.eta == 0:
            return rest / log_gamma
        return math.expm1(-self.eta * rest) / math.expm1(-self.eta * log_gamma)

    def chances(self) -> Iterator[tuple[int, Decimal]]:
        """(k, P(K = k)) in the precision of the current decimal context."""
        eta, gamma = Decimal(self.eta), Decimal(self.gamma)
        if gamma == 1:
            yield 1, Decimal(1)
            return
        rest = 1 - gamma
        chance = rest / -gamma.ln() if eta == 0 else eta * rest / (gamma**-eta - 1)
        for k in count(1):
            yield k, chance
            chance = chance * rest * (k + eta) / (k + 1)


@dataclass(frozen=True)
class Poisson:
    """K with P(K = k) = e^−μ·μ^k/k!; nothing is released where K = 0."""

    mean: float

    def failure(self, one: float) -> float:
        """The probability, rounded up, that some run fails, if each does with probability ``one``."""
        return min(1.0, self.mean * one * UP)

    def largest_loss(self, loss: float) -> float:
        """ε of the best of K runs that are each ``loss``-DP."""
        return (loss + self.mean * math.tanh(loss / 2)) * UP

    def divergences(self, orders: Array, own: Array, loss: float) -> Array:
        """D_λ of the best at ``orders``, of runs with divergences ``own`` there that are ``loss``-DP."""
        shares = 1 - 1 / orders
        excess = np.empty_like(orders)
        for place, order in enumerate(orders):
            at = np.minimum(orders * (np.log((order - 1) * shares / order) + own), 0.0)
            best = np.exp(shares * at) * ((order - 1) - order * np.exp(at / orders - own))
            excess[place] = max(float(best.min()), 0.0)
        if math.isfinite(loss):
            corner = (orders - 1) * math.tanh(loss / 2) - math.exp(-loss) / (1 + math.exp(-loss))
            excess = np.minimum(excess, np.maximum(corner, 0.0))
        moment = (orders - 1) * own + math.log(self.mean) + self.mean * excess
        return np.asarray(np.logaddexp(-self.mean, moment) / (orders - 1) * UP)

    def missed(self, share: float) -> float:
        """E (1 − share)^K: the probability that no run is one of the kind that a ``share`` of them is."""
        return math.exp(-self.mean * share)

    def chances(self) -> Iterator[tuple[int, Decimal]]:
        """(k, P(K = k)) in the precision of the current decimal context."""
        mean = Decimal(self.mean)
        chance = (-mean).exp()
        for k in count():
            yield k, chance
            chance = chance * mean / (k + 1)


Stopping = NegativeBinomial | Poisson


def gamma_of_mean(eta: float, mean: float) -> float:
    """γ with which a truncated negative binomial of this η has this mean, which is above 1.

    >>> round(NegativeBinomial(0.0, gamma_of_mean(0.0, 10.0)).mean, 9)
    10.0
    """
    low, high = -690.0, -1e-15
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if NegativeBinomial(eta, math.exp(middle)).mean > mean else (low, middle)
    return math.exp(high)
