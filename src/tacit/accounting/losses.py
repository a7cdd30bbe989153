"""Discrete loss distributions: a grid of masses for each term, convolved by a tilted FFT.

Everything here errs upwards: a grid dominates its term, what leaves the window is counted as
infinite loss, what wraps around or is rounded can only add.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from tacit.accounting.profiles import Curve
from tacit.errors import UnsupportedEvent

Array = NDArray[np.float64]

MAX_BINS = 1 << 22
"""No array has more entries than about this."""
TAIL_SHARE = 1e-5
"""Share of δ spent on cut tails, and once more on what leaves the window."""
ROUNDING = 1e-9
"""Relative allowance for rounding in sums."""
TILTS: Array = np.geomspace(0.01, 1e4, 160)
"""Tilts for Chernoff bounds, in units of one over the spread of the total loss."""
TILTS_TRIED = int(np.searchsorted(TILTS, 60.0))
"""How many of them may tilt masses: a Gaussian at δ = 1e-300 needs 37; more only spoils precision."""
UNIT = 2.0**-52
"""Rounding of one FFT coefficient; its growth by composition is added to every mass."""
NOISE_LIMIT = 1e-4
"""Compositions whose rounding may grow beyond this share are refused: some 10^10 terms."""


@dataclass(frozen=True)
class Grid:
    """Masses ``mass`` at losses (first, first+1, …)·step, and ``lost`` mass at infinite loss."""

    first: int
    mass: Array
    lost: float

    @property
    def last(self) -> int:
        return self.first + self.mass.size - 1

    def mirrored(self) -> Grid:
        """The same masses at the negated losses."""
        return Grid(-self.last, self.mass[::-1], self.lost)

    def losses(self, step: float) -> Array:
        return np.asarray((self.first + np.arange(self.mass.size)) * step)


@dataclass(frozen=True)
class Aim:
    """Where a composition must be accurate: near the ε of ``delta``, near ``epsilon``, or everywhere.

    ``delta`` also sets what may be cut; for a given ``epsilon`` it should not exceed δ(epsilon).
    """

    delta: float
    epsilon: float | None = None
    everywhere: bool = False


def connect_dots(above: Curve, below: Curve, at: Array, first: int) -> Grid:
    """Masses whose profile is the chords, in e^ε, of the profile at the points ``at``.

    The mass at a dot is e^ε times the change of slope there. Below zero the profile is
    1 − e^ε + e^ε·below(−ε); the straight part has no change of slope, so the masses are computed
    from the curved part alone and keep their relative precision in both tails.
    """
    zero = int(np.searchsorted(at, 0.0))
    upper = above(at[zero:])
    lower = below(-at[: zero + 1]) * np.exp(at[: zero + 1])
    mass = np.empty(at.size)
    gaps = np.diff(at)
    with np.errstate(over="ignore"):
        rise = 1 / np.expm1(gaps)
    fall = -1 / np.expm1(-gaps)
    mass[zero + 1 : -1] = np.diff(upper)[1:] * rise[zero + 1 :] - np.diff(upper)[:-1] * fall[zero:-1]
    mass[-1] = -(upper[-1] - upper[-2]) * fall[-1]
    mass[1:zero] = np.diff(lower)[1:] * rise[1:zero] - np.diff(lower)[:-1] * fall[: zero - 1]
    left = (lower[-1] - lower[-2]) * fall[zero - 1]
    right = (upper[1] - upper[0]) * rise[zero]
    mass[zero] = 1 + right - left
    mass[0] = (lower[1] - lower[0]) * rise[0] - lower[0]
    return Grid(first, np.maximum(mass, 0.0), float(upper[-1]))


def cumulants(step: float, grids: list[Grid], counts: list[int]) -> tuple[Array, Array]:
    """ln E e^{θL} of the composition at a range of θ, from above.

    Each mass is shared between the ends of its block so that its mean stays; by convexity that
    can only raise E e^{θL}. Blocks are single steps near zero and grow by 2 % further out.
    """
    coarse = [_blocks(step, grid) for grid in grids]
    squares = [float(np.dot(masses, np.square(edges))) for masses, edges in coarse]
    spread = math.sqrt(sum(n * square for n, square in zip(counts, squares, strict=True)))
    tilts = TILTS / max(spread, 1e-150)
    total = np.zeros_like(tilts)
    for (masses, edges), n in zip(coarse, counts, strict=True):
        total += n * _log_mean_exp(masses, edges, tilts)
    return tilts, total


def log_divergence(tilts: Array, total: Array, epsilon: float) -> Array:
    """ln of a bound on δ(epsilon) for each θ.

    1 − e^{−x} ≤ e^{θx}·θ^θ/(1+θ)^{1+θ} for x ≥ 0, so δ(ε) ≤ E e^{θ(L−ε)} times that factor.
    """
    return np.asarray(total - tilts * epsilon - tilts * np.log1p(1 / tilts) - np.log1p(tilts))


def _blocks(step: float, grid: Grid) -> tuple[Array, Array]:
    last = grid.first + grid.mass.size - 1
    widths = np.unique(np.geomspace(1, max(-grid.first, last, 1) + 1, 700).astype(int))
    ends = np.concatenate([-widths[::-1], [0], widths])
    ends = np.unique(np.clip(ends, grid.first, last))
    index = np.arange(grid.first, last + 1)
    block = np.clip(np.searchsorted(ends, index, side="right") - 1, 0, max(ends.size - 2, 0))
    if ends.size == 1:
        return grid.mass, np.asarray(ends * step, dtype=float)
    share = (index - ends[block]) / np.diff(ends)[block]
    masses = np.bincount(block, weights=grid.mass * (1 - share), minlength=ends.size)
    masses += np.bincount(block + 1, weights=grid.mass * share, minlength=ends.size)
    return np.asarray(masses, dtype=float), np.asarray(ends * step, dtype=float)


def _log_mean_exp(masses: Array, losses: Array, tilts: Array) -> Array:
    keep = masses > 0
    exponents = np.outer(tilts, losses[keep]) + np.log(masses[keep])
    peak = exponents.max(axis=1)
    result: Array = peak + np.log(np.exp(exponents - peak[:, None]).sum(axis=1))
    return result


def convolve(step: float, grids: list[Grid], counts: list[int], aim: Aim, failure: float) -> Composed:
    """The composition of ``counts`` copies of each grid, in a window around what ``aim`` needs."""
    tilts, total = cumulants(step, grids, counts)
    leaving = TAIL_SHARE * aim.delta
    largest = sum(n * grid.last for grid, n in zip(grids, counts, strict=True))
    smallest = sum(n * grid.first for grid, n in zip(grids, counts, strict=True))
    top = min(math.ceil(float(np.min((total - math.log(leaving)) / tilts)) / step) + 1, largest)
    mean, spread = _centre(step, grids, counts)
    relevant = max(0.0, mean - 6 * spread)
    if aim.epsilon is not None:
        relevant = min(relevant, aim.epsilon)
        top = min(max(top, math.ceil(aim.epsilon / step) + 16), max(largest, 1))

    if aim.everywhere:
        tilt = 0.0
        _, mirrored = cumulants(step, [grid.mirrored() for grid in grids], counts)
        width = top + float(np.min((mirrored - math.log(leaving)) / tilts)) / step
    else:
        best = _tilt(tilts, total, aim)
        tilt = float(tilts[best])
        steeper, growth = tilts[best + 1 :], total[best + 1 :]
        from_above = np.min((growth - steeper * relevant - math.log(leaving)) / (steeper - tilt))
        width = max(float(from_above), -math.log(leaving) / tilt, top * step - relevant) / step
    size = next_fast_len(math.ceil(min(width, largest - smallest, MAX_BINS)) + 16, real=True)
    bottom = top - size + 1
    if sum(counts) * UNIT * math.log2(size) > NOISE_LIMIT:
        raise UnsupportedEvent(f"{sum(counts)} terms are too many to convolve in float64.", method="pld")

    spectrum = np.ones(size // 2 + 1, dtype=complex)
    offset, log_scale = 0, 0.0
    for grid, n in zip(grids, counts, strict=True):
        weights, log_weight = _tilted(grid, step, tilt)
        folded = np.bincount(np.arange(weights.size) % size, weights=weights, minlength=size)
        spectrum *= rfft(folded) ** n
        offset += n * grid.first
        log_scale += n * log_weight
    masses = np.roll(irfft(spectrum, size), (offset - bottom) % size)
    noise = UNIT * math.log2(size) * sum(counts) * float(np.abs(spectrum).mean())
    losses = (bottom + np.arange(size)) * step
    with np.errstate(under="ignore"):
        masses = (np.maximum(masses, 0.0) + noise) * np.exp(np.minimum(log_scale - tilt * losses, 700.0))
    if not np.isfinite(masses).all():
        raise UnsupportedEvent("The convolution overflowed.", method="pld")
    survived = math.fsum(n * math.log1p(-min(g.lost, 0.5)) for g, n in zip(grids, counts, strict=True))
    cut = -math.expm1(survived) + (leaving if top < largest else 0.0)
    return Composed(losses, np.minimum(masses, 1.0) * (1 - failure), failure + cut * (1 - failure))


def _tilt(tilts: Array, total: Array, aim: Aim) -> int:
    """The smallest tilt whose bound on δ is within a factor of ten of the best.

    The best itself lies at infinity where losses are bounded, and would leave no digit elsewhere.
    """
    epsilon = aim.epsilon
    if epsilon is None:
        epsilon = max(0.0, float(np.min((log_divergence(tilts, total, 0.0) - math.log(aim.delta)) / tilts)))
    bounds = log_divergence(tilts, total, epsilon)[:TILTS_TRIED]
    return int(np.argmax(bounds <= bounds.min() + math.log(10)))


def _tilted(grid: Grid, step: float, tilt: float) -> tuple[Array, float]:
    """Masses times e^{tilt·loss}, normalised, and the logarithm of what they were divided by."""
    with np.errstate(divide="ignore", under="ignore"):
        exponents = np.log(grid.mass) + tilt * grid.losses(step)
        peak = float(exponents.max())
        weights = np.exp(exponents - peak)
    total = float(weights.sum())
    return weights / total, peak + math.log(total)


def _centre(step: float, grids: list[Grid], counts: list[int]) -> tuple[float, float]:
    """Mean and standard deviation of the total loss."""
    mean = variance = 0.0
    for grid, n in zip(grids, counts, strict=True):
        losses = grid.losses(step)
        middle = float(np.dot(grid.mass, losses))
        mean += n * middle
        variance += n * float(np.dot(grid.mass, np.square(losses - middle)))
    return mean, math.sqrt(variance)


class Composed:
    """A composed loss distribution: masses at evenly spaced losses, and mass at infinite loss."""

    def __init__(self, losses: Array, masses: Array, infinite: float = 0.0) -> None:
        self.losses = losses
        self.infinite = infinite
        kept = masses * (1 + ROUNDING)
        self.above = np.cumsum(kept[::-1])[::-1]
        self.discounted = _discounted(losses, kept)

    def _dots(self) -> Array:
        """δ at each loss, decreasing."""
        curve = np.maximum(self.above - self.discounted, 0.0) + self.infinite
        return np.asarray(np.maximum.accumulate(curve[::-1])[::-1])

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 with δ(ε) ≤ delta, exact on the chord where it lies."""
        if self.infinite >= delta:
            return math.inf
        index = int(np.argmax(np.append(self._dots(), self.infinite) <= delta))
        if index in (0, self.losses.size):
            return max(0.0, float(self.losses[min(index, self.losses.size - 1)]))
        discounted, rest = float(self.discounted[index]), float(self.above[index]) + self.infinite - delta
        low, high = float(self.losses[index - 1]), float(self.losses[index])
        value = high + math.log(rest / discounted) if rest > 0 and discounted > 0 else high
        return max(0.0, min(max(value, low), high) * (1 + 4 * UNIT))

    def delta(self, epsilon: float) -> float:
        """δ(epsilon); 1 below the window, about which nothing is known."""
        if epsilon < self.losses[0]:
            return 1.0
        index = int(np.searchsorted(self.losses, epsilon, side="right"))
        if index == self.losses.size:
            return self.infinite
        kept = math.exp(epsilon - float(self.losses[index])) * float(self.discounted[index])
        return min(1.0, max(float(self.above[index]) - kept, 0.0) + self.infinite)

    def curve(self) -> Curve:
        """δ(ε) for any ε ≥ 0: exact chords inside the window, its ends outside."""
        losses, dots = self.losses, np.minimum(self._dots(), 1.0)

        def chords(eps: Array) -> Array:
            index = np.clip(np.searchsorted(losses, eps, side="right"), 1, losses.size - 1)
            left, right = losses[index - 1], losses[index]
            gap = right - left
            share = np.expm1(np.clip(eps - left, 0.0, gap)) / np.expm1(gap)
            inside = dots[index - 1] * (1 - share) + dots[index] * share
            return np.where(eps < losses[0], 1.0, np.where(eps > losses[-1], self.infinite, inside))

        return chords


def _discounted(losses: Array, masses: Array) -> Array:
    """Σ mass·e^{own loss − loss} over the losses from each one upwards, in blocks that cannot overflow."""
    result = np.empty_like(masses)
    block = max(1, int(300 / (losses[1] - losses[0]))) if losses.size > 1 else 1
    carried = 0.0
    for start in reversed(range(0, losses.size, block)):
        part = slice(start, start + block)
        inside = losses[part] - losses[start]
        with np.errstate(under="ignore"):
            sums = np.cumsum((masses[part] * np.exp(-inside))[::-1])[::-1] * np.exp(inside)
            if start + block < losses.size:
                sums = sums + carried * np.exp(losses[part] - losses[start + block])
        result[part] = sums
        carried = float(sums[0])
    return result
