"""The process has one generator of random numbers for all its threads: a pass holds it while it runs.

A pass seeds the generator, reads its state and puts it back. Two threads that train at once would undo each
other's seeds, and they could wait for each other for ever: PyTorch reads the state under a lock of its own.
Python may collect garbage meanwhile and let the other thread run; that one then waits for PyTorch's lock
while it holds Python's.

What a thread does while it holds the generators must not wait for another thread that trains, nor for data
or other processes: two models that two threads train in each of two processes would wait for each other
crosswise. So passes hold the generators, one by one, and a step does not.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_HELD = threading.RLock()
_WITHIN: list[torch.Tensor] = []
"""The generator as it was before the first step that is running, once for each step that is."""


def generators_held() -> threading.RLock:
    """A context in which no other thread of the process runs a pass; a thread that wants to waits here.

    It is the lock itself, which an interrupt cannot leave taken and forgotten between two lines of Python.
    """
    return _HELD


@contextmanager
def generators_kept() -> Iterator[None]:
    """As :func:`generators_held`; afterwards the generator goes on from where it was."""
    with generators_held(), torch.random.fork_rng(devices=[]):
        yield


@contextmanager
def generators_seeded(seed: int) -> Iterator[None]:
    """Seed the generator; afterwards it goes on from where it was. Other threads may run passes within.

    Of several threads that are within, the last to leave puts the generator back to where the first one found
    it, so that no state is left behind that a pass has moved.
    """
    with _HELD:
        _WITHIN.append(torch.default_generator.get_state() if not _WITHIN else _WITHIN[0])
        torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        with _HELD:
            before = _WITHIN.pop()
            if not _WITHIN:
                torch.default_generator.set_state(before)


def _forked() -> None:
    """The thread that held the generators does not run in a process forked off this one."""
    global _HELD
    _HELD = threading.RLock()
    _WITHIN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
