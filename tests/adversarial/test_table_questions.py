"""Questions whose text, label or weight says something else than what is asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ibis
import pandas as pd
import pytest

from engines import THEIR_WARNINGS
from tacit import Budget, Column, Ledger, Schema, tables
from tacit.errors import InvalidValue
from tacit.tables.questions import Count, Mean, Question, parse

pytestmark = [pytest.mark.filterwarnings(line) for line in THEIR_WARNINGS]

SECRET = "Janet"


@pytest.fixture
def table(tmp_path: Path) -> Iterator[tables.Table]:
    schema = Schema(
        {
            "age": Column("integer", bounds=(0, 120)),
            "sex": Column("category", categories=("F", "M")),
            "name": Column("text"),
        }
    )
    frame = pd.DataFrame({"age": [20, 70], "sex": ["F", "M"], "name": [SECRET, "Bob"]})
    with (
        Ledger.open(tmp_path / "study.db", Budget(epsilon=10.0)) as ledger,
        tables.open(frame, schema=schema, ledger=ledger) as opened,
    ):
        yield opened


def label(table: tables.Table, question: Any) -> str:
    """How the ledger calls the charge for a question."""
    table.ask(question, epsilon=0.1)
    return table.ledger.entries()[-1].label


@pytest.mark.parametrize("text", ["count()", "count() by sex", "mean(age) where sex = 'F'", "top(sex, 1)"])
def test_a_copy_of_a_question_is_called_by_what_it_asks(table: tables.Table, text: str) -> None:
    """The text that the original was read from is not the copy's."""
    read = parse(text)
    assert label(table, read) == text
    assert label(table, dataclasses.replace(read)) == text
    changed = dataclasses.replace(read, where="age > 60")
    assert label(table, changed) == str(changed)
    assert label(table, changed).endswith("where age > 60")
    assert label(table, dataclasses.replace(parse("mean(hours)"), column="age")) == "mean(age)"


def test_nobody_can_say_what_a_question_was_read_from() -> None:
    with pytest.raises(TypeError):
        Count(written="count() where age > 60")  # type: ignore[call-arg]


def test_a_condition_on_several_lines_is_one_line_in_the_ledger(table: tables.Table) -> None:
    where = "age > 20\n\tand\r\n  sex = 'F'\u2028or\x1cage < 3"
    assert label(table, Count(where=where)) == "count() where age > 20 and sex = 'F' or age < 3"
    assert label(table.filter(where), Count()) == "count() where age > 20 and sex = 'F' or age < 3"


def test_a_label_shows_no_table_that_a_condition_was_made_of(table: tables.Table) -> None:
    values = pd.Series([SECRET, "Bob"])
    assert label(table, Count(where=ibis._.name.isin(values))) == "count() where a condition"
    assert label(table.filter(ibis._.name.isin(values)), Count()) == "count() where a condition"


@pytest.mark.parametrize(
    "ask",
    [
        lambda table: table.ask(5, epsilon=0.1),
        lambda table: table.ask(None, epsilon=0.1),
        lambda table: table.ask(Question(), epsilon=0.1),
        lambda table: table.count(epsilon=0.1, label=7),
        lambda table: table.batch(epsilon=0.1).count(weight=1e308),
        lambda table: table.ask("mean('2020-01-01')", epsilon=0.1),
        lambda table: table.count(epsilon=0.1, by=[]),
    ],
)
def test_what_is_no_question_is_refused_and_costs_nothing(table: tables.Table, ask: Any) -> None:
    with pytest.raises(InvalidValue):
        ask(table)
    assert table.ledger.entries() == []


@pytest.mark.parametrize("text", ["mean('2020-01-01')", "crosstab('2020-01-01', sex)", "keys('2020-01-01')"])
def test_a_column_may_be_called_like_a_date(text: str) -> None:
    assert parse(str(parse(text))) == parse(text)
    assert parse("mean('2020-01-01')") == Mean("2020-01-01")


def test_the_largest_weights_add_up(table: tables.Table) -> None:
    with table.batch(epsilon=0.1) as batch:
        found = [batch.ask(Count(weight=1e100)) for _ in range(4)]
    assert [release.guarantee.epsilon for release in found] == pytest.approx([0.025] * 4)


@pytest.mark.parametrize("known", [0, 1])
def test_a_population_of_nobody_is_a_population(tmp_path: Path, known: int) -> None:
    """A declared number of rows that is wrong makes an answer wrong, and no question fail."""
    schema = Schema({"x": Column("number", bounds=(0, 2), missing=1.0)}, population=known)
    with (
        Ledger.open(tmp_path / "study.db", Budget(epsilon=10.0)) as ledger,
        tables.open(pd.DataFrame({"x": [1.0, None]}), schema=schema, ledger=ledger) as opened,
    ):
        batch = opened.batch(epsilon=1.0)
        release = batch.mean("x")
        batch.plan()
        batch.run()
        low, high = release.interval()
        assert low <= release.value <= high
