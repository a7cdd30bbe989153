"""Linear models as scikit-learn's users know them, and what private data may and may not change."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import linear_model as plain
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from tacit import Budget, Ledger, Unit, accounting
from tacit.data.features import Features, known
from tacit.data.units import bounded_units
from tacit.errors import BudgetExceeded, InvalidValue, TacitError
from tacit.estimators import LinearRegression, LinearSVC, LogisticRegression, Ridge
from tacit.estimators.linear import model as base
from tacit.estimators.linear import rows
from tacit.estimators.linear.curvature import FARTHEST, weight_covariance
from tacit.estimators.linear.noise import Statistics
from tacit.randomness import Source

CLASSIFIERS = (LogisticRegression, LinearSVC)
REGRESSORS = (LinearRegression, Ridge)


def told(kind: type, epsilon: float = 1.0, delta: float = 1e-6, **more: Any) -> Any:
    facts: dict[str, Any] = {"norm": 3.0, "random_state": 1}
    facts |= {"classes": [0, 1]} if kind in CLASSIFIERS else {"target_bounds": (-10, 10)}
    return kind(epsilon, delta, **{**facts, **more})


def data(size: int = 2000, width: int = 3, seed: int = 1) -> tuple[Any, Any, Any]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(size, width))
    score = x @ np.linspace(1.5, -0.5, width) + 0.3
    return x, (score + generator.logistic(size=size) * 0.3 > 0).astype(int), score


def fitted(kind: type, *arguments: Any, **more: Any) -> Any:
    x, labels, score = data()
    return told(kind, *arguments, **more).fit(x, labels if kind in CLASSIFIERS else score)


class TestWithoutNoise:
    @pytest.mark.parametrize("classes", [2, 4])
    @pytest.mark.parametrize("C", [None, 0.05])
    def test_logistic_regression(self, classes: int, C: float | None) -> None:
        x, _, score = data()
        y = np.digitize(score, np.linspace(-1, 1, classes - 1))
        model = LogisticRegression(math.inf, norm=30.0, classes=range(classes), C=C).fit(x, y)
        theirs = plain.LogisticRegression(C=1.0 if C is None else C, tol=1e-10, max_iter=5000).fit(x, y)
        assert model.coef_ == pytest.approx(theirs.coef_, abs=1e-5)
        shift = theirs.intercept_.mean() if classes > 2 else 0.0
        assert model.intercept_ == pytest.approx(theirs.intercept_ - shift, abs=1e-5)
        assert model.predict_proba(x) == pytest.approx(theirs.predict_proba(x), abs=1e-5)
        assert (model.predict(x) == theirs.predict(x)).all()
        assert math.isinf(model.guarantee_.epsilon)

    def test_scaled_by_bounds(self) -> None:
        x, y, _ = data()
        lower, upper = np.array([-5.0, -8.0, -6.0]), np.array([9.0, 7.0, 6.0])
        model = LogisticRegression(math.inf, bounds=(lower, upper), classes=[0, 1]).fit(x, y)
        scaled = (x - (lower + upper) / 2) / ((upper - lower) / 2)
        theirs = plain.LogisticRegression(tol=1e-10).fit(scaled, y)
        assert model.decision_function(x) == pytest.approx(theirs.decision_function(scaled), abs=1e-4)

    @pytest.mark.parametrize("intercept", [True, False])
    def test_least_squares(self, intercept: bool) -> None:
        x, _, y = data()
        y = y + np.random.default_rng(2).normal(size=len(y))
        facts = {"norm": 30.0, "target_bounds": (-50, 50), "fit_intercept": intercept}
        for ours, theirs in (
            (LinearRegression(math.inf, **facts), plain.LinearRegression(fit_intercept=intercept)),
            (Ridge(math.inf, alpha=30.0, **facts), plain.Ridge(alpha=30.0, fit_intercept=intercept)),
        ):
            ours.fit(x, y), theirs.fit(x, y)
            assert ours.coef_ == pytest.approx(theirs.coef_, abs=1e-6)
            assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-6)

    @pytest.mark.parametrize("kind", [*CLASSIFIERS, *REGRESSORS])
    def test_a_large_epsilon_is_nearly_that(self, kind: type) -> None:
        more = {"C": 1.0} if kind in CLASSIFIERS else {"alpha": 0.0} if kind is Ridge else {}
        near = fitted(kind, 1e7, 1e-6, norm=30.0, **more)
        exact = fitted(kind, math.inf, norm=30.0, **({"C": 1.0} if kind in CLASSIFIERS else more))
        assert near.coef_ == pytest.approx(exact.coef_, abs=0.02)
        assert near.intercept_ == pytest.approx(exact.intercept_, abs=0.02)


class TestConventions:
    @pytest.mark.parametrize("kind", [*CLASSIFIERS, *REGRESSORS])
    def test_parameters_stay_what_they_are(self, kind: type) -> None:
        model = told(kind)
        before = model.get_params()
        x, labels, score = data()
        model.fit(x, labels if kind in CLASSIFIERS else score)
        assert model.get_params() == before
        assert clone(model).get_params() == before

    @pytest.mark.parametrize("kind", [*CLASSIFIERS, *REGRESSORS])
    def test_the_order_of_rows_does_not_matter(self, kind: type) -> None:
        x, labels, score = data()
        y = labels if kind in CLASSIFIERS else score
        order = np.random.default_rng(3).permutation(len(x))
        one, other = told(kind).fit(x, y), told(kind).fit(x[order], y[order])
        assert one.coef_ == pytest.approx(other.coef_, abs=1e-3)

    def test_blocks_do_not_matter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x, y, _ = data()
        whole = told(LogisticRegression).fit(x, y)
        monkeypatch.setattr(rows, "BLOCK", 100)
        monkeypatch.setattr(rows, "KEPT_BYTES", 0)
        assert told(LogisticRegression).fit(x, y).coef_ == pytest.approx(whole.coef_, abs=1e-4)

    def test_labels_of_any_kind(self) -> None:
        x, y, _ = data()
        for classes in (["no", "yes"], [False, True], [10, 20], [-1.0, 1.0]):
            labels = np.array(classes)[y]
            model = told(LogisticRegression, classes=classes).fit(x, labels)
            assert model.score(x, labels) > 0.85
            assert set(model.predict(x).tolist()) == set(classes)

    def test_pipelines(self) -> None:
        x, y, _ = data()
        features = Features(("a", "b", "c"), (-4.0,) * 3, (4.0,) * 3, norm=3.0)
        handing = FunctionTransformer(lambda matrix: known(matrix, features))
        model = LogisticRegression(1.0, 1e-6, classes=[0, 1], random_state=1)
        piped = make_pipeline(handing, model).fit(x, y)
        assert piped.score(x, y) > 0.85
        alone = LogisticRegression(
            1.0, 1e-6, bounds=((-4.0,) * 3, (4.0,) * 3), norm=3.0, classes=[0, 1], random_state=1
        ).fit(x, y)
        assert piped[-1].coef_ == pytest.approx(alone.coef_, abs=1e-9)
        columns = ColumnTransformer([("first", "passthrough", [0, 1])])
        assert make_pipeline(columns, told(LogisticRegression)).fit(x, y).score(x, y) > 0.8
        assert cross_val_score(told(LogisticRegression), x, y, cv=3).mean() > 0.8

    def test_a_plan_prints_the_split_and_reads_nothing(self, capsys: pytest.CaptureFixture[str]) -> None:
        bought = {"bounds": "dp", "population": "dp", "interval_share": 0.1}
        model = told(LogisticRegression, norm=None, verbose=True, **bought)
        shown = str(model.plan(3))
        for part, cost in (("objective", 0.78), ("population", 0.02), ("bounds", 0.1), ("intervals", 0.1)):
            assert f"{part:<12} ε = {cost}" in shown
        x, y, _ = data()
        model.fit(x, y)
        assert shown in capsys.readouterr().out
        assert model.event_ == model.plan(3).event
        assert accounting.epsilon(model.event_, 1e-6) <= 1.0


class TestPrivateRows:
    @pytest.mark.parametrize("kind", [*CLASSIFIERS, *REGRESSORS])
    def test_rows_that_do_not_count(self, kind: type) -> None:
        """A row without any number, or of no declared class, is as if it were not there."""
        x, labels, score = data()
        y = (labels if kind in CLASSIFIERS else score).astype(float)
        nan, inf = np.nan, np.inf
        odd = np.array([[nan, nan, nan], [inf, nan, inf], [nan, -inf, nan], [0.1, 0.2, 0.3], [0.1, 0.2, 0.3]])
        targets = np.array([1.0, 1.0, 0.0, np.nan, np.inf])
        without = told(kind).fit(x, y)
        beside = told(kind).fit(np.vstack([x, odd]), np.concatenate([y, targets]))
        assert beside.coef_ == pytest.approx(without.coef_, abs=1e-3)
        if kind in CLASSIFIERS:
            other = told(kind).fit(np.vstack([x, x[:50]]), np.concatenate([y, np.full(50, 7.0)]))
            assert other.coef_ == pytest.approx(without.coef_, abs=1e-3)

    @pytest.mark.parametrize("kind", [*CLASSIFIERS, *REGRESSORS])
    @pytest.mark.parametrize(
        "x", [np.zeros((0, 3)), np.ones((1, 3)), np.full((5, 3), np.nan), np.full((4, 3), 1e300)]
    )
    def test_few_odd_or_no_rows(self, kind: type, x: Any) -> None:
        model = told(kind).fit(x, np.zeros(len(x)))
        assert np.isfinite(model.coef_).all()
        assert model.predict(np.zeros((2, 3))).shape == (2,)

    def test_one_class_only_and_more_features_than_rows(self) -> None:
        x = np.random.default_rng(4).normal(size=(5, 40))
        model = told(LogisticRegression).fit(x, np.ones(5))
        assert model.classes_.tolist() == [0, 1]
        assert np.isfinite(model.predict_proba(x)).all()

    def test_text_among_numbers(self) -> None:
        x, y, _ = data()
        mixed = np.vstack([x.astype(object), np.array([["secret", 0.0, 0.0]], dtype=object)])
        without = told(LogisticRegression).fit(x, y)
        beside = told(LogisticRegression).fit(mixed, np.append(y, 1))
        assert beside.coef_ == pytest.approx(without.coef_, abs=1e-3)

    def test_far_rows_are_clipped(self) -> None:
        x, y, _ = data(200)
        moved = np.vstack([x, [[1e6, 0.0, 0.0]]])
        edge = np.vstack([x, [[3.0, 0.0, 0.0]]])
        one, other = (told(LogisticRegression).fit(matrix, np.append(y, 0)) for matrix in (moved, edge))
        assert one.coef_ == pytest.approx(other.coef_, abs=1e-3)
        boxed = told(LogisticRegression, norm=None, bounds=(-3, 3))
        assert boxed.fit(moved, np.append(y, 0)).coef_ == pytest.approx(
            clone(boxed).fit(edge, np.append(y, 0)).coef_, abs=1e-3
        )

    def test_no_more_than_so_many_rows_of_a_group(self) -> None:
        x, y, _ = data(3000)
        groups = np.repeat(np.arange(300), 10)
        model = told(LogisticRegression, 2.0, rows_per_unit=4).fit(x, y, units=groups)
        assert model.guarantee_.unit == Unit("unit", 4)
        source = Source(1)
        named = np.array(["a"] * 9 + ["b"] * 2 + [None, math.nan], dtype=object)
        kept = bounded_units(named, 3, source)
        assert kept[:9].sum() == 3
        assert kept[9:11].all()
        assert not kept[11:].any()
        times = np.zeros(9)
        for _ in range(600):
            times += bounded_units(np.array(["a"] * 9), 3, source)
        assert (np.abs(times - 200) < 65).all()


class TestCharging:
    def test_nothing_is_read_before_the_charge(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[int] = []
        made = base.ScaledRows

        def recording(*arguments: Any) -> Any:
            seen.append(len(ledger.entries()))
            return made(*arguments)

        monkeypatch.setattr(base, "ScaledRows", recording)
        x, y, _ = data(200)
        with Ledger.open(tmp_path / "study.db", Budget(1.0, 1e-6)) as ledger:
            with pytest.raises(BudgetExceeded):
                told(LogisticRegression, 1.5, ledger=ledger, random_state=None).fit(x, y)
            assert not seen
            assert not ledger.entries()
            model = told(LogisticRegression, 1.0, ledger=ledger, label="income", random_state=None).fit(x, y)
            assert seen == [1]
            (entry,) = ledger.entries()
            assert (entry.event, entry.label) == (model.event_, "income")
            assert ledger.spent().epsilon <= 1.0

    def test_the_ledger_must_mean_the_same(self, tmp_path: Path) -> None:
        x, y, _ = data(50)
        with Ledger.open(tmp_path / "a.db", Budget(9.0, 1e-3), relation="replace_one") as ledger:
            with pytest.raises(TacitError, match="replace_one"):
                told(LogisticRegression, ledger=ledger).fit(x, y)
            told(LogisticRegression, ledger=ledger, relation="replace_one").fit(x, y)
        with Ledger.open(tmp_path / "b.db", Budget(9.0, 1e-3), unit=Unit("who", 2)) as ledger:
            with pytest.raises(TacitError, match="protects one who"):
                told(LogisticRegression, ledger=ledger).fit(x, y)
            grouped = told(LogisticRegression, ledger=ledger, rows_per_unit=2)
            assert grouped.fit(x, y, units=np.arange(50)).guarantee_.unit == Unit("who", 2)
            with pytest.raises(InvalidValue, match="finite where a ledger"):
                told(LogisticRegression, math.inf, ledger=ledger, rows_per_unit=2).fit(x, y, units=y)

    def test_seeds_are_told(self) -> None:
        x, y, _ = data(50)
        assert told(LogisticRegression).fit(x, y).guarantee_.noise == "seeded"
        assert told(LogisticRegression, random_state=None).fit(x, y).guarantee_.noise == "float64"
        one, other = (told(LogisticRegression, random_state=None).fit(x, y).coef_ for _ in range(2))
        assert not np.allclose(one, other)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": -math.inf}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"classes": None}, "read them off the data"),
        ({"classes": [1]}, "two different labels"),
        ({"classes": [1, 1]}, "two different labels"),
        ({"norm": None}, "publicly known"),
        ({"norm": -1.0}, "norm"),
        ({"norm": None, "bounds": (1, 0)}, "lower below upper"),
        ({"norm": None, "bounds": (0, math.inf)}, "finite"),
        ({"norm": None, "bounds": ([0, 0], [1, 1])}, "of which there are 3"),
        ({"norm": None, "bounds": "data"}, "bounds"),
        ({"population": "data"}, "'dp'"),
        ({"population": 0}, "population must be"),
        ({"C": 0.0}, "C must be"),
        ({"noise": "everywhere"}, "'objective'"),
        ({"noise": "statistics"}, "logistic loss"),
        ({"noise": {"steps": 3}}, "or settings such as"),
        ({"noise": 3}, "or settings such as"),
        ({"relation": "swap"}, "relation"),
        ({"rows_per_unit": 0}, "rows_per_unit"),
        ({"interval_share": 1.5}, "interval_share"),
        ({"interval_share": 0.1, "classes": [0, 1, 2]}, "more than two classes"),
        ({"ledger": "study.db"}, "ledger"),
    ],
)
def test_mistakes(more: dict[str, Any], message: str) -> None:
    x, y, _ = data(20)
    with pytest.raises(InvalidValue, match=message):
        told(LogisticRegression, **more).fit(x, y)


def test_targets_need_bounds() -> None:
    x, _, y = data(20)
    for bounds, message in ((None, "target"), ((1, 0), "lower below upper"), ("dp", "pair")):
        with pytest.raises(InvalidValue, match=message):
            LinearRegression(1.0, 1e-6, norm=1.0, target_bounds=bounds).fit(x, y)


def test_wrong_columns_after_fitting() -> None:
    model = fitted(LogisticRegression)
    with pytest.raises(ValueError, match="3 features"):
        model.predict(np.zeros((2, 4)))


@pytest.mark.parametrize("noise", ["objective", "output"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_standard_errors_cover(noise: str, delta: float) -> None:
    """Of 60 × 4 intervals for what the data were drawn from, all but a few hold; and they are not idle."""
    generator = np.random.default_rng(5)
    truth = np.array([1.0, -0.5, 0.3, 0.0])
    held, width = 0, []
    for seed in range(60):
        x = generator.uniform(-1, 1, size=(6000, 4))
        y = generator.random(6000) < 1 / (1 + np.exp(-(x @ truth + 0.2)))
        model = LogisticRegression(
            2.0, delta, noise=noise, bounds=(-1, 1), classes=[False, True], interval_share=0.1, C=1e-1,
            random_state=seed,
        ).fit(x, y)  # fmt: skip
        held += (np.abs(model.coef_[0] - truth) <= 1.96 * model.coef_error_).sum()
        width.append(model.coef_error_)
    assert held >= 200
    assert 0.03 < np.mean(width) < 0.6


def test_standard_errors_count_the_pull_of_the_penalty() -> None:
    """A rare class: the usual penalty pulls the weight of 2 down by more than sampling and noise move it.

    Without the pull 27 of 40 intervals hold it; 29 or fewer of 40 at 95 % are rarer than 1e-5.
    """
    generator, held = np.random.default_rng(5), 0
    for seed in range(40):
        x = generator.uniform(-1, 1, size=(2000, 3))
        y = generator.random(2000) < 1 / (1 + np.exp(3 - x @ [2.0, -1.0, 0.0]))
        model = LogisticRegression(
            bounds=(-1, 1), classes=[False, True], interval_share=0.3, random_state=seed
        ).fit(x, y)
        held += abs(model.coef_[0, 0] - 2.0) <= 1.96 * model.coef_error_[0]
    assert held >= 30


def test_the_pull_on_weights_that_the_rows_say_nothing_about_is_bounded() -> None:
    known = weight_covariance(np.diag([0.0, 1e6]), 1.0, np.array([[0.5], [0.5]]), 1.0, 0.0)
    assert known[0, 0] == pytest.approx(FARTHEST**2 + 1.0)
    assert known[1, 1] == pytest.approx(1e-6, rel=0.1)
    assert known[0, 1] == 0


def test_standard_errors_of_least_squares_cover() -> None:
    generator = np.random.default_rng(6)
    truth = np.array([1.0, -0.5, 0.3])
    held, width = 0, []
    for seed in range(60):
        x = generator.uniform(-1, 1, size=(5000, 3))
        y = x @ truth + 0.2 + generator.normal(size=5000) * 0.5
        model = LinearRegression(
            2.0, 1e-6, bounds=(-1, 1), target_bounds=(-4, 4), noise=Statistics(residuals=True),
            random_state=seed
        ).fit(x, y)
        errors = np.append(model.coef_error_, model.intercept_error_)
        held += (np.abs(np.append(model.coef_ - truth, model.intercept_ - 0.2)) <= 1.96 * errors).sum()
        width.append(errors)
    assert held >= 205
    assert 0.01 < np.mean(width) < 0.3


def test_predictions_clip_as_fitting_did() -> None:
    x, y, _ = data()
    model = told(LogisticRegression, norm=None, bounds=(-1, 1)).fit(x, y)
    assert model.decision_function(x * 100) == pytest.approx(model.decision_function(np.clip(x * 100, -1, 1)))
