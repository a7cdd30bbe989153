"""Two people become one, or one becomes two: units that engines and conversions do not tell apart.

If two units are taken for one, adding one of them shrinks the other's rows, and cells move by almost twice
the sensitivity. If one is taken for two, it counts twice for a key. Here every person has a category of her
own, so that the exact cells, before any noise, show who was taken for whom: each cell must be what one person
alone adds, the number of units that of the people, and each key must be had by one.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contract.mends import Scene, mend, replacing
from engines import THEIR_WARNINGS
from tacit import Column, Schema, Unit
from tacit.data import files, frames
from tacit.data import units as in_memory
from tacit.data.cleaning import expressions
from tacit.data.source import UNIT, PrivateSource, connect
from tacit.errors import SourceMissing
from tacit.randomness import Source as RandomSource
from tacit.relations import Relation
from tacit.tables.cells.axes import key_axis
from tacit.tables.cells.measure import FRACTIONS, ROUNDED_DOWN, Block, Measurement, measure
from tacit.tables.cells.noise import Context
from tacit.tables.statistics.discovery import Keys
from tacit.tables.statistics.units import UnitCount

pytestmark = [pytest.mark.filterwarnings(line) for line in THEIR_WARNINGS]

NAMES = tuple("abcdefghijkl")
SCHEMA = Schema(
    {"c": Column("category", categories=NAMES), "key": Column("text")}, unit=Unit("who", rows=1)
)
BY = Measurement(Block("count"), (key_axis(SCHEMA, "c"),))
CONTEXT = Context(Relation.ADD_REMOVE, SCHEMA.unit, RandomSource(0), None, concentrated=False)
SENSITIVITY = BY.sensitivity(Relation.ADD_REMOVE, SCHEMA.unit, 1)


def raw(kind: pa.DataType, numbers: list[int]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.array(numbers, dtype=np.int64))])


def undecodable(*texts: bytes) -> pa.Array:
    ends = pa.py_buffer(np.cumsum([0, *map(len, texts)]).astype("int32"))
    return pa.Array.from_buffers(pa.string(), len(texts), [None, ends, pa.py_buffer(b"".join(texts))])


NEXT = math.nextafter(0.1, 1)
TEXTS = ["Ann", "ann", "ANN", "a\0", "a", "é", "e\u0301", "ß", "ss", "7", "07", "7.0"]
LARGE = pa.array([Decimal(2**53), Decimal(2**53 + 1), Decimal(10**30)], pa.decimal128(38, 0))
UNITS: dict[str, pa.Array] = {
    "decimal": pa.array([Decimal("1.0000000001"), Decimal("1.0000000002")], pa.decimal128(38, 10)),
    "large decimal": LARGE,
    "whole": pa.array([2**53, 2**53 + 1, 2**63 - 1, -(2**63), 0]),
    "unsigned": pa.array([2**64 - 1, 2**64 - 2, 2**53, 2**53 + 1], pa.uint64()),
    "float": pa.array([0.1, NEXT, 0.0, 5e-324, 1e-300, -1.0]),
    "single": pa.array(np.array([0.1, np.nextafter(np.float32(0.1), 1), 16777216.0], np.float32)),
    "text": pa.array(TEXTS),
    "codes": pa.array(TEXTS).dictionary_encode(),
    "coded decimals": LARGE.dictionary_encode(),
    "truth": pa.array([True, False]),
    "date": pa.array([0, 1, -1, 2932896], pa.int32()).cast(pa.date32()),
    "nanoseconds": raw(pa.timestamp("ns"), [0, 1, 2, 999, 1000]),
    "zoned": raw(pa.timestamp("ns", "Europe/Paris"), [0, 1, 1_603_587_600 * 10**9, 1_603_591_200 * 10**9]),
    "milliseconds": raw(pa.timestamp("ms"), [0, 1, 2**62, 2**62 + 1]),
    "date64": raw(pa.date64(), [0, 1, 86_400_000]),
}
"""Different people, by the type in which they are stored."""

TIMES = ("nanoseconds", "zoned", "milliseconds")


def visits(who: pa.Array) -> pa.Table:
    """Person i has 3i + 1 rows, in a category and with a key of her own."""
    places = [i for i in range(len(who)) for _ in range(3 * i + 1)]
    return pa.table(
        {"who": who.take(pa.array(places)), "c": [NAMES[i] for i in places], "key": [f"k{i}" for i in places]}
    )


def exact(source: PrivateSource) -> np.ndarray:
    """The cells before the noise."""
    (cells,) = measure(source, source.table, SCHEMA.unit, [BY])
    return cells[..., 0]


def units(source: PrivateSource) -> int:
    return int(UnitCount().read(source, source.table, CONTEXT)[0][0])


def keys(source: PrivateSource) -> list[int]:
    """How many people have each key, where a person may count for two."""
    found = Keys("key").read(source, source.table, replace(CONTEXT, unit=Unit("who", rows=2)))[0]
    return sorted(found["n"])


def alone(rows: int) -> int:
    """What a person with this many rows adds to the cell of her category."""
    return rows * math.floor(FRACTIONS / rows * ROUNDED_DOWN) if rows > 1 else FRACTIONS


def check(source: Any, people: int) -> None:
    """Everybody is one person."""
    opened = connect(source, SCHEMA)
    assert exact(opened)[:people].tolist() == [alone(3 * i + 1) for i in range(people)]
    assert units(opened) == people
    assert keys(opened) == [1] * people
    opened.close()


Make = Callable[[pa.Table], Any]


@pytest.fixture
def parquet(tmp_path: Path) -> Make:
    def make(table: pa.Table) -> Path:
        pq.write_table(table, tmp_path / "visits.parquet")
        return tmp_path / "visits.parquet"

    return make


def boxed(table: pa.Table) -> pd.DataFrame:
    """pandas with one object for each unit."""
    who = pd.Series(table["who"].to_pylist(), dtype=object)
    return pd.DataFrame({"who": who, "c": table["c"].to_pylist(), "key": table["key"].to_pylist()})


FRAMES: dict[str, Make] = {
    "arrow": lambda table: table,
    "batch": lambda table: table.combine_chunks().to_batches()[0],
    "pandas": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "objects": boxed,
    "polars": lambda table: pl.from_arrow(table),
}


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("name", UNITS)
def test_frames(name: str, frame: str) -> None:
    who = UNITS[name]
    if name in ("milliseconds", "date64") and frame in ("objects", "pandas", "polars"):
        who = who.slice(0, 2) if name == "milliseconds" else who.take([0, 2])
    if name == "coded decimals" and frame == "polars":
        pytest.skip("polars has no categories but text")
    check(FRAMES[frame](visits(who)), len(who))


@pytest.mark.parametrize(
    "engine", ["duckdb", "registered", "parquet", pytest.param("spark", marks=pytest.mark.audit)]
)
def test_engines(request: pytest.FixtureRequest, engine: str) -> None:
    """Times are refused by their type, on engines and in files; everybody else is one person."""
    make = request.getfixturevalue(engine if engine == "parquet" else f"{engine}_maker")
    unmade = {"registered": "zoned", "duckdb": "milliseconds"}
    names = set(UNITS) - {unmade.get(engine)}
    if engine == "spark":
        names = {"decimal", "float", "text", "nanoseconds"}
    for name in sorted(names):
        table = make(visits(UNITS[name]))
        if name in TIMES and engine != "registered":
            with pytest.raises(SourceMissing, match="cannot be the unit"):
                connect(table, SCHEMA)
        elif name == "date64":
            check(make(visits(UNITS[name].take([0, 2]))), 2)
        else:
            check(table, len(UNITS[name]))


def test_types_that_can_be_no_unit() -> None:
    for who in ([b"a"], [[1]], [{"a": 1}], [datetime.time(1)], [datetime.timedelta(1)]):
        with pytest.raises(SourceMissing, match="cannot be the unit"):
            connect(visits(pa.array(who)), SCHEMA)


def test_text_in_a_file_is_taken_as_it_is_written(tmp_path: Path) -> None:
    table = visits(pa.array(["7", "07", "7.0", "7e0", "Ann", "ann", "é", "e\u0301", "NULL", "nan"]))
    table.to_pandas().to_csv(tmp_path / "visits.csv", index=False)
    check(tmp_path / "visits.csv", 10)


COLLATIONS = {
    "column": "CREATE TABLE t (who VARCHAR COLLATE NOCASE, c VARCHAR, key VARCHAR)",
    "accents": "CREATE TABLE t (who VARCHAR COLLATE NOCASE.NOACCENT, c VARCHAR, key VARCHAR)",
    "connection": "SET default_collation = 'NOCASE'; CREATE TABLE t (who VARCHAR, c VARCHAR, key VARCHAR)",
}


def collated(statement: str) -> Any:
    connection = ibis.duckdb.connect()
    connection.con.execute(statement)
    connection.con.register("incoming", visits(pa.array(["Ann", "ANN", "Ánn", "bob", "BOB"])))
    connection.con.execute("INSERT INTO t SELECT * FROM incoming")
    return connection.table("t")


@pytest.mark.parametrize("name", COLLATIONS)
def test_collations_of_duckdb(name: str) -> None:
    check(collated(COLLATIONS[name]), 5)


def test_collations_of_spark(spark_maker: Any) -> None:
    stored = spark_maker(visits(pa.array(["Ann", "ANN", "bob"])))
    connection = stored.get_backend()
    session = connection._session
    lax = session.table(stored.get_name()).selectExpr("who COLLATE UTF8_LCASE AS who", "c", "key")
    lax.localCheckpoint().createOrReplaceTempView("lax")
    check(connection.table("lax"), 3)


PARIS = datetime.timezone(datetime.timedelta(hours=1))
NOON = datetime.datetime(2020, 1, 1, 12)
SAME: dict[str, list[Any]] = {
    "zeros": [0.0, -0.0],
    "blanks": ["a", " a", "a\t"],
    "numbers": [1, 1.0, "1", Decimal("1.00"), np.int8(1), np.float32(1)],
    "decimals": [Decimal("1.1"), Decimal("1.10"), 1.1, "1.1"],
    "small": [1e-7, Decimal("1e-7"), "0.0000001"],
    "nothing": [0, -0.0, Decimal("-0.00"), "0"],
    "zones": [NOON.replace(tzinfo=datetime.UTC), NOON.replace(hour=13, tzinfo=PARIS)],
    "resolutions": [NOON, np.datetime64("2020-01-01T12", "h"), np.datetime64(NOON, "ns"), pd.Timestamp(NOON)],
}
APART: dict[str, list[Any]] = {
    "decimals": [Decimal("1.1"), Decimal("1.10000000000000000001"), Decimal(2**53 + 1), Decimal(2**53)],
    "nanoseconds": [pd.Timestamp(1), pd.Timestamp(2), np.datetime64(3, "ns"), np.datetime64(4, "ns")],
    "types": [1, True, "x", datetime.date(2020, 1, 1), NOON],
    "texts": ["Ann", "ann", "a", "a\0", "é", "e\u0301"],
}


@pytest.mark.parametrize("name", SAME)
def test_one_person_in_several_spellings(name: str) -> None:
    spellings = SAME[name]
    table = {"who": pd.Series(spellings, dtype=object), "c": "a", "key": "k"}
    source = connect(pd.DataFrame(table), SCHEMA)
    assert exact(source)[0] <= FRACTIONS
    assert (units(source), keys(source)) == (1, [1])


@pytest.mark.parametrize("name", APART)
def test_several_people_in_one_column_of_objects(name: str) -> None:
    people = APART[name]
    places = [i for i in range(len(people)) for _ in range(3 * i + 1)]
    columns = {"c": [NAMES[i] for i in places], "key": [f"k{i}" for i in places]}
    check(pd.DataFrame({"who": pd.Series([people[i] for i in places], dtype=object), **columns}), len(people))


@pytest.mark.parametrize("engine", ["arrow", "duckdb", "spark"])
def test_one_zero(request: pytest.FixtureRequest, engine: str) -> None:
    table = pa.table({"who": [0.0, -0.0], "c": ["a", "a"], "key": ["k", "k"]})
    stored = table if engine == "arrow" else request.getfixturevalue(f"{engine}_maker")(table)
    source = connect(stored, SCHEMA)
    assert exact(source).sum() == alone(2)
    assert (units(source), keys(source)) == (1, [1])


BAD = undecodable(b"\xff", b"\xfe", b"Ann", b"\xed\xa0\x80", b"\xef\xbf\xbd")


def test_undecodable_text_is_no_unit() -> None:
    """Replaced, the first two and the last would be one person."""
    source = connect(visits(BAD), SCHEMA)
    assert np.nonzero(exact(source))[0].tolist() == [2, 4]
    assert units(source) == 2
    halves = pd.DataFrame({"who": pd.Series(["a\ud800", "a?"], dtype=object), "c": "a", "key": "k"})
    assert units(connect(halves, SCHEMA)) == 1


def test_undecodable_text_beside_times_in_a_parquet_file(tmp_path: Path) -> None:
    """Arrow copies such columns; replaced, the first two and the last would be one person."""
    table = visits(BAD)
    when = raw(pa.timestamp("ms"), [0] * len(table))
    pq.write_table(table.append_column("when", when), tmp_path / "visits.parquet")
    known = Schema({**SCHEMA.columns, "when": Column("date")}, unit=SCHEMA.unit)
    source = connect(tmp_path / "visits.parquet", known)
    assert np.nonzero(exact(source))[0].tolist() == [2, 4]
    assert units(source) == 2


class Named(pa.ExtensionType):
    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "tacit.tests.unit")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


def test_units_under_a_wrapping() -> None:
    """As codes of which two stand for the same value, as runs, or under another name."""
    for name in ("large decimal", "nanoseconds", "text", "float"):
        who = UNITS[name]
        check(visits(who.dictionary_encode()), len(who))
        places = pa.array([i for i in range(len(who)) for _ in range(3 * i + 1)])
        ends = pa.array(range(1, len(places) + 1), pa.int32())
        runs = pa.RunEndEncodedArray.from_arrays(ends, who.take(places))
        check(visits(who).set_column(0, "who", runs), len(who))
        named = pa.ExtensionArray.from_storage(Named(who.type), who.take(places))
        check(visits(who).set_column(0, "who", named), len(who))
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", "a"]))
    source = connect(pa.table({"who": twice, "c": ["a", "a"], "key": ["k", "k"]}), SCHEMA)
    assert (units(source), keys(source), exact(source).sum()) == (1, [1], alone(2))


def neighbours(who: pa.Array) -> float:
    """How far the last person's nine rows, in a category of her own, move all cells, in sensitivities."""
    others = pa.table({"who": who[:-1], "c": ["a"] * (len(who) - 1), "key": ["k"] * (len(who) - 1)})
    hers = pa.table({"who": who[-1:].take(pa.array([0] * 9)), "c": ["b"] * 9, "key": ["k"] * 9})
    with_her, without = (
        exact(connect(table, SCHEMA)) for table in (pa.concat_tables([others, hers]), others)
    )
    return float(np.abs(with_her - without).sum() / SENSITIVITY)


