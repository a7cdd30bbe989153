"""Public facts that the schema does not declare, bought with noise: the keys of a column, its bounds."""

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
from tacit.errors import InvalidValue, TacitError
from tacit.relations import Relation
from tacit.tables.cells.axes import Bins
from tacit.tables.cells.measure import Block, Measurement
from tacit.tables.cells.noise import CellNoise, Context, Share
from tacit.tables.release import Answer
from tacit.tables.statistics.statistic import Cells, Expected, NoisyStatistic, Statistic, composed

__all__ = ["BOUNDS_SHARE", "BoughtBounds", "Keys", "LearnedBounds", "exponents"]

BOUNDS_SHARE = 0.2
"""The part of a share that bounds="dp" spends on finding bounds."""

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

    column: str
    where: Any = field(default=None, compare=False)

    @property
    def discovering(self) -> bool:
        return True

    def with_noise(self, share: Share, context: Context) -> NoisyKeys:
        keys = context.unit.rows
        factor = 1 if context.relation is Relation.ADD_REMOVE else 2
        noise = mechanisms.DiscreteLaplace(factor * keys, share.pure, random_state=context.random)
        return NoisyKeys(self, noise, share.delta, self.threshold(noise, share.delta, keys))

    def threshold(self, noise: mechanisms.DiscreteLaplace, delta: float, keys: int) -> int:
        """The smallest τ with k·P(N ≥ τ−1) ≤ δ and P(N ≥ τ−1) ≤ 1 − e^(−1/s), for k keys to a unit."""
        rate = noise.epsilon / noise.sensitivity
        allowed = min(delta / keys, -math.expm1(-rate)) * (1 - 1e-9)
        reach = (math.log1p(math.exp(-rate)) + math.log(allowed)) / -rate
        return 1 + max(1, math.ceil(reach))

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


@dataclass(frozen=True)
class NoisyKeys(NoisyStatistic):
    """The keys of a column with the noise on their counts and the threshold that a shown key must reach."""

    statistic: Keys
    noise: mechanisms.DiscreteLaplace
    delta: float
    threshold: int

    @property
    def event(self) -> events.Event:
        return events.Approximate(self.noise.epsilon, self.delta)

    def expected(self, population: int | None) -> Expected:
        half = float(self.noise.interval()[1])
        return half, f"keys that fewer than about {self.threshold} units have stay unknown"

    def answer(self, cells: Sequence[Any]) -> Answer:
        """The keys that pass, with their noisy counts, the most frequent first."""
        exact = cells[0].sort_values("key", ignore_index=True)
        noisy = self.noise(exact["n"].to_numpy(dtype=np.int64))
        passed = noisy >= self.threshold
        order = np.argsort(-noisy[passed], kind="stable")
        names = pd.Index(exact["key"][passed].to_numpy()[order], name=self.statistic.column)
        counts = noisy[passed][order]
        return Answer(
            counts,
            lambda confidence, simultaneous: self.interval(
                self.noise,
                counts,
                self.threshold,
                (1 - confidence) / (max(1, counts.size) if simultaneous else 1),
            ),
            lambda numbers: pd.Series(numbers, index=names),
        )

    @staticmethod
    def interval(noise: mechanisms.DiscreteLaplace, counts: Any, threshold: int, miss: float) -> Any:
        """Where the true counts lie, given that the keys are shown.

        A key is shown because its noisy count Y reached the threshold τ, so a count near τ is more likely
        too large than too small. The interval therefore uses the distribution of Y given Y ≥ τ. Given that,
        too, Y is stochastically larger if more units have the key (the noise is log-concave); the interval
        holds every number n of units, at least 1, for which neither P(Y ≥ y | Y ≥ τ) nor P(Y ≤ y | Y ≥ τ)
        is below ``miss``/2. It misses the truth of a shown key with probability at most ``miss``; for all
        shown keys at once the probabilities add up. For n ≤ τ the first probability is e^(−(y−τ)/s),
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
    edges of the bins whose noisy count is above a threshold, or of the bin with the largest count if none is:
    post-processing. Noise alone passes the threshold in any bin with probability FALSE_BIN at most.
    """

    column: str
    type: str
    where: Any = field(default=None, compare=False)

    @property
    def bins(self) -> Bins:
        """The bins between powers of two."""
        return exponents(self.column, self.type)

    def measurements(self) -> Sequence[Measurement]:
        return (Measurement(Block("count", (), self.where), (self.bins,)),)

    def with_noise(self, share: Share, context: Context) -> NoisyBounds:
        (measurement,) = self.measurements()
        noise = CellNoise.bought(measurement, share, context)
        return NoisyBounds(self, noise, measurement.mass(context.unit))


