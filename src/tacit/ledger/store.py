"""Transactions on a ledger's database, and its errors in our words.

A write transaction holds the whole ledger: SQLite's RESERVED lock (``BEGIN IMMEDIATE``), or in
PostgreSQL a row lock on ``tacit_state``. When it returns, its writes are on disk: in SQLite by
``synchronous=EXTRA``, which with the default rollback journal also syncs the directory, without
which a power cut could bring a deleted journal back and take the last commit away; in
PostgreSQL by ``synchronous_commit``, raised to ``on`` where the server has it lower.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from tacit.errors import LedgerCorrupted, LedgerError, LedgerTooNew, LedgerUnwritable
from tacit.ledger import schema
from tacit.ledger.location import Location
from tacit.ledger.totals import Total

__all__ = ["PATIENCE", "Store"]

PATIENCE = 30.0
"""Seconds to wait for other processes before giving up."""

_CREATION_LOCK = 0x7AC17
_CONNECT_TIMEOUT = 10
_STATE = sa.select(schema.state.c.entries, schema.state.c.head).with_for_update()


class Store:
    """The database of one ledger, shared by threads; a forked child gets its own connections."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self._engine = _engine(location)
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._closed = False
        self.seen: tuple[int, str] | None = None
        """Number and hash of the last entry that this process read or wrote in order."""
        self.sums: dict[tuple[str, str], tuple[tuple[int, str], Total]] = {}
        """What the runs of a dataset whose names begin so were charged, up to the entry of this number and
        hash."""
        self._path = None if location.path is None else location.path.absolute()
        self._file: tuple[int, int] | None = None

    def close(self) -> None:
        """Close every connection. The store cannot be used afterwards."""
        self._closed = True
        self._engine.dispose(close=self._pid == os.getpid())

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A read-only snapshot."""
        with self._connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A transaction that holds the ledger against every other writer, durable at its end."""
        self._claim()
        with self._lock, self._connect() as connection:
            connection.execution_options(tacit_write=True)
            with connection.begin():
                yield connection

    @contextmanager
    def _connect(self) -> Iterator[sa.Connection]:
        self._claim()
        with self._translated(), self._engine.connect() as connection:
            yield connection

    def _claim(self) -> None:
        if self._closed:
            raise LedgerError(
                f"The ledger {self.location.name} has been closed.",
                "Open it again with tacit.Ledger.open.",
                location=self.location.name,
            )
        self._check_file()
        if self._pid != os.getpid():
            self._engine.dispose(close=False)
            self._lock, self._pid = threading.Lock(), os.getpid()

    def _check_file(self) -> None:
        """Refuse a file that is not the one that was opened: connections would go on with the old one."""
        if self._path is None:
            return
        try:
            found = self._path.stat()
        except OSError:
            if self._file is not None:
                raise self.corrupted("has been removed since it was opened") from None
            return
        if self._file is None:
            self._file = found.st_dev, found.st_ino
        elif self._file != (found.st_dev, found.st_ino):
            raise self.corrupted("has been replaced by another file since it was opened")

    def exists(self, connection: sa.Connection) -> bool:
        """Whether the database holds a ledger; raises if a later tacit wrote it, or it is none."""
        tables = set(sa.inspect(connection).get_table_names())
        if schema.state.name not in tables:
            if self.location.path is not None and tables:
                raise self.corrupted(
                    "holds other tables, and no ledger", "Give the ledger a file of its own."
                )
            if any(table in tables for table in schema.metadata.tables) or schema.left_over(connection):
                raise self.corrupted("has lost its state")
            return False
        version = connection.scalar(sa.select(schema.state.c.schema_version))
        if not isinstance(version, int) or version < 1:
            raise self.corrupted("has lost its state")
        if version > schema.VERSION:
            raise LedgerTooNew(
                f"The ledger {self.location.name} was written by a later version of tacit "
                f"(layout {version}; this version reads up to {schema.VERSION}).",
                "Upgrade tacit.",
                location=self.location.name,
                version=version,
            )
        return True

    def create(self, connection: sa.Connection, head: str) -> None:
        """Make an empty ledger, unless another process just has; whoever makes it adds the first entry."""
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
        if not self.exists(connection):
            schema.create(connection)
            connection.execute(
                schema.state.insert().values(id=1, schema_version=schema.VERSION, entries=0, head=head)
            )

    def lock(self, connection: sa.Connection) -> tuple[int, str]:
        """Take the ledger in a write transaction; returns how many entries it has, and the last hash."""
        row = connection.execute(_STATE).one_or_none()
        if row is None:
            raise self.corrupted("has lost its state")
        return row.entries, row.head

    def corrupted(
        self,
        problem: str,
        next_step: str = "Restore it from a backup; what was spent since then is spent.",
        **fields: Any,
    ) -> LedgerCorrupted:
        """The error for a ledger that cannot be trusted."""
        name = self.location.name
        return LedgerCorrupted(f"The ledger {name} {problem}.", next_step, location=name, **fields)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        driver: Any = self._engine.dialect.dbapi
        try:
            yield
        except (sa.exc.SQLAlchemyError, driver.Error, UnicodeError) as error:
            original = getattr(error, "orig", None) or error
            raise self._explain(original) from error

    def _explain(self, error: BaseException) -> LedgerError:
        name, detail = self.location.name, str(error).strip()
        code = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None) or ""
        if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_ERROR", "42P01", "42703")):
            return self.corrupted(f"is damaged, or not a ledger: {detail}")
        if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "42501", "25006")):
            return LedgerUnwritable(
                f"The ledger {name} cannot be opened or written: {detail}.",
                "Check its permissions and those of its directory.",
                location=name,
            )
        if code.startswith(("SQLITE_FULL", "SQLITE_IOERR", "53")):
            return LedgerUnwritable(
                f"The ledger {name} cannot be written: {detail}.",
                "Check the disk. Nothing was charged.",
                location=name,
            )
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "55P03")):
            return LedgerError(
                f"The ledger {name} has been in use elsewhere for {PATIENCE:g} seconds.",
                "Try again. Nothing was charged.",
                location=name,
            )
        if self.location.path is None and not code:
            return LedgerError(
                f"The database of the ledger {name} cannot be reached: {detail}",
                "Check that it runs, and the host, port, database, user and password of the URL.",
                location=name,
            )
        return LedgerError(
            f"The ledger {name} failed: {detail}",
            "Look at its entries before charging again.",
            location=name,
        )


