"""Figures of public rows, exact and with intervals from the rows themselves.

Nothing here is private: the rows were declared public, and nothing is charged. Intervals are for the
population that the rows are a sample of. Shares have those of Clopper and Pearson (1934), and differences of
shares those that Zou and Donner (2008) make of them. AUROC has that of
DeLong, DeLong and Clarke-Pearson (1988) for its log-odds. Means of losses, and r² as a ratio of two of them,
have bootstrap-t intervals of their logarithms (Efron 1981; Hall 1988), which follow the skewness of losses as
intervals of so many standard errors do not. Few rows have seen little of a long tail. So the error that is
allowed is divided by 1 + 60/m, where m = (Σ loss)²/Σ loss² is how many rows of equal losses would count as
much; ``benchmarks/coverage.py`` measures what that covers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, expit, logit, ndtri
from scipy.stats import rankdata

__all__ = [
    "NOTHING",
    "PublicRows",
    "classified",
    "few_rows",
    "predicted",
    "share_difference",
    "share_interval",
]

Array = NDArray[np.float64]
Ends = tuple[float, float]

RESAMPLES = 1999
MOST_RESAMPLED = 3000
"""Beyond so many rows the logarithm of a mean is as good as Gaussian, unless tails are very long."""
RAISED = 60.0
"""The allowed error is divided by 1 + this/m, for losses that count as much as m equal ones."""


@dataclass(frozen=True)
class PublicRows:
    """The exact figures of public rows by name, and how the interval of each is found at a confidence."""

    figures: dict[str, float] = field(default_factory=dict)
    ends: dict[str, Callable[[float], Ends]] = field(default_factory=dict)

    def intervals(self, confidence: float) -> dict[str, Ends]:
        """The interval of each figure."""
        return {name: found(confidence) for name, found in self.ends.items()}


NOTHING = PublicRows()
"""Of private rows, of which nothing is known but what is released."""


def share_interval(part: float, whole: float, confidence: float) -> Ends:
    """The interval of a share, part of whole rows, that covers for every share (Clopper and Pearson 1934).

    >>> [round(end, 3) for end in share_interval(10, 10, 0.95)]
    [0.692, 1.0]
    >>> share_interval(0, 0, 0.95)
    (0.0, 1.0)
    """
    tail = (1 - confidence) / 2
    low = float(betaincinv(part, whole - part + 1, tail)) if part > 0 else 0.0
    high = float(betaincinv(part + 1, whole - part, 1 - tail)) if part < whole else 1.0
    return low, high


def share_difference(first: Ends, second: Ends, confidence: float) -> Ends:
    """The interval of one share less another, each given as (part, whole), of different rows.

    The distances from a share to the ends of its own interval stand for its errors, and those of both add up
    as squares (Zou and Donner 2008). Unlike a simulation of the counts, which never draws what was not seen,
    this holds for shares of no or all rows as well.

    >>> [round(end, 2) for end in share_difference((0, 10), (5, 10), 0.95)]
    [-0.81, -0.06]
    """
    if not first[1] or not second[1]:
        return -1.0, 1.0
    p, q = first[0] / first[1], second[0] / second[1]
    (a, b), (c, d) = (share_interval(*one, confidence) for one in (first, second))
    low, high = p - q - math.hypot(p - a, d - q), p - q + math.hypot(b - p, q - c)
    return max(low, -1.0), min(high, 1.0)


def few_rows(confidence: float, rows: float) -> float:
    """The level at which an interval is taken that should hold at ``confidence`` though it has few rows."""
    return 1 - (1 - confidence) / (1 + RAISED / max(rows, 1.0))


def predicted(truth: Array, guess: Array) -> PublicRows:
    """MAE, RMSE and r² of predictions, at least two."""
    error, spread = np.abs(truth - guess), (truth - truth.mean()) ** 2
    square = error**2
    with np.errstate(all="ignore"):
        r2 = 1 - float(square.mean() / spread.mean()) if spread.any() else math.nan
    figures = {"mae": float(error.mean()), "rmse": math.sqrt(square.mean()), "r2": r2}

    def of_r2(confidence: float) -> Ends:
        low, high = _log_interval(_Ratio(square, truth), confidence)
        return 1 - high, 1 - low

    def of_rmse(confidence: float) -> Ends:
        low, high = _log_interval(_Mean(square), confidence)
        return math.sqrt(low), math.sqrt(high)

    return PublicRows(
        {name: value for name, value in figures.items() if not math.isnan(value)},
        {"mae": lambda confidence: _log_interval(_Mean(error), confidence), "rmse": of_rmse, "r2": of_r2},
    )


def classified(truth: NDArray[Any], score: Array, *, probability: bool) -> PublicRows:
    """AUROC and, of probabilities, the Brier score, of rows of two classes with scores of the second."""
    positive, negative = score[truth == 1], score[truth == 0]
    if not len(positive) or not len(negative):
        return NOTHING
    right = _placements(positive, negative)
    figures = {"auroc": float(right[0].mean())}
    ends: dict[str, Callable[[float], Ends]] = {"auroc": lambda level: _auroc_interval(*right, level)}
    if probability:
        loss = (score - truth) ** 2
        figures["brier"] = float(loss.mean())

        def of_brier(confidence: float) -> Ends:
            low, high = _log_interval(_Mean(loss), confidence)
            return low, min(high, 1.0)

        ends["brier"] = of_brier
    return PublicRows(figures, ends)


def _placements(positive: Array, negative: Array) -> tuple[Array, Array]:
    """The share of the other class that each row is on the right side of, ties as half."""
    ranks = rankdata(np.concatenate([positive, negative]))
    many, few = len(positive), len(negative)
    above = (ranks[:many] - rankdata(positive)) / few
    below = 1 - (ranks[many:] - rankdata(negative)) / many
    return np.asarray(above), np.asarray(below)


def _auroc_interval(above: Array, below: Array, confidence: float) -> Ends:
    """DeLong's interval of the log-odds of the AUROC; where all pairs are right or wrong, that of the pairs.

    If all pairs are right, so are min(m, n) independent ones, which happens with probability A^min(m, n).
    """
    area, pairs = float(above.mean()), min(len(above), len(below))
    tail = (1 - confidence) / 2
    if area in (0.0, 1.0):
        end = tail ** (1 / pairs)
        return (end, 1.0) if area else (0.0, 1 - end)
    if pairs < 2:
        return 0.0, 1.0
    error = math.sqrt(above.var(ddof=1) / len(above) + below.var(ddof=1) / len(below))
    few = tail / (1 + 5 / pairs)
    reach = -float(ndtri(few)) * error / (area * (1 - area))
    middle = float(logit(area))
    return float(expit(middle - reach)), float(expit(middle + reach))


class _Mean:
    """The logarithm of the mean of losses, of resamples too, each with its standard error."""

    def __init__(self, losses: Array) -> None:
        self.losses = losses
        self.rows = len(losses)
        most = losses.max(initial=0.0) or 1.0
        self.worth = float((losses / most).sum() ** 2 / max(((losses / most) ** 2).sum(), 1e-300))

    def of(self, chosen: NDArray[np.intp]) -> tuple[Array, Array]:
        """Values and errors, one for each line of chosen rows."""
        drawn = self.losses[chosen]
        mean = drawn.mean(axis=-1)
        return np.log(mean), drawn.std(axis=-1, ddof=1) / mean / math.sqrt(self.rows)


class _Ratio(_Mean):
    """The logarithm of the mean square error over the variance of the targets: of 1 − r²."""

    def __init__(self, losses: Array, truth: Array) -> None:
        super().__init__(losses)
        self.truth = truth

    def of(self, chosen: NDArray[np.intp]) -> tuple[Array, Array]:
        drawn, truth = self.losses[chosen], self.truth[chosen]
        spread = (truth - truth.mean(axis=-1, keepdims=True)) ** 2
        over, under = drawn.mean(axis=-1), spread.mean(axis=-1)
        pulls = drawn / over[..., None] - spread / under[..., None]
        return np.log(over / under), pulls.std(axis=-1, ddof=1) / math.sqrt(self.rows)


def _log_interval(figure: _Mean, confidence: float) -> Ends:
    """The bootstrap-t interval of what the figure is the logarithm of.

    Losses that are all alike tell nothing of others: then it is everything.
    """
    with np.errstate(all="ignore"):
        value, error = (float(one) for one in figure.of(np.arange(figure.rows)))
        if not math.isfinite(value) or not error > 0:
            return 0.0, math.inf
        tail = (1 - few_rows(confidence, figure.worth)) / 2
        below, above = float(ndtri(tail)), -float(ndtri(tail))
        if figure.rows <= MOST_RESAMPLED:
            below, above = _studentized(figure, value, tail)
        return math.exp(value - above * error), math.exp(min(value - below * error, 700.0))


def _studentized(figure: _Mean, value: float, tail: float) -> Ends:
    """Quantiles of the studentized error of resamples. The rows are public: any generator does."""
    generator = np.random.default_rng(1)
    found = []
    for start in range(0, RESAMPLES, 100):
        times = min(100, RESAMPLES - start)
        values, errors = figure.of(generator.integers(0, figure.rows, (times, figure.rows)))
        off = (values - value) / errors
        found.append(np.where(np.isfinite(off), off, np.where(values < value, -np.inf, np.inf)))
    below, above = np.quantile(np.concatenate(found), [tail, 1 - tail], method="closest_observation")
    return float(max(below, -1e3)), float(min(above, 1e3))
