"""OpenDP's side of the tables benchmarks: Polars plans over the same Parquet file.

Two roads, both documented. ``context`` is the Context API, which finds the noise for an ε by a binary
search over ``make_private_lazyframe``. ``direct`` calls that constructor with a scale taken from its
privacy map, ε(scale 1) / ε, which is what the search converges to and takes milliseconds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import opendp.prelude as dp
import polars as pl
from _side import Refused, serve

warnings.filterwarnings("ignore")
dp.enable_features("contrib", "honest-but-curious")
MOST_ROWS = 10_000_000
AGE = pl.col("age").cast(pl.Int64).drop_nulls()
HOURS = pl.col("hours").drop_nans().drop_nulls()
INCOME = pl.col("income").drop_nulls()
BOUNDS = (0.0, 200_000.0)
CANDIDATES = list(np.linspace(*BOUNDS, 1001))
Plan = Callable[[Any], Any]


def cells(frame: Any, keys: Mapping[str, Any], aggregate: Any) -> Any:
    """One aggregate in every combination of the public keys."""
    frames = [pl.LazyFrame({name: values}) for name, values in keys.items()]
    table = frames[0]
    for other in frames[1:]:
        table = table.join(other, how="cross")
    table = table.collect().lazy()
    grouped = frame.group_by(*keys).agg(aggregate)
    if isinstance(grouped, pl.LazyFrame):
        return table.join(grouped, on=list(keys), how="left", nulls_equal=True)
    return grouped.with_keys(table)


def bins(frame: Any, column: str, edges: Sequence[float]) -> Any:
    """A histogram between the edges, the outer bins being open."""
    names = [f"{number:03d}" for number in range(len(edges) - 1)]
    cut = pl.col(column).cut(list(edges[1:-1]), labels=names, left_closed=True).cast(pl.String)
    return cells(frame.with_columns(cut.alias("bin")), {"bin": names}, dp.len(signed=True))


def tens_of_thousands(frame: Any) -> Any:
    """Twenty equal bins, by whole division, which is faster than ``cut``."""
    number = pl.col("income").clip(0.0, 199_999.0).cast(pl.Int64) // 10_000
    return cells(frame.with_columns(number.alias("bin")), {"bin": list(range(20))}, dp.len(signed=True))


def squares(frame: Any) -> Any:
    """What a variance is made of, a missing value adding 0; OpenDP's tables have no variance."""
    clipped = pl.col("income").fill_null(0.0).clip(*BOUNDS)
    return frame.select(
        INCOME.dp.count(signed=True).alias("n"),
        INCOME.dp.sum(BOUNDS).alias("sum"),
        (clipped * clipped).dp.sum((BOUNDS[0] ** 2, BOUNDS[1] ** 2)).alias("squares"),
    )


SEXES, REGIONS = ("Female", "Male"), [f"region {number:02d}" for number in range(20)]
PLANS: dict[str, Plan] = {
    "count": lambda frame: frame.select(dp.len(signed=True)),
    "sum": lambda frame: frame.select(INCOME.dp.sum(BOUNDS)),
    "mean": lambda frame: frame.select(INCOME.dp.mean(BOUNDS)),
    "variance": squares,
    "median": lambda frame: frame.select(INCOME.dp.median(CANDIDATES)),
    "histogram": tens_of_thousands,
    "crosstab": lambda frame: cells(frame, {"sex": SEXES, "region": REGIONS}, dp.len(signed=True)),
    "mean by region": lambda frame: cells(frame, {"region": REGIONS}, INCOME.dp.mean(BOUNDS)),
    "five in one": lambda frame: frame.select(
        dp.len(signed=True),
        AGE.dp.mean((17, 90)),
        HOURS.dp.mean((0.0, 100.0)),
        INCOME.dp.sum(BOUNDS).alias("sum"),
        INCOME.dp.median(CANDIDATES).alias("median"),
    ),
}


