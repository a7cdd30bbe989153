"""Noisy counts, and what may be made of them at no cost: shared by Bayes and the trees."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.mechanisms import Gaussian, Laplace
from tacit.relations import Relation, Unit, histogram_sensitivity

__all__ = ["deviation_of", "joint_noise", "moved", "shrunk"]

Array = NDArray[np.float64]


def moved(relation: Relation, unit: Unit, counts: float = 1.0) -> tuple[float, float]:
    """How far a unit moves a vector in which each of its rows has ``counts`` ones, in ℓ1 and in ℓ2."""
    return (
        unit.rows * counts * histogram_sensitivity(relation, 1),
        unit.rows * math.sqrt(counts) * histogram_sensitivity(relation, 2),
    )


def joint_noise(l1: float, l2: float, epsilon: float, delta: float) -> Laplace | Gaussian:
    """Noise for a vector of these sensitivities: of the kinds that (ε, δ) allows, the smaller.

    >>> joint_noise(1.0, 1.0, 0.5, 0.0).event, joint_noise(100.0, 10.0, 0.5, 1e-6).event
    (Laplace(scale=2.0), Gaussian(noise_multiplier=8.05...))
    """
    laplace = Laplace(l1, epsilon=epsilon)
    if delta == 0:
        return laplace
    gaussian = Gaussian(l2, epsilon=epsilon, delta=delta)
    return gaussian if deviation_of(gaussian) < deviation_of(laplace) else laplace


def deviation_of(mechanism: Laplace | Gaussian | None) -> float:
    """The standard deviation of the noise on each count, 0 without a mechanism."""
    if mechanism is None:
        return 0.0
    if isinstance(mechanism, Gaussian):
        return mechanism.deviation()
    return math.sqrt(2) * mechanism.sensitivity * mechanism.event.scale


def shrunk(counts: Any, towards: Any, deviation: Any, rows: float = 1.0) -> Array:
    """Shares of the classes in each cell: (classes, cells), from noisy counts of that shape.

    As if, beside the rows that were counted, there were m more with the shares ``towards``: m is twice the
    standard deviation of the noise, and ``rows``. A cell that holds fewer rows than the noise says little of
    its own. Only released numbers enter.

    >>> shrunk([[90.0, -3.0], [10.0, 4.0]], [[0.5], [0.5]], 4.5).round(3).tolist()
    [[0.864, 0.357], [0.136, 0.643]]
    """
    seen = np.maximum(np.asarray(counts, dtype=np.float64), 0.0)
    weight = 2.0 * np.asarray(deviation, dtype=np.float64) + rows
    return np.asarray((seen + weight * np.asarray(towards)) / (seen.sum(axis=0) + weight))
