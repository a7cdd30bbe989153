"""Choices among public candidates: quantiles and the most frequent categories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tacit import events, mechanisms
from tacit.errors import InvalidValue
from tacit.relations import Relation
from tacit.tables.cells.axes import Axis, Steps
from tacit.tables.cells.measure import FRACTIONS, Block, Measurement
from tacit.tables.cells.noise import CellNoise, Context, Share
from tacit.tables.release import Answer
from tacit.tables.statistics import ranks
from tacit.tables.statistics.statistic import (
    Cells,
    Expected,
    NoisyStatistic,
    Statistic,
    composed,
    laid_out,
)

__all__ = ["CANDIDATES", "MOST_TOUCHED", "Quantiles", "Top"]

CANDIDATES = 16
"""log2 of the most candidates for a quantile."""

END_SHARE = 0.025
"""The part of a quantile's share that each end of its interval is looked for with."""

RANK_SHARE = 0.2
"""The part of a quantile's share that the ranks of these ends are measured with."""

MOST_TOUCHED = 2**20
"""The most groups that one unit may have rows in: rounding then costs half of the ε."""

TARGET_ROUNDED = 2.0**-27
"""The sensitivity that a score gains from rounding its target to whole steps of 2^−26 rows, counted twice."""

SUM_ROUNDED = 2.0**-17
"""The sensitivity that a count of up to 2^34 rows in fractions gains in float64: a unit in its last place."""


Chooser = mechanisms.Exponential | mechanisms.PermuteAndFlip


def _chooser(share: Share, context: Context, sensitivity: float, monotone: bool) -> Chooser:
    """The exponential mechanism where its bounded range is worth more, else permute-and-flip.

    Under a filter that adds up ε's both cost the same and permute-and-flip errs less; under one that
    adds up Rényi divergences the exponential mechanism affords twice the ε.
    """
    if context.concentrated or share.rho is not None:
        return mechanisms.Exponential(sensitivity, share.bounded_range, monotone, random_state=context.random)
    return mechanisms.PermuteAndFlip(sensitivity, share.pure, monotone, random_state=context.random)


