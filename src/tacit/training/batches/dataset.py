"""How the trainer reads a data set: some rows at a time, by their numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from tacit.errors import InvalidValue
from tacit.training.batches import tree
from tacit.training.plan import Plan
from tacit.training.sampling import RowNumbers

Pair = tuple[Any, Any]


class Examples(ABC):
    """Pairs of inputs and targets, found by the numbers of rows."""

    in_order = True
    """Whether the pairs of a draw are in the order of its rows, and of one shape."""

    @abstractmethod
    def __len__(self) -> int:
        """How many rows there are; private under add_remove, and used by the sampler alone."""

    @abstractmethod
    def batches(self, draws: Iterable[RowNumbers], size: int) -> Iterator[Iterator[Pair]]:
        """The pairs of each draw, in parts of at most ``size`` rows; one empty part for a draw of no rows."""

    def like(self) -> Pair | None:
        """A batch of one example that has the shape of the largest, if there is any: the first one."""
        return next(next(self.batches([np.zeros(1, np.int64)], 1))) if len(self) else None


class InMemory(Examples):
    """Tensors whose first dimension is the rows."""

    def __init__(self, inputs: Any, targets: Any) -> None:
        self.inputs, self.targets = inputs, targets
        self._rows = tree.examples(inputs, targets)

    def __len__(self) -> int:
        return self._rows

    def batches(self, draws: Iterable[RowNumbers], size: int) -> Iterator[Iterator[Pair]]:
        for rows in draws:
            yield (self._at(part) for part in _parts(rows, size))

    def _at(self, rows: RowNumbers) -> Pair:
        chosen = torch.from_numpy(rows)

        def pick(leaf: Any) -> Any:
            return leaf.index_select(0, chosen.to(leaf.device)) if tree.batched(leaf) else leaf

        return tree.mapped(pick, self.inputs), tree.mapped(pick, self.targets)


class FromDataset(Examples):
    """A map-style data set, read through a DataLoader that takes its batches from our sampler."""

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any], workers: int = 0) -> None:
        self.dataset, self.collate, self.workers = dataset, collate, workers

    def __len__(self) -> int:
        return len(self.dataset)

    def batches(self, draws: Iterable[RowNumbers], size: int) -> Iterator[Iterator[Pair]]:
        counts: deque[int] = deque()

        def lists() -> Iterator[list[int]]:
            for rows in draws:
                parts = list(_parts(rows, size))
                counts.append(len(parts))
                yield from (part.tolist() for part in parts)

        loader = iter(
            DataLoader(
                self.dataset,
                batch_sampler=_Lists(lists),
                collate_fn=_Collate(self.collate),
                num_workers=self.workers,
            )
        )
        while True:
            try:
                first = next(loader)
            except StopIteration:
                return
            some = self._some([first], loader, counts.popleft() - 1)
            del first
            yield some

    def _some(self, first: list[Any], loader: Iterator[Any], more: int) -> Iterator[Pair]:
        yield self._pair(first.pop())
        for _ in range(more):
            yield self._pair(next(loader))

    def _pair(self, collated: Any) -> Pair:
        if collated is None:
            return self._empty()
        if not isinstance(collated, tuple | list) or len(collated) != 2:
            raise InvalidValue(
                "dataset", type(collated), "a data set of (inputs, target) pairs",
                "Wrap it in a data set, or pass a DataLoader with a collate_fn, that returns such pairs.",
            )  # fmt: skip
        return collated[0], collated[1]

    def _empty(self) -> Pair:
        """A batch of no rows, whose tensors are shaped like those of a batch of one row."""
        if not len(self.dataset):
            return torch.empty(0), torch.empty(0)
        pair = self._pair(self.collate([self.dataset[0]]))
        return tree.mapped(lambda leaf: leaf[:0] if tree.batched(leaf) else leaf, pair)  # type: ignore[no-any-return]


class _Lists:
    """A batch sampler, as DataLoader wants one, that gives lists of row numbers."""

    def __init__(self, lists: Callable[[], Iterator[list[int]]]) -> None:
        self.lists = lists

    def __iter__(self) -> Iterator[list[int]]:
        return self.lists()


class _Collate:
    """A collate function that gives None for a batch of no rows, which most collate functions refuse."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, items: list[Any]) -> Any:
        return self.collate(items) if items else None


def _parts(rows: RowNumbers, size: int) -> Iterator[RowNumbers]:
    for start in range(0, max(1, len(rows)), size):
        yield rows[start : start + size]


def examples_of(dataset: Any) -> Examples:
    """The examples of a data set, in any of the forms that :meth:`tacit.training.Trainer.fit` takes.

    These are a pair of arrays or tensors, a ``TensorDataset``, a map-style data set of (inputs, target), and
    a DataLoader of one. Of a DataLoader the data set, the collate function and the workers are used; its
    batches are not, since the plan says how batches are drawn.
    """
    if isinstance(dataset, Examples):
        return dataset
    if isinstance(dataset, DataLoader):
        return _of_loader(dataset)
    if isinstance(dataset, TensorDataset):
        return _in_memory(dataset.tensors)
    if isinstance(dataset, tuple | list) and len(dataset) > 1 and all(map(_is_array, dataset)):
        return _in_memory(dataset)
    if isinstance(dataset, IterableDataset) or not (
        hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    ):
        raise InvalidValue(
            "dataset", type(dataset), "a data set with a length and numbered rows, or (inputs, targets)",
            "A stream cannot be sampled as the plan says; collect it first.",
        )  # fmt: skip
    if isinstance(dataset, tuple | list | Mapping | str):
        raise InvalidValue("dataset", type(dataset), "(inputs, targets), two arrays, or a torch data set")
    return FromDataset(dataset, default_collate)


def replaced(loader: DataLoader[Any], plan: Plan) -> str:
    """What of a DataLoader is not used, and what the plan uses instead, in words."""
    order = "shuffled" if isinstance(loader.sampler, RandomSampler) else "in order"
    rate = f"{plan.sampling_rate:.4g}"
    how = {
        "poisson": f"each example is drawn with probability {rate} ({plan.batch_size} expected)",
        "shuffle": f"about {plan.batch_size} examples, from a new random order in each epoch",
        "fixed": f"{plan.batch_size} examples drawn at random",
        "cyclic": f"about {plan.batch_size} examples, from a random order that is drawn once",
        "ordered": f"about {plan.batch_size} examples, in their order",
    }[plan.sampling]
    return (
        f"The DataLoader's batches (batch_size={loader.batch_size}, {order}) are not used: the guarantee is "
        f"for those that the plan draws. In each of {plan.steps} steps {how}. Its data set, collate_fn and "
        "num_workers are used. Pass the data set itself to leave this notice out."
    )


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _in_memory(arrays: Any) -> InMemory:
    tensors = [torch.as_tensor(each) for each in arrays]
    inputs = tensors[0] if len(tensors) == 2 else tuple(tensors[:-1])
    return InMemory(inputs, tensors[-1])


def _of_loader(loader: DataLoader[Any]) -> Examples:
    if isinstance(loader.dataset, IterableDataset) or type(loader.sampler) not in (
        RandomSampler,
        SequentialSampler,
    ):
        raise InvalidValue(
            "dataset", type(loader.sampler), "a DataLoader without a sampler of its own",
            "The plan says how batches are drawn. Pass the data set itself; weights belong in the loss.",
        )  # fmt: skip
    if isinstance(loader.dataset, TensorDataset) and loader.collate_fn is default_collate:
        return _in_memory(loader.dataset.tensors)
    return FromDataset(loader.dataset, loader.collate_fn, loader.num_workers)
