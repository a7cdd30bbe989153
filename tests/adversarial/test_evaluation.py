"""Attacks on evaluation: rows that change the answers of others, and rows that make somebody's code fail."""

from __future__ import annotations

import math
import sys
import warnings
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    BaggingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, LinearSVC
from threadpoolctl import ThreadpoolController

from contract.mends import Scene, mend
from tacit import Budget, Column, Ledger, Schema
from tacit.data.preprocessor import Preprocessor
from tacit.errors import EngineFailed, InvalidValue
from tacit.estimators import LogisticRegression as Private
from tacit.evaluation import alone, evaluate, scoring, tally
from tacit.evaluation.rowlocal import parts_with_products

GENERATOR = np.random.default_rng(7)
WIDTH = 37
X = GENERATOR.normal(size=(600, WIDTH))
Y = (X[:, 0] + 0.5 * GENERATOR.normal(size=600) > 0).astype(int)
HUGE = 1e39


def counts(model: Any, x: Any, y: Any, **options: Any) -> Any:
    """The exact vector behind an evaluation."""
    task = tally.tally_of(model, 50, {}, options.pop("target_bounds", None))
    return task.measure(model, x, np.asarray(y), {}, None, False, **options)[0]


def moved(model: Any, x: Any, y: Any, row: int = 0, **options: Any) -> int:
    """How far the counts move if a row is taken away."""
    without = np.delete(x, row, axis=0), np.delete(y, row)
    return int(np.abs(counts(model, x, y, **options) - counts(model, *without, **options)).sum())


def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: a model is called with all rows at once."""

    def of(asked: alone.MatrixScorer, matrix: Any) -> Any:
        with alone.silence():
            found = asked._answers(matrix, asked.model)
        if found is None:
            raise EngineFailed("The model could not score the rows.", engine="model")
        return found

    monkeypatch.setattr(alone.MatrixScorer, "of", of)


def on_the_edge() -> tuple[LogisticRegression, Any, Any]:
    """A model and rows whose scores are 0 but for rounding, which decides the predicted class."""
    model = LogisticRegression()
    model.classes_, model.intercept_ = np.array([0, 1]), np.zeros(1)
    model.coef_, model.n_features_in_ = GENERATOR.normal(size=(1, WIDTH)), WIDTH
    x = np.random.default_rng(3).normal(size=(4000, WIDTH))
    x[:, -1] = -(x[:, :-1] @ model.coef_[0, :-1]) / model.coef_[0, -1]
    return model, x, np.zeros(4000, dtype=int)


# ------------------------------------------------------------------------- rows that change other rows


@mend(7, "products that round a row by the others", twin=at_once)
def rounded_by_the_others(scene: Scene) -> None:
    """Adding one row turned three others over: the counts moved by 7, with a sensitivity of 1.

    Where the machine's products round each row by itself there is nothing to attack.
    """
    model, x, y = on_the_edge()
    scores = model.decision_function(x[:999])
    if all((model.decision_function(x[:size]) == scores[:size]).all() for size in range(100, 108)):
        pytest.skip("this machine's products round each row by itself")
    turned = max(
        moved(model, x[:size], y[:size], row)
        for size in (*range(100, 108), 999)
        for row in (0, size - 1)
    )
    assert turned == 1, f"one row moved the counts by {turned}"


@pytest.mark.parametrize("size", [1, 2, 383, 384, 385, 1000])
def test_a_score_is_the_same_bit_by_bit_wherever_the_row_stands(size: int) -> None:
    model, x, _ = on_the_edge()
    for made in (model, make_pipeline(StandardScaler(), PCA(9), LinearSVC()).fit(x, x[:, 1] > 0)):
        asked = scoring.Scorer(made, "decision_function", 2, tally._odds)
        alone_, _ = asked.scores(x[:1], 1, False)
        for order in ("C", "F"):
            for place in {0, size // 2, size - 1}:
                rows = np.array(np.random.default_rng(size).normal(size=(size, WIDTH)), order=order)
                rows[place] = x[0]
                found, _ = asked.scores(rows, size, False)
                assert found[place].tobytes() == alone_[0].tobytes()
        strided = np.zeros((2 * size, WIDTH + 3))[::2, 1:-2]
        strided[...] = x[0]
        found, _ = asked.scores(strided, size, False)
        assert set(found[:, 1].tolist()) == {alone_[0, 1]}


class Crowd(ClassifierMixin, BaseEstimator):
    """Scores a row by the mean of all rows it is called with, and remembers how many there were."""

    classes_ = np.array([0, 1])

    def __init__(self, memory: float = 0.0) -> None:
        self.memory = memory

    def fit(self, X: Any, y: Any) -> Crowd:
        return self

    def predict_proba(self, X: Any) -> Any:
        self.memory = self.memory + len(X) / 1000
        score = expit(np.asarray(X)[:, 0] - np.asarray(X)[:, 0].mean() + self.memory)
        return np.column_stack([1 - score, score])


class Drawn(Crowd):
    """Draws from a generator of its own: the next row gets the next number."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(1)

    def predict_proba(self, X: Any) -> Any:
        score = self.generator.random(len(X))
        return np.column_stack([1 - score, score])


