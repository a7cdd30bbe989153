"""Models from local reports: one report per person, what is learnt, files, and rows that are odd."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import tacit
from tacit import events
from tacit.errors import BudgetExceeded, CannotLearn, InvalidValue, TacitError, WeakPrivacy
from tacit.estimators import Preprocessor
from tacit.evaluation.rowlocal import parts_with_products
from tacit.local import LocalLinearRegression, LocalLogisticRegression
from tacit.local.protocol import Protocol

PEOPLE = 8000


def data(seed: int = 1, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Rows of three features, of which the largest coordinate, or the sign of the first, is the class."""
    X = np.random.default_rng(seed).normal(size=(PEOPLE, 3))
    return X, (X[:, 0] > 0.3).astype(int) if classes == 2 else X[:, :classes].argmax(axis=1)


def model(epsilon: float = 4.0, **more: Any) -> LocalLogisticRegression:
    told: dict[str, Any] = {"norm": 3.0, "classes": [0, 1], "random_state": 1, **more}
    return LocalLogisticRegression(epsilon, **told)


@pytest.fixture(scope="module")
def fitted() -> LocalLogisticRegression:
    return model().fit(*data())


class TestLearning:
    def test_two_classes(self, fitted: LocalLogisticRegression) -> None:
        X, y = data(2)
        assert np.mean(fitted.predict(X) == y) > 0.93
        probabilities = fitted.predict_proba(X)
        assert np.allclose(probabilities.sum(axis=1), 1)
        assert np.array_equal(probabilities[:, 1] > 0.5, fitted.decision_function(X) > 0)

    def test_three_classes(self) -> None:
        X, y = data(2, 3)
        found = model(classes=[0, 1, 2]).fit(*data(1, 3))
        assert np.mean(found.predict(X) == y) > 0.85
        assert found.coef_.shape == (3, 3)

    def test_more_budget_teaches_more(self) -> None:
        X, y = data(2)
        scores = [
            np.mean([np.mean(model(e, random_state=seed).fit(*data()).predict(X) == y) for seed in range(3)])
            for e in (0.4, 1.5, 6.0)
        ]
        assert scores[0] < scores[1] < scores[2]

    def test_least_squares(self) -> None:
        rng = np.random.default_rng(1)
        X, test = rng.uniform(0, 4, size=(2, PEOPLE, 3))
        weights = np.array([1.0, -2.0, 0.5])
        found = LocalLinearRegression(4.0, bounds=(0, 4), target_bounds=(-10, 10), random_state=1)
        found.fit(X, X @ weights + 1)
        assert np.abs(found.predict(test) - test @ weights - 1).mean() < 0.7
        assert np.allclose(found.predict(test), test @ found.coef_ + found.intercept_)

    def test_coefficients_are_those_of_the_rows(self, fitted: LocalLogisticRegression) -> None:
        X = data(2)[0] / 4
        assert (np.linalg.norm(X, axis=1) < 3).all()
        scores = X @ fitted.coef_[0] + fitted.intercept_[0]
        assert np.allclose(scores, fitted.decision_function(X))

    def test_bounds_of_one_give_back_the_same_space(self) -> None:
        """Bounds of (−1, 1) need no scaling, and are still not a norm."""
        X, y = data()
        found = model(norm=None, bounds=(-1, 1)).fit(X, y)
        space = found.protocol(3, PEOPLE).space
        assert found.norm_ is None
        assert np.array_equal(found._space().scaled(X), space.scaled(X))

    def test_a_preprocessor_hands_over_what_is_public(self) -> None:
        rng = np.random.default_rng(3)
        frame = pd.DataFrame({"age": rng.integers(20, 80, PEOPLE), "sex": rng.choice(["f", "m"], PEOPLE)})
        frame["ill"] = np.where(frame["age"] > 45, "yes", "no")
        both, sexes = ("no", "yes"), ("f", "m")
        schema = tacit.Schema({
            "age": tacit.Column("integer", bounds=(20, 80)),
            "sex": tacit.Column("category", categories=sexes),
            "ill": tacit.Column("category", categories=both),
        })  # fmt: skip
        learner = LocalLogisticRegression(6.0, classes=both, random_state=1)
        found = make_pipeline(Preprocessor(schema, target="ill"), learner).fit(frame, frame["ill"])
        assert np.mean(found.predict(frame) == frame["ill"]) > 0.9


