"""Randomized response on bins, for labels that are numbers.

Ghazi, Kamath, Kumar, Leeman, Manurangsi, Varadarajan and Zhang, "Regression with Label Differential Privacy"
(ICLR 2023): among all ε-private randomizers, the expected squared error under a prior is least for one that
maps a label to one of d bins, which are intervals, and answers with the values of the bins by randomized
response.

Why it is ε-differentially private. The bins and their values are functions of the prior, which is public or
was bought before; given them, the response is randomized response among d values, whose table has no ratio
above e^ε. A label that is no number is answered for uniformly, as in :func:`tacit.labels.response.responded`.

The best bins. Write the labels as cells with midpoints m_i and prior p_i. For bins I_1 … I_d with values v_j
the expected squared error is

    Σ_j [ (e^ε − 1) Σ_{i ∈ I_j} p_i (m_i − v_j)² + Σ_i p_i (m_i − v_j)² ] / (e^ε + d − 1),

a sum over bins, so that for each d the best intervals are found by dynamic programming, and the best value of
an interval is a weighted mean: ((e^ε − 1) Σ_I p m + Σ p m)/((e^ε − 1) Σ_I p + 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from tacit import _validate, events
from tacit.errors import InvalidValue
from tacit.labels.prior import usable_prior
from tacit.labels.response import Float64, Int64, Response, responded
from tacit.mechanisms import DiscreteLaplace, RandomizedResponse
from tacit.randomness import Source

__all__ = ["ResponseOnBins", "bought_prior", "cell_of"]

MOST_BINS = 64


def cell_of(values: Float64, bounds: tuple[float, float], cells: int) -> Int64:
    """The cell of each value, clipped to the bounds, among equal ones between them; −1 for no number."""
    low, high = bounds
    with np.errstate(invalid="ignore"):
        clipped = np.clip(values, low, high)
        found = np.floor((clipped - low) / (high - low) * cells)
    return np.where(np.isnan(values), -1, np.minimum(np.nan_to_num(found), cells - 1)).astype(np.int64)


def bought_prior(places: Int64, cells: int, epsilon: float, source: Source) -> Float64:
    """The shares of the cells, with exact noise.

    Sensitivity: replacing a label moves it from one cell to another, by 2 in ℓ1. Event: ``Pure(ε)``.
    """
    counts = np.bincount(places[places >= 0], minlength=cells)
    noisy = DiscreteLaplace(2, epsilon, random_state=source)(counts)
    return usable_prior(np.maximum(noisy, 0) / max(1, int(np.maximum(noisy, 0).sum())))


@dataclass(frozen=True)
class ResponseOnBins:
    """Randomized response among the values of the best bins under a prior.

    ``prior`` holds a probability for each of equal cells between ``bounds``. Guarantee: ε-differential
    privacy for each label, given the prior.

    >>> mechanism = ResponseOnBins(1.0, (0.0, 10.0), np.full(20, 0.05))
    >>> mechanism.values.round(2).tolist(), mechanism.event
    ([3.84, 6.16], RandomizedResponse(epsilon=1.0, categories=2))
    """

    epsilon: float
    bounds: tuple[float, float]
    prior: Any

    def __post_init__(self) -> None:
        _validate.epsilon(self.epsilon)
        found = np.asarray(self.prior, dtype=np.float64)
        if found.ndim != 1 or len(found) < 2 or not (np.isfinite(found) & (found >= 0)).all():
            raise InvalidValue(
                "prior", f"an array of shape {found.shape}", "a probability for each cell, two or more"
            )
        object.__setattr__(self, "prior", usable_prior(found))
        edges, values = _best(self.prior, self.midpoints, self.epsilon)
        object.__setattr__(self, "_edges", edges)
        object.__setattr__(self, "_values", values)

    @property
    def midpoints(self) -> Float64:
        """The midpoints of the cells."""
        low, high = self.bounds
        return np.asarray(low + (np.arange(len(self.prior)) + 0.5) * ((high - low) / len(self.prior)))

    @property
    def edges(self) -> tuple[int, ...]:
        """The first cell of each bin."""
        return self._edges  # type: ignore[attr-defined, no-any-return]

    @property
    def values(self) -> Float64:
        """What can be answered, in ascending order: the value of each bin."""
        return self._values  # type: ignore[attr-defined, no-any-return]

    @property
    def centres(self) -> Float64:
        """The mean of the prior in each bin."""
        starts = list(self.edges)
        mass = np.add.reduceat(self.prior, starts)
        plain = np.add.reduceat(self.midpoints, starts) / np.diff([*starts, len(self.prior)])
        return np.where(
            mass > 0, np.add.reduceat(self.prior * self.midpoints, starts) / np.maximum(mass, 1e-300), plain
        )

    @property
    def event(self) -> events.Event:
        """What the responses of all rows cost, for one label."""
        if len(self.values) < 2:
            return events.Pure(self.epsilon)
        return RandomizedResponse(self.epsilon, len(self.values)).event

    def bin_of(self, places: Int64) -> Int64:
        """The bin of each cell, −1 for none."""
        found = np.searchsorted(np.asarray(self.edges), places, side="right") - 1
        return np.where(places < 0, -1, found)

    def respond(self, labels: Float64, source: Source) -> Int64:
        """The place of a response among ``values`` for each label; one for NaN is uniform."""
        bins = self.bin_of(cell_of(labels, self.bounds, len(self.prior)))
        return responded(bins, len(self.values), self.epsilon, source)

    def table(self) -> tuple[tuple[Fraction, ...], ...]:
        """P(response | label): a row for each cell, and a last one for what is no number."""
        count = len(self.values)
        inner = ((Fraction(1),),) * 2 if count == 1 else Response(count, self.epsilon).table()
        return tuple(inner[each] for each in (*self.bin_of(np.arange(len(self.prior))).tolist(), -1))

    def unbiased(self, responses: Int64) -> Float64:
        """Numbers whose mean is the centre of the label's bin, the mean of the prior in it.

        The best values under squared error lie closer together than the centres, and randomized response
        pulls its mean to the middle of all values as well; a regression, which averages responses of alike
        rows, would keep both. With keeping probability p and q = (1 − p)/(d − 1), the number for response r
        is (centre_r − q Σ_j centre_j)/(p − q).
        """
        count, centres = len(self.values), self.centres
        if count == 1:
            return centres[responses]
        keep = float(RandomizedResponse(self.epsilon, count).keep_probability)
        other = (1 - keep) / (count - 1)
        return np.asarray((centres[responses] - other * centres.sum()) / (keep - other))


def _best(prior: Float64, midpoints: Float64, epsilon: float) -> tuple[tuple[int, ...], Float64]:
    """The first cells of the best bins, and their values."""
    cells = len(prior)
    grown = math.expm1(min(epsilon, 500.0))
    sums = [np.concatenate(([0.0], np.cumsum(prior * midpoints**power))) for power in (0, 1, 2)]
    mass, first, second = (grown * (each[None, :] - each[:, None]) + each[-1] for each in sums)
    value = first / np.maximum(mass, 1e-300)
    cost = np.where(np.arange(cells + 1)[:, None] < np.arange(cells + 1), second - first * value, math.inf)
    reached, steps = cost[0].copy(), []
    best, chosen = reached[cells] / (grown + 1), 1
    for bins in range(2, min(cells, MOST_BINS) + 1):
        through = reached[:, None] + cost
        steps.append(np.argmin(through, axis=0))
        reached = np.min(through, axis=0)
        if reached[cells] / (grown + bins) < best:
            best, chosen = reached[cells] / (grown + bins), bins
    edges = [cells]
    for back in reversed(steps[: chosen - 1]):
        edges.append(int(back[edges[-1]]))
    edges.append(0)
    edges.reverse()
    return tuple(edges[:-1]), np.array([value[a, b] for a, b in pairwise(edges)])
