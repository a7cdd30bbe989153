"""A private search of which the selection is seen, and a twin that does not pay for it.

The estimator releases a noisy number of rows, and its score is whether that is small. So what is selected is
the smallest of several noisy counts: where it is large, none of them was small, which one row more makes more
probable by far more than the ε of a trial. The twin spends the whole ε in every trial, as if the others were
free. (The twin whose number of trials is not random is in tests/property/test_selection.py, where its exact
distribution refutes it: to see it by chance takes more runs than a test has.)
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

from contract.classical_cases import Data
from contract.estimator_cases import HIDDEN
from contract.recipes import often
from contract.registry import Case, Pair, register
from tacit import audit
from tacit.errors import InvalidValue
from tacit.estimators import PrivateSearch
from tacit.estimators.private import PrivateEstimator, PrivateRows, Public, Recipe
from tacit.mechanisms import DiscreteLaplace
from tacit.randomness import Source

TWO: Data = (np.zeros((2, 1)), np.zeros(2))
ONE: Data = (np.zeros((1, 1)), np.zeros(1))


class Counting(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Counts rows, with noise."""

    title, released = "rows", ("count_",)

    def __init__(
        self, epsilon: float = 1.0, delta: float = 0.0, *, classes: Any = (0, 1), shift: int = 0,
        relation: Any = "add_remove", rows_per_unit: int = 1, ledger: Any = None, label: Any = None,
        verbose: bool = False, random_state: Any = None,
    ) -> None:  # fmt: skip
        self.epsilon, self.delta, self.classes, self.shift = epsilon, delta, classes, shift
        self.relation, self.rows_per_unit, self.ledger, self.label = relation, rows_per_unit, ledger, label
        self.verbose, self.random_state = verbose, random_state

    def _recipe(self, public: Public) -> Recipe:
        return Recipe(DiscreteLaplace(1, public.epsilon).event, "exact")

    def _carry_out(self, recipe: Recipe, rows: PrivateRows, source: Source) -> None:
        noise = DiscreteLaplace(1, recipe.event.epsilon, random_state=source)  # type: ignore[attr-defined]
        self.count_ = int(noise(len(rows.matrix)))

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.full((len(X), 2), 0.5)


@dataclasses.dataclass(frozen=True)
class Small:
    """A score that a model has by itself."""

    most: int
    noise: Any

    def __call__(self, model: Any, rows: PrivateRows, source: Source) -> float:
        return float(model.count_ <= self.most)


class Searching:
    """A search as a mechanism. All rows are fitted: the guarantee holds for every outcome of the coins."""

    def __init__(self, paid: bool, random_state: int | None) -> None:
        self.random_state, self.source = random_state, Source(random_state)
        self.estimator = PrivateSearch(Counting(), {"shift": [0, 1]}, 1.0, trials=4, stopping="geometric")
        planned = self.estimator.plan(1)
        self.event, self.noise = planned.event, "seeded" if self.source.seeded else planned.kind
        public = self.estimator._public(1, self.estimator._agreed(False))
        recipe = self.estimator._recipe(public)
        candidates = recipe.candidates
        if not paid:
            candidates = tuple(
                dataclasses.replace(each, recipe=each.model._recipe(public)) for each in candidates
            )
        score: Any = Small(1, recipe.score.noise)
        self.recipe = dataclasses.replace(recipe, candidates=candidates, score=score, test_share=2.0**-60)

    def __call__(self, data: Data) -> np.ndarray:
        self.estimator._carry_out(self.recipe, PrivateRows(*data, None), self.source)
        return np.array(float(self.estimator.best_estimator_.count_))


def refused(parameter: str, value: Any) -> Any:
    return PrivateSearch(Counting(), {"shift": [0]}).set_params(**{parameter: value}).fit(*ONE)


BAD = (("epsilon", 0.0), ("delta", 1.0), ("trials", 0.0), ("grid", {"epsilon": [1.0]}), ("estimator", 3))
register(
    Case(
        name="private_search_unpaid",
        event=Searching(True, 1).event,
        make=partial(Searching, True),
        broken=partial(Searching, False),
        data=TWO,
        pair=Pair(TWO, ONE, np.asarray, often, (2500, 2500), audit.Fixed(2.0)),
        bad_inputs=tuple((f"{p}={v!r}", partial(refused, p, v), InvalidValue) for p, v in BAD),
        release=lambda ledger, searching, access: searching.estimator.set_params(
            ledger=ledger, random_state=searching.random_state
        ).fit_rows(1, lambda: (*access(), None)),
        covers=frozenset({"PrivateSearch"}),
        left_out={"noise": HIDDEN},
    )
)
