"""Stored types are public: what cannot be what is declared is refused by its type, at no cost."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines import Maker
from tacit import Budget, Column, Ledger, Schema, evaluate, jobs, tables
from tacit.data.cleaning.storage import family_of
from tacit.data.preprocessor import Preprocessor
from tacit.errors import InvalidValue, SourceMissing
from tacit.estimators import LinearRegression, LogisticRegression

DAY = datetime.date(2020, 1, 2)
AGE = Column("integer", bounds=(0, 120))
WRONG: dict[str, tuple[pa.Array, Column, str]] = {
    "text for an integer": (pa.array(["41", "x"]), AGE, "Store it as numbers"),
    "text for a number": (pa.array(["41", "x"]), Column("number", bounds=(0, 1)), "declare it as a category"),
    "text for codes": (
        pa.array(["1", "2"]), Column("category", categories=(1, 2)), 'categories = \\["1", "2"\\]'),
    "text for whole numbers": (pa.array(["1"]), Column("integer", categories=(1, 2)), "Write them as text"),
    "numbers for labels": (
        pa.array([1, 2]), Column("category", categories=("1", "2")), "categories = \\[1, 2\\]"),
    "floats for labels": (
        pa.array([1.0, None]), Column("category", categories=("1", "2")), "Store the column as text"),
    "truth for labels": (
        pa.array([True]), Column("category", categories=("yes", "no")), 'type = "boolean"'),
    "days for labels": (
        pa.array([DAY]), Column("category", categories=("x", "y")), "Store the column as text"),
    "numbers for a date": (pa.array([20200102]), Column("date"), "cannot be a column of date"),
    "floats for a date": (pa.array([2020.0]), Column("date"), "cannot be a column of date"),
    "days for a number": (pa.array([DAY]), AGE, "cannot be a column of integer"),
    "lists": (pa.array([[1]]), Column("text"), "cannot be a column of text"),
}  # fmt: skip
RIGHT: dict[str, tuple[pa.Array, Column]] = {
    "text for truth": (pa.array(["yes", "N"]), Column("boolean")),
    "text for dates": (pa.array(["2020-01-02"]), Column("date")),
    "numbers for codes": (pa.array([1.0, None]), Column("category", categories=(1, 2))),
    "truth for a number": (pa.array([True]), AGE),
    "numbers for text": (pa.array([7]), Column("text")),
    "numbers for free categories": (pa.array([7]), Column("category")),
    "nothing for a number": (pa.nulls(2), AGE),
    "nothing for labels": (pa.nulls(2), Column("category", categories=("x", "y"))),
    "nothing for a date": (pa.nulls(2), Column("date")),
    "labels as codes": (pa.array(["x"]).dictionary_encode(), Column("category", categories=("x", "y"))),
}


def frames_of(stored: pa.Array, folder: Path) -> dict[str, Any]:
    table = pa.table({"x": stored})
    pq.write_table(table, folder / "x.parquet")
    return {"arrow": table, "polars": pl.from_arrow(table), "parquet": folder / "x.parquet"}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused_before_the_charge(name: str, tmp_path: Path) -> None:
    stored, column, repair = WRONG[name]
    sources = frames_of(stored, tmp_path)
    if name not in ("lists", "days for a number", "days for labels"):
        sources["pandas"] = stored.to_pandas().to_frame("x")
    schema = Schema({"x": column})
    with Ledger.open(tmp_path / "study.db", Budget(1.0)) as ledger:
        for kind, source in sources.items():
            with pytest.raises(SourceMissing, match=repair):
                tables.open(source, schema=schema, ledger=ledger)
            assert not ledger.entries(), kind
        with pytest.raises(SourceMissing, match=repair):
            jobs.query(tmp_path / "x.parquet", ["count()"], schema=schema, ledger=ledger, epsilon=0.1)
        assert not ledger.entries()


@pytest.mark.parametrize("name", RIGHT)
def test_what_can_be_is_read(name: str, tmp_path: Path) -> None:
    stored, column = RIGHT[name]
    with Ledger.open(tmp_path / "study.db", Budget(1e9)) as ledger:
        for source in frames_of(stored, tmp_path).values():
            with tables.open(source, schema=Schema({"x": column}), ledger=ledger) as table:
                assert table.count(epsilon=1e6).value == len(stored)


@pytest.mark.parametrize("name", ["text for an integer", "numbers for labels", "text for codes"])
def test_tables_of_engines_are_refused_alike(name: str, storing: Maker, tmp_path: Path) -> None:
    stored, column, repair = WRONG[name]
    with (
        Ledger.open(tmp_path / "study.db", Budget(1.0)) as ledger,
        pytest.raises(SourceMissing, match=repair),
    ):
        tables.open(storing(pa.table({"x": stored})), schema=Schema({"x": column}), ledger=ledger)


def test_objects_and_csv_have_no_stored_type(tmp_path: Path) -> None:
    """Any other rule would depend on the values, which are private."""
    labels = Schema({"x": Column("category", categories=("1", "2"))})
    numbers = Schema({"x": Column("integer", bounds=(0, 9))})
    (tmp_path / "x.csv").write_text("x\n1\nx\n")
    with Ledger.open(tmp_path / "study.db", Budget(1e9)) as ledger:
        for values in (["1", "x"], [1, "x"], [1, 2], ["x", "y"], [None, None]):
            frame = pd.DataFrame({"x": pd.Series(values, dtype=object)})
            for schema in (labels, numbers):
                tables.open(frame, schema=schema, ledger=ledger).close()
                tables.open(tmp_path / "x.csv", schema=schema, ledger=ledger).close()


def test_families_of_types() -> None:
    pandas = {
        "int64": "integer", "Int64": "integer", "float32": "float", "bool": "boolean", "boolean": "boolean",
        "str": "text", "string": "text", "datetime64[ns]": "timestamp", "object": None, "category": None,
        "int64[pyarrow]": "integer", "string[pyarrow]": "text", "timestamp[us][pyarrow]": "timestamp",
    }  # fmt: skip
    for name, family in pandas.items():
        if name != "category":
            assert family_of(pd.Series([], dtype=name).dtype) == family, name
    assert family_of(pd.Series(["a"]).astype("category").dtype) == "text"
    assert family_of(pd.Series([1]).astype("category").dtype) == "integer"
    polars = {
        pl.Int8: "integer",
        pl.Float64: "float",
        pl.String: "text",
        pl.Categorical: "text",
        pl.Date: "date",
    }
    polars |= {pl.Datetime: "timestamp", pl.Boolean: "boolean", pl.Null: "null", pl.Object: None}
    for kind, family in polars.items():
        assert family_of(pl.Series([], dtype=kind).dtype) == family, kind


X = np.random.default_rng(1).normal(size=(200, 2))
Y = (X[:, 0] > 0).astype(int)
NAMED = pd.DataFrame(X, columns=["a", "b"])
TEXTS = pd.Series(["p", "q"] * 100)


def model(ledger: Any = None, **more: Any) -> LogisticRegression:
    return LogisticRegression(1.0, norm=3.0, **{"classes": [0, 1], **more}, ledger=ledger, random_state=1)


UNFIT: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "a column of text": (NAMED.assign(c=TEXTS), Y, {}, "column 'c' of X must be stored as numbers"),
    "a column of categories": (
        NAMED.assign(c=TEXTS.astype("category")), Y, {}, "Leave it out, convert it to numbers"),
    "a column of times": (NAMED.assign(c=pd.Timestamp("2020")), Y, {}, "column 'c' of X"),
    "a column of Polars": (pl.from_pandas(NAMED).with_columns(c=pl.lit("p")), Y, {}, "column 'c' of X"),
    "an array of text": (X.astype(str), Y, {}, "X must be stored as numbers"),
    "labels of numbers": (X, Y, {"classes": ["no", "yes"]}, "y must be stored as text"),
    "labels of numbers for digits": (X, Y, {"classes": ["0", "1"]}, "Declare classes of the type"),
    "labels of text": (X, np.array(["0", "1"])[Y], {}, "y must be stored as numbers"),
    "labels of pandas": (X, pd.Series(["0", "1"] * 100), {}, "y must be stored as numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
def test_an_estimator_refuses_by_type_before_the_charge(name: str, tmp_path: Path) -> None:
    rows, labels, more, told = UNFIT[name]
    with Ledger.open(tmp_path / "study.db", Budget(3.0)) as ledger:
        with pytest.raises(InvalidValue, match=told) as caught:
            model(ledger, **more).fit(rows, labels)
        assert caught.value.next_step
        assert not ledger.entries()
        model(ledger).fit(X.astype(object), [*Y[:-1].tolist(), "x"])
        assert len(ledger.entries()) == 1


def test_a_regression_and_a_pipeline_refuse_too(tmp_path: Path) -> None:
    schema = Schema({"a": Column("number", bounds=(-3, 3)), "b": Column("number", bounds=(-3, 3))})
    text = NAMED.assign(b=TEXTS)
    with Ledger.open(tmp_path / "study.db", Budget(3.0)) as ledger:
        with pytest.raises(InvalidValue, match="y must be stored as numbers"):
            LinearRegression(1.0, norm=3.0, target_bounds=(0, 1), ledger=ledger).fit(X, TEXTS)
        for ask in (Preprocessor(schema).fit, Preprocessor(schema).transform):
            with pytest.raises(SourceMissing, match="'b' is stored as str, but declared as number"):
                ask(text)
        fitted = model().fit(NAMED, Y)
        with pytest.raises(InvalidValue, match="column 'b' of X"):
            evaluate(fitted, text, Y, epsilon=1.0, ledger=ledger)
        assert not ledger.entries()


def test_rows_that_are_not_finite_are_read_alike_by_fit_and_predict() -> None:
    """A missing value is the middle of its bounds in both; a column of text is refused by its type in both."""
    fitted = LogisticRegression(1.0, bounds=(-3, 3), classes=[0, 1], random_state=1).fit(NAMED, Y)
    odd = NAMED.iloc[:3].copy()
    odd.iloc[0, 0], odd.iloc[1, 1] = np.nan, np.inf
    middle = odd.replace([np.nan, np.inf], 0.0)
    np.testing.assert_array_equal(fitted.predict_proba(odd), fitted.predict_proba(middle))
    with pytest.raises(InvalidValue, match="column 'b' of X"):
        fitted.predict(NAMED.assign(b=TEXTS))
