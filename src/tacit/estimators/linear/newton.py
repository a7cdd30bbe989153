"""The minimum of a penalised, tilted empirical risk, to a certified gradient.

J(Θ) = Σᵢ ℓ(xᵢᵀΘ, yᵢ) + ½ Σⱼ penaltyⱼ‖Θⱼ‖² + ⟨tilt, Θ⟩ is convex, and strongly so where all penalties are
positive; then ‖∇J(Θ)‖ ≤ γ puts Θ within γ/min(penalty) of the minimum.

Newton's method with a search along each step gets there from anywhere, in exact arithmetic. Where it is
slow, because a loss with a sharp corner and next to no penalty is all but piecewise linear, it is led there:
corners are smoothed, as interior point methods do, or else the penalty is raised, much at first, then less
and less, each minimum being the start for the next. The number of steps is not shown.

That it arrives in float64, on whatever rows, is not proven here: a proof that rests on the minimum takes it
from :mod:`tacit.estimators.linear.certified`, which checks the point and has a second method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from tacit.estimators.linear.losses import HuberHinge, Loss, SmoothedHinge, Softmax
from tacit.estimators.linear.rows import ScaledRows

__all__ = ["minimise"]

Array = NDArray[np.float64]

MOST_STEPS, STAGE_STEPS = 500, 50
"""Steps towards the minimum, and towards an easier one on the way."""
DIRECT = 2_000
"""Up to this many coordinates the Hessian is formed and factored, beyond it only multiplied with."""
SMALL = 64
"""The same where outputs mix, and there are as many coordinates for each."""
STAGES, SMOOTHED, STAGE = 16, 24, 8.0
"""How many easier minima are sought on the way at most, where corners are smoothed too, and by what factor
each is easier than the next."""


class Data(Protocol):
    """Rows and their targets, block by block."""

    def weighted(self) -> Iterator[tuple[Array, Array, Array | float]]:
        """(rows, targets, weights)."""

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class _OneOutput:
    """Rows with the targets of one output."""

    rows: ScaledRows
    output: int

    def weighted(self) -> Iterator[tuple[Array, Array, Array | float]]:
        return ((x, y[:, self.output : self.output + 1], w) for x, y, w in self.rows.weighted())

    def __len__(self) -> int:
        return len(self.rows)


def minimise(loss: Loss, rows: ScaledRows, penalty: Array, tilt: Array, tolerance: float) -> Array:
    """Θ (width, outputs) with ‖∇J(Θ)‖₂ ≤ ``tolerance``, or the best that is found.

    ``penalty`` has one entry per coordinate of a row. Outputs that do not mix are found one by one: a search
    along one step for all of them is held up by whichever is at a corner.
    """
    if loss.outputs == 1 or isinstance(loss, Softmax):
        return _minimum(loss, rows, penalty, tilt, tolerance)
    alone, enough = replace(loss, outputs=1), tolerance / math.sqrt(loss.outputs)
    return np.column_stack([
        _minimum(alone, _OneOutput(rows, k), penalty, tilt[:, k : k + 1], enough)
        for k in range(loss.outputs)
    ])  # fmt: skip


def _minimum(loss: Loss, rows: Data, penalty: Array, tilt: Array, tolerance: float) -> Array:
    with np.errstate(all="ignore"):
        objective = _Objective(loss, rows, penalty, tilt)
        found = _descended(objective, np.zeros_like(tilt), tolerance, STAGE_STEPS)
        if objective.reached(found, tolerance):
            return found
        start = np.zeros_like(tilt)
        for stage in _stages(loss, rows, penalty, tilt):
            start = _descended(stage, start, tolerance, STAGE_STEPS)
        led = _descended(objective, start, tolerance, MOST_STEPS)
        if objective.reached(led, tolerance):
            return led
        return min(led, _descended(objective, found, tolerance, MOST_STEPS), key=objective.size)


def _stages(loss: Loss, rows: Data, penalty: Array, tilt: Array) -> Iterator[_Objective]:
    """Objectives without corners, or with a larger penalty, ever closer to the given one."""
    if isinstance(loss, HuberHinge):
        for power in range(SMOOTHED):
            smooth = SmoothedHinge(loss.outputs, loss.corner, barrier=STAGE**-power)
            yield _Objective(smooth, rows, penalty, tilt)
        return
    for power in range(STAGES, 0, -1):
        raised = np.maximum(penalty, np.minimum(penalty * STAGE**power, 1 + len(rows) * loss.curvature))
        yield _Objective(loss, rows, raised, tilt)


def _descended(objective: _Objective, theta: Array, tolerance: float, steps: int) -> Array:
    """Newton's method from ``theta``: the point of the smallest gradient on its way."""
    gradient = objective(theta)
    best, least = theta, _norm(gradient)
    for _ in range(min(steps, MOST_STEPS)):
        if least <= tolerance or not math.isfinite(least):
            break
        step = objective.newton_step(theta, gradient, min(0.1, least**0.5))
        if not np.isfinite(step).all() or not float((gradient * step).sum()) < 0:
            step = -gradient
        theta, gradient = _searched(objective, theta, gradient, step)
        size = _norm(gradient)
        if size < least:
            best, least = theta, size
    return best


