"""Synthesizers: fits of one row or none, and the choice of a pair on tables that one row tips.

The twins: counts with half of their noise, one-way marginals whose columns get the whole ε each, and a pair
that is chosen without paying. Counts at two thirds of their noise are told apart in tests/estimators, where
one fit shows many of them.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np

from contract import recipes
from contract.recipes import Fitting, often
from contract.registry import Case, Pair, register
from tacit import Column, Schema, audit
from tacit.errors import InvalidValue
from tacit.estimators import HistogramSynthesizer, MarginalSynthesizer
from tacit.estimators.private import PrivateRows, Public
from tacit.estimators.synthetic.inference import Measured, Model
from tacit.estimators.synthetic.marginals import noisy_columns
from tacit.estimators.synthetic.prices import Prices, Round
from tacit.estimators.synthetic.selection import chosen_pair
from tacit.mechanisms import Exponential
from tacit.randomness import Source
from tacit.relations import Relation, Unit

SCHEMA = Schema({name: Column("category", categories=("yes",)) for name in "ab"}, population=1)
"""Two columns of two cells, of which the second is for missing values."""
ONE = {"a": ["yes"], "b": ["yes"]}
NOBODY: dict[str, list[str]] = {"a": [], "b": []}
BAD = (
    ("epsilon", 0.0), ("delta", 1.0), ("schema", None), ("bins", 0), ("relation", "both"),
    ("exclude", ["c"]), ("population", 0),
)  # fmt: skip


class Table(Fitting):
    """Columns of a table; what is seen is a function of estimator, recipe, coded rows and source."""

    planned_with = ()

    def __call__(self, data: Any) -> np.ndarray:
        rows = PrivateRows(self.estimator._domain().codes(data), None, None)
        seen: np.ndarray = self.seen(self.estimator, self.recipe, rows, self.source)
        return seen

    @staticmethod
    def rows(data: Any) -> tuple[Any, Any, Any]:
        return data, None, None


def half_noise(recipe: Any) -> Any:
    louder = dataclasses.replace(recipe.mechanism, epsilon=2 * recipe.mechanism.epsilon)
    return dataclasses.replace(recipe, mechanism=louder)


def overspending(recipe: Any) -> Any:
    """Each column gets the whole ε, as if a row were in one of them only."""
    one = dataclasses.replace(recipe.prices.one_way, sensitivity=1)
    return dataclasses.replace(recipe, prices=dataclasses.replace(recipe.prices, one_way=one))


def ratio(counts: np.ndarray) -> np.ndarray:
    """What the counts that the row is in say of it, by the ratio of their likelihoods."""
    return np.array((np.abs(counts) - np.abs(counts - 1)).sum())


def counts_of_histogram(model: Any, recipe: Any, rows: PrivateRows, source: Source) -> np.ndarray:
    model._carry_out(recipe, rows, source)
    return ratio(model.counts_[:1, 0])


def counts_of_columns(model: Any, recipe: Any, rows: PrivateRows, source: Source) -> np.ndarray:
    """The first release of a fit, without the inference that follows."""
    return ratio(np.array([counts[0] for counts in noisy_columns(recipe, rows, source)]))


def registered(name: str, kind: type, settings: dict[str, Any], seen: Any, broken: Any, runs: int) -> None:
    make, covers = partial(kind, 1.0, schema=SCHEMA, **settings), frozenset({kind.__name__})
    recipes.registered(name, Table, make, seen, broken, (ONE, NOBODY), runs, BAD, (ONE,), covers)


registered("histogram_synthesizer", HistogramSynthesizer, {}, counts_of_histogram, half_noise, 2000)
registered("marginal_synthesizer", MarginalSynthesizer, {"rounds": 0}, counts_of_columns, overspending, 3000)


# ----------------------------------------------------------------- the choice of a pair

_EVEN = Measured(np.array([50.0, 50.0]), np.ones(2))
_TIED = {(0, 1): np.array([[30, 20], [20, 30]]), (1, 2): np.array([[30, 20], [20, 30]])}
_TIPPED = {**_TIED, (1, 2): np.array([[31, 20], [20, 30]])}
"""Counts of two pairs that the model describes equally badly; one row more, and the second is worse."""


class Best(Exponential):
    """Takes the best score, and pays nothing for it."""

    def __call__(self, scores: Any) -> int:
        return int(np.argmax(scores))


class Choosing:
    """The choice of a pair as a mechanism: from the counts of all pairs to the place of the one chosen."""

    def __init__(self, kind: type[Exponential], random_state: int | None) -> None:
        public = Public(4.0, 0.0, Relation.ADD_REMOVE, Unit(), 3)
        each = Prices.of(public, columns=3, rounds=1).each
        assert each is not None
        chooses = kind(each.choice.sensitivity, each.choice.epsilon)
        self.each, self.event = Round(chooses, each.noise), each.choice.event
        self.source = Source(random_state)
        self.noise = "seeded" if self.source.seeded else "exact"
        self.model = Model((2, 2, 2), 100.0, {(place,): _EVEN for place in range(3)})
        self.model.fit(50)

    def __call__(self, tables: Any) -> np.ndarray:
        chosen = chosen_pair(self.each, self.model, tables, 1000, self.source)
        return np.array(float(chosen == (1, 2)))


register(
    Case(
        name="marginal_synthesizer_unpaid_choice",
        event=Choosing(Exponential, 1).event,
        make=partial(Choosing, Exponential),
        broken=partial(Choosing, Best),
        data=_TIED,
        pair=Pair(_TIPPED, _TIED, np.asarray, often, (600, 600), audit.Split(seed=0)),
        bad_inputs=(
            ("rounds=-1", lambda: MarginalSynthesizer(schema=SCHEMA, rounds=-1).fit(ONE), InvalidValue),
            ("pair_bins=1", lambda: MarginalSynthesizer(schema=SCHEMA, pair_bins=1).fit(ONE), InvalidValue),
        ),
        left_out={"noise": "a choice has no noise of its own"},
    )
)
