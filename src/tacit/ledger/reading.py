"""What can be read from a ledger: where it stands, what was charged, and whether it holds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tacit import events
from tacit.accounting import filters
from tacit.errors import LedgerCorrupted
from tacit.ledger import schema
from tacit.ledger.budget import Terms
from tacit.ledger.chain import Broken, DatasetState, Record, Replay, head_of
from tacit.ledger.entries import Entry, LabelTotal
from tacit.ledger.store import Store
from tacit.ledger.totals import Total
from tacit.ledger.work import Work

__all__ = [
    "Standing",
    "allowance_total",
    "charges",
    "export",
    "head",
    "label_totals",
    "last_seen",
    "names",
    "paid_by",
    "parse_total",
    "read_dataset",
    "read_terms",
    "standing",
    "to_entry",
    "verify",
    "work_of",
    "works",
]

_CHUNK = 1000

# To make a statement takes longer than to execute it: those that every charge executes are made once.
_DATASET = sa.select(schema.datasets).where(schema.datasets.c.name == sa.bindparam("dataset"))
_RUNS = (
    sa.select(schema.entries)
    .where(
        schema.of_a_run,
        schema.entries.c.dataset == sa.bindparam("dataset"),
        schema.entries.c.kind == "charge",
        schema.entries.c.number > sa.bindparam("after"),
        sa.func.substr(schema.entries.c.details, 1, sa.bindparam("size")) == sa.bindparam("opening"),
    )
    .order_by(schema.entries.c.number)
)
_COSTS = _RUNS.with_only_columns(
    schema.entries.c.number, schema.entries.c.hash, schema.entries.c.epsilon, schema.entries.c.delta,
    schema.entries.c.renyi, schema.entries.c.renyi_delta,
)  # fmt: skip


@dataclass(frozen=True)
class Standing:
    """Where a dataset stands: its running total, and the event that all charges make up."""

    total: filters.Cost
    mode: str | None
    noise: str
    charges: int
    event: events.Event
    scopes: tuple[str, ...]


def names(store: Store) -> tuple[str, ...]:
    """The datasets of the ledger, in alphabetical order."""
    with store.read() as connection:
        if not store.exists(connection):
            raise store.location.absent()
        found = connection.scalars(sa.select(schema.datasets.c.name).order_by(schema.datasets.c.name))
        datasets = tuple(found)
    if not datasets:
        raise store.corrupted("has lost its datasets")
    return datasets


def head(store: Store) -> str:
    """How many entries there are and the hash of the last, in the form people write down."""
    with store.read() as connection:
        return head_of(*last_seen(store, connection))


def last_seen(store: Store, connection: sa.Connection) -> tuple[int, str]:
    """How many entries there are, and the hash of the last."""
    row = connection.execute(sa.select(schema.state.c.entries, schema.state.c.head)).one_or_none()
    if row is None:
        raise store.corrupted("has lost its state")
    return row.entries, row.head


def standing(store: Store, dataset: str, rule: str | None) -> Standing:
    """Where the dataset stands, in one snapshot; ``rule`` is how it is counted, where its terms say so."""
    table = schema.entries
    group = (table.c.scope, table.c.partition, table.c.event)
    with store.read() as connection:
        row = read_dataset(store, connection, dataset)
        groups = connection.execute(
            sa.select(*group, sa.func.count().label("times"))
            .where(table.c.dataset == dataset, table.c.kind == "charge")
            .group_by(*group)
            .order_by(sa.func.min(table.c.number))
        ).all()
    total = parse_total(store, row.total)
    scopes = dict.fromkeys(group.scope for group in groups if group.scope is not None)
    return Standing(total.cost(), rule or row.mode, row.noise, row.charges, _composed(groups), tuple(scopes))


def read_dataset(store: Store, connection: sa.Connection, dataset: str) -> Any:
    """The running state of a dataset."""
    row = connection.execute(_DATASET, {"dataset": dataset}).one_or_none()
    if row is None:
        raise store.corrupted(f"has lost the state of {dataset!r}")
    return row


def parse_total(store: Store, text: str) -> Total:
    """The total stored as ``text``."""
    try:
        return Total.from_json(text)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise store.corrupted("holds a total that no ledger writes") from error


def read_terms(store: Store, connection: sa.Connection, dataset: str) -> Terms | None:
    """The terms of a dataset, or None where the ledger has no such dataset."""
    text = connection.scalar(sa.select(schema.datasets.c.terms).where(schema.datasets.c.name == dataset))
    if text is None:
        return None
    try:
        return Terms.from_json(text)
    except (TypeError, ValueError, KeyError) as error:
        raise store.corrupted(f"holds terms of {dataset!r} that no ledger writes: {error}") from error


def _composed(groups: Iterable[Any]) -> events.Event:
    sequential: list[events.Event] = []
    scopes: dict[str, dict[str, list[events.Event]]] = {}
    for group in groups:
        event = events.from_json(group.event)
        repeated = event if group.times == 1 else events.Repeat(event, group.times)
        if group.scope is None:
            sequential.append(repeated)
        else:
            scopes.setdefault(group.scope, {}).setdefault(group.partition, []).append(repeated)
    parallel = [
        events.Parallel(tuple(events.Compose(tuple(part)) for part in parts.values()))
        for parts in scopes.values()
    ]
    return events.Compose((*sequential, *parallel))


def charges(store: Store, dataset: str) -> list[Entry]:
    """Every charge to the dataset, oldest first."""
    table = schema.entries
    query = sa.select(table).where(table.c.dataset == dataset, table.c.kind == "charge")
    with store.read() as connection:
        rows = [row._asdict() for row in connection.execute(query.order_by(table.c.number))]
    return [to_entry(store, _record(row), row["hash"]) for row in rows]


def work_of(store: Store, dataset: str, run: str) -> list[Entry]:
    """The charges of one run, oldest first."""
    with store.read() as connection:
        rows = [row._asdict() for row in connection.execute(_RUNS, _of_run(dataset, run))]
    return [to_entry(store, _record(row), row["hash"]) for row in rows]


def paid_by(store: Store, connection: sa.Connection, dataset: str, work: Work) -> tuple[Record, str] | None:
    """The entry that paid for these very steps of a run, with its hash, if one did."""
    for row in connection.execute(_RUNS, _of_run(dataset, work.run)):
        found = _work(store, row.number, row.details)
        if found is not None and found.paid == work.paid:
            content = row._asdict()
            return _record(content), content["hash"]
    return None


def allowance_total(store: Store, connection: sa.Connection, dataset: str, prefix: str) -> Total:
    """What the runs whose names begin so were charged in all; their entries are read for it, each once.

    Entries are added in order and never changed, so a sum up to one of them stays true for as long as that
    entry is there, which is looked at: the ledger may have been restored from a backup since. Then all
    entries are read again, and the next charge is refused, for it comes after entries that were lost.
    """
    last, total = store.sums.get((dataset, prefix), ((0, ""), Total()))
    opening = '{"run":"' + prefix
    rows = connection.execute(_COSTS, _beginning(dataset, opening, last[0] - 1)).all()
    if last[0] and not (rows and last == (rows[0].number, rows[0].hash)):
        last, total = (0, ""), Total()
        rows = connection.execute(_COSTS, _beginning(dataset, opening)).all()
    for number, digest, *cost in rows:
        if number > last[0]:
            total += filters.Cost(*cost)
            last = number, digest
    if last[0]:
        store.sums[dataset, prefix] = last, total
        if store.seen is None or store.seen[0] < last[0]:
            store.seen = last
    return total


def works(store: Store, connection: sa.Connection, dataset: str, run: str) -> list[Work]:
    """What was paid for and taken of one run, oldest first."""
    found = connection.execute(_RUNS, _of_run(dataset, run)).all()
    read = (_work(store, row.number, row.details) for row in found)
    return [work for work in read if work is not None]


def _of_run(dataset: str, run: str) -> dict[str, Any]:
    """What ``_RUNS`` is asked with, for the entries of one run."""
    return _beginning(dataset, '{"run":' + json.dumps(run))


def _beginning(dataset: str, opening: str, after: int = 0) -> dict[str, Any]:
    """What ``_RUNS`` is asked with, for entries after this one whose details begin so."""
    return {"dataset": dataset, "opening": opening, "size": len(opening), "after": after}


def _work(store: Store, number: int, text: str) -> Work | None:
    try:
        return Work.from_json(text)
    except (TypeError, ValueError, KeyError) as error:
        raise store.corrupted(f"is damaged at entry {number}: {error}") from error


def to_entry(store: Store, record: Record, digest: str) -> Entry:
    """The entry that a charge's record describes."""
    try:
        cost = record.cost()
    except ValueError as error:
        raise store.corrupted(f"is damaged at entry {record.number}: {error}") from error
    return Entry(
        number=record.number,
        dataset=record.dataset,
        label=str(record.label),
        event=events.from_json(str(record.event)),
        scope=record.scope,
        partition=record.partition,
        cost=cost,
        mode=str(record.mode),
        delta=record.declared_delta,
        noise=str(record.noise),
        time=record.time,
        version=record.version,
        hash=digest,
        work=None if record.details is None else _work(store, record.number, record.details),
    )


