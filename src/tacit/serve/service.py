"""Service: an open home of the curator's, with its store, its ledger and the folder of its data."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tacit import _validate
from tacit.errors import InvalidValue, LedgerMissing, ServiceRefused
from tacit.ledger import Allowance, Ledger
from tacit.serve.keeping import Keeping
from tacit.serve.rates import Rate
from tacit.serve.seeds import Seeds

if TYPE_CHECKING:
    from tacit.serve.store.database import Database
    from tacit.serve.store.holdings import Grant

__all__ = ["LOOPBACK", "NAME", "Place", "Service", "grant_has_ended", "refused"]

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""Names of users and datasets: nothing in them means anything to a shell, a path, SQL or HTML."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names of this machine: what is sent to one of them is read by nobody on the way."""

_MASTER = re.compile(r"(?!sc:)[\x21-\x7e]{1,200}")


def refused(status: int, problem: str, next_step: str = "") -> ServiceRefused:
    """The error for a request that the service refuses."""
    return ServiceRefused(problem, next_step, status=status)


def grant_has_ended() -> ServiceRefused:
    """The error for a request whose grant was revoked or has expired before it was charged."""
    advice = "Nothing was charged. Ask the curator for another grant."
    return refused(403, "The grant of this request has ended before the request was begun.", advice)


@dataclass(frozen=True)
class Place:
    """Where a service is: its folder, its database if not in there, the folder of data; its tick and limits.

    ``rate`` is how often a token may be used in a minute, ``queue`` how many jobs of an analyst may wait or
    run at a time, ``failures`` how many requests without a valid token an address may send in a minute; each
    in one process, and 0 for no limit. ``spark`` is the master of the Spark whose tables may be registered,
    such as ``local[2]``; without it only files are.
    """

    home: Path
    database: str | None = None
    data: Path | None = None
    tick: float = 0.0
    rate: int = 600
    queue: int = 20
    failures: int = 60
    spark: str | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.tick) and self.tick >= 0):
            raise InvalidValue("tick", self.tick, "a number of seconds, 0 or more")
        for name in ("rate", "queue", "failures"):
            _validate.count(name, getattr(self, name))
        if self.spark is not None and not _MASTER.fullmatch(self.spark):
            advice = "Spark Connect is not supported: its sessions do not say how a table is stored."
            raise InvalidValue("spark", self.spark, "local[2], say, or the URL of a cluster", advice)

    def __repr__(self) -> str:
        return f"Place({str(self.home)!r})"

    @property
    def ledger(self) -> str:
        """Where the ledger is: a file, or the database."""
        return self.database or str(self.home / "ledger.db")

    def open(self) -> Service:
        """Open the service, or make it."""
        from tacit.serve.store.database import Database

        for folder in (self.home, self.home / "work"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.data is None:
            (self.home / "data").mkdir(exist_ok=True)
        opened = Database.open(self.database or self.home / "service.db")
        return Service(self, opened, rate=Rate(self.rate))


@dataclass(frozen=True)
class Service:
    """An open service. Threads share it; close it, or use it in a ``with`` block."""

    place: Place
    database: Database
    clock: Callable[[], float] = field(default=time.time)
    keeping: Keeping = field(default_factory=Keeping, repr=False)
    rate: Rate = field(default_factory=lambda: Rate(0), repr=False)
    """How often each token may be used."""

    @property
    def data(self) -> Path:
        """The folder that sources are looked for in."""
        return self.place.data or self.place.home / "data"

    def now(self) -> float:
        """The time in seconds."""
        return self.clock()

    def visible(self) -> float:
        """When something that ends now is told: at once, or at the next tick."""
        now, tick = self.now(), self.place.tick
        return now if tick == 0 else math.ceil(now / tick) * tick

    def wait_for_tick(self) -> None:
        """Sleep until what ends now would be told. What begins next then tells no more of when it ended."""
        time.sleep(min(max(0.0, self.visible() - self.now()), self.place.tick))

    def ledger(self, dataset: str) -> AbstractContextManager[Ledger]:
        """The ledger, open at a dataset; it stays open with the service."""
        return nullcontext(self.keeping.ledger(self.place.ledger, dataset))

    def purse(self, ledger: Ledger, grant: Grant, run: str | None = None, *, resumed: bool = False) -> Ledger:
        """The ledger as a grant may charge it, for one request.

        Whether the grant is in force, and the request not cancelled, is looked up in the transaction that
        charges.
        """
        allowance = Allowance(grant.id, grant.budget, run, resumed)
        return ledger.within(allowance, check=lambda: self._require_in_force(grant, run), shared=True)

    def _require_in_force(self, grant: Grant, run: str | None) -> None:
        from tacit.serve.store import holdings, requests

        with self.database.read() as connection:
            found = holdings.grant(connection, grant.id)
            cancelled = run is not None and requests.is_cancelled(connection, run)
        if found is None or not found.valid(self.now()):
            raise grant_has_ended()
        if cancelled:
            raise refused(409, "The request was cancelled before it was charged.", "Nothing was charged.")

    @property
    def seeds(self) -> Seeds:
        """The seeds of requests that have not ended."""
        return Seeds(self.place.home / "work")

    def folder(self, request: str, attempt: int) -> Path:
        """Where an attempt at a request puts its files. None of them is shown unless this attempt ends it."""
        return self.place.home / "work" / request / str(attempt)

    def has_ledger(self) -> bool:
        """Whether a dataset was ever registered."""
        try:
            return bool(Ledger.datasets_in(self.place.ledger))
        except LedgerMissing:
            return False

    def close(self) -> None:
        """Close the database, and what is kept open."""
        self.keeping.close()
        self.database.close()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
