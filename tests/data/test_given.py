"""One value never decides how others are read, whatever it is and however it is handed over."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tacit.data.features import Features
from tacit.data.given import column, matrix, real
from tacit.data.units import bounded_units, unit_numbers
from tacit.errors import EngineFailed, InvalidValue
from tacit.estimators import LinearRegression, LinearSVC, LogisticRegression
from tacit.estimators.linear.losses import HuberHinge, Squared
from tacit.estimators.linear.noise.exponential import NoisyChoice
from tacit.estimators.linear.noise.objective import NoisyObjective
from tacit.estimators.linear.noise.place import Problem
from tacit.estimators.linear.rows import ScaledRows, Space
from tacit.evaluation import evaluate
from tacit.randomness import Source


class Odd:
    def __float__(self) -> float:
        raise RuntimeError("secret")


ODD = [
    "x", "12", b"\xff", None, math.nan, math.inf, 5j, np.complex128(1j), np.longdouble("1e4000"), pd.NA,
    pd.NaT, 10**400, Decimal("NaN"), Decimal("1e1000000"), Odd(), [1, 2], object(), np.float32(2.0), True,
]  # fmt: skip
X = np.random.default_rng(1).normal(size=(300, 2))
Y = (X[:, 0] > 0).astype(int)


def model(**more: Any) -> LogisticRegression:
    return LogisticRegression(5.0, norm=3.0, classes=[0, 1], random_state=1, **more)


@pytest.mark.parametrize("odd", ODD, ids=[f"{type(odd).__name__}{i}" for i, odd in enumerate(ODD)])
class TestOneOddValue:
    def test_in_a_list_of_labels(self, odd: Any) -> None:
        without = model().fit(X[:-1], Y[:-1].tolist()).coef_
        beside = model().fit(X, [*Y[:-1].tolist(), odd]).coef_
        known = isinstance(odd, (int, bool)) and odd in (0, 1)
        assert beside == pytest.approx(without, abs=0.2 if known else 1e-3)

    def test_among_features(self, odd: Any) -> None:
        rows = [[True, 1.5], [np.float32(0.1), "2"], [odd, 3.0]]
        cells = np.empty((3, 2), dtype=object)
        for place in np.ndindex(3, 2):
            cells[place] = rows[place[0]][place[1]]
        for handed in (rows, cells):
            read = matrix(handed)
            assert read[:2].tolist() == [[1.0, 1.5], [float(np.float32(0.1)), 2.0]]
        assert read[2, 1] == 3.0

    def test_among_targets(self, odd: Any) -> None:
        target = [True, 0.25, np.float32(0.5), odd]
        assert real(column("y", target))[:3].tolist() == [1.0, 0.25, 0.5]
        LinearRegression(1.0, norm=3.0, target_bounds=(0, 1), random_state=1).fit(X[:4], target)

    def test_among_groups(self, odd: Any) -> None:
        groups = column("groups", [2**60, 2**60 + 1, 2**60 + 2, odd])
        assert len(set(unit_numbers(groups)[:3].tolist())) == 3

    def test_in_an_evaluation(self, odd: Any) -> None:
        fitted = model().fit(X, Y)
        labels = [*Y[:-1].tolist(), odd]
        cells = [*map(list, X[:-1]), [odd, 0.0]]
        frame = pd.DataFrame(cells, columns=["a", "b"])
        named = model().fit(pd.DataFrame(X, columns=["a", "b"]), Y)
        for who, rows, truth in ((fitted, X, labels), (fitted, cells, Y), (named, frame, Y)):
            found = evaluate(who, rows, truth, epsilon=1e5, random_state=1)
            assert found.accuracy == pytest.approx(fitted.score(X, Y), abs=0.02)


def test_missing_groups_and_equal_ones() -> None:
    equal = [1, 1.0, True, np.int64(1), np.float32(1), Decimal(1), Decimal("1.0"), Fraction(1)]
    missing = [None, math.nan, np.float32("nan"), pd.NA, pd.NaT, Decimal("NaN")]
    numbers = unit_numbers(column("groups", [*equal, *missing, "1"]))
    assert set(numbers[:8].tolist()) == {0}
    assert set(numbers[8:14].tolist()) == {-1}
    assert numbers[14] == 1
    gaps = pd.Series(["a", None, "a", None], dtype="string")
    assert bounded_units(column("groups", gaps), 1, Source(1)).sum() == 1
    ids = pd.Series([2**60, 2**60 + 1], dtype="Int64")
    assert len(set(unit_numbers(column("groups", ids)).tolist())) == 2


def test_masked_values_are_missing() -> None:
    masked = np.ma.array(X[:3], mask=[[0, 0], [1, 0], [0, 0]])
    assert np.isnan(matrix(masked)).sum() == 1
    assert column("y", np.ma.array([1, 0], mask=[1, 0])).tolist() == [None, 0]


@pytest.mark.parametrize(
    "bad", ["text", 3, [1, 2], [[1], [1, 2]], np.zeros(3), np.zeros((1, 2, 3))], ids=repr
)
def test_what_is_no_matrix(bad: Any) -> None:
    with pytest.raises(InvalidValue):
        matrix(bad)


def test_targets_stay_within_one() -> None:
    for bounds in ((2.0**53, 2.0**53 + 2), (1.7e18, 1.7e18 + 256)):
        made = LinearRegression(1.0, norm=1.0, target_bounds=bounds)
        values = np.array([bounds[0], bounds[1], bounds[1] * 2, -1e300])
        assert np.abs(made._targets(values)).max() <= 1


def test_several_outputs_are_no_grid() -> None:
    with pytest.raises(InvalidValue, match="two classes"):
        LinearSVC(1.0, noise="exponential", classes=[0, 1, 2], norm=1.0, fit_intercept=False).fit(X[:, :1], Y)
    for loss in (HuberHinge(1), Squared()):
        assert NoisyChoice(Problem(loss, 2, 1.0)).event is not None


@pytest.mark.parametrize("corner", [0.0, -100.0, math.nan])
def test_corners(corner: float) -> None:
    with pytest.raises(InvalidValue, match="corner"):
        LinearSVC(1.0, classes=[0, 1], norm=1.0, corner=corner).fit(X, Y)


@pytest.mark.parametrize(("C", "epsilon"), [(1e6, 20.0), (1e7, 20.0), (1e5, 16.0)])
@pytest.mark.parametrize("kind", [LogisticRegression, LinearSVC])
def test_a_tiny_penalty_does_not_make_the_solver_fail(kind: type, C: float, epsilon: float) -> None:
    x = np.random.default_rng(2).uniform(-1, 1, size=(200, 3))
    for seed in range(6):
        kind(epsilon, bounds=(-1, 1), classes=[0, 1], C=C, random_state=seed).fit(x, x[:, 0] > 0)
    assert NoisyObjective(Problem(HuberHinge(1), 3, epsilon, penalty=1 / C))._tolerance >= 1e-7


@pytest.mark.parametrize("norm", [5e-324, 1e-310, 1e200])
def test_norms_that_squares_leave(norm: float) -> None:
    with pytest.raises(InvalidValue, match="norm"):
        model().set_params(norm=norm).fit(X, Y)


@pytest.mark.parametrize("bounds", [(1e308, 1.5e308), (0, 5e-324), (-1e200, 1e200)])
def test_bounds_that_squares_leave(bounds: Any) -> None:
    with pytest.raises(InvalidValue, match="bounds"):
        LogisticRegression(1.0, bounds=bounds, classes=[0, 1]).fit(X, Y)


def test_facts_are_checked() -> None:
    for lower, upper, norm in (((-math.inf,), (1.0,), None), ((2.0,), (1.0,), None), ((0.0,), (1.0,), -1.0),
                               ((0.0,), (1.0,), math.inf), ((math.nan,), (1.0,), None)):  # fmt: skip
        with pytest.raises(InvalidValue):
            Features(("a",), lower, upper, norm)


def test_rows_stay_within_one() -> None:
    generator = np.random.default_rng(3)
    for norm in (1e-100, 1e-3, 1.0, 1e100):
        raw = generator.normal(size=(500, 4)) * np.exp(generator.normal(size=(500, 1)) * 100)
        space = Space.of(np.full(4, -np.inf), np.full(4, np.inf), norm, intercept=True)
        for x, _ in ScaledRows(raw, np.zeros((500, 1)), space).blocks():
            assert np.linalg.norm(x, axis=1).max() <= 1 + 1e-15


def test_a_score_does_not_depend_on_other_rows() -> None:
    fitted = model().fit(np.random.default_rng(4).normal(size=(200, 37)), np.arange(200) % 2)
    x = np.random.default_rng(5).normal(size=(1, 37))
    alone = fitted.decision_function(x)[0]
    for size in (2, 7, 64, 99, 100, 1000):
        assert set(fitted.decision_function(np.repeat(x, size, axis=0)).tolist()) == {alone}


class Failing(LogisticRegression):
    def predict_proba(self, X: Any) -> Any:
        raise ValueError(f"cannot score {X[0]}")


def test_what_a_model_says_is_withheld() -> None:
    failing = Failing(5.0, norm=3.0, classes=[0, 1], random_state=1).fit(X, Y)
    with pytest.raises(EngineFailed) as raised:
        evaluate(failing, X, Y, epsilon=1.0)
    assert "cannot score" not in str(raised.value)
    assert raised.value.__context__ is None


def test_a_bought_count_is_of_the_rows_that_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.estimators import purchases

    seen: list[int] = []
    buy = purchases.CountPurchase.buy

    def noted(self: Any, rows: int, source: Source) -> int:
        seen.append(rows)
        return buy(self, rows, source)

    monkeypatch.setattr(purchases.CountPurchase, "buy", noted)
    model(population="dp", rows_per_unit=2).fit(X, Y, units=np.zeros(300))
    assert seen == [2]