class Counting(BaseEstimator, TransformerMixin):
    def fit(self, X: Any, y: Any = None) -> Counting:
        return self

    def transform(self, X: Any) -> Any:
        self.seen = getattr(self, "seen", 0) + len(X)
        return X + self.seen / 1000


class Subclass(LogisticRegression):
    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(X - np.asarray(X).mean(axis=0))


def replaced_method() -> Any:
    model = LogisticRegression().fit(X, Y)
    sound = model.predict_proba
    model.predict_proba = lambda rows: sound(rows - rows.mean(axis=0))
    return model


def centred(rows: Any) -> Any:
    return rows - rows.mean(axis=0)


MIXING = {
    "a class of one's own": Crowd(),
    "a generator of one's own": Drawn(),
    "a subclass": Subclass().fit(X, Y),
    "a method that was replaced": replaced_method(),
    "a function in a pipeline": make_pipeline(FunctionTransformer(centred), LogisticRegression()).fit(X, Y),
    "a step of one's own": make_pipeline(Counting(), LogisticRegression()).fit(X, Y),
    "a step in a vote": VotingClassifier(
        [("a", make_pipeline(FunctionTransformer(centred), GaussianNB())), ("b", GaussianNB())], voting="soft"
    ).fit(X, Y),
    "a step in columns": make_pipeline(
        ColumnTransformer([("a", FunctionTransformer(centred), [0, 1])]), GaussianNB()
    ).fit(X, Y),
    "a random guess": DummyClassifier(strategy="stratified", random_state=3).fit(X, Y),
}


def mixes_rows(scene: Scene, name: str) -> None:
    """A model that mixes rows is asked one row at a time."""
    model = MIXING[name]
    assert parts_with_products(model) is None
    outlier, y = np.vstack([X[:100], np.full(WIDTH, 1e3)]), Y[:101]
    assert max(moved(model, outlier, y, row) for row in (0, 100)) <= 1


for name in MIXING:
    mend(7, f"a model that mixes rows: {name}", twin=at_once)(partial(mixes_rows, name=name))


def test_sums_have_one_order() -> None:
    """Models are asked in one thread of BLAS, however many it has outside."""
    blas = ThreadpoolController().select(user_api="blas")
    with blas.limit(limits=2), alone.silence():
        assert {each.num_threads for each in blas.lib_controllers} == {1}


