"""A coreset: a tree whose leaves were counted and added up with noise, and k-means on its leaves.

Nothing here reads a row but through :class:`~tacit.estimators.clusters.passes.Pass`; the rest is computed
from what was released, and may be done as often and as carefully as one likes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.data.arithmetic import lengths
from tacit.estimators.clusters.passes import GRID, Pass, Tally
from tacit.estimators.private import PrivateRows
from tacit.randomness import Source

__all__ = ["Tree", "grown", "packed", "weighted_centres"]

Array = NDArray[np.float64]

HALVED = 0.36
"""What is left of a variance when a normal distribution is cut at its mean: 1 − 2/π."""
RESTARTS, ROUNDS = 24, 40
"""How often k-means is started on the leaves, and how many rounds it runs."""


class Tree:
    """Cells made by cutting the ball across one coordinate after another; a leaf is a cell."""

    def __init__(self) -> None:
        self.axes = [-1]
        self.thresholds = [0.0]
        self.children = [-1]
        self.depth = 0

    @property
    def leaves(self) -> list[int]:
        """The nodes that are cells, in order."""
        return [node for node, axis in enumerate(self.axes) if axis < 0]

    @property
    def number(self) -> int:
        """How many cells there are."""
        return len(self.leaves)

    def divide(self, node: int, axis: int, threshold: float) -> None:
        """Cut a leaf in two: rows above the threshold, in radii, go to the second."""
        self.axes[node], self.thresholds[node] = axis, math.floor(threshold * GRID)
        self.children[node] = len(self.axes)
        self.axes += [-1, -1]
        self.thresholds += [0.0, 0.0]
        self.children += [-1, -1]

    def places(self, rows: Array) -> NDArray[np.int64]:
        """The cell of each row on the grid."""
        axes, thresholds, children = map(np.array, (self.axes, self.thresholds, self.children))
        node, every = np.zeros(len(rows), dtype=np.int64), np.arange(len(rows))
        for _ in range(self.depth):
            axis = axes[node]
            above = rows[every, np.maximum(axis, 0)] > thresholds[node]
            node = np.where(axis < 0, node, children[node] + above)
        cell = np.zeros(len(axes), dtype=np.int64)
        cell[self.leaves] = np.arange(self.number)
        return np.asarray(cell[node])


def grown(
    passes: Sequence[Pass], certain: float, blocks: Iterable[PrivateRows], source: Source
) -> tuple[Array, Array]:
    """Means and counts of the leaves of a tree, (cells, width) and (cells,), from all the passes.

    In each pass the cells are counted and added up. After all passes but the last, a cell is cut at its
    mean if its halves have enough rows for their means to be known to ``certain`` radii. The cut is across
    the coordinate in which its rows vary most; that variance is drawn towards the one that is expected
    from the cell that was cut, by as much as noise outweighs it.
    """
    tree, width = Tree(), passes[0].ball.lower.size
    expected, centres = [np.full(width, 0.25 / width)], [np.zeros(width)]
    for reading in passes[:-1]:
        leaves = tree.leaves
        found = reading(tree, blocks, source)
        means = _means(reading, found, [centres[node] for node in leaves])
        least = 2 * math.sqrt(width) * found.deviation / certain
        for place, node in enumerate(leaves):
            variance = _variances(found, place, means[place], expected[node], reading.square_weight)
            expected[node], centres[node] = variance, means[place]
            if found.counts[place] <= least:
                continue
            axis = int(variance.argmax())
            tree.divide(node, axis, float(means[place][axis]))
            left, away = variance.copy(), np.zeros(width)
            left[axis] *= HALVED
            away[axis] = math.sqrt(variance[axis] * (1 - HALVED))
            expected += [left, left]
            centres += [means[place] - away, means[place] + away]
        tree.depth += 1
    last = passes[-1](tree, blocks, source)
    return _means(passes[-1], last, [centres[node] for node in tree.leaves]), np.maximum(last.counts, 0.0)


def _means(reading: Pass, found: Tally, before: Sequence[Array]) -> Array:
    return reading.ball.inside(found.centres(np.array(before), 0.5))


def _variances(found: Tally, place: int, mean: Array, expected: Array, weight: float) -> Array:
    """The variance of one cell in each coordinate, above 0."""
    if found.squares is None:
        return expected
    size = max(float(found.counts[place]), 1.0)
    seen = np.maximum(found.squares[place] / size - mean**2, 0.0)
    noise = found.deviation / weight / size
    trust = expected.mean() ** 2 / (expected.mean() ** 2 + noise**2)
    return np.asarray(np.maximum(trust * seen + (1 - trust) * expected, 1e-12))


def weighted_centres(points: Array, weights: Array, number: int, source: Source) -> Array:
    """k-means on public points with weights: the best of several runs from k-means++ seeds."""
    heavy = weights > 0
    points, weights = points[heavy], weights[heavy]
    random = np.random.default_rng(source.bits(128))
    if not len(points):
        return packed(number, points.shape[1], source)
    best, lowest = points[:1], math.inf
    for _ in range(RESTARTS):
        centres = _seeded(points, weights, number, random)
        for _ in range(ROUNDS):
            near = _squares(points, centres).argmin(axis=1)
            member = (near[:, None] == np.arange(number)) * weights[:, None]
            size = member.sum(axis=0)
            centres = np.where(
                size[:, None] > 0, member.T @ points / np.maximum(size, 1e-300)[:, None], centres
            )
        inertia = float((_squares(points, centres).min(axis=1) * weights).sum())
        if inertia < lowest:
            best, lowest = centres, inertia
    return best


def _seeded(points: Array, weights: Array, number: int, random: np.random.Generator) -> Array:
    """k-means++ (Arthur and Vassilvitskii 2007); a point near an earlier one where all have been taken."""
    centres = [points[random.choice(len(points), p=weights / weights.sum())]]
    while len(centres) < number:
        far = _squares(points, np.array(centres)).min(axis=1) * weights
        if far.sum() > 0:
            centres.append(points[random.choice(len(points), p=far / far.sum())])
        else:
            centres.append(points[random.integers(len(points))] + random.normal(0, 0.1, points.shape[1]))
    return np.array(centres)


def _squares(points: Array, centres: Array) -> Array:
    return np.asarray(np.square(points[:, None] - centres).sum(axis=2))


def packed(number: int, width: int, source: Source) -> Array:
    """Points in the middle of the unit ball, far from each other: the best of several random sets."""
    random = np.random.default_rng(source.bits(128))
    best, widest = np.zeros((number, width)), -1.0
    for _ in range(RESTARTS):
        points = random.normal(size=(number, width))
        points *= (0.5 * random.uniform(size=number) ** (1 / width) / lengths(points))[:, None]
        apart = _squares(points, points) + np.where(np.eye(number) > 0, np.inf, 0.0)
        if (closest := float(apart.min())) > widest:
            best, widest = points, closest
    return best