PAIRS = {
    "decimal": pa.array([Decimal(2**53), Decimal(2**53 + 1)], pa.decimal128(38, 0)),
    "nanoseconds": raw(pa.timestamp("ns"), [1, 2]),
    "bytes": undecodable(b"\xff", b"\xfe"),
}


def lax_unit(value: Any) -> Any:
    """Zeros as they are, times as the engine writes them."""
    kind = value.type()
    return value if kind.is_floating() else value.cast("int64" if kind.is_integer() else "string")


def converts_units(patch: pytest.MonkeyPatch) -> None:
    """The twin converts units as other columns: two people become one, and cells move by 1.8."""
    patch.setattr(frames, "_told_apart", frames.readable)
    patch.setattr(frames, "cast", lambda values, wanted, unit=False, cast=frames.cast: cast(values, wanted))
    patch.setattr(expressions, "unit", lax_unit)


def one_sensitivity(scene: Scene, name: str) -> None:
    """Adding one person moves all cells together by one sensitivity."""
    moved = neighbours(PAIRS[name])
    assert moved <= 1, f"cells moved by {moved} sensitivities"


for name in PAIRS:
    mend(13, f"two people become one: {name}", twin=converts_units)(partial(one_sensitivity, name=name))


@mend(13, "a person who counts twice for a key", twin=replacing(expressions, "unit", lax_unit))
def two_zeros(scene: Scene) -> None:
    table = pa.table({"who": [0.0, -0.0], "c": ["a", "a"], "key": ["k", "k"]})
    assert keys(connect(table, SCHEMA)) == [1]


