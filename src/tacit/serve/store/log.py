"""The log: who granted, asked, was refused or got what, and when; append-only, each line chained to the last.

It stands beside the ledger, which says what was charged. No line holds a token, an answer, or anything else
that depends on private rows beyond what was released.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from tacit.errors import LedgerCorrupted
from tacit.serve.store import tables

__all__ = ["ORIGIN", "Line", "append", "length", "lines", "verify"]

ORIGIN = "0" * 64
_STATE = sa.select(tables.state.c.entries, tables.state.c.head)
_LINE, _HEAD = tables.log.insert(), tables.state.update()


@dataclass(frozen=True)
class Line:
    """One line of the log: ``actor`` did ``action`` to ``subject``."""

    number: int
    time: str
    actor: str
    action: str
    subject: str
    details: str
    previous: str

    def hash(self) -> str:
        """The digest of the line, which the next one names."""
        return hashlib.sha256(json.dumps(vars(self), sort_keys=True).encode()).hexdigest()


def append(connection: sa.Connection, actor: str, action: str, subject: str, **details: Any) -> None:
    """Add a line, in the write transaction at hand: it is there if and only if what it tells was done."""
    count, head = connection.execute(_STATE).one()
    told = json.dumps(details, sort_keys=True, allow_nan=False)
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = Line(count + 1, time, actor, action, subject, told, head)
    digest = line.hash()
    connection.execute(_LINE, {**vars(line), "hash": digest})
    connection.execute(_HEAD, {"entries": line.number, "head": digest})


def lines(connection: sa.Connection, after: int, most: int) -> list[dict[str, Any]]:
    """Lines of the log with larger numbers than ``after``, oldest first."""
    query = sa.select(tables.log).where(tables.log.c.number > after).order_by(tables.log.c.number).limit(most)
    rows = [row._asdict() for row in connection.execute(query)]
    return [{**row, "details": json.loads(row["details"])} for row in rows]


def length(connection: sa.Connection) -> int:
    """How many lines there are."""
    return int(connection.scalar(sa.select(tables.state.c.entries)) or 0)


def verify(connection: sa.Connection, head: str | None = None) -> tuple[int, str]:
    """How many lines there are, and the head; LedgerCorrupted if a line was edited, removed, added or moved.

    Whoever can write the database can forge all of it, its end first. ``head`` is one that was
    verified earlier and kept elsewhere; the line that it names has to be there still.
    """
    previous, number, known = ORIGIN, 0, head in (None, f"0:{ORIGIN}")
    for row in connection.execute(sa.select(tables.log).order_by(tables.log.c.number)):
        content = row._asdict()
        digest, line = content.pop("hash"), Line(**content)
        number += 1
        if (line.number, line.previous) != (number, previous) or line.hash() != digest:
            raise LedgerCorrupted(
                f"The log of the service does not verify at line {number}.",
                "Restore a backup that does, and compare it with the ledger.", location="log",
            )  # fmt: skip
        previous = digest
        known = known or head == f"{number}:{digest}"
    told = connection.execute(_STATE).one()
    if tuple(told) != (number, previous):
        raise LedgerCorrupted(
            "The log of the service has lost lines at its end, or got some that it did not write.",
            "Restore a backup that verifies, and compare it with the ledger.", location="log",
        )  # fmt: skip
    if not known:
        raise LedgerCorrupted(
            "The log of the service lacks the line that this head names.",
            "Look for a copy of the log that has it: lines were removed, or replaced.", location="log",
        )  # fmt: skip
    return number, f"{number}:{previous}"
