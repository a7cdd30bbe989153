"""What is checked of a ledger before a charge relies on it, at a cost that does not grow with the ledger.

The running state (who has spent how much of which budget) is there so that a charge need not read all
entries. Before it is used, in the transaction that writes the charge:

- the last entry is the one that the head names, and its content has the hash it says;
- the entries that this process saw or wrote earlier are still there;
- the budget is the one in the entry that opened the dataset, whose content and successor fit its hash;
- mode, charges and total of the dataset are those that its last entry left behind;
- the partitions of a scope that is charged, and their totals, are those that its last entry left behind.

So a ledger that was cut off, emptied, exchanged or given another budget is refused, not taken for a fresh
one. What is left to :meth:`tacit.Ledger.verify`: other entries edited in the middle. What no ledger can find
by itself: a copy put back while nobody had it open, and a chain computed anew (:mod:`tacit.ledger.chain`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tacit.guarantee import NOISE_KINDS
from tacit.ledger import schema
from tacit.ledger.chain import Record
from tacit.ledger.store import Store
from tacit.ledger.totals import Total

__all__ = ["Opening", "check_dataset", "check_scope", "digest", "find_opening", "last_entry", "scope_digest"]

_LAST = (
    sa.select(schema.entries)
    .where(
        sa.or_(
            schema.entries.c.number.in_(sa.bindparam("others", expanding=True)),
            schema.entries.c.number >= sa.bindparam("count"),
        )
    )
    .limit(sa.bindparam("most", type_=sa.Integer))
)


@dataclass(frozen=True)
class Opening:
    """The entry that opened a dataset: its number, and the terms as they are written there."""

    number: int
    terms: str


def last_entry(store: Store, connection: sa.Connection, *others: int) -> tuple[Any, dict[int, Any]]:
    """Take the ledger in a write transaction: its last entry, which is the one the head names, and others."""
    count, head = store.lock(connection)
    number, wanted = schema.entries.c.number, {"others": others, "count": count, "most": len(others) + 2}
    found = {row.number: row for row in connection.execute(_LAST, wanted)}
    last = found.get(count)
    if last is None or last.hash != head or max(found) > count:
        raise store.corrupted("has lost its last entries, or got some that it did not write")
    _check_hash(store, last)
    if store.seen is not None and store.seen != (count, head):
        earlier, known = store.seen
        held = connection.scalar(sa.select(schema.entries.c.hash).where(number == earlier))
        if count < earlier or held != known:
            raise store.corrupted(f"is not the one that had {earlier} entries when it was last used here")
    return last, found


def find_opening(store: Store, connection: sa.Connection, dataset: str) -> Opening:
    """The entry that opened a dataset."""
    table = schema.entries
    row = connection.execute(
        sa.select(table.c.number, table.c.details)
        .where(table.c.kind == "dataset", table.c.dataset == dataset)
        .order_by(table.c.number)
        .limit(1)
    ).one_or_none()
    if row is None:
        raise store.corrupted(f"has lost the entry that opened {dataset!r}")
    return Opening(row.number, str(row.details))


def check_dataset(
    store: Store, connection: sa.Connection, row: Any, opening: Opening, last: Any, found: Mapping[int, Any]
) -> None:
    """Check the running state of a dataset against the entry that opened it, and its last one.

    ``found`` holds the opening entry and the one after it.
    """
    table = schema.entries
    first, after = found.get(opening.number), found.get(opening.number + 1)
    if first is None or (first.kind, first.dataset) != ("dataset", row.name):
        raise store.corrupted(f"has lost the entry that opened {row.name!r}")
    _check_hash(store, first)
    if after is not None and after.previous != first.hash:
        raise store.corrupted(f"has an edited entry {opening.number}, which opened {row.name!r}")
    if not row.terms == opening.terms == first.details:
        raise store.corrupted(f"has another budget for {row.name!r} than it was opened with")
    if last.dataset != row.name:
        last = _last_where(store, connection, table.c.dataset == row.name)
    left = _left_behind(last)
    if left is not None and left != digest(row.terms, row.mode, row.noise, row.charges, row.total):
        raise store.corrupted(f"has a total for {row.name!r} that its last charge did not leave behind")


def check_scope(store: Store, connection: sa.Connection, dataset: str, scope: str) -> None:
    """Check the partitions of a scope and their totals against its last entry.

    The database reads back to that entry, however far it is.
    """
    table = schema.entries
    last = _last_where(store, connection, table.c.dataset == dataset, table.c.scope == scope)
    try:
        details = json.loads(last.details)
        left = (
            _scope_digest(json.dumps(details["partitions"]), [])
            if last.kind == "scope"
            else details.get("scope")
        )
    except (TypeError, ValueError, KeyError):
        left = None
    if left is not None and left != scope_digest(connection, dataset, scope):
        raise store.corrupted(f"has a state of {scope!r} that the last charge to it did not leave behind")


def _last_where(store: Store, connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> Any:
    """The last entry for which the conditions hold; its content and its successor fit its hash."""
    table = schema.entries
    query = sa.select(table).where(*conditions).order_by(table.c.number.desc()).limit(1)
    last = connection.execute(query).one_or_none()
    if last is None:
        raise store.corrupted("has lost entries that its state was made from")
    _check_hash(store, last)
    after = connection.scalar(sa.select(table.c.previous).where(table.c.number == last.number + 1))
    if after not in (None, last.hash):
        raise store.corrupted(f"has an edited entry {last.number}: the next does not follow it")
    return last


def scope_digest(connection: sa.Connection, dataset: str, scope: str) -> str:
    """The partitions of a scope and their totals in short, for the entry that leaves them behind."""
    scopes, parts = schema.scopes, schema.partitions
    declared = connection.scalar(
        sa.select(scopes.c.partitions).where(scopes.c.dataset == dataset, scopes.c.name == scope)
    )
    rows = connection.execute(
        sa.select(parts.c.name, parts.c.total).where(parts.c.dataset == dataset, parts.c.scope == scope)
    )
    return _scope_digest(declared, sorted((row.name, row.total) for row in rows))


def _scope_digest(declared: str | None, totals: list[tuple[str, str]]) -> str:
    return hashlib.sha256(json.dumps([declared, totals]).encode()).hexdigest()[:32]


def digest(terms: str, mode: str | None, noise: str, charges: int, total: str) -> str:
    """The running state of a dataset in short, for the entry that leaves it behind."""
    text = json.dumps([terms, mode, noise, charges, total])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _left_behind(entry: Any) -> str | None:
    """The state after an entry; None for a charge of earlier versions, which do not say."""
    if entry.kind == "dataset":
        return digest(entry.details, None, NOISE_KINDS[0], 0, Total().to_json())
    try:
        return json.loads(entry.details)["state"]  # type: ignore[no-any-return]
    except (TypeError, ValueError, KeyError):
        return None


def _check_hash(store: Store, row: Any) -> None:
    content = {name: value for name, value in row._asdict().items() if name != "hash"}
    try:
        right = Record(**content).hash() == row.hash
    except (TypeError, ValueError):
        right = False
    if not right:
        raise store.corrupted(f"has an edited entry {row.number}: its content does not match its hash")
