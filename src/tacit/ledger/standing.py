"""A charge asked for, where its dataset stands, and what became of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa

from tacit.accounting import filters
from tacit.events import Event
from tacit.ledger import schema
from tacit.ledger.budget import Terms
from tacit.ledger.chain import Record, ScopeState
from tacit.ledger.limit import Limit
from tacit.ledger.reading import allowance_total, parse_total
from tacit.ledger.store import Store
from tacit.ledger.totals import Total
from tacit.ledger.work import Work
from tacit.relations import Relation

__all__ = ["Posted", "Refused", "Request", "Standing", "sound"]


@dataclass(frozen=True)
class Request:
    """A charge asked for, its values checked."""

    event: Event
    label: str
    delta: float | None
    noise: str
    scope: str | None = None
    partition: str | None = None
    work: Work | None = None
    limit: Limit | None = None
    """The allowance that the charge has to fit into, besides the budget."""
    check: Callable[[], None] | None = None
    """Called in the transaction that charges; it refuses by raising."""


@dataclass(frozen=True)
class Standing:
    """Where a dataset, and a scope in it, stand as far as a charge needs to know."""

    total: Total
    mode: str | None
    relation: Relation
    scope: ScopeState | None = None
    own: Total | None = None
    """What is spent of the allowance, where there is one."""

    @classmethod
    def of(
        cls, store: Store, connection: sa.Connection, row: Any, terms: Terms, request: Request
    ) -> Standing:
        """Where the dataset of this row stands."""
        scope = _read_scope(store, connection, row.name, request)
        own = None
        if request.limit is not None:
            own = allowance_total(store, connection, row.name, request.limit.allowance.prefix)
        return cls(parse_total(store, row.total), terms.filter or row.mode, terms.relation, scope, own)

    def grown(self, price: filters.Cost, request: Request) -> Total:
        """The total with an entry of this cost."""
        cost = sound(price)
        if self.scope is None:
            return self.total + cost
        before, name = self.scope.worst(self.relation), str(request.partition)
        charged = self.scope.totals.get(name, Total()) + cost
        after = ScopeState(self.scope.partitions, {**self.scope.totals, name: charged})
        return self.total.replace(before, after.worst(self.relation))

    def total_with(self, price: filters.Cost, request: Request) -> filters.Cost:
        """The same, as the filter counts it."""
        return self.grown(price, request).cost()

    def accepted(
        self, budget_filter: filters.BudgetFilter, quotes: list[filters.Quote], request: Request
    ) -> filters.Admission | None:
        """The first of these prices that fits into the budget and into the allowance, or None."""
        limit, own = request.limit, self.own or Total()
        if limit is not None:
            quotes = [
                quote for quote in quotes if limit.allows(lambda cost: (own + sound(cost)).cost(), quote)
            ]
        return budget_filter.accept(quotes, partial(self.total_with, request=request), self.mode)


@dataclass(frozen=True)
class Posted:
    """An entry made: its record, and the record's hash; for a charge, where the dataset stands after it."""

    record: Record
    hash: str
    standing: Standing | None = None


@dataclass(frozen=True)
class Refused:
    """A charge refused: ε spent, the ε it would have brought the dataset to, the mode, and the sums.

    ``price`` is the last at which it was tried, ``total`` what the sums are without it, ``grown`` with it.
    """

    spent: float
    would_be: float
    mode: str | None
    price: filters.Cost
    total: filters.Cost
    grown: filters.Cost
    own: filters.Cost | None = None
    """What is spent of the allowance, where it was that which the charge would exceed."""


def sound(cost: filters.Cost) -> filters.Cost:
    """The cost as it is stored: plain floats, 0 or more, infinite where it is not a number."""
    return filters.Cost(
        *(math.inf if math.isnan(part) else max(0.0, float(part)) for part in vars(cost).values())
    )


def _read_scope(store: Store, connection: sa.Connection, dataset: str, request: Request) -> ScopeState | None:
    if request.scope is None:
        return None
    table = schema.partitions
    rows = connection.execute(
        sa.select(table.c.name, table.c.total).where(
            table.c.dataset == dataset, table.c.scope == request.scope
        )
    )
    return ScopeState((), {row.name: parse_total(store, row.total) for row in rows})
