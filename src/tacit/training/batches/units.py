"""Examples that are people: all rows of one unit make one example, sampled and clipped as one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit import _validate
from tacit.data.given import column
from tacit.data.units import bounded_units, unit_numbers
from tacit.errors import InvalidValue
from tacit.randomness import Source
from tacit.training.batches import tree
from tacit.training.batches.dataset import Examples, Pair, examples_of
from tacit.training.gradients.fallback import Loss
from tacit.training.sampling import RowNumbers


class ByUnit(Examples):
    """A data set whose examples are units, such as patients, each with up to ``rows_per_unit`` of its rows.

    ``dataset`` is one that :meth:`tacit.training.Trainer.fit` takes, and ``units`` names the unit of each of
    its rows. The plan needs ``unit=Unit(column, rows_per_unit)``, and its ``population`` and ``batch_size``
    count units.

    Guarantee: that of the trainer, for one unit with all its rows (user-level differential privacy: McMahan
    et al. 2018). A unit is drawn into a batch as a whole. Its gradient is the mean over its rows, clipped to
    clip_norm as one, so the sensitivity of a step is that of one example, however many rows a unit has.
    Of a unit with more rows than ``rows_per_unit``, so many are chosen at random, once; a row without a unit
    (None or NaN) is left out. Both depend on the names of the units alone.

    >>> import torch
    >>> from tacit.relations import Unit
    >>> from tacit.training import Plan, Trainer
    >>> visits, ill = torch.randn(400, 3), torch.randint(0, 2, (400,))
    >>> patients = torch.arange(400) // 4
    >>> plan = Plan(
    ...     population=100, batch_size=20, epochs=2, epsilon=2.0, delta=1e-5, unit=Unit("patient", rows=4)
    ... )
    >>> model = torch.nn.Linear(3, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> trainer = Trainer(model, torch.nn.CrossEntropyLoss(), optimizer, plan)
    >>> trainer = trainer.fit(ByUnit((visits, ill), patients, rows_per_unit=4))
    >>> print(trainer.guarantee)
    (ε = 2, δ = 1e-05)-differentially private under add_remove of one patient (at most 4 rows); ...
    """

    def __init__(
        self, dataset: Any, units: Any, *, rows_per_unit: int, random_state: int | None = None
    ) -> None:
        self.rows_per_unit = _validate.count("rows_per_unit", rows_per_unit, 1)
        self._rows = examples_of(dataset)
        names = units.numpy() if isinstance(units, Tensor) else units
        given = column("units", names, len(self._rows))
        numbers = unit_numbers(given)
        numbers[~bounded_units(given, self.rows_per_unit, Source(random_state))] = -1
        order = np.argsort(numbers, kind="stable")
        order = order[numbers[order] >= 0]
        _, starts, counts = np.unique(numbers[order], return_index=True, return_counts=True)
        # A unit with fewer rows is filled up with its own rows, which then weigh nothing.
        slots = np.arange(self.rows_per_unit)
        self._places = order[starts[:, None] + slots % counts[:, None]] if len(order) else order.reshape(0, 1)
        self._weights = np.where(slots < counts[:, None], self.rows_per_unit / counts[:, None], 0.0)

    def __len__(self) -> int:
        return len(self._places)

    def batches(self, draws: Iterable[RowNumbers], size: int) -> Iterator[Iterator[Pair]]:
        weights: deque[Tensor] = deque()

        def rows() -> Iterator[RowNumbers]:
            for drawn in draws:
                weights.append(torch.from_numpy(self._weights[drawn].ravel()))
                yield self._places[drawn].ravel()

        for parts in self._rows.batches(rows(), size * self.rows_per_unit):
            yield _weighted(parts, weights.popleft())


def _weighted(parts: Iterator[Pair], weights: Tensor) -> Iterator[Pair]:
    for inputs, targets in parts:
        count = tree.examples(inputs, targets)
        yield inputs, (targets, weights[:count])
        weights = weights[count:]


def weighted(loss: Loss) -> Loss:
    """The loss of rows with weights, of targets (targets, weights) as :class:`ByUnit` gives them."""

    def losses(outputs: Any, targets: Any) -> Tensor:
        own, weights = targets
        values: Tensor = loss(outputs, own)
        return torch.mul(values, weights.to(values))

    return losses


def require_units(examples: Examples, rows: int) -> None:
    """Refuse examples that are not the units of the plan."""
    found = examples.rows_per_unit if isinstance(examples, ByUnit) else 1
    if found != rows:
        raise InvalidValue(
            "dataset", f"{found} rows per unit", f"one of units with {rows} rows, as in the plan",
            "Fit ByUnit(dataset, units, rows_per_unit=...) with Plan(unit=Unit(column, rows=...)).",
        )  # fmt: skip
