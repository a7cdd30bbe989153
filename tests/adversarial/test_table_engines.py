"""One row that the engine cannot digest makes the question fail, which tells with certainty that it is there.

Every type in which a column can be stored gets the values that engines raise on, and every question that can
be asked of it is asked. None may fail, whichever way the rows come. Engines that fail are refused by name.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ibis import _

from contract.mends import Scene, mend, replacing
from engines import THEIR_WARNINGS
from tacit import Budget, Column, Ledger, Schema, Unit
from tacit.data import files, frames
from tacit.data import source as sources
from tacit.data.engine import stored
from tacit.data.source import connect
from tacit.errors import EngineFailed, InvalidValue, SourceMissing
from tacit.tables import Batch, Table
from tacit.tables import open as open_table

pytestmark = [pytest.mark.filterwarnings(line) for line in THEIR_WARNINGS]


def raw(kind: pa.DataType, numbers: list[int], stored: Any = np.int64) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.array(numbers, dtype=stored))])


def undecodable(*texts: bytes) -> pa.Array:
    ends = pa.py_buffer(np.cumsum([0, *map(len, texts)]).astype("int32"))
    return pa.Array.from_buffers(pa.string(), len(texts), [None, ends, pa.py_buffer(b"".join(texts))])


WHOLE = [0, 1, -1, 2**53 + 1, 2**62, -(2**62), 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 5e-324, -5e-324, 1e308, math.inf, -math.inf, math.nan, 0.1, 2.5, 1e-300, 1e15 + 0.3]
TEXTS = [
    "", "a", " a", "\\", "\\x41", "a\\", "a\0b", "\0", "é", "1", "1e400", "1e-400", "nan", "inf",
    "2020-01-01", "0000-01-01", "2020-02-30", "%", "'", '"', "x" * 100_000, "9" * 400, "0x10", "1_0", "true",
    "\U0001f600", "\ufeff", "NULL", "{}", "$1", "1970-01-01T99", "١", None,
]  # fmt: skip
DAYS = [0, 2**31 - 1, -(2**31), 10**8, 2932897, -719163]
STORED: dict[str, pa.Array] = {
    "whole": pa.array(WHOLE),
    "unsigned": pa.array([0, 2**64 - 1, 2**63], pa.uint64()),
    "small": pa.array([0, 2**32 - 1], pa.uint32()),
    "float": pa.array(FLOATS, from_pandas=False),
    "single": pa.array(np.array([0.1, 1e-45, 3e38, math.inf, math.nan], dtype=np.float32), from_pandas=False),
    "text": pa.array(TEXTS),
    "codes": pa.array(TEXTS).dictionary_encode(),
    "truth": pa.array([True, False, None]),
    "nothing": pa.nulls(3),
    "days": raw(pa.date32(), DAYS, np.int32),
    "decimal": pa.Array.from_buffers(
        pa.decimal128(38, 10), 2, [None, pa.py_buffer(np.array([5, 0, -1, 2**62], dtype=np.int64))]
    ),
    "too long": pa.Array.from_buffers(
        pa.decimal128(4, 2), 2, [None, pa.py_buffer(np.array([5, 0, 2**60, 2**40], dtype=np.int64))]
    ),
    **{
        f"{unit} {zone}": raw(pa.timestamp(unit, zone), WHOLE)
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "Europe/Paris")
    },
}
"""Values that engines raise on, by how they are stored."""

DECLARED = {
    "integer": Column("integer", bounds=(-5, 5)),
    "free": Column("number"),
    "number": Column("number", bounds=(-5, 5)),
    "boolean": Column("boolean"),
    "date": Column("date", bounds=("1900-01-01", "2100-01-01")),
    "category": Column("category", categories=("a", "\\", "1"), other="?"),
    "code": Column("category", categories=(1, 2)),
    "text": Column("text"),
}
LONG_AGO = datetime.date(2000, 1, 1)
Ask = Callable[[Batch], Any]
QUESTIONS: dict[str, list[Ask]] = {
    "integer": [
        lambda b: b.variance("integer"),
        lambda b: b.histogram("integer", 3),
        lambda b: b.count(where=(_.integer * 3 - 1) / _.integer > 0.1),
    ],
    "free": [
        lambda b: b.mean("free", bounds="dp"),
        lambda b: b.count(where=_.free.exp() + _.free**2.5 > _.free.ln()),
    ],
    "number": [
        lambda b: b.histogram("number", [-5.0, -5e-324, 0.1, 5.0]),
        lambda b: b.count(where=_.number > 0.1),
    ],
    "boolean": [lambda b: b.count(by="boolean")],
    "date": [
        lambda b: b.histogram("date", 3),
        lambda b: b.count(where=_.date.delta(LONG_AGO, unit="day") > _.date.year()),
    ],
    "category": [lambda b: b.count(by="category", where=_.category != "\\")],
    "code": [lambda b: b.count(by="code")],
    "text": [
        lambda b: b.keys("text"),
        lambda b: b.count(where=(_.text.strip() == "a") | (_.text[0:3] == "\\")),
    ],
}


@contextmanager
def opening(folder: Path) -> Iterator[Callable[..., Table]]:
    """Opens tables under a ledger in this folder."""
    with Ledger.open(folder / "study.db", Budget(1e9, 1e-2)) as ledger:
        yield lambda source, columns: open_table(source, schema=Schema(columns), ledger=ledger)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Table]]:
    with opening(tmp_path) as opened:
        yield opened


def ask_everything(opened: Callable[..., Table], make: Callable[[pa.Table], Any], values: pa.Array) -> int:
    """Every question about these values that their stored type allows; how many declarations that were."""
    source, possible = make(pa.table(dict.fromkeys(DECLARED, values))), {}
    for name, column in DECLARED.items():
        with suppress(SourceMissing, InvalidValue):
            connect(source, Schema({name: column})).close()
            possible[name] = column
    if possible:
        with opened(source, possible) as table, table.batch(epsilon=1.0, delta=1e-6) as batch:
            for name in possible:
                for ask in QUESTIONS[name]:
                    ask(batch)
    return len(possible)


@pytest.fixture
def parquet_maker(tmp_path: Path) -> Callable[[pa.Table], Path]:
    def make(table: pa.Table) -> Path:
        pq.write_table(table, tmp_path / "x.parquet")
        return tmp_path / "x.parquet"

    return make


WAYS = {
    "duckdb": [name for name in STORED if name not in ("s Europe/Paris", "ms Europe/Paris")],
    "registered": ["text", "decimal", "s None"],
    "arrow": ["text", "float", "too long", "s Europe/Paris", "ns None"],
    "polars": ["text", "days", "ms None"],
    "parquet": ["text", "float", "too long", "ms None", "ns Europe/Paris"],
    "spark": ["text", "float", "days"],
}
"""What is asked of which source; a time with a zone beyond its range DuckDB cannot store."""


@pytest.mark.parametrize("way", WAYS)
def test_no_value_makes_a_question_fail(
    request: pytest.FixtureRequest, opened: Callable[..., Table], way: str
) -> None:
    plain: dict[str, Any] = {"arrow": lambda table: table, "polars": pl.from_arrow}
    make = plain.get(way) or request.getfixturevalue(f"{way}_maker")
    for name in WAYS[way]:
        answered = ask_everything(opened, make, STORED[name])
        assert answered or (way, name) == ("duckdb", "ns Europe/Paris"), name


@pytest.mark.usefixtures("untyped")
def test_text_that_is_not_utf8(registered_maker: Any, opened: Callable[..., Table]) -> None:
    values = undecodable(b"\xff", b"ok", b"\xc3", b"\xed\xa0\x80", b"a\x80")
    for make in (lambda table: table, registered_maker):
        assert ask_everything(opened, make, values) == len(DECLARED)


class Named(pa.ExtensionType):
    """A type of somebody's own on top of another."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "tacit.tests.named")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


