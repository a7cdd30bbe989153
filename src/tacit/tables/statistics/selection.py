"""Choices among public candidates: quantiles and the most frequent categories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tacit import events, mechanisms
from tacit.errors import InvalidValue
from tacit.relations import Relation
from tacit.tables.cells.axes import Axis, Grid
from tacit.tables.cells.measure import FRACTIONS, Block, Measurement
from tacit.tables.cells.noise import CellNoise, Context, Share
from tacit.tables.release import Answer
from tacit.tables.statistics import ranks
from tacit.tables.statistics.statistic import Cells, Statistic, composed

__all__ = ["CANDIDATES", "MOST_TOUCHED", "Quantiles", "Top"]

CANDIDATES = 16
"""log2 of the most candidates for a quantile."""

LOCATED = 0.025
"""The part of a quantile's share that each end of its interval is looked for with."""

CHECKED = 0.2
"""The part of a quantile's share that the ranks of these ends are measured with."""

MOST_TOUCHED = 2**20
"""The most groups that one unit may have rows in: rounding then costs half of the ε."""

TARGET_ROUNDED = 2.0**-27
"""What rounding its target to whole steps of 2^−26 rows, counted twice, adds to a score's sensitivity."""

SUM_ROUNDED = 2.0**-17
"""What float64 adds to a count of up to 2^34 rows in fractions: twice half a unit in the last place of it."""


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
    proportion, so that the losses of the parts add up to at most the ε of one choice. Scores are computed in
    whole steps and exact but for the target qn, which is rounded; then the mechanism rounds them to its grid,
    of step g ≤ 2^−21 sensitivities. In each of the T groups that a unit has rows in, a score moves by at
    most :data:`TARGET_ROUNDED` + g more. The sensitivity Δ' that the mechanism is given satisfies
    Δ' ≥ Δ·rows + T(TARGET_ROUNDED + 2^−21 Δ'), for T ≤ :data:`MOST_TOUCHED`. The event is one
    choice per quantile.

    The interval costs a quarter of the share, see :mod:`.ranks`: with little of it, two more
    choices look for candidates some rows before and after the quantile, and the rest measures the ranks of
    the ends made from them.
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
        touched = self.touched(context)
        if touched > MOST_TOUCHED:
            raise InvalidValue("by", touched, f"at most {MOST_TOUCHED} groups, where the unit is a person")
        return (reach * context.unit.rows + touched * TARGET_ROUNDED) / (1 - touched * 2.0**-21)

    def touched(self, context: Context) -> int:
        """In how many groups one unit can move scores."""
        if not self.axes:
            return 1
        if context.unit.column is None:
            return 1 if context.relation is Relation.ADD_REMOVE else 2
        return math.prod(axis.size for axis in self.axes)

    def _choosers(self, share: Share, context: Context) -> dict[str, list[Any]]:
        """One choice per fraction, for the value and for where to look for either end of its interval."""
        parts = {"value": 1.0}
        if self.confidence is not None:
            parts = {"value": 1 - 2 * LOCATED - CHECKED, "low": LOCATED, "high": LOCATED}
        return {
            name: [
                _chooser(share.of(part / len(self.fractions)), context, self._sensitivity(q, context), False)
                for q in self.fractions
            ]
            for name, part in parts.items()
        }

    def _check(self, share: Share, context: Context) -> CellNoise:
        """The noise on the rows between the ends, in fractions of a row."""
        measurement = self.measurements()[0]
        return CellNoise.bought(
            measurement, share.of(CHECKED), context, FRACTIONS // measurement.mass(context.unit)
        )

    def event(self, share: Share, context: Context) -> events.Event:
        parts = [one.event for choosers in self._choosers(share, context).values() for one in choosers]
        if self.confidence is not None:
            parts.append(self._check(share, context).event)
        return composed(parts)

    def finish(self, cells: Sequence[Cells], share: Share, context: Context) -> Answer:
        mass = self.measurements()[0].mass(context.unit)
        groups = cells[0].reshape(-1, self.grid.size) * (FRACTIONS // mass)
        choosers = self._choosers(share, context)
        chosen = np.array([self._chosen(group, choosers["value"]) for group in groups])
        values = self._laid_out(chosen)
        if self.confidence is None:
            return Answer(values, self._no_interval, self._show)
        check = self._check(share, context)
        scales = [_scale(one) for one in choosers["low"]]
        plan = ranks.Plan(self.fractions, check.law, self.confidence, scales)
        located = {
            side: np.array([self._chosen(group, choosers[name], side * plan.located) for group in groups])
            for name, side in (("low", -1), ("high", +1))
        }
        cuts = plan.cuts(chosen, located[-1], located[+1], self.grid.size - 1)
        noisy = check(ranks.between(groups, cuts))
        half = 0.0 if self.grid.value.whole and self.grid.value.scale.step == 1 else 0.5
        low, high = (self._laid_out(end) for end in plan.ends(noisy, cuts, chosen, self.grid.size - 1))
        ends = low - half, high + half
        return Answer(
            values,
            lambda confidence, simultaneous: self._interval(ends, confidence, simultaneous),
            self._show,
        )

    def _laid_out(self, found: NDArray[Any]) -> NDArray[Any]:
        shape = tuple(axis.size for axis in self.axes)
        laid_out = found.reshape(*shape, len(self.fractions)).astype(float)
        return laid_out[..., 0] if self.scalar else laid_out

    def _chosen(
        self, cells: NDArray[Any], choosers: Sequence[Any], offsets: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """A candidate for each fraction, moved by as many rows. Put in order."""
        moved = np.zeros(len(self.fractions)) if offsets is None else offsets
        picked = [
            choose(_scores(cells, FRACTIONS, fraction, float(offset), _scale(choose)))
            for fraction, choose, offset in zip(self.fractions, choosers, moved, strict=True)
        ]
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
            "Ask with interval=0.95; it costs a quarter of the epsilon.",
        )

    def expected(self, share: Share, context: Context) -> tuple[float | None, str]:
        rows = _scale(self._choosers(share, context)["value"][0]) * math.log(20)
        return None, f"about ±{rows:.3g} rows in rank, and half a step of {self.grid.value.scale.step:g}"


def _scale(choose: Any) -> float:
    """b: by how many rows scores must differ for one candidate to be e times as likely as another."""
    return float(2 * choose.sensitivity / choose.epsilon)


def _scores(
    cells: NDArray[np.int64], mass: int, fraction: float, offset: float, scale: float
) -> NDArray[np.float64]:
    """−(rows that each candidate is away from the fraction, moved by ``offset`` rows).

    In whole numbers of half steps, ``mass`` steps to a row; 2^52 of them or more are the same.
    """
    upto = np.cumsum(cells)
    target = round(2 * Fraction(fraction) * int(upto[-1])) + round(2 * offset * mass)
    ties = np.maximum(0, cells - round(2 * scale * mass))
    away = np.clip(np.abs(2 * upto - cells - target) - ties, 0, 2**52)
    scores: NDArray[np.float64] = -away / (2.0 * mass)
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
        reach = context.unit.rows + (SUM_ROUNDED if context.unit.column is not None else 0.0)
        return _chooser(share.of(1 / self.k), context, reach, monotone)

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
