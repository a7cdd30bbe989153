"""What every estimator of the registry inherits. An estimator adds one :class:`Fit` or more to FITS.

How large the noise is and what an audit finds is tested beside each estimator, in tests/estimators.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import tacit
from contract.registry import check_json, check_repetition
from tacit import Budget, Ledger, Unit, accounting
from tacit.errors import BudgetExceeded, InvalidValue
from tacit.estimators import (
    ESTIMATORS,
    PCA,
    DecisionTree,
    GradientBoosting,
    KMeans,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    NaiveBayes,
    PrivateSearch,
    RandomTrees,
    Ridge,
    private,
)
from tacit.estimators.linear.noise import PLACES
from tacit.relations import Relation


@dataclass(frozen=True)
class Fit:
    """One way to fit an estimator: its class, the parameters beside (ε, δ), and what may be asked of it."""

    kind: type
    settings: dict[str, Any]
    bad: tuple[dict[str, Any], ...] = ()
    """Parameters of its own that must be refused."""
    repeats: bool = True
    """Whether Repeat of its event is worth the time of every accountant."""
    deltas: tuple[float, ...] = (0.0, 1e-3)

    def model(self, delta: float, epsilon: float = 1.0, **more: Any) -> Any:
        return self.kind(**{"epsilon": epsilon, "delta": delta, **self.settings, **more})


CLASSIFIED = {"classes": [0, 1]}
MEASURED = {"target_bounds": (0, 1)}
KINDS: dict[type, dict[str, Any]] = {
    LogisticRegression: CLASSIFIED, LinearSVC: CLASSIFIED, LinearRegression: MEASURED, Ridge: MEASURED,
}  # fmt: skip
LINEAR = {
    LogisticRegression: ("objective", "output", "functional", "gradient", "input", "exponential"),
    LinearSVC: ("objective", "output", "gradient", "input", "exponential"),
    LinearRegression: ("adaptive", "statistics", "functional", "gradient", "input", "exponential"),
    Ridge: ("adaptive", "statistics", "functional", "gradient", "input", "exponential"),
}
BAD_LINEAR = (
    {"bounds": None}, {"bounds": (1, -1)}, {"noise": {"unknown": 1}}, {"noise": "unknown"},
    {"population": -1},
)  # fmt: skip


def linear(kind: type, place: str) -> Fit:
    settings = {"noise": place, "bounds": (-1, 1), "population": 4, **KINDS[kind]}
    return Fit(kind, settings, BAD_LINEAR, repeats=place != "gradient")


FITS: dict[str, Fit] = {
    f"{kind.__name__}-{place}": linear(kind, place) for kind, places in LINEAR.items() for place in places
}
COUNTED: tuple[tuple[str, type, dict[str, Any], tuple[dict[str, Any], ...]], ...] = (
    ("histogram", NaiveBayes, {}, ({"numbers": "normal"}, {"bins": 1}, {"variance_floor": 0.0})),
    ("gaussian", NaiveBayes, {"numbers": "gaussian"}, ()),
    ("codes", NaiveBayes, {"categories": [2, None]}, ({"categories": [2]}, {"categories": [0, None]})),
    ("exponential", DecisionTree, {"depth": 2}, ({"criterion": "ratio"}, {"choice": "best"}, {"depth": 0})),
    ("entropy", DecisionTree, {"depth": 2, "criterion": "entropy", "population": 9}, ({"population": 0},)),
    ("noisy gain", DecisionTree, {"depth": 2, "choice": "noisy_gain"}, ({"split_share": 0.0},)),
    ("shared", RandomTrees, {"trees": 3, "depth": 2}, ({"vote": "both"}, {"depth": 17}, {"trees": 0})),
    ("disjoint", RandomTrees, {"trees": 3, "depth": 2, "data": "disjoint"}, ({"data": "all"},)),
    ("majority", RandomTrees, {"trees": 3, "depth": 2, "vote": "majority"}, ({"sharpness_share": 1.0},)),
)
BAD_COUNTED = ({"bounds": None, "categories": None}, {"bounds": (1, -1)}, {"classes": [1]}, {"bins": "many"})
FITS |= {
    f"{kind.__name__}-{name}": Fit(kind, {"bounds": (-1, 1), **CLASSIFIED, **more}, (*BAD_COUNTED, *bad))
    for name, kind, more, bad in COUNTED
}
BOOSTED = {"bounds": (-1, 1), "population": 4, "bins": 4, "rounds": 3}
BAD_BOOSTED = (
    {"bounds": None}, {"bounds": (1, -1)}, {"task": "clustering"}, {"population": -1}, {"population": None},
    {"bins": 1}, {"bins": 256}, {"bins": None}, {"categories": [2]}, {"rounds": 0}, {"learning_rate": 0.0},
    {"slope": 0.0}, {"interactions": -1},
)  # fmt: skip
FITS |= {
    "GradientBoosting": Fit(GradientBoosting, BOOSTED | CLASSIFIED, (*BAD_BOOSTED, {"classes": None})),
    "GradientBoosting-bought": Fit(
        GradientBoosting, BOOSTED | CLASSIFIED | {"population": "dp", "bounds": "dp"}, repeats=False
    ),
    "GradientBoosting-three-classes": Fit(GradientBoosting, BOOSTED | {"classes": [0, 1, 2]}),
    "GradientBoosting-regression": Fit(
        GradientBoosting, BOOSTED | MEASURED | {"task": "regression"}, ({"target_bounds": None},)
    ),
    "GradientBoosting-pairs": Fit(GradientBoosting, BOOSTED | CLASSIFIED | {"interactions": 1}, BAD_BOOSTED),
}
SEARCHED = {"bounds": (-1, 1), **CLASSIFIED}
BAD_SEARCH = (
    {"grid": []}, {"grid": {"bins": []}}, {"grid": {"epsilon": [1.0]}}, {"grid": {"trees": [1]}},
    {"grid": "bins"}, {"estimator": None},
    {"trials": 0.5}, {"trials": math.nan}, {"stopping": "never"}, {"stopping": -1.0},
    {"scoring": "r2"}, {"test_share": 0.0}, {"test_share": 1.0}, {"epsilon": math.inf},
    {"estimator": NaiveBayes(classes=[0, 1])}, {"estimator": NaiveBayes(bounds=(-1, 1))},
    {"estimator": PrivateSearch(NaiveBayes(**SEARCHED), {"bins": [2]})},
)  # fmt: skip
FITS |= {
    "PrivateSearch": Fit(
        PrivateSearch, {"estimator": NaiveBayes(**SEARCHED), "grid": {"bins": [2, 4]}, "trials": 3},
        BAD_SEARCH,
    ),
    "PrivateSearch-poisson": Fit(
        PrivateSearch,
        {
            "estimator": LogisticRegression(population=4, **SEARCHED),
            "grid": [{"noise": ["output", "objective"]}, {}], "stopping": "poisson", "trials": 2,
            "scoring": "auroc",
        },
        deltas=(1e-3,),
    ),
    "PrivateSearch-regression": Fit(
        PrivateSearch,
        {
            "estimator": Ridge(bounds=(-1, 1), **MEASURED), "grid": {"alpha": [0.1, 10.0]}, "trials": 2,
            "stopping": "geometric",
        },
        ({"scoring": "accuracy"}, {"estimator": Ridge(bounds=(-1, 1))}), deltas=(0.0,),
    ),
    "PrivateSearch-three-classes": Fit(
        PrivateSearch,
        {"estimator": RandomTrees(bounds=(-1, 1), classes=[0, 1, 2]), "grid": {"depth": [1, 2]},
         "stopping": -0.5, "trials": 2},
        ({"scoring": "auroc"},), repeats=False, deltas=(0.0,),
    ),
}  # fmt: skip
BAD_BALL: tuple[dict[str, Any], ...] = ({"bounds": None}, {"bounds": (1, -1)}, {"norm": -1.0})
IN_BALL = {"bounds": (-1, 1)}
FITS |= {
    "KMeans-tree": Fit(
        KMeans, IN_BALL | {"n_clusters": 3, "depth": 2},
        (*BAD_BALL, {"n_clusters": 0}, {"method": "mini"}, {"passes": 0}, {"depth": 0}),
    ),
    "KMeans-lloyd": Fit(KMeans, {"norm": 1.0, "n_clusters": 2, "method": "lloyd"}, ({"norm": math.nan},)),
    "KMeans-aggregate": Fit(
        KMeans, IN_BALL | {"n_clusters": 2, "method": "aggregate", "blocks": 3}, ({"blocks": 0},)
    ),
    "PCA-auto": Fit(
        PCA, IN_BALL | {"n_components": 1},
        (*BAD_BALL, {"n_components": 3}, {"n_components": 0}, {"method": "svd"}, {"mean": "median"}),
    ),
    "PCA-analyze-gauss": Fit(
        PCA, {"norm": 1.0, "n_components": 2, "method": "analyze_gauss", "mean": "dp"}, deltas=(1e-3,)
    ),
    "PCA-wishart": Fit(PCA, IN_BALL | {"n_components": 1, "method": "wishart", "mean": "dp"}),
    "PCA-sulq": Fit(PCA, IN_BALL | {"n_components": 2, "method": "sulq"}),
    "PCA-exponential": Fit(PCA, IN_BALL | {"n_components": 2, "method": "exponential", "mean": "dp"}),
}  # fmt: skip
CASES = [
    pytest.param(fit, delta, id=f"{name}-{'pure' if delta == 0 else 'approximate'}")
    for name, fit in FITS.items()
    for delta in fit.deltas
]
BAD: tuple[dict[str, Any], ...] = (
    {"epsilon": 0.0}, {"epsilon": math.nan}, {"epsilon": "1"}, {"delta": -1e-9}, {"delta": 1.0},
    {"relation": "both"}, {"rows_per_unit": 0}, {"random_state": "seed"},
)  # fmt: skip
X = np.array([[0.5, 0.5], [-0.5, 0.5], [1.0, 0.0], [0.2, -0.9]])
Y = np.array([1, 0, 1, 0])


def numbers(fitted: Any) -> np.ndarray:
    """All numbers that were released, in a row."""
    found = [getattr(fitted, name) for name in fitted.released if hasattr(fitted, name)]
    found += [numbers(each) for each in found if hasattr(each, "released")]
    kept = [np.ravel(np.asarray(each)) for each in found if each is not None]
    return np.concatenate([each.astype(float) for each in kept if each.dtype.kind in "fiub"])


def answers(fitted: Any, rows: Any) -> np.ndarray:
    """One answer for each row: the prediction, or the first component."""
    return np.asarray(fitted.predict(rows) if hasattr(fitted, "predict") else fitted.transform(rows)[:, 0])


def test_every_estimator_is_here() -> None:
    assert {fit.kind for fit in FITS.values()} == {*ESTIMATORS.values(), PrivateSearch}


def test_every_place_is_here() -> None:
    assert {place for places in LINEAR.values() for place in places} == set(PLACES)


@pytest.mark.parametrize(("fit", "delta"), CASES)
class TestEveryFit:
    def test_the_event(self, fit: Fit, delta: float) -> None:
        event = fit.model(delta).plan(2).event
        check_json(event)
        if fit.repeats:
            check_repetition(event)

    @pytest.mark.parametrize("relation", list(Relation))
    @pytest.mark.parametrize("rows", [1, 3])
    def test_the_claim(self, fit: Fit, delta: float, relation: Relation, rows: int) -> None:
        """The event costs no more than was asked for, nor much less, whoever is protected."""
        for epsilon in (0.2, 4.0):
            made = fit.model(delta, epsilon, relation=relation, rows_per_unit=rows)
            spent = accounting.epsilon(made.plan(2).event, delta, relation=relation)
            assert 0.8 * epsilon <= spent <= epsilon * (1 + 1e-6)

    def test_fits_are_fresh(self, fit: Fit, delta: float) -> None:
        """Of noisy rows nothing may be left, one time in five, and then the weights are 0: twelve fits."""
        fits = [fit.model(delta).fit(X, Y) for _ in range(12)]
        fits += [fit.model(delta, random_state=seed).fit(X, Y) for seed in (1, 2, 3, 4, 1)]
        weights = [numbers(each) for each in fits]
        assert len({tuple(row) for row in weights[:12]}) > 1
        assert len({tuple(row) for row in weights[12:16]}) > 1
        assert weights[12].tolist() == weights[16].tolist()
        kinds = [fits[0].guarantee_.noise, fits[12].guarantee_.noise]
        assert kinds == [fit.model(delta).plan(2).kind, "seeded"]
        assert all(np.isfinite(row).all() for row in weights)

    def test_charged_first(
        self, fit: Fit, delta: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        touched: list[int] = []
        prepare = private.PrivateRows

        def entries() -> int:
            with Ledger.open(tmp_path / "rich.db") as second:
                return len(second.entries())

        def recording(*arguments: Any) -> Any:
            touched.append(entries())
            return prepare(*arguments)

        def read() -> Any:
            touched.append(entries())
            return X, Y, None

        monkeypatch.setattr(private, "PrivateRows", recording)
        budget = {"delta": 2 * delta} if delta else {}
        with Ledger.open(tmp_path / "poor.db", Budget(0.5, **budget)) as ledger:
            made = fit.model(delta, ledger=ledger)
            with pytest.raises(BudgetExceeded):
                made.fit(X, Y)
            with pytest.raises(BudgetExceeded):
                made.fit_rows(2, read)
            assert not touched
            assert not ledger.entries()
            assert not hasattr(made, "guarantee_")
        with Ledger.open(tmp_path / "rich.db", Budget(2 + 1e-6, **budget)) as ledger:
            made = fit.model(delta, ledger=ledger).fit(X, Y)
            assert touched == [1]
            assert [entry.event for entry in ledger.entries()] == [made.event_]
            assert made.guarantee_.epsilon == 1.0
            again = fit.model(delta, ledger=ledger).fit_rows(2, read)
            assert touched == [1, 2, 2]
            assert [entry.event for entry in ledger.entries()] == [made.event_, again.event_]

    def test_people(self, fit: Fit, delta: float) -> None:
        made = fit.model(delta, rows_per_unit=2, random_state=1)
        made.fit(X, Y, units=["a", "a", "a", "b"])
        assert made.guarantee_.unit == Unit("unit", 2)

    def test_odd_rows(self, fit: Fit, delta: float) -> None:
        """None of these may raise, warn, or show in the shape."""
        for x, y in (
            (np.zeros((0, 2)), np.zeros(0)),
            (np.full((3, 2), np.nan), np.ones(3)),
            (np.array([[np.inf, 1.0], [1e308, -1e308]]), np.array([1.0, np.nan])),
            (X, np.array([7, -1, 9, 3])),
            (X, np.ones(4)),
            (X[:1], Y[:1]),
        ):
            made = fit.model(delta, random_state=1).fit(x, y)
            assert np.isfinite(numbers(made)).all()
            assert answers(made, X).shape == (4,)

    def test_the_guarantee_travels(self, fit: Fit, delta: float, tmp_path: Path) -> None:
        made = fit.model(delta, random_state=1).fit(X, Y)
        told = json.loads(made.guarantee_.to_json())
        assert (told["epsilon"], told["delta"], told["noise"]) == (1.0, delta, "seeded")
        tacit.save(made, tmp_path / "model.tacit")
        loaded = tacit.load(tmp_path / "model.tacit")
        assert loaded.guarantee_ == made.guarantee_
        assert answers(loaded, X).tolist() == answers(made, X).tolist()
        assert loaded.describe() == made.describe()

    def test_what_it_says_of_itself(self, fit: Fit, delta: float) -> None:
        made = fit.model(delta, random_state=1).fit(X, Y)
        said = made.describe(["age", "height"])
        assert said.title == getattr(made, "best_estimator_", made).title
        assert {weight.feature for weight in said.weights} <= {"age", "height"}
        sizes = [abs(weight.value) for weight in said.weights]
        assert sizes == sorted(sizes, reverse=True)

    def test_clones_are_the_same(self, fit: Fit, delta: float) -> None:
        made = fit.model(delta)
        copied, params = clone(made).get_params(), made.get_params()
        assert copied.keys() == params.keys()
        assert all(copied[name] == each for name, each in params.items() if name != "estimator")

    def test_bad_parameters(self, fit: Fit, delta: float) -> None:
        for bad in (*BAD, *fit.bad):
            made = fit.model(delta)
            made.set_params(**bad)
            with pytest.raises(InvalidValue):
                made.fit(X, Y)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_places_that_do_not_apply_say_so(kind: type, place: str) -> None:
    if place not in LINEAR[kind]:
        with pytest.raises(InvalidValue, match="can be fitted"):
            linear(kind, place).model(0.0).fit(X, Y)


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [
        ("LinearRegression-adaptive", 1e-8), ("Ridge-adaptive", 1e-8), ("NaiveBayes-histogram", 6e-9),
        ("NaiveBayes-gaussian", 1.2e-9), ("DecisionTree-noisy gain", 1e-8), ("GradientBoosting-pairs", 1e-8),
        ("KMeans-tree", 6e-9),
    ],
)  # fmt: skip
def test_what_was_planned_is_carried_out_however_small_epsilon_is(name: str, epsilon: float) -> None:
    """Laplace noise on many coordinates, of nearly the largest scale there is: no error after the charge."""
    fit = FITS[name]
    for more in ({}, {"fit_intercept": False}) if "fit_intercept" in fit.kind().get_params() else ({},):
        fit.model(0.0, epsilon, random_state=1, **more).fit(X, Y)
