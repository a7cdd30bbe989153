"""Figures from noisy counts and sums: accuracy, AUROC, calibration, groups, errors of a regression.

Every function takes arrays whose last axis is a block of counts or sums; axes before it are repetitions,
which is how intervals are found. Noise has mean zero and is independent between cells, so counts are never
clipped here: sums and products of different cells stay unbiased, and only a finished figure is
brought into its range. A figure with nothing to divide by is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri, pdtr

from tacit.mechanisms import without_negatives

__all__ = [
    "Figures",
    "binary",
    "edges",
    "gap_interval",
    "gap_of",
    "group_figures",
    "interval",
    "multiclass",
    "rates",
    "regression",
    "simulate",
]

Array = NDArray[np.float64]
Figures = dict[str, Array]

SPAN = 20.0
"""Scores beyond ± this log-odds share a bin."""


def edges(bins: int) -> Array:
    """Edges of an even number of score bins on [0, 1], ½ among them, 0 and 1 included.

    They are equal in asinh of the log-odds: fine in the middle, and far enough out for rare classes
    and for models that are too sure of themselves. Fixed edges cost no budget.

    >>> edges(4).round(4).tolist()
    [0.0, 0.0, 0.5, 1.0, 1.0]
    """
    half = np.sinh(np.linspace(0.0, np.arcsinh(SPAN), bins // 2))
    return np.concatenate([[0.0], expit(np.concatenate([-half[:0:-1], half])), [1.0]])


def ratio(part: Array, whole: Array) -> Array:
    """part/whole, NaN where the whole is not above 0."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), np.nan)


