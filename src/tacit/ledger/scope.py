"""Scope: disjoint partitions whose charges do not add up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit import events
from tacit.errors import InvalidValue
from tacit.ledger.entries import Charge

if TYPE_CHECKING:
    from tacit.ledger.book import Book

__all__ = ["Scope"]


class Scope:
    """Disjoint partitions declared by :meth:`Ledger.parallel`; charge one of them by name."""

    def __init__(self, book: Book, name: str, partitions: tuple[str, ...]) -> None:
        self._book = book
        self.name = name
        self.partitions = partitions

    def charge(
        self,
        partition: str,
        event: events.Event,
        label: str,
        *,
        delta: float | None = None,
        noise: str = "float64",
    ) -> Charge:
        """As :meth:`Ledger.charge`, for a release that reads one partition only."""
        if partition not in self.partitions:
            raise InvalidValue(
                "partition",
                partition,
                f"one of the partitions of {self.name!r}: " + ", ".join(map(repr, self.partitions)),
                "Partitions are public and declared in advance.",
            )
        entry = self._book.charge(event, label, delta, noise, self.name, partition)
        return Charge(entry, self._book.store.location.name)

    def __enter__(self) -> Scope:
        return self

    def __exit__(self, *raised: object) -> None:
        return None

    def __repr__(self) -> str:
        return f"Scope({self.name!r}, partitions={self.partitions!r})"
