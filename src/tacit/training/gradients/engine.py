"""The clipped sum of per-example gradients, by book-keeping."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import set_checkpoint_early_stop

from tacit.errors import EngineFailed, InvalidValue
from tacit.training.batches import tree
from tacit.training.clipping import Clipping, Flat, checked_clip_norm
from tacit.training.gradients import rewrites, rules
from tacit.training.gradients.direct import direct
from tacit.training.gradients.fallback import Loss, check_losses, per_example_gradients
from tacit.training.gradients.layout import STATISTICS, arranged
from tacit.training.gradients.losses import per_example, unnamed_bounds
from tacit.training.gradients.pieces import Piece, Plain, merge
from tacit.training.gradients.routes import (
    Parts,
    Routes,
    as_written,
    constants,
    everything_by_itself,
    layer_input,
    routes_for,
)
from tacit.training.gradients.sums import BLOCK, EXACT, MANY
from tacit.training.gradients.tape import Pieces, Tape
from tacit.training.gradients.views import grouped
from tacit.training.isolation.checking import check_model
from tacit.training.isolation.confinement import no_function_modes
from tacit.training.isolation.generators import generators_held, generators_kept
from tacit.training.isolation.growth import zeros
from tacit.training.isolation.recording import Recording, detached, size_of, version_of
from tacit.training.isolation.state import State
from tacit.training.isolation.trial import holds
from tacit.training.isolation.unproved import Unproved

_FLAT = Flat()
# How often a pass is run again that was disturbed by another thread, before its examples are run one by one.
_AGAIN = 2
_TOLD: set[str] = set()
DISTURBED = (
    "Another thread of this program ran while a batch was computed, and may have computed with its examples: "
    "they are computed one by one, which is slow. If your threads leave the examples alone, say so with "
    'Trainer(threads="trusted").'
)


def clipped_gradient_sum(
    model: nn.Module, loss: Any, inputs: Any, targets: Any, clip_norm: float
) -> tuple[dict[str, Tensor], Tensor]:
    """Sum over examples of gradients clipped to ``clip_norm``, and each example's gradient norm.

    The gradient g of an example, over all trainable parameters together, enters the sum as
    g × min(1, ``clip_norm``/‖g‖₂). ``loss`` is one that :class:`Trainer` takes: a loss of ``torch.nn``, or a
    function such that ``loss(model(inputs), targets)`` gives one loss per example.
    Examples lie along the first dimension of every tensor. A tuple or list of inputs is passed
    as positional arguments and a mapping as keyword arguments.

    Guarantee: adding or removing an example changes the sum by at most ``clip_norm`` in ℓ2, and
    replacing one by at most twice that, up to rounding, provided no layer mixes examples
    (:func:`check_model` runs first). The sum is not private until noise is added, and the norms
    never are: they are for the step that adds it, not for release.

    One backward pass carries gradients from layer to layer; norms come from each layer's input and
    output gradient, and the sum from one weighted product per layer (DP-SGD: Abadi et al. 2016;
    book-keeping: Bu et al. 2023). Parameters that no rule covers cost one more pass.

    ==========================  =====================================================
    case                        result
    ==========================  =====================================================
    gradient not finite         the example adds exactly zero, and its norm is inf or NaN
    no examples                 zeros, and no norms
    frozen parameter            not in the sum
    unused parameter            zeros
    more than 2048 examples     the sum is in float64: :mod:`tacit.training.gradients.sums`
    ==========================  =====================================================

    The model is left as it was: hooks, ``requires_grad``, ``.grad`` and mode.

    >>> import torch
    >>> from torch import nn
    >>> model = nn.Linear(2, 1, bias=False)
    >>> loss = lambda outputs, targets: (outputs[:, 0] - targets).square() / 2
    >>> inputs = torch.tensor([[3.0, 4.0], [0.03, 0.04]])
    >>> targets = model(inputs)[:, 0].detach() - 2
    >>> total, norms = clipped_gradient_sum(model, loss, inputs, targets, clip_norm=1.0)
    >>> print(total["weight"], norms)
    tensor([[0.6600, 0.8800]]) tensor([10.0000,  0.1000])
    """
    clip_norm, each = checked_clip_norm(clip_norm), per_example(loss)
    expected = tree.examples(inputs, targets)
    left: list[Any] = [(inputs, targets)]
    total: dict[str, Tensor] = {}
    norms: list[Tensor] = []
    while left:
        (some_inputs, some_targets), left = tree.cut(left[0][0], left[0][1], BLOCK)
        with unnamed_bounds():
            clipped = clipped_gradients(model, each, some_inputs, some_targets, clip_norm, expected=expected)
        norms.append(clipped.norms)
        for name, part in clipped.total.items():
            total[name] = total[name].add_(part) if name in total else part
    return total, torch.cat(norms)


@dataclass(frozen=True)
class Clipped:
    """The clipped sum by parameter, and what is for the curator alone: norms and losses.

    ``losses`` is None where no pass over the whole batch computed them.
    """

    total: dict[str, Tensor]
    norms: Tensor
    losses: Tensor | None


def clipped_gradients(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    clip_norm: float,
    *,
    rule: Clipping = _FLAT,
    views: int = 1,
    autocast: torch.dtype | None = None,
    expected: int = 0,
    alone: bool = False,
) -> Clipped:
    """:func:`clipped_gradient_sum` with another rule, several views of each example, or autocast.

    With ``views`` an example is that many consecutive entries of every tensor, and its gradient is
    the mean over them, clipped as one: the sensitivity does not depend on the number of views
    (De et al. 2022). Under ``autocast`` layers run in that precision; norms and sums are computed in
    float32 from the same numbers, so that what is summed is what was measured. Of a batch of many
    ``expected`` examples the sum is in float64 (:mod:`.sums`). ``alone`` computes every
    example by itself, in a plain loop (:mod:`tacit.training.gradients.fallback`).
    """
    entries = tree.examples(inputs, targets)
    examples = entries // views
    if entries % views:
        raise InvalidValue("inputs", "another length", f"a multiple of the {views} views of each example")
    check_model(model)
    parts = Parts(model)
    trainable = parts.trainable
    like = next(iter(trainable.values()))
    widths = {name: summed(each.dtype, expected) for name, each in trainable.items()}
    if entries == 0:
        total = {name: torch.zeros_like(each, dtype=widths[name]) for name, each in trainable.items()}
        return Clipped(total, like.new_zeros(0), like.new_zeros(0))
    inputs, targets = tree.mapped(_own, (inputs, targets))
    with generators_held():
        state = State.of(model, loss)
        parts.holds = state.holds
        try:
            with _precision(like.device, autocast), as_written(parts.compiled):
                pieces, losses, entries = _apart(parts, loss, inputs, targets, entries, views, alone)
        finally:
            state.restore()
    with torch.no_grad(), _exact(like.device):
        if views > 1:
            pieces = {name: grouped(piece, views) for name, piece in pieces.items()}
        squares = {name: piece.squares() for name, piece in pieces.items()}
        if any(len(each) != entries // views for each in squares.values()):
            raise EngineFailed("A layer gave gradients for another number of examples.", "Report the model.")
        if squares:
            weights, norms = rule.factors(squares, clip_norm, len(trainable))
        else:
            weights, norms = {}, like.new_zeros(entries // views)
        if len(norms) > examples:
            copies = torch.arange(examples, len(norms), device=norms.device)
            weights = {name: each.besides(copies) for name, each in weights.items()}
            norms, losses = norms[:examples], None if losses is None else losses[:examples]
        total = {
            name: pieces.pop(name)
            .weighted(weights[name].to(wide(each.dtype, expected > EXACT)))
            .to(widths[name])
            if name in pieces
            else torch.zeros_like(each, dtype=widths[name])
            for name, each in trainable.items()
        }
    return Clipped(total, norms, losses)


def _own(leaf: Any) -> Any:
    """A tensor of its own, in order and from the start of its storage, so that its rows can be followed."""
    if not isinstance(leaf, Tensor):
        return leaf
    leaf = leaf.detach()
    plain = leaf.is_contiguous() and not leaf.storage_offset()
    return leaf if plain and leaf.nbytes == leaf.untyped_storage().nbytes() else leaf.contiguous().clone()


def _apart(
    parts: Parts, loss: Loss, inputs: Any, targets: Any, entries: int, views: int, alone: bool
) -> tuple[dict[str, Piece], Tensor | None, int]:
    """What each parameter received from each example, by the routes if they are proved, or alone.

    The number returned is how many entries that are. A single entry goes through the routes with a copy of
    itself, since PyTorch lays out a batch of one in memory in another way.
    """
    routes = everything_by_itself(parts)
    if not alone:
        routes = routes_for(
            parts, loss, inputs, targets, lambda made: holds(parts, loss, inputs, targets, made, _taped)
        )
        if not routes.program.alone:
            some, many = (inputs, targets), entries
            if entries == 1:
                some, many = tree.mapped(_doubled, some), 2
            with suppress(Unproved):
                return *_pieces(parts, loss, some[0], some[1], routes, many, views, alone), many
        routes = routes.instead or routes
    return *_pieces(parts, loss, inputs, targets, routes, entries, views, alone), entries


def _doubled(leaf: Any) -> Any:
    return torch.cat([leaf, leaf]) if tree.batched(leaf) else leaf


def wide(dtype: torch.dtype, exact: bool = False) -> torch.dtype:
    """The precision in which gradients of a parameter of this one are computed: at least float32."""
    return torch.promote_types(dtype, torch.float64 if exact else torch.float32)


def summed(dtype: torch.dtype, expected: int) -> torch.dtype:
    """The precision in which so many gradients of a parameter of this one are summed."""
    return wide(dtype, expected > MANY)


def _precision(device: torch.device, autocast: torch.dtype | None) -> AbstractContextManager[Any]:
    if autocast is None:
        return nullcontext()
    return torch.autocast(device.type, dtype=autocast)


def _exact(device: torch.device) -> AbstractContextManager[Any]:
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def _pieces(
    parts: Parts, loss: Loss, inputs: Any, targets: Any, routes: Routes, entries: int, views: int, alone: bool
) -> tuple[dict[str, Piece], Tensor | None]:
    """What each trainable parameter received, by name, and the losses; unused ones are left out."""
    model, trainable = parts.model, parts.trainable
    pieces: dict[str, Piece] = {}
    losses = None
    if len(routes.fallback) < len(trainable):
        pieces, losses = _proved(parts, loss, inputs, targets, routes, entries, views)
    if routes.fallback:
        program = None if alone else routes.mapped
        found = per_example_gradients(model, loss, inputs, targets, routes.fallback, parts.names, program)
        for name, values in found.items():
            values = values.to(wide(values.dtype))
            pieces[name] = Plain(values if views == 1 else values / views)
    return pieces, losses


def _proved(
    parts: Parts, loss: Loss, inputs: Any, targets: Any, routes: Routes, entries: int, views: int
) -> tuple[dict[str, Piece], Tensor]:
    """What parameters received by way of the tape, proved to be each example's own, and the losses."""
    pieces, losses, recording = _taped(parts, loss, inputs, targets, routes, entries, views)
    for _ in range(_AGAIN if recording.disturbed else 0):
        pieces, losses, recording = _taped(parts, loss, inputs, targets, routes, entries, views)
        if not recording.disturbed:
            break
    if recording.disturbed and DISTURBED not in _TOLD:
        _TOLD.add(DISTURBED)
        named = f" It was: {recording.others}." if recording.others else ""
        warnings.warn(DISTURBED + named, RuntimeWarning, stacklevel=2)

    def tiny(size: int) -> Recording:
        some, other = zeros((inputs, targets), size)
        with generators_kept():
            return _taped(parts, loss, some, other, routes, size, views)[2]

    routes.program.prove(recording, entries, tiny)
    return pieces, losses


