"""The rounds of boosting: noisy sums of residuals over all splits, and the step that follows from them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from tacit import _gaussian, events
from tacit.estimators.boosting.layout import Codes, Layout
from tacit.estimators.boosting.residuals import GRID, Residuals
from tacit.estimators.boosting.splits import Splits, category_splits, pair_splits, tree_splits
from tacit.mechanisms import Gaussian, Laplace
from tacit.randomness import Source
from tacit.relations import Relation, Unit, norm_sensitivity

__all__ = ["Boosted", "Rounds", "cell_sums"]

Array = NDArray[np.float64]

LEVEL_WEIGHT = 0.5
"""The weight of a split in the tree of a number."""
PAIR_WEIGHT = 0.7
"""The norm of a pair of columns; that of a category is about 1."""
ROWS_PER_NOISE = 16.0
"""Trees go on to a level if its nodes have, on average, so many times the rows that the noise of a single
round with the whole budget would have."""
REACH = 0.35
"""How far a split may drift on noise alone before boosting stops, on the scale of a logistic score; over four
times the curvature for other losses."""
THRESHOLD = 1.0
"""A split moves only by what its sums exceed so many standard deviations of their noise, in all rounds."""
MOMENTUM = 0.97
ROUNDS, PURE_ROUNDS = (20, 400), (4, 60)
"""The fewest and the most rounds that are chosen, for δ > 0 and δ = 0."""
CHOICE_SHARE = 0.1
"""The part of the budget (of ρ for δ > 0, of ε for δ = 0) that chooses pairs."""
WIDENED = 1 + 2.0**-12
"""Sums over splits are rounded once more, when they are weighted: the sensitivity is larger by this."""
LIMIT = 1e9
"""Values of splits are kept within ± this."""
BLOCK = 1 << 16
"""Rows that residuals are computed for at a time."""
SMALL = 1 << 23
"""Up to so many codes are kept in the type that NumPy counts in."""


def cell_sums(codes: Sequence[Codes], residuals: Array, cells: Sequence[int]) -> list[Array]:
    """The sum of the residuals (rows, outputs) in every cell of every term, (cells, outputs) each.

    This is all that boosting reads of the rows beside their scores.
    """
    return [
        np.column_stack([np.bincount(code, each, minlength=size) for each in residuals.T])
        for code, size in zip(codes, cells, strict=True)
    ]


@dataclass(frozen=True)
class Boosted:
    """What was released: a constant and the effects of the cells of each term, (cells, outputs)."""

    constant: Array
    effects: tuple[Array, ...]
    pairs: tuple[tuple[int, int], ...]
    """The columns of the last terms."""


@dataclass(frozen=True)
class Rounds:
    """Boosting with splits that are fixed beforehand; what it costs is known before any row is.

    A round adds up the residuals of all rows over all splits of all terms and the constant, one vector. Given
    the model so far, which is public, a row contributes r ⊗ (1, A₁[:, c₁], A₂[:, c₂], …), of ℓ2 norm at most
    bound·√(1 + Σ‖Aⱼ‖²), and in ℓ1 bound·(1 + Σ‖Aⱼ‖₁), ‖·‖ being the largest norm of a column. One row more or
    less moves the vector by at most that, one that is replaced by twice that, a unit by that times its rows.
    """

    layout: Layout
    residuals: Residuals
    epsilon: float
    delta: float
    relation: Relation
    unit: Unit
    population: int
    rounds: int | None = None
    learning_rate: float | None = None
    pairs: int = 0
    """How many pairs of columns are chosen, after half of the rounds."""
    depth: int | None = None
    later: bool = False
    """Whether the population is bought first, and the number of rounds chosen by it.

    Then the event is that of all rounds together, which is the same for every number of them: t Gaussians of
    noise multiplier z√t reveal what one of multiplier z does, t releases of ε/t compose to ε. So whatever
    number was bought, and thus public, the rounds that follow cost what was charged.
    """

    def with_facts(self, layout: Layout, population: int) -> Rounds:
        """The same for bounds and a population that have been bought."""
        if self.later:
            return replace(self, layout=layout, population=population)
        return replace(self, layout=layout, population=population, rounds=self.steps, depth=self.levels)

    @property
    def pure(self) -> bool:
        """Whether δ is 0, so that the noise is Laplace."""
        return self.delta == 0

    @property
    def _order(self) -> int:
        """The norm of the sensitivity."""
        return 1 if self.pure else 2

    @cached_property
    def levels(self) -> int:
        """How deep the trees are: until a node has too few rows, on average, to be told from noise."""
        most = max([1, *(math.ceil(math.log2(cells)) for cells in self.layout.cells)])
        if self.depth is not None:
            return min(self.depth, most)
        for depth in range(most, 1, -1):
            row = self._sensitivity(self._main(depth), 0)
            if self.population >= 2**depth * ROWS_PER_NOISE * self._deviation(row, 1):
                return depth
        return 1

    def _main(self, depth: int) -> tuple[Splits, ...]:
        weights = np.full(depth, LEVEL_WEIGHT)
        made = {}
        for column, cells in enumerate(self.layout.cells):
            kind = cells, self.layout.is_category(column)
            if kind not in made:
                category = category_splits(cells, centred=not self.pure) if kind[1] else None
                made[kind] = category or tree_splits(cells, weights)
        return tuple(
            made[cells, self.layout.is_category(column)] for column, cells in enumerate(self.layout.cells)
        )

    @cached_property
    def main(self) -> tuple[Splits, ...]:
        """The splits of the columns, each by itself."""
        return self._main(self.levels)

    @cached_property
    def candidates(self) -> tuple[tuple[int, int], ...]:
        """All pairs of columns, where pairs are asked for; a category of one value has nothing to split."""
        able = [column for column in range(len(self.layout.cells)) if self.layout.side(column) > 1]
        return tuple(itertools.combinations(able, 2)) if self.pairs else ()

    @property
    def chosen(self) -> int:
        """How many pairs there will be."""
        return min(self.pairs, len(self.candidates))

    def _pair_norm(self) -> float:
        """The largest norm of a pair's splits; ℓ1 norms differ with the number of groups."""
        if not self.pure:
            return PAIR_WEIGHT
        return max(self._pair(each).norm(1) for each in self.candidates)

    def _pair(self, pair: tuple[int, int]) -> Splits:
        return pair_splits(self.layout, *pair, PAIR_WEIGHT)

    def _sensitivity(self, terms: Sequence[Splits], pairs: int, constant: float = 1.0) -> float:
        """How far one unit moves the sums over all splits, in ℓ1 for δ = 0 and else in ℓ2."""
        norms = [constant, *(term.norm(self._order) for term in terms)]
        if pairs:
            norms += [self._pair_norm()] * pairs
        length = float(np.linalg.norm(norms, self._order)) * self.residuals.largest(self._order)
        return norm_sensitivity(length, self.relation) * self.unit.rows * WIDENED

    def _share(self) -> float:
        """The part of the budget that the rounds have."""
        return 1 - CHOICE_SHARE if self.chosen else 1.0

    def _noise(self, sensitivity: float, share: float, times: int) -> Gaussian | Laplace | None:
        """The noise of one of ``times`` releases that have this share of the budget together."""
        if math.isinf(self.epsilon):
            return None
        if self.pure:
            part = self.epsilon * share / times
            return Laplace(sensitivity, epsilon=part * (1 - 1e-12))
        multiplier = _multiplier(self.epsilon, self.delta) * math.sqrt(times / share) * (1 + 1e-9)
        return Gaussian(sensitivity, noise_multiplier=multiplier)

    def _deviation(self, sensitivity: float, rounds: int) -> float:
        """The standard deviation of the noise of a round, per sum."""
        noise = self._noise(sensitivity, self._share(), rounds)
        if noise is None:
            return 0.0
        scale = noise.event.scale if isinstance(noise, Laplace) else noise.event.noise_multiplier
        return sensitivity * scale * (math.sqrt(2) if self.pure else 1.0)

    @cached_property
    def sensitivity(self) -> float:
        """The sensitivity of a round, with all pairs."""
        return self._sensitivity(self.main, self.chosen)

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise of one round, per sum."""
        return self._deviation(self.sensitivity, self.steps)

    def _wanted(self, rounds: int) -> float:
        """The length of the path, a sum of steps, at which noise alone has moved a split too far."""
        deviation = self._deviation(self.sensitivity, rounds)
        reach = REACH / (4 * self.residuals.curvature)
        return math.inf if deviation == 0 else reach * self.population * math.sqrt(rounds) / deviation

    @cached_property
    def _longest(self) -> float:
        """A stable step, whatever the rows: the curvature in splits is at most curvature × norm²."""
        norms = [1.0, *(term.norm(2) for term in self.main), *[PAIR_WEIGHT] * self.chosen]
        return (1 + MOMENTUM) / (self.residuals.curvature * sum(norm**2 for norm in norms))

    @cached_property
    def steps(self) -> int:
        """The number of rounds: as many as the path needs, within public limits."""
        if self.rounds is not None:
            return self.rounds
        fewest, most = PURE_ROUNDS if self.pure else ROUNDS
        for rounds in range(fewest, most):
            if _path(rounds) * self._longest >= self._wanted(rounds):
                return rounds
        return most

    @cached_property
    def step(self) -> float:
        """The learning rate: the longest stable one, or what makes the path as long as noise allows."""
        if self.learning_rate is not None:
            return self.learning_rate
        return min(self._longest, self._wanted(self.steps) / _path(self.steps))

    @property
    def _first(self) -> int:
        """The rounds before pairs are chosen."""
        return self.steps // 2 if self.chosen else self.steps

    @property
    def event(self) -> events.Event:
        """What all rounds, and the choice of pairs, cost."""
        noise = self._noise(self.sensitivity, self._share(), self.steps)
        if noise is None:
            return events.WITHOUT_PRIVACY
        rounds: events.Event = events.Repeat(noise.event, self.steps)
        if self.later and self.rounds is None:
            rounds = self._total()
        choice = self._choice()
        return rounds if choice is None else events.Compose((rounds, choice.event))

    def _total(self) -> events.Event:
        """What any number of rounds costs."""
        if self.pure:
            return events.Pure(self.epsilon * self._share())
        return events.Gaussian(_multiplier(self.epsilon, self.delta) / math.sqrt(self._share()))

    def _choice(self) -> Gaussian | Laplace | None:
        """The noise of the sums over all pairs that the choice is made by."""
        if not self.chosen:
            return None
        sensitivity = self._sensitivity((), len(self.candidates), 0.0)
        return self._noise(sensitivity, CHOICE_SHARE, 1)

    def carry_out(self, codes: Codes, targets: Array, source: Source) -> Boosted:
        """Boost on the rows. Called once, after the event was charged."""
        path = _Path(self, codes, targets, source)
        path.walk(self._first)
        if self.chosen:
            path.add(self._choose(path, codes, source))
            path.walk(self.steps - self._first)
        return path.released()

    def _choose(self, path: _Path, codes: Codes, source: Source) -> list[tuple[int, int]]:
        """The pairs whose noisy sums stand out most from the noise."""
        noise = self._choice()
        splits = [self._pair(each) for each in self.candidates]
        found = path.summed([self.layout.paired(codes, *each) for each in self.candidates], splits)
        flat = np.concatenate([each.ravel() for each in found])
        if noise is not None:
            flat = replace(noise, random_state=source)(flat)
        sizes = [each.size for each in found]
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        spread = 0.0 if noise is None else float(np.square(noise.interval(0.68)[1]))
        scores = [float(np.square(part).sum() - part.size * spread) / math.sqrt(part.size) for part in parts]
        best = np.argsort(-np.array(scores), kind="stable")[: self.chosen]
        return [self.candidates[place] for place in sorted(best.tolist())]


class _Path:
    """The model on its way: values of splits, their velocities, and the mean of the later ones."""

    def __init__(self, plan: Rounds, codes: Codes, targets: Array, source: Source) -> None:
        self.plan, self.targets, self.source = plan, targets, source
        self.kept = codes.astype(np.intp, order="F") if codes.size <= SMALL else codes
        self.codes: list[Codes] = [self.kept[:, j] for j in range(codes.shape[1])]
        self.splits = list(plan.main)
        self.pairs: list[tuple[int, int]] = []
        outputs = plan.residuals.outputs
        self.values = [np.zeros((len(each.weights), outputs)) for each in self.splits]
        self.velocities = [np.zeros_like(each) for each in self.values]
        self.totals = [np.zeros_like(each) for each in self.values]
        self.constant, self.pull, self.mean = (np.zeros(outputs) for _ in range(3))
        self.taken, self.averaged = 0, 0

    def add(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Go on with these pairs of columns, too."""
        for pair in pairs:
            code = self.plan.layout.paired(self.kept, *pair)
            self.codes.append(code if self.kept.dtype == np.intp else code.astype(np.uint8))
            self.splits.append(self.plan._pair(pair))
            for kept in (self.values, self.velocities, self.totals):
                kept.append(np.zeros((len(self.splits[-1].weights), self.constant.size)))
            self.pairs.append(pair)

    def summed(self, codes: Sequence[Codes], splits: Sequence[Splits]) -> list[Array]:
        """The sums of the residuals over splits of these terms."""
        return self._sums(codes, splits)[1]

    def _sums(self, codes: Sequence[Codes], splits: Sequence[Splits]) -> tuple[Array, list[Array]]:
        effects = [split.effects(value) for split, value in zip(self.splits, self.values, strict=True)]
        sizes = [split.cells for split in splits]
        total = np.zeros(self.constant.size)
        cells = [np.zeros((size, total.size)) for size in sizes]
        for start in range(0, len(self.targets), BLOCK):
            part = slice(start, start + BLOCK)
            scores = np.tile(self.constant, (len(self.targets[part]), 1))
            for code, effect in zip(self.codes, effects, strict=True):
                scores += effect[code[part]]
            rest = self.plan.residuals.of(scores, self.targets[part])
            total += rest.sum(axis=0)
            for kept, more in zip(cells, cell_sums([code[part] for code in codes], rest, sizes), strict=True):
                kept += more
        return total / GRID, [split.summed(each) / GRID for split, each in zip(splits, cells, strict=True)]

    def walk(self, rounds: int) -> None:
        """So many rounds more."""
        plan = self.plan
        sensitivity = plan._sensitivity(plan.main, len(self.pairs))
        noise = plan._noise(sensitivity, plan._share(), plan.steps)
        noise = None if noise is None else replace(noise, random_state=self.source)
        bar = THRESHOLD * plan._deviation(sensitivity, plan.steps) / math.sqrt(plan.steps) / plan.population
        average_from = (self.taken + plan.steps) // 2 if plan.chosen else plan.steps // 2
        for _ in range(rounds):
            constant, found = self._sums(self.codes, self.splits)
            flat = np.concatenate([constant, *(each.ravel() for each in found)])
            mean = (flat if noise is None else noise(flat)) / plan.population
            momentum = min(self.taken / (self.taken + 3), MOMENTUM)
            outputs = constant.size
            self.pull = momentum * self.pull + mean[:outputs]
            self.constant = np.clip(self.constant + plan.step * self.pull, -LIMIT, LIMIT)
            start, least = outputs, bar * plan.step / (1 - momentum)
            for j, each in enumerate(self.values):
                moved = mean[start : start + each.size].reshape(each.shape)
                start += each.size
                self.velocities[j] = momentum * self.velocities[j] + moved
                there = np.clip(each + plan.step * self.velocities[j], -LIMIT, LIMIT)
                self.values[j] = np.sign(there) * np.maximum(np.abs(there) - least, 0.0)
            self.taken += 1
            if self.taken > average_from:
                self.averaged += 1
                self.mean += self.constant
                for j, each in enumerate(self.values):
                    self.totals[j] += each

    def released(self) -> Boosted:
        """The mean of the later rounds."""
        times = max(self.averaged, 1)
        totals = zip(self.splits, self.totals, strict=True)
        effects = tuple(split.effects(total / times) for split, total in totals)
        return Boosted(self.mean / times, effects, tuple(self.pairs))


@lru_cache(256)
def _path(rounds: int) -> float:
    """The sum of steps behind the mean of the later half, at a learning rate of 1."""
    speed, there, places = 0.0, 0.0, []
    for taken in range(rounds):
        speed = min(taken / (taken + 3), MOMENTUM) * speed + 1.0
        there += speed
        places.append(there)
    return float(np.mean(places[rounds // 2 :]))


_multiplier = lru_cache(128)(_gaussian.noise_multiplier)
