"""Noise on the output: the minimum, then noise as large as one unit can move it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tacit import events
from tacit.estimators.linear.losses import HuberHinge, Logistic, Softmax
from tacit.estimators.linear.newton import certified, reachable
from tacit.estimators.linear.noise.place import Array, Place, Task
from tacit.estimators.linear.rows import Rows
from tacit.mechanisms import Gaussian, Norm
from tacit.randomness import Source

__all__ = ["Output"]

ACCURACY = 1e-6
"""The solver's error, at the least, as a share of the sensitivity; twice that is added to it."""
PENALTY = 10.0
"""λ in standard deviations of the noise that the gradient would need."""


class Output(Place):
    """Output perturbation (Chaudhuri, Monteleoni and Sarwate 2011): min Σℓ + λ/2‖Θ‖², plus noise.

    The objective is λ-strongly convex and one row changes its gradient by at most L (‖x‖ ≤ 1), so the
    minimum moves by at most L/λ in ℓ2, 2L/λ if a row is replaced; a minimum found to ‖∇‖ ≤ γ by another
    2γ/λ. γ is public, and what :func:`~tacit.estimators.linear.newton.reachable` says that float64 can reach.
    For δ = 0 the noise has density ∝ exp(−ε‖v‖₂/sensitivity), a Gamma radius in a uniform direction, and
    not a Laplace variable per coordinate, which would cost √d times as much; for δ > 0 it is Gaussian.

    λ is chosen, where it is not given, so that the noise moves no score by more than a fraction of one.
    """

    name = "output"
    losses = (Logistic, HuberHinge, Softmax)

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        moved = task.sensitivity(task.loss.lipschitz)
        per_unit = self._mechanism(1.0)
        spread = float(np.sqrt(task.size + 1)) / task.epsilon if isinstance(per_unit, Norm) else (
            per_unit.event.noise_multiplier
        )  # fmt: skip
        self.penalty = PENALTY * moved * spread**0.5 if task.penalty is None else task.penalty
        self._tolerance = reachable(task.loss, self.penalty, 0.0, ACCURACY * moved, moved)
        self.sensitivity = (moved + 2 * self._tolerance) / self.penalty
        self._noise = self._mechanism(self.sensitivity)
        self.spread = self.sensitivity * spread
        self.event: events.Event = self._noise.event
        self.notes.append(f"penalty {self.penalty:.4g}, noise {self.spread:.4g} per weight")

    def _mechanism(self, sensitivity: float) -> Norm | Gaussian:
        if self.task.delta == 0:
            return Norm(sensitivity, self.task.epsilon)
        return Gaussian(sensitivity, epsilon=self.task.epsilon, delta=self.task.delta)

    def solve(self, rows: Rows, source: Source) -> Array:
        penalty = np.full(rows.width, self.penalty)
        tilt = np.zeros((rows.width, rows.outputs))
        found = certified(self.task.loss, rows, penalty, tilt, self._tolerance)
        return np.asarray(replace(self._noise, random_state=source)(found))

    def spreads(self) -> tuple[float, float]:
        return 0.0, self.spread
