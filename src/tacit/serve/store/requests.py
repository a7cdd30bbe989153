"""What was asked for, and what became of it: a table of jobs with leases.

A request is ``waiting`` for a worker, ``running`` under a lease, or ended: ``done`` with its release,
``refused`` before anything was charged, ``failed`` after the charge, or ``cancelled``. Whoever carries it out
holds the lease and renews it; when the lease lapses, because its holder was killed, another may take
the request over, as the next attempt. Only the attempt that holds the request can end it, in one
transaction, so that of all attempts one release at most is ever stored.

Libraries for queues of jobs were looked at: those that keep their queue in PostgreSQL know no SQLite, and the
ones that know both lose a job whose worker is killed. What matters here is that ending a request and storing
its release are one transaction, which none of them offers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa

from tacit.serve.store import tables

__all__ = [
    "ENDED",
    "LEASE",
    "Request",
    "add",
    "cancel",
    "claim",
    "end",
    "find",
    "is_cancelled",
    "listed",
    "next_claim",
    "progress",
    "renew",
    "under_way",
    "waits",
]

LEASE = 30.0
"""Seconds after which a request whose holder no longer renews its lease may be taken over."""
ENDED = ("done", "refused", "failed", "cancelled")

# Made once: every question executes them.
_NEW = tables.requests.insert()
_CANCELLED = sa.select(tables.requests.c.cancelled).where(tables.requests.c.id == sa.bindparam("request"))
_END = tables.requests.update().where(
    tables.requests.c.id == sa.bindparam("held"),
    tables.requests.c.attempt == sa.bindparam("holding"),
    tables.requests.c.state.in_(("running", "waiting")),
)


@dataclass(frozen=True)
class Request:
    """One request, as it stands."""

    id: str
    analyst: str
    dataset: str
    grant: str
    key: str
    digest: str
    kind: str
    body: dict[str, Any]
    state: str
    attempt: int
    lease: float | None
    cancelled: bool
    progress: str
    result: dict[str, Any] | None
    entry: int | None
    created: float
    visible: float | None

    def shown_state(self, now: float) -> str:
        """The state that may be told now: how it ended is told on the tick, not before."""
        return "running" if self.state in ENDED and now < (self.visible or 0.0) else self.state


def add(connection: sa.Connection, made: Request) -> None:
    """Add a request."""
    content = {**vars(made), "body": json.dumps(made.body), "result": None}
    connection.execute(_NEW, content)


def find(
    connection: sa.Connection,
    number: str | None = None,
    *,
    analyst: str | None = None,
    key: str | None = None,
) -> Request | None:
    """The request with this id, or with this key of an analyst, if there is one."""
    given = {"id": number, "analyst": analyst, "key": key}
    wanted = {name: one for name, one in given.items() if one is not None}
    row = connection.execute(_found(*wanted), wanted).one_or_none()
    return None if row is None else _request(row)


@cache
def _found(*columns: str) -> sa.Select[Any]:
    """A request of which these columns are given."""
    table = tables.requests
    return sa.select(table).where(*(table.c[name] == sa.bindparam(name) for name in columns)).limit(1)


def listed(connection: sa.Connection, analyst: str | None, most: int) -> list[Request]:
    """The newest requests, of one analyst or of all."""
    table = tables.requests
    query = sa.select(table).order_by(table.c.created.desc(), table.c.id).limit(most)
    if analyst is not None:
        query = query.where(table.c.analyst == analyst)
    return [_request(row) for row in connection.execute(query)]


def _open(now: float) -> sa.ColumnElement[bool]:
    """Which requests may be claimed: those that wait, and those whose holder let the lease lapse."""
    table = tables.requests
    lapsed = sa.and_(table.c.state == "running", table.c.lease < now)
    return sa.or_(table.c.state == "waiting", lapsed)


def waits(connection: sa.Connection, now: float) -> bool:
    """Whether there is a request to claim."""
    return connection.scalar(sa.select(tables.requests.c.id).where(_open(now)).limit(1)) is not None


def under_way(connection: sa.Connection, analyst: str, now: float) -> int:
    """How many jobs of an analyst wait or run, as far as may be told: those that end are told on the tick."""
    table = tables.requests
    told = sa.or_(table.c.state.in_(("waiting", "running")), table.c.visible > now)
    query = sa.select(sa.func.count()).where(table.c.analyst == analyst, table.c.kind != "questions", told)
    return int(connection.scalar(query) or 0)


def next_claim(connection: sa.Connection, now: float) -> Request | None:
    """The oldest request that may be claimed, claimed in this transaction."""
    table = tables.requests
    query = sa.select(table).where(_open(now)).order_by(table.c.created)
    row = connection.execute(query.limit(1)).one_or_none()
    return None if row is None else claim(connection, _request(row), now)


def claim(connection: sa.Connection, held: Request, now: float) -> Request:
    """Take the request for another attempt; whoever held it before can no longer end it."""
    table = tables.requests
    taken = {"state": "running", "attempt": held.attempt + 1, "lease": now + LEASE}
    connection.execute(table.update().where(table.c.id == held.id).values(**taken))
    return Request(**{**vars(held), **taken})


def renew(connection: sa.Connection, held: Request, now: float) -> bool:
    """Renew the lease; False if another holds the request, or if it was cancelled."""
    table = tables.requests
    mine = (table.c.id == held.id, table.c.attempt == held.attempt, table.c.state == "running")
    return connection.execute(table.update().where(*mine).values(lease=now + LEASE)).rowcount == 1


def progress(connection: sa.Connection, held: Request, text: str) -> None:
    """Note how far a request is; no word of it depends on the rows."""
    table = tables.requests
    mine = (table.c.id == held.id, table.c.attempt == held.attempt, table.c.state == "running")
    connection.execute(table.update().where(*mine).values(progress=text[:200]))


def cancel(
    connection: sa.Connection, held: Request, result: dict[str, Any], entry: int | None, visible: float
) -> None:
    """Cancel a request, whatever its state is: whoever carries it out can no longer end it."""
    table = tables.requests
    ended = {"state": "cancelled", "cancelled": True, "lease": None, "progress": ""}
    text = json.dumps(result, allow_nan=False)
    connection.execute(
        table.update().where(table.c.id == held.id).values(**ended, result=text, entry=entry, visible=visible)
    )


def is_cancelled(connection: sa.Connection, number: str) -> bool:
    """Whether the request with this id was cancelled."""
    return bool(connection.scalar(_CANCELLED, {"request": number}))


def end(
    connection: sa.Connection,
    held: Request,
    state: str,
    result: dict[str, Any],
    entry: int | None,
    visible: float,
) -> Request | None:
    """End the request with its result; None, and nothing stored, if another attempt holds it."""
    ended = {"state": state, "entry": entry, "visible": visible, "lease": None, "progress": ""}
    text = json.dumps(result, allow_nan=False)
    mine = {"held": held.id, "holding": held.attempt}
    done = connection.execute(_END, {**mine, **ended, "result": text})
    return Request(**{**vars(held), **ended, "result": result}) if done.rowcount == 1 else None


def _request(row: Any) -> Request:
    content = row._asdict()
    content["body"] = json.loads(content["body"])
    content["result"] = None if content["result"] is None else json.loads(content["result"])
    return Request(**content)
