"""The table that benchmarks/tables.py asks about: its rows, what is public about it, and the questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tacit

PEOPLE, MOST, CHUNK = 1_000_000, 3, 500_000
LOW, HIGH, BINS = 0.0, 200_000.0, 20
SEXES = ("Female", "Male")
REGIONS = tuple(f"region {number:02d}" for number in range(20))
NUMBERS = ("age", "hours", "income")
EPSILON = 1.0
LAYOUT = pa.schema(
    [
        ("person", pa.int64()),
        ("age", pa.int32()),
        ("hours", pa.float64()),
        ("income", pa.float64()),
        ("sex", pa.string()),
        ("region", pa.string()),
    ]
)
Call = Callable[[], object]


def chunk(generator: np.random.Generator, rows: int) -> pa.Table:
    def names(codes: Any, labels: tuple[str, ...], missing: float) -> pa.Array:
        coded = pa.array(codes.astype(np.int8), mask=generator.random(rows) < missing)
        return pa.DictionaryArray.from_arrays(coded, list(labels)).cast(pa.string())

    age = np.clip(generator.normal(42, 14, rows), 15, 95).astype(np.int32)
    hours = np.where(generator.random(rows) < 0.01, np.nan, generator.gamma(20, 2, rows))
    weights = np.cumsum(1 / np.arange(1, 21))
    columns = [
        pa.array(generator.integers(0, PEOPLE, rows)),
        pa.array(age, mask=generator.random(rows) < 0.005),
        pa.array(hours),
        pa.array(generator.lognormal(10.5, 0.8, rows), mask=generator.random(rows) < 0.01),
        names(generator.integers(0, 2, rows), SEXES, 0.005),
        names(np.searchsorted(weights[:-1] / weights[-1], generator.random(rows)), REGIONS, 0.0),
    ]
    return pa.table(columns, schema=LAYOUT)


def parquet(folder: Path, rows: int) -> Path:
    """The file of that many rows, made a chunk at a time unless it is there already."""
    file = folder / f"people_{rows}.parquet"
    if not file.exists():
        generator = np.random.default_rng(rows)
        unfinished = file.with_suffix(".part")
        with pq.ParquetWriter(unfinished, LAYOUT) as writer:
            for start in range(0, rows, CHUNK):
                writer.write_table(chunk(generator, min(CHUNK, rows - start)))
        unfinished.rename(file)
    return file


def schema(person: bool = False) -> tacit.Schema:
    return tacit.Schema(
        columns={
            "age": tacit.Column("integer", bounds=(17, 90)),
            "hours": tacit.Column("number", bounds=(0.0, 100.0)),
            "income": tacit.Column("number", bounds=(LOW, HIGH)),
            "sex": tacit.Column("category", categories=SEXES),
            "region": tacit.Column("category", categories=REGIONS),
        },
        unit=unit(person),
    )


def unit(person: bool) -> tacit.Unit:
    return tacit.Unit("person", MOST) if person else tacit.Unit()


def ledger(folder: Path, person: bool = False) -> tacit.Ledger:
    dataset = "people" if person else "rows"
    return tacit.Ledger.open(folder / "ledger.db", tacit.Budget(1e6), unit=unit(person), dataset=dataset)


def read(file: Path, folder: Path) -> Any:
    """The file as an Ibis table; without ``can_have_nan``, DuckDB takes NaN for impossible."""
    connection = ibis.duckdb.connect(memory_limit="1GB", threads=2, temp_directory=str(folder / "spill"))
    return connection.read_parquet(file, can_have_nan=True)


@dataclass(frozen=True)
class Case:
    """One question: privately, and the plain queries it is compared with, by name."""

    name: str
    private: Call
    plain: dict[str, Call]


def cases(table: Any, rows: Any, people: Any) -> list[Case]:
    """``table`` is the plain Ibis table; ``rows`` and ``people`` are the private ones on it."""
    cost = {"epsilon": EPSILON}
    income, clipped = table.income, table.income.clip(LOW, HIGH)
    hours = ibis.ifelse(table.hours.isnan(), None, table.hours)
    limits = {"age": (17, 90), "hours": (0.0, 100.0), "income": (LOW, HIGH)}
    raw = {"age": table.age, "hours": hours, "income": income}
    bounded = {name: column.clip(*limits[name]) for name, column in raw.items()}

    def grouped(keys: Any, **aggregates: Any) -> Call:
        return table.group_by(keys).aggregate(**aggregates).execute  # type: ignore[no-any-return]

    def binned(column: Any) -> Call:
        return grouped([(column / ((HIGH - LOW) / BINS)).floor().cast("int64").name("bin")], n=table.count())

    def covariances(columns: dict[str, Any]) -> Call:
        pairs = {
            f"{a} {b}": columns[a].cov(columns[b]) if a < b else columns[a].var()
            for a in NUMBERS for b in NUMBERS if a <= b
        }  # fmt: skip
        return table.aggregate(**pairs).execute  # type: ignore[no-any-return]

    def six(columns: dict[str, Any]) -> Call:
        queries = [
            table.count().execute,
            columns["age"].mean().execute,
            columns["hours"].mean().execute,
            columns["income"].sum().execute,
            columns["income"].median().execute,
            grouped(["sex", "region"], n=table.count()),
        ]
        return lambda: [query() for query in queries]

    def batch() -> None:
        with rows.batch(epsilon=EPSILON) as asked:
            asked.count()
            asked.mean("age")
            asked.mean("hours")
            asked.sum("income")
            asked.median("income")
            asked.crosstab(["sex", "region"])

    both = grouped(["sex", "region"], n=table.count())
    return [
        Case("count", lambda: rows.count(**cost), {"raw": table.count().execute}),
        Case(
            "sum",
            lambda: rows.sum("income", **cost),
            {"raw": income.sum().execute, "clipped": clipped.sum().execute},
        ),
        Case(
            "mean",
            lambda: rows.mean("income", **cost),
            {"raw": income.mean().execute, "clipped": clipped.mean().execute},
        ),
        Case(
            "variance",
            lambda: rows.variance("income", **cost),
            {"raw": income.var().execute, "clipped": clipped.var().execute},
        ),
        Case(
            "median",
            lambda: rows.median("income", **cost),
            {"raw": income.median().execute, "clipped": clipped.median().execute},
        ),
        Case(
            "histogram",
            lambda: rows.histogram("income", BINS, **cost),
            {"raw": binned(income), "clipped": binned(clipped)},
        ),
        Case("crosstab", lambda: rows.crosstab(["sex", "region"], **cost), {"raw": both}),
        Case(
            "mean by region",
            lambda: rows.mean("income", by="region", **cost),
            {"raw": grouped("region", m=income.mean()), "clipped": grouped("region", m=clipped.mean())},
        ),
        Case(
            "covariance",
            lambda: rows.covariance(list(NUMBERS), **cost),
            {"raw": covariances(raw), "clipped": covariances(bounded)},
        ),
        Case("batch of six", batch, {"raw": six(raw), "clipped": six(bounded)}),
        Case(
            "mean, person",
            lambda: people.mean("income", **cost),
            {"row number": numbered(table, False), "by person": by_person(table, False)},
        ),
        Case(
            "crosstab, person",
            lambda: people.crosstab(["sex", "region"], **cost),
            {"row number": numbered(table, True), "by person": by_person(table, True)},
        ),
    ]


def numbered(table: Any, cells: bool) -> Call:
    """At most three rows of each person, any three."""
    number = ibis.row_number().over(ibis.window(group_by=table.person))
    kept = table.mutate(number=number).filter(ibis._.number < MOST)
    if cells:
        return kept.group_by(["sex", "region"]).aggregate(n=kept.count()).execute  # type: ignore[no-any-return]
    return kept.income.clip(LOW, HIGH).mean().execute  # type: ignore[no-any-return]


def by_person(table: Any, cells: bool) -> Call:
    """All rows of each person, each with the weight 3/c where she has c > 3: what tacit does."""
    known = table.income.clip(LOW, HIGH)
    keys = ["person", "sex", "region"] if cells else ["person"]
    each = table.group_by(keys).aggregate(n=table.count() if cells else known.count(), s=known.sum())
    rows = each.n.sum().over(ibis.window(group_by=each.person)) if cells else each.n
    each = each.mutate(weight=ibis.least(1.0, MOST / rows))
    if cells:
        return each.group_by(["sex", "region"]).aggregate(n=(each.n * each.weight).sum()).execute  # type: ignore[no-any-return]
    return each.aggregate(m=(each.s * each.weight).sum() / (each.n * each.weight).sum()).execute  # type: ignore[no-any-return]