def test_a_part_that_rounds_by_position_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check on public rows, for a class of the table that rounds the last row of a block otherwise."""
    sound = LogisticRegression.decision_function

    def rounds(self: Any, rows: Any) -> Any:
        scores = sound(self, rows)
        scores[len(scores) // 3 * 3 :] = (scores[len(scores) // 3 * 3 :] * 3) / 3
        if len(scores) > 1:
            scores[-1:] = np.nextafter(scores[-1:], 9)
        return scores

    model = LogisticRegression().fit(X, Y)
    asked = alone.MatrixScorer(model, "predict_proba", tally._numbers(2), 2, WIDTH)
    forest = make_pipeline(PCA(3), RandomForestClassifier(3)).fit(X, Y)
    behind = alone.MatrixScorer(forest, "predict_proba", tally._numbers(2), 2, WIDTH)
    with alone.silence():
        assert asked._block() == alone.BLOCK
        assert behind._block() == alone.BLOCK
        monkeypatch.setattr(LogisticRegression, "decision_function", rounds)
        assert asked._block() == 1
        transform = PCA.transform

        def rounded(self: Any, rows: Any) -> Any:
            found = transform(self, rows)
            found[-1] = np.nextafter(found[-1], 9)
            return found

        monkeypatch.setattr(PCA, "transform", rounded)
        assert behind._block() == 1


MODELS = {
    "logistic": LogisticRegression(),
    "forest": RandomForestClassifier(5, n_jobs=2),
    "boosting": HistGradientBoostingClassifier(max_iter=5),
    "network": MLPClassifier(max_iter=3),
    "kernel": SVC(),
    "calibrated": CalibratedClassifierCV(LinearSVC()),
    "bagging": BaggingClassifier(LogisticRegression(), n_estimators=3),
    "stack": StackingClassifier([("a", GaussianNB()), ("b", LogisticRegression())]),
    "polynomial": make_pipeline(PolynomialFeatures(2), StandardScaler(), LogisticRegression()),
    "neighbours": KNeighborsClassifier(algorithm="kd_tree"),
    "own": Private(5.0, norm=9.0, classes=[0, 1]),
}


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: model.fit(X[:, :9], Y) for name, model in MODELS.items()}


@pytest.mark.parametrize("name", MODELS)
def test_usual_models_are_in_the_table(name: str, fitted: dict[str, Any]) -> None:
    assert parts_with_products(fitted[name]) is not None
    x, y = np.asfortranarray(X[:400, :9]), Y[:400]
    exact = evaluate(fitted[name], x, y, epsilon=1e6, random_state=1)
    assert exact.accuracy == pytest.approx(fitted[name].score(x, y))
    assert moved(fitted[name], x, y, 3) == 1


# ----------------------------------------------------------------------- rows that make a model fail


BAD = [HUGE, -HUGE, 1e308, -1e308, 5e-324, math.inf, math.nan]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("error")
def test_one_value_fails_for_its_own_row_alone(name: str, fitted: dict[str, Any]) -> None:
    model, x = fitted[name], X[:50, :9]
    for bad in BAD:
        odd = np.vstack([x, np.full(9, bad)])
        with np.errstate(all="raise"):
            assert np.abs(counts(model, odd, Y[:51]) - counts(model, x, Y[:50])).sum() == 1


def test_failures_are_contained_in_every_block(fitted: dict[str, Any]) -> None:
    x, y = X[:, :9].copy(), Y
    bad = [0, 5, 6, 383, 384, 599]
    x[bad, 2] = HUGE
    good = np.delete(x, bad, axis=0), np.delete(y, bad)
    for name in ("forest", "polynomial"):
        apart = counts(fitted[name], x, y) - counts(fitted[name], *good)
        assert np.abs(apart).sum() == apart[-1] + np.abs(apart[:-1]).sum() == len(bad)


@mend(8, "one row that a forest cannot score", twin=at_once, shows=EngineFailed)
def unfit_for_a_forest(scene: Scene) -> None:
    """A finite 10³⁹ made the evaluation raise."""
    forest = RandomForestClassifier(3).fit(X[:, :9], Y)
    x = X[:, :9].copy()
    x[5, 2] = HUGE
    apart = counts(forest, x, Y) - counts(forest, np.delete(x, 5, axis=0), np.delete(Y, 5))
    assert np.abs(apart).sum() == 1


class Moody(ClassifierMixin, BaseEstimator):
    """Answers for a row with whatever its first value asks for."""

    classes_ = np.array([0, 1])

    def fit(self, X: Any, y: Any) -> Moody:
        return self

    def predict_proba(self, X: Any) -> Any:
        wish = int(X[0, 0]) if len(X) == 1 else 0
        answers = {
            1: lambda: math.log(-1), 2: lambda: [[1.0]], 3: lambda: None, 4: lambda: "text",
            5: lambda: np.array([[object(), object()]]), 6: lambda: np.full((1, 2), np.nan),
            7: lambda: np.full((5, 2), 0.5), 8: lambda: sys.exit(3), 9: lambda: np.empty(2**60),
            10: lambda: warnings.warn("a row", RuntimeWarning, stacklevel=1), 11: lambda: 1 / 0,
            12: lambda: np.array([[1j, 1j]]), 13: lambda: (_ for _ in ()).throw(RecursionError()),
            14: lambda: np.array([["a", "b"]]), 15: lambda: [[0.5, 0.5], [0.5]],
        }  # fmt: skip
        return answers.get(wish, lambda: np.full((len(X), 2), 0.5))()


@pytest.mark.parametrize("wish", range(1, 16))
def test_whatever_a_model_says_of_one_row(wish: int) -> None:
    x = np.zeros((20, 2))
    x[4, 0] = wish
    y = np.arange(20) % 2
    apart = counts(Moody(), x, y) - counts(Moody(), np.delete(x, 4, axis=0), np.delete(y, 4))
    assert np.abs(apart).sum() == 1
    assert apart[-1] == 1


def test_interruptions_are_let_through() -> None:
    class Interrupted(Moody):
        def predict_proba(self, X: Any) -> Any:
            if X[0, 0] == 1:
                raise KeyboardInterrupt
            return super().predict_proba(X)

    with pytest.raises(KeyboardInterrupt):
        counts(Interrupted(), np.ones((2, 2)), [0, 1])


def test_labels_that_are_no_class() -> None:
    class Votes(ClassifierMixin, BaseEstimator):
        classes_ = np.array([0, 1])

        def fit(self, X: Any, y: Any) -> Votes:
            return self

        def predict(self, X: Any) -> Any:
            said: dict[int, Any] = {1: ["x"], 2: [None], 3: [7], 4: [0, 1], 5: [{}], 6: 0}
            return said.get(int(X[0, 0]), np.zeros(len(X), dtype=int))

    x, y = np.zeros((10, 1)), np.zeros(10, dtype=int)
    for wish in range(1, 7):
        x[3] = wish
        apart = counts(Votes(), x, y) - counts(Votes(), np.delete(x, 3, axis=0), y[1:])
        assert (np.abs(apart).sum(), apart[-1]) == (1, 1)


def test_regressors(fitted: dict[str, Any]) -> None:
    for model in (
        LinearRegression().fit(X, X[:, 0]),
        make_pipeline(StandardScaler(), Ridge()).fit(X, X[:, 0]),
    ):
        odd = np.vstack([X, np.full(WIDTH, 1e308)])
        apart = counts(model, odd, np.append(X[:, 0], 0.0), target_bounds=(-3, 3)) - counts(
            model, X, X[:, 0], target_bounds=(-3, 3)
        )
        assert (np.abs(apart) <= 2**20).all()


def test_bounds_are_clipped_to(fitted: dict[str, Any]) -> None:
    odd = np.vstack([X[:50, :9], np.full(9, HUGE)])
    clipped = np.clip(odd, -4, 4)
    for name in ("forest", "logistic"):
        bounded = counts(fitted[name], odd, Y[:51], bounds=(-4, 4))
        assert bounded.tolist() == counts(fitted[name], clipped, Y[:51]).tolist()
        assert bounded[-1] == 0
    with pytest.raises(InvalidValue, match="bounds"):
        evaluate(fitted["forest"], odd, Y[:51], epsilon=1.0, bounds=(4, -4))


def test_frames_and_preprocessors_fail_row_by_row(fitted: dict[str, Any]) -> None:
    names = [f"c{i}" for i in range(9)]
    frame = pd.DataFrame(X[:, :9], columns=names)
    model = make_pipeline(
        ColumnTransformer([("a", StandardScaler(), names[:4])]), RandomForestClassifier(3)
    ).fit(frame, Y)
    odd = frame.copy()
    odd.loc[7, "c1"] = 1e300
    apart = counts(model, odd, Y) - counts(model, frame.drop(index=7), np.delete(Y, 7))
    assert (np.abs(apart).sum(), apart[-1]) == (1, 1)
    columns = {name: Column("number", bounds=(-9, 9)) for name in names}
    maker = make_pipeline(Preprocessor(Schema(columns)), StandardScaler(), RandomForestClassifier(3)).fit(
        frame, Y
    )
    assert np.abs(counts(maker, odd, Y) - counts(maker, frame.drop(index=7), np.delete(Y, 7))).sum() == 1

    class Other(Preprocessor):
        def transform(self, X: Any) -> Any:
            made = super().transform(X)
            return made - made.mean(axis=0)

    of_its_own = make_pipeline(Other(Schema(columns)), LogisticRegression()).fit(frame, Y)
    assert np.abs(counts(of_its_own, odd[:60], Y[:60]) - counts(of_its_own, odd[1:60], Y[1:60])).sum() == 1


# ------------------------------------------------------------------------------ refused by public facts


class Broken(Crowd):
    def predict_proba(self, X: Any) -> Any:
        raise ValueError(f"cannot score {X[0]}")


@pytest.mark.parametrize(
    ("model", "x", "charged"),
    [
        (LogisticRegression().fit(X, Y), X[:, :5], False),
        (make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y), X[:, :5], False),
        (LogisticRegression().fit(X, Y), X[:9], False),
        (Broken(), X, True),
        (SVC(decision_function_shape="ovo").fit(X, np.arange(600) % 5), X, False),
    ],
)
def test_models_that_cannot_be_used_are_refused_whatever_the_rows(
    model: Any, x: Any, charged: bool, tmp_path: Path
) -> None:
    with Ledger.open(tmp_path / "study.db", budget=Budget(1.0)) as ledger:
        with pytest.raises((InvalidValue, EngineFailed)) as raised:
            evaluate(model, x, Y, epsilon=0.5, ledger=ledger)
        assert bool(ledger.entries()) == charged
    assert "cannot score" not in str(raised.value)


class Locked(Crowd):
    def __init__(self) -> None:
        self.lock = Lock()


def test_models_that_cannot_be_copied_are_refused() -> None:
    with pytest.raises(InvalidValue, match="copied"):
        evaluate(Locked(), X, Y, epsilon=1.0)


class Boundless(RegressorMixin, BaseEstimator):
    def fit(self, X: Any, y: Any) -> Boundless:
        return self

    def predict(self, X: Any) -> Any:
        with np.errstate(all="raise"):
            return np.exp(X[:, 0])


@pytest.mark.filterwarnings("error")
def test_overflow_in_somebody_elses_code() -> None:
    x = np.array([[0.0], [1.0], [1e9], [-1e9]])
    found = evaluate(Boundless(), x, np.ones(4), epsilon=1e6, target_bounds=(0, 9), random_state=1)
    assert found.rows == pytest.approx(2, abs=0.01)


# --------------------------------------------- parts that are not what they seem, and models that remember


class Array(np.ndarray):
    """An array that turns all scores over where one row of a block is large."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        options.pop("out", None)
        plain = [np.asarray(each) if isinstance(each, Array) else each for each in inputs]
        found = getattr(ufunc, method)(*plain, **options)
        large = any(np.ndim(each) == 2 and np.max(np.abs(each)) > 1e3 for each in plain)
        return -found if large else found


