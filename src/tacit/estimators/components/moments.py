"""Second moments of rows in a ball: one additive pass over the rows, and the noise that may be put on it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit import events
from tacit.estimators.ball import Ball
from tacit.estimators.blocks import added
from tacit.estimators.counting import deviation_of
from tacit.estimators.private import PrivateRows, Public, Rows
from tacit.mechanisms import Gaussian, Laplace, Wishart
from tacit.randomness import Source
from tacit.relations import Relation

__all__ = ["COUNT", "GRID", "MEAN", "Moments", "NoisyTrace", "NoisyTriangle", "moments"]

Array = NDArray[np.float64]

GRID = 2**15
"""Steps to the radius of the ball: squares of a block of rows stay below 2^53."""
MEAN = 0.6
"""ρ, the weight of Σx beside Σxxᵀ where the mean is bought."""
COUNT = 0.1
"""η, the weight of the number of rows."""

ROUNDING = 1 + 2.0**-20
"""Covers what is lost where sums of more than 2^23 rows are rounded to float64, up to 2^33 numbers in all."""


@dataclass(frozen=True)
class Moments:
    """Σxxᵀ, Σx and n of rows in the unit ball, exact or with noise."""

    matrix: Array
    vector: Array
    count: float

    def about(self, mean: Array) -> Array:
        """Σ(x − mean)(x − mean)ᵀ."""
        cross = np.outer(self.vector, mean)
        return np.asarray(self.matrix - cross - cross.T + self.count * np.outer(mean, mean))


def moments(ball: Ball, rows: Rows) -> Moments:
    """The exact moments, in one pass over the blocks of the rows."""
    total = added(rows.each(lambda block: _products(ball, block)))
    return Moments(total[:-1, :-1] / GRID**2, total[:-1, -1] / GRID, float(total[-1, -1]))


def _products(ball: Ball, rows: PrivateRows) -> NDArray[np.int64]:
    """Σzzᵀ for z = (x, 1), x in whole steps of the grid: the sum over blocks of rows is that of all."""
    size = ball.lower.size + 1
    total = np.zeros((size, size), np.int64)
    for block, counts in ball.blocks(rows, GRID):
        own = np.column_stack([block[counts], np.ones(int(counts.sum()))])
        total += (own.T @ own).astype(np.int64)
    return total


@dataclass(frozen=True)
class NoisyTriangle:
    """Gaussian or Laplace noise on one vector: the triangle of Σxxᵀ, ρΣx and ηn.

    The lower triangle is the upper one mirrored: noise that is not symmetric would be a release of every
    entry off the diagonal twice, with twice the cost. ``between`` is the weight of entries off the diagonal:
    √2 makes ℓ2 the Frobenius norm, so that they get 1/√2 of the noise (our reading of Dwork, Talwar,
    Thakurta and Zhang 2014, "Analyze Gauss", who put the same noise on all of them); 1 is SuLQ (Blum, Dwork,
    McSherry and Nissim 2005) with its noise made symmetric.

    Sensitivity in ℓ2, for ‖x‖ ≤ 1: ‖xxᵀ‖ ≤ 1, so adding a row moves the vector by √(1 + ρ² + η²) at most.
    Replacing x by y, with c = xᵀy, moves it by the root of ‖x‖⁴ + ‖y‖⁴ − 2c² + ρ²(‖x‖² + ‖y‖² − 2c), which
    for given c grows with both norms; at norms 1 it is largest at c = −ρ²/2: √(2 + 2ρ² + ρ⁴/2), √2 without
    the mean. A row that does not count is zero with n one less, which adds η² to less than that. With
    ``between`` = 1 all of them are upper bounds. In ℓ1, with ``between`` = 1 and ‖x‖₁ ≤ L, the triangle
    has norm (‖x‖₁² + ‖x‖²)/2 ≤ (L² + 1)/2, ρΣx at most ρL, and a replaced row moves twice as much.
    """

    width: int
    ratio: float
    between: float
    mechanism: Gaussian | Laplace
    kind = "exact"

    @staticmethod
    def sensitivity(ball: Ball, relation: Relation, ratio: float, norm: int) -> float:
        """How far one row moves the vector."""
        replaced = relation is Relation.REPLACE_ONE
        if norm == 1:
            most = ball.largest_l1
            return ((most**2 + 1) / 2 + ratio * most + COUNT) * (2 if replaced else 1)
        if replaced:
            return math.sqrt(max(2 + 2 * ratio**2 + ratio**4 / 2, 1 + ratio**2 + COUNT**2))
        return math.sqrt(1 + ratio**2 + COUNT**2)

    @classmethod
    def of(cls, public: Public, ball: Ball, ratio: float, between: float) -> NoisyTriangle:
        """Gaussian noise for δ > 0, Laplace noise for δ = 0."""
        l1, l2 = (
            public.unit.rows * ROUNDING * cls.sensitivity(ball, public.relation, ratio, norm)
            for norm in (1, 2)
        )
        mechanism: Gaussian | Laplace = (
            Gaussian(l2, epsilon=public.epsilon, delta=public.delta)
            if public.delta > 0
            else Laplace(l1, epsilon=public.epsilon)
        )
        return cls(public.width, ratio, between, mechanism)

    @property
    def event(self) -> events.Event:
        """What the release costs."""
        return self.mechanism.event

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise on an entry off the diagonal of Σxxᵀ."""
        return deviation_of(self.mechanism) / self.between

    def __call__(self, exact: Moments, source: Source) -> Moments:
        """The moments with noise; Σx is zero where it is not released."""
        upper = np.triu_indices(self.width)
        weights = np.where(upper[0] == upper[1], 1.0, self.between)
        parts = [exact.matrix[upper] * weights, np.array([exact.count * COUNT])]
        if self.ratio > 0:
            parts.append(exact.vector * self.ratio)
        noisy = dataclasses.replace(self.mechanism, random_state=source)(np.concatenate(parts))
        matrix = np.zeros((self.width, self.width))
        matrix[upper] = noisy[: weights.size] / weights
        matrix.T[upper] = matrix[upper]
        rest = noisy[weights.size :]
        vector = rest[1:] / self.ratio if self.ratio > 0 else np.zeros(self.width)
        return Moments(matrix, vector, float(rest[0] / COUNT))


