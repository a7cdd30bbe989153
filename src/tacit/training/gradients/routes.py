"""Which rule serves which parameter, found by watching two tiny batches go through the model.

The first example twice, and the last three times, go through model and loss. A dimension of a layer's
input that is 2 and then 3 is the one examples lie along; nothing else about the input is used. A
parameter that is used outside a layer with a rule, or in a call in which the examples lie along
no one dimension, is left to the fallback; so is the whole model after an operation that may have moved
examples to other rows (:mod:`tacit.training.gradients.watching`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tacit.errors import InvalidValue, NotIsolated
from tacit.training.batches import tree
from tacit.training.gradients import rewrites, rules
from tacit.training.gradients.direct import Use, place
from tacit.training.gradients.fallback import Loss, check_losses
from tacit.training.gradients.watching import WatchedPass, Watching
from tacit.training.isolation.generators import generators_kept
from tacit.training.isolation.program import Program
from tacit.training.isolation.recording import Recording
from tacit.training.isolation.state import State, storages
from tacit.training.isolation.written import as_written


@dataclass(frozen=True)
class Routes:
    """Batch dimension of every call of every ruled layer, by name; and what is left over.

    ``places`` are those of the examples where the parameters in ``direct``, which no layer answers
    for, meet them. ``program`` is what has been proved of the passes made by these routes, and ``mapped`` of
    those that serve the ``fallback`` under ``vmap``. ``instead`` are the routes of a pass that is not proved.
    """

    dimensions: dict[str, tuple[int, ...]]
    rewritten: frozenset[str]
    fallback: tuple[str, ...]
    direct: tuple[str, ...] = ()
    places: tuple[int, ...] = ()
    program: Program = field(default_factory=Program, compare=False)
    mapped: Program = field(default_factory=Program, compare=False)
    instead: Routes | None = field(default=None, compare=False)


_ROUTES: WeakKeyDictionary[nn.Module, dict[Any, Routes]] = WeakKeyDictionary()
_MOST_ROUTES = 64


class Parts:
    """A model's layers and trainable parameters by name, looked up once per call."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.layers = dict(model.named_modules())
        self.holds: Callable[[int], bool] | None = None
        self.trainable: dict[str, nn.Parameter] = {}
        seen = set()
        for prefix, layer in self.layers.items():
            for name, each in layer._parameters.items():
                if each is not None and each.requires_grad and id(each) not in seen:
                    seen.add(id(each))
                    self.trainable[f"{prefix}.{name}" if prefix else name] = each

    @cached_property
    def names(self) -> dict[int, str]:
        """Parameters and buffers by the addresses of their storages."""
        return storages(self.model)


def routes_for(
    parts: Parts,
    loss: Loss,
    inputs: Any,
    targets: Any,
    hold: Callable[[Routes, bool], bool],
    restore: Callable[[], Any],
) -> Routes:
    """The routes for this model as it stands and examples of these shapes; made once, then kept.

    Routes that do not ``hold`` when tried are not used: the model is left to the fallback. Those that held
    for examples of other shapes, as for texts of another length, are tried ``again`` on fewer examples.
    Making routes runs the model on examples, so what they left in it is put back by ``restore``.
    """
    model = parts.model
    model_and_loss = (
        tuple(
            (id(layer), type(layer), layer.training, "forward" in layer.__dict__)
            for layer in parts.layers.values()
        ),
        tuple((name, id(each)) for name, each in parts.trainable.items()),
        getattr(loss, "__code__", loss),
        torch.is_autocast_enabled(next(iter(parts.trainable.values())).device.type),
    )
    key = (model_and_loss, tree.shape((inputs, targets)))
    kept = _ROUTES.setdefault(model, {})
    if key not in kept:
        if len(kept) >= _MOST_ROUTES:
            kept.clear()
        made = _make(model, loss, inputs, targets)
        served = len(made.fallback) < len(parts.trainable)
        instead = everything_by_itself(parts)
        again = any(each == made for other, each in kept.items() if other[0] == model_and_loss)
        kept[key] = replace(made, instead=instead) if served and hold(made, again) else instead
        if not served:
            kept[key] = made
        restore()
    return kept[key]