class Number(float):
    """The same, for a number."""

    __array_ufunc__ = None

    def __radd__(self, other: Any) -> Any:
        scores = np.asarray(other) + float(self)
        return -scores if np.max(np.abs(scores)) > 1e3 else scores


def with_attributes(model: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def disguised() -> dict[str, Any]:
    x, y = X[:200, :3], Y[:200]
    fitted = LogisticRegression().fit(x, y)
    names = [f"c{i}" for i in range(3)]
    table = make_pipeline(
        Preprocessor(Schema({name: Column("number", bounds=(-1e4, 1e4)) for name in names})),
        LogisticRegression(C=1e9),
    ).fit(pd.DataFrame(x, columns=names), y)
    table.steps[1][1].coef_ = np.array([[1e5, 0.0, 0.0]])
    sound = table.steps[0][1].transform
    table.steps[0][1].transform = lambda rows: (made := sound(rows)) - 9 * made.sum(0) / (len(made) + 1)
    return {
        "an array": with_attributes(LogisticRegression().fit(x, y), coef_=fitted.coef_.view(Array)),
        "a number": with_attributes(LogisticRegression().fit(x, y), intercept_=Number(0.0)),
        "a number of our own": with_attributes(
            Private(9.0, norm=3.0, classes=[0, 1], random_state=1).fit(x, y), intercept_=Number(0.0)
        ),
        "a preprocessor": table,
    }


@pytest.mark.parametrize("name", disguised())
def test_parts_are_known_by_their_exact_class(name: str) -> None:
    """Attributes of a known model that are arrays or numbers of another class: counts moved by up to 397."""
    model = disguised()[name]
    x, y = np.vstack([X[:200, :3], [1e4, 0.0, 0.0]]), np.append(Y[:200], 1)
    if name == "a preprocessor":
        frame = pd.DataFrame(x, columns=["c0", "c1", "c2"])
        assert np.abs(counts(model, frame, y) - counts(model, frame[:200], y[:200])).sum() == 1
        return
    assert parts_with_products(model) is None
    assert np.abs(counts(model, x, y) - counts(model, x[:200], y[:200])).sum() == 1


def test_other_things_that_a_known_model_may_hold() -> None:
    operator = LinearOperator((1, 3), matvec=lambda rows: rows.sum(), dtype=float)
    for held in (
        operator, np.vectorize(abs), np.poly1d([1.0]), pd.Series([1.0]), np.ma.ones(3), X.view(np.recarray),
        type("Label", (str,), {})("a"), type("Names", (list,), {})(), Crowd, {Number(1): 1}, [Number(1)],
        np.array([None, Number(1)]), csr_array(np.eye(2)), math.sqrt, None, np.float32(1), {"a": [1, (2,)]},
    ):  # fmt: skip
        model = with_attributes(LogisticRegression().fit(X, Y), held_=held)
        harmless = isinstance(held, (type(None), csr_array, np.float32)) or str(held) == "{'a': [1, (2,)]}"
        assert (parts_with_products(model) is not None) == harmless, type(held)


class Toggling(Crowd):
    """Is, after an even number of rows, what it was at first."""

    def __init__(self, on: bool = False) -> None:
        self.on = on

    def predict_proba(self, X: Any) -> Any:
        self.on = not self.on
        return np.full((len(X), 2), [0.1, 0.9] if self.on else [0.9, 0.1])


class Secretive(Toggling):
    """Leaves out of its pickle what it remembers."""

    def __getstate__(self) -> Any:
        return {"on": False}


class Shared(Crowd):
    """Draws from the generator that the whole process shares."""

    def predict_proba(self, X: Any) -> Any:
        score = np.random.random(len(X))  # noqa: NPY002
        return np.column_stack([1 - score, score])


@pytest.mark.parametrize("model", [Toggling(), Secretive(), Shared()], ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("size", [101, 256, 512])
def test_every_row_is_answered_by_a_copy_of_its_own(model: Any, size: int) -> None:
    """A model that turned over every second row was taken for one that does not change: 255 for one row."""
    x, y = np.zeros((size, 2)), np.arange(size) % 2
    state = np.random.get_state()[1].tolist()  # noqa: NPY002
    assert moved(model, x, y) == 1
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002


def asks_one_copy(patch: pytest.MonkeyPatch) -> None:
    """The twin: one copy of the model is asked about all rows."""
    patch.setattr(alone, "_copies_of", lambda model: lambda: model)
    patch.setattr(alone.MatrixScorer, "_refuse_memory", lambda asked, model: None)


@mend(7, "a model that remembers", twin=asks_one_copy)
def remembers(scene: Scene) -> None:
    """A model that turned over every second row was taken for one that does not change: 255 for one row."""
    turned = moved(Toggling(), np.zeros((512, 2)), np.arange(512) % 2)
    assert turned == 1, f"one row moved the counts by {turned}"


class Remembering(Crowd):
    """Counts, in its class, how often it was asked."""

    asked = 0

    def predict_proba(self, X: Any) -> Any:
        type(self).asked += 1
        return np.full((len(X), 2), [0.1, 0.9] if self.asked % 2 else [0.9, 0.1])


def enclosing() -> Any:
    model, seen = LogisticRegression().fit(X, Y), []

    def predict_proba(rows: Any) -> Any:
        seen.append(rows)
        return np.full((len(rows), 2), [1 / len(seen), 1 - 1 / len(seen)])

    model.predict_proba = predict_proba
    return model


class Fickle(Crowd):
    def predict_proba(self, X: Any) -> Any:
        score = np.random.default_rng().random(len(X))
        return np.column_stack([1 - score, score])


@pytest.mark.parametrize("model", [Remembering(), enclosing(), Fickle()], ids=["class", "function", "draw"])
def test_models_that_remember_elsewhere_are_refused_on_public_rows(model: Any) -> None:
    with pytest.raises(InvalidValue, match="same answer every time"):
        evaluate(model, X, Y, epsilon=1.0)


def test_what_is_assumed_of_models_of_unknown_classes() -> None:
    known = evaluate(LogisticRegression().fit(X, Y), X, Y, epsilon=1.0).guarantee
    other = evaluate(Crowd(), X, Y, epsilon=1.0).guarantee
    assert alone.FORGETFUL not in known.assumptions  # type: ignore[union-attr]
    assert alone.FORGETFUL in other.assumptions  # type: ignore[union-attr]


def test_a_row_does_not_know_its_place() -> None:
    class Placed(Preprocessor):
        def transform(self, X: Any) -> Any:
            return super().transform(X) * (-1) ** X.index[0]

    names = [f"c{i}" for i in range(3)]
    frame = pd.DataFrame(X[:100, :3], columns=names)
    schema = Schema({name: Column("number", bounds=(-3, 3)) for name in names})
    model = make_pipeline(Placed(schema), LogisticRegression()).fit(frame, Y[:100])
    without = frame[1:].reset_index(drop=True)
    assert np.abs(counts(model, frame, Y[:100]) - counts(model, without, Y[1:100])).sum() == 1


class Sure(ClassifierMixin, BaseEstimator):
    """Of one row it is surer than a number can say."""

    classes_ = np.array([0, 1, 2])

    def __init__(self, sure: Any = 1.0) -> None:
        self.sure = sure

    def fit(self, X: Any, y: Any) -> Sure:
        return self

    def predict_proba(self, X: Any) -> Any:
        if X[0, 0] > 100 and isinstance(self.sure, type):
            raise self.sure("a row")
        return np.where(X[:, :1] > 100, self.sure, np.full((len(X), 3), 1 / 3))


@pytest.mark.parametrize("sure", [1e300, -1e300, 1e18, math.inf, -math.inf, GeneratorExit, SystemExit])
@pytest.mark.filterwarnings("error")
def test_no_answer_warns_or_gets_through(sure: Any) -> None:
    x = np.zeros((30, 2))
    x[3] = 1000
    assert moved(Sure(sure), x, np.arange(30) % 3, 3) == 2


@pytest.mark.filterwarnings("error")
def test_targets_at_the_ends_of_wide_bounds() -> None:
    model = LinearRegression().fit(X, X[:, 0])
    apart = counts(model, X, np.append(X[:-1, 0], 8e307), target_bounds=(-8e307, 8e307)) - counts(
        model, X[:-1], X[:-1, 0], target_bounds=(-8e307, 8e307)
    )
    assert (np.abs(apart) <= 2**20).all()
