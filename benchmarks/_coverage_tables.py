"""Intervals of answers about tables: the truth is the statistic of the same rows, without the noise."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _coverage import Array, Case, Found

import tacit
from tacit.tables.cells.measure import measure
from tacit.tables.statistics.statistic import NoisyCells

WHOLE = "whole numbers: the interval ends at whole noise"
ENCLOSED = "holds for any rows: what is unknown is enclosed first (Fieller 1954; Berger and Boos 1994)"
RANKS = "holds for any rows, ties and every convention: ends are steps whose noisy ranks were accepted"
CONSISTENT = "the noise of a least squares estimate, bounded on a lattice"
BOUNDED = "an estimate beyond the bounds is moved to them, which is towards the truth"
SHOWN = "given that the key is shown; whole numbers, and never below 1"

EDGES = [0, 10, 25, 50, 100]
SLOW = 1 / 5
"""The part of the repetitions for answers that are made one by one."""


def rows_of(number: int, skewed: bool, people: int = 2) -> pd.DataFrame:
    """A table of so many rows, with about ``people`` rows to a person."""
    rng = np.random.default_rng(number + skewed)
    shape = rng.lognormal(0.0, 1.5, number) if skewed else rng.uniform(0, 100, number)
    value = np.clip(shape, 0, 100).round(3)
    second = np.clip(0.5 * value + rng.uniform(0, 50, number), 0, 100).round(3)
    weights = [0.9, 0.08, 0.02] if skewed else [0.4, 0.3, 0.3]
    return pd.DataFrame(
        {
            "x": value,
            "z": second,
            "age": np.clip(value, 0, 100).astype(int),
            "sex": rng.choice(["F", "M"], number),
            "town": rng.choice(["a", "b", "c"], number, p=weights),
            "street": [f"s{i}" for i in np.minimum(rng.zipf(1.5, number), 60)],
            "who": rng.integers(0, max(2, number // people), number),
        }
    )


def schema_of(unit: tacit.Unit | None = None, population: int | None = None) -> tacit.Schema:
    number = partial(tacit.Column, "number", bounds=(0.0, 100.0))
    return tacit.Schema(
        {
            "x": number() if population is None else number(missing=0.0),
            "z": number(),
            "age": tacit.Column("integer", bounds=(0, 100)),
            "sex": tacit.Column("category", categories=("F", "M")),
            "town": tacit.Column("category", categories=("a", "b", "c")),
            "street": tacit.Column("text"),
        },
        unit=unit or tacit.Unit(),
        population=population,
    )


def crossed(rows: pd.DataFrame) -> Array:
    found = pd.crosstab(rows.sex, rows.town, margins=True)
    return found.reindex(index=["F", "M", "All"], columns=["a", "b", "c", "All"]).fillna(0).to_numpy()


def binned(rows: pd.DataFrame) -> Array:
    return np.histogram(rows.x, EDGES)[0]


def towns(rows: pd.DataFrame) -> Array:
    return rows.town.value_counts().reindex(["a", "b", "c"]).fillna(0).to_numpy()


def by_sex(rows: pd.DataFrame, of: Callable[[pd.DataFrame], Any]) -> Array:
    return np.array([of(rows[rows.sex == sex]) for sex in ("F", "M")])


Asked = tuple[str, Callable[[pd.DataFrame], Any], str]
QUESTIONS: tuple[Asked, ...] = (
    ("count()", len, WHOLE),
    ("count() by town", towns, WHOLE),
    (f"histogram(x, {EDGES})", binned, WHOLE),
    (f"histogram(x, {EDGES}) by sex", lambda d: by_sex(d, binned), WHOLE),
    ("crosstab(sex, town, margins=True)", crossed, CONSISTENT),
    ("sum(x)", lambda d: d.x.sum(), ""),
    ("mean(x)", lambda d: d.x.mean(), ENCLOSED),
    ("mean(x) by sex", lambda d: by_sex(d, lambda part: part.x.mean()), ENCLOSED),
    ("variance(x)", lambda d: d.x.var(), ENCLOSED),
    ("std(x)", lambda d: d.x.std(), ENCLOSED),
    ("covariance(x, z)", lambda d: d[["x", "z"]].cov().to_numpy()[np.triu_indices(2)], ENCLOSED),
    ("correlation(x, z)", lambda d: d[["x", "z"]].corr().to_numpy()[0, 1], ENCLOSED),
    ("median(age)", lambda d: np.quantile(d.age, 0.5), RANKS),
    ("quantile(x, 0.9)", lambda d: np.quantile(d.x, 0.9), RANKS),
)
ONE_BY_ONE = ("correlation", "median", "quantile", "keys", "count_units")


def streets(rows: pd.DataFrame) -> pd.Series:
    return rows.street.value_counts()


def weighted(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """The rows with the weight that each has where a person's rows count as at most so many."""
    return rows.assign(w=np.minimum(1.0, most / rows.groupby("who").x.transform("size")))


