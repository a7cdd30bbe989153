"""A release that was written as JSON and read back is the same release."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tables.test_table import people, schema
from tacit import Budget, Ledger, Unit, tables
from tacit.errors import InvalidValue, TacitError
from tacit.tables.lines import answer_of
from tacit.tables.wire import LEVELS, release_from, release_to

QUESTIONS = (
    "count()", "count() by sex", "count() by sex, ok", "sum(age)", "sum(pay) by town", "mean(age)",
    "mean(age) by town", "mean(day)", "mean(pay, bounds=dp)", "variance(pay)", "std(age) by sex",
    "median(age)", "median(day)", "quantile(age, [0.25, 0.75])", "quantile(pay, 0.9, confidence=None)",
    "median(age) by sex", "histogram(age, 5)", "histogram(sex)", "histogram(pay, [0, 10, 1000]) by sex",
    "histogram(day, 4)", "crosstab(sex, town)", "crosstab(sex, ok, margins=True)",
    "crosstab(ok, sex) by town",
    "crosstab(sex, ok, town)", "covariance(age, pay)", "correlation(age, pay)", "keys(street)",
    "top(town, 2)",
    "bounds(pay)", "check()",
)  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tables.Table]:
    place = tmp_path_factory.mktemp("wire") / "s.db"
    unit = Unit("id", 5)
    with (
        Ledger.open(place, budget=Budget(1e4, 1e-3), unit=unit) as ledger,
        tables.open(people(), schema=schema(unit), ledger=ledger, random_state=3) as opened,
    ):
        yield opened


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other)
    elif isinstance(one, pd.Series):
        pd.testing.assert_series_equal(one, other)
    else:
        assert one == other or (one != one and other != other)


@pytest.mark.parametrize("text", [*QUESTIONS, "count_units()"])
def test_every_answer_comes_back(table: tables.Table, text: str) -> None:
    asked = table.ask(text, epsilon=20.0, delta=1e-5)
    sent = release_from(json.loads(json.dumps(release_to(asked, 0.97), allow_nan=False)))
    same(sent.value, asked.value)
    assert (sent.label, sent.guarantee, sent.bounds) == (asked.label, asked.guarantee, asked.bounds)
    assert answer_of(sent, 0.95) == answer_of(asked, 0.95)
    assert str(sent) == str(asked)
    for level in (*LEVELS, 0.97):
        for simultaneous in (False, True):
            try:
                ends = asked.interval(level, simultaneous=simultaneous)
            except InvalidValue as error:
                with pytest.raises(InvalidValue, match=error.requirement[:20]):  # type: ignore[attr-defined]
                    sent.interval(level, simultaneous=simultaneous)
                continue
            for one, other in zip(sent.interval(level, simultaneous=simultaneous), ends, strict=True):
                same(one, other)


def test_an_interval_between_two_levels_is_the_wider_one(table: tables.Table) -> None:
    sent = release_from(release_to(table.count(epsilon=0.1)))
    assert sent.interval(0.93) == sent.interval(0.95)
    assert sent.interval(0.96) == sent.interval(0.99)
    with pytest.raises(InvalidValue, match=r"at most 0\.999"):
        sent.interval(0.9999)


def test_what_is_computed_from_it_is_the_same(table: tables.Table) -> None:
    asked = table.crosstab(["sex", "ok"], margins=True, epsilon=0.01)
    sent = release_from(release_to(asked))
    same(sent.non_negative().integer().value, asked.non_negative().integer().value)
    assert np.array_equal(sent.integer().interval()[0], asked.integer().interval()[0])
    from tacit.tables.pictures import chart_of

    for release in (asked, table.histogram("age", edges=5, by="sex", epsilon=1.0)):
        assert chart_of(release_from(release_to(release))) == chart_of(release)


@pytest.mark.parametrize("sent", [{}, {"kind": 3}, [], None, {"kind": {"shape": []}, "layout": {}}])
def test_nonsense_is_no_release(sent: Any) -> None:
    with pytest.raises(TacitError, match="not a release"):
        release_from(sent)
