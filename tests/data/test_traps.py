"""Where engines raise or disagree over values in the data: what they do, and what we make of it.

Each test shows the trap first, so that it would fail if the engine had none.
"""

from __future__ import annotations

import datetime
import math
from typing import Any

import duckdb
import ibis
import ibis.expr.types as ir
import pandas as pd
import pyarrow as pa
import pytest

from tacit.data.cleaning.expressions import clip, total
from tacit.data.source import UNIT, PrivateSource, connect
from tacit.errors import EngineFailed
from tacit.relations import Unit
from tacit.schema import Column, Schema

INF, NAN = math.inf, math.nan
LARGEST = 2**53
LONG = 2**63 - 1


def raw(expression: Any) -> list[Any]:
    """What the engine itself answers, column by column and row by row."""
    return [value for column in stored(expression).columns for value in column.to_pylist()]


def stored(expression: Any) -> pa.Table:
    table = expression.as_table()
    engine = table.get_backend()
    if engine.name == "pyspark":
        return engine.raw_sql(engine.compile(table)).toArrow()
    return engine.to_pyarrow(table)


def floats(*values: float | None) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.float64(), from_pandas=False)})


def of(table: Any, column: Column) -> PrivateSource:
    """The only column of a table, as declared."""
    return connect(table, Schema({"x": column}))


def counted(source: PrivateSource) -> dict[Any, int]:
    """How many rows of each category there are, asked as cheaply as may be."""
    table = source.table
    found = source.run(table.group_by(key=source.key(table, "x")).aggregate(n=table.count()))
    counts: dict[Any, int] = {}
    for key, n in zip(found["key"], found["n"], strict=True):
        category = source.category("x", key)
        counts[category] = counts.get(category, 0) + n
    return counts


def cleaned(table: Any, column: Column) -> list[Any]:
    source = of(table, column)
    values = source.run(source.table.select("x"))["x"].tolist()
    source.close()
    return [None if pd.isna(value) else value for value in values]


def check(table: ir.Table, expected: dict[Column, list[Any]]) -> None:
    """The column x under several declarations, in one query."""
    named = {f"x{i}": column for i, column in enumerate(expected)}
    source = connect(table.select(**dict.fromkeys(named, table.x)), Schema(named))
    found = source.run(source.table)
    for name, column in named.items():
        values = [None if pd.isna(value) else value for value in found[name].tolist()]
        assert values == expected[column], column


def test_clip_of_nan(backends):
    table = backends(floats(NAN))
    assert raw(table.x.clip(0.0, 1.0)) == [1.0]
    assert raw(clip(table.x, 0.0, 1.0)) == [None]
    check(
        table,
        {
            Column("number", bounds=(0, 1)): [None],
            Column("number", bounds=(0, 1), missing=0.25): [0.25],
            Column("number"): [None],
            Column("number", missing=7): [7.0],
            Column("integer", bounds=(0, 9), missing=3): [3],
        },
    )


def test_clip_of_null(backends):
    table = backends(floats(None))
    assert raw(ibis.least(ibis.greatest(table.x, 0.0), 1.0)) == [0.0]
    assert raw(table.x.clip(0.0, 1.0)) == [None]
    assert raw(clip(table.x, 0.0, 1.0)) == [None]
    assert raw(clip(table.x, 0.0, 1.0, missing=0.5)) == [0.5]
    check(
        table,
        {
            Column("number", bounds=(0, 1)): [None],
            Column("integer", bounds=(0, 1), missing=1): [1],
        },
    )


def test_overflow_of_whole_numbers(backends):
    table = backends(pa.table({"x": [LONG, LONG, -LONG - 1]}))
    with pytest.raises(Exception, match=r"(?i)overflow|out of range"):
        raw(table.x + table.x)
    source = of(table, Column("integer"))
    assert source.run(source.table)["x"].tolist() == [LARGEST, LARGEST, -LARGEST]
    doubled = source.table.x + source.table.x
    assert source.run(source.table.aggregate(s=total(doubled)))["s"].tolist() == [2 * LARGEST]


def test_overflow_of_sums(backends):
    table = backends(pa.table({"x": [LONG, LONG]}))
    with pytest.raises(Exception, match=r"(?i)overflow|out of bounds"):
        raw(table.aggregate(s=table.x.sum()))
    source = of(table, Column("integer", bounds=(-(2**28), 2**28)))
    assert source.run(source.table.aggregate(s=total(source.table.x)))["s"].tolist() == [2**29]


