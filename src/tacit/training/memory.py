"""How many examples fit into memory at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tacit.training import tree
from tacit.training.data import Examples, Pair
from tacit.training.losses import unnamed_bounds

if TYPE_CHECKING:
    from tacit.training.step import PrivateStep

_SHARE = 0.25
_COPIES = 3
_MOST = 1 << 16


def first_pair(examples: Examples) -> Pair | None:
    """The first example, as a batch of one, if there is any."""
    return next(next(examples.batches([np.zeros(1, np.int64)], 1))) if len(examples) else None


def fitting_batch(core: PrivateStep, pair: Pair | None) -> int:
    """The most entries whose activations take a quarter of the free memory.

    Measured on the first of these, once and twice: what backpropagation keeps for one more, three
    times over for its gradient and what the engine holds. The result depends on shapes alone.
    """
    if pair is None:
        return _MOST
    one, two = (_kept(core, _repeated(pair, count)) for count in (1, 2))
    return max(1, min(_MOST, int(_SHARE * _free(core) / max(1, _COPIES * (two - one)))))


def _repeated(pair: Any, count: int) -> Any:
    return tree.mapped(
        lambda leaf: leaf[:1].repeat_interleave(count, 0) if tree.batched(leaf) else leaf, pair
    )


def _kept(core: PrivateStep, pair: Any) -> int:
    """Bytes kept by a forward pass, of each storage once, and of the input."""
    sizes: dict[int, int] = {}

    def note(kept: Tensor) -> Tensor:
        storage = kept.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return kept

    inputs, targets = pair
    args, kwargs = tree.arguments(inputs)
    buffers = {name: each.clone() for name, each in core.model.named_buffers()}
    hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda kept: kept)
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), hooks, unnamed_bounds():
        losses = core.loss(torch.func.functional_call(core.model, buffers, args, kwargs), targets)
    del losses
    return sum(sizes.values()) + sum(leaf.nbytes for leaf in tree.tensors(pair))


def _free(core: PrivateStep) -> int:
    device = next(core.model.parameters()).device
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 1 << 30


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)
