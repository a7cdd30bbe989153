"""Row-by-row expressions: never an exception, the same answers on both engines, one row at a time."""

from __future__ import annotations

import datetime
import itertools
import math
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import ibis
import ibis.expr.operations as ops
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from ibis import _

from tacit.data.engine.rowwise import rowwise
from tacit.errors import InvalidValue

NAN, INF = math.nan, math.inf
FLOATS = [
    *(None, NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 0.49999999999999994, 2.675),
    *(2.0**51 + 0.5, 2.0**52 - 0.5, 2.0**53, -(2.0**63), 1e19, 1e308, -1e308, 5e-324, -5e-324, 1e-300, 709.9),
]
WHOLES = [None, 0, 1, -1, 2, -7, 3, 7, 100, 2**53, 2**53 + 1, -(2**53), 2**63 - 1, -(2**63), 2**62]
TEXTS = [
    *(
        None,
        "",
        " ",
        "a",
        "A",
        "yes",
        " x\t",
        "\n\u00a0x\x0b\x0c",
        "É",
        "e\u0301",
        "ß",
        "İ",
        "Σας",
        "日本語",
        "👍🏽",
    ),
    *("it's", "a\\b", "\\", '"', "%_", "1e5", "NaN", "a'; drop table grid; --", "ǅ", "\ufeffa", "ab" * 300),
]
DATES = [
    *(None, datetime.date(1, 1, 1), datetime.date(1, 12, 31), datetime.date(1582, 10, 10)),
    *(datetime.date(1900, 2, 28), datetime.date(1970, 1, 1), datetime.date(2000, 2, 29)),
    *(datetime.date(2000 + year, *day) for year in range(12) for day in ((1, 1), (1, 4), (12, 29), (12, 31))),
    *(datetime.date(9999, 1, 3), datetime.date(9999, 12, 31)),
]
TRUTHS = [None, True, False]