def coded(values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(range(len(values)), pa.int8()), values)


def named(values: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(Named(values.type), values)


def in_runs(values: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(values) + 1), pa.int32()), values)


WRAPPED = {
    "zoned": raw(pa.timestamp("s", "UTC"), [0, 2**62]),
    "milliseconds": raw(pa.timestamp("ms"), [0, 2**62]),
    "too long": STORED["too long"],
    "days": raw(pa.date64(), [0, 2**62]),
    "half": pa.array(np.array([1, math.nan], np.float16), from_pandas=False),
    "text": pa.array(["a", None]),
    "float": pa.array([1.0, math.nan], from_pandas=False),
}
"""Values that the engine reads otherwise, or not at all, as codes, as runs or under another name."""


@pytest.mark.parametrize("wrap", [coded, named, in_runs])
def test_values_under_a_wrapping(opened: Callable[..., Table], wrap: Any) -> None:
    made_only_of_valid_ones = wrap is in_runs
    for name, values in WRAPPED.items():
        if not (made_only_of_valid_ones and name in ("too long", "days")):
            assert ask_everything(opened, lambda table: table, wrap(values)), name


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("wrap", [coded, named])
def test_text_that_is_not_utf8_under_a_wrapping(opened: Callable[..., Table], wrap: Any) -> None:
    values = wrap(undecodable(b"\xff", b"ok", b"\xc3"))
    assert ask_everything(opened, lambda table: table, values) == len(DECLARED)


