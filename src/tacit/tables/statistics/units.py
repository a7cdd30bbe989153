"""How many people there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ibis.expr.types as ir
import numpy as np

from tacit import events, mechanisms
from tacit.data.source import PrivateSource
from tacit.tables.cells.noise import Context, Share
from tacit.tables.release import Answer
from tacit.tables.statistics.statistic import Cells, Statistic

__all__ = ["UnitCount"]


@dataclass(frozen=True)
class UnitCount(Statistic):
    """The number of different units that have a row; one unit moves it by at most 1, however many rows."""

    label: str
    where: Any = field(default=None, compare=False)

    def _noise(
        self, share: Share, context: Context
    ) -> mechanisms.DiscreteLaplace | mechanisms.DiscreteGaussian:
        if share.rho is None:
            return mechanisms.DiscreteLaplace(1, share.epsilon, random_state=context.random)
        return mechanisms.DiscreteGaussian(
            1.0, noise_multiplier=(2 * share.rho) ** -0.5, random_state=context.random
        )

    def event(self, share: Share, context: Context) -> events.Event:
        return self._noise(share, context).event

    def read(self, source: PrivateSource, table: ir.Table, context: Context) -> Sequence[Any]:
        kept = table if self.where is None else table.filter(self.where)
        found = source.run(kept.aggregate(n=source.unit(kept).nunique().cast("int64")))
        return [found["n"].to_numpy(dtype=np.int64)]

    def finish(self, cells: Sequence[Cells], share: Share, context: Context) -> Answer:
        noise = self._noise(share, context)
        noisy = noise(cells[0]).reshape(())

        def interval(confidence: float, simultaneous: bool) -> tuple[Any, Any]:
            low, high = noise.interval(confidence)
            return noisy + low, noisy + high

        return Answer(noisy, interval, lambda numbers: numbers.item(), cells=True, whole=True)

    def expected(self, share: Share, context: Context) -> tuple[float | None, str]:
        return float(self._noise(share, context).interval()[1]), ""