def cases() -> Iterator[Case]:
    """Every question with an interval."""
    for number in (30, 2000):
        for skewed in (False, True):
            rows = rows_of(number, skewed)
            for cost in ((0.1, 0.0), (1.0, 0.0), (1.0, 1e-6)):
                kind = f"n = {number}, {'skewed' if skewed else 'even'}, {price(cost)}"
                for asked in QUESTIONS:
                    yield case(rows, asked, cost, kind)
            for cost in ((1.0, 1e-6),):
                kind = f"n = {number}, {'skewed' if skewed else 'even'}, {price(cost)}"
                yield case(rows, ("keys(street)", streets, SHOWN), cost, kind)
    for number in (30, 2000):
        rows, cost = rows_of(number, skewed=True), (1.0, 0.0)
        kind = f"n = {number}, skewed, {price(cost)}"
        known = ("mean(x)", lambda d: d.x.mean(), BOUNDED)
        yield case(rows, known, cost, f"{kind}, n public", population=number)
        what = "mean(x, bounds=dp)"
        yield Case(what, kind, partial(bought, rows, what, cost), {"": ENCLOSED}, SLOW / 2)
    yield from of_people()


def of_people() -> Iterator[Case]:
    """Questions that protect people: all of their rows count, or at most two of each."""
    rows = rows_of(600, skewed=False)
    every: tuple[Asked, ...] = (
        *(one for one in QUESTIONS if not one[0].startswith(("crosstab", "correlation", "std"))),
        ("count_units()", lambda d: d.who.nunique(), WHOLE),
    )
    for cost in ((1.0, 0.0), (1.0, 1e-6)):
        for asked in every:
            yield case(rows, asked, cost, f"people with ≤ 10 rows, {price(cost)}", tacit.Unit("who", 10))
    yield case(
        rows,
        ("keys(street)", lambda d: d.groupby("street").who.nunique(), SHOWN),
        (1.0, 1e-6),
        "people with ≤ 10 rows, ε = 1, δ = 1e-06",
        tacit.Unit("who", 10),
    )
    many = weighted(rows_of(2000, skewed=True, people=8), 2)
    fewer: tuple[Asked, ...] = (
        ("count()", lambda d: d.w.sum(), ""),
        ("sum(x)", lambda d: (d.w * d.x).sum(), ""),
        ("mean(x)", lambda d: np.average(d.x, weights=d.w), ENCLOSED),
        ("mean(x) by sex", lambda d: by_sex(d, lambda part: np.average(part.x, weights=part.w)), ENCLOSED),
    )
    for asked in fewer:
        yield case(
            many, asked, (1.0, 0.0), "people with 8 rows, 2 count, skewed, ε = 1", tacit.Unit("who", 2)
        )


def price(cost: tuple[float, float]) -> str:
    return f"ε = {cost[0]:g}" + (f", δ = {cost[1]:g}" if cost[1] else "")


