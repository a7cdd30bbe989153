"""Choices among public candidates: quantiles and the most frequent categories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tacit import events, mechanisms
from tacit.errors import InvalidValue
from tacit.relations import Relation
from tacit.tables.axes import Axis, Grid
from tacit.tables.measure import Block, Measurement
from tacit.tables.noise import Context, Share
from tacit.tables.release import Answer
from tacit.tables.statistic import Cells, Statistic, composed

__all__ = ["CANDIDATES", "Quantiles", "Top"]

CANDIDATES = 16
"""log2 of the most candidates for a quantile."""

ROUNDED = 2.0**-19
"""What rounding scores to a mechanism's grid adds to the sensitivity for each group that a unit may touch."""

ENDS = 0.1
"""The part of a quantile's share that each end of its interval gets."""


def _chooser(
    share: Share, context: Context, sensitivity: float, monotone: bool
) -> mechanisms.Exponential | mechanisms.PermuteAndFlip:
    """The exponential mechanism where its bounded range is worth more, else permute-and-flip.

    Under a filter that adds up ε's both cost the same and permute-and-flip errs less; under one that
    adds up Rényi divergences the exponential mechanism affords twice the ε.
    """
    if context.concentrated or share.rho is not None:
        return mechanisms.Exponential(sensitivity, share.bounded_range, monotone, random_state=context.random)
    return mechanisms.PermuteAndFlip(sensitivity, share.pure, monotone, random_state=context.random)


@dataclass(frozen=True)
class Quantiles(Statistic):
    """Values below which given fractions of the rows lie, chosen on the grid of the column's bounds.

    Candidate v has the score −d, d = max(0, |L + E/2 − qn| − max(0, E/2 − b)), where L rows are below v, E in
    its cell and n in all: how many rows the middle of the cell is away from the quantile, except that a
    cell with many rows (ties) is as good anywhere inside as b rows from its edge. b = 2Δ/ε is the scale of
    the choice in rows, and public. Adding a row below v moves L + E/2 − qn by 1−q, above it by −q,
    and one in its cell by ½−q and the subtracted term by at most ½; so a score moves by at most
    Δ = max(q, 1−q) = ½ + |½−q|. Replacing a row moves it by at most 1 ≤ 2Δ. A person counts ``rows``
    times that.

    Several quantiles share the budget evenly and are put in order. Groups are parts: a row enters one
    (under ``replace_one``, two), and a person's rows, spread over several, shift the scores in
    proportion, so that the losses of the parts add up to at most the ε of one choice; the sensitivity
    is widened by what rounding the scores of each group may add. The event is one choice per quantile.

    The interval costs a fifth of the share. Each end is a choice of its own, aimed s rows before
    and after the quantile; the chance that it lands beyond is e^(−s/b)/2 for scores that fall
    by 1/b a row, and s makes that half of what the interval may miss. With ties it misses less.
    """

    label: str
    axes: tuple[Axis, ...]
    grid: Grid
    fractions: tuple[float, ...]
    scalar: bool
    confidence: float | None
    where: Any = field(default=None, compare=False)
    selecting = True

    def measurements(self) -> Sequence[Measurement]:
        return (Measurement(Block("count", (), self.where), (*self.axes, self.grid)),)

    def _sensitivity(self, fraction: float, context: Context) -> float:
        reach = max(fraction, 1 - fraction)
        if context.relation is Relation.REPLACE_ONE:
            reach = 2 * reach if self.axes or context.unit.column else 1.0
        groups = math.prod(axis.size for axis in self.axes)
        return reach * context.unit.rows * (1 + ROUNDED * (groups if self.axes else 0))

    def _choosers(self, share: Share, context: Context) -> dict[str, list[Any]]:
        """One choice per fraction, for the value and for either end of its interval."""
        parts = (
            {"value": 1.0} if self.confidence is None else {"value": 1 - 2 * ENDS, "low": ENDS, "high": ENDS}
        )
        return {
            name: [
                _chooser(share.of(part / len(self.fractions)), context, self._sensitivity(q, context), False)
                for q in self.fractions
            ]
            for name, part in parts.items()
        }

    def event(self, share: Share, context: Context) -> events.Event:
        return composed(
            [one.event for choosers in self._choosers(share, context).values() for one in choosers]
        )

    def finish(self, cells: Sequence[Cells], share: Share, context: Context) -> Answer:
        measurement = self.measurements()[0]
        counts = cells[0][..., 0] / measurement.mass(context.unit)
        choosers = self._choosers(share, context)
        groups = counts.reshape(-1, self.grid.size)
        found = {
            name: self._laid_out(np.array([self._chosen(group, each, side) for group in groups]))
            for (name, each), side in zip(choosers.items(), (0, -1, +1), strict=False)
        }
        values = found["value"]
        if self.confidence is None:
            return Answer(values, self._no_interval, self._show)
        half = 0.0 if self.grid.value.whole and self.grid.value.scale.step == 1 else 0.5
        ends = np.minimum(found["low"], values) - half, np.maximum(found["high"], values) + half
        return Answer(
            values,
            lambda confidence, simultaneous: self._interval(ends, confidence, simultaneous),
            self._show,
        )

    def _laid_out(self, found: NDArray[Any]) -> NDArray[Any]:
        shape = tuple(axis.size for axis in self.axes)
        laid_out = found.reshape(*shape, len(self.fractions)).astype(float)
        return laid_out[..., 0] if self.scalar else laid_out

    def _chosen(self, counts: NDArray[Any], choosers: Sequence[Any], side: int) -> NDArray[Any]:
        """A candidate for each fraction; on a side, that end of its interval. Put in order."""
        miss = (1 - (self.confidence or 0.0)) / 2
        picked = []
        for fraction, choose in zip(self.fractions, choosers, strict=True):
            rows = 2 * choose.sensitivity / choose.epsilon
            picked.append(choose(_scores(counts, fraction, side * rows * math.log(0.5 / miss), rows)))
        places = np.argsort(self.fractions, kind="stable")
        ordered = np.empty(len(picked), dtype=np.int64)
        ordered[places] = np.sort(picked)
        return ordered

    def _show(self, values: NDArray[Any]) -> Any:
        value = self.grid.value
        numbers = value.scale.at(values)
        natural: Any = np.clip(numbers, value.scale.lower, value.scale.upper)
        if value.type == "date":
            natural = np.vectorize(value.natural, otypes=[object])(natural)
        elif value.whole:
            natural = np.rint(natural).astype(np.int64)
        if not self.axes and self.scalar:
            return natural.item()
        labels = [axis.labels() for axis in self.axes]
        if not self.scalar:
            labels.append(pd.Index(list(self.fractions), name="quantile"))
        index = labels[0] if len(labels) == 1 else pd.MultiIndex.from_product(labels)
        return pd.Series(natural.ravel(), index=index)

    def _interval(self, ends: tuple[Any, Any], confidence: float, simultaneous: bool) -> tuple[Any, Any]:
        if confidence > (self.confidence or 0) or (simultaneous and ends[0].ndim):
            raise InvalidValue(
                "confidence",
                confidence,
                f"at most {self.confidence}, for each quantile by itself: that is what was paid for",
                "Ask for the quantile with interval= another confidence.",
            )
        return ends

    def _no_interval(self, confidence: float, simultaneous: bool) -> tuple[Any, Any]:
        raise InvalidValue(
            "confidence",
            confidence,
            "left out: this quantile was released without an interval",
            "Ask with interval=0.95; it costs a fifth of the epsilon.",
        )

    def expected(self, share: Share, context: Context) -> tuple[float | None, str]:
        choose = self._choosers(share, context)["value"][0]
        rows = 2 * choose.sensitivity / choose.epsilon * math.log(20)
        return None, f"about ±{rows:.3g} rows in rank, and half a step of {self.grid.value.scale.step:g}"


