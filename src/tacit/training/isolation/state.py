"""What model and loss hold, put back after every pass over private rows.

Attributes of modules, of the loss and of the objects they hold, entries of lists, dictionaries and sets in
them, variables that their functions enclose, generators of random numbers, and the storages of parameters,
buffers and other tensors, with their gradients and whether they are trained.
With ``contents`` also settings of the process and the thread (:mod:`.ambient`). Objects of the standard
library that can be looked at but not put back (locks, iterators, digests) must be as they were.
What is written *into* a tensor is put back by :class:`~tacit.training.isolation.recording.Recording`, which
sees the write; ``contents`` compares the numbers too, for passes in which values may leave PyTorch.
"""

from __future__ import annotations

import contextvars
import copy
import ctypes
import decimal
import functools
import gc
import io
import operator
import random
import types
import weakref
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.errors import NotIsolated
from tacit.training.batches import tree
from tacit.training.isolation.ambient import Ambient, context_restorer
from tacit.training.isolation.containers import (
    entries,
    items,
    put_entries,
    put_items,
    same_entries,
    same_items,
)
from tacit.training.isolation.pinned import pinned
from tacit.training.isolation.positions import moves, position, value_of
from tacit.training.isolation.recording import Recording
from tacit.training.isolation.slots import attributes, put_slot, slot, slots
from tacit.training.isolation.written import as_written

_LEFT_ALONE = ("torch.utils.data", "torch.distributed", "tacit.", "threading", "logging")
_MOST = 100_000
_SMALL = 1 << 20


def storages(model: nn.Module) -> dict[int, str]:
    """The parameters and buffers of a model by the addresses of their storages."""
    found: dict[int, str] = {}
    for prefix, layer in model.named_modules():
        for kind, held in (("parameter", layer._parameters), ("buffer", layer._buffers)):
            for name, each in held.items():
                if each is not None:
                    path = f"{prefix}.{name}" if prefix else name
                    found.setdefault(each.untyped_storage()._cdata, f"{kind} {path!r}")
    return found


@contextmanager
def guarded(model: nn.Module, loss: Any, data: Any, *, resumed: bool = False) -> Iterator[None]:
    """Within, model and loss may run on these examples; what they hold is afterwards what it was.

    ``resumed``: on the way back of an earlier pass.
    """
    state = State(model, loss, contents=True)
    try:
        with as_written(), Recording(tree.tensors(data), storages(model), resumed=resumed):
            yield
    finally:
        state.restore()


