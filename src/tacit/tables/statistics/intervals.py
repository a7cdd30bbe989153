"""Intervals of means, variances, covariances and correlations that hold for every data set.

The true cells c are unknown, the released ones are C = c + N, and N has a known distribution. Each statistic
θ is a number for which a sum of the true cells, weighted in a way that θ and the means determine, is zero:

==================  =====================================================================
mean                p·(M − Σx) − (1 − p)·Σx = 0
sample covariance   Σ(x − μ)(y − ν) − θ(M − S) = 0, with the true means μ, ν; S is one row
correlation         the same with ρ·s_x·s_y for θ, less ρ/2 · (s_y/s_x · (Σ(x − μ)² − s_x²(M − S)) + …)
==================  =====================================================================

So the same sum of the released cells is nothing but noise, a contrast Σ w_i N_i, whose tail is known however
few rows there are (Fieller 1954, for ratios). An interval holds every θ at which the sum of the released
cells is not surprising at the level α. For the mean that is all, and it misses the truth with probability at
most α.

The other weights depend on means and deviations too. Those are enclosed first, with a small part of α
(Berger and Boos 1994), and θ stays in the interval if any of the enclosed values would let it: of the sum
its largest or smallest value over the enclosure is taken, of each weight its largest size. Near the true
means the sum does not change in first order, so this costs little. Where fewer than two rows cannot be
excluded, nothing is said about a spread.

Ends are found by bisection. With the quantile q of the contrast, which is convex in the weights and these are
linear in θ, the distance from zero less q is concave in θ: where it is positive at a point and at the end of
the range, it is positive between them (see :mod:`tacit.tables.statistics.contrasts`).

Everything here is in parts of a column's range: values lie in [0, 1]. The probability to miss may be an array
that is broadcast along the cells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.tables.statistics.contrasts import Law, surprising

__all__ = ["correlation", "covariance", "mean", "variance"]

Array = NDArray[Any]
Ends = tuple[Array, Array]
Miss = float | Array

NUISANCE = 1 / 40
"""The part of α that is spent on enclosing the means and deviations that the weights depend on."""

HALVINGS = 44
"""How often an end is halved: it is found to 2^−44 of the range."""

AT_ONCE, FEW = 6, 64
"""For few intervals, so many halvings are done at once, by trying all points that they could meet: what takes
time then is the number of calls."""

PRODUCTS_ROUNDED = 2.0**-22
"""How far rounding to steps of 2^−26 can move a sample variance or covariance, also where people are shrunk.

