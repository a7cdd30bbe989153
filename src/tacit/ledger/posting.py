"""What the ledger writes, each in one transaction: a dataset, a scope, a charge.

Every function takes the whole ledger first, so that what it reads is still true when it writes, looks whether
it is the ledger it should be (:mod:`tacit.ledger.guarding`), and writes all or nothing. The work does not
depend on how many entries there are.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import sqlalchemy as sa

from tacit._version import __version__
from tacit.accounting import filters
from tacit.errors import LedgerError, LedgerExists
from tacit.guarantee import NOISE_KINDS
from tacit.ledger import schema
from tacit.ledger.budget import FILTERS, Terms
from tacit.ledger.chain import ORIGIN, Record, ScopeState, worse_noise
from tacit.ledger.guarding import (
    Opening,
    check_dataset,
    check_scope,
    digest,
    last_entry,
    scope_digest,
)
from tacit.ledger.reading import paid_by, read_dataset, read_terms, works
from tacit.ledger.standing import Posted, Refused, Request, Standing, sound
from tacit.ledger.store import Store
from tacit.ledger.totals import Total
from tacit.ledger.work import conflict

__all__ = ["Posted", "Refused", "Request", "Standing", "create_dataset", "declare_scope", "post_charge"]

_ATTEMPTS = 5
"""How often an event is priced outside of the ledger's lock, while others charge, before it is inside."""

_ENTRY, _HEAD = schema.entries.insert(), schema.state.update()
_STANDING = schema.datasets.update().where(schema.datasets.c.name == sa.bindparam("charged"))


def _append(
    connection: sa.Connection, position: tuple[int, str], kind: str, dataset: str, **content: Any
) -> Posted:
    count, last = position
    record = Record(
        number=count + 1,
        kind=kind,
        dataset=dataset,
        time=datetime.now(UTC).isoformat(timespec="microseconds"),
        version=__version__,
        previous=last,
        **content,
    )
    digest = record.hash()
    connection.execute(_ENTRY, {**vars(record), "hash": digest})
    connection.execute(_HEAD, {"entries": record.number, "head": digest})
    return Posted(record, digest)


def create_dataset(store: Store, dataset: str, terms: Terms, *, new_file: bool = False) -> Terms:
    """Open the chain with this dataset, or add the dataset to it, unless another process just has.

    A file that is not new and holds no ledger has lost it.
    """
    with store.write() as connection:
        if store.exists(connection):
            last, _ = last_entry(store, connection)
            position = last.number, last.hash
        else:
            if store.location.path is not None and not new_file:
                raise store.location.emptied()
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
            last, _ = last_entry(store, connection)
            row = read_dataset(store, connection, dataset)
            declared = _read_partitions(store, connection, dataset, scope)
            if declared is None:
                declared = partitions
                text = json.dumps(partitions)
                connection.execute(
                    schema.scopes.insert().values(dataset=dataset, name=scope, partitions=text)
                )
                state = digest(row.terms, row.mode, row.noise, row.charges, row.total)
                details = _dumped({"partitions": partitions, "state": state})
                _append(connection, (last.number, last.hash), "scope", dataset, scope=scope, details=details)
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
    store: Store,
    dataset: str,
    terms: Terms,
    opening: Opening,
    budget_filter: filters.BudgetFilter,
    request: Request,
    known: Standing | None = None,
) -> Posted | Refused:
    """Charge if the filter admits it; otherwise write nothing.

    The event is priced before the ledger is taken, which may take long, and the price is added up and
    compared inside. If others have charged in between and no price fits any more, it is priced again.
    ``known`` is where the dataset stood when it was last charged or previewed here. A run that is resumed is
    not charged again for what it has paid for: the entry that did is returned.
    """
    text = request.event.to_json()
    before = known
    for attempt in range(_ATTEMPTS + 1):
        stale = attempt or request.scope is not None
        if before is None or stale or (request.limit is not None and before.own is None):
            with store.read() as connection:
                row = read_dataset(store, connection, dataset)
                before = Standing.of(store, connection, row, terms, request)
        quotes = [] if attempt == _ATTEMPTS else _quoted(budget_filter, before, request)
        with store.write() as connection:
            last, found = last_entry(store, connection, opening.number, opening.number + 1)
            row = read_dataset(store, connection, dataset)
            check_dataset(store, connection, row, opening, last, found)
            if request.scope is not None:
                check_scope(store, connection, dataset, request.scope)
            if (paid := _paid_before(store, connection, dataset, request, text)) is not None:
                return paid
            if request.check is not None:
                request.check()
            now = Standing.of(store, connection, row, terms, request)
            _check_work(store, connection, dataset, request)
            if attempt == _ATTEMPTS:
                quotes = _quoted(budget_filter, now, request)
            admission = now.accepted(budget_filter, quotes, request)
            if admission is not None:
                posted = _write_charge(connection, last, row, now, request, admission, text)
        if admission is not None:
            store.seen = posted.record.number, posted.hash
            return posted
        if before == now:
            break
    tried = [now.total_with(quote.cost, request) for quote in quotes]
    total = now.total.cost()
    would_be = _cheapest(budget_filter, tried, now.mode)
    fits = budget_filter.accept(quotes, partial(now.total_with, request=request), now.mode) is not None
    return Refused(
        budget_filter.spent(total, now.mode), would_be, now.mode, quotes[-1].cost, total, tried[-1],
        own=now.own.cost() if fits and now.own is not None else None,
    )  # fmt: skip


