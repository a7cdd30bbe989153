"""Warnings for an ε above 10 and a δ above 1/population, wherever either is promised."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit import _validate
from tacit.errors import WeakPrivacy
from tacit.training import Plan


@pytest.mark.parametrize(
    ("epsilon", "delta", "population", "said"),
    [
        (10.0, 1e-3, 1000, []),
        (1.0, 0.5, None, []),
        (1.0, 0.5, "dp", []),
        (float("inf"), 0.0, 10, []),
        (10.001, 0.0, None, ["ε = 10.001"]),
        (1000.0, 0.0, None, ["more than 1e300"]),
        (1.0, 1.01e-3, 1000, ["1/population = 0.001"]),
        (20.0, 0.5, 1000, ["ε = 20", "such as 1e-05"]),
    ],
)
def test_what_is_warned_of(epsilon, delta, population, said):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _validate.warn_if_weak(epsilon, delta, population)
    assert len(told) == len(said)
    for one, words in zip(told, said, strict=True):
        assert one.category is WeakPrivacy
        assert words in str(one.message)


def test_plans_estimators_and_tables_warn_at_the_line_of_the_caller(tmp_path):
    with pytest.warns(WeakPrivacy, match="1/population = 0.01") as told:
        Plan(population=100, batch_size=10, epochs=1, clip_norm=1.0, epsilon=1.0, delta=0.05)
    assert told[0].filename == __file__
    X, y = np.zeros((20, 2)), np.arange(20) % 2
    model = tacit.estimators.LogisticRegression(epsilon=12.0, bounds=(-1, 1), classes=[0, 1])
    with pytest.warns(WeakPrivacy, match="ε = 12"):
        model.fit(X, y)
    schema = tacit.Schema({"age": tacit.Column("number", bounds=(0, 99))}, population=20)
    with pytest.warns(WeakPrivacy, match="ε = 30"):
        ledger = tacit.Ledger.open(tmp_path / "study.db", tacit.Budget(30.0, 0.2))
    with ledger, tacit.tables.open(pd.DataFrame({"age": [1.0]}), schema=schema, ledger=ledger) as table:
        with pytest.warns(WeakPrivacy, match="ε = 11"):
            table.count(epsilon=11.0)
        with pytest.warns(WeakPrivacy, match="1/population = 0.05"):
            table.mean("age", epsilon=1.0, delta=0.1)
