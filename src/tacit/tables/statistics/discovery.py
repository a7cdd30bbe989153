"""What is not declared, bought: the keys of a column, and the bounds of another."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np
import pandas as pd

from tacit import events, mechanisms
from tacit.data.source import UNIT, PrivateSource, text_of
from tacit.errors import InvalidValue
from tacit.relations import Relation
from tacit.tables.cells.axes import Bins
from tacit.tables.cells.measure import Block, Measurement
from tacit.tables.cells.noise import CellNoise, Context, Share
from tacit.tables.release import Answer
from tacit.tables.statistics.selection import Quantiles
from tacit.tables.statistics.statistic import Cells, CellStatistic, Statistic, composed

__all__ = ["BOUNDS_SHARE", "BoughtBounds", "Keys", "LearnedBounds", "exponents"]

BOUNDS_SHARE = 0.2
"""The part of a share that bounds="dp" spends on finding bounds."""

Answering = CellStatistic | Quantiles
"""What bounds can be bought for."""

FALSE_BIN = 0.01
"""How likely, at most, noise alone makes any empty bin count when bounds are sought."""


@dataclass(frozen=True)
class Keys(Statistic):
    """The keys of a column that enough units have, with how many have each (Korolova et al. 2009).

    Every unit counts once for each of at most k different keys (k = ``rows``; a person with more keeps
    those whose MD5 digest with her name is smallest, a choice that depends on her own rows alone). Each key
    that occurs gets discrete Laplace noise of scale s = k/ε (2k/ε under ``replace_one``), and is
    released if its noisy count is at least the threshold τ.

    Guarantee: (ε, δ). Call a key unique if only the differing unit has it. It counts 1 there and is
    released with probability p = P(N ≥ τ−1), independently of the others, so outputs with a unique key have
    probability at most kp ≤ δ. Let j ≤ k keys be unique. On outputs without them, the shared keys change
    likelihoods by at most e^(1/s) each, k − j of them; that no unique key shows has probability (1−p)^j
    against 1, and τ is chosen so that 1 − p ≥ e^(−1/s). In all, at most e^(k/s), in both directions.
    Under ``replace_one`` there are such keys on both sides, 2k in all, hence the factor 2.
    """

    label: str
    column: str
    where: Any = field(default=None, compare=False)
    discovering = True

    def _noise(self, share: Share, context: Context) -> mechanisms.DiscreteLaplace:
        factor = 1 if context.relation is Relation.ADD_REMOVE else 2
        return mechanisms.DiscreteLaplace(factor * context.unit.rows, share.pure, random_state=context.random)

    def threshold(self, share: Share, context: Context) -> int:
        """The smallest τ with k·P(N ≥ τ−1) ≤ δ and P(N ≥ τ−1) ≤ 1 − e^(−1/s)."""
        noise = self._noise(share, context)
        rate = noise.epsilon / noise.sensitivity
        allowed = min(share.delta / context.unit.rows, -math.expm1(-rate)) * (1 - 1e-9)
        reach = (math.log1p(math.exp(-rate)) + math.log(allowed)) / -rate
        return 1 + max(1, math.ceil(reach))

    def event(self, share: Share, context: Context) -> events.Event:
        return events.Approximate(share.pure, share.delta)

    def read(self, source: PrivateSource, table: ir.Table, context: Context) -> Sequence[Any]:
        """The exact counts of all keys, in the columns ``key`` and ``n``."""
        kept = table[self.column].notnull()
        table = table.filter(kept if self.where is None else kept & self.where)
        key = source.bytewise(table[self.column])
        if context.unit.column is None:
            found = source.run(table.group_by(key=key).aggregate(n=table.count()))
        else:
            digest = (table[UNIT].cast("string") + "\n" + table[self.column].cast("string")).hexdigest("md5")
            pairs = table.select(unit=source.unit(table), key=key, digest=digest).distinct()
            ranked = pairs.mutate(place=ibis.row_number().over(group_by="unit", order_by=["digest", "key"]))
            few = ranked.filter(ranked.place < context.unit.rows)
            found = source.run(few.group_by("key").aggregate(n=few.count()))
        return [found.assign(key=[text_of(one) for one in found["key"]])]

    def finish(self, cells: Sequence[Any], share: Share, context: Context) -> Answer:
        """The keys that pass, with their noisy counts, the most frequent first."""
        noise = self._noise(share, context)
        exact = cells[0].sort_values("key", ignore_index=True)
        noisy = noise(exact["n"].to_numpy(dtype=np.int64))
        threshold = self.threshold(share, context)
        passed = noisy >= threshold
        order = np.argsort(-noisy[passed], kind="stable")
        names = pd.Index(exact["key"][passed].to_numpy()[order], name=self.column)
        counts = noisy[passed][order]
        return Answer(
            counts,
            lambda confidence, simultaneous: self._interval(
                noise, counts, threshold, (1 - confidence) / (max(1, counts.size) if simultaneous else 1)
            ),
            lambda numbers: pd.Series(numbers, index=names),
        )

    @staticmethod
    def _interval(noise: mechanisms.DiscreteLaplace, counts: Any, threshold: int, miss: float) -> Any:
        """Where the true counts lie, given that the keys are shown.

        Shown is what noise lifted to the threshold τ: given that, a count near τ is rather too large. So
        the distribution of the noisy count Y is taken as it is among those of at least τ. With more units
        that have the key, Y is stochastically larger there too (the noise is log-concave); the interval
        holds every number n of units, at least 1, for which neither P(Y ≥ y | Y ≥ τ) nor P(Y ≤ y | Y ≥ τ)
        is below ``miss``/2. It misses the truth of a shown key with probability at most ``miss``, and of
        all keys that are shown at once with as many times that. For n ≤ τ the first is e^(−(y−τ)/s),
        whatever n is: then the lower end is 1.
        """
        rate, half = noise.epsilon / noise.sensitivity, miss / 2 * (1 - 1e-9)
        seen = np.asarray(counts, dtype=np.int64)

        def few_enough(number: Any) -> Any:
            """Whether P(Y ≤ y | Y ≥ τ) ≥ half, so that ``number`` is not too large."""
            above = np.exp(_log_tail(seen + 1 - number, rate) - _log_tail(threshold - number, rate))
            return 1 - above >= half

        def many_enough(number: Any) -> Any:
            """Whether P(Y ≥ y | Y ≥ τ) ≥ half, so that ``number`` is not too small."""
            return _log_tail(seen - number, rate) - _log_tail(threshold - number, rate) >= math.log(half)

        reach = np.int64(math.ceil(math.log(4 / half) / rate) + 2)
        high = _last(few_enough, seen, seen + reach)
        low = -_last(lambda number: many_enough(-number), -seen, -np.maximum(seen - reach, 1))
        return np.where(many_enough(np.ones_like(seen)), 1, low), high

    def expected(self, share: Share, context: Context) -> tuple[float | None, str]:
        half = float(self._noise(share, context).interval()[1])
        return half, f"keys that fewer than about {self.threshold(share, context)} units have stay unknown"


def _log_tail(number: Any, rate: float) -> Any:
    """ln P(N ≥ number) of discrete Laplace noise: r^k/(1 + r) from 1 on, its complement below."""
    ratio = math.exp(-rate)
    upper = -rate * np.maximum(number, 1) - math.log1p(ratio)
    lower = np.log1p(-np.exp(-rate * np.maximum(1 - number, 1)) / (1 + ratio))
    return np.where(number >= 1, upper, lower)


def _last(holds: Callable[[Any], Any], start: Any, end: Any) -> Any:
    """The last whole number from ``start`` to ``end`` that holds, where all that do come first."""
    inner, outer = np.array(start), np.array(end) + 1
    while (outer - inner > 1).any():
        middle = (inner + outer) // 2
        good = holds(middle)
        inner, outer = np.where(good, middle, inner), np.where(good, outer, middle)
    return inner


def exponents(column: str, kind: str) -> Bins:
    """Bins between powers of two, positive and negative, with one around zero."""
    powers = [2.0**j for j in (range(53) if kind == "integer" else range(-20, 64))]
    edges = (-math.inf, *(-power for power in reversed(powers)), *powers, math.inf)
    return Bins(column, kind, edges, edges)


@dataclass(frozen=True)
class LearnedBounds(Statistic):
    """Bounds of a column from a noisy histogram of the exponents of its values.

    One count per bin between powers of two, with the noise of any histogram. The bounds are the outer
    edges of the bins whose noisy count is above what noise alone reaches anywhere with probability
    FALSE_BIN, or the bin with the largest count if none is: post-processing.
    """

    label: str
    column: str
    type: str
    where: Any = field(default=None, compare=False)

    def measurements(self) -> Sequence[Measurement]:
        return (Measurement(Block("count", (), self.where), (exponents(self.column, self.type),)),)

    def event(self, share: Share, context: Context) -> events.Event:
        return CellNoise.bought(self.measurements()[0], share, context).event

    def bounds(self, cells: Cells, share: Share, context: Context) -> tuple[float, float]:
        """The bounds, from exact cells."""
        axis = self.measurements()[0].axes[0]
        assert isinstance(axis, Bins)
        noise = CellNoise.bought(self.measurements()[0], share, context)
        noisy = noise(cells)[..., 0]
        passed = np.nonzero(noisy > noise.half_width(1 - FALSE_BIN, axis.size))[0]
        places = passed if passed.size else np.array([noisy.argmax()])
        limit = 2 * axis.edges[-2]
        low, high = axis.edges[places[0]], axis.edges[places[-1] + 1]
        return max(low, -limit), min(high, limit)

    def finish(self, cells: Sequence[Cells], share: Share, context: Context) -> Answer:
        bounds = np.array(self.bounds(cells[0], share, context))
        return Answer(bounds, self._no_interval, lambda pair: tuple(pair.tolist()))

    def _no_interval(self, confidence: float, simultaneous: bool) -> tuple[Any, Any]:
        raise InvalidValue(
            "confidence", confidence, "left out: bounds are powers of two around most values, not estimates"
        )

    def expected(self, share: Share, context: Context) -> tuple[float | None, str]:
        noise = CellNoise.bought(self.measurements()[0], share, context)
        bins = self.measurements()[0].shape[0]
        steps = noise.half_width(1 - FALSE_BIN, bins) / self.measurements()[0].mass(context.unit)
        return None, f"powers of two; fewer than about {steps:.0f} values beyond a bound go unnoticed"


@dataclass(frozen=True)
class BoughtBounds(Statistic):
    """A statistic whose bounds are bought first, with BOUNDS_SHARE of its share.

    ``make`` builds the statistic proper from the bounds of each column. Both events are charged
    before anything is read; that of the statistic does not depend on what the bounds turn out to be.
    """

    label: str
    columns: tuple[tuple[str, str], ...]
    make: Callable[[dict[str, tuple[float, float]]], Answering]
    where: Any = field(default=None, compare=False)

    def _learned(self) -> list[LearnedBounds]:
        return [LearnedBounds(self.label, column, kind, self.where) for column, kind in self.columns]

    def _split(self, share: Share) -> tuple[Share, Share]:
        return share.of(BOUNDS_SHARE / len(self.columns)), share.of(1 - BOUNDS_SHARE)

    def _example(self) -> Answering:
        return self.make({column: (0.0, 1.0) for column, _ in self.columns})

    @property
    def selecting(self) -> bool:  # type: ignore[override]
        return False

    def measurements(self) -> Sequence[Measurement]:
        return [measurement for learned in self._learned() for measurement in learned.measurements()]

    def event(self, share: Share, context: Context) -> events.Event:
        first, rest = self._split(share)
        return composed(
            [
                *(learned.event(first, context) for learned in self._learned()),
                self._example().event(rest, context),
            ]
        )

    def finish(self, cells: Sequence[Cells], share: Share, context: Context) -> Paid:
        first, rest = self._split(share)
        bounds = {
            learned.column: learned.bounds(exact, first, context)
            for learned, exact in zip(self._learned(), cells, strict=True)
        }
        return Paid(self.make(bounds), rest, bounds)

    def expected(self, share: Share, context: Context) -> tuple[float | None, str]:
        return None, f"depends on the bounds, which {BOUNDS_SHARE:.0%} of the budget buys"


@dataclass(frozen=True)
class Paid(Statistic):
    """A statistic with the share that is left for it, and the bounds it was made with."""

    statistic: Answering
    share: Share
    bought: dict[str, tuple[float, float]]

    def measurements(self) -> Sequence[Measurement]:
        return self.statistic.measurements()

    def finish(self, cells: Sequence[Cells], share: Share, context: Context) -> Answer:
        return self.statistic.finish(cells, self.share, context)