def _quoted(budget_filter: filters.BudgetFilter, standing: Standing, request: Request) -> list[filters.Quote]:
    """Prices of the event, up to the first that fits."""

    def total_with(cost: filters.Cost) -> filters.Cost:
        return standing.total_with(cost, request)

    made: list[filters.Quote] = []
    partitioned = standing.scope is not None
    for quote in budget_filter.quotes(
        request.event, total_with, standing.mode, request.delta, partitioned=partitioned
    ):
        made.append(quote)
        if standing.accepted(budget_filter, [quote], request) is not None:
            break
    return made


def _write_charge(
    connection: sa.Connection,
    last: Any,
    row: Any,
    now: Standing,
    request: Request,
    admission: filters.Admission,
    event: str,
) -> Posted:
    cost = sound(admission.cost)
    total = now.grown(cost, request)
    left = {
        "mode": admission.mode,
        "noise": worse_noise(row.noise, request.noise),
        "charges": row.charges + 1,
        "total": total.to_json(),
    }
    connection.execute(_STANDING, {"charged": row.name, **left})
    said = {} if request.work is None else request.work.said()
    said["state"] = digest(row.terms, **left)
    if now.scope is not None:
        _write_partition(connection, row.name, request, now.scope, cost)
        said["scope"] = scope_digest(connection, row.name, str(request.scope))
    posted = _append(
        connection,
        (last.number, last.hash),
        "charge",
        row.name,
        label=request.label,
        scope=request.scope,
        partition=request.partition,
        event=event,
        **vars(cost),
        mode=admission.mode,
        declared_delta=request.delta,
        noise=request.noise,
        details=_dumped(said),
    )
    return replace(posted, standing=Standing(total, admission.mode, now.relation))


def _dumped(details: dict[str, Any]) -> str:
    return json.dumps(details, separators=(",", ":"))


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


def _paid_before(
    store: Store, connection: sa.Connection, dataset: str, request: Request, event: str
) -> Posted | None:
    """The entry that paid for this charge of a resumed run, if one did; it must be the same charge."""
    if request.limit is None or not request.limit.allowance.resumed or request.work is None:
        return None
    found = paid_by(store, connection, dataset, request.work)
    if found is None:
        return None
    record, digest = found
    if (record.event, record.declared_delta, record.noise) != (event, request.delta, request.noise):
        raise LedgerError(
            f"The run of {request.label!r} was paid for as something else than what it would do now.",
            "A run is resumed as it was started: make another request.",
            location=store.location.name,
        )
    return Posted(record, digest)


def _cheapest(budget_filter: filters.BudgetFilter, totals: list[filters.Cost], mode: str | None) -> float:
    """The least ε above the budget among the totals a refused charge would have led to."""
    modes = FILTERS if mode is None else (mode,)
    epsilons = (budget_filter.spent(total, tried) for total in totals for tried in modes)
    return min((epsilon for epsilon in epsilons if epsilon > budget_filter.epsilon), default=math.inf)


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