@dataclass(frozen=True)
class NoisyBounds(NoisyStatistic):
    """Bounds with the noise on the histogram they are read from; ``mass`` steps are one row."""

    statistic: LearnedBounds
    noise: CellNoise
    mass: int

    @property
    def event(self) -> events.Event:
        return self.noise.event

    @property
    def threshold(self) -> int:
        """The noisy count that a bin must exceed, in steps."""
        return self.noise.half_width(1 - FALSE_BIN, self.statistic.bins.size)

    def expected(self, population: int | None) -> Expected:
        rows = self.threshold / self.mass
        return None, f"powers of two; fewer than about {rows:.0f} values beyond a bound go unnoticed"

    def bounds(self, cells: Cells) -> tuple[float, float]:
        """The bounds, from exact cells."""
        edges = self.statistic.bins.edges
        noisy = self.noise(cells)[..., 0]
        passed = np.nonzero(noisy > self.threshold)[0]
        places = passed if passed.size else np.array([noisy.argmax()])
        limit = 2 * edges[-2]
        return max(edges[places[0]], -limit), min(edges[places[-1] + 1], limit)

    def answer(self, cells: Sequence[Cells]) -> Answer:
        bounds = np.array(self.bounds(cells[0]))
        return Answer(bounds, self._no_interval, lambda pair: tuple(pair.tolist()))

    def _no_interval(self, confidence: float, simultaneous: bool) -> tuple[Any, Any]:
        raise InvalidValue(
            "confidence", confidence, "left out: bounds are powers of two around most values, not estimates"
        )


@dataclass(frozen=True)
class BoughtBounds(Statistic):
    """A statistic whose bounds are bought first, with BOUNDS_SHARE of its share.

    ``make`` builds the statistic proper from the bounds of each column. Both events are charged
    before anything is read; that of the statistic does not depend on the bounds that are found.
    """

    columns: tuple[tuple[str, str], ...]
    make: Callable[[dict[str, tuple[float, float]]], Statistic]
    where: Any = field(default=None, compare=False)

    @property
    def learned(self) -> list[LearnedBounds]:
        """The bounds of each column."""
        return [LearnedBounds(column, kind, self.where) for column, kind in self.columns]

    def measurements(self) -> Sequence[Measurement]:
        return [measurement for learned in self.learned for measurement in learned.measurements()]

    def with_noise(self, share: Share, context: Context) -> NoisyBoughtBounds:
        first, rest = share.of(BOUNDS_SHARE / len(self.columns)), share.of(1 - BOUNDS_SHARE)
        example = self.make({column: (0.0, 1.0) for column, _ in self.columns})
        return NoisyBoughtBounds(
            self,
            tuple(learned.with_noise(first, context) for learned in self.learned),
            example.with_noise(rest, context).event,
            lambda bounds: self.make(bounds).with_noise(rest, context),
        )


@dataclass(frozen=True)
class NoisyBoughtBounds(NoisyStatistic):
    """The noisy bounds of all columns, and ``proper``, which buys the statistic's own noise for bounds.

    ``proper_event`` is the event of the latter, which is charged before the bounds are known.
    """

    statistic: BoughtBounds
    learned: tuple[NoisyBounds, ...]
    proper_event: events.Event
    proper: Callable[[dict[str, tuple[float, float]]], NoisyStatistic]

    @property
    def event(self) -> events.Event:
        return composed([*(learned.event for learned in self.learned), self.proper_event])

    def expected(self, population: int | None) -> Expected:
        return None, f"depends on the bounds, which {BOUNDS_SHARE:.0%} of the budget buys"

    def answer(self, cells: Sequence[Cells]) -> WithinBounds:
        bounds = {
            learned.statistic.column: learned.bounds(exact)
            for learned, exact in zip(self.learned, cells, strict=True)
        }
        noisy = self.proper(bounds)
        if noisy.event != self.proper_event:
            raise TacitError("The noise of this answer is not what was charged.", "Please report this.")
        return WithinBounds(noisy, bounds)


@dataclass(frozen=True)
class WithinBounds(NoisyStatistic):
    """The statistic proper with its noise, within the bounds that were bought for it."""

    noisy: NoisyStatistic
    bought: dict[str, tuple[float, float]]

    @property
    def statistic(self) -> Statistic:  # type: ignore[override]
        """The statistic proper."""
        return self.noisy.statistic

    def answer(self, cells: Sequence[Cells]) -> Answer | NoisyStatistic:
        return self.noisy.answer(cells)
