"""Objects that keep something and cannot be put back: whether one is as it was can still be told."""

from __future__ import annotations

import contextvars
import logging
import queue
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

from tacit.training.isolation.slots import attributes, slots

__all__ = ["moves", "position", "value_of"]

_WAITED_FOR = (threading.Event, threading.Semaphore, threading.Barrier, threading.Condition)
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_FIXED = (types.ModuleType, type)


def moves(each: Any) -> bool:
    """Whether an object may keep something that nothing but :func:`position` tells.

    These are iterators, locks, events, loggers, and objects of the standard library that are made in C:
    a digest or a queue. What other packages make in C is not known.
    """
    if isinstance(each, (*_WAITED_FOR, logging.Logger)):
        return True
    kind: Any = type(each)
    if isinstance(each, _FIXED) or attributes(each) is not None or slots(kind):
        return False
    return isinstance(each, Iterator) or kind.__module__.partition(".")[0] in sys.stdlib_module_names


def value_of(variable: contextvars.ContextVar[Any]) -> Any:
    """The value or the default of a variable of the context; None if it has neither."""
    try:
        return variable.get()
    except LookupError:
        return None


def position(each: Any) -> Any:
    """What an object keeps, as far as that can be told without moving it."""
    if isinstance(each, contextvars.ContextVar):
        return id(value_of(each))
    if isinstance(each, contextvars.Context):
        return [(id(variable), id(value)) for variable, value in each.items()]
    if isinstance(each, types.GeneratorType):
        frame = each.gi_frame
        return frame and (frame.f_lasti, [id(value) for value in frame.f_locals.values()])
    if isinstance(each, queue.SimpleQueue):
        held = [each.get_nowait() for _ in range(each.qsize())]
        for one in held:
            each.put(one)
        return [id(one) for one in held]
    if isinstance(each, logging.Logger):
        held = [id(one) for one in (*each.handlers, *each.filters)]
        return each.level, each.disabled, each.propagate, held
    if isinstance(each, _WAITED_FOR):
        return [value for value in vars(each).values() if isinstance(value, int | bool)]
    if isinstance(each, _LOCKS):
        return repr(each)
    if hasattr(each, "hexdigest"):
        return each.hexdigest()
    if hasattr(each, "flush") and hasattr(each, "copy"):
        return each.copy().flush()
    try:
        return repr(each.__reduce__())
    except Exception:
        return repr(each)
