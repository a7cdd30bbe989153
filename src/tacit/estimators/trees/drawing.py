"""A fitted tree as nodes that can be drawn, and as nested dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.drawing.trees import Node
from tacit.estimators.coding import Coding
from tacit.estimators.trees.structure import Tree

__all__ = ["nested", "nodes"]


def nodes(
    tree: Tree, coding: Coding, counts: NDArray[Any], shares: NDArray[Any], labels: Sequence[Any],
    names: Sequence[str], node: int = 0,
) -> Node:  # fmt: skip
    """A node and all below it, to be drawn. ``counts`` are noisy, ``shares`` follow from them."""
    best = int(np.argmax(shares[:, node]))
    found = Node(str(labels[best]), float(shares[best, node]), float(counts[:, node].sum()))
    below = tree.children(node)
    if not below:
        return found
    column = coding.columns[tree.column[node]]
    route = tree.route[node, : column.cells]
    edge: float | str = ""
    cells: tuple[tuple[str, ...], ...] = ()
    if column.kind == "number":
        edge = column.edge(int(np.argmax(route)))
    else:
        called = np.array(column.cell_names(names), dtype=object)
        cells = tuple(tuple(called[route == child]) for child in range(len(below)))
    children = tuple(nodes(tree, coding, counts, shares, labels, names, child) for child in below)
    return Node(found.answer, found.share, found.rows, column.name(names), edge, cells, children)


def nested(
    drawn: Node, tree: Tree, counts: NDArray[Any], shares: NDArray[Any], labels: Sequence[Any], node: int = 0
) -> dict[str, Any]:
    """A node and all below it as dictionaries: ``rows`` are noisy, ``shares`` what was made of them."""
    found: dict[str, Any] = {
        "class": labels[int(np.argmax(shares[:, node]))],
        "shares": {str(label): float(share) for label, share in zip(labels, shares[:, node], strict=True)},
        "rows": float(counts[:, node].sum()),
    }
    if drawn.children:
        found["column"] = drawn.column
        found["children"] = [
            (condition, nested(child, tree, counts, shares, labels, place))
            for (condition, child), place in zip(drawn.branches, tree.children(node), strict=True)
        ]
    return found
