"""Weights that are computed as a direction times a length, row by row: weight normalisation.

With w = s·u, u = v / ‖v‖ for each row (Salimans and Kingma 2016), an example's gradient G of w gives
⟨G, u⟩ for s and (s / ‖v‖)·(G − u⟨G, u⟩) for v. All ⟨G, u⟩ follow from inputs and output gradients
without G, and the squared norm of the second is ‖(s / ‖v‖)·G‖² − ‖(s / ‖v‖)·⟨G, u⟩‖².
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.training.gradients.pieces import Matrix, Mended, Piece, Plain, Weights


def normed(weight: Tensor, length: Tensor, dim: int = 0) -> Tensor:
    """``torch._weight_norm``, in operations whose gradients can be computed for all examples at once."""
    # For PyTorch −1 stands for no dimension at all; other negative numbers count from the end.
    kept = dim + weight.dim() if dim < -1 else dim
    rest = [each for each in range(weight.dim()) if each != kept]
    sizes = torch.linalg.vector_norm(weight, dim=rest, keepdim=True) if rest else weight.abs()
    made: Tensor = weight * (length / sizes)
    return made


def behind(piece: Piece, weight: Tensor, length: Tensor) -> tuple[Piece, Piece] | None:
    """The pieces of direction and length, from that of the weight; None where they are not to be had so."""
    if not isinstance(piece, Matrix) or piece.held is not None or piece.grads.shape[2] != len(weight):
        return None
    rows = weight.detach().flatten(1).to(piece.grads.dtype)
    sizes = torch.linalg.vector_norm(rows, dim=1)
    units = rows / sizes[:, None]
    factors = length.detach().flatten().to(rows.dtype) / sizes
    dots = (piece.grads * (piece.inputs @ units.t())).sum(1)
    scaled = Matrix(piece.inputs, piece.grads * factors, piece.shape)
    return Direction(scaled, units, dots * factors), Plain(dots.view(len(dots), *length.shape))


@dataclass
class Direction(Mended):
    """Gradients of a matrix less their part along a unit vector for each row; ``dots`` are these parts."""

    part: Matrix
    units: Tensor
    dots: Tensor

    def squares(self) -> Tensor:
        whole = self.part.squares()
        # Neither term is longer than the gradient of which the other is taken away.
        return self._mended(whole - self.dots.square().sum(1), 4 * whole)

    def _instantiate(self, rows: Tensor | None) -> Tensor:
        return self._across(self.part._instantiate(rows), self.units)

    def _bulk(self, weights: Weights) -> Tensor:
        # A row of zeros has no direction: gradients there are not finite, and all examples are dropped.
        return self._across(self.part.weighted(weights)[None], self.units.nan_to_num(0.0))[0]

    def _across(self, values: Tensor, units: Tensor) -> Tensor:
        flat = values.flatten(2)
        units = units.to(flat.dtype)
        return (flat - units * (flat * units).sum(2, keepdim=True)).view(values.shape)
