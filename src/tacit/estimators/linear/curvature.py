"""How far a fitted weight may be off. The answer is bought: it needs the Hessian, which is private."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tacit import events
from tacit.data.arithmetic import products
from tacit.estimators.linear.noise.place import Problem
from tacit.estimators.linear.rows import ScaledRows
from tacit.mechanisms import Gaussian, Norm, euclidean_noise
from tacit.randomness import Source
from tacit.relations import histogram_sensitivity

__all__ = ["CurvaturePurchase", "weight_covariance"]

Array = NDArray[np.float64]

FARTHEST = 20.0
"""The largest pull of a penalty on a weight of scaled rows; 20 is a probability of 2e-9 or 1 − 2e-9."""


@dataclass(frozen=True)
class CurvaturePurchase:
    """The Hessian of the losses at released weights, H = Σ w·xxᵀ, with noise.

    A row adds w·xxᵀ with w at most the curvature of the loss and ‖x‖ ≤ 1, of Frobenius norm at most the
    curvature; the inner product of two such matrices is not negative, so replacing one row by another
    moves H by at most √2 times that, like a histogram. The upper triangle, off the diagonal times √2, is a
    vector of the same norm, and gets Gaussian noise for δ > 0, ℓ2 noise for δ = 0.

    Where the slope of a loss is capped, w jumps to 0, so the score that decides on it is computed from the
    row alone; the rounding of a matrix product by other rows would move their w too.
    """

    epsilon: float
    delta: float
    problem: Problem

    @property
    def _mechanism(self) -> Gaussian | Norm:
        problem = self.problem
        moved = problem.unit.rows * problem.loss.curvature * histogram_sensitivity(problem.relation, 2)
        return euclidean_noise(moved, self.epsilon, self.delta)

    @property
    def event(self) -> events.Event:
        """The event of the purchase."""
        return self._mechanism.event

    def buy(self, rows: ScaledRows, weights: Array, source: Source) -> Array:
        """A lower bound of H, but for what noise does with a probability of about one in a hundred."""
        exact = np.zeros((rows.width, rows.width))
        for x, y in rows.blocks():
            root = x * np.sqrt(self.problem.loss.weights(products(x, weights), y))
            exact += root.T @ root
        upper = np.triu_indices(rows.width)
        unfolded = np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
        noisy = np.zeros_like(exact)
        noisy[upper] = replace(self._mechanism, random_state=source)(exact[upper] * unfolded) / unfolded
        values, vectors = np.linalg.eigh(noisy + np.triu(noisy, 1).T)
        return np.asarray((vectors * np.maximum(values - self._largest(rows.width), 0.0)) @ vectors.T)

    def _largest(self, width: int) -> float:
        """About the largest eigenvalue of the noise: √2·σ·√width for a symmetric Gaussian matrix."""
        spread = self._mechanism.deviation(width * (width + 1) // 2)
        return spread * (math.sqrt(2 * width) + 2)


def weight_covariance(hessian: Array, penalty: float, weights: Array, tilt: float, added: float) -> Array:
    """The expected squared error of weights fitted with noise ``tilt`` in the objective and ``added`` on top.

    To first order Θ̂ − Θ = −(H + λ)⁻¹(score + b + λΘ). The score of a well-specified model has covariance H,
    which gives the covariance of Θ̂. The penalty pulls every weight towards zero, by (H + λ)⁻¹λΘ, whose
    square is part of the error as well. Θ is unknown; its estimate (1 + H⁻¹λ)Θ̂ makes that H⁻¹λΘ̂, along each
    eigenvector of H. Noise in Θ̂ adds its own variance to the estimated square, which errs towards wider
    intervals. Where H cannot be told from zero the rows say nothing against the penalty, and the pull is
    taken to be :data:`FARTHEST`.
    """
    values, axes = np.linalg.eigh(hessian)
    values = np.maximum(values, 0.0)
    spread = (values + tilt**2) / (values + penalty) ** 2
    square = (axes.T @ weights.ravel()) ** 2 + spread
    pull = np.full(len(values), FARTHEST)
    known = penalty**2 * square < (FARTHEST * values) ** 2
    pull[known] = penalty * np.sqrt(square[known]) / values[known]
    return np.asarray((axes * (spread + pull**2)) @ axes.T + added**2 * np.eye(len(values)))
