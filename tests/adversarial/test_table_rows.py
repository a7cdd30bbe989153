"""Rows that are not the same rows twice: lazy plans, views, random and unordered parts, files that change.

If the columns of a table come from two readings, a person's rows are no longer hers: the bound per person is
lost, and answers are wrong. Every source is read once in one piece, or refused by what is public about it.
"""

from __future__ import annotations

import itertools
import os
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.operations as ops
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from contract.mends import Scene, mend, replacing
from engines import THEIR_WARNINGS
from tacit import Column, Schema, Unit
from tacit.data import frames
from tacit.data import source as sources
from tacit.data.engine import stored
from tacit.data.frames import Frame, frame_of
from tacit.data.source import PrivateSource, connect
from tacit.errors import InvalidValue, SourceMissing
from tacit.relations import Relation
from tacit.tables.cells.measure import Block, Measurement, measure
from tacit.tables.cells.values import value_of

pytestmark = [pytest.mark.filterwarnings(line) for line in THEIR_WARNINGS]

PEOPLE = 200
HERS = 99
"""What is left of the 100 that one row of hers adds, rounded down because she has more than one."""

SCHEMA = Schema({"x": Column("integer", bounds=(0, 100))}, unit=Unit("who", rows=1))
SUM = Measurement(Block("total", (value_of(SCHEMA, "x", None, "around_zero"),)))
SENSITIVITY = SUM.sensitivity(Relation.ADD_REMOVE, SCHEMA.unit, 1)


def visits() -> pl.DataFrame:
    """Person 0 has 1000 rows of 100, everybody else one row of 0: the sum is 100, with her or without 0."""
    who = [0] * 1000 + list(range(1, PEOPLE))
    return pl.DataFrame({"who": who, "x": [100] * 1000 + [0] * (PEOPLE - 1)})


def total(source: Any, schema: Schema = SCHEMA) -> int:
    """The sum before the noise."""
    opened = source if isinstance(source, PrivateSource) else connect(source, schema)
    (cells,) = measure(opened, opened.table, schema.unit, [SUM])
    return int(cells.sum())


def shuffled() -> pl.LazyFrame:
    """A plan that gives its rows in another order each time."""
    seeds = itertools.count()
    return visits().lazy().map_batches(lambda rows: rows.sample(fraction=1.0, shuffle=True, seed=next(seeds)))


def by_column(frame: pl.LazyFrame) -> Frame:
    """A LazyFrame that is collected once for each column."""
    empty = frame_of(visits().clear())
    assert empty is not None
    names = frame.collect_schema().names()

    def values(place: int, column: Column | None) -> Any:
        read = frame_of(frame.select(names[place]).collect())
        assert read is not None
        return read.values(0, column)

    return Frame(names, empty.kind, values, lambda places: Frame(
        [names[place] for place in places], empty.kind,
        lambda place, column: values(places[place], column), lambda places: None))  # type: ignore  # fmt: skip


LAZY = {
    "shuffled": shuffled,
    "grouped": lambda: visits().lazy().group_by("who").agg(pl.col("x").sum()),
    "joined": lambda: visits().lazy().join(visits().lazy(), on="who"),
    "unique": lambda: visits().lazy().unique(),
    "limited": lambda: visits().lazy().head(10),
    "cast": lambda: visits().lazy().with_columns(pl.col("who").cast(pl.String)),
    "filtered": lambda: visits().lazy().filter(pl.col("x") > 1),
    "named so": lambda: visits().lazy().rename({"x": 'x"]; PROJECT */2 COLUMNS'}).sort("who"),
}


@pytest.mark.parametrize("plan", LAZY)
def test_a_lazy_plan_is_refused_and_its_result_is_not(plan: str) -> None:
    with pytest.raises(SourceMissing, match=r"source\.collect\(\)"):
        connect(LAZY[plan](), SCHEMA)


def test_a_frame_that_is_lazy_in_name_only() -> None:
    assert total(visits().lazy()) == total(visits()) == total(shuffled().collect()) == HERS


