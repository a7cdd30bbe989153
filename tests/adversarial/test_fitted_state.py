"""Attacks on what a fit leaves behind, and on what a fitted model hands to an evaluation or a file."""

from __future__ import annotations

import datetime
import enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression as PublicRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from adversarial.test_evaluation import moved
from adversarial.test_model_files import forged
from contract.mends import Scene, mend, replacing
from tacit import Budget, Column, Ledger, Schema, errors, evaluate, events, load, save
from tacit.data import units
from tacit.data.preprocessor import Preprocessor
from tacit.data.units import unit_numbers
from tacit.estimators import LogisticRegression, noise, private
from tacit.estimators.linear.certified import UNIT, _Gradient
from tacit.estimators.linear.losses import Logistic
from tacit.estimators.linear.model import LinearModel
from tacit.estimators.linear.rows import BLOCK, ScaledRows, Space
from tacit.evaluation import alone, evaluations_of, rowlocal
from tacit.mechanisms import without_negatives
from tacit.models import archive

X = np.random.default_rng(1).normal(size=(200, 2))
Y = (X[:, 0] > 0).astype(int)


def fitted(epsilon: float = 1.0, **options: Any) -> LogisticRegression:
    return LogisticRegression(epsilon, norm=3.0, classes=[0, 1], **options).fit(X, Y)


keeps_all = replacing(private.PrivateEstimator, "_forget", lambda self: None)


@mend(11, "standard errors of an earlier fit", twin=keeps_all)
def errors_of_an_earlier_fit(scene: Scene) -> None:
    """Standard errors that ε = 5 paid for must not be in the file of a fit that states ε = 0.1."""
    model = fitted(5.0, interval_share=0.2)
    model.set_params(epsilon=0.1, interval_share=0.0).fit(X, Y)
    assert not hasattr(model, "coef_error_")
    save(model, scene.path / "model.tacit")
    assert not hasattr(load(scene.path / "model.tacit"), "coef_error_")


@mend(11, "a fit that stops midway", twin=keeps_all)
def stopped_midway(scene: Scene) -> None:
    """Weights that ε = 50 paid for must not stand beside the guarantee of ε = 0.1."""
    model = fitted(0.1)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    scene.patch.setattr(LinearModel, "_keep_errors", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(epsilon=50.0, interval_share=0.1).fit(X, Y)
    left = sorted(name for name in vars(model) if name.endswith("_"))
    assert not left, left
    with pytest.raises(errors.InvalidValue):
        save(model, scene.path / "model.tacit")


@pytest.mark.parametrize("wrong", ["rows", "units", "raises"])
def test_a_read_that_fails_leaves_no_model(wrong: str) -> None:
    model = fitted()

    def read() -> Any:
        if wrong == "raises":
            raise RuntimeError
        return (X[:, :1], Y, None) if wrong == "rows" else (X, Y, Y)

    with pytest.raises((RuntimeError, errors.InvalidValue)):
        model.fit_rows(2, read)
    assert not [name for name in vars(model) if name.endswith("_")]


def test_a_fit_that_the_ledger_refuses_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "study.db", Budget(1.5)) as ledger:
        model = fitted(ledger=ledger)
        before = {name: value for name, value in vars(model).items() if name.endswith("_")}
        with pytest.raises(errors.BudgetExceeded):
            model.fit(pd.DataFrame({"a": Y, "b": Y, "c": Y}), Y)
        assert {name: value for name, value in vars(model).items() if name.endswith("_")} == before
        assert model.predict(X).shape == (200,)


@mend(11, "evaluations of an earlier fit", twin=keeps_all)
def evaluations_of_an_earlier_fit(scene: Scene) -> None:
    """Figures of one model must not be reported beside another."""
    path = scene.path / "model.tacit"
    schema = Schema({name: Column("number", bounds=(-3, 3)) for name in "ab"})
    frame = pd.DataFrame(X, columns=["a", "b"])
    pipeline = Pipeline([("maker", Preprocessor(schema)), ("model", LogisticRegression(classes=[0, 1]))])
    pipeline.fit(frame, Y)
    save(pipeline, path, evaluations=[evaluate(pipeline, frame, Y, epsilon=1.0)])
    again = load(path)
    assert len(evaluations_of(again)) == 1
    save(again, path, overwrite=True)
    again = load(path)
    assert len(evaluations_of(again)) == 1
    again.fit(frame, 1 - Y)
    assert not evaluations_of(again)
    save(again, path, overwrite=True)
    assert not evaluations_of(load(path))


