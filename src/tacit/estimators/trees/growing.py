"""Growing one tree level by level: which splits there are, and who chooses among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.estimators.blocks import added
from tacit.estimators.coding import Coding
from tacit.estimators.counting import shrunk
from tacit.estimators.trees.criteria import gain, score
from tacit.estimators.trees.structure import Array, Tree

__all__ = [
    "MOST_NODES", "Coded", "Split", "choose_by_gain", "choose_by_score", "grown", "splits_of", "statistics",
]  # fmt: skip

MOST_NODES = 2000
"""A tree does not grow beyond so many nodes, whatever was chosen."""

Open = Mapping[int, tuple[int, int]]
"""The first and last cell of each column that can still be reached; a category that was used is missing."""
Coded = tuple[NDArray[np.int32], NDArray[np.int64]]
"""The cells (rows, columns) and the classes of the rows of a block that count."""
Tables = Sequence[Array]
"""For each column the counts of a node, (classes, cells)."""


@dataclass(frozen=True)
class Split:
    """A category into all of its cells, or a number at a threshold: that cell and those above go right."""

    column: int
    cells: int
    threshold: int | None

    @property
    def children(self) -> int:
        """Into how many parts the rows fall."""
        return self.cells if self.threshold is None else 2

    @property
    def route(self) -> list[int]:
        """The part that each cell falls into."""
        if self.threshold is None:
            return list(range(self.cells))
        return [int(cell >= self.threshold) for cell in range(self.cells)]

    def parts(self, tables: Tables) -> Array:
        """Counts of the parts, (classes, parts)."""
        own = tables[self.column]
        if self.threshold is None:
            return own
        left, right = own[:, : self.threshold], own[:, self.threshold :]
        return np.stack([left.sum(axis=1), right.sum(axis=1)], axis=1)


def splits_of(coding: Coding, able: Open) -> list[Split]:
    """All splits of a node, by what is left of each column; the order is public."""
    found: list[Split] = []
    for place, (low, high) in sorted(able.items()):
        column = coding.columns[place]
        if column.kind == "number":
            found += [Split(place, column.cells, cell) for cell in range(low + 1, high + 1)]
        else:
            found.append(Split(place, column.cells, None))
    return found


def statistics(
    codes: NDArray[np.int32], labels: NDArray[np.int64], places: NDArray[np.int64], shape: tuple[int, int],
    coding: Coding,
) -> list[Array]:  # fmt: skip
    """Counts of a level: for each column (nodes, classes, cells), ``shape`` being the first two.

    ``places`` says at which node of the level a row is, −1 for none: it adds 1 to one cell of each column.
    """
    here = places >= 0
    own = places[here] * shape[1] + labels[here]
    return [
        np.bincount(own * cells + codes[here, column], minlength=shape[0] * shape[1] * cells)
        .reshape(*shape, cells)
        .astype(np.float64)
        for column, cells in enumerate(coding.cells)
    ]


Choose = Callable[[Tables, Sequence[Split]], int]
"""The place of the split that a node is given, from its counts."""
Release = Callable[[list[Array]], list[Array]]
"""What the choice may see of the counts of a level: the counts themselves, or noisy ones."""


def choose_by_score(criterion: str, most: int, select: Callable[[Array], int]) -> Choose:
    """By the score of exact counts, each up to ``most``; ``select`` is a mechanism that pays for it."""

    def choose(tables: Tables, splits: Sequence[Split]) -> int:
        scores = [score(criterion, np.minimum(split.parts(tables), most)) for split in splits]
        return select(np.array(scores, dtype=np.float64))

    return choose


def choose_by_gain(criterion: str, deviation: float) -> Choose:
    """By the gain of noisy counts, which were paid for: the shares of a part are drawn towards the node's.

    Without that, parts that hold nothing but noise look pure, and the column with the most cells would win.
    """

    def choose(tables: Tables, splits: Sequence[Split]) -> int:
        gains = []
        for split in splits:
            parts = np.maximum(split.parts(tables), 0.0)
            if deviation > 0:
                merged = np.bincount(split.route, minlength=split.children)
                total = parts.sum(axis=1, keepdims=True)
                shares = (total + 1.0) / (total + 1.0).sum()
                parts = parts.sum(axis=0) * shrunk(parts, shares, deviation * np.sqrt(merged))
            gains.append(gain(criterion, parts))
        return int(np.argmax(gains))

    return choose


def grown(
    blocks: Iterable[Coded], classes: int, coding: Coding, depth: int, release: Release, choose: Choose
) -> Tree:
    """A tree of at most this depth. ``release`` is called once per level, ``choose`` once per node that can
    split. A level is one pass over the ``blocks``.

    Which nodes there are depends on the splits that were chosen before, and on nothing else of the rows: a
    node that no row reaches is split like any other.
    """
    whole: Open = {column: (0, cells - 1) for column, cells in enumerate(coding.cells)}
    nodes: list[tuple[int, int, Sequence[int], int]] = [(-1, 0, (), -1)]
    able: list[Open] = [whole]
    level = [0]
    tree = Tree.of(nodes, max(coding.cells))
    for _ in range(depth):
        place_of = np.full(len(nodes), -1, dtype=np.int64)
        place_of[level] = np.arange(len(level))
        shape = len(level), classes
        parts = (
            statistics(codes, labels, place_of[tree.reached(codes)], shape, coding)
            for codes, labels in blocks
        )
        tables = release([added(column) for column in zip(*parts, strict=True)])
        below: list[int] = []
        for place, node in enumerate(level):
            splits = splits_of(coding, able[node])
            if not splits or len(nodes) >= MOST_NODES:
                continue
            split = splits[choose([table[place] for table in tables], splits)]
            nodes[node] = (split.column, len(nodes), split.route, nodes[node][3])
            below += range(len(nodes), len(nodes) + split.children)
            nodes += [(-1, 0, (), node)] * split.children
            able += _left_over(able[node], split)
        tree = Tree.of(nodes, max(coding.cells))
        level = below
    return tree


def _left_over(able: Open, split: Split) -> list[Open]:
    """What each child can still split by."""
    rest = {column: cells for column, cells in able.items() if column != split.column}
    if split.threshold is None:
        return [rest] * split.children
    low, high = able[split.column]
    return [
        {**rest, split.column: (low, split.threshold - 1)},
        {**rest, split.column: (split.threshold, high)},
    ]