@dataclass(frozen=True)
class Quantiles(Statistic):
    """Values below which given fractions of the rows lie, chosen on the steps between the column's bounds.

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

    The interval costs a quarter of the share, see :mod:`.ranks`: with two times :data:`END_SHARE` of it, two
    more choices look for candidates some rows before and after the quantile, and :data:`RANK_SHARE` measures
    the ranks of the ends made from them, as one histogram.
    """

    axes: tuple[Axis, ...]
    steps: Steps
    fractions: tuple[float, ...]
    scalar: bool
    confidence: float | None
    where: Any = field(default=None, compare=False)

    @property
    def selecting(self) -> bool:
        return True

    def measurements(self) -> Sequence[Measurement]:
        return (Measurement(Block("count", (), self.where), (*self.axes, self.steps)),)

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

    def choosers(self, share: Share, part: float, context: Context) -> tuple[Chooser, ...]:
        """One choice for each fraction; they divide ``part`` of the share evenly."""
        each = share.of(part / len(self.fractions))
        return tuple(
            _chooser(each, context, self._sensitivity(fraction, context), False)
            for fraction in self.fractions
        )

    def with_noise(self, share: Share, context: Context) -> NoisyQuantiles:
        (measurement,) = self.measurements()
        finer = FRACTIONS // measurement.mass(context.unit)
        if self.confidence is None:
            return NoisyQuantiles(self, finer, self.choosers(share, 1.0, context))
        value = self.choosers(share, 1 - 2 * END_SHARE - RANK_SHARE, context)
        low, high = (self.choosers(share, END_SHARE, context) for _ in range(2))
        noise = CellNoise.bought(measurement, share.of(RANK_SHARE), context, finer)
        scales = [_scale(choose) for choose in low]
        ends = ranks.RankedEnds(self.fractions, noise.law, self.confidence, scales)
        return NoisyQuantiles(self, finer, value, NoisyEnds(low, high, noise, ends))

    def chosen(
        self, cells: NDArray[Any], choosers: Sequence[Chooser], offsets: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """A candidate for each fraction, moved by ``offsets`` rows, in the order of the fractions."""
        moved = np.zeros(len(self.fractions)) if offsets is None else offsets
        picked = [
            choose(_scores(cells, FRACTIONS, fraction, float(offset), _scale(choose)))
            for fraction, choose, offset in zip(self.fractions, choosers, moved, strict=True)
        ]
        places = np.argsort(self.fractions, kind="stable")
        ordered = np.empty(len(picked), dtype=np.int64)
        ordered[places] = np.sort(picked)
        return ordered

    def laid_out(self, found: NDArray[Any]) -> NDArray[Any]:
        """Candidates of all groups in the shape of the answer."""
        shape = tuple(axis.size for axis in self.axes)
        arranged = found.reshape(*shape, len(self.fractions)).astype(float)
        return arranged[..., 0] if self.scalar else arranged

    def show(self, values: NDArray[Any]) -> Any:
        """Candidates as the user sees them: values of the column, one or a series."""
        value = self.steps.value
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
        return laid_out(natural, labels)


@dataclass(frozen=True)
class NoisyEnds:
    """The mechanisms of a quantile's interval: choices that look for either end, and noise on ranks."""

    low: tuple[Chooser, ...]
    high: tuple[Chooser, ...]
    noise: CellNoise
    ends: ranks.RankedEnds

    @property
    def events(self) -> list[events.Event]:
        """The events of all of them."""
        return [*(choose.event for choose in (*self.low, *self.high)), self.noise.event]


@dataclass(frozen=True)
class NoisyQuantiles(NoisyStatistic):
    """Quantiles with their choices and, unless the interval was declined, with the mechanisms of its ends.

    ``finer`` is how many steps of 1/FRACTIONS rows one step of the measurement is.
    """

    statistic: Quantiles
    finer: int
    choosers: tuple[Chooser, ...]
    interval: NoisyEnds | None = None

    @property
    def event(self) -> events.Event:
        values = [choose.event for choose in self.choosers]
        return composed(values if self.interval is None else [*values, *self.interval.events])

    def expected(self, population: int | None) -> Expected:
        rows, step = _scale(self.choosers[0]) * math.log(20), self.statistic.steps.value.scale.step
        return None, f"about ±{rows:.3g} rows in rank, and half a step of {step:g}"

    def answer(self, cells: Sequence[Cells]) -> Answer:
        made = self.statistic
        groups = cells[0].reshape(-1, made.steps.size) * self.finer
        chosen = np.array([made.chosen(group, self.choosers) for group in groups])
        values = made.laid_out(chosen)
        if self.interval is None:
            return Answer(values, self._no_interval, made.show)
        low, high = (made.laid_out(end) for end in self._ends(self.interval, groups, chosen))
        half = 0.0 if made.steps.itself else 0.5
        return Answer(values, partial(self._interval, (low - half, high + half)), made.show)

    def _ends(self, bought: NoisyEnds, groups: Cells, chosen: Cells) -> tuple[Cells, Cells]:
        """The ends of the interval around each chosen candidate, as candidates."""
        made, ends, last = self.statistic, bought.ends, self.statistic.steps.size - 1
        below, above = (
            np.array([made.chosen(group, choosers, side * ends.located) for group in groups])
            for choosers, side in ((bought.low, -1), (bought.high, +1))
        )
        cuts = ends.cuts(chosen, below, above, last)
        return ends.accepted(bought.noise(ranks.between(groups, cuts)), cuts, chosen, last)

    def _interval(self, ends: tuple[Any, Any], confidence: float, simultaneous: bool) -> tuple[Any, Any]:
        paid = self.statistic.confidence
        if confidence > (paid or 0) or (simultaneous and ends[0].ndim):
            raise InvalidValue(
                "confidence",
                confidence,
                f"at most {paid}, for each quantile by itself: that is what was paid for",
                "Ask for the quantile with confidence= another one.",
            )
        return ends

    def _no_interval(self, confidence: float, simultaneous: bool) -> tuple[Any, Any]:
        raise InvalidValue(
            "confidence",
            confidence,
            "left out: this quantile was released without an interval",
            "Ask with confidence=0.95; the interval costs a quarter of the epsilon.",
        )


def _scale(choose: Chooser) -> float:
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

    axis: Axis
    k: int
    where: Any = field(default=None, compare=False)

    @property
    def selecting(self) -> bool:
        return True

    def measurements(self) -> Sequence[Measurement]:
        return (Measurement(Block("count", (), self.where), (self.axis,)),)

    def with_noise(self, share: Share, context: Context) -> NoisyTop:
        monotone = context.relation is Relation.ADD_REMOVE
        reach = context.unit.rows + (SUM_ROUNDED if context.unit.column is not None else 0.0)
        mass = self.measurements()[0].mass(context.unit)
        return NoisyTop(self, mass, _chooser(share.of(1 / self.k), context, reach, monotone))


@dataclass(frozen=True)
class NoisyTop(NoisyStatistic):
    """The most frequent categories, with the choice that is made k times; ``mass`` steps are one row."""

    statistic: Top
    mass: int
    choose: Chooser

    @property
    def event(self) -> events.Event:
        return composed([self.choose.event] * self.statistic.k)

    def expected(self, population: int | None) -> Expected:
        reach = self.choose.sensitivity * (1 if self.choose.monotone else 2) / self.choose.epsilon
        close = reach * math.log(20 * self.statistic.axis.size)
        return None, f"counts closer than about {close:.3g} may trade places"

    def answer(self, cells: Sequence[Cells]) -> Answer:
        counts = cells[0][..., 0] / self.mass
        left = list(range(self.statistic.axis.size))
        picked = [left.pop(self.choose(counts[left])) for _ in range(self.statistic.k)]
        return Answer(np.array(picked), self._no_interval, self._show)

    def _show(self, places: NDArray[Any]) -> pd.Series:
        names = self.statistic.axis.labels()
        ranked = pd.RangeIndex(1, self.statistic.k + 1, name="rank")
        return pd.Series([names[i] for i in places], index=ranked)

    def _no_interval(self, confidence: float, simultaneous: bool) -> tuple[Any, Any]:
        raise InvalidValue("confidence", confidence, "left out: a list of names has no interval")