def _scores(counts: NDArray[Any], fraction: float, offset: float, scale: float) -> NDArray[np.float64]:
    """−(rows that each candidate is away from the fraction, moved by ``offset`` rows)."""
    upto = np.cumsum(counts)
    middle = upto - counts / 2
    target = fraction * upto[-1] + offset
    ties = np.maximum(0.0, counts / 2 - scale)
    scores: NDArray[np.float64] = -np.maximum(0.0, np.abs(middle - target) - ties)
    return scores


@dataclass(frozen=True)
class Top(Statistic):
    """The most frequent categories, most frequent first.

    Chosen one after the other, each for 1/k of the share; the score is the count, which one unit moves by
    at most ``rows``. Under ``add_remove`` all counts move the same way.
    """

    label: str
    axis: Axis
    k: int
    where: Any = field(default=None, compare=False)
    selecting = True

    def measurements(self) -> Sequence[Measurement]:
        return (Measurement(Block("count", (), self.where), (self.axis,)),)

    def _chooser(self, share: Share, context: Context) -> Any:
        monotone = context.relation is Relation.ADD_REMOVE
        return _chooser(share.of(1 / self.k), context, float(context.unit.rows), monotone)

    def event(self, share: Share, context: Context) -> events.Event:
        return composed([self._chooser(share, context).event] * self.k)

    def finish(self, cells: Sequence[Cells], share: Share, context: Context) -> Answer:
        choose = self._chooser(share, context)
        counts = cells[0][..., 0] / self.measurements()[0].mass(context.unit)
        left = list(range(self.axis.size))
        picked = [left.pop(choose(counts[left])) for _ in range(self.k)]
        names = self.axis.labels()
        return Answer(
            np.array(picked),
            self._no_interval,
            lambda places: pd.Series(
                [names[i] for i in places], index=pd.RangeIndex(1, self.k + 1, name="rank")
            ),
        )

    def _no_interval(self, confidence: float, simultaneous: bool) -> tuple[Any, Any]:
        raise InvalidValue("confidence", confidence, "left out: a list of names has no interval")

    def expected(self, share: Share, context: Context) -> tuple[float | None, str]:
        choose = self._chooser(share, context)
        reach = choose.sensitivity * (1 if choose.monotone else 2) / choose.epsilon
        return None, f"counts closer than about {reach * math.log(20 * self.axis.size):.3g} may trade places"
