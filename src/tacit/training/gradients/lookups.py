"""Tables that a model looks its examples up in, outside ``nn.Embedding``: by themselves, and in bags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tacit.training.gradients.contraction import Product
from tacit.training.gradients.pieces import Lookup, Piece
from tacit.training.isolation.recording import Place, active


@dataclass
class Looked(Product):
    """Vectors looked up in a table at places that come from the examples."""

    weight: Tensor
    indices: Tensor
    padding: int | None
    bias: Tensor | None = None

    def rows(self, made: Tensor) -> frozenset[int]:
        return frozenset(range(-made.dim(), -1))

    def kept(self, made: Tensor, at: int) -> list[Place]:
        return [(self.indices, at + made.dim())]

    def pieces(self, grad: Tensor, at: int) -> list[tuple[Tensor, Piece]]:
        if self.indices.dim() == 1:
            indices, grads = self.indices[:, None], grad[:, None]
        else:
            indices, grads = self.indices.movedim(at + 1, 0).flatten(1), grad.movedim(at, 0).flatten(1, -2)
        if self.padding is not None:
            grads = grads.masked_fill((indices == self.padding % len(self.weight))[..., None], 0)
        return [(self.weight, Lookup(indices, grads, len(self.weight)))]


@dataclass
class Bag(Product):
    """Sums or means of vectors looked up in a table; ``indices`` is (examples, entries of a bag).

    The gradient of an entry's vector is the bag's, times the weight of the entry, or divided by the number
    of entries. Bags are examples, and none reads another: the sums are computed unwatched.
    """

    weight: Tensor
    indices: Tensor
    factors: Tensor | None
    mean: bool
    padding: int | None
    bias: Tensor | None = None

    def rows(self, made: Tensor) -> frozenset[int]:
        return frozenset({-2})

    def kept(self, made: Tensor, at: int) -> list[Place]:
        return [(self.indices, 0), (self.factors, 0)]

    def run(self, call: Callable[[], Tensor], value: Callable[[Any], Any]) -> Tensor:
        table, recording = value(self.weight), active()
        if recording is None or (self.factors is not None and self.factors.requires_grad):
            return (F.embedding(self.indices, table) * self._shares(table.dtype)[:, :, None]).sum(1)
        what = ("bag", self.weight.shape, self.mean, self.padding)
        given: list[Place] = [(self.indices, 0), (self.factors, 0)]
        mode = "mean" if self.mean else "sum"

        def bags() -> list[Place]:
            return [(F.embedding_bag(
                self.indices, table, mode=mode, per_sample_weights=self.factors, padding_idx=self.padding
            ), 0)]  # fmt: skip

        (made,) = recording.trusted(what, given, bags, [table])
        assert made is not None
        return made

    def pieces(self, grad: Tensor, at: int) -> list[tuple[Tensor, Piece]]:
        shares = self._shares(grad.dtype).detach()
        return [(self.weight, Lookup(self.indices, grad[:, None] * shares[:, :, None], len(self.weight)))]

    def _shares(self, dtype: torch.dtype) -> Tensor:
        """What the vector of each entry is multiplied by in its bag."""
        if self.factors is not None:
            shares = self.factors.to(dtype)
        else:
            shares = torch.ones_like(self.indices, dtype=dtype)
        if self.padding is not None:
            shares = shares.masked_fill(self.indices == self.padding % len(self.weight), 0)
        return shares / shares.sum(1, keepdim=True).clamp(min=1) if self.mean else shares


def bag_of(
    known: Callable[[object], bool], input: Tensor, weight: Tensor, offsets: Tensor | None = None,
    max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
    mode: str = "mean", sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> Bag | None:  # fmt: skip
    """The bags of a call of ``F.embedding_bag``, if all are of one length; a maximum is not linear."""
    special = max_norm is not None or scale_grad_by_freq or mode not in ("sum", "mean")
    if special or known(input) or not known(weight) or known(per_sample_weights) or input.is_floating_point():
        return None
    if input.dim() == 1:
        count = _bags(input, offsets, include_last_offset)
        if count is None:
            return None
        input = input.view(count, -1)
        per_sample_weights = None if per_sample_weights is None else per_sample_weights.view(input.shape)
    return Bag(weight, input, per_sample_weights, mode == "mean", padding_idx)


def _bags(input: Tensor, offsets: Tensor | None, last: bool) -> int | None:
    """The number of bags that begin at these offsets, which are public, if they are all of one length."""
    recording = active()
    if offsets is None or not input.is_contiguous() or (recording is not None and recording.tainted(offsets)):
        return None
    starts: list[int] = offsets.tolist()
    ends = [*starts[1:], *([] if last else [len(input)])]
    count = len(ends)
    length = len(input) // max(1, count)
    even = ends == [length * number for number in range(1, count + 1)] and starts[:1] == [0]
    return count if even and length * count == len(input) > 0 else None
