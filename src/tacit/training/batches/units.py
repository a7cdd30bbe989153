"""Examples that are people: all rows of one unit make one example, sampled and clipped as one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from tacit import _validate
from tacit.data.given import column
from tacit.data.units import unit_numbers
from tacit.errors import InvalidValue
from tacit.randomness import Source
from tacit.relations import Unit
from tacit.training.batches import tree
from tacit.training.batches.dataset import Examples, FromDataset, Pair, examples_of
from tacit.training.batches.views import joined
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
    Of a unit with more rows than ``rows_per_unit``, so many are chosen at random when the data set is made.
    Which ones depends on how many rows that unit has, and on nothing that other units have: so one unit
    changes the example of no other, also where ``random_state`` is a seed that everybody knows. A row without
    a unit (None or NaN) is left out.

    The ``collate_fn`` of a DataLoader is called with the rows of one unit at a time. It has to return as many
    rows as it got, in their order, and those of all units in one shape; a function that sorts or drops the
    rows of a whole batch would else hand rows of one unit to another.

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
        if isinstance(dataset, ByUnit):
            raise InvalidValue("dataset", "ByUnit", "one of rows", "Units are made of rows once.")
        rows = examples_of(dataset)
        if not rows.in_order:
            raise InvalidValue(
                "dataset", type(dataset), "one whose batches are in the order of the draw",
                "The rows of a unit must stay together: Texts(..., by_length=False).",
            )  # fmt: skip
        self._rows = _collated_by_unit(rows, self.rows_per_unit)
        numbers = unit_numbers(column("units", _names(units), len(self._rows)))
        order = np.argsort(numbers, kind="stable")
        order = order[numbers[order] >= 0]
        _, starts, counts = np.unique(numbers[order], return_index=True, return_counts=True)
        # A unit with fewer rows is filled up with its own rows, which then weigh nothing.
        slots = np.arange(self.rows_per_unit)
        own = slots % counts[:, None]
        seed = Source(random_state).bits(63)
        for count in np.unique(counts[counts > self.rows_per_unit]):
            chosen = np.argsort(Source(seed).words(int(count)), kind="stable")[: self.rows_per_unit]
            own[counts == count] = chosen
        self._places = order[starts[:, None] + own] if len(order) else order.reshape(0, 1)
        used = np.minimum(counts, self.rows_per_unit)[:, None]
        self._weights = np.where(slots < used, self.rows_per_unit / used, 0.0)

    def __len__(self) -> int:
        return len(self._places)

    def batches(self, draws: Iterable[RowNumbers], size: int) -> Iterator[Iterator[Pair]]:
        if self.rows_per_unit == 1:
            yield from self._rows.batches((self._places[drawn].ravel() for drawn in draws), size)
            return
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


def _names(units: Any) -> Any:
    """The names of the units, as an array where they are a tensor, of whatever device and type."""
    if not isinstance(units, Tensor):
        return units
    found = units.detach().cpu()
    return (found.double() if found.is_floating_point() else found).numpy()


def _collated_by_unit(rows: Examples, rows_per_unit: int) -> Examples:
    """The same rows, of which a collate function of the user's own sees those of one unit at a time."""
    if not isinstance(rows, FromDataset) or rows.collate is default_collate:
        return rows
    return FromDataset(rows.dataset, _CollateUnits(rows.collate, rows_per_unit), rows.workers)


@dataclass(frozen=True)
class _CollateUnits:
    """Collates the rows of each unit by themselves, and joins the units."""

    collate: Callable[[list[Any]], Any]
    rows: int

    def __call__(self, items: list[Any]) -> Any:
        # A batch of no rows is shaped like the collated form of a single row.
        size = self.rows if len(items) % self.rows == 0 else len(items)
        units = [self.collate(items[start : start + size]) for start in range(0, len(items), size)]
        if any(tree.examples(each, ()) != size for each in units):
            raise InvalidValue(
                "collate_fn", "another number of rows", "a function that keeps the rows of a unit",
                "Leave rows out before units are made, with None as their unit.",
            )  # fmt: skip
        try:
            return joined(units)
        except RuntimeError:
            raise InvalidValue(
                "collate_fn", "rows of different shapes", "a function that gives all units one shape",
                "Pad to a length that is chosen beforehand.",
            ) from None  # fmt: skip


def weighted(loss: Loss) -> Loss:
    """The loss of rows with weights, of targets (targets, weights) as :class:`ByUnit` gives them."""

    def losses(outputs: Any, targets: Any) -> Tensor:
        own, weights = targets
        values: Tensor = loss(outputs, own)
        # Any other shape is refused by the engine; it must not be spread over the rows here.
        return torch.mul(values, weights.to(values)) if values.shape == weights.shape else values

    return losses


def require_units(examples: Examples, unit: Unit) -> None:
    """Refuse examples that are not the units of the plan.

    Units of one row each are no rows either: one more row of a person may be chosen in place of another, so
    that the sum moves by the gradients of both.
    """
    rows, found = unit.rows, examples.rows_per_unit if isinstance(examples, ByUnit) else 1
    if found != rows:
        raise InvalidValue(
            "dataset", f"{found} rows per unit", f"one of units with {rows} rows, as in the plan",
            "Fit ByUnit(dataset, units, rows_per_unit=...) with Plan(unit=Unit(column, rows=...)).",
        )  # fmt: skip
    if isinstance(examples, ByUnit) and unit.column is None:
        raise InvalidValue(
            "plan.unit", str(unit), "the unit that the rows of the data set were brought together by",
            f"Write Plan(unit=Unit(column, rows={found})): the guarantee is for units, and not for rows.",
        )  # fmt: skip
