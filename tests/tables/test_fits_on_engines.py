"""A model fitted to a table of somebody else's engine is the one that is fitted to the rows in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from engines import Maker
from tacit import Budget, Column, Ledger, Schema, tables
from tacit.data.reading import private_rows
from tacit.data.source import UNIT
from tacit.errors import EngineFailed
from tacit.estimators import DecisionTree, LinearRegression, NaiveBayes, Preprocessor
from tacit.relations import Unit

PERSON = Unit("who", 2)
SCHEMA = Schema(
    {
        "age": Column("integer", bounds=(0, 100)),
        "sex": Column("category", categories=("F", "M")),
        "income": Column("number", bounds=(-5, 5)),
    },
    unit=PERSON,
)
MODELS: dict[str, tuple[str, Any]] = {
    "bayes": ("sex", lambda: NaiveBayes(1.0, classes=["F", "M"], random_state=1)),
    "tree": ("sex", lambda: DecisionTree(1.0, classes=["F", "M"], depth=2, random_state=1)),
    "least squares": ("income", lambda: LinearRegression(1.0, target_bounds=(-5, 5), random_state=1)),
}


def people(rows: int = 400, each: int = 2) -> pd.DataFrame:
    random = np.random.default_rng(5)
    return pd.DataFrame({
        "age": random.integers(0, 120, rows),
        "sex": np.array(["F", "M", "x", None], dtype=object)[random.integers(0, 4, rows)],
        "income": np.where(random.uniform(size=rows) < 0.1, np.nan, random.normal(0, 3, rows)),
        "who": [f"p{i // each}" for i in range(rows)],
    })  # fmt: skip


@pytest.mark.parametrize("name", list(MODELS))
def test_the_same_model(name: str, storing: Maker, tmp_path: Path) -> None:
    """Counts agree bit by bit; sums of floats to 1e-9, for an engine may hand rows out in another order."""
    target, make = MODELS[name]
    frame = private_rows(people(), SCHEMA, list(SCHEMA))
    maker = Preprocessor(SCHEMA, target=target)
    wanted = make().set_params(rows_per_unit=2)
    wanted.fit(maker.transform(frame), maker.target_values(frame), units=frame[UNIT])
    with (
        Ledger.open(tmp_path / "a.db", Budget(1.0), unit=PERSON) as ledger,
        tables.open(storing(people()), schema=SCHEMA, ledger=ledger) as table,
    ):
        found = make().fit_table(table, target)[-1]
    for released in wanted.released:
        if hasattr(wanted, released) and getattr(wanted, released) is not None:
            value, other = getattr(wanted, released), getattr(found, released)
            if name == "least squares":
                np.testing.assert_allclose(other, value, rtol=1e-9, atol=1e-9)
            else:
                np.testing.assert_equal(other, value)


def test_rows_of_a_person_are_bounded(storing: Maker, tmp_path: Path) -> None:
    """40 people of 10 rows each, of whom 2 count: 80 rows in all, and a little noise."""
    frame = people(each=10).assign(sex="F")
    with (
        Ledger.open(tmp_path / "a.db", Budget(10.0), unit=PERSON) as ledger,
        tables.open(storing(frame), schema=SCHEMA, ledger=ledger) as table,
    ):
        model = NaiveBayes(10.0, classes=["F", "M"], random_state=1).fit_table(table, "sex")[-1]
    assert model.class_count_[0] == pytest.approx(80, abs=8)


def test_failures_are_silent(spark_maker: Maker, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    frame, told = people(), capfd.readouterr()
    with Ledger.open(tmp_path / "a.db", Budget(1.0), unit=PERSON) as ledger:
        stored = spark_maker(frame)
        table = tables.open(stored, schema=SCHEMA, ledger=ledger)
        table.source._connection._session.catalog.dropTempView(stored.get_name())
        with pytest.raises(EngineFailed, match="withheld"):
            MODELS["bayes"][1]().fit_table(table, "sex")
    told = capfd.readouterr()
    assert "p1" not in told.out + told.err
