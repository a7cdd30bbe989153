"""What a reader of the ledger sees: entries, and the charge that made one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit.errors import LedgerError
from tacit.events import Event

if TYPE_CHECKING:
    from tacit.accounting.filters import Cost
    from tacit.ledger.work import Work

__all__ = ["Charge", "Entry", "LabelTotal", "Line"]


@dataclass(frozen=True)
class Entry:
    """One charge as the ledger keeps it.

    ``event`` is what was done, ``cost`` what the filter of that day counted for it, ``delta``
    the δ declared by the caller if any, ``noise`` the kind of noise (see
    :data:`tacit.guarantee.NOISE_KINDS`), ``work`` which steps of a run it pays for or takes. ``hash``
    covers everything here, and the entry before.
    """

    number: int
    dataset: str
    label: str
    event: Event
    scope: str | None
    partition: str | None
    cost: Cost
    mode: str
    delta: float | None
    noise: str
    time: str
    version: str
    hash: str
    work: Work | None = None


@dataclass(frozen=True)
class Line:
    """One line of a ledger's history: a charge, and the ε and δ that were spent in all after it."""

    entry: Entry
    epsilon: float
    delta: float


@dataclass(frozen=True)
class LabelTotal:
    """What was charged under one label; ``share`` is its part of the sum of all costs."""

    label: str
    charges: int
    share: float


class Charge:
    """A charge already made, durably. Enter it once, and make the release inside.

    The charge stands whatever happens inside: an exception passes through and gives nothing
    back, because what was computed before it may have been seen.
    """

    def __init__(self, entry: Entry, location: str) -> None:
        self.entry = entry
        self._location = location
        self._entered = False

    def __enter__(self) -> Entry:
        if self._entered:
            raise LedgerError(
                f"The charge for {self.entry.label!r} has been used already.",
                "One charge pays for one release: call ledger.charge again.",
                location=self._location,
            )
        self._entered = True
        return self.entry

    def __exit__(self, *raised: object) -> None:
        return None

    def __repr__(self) -> str:
        return f"Charge({self.entry!r})"
