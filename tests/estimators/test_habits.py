"""Habits of scikit-learn's users: copies, searches, worker processes, scores, missing values, weights."""

from __future__ import annotations

import math
import pickle
import warnings
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from joblib.externals.loky import get_reusable_executor
from sklearn import linear_model as plain
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from tacit import Budget, Ledger, Schema, accounting
from tacit.errors import BudgetExceeded, InvalidValue, LedgerCorrupted, LedgerError, NotCovered
from tacit.estimators import LinearRegression, LinearSVC, LogisticRegression, Preprocessor, Ridge
from tacit.estimators.linear.noise import Statistics
from tacit.estimators.linear.rows import ScaledRows, Space
from tacit.estimators.private import FOLDS
from tacit.ledger.book import Book
from tacit.models import telling
from tacit.schema import Column

KINDS = (LogisticRegression, LinearSVC, LinearRegression, Ridge)


def told(kind: type, epsilon: float = 1.0, delta: float = 0.0, **more: Any) -> Any:
    facts: dict[str, Any] = {"bounds": (-3, 3), "random_state": 1}
    facts |= {"target_bounds": (-3, 3)} if issubclass(kind, LinearRegression) else {"classes": [0, 1]}
    return kind(epsilon, delta, **{**facts, **more})


def data(size: int = 400, seed: int = 1) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(size, 2))
    return x, (x[:, 0] + 0.3 * generator.normal(size=size) > 0).astype(int)


@pytest.fixture(scope="module", autouse=True)
def _no_threads_left() -> Iterator[None]:
    """The threads of joblib's pool would disturb, in this process, tests of training that follow."""
    yield
    get_reusable_executor().shutdown(wait=True)


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "_told", set())


class TestOneLedger:
    def test_copies_share_it(self, tmp_path: Path) -> None:
        x, y = data()
        with Ledger.open(tmp_path / "a.db", Budget(5.0)) as ledger:
            model = told(LogisticRegression, ledger=ledger)
            assert clone(model).ledger is deepcopy(model).ledger is ledger
            clone(model).fit(x, y)
            assert len(ledger.entries()) == 1

    def test_every_fit_of_a_search_is_charged_also_in_worker_processes(self, tmp_path: Path) -> None:
        x, y = data()
        with Ledger.open(tmp_path / "a.db", Budget(50.0)) as ledger:
            model = told(LogisticRegression, ledger=ledger)
            cross_val_score(model, x, y, cv=3, n_jobs=2)
            assert len(ledger.entries()) == 3
            search = GridSearchCV(model, {"epsilon": [0.5, 1.0]}, cv=2, n_jobs=2, scoring="roc_auc").fit(x, y)
            assert len(ledger.entries()) == 3 + 2 * 2 + 1
            assert ledger.spent().epsilon == pytest.approx(3 + 2 * 1.5 + search.best_params_["epsilon"])
            assert FOLDS in search.best_estimator_.guarantee_.assumptions
            ledger.verify()

    def test_refusals_name_the_way_to_a_private_search(self, tmp_path: Path) -> None:
        x, y = data()
        with Ledger.open(tmp_path / "a.db", Budget(1.5)) as ledger:
            model = told(LogisticRegression, ledger=ledger)
            with pytest.raises(BudgetExceeded, match=r"tacit\.estimators\.PrivateSearch") as raised:
                cross_val_score(model, x, y, cv=3, n_jobs=2, error_score="raise")
            assert raised.value.budget == ledger.budget
            assert len(ledger.entries()) == 1
            with pytest.raises(BudgetExceeded) as alone:
                model.fit(x, y)
            assert "tacit.evaluate" not in str(alone.value)

    def test_a_pickled_ledger_is_a_place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with Ledger.open("a.db", Budget(5.0), dataset="study") as ledger:
            text = pickle.dumps(told(LogisticRegression, ledger=ledger))
            monkeypatch.chdir("/")
            again = pickle.loads(text)
            again.fit(*data())
            assert again.ledger.dataset == "study"
            assert len(ledger.entries()) == 1
            again.ledger.close()

    def test_another_ledger_in_its_place_is_refused(self, tmp_path: Path) -> None:
        with Ledger.open(tmp_path / "a.db", Budget(5.0)) as ledger:
            told(LogisticRegression, ledger=ledger).fit(*data())
            text = pickle.dumps(told(LogisticRegression, ledger=ledger))
        (tmp_path / "a.db").unlink()
        with pytest.raises(LedgerError):
            pickle.loads(text)
        Ledger.open(tmp_path / "a.db", Budget(5.0)).close()
        forged = pickle.loads(text)
        with pytest.raises(LedgerCorrupted):
            forged.fit(*data())

    def test_no_password_is_pickled(self, tmp_path: Path) -> None:
        with Ledger.open(tmp_path / "a.db", Budget(5.0)) as ledger:
            book: Book = ledger._book
            url = book.store.location.url.set(username="me", password="secret", host="h")
            object.__setattr__(book.store.location, "url", url)
            with pytest.raises(LedgerError, match="PGPASSWORD") as raised:
                pickle.dumps(ledger)
            assert "secret" not in str(raised.value)

    def test_errors_survive_a_process(self) -> None:
        for error in (InvalidValue("epsilon", -1, "positive"), BudgetExceeded("No.", "Stop.", label="fit")):
            again = pickle.loads(pickle.dumps(error))
            assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@pytest.mark.usefixtures("untold")
