"""A fitted tree as nested dictionaries, as text and as a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.estimators.coding import Coding, Column
from tacit.estimators.trees.structure import Tree

__all__ = ["nested", "svg", "text"]

_ROW, _WIDTH, _LETTER = 86, 150, 6.6
"""The height of a level and the least width of a leaf in a drawing, and the width of a letter."""


def nested(
    tree: Tree, coding: Coding, counts: NDArray[Any], shares: NDArray[Any], labels: Sequence[Any],
    names: Sequence[str], node: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """A node and all below it. ``rows`` are noisy counts, ``shares`` what was made of them."""
    best = int(np.argmax(shares[:, node]))
    found: dict[str, Any] = {
        "class": labels[best],
        "shares": {str(label): float(share) for label, share in zip(labels, shares[:, node], strict=True)},
        "rows": float(counts[:, node].sum()),
    }
    below = tree.children(node)
    if below:
        column = coding.columns[tree.column[node]]
        name = column.name(names)
        route = tree.route[node, : column.cells]
        told = _conditions(column, route, names, len(below))
        found["column"] = name
        found["children"] = [
            (f"{name} {condition}", nested(tree, coding, counts, shares, labels, names, child))
            for condition, child in zip(told, below, strict=True)
        ]
    return found


def _conditions(column: Column, route: NDArray[Any], names: Sequence[str], children: int) -> list[str]:
    if column.kind == "number":
        edge = f"{column.edge(int(np.argmax(route))):.4g}"
        return [f"< {edge}", f"≥ {edge}"]
    cells = np.array(column.cell_names(names), dtype=object)
    return [f"= {' or '.join(cells[route == child])}" for child in range(children)]


def _answer(node: dict[str, Any]) -> str:
    share = node["shares"][str(node["class"])]
    return f"{node['class']} ({100 * share:.0f} %)"


def text(node: dict[str, Any], indent: str = "") -> str:
    """One line for each branch; the tree that is only a leaf is its answer."""
    if "children" not in node:
        return _answer(node)
    lines = []
    for condition, child in node["children"]:
        if "children" in child:
            lines += [f"{indent}{condition}", text(child, f"{indent}    ")]
        else:
            lines.append(f"{indent}{condition}: {_answer(child)}")
    return "\n".join(lines)


def svg(node: dict[str, Any]) -> str:
    """The root on top, a box for each node, conditions on the branches."""
    pieces: list[str] = []
    width, _, depth = _drawn(node, "", 0.0, 0, pieces)
    height = (depth + 1) * _ROW
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
    head += f'width="{width:.0f}" height="{height}" font-family="sans-serif" font-size="12" role="img">'
    return "\n".join([head, f"<title>{escape(_title(node))}</title>", *pieces, "</svg>"])


def _title(node: dict[str, Any]) -> str:
    return f"A decision tree that splits by {node['column']} first" if "children" in node else _answer(node)


def _drawn(
    node: dict[str, Any], condition: str, left: float, depth: int, pieces: list[str]
) -> tuple[float, float, int]:
    """Draw a node and all below it from ``left`` on: (width, middle, deepest level)."""
    lines = [_answer(node), f"{max(node['rows'], 0):.0f} rows"]
    own = max(_WIDTH, 16 + _LETTER * max(map(len, (*lines, condition, node.get("column", "")))))
    top, start, deepest, middles = depth * _ROW + 24, left, depth, []
    for told, child in node.get("children", ()):
        width, middle, deep = _drawn(child, told, start, depth + 1, pieces)
        start, deepest = start + width, max(deepest, deep)
        middles.append(middle)
    width = max(start - left, own)
    centre = (middles[0] + middles[-1]) / 2 if middles else left + width / 2
    for middle in middles:
        ends = f'x1="{centre:.0f}" y1="{top + 40}" x2="{middle:.0f}" y2="{top + _ROW - 18}"'
        pieces.insert(0, f'<line {ends} stroke="#999"/>')
    if condition:
        pieces.append(_words(centre, top - 6, condition, "#333"))
    strength = max(node["shares"].values())
    fill = f"rgb({235 - 90 * strength:.0f},{240 - 50 * strength:.0f},250)"
    pieces.append(
        f'<rect x="{centre - _WIDTH / 2 + 8:.0f}" y="{top}" width="{_WIDTH - 16}" height="40" rx="5" '
        f'fill="{fill}" stroke="#567"/>'
    )
    pieces += [_words(centre, top + 16 + 15 * i, line, "#111") for i, line in enumerate(lines)]
    return width, centre, deepest


def _words(x: float, y: float, words: str, colour: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="middle" fill="{colour}">{escape(words)}</text>'
