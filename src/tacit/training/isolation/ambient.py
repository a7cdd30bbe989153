"""Settings of the process and the thread, put back between examples.

Model code that may read values of an example (it is then alone in its pass) could write them where the next
example finds them without holding anything: into the precision of :mod:`decimal`, the seed of :mod:`random`,
the environment, a context variable. :class:`Ambient` notes these settings and puts them back:

===========  =========================================================================================
Python       variables of the context, and the context of :mod:`decimal` among them; filters of warnings;
             limits of recursion, digits and garbage collection; standard streams and hooks; tracing
process      environment, time zone, working directory, locale
generators   those of :mod:`random` and :mod:`numpy.random`; PyTorch's is seeded for each example
NumPy        how errors are treated, sizes of buffers, how arrays are printed
PyTorch      default type, threads, precision of products, determinism, autocast, how tensors are printed
===========  =========================================================================================

A variable of the context that had no value before cannot be emptied again, so that setting one is refused.
What another thread sets while a pass runs is put back too. Globals of modules, files and other processes are
not looked at: the guarantee assumes that no example is given to them.
"""

from __future__ import annotations

import contextvars
import decimal
import gc
import locale
import os
import random
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch

from tacit.errors import NotIsolated

__all__ = ["Ambient", "context_restorer"]

_FLAGS = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
_HOOKS = ("stdin", "stdout", "stderr", "displayhook", "excepthook")


class Ambient:
    """The settings as they are now; :meth:`restore` puts them back."""

    def __init__(self) -> None:
        self._put_back = [context_restorer(decimal.getcontext())]
        # From now on the variables of the context in which NumPy keeps its settings have values.
        np.seterr(**np.geterr())
        np.set_printoptions(**np.get_printoptions())
        self._variables = dict(contextvars.copy_context().items())
        self._settings = [(read, write, read()) for read, write in _SETTINGS]
        self._put_back += [partial(random.setstate, random.getstate())]
        self._put_back += [partial(np.random.set_state, np.random.get_state())]  # noqa: NPY002

    def restore(self) -> None:
        """Put the settings back; refuse a variable of the context that had no value."""
        for put_back in self._put_back:
            put_back()
        for read, write, before in self._settings:
            if read() != before:
                write(before)
        now = dict(contextvars.copy_context().items())
        for variable, value in self._variables.items():
            if now.pop(variable, None) is not value:
                variable.set(value)
        if now:
            raise NotIsolated(
                "model and loss", "a ContextVar that has a value since an example was computed",
                "such that what they hold can be put back between examples",
                "Give the variable a value before the run, or keep the number in an attribute.",
            )  # fmt: skip


def context_restorer(context: decimal.Context) -> Callable[[], None]:
    """What gives a context of :mod:`decimal` the precision, the flags and the traps that it has now."""
    kept = {name: getattr(context, name) for name in _FLAGS}
    signals = [(held, dict(held)) for held in (context.flags, context.traps)]

    def put_back() -> None:
        for name, value in kept.items():
            setattr(context, name, value)
        for held, before in signals:
            held.update(before)

    return put_back


def _put_environment(before: dict[str, str]) -> None:
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)
    if hasattr(time, "tzset"):
        time.tzset()


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _enter(folder: str | None) -> None:
    with suppress(OSError):
        os.chdir(folder or os.curdir)


def _locale() -> str:
    return locale.setlocale(locale.LC_ALL)


def _put_locale(before: str) -> None:
    with suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, before)


def _put_filters(before: tuple[Any, ...]) -> None:
    warnings.filters[:] = before  # type: ignore[index]
    mutated: Callable[[], None] = getattr(warnings, "_filters_mutated", lambda: None)
    mutated()


def _autocast() -> tuple[bool, torch.dtype]:
    return torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")


def _put_autocast(before: tuple[bool, torch.dtype]) -> None:
    torch.set_autocast_enabled("cpu", before[0])
    torch.set_autocast_dtype("cpu", before[1])


def _streams() -> dict[str, Any]:
    return {name: getattr(sys, name) for name in _HOOKS}


def _put_streams(before: dict[str, Any]) -> None:
    for name, value in before.items():
        setattr(sys, name, value)


def _printing() -> dict[str, Any]:
    return dict(vars(torch._tensor_str.PRINT_OPTS))


def _put_printing(before: dict[str, Any]) -> None:
    vars(torch._tensor_str.PRINT_OPTS).update(before)


def _collecting() -> tuple[Any, ...]:
    return (gc.isenabled(), *gc.get_threshold())


def _put_collecting(before: tuple[Any, ...]) -> None:
    if before[0]:
        gc.enable()
    else:
        gc.disable()
    gc.set_threshold(*before[1:])


_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (lambda: dict(os.environ), _put_environment),
    (_folder, _enter),
    (_locale, _put_locale),
    (lambda: tuple(warnings.filters), _put_filters),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (sys.getswitchinterval, sys.setswitchinterval),
    (sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    (_collecting, _put_collecting),
    (_streams, _put_streams),
    (sys.gettrace, sys.settrace),
    (sys.getprofile, sys.setprofile),
    (np.geterr, lambda before: np.seterr(**before)),
    (np.geterrcall, np.seterrcall),
    (np.getbufsize, np.setbufsize),
    (np.get_printoptions, lambda before: np.set_printoptions(**before)),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (_autocast, _put_autocast),
    (_printing, _put_printing),
)
"""How each setting is read, and how it is given the value that was read."""