class State:
    """Model and loss as they are now; :meth:`restore` puts them back."""

    def __init__(self, *holders: Any, contents: bool = False) -> None:
        self._objects: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._empty: list[dict[Any, Any]] = []
        self._lists: list[tuple[Any, list[Any]]] = []
        self._cells: list[tuple[Any, Any]] = []
        self._tensors: list[tuple[Tensor, Tensor, int, Any]] = []
        self._flags: list[tuple[Tensor, bool, Tensor | None]] = []
        self._others: list[Callable[[], Any]] = []
        self._slots: list[tuple[Any, Any, Any]] = []
        self._arrays: list[tuple[Any, Any]] = []
        self._functions: list[types.FunctionType] = []
        self._defaults: list[tuple[types.FunctionType, tuple[Any, ...]]] = []
        self._classes: list[tuple[type, dict[str, Any]]] = []
        self._moving: list[tuple[Any, Any]] = []
        self._contents = contents
        self._copies: list[Tensor] = []
        seen: set[int] = set()
        waiting = list(holders)
        while waiting and len(seen) < _MOST:
            each = waiting.pop()
            if type(each) in _ATOMS or id(each) in seen:
                continue
            seen.add(id(each))
            if type(each) is dict and not each:
                self._empty.append(each)
            else:
                waiting.extend(self._noted(each))
        self._globals = pinned(holders, self._functions)
        self._ambient = Ambient() if contents else None

    @classmethod
    def of(cls, model: nn.Module, loss: Any) -> State:
        """Model and loss as they are now; the last state again, if they hold what they held then.

        To compare everything with what was noted costs a third of noting it. Only the last state is kept, and
        only as long as its model.
        """
        if _LAST:
            known, same_loss, state = _LAST[0]
            if known() is model and same_loss is loss and state._unchanged():
                state._renew_flags()
                return state
        state = cls(model, loss)
        _LAST[:] = [(weakref.ref(model, lambda gone: _LAST.clear()), loss, state)]
        return state

    def _unchanged(self) -> bool:
        """Whether all that was noted is still there, and can be told by identity."""
        return (
            not self._others
            and not self._arrays
            and not any(map(dict.__len__, self._empty))
            and all(same_items(now, before) for now, before in self._objects)
            and all(same_entries(listed, kept) for listed, kept in self._lists)
            and all(_content(cell) is value for cell, value in self._cells)
            and all(slot(each, member) is value for each, member, value in self._slots)
            and all(all(map(operator.is_, _fixed(function), kept)) for function, kept in self._defaults)
            and all(same_items(vars(kind), kept) for kind, kept in self._classes)
            and not self._moved()
        )

    def _renew_flags(self) -> None:
        self._flags = [(each, each.requires_grad, each.grad) for each, _, _ in self._flags]

    def _moved(self) -> list[tuple[Tensor, Tensor]]:
        """The tensors whose storage is another, or lies otherwise, with what they were."""
        return [
            (tensor, alias)
            for tensor, alias, storage, place in self._tensors
            if tensor.untyped_storage()._cdata != storage or _lies(tensor) != place
        ]

    def holds(self, storage: int) -> bool:
        """Whether model or loss held a storage, by its address, or their functions name it as a global."""
        return any(each == storage for _, _, each, _ in self._tensors) or storage in self._globals

    def restore(self) -> list[Tensor]:
        """Put everything back; the tensors whose storage or numbers had been replaced."""
        changed = []
        for now, before in self._objects:
            if not same_items(now, before):
                put_items(now, before)
        if any(map(dict.__len__, self._empty)):
            for now in self._empty:
                put_items(now, {})
        for listed, kept in self._lists:
            if not same_entries(listed, kept):
                put_entries(listed, kept)
        for cell, value in self._cells:
            if _content(cell) is not value:
                cell.cell_contents = value
        for each, member, value in self._slots:
            if slot(each, member) is not value:
                put_slot(each, member, value)
        for function, fixed in self._defaults:
            if not all(map(operator.is_, _fixed(function), fixed)):
                function.__defaults__, function.__kwdefaults__, function.__code__ = fixed
        for kind, before in self._classes:
            if not same_items(vars(kind), before):
                _put_attributes(kind, before)
        for put_back in self._others:
            put_back()
        for tensor, needed, grad in self._flags:
            if tensor.requires_grad is not needed:
                tensor.requires_grad_(needed)
            if tensor.grad is not grad:
                tensor.grad = grad
        for tensor, alias in self._moved():
            tensor.data = alias
            changed.append(tensor)
        with torch.no_grad():
            for (tensor, *_), copy in zip(self._tensors, self._copies, strict=False):
                if not _same(tensor, copy):
                    tensor.copy_(copy)
                    changed.append(tensor)
        for values, numbers in self._arrays:
            values[...] = numbers
        if self._ambient is not None:
            self._ambient.restore()
        for each, before in self._moving:
            if position(each) != before:
                raise NotIsolated(
                    "model and loss", f"a {type(each).__name__} that goes on from one example to the next",
                    "such that what they hold can be put back between examples",
                    "Keep numbers in attributes, lists or dictionaries, not in generators or iterators.",
                )  # fmt: skip
        return changed

    def _noted(self, each: Any) -> Iterator[Any]:
        """Note one thing, and give what it holds."""
        kind: Any = type(each)
        yield from self._within(each, kind)
        if kind not in _BARE and (isinstance(each, _CONTAINERS) or _plain_object(each)):
            held = attributes(each)
            if held is not None:
                yield held
            for member in slots(kind):
                value = slot(each, member)
                self._slots.append((each, member, value))
                yield value
            if kind not in _PLAIN_KINDS:
                yield from kind.__mro__

    def _within(self, each: Any, kind: type) -> Iterator[Any]:
        """Note what a thing of a known kind holds besides attributes, and give that."""
        if isinstance(each, Tensor):
            plain = kind in (Tensor, nn.Parameter, nn.Buffer) and each.layout == torch.strided
            if plain and not torch._C._functorch.is_functorch_wrapped_tensor(each):
                storage = each.untyped_storage()._cdata
                self._tensors.append((each, each.detach(), storage, _lies(each)))
                if each.is_leaf:
                    self._flags.append((each, each.requires_grad, each.grad))
                if self._contents:
                    self._copies.append(each.detach().clone())
        elif isinstance(each, dict):
            kept = items(each)
            if kept:
                self._objects.append((each, kept))
                yield from kept.values()
                yield from (key for key in kept if type(key) not in _ATOMS)
            else:
                self._empty.append(each)
            if isinstance(each, defaultdict):
                yield each.default_factory
        elif isinstance(each, types.MappingProxyType):
            yield from gc.get_referents(each)
        elif isinstance(each, list | deque | set):
            self._lists.append((each, list(entries(each))))
            yield from list(entries(each))
        elif isinstance(each, tuple | frozenset):
            yield from entries(each)
        elif isinstance(each, np.ndarray):
            small = self._contents or each.nbytes <= _SMALL
            if small and each.flags.writeable:
                self._arrays.append((each, each.copy()))
            if each.dtype == object:
                yield from each.ravel().tolist()
        elif isinstance(each, bytearray | array):
            self._others.append(partial(each.__setitem__, slice(None), each[:]))
        elif isinstance(each, memoryview):
            yield each.obj
        elif isinstance(each, _CDATA):
            memory = memoryview(each).cast("B")
            self._others.append(partial(memory.__setitem__, slice(None), bytes(memory)))
        elif isinstance(each, io.StringIO | io.BytesIO):
            self._others.append(partial(_rewrite, each, each.getvalue(), each.tell()))
        elif isinstance(each, functools._lru_cache_wrapper):
            if self._contents:
                self._others.append(each.cache_clear)
        elif isinstance(each, decimal.Context):
            if self._contents:
                self._others.append(context_restorer(each))
        elif isinstance(each, contextvars.ContextVar | contextvars.Context):
            if self._contents:
                self._moving.append((each, position(each)))
            values = each.values() if isinstance(each, contextvars.Context) else (value_of(each),)
            yield from values
        elif isinstance(each, type):
            if _owned(each):
                self._classes.append((each, dict(vars(each))))
                yield from (value for value in vars(each).values() if isinstance(value, _SHARED))
        elif isinstance(each, random.Random):
            self._others.append(partial(each.setstate, each.getstate()))
        elif isinstance(each, torch.Generator):
            self._others.append(partial(each.set_state, each.get_state()))
        elif isinstance(each, np.random.Generator | np.random.RandomState):
            bits = each.bit_generator if isinstance(each, np.random.Generator) else each._bit_generator
            self._others.append(partial(setattr, bits, "state", copy.deepcopy(bits.state)))
        elif isinstance(each, types.FunctionType):
            self._functions.append(each)
            for cell in each.__closure__ or ():
                self._cells.append((cell, _content(cell)))
                yield _content(cell)
            self._defaults.append((each, _fixed(each)))
            yield from (each.__defaults__, each.__kwdefaults__)
        elif isinstance(each, types.MethodType):
            yield each.__self__
            yield each.__func__
        elif isinstance(each, types.BuiltinMethodType | types.MethodWrapperType):
            yield each.__self__
        elif isinstance(each, weakref.ref):
            yield each()
        elif isinstance(each, functools.partial):
            yield from (each.func, each.args, each.keywords)
        elif self._contents and moves(each):
            self._moving.append((each, position(each)))


