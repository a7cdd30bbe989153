"""Which cell of each column a row falls into: by public bounds and declared categories alone.

A *column* is what one feature, or the one-hot features of one category, say of a row. A number falls into one
of so many bins of equal width between its bounds; a category is its own cell. A value that is not finite and
a category that is not declared fall into a last cell that every split leaves out: they contribute nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.data.features import Features
from tacit.errors import InvalidValue

__all__ = ["Codes", "Layout", "cells_of", "members_of"]

Array = NDArray[np.float64]
Codes = NDArray[np.integer[Any]]

MOST_BINS = 255
"""With the cell of missing values, a cell's number fits in a byte."""
MOST_CATEGORIES = 2**16 - 1
PAIR_SIDE = 8
"""The cells of a column are joined to at most so many groups where it is half of a pair."""


@dataclass(frozen=True)
class Layout:
    """The columns and their cells. All of it is public, or was bought.

    >>> layout = Layout(np.array([0.0, 0, 0]), np.array([10.0, 1, 1]), np.array([0, 1, 1]), np.array([4, 2]))
    >>> layout.codes(np.array([[2.6, 0, 1], [99, 1, 0], [np.nan, 0, 0]])).tolist()
    [[1, 1], [3, 0], [4, 2]]
    """

    lower: Array
    upper: Array
    members: NDArray[np.int64]
    """The column that each feature belongs to."""
    cells: NDArray[np.int64]
    """The number of cells of each column, without the one for missing values."""

    def codes(self, matrix: NDArray[Any], taken: NDArray[np.bool_] | None = None) -> Codes:
        """The cell of each row in each column, for the rows that are ``taken``; by each row alone."""
        rows = len(matrix) if taken is None else int(taken.sum())
        small = int(self.cells.max(initial=0)) <= MOST_BINS
        codes: Codes = np.empty((rows, self.cells.size), dtype=np.uint8 if small else np.uint16, order="F")
        for column, cells in enumerate(self.cells.tolist()):
            features = np.flatnonzero(self.members == column)
            if features.size > 1:
                codes[:, column] = self._category(matrix, features, taken)
                continue
            value = _taken(matrix[:, features[0]], taken)
            low, high = self.lower[features[0]], self.upper[features[0]]
            width = high / 2 - low / 2
            with np.errstate(all="ignore"):
                place = (value / 2 - low / 2) / (width if width > 0 else 1.0)
                place = np.clip(np.floor(place * cells), 0, cells - 1)
            place[~np.isfinite(value)] = cells
            codes[:, column] = place
        return codes

    def _category(
        self, matrix: NDArray[Any], features: NDArray[np.int64], taken: NDArray[np.bool_] | None
    ) -> NDArray[np.int64]:
        """The first feature above its lower bound, if there is one."""
        found = np.full(len(matrix) if taken is None else int(taken.sum()), features.size)
        for place in range(features.size - 1, -1, -1):
            j = features[place]
            with np.errstate(invalid="ignore"):
                found[_taken(matrix[:, j], taken) > self.lower[j]] = place
        return found

    def is_category(self, column: int) -> bool:
        """Whether the cells of a column have no order."""
        return int((self.members == column).sum()) > 1

    def edges(self, column: int) -> Array | None:
        """Where the bins of a number meet, its bounds included; None for a category."""
        if self.is_category(column):
            return None
        j = int(np.flatnonzero(self.members == column)[0])
        return np.linspace(self.lower[j], self.upper[j], int(self.cells[column]) + 1)

    def paired(self, codes: Codes, first: int, second: int) -> NDArray[np.int64]:
        """The cell of each row in a pair of columns; the last where either value is missing."""
        one, other = self._joined(codes[:, first], first), self._joined(codes[:, second], second)
        sides = self.side(first), self.side(second)
        missing = (one == sides[0]) | (other == sides[1])
        return np.asarray(np.where(missing, sides[0] * sides[1], one * sides[1] + other))

    def side(self, column: int) -> int:
        """How many groups of cells a column has in a pair."""
        return min(int(self.cells[column]), PAIR_SIDE)

    def _joined(self, codes: Codes, column: int) -> NDArray[np.int64]:
        cells, side = int(self.cells[column]), self.side(column)
        groups = np.append(np.arange(cells) * side // cells, side)
        return np.asarray(groups[codes])


def members_of(features: Features | None, width: int) -> NDArray[np.int64]:
    """The column of each feature: by what a preprocessor knows, else each feature is one."""
    if features is None or features.columns is None:
        return np.arange(width)
    known: dict[str, int] = {}
    return np.array([known.setdefault(name, len(known)) for name in features.columns])


def cells_of(members: NDArray[np.int64], bins: Any) -> NDArray[np.int64]:
    """How many cells each column has; ``bins`` is one number for all features or one for each."""
    listed = list(bins) if isinstance(bins, Sequence | np.ndarray) and not isinstance(bins, str) else None
    if listed is not None and len(listed) != members.size:
        raise InvalidValue("bins", len(listed), f"one number, or one for each of {members.size} features")
    found = []
    for column in range(int(members.max(initial=-1)) + 1):
        features = np.flatnonzero(members == column)
        if features.size > 1:
            if features.size > MOST_CATEGORIES:
                raise InvalidValue("categories", features.size, f"at most {MOST_CATEGORIES} of one column")
            found.append(features.size)
            continue
        count = _validate.count("bins", bins if listed is None else listed[int(features[0])], 2)
        if count > MOST_BINS:
            raise InvalidValue("bins", count, f"at most {MOST_BINS}")
        found.append(count)
    return np.array(found, dtype=np.int64)


def _taken(values: NDArray[Any], taken: NDArray[np.bool_] | None) -> Array:
    return np.array(values if taken is None else values[taken], dtype=np.float64)
