"""What one row says of the scores: its residual, bounded and on a grid of whole numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

__all__ = ["GRID", "Residuals"]

Array = NDArray[np.float64]

GRID = 2.0**20
"""Residuals are whole multiples of 1/GRID, so that their sums are exact in float64 for up to 2^33 rows."""


@dataclass(frozen=True)
class Residuals:
    """Residuals of the logistic loss (``classes`` 2), the softmax loss (more) or the squared loss (0).

    The residual of a row is (label − probability) or (target − score), the target being in [−1, 1]. It is
    shortened to ``bound`` in ℓ2: for two classes and for a number that is clipping to ± ``bound``, for more
    classes the vector of residuals is scaled. Then each number is rounded towards zero to the grid, which
    only makes it shorter. A row's residual is computed by elementwise operations, from that row alone.

    >>> Residuals(2, 0.5).of(np.array([[0.0], [-9.0]]), np.array([1.0, 1.0])) / GRID
    array([[0.5],
           [0.5]])
    """

    classes: int
    bound: float

    @property
    def outputs(self) -> int:
        """The number of scores of a row."""
        return self.classes if self.classes > 2 else 1

    @property
    def curvature(self) -> float:
        """The largest second derivative of the loss in the scores."""
        return {0: 1.0, 2: 0.25}.get(self.classes, 0.5)

    def largest(self, order: int) -> float:
        """The largest ℓ1 or ℓ2 norm of a residual."""
        return self.bound * (math.sqrt(self.outputs) if order == 1 else 1.0)

    def of(self, scores: Array, targets: Array) -> Array:
        """GRID × the residuals (rows, outputs) at these scores; ``targets`` are class numbers, or numbers."""
        if self.classes > 2:
            rest = (targets[:, None] == np.arange(self.classes)) - self.probabilities(scores)
            length = np.zeros(len(rest))
            for output in range(self.outputs):
                length += np.square(rest[:, output])
            shorter = np.minimum(1.0, self.bound / np.maximum(np.sqrt(length), 1e-300))
            rest *= (shorter * (1 - 2.0**-40))[:, None]
        else:
            rest = targets[:, None] - (expit(scores) if self.classes else scores)
            rest = np.clip(rest, -self.bound, self.bound)
        return np.asarray(np.trunc(rest * GRID))

    def probabilities(self, scores: Array) -> Array:
        """The probability of each class, from (rows, outputs) scores."""
        if self.classes == 2:
            positive = expit(scores)
            return np.hstack([1 - positive, positive])
        highest = scores[:, 0].copy()
        for output in range(1, scores.shape[1]):
            highest = np.maximum(highest, scores[:, output])
        raised = np.exp(scores - highest[:, None])
        total = np.zeros(len(scores))
        for output in range(scores.shape[1]):
            total += raised[:, output]
        return np.asarray(raised / total[:, None])
