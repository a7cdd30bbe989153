"""Filters: totals that enforce a budget while each next event is chosen after seeing the last release.

Adding up (ε, δ) curves of events that were chosen adaptively is not valid in general; a filter is a
stopping rule that is. Four are known to lose nothing:

* pure: stop before Σε exceeds ε (Rogers et al. 2016);
* zCDP: stop before Σρ exceeds ρ (Feldman and Zrnic 2021; Whitehouse et al. 2023);
* Rényi: stop before ΣD_α exceeds a bound, at one order α fixed in advance (Feldman and Zrnic 2021);
* Gaussian: stop before Σμ² exceeds μ² (Smith and Thakurta 2022; the proof is in :mod:`tacit.accounting.gdp`).

A rule "stop when every one of several filters is exhausted" is valid only if their δ's add up to at
most the budget's, because which one holds at the end may depend on what was released.
:class:`BudgetFilter`, which ledgers use, is built from these facts. The individual filter keeps one
total per person, so that a person whose share is used up drops out while others go on.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate, events
from tacit.accounting import api, composition, gdp, rdp
from tacit.accounting.terms import Terms, either, resolve
from tacit.errors import BudgetExceeded, InvalidValue, UnsupportedEvent
from tacit.relations import Relation

__all__ = [
    "Admission",
    "BudgetFilter",
    "Cost",
    "GaussianFilter",
    "IndividualRenyiFilter",
    "PureFilter",
    "Quote",
    "RenyiFilter",
    "ZeroConcentratedFilter",
    "worst",
]

ROUNDING = 1e-12
"""Relative allowance for the rounding of sums of decimal fractions: 0.1 + 0.1 + 0.1 fits into 0.3."""

WORTH_A_DELTA = 1.01
"""An event that is private with δ = 0 is added up without the δ that was declared for it, unless that lowers
its ε by more than a hundredth, or it fits only so."""


class _Filter:
    """A running total in one currency, against a fixed limit."""

    def __init__(self, limit: float, relation: Relation | str) -> None:
        self.limit = limit
        self.relation = Relation.of(relation)
        self.spent = 0.0

    def price(self, event: events.Event) -> float:
        """What ``event`` costs in this filter's currency; infinite where it has no price."""
        raise NotImplementedError

    def admits(self, event: events.Event) -> bool:
        """Whether ``event`` still fits. Asking changes nothing."""
        return self.spent + self.price(event) <= self.limit * (1 + ROUNDING)

    def charge(self, event: events.Event) -> None:
        """Add the price of ``event``, or raise BudgetExceeded and add nothing."""
        price = self.price(event)
        if not self.spent + price <= self.limit * (1 + ROUNDING):
            raise BudgetExceeded(
                f"This event costs {price:.6g} of {max(self.limit - self.spent, 0):.6g} left.",
                "Use a smaller epsilon or more noise, or stop here.",
                would_be=self.spent + price,
                spent=self.spent,
                budget=self.limit,
                label=None,
            )
        self.spent += price


class PureFilter(_Filter):
    """Σε ≤ epsilon: the whole adaptive sequence is epsilon-differentially private.

    >>> f = PureFilter(epsilon=0.3)
    >>> for _ in range(3): f.charge(events.Laplace(10.0))
    >>> f.admits(events.Laplace(10.0))
    False
    """

    def __init__(self, epsilon: float, relation: Relation | str = "add_remove") -> None:
        super().__init__(_validate.epsilon(epsilon), relation)

    def price(self, event: events.Event) -> float:
        return rdp.largest_loss(resolve(event, self.relation))


class ZeroConcentratedFilter(_Filter):
    """Σρ ≤ rho: the whole adaptive sequence is rho-zCDP."""

    def __init__(self, rho: float, relation: Relation | str = "add_remove") -> None:
        super().__init__(_validate.positive("rho", rho), relation)

    def price(self, event: events.Event) -> float:
        try:
            rho, failure = composition.concentration(resolve(event, self.relation))
        except UnsupportedEvent:
            return math.inf
        return rho if failure == 0 else math.inf