@mend(
    14, "values under a wrapping", twin=replacing(frames, "_unwrapped", lambda stored: stored),
    shows=EngineFailed,
)  # fmt: skip
def under_a_wrapping(scene: Scene) -> None:
    with opening(scene.path) as opened:
        assert ask_everything(opened, lambda table: table, coded(WRAPPED["zoned"]))


@pytest.mark.usefixtures("untyped")
def test_identifiers_can_be_declared_as_anything_that_text_can(
    opened: Callable[..., Table], duckdb_maker: Any
) -> None:
    values = pa.array([b"0" * 16, b"1" * 16], pa.uuid())
    for make in (lambda table: table, duckdb_maker):
        assert ask_everything(opened, make, values) == len(DECLARED)


FAR = 2**62
MILLISECONDS = pa.table({"x": [1.0, 2.0], "when": raw(pa.timestamp("ms"), [0, FAR])})


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_in_parquet_files(
    opened: Callable[..., Table], tmp_path: Path, unit: str, zone: str | None
) -> None:
    """Whether declared or not; out of range they fall on the bounds."""
    path = tmp_path / "times.parquet"
    for values in ([0, FAR], [-(2**63), 1]):
        pq.write_table(pa.table({"x": [1.0, 2.0], "when": raw(pa.timestamp(unit, zone), values)}), path)
        number, when = {"x": DECLARED["number"]}, {"when": DECLARED["date"]}
        assert opened(path, number).sum("x", epsilon=1e6).value == pytest.approx(3.0, abs=0.01)
        assert opened(path, when).count(by="when", epsilon=1e6).value.sum() == 2
        both = opened([path, path], {**number, **when})
        assert both.count(where=_.when > LONG_AGO, epsilon=1e6).value == (values[1] == FAR)


def test_times_in_twelve_bytes(opened: Callable[..., Table], tmp_path: Path) -> None:
    path = tmp_path / "times.parquet"
    values = raw(pa.timestamp("ns"), [0, FAR, -FAR, -(2**63) + 1])
    pq.write_table(pa.table({"x": values}), path, use_deprecated_int96_timestamps=True)
    assert opened(path, {"x": DECLARED["date"]}).count(by="x", epsilon=1e6).value.sum() == 4


def test_a_unit_beside_times_is_still_itself(tmp_path: Path) -> None:
    """Columns that Arrow copies keep what tells units apart."""
    from decimal import Decimal

    who = pa.array([Decimal(2**53), Decimal(2**53 + 1)], pa.decimal128(38, 0))
    pq.write_table(MILLISECONDS.append_column("who", who), tmp_path / "visits.parquet")
    schema = Schema({"when": DECLARED["date"]}, unit=Unit("who", rows=1))
    source = connect(tmp_path / "visits.parquet", schema)
    assert source.run(source.table)["__unit__"].nunique() == 2


def everything(connection: Any, view: str, paths: Any, names: Any) -> Any:
    """The twin: all columns of a file are read, declared or not."""
    return files.Part(connection.read_parquet(list(paths)), {name: name for name in names})


