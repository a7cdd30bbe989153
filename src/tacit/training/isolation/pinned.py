"""Tensors that functions of model and loss name as globals."""

from __future__ import annotations

import types
from collections.abc import Container, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn, strided
from torch.multiprocessing.reductions import StorageWeakRef

_PINNED: WeakKeyDictionary[nn.Module, dict[Any, dict[int, StorageWeakRef]]] = WeakKeyDictionary()


def pinned(holders: tuple[Any, ...], functions: list[types.FunctionType]) -> Container[int]:
    """The storages of tensors that functions of model and loss name as globals, as they were at first sight.

    A tensor that takes such a name later, when examples have been seen, is not among them.
    """
    model, *rest = holders
    if not isinstance(model, nn.Module):
        return ()
    kept = _PINNED.setdefault(model, {})
    key = tuple(getattr(each, "__code__", None) or id(each) for each in rest)
    if key not in kept:
        found: dict[int, StorageWeakRef] = {}
        waiting, seen = list(functions), set()
        while waiting:
            function = waiting.pop()
            if id(function) in seen:
                continue
            seen.add(id(function))
            for name in _names(function.__code__):
                value: Any = function.__globals__.get(name)
                if type(value) in (Tensor, nn.Parameter) and value.layout == strided:
                    reference = StorageWeakRef(value.untyped_storage())  # type: ignore[no-untyped-call]
                    found[reference.cdata] = reference
                elif isinstance(value, types.FunctionType) and not value.__module__.startswith("torch"):
                    waiting.append(value)
        kept[key] = found
    return kept[key]


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _names(each)