@mend(13, "a collation", twin=replacing(PrivateSource, "unit", lambda self, table: table[UNIT]))
def collation(scene: Scene) -> None:
    """Of five people the engine tells three apart."""
    assert units(connect(collated(COLLATIONS["column"]), SCHEMA)) == 5


def wide_decimals(path: Path) -> Path:
    """Two people whose numbers have 60 digits, and are the same float."""
    numbers = [Decimal("123456789012345678901234567.89"), Decimal("123456789012345678901234567.88")]
    file = path / "wide.parquet"
    pq.write_table(pa.table({"who": pa.array(numbers, pa.decimal256(60, 5)), "c": ["a", "b"]}), file)
    return file


@mend(
    13,
    "decimals that DuckDB reads as floats",
    twin=replacing(files, "_require_told_apart", lambda kinds, unit: None),
)
def decimals_of_a_file(scene: Scene) -> None:
    file = wide_decimals(scene.path)
    schema = Schema({"c": Column("category", categories=("a", "b"))}, unit=Unit("who"))
    for source in (str(file), ibis.duckdb.connect().read_parquet(str(file))):
        with pytest.raises(SourceMissing, match="cannot be the unit"):
            connect(source, schema)
    assert connect(str(file), Schema({"who": Column("number", bounds=(0, 1))}))


