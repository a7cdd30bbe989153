"""The passes over private rows: each is a function of public facts and rows whose counts add over blocks.

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

from tacit.estimators.private import PrivateRows

__all__ = ["Marginal", "cell_counts", "marginal_counts", "one_way_counts"]

Counts = NDArray[np.int64]
Marginal = tuple[int, ...]
"""The places of the attributes of a marginal, in rising order."""


def one_way_counts(cells: Sequence[int], rows: PrivateRows) -> list[Counts]:
    """How many rows are in each cell of each attribute. PRIVATE."""
    codes = _counted(rows)
    return [np.bincount(codes[:, place], minlength=size) for place, size in enumerate(cells)]


def marginal_counts(
    merged: Sequence[NDArray[np.int32]], marginals: Sequence[Marginal], rows: PrivateRows
) -> dict[Marginal, Counts]:
    """How many rows are in each cell of each marginal, after cells were merged. PRIVATE.

    ``merged`` says for each cell of an attribute the merged cell that it is part of.
    """
    codes = _counted(rows)
    coarse = [np.asarray(into, dtype=np.int64)[codes[:, place]] for place, into in enumerate(merged)]
    sizes = [int(into.max()) + 1 for into in merged]
    found = {}
    for marginal in marginals:
        flat = np.zeros(len(codes), dtype=np.int64)
        for place in marginal:
            flat = flat * sizes[place] + coarse[place]
        shape = [sizes[place] for place in marginal]
        found[marginal] = np.bincount(flat, minlength=math.prod(shape)).reshape(shape)
    return found


def cell_counts(cells: Sequence[int], rows: PrivateRows) -> Counts:
    """How many rows are in each cell of the whole domain, attribute by attribute. PRIVATE."""
    whole = tuple(range(len(cells)))
    alone = [np.arange(size, dtype=np.int32) for size in cells]
    return marginal_counts(alone, [whole], rows)[whole]


def _counted(rows: PrivateRows) -> NDArray[np.int64]:
    """The cells of the rows that count."""
    codes = rows.matrix if rows.keep is None else rows.matrix[rows.keep]
    return np.asarray(codes, dtype=np.int64)
