"""What the intervals that the library prints cover, and how wide they are.

    python benchmarks/coverage.py [--repetitions 200] [--only WORD]

Every release with an interval is repeated on the same rows (tables: the interval is for the noise) or on
fresh samples (evaluations: the interval is for the population the rows are a sample of), with small and large
n, small and large ε, even and skewed columns. Coverage is the share of 95 % intervals that hold the truth,
over all numbers of an answer. It should lie between 93 % and 97 %, or above with the reason that stands
beside it. Writes ``benchmarks/results/coverage.md``.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LinearRegression as Exact
from sklearn.linear_model import LogisticRegression as ExactLogistic

import tacit
from tacit.evaluation import evaluate
from tacit.tables.cells.measure import measure

RESULTS = Path(__file__).parent / "results" / "coverage.md"
LOWEST, HIGHEST = 0.93, 0.97
Array = NDArray[Any]

WHOLE = "whole numbers: the interval ends at whole noise"
ENCLOSED = "holds for any rows: what is unknown is enclosed first (Fieller 1954; Berger and Boos 1994)"
RANKS = "holds for any rows, ties and every convention: ends are steps whose noisy ranks were accepted"
CONSISTENT = "the noise of a least squares estimate, bounded on a lattice"
EXACT = "exact for shares of few rows (Clopper and Pearson 1934)"
TAILS = "few rows have seen little of the tail: the level is raised for them"
SIMULATED = "cells with few rows are drawn as Poisson, noise included"
MOMENTS = "what the released sums do not tell is taken at its worst"


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    what: str
    setting: str
    coverage: float
    width: float
    reason: str = ""

    @property
    def verdict(self) -> str:
        """Too low, as it should be, or wider, with the reason."""
        if self.coverage < LOWEST:
            return "UNDER"
        return "" if self.coverage <= HIGHEST else self.reason or "wider, reason unknown"


def line(what: str, setting: str, held: list[Any], widths: list[Any], reason: str = "") -> Line:
    middle = float(np.median(np.concatenate([np.ravel(width) for width in widths])))
    share = float(np.mean(np.concatenate([np.ravel(one) for one in held])))
    return Line(what, setting, share, middle, reason)


# ---------------------------------------------------------------------------------------------- tables


def rows_of(number: int, skewed: bool) -> pd.DataFrame:
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
            "who": rng.integers(0, max(2, number // 2), number),
        }
    )


def schema_of(unit: tacit.Unit | None = None) -> tacit.Schema:
    return tacit.Schema(
        {
            "x": tacit.Column("number", bounds=(0.0, 100.0)),
            "z": tacit.Column("number", bounds=(0.0, 100.0)),
            "age": tacit.Column("integer", bounds=(0, 100)),
            "sex": tacit.Column("category", categories=("F", "M")),
            "town": tacit.Column("category", categories=("a", "b", "c")),
        },
        unit=unit or tacit.Unit(),
    )


def crossed(rows: pd.DataFrame) -> Array:
    found = pd.crosstab(rows.sex, rows.town, margins=True)
    return found.reindex(index=["F", "M", "All"], columns=["a", "b", "c", "All"]).fillna(0).to_numpy()


def binned(rows: pd.DataFrame) -> Array:
    return np.histogram(rows.x, [0, 10, 25, 50, 100])[0]


def by_sex(rows: pd.DataFrame, of: Callable[[pd.DataFrame], Any]) -> Array:
    return np.array([of(rows[rows.sex == sex]) for sex in ("F", "M")])


QUESTIONS: tuple[tuple[str, Callable[[pd.DataFrame], Any], str], ...] = (
    ("count()", len, WHOLE),
    ("count() by town", lambda d: d.town.value_counts().reindex(["a", "b", "c"]).fillna(0).to_numpy(), WHOLE),
    ("histogram(x, [0, 10, 25, 50, 100])", binned, WHOLE),
    ("histogram(x, [0, 10, 25, 50, 100]) by sex", lambda d: by_sex(d, binned), WHOLE),
    ("crosstab(sex, town, margins=True)", crossed, CONSISTENT),
    ("sum(x)", lambda d: d.x.sum(), ""),
    ("mean(x)", lambda d: d.x.mean(), ENCLOSED),
    ("mean(x) by sex", lambda d: by_sex(d, lambda part: part.x.mean()), ENCLOSED),
    ("variance(x)", lambda d: d.x.var(), ENCLOSED),
    ("std(x)", lambda d: d.x.std(), ENCLOSED),
    ("covariance(x, z)", lambda d: d[["x", "z"]].cov().to_numpy(), ENCLOSED),
    ("correlation(x, z)", lambda d: d[["x", "z"]].corr().to_numpy(), ENCLOSED),
    ("median(age)", lambda d: np.quantile(d.age, 0.5), RANKS),
    ("quantile(x, 0.9)", lambda d: np.quantile(d.x, 0.9), RANKS),
)


def tables(repetitions: int) -> Iterator[Line]:
    """Every question with an interval, asked again and again of the same rows."""
    for number in (30, 2000):
        for skewed in (False, True):
            rows = rows_of(number, skewed)
            for epsilon, delta in ((0.1, 0.0), (1.0, 0.0), (1.0, 1e-6)):
                kind = "skewed" if skewed else "even"
                setting = f"n = {number}, {kind}, ε = {epsilon:g}" + (f", δ = {delta:g}" if delta else "")
                for text, truth, reason in QUESTIONS:
                    exact, cost = np.asarray(truth(rows)), (epsilon, delta)
                    yield asked(rows, text, exact, cost, setting, repetitions, reason)
    rows = rows_of(600, skewed=False)
    unit = tacit.Unit("who", 50)
    setting = "people with ≤ 50 rows, ε = 1"
    for text, value, reason in (
        ("count()", len(rows), WHOLE),
        ("mean(x)", rows.x.mean(), ENCLOSED),
        ("count_units()", rows.who.nunique(), WHOLE),
    ):
        yield asked(rows, text, np.asarray(value), (1.0, 0.0), setting, repetitions, reason, unit)


def asked(
    rows: pd.DataFrame,
    text: str,
    truth: Array,
    cost: tuple[float, float],
    setting: str,
    repetitions: int,
    reason: str,
    unit: tacit.Unit | None = None,
) -> Line:
    """One question. The engine counts once; noise and interval are made anew each time."""
    place = Path(tempfile.mkdtemp()) / "a.db"
    held, widths = [], []
    ledger = tacit.Ledger.open(place, budget=tacit.Budget(1e6, 0.5), unit=unit)
    with ledger, tacit.tables.open(rows, schema=schema_of(unit), ledger=ledger, random_state=7) as table:
        batch = table.batch(epsilon=cost[0], delta=cost[1])
        batch.ask(text)
        (noisy,) = batch._noisy()
        cells = measure(table.source, table.expression, table.unit, noisy.statistic.measurements())
        own = noisy.statistic.read(table.source, table.expression, table.context)
        for _ in range(repetitions):
            answer: Any = noisy.answer(own or cells)
            low, high = (np.ravel(answer.show(end)).astype(float) for end in answer.interval(0.95, False))
            inside = np.ravel(truth)
            slack = 1e-6 * np.maximum(1.0, np.abs(inside))
            held.append((low <= inside + slack) & (inside - slack <= high))
            widths.append(high - low)
    return line(text, setting, held, widths, reason)


# ---------------------------------------------------------------------------------------- evaluations


def linear(slope: float) -> Exact:
    model = Exact().fit(np.array([[0.0], [1.0]]), np.array([0.0, 1.0]))
    model.coef_, model.intercept_ = np.array([slope]), 2.0
    return model


def regression_rows(rng: Any, number: int, skewed: bool) -> tuple[Array, Array]:
    """Targets in [0, 100], most of them near the lower end; skewed errors have a long tail."""
    x = rng.gamma(2.0, 1.0, (number, 1)) if skewed else rng.uniform(0, 5, (number, 1))
    error = rng.lognormal(0.0, 1.0, number) - np.exp(0.5) if skewed else rng.normal(0, 1.0, number)
    return x, np.clip(2.0 + 2.0 * x[:, 0] + error, 0, 100)


def regressions(repetitions: int) -> Iterator[Line]:
    model = linear(1.8)
    for skewed in (False, True):
        x, y = regression_rows(np.random.default_rng(1), 2_000_000, skewed)
        error = y - np.clip(model.predict(x), 0, 100)
        truth = {
            "mae": np.abs(error).mean(),
            "rmse": np.sqrt((error**2).mean()),
            "r2": 1 - (error**2).mean() / y.var(),
        }
        kind = "skewed" if skewed else "even"
        for number, cost in ((30, {"public": True}), (877, {"public": True}), (2000, {"epsilon": 1.0}),
                             (50_000, {"epsilon": 0.5})):  # fmt: skip
            public = "public" in cost
            options = dict(cost) if public else {**cost, "target_bounds": (0, 100)}
            setting = f"n = {number}, {kind}, " + ("public" if public else f"ε = {cost['epsilon']:g}")
            draw = partial(drawn, model, regression_rows, number, skewed)
            reasons = dict.fromkeys(truth, TAILS if public else MOMENTS)
            yield from evaluated(draw, options, truth, setting, repetitions, reasons)


def classified_rows(rng: Any, number: int, rare: bool) -> tuple[Array, Array]:
    x = rng.normal(0, 1, (number, 1))
    chance = expit(1.5 * x[:, 0] - (3.0 if rare else 0.0))
    return x, (rng.uniform(size=number) < chance).astype(int)


def classifications(repetitions: int) -> Iterator[Line]:
    from sklearn.metrics import roc_auc_score

    for rare in (False, True):
        model = ExactLogistic().fit(np.array([[-1.0], [0.0], [1.0]]), np.array([0, 1, 1]))
        model.coef_, model.intercept_ = np.array([[1.2]]), np.array([-2.5 if rare else 0.1])
        x, y = classified_rows(np.random.default_rng(1), 1_000_000, rare)
        score = model.predict_proba(x)[:, 1]
        truth = {
            "accuracy": ((score > 0.5) == y).mean(),
            "auroc": roc_auc_score(y, score),
            "brier": ((score - y) ** 2).mean(),
        }
        kind = "rare class" if rare else "even classes"
        for number, cost in ((30, {"public": True}), (877, {"public": True}), (300, {"epsilon": 1.0}),
                             (5000, {"epsilon": 0.2}), (5000, {"epsilon": 1.0})):  # fmt: skip
            public = "public" in cost
            setting = f"n = {number}, {kind}, " + ("public" if public else f"ε = {cost['epsilon']:g}")
            draw = partial(drawn, model, classified_rows, number, rare)
            reasons = {"accuracy": EXACT, "auroc": TAILS, "brier": TAILS}
            if not public:
                reasons = dict.fromkeys(truth, SIMULATED)
            yield from evaluated(draw, cost, truth, setting, repetitions, reasons)


def drawn(model: Any, rows: Callable[..., tuple[Array, Array]], number: int, odd: bool, rng: Any) -> Any:
    """The model and a fresh sample of rows."""
    return model, *rows(rng, number, odd)


def evaluated(
    draw: Callable[[Any], tuple[Any, Array, Array]],
    options: dict[str, Any],
    truth: dict[str, float],
    setting: str,
    repetitions: int,
    reasons: dict[str, str],
) -> Iterator[Line]:
    rng = np.random.default_rng(5)
    found: dict[str, list[Any]] = {name: [] for name in truth}
    for i in range(repetitions):
        model, x, y = draw(rng)
        result = evaluate(model, x, y, random_state=i if "epsilon" in options else None, **options)
        for name in truth:
            found[name].append(result.intervals[name])
    for name, value in truth.items():
        low, high = np.array(found[name]).T
        limits = np.nan_to_num(high - low, posinf=1e9)
        reason = reasons.get(name, "")
        yield line(name, setting, [(low <= value) & (value <= high)], [limits], reason)


def written(lines: list[Line], seconds: float, repetitions: int) -> str:
    """The table as Markdown."""
    under = [one for one in lines if one.verdict == "UNDER"]
    head = [
        "# Coverage and width of intervals",
        "",
        f"`python benchmarks/coverage.py --repetitions {repetitions}`, Python {platform.python_version()}, "
        f"{seconds:.0f} s on one core.",
        "",
        "95 % intervals. Coverage is the share that holds the truth, over all numbers of an answer; it "
        "should lie between 93 % and 97 %, or above for the reason beside it. Of tables the truth is the "
        "statistic of the same rows; of evaluations it is that of the population. The width is the median of "
        "high − low. With so many repetitions a true 95 % of a single number shows as "
        f"{95 - 196 * (0.95 * 0.05 / repetitions) ** 0.5:.0f} % or more.",
        "",
        f"Below 93 %: {len(under)} of {len(lines)} lines.",
        "",
        "| interval | setting | coverage | width | above 97 % because |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    body = [
        f"| {one.what} | {one.setting} | {100 * one.coverage:.1f} % | {one.width:.3g} | {one.verdict} |"
        for one in lines
    ]
    return "\n".join([*head, *body]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--only", default="", help="only parts with this word in their name; writes nothing")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    start, lines = time.process_time(), []
    for part in (tables, regressions, classifications):
        if given.only in part.__name__:
            for one in part(given.repetitions):
                lines.append(one)
                told = f"{one.what:42} {one.setting:36} {one.coverage:6.1%} {one.width:9.3g} {one.verdict}"
                print(told, flush=True)
    text = written(lines, time.process_time() - start, given.repetitions)
    if not given.only:
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