def label_totals(store: Store, dataset: str, mode: str | None) -> tuple[LabelTotal, ...]:
    """What was spent on what, the largest share first."""
    table = schema.entries
    spent = sa.func.sum(table.c.renyi if mode in ("renyi", "gaussian") else table.c.epsilon)
    with store.read() as connection:
        rows = connection.execute(
            sa.select(table.c.label, sa.func.count().label("charges"), spent.label("spent"))
            .where(table.c.dataset == dataset, table.c.kind == "charge")
            .group_by(table.c.label)
            .order_by(spent.desc(), table.c.label)
        ).all()
    whole = math.fsum(row.spent for row in rows)
    usable = 0 < whole < math.inf
    return tuple(LabelTotal(row.label, row.charges, row.spent / whole if usable else 0.0) for row in rows)


def export(store: Store) -> Iterator[str]:
    """Every record of the ledger as a line of JSON, its hash added."""
    with store.read() as connection:
        rows = connection.execute(sa.select(schema.entries).order_by(schema.entries.c.number)).all()
    for row in map(sa.Row._asdict, rows):
        content = json.loads(_record(row).to_json())
        yield json.dumps({**content, "hash": row["hash"]}, sort_keys=True, separators=(",", ":"))


def verify(store: Store, written_down: str | None = None) -> str:
    """Replay the whole ledger and compare it with its running state; returns the head.

    The state is read at once, the entries it counts a thousand at a time: others can charge
    meanwhile, which only adds entries behind those.
    """
    try:
        with store.read() as connection:
            if not store.exists(connection):
                raise store.location.absent()
            if connection.dialect.name == "sqlite":
                _check_file(connection)
            state = _read_state(connection)
        replay = Replay.of(_entries(store, state.count), written_down)
        _compare(state, replay)
    except Broken as broken:
        raise LedgerCorrupted(
            f"The ledger {store.location.name} does not verify. {broken}",
            "Do not charge it; restore a backup that verifies, and count what was spent since.",
            location=store.location.name,
            entry=broken.number,
        ) from None
    return head_of(replay.count, replay.last)


