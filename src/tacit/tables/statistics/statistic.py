"""Statistic and NoisyStatistic: what is computed, and the same with the noise that its share buys.

A :class:`Statistic` is made of a question and public facts. :meth:`Statistic.with_noise` buys its mechanisms,
once; the :class:`NoisyStatistic` that holds them names its event, foretells its error and makes the answer.
Both are there before anything is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ibis.expr.types as ir
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tacit import events
from tacit.data.source import PrivateSource
from tacit.tables.cells.axes import Bins
from tacit.tables.cells.measure import Measurement
from tacit.tables.cells.noise import CellNoise, Context, Share
from tacit.tables.release import Answer
from tacit.tables.statistics.contrasts import Law

__all__ = ["CellStatistic", "NoisyCells", "NoisyStatistic", "Statistic", "composed", "laid_out"]

Array = NDArray[Any]
Cells = NDArray[np.int64]
Estimate = Callable[[Sequence[Array]], Array]
Expected = tuple[float | None, str]
"""The half-width of a 95 % interval, if public facts tell it, and a remark."""
Enclosed = Callable[[Sequence[Array], Sequence[Law], Any], tuple[Array, Array]]
"""From noisy cells, laws of noise and the probability to miss, a float or an array, to both ends."""


class Statistic:
    """What one question computes, from public facts alone."""

    @property
    def selecting(self) -> bool:
        """Whether it needs no noise on cells, only a choice among candidates."""
        return False

    @property
    def discovering(self) -> bool:
        """Whether it needs a δ of its own."""
        return False

    def with_noise(self, share: Share, context: Context) -> NoisyStatistic:
        """The statistic with the mechanisms that its share of the budget buys."""
        raise NotImplementedError

    def measurements(self) -> Sequence[Measurement]:
        """The cells that the engine has to compute."""
        return ()

    def read(self, source: PrivateSource, table: ir.Table, context: Context) -> Sequence[Any] | None:
        """The result of a query of its own, in place of measurements; None where it has none."""
        return None


class NoisyStatistic:
    """A statistic with its mechanisms: its event, its expected error and its answer all come from them."""

    statistic: Statistic
    bought: dict[str, tuple[float, float]] | None = None
    """The bounds that were bought for it, by column."""

    @property
    def event(self) -> events.Event:
        """The event that is charged."""
        raise NotImplementedError

    def expected(self, population: int | None) -> Expected:
        """How far off the answer will be, for a table of so many rows, if their number is known."""
        raise NotImplementedError

    def answer(self, cells: Sequence[Any]) -> Answer | NoisyStatistic:
        """The answer, from the exact cells of the measurements or from the result of the own query.

        Where bounds had to be bought first, it is the noisy statistic that goes on with them, as a part of
        the same event.
        """
        raise NotImplementedError


def composed(parts: Sequence[events.Event]) -> events.Event:
    """Events in sequence, in the shortest form."""
    distinct = list(dict.fromkeys(parts))
    if len(distinct) == 1:
        return distinct[0] if len(parts) == 1 else events.Repeat(distinct[0], len(parts))
    return events.Compose(tuple(parts))


@dataclass(frozen=True)
class CellStatistic(Statistic):
    """An estimate from the noisy cells of one or more measurements.

    Relation, sensitivity and event are those of :mod:`tacit.tables.cells.measure` and
    :class:`~tacit.tables.cells.noise.CellNoise`: each measurement is a vector of whole numbers that one unit
    moves by at most its sensitivity, released with discrete Laplace or discrete Gaussian noise, each
    for its part of the share. The estimate is post-processing.

    ``enclosed`` finds intervals from the noisy cells, the distributions of their noise, and the probability
    with which each may miss the truth, for whatever data (see :mod:`.intervals`). Where it is None, every
    number of the estimate is one cell times ``unit_size``, and its interval is that of the noise.
    ``rounding`` is how far rounding to steps can move the estimate, and ``numbers`` how many of its numbers
    differ, where not all of them do. ``typical`` gives the cells of so many rows as they might be, for
    foretelling the error.
    """

    parts: tuple[Measurement, ...]
    estimate: Estimate
    show: Callable[[Array], Any]
    weights: tuple[float, ...] = ()
    unit_size: float = 1.0
    rounding: float = 0.0
    enclosed: Enclosed | None = None
    numbers: int | None = None
    cells: bool = False
    margins: bool = False
    groups: int = 0
    """How many of the first axes are groups, each with a table of its own."""
    bins: Bins | None = None
    """The bins that the last axis is divided into, if it is."""
    typical: Callable[[float], Sequence[Array]] | None = field(default=None, compare=False)
    at_once: bool = False
    """Whether ``enclosed`` takes several probabilities to miss at once, and as many copies of the cells."""
    summed: Callable[[Cells], Sequence[Cells]] | None = field(default=None, compare=False)
    """How the cells of the first part give those of all parts, where they are sums of them."""

    def measurements(self) -> Sequence[Measurement]:
        return self.parts[:1] if self.summed else self.parts

    def with_noise(self, share: Share, context: Context) -> NoisyCells:
        weights = self.weights or (1.0,) * len(self.parts)
        total = math.fsum(weights)
        noises = tuple(
            CellNoise.bought(part, share.of(weight / total), context)
            for part, weight in zip(self.parts, weights, strict=True)
        )
        return NoisyCells(self, noises, whole=self.cells and self.parts[0].mass(context.unit) == 1)


@dataclass(frozen=True)
class NoisyCells(NoisyStatistic):
    """A statistic made of cells, with the noise of each of its measurements."""

    statistic: CellStatistic
    noises: tuple[CellNoise, ...]
    whole: bool
    """Whether the true numbers are whole."""

    @property
    def event(self) -> events.Event:
        return composed([noise.event for noise in self.noises])

    def answer(self, cells: Sequence[Cells]) -> Answer:
        made = self.statistic
        exact = made.summed(cells[0]) if made.summed else cells
        noisy = [noise(part) for noise, part in zip(self.noises, exact, strict=True)]
        values = made.estimate(noisy)
        return Answer(
            values, _Intervals(self, noisy, values), made.show, made.cells, self.whole, made.margins,
            made.groups, made.bins,
        )  # fmt: skip

    def _interval(
        self, noisy: Sequence[Array], values: Array, confidence: float, simultaneous: bool
    ) -> tuple[Array, Array]:
        made = self.statistic
        numbers = (made.numbers or max(values.size, 1)) if simultaneous else 1
        if made.enclosed is None:
            width = self.noises[0].half_width(confidence, numbers)
            reach = width if made.unit_size == 1 else width * made.unit_size
            low, high = values - reach, values + reach
        else:
            laws = [noise.law for noise in self.noises]
            low, high = made.enclosed(noisy, laws, (1 - confidence) / numbers)
            low, high = np.minimum(low, values), np.maximum(high, values)
        return (low - made.rounding, high + made.rounding) if made.rounding else (low, high)

    def _intervals(
        self, noisy: Sequence[Array], values: Array, wanted: Sequence[tuple[float, bool]]
    ) -> list[tuple[Array, Array]]:
        made = self.statistic
        if not made.at_once or made.enclosed is None:
            return [self._interval(noisy, values, level, simultaneous) for level, simultaneous in wanted]
        numbers = made.numbers or max(values.size, 1)
        missed = [(1 - level) / (numbers if simultaneous else 1) for level, simultaneous in wanted]
        miss = np.array(missed).reshape(-1, *(1,) * np.ndim(values))
        copies = [np.broadcast_to(cells, (len(wanted), *np.shape(cells))) for cells in noisy]
        low, high = made.enclosed(copies, [noise.law for noise in self.noises], miss)
        low, high = np.minimum(low, values) - made.rounding, np.maximum(high, values) + made.rounding
        return list(zip(low, high, strict=True))

    def expected(self, population: int | None) -> Expected:
        made = self.statistic
        groups = math.prod(made.parts[0].shape[:-1])
        if made.enclosed is None:
            values = np.zeros(made.parts[0].shape[:-1])
            low, high = self._interval((), values, 0.95, False)
            return float((high - low).max(initial=0) / 2), ""
        if made.typical is None:
            return None, ""
        if population is None:
            return None, "depends on the number of rows: declare or guess it"
        noisy = made.typical(population)
        low, high = self._interval(noisy, made.estimate(noisy), 0.95, False)
        remark = (
            f"if the {population} rows fall evenly into {groups} groups"
            if groups > 1
            else f"for {population} rows spread over the bounds"
        )
        return float(np.max(high - low) / 2), remark


@dataclass(frozen=True)
class _Intervals:
    """The intervals of an answer: at one confidence, or at several at once, whose intervals are kept."""

    of: NoisyCells
    noisy: Sequence[Array]
    values: Array
    known: dict[tuple[float, bool], tuple[Array, Array]] = field(default_factory=dict, compare=False)

    def __call__(self, confidence: float, simultaneous: bool) -> tuple[Array, Array]:
        found = self.known.get((confidence, simultaneous))
        return found or self.of._interval(self.noisy, self.values, confidence, simultaneous)

    def many(self, wanted: Sequence[tuple[float, bool]]) -> list[tuple[Array, Array]]:
        found = self.of._intervals(self.noisy, self.values, wanted)
        self.known.update(zip(wanted, found, strict=True))
        return found


def laid_out(values: Array, labels: Sequence[pd.Index]) -> pd.Series:
    """Numbers on axes as a series, one entry for each combination of labels."""
    index = labels[0] if len(labels) == 1 else pd.MultiIndex.from_product(labels)
    return pd.Series(values.ravel(), index=index)