@mend(12, "columns of different readings", twin=replacing(sources, "frame_of", by_column))
def read_by_column(scene: Scene) -> None:
    """The twin collects once for each column; the sum is off by far more than one person may move it."""
    with suppress(SourceMissing):
        off = abs(total(shuffled()) - HERS)
        assert off <= SENSITIVITY, f"the sum is off by {off / SENSITIVITY:.0f} sensitivities"


class Meddler(int):
    """A value that sorts the frame it lies in while it is read."""

    frame: pd.DataFrame

    def __float__(self) -> float:
        type(self).frame.sort_values("order", inplace=True, ignore_index=True)
        return 0.0


def meddled() -> pd.DataFrame:
    seen = visits().to_pandas()
    seen["first"] = pd.Series([Meddler()] * len(seen), dtype=object)
    seen["order"] = np.random.default_rng(0).permutation(len(seen))
    Meddler.frame = seen
    return seen


TWO = Schema({"x": Column("integer", bounds=(0, 100)), "first": Column("integer")}, unit=Unit("who", rows=1))


def reads_columns_in_place(patch: pytest.MonkeyPatch) -> None:
    """The twin: the wanted columns are not copied before the first of them is converted."""

    def in_place(source: Any) -> Frame:
        found, places = frame_of(source), []
        assert found is not None
        glued = Frame(found.names, found.kind, lambda place, column: found.values(places[place], column),
                      lambda wanted: places.extend(wanted) or glued)  # type: ignore[func-returns-value]  # fmt: skip
        return glued

    patch.setattr(sources, "frame_of", in_place)


@mend(12, "a frame that changes while it is read", twin=reads_columns_in_place)
def changed_frame(scene: Scene) -> None:
    """``x`` is read before ``first``, and the unit after it."""
    off = abs(total(meddled(), TWO) - HERS)
    assert off == 0, f"the sum is off by {off / SENSITIVITY:.0f} sensitivities"


def test_what_is_read_is_a_copy() -> None:
    numbers = np.array([1, 2, 3])
    frame = pd.DataFrame({"who": [1, 2, 3], "x": numbers}, copy=False)
    source = connect(frame, SCHEMA)
    assert total(source) == 6
    frame.loc[:, "x"] = 0
    assert total(source) == 6


@pytest.mark.parametrize("kind", ["reader", "lazy", "dataset"])
def test_what_is_registered_with_duckdb_is_read_once(tmp_path: Path, kind: str) -> None:
    arrow = visits().to_arrow()
    pq.write_table(arrow, tmp_path / "visits.parquet")
    connection = ibis.duckdb.connect()
    files = ds.dataset(tmp_path / "visits.parquet")
    made = {"reader": arrow.to_reader(), "lazy": shuffled(), "dataset": files}
    connection.con.register("visits", made[kind])
    source = connect(connection.table("visits"), SCHEMA)
    assert [total(source), total(source)] == [HERS, HERS]
    connection.disconnect()


@pytest.mark.parametrize(
    "source",
    [visits().to_arrow().to_reader(), iter([1]), (row for row in ()), visits().iter_slices(), {"x": [1]}],
    ids=lambda source: type(source).__name__,
)
def test_what_can_be_read_only_once_is_no_source(source: Any) -> None:
    with pytest.raises(InvalidValue, match="source must be"):
        connect(source, SCHEMA)


@ibis.udf.scalar.builtin
def uuid() -> str:
    """DuckDB's own."""
    raise NotImplementedError


