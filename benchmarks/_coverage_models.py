"""Intervals of evaluations and coefficients: the truth is that of the population that rows are drawn from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from _coverage import Array, Case, Found
from scipy.special import expit, softmax
from sklearn.linear_model import LinearRegression as Exact
from sklearn.linear_model import LogisticRegression as ExactLogistic

from tacit.estimators import LinearRegression, LogisticRegression, noise
from tacit.evaluation import evaluate

EXACT = "exact for shares of few rows (Clopper and Pearson 1934)"
TAILS = "few rows have seen little of the tail: the level is raised for them"
SIMULATED = "cells with few rows are drawn as Poisson, noise included"
MOMENTS = "what the released sums do not tell is taken at its worst"
NORM = "calibration error is a norm: noise pushes it up, and the triangle inequality bounds it from below"
BONFERRONI = "a gap holds for the largest of several differences, which hold together (Bonferroni)"
PULL = "the pull of a penalty or filter towards zero counts as an error, on both sides"

FULL = 1 / 7
"""The part of the repetitions that evaluations are worth."""
LARGE = 1_000_000

Rows = Callable[[Any, int, bool], tuple[Array, ...]]


def cases() -> Iterator[Case]:
    """Evaluations of regressors and classifiers, and coefficients."""
    yield from regressions()
    yield from classifications()
    yield from more_classes()
    yield from coefficients()


def price(cost: dict[str, Any]) -> str:
    return "public" if "public" in cost else f"ε = {cost['epsilon']:g}"


def linear(slope: float) -> Exact:
    model = Exact().fit(np.array([[0.0], [1.0]]), np.array([0.0, 1.0]))
    model.coef_, model.intercept_ = np.array([slope]), 2.0
    return model


def regression_rows(rng: Any, number: int, skewed: bool) -> tuple[Array, Array]:
    """Targets in [0, 100], most of them near the lower end; skewed errors have a long tail."""
    x = rng.gamma(2.0, 1.0, (number, 1)) if skewed else rng.uniform(0, 5, (number, 1))
    error = rng.lognormal(0.0, 1.0, number) - np.exp(0.5) if skewed else rng.normal(0, 1.0, number)
    return x, np.clip(2.0 + 2.0 * x[:, 0] + error, 0, 100)


def regressions() -> Iterator[Case]:
    model = linear(1.8)
    for skewed in (False, True):
        x, y = regression_rows(np.random.default_rng(1), 2 * LARGE, skewed)
        kind = "skewed" if skewed else "even"
        for number, cost, bounds in (
            (30, {"public": True}, (0, 100)),
            (877, {"public": True}, (0, 100)),
            (2000, {"epsilon": 1.0}, (0, 100)),
            (2000, {"epsilon": 1.0}, (0, 15)),
            (50_000, {"epsilon": 0.5}, (0, 100)),
            (50_000, {"epsilon": 0.5}, (0, 15)),
        ):
            target = np.clip(y, *bounds)
            error = target - np.clip(model.predict(x), *bounds)
            truth = {
                "mae": np.abs(error).mean(),
                "rmse": np.sqrt((error**2).mean()),
                "r2": 1 - (error**2).mean() / target.var(),
            }
            public = "public" in cost
            setting = f"n = {number}, {kind}, {price(cost)}"
            setting += "" if public else f", targets in {list(bounds)}"
            options = cost if public else {**cost, "target_bounds": bounds}
            measured = partial(evaluated, model, regression_rows, number, skewed, options, truth)
            yield Case("regression", setting, measured, {"": TAILS if public else MOMENTS}, FULL)


def classified_rows(rng: Any, number: int, rare: bool) -> tuple[Array, Array, Array]:
    """Features, classes, and a group, of which the smaller one has other rates."""
    x = rng.normal(0, 1, (number, 1))
    group = rng.uniform(size=number) < 0.2
    chance = expit((1.5 - 0.8 * group) * x[:, 0] - (3.0 if rare else 0.0))
    return x, (rng.uniform(size=number) < chance).astype(int), np.where(group, "b", "a")


GROUPS = "rates of groups a and b", "gaps between groups"


def classifications() -> Iterator[Case]:
    for rare in (False, True):
        model = ExactLogistic().fit(np.array([[-1.0], [0.0], [1.0]]), np.array([0, 1, 1]))
        model.coef_, model.intercept_ = np.array([[1.2]]), np.array([-2.5 if rare else 0.1])
        truth = true_figures(model, classified_rows, rare)
        kind = "rare class" if rare else "even classes"
        for number, cost in (
            (30, {"public": True}),
            (877, {"public": True}),
            (300, {"epsilon": 1.0}),
            (5000, {"epsilon": 0.2}),
            (5000, {"epsilon": 1.0}),
        ):
            public = "public" in cost
            reasons = {"accuracy": EXACT, "auroc": TAILS, "brier": TAILS, GROUPS[0]: EXACT}
            if not public:
                reasons = dict.fromkeys(reasons, SIMULATED)
            reasons |= {"calibration error": NORM, GROUPS[1]: BONFERRONI}
            setting = f"n = {number}, {kind}, {price(cost)}"
            measured = partial(evaluated, model, classified_rows, number, rare, cost, truth)
            yield Case("classification", setting, measured, reasons, FULL)


def three_rows(rng: Any, number: int, rare: bool) -> tuple[Array, Array]:
    x = rng.normal(0, 1, (number, 2))
    chance = softmax(x @ [[1.0, 0.0, -1.0], [0.0, 1.5, -1.0]] + [0.0, 0.0, -2.0 * rare], axis=1)
    return x, (chance.cumsum(axis=1) < rng.uniform(size=(number, 1))).sum(axis=1)


def more_classes() -> Iterator[Case]:
    model = ExactLogistic().fit(np.eye(3)[:, :2], np.arange(3))
    model.coef_ = np.array([[1.5, 0.0], [0.0, 1.5], [-1.0, -1.0]])
    model.intercept_ = np.zeros(3)
    for number, cost, rare in ((877, {"public": True}, False), (2000, {"epsilon": 0.5}, True)):
        truth = true_figures(model, three_rows, rare)
        setting = f"n = {number}, three classes{', one rare' if rare else ''}, {price(cost)}"
        measured = partial(evaluated, model, three_rows, number, rare, cost, truth)
        reasons = {"accuracy": EXACT if "public" in cost else SIMULATED, "calibration error": NORM}
        yield Case("three classes", setting, measured, reasons, FULL)


def groups_of(drawn: tuple[Array, ...]) -> dict[str, Any]:
    return {"groups": {"group": (drawn[2], ["a", "b"])}} if len(drawn) > 2 else {}


def true_figures(model: Any, rows: Rows, odd: bool) -> dict[str, float]:
    """The figures of the population: those of very many rows, nearly without intervals."""
    drawn = rows(np.random.default_rng(1), LARGE, odd)
    found = evaluate(model, drawn[0], drawn[1], public=True, **groups_of(drawn)).figures
    return {name: float(value) for name, value in found.items() if value is not None}


def evaluated(
    model: Any, rows: Rows, number: int, odd: bool, options: dict[str, Any], truth: dict[str, float],
    seed: int, repetitions: int,
) -> Found:  # fmt: skip
    """Evaluations of fresh samples, each with noise of its own."""
    rng = np.random.default_rng(seed)
    ends: dict[str, list[Any]] = {name: [] for name in truth}
    for _ in range(repetitions):
        drawn = rows(rng, number, odd)
        state = int(rng.integers(2**31)) if "epsilon" in options else None
        result = evaluate(model, drawn[0], drawn[1], random_state=state, **groups_of(drawn), **options)
        for name in truth:
            ends[name].append(result.intervals[name])
    found: dict[str, tuple[list[Array], list[Array]]] = {}
    for name, value in truth.items():
        low, high = np.array(ends[name]).T
        line = name if ":" not in name else GROUPS[name.endswith(" gap")]
        held, widths = found.setdefault(line, ([], []))
        held.append((low <= value) & (value <= high))
        widths.append(high - low)
    return {name: (np.concatenate(held), np.concatenate(widths)) for name, (held, widths) in found.items()}


SLOPES = np.array([0.5, -0.3, 0.0])
ODDS = np.array([2.0, -1.0, 0.0])


def measured_rows(rng: Any, number: int, skewed: bool) -> tuple[Array, Array]:
    """Three features and a target with a linear mean; skewed: features and errors with a tail on one side."""
    x = np.clip(rng.exponential(0.15, (number, 3)), -1, 1) if skewed else rng.uniform(-1, 1, (number, 3))
    error = rng.exponential(0.3, number) - 0.3 if skewed else rng.normal(0, 0.3, number)
    return x, x @ SLOPES + error


def decided_rows(rng: Any, number: int, rare: bool) -> tuple[Array, Array]:
    x = rng.uniform(-1, 1, (number, 3))
    return x, (rng.uniform(size=number) < expit(x @ ODDS - 3.0 * rare)).astype(int)


def least_squares(epsilon: float, delta: float, state: int) -> Any:
    return LinearRegression(
        epsilon, delta, bounds=(-1, 1), target_bounds=(-3, 3), noise=noise.Statistics(residuals=True),
        random_state=state,
    )  # fmt: skip


def logistic(epsilon: float, delta: float, state: int) -> Any:
    return LogisticRegression(
        epsilon, delta, bounds=(-1, 1), classes=[0, 1], interval_share=0.3, random_state=state
    )


def coefficients() -> Iterator[Case]:
    """The intervals that model pages print: so many standard errors around each coefficient."""
    for name, make, rows, truth, odd in (
        ("coefficients, linear regression", least_squares, measured_rows, SLOPES, "skewed"),
        ("coefficients, logistic regression", logistic, decided_rows, ODDS, "rare class"),
    ):
        for number, epsilon, delta in (
            (500, 1.0, 0.0),
            (2000, 1.0, 1e-6),
            (20_000, 0.2, 0.0),
            (20_000, 1.0, 0.0),
        ):
            for twisted in (False, True):
                kind = odd if twisted else "even"
                setting = f"n = {number}, {kind}, ε = {epsilon:g}" + (f", δ = {delta:g}" if delta else "")
                run = partial(fitted, name, make, rows, truth, (number, twisted), (epsilon, delta))
                yield Case(name, setting, run, {"": PULL}, 2 * FULL)


def fitted(
    name: str, make: Callable[..., Any], rows: Rows, truth: Array, kind: tuple[int, bool],
    cost: tuple[float, float], seed: int, repetitions: int,
) -> Found:  # fmt: skip
    rng = np.random.default_rng(seed)
    held, widths = [], []
    for _ in range(repetitions):
        model = make(*cost, int(rng.integers(2**31))).fit(*rows(rng, *kind))
        found = {one.feature: one for one in model.describe().weights}
        low, high = np.array([(found[key].low, found[key].high) for key in sorted(found)]).T
        held.append((low <= truth) & (truth <= high))
        widths.append(high - low)
    return {name: (np.concatenate(held), np.concatenate(widths))}
