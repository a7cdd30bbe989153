"""One pass over a batch with its layers on the tape: what each parameter received from each example.

The routes (:mod:`.routes`) say which layers are on the tape, by a hook or by a forward written anew, and
along which dimension each of their calls has its examples. A call that has them elsewhere, or that was not
seen when the model was watched, is not proved.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import set_checkpoint_early_stop

from tacit.errors import InvalidValue
from tacit.training.batches import tree
from tacit.training.gradients import rewrites, rules
from tacit.training.gradients.direct import direct
from tacit.training.gradients.fallback import Loss, check_losses
from tacit.training.gradients.layout import STATISTICS, arranged
from tacit.training.gradients.pieces import Piece, merge
from tacit.training.gradients.routes import Parts, Routes, constants, layer_input
from tacit.training.gradients.sums import wide
from tacit.training.gradients.tape import Pieces, Tape
from tacit.training.isolation.confinement import no_function_modes
from tacit.training.isolation.recording import Recording, detached, size_of, version_of
from tacit.training.isolation.unproved import Unproved


def exactly(device: torch.device) -> AbstractContextManager[Any]:
    """A context without autocast."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def taped(
    parts: Parts, loss: Loss, inputs: Any, targets: Any, routes: Routes, entries: int, views: int = 1
) -> tuple[dict[str, Piece], Tensor, Recording]:
    """What parameters received by way of the tape, the losses, and what was written down of the pass."""
    # Layers whose parameters are served where they meet the examples run as they are written, to be seen.
    direct = {id(parts.trainable[name]) for name in routes.direct}
    layers = parts.layers.values()
    return arranged(
        parts.model,
        [each for each in layers if not any(id(own) in direct for own in each._parameters.values())],
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
        with exactly(losses.device):
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

        return tape.watch(output, make, dimensions[number], (values, dimensions[number]))

    return hook