@mend(
    14, "a column that nobody declared", twin=replacing(files, "_parquet", everything), shows=EngineFailed
)
def not_declared(scene: Scene) -> None:
    """A timestamp beyond DuckDB's range, in a column that the schema does not name."""
    path = scene.path / "times.parquet"
    pq.write_table(MILLISECONDS, path)
    with opening(scene.path) as opened:
        opened(path, {"x": DECLARED["number"]}).count(epsilon=1.0)


@mend(
    14, "times that DuckDB reads", twin=replacing(files, "_by_arrow", lambda stored: False),
    shows=EngineFailed,
)  # fmt: skip
def times_beyond_the_range(scene: Scene) -> None:
    path = scene.path / "times.parquet"
    pq.write_table(MILLISECONDS, path)
    with opening(scene.path) as opened:
        opened(path, {"when": DECLARED["date"]}).count(epsilon=1.0)


class AsItIs(stored.Stored):
    """The twin runs the user's expression as it is."""

    def here(self) -> Any:
        return self.source


def runs_expressions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sources, "stored_of", lambda source, names: AsItIs(source, source.get_backend()))


@mend(14, "an expression that fails on one row", twin=runs_expressions, shows=EngineFailed)
def failing_expression(scene: Scene) -> None:
    """One row that is no number makes the question fail; the expression is refused whatever the rows."""
    table = scene.fixture("duckdb_maker")(pa.table({"x": ["1", "2", "SECRET"]}))
    failing = table.mutate(x=table.x.cast("int64"))
    with opening(scene.path) as opened, pytest.raises(InvalidValue, match="can fail"):
        opened(failing, {"x": DECLARED["integer"]}).count(by="x", epsilon=1.0)


def test_times_in_files_that_spark_reads(spark_maker: Any, tmp_path: Path) -> None:
    """Spark fails on milliseconds that do not fit; it does not tell them from others by type."""
    connection = spark_maker(pa.table({"x": [1]})).get_backend()
    pq.write_table(MILLISECONDS, tmp_path / "times.parquet")
    table = connection.read_parquet(tmp_path / "times.parquet")
    with pytest.raises(InvalidValue, match="timestamp 'when'"):
        connect(table, Schema({"when": DECLARED["date"]}))
    source = connect(table, Schema({"x": DECLARED["number"]}))
    assert source.run(source.table)["x"].tolist() == [1.0, 2.0]
    setting = "spark.sql.parquet.datetimeRebaseModeInRead"
    connection._session.conf.set(setting, "EXCEPTION")
    with pytest.raises(InvalidValue, match="EXCEPTION"):
        connect(table, Schema({"x": DECLARED["number"]}))
    connection._session.conf.unset(setting)


ELSEWHERE = (
    "athena", "bigquery", "clickhouse", "databricks", "datafusion", "druid", "exasol", "flink", "impala",
    "materialize", "mssql", "mysql", "oracle", "polars", "postgres", "risingwave", "singlestoredb",
    "snowflake", "sqlite", "trino",
)  # fmt: skip


@pytest.mark.parametrize("engine", ELSEWHERE)
def test_other_engines_are_refused_by_name(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    connection = ibis.duckdb.connect()
    connection.con.execute("CREATE TABLE t AS SELECT 1 AS x")
    table = connection.table("t")
    connect(table, Schema({"x": DECLARED["integer"]}))
    monkeypatch.setattr(type(connection), "name", engine)
    with pytest.raises(InvalidValue, match=f"DuckDB or Spark, got 'a table on {engine}'"):
        connect(table, Schema({"x": DECLARED["integer"]}))
    monkeypatch.undo()
    connection.disconnect()


def test_polars_and_sqlite_themselves(tmp_path: Path) -> None:
    import sqlite3

    sqlite3.connect(tmp_path / "t.db").execute("CREATE TABLE t (x TEXT)").connection.close()
    for table in (
        ibis.sqlite.connect(tmp_path / "t.db").table("t"),
        ibis.polars.connect({"t": pl.DataFrame({"x": [1]})}).table("t"),
    ):
        with pytest.raises(InvalidValue, match="Read it into DuckDB"):
            connect(table, Schema({"x": DECLARED["integer"]}))
