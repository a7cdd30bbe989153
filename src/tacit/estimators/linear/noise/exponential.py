"""Noise in the choice of weights: the exponential mechanism on a public grid of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.estimators.linear.losses import HuberHinge, Logistic, Loss, Squared
from tacit.estimators.linear.noise.place import Array, Noise, Place, Problem
from tacit.estimators.linear.rows import ScaledRows
from tacit.mechanisms import Exponential as Selection
from tacit.randomness import Source
from tacit.relations import Relation

__all__ = ["Exponential", "NoisyChoice", "loss_range"]

MOST_COORDINATES = 3
MOST_POINTS = 2**18
CELLS = {1: 513, 2: 65, 3: 21}
"""Points along each coordinate, by the number of coordinates."""
RADIUS, SQUARED_RADIUS, MOST_RADIUS = 8.0, 3.0, 1e6
STEPS = 2**20
"""The loss of one unit is counted in this many steps."""
MOST_ROWS = 2**19
"""Rows of a unit for which a step is still one of the mechanism's own grid, or several."""
AT_A_TIME = 1 << 21
"""Losses of a row at a point that are computed at a time."""


@dataclass(frozen=True)
class Exponential(Noise):
    """Noise in the choice of weights from a public grid (McSherry and Talwar 2007), for up to three of them.

    One row changes the total loss of the points by at most R, the range of its loss; the event is
    ``BoundedRange(ε)``, under either relation. :class:`NoisyChoice` has the proof.
    """

    name = "exponential"

    radius: float | None = None
    """The largest norm of the weights on the grid; 8, or 3 for squared loss, if left out."""
    cells: int | None = None
    """The number of points along each coordinate."""

    def __post_init__(self) -> None:
        if self.radius is not None and _validate.positive("radius", self.radius) > MOST_RADIUS:
            raise InvalidValue("radius", self.radius, f"at most {MOST_RADIUS:g}")
        if self.cells is not None:
            _validate.count("cells", self.cells, 2)

    def place(self, problem: Problem) -> NoisyChoice:
        return NoisyChoice(problem, self)