def _taped(
    parts: Parts, loss: Loss, inputs: Any, targets: Any, routes: Routes, entries: int, views: int = 1
) -> tuple[dict[str, Piece], Tensor, Recording]:
    """What parameters received by way of the tape, the losses, and what was written down of the pass."""
    inside = {layer for module in parts.compiled for layer in module.modules()}
    return arranged(
        parts.model,
        [layer for layer in parts.layers.values() if layer not in inside],
        lambda: _recorded(parts, loss, inputs, targets, routes, entries, views),
    )


def _recorded(
    parts: Parts, loss: Loss, inputs: Any, targets: Any, routes: Routes, entries: int, views: int
) -> tuple[dict[str, Piece], Tensor, Recording]:
    trainable = parts.trainable
    served = {id(each): name for name, each in trainable.items() if name not in routes.fallback}
    data = [leaf for leaf in tree.tensors((inputs, targets)) if tree.batched(leaf)]
    recording = Recording(data, parts.names, reading=False, held=parts.holds)
    tape = Tape(recording)
    args, kwargs = tree.arguments(inputs)
    watched = _watched(parts.layers, routes, tape, served, entries)
    alone = direct(routes.places, {name: trainable[name] for name in routes.direct}, tape, entries)
    # Broken off in the middle, what is computed again on the way back could not be followed to its end.
    whole = set_checkpoint_early_stop(False)
    with torch.enable_grad(), constants(trainable), watched, alone, whole, recording:
        losses = loss(parts.model(*args, **kwargs), targets)
        check_losses(losses, entries)
        recording.rows("loss", (losses, 0))
        with _exact(losses.device):
            received = tape.run(losses if views == 1 else losses / views)
        recording.close()
        losses = losses.detach()
    return {served[key]: merge(found) for key, found in received.items()}, losses, recording