def test_a_file_may_not_seed_the_noise_of_the_next_fit(tmp_path: Path) -> None:
    """Whoever made the file would know the noise."""
    path = tmp_path / "model.tacit"
    save(fitted(), path)

    def seeded(facts: Any) -> None:
        facts["steps"][0]["state"]["state"]["params"]["random_state"] = 1

    with pytest.raises(errors.ModelUnreadable):
        load(forged(path, seeded))


class Free(noise.Output):
    """Settings that make a place of another event than its noise has."""

    def place(self, problem: Any) -> Any:
        made = super().place(problem)
        made.event = events.Pure(1e-9)
        return made


def test_noise_is_known_by_its_exact_class() -> None:
    with pytest.raises(errors.InvalidValue, match="noise"):
        fitted(noise=Free())
    with pytest.raises(errors.InvalidValue, match="noise"):
        fitted(noise=noise.Noise())


def test_rates_of_any_real_type_are_charged_and_drawn_alike() -> None:
    made = noise.Gradient(steps=2, sampling_rate=np.float32(0.5))
    assert type(made.sampling_rate) is float
    options: dict[str, Any] = {"delta": 1e-5, "population": 200, "noise": made}
    assert fitted(**options).event_.event.rate == 0.5


class Spy(int):
    """A number of features that sees the rows it is compared beside."""

    def __ne__(self, other: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def test_what_a_model_of_ours_holds_is_known_by_its_exact_class() -> None:
    model = fitted()
    assert rowlocal.parts_with_products(model) == []
    model.n_features_in_ = Spy(2)
    assert rowlocal.parts_with_products(model) is None
    assert alone.FORGETFUL in evaluate(model, X, Y, epsilon=1.0).guarantee.assumptions


def named_by(step: str, feature: str) -> str:
    """A function that somebody else wrote."""
    return f"{step} {feature}"


def test_functions_that_name_features_are_asked_in_predicting() -> None:
    """Where the output is a frame they are called with the rows in reach, and may remember them."""
    maker = ColumnTransformer([("scaled", StandardScaler(), [0, 1])], verbose_feature_names_out=named_by)
    model = Pipeline([("maker", maker.set_output(transform="pandas")), ("model", DecisionTreeClassifier())])
    model.fit(X, Y)
    assert rowlocal.parts_with_products(model) is None
    assert alone.FORGETFUL in evaluate(model, X[:20], Y[:20], epsilon=1.0).guarantee.assumptions
    maker.verbose_feature_names_out = True
    assert rowlocal.parts_with_products(model.fit(X, Y)) is not None


class OtherSchema(Schema):
    """A schema with methods of its own."""


class OtherColumn(Column):
    """A column with properties of its own."""


@pytest.mark.parametrize("odd", ["schema", "column", "steps"])
def test_what_a_preprocessor_holds_too(odd: str) -> None:
    kind = OtherColumn if odd == "column" else Column
    columns = {name: kind("number", bounds=(-3, 3)) for name in "ab"}
    maker = Preprocessor(OtherSchema(columns) if odd == "schema" else Schema(columns))
    usual = Preprocessor(Schema({name: Column("number", bounds=(-3, 3)) for name in "ab"}))
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = LogisticRegression(classes=[0, 1]).fit(usual.fit_transform(frame), Y)
    plain = Pipeline([("maker", usual), ("model", model)])
    assert alone.FORGETFUL not in evaluate(plain, frame, Y, epsilon=1.0).guarantee.assumptions
    pipeline = Pipeline([("maker", maker), ("model", model)])
    if odd == "steps":
        pipeline.steps = type("Steps", (list,), {})(pipeline.steps)
    assert alone.FORGETFUL in evaluate(pipeline, frame[:20], Y[:20], epsilon=1.0).guarantee.assumptions


def by_place_in_ours() -> Any:
    """Bounds of each place in a block, beyond all public rows, in a model of ours behind a product."""
    model = LogisticRegression(bounds=(-9, 9), classes=[0, 1]).fit(X, Y)
    upper = np.where(np.arange(alone.BLOCK) % 2, 1e6, 3e6)[:, None] * np.ones(2)
    model.bounds_ = np.array([-upper, upper])
    model.coef_, model.intercept_ = np.array([[1e-6, 0.0]]), np.array([-2.0])
    return Pipeline([("more", PolynomialFeatures(1, include_bias=False).fit(X)), ("model", model)])


def by_place_in_theirs() -> Any:
    """Means of each place in a block, which public rows round away, in scikit-learn's own classes."""
    first, second = StandardScaler().fit(X), StandardScaler().fit(X)
    first.scale_ = np.ones(2)
    first.mean_ = np.where(np.arange(alone.BLOCK) % 2, 1e-30, -1e-30)[:, None] * np.ones(2)
    second.mean_, second.scale_ = np.zeros(2), np.full(2, 1e-30)
    model = PublicRegression().fit(X, Y)
    model.coef_, model.intercept_ = np.array([[5.0, 0.0]]), np.zeros(1)
    return Pipeline([("first", first), ("second", second), ("model", model)])


@pytest.mark.parametrize(("made", "value"), [(by_place_in_ours, 5e6), (by_place_in_theirs, 0.0)])
def test_a_score_that_depends_on_the_place_in_a_block(made: Any, value: float) -> None:
    with pytest.raises(errors.EngineFailed):
        moved(made(), np.full((200, 2), value), np.arange(200) % 2)


@mend(7, "an array with an entry for each place", twin=replacing(alone, "FEW", alone.BLOCK))
def an_entry_for_each_place(scene: Scene) -> None:
    """All of its classes are scikit-learn's, and 200 rows change their cells where one is taken away."""
    try:
        found = moved(by_place_in_theirs(), np.zeros((200, 2)), np.arange(200) % 2)
    except errors.EngineFailed:
        return
    assert found <= 1


class Named(str, enum.Enum):  # noqa: UP042
    """A text of a class of its own."""

    ONE = "one"


HERE, THERE = (pd.Timestamp("2020-01-01", tz="UTC").tz_convert(zone) for zone in ("UTC", "Europe/Berlin"))
EQUAL: dict[str, list[Any]] = {
    "complex numbers": [1, 1 + 0j, complex(1, -0.0)],
    "long numbers": [0, np.longdouble(0), np.longdouble(-0.0), np.clongdouble(complex(0, -0.0))],
    "text of another class": ["one", Named.ONE],
    "bytes": [b"one", bytearray(b"one"), memoryview(b"one")],
    "times in zones": [HERE, THERE, HERE.to_pydatetime(), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)],
}


