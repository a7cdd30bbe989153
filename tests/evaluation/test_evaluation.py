"""Evaluation on hold-out rows: what it releases, what that costs, and how right its intervals are."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.linear_model import LinearRegression as Plain
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import confusion_matrix, mean_absolute_error, r2_score, roc_auc_score
from sklearn.pipeline import make_pipeline

from tacit import Budget, Column, Ledger, Schema, Unit, events, mechanisms
from tacit.data.preprocessor import Preprocessor
from tacit.errors import BudgetExceeded, InvalidValue, TacitError
from tacit.evaluation import Evaluation, evaluate, tally
from tacit.evaluation import measuring as evaluation
from tacit.relations import Relation

ALMOST_EXACT = 1e6


class Given(ClassifierMixin, BaseEstimator):
    """A fixed model of the first column; ``scale`` makes it too sure of itself, ``shift`` its class rare."""

    def __init__(self, scale: float = 1.0, shift: float = 0.0, classes: Any = (0, 1)) -> None:
        self.scale, self.shift, self.classes = scale, shift, classes
        self.classes_ = np.array(classes)

    def fit(self, X: Any, y: Any) -> Given:
        return self

    def predict_proba(self, X: Any) -> Any:
        score = expit(self.scale * X[:, 0] + self.shift)
        return np.column_stack([1 - score, score])

    def predict(self, X: Any) -> Any:
        return self.classes_[(self.predict_proba(X)[:, 1] > 0.5).astype(int)]


class First(RegressorMixin, BaseEstimator):
    def fit(self, X: Any, y: Any) -> First:
        return self

    def predict(self, X: Any) -> Any:
        return X[:, 0]


class OnlyPredicts(ClassifierMixin, BaseEstimator):
    classes_ = np.array(["a", "b", "c"])

    def fit(self, X: Any, y: Any) -> OnlyPredicts:
        return self

    def predict(self, X: Any) -> Any:
        return self.classes_[np.clip(X[:, 0] + 1, 0, 2).astype(int)]


def sample(rows: int, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 1)) * 1.5
    group = np.where(rng.random(rows) < 0.3, "a", "b")
    y = (rng.random(rows) < expit(1.3 * x[:, 0] - 0.5 - 0.6 * (group == "a"))).astype(int)
    return x, y, group


def logistic(shift: float = 0.0) -> LogisticRegression:
    """The scores of ``Given`` from a class of scikit-learn, which is scored in blocks and so far faster."""
    model = LogisticRegression()
    model.classes_, model.n_features_in_ = np.array([0, 1]), 1
    model.coef_, model.intercept_ = np.array([[1.0]]), np.array([shift])
    return model


def groups(labels: Any) -> dict[str, Any]:
    return {"group": (labels, ["a", "b"])}


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    with Ledger.open(tmp_path / "study.db", budget=Budget(1.0)) as opened:
        yield opened


@pytest.mark.parametrize("options", [{}, {"epsilon": 1.0, "public": True}])
def test_exactly_one_of_epsilon_and_public(options: dict[str, Any]) -> None:
    x, y, _ = sample(10)
    with pytest.raises(InvalidValue, match=r"exactly one of them.*public=True"):
        evaluate(Given(), x, y, **options)


@pytest.mark.parametrize(("scale", "shift"), [(1.3, 0.0), (0.2, -1.0), (9.0, 0.0), (1.0, -5.0)])
@pytest.mark.parametrize("bins", [50, 100])
def test_with_hardly_any_noise_the_figures_are_the_exact_ones(scale: float, shift: float, bins: int) -> None:
    x, y, group = sample(5_000)
    model = Given(scale, shift)
    exact = evaluate(model, x, y, public=True, groups=groups(group))
    private = evaluate(model, x, y, epsilon=ALMOST_EXACT, bins=bins, groups=groups(group), random_state=1)
    assert exact.guarantee is None
    assert exact.accuracy == pytest.approx(np.mean(model.predict(x) == y))
    assert exact.auroc == pytest.approx(roc_auc_score(y, x[:, 0]))
    assert exact.figures["brier"] == pytest.approx(np.mean((model.predict_proba(x)[:, 1] - y) ** 2))
    assert private.accuracy == pytest.approx(exact.accuracy)
    assert private.auroc == pytest.approx(exact.auroc, abs=0.005)
    assert private.figures["brier"] == pytest.approx(exact.figures["brier"], abs=0.005)
    for name, value in exact.figures.items():
        if name.startswith("group=") and value is not None:
            assert private.figures[name] == pytest.approx(value), name
    chosen = group == "a"
    assert exact.groups["group"]["a"]["accuracy"] == pytest.approx(
        np.mean(model.predict(x)[chosen] == y[chosen])
    )
    positive = y[chosen] == 1
    rate = exact.groups["group"]["a"]["true positive rate"]
    assert rate == pytest.approx(np.mean(model.predict(x)[chosen][positive] == 1))
    gaps = exact.groups["group"]["gap"]
    assert gaps["accuracy"] == pytest.approx(
        abs(exact.groups["group"]["a"]["accuracy"] - exact.groups["group"]["b"]["accuracy"])
    )


def test_calibration_is_found() -> None:
    """Of 200,000 rows, a model whose logits are off by 0.05 would fail: its calibration error is 0.0105."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(200_000, 1))
    y = (rng.random(len(x)) < expit(x[:, 0])).astype(int)
    right = evaluate(logistic(), x, y, epsilon=1.0, random_state=1).calibration
    wrong = evaluate(logistic(shift=1.0), x, y, epsilon=1.0, random_state=1).calibration
    assert right is not None
    assert wrong is not None
    assert right["error"] < 0.01
    assert wrong["error"] == pytest.approx(np.mean(expit(x[:, 0] + 1) - expit(x[:, 0])), abs=0.01)
    for line in right["table"]:
        if line["count"] > 5000:
            assert line["predicted"] == pytest.approx(line["observed"], abs=0.03)
    assert sum(line["count"] for line in right["table"]) == pytest.approx(200_000, abs=200)