@contextmanager
def _watched(
    layers: dict[str, nn.Module], routes: Routes, tape: Tape, served: Container[int], examples: int
) -> Iterator[None]:
    """Hooks and rewritten forwards that put the ruled layers on the tape, within."""
    handles = []
    counts = dict.fromkeys(routes.dimensions, 0)
    try:
        for name in routes.dimensions:
            layer = layers[name]
            if name in routes.rewritten:
                forward = rewrites.rewritten(layer, tape, served)
                layer.forward = _counted(name, forward, routes, counts, examples)
            else:
                hook = _hook(name, layer, routes, tape, served, counts, examples)
                handles.append(layer.register_forward_hook(hook, with_kwargs=True, prepend=True))
        yield
    finally:
        for handle in handles:
            handle.remove()
        for name in routes.rewritten & routes.dimensions.keys():
            layers[name].__dict__.pop("forward", None)


def _call(name: str, args: Any, kwargs: Any, routes: Routes, counts: dict[str, int], examples: int) -> int:
    """The number of this call of a layer, if it has its examples where they were when it was watched."""
    number, calls = counts[name], routes.dimensions[name]
    counts[name] += 1
    values = layer_input(args, kwargs)
    if number >= len(calls) or not isinstance(values, Tensor) or torch._C._functorch.is_batchedtensor(values):
        raise Unproved
    with no_function_modes():
        size = size_of(values)
    if len(size) <= calls[number] or size[calls[number]] != examples:
        raise Unproved
    return number


