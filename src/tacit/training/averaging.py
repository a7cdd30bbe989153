"""Averages of the weights over a run: post-processing of its releases, which costs nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.training.parallel import sharding


class Average:
    """The average of the weights: exponential with a decay, or over the second half of a run ("tail")."""

    def __init__(self, model: nn.Module, kind: float | str) -> None:
        if sharding.is_sharded(model):
            raise InvalidValue("average", kind, "None for a sharded model, which cannot be copied")
        if isinstance(kind, str) and kind != "tail":
            raise InvalidValue("average", kind, "a decay in (0, 1), 'tail' or None")
        self._tail = isinstance(kind, str)
        weigh: Any = get_swa_multi_avg_fn if self._tail else get_ema_multi_avg_fn
        decay = () if isinstance(kind, str) else (_validate.open_probability("average", kind),)
        self._averaged = AveragedModel(model, multi_avg_fn=weigh(*decay))

    def update(self, model: nn.Module, taken: int, steps: int) -> None:
        """Take in the weights after ``taken`` of ``steps`` steps."""
        if not self._tail or 2 * taken > steps:
            self._averaged.update_parameters(model)

    def put_into(self, model: nn.Module) -> None:
        """Give the model the averaged weights, if any step was averaged."""
        if int(self._averaged.n_averaged):
            with torch.no_grad():
                for own, averaged in zip(model.parameters(), self._averaged.module.parameters(), strict=True):
                    own.copy_(averaged)

    def state_dict(self) -> dict[str, Any]:
        """The average so far, for a checkpoint."""
        return self._averaged.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the average that :meth:`state_dict` gave."""
        self._averaged.load_state_dict(state)
