"""The examples of a training run, read and made into features once they are paid for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.data.examples import valid_labels
from tacit.training.batches.dataset import Examples, InMemory, Pair
from tacit.training.features.cache import FeatureCache, rows_of
from tacit.training.features.fixed import Seen
from tacit.training.features.registry import Chosen
from tacit.training.sampling import RowNumbers

__all__ = ["Later", "tensor_of"]

Array = NDArray[Any]


class Later(Examples):
    """The examples of a source that are read when the first of them is wanted, once they are paid for."""

    def __init__(
        self, found: Any, classes: int, prepare: Callable[[Tensor], Tensor], fixed: nn.Module | None = None,
        say: Callable[[str], None] = lambda text: None, *, features: Chosen | None = None,
        cache: FeatureCache | None = None, seen: Seen | None = None,
    ) -> None:  # fmt: skip
        self.found, self.classes, self.prepare, self.fixed, self.say = found, classes, prepare, fixed, say
        self.features, self.cache, self.seen = features, cache, seen
        self._read: InMemory | None = None

    def __len__(self) -> int:
        return int(self.found.private_rows)

    def batches(self, draws: Iterable[RowNumbers], size: int) -> Iterator[Iterator[Pair]]:
        """For each draw its pairs, in parts of at most ``size`` rows; one empty part for no rows."""
        if self._read is None:
            self._read = self._loaded()
        for parts in self._read.batches(draws, size):
            yield map(self._ready, parts)

    def _loaded(self) -> InMemory:
        self.say("Reading the examples")
        inputs, labels = self.found.read()
        assert labels is not None
        targets = torch.from_numpy(valid_labels(labels, self.classes) if self.classes else labels)
        if self.features is not None:
            self.say(f"Computing {self.features.name} features")
            rows = rows_of(self.features.adapter, inputs, self.cache, self.seen)
            return InMemory(torch.from_numpy(rows), targets)
        values = tensor_of(inputs)
        if self.fixed is not None:
            self.say("Computing features")
            chunks = torch.split(values, 1) or (values,)
            values = torch.cat([self.fixed(self.prepare(chunk)).half() for chunk in chunks])
        return InMemory(values, targets)

    def _ready(self, pair: Pair) -> Pair:
        inputs, targets = pair
        computed = self.fixed is not None or self.features is not None
        return (inputs.float() if computed else self.prepare(inputs)), targets


def tensor_of(values: Array) -> Tensor:
    """Examples as a tensor, of types that PyTorch has."""
    with np.errstate(all="ignore"):
        if values.dtype.kind == "u" and values.dtype != np.uint8:
            values = values.astype(np.float32)
        elif values.dtype == np.longdouble:
            values = values.astype(np.float64)
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(np.ascontiguousarray(values))