def _counted(
    name: str, forward: Callable[..., Any], routes: Routes, counts: dict[str, int], examples: int
) -> Callable[..., Any]:
    def counted(*args: Any, **kwargs: Any) -> Any:
        _call(name, args, kwargs, routes, counts, examples)
        return forward(*args, **kwargs)

    return counted


def _hook(
    name: str, layer: nn.Module, routes: Routes, tape: Tape, served: Container[int], counts: dict[str, int],
    examples: int,
) -> Callable[..., Tensor]:  # fmt: skip
    dimensions = routes.dimensions[name]
    rule = rules.RULES[type(layer).forward]

    def hook(layer: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor:
        number = _call(name, args, kwargs, routes, counts, examples)
        with no_function_modes():
            values = detached(layer_input(args, kwargs))
            version = version_of(values)
        known = output.__dict__.pop(STATISTICS, None)
        pieces = rule.make if known is None else partial(rules.group_norm_by, known)

        def make(grad: Tensor) -> Pieces:
            if values._version != version:
                raise InvalidValue(
                    f"layer {name!r}",
                    "an input changed in place",
                    "called on a tensor that is not changed in place afterwards",
                    "Write x = x + y in place of x += y.",
                )
            own = layer._parameters
            dtype = wide(own["weight"].dtype)  # type: ignore[union-attr]
            kept = values.to(dtype) if values.is_floating_point() else values
            made = pieces(layer, kept, grad.to(dtype), dimensions[number])
            return [(own[key], piece) for key, piece in made.items() if id(own[key]) in served]  # type: ignore[misc]

        return tape.watch(output, make, dimensions[number], values)

    return hook