class NoisyChoice(Place):
    """The exponential mechanism over weights (McSherry and Talwar 2007), for up to three of them.

    The grid is public: the points of a cubic lattice, ``cells`` along each coordinate, in the ball of this
    ``radius``. Point θ is chosen with probability ∝ exp(−rate·Σℓ(xᵀθ, y)).

    Proof. The privacy loss at θ is rate × (the total loss of the neighbour − that of the data) at θ, plus a
    constant. One row more adds its own loss, which over all θ, since |xᵀθ| ≤ radius, spans at most R
    (:func:`loss_range`); so the privacy loss spans at most rate·R, which is ε for rate = ε/R. There is no
    factor 2: that is for scores that move both ways. One replaced takes a loss away and adds another, which
    spans 2R: rate = ε/2R. A unit of k rows counts k times. The event is ``BoundedRange(ε)``, and implies
    ε-differential privacy (Durfee and Rogers 2019).

    Nothing is lost to rounding. The loss of a row at a point depends on the two alone, in arithmetic that
    is done element by element; it is rounded to a whole number of steps, kR/2^20 each, which widens its span
    by less than two of them, and these are in the sensitivity. Whole numbers add up exactly, lie on the
    grid of the mechanism, and its draw is exact.

    More than three coordinates, or 2^18 points, are refused: there one would sample by a Markov chain, whose
    distance from the distribution that the proof is about is not known, and which may reveal anything.

    >>> place = NoisyChoice(Problem(Logistic(), width=2, epsilon=1.0))
    >>> place.notes, place.event
    (['3209 points within 8, 0.25 apart'], BoundedRange(epsilon=1.0))
    """

    settings = Exponential
    losses = (Logistic, HuberHinge, Squared)
    kind = "exact"

    def __init__(self, problem: Problem, noise: Exponential | None = None) -> None:
        super().__init__(problem, noise)
        if problem.loss.outputs > 1:
            advice = 'Use noise="objective".'
            raise InvalidValue("noise", self.noise.name, "used for two classes, or for a number", advice)
        if problem.size > MOST_COORDINATES:
            raise InvalidValue(
                "noise", self.noise.name,
                f"used for at most {MOST_COORDINATES} weights, intercept included, and not {problem.size}: "
                "a grid of more is out of reach, and a Markov chain would void the guarantee",
                'Use fewer features, or noise="objective".',
            )  # fmt: skip
        usual = SQUARED_RADIUS if isinstance(problem.loss, Squared) else RADIUS
        self.radius = float(usual if self.noise.radius is None else self.noise.radius)
        self.cells = CELLS[problem.size] if self.noise.cells is None else int(self.noise.cells)
        if self.cells**problem.size > MOST_POINTS:
            raise InvalidValue(
                "cells", self.cells, f"such that there are at most 2^18 points: {self.cells}^{problem.size}"
            )
        self.points = lattice(self.radius, self.cells, problem.size)
        self.range = loss_range(problem.loss, self.radius)
        one_way = problem.relation is Relation.ADD_REMOVE
        if problem.unit.rows > MOST_ROWS:
            raise InvalidValue("rows_per_unit", problem.unit.rows, f"at most {MOST_ROWS}")
        self._step = problem.unit.rows * self.range / STEPS
        self._choose = Selection(float(STEPS + 2 * problem.unit.rows), problem.epsilon, one_way)
        self.event = self._choose.event
        self.notes.append(
            f"{len(self.points)} points within {self.radius:.4g}, "
            f"{2 * self.radius / (self.cells - 1):.4g} apart"
        )

    def noise_and_signal(self) -> tuple[float, float] | None:
        """The loss that the choice gives away, (sensitivity/ε)·ln points, against n·R.

        McSherry and Talwar (2007). R is the range of the loss of one row, so that n·R is the most by which
        rows can prefer a point.
        """
        rows = self.problem.population
        return None if rows is None else (self._given_away, rows * self.range)

    def expected(self) -> str | None:
        """The expected loss of the chosen point, at most (sensitivity/ε)·(1 + ln points) above the best."""
        rows = self.problem.population
        if rows is None:
            return None
        above = self._given_away * (1 + 1 / math.log(len(self.points))) / rows
        return f"mean loss expected at most {above:.3g} above that of the best point of the grid"

    @property
    def _given_away(self) -> float:
        spans = self.problem.unit.rows * (1 if self.problem.relation is Relation.ADD_REMOVE else 2)
        return spans * self.range / self.problem.epsilon * math.log(len(self.points))

    def solve(self, rows: ScaledRows, source: Source) -> Array:
        chosen = replace(self._choose, random_state=source)(-self.totals(rows))
        return np.array(self.points[chosen][:, None])

    def totals(self, rows: ScaledRows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The total loss at every point, in steps."""
        total = np.zeros(len(self.points), dtype=np.int64)
        size = max(1, AT_A_TIME // len(self.points))
        for x, y, w in rows.weighted():
            for start in range(0, len(x), size):
                part = slice(start, start + size)
                total += self._steps(x[part], y[part], w if isinstance(w, float) else w[part]).sum(axis=0)
        return total

    def _steps(
        self, x: Array, y: Array, counted: Array | float = 1.0
    ) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """The loss of each row at each point. No matrix product: how that rounds may depend on other rows."""
        scores = np.zeros((len(x), len(self.points)))
        for j in range(self.problem.width):
            scores += x[:, j, None] * self.points[:, j]
        each = self.problem.loss.value(scores.reshape(-1, 1), np.repeat(y, len(self.points), axis=0))
        return np.rint(counted * (each / self._step).reshape(scores.shape)).astype(np.int64)


def loss_range(loss: Loss, radius: float) -> float:
    """R: how much the loss of one row can differ between scores in ±``radius``.

    Logistic loss and hinge fall as a score gets righter: from their value at −r to that at r, for either
    class; ln(1 + e^r) − ln(1 + e^(−r)) = r where no cap bends it. Squared: from y = ±1 to the other end,
    less what is left at the near one, ½(1+r)² − ½(1−r)² = 2r for r ≤ 1, ½(1+r)² beyond.
    """
    if isinstance(loss, Squared):
        return 2 * radius if radius <= 1 else (1 + radius) ** 2 / 2
    ends = loss.value(np.array([[-radius], [radius]]), np.ones((2, 1)))
    return float(ends[0] - ends[1])


def lattice(radius: float, cells: int, size: int) -> Array:
    """The points of a lattice on [−radius, radius]^size that lie in the ball."""
    along = np.linspace(-radius, radius, cells)
    points = np.stack(np.meshgrid(*[along] * size, indexing="ij"), axis=-1).reshape(-1, size)
    norms = np.sqrt(np.square(points).sum(axis=1))
    return np.asarray(points[norms <= radius * (1 + 1e-12)])
