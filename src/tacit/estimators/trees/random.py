"""Ensembles of random decision trees with noisy leaves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit import _validate, events
from tacit.estimators.coding import Coding, labelled
from tacit.estimators.counting import deviation_of, joint_noise, moved
from tacit.estimators.declared import declared_classes
from tacit.estimators.private import PrivateEstimator, PrivateRows, Public, Recipe
from tacit.estimators.trees.structure import Array, Tree
from tacit.mechanisms import Gaussian, Laplace
from tacit.randomness import Source, uniform

__all__ = ["RandomTrees"]


@dataclass(frozen=True)
class _ForestRecipe(Recipe):
    coding: Coding = dataclasses.field(kw_only=True)
    trees: int = dataclasses.field(kw_only=True)
    depth: int = dataclasses.field(kw_only=True)
    mechanism: Laplace | Gaussian | None = dataclasses.field(kw_only=True)


class RandomTrees(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """TODO"""

    title = "random decision trees"
    released = (
        "classes_", "coding_", "columns_", "routes_", "counts_", "log_shares_", "n_features_in_",
        "feature_names_in_",
    )  # fmt: skip
    predicts_from = ("classes_", "coding_", "columns_", "routes_", "log_shares_", "vote")
    fits_without_noise = True

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        classes: Any = None,
        bounds: Any = None,
        categories: Any = None,
        trees: int | None = None,
        depth: int = 6,
        data: str = "shared",
        vote: str = "average",
        bins: int = 32,
        relation: Any = "add_remove",
        rows_per_unit: int = 1,
        ledger: Any = None,
        label: str | None = None,
        verbose: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.bounds = bounds
        self.categories = categories
        self.trees = trees
        self.depth = depth
        self.data = data
        self.vote = vote
        self.bins = bins
        self.relation = relation
        self.rows_per_unit = rows_per_unit
        self.ledger = ledger
        self.label = label
        self.verbose = verbose
        self.random_state = random_state

    def _recipe(self, public: Public) -> _ForestRecipe:
        declared_classes(self.classes)
        _validate.choice("vote", self.vote, ("average", "majority"))
        shared = _validate.choice("data", self.data, ("shared", "disjoint")) == "shared"
        coding = Coding.of(public, bounds=self.bounds, categories=self.categories, bins=self.bins)
        trees = USUAL_TREES[public.delta > 0] if self.trees is None else _validate.count("trees", self.trees, 1)
        depth = _validate.count("depth", self.depth, 1)
        if depth > MOST_DEPTH:
            raise InvalidValue("depth", depth, f"at most {MOST_DEPTH}")
        if math.isinf(public.epsilon):
            return _ForestRecipe(
                events.WITHOUT_PRIVACY, "float64", (), ("no privacy",),
                coding=coding, trees=trees, depth=depth, mechanism=None,
            )  # fmt: skip
        sizes = moved(public.relation, public.unit, trees if shared else 1)
        mechanism = joint_noise(*sizes, public.epsilon, public.delta)
        note = f"{trees} trees of {2**depth} leaves; noise of deviation {deviation_of(mechanism):.4g} on each count"
        return _ForestRecipe(
            mechanism.event, "exact", (("leaves", public.epsilon),), (note,),
            coding=coding, trees=trees, depth=depth, mechanism=mechanism,
        )  # fmt: skip
