"""Silo: a hospital or a bank that protects its own rows, and shares what its private training released.

Needs the extra ``torch``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.federated.updates import Updates
from tacit.guarantee import Guarantee
from tacit.training import Plan, Trainer

if TYPE_CHECKING:
    from torch import nn

    from tacit.ledger import Ledger

__all__ = ["Silo"]


class Silo:
    """One silo of a federation in which each silo is trusted with its own rows alone (``trust="silo"``).

    Guarantee: :attr:`guarantee`, for one row of this silo, by DP-SGD with its own plan
    (:meth:`FederatedPlan.silo`). All steps of all rounds are charged to the silo's own ``ledger`` before its
    first row is read. The parameters that come from the server are post-processing of what silos released,
    and each update is the difference of two models that this silo's training released, so the federation
    adds nothing. A row that stands in several silos is protected by each of them alone: its losses add up,
    and no silo can see that. A silo that is not asked in a round leaves those steps unused, and they stay
    charged.

    >>> from torch import nn
    >>> from tacit.federated import FederatedPlan
    >>> plan = FederatedPlan(clients=3, cohort=3, rounds=2, epsilon=1.0, delta=1e-5, trust="silo")
    >>> model = nn.Linear(3, 2)
    >>> rows = torch.randn(200, 3), torch.randint(0, 2, (200,))
    >>> silo = Silo(
    ...     model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1),
    ...     plan.silo(population=200, batch_size=20, local_steps=5), rows, local_steps=5,
    ... )
    >>> [each.shape for each in silo.update([np.zeros((2, 3)), np.zeros(2)])], silo.guarantee.epsilon
    ([(2, 3), (2,)], 1.0)
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Any,
        optimizer: torch.optim.Optimizer,
        plan: Plan,
        dataset: Any,
        *,
        local_steps: int,
        ledger: Ledger | None = None,
        label: str = "silo",
        random_state: int | None = None,
    ) -> None:
        self.local_steps = _validate.count("local_steps", local_steps, 1)
        if not isinstance(plan, Plan) or plan.steps % self.local_steps:
            advice = "Make it by FederatedPlan.silo."
            raise InvalidValue("plan", plan, "a training.Plan of whole rounds of local_steps", advice)
        self.trainer = Trainer(
            model, loss, optimizer, plan, ledger, label=label, progress=False, random_state=random_state
        )
        self._dataset = dataset
        self._rounds_left = plan.steps // self.local_steps
        self._batches: Iterator[Any] | None = None
        self._trained = [each for each in model.parameters() if each.requires_grad]
        self._updates = Updates([tuple(each.shape) for each in self._trained])

    def parameters(self) -> list[NDArray[np.float64]]:
        """The trained parameters as they are, in the order in which updates have them."""
        return [each.detach().double().numpy().copy() for each in self._trained]

    def update(self, parameters: Sequence[Any]) -> list[NDArray[np.float64]]:
        """Take the given parameters, train for one round, and return by how much they changed."""
        given = self._updates.flatten(parameters)
        if given is None or not np.isfinite(given).all():
            raise InvalidValue(
                "parameters", "of other shapes or not finite", f"arrays of shapes {self._updates.shapes}",
                "Give the parameters of the federation's model.",
            )  # fmt: skip
        with torch.no_grad():
            for each, new in zip(self._trained, self._updates.unflatten(given), strict=True):
                each.copy_(torch.from_numpy(new))
        if self._rounds_left == 0:
            raise InvalidValue("plan", self.trainer.plan.steps, "more steps: all of them were taken")
        self._rounds_left -= 1
        start = self.parameters()
        if self._batches is None:
            self._batches = self.trainer.batches(self._dataset)
        for _ in range(self.local_steps):
            inputs, targets = next(self._batches)
            self.trainer.step(inputs, targets)
        return [new - old for new, old in zip(self.parameters(), start, strict=True)]

    @property
    def guarantee(self) -> Guarantee:
        """What may be promised about all updates of this silo, once it has trained."""
        return self.trainer.guarantee
