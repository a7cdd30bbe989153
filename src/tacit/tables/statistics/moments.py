"""Which cells each statistic is made of, and how it is read off them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tacit.errors import InvalidValue
from tacit.schema import Schema
from tacit.tables.cells.axes import Axis, Bins
from tacit.tables.cells.measure import Block, Measurement
from tacit.tables.cells.values import Scale, Value, value_of
from tacit.tables.statistics import intervals
from tacit.tables.statistics.contrasts import Law, reach_of_sums
from tacit.tables.statistics.postprocess import consistent, influences, with_margins
from tacit.tables.statistics.statistic import CellStatistic, laid_out

__all__ = ["count", "covariance", "crosstab", "histogram", "mean", "mean_of_known_n", "total", "variance"]

Array = NDArray[Any]


def _show(axes: Sequence[Axis], natural: Callable[[Any], Any] | None = None) -> Callable[[Array], Any]:
    """Numbers as the user sees them: a scalar, or a series over the axes."""

    known: list[pd.Index] = []

    def show(values: Array) -> Any:
        turned = values if natural is None else np.vectorize(natural, otypes=[object])(values)
        if not axes:
            return turned.item()
        labels = known or [axis.labels() for axis in axes]
        known[:] = labels
        series = laid_out(turned, labels)
        return series if natural is None else series.infer_objects()

    return show


def _show_table(axes: Sequence[Axis], groups: int, margins: bool) -> Callable[[Array], Any]:
    """Two axes as a frame, with the groups, the first axes, beside its rows; others as a series.

    Sums are called All; there are none over groups.
    """

    def show(values: Array) -> Any:
        labels = [axis.labels() for axis in axes]
        if margins:
            summed = (pd.Index([*label, "All"], name=label.name) for label in labels[groups:])
            labels = [*labels[:groups], *summed]
        if len(axes) - groups == 2:
            rows = labels[0] if groups == 0 else pd.MultiIndex.from_product(labels[:-1])
            return pd.DataFrame(values.reshape(len(rows), -1), index=rows, columns=labels[-1])
        return laid_out(values, labels)

    return show


def count(axes: tuple[Axis, ...], where: Any, mass: int) -> CellStatistic:
    """The number of rows in each cell of the axes: the cells themselves, ``mass`` steps to a row."""
    measurement = Measurement(Block("count", (), where), axes)
    return CellStatistic(
        (measurement,),
        partial(_counts, mass=mass),
        _show(axes),
        unit_size=1 / mass if mass != 1 else 1.0,
        cells=True,
    )


def _counts(cells: Sequence[Array], mass: int) -> Array:
    (one,) = cells
    return one[..., 0] if mass == 1 else one[..., 0] / mass


def histogram(axes: tuple[Axis, ...], where: Any, mass: int) -> CellStatistic:
    """The number of rows in each bin, the last axis, of each group: those before it."""
    bins = axes[-1] if isinstance(axes[-1], Bins) else None
    return replace(count(axes, where, mass), groups=len(axes) - 1, bins=bins)


def crosstab(
    axes: tuple[Axis, ...], where: Any, mass: int, margins: bool, groups: int = 0
) -> CellStatistic:
    """A contingency table; with margins, one-way margins are measured too and made consistent.

    The margins are exact sums of the table's cells, with noise of their own. Half of the budget goes to the
    table and half to its margins; least squares then gives the table that agrees best with all of them
    (:func:`tacit.tables.statistics.postprocess.consistent`), and its sums.

    The first ``groups`` axes are those of the groups, each of which has a table of its own. A row is in one
    cell of the tables of all groups, and in one of each margin of all groups; they are measured together, so
    that sensitivity and event are those of a single table.
    """
    if not margins:
        return replace(count(axes, where, mass), show=_show_table(axes, groups, False), groups=groups)
    by, axes = axes[:groups], axes[groups:]
    if len(axes) < 2:
        raise InvalidValue("margins", margins, "left out for a table of one column")
    subsets = [tuple(range(len(axes))), *((i,) for i in range(len(axes)))]
    parts = tuple(
        Measurement(Block("count", (), where), (*by, *(axes[i] for i in subset))) for subset in subsets
    )
    weights = (float(len(axes)), *(1.0 for _ in axes))
    shape = tuple(axis.size for axis in axes)
    tables = tuple(axis.size for axis in by)
    variances = {subset: weight**-2 for subset, weight in zip(subsets, weights, strict=True)}

    def estimate(cells: Sequence[Array]) -> Array:
        measured = {subset: part[..., 0] / mass for subset, part in zip(subsets, cells, strict=True)}
        table = consistent(measured, variances, shape)
        return with_margins(table, table.ndim - len(shape))

    def summed(table: Array) -> Sequence[Array]:
        others = [tuple(groups + i for i in range(len(shape)) if i not in subset) for subset in subsets]
        return [table.sum(axis=axes_to_sum) for axes_to_sum in others]

    def typical(rows: float) -> Sequence[Array]:
        return summed(np.full((*tables, *shape, 1), rows * mass / math.prod((*tables, *shape))))

    def enclosed(cells: Sequence[Array], laws: Sequence[Law], miss: float) -> tuple[Array, Array]:
        values = estimate(cells)
        reach = np.zeros(values.shape[values.ndim - len(shape) :])
        for over, terms in influences(subsets, variances, shape).items():
            place = tuple(slice(-1, None) if axis in over else slice(None, -1) for axis in range(len(shape)))
            noises = [(laws[i], weight, times) for i, weight, times in terms]
            reach[place] = reach_of_sums(noises, miss) / mass
        return values - reach, values + reach

    return CellStatistic(
        parts,
        estimate,
        _show_table((*by, *axes), groups, True),
        weights,
        enclosed=enclosed,
        cells=True,
        margins=True,
        groups=groups,
        typical=typical,
        summed=summed,
    )


def total(schema: Schema, column: str, bounds: Any, axes: tuple[Axis, ...], where: Any) -> CellStatistic:
    """The sum of a column, each value clipped to the bounds and rounded to whole steps."""
    shared = schema.unit.column is not None
    value = value_of(schema, column, bounds, "dense_around_zero" if shared else "around_zero")
    if value.type == "date":
        raise InvalidValue("column", column, "a number; dates have no sum")
    whole = value.whole and value.scale.step == 1
    return CellStatistic(
        (Measurement(Block("total", (value,), where), axes),),
        lambda cells: cells[0][..., 0] if whole else cells[0][..., 0] * value.scale.step,
        _show(axes),
        unit_size=1.0 if whole else value.scale.step,
    )


def mean(schema: Schema, column: str, bounds: Any, axes: tuple[Axis, ...], where: Any) -> CellStatistic:
    """The mean of the values that are there; the noise on n is part of that on the cells."""
    value = value_of(schema, column, bounds, "dense")
    extent = _extent(value.scale)

    def enclosed(cells: Sequence[Array], laws: Sequence[Law], miss: float) -> tuple[Array, Array]:
        low, high = intervals.mean(cells[0], laws[0], miss)
        return value.scale.lower + low * extent, value.scale.lower + high * extent

    return CellStatistic(
        (Measurement(Block("mean", (value,), where), axes),),
        lambda cells: value.scale.lower + _first_moment(cells[0]) * extent,
        _show(axes, value.natural if value.type == "date" else None),
        rounding=_rounding(value) + (0.0 if schema.unit.column is None else 2 * value.scale.step),
        enclosed=enclosed,
        at_once=True,
        typical=lambda rows: [_evenly(rows, value.scale.width, axes, (0.5, 0.5))],
    )


def mean_of_known_n(schema: Schema, column: str, bounds: Any, population: int) -> CellStatistic:
    """The mean where n is public and no row is missing: the sum around the middle, over n.

    Each row adds 2a − S steps, between −S and S. Adding or removing one moves the sum by at most S half
    steps, replacing one by 2S; n is a public constant.
    """
    value = value_of(schema, column, bounds)
    middle = (value.scale.lower + value.scale.upper) / 2
    size = value.scale.step / 2 / population
    return CellStatistic(
        (Measurement(Block("centred", (value,))),),
        lambda cells: np.clip(middle + cells[0][..., 0] * size, value.scale.lower, value.scale.upper),
        _show((), value.natural if value.type == "date" else None),
        unit_size=size,
        rounding=_rounding(value),
    )


def variance(
    schema: Schema, column: str, bounds: Any, axes: tuple[Axis, ...], where: Any, root: bool
) -> CellStatistic:
    """The sample variance, or its root."""
    value = value_of(schema, column, bounds, "fine")
    if value.type == "date":
        raise InvalidValue("column", column, "a number; use quantiles for dates")
    extent = _extent(value.scale)

    def estimate(cells: Sequence[Array]) -> Array:
        rest, double, square = (cells[0][..., i] for i in range(3))
        mass = rest + double + square
        first, second = _ratio(double / 2 + square, mass), _ratio(square, mass)
        spread = np.clip(second - first**2, 0, 0.25) * _sample_correction(mass / value.scale.width)
        return np.asarray(np.sqrt(spread) * extent if root else spread * extent**2)

    def enclosed(cells: Sequence[Array], laws: Sequence[Law], miss: float) -> tuple[Array, Array]:
        low, high = intervals.variance(cells[0], value.scale.width, laws[0], miss)
        if root:
            return np.sqrt(low) * extent, np.sqrt(high) * extent
        return low * extent**2, high * extent**2

    return CellStatistic(
        (Measurement(Block("square", (value,), where), axes),),
        estimate,
        _show(axes),
        enclosed=enclosed,
        at_once=True,
        typical=lambda rows: [_evenly(rows, value.scale.width, axes, (1 / 3, 1 / 3, 1 / 3))],
    )


def covariance(
    schema: Schema, columns: Sequence[str], bounds: Any, where: Any, scaled: bool
) -> CellStatistic:
    """The covariance or correlation matrix: a block of squares for each column, of products for each pair.

    Each pair uses the rows in which neither value is missing. The share is split evenly among the blocks.
    """
    given = bounds if isinstance(bounds, dict) else dict.fromkeys(columns, bounds)
    values = [value_of(schema, column, given.get(column), "fine") for column in columns]
    for value in values:
        if value.type == "date":
            raise InvalidValue("column", value.column, "a number; dates have no covariance")
    pairs = list(itertools.combinations_with_replacement(range(len(values)), 2))
    parts = tuple(
        Measurement(
            Block("square", (values[i],), where)
            if i == j
            else Block("product", (values[i], values[j]), where)
        )
        for i, j in pairs
    )
    extents = [_extent(value.scale) for value in values]
    width = values[0].scale.width

    def estimate(cells: Sequence[Array]) -> Array:
        lead = cells[0].shape[:-1]
        matrix = np.zeros((*lead, len(values), len(values)))
        for (i, j), block in zip(pairs, cells, strict=True):
            mass = block.sum(axis=-1)
            if i == j:
                one = other = _ratio(block[..., 1] / 2 + block[..., 2], mass)
            else:
                one, other = (_ratio(block[..., side] + block[..., 3], mass) for side in (1, 2))
            moment = _ratio(block[..., -1], mass) - one * other
            matrix[..., i, j] = matrix[..., j, i] = moment * _sample_correction(mass / width)
        matrix = _positive(matrix)
        if scaled:
            spread = np.sqrt(np.einsum("...ii->...i", matrix))
            scale = spread[..., :, None] * spread[..., None, :]
            matrix = np.clip(np.divide(matrix, scale, out=np.zeros_like(matrix), where=scale > 0), -1, 1)
            for i in range(len(values)):
                matrix[..., i, i] = 1.0
            return np.asarray(matrix)
        return np.asarray(matrix * np.outer(extents, extents))

    def enclosed(cells: Sequence[Array], laws: Sequence[Law], miss: float) -> tuple[Array, Array]:
        blocks = dict(zip(pairs, cells, strict=True))
        lead = cells[0].shape[:-1]
        low, high = (np.tile(np.eye(len(values)), (*lead, 1, 1)) for _ in range(2))
        for i, j in pairs:
            if not scaled:
                ends = intervals.covariance(blocks[i, j], width, laws[0], miss)
                unit = extents[i] * extents[j]
            elif i != j:
                parts = blocks[i, i], blocks[j, j], blocks[i, j]
                ends, unit = intervals.correlation(*parts, width, laws[0], miss), 1.0
            else:
                continue
            for matrix, end in ((low, ends[0]), (high, ends[1])):
                matrix[..., i, j] = matrix[..., j, i] = end * unit
        return low, high

    names = [value.column for value in values]
    return CellStatistic(
        parts,
        estimate,
        lambda matrix: pd.DataFrame(matrix, index=names, columns=names),
        enclosed=enclosed,
        numbers=len(pairs) - len(values) * scaled,
        typical=lambda rows: [
            rows * width * np.array([1 / 3, 1 / 3, 1 / 3] if i == j else [0.25] * 4) for i, j in pairs
        ],
    )


def _extent(scale: Scale) -> float:
    return scale.width * scale.step


def _rounding(value: Value) -> float:
    """How far rounding moves a mean: half a step, or half a day for dates, which are shown as whole days."""
    if value.type == "date":
        return 0.5
    return 0.0 if value.exact else value.scale.step / 2


def _evenly(rows: float, mass: int, axes: Sequence[Axis], shares: tuple[float, ...]) -> Array:
    groups = tuple(axis.size for axis in axes)
    return np.asarray(np.full((*groups, len(shares)), rows * mass / math.prod(groups)) * np.array(shares))


def _first_moment(cells: Array) -> Array:
    return _ratio(cells[..., 1], cells[..., 0] + cells[..., 1])


def _ratio(part: Array, whole: Array) -> Array:
    """part/whole within [0, 1]; one half where noise left nothing to divide by."""
    part, whole = np.asarray(part, float), np.asarray(whole, float)
    return np.asarray(np.clip(np.divide(part, whole, out=np.full(whole.shape, 0.5), where=whole > 0), 0, 1))


def _sample_correction(rows: Array) -> Array:
    """n/(n − 1), from a noisy n."""
    n = np.maximum(rows, 2.0)
    return np.asarray(n / (n - 1))


def _positive(matrix: Array) -> Array:
    """The nearest positive semidefinite matrix: a covariance matrix has no negative eigenvalue."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(np.einsum("...ij,...j,...kj->...ik", vectors, np.maximum(values, 0), vectors))