def vector(task: tally.Tally, model: Any, rows: Any, keep: Any = None) -> Any:
    x, y, group = rows
    labels = {"group": group} if task.groups else {}
    return task.measure(model, x, y, labels, keep, public=False)[0]


def neighbours(seed: int) -> tuple[Any, Any, Any]:
    """Rows, the same without the last, and the same with another last."""
    rng = np.random.default_rng(seed)
    x = rng.choice([math.nan, math.inf, 0.0, -3.0, 3.0], size=(12, 1))
    y = rng.choice(np.array([-1, 0, 1, 2, 9]), size=12)
    group = rng.choice(np.array(["a", "b", "z"]), size=12)
    whole = (x[:11], y[:11], group[:11])
    replaced = tuple(np.concatenate([part[:10], part[11:]]) for part in (x, y, group))
    return whole, tuple(part[:10] for part in whole), replaced


@pytest.mark.parametrize("kind", ["two", "more", "regression"])
def test_one_row_moves_the_counts_by_no_more_than_the_sensitivity(kind: str) -> None:
    asked = {} if kind == "regression" else {"group": ["a", "b"]}
    if kind == "more":
        x, y = np.array([[-3.0], [0.0], [3.0]] * 5), np.array([0, 1, 2] * 5)
        model: Any = LogisticRegression().fit(x, y)
    else:
        model = {"two": Given(), "regression": First()}[kind]
    bounds = (-1.0, 2.0)
    task = tally.tally_of(model, 50, asked, bounds)
    most = {(relation, norm): 0.0 for relation in Relation for norm in (1, 2)}
    for seed in range(400):
        vectors = [vector(task, model, rows) for rows in neighbours(seed)]
        for relation, twin in ((Relation.ADD_REMOVE, vectors[1]), (Relation.REPLACE_ONE, vectors[2])):
            for norm in (1, 2):
                moved = float(np.linalg.norm(vectors[0] - twin, norm))
                most[relation, norm] = max(most[relation, norm], moved)
    for (relation, norm), moved in most.items():
        allowed = task.sensitivity(relation, norm)
        assert moved <= allowed * (1 + 1e-12), (relation, norm)
        assert moved > 0.7 * allowed, (relation, norm)