REFUSED: dict[str, Any] = {
    "random": lambda t: t.mutate(x=ibis.random()),
    "random condition": lambda t: t.filter(ibis.random() < 0.5),
    "random unit": lambda t: t.mutate(who=ibis.random().cast("string")),
    "sample": lambda t: t.sample(0.5),
    "limit": lambda t: t.limit(10),
    "limit after order": lambda t: t.order_by("x").limit(10),
    "row number": lambda t: t.mutate(who=ibis.row_number()),
    "first": lambda t: t.mutate(x=t.x.first()),
    "last over": lambda t: t.mutate(x=t.x.last().over(group_by="who")),
    "mean": lambda t: t.mutate(x=t.x - t.x.mean()),
    "now": lambda t: t.mutate(x=ibis.now().epoch_seconds()),
    "uuid": lambda t: t.mutate(who=ibis.uuid().cast("string")),
    "function": lambda t: t.mutate(who=uuid()),
    "aggregate": lambda t: t.group_by("who").aggregate(x=t.x.first()),
    "distinct": lambda t: t.distinct(),
    "distinct on": lambda t: t.distinct(on="who", keep="first"),
    "join": lambda t: t.join(t.view(), "who").select("who", "x"),
    "in another": lambda t: t.filter(t.who.isin(t.view().filter(ibis._.x > 1).who)),
    "union": lambda t: t.union(t),
    "sql": lambda t: ops.SQLStringView(t.op(), "SELECT * FROM t", t.schema()).to_expr(),
    "query": lambda t: ops.SQLQueryResult("SELECT 1", t.schema(), t.get_backend()).to_expr(),
    "unbound": lambda t: ibis.table(t.schema(), name="t"),
    "in memory": lambda t: ibis.memtable(visits()).filter(ibis._.x > 1),
    "unnest": lambda t: t.mutate(x=ibis.array([1, 2]).unnest()),
    "division": lambda t: t.mutate(x=t.x.cast("string").cast("int64")),
}


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_expressions_that_are_not_row_by_row(request: pytest.FixtureRequest, engine: str) -> None:
    table = request.getfixturevalue(f"{engine}_maker")(visits().to_arrow())
    for make in REFUSED.values():
        expression = make(table)
        with pytest.raises(InvalidValue):
            connect(expression, SCHEMA)


ALLOWED: dict[str, Any] = {
    "filter": lambda t: t.filter(t.x + 1 > 1),
    "compute": lambda t: t.mutate(x=ibis.ifelse(t.x > 50, t.x / 1, 0.0)),
    "rename": lambda t: t.rename(y="x").rename(x="y"),
    "drop": lambda t: t.mutate(z=t.x).drop("z"),
    "order": lambda t: t.order_by("x", ibis._.who.desc()),
    "view": lambda t: t.view(),
    "all": lambda t: t.filter(t.x >= 0).select(who=t.who.name("a"), x="x").view().filter(ibis._.x < 101),
}


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_expressions_that_are(request: pytest.FixtureRequest, engine: str) -> None:
    table = request.getfixturevalue(f"{engine}_maker")(visits().to_arrow())
    for name in ALLOWED if engine == "duckdb" else ("compute", "all"):
        assert total(ALLOWED[name](table)) == HERS, name


class Anything(stored.Stored):
    """The twin: no list of operations, any expression is taken."""

    def here(self) -> Any:
        return self.source


def takes_anything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sources, "stored_of", lambda source, names: Anything(source, source.get_backend()))


@mend(12, "units drawn at random", twin=takes_anything)
def random_units(scene: Scene) -> None:
    """Every row would be a person: the bound per person is lost."""
    table = scene.fixture("duckdb_maker")(visits().to_arrow())
    with suppress(InvalidValue):
        off = abs(total(REFUSED["random unit"](table)) - HERS)
        assert off <= SENSITIVITY, f"the sum is off by {off / SENSITIVITY:.0f} sensitivities"


@mend(12, "values drawn at random", twin=takes_anything)
def random_values(scene: Scene) -> None:
    """Two readings would give two sums."""
    table = REFUSED["random"](scene.fixture("duckdb_maker")(visits().to_arrow()))
    table = table.mutate(x=ibis.random() * 100)
    with suppress(InvalidValue):
        assert total(table) == total(table)


