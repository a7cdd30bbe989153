"""Attacks on the estimators made of counts and sums: bounds, lists, categories and roundings at the edge."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from contract.mends import Scene, mend, replacing
from tacit import Budget, Column, Ledger, Schema, errors
from tacit.estimators import DecisionTree, GradientBoosting, NaiveBayes, RandomTrees, bayes, coding, private
from tacit.estimators.bayes import count_weight
from tacit.estimators.boosting.rounds import Rounds
from tacit.estimators.boosting.splits import Splits, category_splits
from tacit.estimators.trees import decision, growing
from tacit.estimators.trees.criteria import sensitivity
from tacit.jobs import fitting
from tacit.mechanisms import _grid

CLASSES = {"classes": [0, 1]}
KINDS: dict[Any, dict[str, Any]] = {
    NaiveBayes: {}, DecisionTree: {"depth": 1}, RandomTrees: {"trees": 2, "depth": 1},
    GradientBoosting: {"population": 4, "rounds": 1},
}  # fmt: skip
TINY = (0.0, 5e-324)
"""Bounds whose halves are the same number."""


def test_bounds_whose_halves_are_one_number_are_refused() -> None:
    for kind, settings in KINDS.items():
        with pytest.raises(errors.InvalidValue, match="apart"):
            kind(1.0, bounds=TINY, **CLASSES, **settings).plan(1)
    with pytest.raises(errors.InvalidValue, match="apart"):
        GradientBoosting(1.0, task="regression", target_bounds=TINY, bounds=(0, 1)).plan(1)


def _as_it_was(column: coding.Column, matrix: Any) -> Any:
    values = np.asarray(matrix[:, column.first], dtype=np.float64)
    low, high = np.float64(column.lower) / 2, np.float64(column.upper) / 2
    with np.errstate(invalid="ignore"):
        found = (np.clip(values, column.lower, column.upper) / 2 - low) / (high - low)
    return np.clip(np.where(np.isfinite(values), found, 0.5), 0.0, 1.0)


@mend(8, "bounds without room between them", twin=replacing(coding.Column, "shares", _as_it_was))
def bounds_without_room(scene: Scene) -> None:
    """A finite value made NaN, which has no cell: one row made the fit fail, or moved a sum by 2^43."""
    column = coding.Column(0, 1, 4, "number", *TINY)
    shares = column.shares(np.array([[0.0], [1.0], [math.nan], [-math.inf]]))
    assert ((shares >= 0) & (shares <= 1)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (column.codes(np.array([[0.0], [1.0], [math.nan]])) >= 0).all()


@mend(10, "lists with declared categories", twin=replacing(private, "declared_width", lambda *facts: None))
def lists_with_declared_categories(scene: Scene) -> None:
    """Where categories declare the number of features, rows of another length decide nothing."""
    for kind, settings in KINDS.items():
        model = kind(1.0, bounds=(0, 1), categories=[None, 2], **CLASSES, **settings)
        try:
            model.fit([[0.1, 0], [0.5, 1], [0.1], [0.2]], [0, 1, 0, 1])
        except errors.InvalidValue as refused:
            raise AssertionError("the lengths of rows decide") from refused
        assert not any("number of columns" in each for each in model.guarantee_.assumptions)


never_asked = replacing(fitting, "_chosen", lambda name, kind, given: {})


@mend(11, "a purchase that is not made", twin=never_asked)
def purchase_that_is_not_made(scene: Scene) -> None:
    """An estimator that buys no number of rows refuses to; it did as if nothing had been asked."""
    kinds = {"age": Column("integer", bounds=(0, 9)), "sick": Column("category", categories=("no", "yes"))}
    (scene.path / "rows.csv").write_text("age,sick\n1,no\n")
    Ledger.open(scene.path / "books.db", Budget(1.0)).close()
    given = {"schema": Schema(kinds), "target": "sick", "epsilon": 1.0, "ledger": scene.path / "books.db"}
    for model in ("naive-bayes", "decision-tree", "random-trees"):
        with pytest.raises(errors.InvalidValue, match="buy_population"):
            fitting.plan_fit(scene.path / "rows.csv", model=model, buy_population=True, **given)


def _all_pairs(rounds: Rounds) -> Any:
    columns = range(len(rounds.layout.cells))
    return tuple((i, j) for i in columns for j in columns if i < j) if rounds.pairs else ()


@mend(8, "pairs with a category of one value", twin=replacing(Rounds, "candidates", property(_all_pairs)))
def pairs_with_one_value(scene: Scene) -> None:
    """The fit must not fail after it was charged, for want of anything to split."""
    facts = {**CLASSES, "bounds": (0, 1), "categories": [1, None, 2], "interactions": 2}
    with (
        Ledger.open(scene.path / "ledger.db", Budget(1.0, 1e-3)) as ledger,
        np.errstate(all="ignore"),
    ):
        model = GradientBoosting(1.0, 1e-3, population=4, rounds=2, ledger=ledger, **facts)
        try:
            model.fit(np.zeros((3, 3)), [0, 1, 1])
        except errors.InvalidValue as failed:
            raise AssertionError(f"{len(ledger.entries())} charges for nothing") from failed
        assert model.pairs_.tolist() == [[1, 2]]


def _in_fortieths(cells: Any, numbers: int, norm: int) -> float:
    return round(count_weight(cells, numbers, norm) * 40) / 40


@mend(15, "a weight times a count", twin=replacing(bayes, "count_weight", _in_fortieths))
def weight_times_count(scene: Scene) -> None:
    """One row more adds the weight to a weighted count, exactly, however many rows there are."""
    for numbers in (1, 2, 3, 8, 21):
        weight = bayes._Layout.of((), numbers, 2).weight
        for count in (2**20 + 1, 2**31 - 1):
            assert Fraction(weight * (count + 1)) - Fraction(weight * count) == Fraction(weight)


@mend(
    15, "steps of the grid at many nodes",
    twin=replacing(decision, "level_sensitivity", lambda rows, of_a_row, choices: rows * of_a_row),
)  # fmt: skip
def steps_of_the_grid(scene: Scene) -> None:
    """Selection is paid for the rounding of scores at each node that a unit's rows are at, up and down."""
    for rows, relation in ((1, "add_remove"), (1, "replace_one"), (50, "replace_one"), (10**7, "add_remove")):
        for criterion in ("gini", "entropy"):
            model = DecisionTree(
                1.0, bounds=(0, 1), criterion=criterion, population=1000, depth=2, bins=4,
                relation=relation, rows_per_unit=rows, **CLASSES,
            )  # fmt: skip
            public = model._public(1, model._agreed(rows > 1))
            select = model._recipe(public).splits
            times = rows * (2 if relation == "replace_one" else 1)
            row = sensitivity(criterion, 2, 4, 1000)
            steps = times * _grid.in_steps(row, select._exponent) + 2 * min(times, 2 * growing.MOST_NODES)
            assert Fraction(select.epsilon) / select._rate() >= steps


def _by_product(splits: Splits, cells: Any) -> Any:
    return (splits.signs @ cells) * splits.weights[:, None]


@mend(15, "sums of very many categories", twin=replacing(Splits, "summed", _by_product))
def sums_of_many_categories(scene: Scene) -> None:
    """Each category against the mean of all is off by two roundings, however many categories there are."""
    many = 3000
    cells = np.full((many + 1, 1), 1000.0)
    cells[0] = 2.0**52
    found = category_splits(many, centred=True).summed(cells)
    exact = 2**52 - Fraction(2**52 + 1000 * (many - 1), many)
    assert abs(Fraction(float(found[0, 0])) - exact) <= 2
    few = category_splits(5, centred=True)
    values = np.arange(12.0).reshape(6, 2)
    np.testing.assert_allclose(few.summed(values), few.matrix @ values, atol=1e-12)
