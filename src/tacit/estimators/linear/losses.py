"""Convex losses of generalised linear models: what they are, and how far one row can move them.

A loss is a function of a row's scores m = xᵀΘ, one per output, and its target. With ‖x‖₂ ≤ 1 its
gradient in Θ is x ⊗ slope, so ``lipschitz`` (the largest ‖slope‖₂) bounds the gradient, and
``curvature`` (the largest eigenvalue of the second derivative in m) bounds the Hessian.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, logit, softmax

__all__ = ["HuberHinge", "Logistic", "Loss", "SmoothedHinge", "Softmax", "Squared"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Loss:
    """Base of all losses. ``scores`` are (rows, outputs), ``targets`` (rows, outputs) or class numbers."""

    outputs: int = 1

    @property
    def lipschitz(self) -> float:
        """The largest ℓ2 norm of the slope of one row."""
        raise NotImplementedError

    @property
    def curvature(self) -> float:
        """The largest eigenvalue of the second derivative of one row's loss in its scores."""
        raise NotImplementedError

    @property
    def start(self) -> float:
        """The largest ℓ2 norm of the slope of one row where all scores are 0: how hard it pulls at first."""
        return self.lipschitz

    @property
    def directions(self) -> int:
        """Dimensions of the space in which the slope of one row lies, whatever the scores."""
        return self.outputs

    def log_determinant(self, penalty: float) -> float:
        """How much one row can raise ln det of a Hessian that is at least ``penalty`` times the identity.

        For each output, det(H + w·xxᵀ) = det H · (1 + w·xᵀH⁻¹x), and w·xᵀH⁻¹x ≤ curvature/penalty.
        """
        return self.outputs * math.log1p(self.curvature / penalty)

    def value(self, scores: Array, targets: Array) -> Array:
        """The loss of each row."""
        raise NotImplementedError

    def slope(self, scores: Array, targets: Array) -> Array:
        """Its derivative in each score."""
        raise NotImplementedError

    def weights(self, scores: Array, targets: Array) -> Array:
        """Its second derivative in each score, where outputs do not mix."""
        raise NotImplementedError


@dataclass(frozen=True)
class Logistic(Loss):
    """ln(1 + e^m) − y·m with y in {0, 1}, one output; straight where its slope would exceed ``cap``.

    The slope σ(m) − y, clipped to ±cap, still grows with m, so the loss stays convex. A row that is
    predicted badly, and pulls hardest, then pulls no harder than ``cap``, and that is all the noise has to
    hide: with a cap of ½ it is halved, while a row predicted better than a coin pulls as before.
    """

    cap: float = 1.0

    @property
    def lipschitz(self) -> float:
        return self.cap

    @property
    def start(self) -> float:
        return min(self.cap, 0.5)

    @property
    def curvature(self) -> float:
        return 0.25 if self.cap >= 0.5 else self.cap * (1 - self.cap)

    def value(self, scores: Array, targets: Array) -> Array:
        right = (2 * targets - 1) * scores
        if self.cap == 1:
            return np.asarray(np.logaddexp(0.0, -right)[:, 0])
        bend = float(logit(1 - self.cap))
        curved = np.logaddexp(0.0, -np.maximum(right, bend))
        return np.asarray((curved + self.cap * np.maximum(bend - right, 0.0))[:, 0])

    def slope(self, scores: Array, targets: Array) -> Array:
        return np.asarray(np.clip(expit(scores) - targets, -self.cap, self.cap))

    def weights(self, scores: Array, targets: Array) -> Array:
        p = expit(scores)
        return np.where(np.abs(p - targets) <= self.cap, p * (1 - p), 0.0)


@dataclass(frozen=True)
class HuberHinge(Loss):
    """The hinge max(0, 1 − y·m) with its corner rounded over ±``corner``, y in {−1, 1}, each output alone.

    (1 + h − ym)²/(4h) within h of the corner (Chaudhuri, Monteleoni and Sarwate 2011).
    """

    corner: float = 0.5

    @property
    def lipschitz(self) -> float:
        return math.sqrt(self.outputs)

    @property
    def curvature(self) -> float:
        return 1 / (2 * self.corner)

    def value(self, scores: Array, targets: Array) -> Array:
        slack = 1 - targets * scores
        bent = np.square(np.clip(slack + self.corner, 0.0, 2 * self.corner)) / (4 * self.corner)
        return np.asarray(np.where(slack > self.corner, slack, bent).sum(axis=1))

    def slope(self, scores: Array, targets: Array) -> Array:
        slack = 1 - targets * scores
        return np.asarray(-targets * np.clip((slack + self.corner) / (2 * self.corner), 0.0, 1.0))

    def weights(self, scores: Array, targets: Array) -> Array:
        return np.where(np.abs(1 - targets * scores) < self.corner, self.curvature, 0.0)