def case(
    rows: pd.DataFrame,
    asked: Asked,
    cost: tuple[float, float],
    setting: str,
    unit: tacit.Unit | None = None,
    population: int | None = None,
) -> Case:
    text, truth, reason = asked
    part = SLOW if text.startswith(ONE_BY_ONE) else 1.0
    measured = partial(answered, rows, text, truth(rows), cost, schema_of(unit, population))
    return Case(text, setting, measured, {"": reason}, part)


def opened(rows: pd.DataFrame, schema: tacit.Schema, seed: int) -> Any:
    place = Path(tempfile.mkdtemp()) / "a.db"
    ledger = tacit.Ledger.open(place, budget=tacit.Budget(1e6, 0.5), unit=schema.unit)
    return ledger, tacit.tables.open(rows, schema=schema, ledger=ledger, random_state=seed)


def answered(
    rows: pd.DataFrame,
    text: str,
    truth: Any,
    cost: tuple[float, float],
    schema: tacit.Schema,
    seed: int,
    repetitions: int,
) -> Found:
    """One question. The engine counts once; noise and intervals are made anew each time."""
    ledger, opening = opened(rows, schema, seed)
    with ledger, opening as table:
        batch = table.batch(epsilon=cost[0], delta=cost[1])
        batch.ask(text)
        (noisy,) = batch._noisy()
        cells = measure(table.source, table.expression, table.unit, noisy.statistic.measurements())
        own = noisy.statistic.read(table.source, table.expression, table.context)
        if isinstance(noisy, NoisyCells):
            return {text: at_once(noisy, cells, truth, repetitions)}
        held, widths = [], []
        for _ in range(repetitions):
            answer: Any = noisy.answer(own or cells)
            low, high = (answer.show(end) for end in answer.interval(0.95, False))
            inside = truth.reindex(low.index) if isinstance(truth, pd.Series) else np.asarray(truth)
            low, high = (np.ravel(end).astype(float) for end in (low, high))
            held.append(inside_of(np.ravel(inside), low, high))
            widths.append(high - low)
    return {text: (np.concatenate(held), np.concatenate(widths))}


def at_once(noisy: NoisyCells, cells: Sequence[Array], truth: Any, repetitions: int) -> tuple[Array, Array]:
    """Noise and intervals of all repetitions together."""
    made = noisy.statistic
    exact = made.summed(cells[0]) if made.summed else cells
    drawn = [
        noise(np.repeat(part[np.newaxis], repetitions, axis=0))
        for noise, part in zip(noisy.noises, exact, strict=True)
    ]
    low, high = noisy._interval(drawn, made.estimate(drawn), 0.95, False)
    inside = np.asarray(truth, dtype=float)
    if made.numbers is not None:
        above = np.triu_indices(low.shape[-1], k=0 if inside.size > 1 else 1)
        low, high = low[..., *above], high[..., *above]
    low, high = (end.reshape(repetitions, -1) for end in (low, high))
    inside = np.tile(inside.ravel(), (repetitions, 1))
    return np.ravel(inside_of(inside, low, high)), np.ravel(high - low)


def inside_of(truth: Array, low: Array, high: Array) -> Array:
    """Whether the truth is within the ends, but for the rounding of numbers of this size."""
    slack = 1e-6 * np.maximum(1.0, np.abs(truth))
    return np.asarray((low <= truth + slack) & (truth - slack <= high))


def bought(rows: pd.DataFrame, text: str, cost: tuple[float, float], seed: int, repetitions: int) -> Found:
    """A mean within bounds that were bought: the truth is the mean of the rows within them."""
    held, widths = [], []
    ledger, opening = opened(rows, schema_of(), seed)
    with ledger, opening as table:
        for _ in range(repetitions):
            release = table.mean("x", bounds="dp", epsilon=cost[0])
            low, high = release.interval()
            truth = np.array(rows.x.clip(*release.bounds["x"]).mean())
            held.append(inside_of(truth, np.array(low), np.array(high)))
            widths.append(high - low)
    return {text: (np.array(held), np.array(widths))}