def _engine(location: Location) -> sa.Engine:
    sqlite = location.path is not None
    options: dict[str, Any]
    if sqlite:
        options = {"connect_args": {"timeout": PATIENCE}}
    elif "connect_timeout" in location.url.query:
        options = {"pool_pre_ping": True}
    else:
        options = {"pool_pre_ping": True, "connect_args": {"connect_timeout": _CONNECT_TIMEOUT}}
    try:
        engine = sa.create_engine(location.url, **options)
    except ImportError as error:
        raise LedgerError(
            f"The ledger {location.name} needs a driver that is not installed: {error}.",
            "Install it with: pip install 'tacit[postgres]'.",
            location=location.name,
        ) from error
    sa.event.listen(engine, "connect", _prepare_sqlite if sqlite else _prepare_postgres)
    if sqlite:
        sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, record: Any) -> None:
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous=EXTRA").close()


def _prepare_postgres(connection: Any, record: Any) -> None:
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false) "
        "WHERE current_setting('synchronous_commit') IN ('off', 'local')"
    )
    connection.execute(f"SET lock_timeout = '{PATIENCE:g}s'")
    connection.commit()


def _begin_sqlite(connection: sa.Connection) -> None:
    statement = "BEGIN IMMEDIATE" if connection.get_execution_options().get("tacit_write") else "BEGIN"
    driver: Any = connection.connection
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            driver.execute(statement).close()
            return
        except connection.dialect.dbapi.OperationalError as error:  # type: ignore[union-attr]
            busy = error.sqlite_errorname.startswith("SQLITE_BUSY")
            if not busy or time.monotonic() > deadline:
                raise
        time.sleep(0.01)