class RenyiFilter(_Filter):
    """ΣD_α ≤ divergence at one ``order``: the whole adaptive sequence is (order, divergence)-RDP."""

    def __init__(self, order: float, divergence: float, relation: Relation | str = "add_remove") -> None:
        if _validate.finite("order", order) <= 1:
            raise InvalidValue("order", order, "above 1")
        self.order = float(order)
        super().__init__(_validate.positive("divergence", divergence), relation)

    @classmethod
    def for_budget(cls, epsilon: float, delta: float, relation: Relation | str = "add_remove") -> RenyiFilter:
        """The filter that ends (epsilon, delta)-private, at the order best for Gaussian noise."""
        order = best_order(epsilon, delta)
        return cls(order, epsilon - _conversion(order, delta), relation)

    def price(self, event: events.Event) -> float:
        curve = rdp.curve(resolve(event, self.relation), np.array([self.order]))
        return float(curve.divergences[0]) if curve.failure == 0 else math.inf


class GaussianFilter(_Filter):
    """Σμ² ≤ mu²: the whole adaptive sequence is mu-Gaussian differentially private.

    >>> f = GaussianFilter.for_budget(epsilon=1.0, delta=1e-6)
    >>> f.charge(events.Gaussian(6.0)); f.admits(events.Gaussian(6.0))
    True
    """

    def __init__(self, mu: float, relation: Relation | str = "add_remove") -> None:
        super().__init__(_validate.positive("mu", mu) ** 2, relation)

    @classmethod
    def for_budget(
        cls, epsilon: float, delta: float, relation: Relation | str = "add_remove"
    ) -> GaussianFilter:
        """The filter that ends (epsilon, delta)-private."""
        return cls(math.sqrt(gdp.largest_squared(epsilon, delta)), relation)

    def price(self, event: events.Event) -> float:
        try:
            return gdp.squared(resolve(event, self.relation))
        except UnsupportedEvent:
            return math.inf


class IndividualRenyiFilter:
    """One Rényi filter per person (Feldman and Zrnic 2021): whoever is used up drops out.

    ``admit(divergences)`` takes what the next release would cost each person at the filter's order
    (for a Gaussian sum, α·norm²/(2σ²) with that person's own norm), returns who may take part and
    charges exactly those; the caller leaves all others out of the release. The sequence is then
    (order, limit)-RDP. The mask and the totals are private data: they may steer the computation
    and must not be published. Whose cost is NaN or below 0 takes no part, and no error tells so.

    >>> f = IndividualRenyiFilter(size=3, order=8.0, limit=1.0)
    >>> f.admit([0.6, 0.1, 0.0]).tolist(), f.admit([0.6, 0.1, 0.0]).tolist()
    ([True, True, True], [False, True, True])
    """

    def __init__(self, size: int, order: float, limit: float) -> None:
        if _validate.finite("order", order) <= 1:
            raise InvalidValue("order", order, "above 1")
        self.order = float(order)
        self.limit = _validate.positive("limit", limit)
        self.spent = np.zeros(_validate.count("size", size))

    @classmethod
    def for_budget(cls, size: int, epsilon: float, delta: float) -> IndividualRenyiFilter:
        """The filter under which each person's total ends (epsilon, delta)-private."""
        order = best_order(epsilon, delta)
        return cls(size, order, epsilon - _conversion(order, delta))

    def gaussian_cost(self, norms: ArrayLike, standard_deviation: float) -> NDArray[np.float64]:
        """α·norm²/(2σ²): what a Gaussian sum costs people who contribute vectors of these norms."""
        sigma = _validate.positive("standard_deviation", standard_deviation)
        return np.asarray(self.order * np.square(np.asarray(norms, dtype=float)) / (2 * sigma * sigma))

    def admit(self, divergences: ArrayLike) -> NDArray[np.bool_]:
        """Who may take part in the next release; they are charged, the others are not."""
        costs = np.asarray(divergences, dtype=float)
        if costs.shape != self.spent.shape:
            raise InvalidValue("divergences", costs.shape, f"of shape {self.spent.shape}")
        costs = np.where(costs >= 0, costs, np.inf)
        active = self.spent + costs <= self.limit
        self.spent = np.where(active, self.spent + costs, self.spent)
        return np.asarray(active)


def best_order(epsilon: float, delta: float) -> float:
    """The order at which a Rényi filter for (epsilon, delta) admits the most Gaussian noise."""
    eps, dlt = _validate.epsilon(epsilon), _validate.delta(delta)
    if dlt == 0:
        raise InvalidValue("delta", delta, "above 0 for a Rényi filter", "Use PureFilter.")
    orders = rdp.ORDERS
    room = np.array([(eps - _conversion(float(order), dlt)) / order for order in orders])
    if room.max() <= 0:
        raise InvalidValue("epsilon", epsilon, f"larger at delta={delta}", "No order leaves any room.")
    return float(orders[int(np.argmax(room))])


