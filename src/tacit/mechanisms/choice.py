"""Which noise an (ε, δ) buys where both a pure and a Gaussian mechanism would do."""

from __future__ import annotations

from tacit import _validate
from tacit.mechanisms.discrete import DiscreteGaussian, DiscreteLaplace
from tacit.mechanisms.gaussian import Gaussian
from tacit.mechanisms.norm import Norm

__all__ = ["euclidean_noise", "integer_noise"]

_SLACK = 1 - 1e-8
"""Discrete Gaussian noise is bought for this share of ε, so that converting its ρ back stays below ε."""


def euclidean_noise(sensitivity: float, epsilon: float, delta: float) -> Norm | Gaussian:
    """Noise for a vector whose ℓ2 sensitivity is known: Gaussian for δ > 0, else with a Gamma radius.

    >>> euclidean_noise(1.0, 0.5, 0.0).event
    Pure(epsilon=0.5)
    """
    if _validate.delta(delta) == 0:
        return Norm(sensitivity, epsilon)
    return Gaussian(sensitivity, epsilon=epsilon, delta=delta)


def integer_noise(
    l1: int, l2: float, epsilon: float, delta: float
) -> DiscreteLaplace | DiscreteGaussian:
    """Noise for integers of these ℓ1 and ℓ2 sensitivities: of the two that (ε, δ) allows, the smaller.

    >>> integer_noise(1, 1.0, 0.5, 0.0).event, integer_noise(100, 10.0, 0.5, 1e-6).event
    (Pure(epsilon=0.5), ZeroConcentrated(rho=0.00664...))
    """
    laplace = DiscreteLaplace(l1, epsilon)
    if _validate.delta(delta) == 0:
        return laplace
    gaussian = DiscreteGaussian(l2, epsilon=epsilon * _SLACK, delta=delta)
    return gaussian if gaussian.deviation < laplace.deviation else laplace
