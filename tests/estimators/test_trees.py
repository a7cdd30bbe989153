"""Decision trees and random trees: the worked example, sensitivities, noise, pruning, drawings."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats
from sklearn.pipeline import make_pipeline

from tacit import events
from tacit.accounting import epsilon
from tacit.drawing.trees import svg
from tacit.estimators import DecisionTree, Preprocessor, RandomTrees
from tacit.estimators.coding import Coding
from tacit.estimators.counting import deviation_of
from tacit.estimators.private import PrivateRows
from tacit.estimators.trees.criteria import CRITERIA, gain, score, sensitivity
from tacit.estimators.trees.decision import worthless
from tacit.estimators.trees.growing import splits_of
from tacit.estimators.trees.growing import statistics as level_counts
from tacit.estimators.trees.random import SHARPNESS, TREES, correct, random_splits, statistics
from tacit.estimators.trees.structure import Tree
from tacit.randomness import Source
from tacit.schema import Column, Schema

THREE, TWO = ("Always", "Sometimes", "Rarely"), ("Pass", "Fail")
SCHEMA = Schema({
    "lectures": Column("category", categories=THREE),
    "tutorials": Column("category", categories=THREE),
    "midterm": Column("category", categories=TWO),
    "final": Column("category", categories=TWO),
})  # fmt: skip
STUDENTS = {
    "lectures": ["Always", "Always", "Sometimes", "Sometimes", "Rarely", "Rarely"],
    "tutorials": ["Always", "Sometimes", "Rarely", "Rarely", "Sometimes", "Rarely"],
    "midterm": ["Pass", "Fail", "Pass", "Fail", "Fail", "Pass"],
}
GRADES = ["Pass", "Pass", "Pass", "Fail", "Fail", "Pass"]
"""The six students of the worked example in seed 000, appendix B.1."""
FACTS: dict[str, Any] = {"classes": [0, 1], "bounds": (-1, 1)}


def recipe_of(model: Any, width: int) -> Any:
    return model._recipe(model._public(width, model._agreed(False)))


def sample(rows: int = 3000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two numbers of which one decides, a code that does not."""
    generator = np.random.default_rng(seed)
    x = np.column_stack([generator.uniform(-1, 1, (rows, 2)), generator.integers(0, 3, rows)])
    return x, ((x[:, 0] > 0.25) ^ (generator.random(rows) < 0.05)).astype(int)


class TestSixStudents:
    @pytest.fixture
    def tables(self) -> list[np.ndarray]:
        maker = Preprocessor(SCHEMA, target="final")
        model = DecisionTree(math.inf, classes=list(TWO))
        coding = Coding.of(
            model._public(maker.features, model._agreed(False)), bounds=None, categories=None, bins=2
        )
        codes = coding.codes(maker.fit_transform(STUDENTS))
        labels = np.array([TWO.index(grade) for grade in GRADES])
        return [table[0] for table in level_counts(codes, labels, np.zeros(6, dtype=int), (1, 2), coding)]

    def test_entropy(self, tables: list[np.ndarray]) -> None:
        whole = tables[0].sum(axis=1, keepdims=True)
        assert -score("entropy", whole) / 6 == pytest.approx(0.918, abs=5e-4)

    def test_gains(self, tables: list[np.ndarray]) -> None:
        assert [gain("entropy", table) for table in tables] == pytest.approx([0.252, 0.126, 0.459], abs=5e-4)

    @pytest.mark.parametrize("choice", ["exponential", "noisy_gain"])
    def test_the_tree(self, choice: str) -> None:
        tree = DecisionTree(math.inf, classes=list(TWO), criterion="entropy", choice=choice, depth=3)
        model = make_pipeline(Preprocessor(SCHEMA, target="final"), tree).fit(STUDENTS, GRADES)
        names = model[0].features.names
        assert tree.export_text(names).splitlines() == [
            "midterm = Pass: Pass (100 %)",
            "midterm = Fail",
            "    lectures = Always: Pass (100 %)",
            "    lectures = Sometimes: Fail (100 %)",
            "    lectures = Rarely: Fail (100 %)",
            "    lectures = none of these: Fail (67 %)",
            "midterm = none of these: Pass (67 %)",
        ]
        assert model.predict(STUDENTS).tolist() == GRADES
        assert [weight.feature for weight in tree.describe(names).weights] == ["midterm", "lectures"]


