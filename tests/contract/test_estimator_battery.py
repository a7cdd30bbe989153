"""What every estimator inherits, with noise at every place where it can enter.

How large the noise is and what an audit finds is tested beside each place, in tests/estimators.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.registry import check_json, check_repetition
from tacit import Budget, Ledger, Unit, accounting
from tacit.errors import BudgetExceeded, InvalidValue
from tacit.estimators import LinearRegression, LinearSVC, LogisticRegression, Ridge
from tacit.estimators.linear import model as linear_model
from tacit.estimators.linear.noise import PLACES
from tacit.relations import Relation

CLASSIFIED = {"classes": [0, 1]}
MEASURED = {"target_bounds": (0, 1)}
KINDS: dict[type, dict[str, Any]] = {
    LogisticRegression: CLASSIFIED, LinearSVC: CLASSIFIED, LinearRegression: MEASURED, Ridge: MEASURED,
}  # fmt: skip
FITS = {
    LogisticRegression: ("objective", "output", "functional", "gradient", "input", "exponential"),
    LinearSVC: ("objective", "output", "gradient", "input", "exponential"),
    LinearRegression: ("statistics", "functional", "gradient", "input", "exponential"),
    Ridge: ("statistics", "functional", "gradient", "input", "exponential"),
}
CASES = [
    pytest.param(kind, place, delta, id=f"{kind.__name__}-{place}-{'pure' if delta == 0 else 'approximate'}")
    for kind, places in FITS.items()
    for place in places
    for delta in (0.0, 1e-3)
]
X = np.array([[0.5, 0.5], [-0.5, 0.5], [1.0, 0.0], [0.2, -0.9]])
Y = np.array([1, 0, 1, 0])


def model(kind: type, place: str, delta: float, epsilon: float = 1.0, **more: Any) -> Any:
    return kind(epsilon, delta, noise=place, bounds=(-1, 1), population=4, **{**KINDS[kind], **more})


def test_every_place_is_here() -> None:
    assert {place for places in FITS.values() for place in places} == set(PLACES)


@pytest.mark.parametrize(("kind", "place", "delta"), CASES)
class TestEveryFit:
    def test_the_event(self, kind: type, place: str, delta: float) -> None:
        event = model(kind, place, delta).plan(2).event
        check_json(event)
        if place != "gradient":
            check_repetition(event)

    @pytest.mark.parametrize("relation", list(Relation))
    @pytest.mark.parametrize("rows", [1, 3])
    def test_the_claim(self, kind: type, place: str, delta: float, relation: Relation, rows: int) -> None:
        """The event costs no more than was asked for, nor much less, whoever is protected."""
        for epsilon in (0.2, 4.0):
            made = model(kind, place, delta, epsilon, relation=relation, rows_per_unit=rows)
            spent = accounting.epsilon(made.plan(2).event, delta, relation=relation)
            assert 0.8 * epsilon <= spent <= epsilon * (1 + 1e-6)

    def test_fits_are_fresh(self, kind: type, place: str, delta: float) -> None:
        """Of noisy rows nothing may be left, one time in five, and then the weights are 0: twelve fits."""
        fits = [model(kind, place, delta).fit(X, Y) for _ in range(12)]
        fits += [model(kind, place, delta, random_state=seed).fit(X, Y) for seed in (1, 2, 3, 4, 1)]
        weights = [np.append(np.ravel(fit.coef_), fit.intercept_) for fit in fits]
        assert len({tuple(row) for row in weights[:12]}) > 1
        assert len({tuple(row) for row in weights[12:16]}) > 1
        assert weights[12].tolist() == weights[16].tolist()
        kinds = [fits[0].guarantee_.noise, fits[12].guarantee_.noise]
        assert kinds == [model(kind, place, delta).plan(2).kind, "seeded"]
        assert all(np.isfinite(row).all() for row in weights)

    def test_charged_first(
        self, kind: type, place: str, delta: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        touched: list[int] = []
        prepare = linear_model.ScaledRows

        def recording(*arguments: Any) -> Any:
            with Ledger.open(tmp_path / "rich.db") as second:
                touched.append(len(second.entries()))
            return prepare(*arguments)

        monkeypatch.setattr(linear_model, "ScaledRows", recording)
        budget = {"delta": delta} if delta else {}
        with Ledger.open(tmp_path / "poor.db", Budget(0.5, **budget)) as ledger:
            with pytest.raises(BudgetExceeded):
                model(kind, place, delta, ledger=ledger).fit(X, Y)
            assert not touched
            assert not ledger.entries()
        with Ledger.open(tmp_path / "rich.db", Budget(1 + 1e-6, **budget)) as ledger:
            made = model(kind, place, delta, ledger=ledger).fit(X, Y)
            assert touched == [1]
            assert [entry.event for entry in ledger.entries()] == [made.event_]
            assert made.guarantee_.epsilon == 1.0

    def test_people(self, kind: type, place: str, delta: float) -> None:
        made = model(kind, place, delta, rows_per_unit=2, random_state=1)
        made.fit(X, Y, units=["a", "a", "a", "b"])
        assert made.guarantee_.unit == Unit("unit", 2)

    def test_odd_rows(self, kind: type, place: str, delta: float) -> None:
        """None of these may raise, warn, or show in the shape."""
        for x, y in (
            (np.zeros((0, 2)), np.zeros(0)),
            (np.full((3, 2), np.nan), np.ones(3)),
            (np.array([[np.inf, 1.0], [1e308, -1e308]]), np.array([1.0, np.nan])),
            (X, np.array([7, -1, 9, 3])),
            (X, np.ones(4)),
            (X[:1], Y[:1]),
        ):
            made = model(kind, place, delta, random_state=1).fit(x, y)
            assert np.isfinite(made.coef_).all()
            assert made.predict(X).shape == (4,)

    def test_the_guarantee_travels(self, kind: type, place: str, delta: float) -> None:
        made = model(kind, place, delta, random_state=1).fit(X, Y)
        told = json.loads(made.guarantee_.to_json())
        assert (told["epsilon"], told["delta"], told["noise"]) == (1.0, delta, "seeded")

    @pytest.mark.parametrize(
        "bad",
        [
            {"epsilon": 0.0}, {"epsilon": math.nan}, {"epsilon": "1"}, {"delta": -1e-9}, {"delta": 1.0},
            {"bounds": None}, {"bounds": (1, -1)}, {"relation": "both"}, {"noise": {"unknown": 1}}, {"noise": "unknown"},
            {"rows_per_unit": 0}, {"population": -1}, {"random_state": "seed"},
        ],
        ids=str,
    )  # fmt: skip
    def test_bad_parameters(self, kind: type, place: str, delta: float, bad: dict[str, Any]) -> None:
        made = model(kind, place, delta)
        made.set_params(**bad)
        with pytest.raises(InvalidValue):
            made.fit(X, Y)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_places_that_do_not_apply_say_so(kind: type, place: str) -> None:
    if place not in FITS[kind]:
        with pytest.raises(InvalidValue, match="can be fitted"):
            model(kind, place, 0.0).fit(X, Y)
