"""The passes over private rows: in each, counts of a block of rows are added up over all blocks.

One row adds 1 to exactly one cell of every marginal. So all one-way marginals of d attributes, as one vector,
move by d in ℓ1 and √d in ℓ2 under ``add_remove``, by 2d and √(2d) under ``replace_one``, and a single
marginal by 1 and 1, or 2 and √2; a unit of k rows moves them k times as far. All counts are whole numbers,
and exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.estimators.blocks import PrivateRows, Rows, added

__all__ = ["Marginal", "cell_counts", "marginal_counts", "one_way_counts"]

Counts = NDArray[np.int64]
Marginal = tuple[int, ...]
"""The places of the attributes of a marginal, in rising order."""


def one_way_counts(cells: Sequence[int], rows: Rows) -> list[Counts]:
    """How many rows are in each cell of each attribute. PRIVATE."""

    def counts(block: PrivateRows) -> Counts:
        codes = _counted(block)
        found = [np.bincount(codes[:, place], minlength=size) for place, size in enumerate(cells)]
        return np.concatenate(found)

    return np.split(added(rows.each(counts)), np.cumsum(cells)[:-1])


def marginal_counts(
    merged: Sequence[NDArray[np.int32]], marginals: Sequence[Marginal], rows: Rows
) -> dict[Marginal, Counts]:
    """How many rows are in each cell of each marginal, after cells were merged. PRIVATE.

    ``merged`` says for each cell of an attribute the merged cell that it is part of.
    """
    sizes = [int(into.max()) + 1 for into in merged]
    shapes = [[sizes[place] for place in marginal] for marginal in marginals]
    lengths = list(map(math.prod, shapes))

    def counts(block: PrivateRows) -> Counts:
        codes = _counted(block)
        coarse = [np.asarray(into, dtype=np.int64)[codes[:, place]] for place, into in enumerate(merged)]
        found = []
        for marginal, length in zip(marginals, lengths, strict=True):
            flat = np.zeros(len(codes), dtype=np.int64)
            for place in marginal:
                flat = flat * sizes[place] + coarse[place]
            found.append(np.bincount(flat, minlength=length))
        return np.concatenate(found)

    parts = np.split(added(rows.each(counts)), np.cumsum(lengths)[:-1])
    return {
        marginal: part.reshape(shape)
        for marginal, shape, part in zip(marginals, shapes, parts, strict=True)
    }


def cell_counts(cells: Sequence[int], rows: Rows) -> Counts:
    """How many rows are in each cell of the whole domain, attribute by attribute. PRIVATE."""
    whole = tuple(range(len(cells)))
    alone = [np.arange(size, dtype=np.int32) for size in cells]
    return marginal_counts(alone, [whole], rows)[whole]


def _counted(rows: PrivateRows) -> NDArray[np.int64]:
    """The cells of the rows that count."""
    codes = rows.matrix if rows.keep is None else rows.matrix[rows.keep]
    return np.asarray(codes, dtype=np.int64)