class TestScores:
    def test_a_score_says_once_that_it_is_not_covered(self) -> None:
        model = told(LogisticRegression).fit(*data())
        with pytest.warns(NotCovered, match=r"tacit\.evaluate"):
            first = model.score(*data())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert model.score(*data()) == first

    @pytest.mark.parametrize("scoring", [None, "roc_auc"])
    def test_a_search_says_so_whatever_it_scores_by(self, scoring: str | None) -> None:
        with pytest.warns(NotCovered, match="charged nowhere") as found:
            cross_val_score(told(LogisticRegression), *data(), cv=3, scoring=scoring)
        assert len([each for each in found if each.category is NotCovered]) == 1

    def test_a_fit_alone_says_nothing(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made = told(LogisticRegression).fit(*data())
            made.predict(data()[0])
        assert FOLDS not in made.guarantee_.assumptions

    @pytest.mark.parametrize("kind", KINDS)
    def test_every_estimator_says_so(self, kind: type) -> None:
        x, y = data()
        model = told(kind).fit(x, y)
        with pytest.warns(NotCovered):
            make_pipeline("passthrough", model).score(x, y)


class TestMissingValues:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("facts", [{}, {"bounds": None, "norm": 3.0}, {"norm": 2.0}])
    def test_fit_and_predict_read_them_alike(self, kind: type, facts: dict[str, Any]) -> None:
        """A missing value is the middle of its bounds, in an array and in a frame; no row is lost by it."""
        x, y = data()
        holes = x.copy()
        holes[::3, 1] = np.nan
        holes[1::6, 0] = -np.inf
        filled = np.where(np.isfinite(holes), holes, 0.0)
        as_holes, as_filled = (told(kind, **facts).fit(each, y) for each in (holes, filled))
        assert as_holes.coef_.tolist() == as_filled.coef_.tolist()
        expected = as_filled.predict(filled).tolist()
        assert as_holes.predict(holes).tolist() == expected
        assert as_holes.predict(np.full((2, 2), np.nan)).shape == (2,)
        named = pd.DataFrame(holes, columns=["a", "b"])
        nullable = named.convert_dtypes()
        assert told(kind, **facts).fit(nullable, y).predict(nullable).tolist() == expected
        assert told(kind, **facts).fit(named, y).predict(named).tolist() == expected

    def test_the_middle_is_that_of_the_bounds(self) -> None:
        x, y = data()
        facts = {"bounds": ([0, -3], [10, 3])}
        moved = x + np.array([5, 0])
        holes = moved.copy()
        holes[:, 0] = np.nan
        middle = moved.copy()
        middle[:, 0] = 5.0
        model = told(LogisticRegression, **facts).fit(holes, y)
        assert model.coef_.tolist() == told(LogisticRegression, **facts).fit(middle, y).coef_.tolist()
        assert model.decision_function(holes).tolist() == model.decision_function(middle).tolist()

    @pytest.mark.parametrize("norm", [None, 3.0])
    def test_the_middle_of_bounds_that_were_bought(self, norm: float | None) -> None:
        x, y = data(2000)
        model = told(LogisticRegression, 5.0, bounds="dp", norm=norm).fit(x + 20, y)
        lower, upper = model.bounds_
        middle = (lower + upper) / 2
        space = Space.of(lower, upper, None, intercept=True)
        assert space.centre.tolist() == middle.tolist()
        missing = model.decision_function(np.array([[np.nan, 20.0]]))
        assert missing == model.decision_function(np.array([[middle[0], 20.0]]))

    def test_as_the_preprocessor_does(self) -> None:
        schema = Schema({"a": Column("number", bounds=(-3, 3)), "b": Column("number", bounds=(-3, 3))})
        x, y = data()
        x[::4, 0] = np.nan
        frame = pd.DataFrame(x, columns=["a", "b"])
        piped = make_pipeline(Preprocessor(schema), LogisticRegression(1e6, classes=[0, 1], random_state=1))
        alone = LogisticRegression(1e6, bounds=(-3, 3), classes=[0, 1], random_state=1)
        agree = piped.fit(frame, y).predict(frame) == alone.fit(x, y).predict(x)
        assert agree.mean() > 0.99


class TestWeights:
    @pytest.mark.parametrize("kind", KINDS)
    def test_without_noise_they_are_scikit_learns(self, kind: type) -> None:
        if kind is LinearSVC:
            pytest.skip("scikit-learn's LinearSVC has another loss")
        x, labels = data()
        y = labels if kind is LogisticRegression else x @ [0.5, -0.25] + 0.1 * np.sin(9 * x[:, 0])
        w = np.random.default_rng(2).uniform(0, 4, size=len(x))
        facts = {"bounds": None, "norm": 30.0, "weight_bound": 4.0}
        facts |= {"C": 0.3} if kind is LogisticRegression else {"alpha": 5.0} if kind is Ridge else {}
        ours = told(kind, math.inf, **facts).fit(x, y, sample_weight=w)
        own = getattr(plain, kind.__name__)
        theirs = own(**{k: v for k, v in facts.items() if k in ("C", "alpha")}).fit(x, y, sample_weight=w)
        assert np.ravel(ours.coef_) == pytest.approx(np.ravel(theirs.coef_), abs=2e-3)

    @pytest.mark.parametrize("given", [{0: 1.0, 1: 4.0}, "balanced"])
    def test_weights_of_classes(self, given: Any) -> None:
        x, y = data()
        y = y * (x[:, 1] > 0.5)
        ours = told(LogisticRegression, math.inf, bounds=None, norm=30.0, class_weight=given).fit(x, y)
        theirs = plain.LogisticRegression(class_weight=given).fit(x, y)
        assert (ours.predict(x) == theirs.predict(x)).mean() > 0.98
        if given != "balanced":
            assert ours.coef_ == pytest.approx(theirs.coef_, abs=2e-3)

    @pytest.mark.parametrize("kind", [LogisticRegression, LinearSVC])
    def test_balanced_weights_are_bought(self, kind: type) -> None:
        x, y = data(4000)
        rare = y * (x[:, 1] > 1.0)
        plain_, fair = (told(kind, 3.0, class_weight=each).fit(x, rare) for each in (None, "balanced"))
        assert fair.plan(2).parts[1:] == (("classes", pytest.approx(0.15)),)
        assert accounting.epsilon(fair.event_, 0.0) == pytest.approx(3.0)
        found = [each.predict(x)[rare == 1].mean() for each in (plain_, fair)]
        assert found[1] > found[0] + 0.1

    @pytest.mark.parametrize(
        ("facts", "weights"),
        [
            ({"class_weight": {7: 1.0}}, None), ({"class_weight": {1: -1.0}}, None),
            ({"class_weight": "fair"}, None), ({"class_weight": {0: 0.0, 1: 0.0}}, None),
            ({"weight_bound": 0.0}, np.ones(400)), ({"weight_bound": 2.0}, None),
            ({"interval_share": 0.1}, np.ones(400)), ({"interval_share": 0.1, "class_weight": {1: 2}}, None),
            ({}, np.ones(399)),
        ],
    )  # fmt: skip
    def test_what_is_refused(self, facts: dict[str, Any], weights: Any, tmp_path: Path) -> None:
        with Ledger.open(tmp_path / "a.db", Budget(5.0)) as ledger:
            with pytest.raises(InvalidValue):
                told(LogisticRegression, ledger=ledger, **facts).fit(*data(), sample_weight=weights)
            assert not ledger.entries()

    def test_errors_of_weighted_statistics_are_refused(self) -> None:
        model = told(LinearRegression, 1.0, 1e-6, noise=Statistics(residuals=True))
        with pytest.raises(InvalidValue, match="standard errors"):
            model.fit(*data(), sample_weight=np.ones(400))

    def test_odd_weights_raise_nothing(self) -> None:
        x, y = data(7)
        odd = [np.nan, np.inf, -1.0, 1e300, "x", None, 0.5]
        for kind in KINDS:
            assert np.isfinite(told(kind).fit(x, y, sample_weight=odd).coef_).all()
            exact = told(kind).fit(x, y, sample_weight=[0, 0, 0, 1.0, 0, 0, 0.5])
            again = told(kind).fit(x, y, sample_weight=odd)
            assert exact.coef_.tolist() == again.coef_.tolist()

    def test_saved_with_their_bound(self, tmp_path: Path) -> None:
        import tacit

        model = told(LogisticRegression, class_weight={0: 1.0, 1: 3.0}).fit(*data())
        tacit.save(model, tmp_path / "m.tacit")
        again = tacit.load(tmp_path / "m.tacit")
        assert again.predict(data()[0]).tolist() == model.predict(data()[0]).tolist()

    def test_a_block_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from tacit.estimators.linear import rows

        monkeypatch.setattr(rows, "BLOCK", 3)
        x, y = data(8)
        space = Space.of(np.full(2, -3.0), np.full(2, 3.0), None, intercept=True)
        scaled = ScaledRows(x, y[:, None].astype(float), space, None, np.arange(8) / 8)
        found = np.concatenate([np.ravel(w) for _, _, w in scaled.weighted()])
        assert found.tolist() == (np.arange(8) / 8).tolist()
