"""Attacks on statistics, linked tables, and models that answer: found without protection, not with it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.linear_model import LinearRegression as Plain
from sklearn.linear_model import LogisticRegression as PlainLogistic
from sklearn.tree import DecisionTreeClassifier

import tacit
from tacit import attacks, mechanisms
from tacit.errors import InvalidValue


def test_averaging_finds_a_count_and_a_budget_stops_it(tmp_path: Path) -> None:
    noisy = mechanisms.Laplace(1.0, epsilon=0.5, random_state=1)
    free = attacks.average(lambda: noisy(41.0), attacks.queries_needed(2.0))
    assert round(free.value) == 41
    assert not free.refused
    with tacit.Ledger.open(tmp_path / "study.db", budget=tacit.Budget(epsilon=2.0)) as ledger:

        def ask() -> float:
            with ledger.charge(noisy.event, label="count", noise="seeded"):
                return float(noisy(41.0))

        stopped = attacks.average(ask, 100)
    assert (stopped.answers, stopped.refused) == (4, True)
    assert stopped.standard_error > 0.3


def test_nothing_was_answered() -> None:
    def refuse() -> float:
        raise tacit.BudgetExceeded("no", "stop")

    found = attacks.average(refuse, 3)
    assert math.isnan(found.value)
    assert found.answers == 0


@pytest.mark.parametrize("method", ["least_squares", "linear_program"])
def test_reconstruction_needs_noise_below_the_root_of_n(method: str) -> None:
    generator = np.random.default_rng(2)
    people = 64
    secret = generator.integers(0, 2, people)
    subsets = generator.integers(0, 2, (4 * people, people))
    exact = subsets @ secret
    close = attacks.reconstruct(subsets, exact + generator.uniform(-1, 1, exact.size), method=method)
    noise = generator.laplace(scale=4 * people, size=exact.size)
    far = attacks.reconstruct(subsets, exact + noise, method=method)
    assert close.agreement(secret) >= 0.95
    assert far.agreement(secret) < 0.75


def people(count: int, generator: np.random.Generator) -> list[dict[int, tuple[float, float]]]:
    """Ratings of a few of 300 films, some of which nearly everybody has seen."""
    share = 1 / (1 + np.arange(300))
    records = []
    for _ in range(count):
        films = generator.choice(300, size=12, replace=False, p=share / share.sum())
        records.append({
            int(film): (float(generator.integers(1, 6)), float(generator.integers(0, 2000))) for film in films
        })  # fmt: skip
    return records


def test_the_scoreboard_finds_people_from_six_ratings() -> None:
    generator = np.random.default_rng(3)
    records = people(400, generator)
    found = wrong = 0
    for place in range(0, 400, 8):
        items = generator.choice(sorted(records[place]), size=6, replace=False)
        known = {}
        for item in items.tolist():
            rating, day = records[place][item]
            known[item] = (rating + generator.integers(-1, 2), day + generator.integers(-14, 15))
        result = attacks.scoreboard(known, records)
        found += result.record == place
        wrong += result.record not in (place, None)
    assert found >= 40
    assert wrong <= 2


def test_a_stranger_is_not_found() -> None:
    generator = np.random.default_rng(4)
    records, strangers = people(300, generator), people(20, generator)
    named = [attacks.scoreboard(stranger, records).record for stranger in strangers]
    assert sum(record is not None for record in named) <= 10
    assert attacks.scoreboard({999: (5.0, 1.0)}, records).record is None


def test_a_day_that_is_not_known_does_not_protect_everybody() -> None:
    generator = np.random.default_rng(9)
    records: list[Any] = people(100, generator)
    known = dict(list(records[7].items())[:6])
    assert attacks.scoreboard(known, records).record == 7
    first = next(iter(known))
    records[3][first] = (math.nan, None)
    unsure = {**known, first: (known[first][0], None)}
    assert attacks.scoreboard(unsure, records).record == 7


def test_missing_values_of_pandas_are_not_known() -> None:
    table = pd.DataFrame({"sex": ["f", "m", None], "year": pd.array([1962, pd.NA, 1990], dtype="Int64")})
    known = pd.DataFrame({"sex": ["f", "m"], "year": pd.array([pd.NA, 1990], dtype="Int64")})
    assert attacks.link(known.astype(object), table.astype(object)).tolist() == [0, -1]


def test_saturated_answers_give_no_equations() -> None:
    """Probabilities that were rounded to 0 and 1 made wrong weights; the others alone give the right ones."""
    weights = np.array([40.0, -25.0])

    def answer(rows: np.ndarray) -> np.ndarray:
        odds = rows @ weights - 3
        return np.column_stack([expit(-odds), expit(odds)])

    copy = attacks.solve_linear(answer, features=2, kind="probability", lower=-3, upper=3, questions=200)
    assert np.allclose(copy.weights, weights, rtol=0.05)
    with pytest.raises(InvalidValue, match="lower="):
        attacks.solve_linear(answer, features=2, kind="probability", lower=90, upper=99, questions=50)


def test_inversion_of_steps_and_within_bounds() -> None:
    """Within a leaf no probe changes the score; the attack probes farther, and never asks outside."""
    asked = []

    def score(rows: np.ndarray) -> np.ndarray:
        asked.append(rows)
        return np.floor(4 * rows.mean(axis=1))

    found = attacks.invert(score, np.full(3, -0.4), steps=100)
    assert found.score >= 3
    assert min(rows.min() for rows in asked) >= 0
    assert max(rows.max() for rows in asked) <= 1


def test_linked_rows_are_unique_ones() -> None:
    table = np.array([["f", 30, "x"], ["f", 31, "x"], ["m", 30, "y"], ["m", 30, "z"]], dtype=object)
    known = np.array([["f", 31, None], ["m", 30, math.nan], ["m", 30, "z"], ["m", 99, "z"]], dtype=object)
    assert attacks.link(known, table).tolist() == [1, -1, 3, -1]


@pytest.mark.parametrize("classes", [2, 4])
def test_equations_give_the_weights_of_a_linear_model(classes: int) -> None:
    generator = np.random.default_rng(5)
    X = generator.random((400, 6))
    y = (X @ generator.normal(size=(6, classes))).argmax(axis=1)
    model = PlainLogistic().fit(X, y)
    copy = attacks.solve_linear(model.predict_proba, features=6, kind="probability")
    assert copy.questions == 7
    against = model.coef_ if classes == 2 else model.coef_[1:] - model.coef_[:1]
    assert np.allclose(copy.weights, against, atol=1e-6)
    numbers = Plain().fit(X, X @ np.arange(6.0))
    found = attacks.solve_linear(numbers.predict, features=6, kind="regression")
    assert np.allclose(found.weights, np.arange(6))


def test_a_black_box_is_imitated() -> None:
    generator = np.random.default_rng(6)
    X = generator.random((2000, 4))
    box = DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, (X[:, 0] * X[:, 1] > 0.25).astype(int))
    result = attacks.distil(
        box.predict, DecisionTreeClassifier(random_state=0), lambda n, rng: rng.random((n, 4)), questions=1500
    )
    assert result.fidelity > 0.9
    assert result.questions == 1500


def test_inversion_finds_the_mean_of_a_class() -> None:
    """White box and black box reach an input that the class is sure of."""
    generator = np.random.default_rng(7)
    centres = generator.random((3, 20))
    X = np.repeat(centres, 50, axis=0) + 0.1 * generator.normal(size=(150, 20))
    model = PlainLogistic().fit(X, np.repeat(np.arange(3), 50))

    def score(rows: np.ndarray) -> np.ndarray:
        return model.predict_log_proba(rows)[:, 1]

    def gradient(row: np.ndarray) -> np.ndarray:
        return model.coef_[1] - model.predict_proba(row[None])[0] @ model.coef_

    start = np.full(20, 0.5)
    for found in (attacks.invert(score, start, gradient=gradient), attacks.invert(score, start)):
        assert found.score > math.log(0.95)
        distances = np.linalg.norm(centres - found.input, axis=1)
        assert distances.argmin() == 1


def test_an_attribute_is_inferred_from_the_answers() -> None:
    generator = np.random.default_rng(8)
    X = generator.integers(0, 2, (600, 3)).astype(float)
    y = (X[:, 0] + generator.random(600) > 0.8).astype(int)
    model = PlainLogistic().fit(X, y)
    guessed = attacks.infer_attribute(model.predict_proba, X * [0, 1, 1], y, column=0, values=[0, 1])
    assert (guessed == X[:, 0]).mean() > 0.75
    sure = attacks.infer_attribute(model.predict_proba, X, y, column=0, values=[0, 1], prior=[1, 0])
    assert not sure.any()


@pytest.mark.parametrize(
    "call",
    [
        lambda: attacks.average(lambda: 1.0, 0),
        lambda: attacks.reconstruct([[1, 0]], [1.0, 2.0]),
        lambda: attacks.reconstruct([[1, 0]], [math.nan]),
        lambda: attacks.reconstruct([[1, 0]], [1.0], method="luck"),
        lambda: attacks.scoreboard({}, []),
        lambda: attacks.link([["a"]], [["a", "b"]]),
        lambda: attacks.solve_linear(lambda rows: rows, features=2, kind="labels"),
        lambda: attacks.solve_linear(lambda rows: np.ones((3, 1)), features=2, kind="probability"),
        lambda: attacks.distil(
            lambda rows: np.zeros(len(rows)), PlainLogistic(), lambda n, rng: rng.random((n, 1)), questions=40
        ),
        lambda: attacks.infer_attribute(lambda rows: rows, [[1.0]], [0], column=1, values=[0, 1]),
        lambda: attacks.infer_attribute(lambda rows: rows, [[1.0]], ["a"], column=0, values=[0, 1]),
        lambda: attacks.infer_attribute(lambda rows: rows, [[1.0]], [1], column=0, values=[0, 1]),
        lambda: attacks.invert(lambda rows: [1.0, 2.0], [0.5]),
        lambda: attacks.invert(lambda rows: [1.0], [0.5], lower=1.0, upper=1.0),
    ],
)
def test_what_is_refused(call: Any) -> None:
    with pytest.raises(InvalidValue):
        call()
