"""Who is clipped: gradient norms by group, which explain why some groups lose more accuracy than others.

Clipping shortens long gradients. Groups with few examples, or examples that are hard to fit, have long ones,
are shortened most, and learn least (Bagdasaryan, Poursaeed and Shmatikov 2019). The numbers here are exact
and about private examples: they are for the curator, are charged nowhere, and may not be published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.training.gradients.engine import clipped_gradient_sum

__all__ = ["GroupNorms", "norms_by_group"]

_AT_ONCE = 512


@dataclass(frozen=True)
class GroupNorms:
    """The gradients of one group: how many, how long, and which share exceeds ``clip_norm``. PRIVATE."""

    group: Any
    examples: int
    mean: float
    median: float
    clipped: float
    """The share of examples whose gradient is shortened."""
    kept: float
    """The share of the summed gradient norms that clipping leaves."""


def norms_by_group(
    model: nn.Module,
    loss: Callable[..., Tensor],
    inputs: Tensor,
    targets: Tensor,
    groups: Sequence[Any],
    clip_norm: float,
) -> tuple[GroupNorms, ...]:
    """Norms of the per-example gradients of a model by group, for the curator's eyes.

    ``groups`` names the group of each example; ``loss`` is that of :func:`clipped_gradient_sum`.
    The model is not changed.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.zeros_(model.weight)
    >>> inputs, targets = torch.tensor([[1.0], [1.0], [9.0]]), torch.zeros(3)
    >>> found = norms_by_group(model, lambda out, target: out[:, 0], inputs, targets, ["a", "a", "b"], 2.0)
    >>> [(each.group, each.mean, each.clipped) for each in found]
    [('a', 1.0, 0.0), ('b', 9.0, 1.0)]
    """
    bound = _validate.positive("clip_norm", clip_norm)
    names = np.asarray(groups)
    if names.shape != (len(inputs),):
        raise InvalidValue("groups", names.shape, f"one for each of {len(inputs)} examples")
    lengths = [
        clipped_gradient_sum(
            model, loss, inputs[start : start + _AT_ONCE], targets[start : start + _AT_ONCE], bound
        )[1]
        for start in range(0, len(inputs), _AT_ONCE)
    ]
    norms = torch.cat(lengths).double().numpy()
    found = []
    for name in np.unique(names).tolist():
        own = norms[names == name]
        kept = float(np.minimum(own, bound).sum() / own.sum()) if own.sum() > 0 else 1.0
        found.append(
            GroupNorms(
                name, own.size, float(own.mean()), float(np.median(own)), float((own > bound).mean()), kept
            )
        )
    return tuple(found)