@dataclass(frozen=True)
class _State:
    """The running state of a whole ledger, as stored."""

    count: int
    last: str
    datasets: dict[str, Any]
    scopes: dict[tuple[str, str], str]
    totals: dict[tuple[str, str, str], str]


def _read_state(connection: sa.Connection) -> _State:
    row = connection.execute(sa.select(schema.state)).one_or_none()
    if row is None:
        raise Broken("Its state is missing.")
    end = connection.scalar(sa.select(sa.func.max(schema.entries.c.number)))
    if row.entries != end:
        raise Broken(
            f"Entries were removed from the end or added to it: there should be {row.entries}, "
            f"the last is number {end}."
        )
    scopes, partitions = sa.select(schema.scopes), sa.select(schema.partitions)
    return _State(
        count=row.entries,
        last=row.head,
        datasets={row.name: row for row in connection.execute(sa.select(schema.datasets))},
        scopes={(row.dataset, row.name): row.partitions for row in connection.execute(scopes)},
        totals={(row.dataset, row.scope, row.name): row.total for row in connection.execute(partitions)},
    )


def _entries(store: Store, count: int) -> Iterator[dict[str, Any]]:
    number = schema.entries.c.number
    query = sa.select(schema.entries).where(number <= count).order_by(number).limit(_CHUNK)
    after: int | None = None
    while after is None or after < count:
        with store.read() as connection:
            rows = connection.execute(query if after is None else query.where(number > after)).all()
        if not rows:
            return
        after = rows[-1].number
        for row in rows:
            yield row._asdict()


def _record(row: Mapping[str, Any]) -> Record:
    return Record(**{name: value for name, value in row.items() if name != "hash"})


def _check_file(connection: sa.Connection) -> None:
    answer = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
    if answer != "ok":
        raise Broken(f"The file is damaged: {answer}")


def _compare(state: _State, replay: Replay) -> None:
    if (state.count, state.last) != (replay.count, replay.last):
        raise Broken(f"Its head is not the hash of entry {replay.count}, the last.")
    if state.datasets.keys() != replay.datasets.keys():
        raise Broken(
            f"The state names the datasets {sorted(state.datasets)}, the entries {sorted(replay.datasets)}."
        )
    for name, dataset in replay.datasets.items():
        _compare_dataset(state.datasets[name], dataset)
    _compare_scopes(state, replay.datasets)


def _compare_dataset(row: Any, dataset: DatasetState) -> None:
    expected = {
        "terms": dataset.terms.to_json(),
        "mode": dataset.mode,
        "noise": dataset.noise,
        "charges": dataset.charges,
        "total": dataset.total().to_json(),
    }
    for column, value in expected.items():
        if (found := row._mapping[column]) != value:
            raise Broken(f"The {column} of {row.name!r} is {found!s:.80}; its entries make it {value!s:.80}.")


def _compare_scopes(state: _State, datasets: Mapping[str, DatasetState]) -> None:
    scopes = {
        (name, scope): declared
        for name, dataset in datasets.items()
        for scope, declared in dataset.scopes.items()
    }
    if state.scopes != {key: json.dumps(scope.partitions) for key, scope in scopes.items()}:
        raise Broken("The partitions of a scope are not those its entry declared.")
    totals = {
        (*key, partition): total.to_json()
        for key, scope in scopes.items()
        for partition, total in scope.totals.items()
    }
    if state.totals != totals:
        raise Broken("The total of a partition is not that of its entries.")
