"""The estimators made of counts and sums, replayed on worst-case neighbours: see :mod:`replay`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from contract.mends import replacing
from replay import Found, compare
from tacit.estimators import DecisionTree, GradientBoosting, NaiveBayes, RandomTrees, bayes, counting
from tacit.estimators.boosting import residuals
from tacit.estimators.boosting.rounds import Rounds
from tacit.estimators.purchases import Purchases
from tacit.estimators.trees import decision, growing, random
from tacit.estimators.trees.criteria import score
from tacit.relations import Relation, Unit

FACTS: dict[str, Any] = {"classes": [0, 1], "bounds": (-1, 1), "categories": [None, 2], "bins": 4}
BOOSTED = {"population": 20, "rounds": 3}
FITS: dict[str, tuple[type, dict[str, Any], float]] = {
    "bayes": (NaiveBayes, {}, 1.0),
    "bayes gaussian": (NaiveBayes, {"numbers": "gaussian"}, 0.9),
    "tree": (DecisionTree, {"depth": 2}, 1.0),
    "tree entropy": (DecisionTree, {"depth": 2, "criterion": "entropy", "population": 9}, 1.0),
    "tree max": (DecisionTree, {"depth": 2, "criterion": "max"}, 1.0),
    "tree by counts": (DecisionTree, {"depth": 2, "choice": "noisy_gain"}, 1.0),
    "random trees": (RandomTrees, {}, 1.0),
    "disjoint trees": (RandomTrees, {"data": "disjoint", "trees": 4}, 1.0),
    "boosting": (GradientBoosting, BOOSTED, 0.99),
    "boosting, all bought": (GradientBoosting, {"population": "dp", "bounds": "dp", "rounds": 2}, 0.99),
    "boosting three classes": (GradientBoosting, {**BOOSTED, "classes": [0, 1, 5]}, 0.5),
    "boosting a number": (
        GradientBoosting, {**BOOSTED, "task": "regression", "target_bounds": (0, 1), "classes": None}, 0.99,
    ),
    "boosting in pairs": (GradientBoosting, {**BOOSTED, "interactions": 1}, 0.8),
}  # fmt: skip
"""The estimator, its settings, and how near some neighbours must come to a sensitivity."""

_RANDOM = np.random.default_rng(3)
BASE = (np.column_stack([_RANDOM.uniform(-1, 1, 12), _RANDOM.integers(0, 2, 12)]), np.arange(12) % 2)
ODD: list[tuple[list[float], int]] = [
    ([1.0, 0.0], 1), ([-1.0, 1.0], 1), ([1e300, 1.0], 0), ([np.nan, 7.0], 1), ([1.0, 0.0], 5),
    ([np.nan, np.inf], 0),
]  # fmt: skip
"""Rows at the bounds and beyond them, without values, with codes and labels that nobody declared."""


def with_unit(row: tuple[list[float], int] | None, rows: int) -> Any:
    if row is None:
        return BASE
    return np.vstack([BASE[0], [row[0]] * rows]), np.append(BASE[1], [row[1]] * rows)


def pairs(relation: str) -> list[tuple[Any, Any]]:
    if relation == "add_remove":
        return [(row, None) for row in ODD]
    return [*combinations(ODD[:4], 2), (ODD[0], ODD[4]), (ODD[0], ODD[5])]


def attacked(
    patch: pytest.MonkeyPatch, name: str, relation: str, rows: int, delta: float, **more: Any
) -> Found:
    """All neighbours; what they show together."""
    kind, settings, _ = FITS[name]
    shown = Found(0.0, 0.0)
    for one, other in pairs(relation):
        given = {**FACTS, "random_state": 1, "relation": relation, "rows_per_unit": rows, **settings, **more}
        units = [0 if row is None else rows for row in (one, other)]
        found = compare(kind(1.0, delta, **given), with_unit(one, rows), with_unit(other, rows), patch, units)
        shown = Found(max(shown.epsilon, found.epsilon), max(shown.tightest, found.tightest))
    return shown


@pytest.mark.parametrize(("relation", "rows"), [("add_remove", 1), ("add_remove", 3), ("replace_one", 3)])
@pytest.mark.parametrize("name", FITS)
def test_neighbours_cost_what_was_paid(
    name: str, relation: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = attacked(monkeypatch, name, relation, rows, 0.0)
    assert found.tightest >= FITS[name][2] * (1 - 1e-9), "no neighbours come near to the sensitivity"


@pytest.mark.parametrize("name", ["bayes gaussian", "tree by counts", "random trees", "boosting in pairs"])
def test_with_gaussian_noise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"categories": None, "bins": 8} if name == "tree by counts" else {}
    assert attacked(monkeypatch, name, "replace_one", 1, 1e-3, **more).epsilon > 0.3


def forgetting(whom: str) -> Callable[[pytest.MonkeyPatch], None]:
    """How far rows move counts, with the relation or the unit forgotten."""

    def moved(relation: Relation, unit: Unit, counts: float = 1.0) -> tuple[float, float]:
        return counting.moved(
            Relation.ADD_REMOVE if whom == "relation" else relation,
            Unit() if whom == "unit" else unit,
            counts,
        )

    def twin(patch: pytest.MonkeyPatch) -> None:
        for module in (decision, random):
            patch.setattr(module, "moved", moved)

    return twin


def best_split(criterion: str, most: int, select: Any) -> Any:
    """The split with the best score, which nobody pays for."""
    return lambda tables, splits: int(np.argmax([score(criterion, split.parts(tables)) for split in splits]))


def longer(self: residuals.Residuals, scores: Any, targets: Any) -> Any:
    """Residuals beyond their bound."""
    return np.trunc((targets[:, None] - 0.5) * 1.1 * residuals.GRID)


def with_exact_size(self: Any, recipe: Any, rows: Any, source: Any) -> None:
    """The number of rows is read off."""
    CARRIED_OUT(self, recipe, rows, source)
    self.class_count_ = self.class_count_ + len(rows.matrix)


CARRIED_OUT = NaiveBayes._carry_out
TWINS: dict[str, tuple[str, str, Callable[[pytest.MonkeyPatch], None]]] = {
    "smaller moments": ("bayes gaussian", "add_remove", replacing(bayes, "_MOMENTS", {1: 1.2, 2: 1.0})),
    "moments of one row": ("bayes gaussian", "replace_one", replacing(bayes, "_REPLACED", {1: 1.0, 2: 1.25})),
    "size of a class": ("bayes", "add_remove", replacing(NaiveBayes, "_carry_out", with_exact_size)),
    "relation of a tree": ("tree", "replace_one", forgetting("relation")),
    "unit of a tree": ("tree by counts", "add_remove", forgetting("unit")),
    "split of a tree": ("tree", "replace_one", replacing(growing, "choose_by_score", best_split)),
    "relation of random trees": ("random trees", "replace_one", forgetting("relation")),
    "unit of disjoint trees": ("disjoint trees", "add_remove", forgetting("unit")),
    "residuals": ("boosting", "add_remove", replacing(residuals.Residuals, "of", longer)),
    "population": (
        "boosting, all bought", "add_remove",
        replacing(Purchases, "buy_population", lambda self, rows, source: rows.used),
    ),
    "norm of a pair": ("boosting in pairs", "add_remove", replacing(Rounds, "_pair_norm", lambda self: 0.1)),
}  # fmt: skip
"""Faults of one estimator each: the fit and the relation under which neighbours must show it."""


@pytest.mark.parametrize("name", TWINS)
def test_a_broken_twin_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fit, relation, twin = TWINS[name]
    twin(monkeypatch)
    with pytest.raises(AssertionError):
        attacked(monkeypatch, fit, relation, 3, 0.0)
