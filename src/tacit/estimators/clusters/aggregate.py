"""Sample and aggregate: k-means in many small blocks of rows, whose centres are averaged with noise."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.estimators.ball import Ball, on_grid
from tacit.estimators.clusters.passes import GRID, Nearest
from tacit.estimators.private import PrivateRows
from tacit.mechanisms import Gaussian, Laplace
from tacit.randomness import Source, uniform

__all__ = ["Round", "displacements", "reaches"]

Array = NDArray[np.float64]

STEPS = 3
"""Steps of Lloyd's algorithm within a block."""


@dataclass(frozen=True)
class Round:
    """One round: every block moves the centres by itself, and the mean of its moves is released with noise.

    All centres together are moved by at most ``reach``, in radii and ℓ2, by each block: a public bound,
    unlike a ball around the blocks' results, whose size depends on them. A row is in one of ``blocks``
    blocks, and may change all that this block says, by 2·``reach``, under either relation; so one unit of k
    rows moves the sum over blocks by 2k·``reach`` in ℓ2, and √(number of coordinates) times that in ℓ1. The
    number of blocks is public, so the mean needs no count.
    """

    ball: Ball
    blocks: int
    reach: float
    mechanism: Gaussian | Laplace

    def __call__(self, centres: Array, rows: PrivateRows, source: Source) -> Array:
        """The centres after the round."""
        drawn = uniform(source, self.blocks, len(rows.matrix))
        total = displacements(self, centres, rows, drawn) * (self.reach / GRID)
        noisy = dataclasses.replace(self.mechanism, random_state=source)(total)
        return self.ball.inside(centres + noisy / self.blocks)


def displacements(
    reading: Round, centres: Array, rows: PrivateRows, blocks: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The sum over blocks of how far each moves the centres, in whole steps of ``reach``.

    ``blocks`` names the block of each row, drawn at random. It is a sum over blocks, each of which needs all
    of its rows at once.
    """
    number, width = centres.shape
    parts = list(reading.ball.blocks(rows, GRID))
    whole = np.concatenate([part for part, _ in parts]) if parts else np.zeros((0, width))
    counts = np.concatenate([counted for _, counted in parts]) if parts else np.zeros(0, dtype=bool)
    order = np.argsort(np.where(counts, blocks, reading.blocks), kind="stable")
    edges = np.searchsorted(np.where(counts, blocks, reading.blocks)[order], np.arange(reading.blocks + 1))
    total = np.zeros((number, width), dtype=np.int64)
    for block in range(reading.blocks):
        own = whole[order[edges[block] : edges[block + 1]]]
        moved = centres
        for _ in range(STEPS):
            near = Nearest(moved).places(own)[:, None] == np.arange(number)
            size = near.sum(axis=0)[:, None]
            mean = near.T.astype(np.float64) @ own / (np.maximum(size, 1) * GRID)
            moved = np.where(size > 0, mean, moved)
        step = (moved - centres).reshape(1, -1) / reading.reach
        total += on_grid(step, GRID).astype(np.int64).reshape(number, width)
    return total


def reaches(number: int, rounds: int) -> list[float]:
    """How far all centres together may move in each round: half as far as in the round before."""
    return [0.3 * math.sqrt(number) / 2**each for each in range(rounds)]
