"""Coding of a schema: every column of a table becomes an attribute with finitely many public cells.

A category has one cell for each declared value (and ``other``), a number or a date one for each bin between
its bounds. Where a value may be missing, or undeclared without ``other``, the attribute has one more cell for
that, the last. Whatever a row holds, it falls into exactly one cell of every attribute, by a rule that the
schema and the parameters fix. So a row adds 1 to one cell of each marginal, even where the schema is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.data.cleaning.values import Values, bounded, bounds_of, codes_of
from tacit.data.columns import Columns
from tacit.data.preprocessor import Preprocessor
from tacit.errors import InvalidValue
from tacit.schema import Column, Schema

__all__ = ["Attribute", "Codes", "Domain"]

Codes = NDArray[np.int32]
Float64 = NDArray[np.float64]

MISSING = "missing"
"""What the last cell is called, where a value may be missing or undeclared."""


@dataclass(frozen=True)
class Attribute:
    """One column with its cells."""

    name: str
    column: Column
    edges: tuple[float, ...] | None
    """Where the bins of a number meet, outer ones included; None for categories."""

    @property
    def values(self) -> tuple[Any, ...]:
        """The declared values of a category, ``other`` last; none for a number."""
        column = self.column
        return (*(column.categories or ()), *([] if column.other is None else [column.other]))

    @property
    def inside(self) -> int:
        """The number of cells without that of missing values."""
        return len(self.values) if self.edges is None else len(self.edges) - 1

    @property
    def missing(self) -> bool:
        """Whether the last cell is for missing and undeclared values."""
        column = self.column
        return column.missing is None or (self.edges is None and column.other is None)

    @property
    def cells(self) -> int:
        """The number of cells."""
        return self.inside + self.missing

    @property
    def whole(self) -> bool:
        """Whether the values of a number are whole: integers, or days."""
        return self.column.type in ("integer", "date")

    def codes(self, values: Values) -> Codes:
        """The cell of every row, from that row alone."""
        if self.edges is None:
            found = codes_of(values, self.column)
            return np.where(found < 0, self.cells - 1, found).astype(np.int32)
        numbers = bounded(values, self.column)
        found = np.searchsorted(np.asarray(self.edges[1:-1]), numbers, side="right")
        return np.where(np.isnan(numbers), self.cells - 1, found).astype(np.int32)

    def drawn(self, codes: NDArray[Any], shares: Float64) -> NDArray[Any]:
        """One value for each cell: the category, or in a bin what lies at this share of it; None if missing.

        A whole number is drawn from those of the bin, each equally often; dates are days since 1970.
        """
        if self.edges is None:
            known: NDArray[Any] = np.empty(self.cells + 1, dtype=object)
            known[:] = [*self.values, *[None] * (self.cells + 1 - len(self.values))]
            return np.asarray(known[codes])
        edges = np.asarray(self.edges)
        place = np.minimum(codes, self.inside - 1)
        low, high = edges[place], edges[place + 1]
        found = low + shares * (high - low)
        found = np.minimum(np.floor(found), high - 1) if self.whole else np.clip(found, low, high)
        return np.where(codes >= self.inside, np.nan, found)

    def cell_names(self) -> tuple[str, ...]:
        """What the cells are called."""
        if self.edges is None:
            named = [str(value) for value in self.values]
        else:
            named = [
                f"{low:g}" if self.whole and high - low == 1 else f"{low:g} – {high:g}"
                for low, high in zip(self.edges, self.edges[1:], strict=False)
            ]
        return (*named, *([MISSING] if self.missing else []))


@dataclass(frozen=True)
class Domain:
    """The attributes of a table.

    >>> schema = Schema({"age": Column("integer", bounds=(0, 99)),
    ...                  "sex": Column("category", categories=("f", "m"))})
    >>> domain = Domain.of(schema, bins=4)
    >>> domain.cells, domain.attributes[0].cell_names()
    ((5, 3), ('0 – 25', '25 – 50', '50 – 75', '75 – 100', 'missing'))
    >>> domain.codes({"age": [24, 25, 900, None], "sex": ["m", "f", "x", None]}).tolist()
    [[0, 1], [1, 0], [3, 2], [4, 2]]
    """

    attributes: tuple[Attribute, ...]

    @classmethod
    def of(
        cls,
        schema: Any,
        *,
        bins: Any = 32,
        transforms: Mapping[str, str] | None = None,
        exclude: Sequence[str] = (),
    ) -> Self:
        """The attributes of a schema: numbers are cut into ``bins`` of equal width on a transformed scale."""
        known = Schema.of(schema)
        left_out = [*exclude] if isinstance(exclude, (list, tuple)) else exclude
        if known.unit.column in known.columns and isinstance(left_out, list):
            left_out.append(str(known.unit.column))
        maker = Preprocessor(known, transforms=transforms, exclude=left_out)
        used = maker.columns
        chosen, scales = _bins_of(bins, known, used), transforms or {}
        return cls(tuple(
            Attribute(name, known[name], _edges(known[name], name, chosen[name], scales.get(name)))
            for name in used
        ))  # fmt: skip

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def cells(self) -> tuple[int, ...]:
        """The number of cells of each attribute."""
        return tuple(attribute.cells for attribute in self.attributes)

    @property
    def schema(self) -> Schema:
        """The columns as a schema."""
        return Schema({attribute.name: attribute.column for attribute in self.attributes})

    def codes(self, X: Any) -> Codes:
        """The cell of every row in every attribute: (rows, attributes)."""
        columns = Columns(X, self.schema, self.names)
        found = np.empty((columns.number, len(self.attributes)), dtype=np.int32)
        for place, attribute in enumerate(self.attributes):
            found[:, place] = attribute.codes(columns[attribute.name])
        return found

    def to_dict(self) -> dict[str, Any]:
        """The attributes in JSON's terms, for a model file."""
        edges = [None if attribute.edges is None else list(attribute.edges) for attribute in self.attributes]
        return {"schema": self.schema.to_toml(), "edges": edges}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The attributes that :meth:`to_dict` gave."""
        schema = Schema.from_toml(data["schema"])
        return cls(tuple(
            Attribute(name, schema[name], None if edges is None else tuple(map(float, edges)))
            for name, edges in zip(schema, data["edges"], strict=True)
        ))  # fmt: skip


def _bins_of(bins: Any, schema: Schema, used: Sequence[str]) -> dict[str, Any]:
    """What cuts each column: a number of bins, or edges."""
    if not isinstance(bins, Mapping):
        return dict.fromkeys(used, _validate.count("bins", bins, 1))
    for name in bins:
        schema[name]
        if name not in used or schema[name].categories is not None:
            raise InvalidValue("key of bins", name, "a number that is synthesized")
    return {name: bins.get(name, 32) for name in used}


def _edges(column: Column, name: str, bins: Any, transform: str | None) -> tuple[float, ...] | None:
    """Where the bins of a column meet. Those of whole numbers meet at whole numbers."""
    if column.categories is not None:
        return None
    lower, upper = bounds_of(column)
    whole = column.type in ("integer", "date")
    end = upper + 1 if whole else upper
    where = f"bins of column {name!r}"
    if isinstance(bins, (list, tuple)):
        inner = [_validate.finite(where, each) for each in bins]
        if sorted(set(inner)) != inner:
            raise InvalidValue(where, bins, "edges in rising order")
        inner = [each for each in inner if lower < each < end]
        if whole and any(each != math.floor(each) for each in inner):
            raise InvalidValue(where, bins, "whole numbers, as the column has")
        return (lower, *inner, end)
    number = _validate.count(where, bins, 1)
    if whole and end - lower <= number:
        return tuple(float(each) for each in np.arange(lower, end + 1))
    maker = Preprocessor(
        {name: replace(column, bounds=(0.0, end - lower), type="number", missing=None)},
        transforms=None if transform is None else {name: transform},
    )
    found = lower + maker.unscaled(name, np.linspace(-1.0, 1.0, number + 1))
    if whole:
        found = np.unique(np.rint(found))
    found[0], found[-1] = lower, end
    if not (np.diff(found) > 0).all():
        raise InvalidValue(where, number, "fewer, the bins have no width", "Ask for fewer bins.")
    return tuple(found.tolist())
