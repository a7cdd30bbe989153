"""Shares of a budget, and the noise they buy on cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tacit import accounting, events, mechanisms
from tacit.randomness import Source as RandomSource
from tacit.relations import Relation, Unit
from tacit.tables.cells.measure import Measurement
from tacit.tables.statistics.contrasts import Law

__all__ = ["CellNoise", "Context", "IntegerNoise", "Share", "integer_noise", "shares"]


@dataclass(frozen=True)
class Context:
    """The facts about a table that every statistic needs: relation, unit, random bits, public n."""

    relation: Relation
    unit: Unit
    random: RandomSource
    population: int | None
    concentrated: bool
    """Whether the ledger converts Rényi divergences, so that bounded range is worth more than pure ε."""


@dataclass(frozen=True)
class Share:
    """The part of a budget that one statistic may use: ε, or ρ of zero-concentrated privacy; and δ."""

    epsilon: float
    rho: float | None = None
    delta: float = 0.0

    def of(self, part: float) -> Share:
        """A fraction of this share."""
        rho = None if self.rho is None else self.rho * part
        return Share(self.epsilon * part, rho, self.delta * part)

    @property
    def pure(self) -> float:
        """The ε of a pure mechanism that fits in: ε, or √2ρ."""
        return self.epsilon if self.rho is None else math.sqrt(2 * self.rho)

    @property
    def bounded_range(self) -> float:
        """The ε of an exponential mechanism that fits in: ε, or √8ρ."""
        return self.epsilon if self.rho is None else math.sqrt(8 * self.rho)


def shares(
    weights: Sequence[float],
    *,
    epsilon: float,
    delta: float,
    discovering: Sequence[bool],
    selecting: Sequence[bool],
) -> list[Share]:
    """(ε, δ) split by weight.

    With δ = 0 the ε's add up. With δ > 0 the ρ's of zero-concentrated privacy add up to the ρ that (ε, δ)
    allows, half of δ being set aside for the discovery of keys where there is any. Selections alone,
    which need no δ, get ε's instead where that is more.
    """
    total = math.fsum(weights)
    parts = [weight / total for weight in weights]
    found = math.fsum(part for part, yes in zip(parts, discovering, strict=True) if yes)
    deltas = [
        delta / (1 if all(discovering) else 2) * part / found if yes else 0.0
        for part, yes in zip(parts, discovering, strict=True)
    ]
    pure = [Share(epsilon * part, None, dlt) for part, dlt in zip(parts, deltas, strict=True)]
    if delta == 0:
        return pure
    rest = delta - math.fsum(deltas)
    if all(discovering):
        return pure
    rho = _concentrated(epsilon, rest)
    split = [Share(epsilon * part, rho * part, dlt) for part, dlt in zip(parts, deltas, strict=True)]
    if all(d or s for d, s in zip(discovering, selecting, strict=True)) and all(
        one.epsilon >= (other.pure if d else other.bounded_range)
        for one, other, d in zip(pure, split, discovering, strict=True)
    ):
        return pure
    return split


@lru_cache(maxsize=1024)
def _concentrated(epsilon: float, delta: float) -> float:
    """The ρ that (ε, δ) allows."""
    multiplier = accounting.calibrate(
        lambda noise: events.ZeroConcentrated(0.5 / noise**2), epsilon=epsilon, delta=delta
    )
    return 0.5 / multiplier**2 * (1 - 1e-9)


IntegerNoise = mechanisms.DiscreteLaplace | mechanisms.DiscreteGaussian


def integer_noise(
    share: Share,
    context: Context,
    *,
    l1: float,
    l2: float,
    inverse_root: Callable[[float], float] = lambda number: 1 / math.sqrt(number),
) -> IntegerNoise:
    """The noise that a share buys on whole numbers: discrete Laplace for ε, discrete Gaussian for ρ.

    ``l1`` and ``l2`` are how far one unit moves all numbers together, in either norm. The noise multiplier is
    ``inverse_root(2ρ)``; ways to compute it differ in the last bit, which is part of the event.
    """
    if share.rho is None:
        return mechanisms.DiscreteLaplace(math.ceil(l1), share.epsilon, random_state=context.random)
    multiplier = inverse_root(2 * share.rho)
    return mechanisms.DiscreteGaussian(l2, noise_multiplier=multiplier, random_state=context.random)


@dataclass(frozen=True)
class CellNoise:
    """Integer noise on the cells of one measurement."""

    measurement: Measurement
    mechanism: IntegerNoise

    @classmethod
    def bought(cls, measurement: Measurement, share: Share, context: Context, finer: int = 1) -> CellNoise:
        """The noise that a share buys. Each step of the measurement may be counted as ``finer`` of them."""
        l1, l2 = (
            finer * measurement.sensitivity(context.relation, context.unit, norm=norm) for norm in (1, 2)
        )
        return cls(measurement, integer_noise(share, context, l1=l1, l2=math.nextafter(l2, math.inf)))

    @property
    def event(self) -> events.Event:
        """The event that is charged."""
        return self.mechanism.event

    def __call__(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """The cells with noise."""
        return self.mechanism(cells)

    @property
    def law(self) -> Law:
        """The distribution of the noise on each cell, which is public."""
        if isinstance(self.mechanism, mechanisms.DiscreteLaplace):
            return Law(self.mechanism.sensitivity / self.mechanism.epsilon, gaussian=False)
        return Law(math.sqrt(self.mechanism.sensitivity**2 / (2 * self.mechanism.event.rho)), gaussian=True)

    def half_width(self, confidence: float, numbers: int) -> int:
        """How far one cell may lie from its true value, for all ``numbers`` of them at once."""
        return int(self.mechanism.interval(confidence, coordinates=numbers)[1])