@dataclass(frozen=True)
class SmoothedHinge(HuberHinge):
    """:class:`HuberHinge` without corners, nearer to it the smaller ``barrier``: on the way to its minimum.

    The hinge is the largest a·s − h·a² with a in [0, 1] and s = 1 + h − ym. Here barrier·ln a(1 − a) is added
    before the largest is taken, as interior point methods do: a stays inside, as a = expit(z) with
    2·barrier·sinh z + 2h·expit z = s, and Newton's method meets no corner, whatever the rows are.
    """

    barrier: float = 1.0

    def slope(self, scores: Array, targets: Array) -> Array:
        return np.asarray(-targets * expit(self._place(1 + self.corner - targets * scores)))

    def weights(self, scores: Array, targets: Array) -> Array:
        z = self._place(1 + self.corner - targets * scores)
        steep = self.barrier * ((1 + np.exp(z)) ** 2 + (1 + np.exp(-z)) ** 2)
        return np.asarray(1 / (2 * self.corner + steep))

    def _place(self, slack: Array) -> Array:
        """z, by Newton's method within an interval that is halved where that leaves it."""
        far = np.arcsinh((np.abs(slack) + 2 * self.corner) / (2 * self.barrier)) + 1
        low, high = -far, far.copy()
        z = np.clip(logit(np.clip(slack / (2 * self.corner), 1e-300, 1 - 1e-16)), low, high)
        z = np.where(np.abs(z) < far, z, np.arcsinh((slack - self.corner) / (2 * self.barrier)))
        for _ in range(100):
            p = expit(z)
            off = 2 * self.barrier * np.sinh(z) + 2 * self.corner * p - slack
            low, high = np.where(off < 0, z, low), np.where(off > 0, z, high)
            trial = z - off / (2 * self.barrier * np.cosh(z) + 2 * self.corner * p * (1 - p))
            moved = np.where((trial > low) & (trial < high), trial, (low + high) / 2)
            done = np.abs(moved - z) <= 1e-14 * (1 + np.abs(z))
            z = moved
            if done.all():
                break
        return np.asarray(z)


@dataclass(frozen=True)
class Softmax(Loss):
    """−ln softmax(m)[y] with y one-hot, as many outputs as classes.

    The slope p − y has ℓ2 norm below √2 and its entries add up to zero. The second derivative
    diag(p) − ppᵀ has K − 1 eigenvalues that add up to at most 1 − 1/K, so by concavity one row raises
    ln det by at most (K−1)·ln(1 + 1/(K·penalty)).
    """

    @property
    def lipschitz(self) -> float:
        return math.sqrt(2.0)

    @property
    def start(self) -> float:
        return math.sqrt(1 - 1 / self.outputs)

    @property
    def curvature(self) -> float:
        return 0.5

    @property
    def directions(self) -> int:
        return self.outputs - 1

    def log_determinant(self, penalty: float) -> float:
        return (self.outputs - 1) * math.log1p(1 / (self.outputs * penalty))

    def value(self, scores: Array, targets: Array) -> Array:
        return np.asarray(-(log_softmax(scores, axis=1) * targets).sum(axis=1))

    def slope(self, scores: Array, targets: Array) -> Array:
        return np.asarray(softmax(scores, axis=1) - targets)


@dataclass(frozen=True)
class Squared(Loss):
    """½(m − y)² with y in [−1, 1]. Its slope is not bounded: places that need a bound clip it."""

    @property
    def lipschitz(self) -> float:
        return math.inf

    @property
    def start(self) -> float:
        return 1.0

    @property
    def curvature(self) -> float:
        return 1.0

    def value(self, scores: Array, targets: Array) -> Array:
        return np.asarray(np.square(scores - targets)[:, 0] / 2)

    def slope(self, scores: Array, targets: Array) -> Array:
        return np.asarray(scores - targets)

    def weights(self, scores: Array, targets: Array) -> Array:
        return np.ones_like(scores)