MOMENTS: list[list[Any]] = [
    [
        pd.Timestamp("2020-01-01 00:00+00:00"),
        pd.Timestamp("2020-01-01 01:00+01:00"),
        datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
    ],
    [
        pd.Timestamp("2020-01-01"),
        datetime.datetime(2020, 1, 1),
        np.datetime64("2020-01-01T00:00:00", "ns"),
        np.datetime64("2020-01-01T00:00:00", "s"),
    ],
    [pd.Timestamp("2020-01-01 00:00:00.000000001"), np.datetime64("2020-01-01T00:00:00.000000001", "ns")],
    [datetime.datetime(2020, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))],
    [datetime.datetime(2020, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))],
    [np.datetime64(1, "ns")],
    [np.timedelta64(1, "ns")],
    [1, 1.0],
    [datetime.date(2020, 1, 1), np.datetime64("2020-01-01")],
]
"""People by the times that name them in memory, each of the several ways to write one time."""


def by_class(unit: Any) -> Any:
    """The old key: by the text of the class's own."""
    if isinstance(unit, np.generic):
        unit = unit.item()
    return (type(unit).__name__, str(unit)) if unit == unit else None


@mend(13, "times of several classes", twin=replacing(in_memory, "_moment", by_class))
def times_in_memory(scene: Scene) -> None:
    named = np.empty(sum(map(len, MOMENTS)), dtype=object)
    named[:] = [time for times in MOMENTS for time in times]
    whose = [person for person, times in enumerate(MOMENTS) for _ in times]
    assert in_memory.unit_numbers(named).tolist() == whose
    missing = np.array([pd.NaT, np.datetime64("NaT"), None], dtype=object)
    assert in_memory.unit_numbers(missing).tolist() == [-1, -1, -1]