def forget(model: nn.Module) -> None:
    """Have the routes of a model found anew, since its code may run differently from when it was watched."""
    _ROUTES.pop(model, None)


def everything_by_itself(parts: Parts) -> Routes:
    """The routes of a model that only the fallback can serve."""
    return Routes({}, frozenset(), tuple(parts.trainable))


def _make(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, without: frozenset[str] = frozenset()
) -> Routes:
    """The routes, found by watching; the layers ``without`` a rule are left to what they call."""
    for name, layer in model.named_modules():
        if isinstance(layer, torch.jit.ScriptModule | nn.DataParallel):
            raise InvalidValue(
                f"layer {name!r}" if name else "the model", type(layer).__name__,
                "a module whose layers can be watched",
                "Pass the module it was made from; torch.compile is understood.",
            )  # fmt: skip
    trainable = {id(each): name for name, each in model.named_parameters() if each.requires_grad}
    ruled: dict[str, nn.Module] = {}
    watched: dict[str, nn.Module] = {}
    rewritten: set[str] = set()
    owned: set[int] = set()
    for name, layer in model.named_modules():
        if id(layer) in owned or name in without:
            continue
        if rewrites.rewritable(layer):
            watched[name] = layer
            rewritten.add(name)
            owned.update(map(id, layer.modules()))
        elif rules.rule_for(layer) is None:
            continue
        if any(id(each) in trainable for each in layer.parameters()):
            watched[name] = ruled[name] = layer
    rewritten &= set(ruled)
    examples = tree.examples(inputs, targets)
    two, three = (
        _observe(model, loss, inputs, targets, row, size, watched, set(trainable))
        for row, size in ((0, 2), (examples - 1, 3))
    )
    _check_buffers(model, two, three)
    _check_axes(watched, two, three)
    if two.moved and three.moved:
        return Routes({}, frozenset(), tuple(trainable.values()))
    left = two.direct | three.direct
    dimensions: dict[str, tuple[int, ...]] = {}
    answered: set[int] = set()
    alone = two.alone | three.alone
    for name, layer in ruled.items():
        found = [_dimension(*pair) for pair in zip(two.calls[name], three.calls[name], strict=False)]
        fits = len(two.calls[name]) == len(three.calls[name]) and all(
            dimension is not None and _fits(layer, dimension, len(shape))
            for dimension, shape in zip(found, two.calls[name], strict=True)
        )
        own = {id(each) for each in layer.parameters() if id(each) in trainable}
        if fits and not (own & alone and not found):
            dimensions[name] = tuple(dimension for dimension in found if dimension is not None)
            answered |= own if found else set()
        elif not fits:
            left |= own
    left |= (two.reached | three.reached) - answered - alone
    # A parameter is served in one way alone: its uses must be added up first.
    both = alone & answered
    if both and not without:
        shared = {
            name for name, layer in ruled.items() if any(id(each) in both for each in layer.parameters())
        }
        return _make(model, loss, inputs, targets, frozenset(shared))
    left |= both
    places = _places(two.uses, three.uses, left)
    fallback = tuple(name for key, name in trainable.items() if key in left)
    direct = tuple(name for key, name in trainable.items() if key in alone - left)
    return Routes(dimensions, frozenset(rewritten), fallback, direct, places)


def _places(two: list[Use], three: list[Use], left: set[int]) -> tuple[int, ...]:
    """Where the examples are in each use of a parameter outside layers; adds to what is left over.

    Parameters that meet the examples together are left over together.
    """
    if len(two) != len(three):
        left.update(*(use.parameters for use in two + three))
    found = [place(*pair) for pair in zip(two, three, strict=False)]
    for use, other, at in zip(two, three, found, strict=False):
        if at is None:
            left.update(use.parameters | other.parameters)
    while any(use.parameters & left and not use.parameters <= left for use in two):
        left.update(*(use.parameters for use in two if use.parameters & left))
    return tuple(
        at for use, at in zip(two, found, strict=False) if at is not None and not use.parameters & left
    )


