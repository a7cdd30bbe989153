"""Models whose parameters FSDP2 keeps in parts, one in each process (``torch.distributed.fsdp.fully_shard``).

The engine sees whole, plain parameters: they are gathered for the length of a step, and FSDP's own hooks,
which gather by the layer and average raw gradients, find nothing left to do. That costs the memory of
all weights, and makes the step independent of how many passes each process makes: with Poisson samples
the processes hold different numbers of examples, or none. The sums of clipped gradients are added up and
scattered to the processes; the optimiser's state is never whole.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


def is_sharded(model: nn.Module) -> bool:
    """Whether FSDP2 keeps parameters of this model in parts."""
    return bool(shards(model))


def shards(model: nn.Module) -> list[Any]:
    """The modules whose parameters FSDP2 keeps in parts; nothing is imported if there are none."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    kind = getattr(fsdp, "FSDPModule", None)
    return [] if kind is None else [layer for layer in model.modules() if isinstance(layer, kind)]


def is_shard(value: Tensor) -> bool:
    """Whether a tensor is held in parts."""
    kind = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    return kind is not None and isinstance(value, kind)


def scattered(value: Tensor, like: Any) -> Tensor:
    """The sum over processes of a whole tensor, sharded as a parameter is."""
    from torch.distributed.tensor import DTensor, Partial

    mesh = like.device_mesh
    parts = DTensor.from_local(value, mesh, [Partial("sum")] * mesh.ndim, run_check=False)
    return parts.redistribute(mesh, like.placements)


def _placed(value: Any, like: Any) -> Any:
    """A whole tensor, sharded as a parameter of its shape is."""
    if not is_shard(like) or not isinstance(value, Tensor) or value.shape != like.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)


@contextmanager
def unsharded(model: nn.Module) -> Iterator[None]:
    """Within, the model's parameters are whole and plain, and FSDP exchanges nothing."""
    modules = shards(model)
    for module in modules:
        _hold(module, True)
        module.unshard()
    try:
        yield
    finally:
        for module in modules:
            module.reshard()
            _hold(module, False)


def _hold(module: Any, whole: bool) -> None:
    module.set_requires_gradient_sync(not whole, recurse=False)
    module.set_reshard_after_forward(not whole, recurse=False)
    module.set_reshard_after_backward(not whole, recurse=False)


def spread(state: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Shard the whole tensors of a saved state as those of model and optimiser are."""
    now = model.state_dict()
    state["model"] = {name: _placed(each, now[name]) for name, each in state["model"].items()}
    owners = [each for group in optimizer.param_groups for each in group["params"]]
    for number, kept in state["optimizer"]["state"].items():
        kept.update({name: _placed(each, owners[number]) for name, each in kept.items()})