def one_person(name: str) -> None:
    column = np.empty(len(EQUAL[name]), dtype=object)
    column[:] = EQUAL[name]
    assert set(unit_numbers(column).tolist()) == {0}


@pytest.mark.parametrize("name", EQUAL)
def test_one_person_under_equal_names(name: str) -> None:
    one_person(name)


def by_text(patch: pytest.MonkeyPatch) -> None:
    """The broken twin: what is neither a plain number nor a plain value is told apart by its text."""
    patch.setattr(units, "_key", lambda unit: (type(unit).__name__, str(unit)))


@mend(13, "equal names of other classes", twin=by_text)
def equal_names(scene: Scene) -> None:
    one_person("complex numbers")


def test_other_people_under_names_of_other_classes() -> None:
    names = [1j, 2j, 1, "1j", HERE, HERE + pd.Timedelta(1, "ns"), b"1", "1", np.longdouble(1) / 3, 1 / 3]
    column = np.empty(len(names), dtype=object)
    column[:] = names
    assert len(set(unit_numbers(column).tolist())) == len(names)
    signed = np.array([0.0, -0.0, 1.0], dtype=np.longdouble)
    assert unit_numbers(signed).tolist() == [0, 0, 1]


def test_a_matrix_of_the_old_kind_is_a_matrix() -> None:
    with pytest.warns(PendingDeprecationWarning):
        old = np.matrix(X)
    model = LogisticRegression(classes=[0, 1], bounds="dp").fit(old, Y, units=np.arange(200))
    assert model.coef_.shape == (1, 2)


def test_the_error_of_the_fast_gradient_counts_every_block() -> None:
    """The total, tilt included, is rounded twice for each block of rows."""
    blocks = 5
    space = Space.of(np.array([-1.0]), np.array([1.0]), None, intercept=False)
    rows = ScaledRows(np.zeros((blocks * BLOCK, 1)), np.zeros((blocks * BLOCK, 1)), space)
    for tilt in (1e20, 1e30):
        gradient = _Gradient(Logistic(), rows, np.ones(1), np.array([[tilt]]))
        _, error = gradient.fast(np.zeros((1, 1)))
        assert error >= 2 * blocks * UNIT * tilt


def test_lists_of_evaluations_are_shared_with_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "model.tacit"
    model = fitted()
    save(model, path, evaluations=[evaluate(model, X, Y, epsilon=1.0)])
    one, other = load(path), load(path)
    one.fit(X, Y)
    assert not evaluations_of(one)
    assert len(evaluations_of(other)) == 1
    assert len(archive.describe(path)["evaluations"]) == 1


@pytest.mark.parametrize("total", [1.0, 3.0, 100.0])
def test_counts_that_swallow_their_total_have_a_projection(total: float) -> None:
    """With much noise the largest count less the total rounds to the largest count."""
    counts = np.array([2.0**60, -(2.0**59), -(2.0**59), 0.0])
    counts[3] = total
    found = without_negatives(counts)
    assert (found >= 0).all()
    assert found.sum() <= 2.0**60