def test_total_is_exact_where_floats_are_not(backends):
    table = backends(pa.table({"x": [2**52, 2**52, 1]}))
    assert raw(table.aggregate(s=table.x.cast("float64").sum())) == [2.0**53]
    source = of(table, Column("integer"))
    frame = source.run(source.table.aggregate(s=total(source.table.x)))
    assert frame["s"].tolist() == [2**53 + 1]
    assert frame["s"].dtype == "int64"


def test_division_by_zero(backends):
    table = backends(floats(0.0))
    if table.get_backend().name == "pyspark":
        with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
            raw(1 / table.x)
    else:
        assert raw(1 / table.x) != [None]
    source = of(table, Column("number"))
    safe = clip(source.table.x, 0.5, 1.0)
    assert source.run(source.table.select(y=1 / safe))["y"].tolist() == [2.0]


def test_null_is_a_group(backends):
    table = backends(pa.table({"x": ["a", None]}))
    assert None in raw(table.group_by("x").aggregate(n=table.count()))
    for missing, expected in ((None, {"a": 1, None: 1}), ("b", {"a": 1, "b": 1})):
        source = of(table, Column("category", categories=("a", "b"), missing=missing))
        assert counted(source) == expected


def test_empty_table(backends):
    table = backends(pa.table({"x": pa.array([], pa.int64())}))
    assert raw(table.aggregate(s=table.x.sum())) == [None]
    source = of(table, Column("integer"))
    frame = source.run(source.table.aggregate(s=total(source.table.x), n=source.table.count()))
    assert frame.to_dict("list") == {"s": [0], "n": [0]}
    assert len(source.run(source.table)) == 0


def test_ends_of_int64(backends):
    table = backends(pa.table({"x": [-LONG - 1]}))
    with pytest.raises(Exception, match=r"(?i)overflow|out of range"):
        raw(table.x.abs() if table.get_backend().name == "duckdb" else -table.x)
    check(
        table,
        {
            Column("integer"): [-LARGEST],
            Column("integer", bounds=(-5, 5)): [-5],
            Column("number"): [-(2.0**63)],
            Column("boolean"): [None],
            Column("text"): [None],
            Column("integer", categories=(1, 2)): [None],
        },
    )


def test_infinity(backends):
    table = backends(floats(INF, -INF, 1e300))
    with pytest.raises(Exception, match=r"(?i)overflow|out of range"):
        raw(table.x.floor())
    check(
        table,
        {
            Column("integer", bounds=(-5, 5)): [5, -5, 5],
            Column("integer"): [LARGEST, -LARGEST, LARGEST],
            Column("number", bounds=(-5, 5)): [5.0, -5.0, 5.0],
            Column("number"): [INF, -INF, 1e300],
            Column("category", categories=(1, 2)): [None, None, None],
            Column("text"): [None, None, None],
            Column("boolean"): [None, None, None],
        },
    )


def test_fractions_round_differently(backends):
    table = backends(floats(2.5, 3.5, -2.5))
    own = raw(table.x.cast("int64"))
    assert own == ([2, 3, -2] if table.get_backend().name == "pyspark" else [2, 4, -2])
    assert cleaned(table, Column("integer")) == [2, 3, -3]


def test_bounds_are_kept_to_the_last_bit(backends):
    lower, upper = 0.30000000000000004, 123456.78901234568
    table = backends(floats(0.0, INF, math.nextafter(lower, 1), math.nextafter(upper, 0)))
    expected = [lower, upper, math.nextafter(lower, 1), math.nextafter(upper, 0)]
    check(
        table,
        {
            Column("number", bounds=(lower, upper)): expected,
            Column("number", bounds=(-(2.0**400), 1e-300)): [0.0, 1e-300, 1e-300, 1e-300],
        },
    )


@pytest.mark.usefixtures("untyped")
def test_text_that_is_a_number_to_one_engine_only(backends):
    words = ["1_000", "+-1", "1d", "1f", "0x1p3", "\x1c1", "1\u2003"]
    numbers = {" 1.5\t": 1.5, "-.5e1": -5.0, "+1.": 1.0, "1e400": INF, "-inf": -INF, "Infinity": INF, "7": 7}
    neither = ["", " ", "nan", "NA", "1,5", "--1", "1 000", "१", "1e", "."]
    table = backends(pa.table({"x": [*words, *numbers, *neither]}))
    assert set(raw(table.x.try_cast("float64"))[: len(words)]) > {None}
    expected = [None] * len(words) + list(numbers.values()) + [None] * len(neither)
    assert cleaned(table, Column("number")) == expected
    clipped = [None if value is None else math.floor(min(max(value, -9), 9)) for value in expected]
    assert cleaned(table, Column("integer", bounds=(-9, 9))) == clipped
    assert cleaned(table, Column("category", categories=(1, 7))) == [
        value if value in (1, 7) else None for value in expected
    ]


