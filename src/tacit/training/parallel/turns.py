"""Turns: one thread at a time trains a model, since gradients, hooks and weights belong to the model.

Modules may share parameters (a part of a model, a stage of an auto-encoder, a compiled module), so a turn is
that of every parameter.
"""

from __future__ import annotations

import threading
from collections.abc import MutableMapping
from contextlib import ExitStack
from types import TracebackType

from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from tacit.errors import InvalidValue

_LOCKS: MutableMapping[Tensor, threading.RLock] = WeakIdKeyDictionary()


class Turn:
    """Within this context only this thread may train the model, or another with one of its parameters.

    Another thread is refused at once.

    Two steps at once would mix their gradients: the clipped sum of one with the noise of the other.
    """

    __slots__ = ("_held", "_model")

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._held = ExitStack()

    def __enter__(self) -> None:
        with ExitStack() as held:
            for parameter in self._model.parameters():
                lock = _LOCKS.get(parameter) or _LOCKS.setdefault(parameter, threading.RLock())
                if not lock.acquire(blocking=False):
                    raise InvalidValue(
                        "model", type(self._model).__name__, "trained by one thread at a time",
                        "Another step on this model is running: wait for it, or train a copy of the model.",
                    )  # fmt: skip
                held.callback(lock.release)
            self._held = held.pop_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._held.close()