class TestCriteria:
    @pytest.mark.parametrize("criterion", CRITERIA)
    def test_one_row_moves_a_score_no_further_than_claimed_and_all_one_way(self, criterion: str) -> None:
        """Random tables and the worst ones; ``most`` stops the counts, so that the bound holds for any."""
        generator = np.random.default_rng(0)
        most, found = 64, []
        for classes in (2, 3):
            claimed = sensitivity(criterion, classes, 4, most)
            for size in (1, 3, 30, 64, 500):
                for _ in range(100):
                    table = generator.integers(0, size + 1, (classes, 4)) * generator.integers(
                        0, 2, (classes, 4)
                    )
                    table[0, 0] = 0 if generator.random() < 0.5 else table[0, 0]
                    more = table.copy()
                    more[0, 0] += 1
                    before, after = (score(criterion, np.minimum(each, most)) for each in (table, more))
                    change = float(after - before) * (1 if criterion == "max" else -1)
                    assert -1e-9 <= change <= claimed
                    found.append(change / claimed)
        worst = np.zeros((2, 4))
        worst[1, 0] = most
        more = worst + np.eye(2, 4)
        found.append(
            abs(float(score(criterion, more) - score(criterion, worst))) / sensitivity(criterion, 2, 4, most)
        )
        assert max(found) > 0.8

    def test_rounding_is_in_the_sensitivity(self) -> None:
        assert sensitivity("max", 2, 4, 2**31) == 1.0
        assert 2.0 < sensitivity("gini", 2, 17, 2**31) < 2.01
        assert sensitivity("entropy", 2, 4, 1000) == pytest.approx(math.log2(2000) + 1 / math.log(2))


