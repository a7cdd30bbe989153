"""The splits of a column, fixed without the data, and what one row can do to the sums over them.

A number has a binary tree over its bins: every node is a run of bins, halved by one split, down to single
bins. A category has one split for each of its cells: this cell against the mean of all. A pair of columns has
the products of the splits of both, on groups of cells. One released value per split and output says how far
the score moves on its two sides.

Splits are rows of a matrix A over the cells: whole numbers (so that sums of whole numbers stay exact) times a
weight per split. A row in cell c adds r·A[:, c] to the sums, r being its residual: its ℓ2 (or ℓ1) share is
bounded by the largest norm of a column of A. The cell of missing values is a column of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.estimators.boosting.layout import Layout

__all__ = ["Splits", "category_splits", "pair_splits", "tree_splits"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Splits:
    """All splits of one term: ``signs`` (splits, cells + 1), whole numbers, and a weight for each split."""

    signs: Array
    weights: Array
    centred: bool = False
    """Whether the splits are those of :func:`category_splits`, each cell against the mean of all."""

    @cached_property
    def matrix(self) -> Array:
        """A = weights × signs."""
        return np.asarray(self.signs * self.weights[:, None])

    @property
    def cells(self) -> int:
        """The number of cells, with the one for missing values."""
        return int(self.signs.shape[1])

    def norm(self, order: int) -> float:
        """The largest ℓ1 or ℓ2 norm of a column of A."""
        return float(np.linalg.norm(self.matrix, order, axis=0).max(initial=0.0))

    def summed(self, cells: Array) -> Array:
        """A times the sums in the cells, (splits, outputs).

        Where these are whole numbers, so are the sums over splits, exactly, before the one product with a
        weight. K times the sum of one of K categories might be no float64: there the mean of all is taken
        off instead, with two roundings.
        """
        if self.centred:
            return np.asarray(cells[:-1] - cells[:-1].sum(axis=0) / len(self.signs))
        return np.asarray((self.signs @ cells) * self.weights[:, None])

    def effects(self, values: Array) -> Array:
        """The effect of each cell, (cells, outputs), from the values of the splits."""
        return np.asarray(self.matrix.T @ values)


def tree_splits(cells: int, level_weights: Array) -> Splits:
    """A binary tree over ordered cells, halved at each level; a level has one weight.

    >>> tree_splits(4, np.array([0.5, 0.5])).matrix.tolist()
    [[0.5, 0.5, -0.5, -0.5, 0.0], [0.5, -0.5, 0.0, 0.0, 0.0], [0.0, 0.0, 0.5, -0.5, 0.0]]
    """
    signs, weights = [], []
    nodes = [(0, cells)]
    for weight in level_weights.tolist():
        below = []
        for start, stop in nodes:
            if stop - start < 2:
                continue
            middle = (start + stop) // 2
            row = np.zeros(cells + 1)
            row[start:middle], row[middle:stop] = 1.0, -1.0
            signs.append(row)
            weights.append(weight)
            below += [(start, middle), (middle, stop)]
        nodes = below
    return Splits(np.array(signs).reshape(len(signs), cells + 1), np.array(weights))


def category_splits(cells: int, *, centred: bool) -> Splits:
    """Each category against the mean of all, or by itself.

    Centred, the ℓ2 norm of a column is √(1 − 1/K) instead of 1; the ℓ1 norm is 1 only if it is not.

    >>> category_splits(2, centred=True).matrix.tolist()
    [[0.5, -0.5, 0.0], [-0.5, 0.5, 0.0]]
    """
    signs = cells * np.eye(cells) - 1.0 if centred else np.eye(cells)
    weights = np.full(cells, 1.0 / cells if centred else 1.0)
    return Splits(np.column_stack([signs, np.zeros(cells)]), weights, centred)


def pair_splits(layout: Layout, first: int, second: int, weight: float) -> Splits:
    """The products of the splits of two columns, on groups of cells, with columns of A of norm ``weight``."""
    sides = []
    for column in (first, second):
        side = layout.side(column)
        levels = np.ones(max(1, int(np.ceil(np.log2(side)))))
        category = layout.is_category(column)
        made = category_splits(side, centred=True) if category else tree_splits(side, levels)
        sides.append(Splits(made.signs[:, :-1], made.weights / made.norm(2)))
    signs = np.kron(sides[0].signs, sides[1].signs)
    weights = np.asarray(np.kron(sides[0].weights, sides[1].weights) * weight, dtype=np.float64)
    return Splits(np.column_stack([signs, np.zeros(len(signs))]), weights)
