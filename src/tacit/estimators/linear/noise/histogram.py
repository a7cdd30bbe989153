"""Noise on the input: a noisy histogram of rows and targets, fitted in their place."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.estimators.linear.losses import HuberHinge, Logistic, Loss, Softmax, Squared
from tacit.estimators.linear.noise.place import Array, Noise, Place, Problem
from tacit.estimators.linear.rows import ScaledRows, Space
from tacit.mechanisms import DiscreteGaussian, DiscreteLaplace, integer_noise, without_negatives
from tacit.randomness import Source
from tacit.relations import histogram_sensitivity

__all__ = ["Input", "NoisyHistogram"]

MOST_CELLS, USUAL_CELLS = 2**20, 2**16
"""How many cells there may be, and how many the default makes at most."""
USUAL_POPULATION = 10_000
"""How many rows the default grid is made for where their number is not public."""
LEAST_SPREAD = 0.5
"""Noise per count below which a finer default grid is not worth it."""
PENALTY = 0.1
"""λ in standard deviations of the noise of one count."""


@dataclass(frozen=True)
class Input(Noise):
    """Noise on the input: a noisy histogram of rows and targets is fitted in their place (Lei 2011).

    One row moves the counts by 1 in ℓ1 and ℓ2, by 2 and √2 where it is replaced. The event is ``Pure(ε)``, or
    ``ZeroConcentrated`` where δ allows less noise so. :class:`NoisyHistogram` has the proof.
    """

    name = "input"

    cells: int | None = None
    """The number of parts that each feature is cut into; chosen from ε and the population if left out."""

    def __post_init__(self) -> None:
        if self.cells is not None:
            _validate.count("cells", self.cells, 1)

    def place(self, problem: Problem) -> NoisyHistogram:
        return NoisyHistogram(problem, self)


class NoisyHistogram(Place):
    """The M-estimator of a perturbed histogram (Lei 2011), for few features.

    The box in which scaled rows are known to lie is cut into ``cells`` equal parts along each feature, and
    so is [−1, 1] for a real target; classes are cells by themselves. The intercept, a public constant, is
    not cut. The counts of all cells are made noisy, projected to counts that are not negative and add up
    to the same, and the loss is minimised on the centres of the cells, weighted with the counts.

    Proof. A row is in one cell, so one more or less moves the counts by 1 in ℓ1 and ℓ2, one replaced by 2 in
    ℓ1 and √2 in ℓ2, one unit by that times its rows. Integer noise on them is exact: discrete Laplace, event
    ``Pure(ε)``, or where δ allows less noise so, discrete Gaussian, event ``ZeroConcentrated``. All else is
    computed from the noisy counts and public facts.

    Cells and their noise grow in number like cells^features; more than 2^20 cells are refused.

    By default there are about (εn)^(2/(d+4))/2 cells along each of the d coordinates that are cut, at which
    noise, √(cells^d)/εn, and blur, 1/cells², shrink together; n is the population as declared, or 10 000.

    >>> place = NoisyHistogram(Problem(Logistic(), width=3, epsilon=1.0))
    >>> place.notes, place.event
    (['200 cells, 10 along each feature, noise 1.357 per count'], Pure(epsilon=1.0))
    """

    settings = Input
    losses = (Logistic, HuberHinge, Softmax, Squared)
    kind = "exact"

    def __init__(self, problem: Problem, noise: Input | None = None) -> None:
        super().__init__(problem, noise)
        self.features = problem.width - problem.intercept
        self._cut = self.features + isinstance(problem.loss, Squared)
        self._mechanism = self._calibrated()
        self.event, self.spread = self._mechanism.event, self._mechanism.deviation
        self.cells = self._chosen_cells() if self.noise.cells is None else int(self.noise.cells)
        self.targets = _target_centres(problem.loss, self.cells)
        self.total = self.cells**self.features * len(self.targets)
        if self.total > MOST_CELLS:
            raise InvalidValue(
                "noise", self.noise.name,
                f"used with fewer features or cells: {self.cells} along each of {self.features} features "
                f"make {self.total} cells, more than 2^20, almost all of them empty but for noise",
                'Use fewer features, noise.Input(cells=...), or noise="objective".',
            )  # fmt: skip
        self.penalty = PENALTY * self.spread if problem.penalty is None else problem.penalty
        self.notes.append(
            f"{self.total} cells, {self.cells} along each feature, noise {self.spread:.4g} per count"
        )

    def _calibrated(self) -> DiscreteLaplace | DiscreteGaussian:
        problem = self.problem
        l1, l2 = (problem.unit.rows * histogram_sensitivity(problem.relation, norm) for norm in (1, 2))
        return integer_noise(int(l1), l2, problem.epsilon, problem.delta)

    def _chosen_cells(self) -> int:
        rows = USUAL_POPULATION if self.problem.population is None else self.problem.population
        fine = float((rows / max(self.spread, LEAST_SPREAD)) ** (2 / (self._cut + 4))) / 2
        classes = 1 if isinstance(self.problem.loss, Squared) else len(_target_centres(self.problem.loss, 1))
        most = float((USUAL_CELLS / classes) ** (1 / max(self._cut, 1)))
        return max(2, min(round(fine), int(most)))

    def noise_and_signal(self) -> tuple[float, float] | None:
        """Noise on the counts of all cells against the counts, in ℓ2: the most is all rows in one cell."""
        rows = self.problem.population
        return None if rows is None else (self.spread * math.sqrt(self.total), float(rows))

    def solve(self, rows: ScaledRows, source: Source) -> Array:
        space = rows.space
        lower, upper = _box(space)
        counts = self._counts(rows, lower, upper, source)
        noisy = replace(self._mechanism, random_state=source)(counts)
        weights = without_negatives(noisy)
        held = np.flatnonzero(weights)
        x, y = self._centres(held, lower, upper, space.intercept / space.radius)
        return minimum(self.problem.loss, x, y, weights[held], self.penalty)

    def _counts(
        self, rows: ScaledRows, lower: Array, upper: Array, source: Source | None = None
    ) -> NDArray[np.int64]:
        """How many rows each cell holds; one of weight u is there with probability u, one of none is not."""
        counts = np.zeros(self.total, dtype=np.int64)
        coins = Source(None) if source is None else source
        for x, y, w in rows.weighted():
            there = (x != 0).any(axis=1)
            if not isinstance(w, float):
                there &= coins.uniforms(len(x)) < w[:, 0]
            place = _target_place(self.problem.loss, y[there], self.cells)
            share = (x[there, : self.features] - lower) / (upper - lower)
            parts = np.clip(np.floor(share * self.cells), 0, self.cells - 1).astype(np.int64)
            for j in range(self.features):
                place = place * self.cells + parts[:, j]
            counts += np.bincount(place, minlength=self.total)
        return counts

    def _centres(
        self, held: np.ndarray[tuple[int], np.dtype[np.int64]], lower: Array, upper: Array, constant: float
    ) -> tuple[Array, Array]:
        """The middle of each of these cells, as a scaled row, and its target."""
        x = np.full((held.size, self.problem.width), constant)
        place = held.copy()
        for j in reversed(range(self.features)):
            place, part = np.divmod(place, self.cells)
            x[:, j] = lower[j] + (part + 0.5) / self.cells * (upper[j] - lower[j])
        return x, self.targets[place]


def minimum(loss: Loss, x: Array, y: Array, weights: Array, penalty: float) -> Array:
    """argmin Σ weights·ℓ + λ/2‖Θ‖² on public rows. Where it stops matters to nothing but accuracy."""
    shape = (x.shape[1], y.shape[1])
    whole = float(weights.sum()) + 1.0

    def objective(flat: Array) -> tuple[float, Array]:
        theta = flat.reshape(shape)
        scores = x @ theta
        value = float(weights @ loss.value(scores, y)) + penalty / 2 * float(np.square(theta).sum())
        gradient = x.T @ (weights[:, None] * loss.slope(scores, y)) + penalty * theta
        return value / whole, gradient.ravel() / whole

    found = minimize(
        objective, np.zeros(math.prod(shape)), jac=True, method="L-BFGS-B",
        options={"maxiter": 1000, "ftol": 1e-14, "gtol": 1e-9},
    )  # fmt: skip
    return np.asarray(found.x).reshape(shape)


def _box(space: Space) -> tuple[Array, Array]:
    """Where the features of scaled rows can lie."""
    with np.errstate(invalid="ignore"):
        lower, upper = (space.lower - space.centre) / space.scale, (space.upper - space.centre) / space.scale
    least, most = np.clip(lower, -space.norm, space.norm), np.clip(upper, -space.norm, space.norm)
    return least / space.radius, np.maximum(most, least + 1e-9 * space.norm) / space.radius


def _target_centres(loss: Loss, cells: int) -> Array:
    """The target of each cell of targets, (cells, outputs)."""
    if isinstance(loss, Squared):
        return np.asarray(((np.arange(cells) + 0.5) / cells * 2 - 1)[:, None])
    if isinstance(loss, Logistic):
        return np.array([[0.0], [1.0]])
    if isinstance(loss, HuberHinge) and loss.outputs == 1:
        return np.array([[-1.0], [1.0]])
    one_hot = np.eye(loss.outputs)
    return 2 * one_hot - 1 if isinstance(loss, HuberHinge) else one_hot


def _target_place(loss: Loss, targets: Array, cells: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Which of them each target is in."""
    if isinstance(loss, Squared):
        return np.asarray(np.clip(np.floor((targets[:, 0] + 1) / 2 * cells), 0, cells - 1), dtype=np.int64)
    if loss.outputs == 1:
        return np.asarray(targets[:, 0] > 0, dtype=np.int64)
    return np.asarray(targets.argmax(axis=1), dtype=np.int64)

