"""The database of the service: opened or made, and its transactions.

The transactions are those of the ledger's store: a write is on disk when it returns. Each takes the row of
``tacit_service`` first, so that what it has read is still true when it writes, and that the log has one
order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tacit.errors import LedgerTooNew
from tacit.ledger.location import Location
from tacit.ledger.store import Store
from tacit.serve.store import tables
from tacit.serve.store.log import ORIGIN

__all__ = ["Database", "location_of"]

_CREATION_LOCK = 0x7AC18
_STATE = sa.select(tables.state.c.id).with_for_update()


@dataclass(frozen=True)
class Database:
    """An open database of a service, shared by threads."""

    store: Store

    @classmethod
    def open(cls, place: str | os.PathLike[str]) -> Database:
        """Open the database at a path or URL, and make its tables if it has none."""
        made = cls(Store(Location.of(place)))
        try:
            made._journal()
            with made.store.write() as connection:
                if connection.dialect.name == "postgresql":
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
                if tables.state.name not in sa.inspect(connection).get_table_names():
                    tables.create(connection)
                    connection.execute(
                        tables.state.insert().values(id=1, version=tables.VERSION, entries=0, head=ORIGIN)
                    )
                version = connection.scalar(sa.select(tables.state.c.version)) or 0
            if version > tables.VERSION:
                raise LedgerTooNew(
                    f"The service at {made.store.location.name} was made by a later version of tacit.",
                    "Upgrade tacit.", location=made.store.location.name, version=version,
                )  # fmt: skip
        except BaseException:
            made.close()
            raise
        return made

    def _journal(self) -> None:
        """SQLite writes ahead: one wait for the disk for each transaction, and nobody waits for readers."""
        with self.store._connect() as connection:
            if connection.dialect.name == "sqlite":
                driver: Any = connection.connection
                driver.execute("PRAGMA journal_mode=WAL").close()

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A read-only snapshot."""
        with self.store.read() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A transaction that holds the service's tables against every other writer, durable at its end."""
        with self.store.write() as connection:
            connection.execute(_STATE)
            yield connection

    def close(self) -> None:
        """Close every connection."""
        self.store.close()


def location_of(place: str) -> str:
    """A place as it may be shown: without the password of a URL."""
    return Location.of(place).name