_LAST: list[tuple[weakref.ref[nn.Module], Any, State]] = []


def _plain_object(each: Any) -> bool:
    """Whether a thing is an object with attributes, and not one that a run itself uses."""
    if isinstance(each, type | types.ModuleType) or _bare(each):
        return False
    return isinstance(each, nn.Module) or not type(each).__module__.startswith(_LEFT_ALONE)


def _bare(each: Any) -> bool:
    """Whether a thing has no attributes of its own."""
    kind: Any = type(each)
    return attributes(each) is None and not slots(kind)


_ATOMS = frozenset({str, int, float, bool, type(None), complex, bytes, range, torch.dtype, torch.device})
_BARE = frozenset({dict, list, set, deque, tuple, frozenset, types.CellType, types.MethodType})
_PLAIN_KINDS = frozenset({Tensor, nn.Parameter, nn.Buffer, OrderedDict, types.FunctionType})
_CONTAINERS = (dict, list, set, deque, tuple, frozenset, Tensor, np.ndarray)


_HEAP = 1 << 9
_SHARED = (types.FunctionType, list, dict, set, deque, Tensor)
_CDATA: Any = ctypes.c_int.__mro__[-2]


@functools.cache
def _owned(kind: type) -> bool:
    """Whether a class may keep what its objects share: one made by Python code that is not PyTorch's."""
    return bool(kind.__flags__ & _HEAP) and not kind.__module__.startswith(("torch.", *_LEFT_ALONE))


def _put_attributes(kind: type, kept: dict[str, Any]) -> None:
    for name in [name for name in vars(kind) if name not in kept]:
        type.__delattr__(kind, name)
    for name, value in kept.items():
        if vars(kind).get(name, kept) is not value:
            type.__setattr__(kind, name, value)


def _fixed(function: types.FunctionType) -> tuple[Any, ...]:
    return function.__defaults__, function.__kwdefaults__, function.__code__


def _rewrite(file: Any, content: Any, place: int) -> None:
    file.seek(0)
    file.truncate()
    file.write(content)
    file.seek(place)


def _lies(tensor: Tensor) -> Any:
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _same(one: Tensor, two: Tensor) -> bool:
    if torch.equal(one, two):
        return True
    return bool(((one == two) | ((one != one) & (two != two))).all())
