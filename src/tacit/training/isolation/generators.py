"""The process has one generator of random numbers for all its threads: a pass holds it while it runs.

A pass seeds the generator, reads its state and puts it back. Two threads that train at once would undo each
other's seeds, and they could wait for each other for ever: PyTorch reads the state under a lock of its own.
Python may collect garbage meanwhile and let the other thread run; that one then waits for PyTorch's lock
while it holds Python's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_HELD = threading.RLock()


@contextmanager
def generators_held() -> Iterator[None]:
    """Within, no other thread of the process runs a pass; a thread that wants to waits here."""
    with _HELD:
        yield


@contextmanager
def generators_kept() -> Iterator[None]:
    """As :func:`generators_held`; afterwards the generator goes on from where it was."""
    with _HELD, torch.random.fork_rng(devices=[]):
        yield


@contextmanager
def generators_seeded(seed: int) -> Iterator[None]:
    """Seed the generator; afterwards it goes on from where it was. Other threads may run passes within."""
    with _HELD:
        before = torch.default_generator.get_state()
        torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        with _HELD:
            torch.default_generator.set_state(before)


def _forked() -> None:
    """The thread that held the generators does not run in a process forked off this one."""
    global _HELD
    _HELD = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
