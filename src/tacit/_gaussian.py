"""The Gaussian mechanism in closed form (Balle and Wang 2018, "Improving the Gaussian mechanism").

With noise multiplier z the privacy profile is δ(ε) = Φ(a) − e^ε Φ(b), a = 1/(2z) − εz,
b = −1/(2z) − εz. Since b² − a² = 2ε, both terms share the factor e^(−a²/2) and the difference is
taken between scaled error functions, which keeps relative precision deep in the tail; what it loses
where a and b are close, at huge z, is added on top.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, ndtr

from tacit import _validate
from tacit.errors import InvalidValue

ROOT2 = math.sqrt(2.0)


def profile(noise_multiplier: float, epsilon: ArrayLike) -> NDArray[np.float64]:
    """δ(ε) of one Gaussian release, for ε ≥ 0."""
    eps = np.asarray(epsilon, dtype=float)
    a = 0.5 / noise_multiplier - eps * noise_multiplier
    b = -0.5 / noise_multiplier - eps * noise_multiplier
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        weight = 0.5 * np.exp(-0.5 * a * a)
        tail = weight * (erfcx(-a / ROOT2) - erfcx(-b / ROOT2))
        body = ndtr(a) - weight * erfcx(-b / ROOT2)
    cancelled = noise_multiplier * (1 + eps * noise_multiplier)
    return np.asarray(np.clip(np.where(a < 0, tail, body) * (1 + 1e-15 * (1 + cancelled)), 0.0, 1.0))


def epsilon(noise_multiplier: float, delta: float) -> float:
    """The smallest ε ≥ 0 with δ(ε) ≤ delta, rounded up; infinite where delta is 0."""
    if delta <= 0:
        return math.inf

    def private(eps: float) -> bool:
        return float(profile(noise_multiplier, eps)) <= delta

    return 0.0 if private(0.0) else smallest(private, 1.0)


def noise_multiplier(epsilon: float, delta: float) -> float:
    """The smallest noise multiplier that is (epsilon, delta)-private, rounded up."""
    eps, dlt = _validate.epsilon(epsilon), _validate.delta(delta)
    if dlt == 0:
        raise InvalidValue(
            "delta", delta, "above 0 for Gaussian noise", "Use Laplace noise where delta must be 0."
        )
    return smallest(lambda z: float(profile(z, eps)) <= dlt, 1.0)


def smallest(holds: Callable[[float], bool], start: float) -> float:
    """The smallest x > 0 for which a condition holds that holds from some x on, rounded up."""
    high = start
    while not holds(high):
        high *= 2
    low = high / 2
    while holds(low):
        low, high = low / 2, low
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
