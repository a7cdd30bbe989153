"""What one row holds never changes what other rows contribute, nor whether a question is answered."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit import Budget, Column, Ledger, Schema, Unit
from tacit.errors import SourceMissing
from tacit.tables import Table
from tacit.tables import open as open_table

Opening = Callable[..., Table]
SURE = 1e6
DATE = Column("date", bounds=("1900-01-01", "2100-01-01"))


@pytest.fixture
def opened(tmp_path: Path) -> Opening:
    """Open a source on a ledger of its own, with noise too small to see."""

    def opened(source: Any, columns: dict[str, Column], unit: Unit | None = None, **budget: Any) -> Table:
        who = unit or Unit()
        ledger = Ledger.open(tmp_path / f"{len(list(tmp_path.iterdir()))}.db", Budget(1e9, 1e-3), unit=who)
        return open_table(source, schema=Schema(columns, unit=who), ledger=ledger)

    return opened


@pytest.mark.parametrize("before", [1_999_998, 7_999_998])
def test_a_quoted_line_break_where_a_reader_may_cut(opened: Opening, tmp_path: Path, before: int) -> None:
    """DuckDB's parallel reader cuts every 8 MB, and buffers 32 MB."""
    columns = {"a": Column("number", bounds=(0, 10)), "s": Column("category", categories=("x", "y"))}
    for last in ("5,x\n", '5,"5,x\n5,x\n"\n'):
        path = tmp_path / "rows.csv"
        path.write_text("a,s\n" + "5,x\n" * before + last + "5,x\n" * 2_100_000)
        assert opened(path, columns).count(epsilon=SURE).value == before + 2_100_001


ODD: dict[str, tuple[list[Any], Column]] = {
    "year 0": (["0000-01-01"], DATE),
    "year 9999 text": (["9999-12-31"], DATE),
    "far time": ([pd.Timestamp(np.datetime64("20000-01-01", "s"))], DATE),
    "time": ([pd.Timestamp("1999-12-31 23:59")], DATE),
    "whole number of 2^53 + 1": ([2**53 + 1], Column("category", categories=(2**53, 5))),
    "whole number of 2^53 - 1": ([2**53 - 1], Column("category", categories=(2**53 - 1, 5))),
    "large whole number as text": (
        [2**53 + 1], Column("category", categories=("9007199254740993", "5"))),
    "float": ([2.5, 3.0], Column("category", categories=(3, 5))),
    "truth": ([True], Column("category", categories=("true", "1"))),
}  # fmt: skip


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("name", ODD)
def test_a_row_of_another_type_changes_no_other(opened: Opening, name: str) -> None:
    """pandas stores a column of one type otherwise than one with a single foreign value in it."""
    values, column = ODD[name]
    alike = pd.DataFrame({"x": pd.Series(values * 50)})
    mixed = pd.DataFrame({"x": pd.Series([*alike["x"].tolist(), object()], dtype=object)})
    counts = [opened(frame, {"x": column}).count(by="x", epsilon=SURE).value for frame in (alike, mixed)]
    assert counts[0].tolist() == counts[1].tolist()


def test_text_keys_of_whole_numbers_do_not_depend_on_other_rows(opened: Opening) -> None:
    for large in (2**53 + 1, 2**53 - 1):
        found = []
        for last in (5, "x", None):
            keys = opened(pd.DataFrame({"k": [large] * 1000 + [last]}), {"k": Column("text")}).keys(
                "k", epsilon=10.0, delta=1e-6
            )
            found.append(list(keys.value.index))
        assert found[0] == found[1] == found[2] == ([] if large > 2**53 else [str(large)])


@pytest.mark.parametrize("collated", ["column", "connection"])
def test_text_that_an_engine_takes_for_the_same(opened: Opening, collated: str) -> None:
    """One row must not decide how a group of others is called."""
    connection = ibis.duckdb.connect()
    if collated == "connection":
        connection.raw_sql("PRAGMA default_collation='NOCASE'")
    for first in ("Female", "female"):
        connection.raw_sql("CREATE OR REPLACE TABLE t (s VARCHAR COLLATE NOCASE)")
        connection.raw_sql(f"INSERT INTO t SELECT '{first}' UNION ALL SELECT 'Female' FROM range(1000)")
        sex = {"s": Column("category", categories=("Female", "Male"))}
        counts = opened(connection.table("t"), sex).count(by="s", epsilon=SURE).value
        assert counts.tolist() in ([1001, 0], [1000, 0])
        keys = opened(connection.table("t"), {"s": Column("text")}).keys("s", epsilon=10.0, delta=1e-6)
        assert list(keys.value.index) == ["Female"]