def test_text_that_is_a_date_to_one_engine_only(backends):
    days = {"2020-01-05": 5, " 2020-01-06 ": 6, "2020-01-07T10:00": 7, "2020-01-08 25:99": 8}
    words = ["2020", "2020-01", "today", "epoch", "infinity", "2020/01/05", "2020-1-5", "12020-01-01"]
    neither = ["", "2020-02-30", "2020-01-05x", "20200105", "-2020-01-01"]
    table = backends(pa.table({"x": [*days, *words, *neither]}))
    assert any(value is not None for value in raw(table.x.try_cast("date").cast("string"))[len(days) :])
    expected = [datetime.date(2020, 1, day) for day in days.values()] + [None] * (len(words) + len(neither))
    assert cleaned(table, Column("date")) == expected


def test_dates_beyond_the_calendar(backends):
    days = pa.array([-(10**8), 0, 10**8], pa.int32()).cast(pa.date32())
    table = backends(pa.table({"x": days}))
    with pytest.raises((ValueError, OverflowError)):
        stored(table).to_pylist()
    first, epoch, last = datetime.date.min, datetime.date(1970, 1, 1), datetime.date.max
    assert cleaned(table, Column("date")) == [first, epoch, last]
    bounds = (datetime.date(2020, 1, 1), datetime.date(2020, 12, 31))
    assert cleaned(table, Column("date", bounds=bounds)) == [bounds[0], bounds[0], bounds[1]]


def test_infinite_dates_of_duckdb():
    connection = ibis.duckdb.connect()
    connection.con.execute("CREATE TABLE t AS SELECT unnest(['infinity', '-infinity', NULL])::TIMESTAMP AS x")
    for stored in ("TIMESTAMP", "TIMESTAMPTZ", "DATE"):
        connection.con.execute(f"CREATE OR REPLACE TABLE u AS SELECT x::{stored} AS x FROM t")
        table = connection.table("u")
        assert connection.con.execute("SELECT count(*) FROM u WHERE isinf(x)").fetchall() == [(2,)]
        assert cleaned(table, Column("date")) == [datetime.date.max, datetime.date.min, None]
    connection.disconnect()


def test_timestamps_are_their_day_in_utc(storing):
    late = datetime.datetime(2020, 1, 1, 23, 30, tzinfo=datetime.timezone(datetime.timedelta(hours=-5)))
    table = storing(pa.table({"x": pa.array([late], pa.timestamp("us", "UTC"))}))
    assert cleaned(table, Column("date")) == [datetime.date(2020, 1, 2)]


def test_undeclared_categories(backends):
    keys = ["a", " b\t", "secret", "", "  ", None, "a b", "\u2003a"]
    table = backends(pa.table({"x": keys}))
    assert "secret" in raw(table.group_by("x").aggregate(n=table.count()))
    for other, missing, expected in (
        (None, None, ["a", "b", None, None, None, None, None, None]),
        ("?", None, ["a", "b", "?", None, None, None, "?", "?"]),
        (None, "b", ["a", "b", None, "b", "b", "b", None, None]),
        ("?", "?", ["a", "b", "?", "?", "?", "?", "?", "?"]),
    ):
        column = Column("category", categories=("a", "b"), other=other, missing=missing)
        assert cleaned(table, column) == expected
        assert counted(of(table, column)) == {name: expected.count(name) for name in expected}


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 0, 7, None], pa.int8()),
        pa.array([1, 0, 7, None], pa.int64()),
        pa.array([1.0, 0.0, 7.0, None], pa.float32()),
        pa.array([1.0, 0.0, 7.0, NAN], pa.float64(), from_pandas=False),
        pa.array([1, 0, 7, None], pa.int64()).cast(pa.decimal128(20, 0)),
        pa.array(["1", " 0", "7.0", "n/a"], pa.string()),
    ],
    ids=lambda array: str(array.type),
)
@pytest.mark.usefixtures("untyped")
def test_stored_types(backends, values):
    table = backends(pa.table({"x": values}))
    check(
        table,
        {
            Column("integer", bounds=(0, 5)): [1, 0, 5, None],
            Column("number", bounds=(0.5, 5)): [1.0, 0.5, 5.0, None],
            Column("number"): [1.0, 0.0, 7.0, None],
            Column("boolean"): [True, False, None, None],
            Column("category", categories=(7, 1)): [1, None, 7, None],
        },
    )
    if values.type != pa.string():
        check(
            table,
            {
                Column("text"): ["1", "0", "7", None],
                Column("category", categories=("7", "1")): ["1", None, "7", None],
            },
        )


