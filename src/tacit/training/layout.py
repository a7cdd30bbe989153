"""Images with their channels last in memory while the tape runs.

A CPU convolves and pools them up to two and a half times as fast that way
(``benchmarks/results/dpsgd_speed.md``); shapes and numbers stay what they were. A model that calls
``.view`` on a tensor laid out so fails, and from then on its images are left as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakSet

import torch
from torch import Tensor, nn

_LEFT_AS_THEY_COME: WeakSet[nn.Module] = WeakSet()
_Found = TypeVar("_Found")


def with_channels_last(model: nn.Module, layers: Iterable[nn.Module], call: Callable[[], _Found]) -> _Found:
    """What the call gives, its convolutions taking images with channels last if the model allows it."""
    images = [layer for layer in layers if _takes_images(layer)]
    if images and model not in _LEFT_AS_THEY_COME:
        try:
            with _channels_last(images):
                return call()
        except RuntimeError as error:
            if "view size is not compatible" not in str(error):
                raise
            _LEFT_AS_THEY_COME.add(model)
    return call()


def _takes_images(layer: nn.Module) -> bool:
    if type(layer).forward is not nn.Conv2d.forward:
        return False
    weight = layer._parameters.get("weight")
    return weight is not None and weight.device.type == "cpu"


@contextmanager
def _channels_last(layers: Iterable[nn.Module]) -> Iterator[None]:
    handles = [layer.register_forward_pre_hook(_convert) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _convert(layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    if not args or not isinstance(args[0], Tensor) or args[0].dim() != 4:
        return None
    images = args[0]
    if images.shape[1] > 1:
        return (images.contiguous(memory_format=torch.channels_last), *args[1:])
    # With one channel both orders are the same numbers; only the strides tell which is meant.
    flat = images.contiguous().view(len(images), *images.shape[2:], 1)
    return (flat.permute(0, 3, 1, 2), *args[1:])
