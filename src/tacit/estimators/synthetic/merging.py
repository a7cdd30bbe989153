"""Merging of cells by noisy one-way counts, so that larger marginals have few cells that are mostly noise.

Only released counts enter, so that merging costs nothing, and the merged cells are public.

Categories whose noisy count is below a few standard deviations of the noise are merged into one cell
(McKenna, Miklau and Sheldon 2021 do the same). Neighbouring bins of a number are merged until each has a
fair share of the rows; missing values are merged with the last bin if they are not above the noise. Within a
merged cell, rows are later given to the single cells in proportion to the noisy counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.estimators.synthetic.domain import Attribute
from tacit.mechanisms import without_negatives

__all__ = ["merged_cells", "population_of", "shares_within"]

Float64 = NDArray[np.float64]

DEVIATIONS = 3.0
"""A cell with fewer rows than so many standard deviations of the noise is merged with others."""


def population_of(noisy: Sequence[NDArray[np.int64]]) -> float:
    """The number of rows that noisy one-way marginals tell, at least 1.

    Each marginal has the same total, whose noise grows with its cells: the mean weighted by 1/cells.

    >>> population_of([np.array([60, 42]), np.array([30, 30, 35])])
    99.2
    """
    weights = np.array([1.0 / counts.size for counts in noisy])
    totals = np.array([float(counts.sum()) for counts in noisy])
    return max(1.0, float((weights * totals).sum() / weights.sum()))


def merged_cells(
    attribute: Attribute, noisy: NDArray[np.int64], deviation: float, population: float, most: int
) -> NDArray[np.int32]:
    """For each cell of an attribute the merged cell that it is part of, at most about ``most`` of them."""
    if attribute.edges is None:
        small = noisy < DEVIATIONS * deviation
        if small.sum() < 2:
            return np.arange(noisy.size, dtype=np.int32)
        kept = np.cumsum(~small) - 1
        return np.where(small, int((~small).sum()), kept).astype(np.int32)
    found = np.empty(noisy.size, dtype=np.int32)
    inside, place, held, cells = attribute.inside, 0, 0.0, 0
    share = population / most if inside > most else 0.0
    for cell in range(inside):
        fair = max(DEVIATIONS * deviation * math.sqrt(cells + 1), share)
        found[cell] = place
        held, cells = held + float(noisy[cell]), cells + 1
        if held >= fair and cell < inside - 1:
            place, held, cells = place + 1, 0.0, 0
    if place and held < DEVIATIONS * deviation * math.sqrt(max(cells, 1)):
        found[found == place] = place - 1
        place -= 1
    if attribute.missing:
        found[inside] = place + 1 if noisy[inside] >= DEVIATIONS * deviation else place
    return found


def shares_within(
    merged: NDArray[np.int32], noisy: NDArray[np.int64], population: float
) -> Float64:
    """The share of each cell in its merged cell, from counts without negatives; even where all are zero.

    >>> shares_within(np.array([0, 0, 1, 1], dtype=np.int32), np.array([30, 10, 0, 0]), 40.0).tolist()
    [0.75, 0.25, 0.5, 0.5]
    """
    counts = without_negatives(noisy + (population - noisy.sum()) / noisy.size)
    total = np.bincount(merged, weights=counts)[merged]
    even = 1.0 / np.bincount(merged)[merged]
    return np.where(total > 0, counts / np.where(total > 0, total, 1.0), even)
