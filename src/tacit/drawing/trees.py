"""A tree of decisions, as lines of text and as a drawing in SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from html import escape

__all__ = ["Node", "svg", "text"]

_LINE, _GAP, _LETTER = 26, 32, 6.6
"""In a drawing: the height of a line, the gap between levels, and the width of a letter."""


@dataclass(frozen=True)
class Node:
    """A node and all below it.

    >>> leaves = Node("no", 0.99, 100), Node("yes", 0.98, 102)
    >>> print(text(Node("yes", 0.51, 202, "age", edge=5.0, children=leaves)))
    age < 5: no (99 %)
    age ≥ 5: yes (98 %)
    """

    answer: str
    """The most frequent class."""
    share: float
    """The share of that class."""
    rows: float
    """A count of rows, noise included."""
    column: str = ""
    """What the node splits by; a leaf splits by nothing."""
    edge: float | str = ""
    """Of a number: the first child is below it."""
    cells: tuple[tuple[str, ...], ...] = ()
    """Of a category: the values of each child."""
    children: tuple[Node, ...] = ()

    @property
    def branches(self) -> list[tuple[str, Node]]:
        """Each child, with the condition under which a row goes there."""
        if self.cells:
            told = [f"= {' or '.join(each)}" for each in self.cells]
        else:
            edge = self.edge if isinstance(self.edge, str) else f"{self.edge:.4g}"
            told = [f"< {edge}", f"≥ {edge}"][: len(self.children)]
        return [
            (f"{self.column} {condition}", child)
            for condition, child in zip(told, self.children, strict=True)
        ]

    @property
    def leaves(self) -> int:
        """How many leaves there are below, or 1 for a leaf."""
        return sum(child.leaves for child in self.children) or 1

    @property
    def says(self) -> str:
        """The answer, with its share."""
        return f"{self.answer} ({100 * self.share:.0f} %)"

    @property
    def counted(self) -> str:
        """The answer, its share and the rows."""
        return f"{self.says}, {max(self.rows, 0):.0f} rows"

    def named(self, names: Mapping[str, str], edge: Callable[[str, float | str], float | str]) -> Node:
        """The same with names in place of those that are keys, and edges in other units."""
        column = names.get(self.column, self.column)
        cells = tuple(
            tuple(names.get(cell, cell).removeprefix(f"{column}=") for cell in each) for each in self.cells
        )
        children = tuple(child.named(names, edge) for child in self.children)
        moved = edge(column, self.edge) if children and not cells else self.edge
        return replace(self, column=column, edge=moved, cells=cells, children=children)


def text(node: Node, indent: str = "") -> str:
    """One line for each branch; the tree that is only a leaf is its answer."""
    if not node.children:
        return node.says
    lines = []
    for condition, child in node.branches:
        if child.children:
            lines += [f"{indent}{condition}", text(child, f"{indent}    ")]
        else:
            lines.append(f"{indent}{condition}: {child.says}")
    return "\n".join(lines)


def svg(node: Node) -> str:
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


def _title(node: Node) -> str:
    return f"A decision tree that splits by {node.column} first" if node.children else node.says


def _words(node: Node, condition: str) -> str:
    return f"{condition}: {node.counted}" if condition else node.counted


def _measure(node: Node, condition: str, depth: int, widths: list[float]) -> None:
    """The width of the widest box of each depth."""
    own = 16 + _LETTER * len(_words(node, condition))
    if depth == len(widths):
        widths.append(own)
    widths[depth] = max(widths[depth], own)
    for told, child in node.branches:
        _measure(child, told, depth + 1, widths)


def _drawn(
    node: Node, condition: str, depth: int, line: int, pieces: list[str], lefts: list[float],
    widths: list[float],
) -> tuple[int, float]:  # fmt: skip
    """Draw a node and all below it from this line on: (lines taken, the middle of its box)."""
    taken, middles = 0, []
    for told, child in node.branches:
        lines, middle = _drawn(child, told, depth + 1, line + taken, pieces, lefts, widths)
        taken += lines
        middles.append(middle)
    centre = (middles[0] + middles[-1]) / 2 if middles else (line + 0.5) * _LINE + 6
    left, right = lefts[depth], lefts[depth] + widths[depth]
    for middle in middles:
        half = right + _GAP / 2
        path = f"M{right:.0f} {centre:.0f}C{half:.0f} {centre:.0f} {half:.0f} {middle:.0f} "
        pieces.append(f'<path d="{path}{right + _GAP:.0f} {middle:.0f}" fill="none" stroke="#999"/>')
    fill = f"rgb({235 - 90 * node.share:.0f},{240 - 50 * node.share:.0f},250)"
    pieces.append(
        f'<rect x="{left:.0f}" y="{centre - 10:.0f}" width="{widths[depth]:.0f}" height="20" rx="4" '
        f'fill="{fill}" stroke="#567"/>'
    )
    words = escape(_words(node, condition))
    pieces.append(f'<text x="{left + 8:.0f}" y="{centre + 4:.0f}" fill="#111">{words}</text>')
    return max(taken, 1), centre
