"""How many examples fit into memory at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tacit.training.batches import tree
from tacit.training.batches.dataset import Pair
from tacit.training.gradients.losses import unnamed_bounds
from tacit.training.isolation.generators import generators_kept
from tacit.training.isolation.state import guarded

if TYPE_CHECKING:
    from tacit.training.step import PrivateStep

_SHARE = 0.25
_COPIES = 3
_MOST = 1 << 16
_LARGE, _FEW = 12 << 20, 16


def fitting_batch(core: PrivateStep, pair: Pair | None) -> int:
    """How many entries to compute at once, so that activations take at most a quarter of the free memory.

    The memory of one entry is the difference between the activations that backpropagation keeps for a batch
    of two and of one, copies of the first example; it is counted three times, for gradients and for what the
    engine holds. On a CPU the activations of an image layer are also kept to 12 MiB where that leaves 16
    entries: larger ones do not fit into its caches, and smaller batches are faster. Where examples are
    computed alone, the memory of one is that of its gradient. The result depends on shapes alone.
    """
    if pair is None:
        return _MOST
    if core.alone:
        own = sum(each.nbytes for each in core.model.parameters() if each.requires_grad)
        return max(1, min(_MOST, int(_SHARE * _free(core) / max(1, _COPIES * own))))
    (one, _), (two, largest) = (_kept(core, _repeated(pair, count)) for count in (1, 2))
    most = max(1, min(_MOST, int(_SHARE * _free(core) / max(1, _COPIES * (two - one)))))
    if next(core.model.parameters()).device.type != "cpu":
        return most
    return min(most, max(_FEW, 2 * _LARGE // max(1, largest)))


def _repeated(pair: Any, count: int) -> Any:
    return tree.mapped(
        lambda leaf: leaf[:1].repeat_interleave(count, 0) if tree.batched(leaf) else leaf, pair
    )


def _kept(core: PrivateStep, pair: Any) -> tuple[int, int]:
    """Bytes of the input and of all that a forward pass keeps; and bytes of the largest image kept."""
    sizes: dict[int, int] = {}
    images: dict[int, int] = {}

    def note(kept: Tensor) -> Tensor:
        storage = kept.untyped_storage()
        for found in (sizes, images) if kept.dim() > 3 else (sizes,):
            found[storage.data_ptr()] = storage.nbytes()
        return kept

    inputs, targets = pair
    args, kwargs = tree.arguments(inputs)
    buffers = {name: each.clone() for name, each in core.model.named_buffers()}
    hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda kept: kept)
    guard = guarded(core.model, core.loss, pair)
    with generators_kept(), torch.enable_grad(), hooks, guard, unnamed_bounds():
        losses = core.loss(torch.func.functional_call(core.model, buffers, args, kwargs), targets)
    del losses
    total = sum(sizes.values()) + sum(leaf.nbytes for leaf in tree.tensors(pair))
    for each in (*core.model.parameters(), *buffers.values()):
        images.pop(each.untyped_storage().data_ptr(), None)
    return total, max(images.values(), default=0)


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
