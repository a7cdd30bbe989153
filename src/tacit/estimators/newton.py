"""The minimum of a penalised, tilted empirical risk, to a certified gradient.

J(Θ) = Σᵢ ℓ(xᵢᵀΘ, yᵢ) + ½ Σⱼ penaltyⱼ‖Θⱼ‖² + ⟨tilt, Θ⟩ is convex, and strongly so where all penalties are
positive; then ‖∇J(Θ)‖ ≤ γ puts Θ within γ/min(penalty) of the minimum. Newton's method with
backtracking gets there from anywhere; the number of steps it takes is not shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from tacit.errors import EngineFailed
from tacit.estimators.losses import Loss, Softmax
from tacit.estimators.rows import Rows

__all__ = ["minimise"]

Array = NDArray[np.float64]

MOST_STEPS = 500
DIRECT = 2_000
"""Up to this many coordinates the Hessian is formed and factored, beyond it only multiplied with."""


def minimise(loss: Loss, rows: Rows, penalty: Array, tilt: Array, tolerance: float) -> Array:
    """Θ (width, outputs) with ‖∇J(Θ)‖₂ ≤ ``tolerance``; ``penalty`` has one entry per coordinate of a row."""
    objective = _Objective(loss, rows, penalty[:, None], tilt)
    theta = np.zeros_like(tilt)
    value, gradient = objective(theta)
    for _ in range(MOST_STEPS):
        size = math.sqrt(float(np.square(gradient).sum()))
        if size <= tolerance:
            return theta
        step = objective.newton_step(theta, gradient, min(0.1, size**0.5))
        slope = float((gradient * step).sum())
        if not slope < 0:
            step, slope = -gradient, -size * size
        length = 1.0
        while True:
            trial = theta + length * step
            tried, tried_gradient = objective(trial)
            flat = abs(tried - value) <= 1e-13 * (1 + abs(value))
            smaller = float(np.square(tried_gradient).sum()) < size * size
            if tried <= value + 1e-4 * length * slope or (flat and smaller) or length < 1e-12:
                break
            length /= 2
        theta, value, gradient = trial, tried, tried_gradient
    raise EngineFailed(
        "The solver did not reach the accuracy that the guarantee needs; nothing was released.",
        "The charge stands. Use a larger penalty (smaller C), or fewer features.",
        engine="newton",
    )


class _Objective:
    """J, its gradient and its Newton steps, one pass over the rows each."""

    def __init__(self, loss: Loss, rows: Rows, penalty: Array, tilt: Array) -> None:
        self.loss, self.rows, self.penalty, self.tilt = loss, rows, penalty, tilt

    def __call__(self, theta: Array) -> tuple[float, Array]:
        value = float((self.penalty * np.square(theta)).sum() / 2 + (self.tilt * theta).sum())
        gradient = self.penalty * theta + self.tilt
        for x, y in self.rows.blocks():
            scores = x @ theta
            value += float(self.loss.value(scores, y).sum())
            gradient = gradient + x.T @ self.loss.slope(scores, y)
        return value, gradient

    def newton_step(self, theta: Array, gradient: Array, accuracy: float) -> Array:
        if isinstance(self.loss, Softmax):
            return self._by_products(theta, gradient, accuracy)
        if len(theta) > DIRECT:
            return self._by_products(theta, gradient, accuracy)
        return self._direct(theta, gradient)

    def _direct(self, theta: Array, gradient: Array) -> Array:
        """One Cholesky factor per output; outputs do not mix."""
        width, outputs = theta.shape
        hessians = [np.diag(np.broadcast_to(self.penalty[:, 0], (width,)).copy()) for _ in range(outputs)]
        for x, y in self.rows.blocks():
            weights = self.loss.weights(x @ theta, y)
            for k in range(outputs):
                root = x * np.sqrt(weights[:, k : k + 1])
                hessians[k] += root.T @ root
        return np.column_stack([_solve(hessians[k], -gradient[:, k]) for k in range(outputs)])

    def _by_products(self, theta: Array, gradient: Array, accuracy: float) -> Array:
        return _conjugate_gradients(self._product(theta), -gradient, self._preconditioner(theta), accuracy)

    def _product(self, theta: Array) -> Callable[[Array], Array]:
        def times(direction: Array) -> Array:
            result = self.penalty * direction
            for x, y in self.rows.blocks():
                scores, along = x @ theta, x @ direction
                if isinstance(self.loss, Softmax):
                    p = self.loss.slope(scores, np.zeros_like(scores))
                    along = p * (along - (p * along).sum(axis=1, keepdims=True))
                else:
                    along = self.loss.weights(scores, y) * along
                result = result + x.T @ along
            return np.asarray(result)

        return times

    def _preconditioner(self, theta: Array) -> Array:
        """The diagonal of the Hessian."""
        diagonal = np.broadcast_to(self.penalty, theta.shape).copy()
        for x, y in self.rows.blocks():
            scores = x @ theta
            if isinstance(self.loss, Softmax):
                p = self.loss.slope(scores, np.zeros_like(scores))
                diagonal += np.square(x).T @ (p * (1 - p))
            else:
                diagonal += np.square(x).T @ self.loss.weights(scores, y)
        return np.maximum(diagonal, 1e-12)


def _solve(hessian: Array, right: Array) -> Array:
    try:
        return np.asarray(cho_solve(cho_factor(hessian, lower=True, check_finite=False), right))
    except LinAlgError:
        ridge = 1e-10 * (1 + np.trace(hessian) / len(hessian))
        return np.asarray(np.linalg.solve(hessian + ridge * np.eye(len(hessian)), right))


def _conjugate_gradients(
    product: Callable[[Array], Array], right: Array, diagonal: Array, accuracy: float
) -> Array:
    x, residual = np.zeros_like(right), right.copy()
    z = residual / diagonal
    direction, rho = z.copy(), float((residual * z).sum())
    goal = accuracy * math.sqrt(float(np.square(right).sum()))
    for _ in range(min(right.size, 500)):
        image = product(direction)
        length = rho / float((direction * image).sum())
        x += length * direction
        residual -= length * image
        if math.sqrt(float(np.square(residual).sum())) <= goal:
            break
        z = residual / diagonal
        rho, before = float((residual * z).sum()), rho
        direction = z + (rho / before) * direction
    return x
