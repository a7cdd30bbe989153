"""One pass over the rows: how many there are in each cell, and their sums. All that k-means reads of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.data.arithmetic import lengths
from tacit.estimators.ball import Ball, on_grid
from tacit.estimators.blocks import added
from tacit.estimators.counting import deviation_of
from tacit.estimators.private import PrivateRows
from tacit.mechanisms import Gaussian, Laplace
from tacit.randomness import Source
from tacit.relations import Relation

__all__ = ["GRID", "Cells", "Nearest", "Pass", "Tally", "tallies"]

Array = NDArray[np.float64]

GRID = 2**20
"""Steps to the radius of the ball in every sum."""
TYPICAL = 0.25
"""The squared distance of a centre from the origin, in radii, for which counts and sums share the noise."""


class Cells(Protocol):
    """A partition of the ball, made from what is public or was released."""

    @property
    def number(self) -> int:
        """How many cells there are."""
        ...

    def places(self, rows: Array) -> NDArray[np.int64]:
        """The cell of each row on the grid, from that row alone."""
        ...


class Nearest:
    """The cells of centres: a row belongs to the centre that is nearest, the first of them in a tie.

    Centres are put on the grid of the rows too. Then x·c − ‖c‖²/2, which is largest for the nearest centre c,
    is computed without rounding, and does not depend on the other rows.
    """

    def __init__(self, centres: Array, grid: int = GRID) -> None:
        self.number = len(centres)
        self._centres = on_grid(centres, grid)
        self._half = np.square(self._centres).sum(axis=1) / 2

    def places(self, rows: Array) -> NDArray[np.int64]:
        """The number of the nearest centre of each row on the grid."""
        return np.asarray((rows @ self._centres.T - self._half).argmax(axis=1))


@dataclass(frozen=True)
class Tally:
    """Noisy counts, sums and sums of squares of the cells, in radii of the ball."""

    counts: Array
    sums: Array
    squares: Array | None
    deviation: float
    """The standard deviation of the noise on a coordinate of the sums."""

    def centres(self, before: Array, spread: float) -> Array:
        """The mean of each cell, drawn towards the centre ``before`` where noise outweighs the rows.

        It is the posterior mean for centres that lie ``spread`` radii around those before and are measured
        with the noise of the sums; a cell that seems to be empty keeps the centre it had.
        """
        size = np.maximum(self.counts, 1e-9)[:, None]
        trust = 1.0 / (1.0 + (self.deviation / (np.maximum(size, 1.0) * spread)) ** 2)
        trust = np.where(self.counts[:, None] > 1.0, trust, 0.0)
        mean = self.sums / size
        mean = mean / np.maximum(lengths(mean), 1.0)[:, None]
        return np.asarray(before + trust * (mean - before))


@dataclass(frozen=True)
class Pass:
    """The noise of one pass: on (w·1, x, v·x²) of each row, in the row's cell and nowhere else.

    Sensitivity. ‖x‖₂ ≤ 1, ‖x‖₁ ≤ L and Σ x_j² ≤ 1. Adding a row moves the joint vector of all cells by at
    most √(w² + 1 + v²) in ℓ2 and w + L + v in ℓ1. Replacing a row by one of another cell moves it by √2 and 2
    times that; by one of the same cell, by at most √(4 + 2v²) in ℓ2 (x may turn into −x, and two vectors of
    squares, which have no negative coordinate and are at most 1 long, are at most √2 apart), and less in ℓ1.

    Weights. With noise of deviation σ on the joint vector, a centre c of m rows has the squared error
    (d + ‖c‖²/w²)σ²/m², and σ grows with √(1 + w²), or w + L. The least is at w⁴ = ‖c‖²/d in ℓ2 and
    w³ = L‖c‖²/d in ℓ1 (Su, Cao, Li, Bertino and Jin 2016), for a public guess of ‖c‖².
    """

    ball: Ball
    count_weight: float
    square_weight: float
    mechanism: Gaussian | Laplace

    @staticmethod
    def weight(ball: Ball, gaussian: bool) -> float:
        """The weight w of counts, a multiple of 1/GRID: then w times a count below 2^33 is exact."""
        width = ball.lower.size
        best = math.sqrt(math.sqrt(TYPICAL / width))
        if not gaussian:
            best = float(np.cbrt(TYPICAL * ball.largest_l1 / width))
        return math.ceil(best * GRID) / GRID

    @staticmethod
    def sensitivity(ball: Ball, relation: Relation, count: float, square: float, norm: int) -> float:
        """How far one row moves the joint vector, in ℓ1 or ℓ2."""
        replaced = relation is Relation.REPLACE_ONE
        if norm == 1:
            return (2 if replaced else 1) * (count + ball.largest_l1 + square)
        if replaced:
            return math.sqrt(max(2 * (count**2 + 1), 4.0) + 2 * square**2)
        return math.sqrt(count**2 + 1 + square**2)

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise on a coordinate of a sum, in radii."""
        return deviation_of(self.mechanism)

    def __call__(self, cells: Cells, blocks: Iterable[PrivateRows], source: Source) -> Tally:
        """Count and add up the rows of each cell, over all blocks of rows, with noise."""
        exact = added(tallies(self, cells, rows) for rows in blocks)
        width = self.ball.lower.size
        scale = np.full(exact.shape[1], 1 / GRID)
        scale[0] = self.count_weight
        scale[1 + width :] *= self.square_weight
        noisy = dataclasses.replace(self.mechanism, random_state=source)(exact * scale)
        noisy = noisy / (scale * np.where(np.arange(scale.size) > 0, GRID, 1))
        squares = noisy[:, 1 + width :] if self.square_weight > 0 else None
        return Tally(noisy[:, 0], noisy[:, 1 : 1 + width], squares, self.deviation)


def tallies(reading: Pass, cells: Cells, rows: PrivateRows) -> NDArray[np.int64]:
    """For each cell its rows, their sum, and where asked for the sum of their squares, in whole steps.

    A sum over rows: that of several blocks of rows is the sum of what this returns for each of them.
    """
    width, squared = reading.ball.lower.size, reading.square_weight > 0
    total = np.zeros((cells.number, 1 + width * (2 if squared else 1)), dtype=np.int64)
    for block, counts in reading.ball.blocks(rows, GRID):
        own = block[counts]
        member = (cells.places(own)[:, None] == np.arange(cells.number)).astype(np.float64)
        parts = [np.ones((len(own), 1)), own]
        if squared:
            parts.append(np.floor(own * own / GRID))
        total += (member.T @ np.concatenate(parts, axis=1)).astype(np.int64)
    return total
