"""What a service keeps open between two requests: the ledger of each dataset, and sources of rows.

To open a ledger takes several queries, and to open a source an engine, a look at the files and the cleaning
of each column as a query: more than most questions take. A source serves one request at a time, and is closed
when its rows or its schema have changed, when too many others were asked since, or with the service. How
soon a question is answered tells therefore whether the dataset was asked lately, by anybody.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tacit.errors import TacitError
from tacit.ledger import Ledger

if TYPE_CHECKING:
    from tacit.data.source import PrivateSource
    from tacit.data.spark import SparkTables

__all__ = ["Keeping"]

MOST_SOURCES = 8
"""So many sources are asked at a time, and so many are kept open while nobody asks them."""


class Keeping:
    """Ledgers and sources that are open; threads share it."""

    def __init__(self) -> None:
        self._lock, self._turns = threading.Lock(), threading.BoundedSemaphore(MOST_SOURCES)
        self._ledgers: dict[str, Ledger] = {}
        self._idle: OrderedDict[PrivateSource, tuple[str, ...]] = OrderedDict()
        self._spark: SparkTables | None = None
        self._closed = False

    def spark(self, master: str) -> SparkTables:
        """The tables of Spark, which starts when the first of them is looked up and ends with the process."""
        from tacit.data.spark import SparkTables

        with self._lock:
            if self._spark is None:
                self._spark = SparkTables(master)
            return self._spark

    def spark_ended(self) -> bool:
        """Whether Spark was started here, and its Java machine is gone."""
        return self._spark is not None and self._spark.ended

    def ledger(self, place: str, dataset: str) -> Ledger:
        """The ledger, open at a dataset."""
        with self._lock:
            found = self._ledgers.get(dataset)
        if found is None:
            opened = Ledger.open(place, dataset=dataset)
            with self._lock:
                found = self._ledgers.setdefault(dataset, opened)
            if found is not opened:
                opened.close()
        return found

    @contextmanager
    def source(self, key: tuple[str, ...], opened: Callable[[], PrivateSource]) -> Iterator[PrivateSource]:
        """A source for one request: one that waits, under the same key, or a new one.

        ``key`` begins with the name of the dataset; sources of that name under another key are closed.
        """
        with self._turns:
            yield from self._lent(key, opened)

    def _lent(self, key: tuple[str, ...], opened: Callable[[], PrivateSource]) -> Iterator[PrivateSource]:
        with self._lock:
            old = [one for one, known in self._idle.items() if known[0] == key[0] and known != key]
            fitting = [one for one, known in self._idle.items() if known == key]
            found = fitting[-1] if fitting else None
            for one in (*old, *([] if found is None else [found])):
                del self._idle[one]
        for one in old:
            one.close()
        lent = opened() if found is None else found
        whole = False
        try:
            yield lent
            whole = True
        except TacitError:
            whole = True  # a refusal, or a failure of the engine, which the source itself remembers
            raise
        finally:
            self._back(lent, key, whole and not lent.failed)

    def _back(self, lent: PrivateSource, key: tuple[str, ...], whole: bool) -> None:
        with self._lock:
            kept = whole and not self._closed
            over = [] if kept else [lent]
            if kept:
                self._idle[lent] = key
            while len(self._idle) > MOST_SOURCES:
                over.append(self._idle.popitem(last=False)[0])
        for one in over:
            one.close()

    def close(self) -> None:
        """Close everything that is not in use."""
        with self._lock:
            self._closed = True
            ledgers, sources = list(self._ledgers.values()), list(self._idle)
            self._ledgers.clear()
            self._idle.clear()
        for ledger in ledgers:
            ledger.close()
        for source in sources:
            source.close()