@dataclass(frozen=True)
class NoisyTrace:
    """:class:`~tacit.mechanisms.Wishart` noise on Σzzᵀ, for δ = 0.

    z = (x, ρ) where the mean is bought: Σzzᵀ holds Σxxᵀ, ρΣx and ρ²n, and has the sensitivity ‖z‖² ≤ 1 + ρ²
    in the trace norm, twice that where a row is replaced. Where it is not, n stands alone in the last
    corner, with weight η² in place of ρ².
    """

    width: int
    ratio: float
    mechanism: Wishart
    kind = "float64"

    @classmethod
    def of(cls, public: Public, ratio: float) -> NoisyTrace:
        """The release under the relation and for the unit of ``public``."""
        times = public.unit.rows * ROUNDING * (2 if public.relation is Relation.REPLACE_ONE else 1)
        size = 1 + max(ratio, COUNT) ** 2
        return cls(public.width, ratio, Wishart(times * size, public.epsilon))

    @property
    def event(self) -> events.Event:
        """What the release costs."""
        return self.mechanism.event

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise on an entry off the diagonal of Σxxᵀ."""
        return self.mechanism.deviation(self.width + 1) / math.sqrt(2)

    def __call__(self, exact: Moments, source: Source) -> Moments:
        """The moments with noise; Σx is zero where it is not released."""
        corner = max(self.ratio, COUNT) ** 2
        whole = np.zeros((self.width + 1, self.width + 1))
        whole[:-1, :-1] = exact.matrix
        whole[:-1, -1] = whole[-1, :-1] = self.ratio * exact.vector
        whole[-1, -1] = corner * exact.count
        noisy = dataclasses.replace(self.mechanism, random_state=source)(whole)
        vector = noisy[:-1, -1] / self.ratio if self.ratio > 0 else np.zeros(self.width)
        return Moments(noisy[:-1, :-1], vector, float(noisy[-1, -1] / corner))