VIEWS = {
    "random": "SELECT who, (random() * 100)::INT AS x FROM visits",
    "limit": "SELECT * FROM visits LIMIT 10",
    "sample": "SELECT * FROM visits USING SAMPLE 10%",
    "condition": "SELECT * FROM visits WHERE x > 1",
    "plain": "SELECT * FROM visits",
    "csv": "SELECT * FROM read_csv('visits.csv')",
    "named": "SELECT * FROM read_parquet('visits.parquet', filename = true)",
    "some of a file": "SELECT * FROM read_parquet('visits.parquet') LIMIT 10",
    "two files": "SELECT * FROM read_parquet('visits.parquet') a, read_parquet('visits.parquet') b",
    "other names": "SELECT * FROM read_parquet('visits.parquet') AS seen(x, who)",
    "replaced": "SELECT * REPLACE (100 - x AS x) FROM read_parquet('visits.parquet')",
    "renamed": "SELECT * RENAME (x AS who, who AS x) FROM read_parquet('visits.parquet')",
    "excluded": "SELECT * EXCLUDE (x) FROM read_parquet('visits.parquet')",
    "numbers": "SELECT range AS who, range AS x FROM range(10)",
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(visits().to_arrow(), "visits.parquet")
    visits().write_csv("visits.csv")
    connection = ibis.duckdb.connect()
    connection.con.execute("CREATE TABLE visits AS SELECT * FROM 'visits.parquet'")
    connection.con.execute(f"CREATE VIEW seen AS {VIEWS[name]}")
    with pytest.raises(InvalidValue, match="view, 'seen'"):
        connect(connection.table("seen"), SCHEMA)
    connection.disconnect()


def test_a_view_that_names_the_columns_of_a_file_anew(tmp_path: Path) -> None:
    """Read by the names in the file, the unit would be another column."""
    pq.write_table(visits().to_arrow(), tmp_path / "visits.parquet")
    connection = ibis.duckdb.connect()
    path = tmp_path / "visits.parquet"
    connection.con.execute(f"CREATE VIEW v (x, who) AS SELECT * FROM read_parquet('{path}')")
    with pytest.raises(InvalidValue, match="view, 'v'"):
        connect(connection.table("v"), SCHEMA)
    connection.disconnect()


MACROS = ("floor(x) AS random() * 100", "ENCODE(x) AS 'a'::BLOB", "sum(x) AS 7", '"+"(a, b) AS random()')


def redefined(macro: str) -> tuple[Any, int]:
    """A table whose engine got another function of its own name, and the sum before."""
    connection = ibis.duckdb.connect()
    connection.con.execute("CREATE TABLE t AS SELECT range % 7 AS who, 1.5 * range AS x FROM range(100)")
    connection.con.execute("CREATE MACRO mine(x) AS x + 1")
    before = total(connection.table("t"))
    connection.con.execute(f"CREATE MACRO {macro}")
    return connection, before


@pytest.mark.parametrize("macro", MACROS[1:])
def test_functions_of_duckdb_that_are_not_its_own(macro: str) -> None:
    """With such a function all people are one, or every reading is another."""
    connection, _ = redefined(macro)
    with pytest.raises(InvalidValue, match="redefines"):
        connect(connection.table("t"), SCHEMA)
    connection.disconnect()


@mend(12, "functions redefined", twin=replacing(stored, "_require_own_names", lambda connection: None))
def redefined_floor(scene: Scene) -> None:
    connection, before = redefined(MACROS[0])
    with pytest.raises(InvalidValue, match="redefines"):
        assert total(connection.table("t")) == before, "the sum is another one"
    connection.disconnect()


def test_views_of_files_are_read_from_the_files(tmp_path: Path) -> None:
    pq.write_table(visits().to_arrow().append_column("z", pa.array(range(1199))), tmp_path / "visits.parquet")
    connection = ibis.duckdb.connect()
    table = connection.read_parquet(tmp_path / "visits.parquet")
    assert total(table) == HERS
    assert total(table.filter(table.z < 1000).mutate(x=table.x / 2)) == HERS // 2
    connection.disconnect()


def test_tables_of_duckdb_that_are_not_its_own(tmp_path: Path) -> None:
    connection = ibis.duckdb.connect()
    connection.con.execute("CREATE TABLE computed (who INT, x INT GENERATED ALWAYS AS (100 // who))")
    with pytest.raises(InvalidValue, match="generated columns"):
        connect(connection.table("computed"), SCHEMA)
    connection.con.execute("CREATE TABLE visits AS SELECT 1 AS who, 100 AS x")
    connection.con.execute("CREATE TEMP VIEW visits AS SELECT who, random() AS x FROM computed")
    with pytest.raises(InvalidValue, match="one table"):
        connect(connection.table("visits"), SCHEMA)
    connection.con.execute(f"ATTACH '{tmp_path}/other.duckdb' AS other")
    connection.con.execute("CREATE TABLE other.main.hers AS SELECT * FROM memory.main.visits")
    assert total(connection.table("hers", database=("other", "main"))) == 100
    connection.disconnect()


def test_plans_of_spark(spark_maker: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as sf

    connection = spark_maker(visits().to_arrow()).get_backend()
    session = connection._session
    pq.write_table(visits().to_arrow(), tmp_path / "visits.parquet")
    visits().write_csv(tmp_path / "visits.csv")
    stored = session.read.parquet(str(tmp_path / "visits.parquet"))
    same = sf.udf(lambda x: x, "long")
    computed = {
        "rand": stored.withColumn("x", sf.rand()),
        "udf": stored.withColumn("x", same("x")),
        "impure": stored.withColumn("x", same.asNondeterministic()("x")),
        "number": stored.withColumn("who", sf.monotonically_increasing_id()),
        "limit": stored.limit(10),
        "sample": stored.sample(0.5),
        "division": stored.withColumn("x", 100 / sf.col("x")),
        "distinct": stored.distinct(),
        "rdd": stored.rdd.map(lambda row: (row[0], row[1])).toDF(["who", "x"]),
        "csv": session.read.csv(str(tmp_path / "visits.csv"), header=True),
    }
    for name, frame in computed.items():
        frame.createOrReplaceTempView("computed")
        with pytest.raises(InvalidValue, match="which Spark computes"):
            connect(connection.table("computed"), SCHEMA)
        assert name
    kept = stored.localCheckpoint()
    session.sparkContext.setCheckpointDir(str(tmp_path / "kept"))
    division = kept.withColumn("x", (100 / sf.col("x")).cast("long"))
    for frame in (division.localCheckpoint(eager=False), division.checkpoint(eager=False)):
        frame.createOrReplaceTempView("still_to_compute")
        with pytest.raises(InvalidValue, match="which Spark computes"):
            connect(connection.table("still_to_compute"), SCHEMA)
    computed["limit"].localCheckpoint().createOrReplaceTempView("kept")
    stored.createOrReplaceTempView("files")
    session.sql("CREATE OR REPLACE TEMP VIEW chosen AS SELECT x, who FROM files")
    assert total(connection.table("kept")) in range(101)
    assert total(connection.table("files")) == total(connection.table("chosen")) == HERS


@mend(12, "a file that changes", twin=replacing(sources, "unchanged", lambda paths: nullcontext()))
def changed_file(scene: Scene) -> None:
    """Rows are counted by person first and added up afterwards: two readings of the file, in one query."""
    path = scene.path / "visits.parquet"
    pq.write_table(visits().to_arrow(), path)
    source = connect(path, SCHEMA)
    run = source._connection.to_pyarrow

    def meanwhile(query: Any) -> Any:
        found = run(query)
        os.utime(path, ns=(1, 1))
        return found

    scene.patch.setattr(source._connection, "to_pyarrow", meanwhile)
    with pytest.raises(SourceMissing, match="changed while it was read"):
        total(source)


def test_files_are_listed_once(tmp_path: Path) -> None:
    pq.write_table(visits().to_arrow(), tmp_path / "a.parquet")
    source = connect(str(tmp_path / "*.parquet"), SCHEMA)
    pq.write_table(visits().to_arrow(), tmp_path / "b.parquet")
    assert total(source) == HERS


def test_frames_are_closed_lists() -> None:
    assert frames._IN_MEMORY.fullmatch(visits().lazy().explain(optimized=False))