class TestPrivacy:
    def test_guarantee(self, fitted: LocalLogisticRegression) -> None:
        found = fitted.guarantee_
        assert (found.epsilon, found.delta, found.event) == (4.0, 0.0, events.Pure(4.0))
        assert str(found.relation) == "replace_one"
        assert any("reports once" in each for each in found.assumptions)
        assert model(random_state=None).fit(*data()).guarantee_.noise == "float64"

    def test_everybody_is_asked_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[np.ndarray] = []
        sound = LocalLogisticRegression._reports

        def watched(self: Any, protocol: Protocol, weights: Any, matrix: Any, targets: Any) -> Any:
            asked.append(matrix[:, 0])
            return sound(self, protocol, weights, matrix, targets)

        monkeypatch.setattr(LocalLogisticRegression, "_reports", watched)
        X, y = data()
        X[:, 0] = np.arange(PEOPLE)
        model().fit(X, y)
        assert len(asked) == 50
        assert np.array_equal(np.sort(np.concatenate(asked)), np.arange(PEOPLE))
        assert not np.array_equal(np.concatenate(asked), np.arange(PEOPLE))

    def test_a_row_has_a_part_in_one_report_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With one seed, two neighbours give the same reports but for one person, up to that step."""
        runs: list[list[np.ndarray]] = []
        sound = LocalLogisticRegression._reports

        def watched(self: Any, *given: Any) -> Any:
            runs[-1].append(sound(self, *given))
            return runs[-1][-1]

        monkeypatch.setattr(LocalLogisticRegression, "_reports", watched)
        X, y = data()
        for row in ([3.0, -1.0, 0.5], [math.nan, math.inf, -9e9]):
            X[17] = row
            runs.append([])
            model().fit(X, y)
        one, other = runs
        first = next(i for i in range(50) if not np.array_equal(one[i], other[i]))
        assert (one[first] != other[first]).any(axis=1).sum() == 1

    def test_charged_before_rows_are_read(self, tmp_path: Path) -> None:
        read: list[int] = []

        def rows() -> Any:
            read.append(1)
            return data()

        with tacit.Ledger.open(tmp_path / "a.db", tacit.Budget(5.0), relation="replace_one") as ledger:
            found = model(ledger=ledger).fit_rows(3, PEOPLE, rows)
            assert ledger.spent().epsilon == 4.0
            assert np.array_equal(found.coef_, model().fit(*data()).coef_)
            with pytest.raises(BudgetExceeded):
                model(ledger=ledger).fit_rows(3, PEOPLE, rows)
        assert len(read) == 1

    def test_a_ledger_of_another_relation_is_refused(self, tmp_path: Path) -> None:
        with (
            tacit.Ledger.open(tmp_path / "a.db", tacit.Budget(5.0)) as ledger,
            pytest.raises(TacitError, match="add_remove"),
        ):
            model(ledger=ledger).fit(*data())

    def test_warnings_are_about_public_facts(self) -> None:
        X, y = data()
        with pytest.warns(CannotLearn, match="people would do"):
            model(0.2).fit(X[:200], y[:200])
        with pytest.warns(WeakPrivacy):
            model(20.0).fit(X, y)


class TestOddRows:
    ODD: tuple[Any, ...] = ([math.nan] * 3, [math.inf, -math.inf, 1.0], [1e308, -1e308, 1e308])

    def test_odd_rows_and_labels_raise_nothing(self) -> None:
        X, y = data()
        X[:3] = self.ODD
        labels = y.astype(object)
        labels[[5, 6, 7]] = [None, "x", 7]
        found = model().fit(X, labels)
        assert np.isfinite(found.coef_).all()
        assert np.isfinite(found.decision_function(X)).all()

    def test_a_list_with_a_row_of_another_length(self) -> None:
        X, y = data()
        rows: list[Any] = X.tolist()
        rows[0], rows[1] = [1.0], "abc"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model(bounds=([-3] * 3, 3), norm=None).fit(rows, y.tolist())

    def test_nobody(self) -> None:
        with pytest.warns(CannotLearn):
            found = model().fit(np.zeros((0, 3)), np.zeros(0))
        assert not found.coef_.any()

    def test_predictions_are_made_row_by_row(self, fitted: LocalLogisticRegression) -> None:
        X = data(2)[0][:300]
        alone = np.concatenate([fitted.decision_function(row[None]) for row in X])
        assert np.array_equal(alone, fitted.decision_function(X))
        assert parts_with_products(fitted) == []


class TestFiles:
    def test_saved_with_its_guarantee(self, fitted: LocalLogisticRegression, tmp_path: Path) -> None:
        tacit.save(fitted, tmp_path / "model.tacit")
        again = tacit.load(tmp_path / "model.tacit")
        X = data(2)[0]
        assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
        assert again.guarantee_ == fitted.guarantee_
        assert again.describe().weights == fitted.describe().weights

    def test_least_squares_in_a_file(self, tmp_path: Path) -> None:
        X, _ = data()
        found = LocalLinearRegression(4.0, bounds=(-3, 3), target_bounds=(-3, 3), random_state=1)
        found.fit(X, X[:, 0])
        tacit.save(found, tmp_path / "model.tacit")
        assert np.array_equal(tacit.load(tmp_path / "model.tacit").predict(X), found.predict(X))

    def test_clones_and_descriptions(self, fitted: LocalLogisticRegression) -> None:
        assert not hasattr(clone(fitted), "coef_")
        told = fitted.describe()
        assert told.title == "logistic regression from local reports"
        assert abs(told.weights[0].value) == np.abs(fitted.coef_).max()


def test_the_protocol_is_public() -> None:
    """Everything that people and the collector need is known without data; another loop fits as well."""
    X, y = data()
    learner = model(steps=20)
    protocol = learner.protocol(3, PEOPLE)
    targets = learner._targets(y)
    parts = np.array_split(np.arange(PEOPLE), protocol.steps)
    weights = protocol.learn(
        lambda step, at: learner._reports(protocol, at, X[parts[step]], targets[parts[step]])
    )
    scores = protocol.space.scaled(X) @ weights
    assert np.mean((scores[:, 0] > 0) == y) > 0.9
    with pytest.raises(InvalidValue):
        learner.protocol(3, -1)


NOT_READ = "what the data hold does not decide whether fit raises"
EXEMPT = {
    "check_estimators_nan_inf": NOT_READ,
    "check_supervised_y_no_nan": NOT_READ,
    "check_estimators_empty_data_messages": NOT_READ,
    "check_dtype_object": NOT_READ,
    "check_classifiers_classes": "classes are declared, and the check brings others",
    "check_classifiers_train": "classes are declared, and the check brings a third",
    "check_classifiers_regression_target": "classes are declared; any other label counts as none",
    "check_regressors_train": "each of its 200 rows has a part in one of 50 steps, too few to fit them",
}


@pytest.mark.filterwarnings("ignore::tacit.errors.WeakPrivacy", "ignore::tacit.errors.CannotLearn")
@parametrize_with_checks(
    [
        LocalLogisticRegression(80.0, classes=[0, 1], norm=20.0, random_state=1),
        LocalLinearRegression(80.0, target_bounds=(-10, 10), norm=20.0, random_state=1),
    ],
    expected_failed_checks=lambda estimator: EXEMPT,
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
