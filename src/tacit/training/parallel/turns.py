"""Turns: one thread at a time trains a model, since gradients, hooks and weights belong to the model."""

from __future__ import annotations

import threading
from types import TracebackType
from weakref import WeakKeyDictionary

from torch import nn

from tacit.errors import InvalidValue

_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()


class Turn:
    """Within this context only this thread may train the model; another thread is refused at once.

    Two steps at once would mix their gradients: the clipped sum of one with the noise of the other.
    """

    __slots__ = ("_lock", "_model")

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._lock = _LOCKS.get(model) or _LOCKS.setdefault(model, threading.RLock())

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise InvalidValue(
                "model", type(self._model).__name__, "trained by one thread at a time",
                "Another step on this model is running: wait for it, or train a copy of the model.",
            )  # fmt: skip

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()
