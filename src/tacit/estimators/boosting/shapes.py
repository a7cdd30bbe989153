"""Shape functions: what each column, or pair of columns, adds to the score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.estimators.boosting.layout import Layout

__all__ = ["Shape", "shapes_of"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Shape:
    """One released term of a boosted model: its effect on the score in each of its cells.

    The effects of all terms and the constant add up to the score. A missing value adds 0.
    """

    columns: tuple[str, ...]
    """The name of the column, or of both."""
    cells: tuple[str, ...]
    """What the cells of a column are called; none for a pair."""
    features: tuple[str, ...]
    """The features that the column is made of: several for a category with one feature each."""
    edges: Array | None
    """Where the bins of a number meet; None for categories and pairs."""
    outputs: tuple[str, ...]
    """One name per score: the class where there are more than two, else empty."""
    effects: Array
    """(cells, outputs), or for a pair (groups of one, groups of the other, outputs)."""

    @property
    def spread(self) -> float:
        """The largest effect less the smallest."""
        return float(np.ptp(self.effects)) if self.effects.size else 0.0


def shapes_of(
    layout: Layout,
    effects: Array,
    pairs: Sequence[tuple[int, int]],
    names: Sequence[str],
    classes: Sequence[str],
) -> tuple[Shape, ...]:
    """The terms of a model, columns first."""
    outputs = tuple(classes) if effects.shape[1] > 1 else ("",)
    columns = [column.name(names) for column in layout.coding.columns]
    found, start = [], 0
    for place, (column, cells) in enumerate(zip(layout.coding.columns, layout.cells, strict=True)):
        features = tuple(names[column.first : column.first + column.width])
        called = column.cell_names(names)[:cells]
        part = effects[start : start + cells]
        found.append(Shape((columns[place],), called, features, layout.edges(place), outputs, part))
        start += cells + 1
    for first, second in pairs:
        sides = layout.side(first), layout.side(second)
        part = effects[start : start + sides[0] * sides[1]].reshape(*sides, -1)
        found.append(Shape((columns[first], columns[second]), (), (), None, outputs, part))
        start += sides[0] * sides[1] + 1
    return tuple(found)