def test_stored_truth(backends):
    table = backends(pa.table({"x": [True, False, None]}))
    check(
        table,
        {
            Column("boolean"): [True, False, None],
            Column("boolean", missing=False): [True, False, False],
            Column("integer"): [1, 0, None],
            Column("number", bounds=(0, 1)): [1.0, 0.0, None],
            Column("text", missing="-"): ["true", "false", "-"],
        },
    )
    words = backends(pa.table({"x": ["TRUE", " false", "1", "0", "yes", "N", "F ", "ja", "", None]}))
    expected = [True, False, True, False, True, False, False, None, None, None]
    assert cleaned(words, Column("boolean")) == expected


@pytest.mark.parametrize(
    ("who", "expected"),
    [
        (pa.array([1, 1, None, -LONG - 1]), {1: 2, -LONG - 1: 1}),
        (pa.array([0.0, -0.0, NAN, INF], from_pandas=False), {0.0: 2, INF: 1}),
        (pa.array(["a", " a ", "", "b"]), {"a": 2, "b": 1}),
    ],
    ids=["int", "float", "text"],
)
def test_units(backends, who, expected):
    table = backends(pa.table({"x": [1, 2, 3, 4], "who": who}))
    assert len(raw(table.group_by("who").aggregate(n=table.count()))) > 2 * len(expected)
    source = connect(table, Schema({"x": Column("integer")}, unit=Unit("who", rows=2)))
    found = source.run(source.table.group_by(UNIT).aggregate(n=source.table.count()))
    assert dict(zip(found[UNIT], found["n"], strict=True)) == expected


def test_engine_errors_quote_the_data(backends, capfd):
    table = backends(pa.table({"x": ["SECRET-7"]}))
    with pytest.raises(Exception, match="SECRET-7"):
        raw(table.x.cast("int64"))
    capfd.readouterr()
    source = of(table, Column("text"))
    failing = source.table.select(y=source.table.x.cast("int64"))
    with pytest.raises(EngineFailed) as caught:
        source.run(failing)
    assert "SECRET" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    shown = capfd.readouterr()
    assert "SECRET" not in shown.out + shown.err
    assert source.run(source.table)["x"].tolist() == ["SECRET-7"]
    curator = connect(table, Schema({"x": Column("text")}), show_engine_errors=True)
    with pytest.raises(EngineFailed, match="SECRET-7"):
        curator.run(failing)


def test_hashes_differ_between_engines(duckdb_maker, spark_maker):
    frame = pa.table({"x": ["a", "b"], "who": [1, 2]})
    tables = [make(frame) for make in (duckdb_maker, spark_maker)]
    assert raw(tables[0].x.hash()) != raw(tables[1].x.hash())
    schema = Schema({"x": Column("category", categories=("a",))}, unit=Unit("who", rows=1))
    sources = [connect(table, schema) for table in tables]
    for source in sources:
        query = source.table.aggregate(n=total(source.table[UNIT]))
        assert "hash" not in source.table.get_backend().compile(query).lower()
    pd.testing.assert_frame_equal(*(source.run(source.table) for source in sources), check_dtype=False)


def test_mixed_objects():
    values = [1, "2", None, NAN, [3], "x"]
    with pytest.raises(pa.ArrowInvalid):
        pa.array(pd.Series(values, dtype=object))
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object)})
    assert cleaned(frame, Column("integer")) == [1, 2, None, None, None, None]
    assert cleaned(frame, Column("text")) == ["1", "2", None, None, None, "x"]
    assert cleaned(frame, Column("date")) == [None] * 6


def test_csv_lines_that_do_not_parse(tmp_path):
    path = tmp_path / "people.csv"
    path.write_bytes(b"x,y\n" + b"1,a\n" * 30_000 + b'SECRET,"b\n c"\n2\n3,\xff\n4,d,surplus\n5"6,e\n')
    with pytest.raises(duckdb.Error, match="SECRET"):
        duckdb.sql(f"SELECT sum(x) FROM read_csv('{path}', sample_size = 100)").fetchall()
    padded = "columns = {x: 'VARCHAR', y: 'VARCHAR'}, auto_detect = false, header = true, null_padding = true"
    with pytest.raises(duckdb.Error):
        duckdb.sql(f"SELECT * FROM read_csv('{path}', ignore_errors = true, {padded})").fetchall()
    values = cleaned(path, Column("number"))
    assert values.count(1.0) == 30_000
    assert values[30_000:] == [None, 3.0, 4.0, None]