def _conversion(order: float, delta: float) -> float:
    """ε − D in the conversion of (order, D)-RDP to (ε, delta)."""
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


@dataclass(frozen=True)
class Cost:
    """What one entry costs in every currency a ledger enforces; adds up component by component.

    ``epsilon`` with ``delta``: as one (ε, δ) guarantee. ``renyi`` with ``renyi_delta``: divergence at
    the ledger's order, and the probability with which that does not hold. In a ledger with the Gaussian
    filter ``renyi`` is μ² (twice the divergence at order 1), and ``epsilon`` is at the δ of the whole budget.
    """

    epsilon: float = 0.0
    delta: float = 0.0
    renyi: float = 0.0
    renyi_delta: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def worst(costs: Iterable[Cost], relation: Relation | str) -> Cost:
    """What one unit can cost over disjoint partitions: the worst one; two under ``replace_one``."""
    counted = 1 if Relation.of(relation) is Relation.ADD_REMOVE else 2
    totals = list(costs)

    def largest(name: str) -> float:
        return math.fsum(sorted((getattr(total, name) for total in totals), reverse=True)[:counted])

    return Cost(*(largest(field.name) for field in fields(Cost)))


@dataclass(frozen=True)
class Quote:
    """A price for an event: in a ledger of this ``mode`` it may be entered at this ``cost``."""

    mode: str
    cost: Cost


@dataclass(frozen=True)
class Admission:
    """A charge that fits: the ledger's ``mode`` from now on, its ``cost``, and ε spent with it."""

    mode: str
    cost: Cost
    epsilon: float