def binary(counts: Array, bins: int) -> Figures:
    """Figures for two classes from counts by score bin and true class; above ½ the second is predicted.

    AUROC counts a pair within one bin as half right, and a little more if by the counts of the bins beside
    one class grows there and the other falls: with densities that are straight across a bin, 1 + αs and
    1 + βs for s in [−½, ½], such a pair is right with probability ½ + (α − β)/12. That, too, is a sum of
    products of different cells. The calibration error joins five bins at a time.
    """
    cells = counts[..., : 2 * bins].reshape(*counts.shape[:-1], bins, 2)
    negative, positive = cells[..., 0], cells[..., 1]
    total = cells.sum(axis=(-2, -1))
    limits = edges(bins)
    middle = (limits[1:] + limits[:-1]) / 2
    right = negative[..., : bins // 2].sum(axis=-1) + positive[..., bins // 2 :].sum(axis=-1)
    ordered = (positive * (negative.cumsum(axis=-1) - negative / 2)).sum(axis=-1)
    rise = (cells[..., 2:, :] - cells[..., :-2, :]) / 2
    ordered += (rise[..., 1] * negative[..., 1:-1] - rise[..., 0] * positive[..., 1:-1]).sum(axis=-1) / 12
    squares = (positive * (1 - middle) ** 2 + negative * middle**2).sum(axis=-1)
    both = np.where((positive.sum(axis=-1) > 0) & (negative.sum(axis=-1) > 0), 1.0, -1.0)
    return {
        "accuracy": ratio(right, total),
        "auroc": ratio(ordered, both * np.abs(positive.sum(axis=-1) * negative.sum(axis=-1))),
        "brier": ratio(squares, total),
        "calibration error": ratio(off_by(counts, bins), total),
    }


def off_by(counts: Array, bins: int) -> Array:
    """By how many rows observed and predicted positives differ, summed over ranges of five bins.

    It is a seminorm of the counts, so errors in the counts obey the triangle inequality.
    """
    cells = counts[..., : 2 * bins].reshape(*counts.shape[:-1], bins, 2)
    limits = edges(bins)
    expected = (limits[1:] + limits[:-1]) / 2 * cells.sum(axis=-1)
    off = np.add.reduceat(cells[..., 1] - expected, _joined(bins), axis=-1)
    return np.asarray(np.abs(off).sum(axis=-1))


def confidence_off_by(counts: Array, bins: int) -> Array:
    """As :func:`off_by`, for counts by confidence, in bins of equal width, and rightness."""
    cells = counts[..., : 2 * bins].reshape(*counts.shape[:-1], bins, 2)
    off = cells[..., 1] - (np.arange(bins) + 0.5) / bins * cells.sum(axis=-1)
    return np.asarray(np.abs(off).sum(axis=-1))


def reliability(counts: Array, bins: int) -> list[dict[str, float | None]]:
    """For each range of scores: how many rows, what was predicted on average and what was observed."""
    cells = counts[: 2 * bins].reshape(bins, 2)
    limits, starts = edges(bins), _joined(bins)
    middle = (limits[1:] + limits[:-1]) / 2
    total = np.add.reduceat(cells.sum(axis=-1), starts)
    table = [
        ratio(np.add.reduceat(cells.sum(axis=-1) * middle, starts), total),
        ratio(np.add.reduceat(cells[:, 1], starts), total),
    ]
    ends = [*starts[1:], bins]
    return [
        {"from": float(limits[a]), "to": float(limits[b]), "count": float(n), "predicted": p, "observed": o}
        for a, b, n, p, o in zip(starts, ends, total, *map(_shares, table), strict=True)
    ]


def multiclass(confidence: Array | None, confusion: Array, classes: int, bins: int) -> Figures:
    """Figures for more classes, from counts by confidence bin and rightness, and by true and predicted class.

    ``confidence`` is None for a model without probabilities.
    """
    table = confusion[..., : classes**2].reshape(*confusion.shape[:-1], classes, classes)
    if confidence is None:
        right = np.trace(table, axis1=-2, axis2=-1)
        return {"accuracy": ratio(right, table.sum(axis=(-2, -1)))}
    cells = confidence[..., : 2 * bins].reshape(*confidence.shape[:-1], bins, 2)
    total = cells.sum(axis=(-2, -1))
    return {
        "accuracy": ratio(cells[..., 1].sum(axis=-1), total),
        "calibration error": ratio(confidence_off_by(confidence, bins), total),
    }


def group_figures(name: str, counts: Array, categories: Sequence[Any], outcomes: int) -> Figures:
    """Figures for each group, and the gap between the best and the worst.

    Of four outcomes per group: (predicted, true) of two classes; of two: wrong and right.
    """
    shape = (*counts.shape[:-1], len(categories), outcomes)
    cells = counts[..., : len(categories) * outcomes].reshape(shape)
    total = cells.sum(axis=-1)
    if outcomes == 2:
        made = {"accuracy": ratio(cells[..., 1], total)}
    else:
        made = {
            "accuracy": ratio(cells[..., 0] + cells[..., 3], total),
            "positive rate": ratio(cells[..., 2] + cells[..., 3], total),
            "true positive rate": ratio(cells[..., 3], cells[..., 1] + cells[..., 3]),
            "false positive rate": ratio(cells[..., 2], cells[..., 0] + cells[..., 2]),
        }
    figures: Figures = {}
    for what, values in made.items():
        for place, category in enumerate(categories):
            figures[f"{name}={category}: {what}"] = values[..., place]
        bounded = np.clip(values, 0.0, 1.0)
        figures[f"{name}: {what} gap"] = bounded.max(axis=-1) - bounded.min(axis=-1)
    return figures


def rates(cells: Array) -> dict[str, tuple[float, float]]:
    """The rates of one group as parts of wholes, from its outcomes (see :func:`group_figures`)."""
    total = float(cells.sum())
    if len(cells) == 2:
        return {"accuracy": (float(cells[1]), total)}
    return {
        "accuracy": (float(cells[0] + cells[3]), total),
        "positive rate": (float(cells[2] + cells[3]), total),
        "true positive rate": (float(cells[3]), float(cells[1] + cells[3])),
        "false positive rate": (float(cells[2]), float(cells[0] + cells[2])),
    }


def regression(sums: Array, width: float) -> Figures:
    """Figures from n and the sums of |r|/w, (r/w)², (r/w)⁴, u and u² (see :func:`tacit.evaluate`)."""
    rows, absolute, square, _, u, uu = np.moveaxis(sums[..., :6], -1, 0)
    spread = uu - ratio(u * u, rows)
    return {
        "mae": width * ratio(absolute, rows),
        "rmse": width * signed_root(ratio(square, rows)),
        "r2": 1 - 4 * ratio(square, np.nan_to_num(spread)),
    }


def signed_root(values: Array) -> Array:
    """√x, and −√−x below zero, where a noisy mean of squares may be."""
    return np.asarray(np.sign(values) * np.sqrt(np.abs(values)))


def simulate(block: Array, uniforms: Array, *, counts: bool) -> tuple[Array, Array]:
    """Counts that may be behind a noisy block, and samples of other data from the same source.

    Counts are Poisson around the nearest block without negatives and with the same total; sums are those of a
    Poisson number of rows, with the variance of |r|, r² and u that the sums imply. The squares of u are drawn
    as those around the mean of u, whose variance is the most that it can be, and put back around zero: drawn
    by themselves, they would vary with the mean of u, which cancels in r².
    """
    if counts:
        truth = without_negatives(block)
        drawn = np.zeros(uniforms.shape)
        for place in np.flatnonzero(truth > 0):
            drawn[:, place] = _poisson(float(truth[place]), uniforms[:, place])
        return truth, drawn
    truth = np.array(block)
    truth[..., [0, 1, 2, 3, 5]] = np.maximum(truth[..., [0, 1, 2, 3, 5]], 0.0)
    rows, _, square, fourth, u, uu = truth
    mean = float(np.nan_to_num(ratio(u, rows)))
    spread = max(uu - mean * u, 0.0)
    far = (1 + min(abs(mean), 1.0)) ** 2
    moments = np.array([rows, square, fourth, fourth, uu, far * spread + spread**2 / max(rows, 1.0)])
    totals = np.array([*truth[:5], spread])
    rest = np.maximum(moments - ratio(totals**2, np.full(6, rows)), 0.0)
    normal = np.asarray(ndtri(uniforms))
    number = np.maximum(rows + np.sqrt(rows) * normal[:, :1], 0.0)
    drawn = number * np.nan_to_num(ratio(totals, np.full(6, rows))) + _except_first(np.sqrt(rest)) * normal
    drawn[:, 5] += np.nan_to_num(ratio(drawn[:, 4] ** 2, drawn[:, 0]))
    truth[5] = spread + mean * u
    return truth, drawn


def _poisson(mean: float, uniforms: Array) -> Array:
    """Poisson numbers at these probabilities: the first at which the distribution function reaches each."""
    reach = 10 * np.sqrt(mean) + 40
    numbers = np.arange(max(0.0, np.floor(mean - reach)), np.ceil(mean + reach))
    return np.asarray(numbers[np.minimum(np.searchsorted(pdtr(numbers, mean), uniforms), len(numbers) - 1)])


def interval(
    estimate: float, centre: float, draws: Array, confidence: float, limits: tuple[float, float]
) -> tuple[float, float]:
    """The interval of a figure: its estimate less the quantiles of simulated errors, within its limits."""
    low, high = limits
    if np.isnan(estimate) or np.isnan(centre):
        return limits
    error = np.asarray(draws) - centre
    undefined = np.flatnonzero(np.isnan(error))
    error[undefined] = np.where(np.arange(len(undefined)) % 2 == 0, np.inf, -np.inf)
    tail = (1 - confidence) / 2
    below, above = np.quantile(error, [tail, 1 - tail], method="closest_observation")
    return float(np.clip(estimate - above, low, high)), float(np.clip(estimate - below, low, high))


def gap_interval(estimates: Array, centres: Array, draws: Array, confidence: float) -> tuple[float, float]:
    """The interval of the gap between the largest and the smallest of several shares.

    Each signed difference of two gets an interval, all of which hold at once (Bonferroni); the gap is at
    least the largest lower end, and at most the largest upper one. Noise biases gaps upwards, but not
    differences.
    """
    pairs = [(i, j) for i in range(len(estimates)) for j in range(i)]
    if not pairs:
        return 0.0, 0.0
    level = 1 - (1 - confidence) / len(pairs)
    ends = [
        interval(
            estimates[i] - estimates[j], centres[i] - centres[j], draws[i] - draws[j], level, (-1.0, 1.0)
        )
        for i, j in pairs
    ]
    return gap_of(ends)


def gap_of(differences: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The interval of the largest difference in size, from those of all differences, which hold at once."""
    low = max(max(low, -high) for low, high in differences)
    return max(low, 0.0), max(max(-low, high) for low, high in differences)


def median_error(centre: float, draws: Array) -> float:
    """The upward bias, by noise and sampling, of a figure that cannot be negative, such as a gap."""
    error = np.asarray(draws) - centre
    return float(np.nanmedian(error)) if np.isfinite(error).any() else 0.0


def _joined(bins: int) -> NDArray[np.intp]:
    return np.arange(0, bins, 5)


def _shares(values: Array) -> list[float | None]:
    return [None if np.isnan(value) else float(np.clip(value, 0.0, 1.0)) for value in values]


def _except_first(values: Array) -> Array:
    return np.concatenate([[0.0], values[1:]])
