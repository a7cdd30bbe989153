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

_LINE, _GAP, _LETTER = 26, 48, 6.6
"""In a drawing: the height of a line, the gap between levels, and the width of a letter."""


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
    """The root on the left, one line for each leaf: a tree with many branches stays as wide as it is deep."""
    widths: list[float] = []
    _measure(node, "", 0, widths)
    lefts = [sum(widths[:depth]) + (depth * _GAP) + 8 for depth in range(len(widths))]
    pieces: list[str] = []
    lines, _ = _drawn(node, "", 0, 0, pieces, lefts, widths)
    width, height = lefts[-1] + widths[-1] + 8, lines * _LINE + 12
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
    head += f'width="{width:.0f}" height="{height:.0f}" font-family="sans-serif" font-size="12" role="img">'
    return "\n".join([head, f"<title>{escape(_title(node))}</title>", *pieces, "</svg>"])


def _title(node: dict[str, Any]) -> str:
    return f"A decision tree that splits by {node['column']} first" if "children" in node else _answer(node)


def _words(node: dict[str, Any], condition: str) -> str:
    told = f"{_answer(node)}, {max(node['rows'], 0):.0f} rows"
    return f"{condition}: {told}" if condition else told


def _measure(node: dict[str, Any], condition: str, depth: int, widths: list[float]) -> None:
    """The width of the widest box of each depth."""
    own = 16 + _LETTER * len(_words(node, condition))
    if depth == len(widths):
        widths.append(own)
    widths[depth] = max(widths[depth], own)
    for told, child in node.get("children", ()):
        _measure(child, told, depth + 1, widths)


def _drawn(
    node: dict[str, Any], condition: str, depth: int, line: int, pieces: list[str], lefts: list[float],
    widths: list[float],
) -> tuple[int, float]:  # fmt: skip
    """Draw a node and all below it from this line on: (lines taken, the middle of its box)."""
    taken, middles = 0, []
    for told, child in node.get("children", ()):
        lines, middle = _drawn(child, told, depth + 1, line + taken, pieces, lefts, widths)
        taken += lines
        middles.append(middle)
    centre = (middles[0] + middles[-1]) / 2 if middles else (line + 0.5) * _LINE + 6
    left, right = lefts[depth], lefts[depth] + widths[depth]
    for middle in middles:
        half = right + _GAP / 2
        path = f"M{right:.0f} {centre:.0f}C{half:.0f} {centre:.0f} {half:.0f} {middle:.0f} "
        pieces.append(f'<path d="{path}{right + _GAP:.0f} {middle:.0f}" fill="none" stroke="#999"/>')
    strength = max(node["shares"].values())
    fill = f"rgb({235 - 90 * strength:.0f},{240 - 50 * strength:.0f},250)"
    pieces.append(
        f'<rect x="{left:.0f}" y="{centre - 10:.0f}" width="{widths[depth]:.0f}" height="20" rx="4" '
        f'fill="{fill}" stroke="#567"/>'
    )
    words = escape(_words(node, condition))
    pieces.append(f'<text x="{left + 8:.0f}" y="{centre + 4:.0f}" fill="#111">{words}</text>')
    return max(taken, 1), centre