def test_one_unit_moves_the_counts_by_no_more_than_its_rows() -> None:
    """However many rows a unit has: those beyond the bound are not even counted as rows that fall nowhere."""
    seen = []
    real = tally.Tally.measure

    def spy(self: Any, *arguments: Any, **named: Any) -> Any:
        result = real(self, *arguments, **named)
        seen.append(result[0])
        return result

    x, y, _ = sample(50)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tally.Tally, "measure", spy)
        for crowd in (0, 40):
            many = np.concatenate([x, np.full((crowd, 1), math.nan)])
            labels = np.concatenate([y, np.zeros(crowd, int)])
            who = np.concatenate([np.arange(50), np.full(crowd, 99)])
            evaluate(Given(), many, labels, epsilon=1.0, units=who, rows_per_unit=3, random_state=1)
    assert np.abs(seen[0] - seen[1]).sum() == 3


@pytest.mark.parametrize(
    ("options", "sensitivity"),
    [
        ({}, 1),
        ({"relation": "replace_one"}, 2),
        ({"groups": {"g": 0, "h": 0}}, 3),
        ({"units": 0, "rows_per_unit": 4}, 4),
        ({"relation": "replace_one", "units": 0, "rows_per_unit": 4, "groups": {"g": 0}}, 16),
    ],
)
def test_noise_has_the_scale_of_the_sensitivity(
    options: dict[str, Any], sensitivity: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    real = mechanisms.DiscreteLaplace

    def spy(*arguments: Any, **named: Any) -> Any:
        made.append(real(*arguments, **named))
        return made[-1]

    monkeypatch.setattr(evaluation.mechanisms, "DiscreteLaplace", spy)
    x, y, group = sample(60)
    options = dict(options)
    if "groups" in options:
        options["groups"] = {name: (group, ["a", "b"]) for name in options["groups"]}
    if "units" in options:
        options["units"] = np.arange(60)
    result = evaluate(Given(), x, y, epsilon=0.5, **options)
    assert made[0].sensitivity == sensitivity
    assert made[0].epsilon == 0.5
    assert result.guarantee is not None
    assert result.guarantee.event == events.Pure(0.5)
    assert result.guarantee.noise == "exact"
    assert result.guarantee.unit.rows == options.get("rows_per_unit", 1)


def test_delta_buys_gaussian_noise_where_that_is_less() -> None:
    x, y, group = sample(60)
    many = {f"attribute {i}": (group, ["a", "b"]) for i in range(30)}
    one = evaluate(Given(), x, y, epsilon=0.5, delta=1e-6).guarantee
    more = evaluate(Given(), x, y, epsilon=0.5, delta=1e-6, groups=many).guarantee
    assert one is not None
    assert more is not None
    assert (one.delta, type(one.event)) == (0.0, events.Pure)
    assert (more.delta, type(more.event)) == (1e-6, events.ZeroConcentrated)


def test_the_charge_comes_before_the_rows(ledger: Ledger) -> None:
    x, y, _ = sample(100)

    class Watched(Given):
        def predict_proba(self, X: Any) -> Any:
            assert [entry.label for entry in ledger.entries()][-1] == "hold-out"
            return super().predict_proba(X)

    result = evaluate(Watched(), x, y, epsilon=0.8, ledger=ledger, label="hold-out")
    assert ledger.spent().epsilon == pytest.approx(0.8)
    assert result.guarantee is not None

    class Untouchable(Given):
        def predict_proba(self, X: Any) -> Any:
            pytest.fail("the rows were touched")

    with pytest.raises(BudgetExceeded):
        evaluate(Untouchable(), x, y, epsilon=0.8, ledger=ledger)
    evaluate(Given(), x, y, public=True, ledger=ledger)
    assert len(list(ledger.entries())) == 1


def test_the_ledger_must_promise_the_same(ledger: Ledger, tmp_path: Path) -> None:
    x, y, _ = sample(10)
    with pytest.raises(TacitError, match="replace_one"):
        evaluate(Given(), x, y, epsilon=0.1, ledger=ledger, relation="replace_one")
    with pytest.raises(TacitError, match="unit"):
        evaluate(Given(), x, y, epsilon=0.1, ledger=ledger, units=np.arange(10))
    with Ledger.open(tmp_path / "units.db", budget=Budget(1.0), unit=Unit("who", 2)) as other:
        with pytest.raises(TacitError, match="who"):
            evaluate(Given(), x, y, epsilon=0.1, ledger=other)
        made = evaluate(Given(), x, y, epsilon=0.1, ledger=other, units=np.arange(10), rows_per_unit=2)
        assert made.guarantee is not None
        assert made.guarantee.unit == Unit("who", 2)


def test_rows_that_fall_nowhere_change_nothing_and_raise_nothing() -> None:
    x, y, group = sample(500)
    plain = evaluate(Given(), x, y, epsilon=ALMOST_EXACT, groups=groups(group), random_state=1)
    odd_x = np.concatenate([x, [[math.nan], [math.inf], [0.0], [0.0], [0.0]]])
    odd_y = np.array([*y, 1, 0, 7, None, "x"], dtype=object)
    odd_group = np.array([*group, "a", "b", "a", "a", "b"], dtype=object)
    odd = evaluate(Given(), odd_x, odd_y, epsilon=ALMOST_EXACT, groups=groups(odd_group), random_state=1)
    assert odd.figures == pytest.approx(plain.figures)
    assert odd.rows == plain.rows == 500


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("epsilon", [0.1, ALMOST_EXACT])
def test_few_rows_and_one_class_are_ordinary(rows: int, epsilon: float) -> None:
    result = evaluate(
        Given(), np.zeros((rows, 1)), np.ones(rows, int), epsilon=epsilon, groups=groups(["a"] * rows),
        random_state=3,
    )  # fmt: skip
    assert set(result.figures) == set(result.intervals)
    for name, value in result.figures.items():
        assert value is None or 0 <= value <= 1, name
        low, high = result.intervals[name]
        assert 0 <= low <= high <= 1, name
    json.dumps(result.to_dict(), allow_nan=False)
    assert "accuracy" in str(result)
    if epsilon == ALMOST_EXACT:
        assert result.auroc is None
        assert result.intervals["auroc"] == (0.0, 1.0)


def test_intervals_cover_what_they_say() -> None:
    """Of 40 intervals at 90 %, each covering with probability 0.9, under 28 would be rarer than 1e-3.

    Intervals of half the width would cover with probability 0.59; for each figure, 28 of 40 would with
    probability 0.10.
    """
    x, y, group = sample(500_000, seed=99)
    truth = evaluate(logistic(), x, y, public=True, groups=groups(group), bins=20).figures
    hits: dict[str, int] = dict.fromkeys(truth, 0)
    widths = []
    for seed in range(40):
        x, y, group = sample(2000, seed=seed)
        made = evaluate(
            logistic(), x, y, epsilon=0.5, groups=groups(group), bins=20, confidence=0.9, random_state=seed
        )
        widths.append(made.intervals["accuracy"][1] - made.intervals["accuracy"][0])
        for name, (low, high) in made.intervals.items():
            hits[name] += low - 1e-3 <= truth[name] <= high + 1e-3
    assert all(count >= 28 for count in hits.values()), hits
    assert sum(hits.values()) < 40 * len(hits)
    sampling = 2 * 1.645 * math.sqrt(0.25 / 2000)
    assert sampling < np.mean(widths) < 3 * sampling


def test_regression_figures() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5000, 1))
    y = x[:, 0] + 0.5 * rng.normal(size=5000)
    exact = evaluate(First(), x, y, public=True)
    private = evaluate(First(), x, y, epsilon=ALMOST_EXACT, target_bounds=(-8, 8), random_state=1)
    assert exact.figures["mae"] == pytest.approx(mean_absolute_error(y, x[:, 0]))
    assert exact.figures["r2"] == pytest.approx(r2_score(y, x[:, 0]))
    assert private.figures == pytest.approx(exact.figures, rel=1e-3)
    assert private.accuracy is None
    for name, (low, high) in private.intervals.items():
        assert low < exact.figures[name] < high
    noisy = evaluate(First(), x, y, epsilon=1.0, target_bounds=(-4, 4), random_state=1)
    assert noisy.figures["mae"] == pytest.approx(exact.figures["mae"], abs=0.1)
    low, high = noisy.intervals["mae"]
    assert 0.05 < high - low < 0.3
    odd = evaluate(
        First(), np.concatenate([x, [[1e9], [math.nan]]]), np.concatenate([y, [math.nan, 1.0]]),
        epsilon=ALMOST_EXACT, target_bounds=(-8, 8), random_state=1,
    )  # fmt: skip
    assert odd.figures == pytest.approx(private.figures)
    clipped = evaluate(
        First(), [[9.0]] * np.ones((3, 1)), [1e9] * 3, epsilon=ALMOST_EXACT, target_bounds=(0, 1),
        random_state=1,
    )  # fmt: skip
    assert clipped.figures["mae"] == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("bounds", [None, (1, 1), (2, 1), (0, math.inf), (1,), "ab"])