class TestDecisionTree:
    @pytest.mark.parametrize("choice", ["exponential", "noisy_gain"])
    @pytest.mark.parametrize("criterion", CRITERIA)
    def test_finds_the_column_that_decides(self, choice: str, criterion: str) -> None:
        x, y = sample()
        facts = {**FACTS, "categories": [None, None, 3], "bins": 8, "population": 5000}
        model = DecisionTree(2.0, choice=choice, criterion=criterion, depth=2, random_state=1, **facts)
        model.fit(x, y)
        assert (model.predict(x) == y).mean() > 0.9
        assert model.tree_["column"][0] == 0

    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    @pytest.mark.parametrize("choice", ["exponential", "noisy_gain"])
    def test_the_budget_is_divided(self, choice: str, delta: float) -> None:
        model = DecisionTree(1.0, delta, choice=choice, depth=3, split_share=0.25, **FACTS)
        recipe = recipe_of(model, 40)
        assert epsilon(recipe.event, delta) == pytest.approx(1.0, rel=0.05)
        assert epsilon(recipe.event, delta) <= 1 + 1e-6
        if delta == 0:
            assert epsilon(recipe.splits.event, 0) == pytest.approx(0.25 / 3)
            assert epsilon(recipe.leaves.event, 0) == pytest.approx(0.75)

    def test_the_noise_of_the_leaves(self) -> None:
        """As large as planned, neither two thirds of that nor three halves."""
        model = DecisionTree(1.0, categories=[400] * 2, classes=[0, 1], depth=1, prune=False, random_state=2)
        scale = deviation_of(recipe_of(model, 2).leaves) / math.sqrt(2)
        noise = model.fit(np.zeros((0, 2)), np.zeros(0)).counts_[:, 1:].ravel()
        assert stats.kstest(noise, stats.laplace(scale=scale).cdf).pvalue > 1e-6
        for wrong in (0.5, 2.0):
            assert stats.kstest(noise, stats.laplace(scale=scale * wrong).cdf).pvalue < 1e-6

    def test_the_shape_knows_nothing_of_the_rows_but_the_choices(self) -> None:
        """With the same draws, empty and constant data make trees of the same kind, and none raises."""
        for x, y in ((np.zeros((0, 2)), np.zeros(0)), (np.ones((50, 2)), np.ones(50))):
            model = DecisionTree(1.0, depth=3, prune=False, random_state=1, bins=4, **FACTS).fit(x, y)
            assert len(model.tree_["column"]) <= 15
            assert np.isfinite(model.predict_proba(np.full((3, 2), np.nan))).all()

    def test_columns_that_are_used_up_make_leaves(self) -> None:
        model = DecisionTree(1.0, categories=[1], classes=[0, 1], depth=5, prune=False, random_state=1)
        model.fit(np.zeros((9, 1)), np.ones(9))
        assert model.tree_["column"].tolist() == [0, -1, -1]

    def test_pruning_cuts_noise_and_keeps_signal(self) -> None:
        tree = Tree.complete([0, 1, 1], [[0, 1], [0, 1], [0, 1]])
        counts = np.array([[100.0, 104.0, 20.0, 180.0], [20.0, 18.0, 150.0, 10.0]])
        cut = worthless(tree, counts, deviation=10.0)
        assert cut.tolist() == [False, True, False, False, False, False, False]
        left, kept = tree.without(cut)
        assert left.column.tolist() == [0, -1, 1, -1, -1]
        assert kept.tolist() == [0, 1, 2, 5, 6]
        assert left.reached(np.array([[0, 0], [0, 1], [1, 0], [1, 1]])).tolist() == [1, 1, 3, 4]

    def test_drawings(self) -> None:
        x, y = sample()
        facts = {**FACTS, "categories": [None, None, 3]}
        model = DecisionTree(4.0, depth=2, random_state=1, **facts).fit(x, y)
        names = ["dose <mg>", "height", "ward"]
        drawn = ElementTree.fromstring(model.export_svg(names))
        words = [each.text or "" for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
        assert any(word.startswith("dose <mg> <") for word in words)
        tree = model.describe(names).tree
        assert tree is not None
        assert svg(tree) == model.export_svg(names)
        assert model.structure(names)["column"] == "dose <mg>"

    def test_splits_of_a_number_stay_within_what_is_left(self) -> None:
        model = DecisionTree(1.0, **FACTS)
        coding = Coding.of(
            model._public(2, model._agreed(False)), bounds=(-1, 1), categories=[None, 2], bins=8
        )
        found = splits_of(coding, {0: (2, 5), 1: (0, 2)})
        assert [split.threshold for split in found] == [3, 4, 5, None]


class TestRandomTrees:
    def test_structures_do_not_depend_on_rows(self) -> None:
        x, y = sample(200)
        made = [
            RandomTrees(1.0, trees=4, depth=3, random_state=5, **FACTS).fit(*rows)
            for rows in ((x[:, :2], y), (x[:, :2] * 0.1, 1 - y))
        ]
        assert (made[0].columns_ == made[1].columns_).all()
        assert (made[0].routes_ == made[1].routes_).all()

    @pytest.mark.parametrize("disjoint", [False, True])
    def test_a_row_is_in_one_leaf_of_each_tree(self, disjoint: bool) -> None:
        coding = Coding.of(recipe_public(), bounds=(-1, 1), categories=[None, 4], bins=8)
        source = Source(1)
        trees = [Tree.complete(*random_splits(coding, 4, source)) for _ in range(6)]
        rows = PrivateRows(np.array([[0.3, 2.0]]), np.array([1]), None)
        found = statistics(trees, coding, rows, [0, 1], source if disjoint else None)
        assert found.sum() == (1 if disjoint else 6)
        assert found[:, 0].sum() == 0
        assert set(found.ravel().tolist()) <= {0.0, 1.0}

    @pytest.mark.parametrize(("delta", "data"), [(0.0, "shared"), (1e-6, "shared"), (0.0, "disjoint")])
    def test_the_noise_of_the_leaves(self, delta: float, data: str) -> None:
        """As large as planned, neither two thirds of that nor three halves."""
        model = RandomTrees(1.0, delta, trees=32, depth=6, data=data, random_state=4, **FACTS)
        mechanism = recipe_of(model, 2).noise.of_leaves(1 if data == "disjoint" else 32)
        noise = model.fit(np.zeros((0, 2)), np.zeros(0)).counts_.ravel()
        expected = deviation_of(mechanism)
        shape, scale = (stats.norm, expected) if delta else (stats.laplace, expected / math.sqrt(2))
        assert stats.kstest(noise, shape(scale=scale).cdf).pvalue > 1e-6
        for wrong in (2 / 3, 3 / 2):
            assert stats.kstest(noise, shape(scale=scale * wrong).cdf).pvalue < 1e-6

    def test_the_event_is_that_of_any_number_of_trees(self) -> None:
        noise = recipe_of(RandomTrees(1.0, 1e-6, **FACTS), 2).noise
        for trees in TREES:
            made = noise.of_leaves(trees)
            assert made.event == noise.leaves
            assert made.sensitivity == pytest.approx(math.sqrt(trees))

    def test_a_declared_number_of_trees_has_the_smaller_kind_of_noise(self) -> None:
        for trees, kind in ((1, events.Laplace), (64, events.Gaussian)):
            assert isinstance(recipe_of(RandomTrees(1.0, 1e-6, trees=trees, **FACTS), 2).noise.leaves, kind)

    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_few_rows_make_few_trees_that_are_deep_enough(self, delta: float) -> None:
        """By the noise alone: 600 rows at ε = 0.1 are too few for eight trees, and enough for four levels."""
        model = RandomTrees(0.1, delta, **FACTS)
        noise = recipe_of(model, 2).noise
        trees, depth = model._shape(noise, 600.0)
        assert 2 <= trees <= 4
        assert depth >= 4
        assert model._shape(noise, 3.0) == (1, 1)
        assert model._shape(noise, 1e6) == (64, 8)

    def test_a_row_moves_every_sharpness_by_one_at_most(self) -> None:
        generator = np.random.default_rng(0)
        means, labels = np.log(generator.dirichlet([1, 2, 3], 50)), generator.integers(-1, 3, 50)
        prior = np.log([0.2, 0.3, 0.5])
        all_of_them, fewer = (correct(means[:n], prior, labels[:n]) for n in (50, 49))
        assert set((all_of_them - fewer).tolist()) <= {0.0, 1.0}
        assert len(all_of_them) == len(SHARPNESS)

    @pytest.mark.parametrize("settings", [{}, {"vote": "majority"}, {"data": "disjoint"}])
    def test_learns(self, settings: dict[str, str]) -> None:
        x, y = sample()
        facts = {**FACTS, "categories": [None, None, 3]}
        model = RandomTrees(4.0, 1e-6, random_state=1, **facts, **settings).fit(x, y)
        assert (model.predict(x) == y).mean() > 0.8
        assert model.predict_proba(x).sum(axis=1) == pytest.approx(1.0)

    def test_fewer_rows_make_fewer_and_shallower_trees(self) -> None:
        x, y = sample()
        many, few = (
            RandomTrees(0.5, random_state=1, **{**FACTS, "categories": [None, None, 3]}).fit(x[:n], y[:n])
            for n in (3000, 60)
        )
        assert many.log_shares_.shape[2] > few.log_shares_.shape[2]
        assert many.log_shares_.shape[0] >= few.log_shares_.shape[0]

    def test_no_column_can_be_split(self) -> None:
        model = RandomTrees(1.0, trees=3, depth=4, categories=[1], classes=[0, 1], random_state=1)
        model.fit(np.zeros((9, 1)), np.ones(9))
        assert model.predict([[0.0], [np.nan]]).shape == (2,)


def recipe_public() -> Any:
    model = RandomTrees(1.0, **FACTS)
    return model._public(2, model._agreed(False))
