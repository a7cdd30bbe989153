"""Parameters whose numbers are used in another order, as ``p.t()``: their gradients are in that order too."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.training.gradients.pieces import Matrix, Piece, Weights


def rearranged(own: Tensor, leaf: Tensor) -> bool:
    """Whether a tensor is all of another, each number once, as a view of the same memory."""
    return (
        own.numel() == leaf.numel()
        and own.dtype == leaf.dtype
        and leaf.is_contiguous()
        and own.untyped_storage()._cdata == leaf.untyped_storage()._cdata
        and own.storage_offset() == leaf.storage_offset()
        and torch._debug_has_internal_overlap(own) == 0
        and not own.is_neg()
    )


def turned(piece: Piece, own: Tensor, leaf: Tensor) -> Piece:
    """The piece of ``leaf``, from that of ``own``, its numbers in another order."""
    if own.shape == leaf.shape and own.stride() == leaf.stride():
        return piece
    swapped = own.dim() == 2 and own.shape == leaf.shape[::-1] and own.stride() == leaf.stride()[::-1]
    if swapped and isinstance(piece, Matrix) and piece.held is None:
        return Matrix(piece.grads, piece.inputs, leaf.shape)
    return Turned(piece, own.shape, own.stride(), leaf.shape)


@dataclass
class Turned(Piece):
    """Gradients whose numbers lie in memory as a view of these strides would have them."""

    part: Piece
    size: torch.Size
    stride: tuple[int, ...]
    shape: torch.Size

    def squares(self) -> Tensor:
        return self.part.squares()

    def gradients(self) -> Tensor:
        return self._back(self.part.gradients())

    def weighted(self, weights: Weights) -> Tensor:
        return self._back(self.part.weighted(weights)[None])[0]

    def _back(self, values: Tensor) -> Tensor:
        found = values.new_empty((len(values), *self.shape))
        found.as_strided((len(values), *self.size), (self.shape.numel(), *self.stride)).copy_(values)
        return found

    def settle(self) -> None:
        self.part.settle()