def _check_buffers(model: nn.Module, two: WatchedPass, three: WatchedPass) -> None:
    """Refuse buffers that a forward pass changes, other than a count of passes."""
    for name, before in model.named_buffers():
        after = two.buffers[name], three.buffers[name]
        counts = before.dim() == 0 and not before.is_floating_point() and _equal(*after)
        if not counts and not all(_equal(before, each) for each in after):
            raise NotIsolated(
                f"buffer {name!r}", "changed by a forward pass",
                "the same whatever examples the model sees",
                "It would keep a statistic of the data that no noise covers; keep it out of training.",
            )  # fmt: skip


def _equal(one: Tensor, two: Tensor) -> bool:
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    same = one == two
    return bool((same | ((one != one) & (two != two))).all())


def _check_axes(watched: dict[str, nn.Module], two: WatchedPass, three: WatchedPass) -> None:
    """Refuse attention and recurrence over the examples: there they are one another's context."""
    for name, layer in watched.items():
        if not rewrites.rewritable(layer):
            continue
        for pair in zip(two.calls[name], three.calls[name], strict=False):
            dimension = _dimension(*pair)
            if dimension is not None and not _fits(layer, dimension, len(pair[0])):
                raise InvalidValue(
                    f"layer {name!r}", f"examples along dimension {dimension} of {len(pair[0])}",
                    f"given its examples along dimension {rewrites.batch_dimension(layer)} of 3",
                    "It would mix them. Pass batch_first=True if they come first.",
                )  # fmt: skip


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


def _observe(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, row: int, size: int,
    watched: dict[str, nn.Module], parameters: set[int],
) -> WatchedPass:  # fmt: skip
    seen = WatchedPass({name: [] for name in watched})

    def repeated(leaf: Any) -> Any:
        if not tree.batched(leaf):
            return leaf
        return leaf[row : row + 1].detach().expand(size, *leaf.shape[1:]).clone()

    inputs, targets = tree.mapped(repeated, (inputs, targets))
    watching = Watching(parameters, seen, size, (inputs, targets))
    state = State(model, loss, contents=True)
    handles = []
    for name, layer in watched.items():
        own = {id(each) for each in layer.parameters()}

        def before(layer: nn.Module, args: Any, kwargs: Any, name: str = name, own: set[int] = own) -> None:
            first = layer_input(args, kwargs)
            watching.entered.append([each.grad_fn for each in tree.tensors((args, kwargs))])
            if isinstance(layer, nn.Embedding) and not watching.tainted(first):
                watching.answered.append(set())
                return
            seen.calls[name].append(tuple(first.shape) if isinstance(first, Tensor) else ())
            now = {id(each) for each in layer.parameters()}
            if now != own:
                seen.moved.append(f"other parameters in layer {name!r}")
            watching.answered.append(now)

        def after(layer: nn.Module, args: Any, output: Any) -> None:
            nodes = watching.entered.pop()
            if watching.answered.pop():
                seen.accounts_for(output, nodes)

        handles.append(layer.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(layer.register_forward_hook(after, prepend=True, always_call=True))
    args, kwargs = tree.arguments(inputs)
    seen.buffers = {name: each.clone() for name, each in model.named_buffers()}
    chosen = {id(each): each for each in model.parameters() if id(each) in parameters}
    try:
        with generators_kept(), torch.enable_grad(), as_written():
            with Recording(tree.tensors((inputs, targets)), storages(model)), watching:
                outputs = functional_call(model, seen.buffers, args, kwargs)
                watching.in_loss = True
                losses = loss(outputs, targets)
            check_losses(losses, size)
            if losses.requires_grad:
                found = torch.autograd.grad(losses.sum(), list(chosen.values()), allow_unused=True)
                reached = zip(chosen, found, strict=True)
                seen.reached = {key for key, grad in reached if grad is not None}
                seen.direct |= seen.hidden(losses) & parameters
    finally:
        for handle in handles:
            handle.remove()
        state.restore()
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
