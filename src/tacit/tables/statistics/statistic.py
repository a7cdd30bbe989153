"""Statistics made of noisy cells: counts, tables, sums, means, variances, covariances."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ibis.expr.types as ir
import numpy as np
from numpy.typing import NDArray

from tacit import events
from tacit.data.source import PrivateSource
from tacit.tables.cells.measure import Measurement
from tacit.tables.cells.noise import CellNoise, Context, Share
from tacit.tables.release import Answer
from tacit.tables.statistics.contrasts import Law

__all__ = ["CellStatistic", "Statistic", "composed"]

Array = NDArray[Any]
Cells = NDArray[np.int64]
Estimate = Callable[[Sequence[Array]], Array]
Enclosed = Callable[[Sequence[Array], Sequence[Law], float], tuple[Array, Array]]


class Statistic:
    """One question. It names its event before anything is read, then asks for cells, then answers.

    :meth:`finish` returns the answer, or, where bounds had to be bought first, the statistic that goes on
    with them.
    """

    label: str
    selecting = False
    """Whether it needs no noise on cells, only a choice among candidates."""
    discovering = False
    """Whether it needs a δ of its own."""
    bought: dict[str, tuple[float, float]] | None = None
    """The bounds that were bought for it, by column."""

    def event(self, share: Share, context: Context) -> events.Event:
        """What is charged for this share."""
        raise NotImplementedError

    def measurements(self) -> Sequence[Measurement]:
        """What the engine has to compute."""
        return ()

    def read(self, source: PrivateSource, table: ir.Table, context: Context) -> Sequence[Any] | None:
        """What it reads by a query of its own, in place of measurements; None where it does not."""
        return None

    def finish(self, cells: Sequence[Cells], share: Share, context: Context) -> Answer | Statistic:
        """The answer, from the exact cells of the measurements or from what was read."""
        raise NotImplementedError

    def expected(self, share: Share, context: Context) -> tuple[float | None, str]:
        """The half-width of a 95 % interval, if public facts tell it, and a remark."""
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

    ``linear`` says that every number of the estimate is one cell times ``unit_size``; its interval is
    then that of the noise. Otherwise ``enclosed`` finds intervals from the noisy cells, the distributions of
    their noise, and the probability with which each may miss the truth, for whatever data (see
    :mod:`.intervals`). ``rounding`` is how far rounding to steps can move the estimate, and
    ``numbers`` how many of its numbers differ, where not all of them do.
    """

    label: str
    parts: tuple[Measurement, ...]
    estimate: Estimate
    show: Callable[[Array], Any]
    weights: tuple[float, ...] = ()
    linear: bool = False
    unit_size: float = 1.0
    rounding: float = 0.0
    enclosed: Enclosed | None = None
    numbers: int | None = None
    cells: bool = False
    margins: bool = False
    typical: Callable[[float], Sequence[Array]] | None = field(default=None, compare=False)
    summed: Callable[[Cells], Sequence[Cells]] | None = field(default=None, compare=False)
    """How the cells of the first part give those of all parts, where they are sums of them."""

    def measurements(self) -> Sequence[Measurement]:
        return self.parts[:1] if self.summed else self.parts

    def _noises(self, share: Share, context: Context) -> list[CellNoise]:
        weights = self.weights or (1.0,) * len(self.parts)
        total = math.fsum(weights)
        return [
            CellNoise.bought(part, share.of(weight / total), context)
            for part, weight in zip(self.parts, weights, strict=True)
        ]

    def event(self, share: Share, context: Context) -> events.Event:
        return composed([noise.event for noise in self._noises(share, context)])

    def finish(self, cells: Sequence[Cells], share: Share, context: Context) -> Answer:
        noises = self._noises(share, context)
        exact = self.summed(cells[0]) if self.summed else cells
        noisy = [noise(part) for noise, part in zip(noises, exact, strict=True)]
        values = self.estimate(noisy)
        interval = (
            partial(self._linear_interval, noises[0], values)
            if self.linear
            else partial(self._enclosing_interval, noises, noisy, values)
        )
        whole = self.cells and self.parts[0].mass(context.unit) == 1
        return Answer(values, interval, self.show, self.cells, whole, self.margins)

    def _linear_interval(
        self, noise: CellNoise, values: Array, confidence: float, simultaneous: bool
    ) -> tuple[Array, Array]:
        width = noise.half_width(confidence, max(values.size, 1) if simultaneous else 1)
        reach = width if self.unit_size == 1 else width * self.unit_size
        return self._rounded(values - reach, values + reach)

    def _rounded(self, low: Array, high: Array) -> tuple[Array, Array]:
        return (low - self.rounding, high + self.rounding) if self.rounding else (low, high)

    def _enclosing_interval(
        self,
        noises: Sequence[CellNoise],
        noisy: Sequence[Array],
        values: Array,
        confidence: float,
        simultaneous: bool,
    ) -> tuple[Array, Array]:
        assert self.enclosed is not None
        numbers = (self.numbers or max(values.size, 1)) if simultaneous else 1
        low, high = self.enclosed(noisy, [noise.law for noise in noises], (1 - confidence) / numbers)
        return self._rounded(np.minimum(low, values), np.maximum(high, values))

    def expected(self, share: Share, context: Context) -> tuple[float | None, str]:
        noises = self._noises(share, context)
        if self.linear:
            values = np.zeros(self.parts[0].shape[:-1])
            low, high = self._linear_interval(noises[0], values, 0.95, False)
            return float((high - low).max(initial=0) / 2), ""
        if self.typical is None:
            return None, ""
        if context.rows is None:
            return None, "depends on the number of rows: declare or guess it"
        noisy = self.typical(context.rows)
        values = self.estimate(noisy)
        low, high = self._enclosing_interval(noises, noisy, values, 0.95, False)
        groups = math.prod(self.parts[0].shape[:-1])
        remark = (
            f"if the {context.rows} rows fall evenly into {groups} groups"
            if groups > 1
            else (f"for {context.rows} rows spread over the bounds")
        )
        return float(np.max(high - low) / 2), remark
