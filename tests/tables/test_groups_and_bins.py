"""Histograms and tables by group, and bins as people write them."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit import Budget, Column, Ledger, Schema, Unit
from tacit.errors import InvalidValue, TacitError
from tacit.tables.cells.axes import bins_of
from tacit.tables.questions import parse

SCHEMA = {
    "age": Column("integer", bounds=(17, 90)),
    "sex": Column("category", categories=("F", "M")),
    "town": Column("category", categories=("a", "b", "c")),
    "old": Column("boolean"),
    "pay": Column("number", bounds=(0.0, 1000.0)),
    "day": Column("date", bounds=(datetime.date(2024, 1, 1), datetime.date(2024, 12, 31))),
    "job": Column("text"),
}
SURE = {"epsilon": 5000.0}
"""So little noise that every count is exact."""


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    number = 900
    age = rng.integers(17, 91, number)
    return pd.DataFrame(
        {
            "age": age,
            "sex": rng.choice(["F", "M"], number),
            "town": rng.choice(["a", "b", "c", "elsewhere"], number),
            "old": age > 60,
            "pay": rng.gamma(2, 100, number),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 366, number), "D"),
            "job": "cook",
            "who": rng.integers(0, 300, number),
        }
    )


@pytest.fixture
def table(rows: pd.DataFrame, tmp_path: Path) -> Iterator[tacit.tables.Table]:
    ledger = Ledger.open(tmp_path / "a.db", Budget(1e9))
    with ledger, tacit.tables.open(rows, schema=Schema(SCHEMA), ledger=ledger, random_state=1) as opened:
        yield opened


def test_a_histogram_by_group_is_each_groups_own_and_costs_one(
    table: tacit.tables.Table, rows: pd.DataFrame
) -> None:
    edges = [17, 25, 35, 65, 91]
    by = table.histogram("age", edges, by=["sex", "old"], **SURE)
    for sex in "FM":
        for old in (False, True):
            mine = rows[(rows.sex == sex) & (rows.old == old)].age
            assert by.value[sex, old].tolist() == np.histogram(mine, edges)[0].tolist()
    assert by.guarantee.epsilon == SURE["epsilon"]
    assert table.ask("histogram(age, 5) by sex where pay > 50", epsilon=1.0).label.endswith("pay > 50")
    with table.batch(epsilon=1.0) as batch:
        first, second = batch.histogram("age", 5, by="sex"), batch.crosstab(["sex", "town"], by="old")
    assert first.guarantee.epsilon == second.guarantee.epsilon == 0.5


@pytest.mark.parametrize("unit", [None, Unit("who", 2)])
def test_tables_by_group_with_consistent_margins(
    rows: pd.DataFrame, tmp_path: Path, unit: Unit | None
) -> None:
    schema = Schema(SCHEMA, unit=unit or Unit())
    ledger = Ledger.open(tmp_path / "a.db", Budget(1e9), unit=unit)
    with ledger, tacit.tables.open(rows, schema=schema, ledger=ledger, random_state=1) as table:
        found = table.crosstab(["sex", "town"], by="old", margins=True, epsilon=1.0)
        exact = table.crosstab(["sex", "town"], by="old", margins=True, **SURE)
    low, high = found.interval(0.999999999, simultaneous=True)
    for release in (found, found.non_negative(), found.integer(), exact):
        frame = release.value
        assert frame.index.names == ["old", "sex"]
        for group in (False, True):
            own = frame.loc[group].astype(float)
            inner = own.iloc[:-1, :-1]
            assert np.allclose(own.iloc[:-1, -1], inner.sum(axis=1))
            assert np.allclose(own.iloc[-1, :-1], inner.sum(axis=0))
            assert math.isclose(own.iloc[-1, -1], inner.to_numpy().sum(), abs_tol=1e-9)
    assert (low <= exact.value + 1e-3).all(axis=None)
    assert (exact.value - 1e-3 <= high).all(axis=None)
    if unit is None:
        for group in (False, True):
            mine = rows[(rows.old == group) & (rows.town != "elsewhere")]
            assert exact.value.loc[group].loc["All", "All"] == pytest.approx(len(mine), abs=0.1)
            truth = pd.crosstab(mine.sex, mine.town)
            assert np.allclose(exact.value.loc[group].iloc[:2, :3], truth, atol=0.1)


def test_non_negative_tables_keep_the_total_of_each_group(table: tacit.tables.Table) -> None:
    found = table.histogram("age", by="sex", epsilon=0.5)
    before, after = found.value, found.non_negative().value
    assert np.allclose(before.groupby(level="sex").sum(), after.groupby(level="sex").sum())
    assert (found.value < 0).any()
    assert (found.non_negative().value >= 0).all()


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("histogram(age, 5) by age", "another column"),
        ("crosstab(sex, town) by sex", "another column"),
        ("histogram(age, 5) by job", "whose keys are public"),
    ],
)
def test_groups_that_make_no_sense_are_refused_before_the_charge(
    table: tacit.tables.Table, question: str, told: str
) -> None:
    with pytest.raises(InvalidValue, match=told):
        table.ask(question, epsilon=1.0)
    assert table.ledger.entries() == []


INF = math.inf


@pytest.mark.parametrize(
    ("column", "edges", "texts"),
    [
        ("age", [17, 25, 35, 65, 90], ["17–24", "25–34", "35–64", "65–90"]),
        ("age", [-INF, 18, 65, INF], ["up to 17", "18–64", "65 and over"]),
        ("age", [17, 18, 19], ["17", "18–19"]),
        ("age", 3, ["17–41", "42–65", "66–90"]),
        ("age", [17.2, 17.8, 20], ["[17.2, 17.8)", "18–20"]),
        ("age", [-20, -10, 5], ["-20 to -11", "-10 to 5"]),
        ("pay", [0, 10, 20.5], ["[0, 10)", "[10, 20.5]"]),
        ("pay", [-INF, 10, INF], ["under 10", "10 and over"]),
        ("pay", [0, 1 / 3, 1], ["[0, 0.333333)", "[0.333333, 1]"]),
        ("pay", [0, 1, 1.0000001], ["[0, 1)", "[1, 1.0000001]"]),
        ("day", 2, ["2024-01-01 to 2024-07-01", "2024-07-02 to 2024-12-31"]),
        ("day", [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2), datetime.date(2024, 2, 1)],
         ["2024-01-01", "2024-01-02 to 2024-02-01"]),
    ],
)  # fmt: skip
def test_bins_as_people_write_them(column: str, edges: Any, texts: list[str]) -> None:
    bins: Any = bins_of(Schema(SCHEMA), column, edges)
    assert list(bins.texts()) == texts


def test_bins_are_written_wherever_they_are_printed(table: tacit.tables.Table) -> None:
    found = table.histogram("age", [17, 25, 65, INF], by="sex", epsilon=1.0)
    assert found.to_frame().index.get_level_values("age").tolist() == ["17–24", "25–64", "65 and over"] * 2
    assert "65 and over" in str(found)
    assert found.value.index.get_level_values("age")[0] == pd.Interval(17, 25, closed="left")
    assert table.histogram("age", epsilon=1.0).to_frame().index[0] == 17
    assert "17.0" not in str(table.histogram("age", epsilon=1.0))


def test_every_answer_draws_itself(table: tacit.tables.Table, tmp_path: Path) -> None:
    from matplotlib.text import Text

    for text in (
        "count()", "mean(pay) by town", "histogram(age, 5) by sex",
        "crosstab(sex, town, margins=True) by old",
        "quantile(pay, [0.1, 0.9]) by sex", "median(day)", "covariance(age, pay)", "bounds(pay)",
    ):  # fmt: skip
        release = table.ask(text, epsilon=1.0)
        figure = release.plot(tmp_path / "a.svg")
        figure.draw_without_rendering()
        shown = " ".join(" ".join(found.get_text() for found in figure.findobj(Text)).split())
        assert str(parse(text)) in shown
        assert "ε = 1, under add_remove of one row. SEEDED NOISE" in shown
        assert "95 % interval" in shown or text == "bounds(pay)"
    with pytest.raises(TacitError, match="no numbers to draw"):
        table.top("town", 2, epsilon=1.0).plot()
    with pytest.raises(InvalidValue, match=r"\.png, \.svg"):
        table.count(epsilon=1.0).plot(tmp_path / "a.doc")


@pytest.mark.parametrize("count", [10**10, 10**30])
def test_too_many_equal_bins_are_refused_before_they_are_made(count: int) -> None:
    schema = tacit.Schema({"age": tacit.Column("integer", bounds=(0, 100))})
    with pytest.raises(InvalidValue, match="at most"):
        bins_of(schema, "age", count)