def test_a_regressor_needs_public_bounds(bounds: Any) -> None:
    with pytest.raises(InvalidValue, match="target_bounds"):
        evaluate(First(), np.zeros((3, 1)), np.zeros(3), epsilon=1.0, target_bounds=bounds)


def test_more_classes() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 2))
    y = np.array(["red", "green", "blue"])[np.argmax(np.column_stack([x, -x.sum(axis=1)]), axis=1)]
    model = LogisticRegression(C=0.01).fit(x, y)
    result = evaluate(
        model, x, y, epsilon=ALMOST_EXACT, groups={"side": (x[:, 0] > 0, [True, False])}, random_state=1
    )
    assert result.accuracy == pytest.approx(model.score(x, y))
    assert result.auroc is None
    assert result.classes == ("blue", "green", "red")
    np.testing.assert_allclose(result.confusion, confusion_matrix(y, model.predict(x)))
    assert result.figures["calibration error"] > 0.05
    side = result.groups["side"]["True"]["accuracy"]
    assert side == pytest.approx(model.score(x[x[:, 0] > 0], y[x[:, 0] > 0]))


def test_models_that_only_decide_or_only_predict() -> None:
    x, y, _ = sample(2000)
    model = RidgeClassifier().fit(x, y)
    result = evaluate(model, x, y, epsilon=ALMOST_EXACT, random_state=1)
    assert result.accuracy == pytest.approx(model.score(x, y))
    assert result.auroc == pytest.approx(roc_auc_score(y, model.decision_function(x)), abs=0.005)
    assert result.calibration is None
    labels = OnlyPredicts().predict(x)
    blunt = evaluate(OnlyPredicts(), x, labels, epsilon=ALMOST_EXACT, random_state=1)
    assert blunt.accuracy == 1.0
    assert blunt.auroc is None


