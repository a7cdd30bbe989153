"""Tree: which node splits by which column, and where each cell leads. All of it is public or was released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tacit.estimators.counting import shrunk

__all__ = ["Tree"]

Array = NDArray[np.float64]
Whole = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Tree:
    """Nodes in order, every parent before its children, those of one parent side by side."""

    column: Whole
    """The column by which a node splits, −1 for a leaf."""
    first: Whole
    """A node's first child, 0 for a leaf."""
    route: Whole
    """(nodes, cells): the place, among the children, of the one that a cell leads to."""
    parent: Whole
    """A node's parent, −1 for the root."""

    @classmethod
    def of(cls, nodes: Sequence[tuple[int, int, Sequence[int], int]], cells: int) -> Self:
        """From (column, first child, route, parent) of each node."""
        route = np.zeros((len(nodes), cells), dtype=np.int32)
        for place, (_, _, own, _) in enumerate(nodes):
            route[place, : len(own)] = own
        column, first, parent = (np.array([node[part] for node in nodes], np.int32) for part in (0, 1, 3))
        return cls(column, first, route, parent)

    @classmethod
    def complete(cls, column: Any, route: Any) -> Self:
        """A binary tree of inner nodes given level by level: the children of node i are 2i + 1 and 2i + 2."""
        inner, cells = np.shape(route)
        places = np.arange(2 * inner + 1, dtype=np.int32)
        leaves = np.full(inner + 1, -1, dtype=np.int32)
        return cls(
            np.concatenate([np.asarray(column, dtype=np.int32), leaves]),
            np.where(places < inner, 2 * places + 1, 0).astype(np.int32),
            np.vstack([np.asarray(route, dtype=np.int32), np.zeros((inner + 1, cells), dtype=np.int32)]),
            (places - 1) // 2,
        )

    @cached_property
    def depth(self) -> Whole:
        """How far each node is from the root."""
        found = np.zeros(len(self.parent), dtype=np.int32)
        for place, parent in enumerate(self.parent.tolist()):
            if parent >= 0:
                found[place] = found[parent] + 1
        return found

    @cached_property
    def leaves(self) -> NDArray[np.int64]:
        """The places of the leaves."""
        return np.flatnonzero(self.column < 0)

    def children(self, node: int) -> range:
        """The places of a node's children."""
        if self.column[node] < 0:
            return range(0)
        first = int(self.first[node])
        return range(first, first + int(np.count_nonzero(self.parent == node)))

    def reached(self, codes: NDArray[np.int32]) -> NDArray[np.int64]:
        """The leaf that each row reaches, by its cells (rows, columns) alone."""
        node = np.zeros(len(codes), dtype=np.int64)
        rows = np.arange(len(codes))
        for _ in range(int(self.depth.max())):
            column = self.column[node]
            step = self.first[node] + self.route[node, codes[rows, np.maximum(column, 0)]]
            node = np.where(column >= 0, step, node)
        return node

    def leaf_counts(self, codes: NDArray[np.int32], labels: NDArray[np.int64], classes: int) -> Array:
        """How many rows of each class reach each leaf: (classes, leaves). A row adds 1 to one of them."""
        place = np.zeros(len(self.column), dtype=np.int64)
        place[self.leaves] = np.arange(len(self.leaves))
        flat = labels * len(self.leaves) + place[self.reached(codes)]
        found = np.bincount(flat, minlength=classes * len(self.leaves))
        return found.reshape(classes, -1).astype(np.float64)

    def totals(self, counts: Array) -> Array:
        """Counts of all nodes, (classes, nodes), from those of the leaves."""
        found = np.zeros((len(counts), len(self.column)))
        found[:, self.leaves] = counts
        for depth in range(int(self.depth.max()), 0, -1):
            nodes = np.flatnonzero(self.depth == depth)
            np.add.at(found.T, self.parent[nodes], found[:, nodes].T)
        return found

    def shares(
        self, counts: Array, deviation: float, rows: float = 1.0, towards: Array | None = None
    ) -> Array:
        """The share of each class in every node, (classes, nodes), from noisy counts of the leaves.

        From the root down, each node is drawn towards its parent by as many rows as its noise is large, and
        ``rows`` more: a node is a sum of leaves, whose noise has the ``deviation``. The root is drawn
        ``towards`` given shares (classes, 1), equal ones if there are none.
        """
        totals = self.totals(counts)
        noise = deviation * np.sqrt(self.totals(np.ones((1, len(self.leaves))))[0])
        found = np.full(totals.shape, 1 / len(totals))
        if towards is not None:
            found[:] = towards
        for depth in range(int(self.depth.max()) + 1):
            nodes = np.flatnonzero(self.depth == depth)
            around = found[:, np.maximum(self.parent[nodes], 0)]
            found[:, nodes] = shrunk(totals[:, nodes], around, noise[nodes], rows)
        return found

    def without(self, pruned: NDArray[np.bool_]) -> tuple[Self, NDArray[np.int64]]:
        """The tree in which the marked nodes are leaves, and the old places of its nodes."""
        gone = np.zeros(len(self.column), dtype=bool)
        for node, parent in enumerate(self.parent.tolist()):
            gone[node] = parent >= 0 and bool(gone[parent] or pruned[parent])
        kept = np.flatnonzero(~gone)
        place = np.zeros(len(self.column), dtype=np.int32)
        place[kept] = np.arange(len(kept), dtype=np.int32)
        inner = (self.column[kept] >= 0) & ~pruned[kept]
        parent = np.where(self.parent[kept] >= 0, place[np.maximum(self.parent[kept], 0)], -1)
        made = type(self)(
            np.where(inner, self.column[kept], -1).astype(np.int32),
            np.where(inner, place[self.first[kept]], 0).astype(np.int32),
            np.where(inner[:, None], self.route[kept], 0).astype(np.int32),
            parent.astype(np.int32),
        )
        return made, kept

    def to_dict(self) -> dict[str, Any]:
        """The arrays, for a model file."""
        return {"column": self.column, "first": self.first, "route": self.route, "parent": self.parent}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The tree that :meth:`to_dict` gave."""
        return cls(data["column"], data["first"], data["route"], data["parent"])
