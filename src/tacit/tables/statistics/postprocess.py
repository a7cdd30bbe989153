"""Post-processing of noisy tables: no negative cells, whole numbers, consistent margins.

Whatever is computed from a release and public facts alone is as private as the release.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.mechanisms import without_negatives

if TYPE_CHECKING:
    from tacit.tables.release import Answer

__all__ = ["consistent", "influences", "integer", "non_negative", "with_margins"]

Array = NDArray[Any]
Subset = tuple[int, ...]


def non_negative(answer: Answer) -> Answer:
    """No negative numbers; the cells of a table keep their total.

    The interval of a count is cut off at zero. That of a sum or a mean stays, for the truth may be negative.
    """
    inner = _inner(answer)
    if answer.cells and inner.ndim:
        tables = inner.reshape(math.prod(inner.shape[: answer.groups]), -1)
        cells = np.stack([without_negatives(table) for table in tables]).reshape(inner.shape)
    else:
        cells = np.maximum(inner, 0)

    def interval(confidence: float, simultaneous: bool) -> tuple[Array, Array]:
        low, high = answer.interval(confidence, simultaneous)
        if answer.cells:
            low, high = np.maximum(low, 0), np.maximum(high, 0)
        return _containing(low, high, values)

    values = with_margins(cells, answer.groups) if answer.margins else cells
    return replace(answer, values=values, interval=interval)


def integer(answer: Answer) -> Answer:
    """Whole numbers. Where the true ones are whole, the interval shrinks to the whole numbers in it."""
    inner = np.rint(_inner(answer)).astype(np.int64)

    def interval(confidence: float, simultaneous: bool) -> tuple[Array, Array]:
        low, high = answer.interval(confidence, simultaneous)
        low, high = (
            (np.ceil(low - 1e-9), np.floor(high + 1e-9)) if answer.whole else (np.floor(low), np.ceil(high))
        )
        return _containing(low.astype(np.int64), high.astype(np.int64), values)

    values = with_margins(inner, answer.groups) if answer.margins else inner
    return replace(answer, values=values, interval=interval)


def _inner(answer: Answer) -> Array:
    """The cells of a table without its margins."""
    values = answer.values
    inner = (slice(None),) * answer.groups + (slice(None, -1),) * (values.ndim - answer.groups)
    return values[inner] if answer.margins else values


def _containing(low: Array, high: Array, values: Array) -> tuple[Array, Array]:
    return np.minimum(low, values), np.maximum(high, values)


def with_margins(cells: Array, lead: int = 0) -> Array:
    """The table with its sums appended along every axis but the first ``lead`` ones."""
    for axis in range(lead, cells.ndim):
        cells = np.concatenate([cells, cells.sum(axis=axis, keepdims=True)], axis=axis)
    return cells


def consistent(measured: Mapping[Subset, Array], variances: Mapping[Subset, float], shape: Subset) -> Array:
    """The table that best agrees with several noisy margins of itself, by generalised least squares.

    ``measured`` maps a set of axes to the noisy sums over all others, each number with independent
    noise of the variance given; the full table is among them.

    A table is a sum of effects, one for each subset S of its axes, on orthogonal subspaces. A margin
    over T ⊇ S, summed down to S, measures the S effect with variance σ_T² · (cells summed), and
    these measurements are independent; their precision-weighted mean is the least squares
    estimate of the effect, and the estimates of different effects do not interfere. Leading
    dimensions of the arrays, if any, are carried along.
    """
    axes = tuple(range(len(shape)))
    lead = measured[axes].ndim - len(axes)
    table = np.zeros_like(measured[axes], dtype=float)
    for effect in _subsets(axes):
        weights, estimate = 0.0, np.zeros(())
        for margin, values in measured.items():
            if not set(effect) <= set(margin):
                continue
            summed = tuple(axis for axis in margin if axis not in effect)
            precision = 1 / (variances[margin] * np.prod([shape[axis] for axis in summed], initial=1.0))
            positions = tuple(lead + margin.index(axis) for axis in summed)
            estimate = estimate + precision * values.sum(axis=positions)
            weights += precision
        estimate = estimate / weights
        for position in range(len(effect)):
            estimate = estimate - estimate.mean(axis=lead + position, keepdims=True)
        for axis in axes:
            if axis not in effect:
                estimate = np.expand_dims(estimate, lead + axis)
        table = table + estimate / np.prod([shape[axis] for axis in axes if axis not in effect], initial=1.0)
    return table


def influences(
    subsets: Sequence[Subset], variances: Mapping[Subset, float], shape: Subset
) -> dict[Subset, list[tuple[int, float, int]]]:
    """The weight that every measured number has in the numbers that :func:`consistent` returns.

    All cells of the table have the same weights but for their places, and so have all its sums over the same
    axes: the result maps these axes to (which subset was measured, weight, how many numbers have it). A
    measured number matters by the axes in which it agrees with the place, each by 1 − 1/n or −1/n.
    """
    sizes = dict(enumerate(shape))

    def number(axes: Iterable[int]) -> float:
        return float(np.prod([sizes[axis] for axis in axes], initial=1.0))

    def precision(margin: Subset, effect: Subset) -> float:
        return 1 / (variances[margin] * number(set(margin) - set(effect)))

    found: dict[Subset, list[tuple[int, float, int]]] = {}
    for summed in _subsets(tuple(sizes)):
        found[summed] = terms = []
        for place, margin in enumerate(subsets):
            free = tuple(axis for axis in margin if axis not in summed)
            for agreeing in _subsets(free):
                weight = 0.0
                for effect in _subsets(free):
                    shares = [(axis in agreeing) - 1 / sizes[axis] for axis in effect]
                    total = sum(precision(other, effect) for other in subsets if set(effect) <= set(other))
                    outside = number(set(sizes) - set(effect) - set(summed))
                    share = float(np.prod(shares, initial=1.0))
                    weight += precision(margin, effect) / total / outside * share
                others = [sizes[axis] - 1 for axis in free if axis not in agreeing]
                times = number(set(margin) & set(summed)) * float(np.prod(others, initial=1.0))
                terms.append((place, weight, round(times)))
    return found


def _subsets(axes: Subset) -> list[Subset]:
    return [subset for size in range(len(axes) + 1) for subset in itertools.combinations(axes, size)]
