"""Estimators with private labels: what they charge, release, keep, refuse and save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.svm import LinearSVC

import tacit
from contract.label_cases import Noisy, Watching, WatchingNumbers
from tacit import Budget, Ledger, accounting
from tacit.errors import BudgetExceeded, InvalidValue, ModelUnreadable
from tacit.labels import METHODS, PATEFM, LabelPrivateClassifier, LabelPrivateRegressor
from tacit.labels.private import LabelPrivateEstimator
from tacit.relations import LABEL

CLASSES = ["a", "b", "c"]


def data(rows: int = 900, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, rows)
    return np.eye(3)[codes] * 3 + rng.normal(size=(rows, 3)), np.array(CLASSES)[codes]


X, Y = data()


def made(method: str, base: Any = None, **more: Any) -> LabelPrivateClassifier:
    prior = {"prior": [0.3, 0.3, 0.4]} if method == "prior" else {}
    facts = {"classes": CLASSES, "random_state": 1, "rounds": 2, **prior, **more}
    return LabelPrivateClassifier(GaussianNB() if base is None else base, method=method, **facts)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_and_states_what_it_costs(method: str) -> None:
    model = made(method, epsilon=1.5).fit(X, Y)
    assert np.mean(model.predict(X) == Y) > 0.85
    shares = model.predict_proba(X)
    assert shares.shape == (len(X), 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert model.classes_.tolist() == CLASSES
    guarantee = model.guarantee_
    assert (guarantee.epsilon, guarantee.unit, str(guarantee.relation)) == (1.5, LABEL, "replace_one")
    assert accounting.epsilon(model.event_, 0.0, relation="replace_one") <= 1.5 * (1 + 1e-12)
    assert guarantee.noise == "seeded"


def test_gaussian_noise_on_one_hot_labels() -> None:
    model = made("alibi", epsilon=2.0, delta=1e-5).fit(X, Y)
    assert np.mean(model.predict(X) == Y) > 0.8
    assert accounting.epsilon(model.event_, 1e-5, relation="replace_one") <= 2.0 * (1 + 1e-6)
    assert model.guarantee_.delta == 1e-5
    with pytest.raises(InvalidValue, match="delta"):
        made("subset", delta=1e-5).fit(X, Y)


def test_a_public_prior_is_an_assumption() -> None:
    told = made("prior").fit(X, Y).guarantee_.statement()
    assert "the prior was made without these labels" in told
    assert "prior" not in made("subset").fit(X, Y).guarantee_.statement()


def test_without_a_seed_the_noise_is_exact() -> None:
    model = made("alibi", random_state=None).fit(X, Y)
    assert model.guarantee_.noise == "exact"


@pytest.mark.parametrize("method", METHODS)
def test_a_copy_fits_alike(method: str) -> None:
    model = made(method)
    copied = clone(model)
    assert copied.get_params()["method"] == method
    model.fit(X, Y)
    assert isinstance(clone(model), LabelPrivateClassifier)
    assert not hasattr(clone(model), "guarantee_")


def held(value: Any, depth: int = 0) -> Any:
    """Every array that can be reached from an object."""
    if isinstance(value, np.ndarray):
        yield value
    elif depth < 4 and isinstance(value, dict):
        for each in value.values():
            yield from held(each, depth + 1)
    elif depth < 4 and hasattr(value, "__dict__"):
        yield from held(vars(value), depth + 1)


@pytest.mark.parametrize("method", METHODS)
def test_no_label_is_kept(method: str) -> None:
    """All labels are the same; a base that keeps what it is handed must hold mixed responses."""
    model = made(method, Watching(), epsilon=0.5).fit(X, np.full(len(X), "b"))
    for array in held(model):
        if array.shape == (len(X),):
            assert 0.05 < np.mean(array == array[0]) < 0.95
        if array.shape == (len(X), 3):
            assert np.mean(array.argmax(axis=1) == 1) < 0.8


@pytest.mark.parametrize("method", METHODS)
def test_odd_labels_are_randomized_by_a_public_rule(method: str) -> None:
    """Labels that are none of the classes, or none at all, raise nothing, and change no public fact."""
    odd = Y.astype(object)
    odd[:9] = [None, np.nan, "z", 3, [], {}, object(), float("inf"), ("a",)]
    model = made(method).fit(X, odd)
    assert model.classes_.tolist() == CLASSES
    assert model.guarantee_.epsilon == 1.0
    made(method).fit(X, [None] * len(X))


@pytest.mark.parametrize(
    ("base", "method"),
    [
        (KNeighborsClassifier(), "alibi"),
        (LinearSVC(), "subset"),
        (make_pipeline(StandardScaler(), LogisticRegression()), "response"),
        (LinearRegression(), "lp-1st"),
        ("logistic", "alibi"),
        (LogisticRegression, "alibi"),
    ],
)
def test_a_base_that_cannot_learn_is_refused_before_the_charge(
    base: Any, method: str, tmp_path: Path
) -> None:
    with Ledger.open(tmp_path / "labels.db", Budget(1.0), unit=LABEL) as ledger:
        with pytest.raises(InvalidValue, match="base"):
            made(method, base, ledger=ledger).fit(X, Y)
        assert not ledger.entries()


@pytest.mark.parametrize(
    "base", [KNeighborsClassifier(20), LinearSVC(), make_pipeline(StandardScaler(), GaussianNB())]
)
def test_any_classifier_learns_from_responses_as_if_they_were_labels(base: Any) -> None:
    model = made("lp-1st", base, epsilon=3.0).fit(X, Y)
    assert np.mean(model.predict(X) == Y) > 0.8


def test_a_forest_does_not_confirm_itself() -> None:
    base = RandomForestClassifier(10, min_samples_leaf=5, random_state=0)
    model = made("subset", base, epsilon=2.0).fit(X[:300], Y[:300])
    other, truth = data(500, seed=9)
    assert np.mean(model.predict(other) == truth) > 0.75


def test_a_frame_reaches_the_base_as_a_frame() -> None:
    frame = pd.DataFrame(X, columns=["one", "two", "three"])
    model = made("alibi").fit(frame, pd.Series(Y))
    assert model.feature_names_in_.tolist() == ["one", "two", "three"]
    assert model.base_.feature_names_in_.tolist() == ["one", "two", "three"]
    model.predict(frame)


def test_a_prior_may_be_a_classifier_of_public_rows() -> None:
    other, truth = data(200, seed=5)
    public = LogisticRegression().fit(other, truth)
    model = made("prior", prior=public, epsilon=0.5).fit(X, Y)
    assert np.mean(model.predict(X) == Y) > 0.9
    with pytest.raises(InvalidValue, match="prior"):
        made("prior", prior=[0.5, 0.5]).fit(X, Y)
    with pytest.raises(InvalidValue, match="prior"):
        made("alibi", prior=[0.3, 0.3, 0.4]).fit(X, Y)


def test_a_refused_charge_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "labels.db", Budget(1.5), unit=LABEL) as ledger:
        model = made("response", ledger=ledger).fit(X, Y)
        before = model.predict(X)
        with pytest.raises(BudgetExceeded):
            model.fit(X, Y[::-1])
        assert (model.predict(X) == before).all()
        assert len(ledger.entries()) == 1


def test_a_fit_that_fails_leaves_nothing() -> None:
    class Failing(GaussianNB):
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            raise RuntimeError("no")

    model = made("response").fit(X, Y)
    with pytest.raises(RuntimeError):
        model.set_params(base=Failing()).fit(X, Y)
    assert not hasattr(model, "guarantee_")
    assert not hasattr(model, "base_")


def test_the_second_part_of_two_stages_gets_better_labels() -> None:
    """With the prior of the first part the posterior is right more often than the 58% of ε alone."""
    model = made("lp-2st", LogisticRegression(), epsilon=1.0)
    seen: list[np.ndarray] = []

    class Noting(LogisticRegression):
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            seen.append(np.asarray(y if sample_weight is None else sample_weight))
            return super().fit(X, y, sample_weight)

    model.set_params(base=Noting(), rounds=1).fit(X, Y)
    targets = seen[-1].reshape(len(X), 3)
    codes = np.array([CLASSES.index(each) for each in Y])
    assert np.mean(targets.argmax(axis=1) == codes) > 0.7


# ----------------------------------------------------------------------------------- regressions


@pytest.mark.parametrize("prior", ["dp", np.ones(16) / 16])
def test_a_regression_learns(prior: Any) -> None:
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(3000, 2))
    targets = inputs @ [2.0, -1.0]
    model = LabelPrivateRegressor(
        Ridge(), 4.0, target_bounds=(-8, 8), prior=prior, random_state=1
    ).fit(inputs, np.where(rng.random(3000) < 0.01, np.nan, targets))  # fmt: skip
    assert np.mean((model.predict(inputs) - targets) ** 2) < 0.2 * np.var(targets)
    assert accounting.epsilon(model.event_, 0.0, relation="replace_one") <= 4.0
    assert np.abs(model.predict(inputs * 100)).max() <= 8


def test_the_histogram_of_a_regression_is_paid_for() -> None:
    """Its twin, which claims the ε of the responses alone, states less than its event costs."""
    model = LabelPrivateRegressor(Ridge(), 1.0, target_bounds=(0, 1), random_state=1)
    _, _, event = model._planned(X, len(X))
    assert accounting.epsilon(event, 0.0, relation="replace_one") == 1.0
    assert accounting.epsilon(event.events[1], 0.0, relation="replace_one") == 0.875


def test_odd_numbers_are_randomized_by_a_public_rule() -> None:
    odd = np.linspace(0, 1, len(X)).astype(object)
    odd[:8] = [None, np.nan, "z", 1e300, -np.inf, [], object(), 10**400]
    model = LabelPrivateRegressor(WatchingNumbers(), 1.0, target_bounds=(0, 1), random_state=1).fit(X, odd)
    assert np.isfinite(model.base_.seen_).all()


# ---------------------------------------------------------------------------------------- PATE-FM


def test_teachers_with_few_labels_teach_a_student() -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 2, 300)
    inputs = np.eye(2)[codes] * 6 + rng.normal(size=(300, 2))
    base = SelfTrainingClassifier(LogisticRegression())
    model = PATEFM(base, Noisy(2.0), teachers=15, queries=10, answers=6, classes=[0, 1], random_state=1)
    model.fit(inputs, codes)
    assert np.mean(model.predict(inputs) == codes) > 0.9
    assert model.answered_ == 6
    assert model.guarantee_.unit == LABEL
    assert model.guarantee_.epsilon == accounting.epsilon(model.event_, 1e-5, relation="replace_one")
    assert clone(model).get_params()["queries"] == 10


def test_what_a_teacher_warns_of_or_raises_is_dropped(recwarn: pytest.WarningsRecorder, capsys: Any) -> None:
    class Loud(LogisticRegression):
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            import warnings

            print("98765")
            warnings.warn("98765", UserWarning, stacklevel=1)
            if (np.asarray(y) == -1).sum() > 280:
                raise ValueError("98765")
            return super().fit(X[y >= 0], y[y >= 0])

    rng = np.random.default_rng(1)
    codes = rng.integers(0, 2, 300)
    inputs = np.eye(2)[codes] * 6 + rng.normal(size=(300, 2))
    model = PATEFM(Loud(), Noisy(0.1), teachers=20, queries=20, classes=[0, 1], random_state=1)
    model._planned(inputs, 300)
    from tacit.labels.teachers import _voted

    votes = _voted(Loud(), inputs, np.where(np.arange(300) < 15, codes, -1), np.arange(5), 2)
    assert votes.tolist() == [0] * 5
    assert not recwarn.list
    assert "98765" not in capsys.readouterr().out


# -------------------------------------------------------------------------------------- saving, pages


@pytest.mark.parametrize("base", [LogisticRegression(), GaussianNB()], ids=lambda base: type(base).__name__)
def test_a_model_is_saved_with_its_guarantee(base: Any, tmp_path: Path) -> None:
    model = made("subset", base).fit(X, Y)
    tacit.save(model, tmp_path / "model.tacit")
    loaded = tacit.load(tmp_path / "model.tacit")
    assert loaded.guarantee_ == model.guarantee_
    assert loaded.guarantee_.unit == LABEL
    assert (loaded.predict(X) == model.predict(X)).all()
    assert loaded.describe() == model.describe()
    told = tacit.models.describe(tmp_path / "model.tacit")
    assert "one label; the features are not protected" in told["steps"][0]["statement"]
    assert "random_state" not in str(told["steps"][0]["state"])


def test_a_regression_is_saved(tmp_path: Path) -> None:
    model = LabelPrivateRegressor(Ridge(), 1.0, target_bounds=(0, 1), random_state=1).fit(X, X[:, 0])
    tacit.save(model, tmp_path / "model.tacit")
    assert (tacit.load(tmp_path / "model.tacit").predict(X) == model.predict(X)).all()


def test_a_base_that_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    model = made("lp-1st", KNeighborsClassifier()).fit(X, Y)
    with pytest.raises(InvalidValue, match="LogisticRegression"):
        tacit.save(model, tmp_path / "model.tacit")
    assert not (tmp_path / "model.tacit").exists()


def test_a_file_that_names_another_base_is_refused(tmp_path: Path) -> None:
    from tacit.labels.saving import from_saved, to_saved

    state = to_saved(made("subset").fit(X, Y))
    for change in ({"tag": "os.system"}, {"params": {"random_state": 1}}, {"attributes": {"fit": 1}}):
        with pytest.raises((KeyError, ValueError)):
            from_saved(LabelPrivateClassifier, {**state, "base": {**state["base"], **change}})
    assert issubclass(ModelUnreadable, Exception)


def test_the_base_class_has_no_method_of_its_own() -> None:
    with pytest.raises(NotImplementedError):
        LabelPrivateEstimator()._planned(X, 1)