@pytest.mark.parametrize(
    ("model", "options", "problem"),
    [
        (Given(), {"bins": 11}, "even"),
        (Given(), {"bins": 0}, "bins"),
        (Given(), {"confidence": 1.0}, "confidence"),
        (Given(), {"groups": {"g": ["a"]}}, "labels and categories"),
        (Given(), {"groups": {"g": (["a"], ["a"])}}, "as many"),
        (Given(), {"units": [1]}, "as many"),
        (Given(), {"groups": [1]}, "declared groups by name"),
        (Given(), {"population": 10, "units": np.arange(10)}, "left out"),
        (Given(), {"epsilon": 0.0}, "epsilon"),
        (Given(classes=(1,)), {}, "two classes_"),
        (LogisticRegression(), {}, "fit"),
        (Preprocessor(Schema({"a": Column("boolean")})), {}, "classifier or regressor"),
        (First(), {"groups": {"g": (["a"] * 10, ["a"])}, "target_bounds": (0, 1)}, "regressor"),
    ],
)
def test_bad_questions_are_refused_uncharged(
    model: Any, options: dict[str, Any], problem: str, ledger: Ledger
) -> None:
    x, y, _ = sample(10)
    with pytest.raises(InvalidValue, match=problem):
        evaluate(model, x, y, **{"epsilon": 1.0, "ledger": ledger, **options})
    assert not list(ledger.entries())


