"""Noise in the objective: a random linear term, then the minimum."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tacit import _gaussian, _objective, events
from tacit.errors import CalibrationError
from tacit.estimators.linear.certified import certified, reachable
from tacit.estimators.linear.losses import HuberHinge, Logistic, Softmax
from tacit.estimators.linear.noise.place import Array, Noise, Place, Problem, mean_loss
from tacit.estimators.linear.rows import ScaledRows
from tacit.mechanisms import Gaussian, Norm, normals
from tacit.randomness import Source
from tacit.relations import Relation

__all__ = ["NoisyObjective", "Objective"]

FINISH = 0.002
"""Share of ε that pays for stopping before the exact minimum."""
FINISH_DELTA = 0.01
"""The same share of δ."""
FINISH_SPREAD = 1e-4
"""The standard deviation that this second noise should have, where weights are of order 1 to 100."""
REACHED = 1e-7
"""The smallest γ: rounding leaves a gradient of this size within reach of float64 for 10⁸ rows."""


@dataclass(frozen=True)
class Objective(Noise):
    """Noise in the objective: a random linear term is added, then the minimum is released. Nothing to set.

    One row moves the gradient of the objective by at most L in ℓ2, twice that where it is replaced. The event
    is ``Pure(ε)`` (Chaudhuri, Monteleoni and Sarwate 2011), or for δ > 0 ``ObjectivePerturbation`` (Redberg,
    Koskela and Wang 2023) with a ``Gaussian``. :class:`NoisyObjective` has the proof.
    """

    name = "objective"

    def place(self, problem: Problem) -> NoisyObjective:
        return NoisyObjective(problem, self)


class NoisyObjective(Place):
    """Objective perturbation: min Σℓ + λ/2‖Θ‖² + ⟨b, Θ⟩, with approximate minima perturbed once more.

    Proof, for rows with ‖x‖ ≤ 1 and one unit more. Since b = −∇J(Θ), the density of the exact minimum is
    that of b times det ∇²J. One row changes ln det by at most c (``Loss.log_determinant``) and shifts b by
    its gradient, of norm at most L.

    * δ = 0 (Chaudhuri, Monteleoni and Sarwate 2011): b has density ∝ exp(−ε′‖b‖/L), so the loss is at most
      ε′ + c, with no slack and no n in it. Replacing a row shifts b by 2L; of the two determinants one is
      at least that of the rest and the other at most e^c times it, so c stays.
    * δ > 0: b is Gaussian, and :class:`tacit.events.ObjectivePerturbation` bounds the loss tightly
      (Redberg, Koskela and Wang 2023): the row's gradient lies on the line along x wherever it is taken.

    A solver stops within γ/λ of the minimum, for all rows (:mod:`~tacit.estimators.linear.certified`). So the
    errors of two neighbours differ by at most 2γ/λ, and a second noise covers that: the release is the
    composition of the exact minimum with this second noise (Iyengar et al. 2019), which a few thousandths of
    ε pay for.

    λ is chosen, where it is not given, as the standard deviation of b: an estimate without any data
    behind it is then b/λ, of order one.
    """

    settings = Objective
    losses = (Logistic, HuberHinge, Softmax)

    def __init__(self, problem: Problem, noise: Objective | None = None) -> None:
        super().__init__(problem, noise)
        self._bound = problem.sensitivity(problem.loss.lipschitz)
        spent, failing = problem.epsilon * (1 - FINISH), problem.delta * (1 - FINISH_DELTA)
        (self._pure if problem.delta == 0 else self._gaussian)(spent, failing)
        self.notes.append(f"penalty {self.penalty:.4g}, noise {self.spread:.4g} per weight of the gradient")

    def _log_determinant(self, penalty: float) -> float:
        return self.problem.unit.rows * self.problem.loss.log_determinant(penalty)

    def _pure(self, spent: float, failing: float) -> None:
        problem = self.problem
        root = math.sqrt(problem.size + 1) * self._bound

        def left(penalty: float) -> float:
            return spent - self._log_determinant(penalty)

        if problem.penalty is None:
            self.penalty = _gaussian.smallest(lambda x: x * left(x) >= root, root / spent)
        else:
            self.penalty = problem.penalty
        self._rate = self._left(left(self.penalty), spent) / self._bound
        self.spread = math.sqrt(problem.size + 1) / self._rate
        final = problem.epsilon - spent
        wished = FINISH_SPREAD * self.penalty * final / (2 * math.sqrt(problem.size))
        self._tolerance = self._reachable(wished)
        self._finish: Norm | Gaussian = Norm(2 * self._tolerance / self.penalty, final)
        self.event = events.Pure(problem.epsilon)

    def _gaussian(self, spent: float, failing: float) -> None:
        problem = self.problem
        rows = problem.unit.rows * (2 if problem.relation is Relation.REPLACE_ONE else 1)
        directions = min(problem.loss.directions * rows, problem.size)

        def made(multiplier: float) -> events.ObjectivePerturbation:
            penalty = multiplier * self._bound if problem.penalty is None else problem.penalty
            return events.ObjectivePerturbation(multiplier, self._log_determinant(penalty), directions)

        def private(multiplier: float) -> bool:
            event = made(multiplier)
            profile = _objective.profile(multiplier, event.log_determinant, directions, spent)
            return float(profile) <= failing

        if problem.penalty is not None:
            self._left(spent - self._log_determinant(problem.penalty), spent)
        multiplier = _gaussian.smallest(private, 1.0)
        self.spread = multiplier * self._bound
        self.penalty = self.spread if problem.penalty is None else problem.penalty
        last = _gaussian.noise_multiplier(problem.epsilon - spent, problem.delta - failing)
        self._tolerance = self._reachable(FINISH_SPREAD * self.penalty / (2 * last))
        self._finish = Gaussian(2 * self._tolerance / self.penalty, noise_multiplier=last)
        self.event = events.Compose((made(multiplier), self._finish.event))

    def _reachable(self, wished: float) -> float:
        """The gradient to stop at, in reach of float64 for a tilt of the size that there will be.

        That is the expected size. The rounding of a longer tilt exceeds γ only where ε is below about 10⁻⁷.
        """
        tilt = self.spread * math.sqrt(self.problem.size)
        return reachable(self.problem.loss, self.penalty, tilt, max(wished, REACHED), self._bound)

    def _left(self, left: float, spent: float) -> float:
        if left <= 0:
            raise CalibrationError(
                f"A penalty this small alone spends more than ε = {spent:.4g}.",
                "Use a smaller C, or leave it out so that it is chosen.",
                epsilon=self.problem.epsilon,
                delta=self.problem.delta,
            )
        return left

    def solve(self, rows: ScaledRows, source: Source) -> Array:
        shape = (rows.width, rows.outputs)
        if self.problem.delta == 0:
            tilt = Norm(1 / self._rate, 1.0, random_state=source).sample(shape)
        else:
            tilt = self.spread * normals(source, shape)
        near = certified(self.problem.loss, rows, np.full(rows.width, self.penalty), tilt, self._tolerance)
        return np.asarray(replace(self._finish, random_state=source)(near))

    def noise_and_signal(self) -> tuple[float, float] | None:
        """‖b‖ against ‖Σ gradients‖ at weights of 0, at most n times the first slope of a row."""
        rows = self.problem.population
        if rows is None:
            return None
        return self.spread * math.sqrt(self.problem.size), rows * self.problem.loss.start

    def expected(self) -> str | None:
        """The mean loss, from F(Θ̂) − min F ≤ ‖∇F(Θ̂)‖²/2λ with ∇F(Θ̂) = −b, F being λ-strongly convex.

        F is the sum of losses with its penalty, so Σℓ(Θ̂) ≤ Σℓ(Θ) + λ/2‖Θ‖² + ‖b‖²/2λ for every Θ. The second
        noise moves the mean loss by at most its length times the largest slope.
        """
        rows, size = self.problem.population, self.problem.size
        if rows is None:
            return None
        last = self.problem.loss.lipschitz * self._finish.deviation(size) * math.sqrt(size)
        above = size * self.spread**2 / (2 * self.penalty * rows) + last
        return mean_loss(above, self.penalty / (2 * rows))

    def spreads(self) -> tuple[float, float]:
        return self.spread, self._finish.deviation(self.problem.size)
