"""Naive Bayes: sensitivity, the scale of the noise, the budget of the class counts, and what it learns."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.naive_bayes import GaussianNB

from tacit.data.features import Features, known
from tacit.estimators import NaiveBayes
from tacit.estimators.bayes import _Layout, count_weight, statistics
from tacit.estimators.coding import Coding
from tacit.estimators.counting import deviation_of
from tacit.estimators.private import PrivateRows
from tacit.relations import Relation

FACTS: dict[str, Any] = {"classes": [0, 1], "bounds": (-1, 1)}


def recipe_of(model: NaiveBayes, width: int) -> Any:
    return model._recipe(model._public(width, model._agreed(False)))


def sample(rows: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A number that tells the classes apart, a code that does so too, and a number that does not."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 2, rows)
    number = np.clip(generator.normal(0.6 * y - 0.3, 0.3), -1, 1)
    code = np.where(generator.random(rows) < 0.8, y, generator.integers(0, 3, rows))
    return np.column_stack([number, code, generator.uniform(-1, 1, rows)]), y


class TestSensitivity:
    @pytest.mark.parametrize("numbers", ["histogram", "gaussian"])
    @pytest.mark.parametrize("relation", list(Relation))
    def test_no_pair_of_rows_moves_further_than_claimed(self, numbers: str, relation: Relation) -> None:
        """Rows at the corners of the bounds and at random, of both classes; the claim is nearly reached."""
        model = NaiveBayes(1.0, 1e-6, relation=relation, numbers=numbers, categories=[None, 2, None], **FACTS)
        recipe = recipe_of(model, 3)
        generator = np.random.default_rng(1)
        values = [-1.0, 1.0, 0.0, -0.5, *generator.uniform(-1, 1, 4)]
        rows = [(x, c, x) for x, c in itertools.product(values, (0.0, 1.0, 9.0))]
        told = [
            statistics(recipe, PrivateRows(np.array([row]), np.array([label]), None), [0, 1])
            for row in rows
            for label in (0, 1)
        ]
        if relation is Relation.ADD_REMOVE:
            moved = told
        else:
            moved = [a - b for a, b in itertools.combinations(told, 2)]
        for norm in (1, 2):
            claimed = recipe.layout.sensitivity(relation, norm)
            found = max(np.linalg.norm(each, norm) for each in moved)
            assert found <= claimed * (1 + 1e-9)
            if norm == 2:
                assert found >= 0.85 * claimed

    def test_a_unit_counts_all_its_rows(self) -> None:
        models = [NaiveBayes(1.0, rows_per_unit=rows, **FACTS) for rows in (1, 3)]
        one, three = (model._recipe(model._public(2, model._agreed(True))).mechanism for model in models)
        assert three.sensitivity == 3 * one.sensitivity == 6.0


class TestNoise:
    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_scale(self, delta: float) -> None:
        """The noise on empty cells: as large as planned, neither two thirds of that nor three halves."""
        model = NaiveBayes(0.5, delta, categories=[500] * 9, random_state=3, classes=[0, 1])
        expected = deviation_of(recipe_of(model, 9).mechanism)
        noise = model.fit(np.zeros((0, 9)), np.zeros(0)).counts_.ravel()
        shape = stats.norm if delta else stats.laplace
        scale = expected if delta else expected / math.sqrt(2)
        assert stats.kstest(noise, shape(scale=scale).cdf).pvalue > 1e-6
        for wrong in (2 / 3, 3 / 2):
            assert stats.kstest(noise, shape(scale=scale * wrong).cdf).pvalue < 1e-6

    def test_columns_share_one_vector(self) -> None:
        """√columns for Gaussian noise, columns for Laplace noise."""
        wide, narrow = (
            [deviation_of(recipe_of(NaiveBayes(1.0, d, **FACTS), width).mechanism) for d in (1e-6, 0.0)]
            for width in (64, 16)
        )
        assert wide[0] == pytest.approx(2 * narrow[0])
        assert wide[1] == pytest.approx(4 * narrow[1])


class TestCountsOfClasses:
    def test_sums_over_cells_tell_enough(self) -> None:
        generator = np.random.default_rng(0)
        for _ in range(200):
            cells = tuple(generator.integers(2, 60, generator.integers(1, 30)).tolist())
            assert count_weight(cells, 0, 1) == count_weight(cells, 0, 2) == 0.0

    def test_moments_alone_need_them(self) -> None:
        assert count_weight((), 8, 1) > 0
        for numbers in (1, 8, 100):
            best = count_weight((), numbers, 2)
            expected = (1.25 * numbers * (1 + numbers / 2) / (7.5 * numbers)) ** 0.25
            assert best == pytest.approx(expected, abs=0.02) or best == 4.0

    def test_the_prior(self) -> None:
        x, y = sample()
        y = np.where(np.arange(len(y)) % 4 == 0, y, 0)
        model = NaiveBayes(1.0, categories=[None, 3, None], random_state=1, **FACTS).fit(x, y)
        assert np.exp(model.class_log_prior_[1]) == pytest.approx(y.mean(), abs=0.02)
        assert model.class_count_ == pytest.approx(np.bincount(y), abs=60)

    def test_layout_weighs_them(self) -> None:
        layout = _Layout.of((), 4, 2)
        assert layout.sensitivity(Relation.ADD_REMOVE, 2) == pytest.approx(math.sqrt(5 + layout.weight**2))


class TestWithoutNoise:
    def test_gaussian_is_that_of_scikit_learn(self) -> None:
        x, y = sample()
        numbers = x[:, [0, 2]]
        model = NaiveBayes(math.inf, numbers="gaussian", **FACTS).fit(numbers, y)
        theirs = GaussianNB().fit(numbers, y)
        assert model.theta_ == pytest.approx(theirs.theta_, abs=1e-2)
        assert model.var_ == pytest.approx(theirs.var_, abs=1e-2)
        assert (model.predict(numbers) == theirs.predict(numbers)).mean() > 0.99

    def test_probabilities_add_up(self) -> None:
        x, y = sample(400)
        made = NaiveBayes(math.inf, categories=[None, 3, None], **FACTS).fit(x, y)
        assert made.predict_proba(x).sum(axis=1) == pytest.approx(1.0)
        assert (made.predict(x) == y).mean() > 0.85


class TestPublicFacts:
    def test_mixed_columns_learn(self) -> None:
        x, y = sample()
        for numbers in ("histogram", "gaussian"):
            facts = {**FACTS, "categories": [None, 3, None], "numbers": numbers}
            model = NaiveBayes(1.0, 1e-6, random_state=1, **facts).fit(x, y)
            assert (model.predict(x) == y).mean() > 0.85

    def test_features_of_one_column_are_one_category(self) -> None:
        features = Features(
            ("sex=F", "sex=M", "age"), (0.0, 0.0, -1.0), (1.0, 1.0, 1.0), None, ("sex", "sex", "age")
        )
        model = NaiveBayes(1.0, classes=[0, 1])
        public = model._public(features, model._agreed(False))
        coding = Coding.of(public, bounds=None, categories=None, bins=4)
        assert coding.cells == (3, 4)
        rows = np.array([[1, 0, -1.0], [0, 1, 1.0], [0, 0, 0.0]])
        assert coding.codes(rows).tolist() == [[0, 0], [1, 3], [2, 2]]
        assert recipe_of_features(model, features).mechanism.sensitivity == 2.0
        fitted = model.fit(known(rows, features), [0, 1, 1])
        names = {weight.feature for weight in fitted.describe(features.names).weights}
        assert names == {"sex=F", "sex=M", "age"}

    def test_missing_and_undeclared_values(self) -> None:
        """A missing number is in the middle, a missing or undeclared code in a cell of its own.

        The last row has no value at all, and does not count.
        """
        model = NaiveBayes(math.inf, categories=[None, 2], bins=4, **FACTS)
        x = np.array([[np.nan, 5.0], [0.9, np.nan], [np.inf, np.nan]])
        fitted = model.fit(x, [1, 0, 1])
        assert fitted.counts_.tolist() == [[0, 0, 0, 1, 0, 0, 1], [0, 0, 1, 0, 0, 0, 1]]
        assert fitted.predict(x).shape == (3,)

    def test_odd_bounds(self) -> None:
        facts = {"classes": [0, 1], "bounds": (-1e308, 1e308), "random_state": 1}
        for numbers in ("histogram", "gaussian"):
            made = NaiveBayes(1.0, numbers=numbers, **facts).fit(np.array([[1e308], [-1e308]]), [0, 1])
            assert np.isfinite(made.predict_proba([[0.0], [1e300]])).all()


def recipe_of_features(model: NaiveBayes, features: Features) -> Any:
    return model._recipe(model._public(features, model._agreed(False)))