def test_a_public_number_of_rows_is_kept_to() -> None:
    x, y, _ = sample(400)
    known = [evaluate(Given(), x, y, epsilon=0.3, population=400, random_state=seed) for seed in range(8)]
    free = [evaluate(Given(), x, y, epsilon=0.3, random_state=seed) for seed in range(8)]
    assert np.std([each.rows for each in known]) < np.std([each.rows for each in free]) / 2


def test_a_pipeline_on_a_frame_with_missing_values() -> None:
    x, y, group = sample(2000)
    frame = pd.DataFrame({"x": x[:, 0], "group": group})
    frame.loc[::7, "x"] = math.nan
    columns = {"x": Column("number", bounds=(-5, 5)), "group": Column("category", categories=("a", "b"))}
    model = make_pipeline(Preprocessor(Schema(columns)), LogisticRegression()).fit(frame, y)
    asked = {"group": (frame["group"], ["a", "b"])}
    result = evaluate(model, frame, pd.Series(y), epsilon=ALMOST_EXACT, groups=asked, random_state=1)
    assert result.rows == 2000
    assert result.accuracy == pytest.approx(model.score(frame, y))
    array = evaluate(model, frame.to_numpy(dtype=object), y, epsilon=ALMOST_EXACT, random_state=1)
    assert array.accuracy == result.accuracy


def test_seeds_are_told_and_repeat() -> None:
    x, y, group = sample(300)
    one, two = (evaluate(Given(), x, y, epsilon=1.0, groups=groups(group), random_state=5) for _ in "ab")
    assert one == two
    assert one.guarantee is not None
    assert one.guarantee.noise == "seeded"
    assert evaluate(Given(), x, y, epsilon=1.0).figures != evaluate(Given(), x, y, epsilon=1.0).figures


@pytest.mark.parametrize("kind", ["two", "more", "regression", "public"])
def test_round_trip_through_json(kind: str) -> None:
    x, y, group = sample(300)
    if kind == "regression":
        made = evaluate(Plain().fit(x, y), x, y, epsilon=0.01, target_bounds=(0, 1), random_state=2)
    elif kind == "more":
        labels = OnlyPredicts().predict(x)
        made = evaluate(OnlyPredicts(), x, labels, epsilon=1.0, groups=groups(group))
    else:
        paid: dict[str, Any] = {"public": True} if kind == "public" else {"epsilon": 1.0}
        made = evaluate(Given(), x, y, groups=groups(group), **paid)
    again = Evaluation.from_dict(json.loads(json.dumps(made.to_dict(), allow_nan=False)))
    assert again == made
    assert again.groups == made.groups
    with pytest.raises(InvalidValue):
        Evaluation.from_dict({**made.to_dict(), "more": 1})
    with pytest.raises(InvalidValue):
        Evaluation.from_dict({})
    text = str(made)
    assert ("public rows" in text) == (kind == "public")
    assert ("differentially private" in text) != (kind == "public")


@pytest.mark.parametrize("classes", [(0, 1), ("no", "yes")])
def test_labels_of_another_type_than_the_classes_cost_nothing(classes: Any, tmp_path: Path) -> None:
    X, wrong = np.zeros((4, 1)), np.array(["no", "yes", "no", "yes"])
    y = wrong if classes == (0, 1) else np.array([0, 1, 0, 1])
    with Ledger.open(tmp_path / "study.db", Budget(1.0)) as ledger:
        with pytest.raises(InvalidValue, match=r"y must be stored as .*, as the declared classes are"):
            evaluate(Given(classes=classes), X, y, epsilon=0.5, ledger=ledger)
        with pytest.raises(InvalidValue, match=r"y must be stored as numbers"):
            evaluate(First(), X, wrong, epsilon=0.5, target_bounds=(0, 1), ledger=ledger)
        assert not ledger.entries()