class BudgetFilter:
    """The stopping rule of a ledger with budget (epsilon, delta). Stateless: totals are passed in.

    It works in one of three modes, which a ledger fixes when it is made.

    ``basic``
        Σε ≤ epsilon and Σδ ≤ delta, each event priced by its tightest ε at its own δ. The mode for a
        few large releases, such as training runs that were calibrated to (ε, δ).
    ``renyi``
        The same with Σδ ≤ delta/4; or a Rényi filter at the order best for Gaussian noise, with
        delta/2 for its conversion and delta/4 for failures of (ε, δ) events. The mode for many small
        releases. Either alternative may be the one that holds in the end, so their δ's add up.
    ``gaussian``
        Σμ² ≤ μ², where μ-GDP is (epsilon, delta)-private: all of delta states the total, and no charge takes
        any. The mode for Gaussian noise (:mod:`tacit.accounting.gdp`); other events are refused, except pure
        ones.

    ``order`` overrides the Rényi order, for totals that were recorded at another one.

    An event that needs a δ and declares none is given half of what the sums have left, or in ``basic`` all of
    it if it fits only so. In ledgers of earlier versions the first charge opens ``basic`` if it declares or
    contains a δ, or if it fits only there; otherwise ``renyi``.
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        relation: Relation | str = "add_remove",
        *,
        order: float | None = None,
    ) -> None:
        self.epsilon = _validate.epsilon(epsilon)
        self.delta = _validate.delta(delta)
        self.relation = Relation.of(relation)
        self.order = order
        if order is None and self.delta > 0:
            with contextlib.suppress(InvalidValue):
                self.order = best_order(self.epsilon, self.delta / 2)

    def admit(
        self, event: events.Event, total_with: Callable[[Cost], Cost], mode: str | None = None,
        delta: float | None = None, *, partitioned: bool = False,
    ) -> Admission | None:  # fmt: skip
        """The admission of ``event``, or None if it does not fit.

        ``total_with(cost)`` is the ledger's total if an entry of that cost were added where this one
        belongs; ``delta`` is the δ the caller declares for this event. ``partitioned`` says that the
        event sees one part of a partition only: under ``replace_one`` a unit may then also leave or
        enter its data, so it is priced at the worse of both relations.
        """
        return self.accept(
            self.quotes(event, total_with, mode, delta, partitioned=partitioned), total_with, mode
        )

    def quotes(
        self,
        event: events.Event,
        total_with: Callable[[Cost], Cost],
        mode: str | None = None,
        delta: float | None = None,
        *,
        partitioned: bool = False,
    ) -> Iterator[Quote]:
        """Prices at which ``event`` may be entered, best first, each computed when it is asked for.

        The arguments are those of :meth:`admit`. A quote is a valid price whatever else is charged
        in the meantime: the total only decides which δ it is for.
        """
        declared = None if delta is None else _validate.delta(delta)
        terms = resolve(event, self.relation)
        if partitioned and self.relation is Relation.REPLACE_ONE:
            terms = either(terms, resolve(event, Relation.ADD_REMOVE))
        if mode == "gaussian":
            squared = gdp.squared(terms)
            yield Quote(mode, Cost(gdp.epsilon_at(squared, self.delta), 0.0, squared))
            return
        failure = rdp.curve(terms, np.array([2.0])).failure
        if mode is not None:
            modes: tuple[str, ...] = (mode,)
        else:
            modes = ("basic",) if declared or failure else ("renyi", "basic")
        spent = total_with(Cost())
        for tried in modes:
            for cost in self._prices(terms, tried, declared, failure, spent):
                yield Quote(tried, cost)

    def accept(
        self, quotes: Iterable[Quote], total_with: Callable[[Cost], Cost], mode: str | None = None
    ) -> Admission | None:
        """The first of these quotes, of this mode, that fits, or None."""
        for quote in quotes:
            if mode in (None, quote.mode):
                epsilon = self.spent(total_with(quote.cost), quote.mode)
                if epsilon <= self.epsilon:
                    return Admission(quote.mode, quote.cost, epsilon)
        return None

    def spent(self, total: Cost, mode: str | None) -> float:
        """ε spent at the budget's δ, valid under adaptive choice; infinite where δ is overspent."""
        if total == Cost():
            return 0.0
        if mode == "gaussian":
            if total.renyi <= self.largest_squared * (1 + ROUNDING):
                return min(gdp.epsilon_at(total.renyi, self.delta), self.epsilon)
            return max(gdp.epsilon_at(total.renyi, self.delta), math.nextafter(self.epsilon, math.inf))
        limit = self.delta_for_charges(mode)
        spent = total.epsilon if total.delta <= limit * (1 + ROUNDING) else math.inf
        if mode == "renyi" and self.order and total.renyi_delta <= self.delta / 4 * (1 + ROUNDING):
            spent = min(spent, total.renyi + max(_conversion(self.order, self.delta / 2), 0.0))
        return min(spent, self.epsilon) if spent <= self.epsilon * (1 + ROUNDING) else spent

    @cached_property
    def largest_squared(self) -> float:
        """The μ² that the Gaussian filter may spend."""
        return gdp.largest_squared(self.epsilon, self.delta)

    def delta_for_charges(self, mode: str | None) -> float:
        """The part of the budget's δ that charges may take; the rest states the total as (ε, δ)."""
        return {"renyi": self.delta / 4, "gaussian": 0.0}.get(mode or "", self.delta)

    def _prices(
        self, terms: Terms, mode: str, declared: float | None, failure: float, spent: Cost
    ) -> Iterable[Cost]:
        """The costs at which the event may be entered, cheapest in δ first."""
        loss = rdp.largest_loss(terms)
        left = max(self.delta_for_charges(mode) - spent.delta, 0.0)
        if declared is not None:
            shares: tuple[float, ...] = (declared,)
        elif math.isfinite(loss):
            shares = (0.0,)
        elif own := _own_delta(terms):
            shares = (own, left / 2, left)
        elif mode == "renyi":
            shares = (left / 2,)
        else:
            shares = (left / 2, left)
        for share in shares:
            added_up = loss
            if share >= failure and share > 0 and math.isfinite(spent.epsilon):
                added_up = min(loss, api.tightest(terms, share))
            if mode == "basic":
                if share > 0 and loss <= added_up * WORTH_A_DELTA:
                    yield Cost(loss, 0.0)
                yield Cost(added_up, share)
            else:
                divergence = self._divergence(terms)
                if added_up < divergence:
                    yield Cost(added_up, share, added_up, share)
                else:
                    yield Cost(added_up, share, divergence, failure)

    def _divergence(self, terms: Terms) -> float:
        if self.order is None:
            return math.inf
        return float(rdp.curve(terms, np.array([self.order])).divergences[0])


def _own_delta(terms: Terms) -> float:
    """Σδ of a composition of (ε, δ) and pure events; 0 where something else is among them."""
    if any(
        not isinstance(term, events.Approximate) and math.isinf(rdp.largest_loss(((term, 1),)))
        for term, _ in terms
    ):
        return 0.0
    return math.fsum(n * term.delta for term, n in terms if isinstance(term, events.Approximate))
