"""The number of units, such as people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ibis.expr.types as ir
import numpy as np

from tacit import events
from tacit.data.source import PrivateSource
from tacit.tables.cells.noise import Context, IntegerNoise, Share, integer_noise
from tacit.tables.release import Answer
from tacit.tables.statistics.statistic import Cells, NoisyStatistic, Statistic

__all__ = ["UnitCount"]


@dataclass(frozen=True)
class UnitCount(Statistic):
    """The number of different units that have a row; one unit moves it by at most 1, however many rows."""

    where: Any = field(default=None, compare=False)

    def read(self, source: PrivateSource, table: ir.Table, context: Context) -> Sequence[Any]:
        kept = table if self.where is None else table.filter(self.where)
        found = source.run(kept.aggregate(n=source.unit(kept).nunique().cast("int64")))
        return [found["n"].to_numpy(dtype=np.int64)]

    def with_noise(self, share: Share, context: Context) -> NoisyUnitCount:
        noise = integer_noise(share, context, l1=1, l2=1.0, inverse_root=lambda number: number**-0.5)
        return NoisyUnitCount(self, noise)


@dataclass(frozen=True)
class NoisyUnitCount(NoisyStatistic):
    """The number of units with noise."""

    statistic: UnitCount
    noise: IntegerNoise

    @property
    def event(self) -> events.Event:
        return self.noise.event

    def expected(self, population: int | None) -> tuple[float | None, str]:
        return float(self.noise.interval()[1]), ""

    def answer(self, cells: Sequence[Cells]) -> Answer:
        noisy = self.noise(cells[0]).reshape(())

        def interval(confidence: float, simultaneous: bool) -> tuple[Any, Any]:
            low, high = self.noise.interval(confidence)
            return noisy + low, noisy + high

        return Answer(noisy, interval, lambda numbers: numbers.item(), cells=True, whole=True)
