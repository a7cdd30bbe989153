"""From a row of features to one cell per column, by public facts: what count-based models are fitted to.

A *column* is a number with declared bounds, cut into bins of equal width; a code 0 … k−1; or a category that
a :class:`~tacit.data.preprocessor.Preprocessor` made one feature each. Whatever a row holds, it falls into
exactly one cell of every column: numbers are clipped to their bounds, a missing one (that is not finite) is
in the middle, and a category has one more cell for rows with none of those declared. So the counts of m
columns have an ℓ1 sensitivity of m and an ℓ2 sensitivity of √m under ``add_remove``, of 2m and √(2m) under
``replace_one``, even where the facts are wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from tacit import _validate
from tacit.data.features import Features, box
from tacit.data.given import places
from tacit.errors import InvalidValue
from tacit.estimators.private import PrivateRows, Public

__all__ = ["Coding", "labelled", "rows_to_predict"]

Codes = NDArray[np.int32]
UNDECLARED = "none of these"


@dataclass(frozen=True)
class Column:
    """One column: where its features are, and its cells."""

    first: int
    width: int
    """How many features it has: several for a category that was made one feature each."""
    cells: int
    kind: str
    """``"number"``, ``"code"`` or ``"one-hot"``."""
    lower: float = 0.0
    upper: float = 0.0
    title: str = ""
    """The column of the table, for a category that was made one feature each."""

    def codes(self, matrix: NDArray[Any]) -> Codes:
        """The cell of every row, from that row alone."""
        if self.kind == "one-hot":
            return self._largest(matrix)
        if self.kind == "code":
            values = np.asarray(matrix[:, self.first], dtype=np.float64)
            known = (values >= 0) & (values < self.cells - 1) & (np.floor(values) == values)
            return np.where(known, values, self.cells - 1).astype(np.int32)
        return np.minimum(np.floor(self.shares(matrix) * self.cells), self.cells - 1).astype(np.int32)

    def shares(self, matrix: NDArray[Any]) -> NDArray[np.float64]:
        """How far a number, clipped to its bounds, is from lower to upper: 0 to 1; missing is the middle."""
        values = np.asarray(matrix[:, self.first], dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            low, high = np.float64(self.lower) / 2, np.float64(self.upper) / 2
            found = (np.clip(values, self.lower, self.upper) / 2 - low) / (high - low)
        return np.clip(np.where(np.isfinite(values) & np.isfinite(found), found, 0.5), 0.0, 1.0)

    def _largest(self, matrix: NDArray[Any]) -> Codes:
        best = np.zeros(len(matrix))
        found = np.full(len(matrix), self.width, dtype=np.int32)
        for place in range(self.width):
            values = matrix[:, self.first + place]
            larger = values > best
            found[larger] = place
            best = np.where(larger, values, best)
        return found

    def edge(self, cell: int) -> float:
        """The value at which a cell of a number begins."""
        return self.lower + (self.upper - self.lower) * (cell / self.cells)

    def cell_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """What the cells are called; ``names`` are those of all features."""
        if self.kind == "number":
            edges = [f"{self.edge(cell):.4g}" for cell in range(self.cells + 1)]
            return tuple(f"{low} – {high}" for low, high in pairwise(edges))
        if self.kind == "code":
            return (*map(str, range(self.cells - 1)), UNDECLARED)
        own = names[self.first : self.first + self.width]
        return (*(name.removeprefix(f"{self.title}=") for name in own), UNDECLARED)

    def name(self, names: Sequence[str]) -> str:
        """What the column is called; ``names`` are those of all features."""
        return self.title if self.kind == "one-hot" else names[self.first]


@dataclass(frozen=True)
class Coding:
    """The columns of a matrix of features.

    >>> facts = Public(1.0, 0.0, "add_remove", None, 2)
    >>> coding = Coding.of(facts, bounds=(0, 10), categories=[None, 3], bins=4)
    >>> coding.codes(np.array([[2.6, 0], [99, 2], [0, 7]])).tolist(), coding.cells
    ([[1, 0], [3, 2], [0, 3]], (4, 4))
    """

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, public: Public, *, bounds: Any, categories: Any, bins: Any) -> Self:
        """The columns that parameters declare, or else those that a Preprocessor knows."""
        cells = _validate.count("bins", bins, 2)
        if bounds is None and categories is None:
            if public.features is None:
                raise InvalidValue(
                    "bounds", None, "given",
                    "Say what is publicly known: bounds=(lower, upper) of the numbers, categories=[…] with "
                    "how many codes a feature has, or put a Preprocessor before.",
                )  # fmt: skip
            return cls(tuple(_made_by_preprocessor(public.features, cells)))
        sizes = _declared_sizes(categories, public.width)
        if bounds is None and None in sizes:
            raise InvalidValue("bounds", None, "given where a feature is a number, not a code")
        lower, upper = box((0.0, 1.0) if bounds is None else bounds, public.width)
        return cls(tuple(
            Column(place, 1, cells, "number", float(lower[place]), float(upper[place]))
            if size is None else Column(place, 1, size + 1, "code")
            for place, size in enumerate(sizes)
        ))  # fmt: skip

    @property
    def cells(self) -> tuple[int, ...]:
        """How many cells each column has."""
        return tuple(column.cells for column in self.columns)

    def codes(self, matrix: NDArray[Any]) -> Codes:
        """The cell of every row in every column: (rows, columns)."""
        found = np.empty((len(matrix), len(self.columns)), dtype=np.int32)
        for place, column in enumerate(self.columns):
            found[:, place] = column.codes(matrix)
        return found

    def to_dict(self) -> dict[str, Any]:
        """The columns in JSON's terms, for a model file."""
        return {"columns": [asdict(column) for column in self.columns]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The columns that :meth:`to_dict` gave."""
        return cls(tuple(Column(**column) for column in data["columns"]))


def _made_by_preprocessor(features: Features, bins: int) -> list[Column]:
    """Features of one column side by side are its categories; every other feature is a number."""
    of = features.columns or features.names
    found: list[Column] = []
    for place, name in enumerate(features.names):
        if of[place] == name:
            found.append(Column(place, 1, bins, "number", features.lower[place], features.upper[place]))
        elif place and of[place] == of[place - 1] and found[-1].kind == "one-hot":
            last = found.pop()
            found.append(replace(last, width=last.width + 1, cells=last.cells + 1))
        else:
            found.append(Column(place, 1, 2, "one-hot", title=of[place]))
    return found


def _declared_sizes(categories: Any, width: int) -> list[int | None]:
    if categories is None:
        return [None] * width
    needed = f"one entry for each of {width} features: how many codes it has, or None for a number"
    if isinstance(categories, (str, bytes)) or not hasattr(categories, "__len__"):
        raise InvalidValue("categories", categories, needed)
    if len(categories) != width:
        raise InvalidValue("categories", len(categories), needed)
    return [None if each is None else _validate.count("categories", each, 1) for each in categories]


def labelled(rows: PrivateRows, classes: Sequence[Any]) -> NDArray[np.int64]:
    """The place of every row's class, −1 for a row that does not count.

    A row counts if it is one of those that its unit may have, one of its values is finite, and its label is
    declared; whether it does depends on that row and its unit alone.
    """
    labels = places(np.asarray(rows.targets), classes)
    counted = np.isfinite(rows.matrix).any(axis=1)
    if rows.keep is not None:
        counted &= rows.keep
    return np.where(counted, labels, -1)


def rows_to_predict(estimator: Any, X: Any) -> NDArray[Any]:
    """The rows that a fitted estimator is to predict; what is not finite is missing, as in ``fit``."""
    found = validate_data(estimator, X, dtype="numeric", reset=False, ensure_all_finite=False)
    return np.asarray(found)
