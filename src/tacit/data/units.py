"""Bounding what one unit contributes: at most so many of its rows are kept, chosen blind to the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.given import group_numbers
from tacit.randomness import Source

__all__ = ["bounded_groups"]


def bounded_groups(groups: NDArray[Any], most: int, source: Source) -> NDArray[np.bool_]:
    """Which rows to keep so that no group has more than ``most``: a random choice, blind to the rows.

    Rows without a group (None or NaN) are not kept.
    """
    place = group_numbers(groups)
    order = np.lexsort((source.words(len(groups)), place))
    ranked = place[order]
    starts = np.flatnonzero(np.diff(ranked, prepend=-2))
    rank = np.arange(len(groups)) - np.repeat(starts, np.diff(np.append(starts, len(groups))))
    kept = np.zeros(len(groups), dtype=bool)
    kept[order] = (rank < most) & (ranked >= 0)
    return kept
