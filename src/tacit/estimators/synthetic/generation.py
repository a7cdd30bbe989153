"""Generation: rows from the cliques of a model, as evenly as whole rows allow.

Cliques are visited from the first down the tree. Rows that agree in what a clique shares with its parent are
spread over the other cells of the clique by systematic sampling: in random order, at equal distances along
the cumulative distribution, so that every cell gets its expected number of rows, rounded up or down.
Marginals of the rows are then closer to the model's than those of independent draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.estimators.synthetic.junction import JunctionTree

__all__ = ["generated_codes", "systematic"]

Table = NDArray[np.float64]
Places = NDArray[np.int64]


def systematic(shares: Table, groups: Places, random: np.random.Generator) -> Places:
    """A cell for every row: row i is of group ``groups[i]``, whose cells have the ``shares[groups[i]]``.

    >>> random = np.random.default_rng(1)
    >>> np.bincount(systematic(np.array([[0.5, 0.25, 0.25]]), np.zeros(8, dtype=int), random)).tolist()
    [4, 2, 2]
    """
    rows = groups.size
    order = random.permutation(rows)
    order = order[np.argsort(groups[order], kind="stable")]
    sorted_groups = groups[order]
    sizes = np.bincount(groups, minlength=len(shares))
    first = np.cumsum(sizes) - sizes
    rank = np.arange(rows) - first[sorted_groups]
    at = (rank + random.random(len(shares))[sorted_groups]) / sizes[sorted_groups]
    total = shares.sum(axis=1, keepdims=True)
    even = np.full(shares.shape, 1.0 / shares.shape[1])
    heights = np.cumsum(np.where(total > 0, shares / np.where(total > 0, total, 1.0), even), axis=1)
    heights[:, -1] = 1.0
    flat = (np.minimum(heights, 1.0) + np.arange(len(shares))[:, None]).ravel()
    found = np.searchsorted(flat, np.minimum(at, np.nextafter(1.0, 0.0)) + sorted_groups, side="right")
    cells = np.empty(rows, dtype=np.int64)
    cells[order] = np.clip(found - sorted_groups * shares.shape[1], 0, shares.shape[1] - 1)
    return cells


def generated_codes(
    tree: JunctionTree, beliefs: Sequence[Table], rows: int, random: np.random.Generator
) -> Places:
    """The merged cell of every attribute in so many rows: (rows, attributes)."""
    found = np.zeros((rows, len(tree.sizes)), dtype=np.int64)
    for clique, shared, table in zip(tree.cliques, tree.separators, beliefs, strict=True):
        new = [place for place in clique if place not in shared]
        if not new:
            continue
        order = [clique.index(place) for place in (*shared, *new)]
        width = math.prod(tree.sizes[place] for place in new)
        shares = np.transpose(table, order).reshape(-1, width)
        groups = np.zeros(rows, dtype=np.int64)
        for place in shared:
            groups = groups * tree.sizes[place] + found[:, place]
        cells = systematic(shares, groups, random)
        for place in reversed(new):
            found[:, place] = cells % tree.sizes[place]
            cells = cells // tree.sizes[place]
    return found
