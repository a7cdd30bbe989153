"""Intervals of quantiles that hold for every data set: ends whose ranks were measured.

A candidate that was chosen for its rank may lie anywhere, if few rows or many equal ones are around. So the
rank of an end is measured before the end is used. Let g(e) = #(x < e) − qn, in rows. Every usual q-quantile
of n values, whatever the convention, lies between the order statistics ⌊qn⌋ and ⌊qn⌋ + 2; so a low end e is
valid if g(e) ≤ −1, and a high end e − 1 if g(e) ≥ 2.

For each quantile there are four ends: a near one and a far one on either side of the released value, at
public parts of the way to a candidate that was chosen some rows farther out. They cut the rows of a group
into 4m + 1 parts for m quantiles, and the numbers of rows in the parts of all groups are one histogram: a
row that is added moves one of them by one, a row that is replaced moves two, a person's rows as many as
they weigh. So its sensitivity is that of any histogram, wherever the cuts are, and the part
:data:`~tacit.tables.statistics.selection.RANK_SHARE` of the question's share buys its noise.

From the noisy parts every g is known but for a contrast of known noise (see :mod:`.contrasts`). The far end
is accepted if the noise would explain an invalid one only with probability α/2, and then the near end by
the same rule; where the far end is not accepted, the end is the column's bound. As g only grows with e, an
invalid far end means that the near one is invalid too: so either side misses with probability α/2 at most,
in whatever way the ends were found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.tables.cells.measure import FRACTIONS
from tacit.tables.statistics.contrasts import Law, reach

__all__ = ["RankedEnds", "between"]

Array = NDArray[Any]
Whole = NDArray[np.int64]

NEAR = 1.7
"""How many times as far as it must be measured to be, in rows, the near end is aimed."""

FAR = 3.0
"""How much farther the far end is."""

AWAY = 16.0
"""How much farther than the near ends the candidates are looked for that tell how dense the rows lie."""

BEFORE, AFTER = 1.0, 2.0
"""How many rows beyond qn an end must be on either side, so that every convention's quantile is inside."""


@dataclass(frozen=True)
class RankedEnds:
    """Where the ends of intervals are put, and which of them are accepted for their noisy ranks.

    ``law`` is the noise of a part in steps of 1/FRACTIONS rows; ``scales`` are those, in rows, of the choices
    that look for candidates farther out.
    """

    fractions: tuple[float, ...]
    law: Law
    confidence: float
    scales: Sequence[float]

    def _reach(self, fraction: float, below: int) -> float:
        """How far, in rows, the noise moves g with ``below`` parts below it, but for α/2 on either side."""
        counts = below, 4 * len(self.fractions) + 1 - below
        weights = 1 - fraction, fraction
        rounding = self.law.rounding * sum(w * n for w, n in zip(weights, counts, strict=True))
        known = reach(self.law.gaussian, weights, 1 - self.confidence, counts)
        return (known * self.law.scale + rounding) / FRACTIONS

    @property
    def _near(self) -> Array:
        """How many rows from the quantile the near ends are aimed."""
        half = 2 * len(self.fractions)
        return np.array([NEAR * self._reach(fraction, half) + AFTER for fraction in self.fractions])

    @property
    def located(self) -> Array:
        """How many rows from the quantile candidates are looked for: where the choice errs by a quarter."""
        return np.asarray(np.maximum(AWAY * self._near, 4 * np.array(self.scales)))

    def cuts(self, values: Whole, low: Whole, high: Whole, last: int) -> Whole:
        """Four cuts for every quantile of every group: far and near below the value, near and far above.

        A cut at e parts the candidates below e from the others. The last candidate is ``last``.
        """
        part = self._near / self.located
        down, up = np.maximum(values - low, 0), np.maximum(high - values, 0)
        near = values - np.floor(part * down).astype(np.int64)
        far = np.minimum(values - np.ceil(FAR * part * down).astype(np.int64), near - 1)
        beyond = values + np.floor(part * up).astype(np.int64) + 1
        farther = np.maximum(values + np.ceil(FAR * part * up).astype(np.int64) + 1, beyond + 1)
        return np.asarray(np.clip(np.stack([far, near, beyond, farther], axis=-1), 0, last + 1))

    def accepted(self, parts: Array, cuts: Whole, values: Whole, last: int) -> tuple[Whole, Whole]:
        """The ends of every interval, as candidates; ``parts`` are the noisy rows between the cuts."""
        groups, number = values.shape
        order = np.argsort(cuts.reshape(groups, -1), axis=1, kind="stable")
        places = np.argsort(order, axis=1, kind="stable").reshape(cuts.shape)
        below = np.cumsum(parts, axis=1) / FRACTIONS
        low, high = np.zeros((groups, number), np.int64), np.full((groups, number), last, np.int64)
        for i, fraction in enumerate(self.fractions):
            excess = below - fraction * below[:, -1:]
            reaches = np.array([self._reach(fraction, k + 1) for k in range(4 * number)])
            far, near, beyond, farther = (
                (np.take_along_axis(excess, places[:, i, side, None], 1)[:, 0], reaches[places[:, i, side]])
                for side in range(4)
            )
            proven = far[0] + far[1] <= -BEFORE
            low[:, i] = np.where(proven, cuts[:, i, 0], 0)
            low[:, i] = np.where(proven & (near[0] + near[1] <= -BEFORE), cuts[:, i, 1], low[:, i])
            proven = farther[0] - farther[1] >= AFTER
            high[:, i] = np.where(proven, cuts[:, i, 3] - 1, last)
            high[:, i] = np.where(proven & (beyond[0] - beyond[1] >= AFTER), cuts[:, i, 2] - 1, high[:, i])
        return np.minimum(low, values), np.maximum(high, values)


def between(groups: Whole, cuts: Whole) -> Whole:
    """The exact rows between the cuts of each group, from the first to the last candidate."""
    upto = np.concatenate([np.zeros((len(groups), 1), np.int64), np.cumsum(groups, axis=1)], axis=1)
    ordered = np.sort(cuts.reshape(len(groups), -1), axis=1)
    inside = np.take_along_axis(upto, ordered, axis=1)
    return np.diff(np.concatenate([np.zeros_like(upto[:, :1]), inside, upto[:, -1:]], axis=1), axis=1)
