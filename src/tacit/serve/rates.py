"""How often somebody may ask, and how many questions of one analyst are answered at a time.

Requests are allowed so many at once, and as many again in a minute: a bucket holds so many drops, each
request takes one, and one minute fills it. Buckets and turns are those of one process; a bucket is forgotten
when it is full again. What is refused is refused from what the caller has sent itself, and never from what
the rows hold.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

__all__ = ["RETRY_AFTER", "Rate", "Turns"]

RETRY_AFTER = 10
"""Seconds after which to ask again, always the same."""
_MOST = 10_000


class Rate:
    """A limit per minute on something, for each name apart; 0 is no limit.

    >>> now = 0.0
    >>> rate = Rate(2, lambda: now)
    >>> [rate.take("ada"), rate.take("ada"), rate.take("ada"), rate.take("bob")]
    [True, True, False, True]
    >>> now = 30.0
    >>> [rate.take("ada"), rate.take("ada")]
    [True, False]
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._clock, self._lock = clock, threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> bool:
        """Take one, if there is one left."""
        return not self.per_minute or self._left(name, 1)

    def spent(self, name: str) -> bool:
        """Whether there is none left; nothing is taken."""
        return bool(self.per_minute) and not self._left(name, 0)

    def _left(self, name: str, taken: int) -> bool:
        with self._lock:
            now = self._clock()
            left, then = self._buckets.pop(name, (float(self.per_minute), now))
            left = min(float(self.per_minute), left + (now - then) * self.per_minute / 60)
            enough = left >= 1
            self._buckets[name] = (left - taken if enough else left), now
            while len(self._buckets) > _MOST:
                self._buckets.popitem(last=False)
            return enough


class Turns:
    """So many at a time for each name; further ones of the same name wait, and keep no other name waiting.

    >>> turns = Turns(1)
    >>> with turns.of("ada"), turns.of("bob"):
    ...     pass
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._free, self._taken = threading.Condition(), Counter[Hashable]()

    @contextmanager
    def of(self, name: Hashable) -> Iterator[None]:
        """Wait until this name has a turn, and hold it for the body."""
        with self._free:
            self._free.wait_for(lambda: self._taken[name] < self.most)
            self._taken[name] += 1
        try:
            yield
        finally:
            with self._free:
                self._taken[name] -= 1
                if not self._taken[name]:
                    del self._taken[name]
                self._free.notify_all()
