"""Facts that are not publicly known, bought with noise: the number of rows, and the bounds of the features.

Each purchase has its event before it sees a row, and the fact that it returns is public from then on.
:class:`Purchases` divides ε and δ between the purchases of one fit and the fit itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _gaussian, _validate, events
from tacit.errors import InvalidValue, TacitError
from tacit.estimators.blocks import Rows, added
from tacit.estimators.private import Public
from tacit.mechanisms import DiscreteLaplace, Gaussian
from tacit.randomness import Source
from tacit.relations import Relation, Unit, histogram_sensitivity

__all__ = ["BoundsPurchase", "CountPurchase", "Purchases"]

Array = NDArray[np.float64]

COUNT_SHARE, BOUNDS_SHARE = 0.02, 0.1
"""The parts of ε that population="dp" and bounds="dp" spend."""
LOWEST, HIGHEST = -20, 40
"""Powers of two that bounds are chosen from. A value nearer to 0 counts as 0, one beyond as 2^HIGHEST."""
FALSE_CELL = 0.01
"""How likely, at most, noise alone makes any empty cell of a feature count."""
NOTHING = (-1.0, 1.0)
"""The bounds of a feature no cell of which stands out from the noise."""


@dataclass(frozen=True)
class CountPurchase:
    """The number of rows, with discrete Laplace noise.

    ``add_remove``: one unit changes it by at most ``unit.rows``, its ℓ1 sensitivity; the event is Pure(ε).
    ``replace_one``: where the unit is a row, the number is public, and the purchase costs nothing and
    returns it; where a unit has several rows, a unit of a single row may take the place of one of
    ``unit.rows``, so the number is bought as above. So it is where the rows are not the ``whole`` of the
    data, but those that meet a condition: a row may be replaced by one that does not meet it. At least 1 is
    returned, whatever the noise: post-processing.

    >>> CountPurchase(0.1).buy(5000, Source(1)), CountPurchase(0.1).event
    (4989, Pure(epsilon=0.1))
    """

    epsilon: float
    relation: Relation = Relation.ADD_REMOVE
    unit: Unit = field(default_factory=Unit)
    whole: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", Relation.of(self.relation))
        _validate.epsilon(self.epsilon)

    @property
    def free(self) -> bool:
        """Whether the number is public."""
        return self.relation is Relation.REPLACE_ONE and self.unit.column is None and self.whole

    @property
    def _mechanism(self) -> DiscreteLaplace:
        return DiscreteLaplace(self.unit.rows, self.epsilon)

    @property
    def event(self) -> events.Event:
        """The event of the purchase; nothing where the number is public."""
        return events.Compose(()) if self.free else self._mechanism.event

    @property
    def kind(self) -> str:
        """The kind of noise."""
        return self._mechanism.noise

    def buy(self, rows: int, source: Source) -> int:
        """The number, at least 1. Called once, after the event was charged."""
        return max(1, int(rows) if self.free else replace(self._mechanism, random_state=source)(int(rows)))


@dataclass(frozen=True)
class BoundsPurchase:
    """Bounds of every feature, from noisy histograms of the exponents of its values.

    Each feature has one cell for each power of two, from 2^−20 to 2^40, one for the same powers below zero
    and one around zero; the grid is public. A row hits one cell of every feature, none where its value is
    not finite. All cells together are one vector: one row moves it by d in ℓ1 and by √d in ℓ2, d being the
    number of features; one replaced by another 2d and √(2d), as the cells may all differ; and a unit of
    ``unit.rows`` rows by ``unit.rows`` times that: they may all hit the same cells. The noise is discrete
    Laplace for δ = 0, the event Pure(ε); for δ > 0 it is Gaussian, the event that of
    :class:`tacit.mechanisms.Gaussian`.

    The bounds are the outer edges of the cells whose noisy count is above what noise alone reaches anywhere
    in a feature with probability FALSE_CELL: post-processing. They are powers of two, and fewer values
    beyond them than about that threshold go unnoticed and are clipped. They are finite, lower below upper,
    and (−1, 1) where no cell stands out.

    >>> X = np.random.default_rng(1).uniform([0, -100], [10, 100], size=(5000, 2))
    >>> purchase = BoundsPurchase(1.0, 0.0, features=2)
    >>> lower, upper = purchase.buy(purchase.counts(X, None), Source(1))
    >>> lower.round(3).tolist(), upper.tolist(), purchase.event
    ([0.062, -128.0], [16.0, 128.0], Pure(epsilon=1.0))
    """

    epsilon: float
    delta: float
    features: int
    relation: Relation = Relation.ADD_REMOVE
    unit: Unit = field(default_factory=Unit)

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", Relation.of(self.relation))
        _validate.count("features", self.features, 1)
        _validate.epsilon(self.epsilon)
        _validate.delta(self.delta)

    @cached_property
    def _mechanism(self) -> DiscreteLaplace | Gaussian:
        norm = 1 if self.delta == 0 else 2
        row = self.unit.rows * histogram_sensitivity(self.relation, norm)
        if self.delta == 0:
            return DiscreteLaplace(int(row) * self.features, self.epsilon)
        multiplier = _gaussian.noise_multiplier(self.epsilon, self.delta)
        return Gaussian(row * math.sqrt(self.features), noise_multiplier=multiplier)

    @property
    def event(self) -> events.Event:
        """The event of the purchase."""
        return self._mechanism.event

    @property
    def kind(self) -> str:
        """The kind of noise."""
        return self._mechanism.noise

    @property
    def threshold(self) -> float:
        """The noisy count that a cell must exceed."""
        return float(self._mechanism.interval(1 - FALSE_CELL, coordinates=EDGES.size - 1)[1])

    def counts(self, matrix: NDArray[Any], keep: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        """How many values of each feature are in each cell, exactly; ``keep`` says which rows count."""
        if matrix.ndim != 2 or matrix.shape[1] != self.features:
            raise InvalidValue("X", matrix.shape, f"a matrix with {self.features} columns")
        return np.array([_histogram(matrix[:, j], keep) for j in range(self.features)])

    def buy(self, counts: NDArray[np.int64], source: Source) -> tuple[Array, Array]:
        """(lower, upper), one of each per feature, from the exact :meth:`counts` of all rows.

        Called once, after the event was charged.
        """
        noisy = replace(self._mechanism, random_state=source)(counts)
        lower, upper = np.full(self.features, NOTHING[0]), np.full(self.features, NOTHING[1])
        for j, passed in enumerate(noisy > self.threshold):
            cells = np.flatnonzero(passed)
            if cells.size:
                lower[j], upper[j] = EDGES[cells[0]], EDGES[cells[-1] + 1]
        return lower, upper


@dataclass(frozen=True)
class Purchases:
    """What one fit buys first, and the ε and δ that are left for the fit itself.

    >>> from tacit.estimators.private import Public
    >>> public = Public(1.0, 0.0, Relation.ADD_REMOVE, Unit(), width=3)
    >>> bought = Purchases.of(public, population="dp", bounds=(0, 1))
    >>> bought.parts, bought.epsilon, bought.costs
    ((('population', 0.02),), 0.98, (Pure(epsilon=0.02),))
    """

    parts: tuple[tuple[str, float], ...]
    """What ε is spent on before the fit."""
    epsilon: float
    """ε that is left for the fit."""
    delta: float
    """δ that is left for the fit."""
    population: CountPurchase | None = None
    bounds: BoundsPurchase | None = None

    @classmethod
    def of(
        cls, public: Public, *, population: Any, bounds: Any, others: Mapping[str, float] | None = None
    ) -> Purchases:
        """Buy what is ``"dp"``; ``others`` are shares of ε and δ that the estimator spends in its own way."""
        shares: dict[str, float] = {}
        if isinstance(population, str):
            _validate.choice("population", population, ("dp",))
            shares["population"] = COUNT_SHARE
        if isinstance(bounds, str):
            _validate.choice("bounds", bounds, ("dp",))
            shares["bounds"] = BOUNDS_SHARE
        shares |= others or {}
        if math.fsum(shares.values()) >= 1:
            raise InvalidValue("shares of ε", shares, "such that a part of ε is left for the fit")
        costs = {name: share * public.epsilon for name, share in shares.items()}
        who = public.relation, public.unit
        count = CountPurchase(costs["population"], *who, public.whole) if "population" in shares else None
        box, left = None, public.delta
        if "bounds" in shares:
            spent = shares["bounds"] * public.delta
            box = BoundsPurchase(costs["bounds"], spent, public.width, *who)
            left -= spent
        for share in (others or {}).values():
            left -= share * public.delta
        return cls(tuple(costs.items()), public.epsilon - math.fsum(costs.values()), left, count, box)

    @property
    def costs(self) -> tuple[events.Event, ...]:
        """The events of the population and the bounds."""
        return tuple(each.event for each in (self.population, self.bounds) if each is not None)

    def buy_population(self, rows: Rows, source: Source) -> int | None:
        """The number of rows, with noise; None where it is not bought."""
        if self.population is None:
            return None
        if self.population.free and not rows.whole:
            problem = "Some rows are left out by a condition, and how many are not was not paid for."
            raise TacitError(problem, "Fit to the table with fit_table, which pays for the number.")
        return self.population.buy(rows.used, source)

    def buy_bounds(self, rows: Rows, source: Source) -> tuple[Array, Array] | None:
        """(lower, upper) of the features; None where they are not bought."""
        bounds = self.bounds
        if bounds is None:
            return None
        return bounds.buy(added(rows.each(lambda block: bounds.counts(block.matrix, block.keep))), source)


_POWERS = np.ldexp(1.0, np.arange(LOWEST, HIGHEST + 2))
EDGES = np.concatenate([-_POWERS[::-1], _POWERS])
"""Where cells meet: the one around zero has an edge on either side."""


def _histogram(column: NDArray[Any], keep: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """How many values fall in each cell."""
    values = np.asarray(column, dtype=np.float64)
    counted = np.isfinite(values) if keep is None else np.isfinite(values) & keep
    values = values[counted]
    power = np.clip(np.frexp(values)[1] - 1, LOWEST - 1, HIGHEST)
    power = np.where(values == 0, LOWEST - 1, power)
    distance = power - (LOWEST - 1)
    middle = _POWERS.size - 1
    return np.bincount(middle + np.where(values < 0, -distance, distance), minlength=EDGES.size - 1)
