"""What the ledger writes, each in one transaction: a dataset, a scope, a charge.

Every function takes the whole ledger first, so that what it reads is still true when it writes,
and writes all or nothing. The work does not depend on how many entries there are.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from typing import Any

import sqlalchemy as sa

from tacit.accounting import filters
from tacit.errors import LedgerError, LedgerExists
from tacit.events import Event
from tacit.guarantee import NOISE_KINDS
from tacit.ledger import schema
from tacit.ledger.budget import FILTERS, Terms
from tacit.ledger.chain import ORIGIN, Record, ScopeState, worse_noise
from tacit.ledger.reading import parse_total, read_dataset, read_terms, works
from tacit.ledger.store import Store
from tacit.ledger.totals import Total
from tacit.ledger.work import Work, conflict

__all__ = ["Posted", "Refused", "Request", "create_dataset", "declare_scope", "post_charge"]


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


@dataclass(frozen=True)
class Posted:
    """A charge made: its record, and the record's hash."""

    record: Record
    hash: str


@dataclass(frozen=True)
class Refused:
    """A charge refused: ε spent, the ε it would have brought the dataset to, and the mode."""

    spent: float
    would_be: float
    mode: str | None


@cache
def _version() -> str:
    return metadata.version("tacit")


def _append(
    connection: sa.Connection, position: tuple[int, str], kind: str, dataset: str, **content: Any
) -> Posted:
    count, last = position
    record = Record(
        number=count + 1,
        kind=kind,
        dataset=dataset,
        time=datetime.now(UTC).isoformat(timespec="microseconds"),
        version=_version(),
        previous=last,
        **content,
    )
    digest = record.hash()
    connection.execute(schema.entries.insert(), {**vars(record), "hash": digest})
    connection.execute(schema.state.update(), {"entries": record.number, "head": digest})
    return Posted(record, digest)


def create_dataset(store: Store, dataset: str, terms: Terms) -> Terms:
    """Open the chain with this dataset, or add the dataset to it, unless another process just has."""
    with store.write() as connection:
        store.create(connection, ORIGIN)
        position = store.lock(connection)
        present = read_terms(store, connection, dataset)
        if present is not None:
            return present
        if connection.scalar(
            sa.select(schema.entries.c.number).where(schema.entries.c.dataset == dataset).limit(1)
        ):
            raise store.corrupted(f"has entries of {dataset!r} but has lost its state")
        connection.execute(
            schema.datasets.insert().values(
                name=dataset,
                terms=terms.to_json(),
                noise=NOISE_KINDS[0],
                charges=0,
                total=Total().to_json(),
            )
        )
        _append(connection, position, "dataset", dataset, details=terms.to_json())
    return terms


def declare_scope(store: Store, dataset: str, scope: str, partitions: tuple[str, ...]) -> None:
    """Declare disjoint partitions durably; a scope of this name must have the same ones."""
    with store.read() as connection:
        declared = _read_partitions(store, connection, dataset, scope)
    if declared is None:
        with store.write() as connection:
            position = store.lock(connection)
            declared = _read_partitions(store, connection, dataset, scope)
            if declared is None:
                declared = partitions
                text = json.dumps(partitions)
                connection.execute(
                    schema.scopes.insert().values(dataset=dataset, name=scope, partitions=text)
                )
                details = json.dumps({"partitions": partitions}, separators=(",", ":"))
                _append(connection, position, "scope", dataset, scope=scope, details=details)
    if set(declared) != set(partitions):
        raise LedgerExists(
            f"The scope {scope!r} was declared with partitions {sorted(declared)}, not {sorted(partitions)}.",
            "Use those, or another name for the scope.",
            location=store.location.name,
            scope=scope,
            partitions=declared,
        )


def _read_partitions(
    store: Store, connection: sa.Connection, dataset: str, scope: str
) -> tuple[str, ...] | None:
    where = (schema.scopes.c.dataset == dataset, schema.scopes.c.name == scope)
    text = connection.scalar(sa.select(schema.scopes.c.partitions).where(*where))
    if text is None:
        return None
    try:
        return tuple(json.loads(text))
    except (TypeError, ValueError) as error:
        raise store.corrupted(f"holds partitions of {scope!r} that no ledger writes") from error