A value moves by half a step, a product by less than one, the cells of a person with many rows by less than
one each: together less than five steps for three cells, and n/(n − 1) may double that.
"""


def mean(cells: Array, law: Law, miss: Miss) -> Ends:
    """The share of the last of two cells."""
    return _ratio(cells[..., 0], cells[..., 1], lambda p: np.stack([p, 1 - p], axis=-1), law, miss)


def _ratio(rest: Array, part: Array, weights: Callable[[Array], Array], law: Law, miss: Miss) -> Ends:
    """Where part/(rest + part) lies. Neither is negative in truth; to raise one to 0 widens the interval."""
    rest, part = np.maximum(rest, 0.0), np.maximum(part, 0.0)
    total = rest + part
    start = np.divide(part, total, out=np.full(total.shape, 0.5), where=total > 0)
    high = _end(lambda p: _beyond(p * rest - (1 - p) * part, weights(p), law, miss), start, 1.0)
    low = _end(lambda p: _beyond((1 - p) * part - p * rest, weights(p), law, miss), start, 0.0)
    return low, high


def _beyond(distance: Array, weights: Array, law: Law, miss: Miss) -> NDArray[np.bool_]:
    return np.asarray((distance > 0) & surprising(law, weights, distance, miss))


def _end(rejected: Callable[[Array], NDArray[np.bool_]], start: Array, end: float) -> Array:
    """The end of an interval between ``start`` and ``end``: all beyond it is rejected, or it is ``end``."""
    inner, outer = np.array(start, float), np.full(np.shape(start), float(end))
    open_ended = ~rejected(outer)
    if inner.size > FEW:
        for _ in range(HALVINGS):
            middle = (inner + outer) / 2
            out = rejected(middle)
            inner, outer = np.where(out, inner, middle), np.where(out, middle, outer)
        return np.asarray(np.where(open_ended, end, outer))
    parts, every = 2**AT_ONCE, np.indices(inner.shape, sparse=True)
    shares = np.arange(parts + 1).reshape(-1, *(1,) * inner.ndim) / parts
    out = np.ones((parts, *inner.shape), bool)
    for _ in range(-(-HALVINGS // AT_ONCE)):
        points = inner + (outer - inner) * shares
        points[-1] = outer
        out[:-1] = rejected(points[1:-1])
        first = out.argmax(axis=0)
        inner, outer = points[(first, *every)], points[(first + 1, *every)]
    return np.asarray(np.where(open_ended, end, outer))


class _Block(NamedTuple):
    """Noisy cells of squares (three) or products (four), with enclosures of the means of both factors.

    Whether fewer than two rows cannot be excluded is ``few``; ``row`` is the mass of one row.
    """

    cells: Array
    x: Ends
    y: Ends
    few: NDArray[np.bool_]
    row: float

    @classmethod
    def enclosing(cls, cells: Array, row: float, law: Law, miss: Miss) -> _Block:
        """Each mean and the number of rows may be missed with a third of ``miss``."""
        cells = np.asarray(cells, float)
        part = miss / 3
        mass = cells.sum(axis=-1) - 2 * row
        few = ~_beyond(mass, np.ones(cells.shape), law, part)
        if cells.shape[-1] == 3:
            rest, half, square = np.moveaxis(cells, -1, 0)
            x = _ratio(
                rest + half / 2, half / 2 + square,
                lambda p: np.stack([p, np.abs(p - 0.5), 1 - p], axis=-1), law, part,
            )  # fmt: skip
            return cls(cells, x, x, few, row)
        rest, one, other, both = np.moveaxis(cells, -1, 0)
        x = _ratio(rest + other, one + both, lambda p: np.stack([p, p, 1 - p, 1 - p], axis=-1), law, part)
        y = _ratio(rest + one, other + both, lambda p: np.stack([p, p, 1 - p, 1 - p], axis=-1), law, part)
        return cls(cells, x, y, few, row)

    @property
    def mass(self) -> Array:
        """The noisy number of rows times the mass of one."""
        return np.asarray(self.cells.sum(axis=-1))

    def weights(self) -> Ends:
        """(x − μ)(y − ν) at the corner that each cell stands for, lowest and highest over the enclosure."""
        (a, b), (c, d) = self.x, self.y
        if self.cells.shape[-1] == 3:
            ends = np.stack([a * (1 - a), b * (1 - b)])
            most = np.where((a <= 0.5) & (b >= 0.5), 0.25, ends.max(axis=0))
            low = [a**2, -most, (1 - b) ** 2]
            high = [b**2, -ends.min(axis=0), (1 - a) ** 2]
        else:
            low = [a * c, -(1 - a) * d, -b * (1 - c), (1 - b) * (1 - d)]
            high = [b * d, -(1 - b) * c, -a * (1 - d), (1 - a) * (1 - c)]
        return np.stack(low, axis=-1), np.stack(high, axis=-1)

    def sums(self) -> Ends:
        """Σ(x − μ)(y − ν) of the noisy cells, lowest and highest over the enclosure."""
        if self.cells.shape[-1] == 3:
            rest, half, square = np.moveaxis(self.cells, -1, 0)
            mass, first = self.mass, half + 2 * square
            middle = np.divide(first / 2, mass, out=np.zeros(mass.shape), where=mass != 0)
            points = [*self.x, np.clip(middle, *self.x)]
            found = [point**2 * mass - point * first + square for point in points]
        else:
            rest, one, other, both = np.moveaxis(self.cells, -1, 0)
            found = [
                x * y * rest - (1 - x) * y * one - x * (1 - y) * other + (1 - x) * (1 - y) * both
                for x in self.x
                for y in self.y
            ]
        return np.min(found, axis=0), np.max(found, axis=0)


def covariance(cells: Array, row: float, law: Law, miss: Miss) -> Ends:
    """The sample covariance of two columns from the cells of their products, or the variance from squares."""
    return _spread(_Block.enclosing(cells, row, law, miss * NUISANCE), law, miss * (1 - NUISANCE))


def variance(cells: Array, row: float, law: Law, miss: Miss) -> Ends:
    """The sample variance, from the cells of squares."""
    return covariance(cells, row, law, miss)


def _spread(block: _Block, law: Law, miss: Miss) -> Ends:
    """Variances lie in [0, ½] and covariances in [−½, ½]: two rows at opposite ends have ½."""
    lowest, highest = block.weights()
    least, most = block.sums()
    after_first = block.mass - block.row
    bottom = 0.0 if block.cells.shape[-1] == 3 else -0.5

    def largest(theta: Array) -> Array:
        t = theta[..., None]
        return np.asarray(np.maximum(np.abs(lowest - t), np.abs(highest - t)))

    start = np.full(block.mass.shape, bottom)
    high = _end(lambda t: _beyond(t * after_first - most, largest(t), law, miss), start, 0.5)
    start = np.full(block.mass.shape, 0.5)
    low = _end(lambda t: _beyond(least - t * after_first, largest(t), law, miss), start, bottom)
    low = np.where(block.few, bottom, np.maximum(low - PRODUCTS_ROUNDED, bottom))
    high = np.where(block.few, 0.5, np.minimum(high + PRODUCTS_ROUNDED, 0.5))
    return low, high


def correlation(first: Array, second: Array, products: Array, row: float, law: Law, miss: float) -> Ends:
    """cov(x, y)/(s_x s_y), from the cells of either column's squares and those of their products.

    The weights of the products are (x − μ)(y − ν) − ρπ and those of the squares −ρ/2·(κ(x − μ)² − π) and
    −ρ/2·((y − ν)²/κ − π), with π = s_x s_y and κ = s_y/s_x. The sum is the covariance's less ρ times
    E = κ/2·Σ(x − μ)² + Σ(y − ν)²/2κ + π·(M_xy − M_x/2 − M_y/2); in π and κ, too, it does not change in
    first order at the true ones, as long as all three have the same rows.
    """
    part = miss * NUISANCE / 3
    blocks = [_Block.enclosing(cells, row, law, part / 2) for cells in (first, second, products)]
    spreads = [_spread(block, law, part / 2) for block in blocks[:2]]
    few = np.any([block.few for block in blocks], axis=0) | (spreads[0][0] <= 0) | (spreads[1][0] <= 0)
    spreads = [(np.where(few, 0.01, low), np.where(few, 0.02, high)) for low, high in spreads]
    (x_low, x_high), (y_low, y_high) = ((np.sqrt(low), np.sqrt(high)) for low, high in spreads)
    both = x_low * y_low, x_high * y_high
    ratio = y_low / x_high, y_high / x_low
    scaled = _scaled([block.sums() for block in blocks[:2]], ratio)
    extra = blocks[2].mass - blocks[0].mass / 2 - blocks[1].mass / 2
    expected = (
        scaled[0] + np.minimum(*(p * extra for p in both)),
        scaled[1] + np.maximum(*(p * extra for p in both)),
    )
    least, most = blocks[2].sums()
    rounded = PRODUCTS_ROUNDED * np.maximum.reduce([np.abs(block.mass) for block in blocks])
    slack = rounded * (1 + ratio[1] / 2 + 1 / (2 * ratio[0]))
    corners = [block.weights() for block in blocks]

    def largest(rho: Array) -> Array:
        r = rho[..., None]
        size = [_size(corners[2], [r * p[..., None] for p in both])]
        for corner, (least_factor, most_factor) in (
            (corners[0], ratio),
            (corners[1], (1 / ratio[1], 1 / ratio[0])),
        ):
            ends = [c * f[..., None] for c in corner for f in (least_factor, most_factor)]
            bounds = np.minimum.reduce(ends), np.maximum.reduce(ends)
            size.append(np.abs(r) / 2 * _size(bounds, [p[..., None] for p in both]))
        return np.concatenate(size, axis=-1)

    def above(rho: Array) -> NDArray[np.bool_]:
        lowest = np.minimum(*(rho * e for e in expected))
        return _beyond(lowest - most - slack, largest(rho), law, miss * (1 - NUISANCE))

    def below(rho: Array) -> NDArray[np.bool_]:
        highest = np.maximum(*(rho * e for e in expected))
        return _beyond(least - highest - slack, largest(rho), law, miss * (1 - NUISANCE))

    shape = few.shape
    high = np.where(few, 1.0, _end(above, np.full(shape, -1.0), 1.0))
    low = np.where(few, -1.0, _end(below, np.full(shape, 1.0), -1.0))
    return low, high


def _size(bounds: Ends, other: list[Array]) -> Array:
    """The largest |u − v| for u within ``bounds`` and v among two ends."""
    return np.asarray(np.maximum.reduce([np.abs(u - v) for u in bounds for v in other]))


def _scaled(sums: list[Ends], ratio: Ends) -> Ends:
    """κ/2·a + b/2κ, lowest and highest over κ and the sums a, b."""
    (a_low, a_high), (b_low, b_high) = sums
    found = [(k / 2 * a_low + b_low / 2 / k, k / 2 * a_high + b_high / 2 / k) for k in ratio]
    level = np.sqrt(np.maximum(b_low, 0) / np.maximum(a_low, 1e-300))
    k = np.clip(level, *ratio)
    lowest = np.minimum.reduce([found[0][0], found[1][0], k / 2 * a_low + b_low / 2 / k])
    return lowest, np.maximum(found[0][1], found[1][1])
