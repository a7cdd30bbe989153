"""Which rule serves which parameter, found by watching two tiny batches go through the model.

The first example, twice and three times, goes through the model. A dimension of a layer's input
that is 2 and then 3 is the one examples lie along; nothing else about the input is used. A
parameter that is used outside a layer with a rule, or in a call in which the examples lie along
no one dimension, is left to the fallback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from tacit.training import rewrites, rules, tree
from tacit.training.checking import check_model

# Questions about a tensor that are no use of its values.
_QUESTIONS = {"shape", "dtype", "device", "ndim", "requires_grad", "is_leaf", "layout", "size", "dim"}


@dataclass(frozen=True)
class Routes:
    """Batch dimension of every call of every ruled layer, by name; and what is left over."""

    dimensions: dict[str, tuple[int, ...]]
    rewritten: frozenset[str]
    fallback: tuple[str, ...]


_ROUTES: WeakKeyDictionary[nn.Module, dict[Any, Routes]] = WeakKeyDictionary()
_MOST_ROUTES = 64


class Parts:
    """A model's layers and trainable parameters by name, looked up once per call."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.layers = dict(model.named_modules())
        self.trainable: dict[str, nn.Parameter] = {}
        seen = set()
        for prefix, layer in self.layers.items():
            for name, each in layer._parameters.items():
                if each is not None and each.requires_grad and id(each) not in seen:
                    seen.add(id(each))
                    self.trainable[f"{prefix}.{name}" if prefix else name] = each


def routes_for(parts: Parts, inputs: Any) -> Routes:
    """The routes for this model as it stands and inputs of these shapes; made once, then kept."""
    model = parts.model
    key = (
        tuple((id(layer), type(layer), layer.training) for layer in parts.layers.values()),
        tuple((name, id(each)) for name, each in parts.trainable.items()),
        tuple((leaf.shape[1:], leaf.dtype) for leaf in tree.tensors(inputs)),
    )
    kept = _ROUTES.setdefault(model, {})
    if key not in kept:
        check_model(model)
        if len(kept) >= _MOST_ROUTES:
            kept.clear()
        kept[key] = _make(model, inputs)
    return kept[key]


def _make(model: nn.Module, inputs: Any) -> Routes:
    trainable = {id(each): name for name, each in model.named_parameters() if each.requires_grad}
    ruled: dict[str, nn.Module] = {}
    rewritten: set[str] = set()
    owned: set[int] = set()
    for name, layer in model.named_modules():
        if id(layer) in owned:
            continue
        if rewrites.rewritable(layer):
            rewritten.add(name)
            owned.update(map(id, layer.modules()))
        elif rules.rule_for(layer) is None:
            continue
        if any(id(each) in trainable for each in layer.parameters()):
            ruled[name] = layer
    rewritten &= set(ruled)
    two, three = (_observe(model, inputs, size, ruled, set(trainable)) for size in (2, 3))
    left = two.direct | three.direct
    dimensions: dict[str, tuple[int, ...]] = {}
    for name, layer in ruled.items():
        found = [_dimension(*pair) for pair in zip(two.calls[name], three.calls[name], strict=False)]
        fits = len(two.calls[name]) == len(three.calls[name]) and all(
            dimension is not None and _fits(layer, dimension, len(shape))
            for dimension, shape in zip(found, two.calls[name], strict=True)
        )
        if fits:
            dimensions[name] = tuple(dimension for dimension in found if dimension is not None)
        else:
            left.update(id(each) for each in layer.parameters() if id(each) in trainable)
    # A parameter is served by the fallback alone or not at all: its uses must be added up first.
    fallback = tuple(name for key, name in trainable.items() if key in left)
    return Routes(dimensions, frozenset(rewritten), fallback)


def _fits(layer: nn.Module, dimension: int, dimensions: int) -> bool:
    rule = rules.rule_for(layer)
    if rule is not None:
        return rule.fits(layer, dimension, dimensions)
    return dimensions == 3 and dimension == rewrites.batch_dimension(layer)


def _dimension(two: tuple[int, ...], three: tuple[int, ...]) -> int | None:
    """The one dimension that is 2 in the first shape and 3 in the second, others being equal."""
    if len(two) != len(three):
        return None
    differ = [number for number, sizes in enumerate(zip(two, three, strict=True)) if sizes[0] != sizes[1]]
    if len(differ) != 1 or (two[differ[0]], three[differ[0]]) != (2, 3):
        return None
    return differ[0]


@dataclass
class _Seen:
    calls: dict[str, list[tuple[int, ...]]]
    direct: set[int] = field(default_factory=set)


class _Uses(TorchFunctionMode):
    """Notes parameters used where no layer with a rule answers for them."""

    def __init__(self, parameters: set[int], seen: _Seen) -> None:
        super().__init__()
        self.parameters, self.seen = parameters, seen
        self.answered: list[set[int]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(getattr(func, "__self__", None), "__name__", None) or getattr(func, "__name__", "")
        if name not in _QUESTIONS:
            for leaf in tree.tensors((args, kwargs)):
                if id(leaf) in self.parameters and not any(id(leaf) in own for own in self.answered):
                    self.seen.direct.add(id(leaf))
        return func(*args, **(kwargs or {}))


def _observe(
    model: nn.Module, inputs: Any, size: int, ruled: dict[str, nn.Module], parameters: set[int]
) -> _Seen:
    seen = _Seen({name: [] for name in ruled})
    uses = _Uses(parameters, seen)
    handles = []
    for name, layer in ruled.items():

        def before(module: nn.Module, args: Any, kwargs: Any, name: str = name) -> None:
            first = layer_input(args, kwargs)
            seen.calls[name].append(tuple(first.shape) if isinstance(first, Tensor) else ())
            uses.answered.append({id(each) for each in module.parameters()})

        def after(module: nn.Module, args: Any, output: Any) -> None:
            uses.answered.pop()

        handles.append(layer.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(layer.register_forward_hook(after))

    def repeated(leaf: Any) -> Any:
        return leaf[:1].expand(size, *leaf.shape[1:]).clone() if tree.batched(leaf) else leaf

    args, kwargs = tree.mapped(repeated, tree.arguments(inputs))
    buffers = {name: each.clone() for name, each in model.named_buffers()}
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), uses:
            functional_call(model, buffers, args, kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def layer_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a layer was called on."""
    return args[0] if args else kwargs.get("input", kwargs.get("query"))


@contextmanager
def constants(trainable: dict[str, nn.Parameter]) -> Iterator[None]:
    """The parameters constants within; trainable again afterwards."""
    try:
        for each in trainable.values():
            each.requires_grad_(False)
        yield
    finally:
        for each in trainable.values():
            each.requires_grad_(True)