def measurement(schema: Any, plan: Plan, epsilon: float, metric: Any, rows: int = MOST_ROWS) -> Any:
    """``make_private_lazyframe`` with the scale at which its map says at most ``epsilon``."""
    domain = dp.polars._lazyframe_domain_from_schema(schema)
    domain = dp.with_margin(domain, dp.polars.Margin(max_length=rows))
    steps = plan(pl.LazyFrame(schema=schema))

    def make(scale: float) -> Any:
        return dp.m.make_private_lazyframe(domain, metric, dp.max_divergence(), steps, global_scale=scale)

    scale = make(1.0).map(1) / epsilon
    while (made := make(scale)).map(1) > epsilon:
        scale *= 1 + 1e-9
    return made


def direct(case: str, file: str, epsilon: float, person: bool) -> list[Any]:
    def bounded(frame: Any) -> Any:
        kept = frame.filter(pl.int_range(pl.len()).over("person") < 3) if person else frame
        return PLANS[case](kept)

    frame = pl.scan_parquet(file)
    metric = dp.symmetric_id_distance(pl.col("person")) if person else dp.symmetric_distance()
    answer: list[Any] = measurement(frame.collect_schema(), bounded, epsilon, metric)(frame).collect().rows()
    return answer


def context(case: str, file: str, epsilon: float, person: bool) -> list[Any]:
    query = dp.Context.compositor(
        data=pl.scan_parquet(file),
        privacy_unit=dp.unit_of(contributions=1, **({"identifier": "person"} if person else {})),
        privacy_loss=dp.loss_of(epsilon=epsilon),
        split_evenly_over=1,
        margins=[dp.polars.Margin(max_length=MOST_ROWS)],
    ).query()
    bounded = query.truncate_per_group(3, keep="first") if person else query
    answer: list[Any] = PLANS[case](bounded).release().collect().rows()
    return answer


def speed(case: str, file: str, epsilon: float, road: str = "direct") -> tuple[float, Any]:
    """One statistic from the file; nothing is loaded before."""
    statistic, _, unit = case.partition(", ")
    if statistic not in PLANS:
        raise Refused("not offered")
    take = context if road == "context" else direct
    return 0.0, take(statistic, file, epsilon, unit == "person")


def repeated(
    file: str,
    statistic: str,
    columns: list[str],
    epsilon: float,
    repetitions: int,
    public_rows: int | None = None,
    **options: Any,
) -> tuple[float, Any]:
    """The same statistic many times, each with fresh noise: lists of numbers in the order of the keys."""
    frame = pl.scan_parquet(file)
    column = columns[0]
    keys: dict[str, list[Any]] = options.get("keys", {})
    plans: dict[str, Plan] = {
        "mean": lambda given: given.select(pl.col(column).dp.mean(tuple(options["bounds"]))),
        "quantile": lambda given: given.select(
            pl.col(column).dp.quantile(options["q"], options["candidates"])
        ),
        "histogram": lambda given: bins(given, column, options["edges"]),
        "crosstab": lambda given: cells(given, keys, dp.len(signed=True)),
    }
    metric = dp.symmetric_distance() if public_rows is None else dp.change_one_distance()
    made = measurement(
        frame.collect_schema(), plans[statistic], epsilon, metric, public_rows or options["most_rows"]
    )
    answers = []
    for _ in range(repetitions):
        table = made(frame).collect()
        ordered = sorted(table.rows(), key=lambda row: order(row, list(keys.values())))
        answers.append([float(row[-1]) for row in ordered])
    return 0.0, answers


def order(row: Sequence[Any], keys: list[list[Any]]) -> Any:
    """Where a cell stands: by its place among the keys, or by its label."""
    if keys:
        return [names.index(name) for names, name in zip(keys, row[:-1], strict=True)]
    return row[:-1]


if __name__ == "__main__":
    serve("opendp", {"speed": speed, "repeated": repeated})
