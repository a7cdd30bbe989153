"""The order in memory in which layers are fastest, while the tape runs.

A CPU convolves and pools images up to two and a half times as fast with their channels last
(``benchmarks/results/dpsgd_speed.md``); shapes and numbers stay what they were. A model that fails on
a tensor laid out so, as by calling ``.view``, has its images left as they come from then on.
A product with a matrix of a few rows, as of ten classes, takes half the time turned round, and what a
GroupNorm has computed on the way need not be computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.training.batches.memory import out_of_memory
from tacit.training.isolation.confinement import no_function_modes
from tacit.training.isolation.recording import active, dtype_of, is_contiguous, size_of

_LARGE = 1 << 16
STATISTICS = "statistics of groups"
"""The attribute of an output that has them."""
_LEFT_AS_THEY_COME: WeakSet[nn.Module] = WeakSet()
_Found = TypeVar("_Found")


def arranged(model: nn.Module, layers: Iterable[nn.Module], call: Callable[[], _Found]) -> _Found:
    """What the call gives, with the model's layers taking their inputs in the order that suits them."""
    images: list[nn.Module] = []
    forwards: dict[nn.Module, Callable[..., Tensor]] = {}
    for layer in layers:
        forward = type(layer).forward
        if forward is nn.Conv2d.forward and _on_cpu(layer):
            images.append(layer)
        elif isinstance(layer, nn.Linear) and forward is nn.Linear.forward and _is_narrow(layer):
            forwards[layer] = partial(_narrow, layer)
        elif isinstance(layer, nn.GroupNorm) and forward is nn.GroupNorm.forward and _is_plain(layer):
            forwards[layer] = partial(_with_statistics, layer)
    with _instead(forwards):
        if images and model not in _LEFT_AS_THEY_COME:
            try:
                with _channels_last(images):
                    return call()
            except RuntimeError as error:
                if out_of_memory(error):
                    raise
            found = call()
            _LEFT_AS_THEY_COME.add(model)
            return found
        return call()


def _on_cpu(layer: nn.Module) -> bool:
    weight = layer._parameters.get("weight")
    return weight is not None and weight.device.type == "cpu"


def _is_plain(layer: nn.Module) -> bool:
    return "forward" not in layer.__dict__ and _on_cpu(layer)


def _is_narrow(layer: nn.Linear) -> bool:
    return 1 < layer.out_features < 16 and _is_plain(layer)


@contextmanager
def _instead(forwards: dict[nn.Module, Callable[..., Tensor]]) -> Iterator[None]:
    try:
        for layer, forward in forwards.items():
            layer.__dict__["forward"] = forward
        yield
    finally:
        for layer in forwards:
            layer.__dict__.pop("forward", None)


def _narrow(layer: nn.Linear, input: Tensor) -> Tensor:
    recording = active()
    if recording is None or input.dim() != 2 or input.requires_grad or torch.is_autocast_enabled("cpu"):
        return F.linear(input, layer.weight, layer.bias)
    # Which way is faster depends on the number of examples; what is written down of it must not.
    what = ("linear", layer.weight.shape)
    own = layer.weight, layer.bias
    (made,) = recording.trusted(what, [(input, 0)], lambda: [(_turned(layer, input), 0)], own)
    return made  # type: ignore[return-value]


def _turned(layer: nn.Linear, input: Tensor) -> Tensor:
    if input.numel() < _LARGE:
        return F.linear(input, layer.weight, layer.bias)
    bias: Tensor | None = layer.bias
    if bias is None:
        return (layer.weight @ input.t()).t().contiguous()
    return torch.addmm(bias[:, None], layer.weight, input.t()).t().contiguous()


def _with_statistics(layer: nn.GroupNorm, input: Tensor) -> Tensor:
    """The output, which has with it the mean and the inverse deviation of every example's groups."""
    orders = torch.contiguous_format, torch.channels_last
    with no_function_modes():
        size = size_of(input)
        suited = (
            len(size) == 4
            and size[2] * size[3] > 1
            and dtype_of(input) in (torch.float32, torch.float64)
            and not torch.is_autocast_enabled("cpu")
            and not torch._C._functorch.is_batchedtensor(input)
            and any(is_contiguous(input, memory_format=order) for order in orders)
        )
    if not suited:
        return F.group_norm(input, layer.num_groups, layer.weight, layer.bias, layer.eps)
    examples, channels, pixels = size[0], size[1], size[2] * size[3]
    output, *statistics = torch.native_group_norm(
        input, layer.weight, layer.bias, examples, channels, pixels, layer.num_groups, layer.eps
    )
    output.__dict__[STATISTICS] = tuple(statistics)
    return output


@contextmanager
def _channels_last(layers: Iterable[nn.Module]) -> Iterator[None]:
    handles = [layer.register_forward_pre_hook(_convert) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _convert(layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    if not args or not isinstance(args[0], Tensor) or torch._C._functorch.is_batchedtensor(args[0]):
        return None
    images = args[0]
    with no_function_modes():
        size = size_of(images)
    if len(size) != 4:
        return None
    if size[1] > 1:
        return (images.contiguous(memory_format=torch.channels_last), *args[1:])
    # With one channel both orders are the same numbers; only the strides tell which is meant.
    flat = images.contiguous().view(size[0], *size[2:], 1)
    return (flat.permute(0, 3, 1, 2), *args[1:])