def _searched(objective: _Objective, theta: Array, before: Array, step: Array) -> tuple[Array, Array]:
    """A point along the step where the slope along it is at most half of what it was, and its gradient.

    J is convex, so along the step its slope only grows: from below zero at the start to above it beyond the
    lowest point, which halving the interval between the two closes in on. Slopes, unlike values, tell
    where the lowest point is to the last digit.
    """
    start = float((before * step).sum())
    low, high = 0.0, math.inf
    length = 1.0
    point, gradient = theta, before
    for _ in range(60):
        trial = theta + length * step
        tried = objective(trial)
        slope = float((tried * step).sum())
        if math.isfinite(slope):
            point, gradient = trial, tried
            if abs(slope) <= -0.5 * start:
                break
        if slope < 0:
            low = length
        else:
            high = length
        length = 2 * low if math.isinf(high) else (low + high) / 2
    return point, gradient


def _norm(gradient: Array) -> float:
    return math.sqrt(float(np.square(gradient).sum()))


class _Objective:
    """The gradient of J and Newton steps, one pass over the rows each."""

    def __init__(self, loss: Loss, rows: Data, penalty: Array, tilt: Array) -> None:
        self.loss, self.rows, self.penalty, self.tilt = loss, rows, penalty[:, None], tilt

    def __call__(self, theta: Array) -> Array:
        """∇J."""
        gradient = self.penalty * theta + self.tilt
        for x, y, w in self.rows.weighted():
            gradient = gradient + x.T @ (w * self.loss.slope(x @ theta, y))
        return gradient

    def size(self, theta: Array) -> float:
        """‖∇J‖, infinite where it is no number."""
        found = _norm(self(theta))
        return found if math.isfinite(found) else math.inf

    def reached(self, theta: Array, tolerance: float) -> bool:
        """Whether the gradient there is as small as that."""
        return self.size(theta) <= tolerance

    def newton_step(self, theta: Array, gradient: Array, accuracy: float) -> Array:
        if isinstance(self.loss, Softmax):
            small = theta.size <= SMALL
            return self._whole(theta, gradient) if small else self._by_products(theta, gradient, accuracy)
        if len(theta) > DIRECT:
            return self._by_products(theta, gradient, accuracy)
        return self._direct(theta, gradient)

    def _direct(self, theta: Array, gradient: Array) -> Array:
        """One Cholesky factor per output; outputs do not mix."""
        width, outputs = theta.shape
        hessians = [np.diag(np.broadcast_to(self.penalty[:, 0], (width,)).copy()) for _ in range(outputs)]
        for x, y, w in self.rows.weighted():
            weights = w * self.loss.weights(x @ theta, y)
            for k in range(outputs):
                root = x * np.sqrt(weights[:, k : k + 1])
                hessians[k] += root.T @ root
        return np.column_stack([_solve(hessians[k], -gradient[:, k]) for k in range(outputs)])

    def _whole(self, theta: Array, gradient: Array) -> Array:
        """One Cholesky factor for all outputs, which mix by diag(p) − ppᵀ."""
        width, outputs = theta.shape
        hessian = np.diag(np.repeat(self.penalty[:, 0], outputs))
        for x, y, w in self.rows.weighted():
            p = self.loss.slope(x @ theta, np.zeros_like(y))
            for k in range(outputs):
                for m in range(outputs):
                    weights = p[:, k] * ((k == m) - p[:, m])
                    hessian[k::outputs, m::outputs] += x.T @ (w * weights[:, None] * x)
        return _solve(hessian, -gradient.ravel()).reshape(width, outputs)

    def _by_products(self, theta: Array, gradient: Array, accuracy: float) -> Array:
        return _conjugate_gradients(self._product(theta), -gradient, self._preconditioner(theta), accuracy)

    def _product(self, theta: Array) -> Callable[[Array], Array]:
        def times(direction: Array) -> Array:
            result = self.penalty * direction
            for x, y, w in self.rows.weighted():
                scores, along = x @ theta, x @ direction
                if isinstance(self.loss, Softmax):
                    p = self.loss.slope(scores, np.zeros_like(scores))
                    along = p * (along - (p * along).sum(axis=1, keepdims=True))
                else:
                    along = self.loss.weights(scores, y) * along
                result = result + x.T @ (w * along)
            return np.asarray(result)

        return times

    def _preconditioner(self, theta: Array) -> Array:
        """The diagonal of the Hessian."""
        diagonal = np.broadcast_to(self.penalty, theta.shape).copy()
        for x, y, w in self.rows.weighted():
            scores = x @ theta
            if isinstance(self.loss, Softmax):
                p = self.loss.slope(scores, np.zeros_like(scores))
                diagonal += np.square(x).T @ (w * p * (1 - p))
            else:
                diagonal += np.square(x).T @ (w * self.loss.weights(scores, y))
        return np.maximum(diagonal, 1e-12)


def _solve(hessian: Array, right: Array) -> Array:
    """A Newton step, with a little more on the diagonal where rounding leaves the Hessian indefinite."""
    scale = 1e-15 * (1 + float(np.trace(hessian)) / len(hessian))
    for power in range(6):
        try:
            ridge = 0.0 if power == 0 else scale * 100.0**power
            factor = cho_factor(hessian + ridge * np.eye(len(hessian)), lower=True, check_finite=False)
            return np.asarray(cho_solve(factor, right, check_finite=False))
        except LinAlgError:
            continue
    return right


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