def grid() -> pa.Table:
    """Every pair of floats, beside every other kind of nasty value, paired at another stride."""
    pairs = list(itertools.product(FLOATS, FLOATS))
    n = len(pairs)

    def column(values: list[Any], kind: pa.DataType, stride: int = 1) -> pa.Array:
        return pa.array([values[(i // stride) % len(values)] for i in range(n)], kind)

    return pa.table(
        {
            "i": pa.array(range(n), pa.int64()),
            "x": pa.array([x for x, _ in pairs], pa.float64()),
            "y": pa.array([y for _, y in pairs], pa.float64()),
            "k": column(WHOLES, pa.int64()),
            "m": column(WHOLES, pa.int64(), len(WHOLES)),
            "small": column([None, -128, 127, 0, 1], pa.int8()),
            "f": column([None, NAN, INF, 0.0, 3.4e38, 1.5], pa.float32()),
            "s": column(TEXTS, pa.string()),
            "u": column(TEXTS, pa.string(), len(TEXTS)),
            "d": column(DATES, pa.date32()),
            "e": column(DATES, pa.date32(), len(DATES)),
            "b": column(TRUTHS, pa.bool_()),
            "c": column(TRUTHS, pa.bool_(), len(TRUTHS)),
        }
    )


Make = Callable[[ibis.Table], Any]
DAY = datetime.date(2000, 2, 29)
MANY = [0, 1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, INF]
EXACT: dict[str, Make] = {
    "column x": lambda t: t.x,
    "column k": lambda t: t.k,
    "column small": lambda t: t.small * 2 + 1,
    "column f": lambda t: t.f,
    "column s": lambda t: t.s,
    "column d": lambda t: t.d,
    "column b": lambda t: t.b,
    "literal": lambda t: t.k * 0 + 0.1234567890123456789,
    "literal whole": lambda t: ibis.ifelse(t.b, 1, 0) * 1e300,
    "literal infinite": lambda t: t.x < INF,
    "decimals": lambda t: ibis.ifelse(t.b, 0.1, 0.2) * 3,
    "pi, e": lambda t: t.k * ibis.pi + ibis.e,
    "add": lambda t: t.x + t.y,
    "add k": lambda t: t.k + t.m,
    "add k 1": lambda t: t.k + 1,
    "subtract": lambda t: t.x - t.y,
    "subtract k": lambda t: t.k - t.m,
    "multiply": lambda t: t.x * t.y,
    "multiply k": lambda t: t.k * t.m * t.k * t.m,
    "multiply 0": lambda t: t.x * 0,
    "multiply inf": lambda t: t.k * INF,
    "divide": lambda t: t.x / t.y,
    "divide k": lambda t: t.k / t.m,
    "divide 0": lambda t: t.x / 0,
    "divide by sum": lambda t: t.x / (t.y + t.k),
    "divide twice": lambda t: (t.x / 3) / (t.x / t.k),
    "floor divide": lambda t: t.x // t.y,
    "floor divide k": lambda t: t.k // t.m,
    "floor divide 7": lambda t: t.x // 7,
    "modulus": lambda t: t.x % t.y,
    "modulus k": lambda t: t.k % t.m,
    "modulus 10": lambda t: t.k % 10,
    "negate": lambda t: -t.x,
    "negate k": lambda t: -t.k,
    "abs": lambda t: t.x.abs(),
    "abs k": lambda t: t.k.abs(),
    "sign": lambda t: t.x.sign(),
    "sign of nan": lambda t: (t.x - t.y).sign(),
    "sign k": lambda t: t.k.sign() * t.k,
    "floor": lambda t: t.x.floor(),
    "floor of nan": lambda t: (t.x * t.y).floor(),
    "floor k": lambda t: t.k.floor(),
    "floor small": lambda t: (t.s.length() / 7).floor(),
    "ceil": lambda t: t.x.ceil(),
    "round": lambda t: t.x.round(),
    "round sum": lambda t: (t.x + t.y).round(),
    "round 2": lambda t: t.x.round(2),
    "round 15": lambda t: t.x.round(15),
    "round k": lambda t: t.k.round(3),
    "sqrt": lambda t: t.x.sqrt(),
    "sqrt k": lambda t: t.k.sqrt(),
    "sqrt of nan": lambda t: (t.x - t.y).sqrt(),
    "square": lambda t: t.x**2,
    "cube": lambda t: t.x**3,
    "power half": lambda t: t.x**0.5,
    "clip": lambda t: t.x.clip(-2, 2),
    "clip below": lambda t: t.x.clip(lower=0),
    "clip above": lambda t: t.k.clip(upper=100),
    "clip by columns": lambda t: t.x.clip(t.k, t.y),
    "clip nan": lambda t: (t.x - t.y).clip(0, 1),
    "least": lambda t: ibis.least(t.x, t.y, t.k),
    "greatest": lambda t: ibis.greatest(t.x, t.y, 0),
    "greatest text": lambda t: ibis.greatest(t.s, t.u),
    "least date": lambda t: ibis.least(t.d, t.e),
    "least truth": lambda t: ibis.least(t.b, t.c),
    "less": lambda t: t.x < t.y,
    "less equal": lambda t: t.x <= t.y,
    "greater": lambda t: t.x > t.y,
    "greater equal": lambda t: t.x >= t.y,
    "equal": lambda t: t.x == t.y,
    "not equal": lambda t: t.x != t.y,
    "nan greater": lambda t: (t.x - t.y) > 0,
    "nan not greater": lambda t: ~((t.x * t.y) > 0),
    "equal k": lambda t: t.k == t.m,
    "greater k": lambda t: t.k > 6.5,
    "identical": lambda t: t.x.identical_to(t.y),
    "identical text": lambda t: t.s.identical_to(t.u),
    "truth and number": lambda t: t.b == 1,
    "sum of truths": lambda t: t.b + t.c,
    "between": lambda t: t.x.between(-1, t.y),
    "between dates": lambda t: t.d.between("2000-01-01", t.e),
    "isin": lambda t: t.k.isin([1, 2, 3]),
    "isin many": lambda t: t.x.isin(MANY),
    "isin many of nan": lambda t: (t.x * t.y).isin(MANY),
    "isin none": lambda t: t.x.isin([]),
    "isin null": lambda t: t.k.isin([1, None]),
    "isin text": lambda t: t.s.isin(["a", "it's", "日本語", "a\\b", "", "e\u0301"]),
    "isin dates": lambda t: t.d.isin([DAY, datetime.date(1, 1, 1)]),
    "notin": lambda t: t.k.notin([1, 2, 3]),
    "and": lambda t: t.b & t.c,
    "or": lambda t: t.b | t.c,
    "xor": lambda t: t.b ^ t.c,
    "not": lambda t: ~t.b,
    "isnull": lambda t: t.x.isnull(),
    "notnull": lambda t: (t.x - t.y).notnull(),
    "isnull text": lambda t: t.s.isnull(),
    "isnan": lambda t: (t.x - t.y).isnan(),
    "isinf": lambda t: t.x.isinf(),
    "coalesce": lambda t: ibis.coalesce(t.x - t.y, t.k, 0),
    "fill_null": lambda t: t.x.fill_null(-1),
    "fill_null text": lambda t: t.s.fill_null("none"),
    "nullif": lambda t: t.x.nullif(t.y),
    "nullif text": lambda t: t.s.nullif(""),
    "ifelse": lambda t: ibis.ifelse(t.b, t.x, t.k),
    "ifelse null": lambda t: ibis.ifelse(t.x > t.y, t.s, None),
    "ifelse of nulls": lambda t: ibis.ifelse(t.b, ibis.null(), ibis.null()),
    "cases": lambda t: ibis.cases((t.x > 1, "high"), (t.x < -1, "low"), else_="middle"),
    "cases without else": lambda t: ibis.cases((t.b, t.d), (t.c, t.e)),
    "cases of a value": lambda t: t.k.cases((1, "one"), (2, "two"), else_="many"),
    "cast k": lambda t: t.k.cast("float64") / 2,
    "cast whole": lambda t: t.x.floor().cast("int64"),
    "cast b": lambda t: t.b.cast("int64") + t.c.cast("float64"),
    "cast b text": lambda t: t.b.cast("string"),
    "cast k text": lambda t: t.k.cast("string"),
    "cast floor text": lambda t: (t.x // 10).cast("string"),
    "cast d": lambda t: t.d.cast("date"),
    "length": lambda t: t.s.length(),
    "strip": lambda t: t.s.strip(),
    "startswith": lambda t: t.s.startswith(t.u),
    "endswith": lambda t: t.s.endswith("x"),
    "contains": lambda t: t.s.contains(t.u),
    "contains quote": lambda t: t.s.contains("'"),
    "contains backslash": lambda t: t.s.contains("\\"),
    "equal text": lambda t: t.s == t.u,
    "less text": lambda t: t.s < t.u,
    "equal odd text": lambda t: t.s == "a'; drop table grid; --",
    "slice": lambda t: t.s[0:2],
    "slice from": lambda t: t.s[1:],
    "slice to": lambda t: t.s[:1],
    "slice of nothing": lambda t: t.s[3:2],
    "substr": lambda t: t.s.substr(1, 2),
    "left": lambda t: t.s.left(2),
    "year": lambda t: t.d.year(),
    "month": lambda t: t.d.month(),
    "day": lambda t: t.d.day(),
    "quarter": lambda t: t.d.quarter(),
    "day of year": lambda t: t.d.day_of_year(),
    "week of year": lambda t: t.d.week_of_year(),
    "day of week": lambda t: t.d.day_of_week.index(),
    "days between": lambda t: t.d.delta(t.e, unit="day"),
    "days since": lambda t: t.d.delta(DAY, unit="day") / 365.25,
    "date equal": lambda t: t.d == DAY,
    "date text": lambda t: t.d >= "2000-02-29",
    "date less": lambda t: t.d < t.e,
    "alias": lambda t: (t.k + 1).name("next") * 2,
    "deep": lambda t: ibis.ifelse((t.x / t.y) > 1, (t.x - t.y) / (t.x * t.y), t.k).clip(-5, 5).round(3),
}
CLOSE: dict[str, Make] = {
    "exp": lambda t: t.x.exp(),
    "exp k": lambda t: t.k.exp(),
    "ln": lambda t: t.x.ln(),
    "ln k": lambda t: t.k.ln(),
    "ln of nan": lambda t: (t.x - t.y).ln(),
    "log": lambda t: t.x.log(),
    "log 3": lambda t: t.x.log(3),
    "log by column": lambda t: t.x.log(t.k),
    "log 2": lambda t: t.x.log(2),
    "log2": lambda t: t.x.log2(),
    "log10": lambda t: t.x.log10(),
    "power": lambda t: t.x**t.y,
    "power k": lambda t: t.x**t.k,
    "power 10": lambda t: t.k**10,
    "power -1": lambda t: t.x**-1,
    "power 0": lambda t: t.x**0,
    "power third": lambda t: t.x ** (1 / 3),
}
EXPRESSIONS = {**EXACT, **CLOSE}


def made(table: ibis.Table, makes: dict[str, Make] = EXPRESSIONS) -> ibis.Table:
    return table.select("i", **{name: rowwise(make, table) for name, make in makes.items()})


def columns(answer: pa.Table) -> dict[str, list[Any]]:
    return {name: answer.sort_by("i")[name].to_pylist() for name in answer.column_names}


def same(a: Any, b: Any, tolerance: float = 0.0) -> bool:
    if isinstance(a, float) and isinstance(b, float) and tolerance:
        return math.isclose(a, b, rel_tol=tolerance, abs_tol=0.0) or (a == b)
    return type(a) is type(b) and a == b


def check_same(first: dict[str, list[Any]], second: dict[str, list[Any]]) -> None:
    rows = grid().to_pylist()
    for name in EXPRESSIONS:
        tolerance = 1e-13 if name in CLOSE else 0.0
        wrong = [
            (rows[i], a, b)
            for i, (a, b) in enumerate(zip(first[name], second[name], strict=True))
            if not same(a, b, tolerance)
        ]
        assert not wrong, (name, len(wrong), wrong[:3])


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    """DuckDB, with the grid as its own table."""
    backend = ibis.duckdb.connect()
    rows = grid()
    backend.con.register("rows", rows)
    backend.con.execute("create table grid as select * from rows")
    yield backend
    backend.disconnect()


@pytest.fixture(scope="module")
def table(connection: Any) -> ibis.Table:
    return connection.table("grid")


@pytest.fixture(scope="module")
def answers(connection: Any, table: ibis.Table) -> dict[str, list[Any]]:
    return columns(connection.to_pyarrow(made(table)))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql", reason="needs pyspark")
    if shutil.which("java") is None:
        pytest.skip("needs Java")
    already = sql.SparkSession.getActiveSession()
    folder = tmp_path_factory.mktemp("spark")
    session = (
        sql.SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    pq.write_table(grid(), folder / "grid.parquet")
    session.read.parquet(str(folder / "grid.parquet")).createOrReplaceTempView("rowwise_grid")
    yield session
    if already is None:
        session.stop()


def test_never_a_nan(answers: dict[str, list[Any]]) -> None:
    for name in EXPRESSIONS:
        assert not any(isinstance(value, float) and math.isnan(value) for value in answers[name]), name


@pytest.mark.filterwarnings("ignore")
class TestSpark:
    """One query for all expressions, in ANSI mode (Spark's default) and out of it."""

    def run(self, spark: Any, makes: dict[str, Make], *, safe: bool = True) -> pa.Table:
        table = ibis.pyspark.connect(spark).table("rowwise_grid")
        query = (
            made(table, makes) if safe else table.select("i", **{n: make(table) for n, make in makes.items()})
        )
        return spark.sql(ibis.to_sql(query, dialect="pyspark")).toArrow()

    def test_same_answers(self, spark: Any, answers: dict[str, list[Any]]) -> None:
        assert spark.conf.get("spark.sql.ansi.enabled") == "true"
        check_same(answers, columns(self.run(spark, EXPRESSIONS)))

    def test_same_answers_without_ansi(self, spark: Any, answers: dict[str, list[Any]]) -> None:
        spark.conf.set("spark.sql.ansi.enabled", "false")
        try:
            check_same(answers, columns(self.run(spark, EXPRESSIONS)))
        finally:
            spark.conf.set("spark.sql.ansi.enabled", "true")

    @pytest.mark.parametrize(
        "make", [lambda t: t.x / t.y, lambda t: t.x % t.y, lambda t: t.k + t.m, lambda t: t.x.floor()]
    )
    def test_raw_twin_raises(self, spark: Any, make: Make) -> None:
        with pytest.raises(Exception, match=r"BY_ZERO|OVERFLOW"):
            self.run(spark, {"v": make}, safe=False)


def test_other_settings_of_duckdb(answers: dict[str, list[Any]], connection: Any, table: ibis.Table) -> None:
    connection.con.execute("set ieee_floating_point_ops = false")
    try:
        check_same(answers, columns(connection.to_pyarrow(made(table))))
        for raw in (table.x / table.y, table.x.ln(), table.x.log10(), table.x.sqrt(), table.x**-1):
            with pytest.raises(duckdb.Error):
                connection.to_pyarrow(table.select(v=raw))
    finally:
        connection.con.execute("set ieee_floating_point_ops = true")


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.k + t.m,
        lambda t: t.k * t.m,
        lambda t: t.k.abs(),
        lambda t: -t.k,
        lambda t: t.small * t.small,
        lambda t: t.x.floor(),
        lambda t: t.x.round(),
        lambda t: t.k // t.x,
        lambda t: t.x.cast("int64"),
        lambda t: t.x.cast("float32"),
        lambda t: t.s.cast("float64"),
    ],
)
def test_raw_twin_raises_on_duckdb(connection: Any, table: ibis.Table, make: Make) -> None:
    with pytest.raises(duckdb.Error):
        connection.to_pyarrow(table.select(v=make(table)))


def value(x: float | None) -> float | None:
    return None if x is None or math.isnan(x) else float(x)


def both(calculate: Callable[[float, float], float | None]) -> Callable[[dict[str, Any]], Any]:
    def of(row: dict[str, Any]) -> Any:
        x, y = value(row["x"]), value(row["y"])
        return None if x is None or y is None else value(calculate(x, y))

    return of


def whole(x: float, rounded: Callable[[float], int]) -> float:
    return x if math.isinf(x) else float(rounded(x))


def half_away(x: float) -> int:
    whole = math.floor(abs(x))
    return int(math.copysign(whole + (abs(x) - whole >= 0.5), x))


DEFINED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "column x": lambda row: value(row["x"]),
    "column k": lambda row: value(row["k"]),
    "add": both(lambda x, y: x + y),
    "subtract": both(lambda x, y: x - y),
    "multiply": both(lambda x, y: x * y),
    "divide": both(lambda x, y: None if y == 0 else x / y),
    "floor divide": both(lambda x, y: None if y == 0 or math.isnan(x / y) else whole(x / y, math.floor)),
    "modulus": both(lambda x, y: None if y == 0 or math.isinf(x) else math.fmod(x, y)),
    "modulus k": lambda row: math.fmod(row["k"], row["m"]) if row["k"] is not None and row["m"] else None,
    "less": both(lambda x, y: x < y),
    "greatest": both(lambda x, y: max(x, y, 0.0)),
    "clip": lambda row: None if value(row["x"]) is None else min(max(row["x"], -2.0), 2.0),
    "nan greater": both(lambda x, y: None if math.isnan(x - y) else x > y),
    "isnull": lambda row: value(row["x"]) is None,
    "isnan": lambda row: both(lambda x, y: x - y)(row) is None,
    "nullif": lambda row: None if value(row["x"]) == value(row["y"]) else value(row["x"]),
    "xor": lambda row: None if row["b"] is None or row["c"] is None else row["b"] != row["c"],
    "length": lambda row: None if row["s"] is None else float(len(row["s"])),
    "strip": lambda row: None if row["s"] is None else row["s"].strip(" \t\n\r\x0b\x0c"),
    "slice": lambda row: None if row["s"] is None else row["s"][0:2],
    "contains": lambda row: None if row["s"] is None or row["u"] is None else row["u"] in row["s"],
    "week of year": lambda row: None if row["d"] is None else float(row["d"].isocalendar()[1]),
    "day of week": lambda row: None if row["d"] is None else float(row["d"].weekday()),
    "days between": lambda row: (
        None if row["d"] is None or row["e"] is None else float((row["d"] - row["e"]).days)
    ),
    "cast k text": lambda row: str(row["k"]) if row["k"] is not None and abs(row["k"]) < 2**53 else None,
}


@pytest.mark.parametrize("name", DEFINED)
def test_as_defined(answers: dict[str, list[Any]], name: str) -> None:
    for row, answer in zip(grid().to_pylist(), answers[name], strict=True):
        wanted = DEFINED[name](row)
        if isinstance(wanted, float) and isinstance(answer, bool):
            wanted = bool(wanted)
        assert answer == wanted, (row, answer, wanted)


@pytest.mark.parametrize(
    ("name", "rounded"), [("floor", math.floor), ("ceil", math.ceil), ("round", half_away)]
)
def test_rounding(answers: dict[str, list[Any]], name: str, rounded: Callable[[float], int]) -> None:
    for row, answer in zip(grid().to_pylist(), answers[name], strict=True):
        x = value(row["x"])
        assert answer == (None if x is None else whole(x, rounded)), (x, answer)


def test_round_to_digits(answers: dict[str, list[Any]]) -> None:
    rounded = dict(zip(grid()["x"].to_pylist(), answers["round 2"], strict=True))
    assert [rounded[x] for x in (2.675, 0.49999999999999994, 1e308, INF, -0.5)] == [
        2.68,
        0.5,
        1e308,
        INF,
        -0.5,
    ]


def test_a_null_condition_leaves_the_row_out(
    connection: Any, table: ibis.Table, answers: dict[str, list[Any]]
) -> None:
    for name in ("nan greater", "nan not greater", "isin many", "and", "identical", "date less"):
        kept = connection.to_pyarrow(table.filter(rowwise(EXPRESSIONS[name], table)).i)
        assert sorted(kept.to_pylist()) == [i for i, answer in enumerate(answers[name]) if answer is True], (
            name
        )


def test_absurd_dates_of_duckdb(connection: Any) -> None:
    connection.con.execute(
        "create or replace table absurd as select * from (values (date 'infinity'), (date '-infinity'), "
        "(date '0001-01-01' - 1), (date '5881580-07-10'), (date '2900-01-01 (BC)'), (date '9999-12-31')) v(d)"
    )
    dates = connection.table("absurd")
    made = {
        "year": dates.d.year(),
        "week": dates.d.week_of_year(),
        "days": dates.d.delta(DAY, unit="day"),
        "later": dates.d > DAY,
    }
    got = connection.to_pyarrow(dates.select(**{name: rowwise(made[name], dates) for name in made}))
    for name, last in {
        "year": 9999.0,
        "week": 52.0,
        "days": float((datetime.date.max - DAY).days),
        "later": True,
    }.items():
        assert got[name].to_pylist() == [None] * 5 + [last]


def test_nan_that_a_parquet_file_does_not_mention(connection: Any, tmp_path: Any) -> None:
    """Stored extremes leave NaN out, and DuckDB decides isnan(x) and x > 6 by them without looking."""
    pq.write_table(pa.table({"x": [1.0, NAN, 5.0]}), tmp_path / "nan.parquet")
    table = connection.read_parquet(tmp_path / "nan.parquet")
    made = {"column": _.x, "isnan": _.x.isnan(), "low": ~(_.x > 6), "floor": _.x.floor(), "sum": _.x + 1}
    got = connection.to_pyarrow(table.select(**{name: rowwise(made[name], table) for name in made}))
    assert got.to_pydict() == {
        "column": [1.0, None, 5.0],
        "isnan": [False, True, False],
        "low": [True, None, True],
        "floor": [1.0, None, 5.0],
        "sum": [2.0, None, 6.0],
    }
    assert connection.to_pyarrow(table.filter(rowwise(~(_.x > 6), table)).x).to_pylist() == [1.0, 5.0]


def test_all_spellings_of_an_expression(connection: Any, table: ibis.Table) -> None:
    made = [rowwise(one, table) for one in (_.k > 1, lambda t: t.k > 1, table.k > 1, _["k"] > 1)]
    assert all(one.equals(made[0]) for one in made)
    assert str(rowwise(_.k, table).type()) == "float64"
    assert str(rowwise(ibis.literal(True), table).type()) == "boolean"


def test_functions_see_no_data(table: ibis.Table) -> None:
    with pytest.raises(InvalidValue, match="an Ibis expression of one row"):
        rowwise(lambda t: t.x > t.x.mean().execute(), table)


def test_required_columns(connection: Any) -> None:
    """A column that may not be NULL does not forbid the NULL of a division."""
    connection.con.execute(
        "create or replace table strict (a double not null, s varchar not null, d date not null)"
    )
    connection.con.execute("insert into strict values (0, 'a', '2020-01-01'), ('nan', '', 'infinity')")
    strict = connection.table("strict")
    made = strict.select(
        a=rowwise(1 / _.a, strict),
        s=rowwise(_.s.nullif(""), strict),
        d=rowwise(_.d, strict),
        n=rowwise(_.a.ln(), strict),
    )
    assert connection.to_pyarrow(made).to_pydict() == {
        "a": [None, None],
        "s": ["a", None],
        "d": [datetime.date(2020, 1, 1), None],
        "n": [None, None],
    }


@ibis.udf.scalar.python
def plus_one(x: float) -> float:
    return x + 1


@ibis.udf.scalar.builtin
def getenv(x: str) -> str: ...


OTHER = ibis.table({"z": "float64", "x": "float64"}, name="other")
ODD = ibis.table(
    {"a": "array<int64>", "t": "timestamp", "j": "json", "n": "decimal(38, 2)", "x": "float64", "k": "int64"},
    name="odd",
)
REFUSED: dict[str, tuple[Any, str]] = {
    "mean": (_.x > _.x.mean(), r"mean\(\) mixes rows"),
    "std": (_.x / _.x.std(), r"std\(\) mixes rows"),
    "any": (_.b.any(), r"any\(\) mixes rows"),
    "count": (lambda t: t.count(), r"count\(\) mixes rows"),
    "count of a column": (_.x.count(), r"count\(\) mixes rows"),
    "nunique": (_.s.nunique(), "mixes rows"),
    "quantile": (_.x.quantile(0.5), r"quantile\(\) mixes rows"),
    "collect": (_.x.collect().length(), "mixes rows"),
    "mean in a case": (ibis.ifelse(_.b, _.x, _.x.max()), r"max\(\) mixes rows"),
    "window": (_.x.sum().over(group_by=_.s, order_by=_.k), "mixes rows|looks at other rows"),
    "lag": (_.x.lag(), r"lag\(\) looks at other rows"),
    "row_number": (lambda t: ibis.row_number(), r"row_number\(\) looks at other rows"),
    "rank": (_.x.rank(), "looks at other rows"),
    "ntile": (_.x.ntile(4), "looks at other rows"),
    "rowid": (ops.RowID, r"row_id\(\) depends on where the row is stored"),
    "other table": (lambda t: t.x + OTHER.z, "column z belongs to another table"),
    "same name": (lambda t: t.x + OTHER.x, "column x belongs to another table"),
    "derived table": (lambda t: t.mutate(v=t.x.mean()).v, "column v belongs to another table"),
    "filtered table": (lambda t: t.filter(t.b).x, "column x belongs to another table"),
    "joined table": (lambda t: t.join(OTHER, "x").z, "column z belongs to another table"),
    "scalar subquery": (lambda t: t.x > t.agg(m=t.x.max()).as_scalar(), r"scalar_subquery\(\) reads a table"),
    "isin subquery": (lambda t: t.x.isin(OTHER.z), r"isin\(\) reads a table"),
    "exists": (lambda t: OTHER.filter(OTHER.z > 0).x.count() > 0, "mixes rows"),
    "random": (_.x > ibis.random(), r"random\(\) does not depend on the row alone"),
    "uuid": (lambda t: ibis.uuid(), "does not depend on the row alone"),
    "now": (lambda t: ibis.now().year() - t.k, r"now\(\) does not depend on the row alone"),
    "today": (lambda t: t.d < ibis.today(), r"today\(\) does not depend on the row alone"),
    "udf": (lambda t: plus_one(t.x), r"plus_one.* runs code that cannot be checked"),
    "builtin": (lambda t: getenv(t.s), r"getenv.* runs code that cannot be checked"),
    "parameter": (lambda t: t.x > ibis.param("float64"), "is not known to be row-by-row"),
    "unnest": (lambda t: ibis.array([t.x, t.y]).unnest(), "makes several rows of one"),
    "array": (lambda t: ibis.array([t.x, t.y]).length(), "is not known to be row-by-row"),
    "struct": (lambda t: ibis.struct({"a": t.x}).isnull(), "is not known to be row-by-row"),
    "hash": (_.s.hash(), "is not known to be row-by-row"),
    "sin": (_.x.sin(), r"sin\(\) is not known to be row-by-row"),
    "shift": (_.k << 3, "is not known to be row-by-row"),
    "regular expression": (_.s.re_search("(a+)+b"), "is not known to be row-by-row"),
    "repeat": (_.s * 10**9, "is not known to be row-by-row"),
    "lower": (_.s.lower() == "a", r"lower\(\) differs between engines"),
    "upper": (_.s.upper() == "A", r"upper\(\) differs between engines"),
    "lstrip": (_.s.lstrip(), "differs between engines; use strip"),
    "concat": (_.s + _.u, r"concat\(\) can outgrow"),
    "slice from the end": (_.s.substr(-2), "takes positions from 0"),
    "slice by column": (lambda t: t.s.substr(t.k.cast("int64"), 1), "takes positions from 0"),
    "try_cast": (_.s.try_cast("float64"), r"try_cast\(\) reads text differently"),
    "cast text": (_.s.cast("int64"), r"cast\(\) from string to int64 can fail"),
    "cast text to date": (_.s.cast("date"), "can fail"),
    "cast fraction": (_.x.cast("int64"), "rounds on one engine, truncates on another"),
    "cast fraction to text": (_.x.cast("string"), r"cast\(\) from float64 to string"),
    "cast to float32": (_.x.cast("float32"), "can fail"),
    "cast to int8": (_.k.cast("int8"), "can fail"),
    "cast to boolean": (_.k.cast("boolean"), "can fail"),
    "cast date": (_.d.cast("timestamp"), "can fail"),
    "round to tens": (_.x.round(-1), "takes 0 to 15 digits"),
    "round by column": (lambda t: t.x.round(t.k), "takes 0 to 15 digits"),
    "nan": (_.x == NAN, "a literal"),
    "large literal": (_.k == 2**53 + 1, r"whole up to 2\*\*53"),
    "date plus": (lambda t: t.d + ibis.interval(days=1) > DAY, "can leave the calendar"),
    "date minus": (lambda t: (t.d - t.e) > ibis.interval(days=1), "can leave the calendar|a literal"),
    "date text": (_.d > "March 1, 2020", "written like 2020-12-31"),
    "months between": (_.d.delta(DAY, unit="month"), "unit='day' only"),
    "strftime": (_.d.strftime("%Y"), "is not known to be row-by-row"),
    "truncate": (_.d.truncate("M"), "is not known to be row-by-row"),
    "unknown column": (_.missing > 1, "The columns are i, x, y"),
    "unknown item": (_["missing"] > 1, "The columns are i, x, y"),
    "wrong types": (_.s > _.x, "an Ibis expression of one row"),
    "a table": (lambda t: t, "an Ibis expression of one row, got 'Table'"),
    "a list": ([1, 2], "an Ibis expression of one row, got 'list'"),
    "text": ("age > 40", "an Ibis expression of one row, got 'str'"),
    "a number": (lambda t: 1, "an Ibis expression of one row, got 'int'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, table: ibis.Table) -> None:
    expression, message = REFUSED[name]
    if name == "rowid":
        expression = ops.RowID(table.op()).to_expr()
    with pytest.raises(InvalidValue, match=message):
        rowwise(expression, table)


@pytest.mark.parametrize("name", ["a", "t", "j", "n"])
def test_refused_types(name: str) -> None:
    with pytest.raises(InvalidValue, match=f"column {name} is of a type without rules"):
        rowwise(_[name].isnull(), ODD)


def test_refused_size() -> None:
    ratio = ODD.x
    for _step in range(30):
        ratio = ODD.k / ratio
    with pytest.raises(InvalidValue, match="with its guards"):
        rowwise(ratio, ODD)


def test_long_sums_stay_small(connection: Any, table: ibis.Table) -> None:
    total = sum((table.x * j for j in range(1, 200)), start=table.k)
    assert connection.to_pyarrow(table.select(v=rowwise(total, table))).num_rows == len(FLOATS) ** 2


def numbers(inner: st.SearchStrategy[Make]) -> st.SearchStrategy[Make]:
    def binary(make: Callable[[Any, Any], Any]) -> Callable[[Make, Make], Make]:
        return lambda a, b: lambda t: make(a(t), b(t))

    two = [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a * b,
        lambda a, b: a / b,
        lambda a, b: a // b,
        lambda a, b: a % b,
        lambda a, b: a**b,
        lambda a, b: ibis.least(a, b),
        lambda a, b: ibis.coalesce(a, b),
        lambda a, b: a.nullif(b),
        lambda a, b: ibis.ifelse(a > b, a, b),
        lambda a, b: ibis.cases((a.cast("float64").isnan(), 0), (b <= a, b), else_=a),
        lambda a, b: a.clip(-1, b),
        lambda a, b: (a == b).cast("float64"),
        lambda a, b: a.between(b, 3).cast("int64") - a.notnull().cast("int64"),
    ]
    one = [
        *(lambda a: -a, lambda a: a.abs(), lambda a: a.sign(), lambda a: a.floor(), lambda a: a.ceil()),
        *(lambda a: a.round(), lambda a: a.round(3), lambda a: a.sqrt(), lambda a: a.ln(), lambda a: a.exp()),
        *(
            lambda a: a**2,
            lambda a: a.log10(),
            lambda a: a.clip(0, 10),
            lambda a: a.fill_null(2),
            lambda a: a.log2(),
        ),
        *(lambda a: a.isin([0, 1, 2]).cast("int64"), lambda a: a.floor().cast("string").length()),
    ]
    unary = st.builds(lambda make, a: lambda t: make(a(t)), st.sampled_from(one), inner)
    return unary | st.builds(lambda make, a, b: binary(make)(a, b), st.sampled_from(two), inner, inner)


LEAVES: list[Make] = [
    *(lambda t: t.x, lambda t: t.y, lambda t: t.k, lambda t: t.m, lambda t: t.f, lambda t: t.b.cast("int64")),
    *(lambda t: t.s.length(), lambda t: t.d.year(), lambda t: t.d.delta(t.e, unit="day")),
    *(
        lambda t: ibis.literal(0.0),
        lambda t: ibis.literal(-1.5),
        lambda t: ibis.literal(1e300),
        lambda t: ibis.literal(INF),
    ),
]
trees = st.recursive(st.sampled_from(LEAVES), numbers, max_leaves=5)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(tree=trees, few=st.lists(st.integers(0, len(FLOATS) ** 2 - 1), min_size=1, max_size=6, unique=True))
@example(tree=lambda t: t.x.floor(), few=[len(FLOATS) * FLOATS.index(1.0), len(FLOATS)])
@example(tree=lambda t: (t.x - t.y).sign(), few=[len(FLOATS) * 2 + 2, len(FLOATS) * 6 + 7])
def test_any_tree_is_total_and_row_local(
    tree: Make, few: list[int], connection: Any, table: ibis.Table, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A row's value among others, and in a file of a few rows whose stored extremes tell DuckDB much."""
    among_all = columns(connection.to_pyarrow(made(table, {"v": tree})))["v"]
    assert not any(isinstance(one, float) and math.isnan(one) for one in among_all)
    path = tmp_path_factory.mktemp("few") / "few.parquet"
    pq.write_table(grid().take(few), path)
    alone = connection.to_pyarrow(made(connection.read_parquet(path), {"v": tree})).to_pydict()
    assert alone["i"] == few
    assert alone["v"] == [among_all[i] for i in few]
