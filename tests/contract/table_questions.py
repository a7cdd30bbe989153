"""Questions to tables as mechanisms, for the registry.

Such a mechanism takes rows where another takes a value. They go through the engine once, with all cleaning,
clipping and shrinking, and give exact cells; then only the noise is drawn again and again, by the
noisy statistic's own ``answer``. Nothing is summarised before the audit: it sees the noisy cells, of which
every estimate is post-processing.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple
from unittest import mock

import numpy as np
import pandas as pd
from scipy.special import ndtr

from contract import registry
from contract.registry import Case, Make, Noise, Pair, register
from tacit import Budget, Column, Ledger, Schema, Unit, audit, events, mechanisms, tables
from tacit.data.source import PrivateSource, connect
from tacit.errors import InvalidValue
from tacit.randomness import Source as RandomSource
from tacit.relations import Relation
from tacit.tables.cells.measure import measure
from tacit.tables.cells.noise import Context, Share
from tacit.tables.statistics import ranks, selection
from tacit.tables.statistics.discovery import BoughtBounds, Keys
from tacit.tables.statistics.statistic import CellStatistic, Statistic

OUTSIDE = float(registry.SECRET)
"""A value far outside all bounds, which no message may show."""

ROW, PERSON = Unit(), Unit("who", 3)
LEFT, RIGHT = 200, 100
"""Candidates below and above the median of the worst case."""
CATEGORIES = tuple(f"k{i:02}" for i in range(30))
FREQUENT = tuple("abcdefgh")
NEAR = (1.0, 2.0)
"""Bounds that most values lie in."""


class Row(NamedTuple):
    """One row; what a case does not speak of is the same in all of them."""

    who: str = "someone"
    age: Any = 20
    pay: Any = 1.0
    sex: Any = "F"
    town: Any = "p"
    rank: Any = LEFT
    kind: Any = CATEGORIES[-1]
    zip: Any = "a"
    free: Any = 1.0


COLUMNS = {
    "age": Column("integer", bounds=(0, 64)),
    "pay": Column("number", bounds=(-4.0, 8.0)),
    "full": Column("number", bounds=(-4.0, 8.0), missing=0.0),
    "sex": Column("category", categories=("F", "M")),
    "town": Column("category", categories=("p", "q", "r")),
    "rank": Column("integer", bounds=(0, LEFT + RIGHT)),
    "kind": Column("category", categories=CATEGORIES),
    "zip": Column("text"),
    "free": Column("number"),
}
PAY, PAY_SUM, FINE = 3 * 2**24, 2**25, 2**26
"""Steps of 2^−22 in the range of pay, and to the farther of its bounds; steps of squares and products."""

UNCHARGED: Any = SimpleNamespace(budget=Budget(1e6, 0.5))
"""Stands in for a ledger where questions are only planned."""

Rows = tuple[Row, ...]
BASE: Rows = (Row("a", 30, 2.5), Row("b", 61, -1.0, "M", "q"), Row("c", None, math.nan, "X", None), Row("d"))


def frame(rows: Rows) -> pd.DataFrame:
    made = pd.DataFrame(list(rows), columns=list(Row._fields))
    return made.assign(full=made["pay"]).astype({"pay": float, "full": float, "free": float})


@cache
def unread(unit: Unit) -> PrivateSource:
    """A source for questions that are only planned."""
    return connect(frame(BASE), Schema(COLUMNS, unit=unit))


@dataclass(frozen=True)
class Question:
    """A question and where it is asked; ``rows`` is the public number of them."""

    ask: Callable[..., Any]
    unit: Unit = ROW
    relation: str = "add_remove"
    epsilon: float = 1.0
    delta: float = 0.0
    rows: int | None = None
    concentrated: bool = False

    part: ClassVar[float] = 1.0
    """The part of ε, or of ρ, that the release which is audited has."""

    @property
    def schema(self) -> Schema:
        return Schema(COLUMNS, population=self.rows, unit=self.unit)

    def made(self, random_state: Any, less: float = 1.0, source: PrivateSource | None = None) -> Asked:
        """The question as a mechanism; its noise is ``less`` times as large as it should be."""
        random = random_state if isinstance(random_state, RandomSource) else RandomSource(random_state)
        context = Context(Relation(self.relation), self.unit, random, self.rows, self.concentrated)
        source = source or unread(self.unit)
        table = tables.Table(source, source.table, self.schema, UNCHARGED, context)
        batch = table.batch(epsilon=self.epsilon, delta=self.delta)
        self.ask(batch)
        (share,) = batch._shares()
        larger = Share(share.epsilon / less, share.rho and share.rho / less**2, share.delta)
        return Asked(self, batch._asked[0].statistic, larger, context, batch.event, batch.guarantee.noise)

    def shown(self, statistic: Statistic, found: Any) -> tuple[Any, ...]:
        """The exact numbers that get noise, from the cells that the engine finds."""
        return tuple(statistic.summed(found[0]) if getattr(statistic, "summed", None) else found)

    def opened(self, rows: Rows, ledger: Ledger) -> tables.Table:
        """The real table on a real ledger."""
        return tables.open(frame(rows), schema=self.schema, ledger=ledger, random_state=1)


@lru_cache(maxsize=8)
def connected(rows: Rows, schema: Schema) -> PrivateSource:
    return connect(frame(rows), schema)


def engine_cells(
    question: Question, rows: Rows, bounds: tuple[Any, ...] = (), connected: Any = connected.__wrapped__
) -> tuple[Any, ...]:
    """What the engine finds in the rows; with ``bounds`` that were bought, for the statistic proper."""
    source = connected(rows, question.schema)
    asked = question.made(1, source=source)
    statistic = asked.statistic.make(dict(bounds)) if bounds else asked.statistic
    own = statistic.read(source, source.table, asked.context)
    found = own or measure(source, source.table, question.unit, statistic.measurements())
    return question.shown(statistic, found)


@cache
def cells(question: Question, rows: Rows, bounds: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """The same, kept."""
    return engine_cells(question, rows, bounds, connected)


@dataclass(frozen=True)
class Asked:
    """A statistic that takes rows, and returns all it would know after its release, in whole numbers."""

    question: Question
    statistic: Statistic
    share: Share
    context: Context
    event: events.Event
    noise: str

    @property
    def noisy_statistic(self) -> Any:
        return self.statistic.with_noise(self.share, self.context)

    def __call__(self, rows: Rows) -> np.ndarray:
        return self.many(rows, 1)[0]

    def many(self, rows: Rows, runs: int) -> np.ndarray:
        """Independent answers, one in each line."""
        exact = cells(self.question, rows)
        if isinstance(self.statistic, CellStatistic):
            return self.noisy(exact, runs)
        if isinstance(self.statistic, Keys):
            return self.found(exact[0], runs)
        if isinstance(self.statistic, BoughtBounds):
            return self.bought(rows, runs)
        noisy = self.noisy_statistic
        outcomes = (noisy.answer(exact) for _ in range(runs))
        seen = np.array([np.ravel(outcome.values) for outcome in outcomes])
        return seen.clip(-(2**62), 2**62).astype(np.int64)

    def noisy(self, exact: tuple[Any, ...], runs: int) -> np.ndarray:
        """Noisy cells side by side. Noise is independent in all cells, so many runs are one large array."""
        tiled = [np.broadcast_to(part, (runs, *part.shape)) for part in exact]
        shown = replace(self.statistic, estimate=_side_by_side, summed=None)
        return replace(self, statistic=shown).noisy_statistic.answer(tiled).values

    def found(self, exact: pd.DataFrame, runs: int) -> np.ndarray:
        """Noisy counts of the frequent keys, −1 where a key is not shown, and how many others are.

        Noise is independent in all keys, so many runs are one run with as many times the keys. An engine
        returns keys in any order; sorted, each gets the same noise in every run of a seed.
        """
        exact, keys = exact.sort_values("key"), len(exact)
        tiled = pd.DataFrame({"key": np.arange(runs * keys), "n": np.tile(exact["n"].to_numpy(), runs)})
        outcome = self.noisy_statistic.answer([tiled])
        counts = np.full(runs * keys, -1)
        counts[outcome.show(outcome.values).index] = outcome.values
        each = pd.DataFrame(counts.reshape(runs, keys), columns=exact["key"].to_numpy())
        others = (each.drop(columns=list(FREQUENT), errors="ignore") >= 0).sum(axis=1)
        return np.column_stack([each.reindex(columns=list(FREQUENT), fill_value=-1), others])

    def bought(self, rows: Rows, runs: int) -> np.ndarray:
        """Noisy cells of the statistic proper, once its bounds are those that most values lie in.

        To buy them is a release of its own, audited as such.
        """
        while True:
            found: Any = self.noisy_statistic.answer(cells(self.question, rows))
            ((column, bounds),) = found.bought.items()
            if bounds == NEAR:
                exact = cells(self.question, rows, ((column, NEAR),))
                tiled = [np.broadcast_to(part, (runs, *part.shape)) for part in exact]
                shown = replace(found.statistic, estimate=_side_by_side, summed=None)
                return replace(found.noisy, statistic=shown).answer(tiled).values

    def chances(self, exact: tuple[Any, ...]) -> list[np.ndarray]:
        """With what probability each choice of a selection falls on each candidate, in their order.

        The choices are taken from the statistic itself, as it makes them; only the draws are left out.
        """
        made: list[np.ndarray] = []
        maker = selection._chooser

        def recording(*arguments: Any) -> Any:
            chooser = maker(*arguments)

            class Recorded(type(chooser)):
                def __call__(self, scores: Any) -> int:
                    made.append(law(self, scores))
                    return int(made[-1].argmax())

            return Recorded(chooser.sensitivity, chooser.epsilon, chooser.monotone, random_state=1)

        with mock.patch.object(selection, "_chooser", recording):
            self.noisy_statistic.answer(exact)
        return made


@dataclass(frozen=True)
class Ranks(Question):
    """The ranks behind the intervals of quantiles: one histogram, for a part of what the question costs.

    Its bounds, the cuts, come from earlier choices, which have events of their own; here these choices are
    public constants. Everything else is the real road of an answer.
    """

    part: ClassVar[float] = selection.RANK_SHARE

    def made(self, random_state: Any, less: float = 1.0, source: PrivateSource | None = None) -> RankedAsked:
        asked = super().made(random_state, less, source)
        claimed = super().made(random_state, 1.0, source).noisy_statistic.interval.noise
        known = {field.name: getattr(asked, field.name) for field in fields(asked)}
        return RankedAsked(**{**known, "event": claimed.event})

    def shown(self, statistic: Statistic, found: Any) -> tuple[Any, ...]:
        noisy = self.made(1).noisy_statistic
        exact = replace(noisy.interval, noise=lambda parts: parts)
        return (observed(replace(noisy, interval=exact), found[0], 1)[0],)


class RankedAsked(Asked):
    """The ranks of a quantile as a mechanism that takes rows: all noisy numbers of rows between the cuts."""

    def many(self, rows: Rows, runs: int) -> np.ndarray:
        source = connected(rows, self.question.schema)
        (found,) = measure(source, source.table, self.question.unit, self.statistic.measurements())
        return observed(self.noisy_statistic, found, runs).reshape(runs, -1)


def observed(noisy: selection.NoisyQuantiles, found: np.ndarray, runs: int) -> np.ndarray:
    """The parts that the answers of so many runs are made from, as they reach the choice of the ends.

    One answer about as many times the groups has independent noise for each.
    """

    class Recorded(ranks.RankedEnds):
        def accepted(self, parts: Any, cuts: Any, values: Any, last: int) -> Any:
            seen.append(parts)
            return super().accepted(parts, cuts, values, last)

    seen: list[np.ndarray] = []
    bought, ends = noisy.interval, noisy.interval.ends
    fixed = replace(
        bought,
        low=tuple(Fixed(one, LEFT // 5) for one in bought.low),
        high=tuple(Fixed(one, LEFT + RIGHT // 2) for one in bought.high),
        ends=Recorded(ends.fractions, ends.law, ends.confidence, ends.scales),
    )
    groups = found.reshape(-1, noisy.statistic.steps.size)
    tiled = np.tile(groups, (runs, 1))
    statistic = replace(noisy.statistic, axes=(SimpleNamespace(size=len(tiled)),))
    choosers = tuple(Fixed(one, LEFT - 20 * i) for i, one in enumerate(noisy.choosers))
    replace(noisy, statistic=statistic, choosers=choosers, interval=fixed).answer([tiled])
    (parts,) = seen
    return parts.reshape(runs, -1)


@dataclass(frozen=True)
class Fixed:
    """A choice that was made already."""

    chooser: Any
    place: int

    @property
    def sensitivity(self) -> float:
        return self.chooser.sensitivity

    @property
    def epsilon(self) -> float:
        return self.chooser.epsilon

    def __call__(self, scores: Any) -> int:
        return self.place


gauss = cache(np.polynomial.legendre.leggauss)


def law(chooser: mechanisms.Exponential | mechanisms.PermuteAndFlip, scores: Any) -> np.ndarray:
    """The probability of each candidate.

    Permute-and-flip looks at candidate i at a uniform time t and takes it with probability p_i, if none was
    taken before: p_i ∫ ∏(1 − t·p_j) dt, a polynomial of degree n − 1, which n/2 nodes integrate exactly.
    """
    steps = chooser._steps(scores)
    accepted = np.exp(float(chooser._rate()) * (steps - steps.max()))
    if isinstance(chooser, mechanisms.Exponential):
        return accepted / accepted.sum()
    nodes, weights = gauss((len(accepted) + 1) // 2)
    times = (nodes[:, np.newaxis] + 1) / 2
    missed = 1 - times * accepted
    return accepted * (weights / 2 @ (missed.prod(axis=1, keepdims=True) / missed))


def _side_by_side(parts: Any) -> np.ndarray:
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def runs(make: Make, rows: Rows, times: int, seed: int | None) -> np.ndarray:
    return make(seed).many(rows, times)


def draws(make: Make, rows: Rows, times: int, seed: int | None) -> np.ndarray:
    """Independent choices, from their exact probabilities."""
    asked = make(seed)
    (chances,) = asked.chances(cells(asked.question, rows))
    generator = np.random.default_rng(seed)
    return generator.choice(chances.size, (times, 1), p=chances / chances.sum())


def flat(question: Question, rows: Rows) -> np.ndarray:
    return np.concatenate([part.ravel() for part in cells(question, rows)]).astype(float)


@dataclass(frozen=True)
class Scales:
    """How large the noise in each cell should be: (scale or standard deviation, cells) of each part."""

    parts: tuple[tuple[float, int], ...]
    gaussian: bool = False

    @property
    def each(self) -> np.ndarray:
        return np.repeat([scale for scale, _ in self.parts], [number for _, number in self.parts])

    def cdf(self, points: np.ndarray, factor: float) -> np.ndarray:
        """Of a cell picked at random. Half a step off, the normal distribution is the discrete one."""
        whole = np.floor(points)
        total = np.zeros(points.shape)
        for scale, number in self.parts:
            if self.gaussian:
                total += number * ndtr((whole + 0.5) / (scale * factor))
            else:
                ratio = math.exp(-1 / (scale * factor))
                below = ratio ** np.maximum(-whole, 0) / (1 + ratio)
                total += number * np.where(
                    whole < 0, below, 1 - ratio ** np.maximum(whole + 1, 0) / (1 + ratio)
                )
        return total / self.each.size

    def loss(self, question: Question, more: Rows, fewer: Rows) -> Callable[[np.ndarray], np.ndarray]:
        """The log-likelihood ratio of noisy cells; for Laplace noise, in parts of the most it can be."""

        def score(seen: np.ndarray) -> np.ndarray:
            one, other = flat(question, more), flat(question, fewer)
            if self.gaussian:
                return (seen - (one + other) / 2) @ ((one - other) / self.each**2)
            ratios = (np.abs(seen - other) - np.abs(seen - one)) @ (1 / self.each)
            return ratios / (np.abs(one - other) / self.each).sum()

        return score

    def noise(self, question: Question, rows: Rows) -> Noise:
        """The noise in all cells, on rows where they are known."""

        def draw(make: Make, runs: int, seed: int | None) -> np.ndarray:
            asked = make(seed)
            return (asked.many(rows, -(-runs // self.each.size)) - flat(question, rows)).ravel()

        return Noise(draw, self.cdf)


Bad = tuple[str, Callable[[tables.Table], Any]]
QUESTIONS: dict[str, Question] = {}
"""The questions of the registry, by name."""
SCALES: dict[str, Scales] = {}
"""The noise of those that are made of noisy cells."""


def of_cells(
    name: str,
    question: Question,
    more: Rows,
    fewer: Rows,
    parts: tuple[tuple[float, int], ...],
    event: events.Event,
    *bad: Bad,
    number: int | None = None,
) -> None:
    """Register a statistic made of noisy cells, and the unit that ``more`` has and ``fewer`` has not."""
    scales = SCALES[f"table_{name}"] = Scales(parts, gaussian=question.delta > 0)
    rule = audit.Split(seed=0) if question.delta else audit.Fixed(1 - 1e-9)
    number = number or (50_000 if question.delta else 20_000)
    one, other = BASE + more, BASE + fewer
    pair = Pair(one, other, scales.loss(question, one, other), runs, (number, number), rule)
    of_table(name, question, pair, scales.noise(question, pair.neighbour), event, *bad)


def of_table(name: str, question: Question, pair: Pair, noise: Noise, event: events.Event, *bad: Bad) -> None:
    """Register a question."""
    QUESTIONS[f"table_{name}"] = question
    costs = [(f"{cost}", lambda table, cost=cost: question.ask(table, **cost)) for cost in BAD_COSTS]
    register(
        Case(
            name=f"table_{name}",
            event=event,
            delta=question.delta,
            make=question.made,
            broken=lambda random_state: question.made(random_state, 2 / 3),
            data=pair.value,
            pair=pair,
            noise=noise,
            bad_inputs=tuple(
                (what, lambda call=call: refusing(question, call), InvalidValue)
                for what, call in (*costs, *bad)
            ),
        )
    )


BAD_COSTS: tuple[dict[str, Any], ...] = (
    {},
    *({"epsilon": epsilon} for epsilon in (None, 0, -1.0, math.nan, math.inf, "1", True, [1.0])),
    *({"epsilon": 1.0, "delta": delta} for delta in (None, -1e-9, 1.0, math.nan, "0", True)),
)
PRIVATE = Row("x", *(OUTSIDE, OUTSIDE, *[registry.SECRET] * 2, OUTSIDE, *[registry.SECRET] * 2, OUTSIDE))


def refusing(question: Question, call: Callable[[tables.Table], Any]) -> Any:
    """Ask what must be refused; a refusal neither costs anything nor reads anything."""
    table, touched = watched(question.unit, question.relation)
    try:
        return call(table)
    finally:
        assert not touched, "data were touched"
        assert not table.ledger.entries(), "the ledger was charged"


@cache
def watched(unit: Unit, relation: str) -> tuple[tables.Table, list[Any]]:
    """A table with private values, and the queries that were run on it."""
    folder = tempfile.mkdtemp()
    ledger = Ledger.open(Path(folder) / "study.db", budget=Budget(100.0, 0.5), unit=unit, relation=relation)
    table = Question(print, unit, relation).opened((*BASE, PRIVATE), ledger)
    touched: list[Any] = []
    table.source.run = touched.append
    weakref.finalize(ledger, shutil.rmtree, folder, ignore_errors=True)
    return table, touched


def hers(*rows: Row) -> Rows:
    """Seven rows of one person, who may count for three."""
    return tuple(row._replace(who="she") for row in (rows * 7)[:7])