def _array(kind: pa.DataType, numbers: list[int]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.array(numbers, dtype=np.int64))])


FAR = 2**62
TIMES = {
    "date64 within a day": (pa.date64(), [0, 86_400_001]),
    "seconds": (pa.timestamp("s", "UTC"), [0, FAR]),
    "milliseconds": (pa.timestamp("ms", "Europe/Paris"), [0, -FAR]),
    "microseconds": (pa.timestamp("us"), [0, -(2**63) + 1]),
    "nanoseconds": (pa.timestamp("ns", "UTC"), [0, -1]),
}


@pytest.mark.parametrize("name", TIMES)
def test_times_that_do_not_fit(opened: Opening, name: str) -> None:
    frame = pa.table({"d": _array(*TIMES[name]), "x": [1.0, 1.0]})
    assert opened(frame, {"d": DATE}).count(by="d", epsilon=SURE).value.sum() == 2
    by_time = opened(frame, {"x": Column("number", bounds=(0, 1))}, Unit("d", 1))
    assert by_time.count_units(epsilon=SURE).value == 2


def test_nanoseconds_fall_on_the_day_before(opened: Opening) -> None:
    column = {"d": Column("date", bounds=("1969-12-01", "1970-02-01"))}
    released = opened(pa.table({"d": _array(*TIMES["nanoseconds"])}), column).count(by="d", epsilon=SURE)
    counts = {str(day)[:10]: int(count) for day, count in released.value.items() if count}
    assert counts == {"1969-12-31": 1, "1970-01-01": 1}


def test_a_decimal_beyond_its_precision(opened: Opening) -> None:
    buffer = pa.py_buffer(np.array([5, 0, 2**60, 2**40], dtype=np.int64))
    decimals = pa.Array.from_buffers(pa.decimal128(4, 2), 2, [None, buffer])
    table = opened(pa.table({"x": decimals}), {"x": Column("number", bounds=(0, 10))})
    assert table.histogram("x", 1, epsilon=SURE).value.sum() == 2


def test_dates_are_no_whole_number_categories(opened: Opening) -> None:
    for days in ([], [datetime.date(2000, 1, 1)]):
        frame = pa.table({"d": pa.array(days, pa.date32())})
        with pytest.raises(SourceMissing, match="cannot be"):
            opened(frame, {"d": Column("category", categories=(1, 2))})


def test_one_person_in_two_files_is_one(opened: Opening, tmp_path: Path) -> None:
    for i, scale in enumerate((0, 2)):
        ids = pa.array([Decimal(1)] * 5, pa.decimal128(5, scale))
        pq.write_table(pa.table({"p": ids, "x": [1.0] * 5}), tmp_path / f"part{i}.parquet")
        pq.write_table(pa.table({"x": [1.0] * 5, "p": ids}), tmp_path / f"turned{i}.parquet")
    columns, whom = {"x": Column("number", bounds=(0, 1))}, Unit("p", 1)
    for kind in ("part", "turned"):
        with pytest.raises(SourceMissing, match="different types"):
            opened(str(tmp_path / f"{kind}*.parquet"), columns, whom)
    table = opened([tmp_path / "part0.parquet", tmp_path / "turned0.parquet"], columns, whom)
    assert table.count_units(epsilon=SURE).value == 1


def test_no_stored_column_is_taken_for_the_unit(opened: Opening, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("__unit__,pid,x\n" + "".join(f"{i},same,1\n" for i in range(100)))
    table = opened(path, {"x": Column("number", bounds=(0, 1))}, Unit("pid", 1))
    assert table.count(epsilon=SURE).value == 1


def test_the_first_line_of_a_file_without_names_is_not_shown(opened: Opening, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("39,Ann Smith\n40,Bob\n")
    with pytest.raises(SourceMissing) as raised:
        opened(path, {"age": Column("integer", bounds=(0, 120))})
    assert "Ann" not in str(raised.value)
    assert "39" not in str(raised.value).replace(str(tmp_path), "")
    assert "line of names" in str(raised.value)


def test_guarantees_of_files_assume_that_they_are_well_formed(opened: Opening, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x\n1\n")
    columns = {"x": Column("number", bounds=(0, 1))}
    sources = (path, pd.DataFrame({"x": [1.0]}))
    told = [opened(source, columns).count(epsilon=1.0).guarantee.assumptions for source in sources]
    assert any("format" in line for line in told[0])
    assert not any("format" in line for line in told[1])
