"""The cells that boosting adds residuals up in: those of each column, and of pairs of columns.

Columns and cells are those of :mod:`tacit.estimators.coding`, by public facts alone. Values that are not
finite and categories that are not declared are missing: they fall into the last cell, which every split
leaves out, so that they contribute nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.estimators.coding import Coding

__all__ = ["Codes", "Layout"]

Array = NDArray[np.float64]
Codes = NDArray[np.integer[Any]]

PAIR_SIDE = 8
"""The cells of a column are joined to at most so many groups where it is half of a pair."""


@dataclass(frozen=True)
class Layout:
    """The columns and their cells. All of it is public, or was bought.

    >>> from tacit.estimators.private import Public
    >>> public = Public(1.0, 0.0, "add_remove", None, 2)
    >>> layout = Layout(Coding.of(public, bounds=(0, 10), categories=[None, 2], bins=4))
    >>> layout.codes(np.array([[2.6, 1], [99, 0], [np.nan, 7]])).tolist(), layout.cells
    ([[1, 1], [3, 0], [4, 2]], (4, 2))
    """

    coding: Coding

    @property
    def cells(self) -> tuple[int, ...]:
        """The number of cells of each column, without the last, of missing values."""
        return tuple(column.cells - (column.kind != "number") for column in self.coding.columns)

    def within(self, lower: Array, upper: Array) -> Layout:
        """The same with bounds that have been bought, one pair per feature."""
        columns = (
            replace(each, lower=float(lower[each.first]), upper=float(upper[each.first]))
            for each in self.coding.columns
        )
        return Layout(Coding(tuple(columns)))

    def codes(self, matrix: NDArray[Any], taken: NDArray[np.bool_] | None = None) -> Codes:
        """The cell of each row in each column, for the rows that are ``taken``; by each row alone."""
        rows = len(matrix) if taken is None else int(taken.sum())
        kind = np.min_scalar_type(max(self.cells, default=0))
        codes: Codes = np.empty((rows, len(self.cells)), dtype=kind, order="F")
        for place, column in enumerate(self.coding.columns):
            found = column.codes(matrix)
            if column.kind == "number":
                found[~np.isfinite(matrix[:, column.first])] = column.cells
            codes[:, place] = found if taken is None else found[taken]
        return codes

    def is_category(self, column: int) -> bool:
        """Whether the cells of a column have no order."""
        return self.coding.columns[column].kind != "number"

    def edges(self, column: int) -> Array | None:
        """Where the bins of a number meet, its bounds included; None for a category."""
        found = self.coding.columns[column]
        return None if self.is_category(column) else np.linspace(found.lower, found.upper, found.cells + 1)

    def paired(self, codes: Codes, first: int, second: int) -> NDArray[np.int64]:
        """The cell of each row in a pair of columns; the last where either value is missing."""
        one, other = self._joined(codes[:, first], first), self._joined(codes[:, second], second)
        sides = self.side(first), self.side(second)
        missing = (one == sides[0]) | (other == sides[1])
        return np.asarray(np.where(missing, sides[0] * sides[1], one * sides[1] + other))

    def side(self, column: int) -> int:
        """How many groups of cells a column has in a pair."""
        return min(self.cells[column], PAIR_SIDE)

    def _joined(self, codes: Codes, column: int) -> NDArray[np.int64]:
        cells, side = self.cells[column], self.side(column)
        groups = np.append(np.arange(cells) * side // cells, side)
        return np.asarray(groups[codes])