def post_charge(
    store: Store, dataset: str, terms: Terms, budget_filter: filters.BudgetFilter, request: Request
) -> Posted | Refused:
    """Charge if the filter admits it; otherwise write nothing."""
    with store.write() as connection:
        position = store.lock(connection)
        row = read_dataset(store, connection, dataset)
        total = parse_total(store, row.total)
        mode = row.mode or terms.budget.filter
        scope = _read_scope(store, connection, dataset, request)
        _check_work(store, connection, dataset, request)

        def grown(price: filters.Cost) -> Total:
            cost = _sound(price)
            if scope is None:
                return total + cost
            before = scope.worst(terms.relation)
            charged = scope.totals.get(str(request.partition), Total()) + cost
            after = ScopeState(scope.partitions, {**scope.totals, str(request.partition): charged})
            return total.replace(before, after.worst(terms.relation))

        tried: list[filters.Cost] = []

        def total_with(cost: filters.Cost) -> filters.Cost:
            tried.append(grown(cost).cost())
            return tried[-1]

        admission = budget_filter.admit(
            request.event, total_with, mode=mode, delta=request.delta, partitioned=scope is not None
        )
        if admission is None:
            spent = budget_filter.spent(total.cost(), mode)
            return Refused(spent, _cheapest(budget_filter, tried, mode), mode)
        cost = _sound(admission.cost)
        connection.execute(
            schema.datasets.update()
            .where(schema.datasets.c.name == dataset)
            .values(
                mode=admission.mode,
                noise=worse_noise(row.noise, request.noise),
                charges=row.charges + 1,
                total=grown(cost).to_json(),
            )
        )
        if scope is not None:
            _write_partition(connection, dataset, request, scope, cost)
        return _append(
            connection,
            position,
            "charge",
            dataset,
            label=request.label,
            scope=request.scope,
            partition=request.partition,
            event=request.event.to_json(),
            **vars(cost),
            mode=admission.mode,
            declared_delta=request.delta,
            noise=request.noise,
            details=None if request.work is None else request.work.to_json(),
        )


def _check_work(store: Store, connection: sa.Connection, dataset: str, request: Request) -> None:
    """Refuse steps of a run that are paid for or taken already, or taken and not paid for."""
    if request.work is None:
        return
    problem = conflict(request.work, works(store, connection, dataset, request.work.run))
    if problem is not None:
        raise LedgerError(
            f"Of the run {request.label!r}, {problem}.",
            "A run is paid for once: go on from its newest checkpoint, or start another.",
            location=store.location.name,
        )


def _sound(cost: filters.Cost) -> filters.Cost:
    """The cost as it is stored: plain floats, 0 or more, infinite where it is not a number."""
    return filters.Cost(
        *(math.inf if math.isnan(part) else max(0.0, float(part)) for part in vars(cost).values())
    )


def _cheapest(budget_filter: filters.BudgetFilter, totals: list[filters.Cost], mode: str | None) -> float:
    """The least ε above the budget among the totals a refused charge would have led to."""
    modes = FILTERS if mode is None else (mode,)
    epsilons = (budget_filter.spent(total, tried) for total in totals for tried in modes)
    return min((epsilon for epsilon in epsilons if epsilon > budget_filter.epsilon), default=math.inf)


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


def _write_partition(
    connection: sa.Connection, dataset: str, request: Request, scope: ScopeState, cost: filters.Cost
) -> None:
    table = schema.partitions
    key = {"dataset": dataset, "scope": request.scope, "name": request.partition}
    before = scope.totals.get(str(request.partition))
    text = ((before or Total()) + cost).to_json()
    if before is None:
        connection.execute(table.insert().values(**key, total=text))
    else:
        where = [table.c[name] == value for name, value in key.items()]
        connection.execute(table.update().where(*where).values(total=text))
