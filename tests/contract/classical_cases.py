"""Naive Bayes, decision trees and random trees: fits of one row or none, with twins that spend too much.

The twins: a budget split that overspends (each column's counts get the whole ε, as if a row were in one of
them only), a split that is chosen without paying, and leaves with half of their noise. Counts at two thirds
of their noise are told apart in tests/estimators, where one fit shows many of them.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np

from contract import recipes
from contract.recipes import Fitting
from tacit.estimators import DecisionTree, NaiveBayes, RandomTrees
from tacit.estimators.private import PrivateRows
from tacit.mechanisms import PermuteAndFlip

Data = tuple[np.ndarray, np.ndarray]
ONE: Data = (np.zeros((1, 2)), np.ones(1))
NOBODY: Data = (np.zeros((0, 2)), np.zeros(0))
FACTS: dict[str, Any] = {"classes": [0, 1], "categories": [1, 1]}
"""Two features of one code each, so that a row is in the first cell of both."""
BAD = (("epsilon", 0.0), ("delta", 1.0), ("classes", None), ("categories", [1]), ("relation", "both"))


class Rows(Fitting):
    """Features and a target; what is seen is a function of the fitted estimator."""

    def __call__(self, data: Data) -> np.ndarray:
        self.estimator._carry_out(self.recipe, PrivateRows(*data, None), self.source)
        seen: np.ndarray = self.seen(self.estimator)
        return seen

    @staticmethod
    def rows(data: Data) -> tuple[Any, Any, Any]:
        return *data, None


def with_noise(recipe: Any, name: str, factor: float) -> Any:
    """A recipe whose mechanism of this name has so many times the noise: its sensitivity is told smaller."""
    mechanism = getattr(recipe, name)
    smaller = dataclasses.replace(mechanism, sensitivity=mechanism.sensitivity * factor)
    return dataclasses.replace(recipe, **{name: smaller})


def overspending(recipe: Any) -> Any:
    """Both columns are counted with noise for one."""
    return with_noise(recipe, "mechanism", 0.5)


def less_noise(recipe: Any) -> Any:
    """Leaves with half of their noise."""
    smaller = dataclasses.replace(recipe.noise.leaves, scale=recipe.noise.leaves.scale / 2)
    return dataclasses.replace(recipe, noise=dataclasses.replace(recipe.noise, leaves=smaller))


class Best(PermuteAndFlip):
    """Takes the best score, and pays nothing for it."""

    def __call__(self, scores: Any) -> int:
        return int(np.argmax(scores))


def unpaid(recipe: Any) -> Any:
    chosen = Best(recipe.splits.sensitivity, recipe.splits.epsilon, monotone=True)
    return dataclasses.replace(recipe, splits=chosen)


def counts_of_bayes(model: Any) -> np.ndarray:
    """What the two counts that the row is in say of it, by the ratio of their likelihoods."""
    counts = model.counts_[1, [0, 2]]
    return np.array((np.abs(counts) - np.abs(counts - 1)).sum())


def first_split(model: Any) -> np.ndarray:
    return np.array(float(model.tree_["column"][0]))


def counts_of_trees(model: Any) -> np.ndarray:
    """The count of the leaf that the row is in, of its class."""
    return np.array(model.counts_[0, 1, model.routes_[0, 0, 0]])


def registered(
    name: str,
    kind: type,
    settings: dict[str, Any],
    seen: Any,
    broken: Any,
    pair: tuple[Data, Data],
    runs: int,
) -> None:
    make = partial(kind, 1.0, **{**FACTS, **settings})
    recipes.registered(name, Rows, make, seen, broken, pair, runs, BAD, ONE)


registered("naive_bayes_overspending", NaiveBayes, {}, counts_of_bayes, overspending, (ONE, NOBODY), 3000)

_ROWS = np.array([[0, 0], [1, 1], [0, 1], [1, 0]], dtype=float)
_TIED: Data = (np.tile(_ROWS[:2], (6, 1)), np.tile([0.0, 1.0], 6))
_TIPPED: Data = (np.vstack([_TIED[0], [[1.0, 0.0]]]), np.append(_TIED[1], 0.0))
"""Both columns tell the classes apart equally well; the one row more agrees with the second alone."""
registered(
    "decision_tree_unpaid_split",
    DecisionTree,
    {"categories": [2, 2], "depth": 1, "criterion": "max", "prune": False},
    first_split,
    unpaid,
    (_TIPPED, _TIED),
    400,
)

registered(
    "random_trees_less_noise",
    RandomTrees,
    {"trees": 1, "depth": 1, "size_share": 0.01, "vote": "majority"},
    counts_of_trees,
    less_noise,
    (ONE, NOBODY),
    1000,
)
