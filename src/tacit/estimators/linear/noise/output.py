"""Noise on the output: the minimum, then noise as large as one unit can move it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tacit import events
from tacit.estimators.linear.certified import certified, reachable
from tacit.estimators.linear.losses import HuberHinge, Logistic, Softmax
from tacit.estimators.linear.noise.place import Array, Noise, Place, Problem, mean_loss
from tacit.estimators.linear.rows import ScaledRows
from tacit.mechanisms import euclidean_noise
from tacit.randomness import Source

__all__ = ["NoisyOutput", "Output"]

ACCURACY = 1e-6
"""The solver's error, at the least, as a share of the sensitivity; twice that is added to it."""
PENALTY = 10.0
"""λ in standard deviations of the noise that the gradient would need."""


@dataclass(frozen=True)
class Output(Noise):
    """Noise on the minimum (Chaudhuri, Monteleoni and Sarwate 2011): nothing to set.

    One row moves the minimum of the objective by at most L/λ in ℓ2, twice that where it is replaced. The
    event is ``Pure(ε)`` or ``Gaussian``. :class:`NoisyOutput` has the proof.
    """

    name = "output"

    def place(self, problem: Problem) -> NoisyOutput:
        return NoisyOutput(problem, self)


class NoisyOutput(Place):
    """Output perturbation (Chaudhuri, Monteleoni and Sarwate 2011): min Σℓ + λ/2‖Θ‖², plus noise.

    The objective is λ-strongly convex and one row changes its gradient by at most L (‖x‖ ≤ 1), so the
    minimum moves by at most L/λ in ℓ2, 2L/λ if a row is replaced. The minimum that is found lies within γ/λ
    of the exact one, for all rows, which adds 2γ/λ (:mod:`~tacit.estimators.linear.certified`); γ is public.
    For δ = 0 the noise has density ∝ exp(−ε‖v‖₂/sensitivity), a Gamma radius in a uniform direction, and
    not a Laplace variable per coordinate, which would cost √d times as much; for δ > 0 it is Gaussian.

    λ is chosen, where it is not given, so that the noise moves no score by more than a fraction of one.
    """

    settings = Output
    losses = (Logistic, HuberHinge, Softmax)

    def __init__(self, problem: Problem, noise: Output | None = None) -> None:
        super().__init__(problem, noise)
        moved = problem.sensitivity(problem.loss.lipschitz)
        epsilon, delta = problem.epsilon, problem.delta
        spread = euclidean_noise(1.0, epsilon, delta).deviation(problem.size)
        self.penalty = PENALTY * moved * spread**0.5 if problem.penalty is None else problem.penalty
        self._tolerance = reachable(problem.loss, self.penalty, 0.0, ACCURACY * moved, moved)
        self.sensitivity = (moved + 2 * self._tolerance) / self.penalty
        self._mechanism = euclidean_noise(self.sensitivity, epsilon, delta)
        self.spread = self.sensitivity * spread
        self.event: events.Event = self._mechanism.event
        self.notes.append(f"penalty {self.penalty:.4g}, noise {self.spread:.4g} per weight")

    def solve(self, rows: ScaledRows, source: Source) -> Array:
        penalty = np.full(rows.width, self.penalty)
        tilt = np.zeros((rows.width, rows.outputs))
        found = certified(self.problem.loss, rows, penalty, tilt, self._tolerance)
        return np.asarray(replace(self._mechanism, random_state=source)(found))

    def noise_and_signal(self) -> tuple[float, float] | None:
        """Noise on the weights against the longest they can be: n times the first slope of a row, over λ."""
        rows = self.problem.population
        if rows is None:
            return None
        return self.spread * math.sqrt(self.problem.size), rows * self.problem.loss.start / self.penalty

    def expected(self) -> str | None:
        """The minimum costs λ/2‖Θ‖² beside any Θ; noise v on it moves no row's loss by more than L·‖v‖."""
        rows = self.problem.population
        if rows is None:
            return None
        above = self.problem.loss.lipschitz * self.spread * math.sqrt(self.problem.size)
        return mean_loss(above, self.penalty / (2 * rows))

    def spreads(self) -> tuple[float, float]:
        return 0.0, self.spread
