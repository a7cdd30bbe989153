"""Norms of per-example gradients that rounding makes no shorter than they are."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

# Squares that are added up before they are added to others.
_RUN = 1024


def gram_squares(left: list[Tensor], right: list[Tensor], widths: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """⟨left, right⟩ of each example's two Gram matrices, each in the same blocks of :func:`half_gram`.

    With it, the square of the sum over positions of ‖a‖‖g‖, which bounds it. Products below the smallest
    normal number are lost, at most ``width`` of them in an entry, and count for as much as the other
    matrix is large: what may have been lost is added, so that no gradient is taken for a shorter one.
    """
    diagonals = [
        torch.cat([each.diagonal(each.shape[2] - each.shape[1], 1, 2) for each in blocks], 1)
        for blocks in (left, right)
    ]
    bound = (diagonals[0] * diagonals[1]).clamp_(min=0).sqrt_().sum(1).square_()
    positions, tiny = diagonals[0].shape[1], smallest(bound.dtype)
    traces = [each.sum(1) for each in diagonals]
    squares = positions * tiny * (widths[1] * traces[0] + widths[0] * traces[1])
    squares += positions**2 * tiny * (1 + widths[0] * widths[1] * tiny)
    for one, two in zip(left, right, strict=True):
        product, before = one * two, one.shape[2] - one.shape[1]
        # Blocks below the diagonal stand for those above it as well.
        squares += product[:, :, before:].sum((1, 2))
        if before:
            squares += 2 * product[:, :, :before].sum((1, 2))
    return squares, bound


@functools.cache
def smallest(dtype: torch.dtype) -> float:
    """The smallest number that is surely not taken for 0."""
    return float(torch.finfo(dtype).tiny)


def row_norms(rows: Tensor) -> Tensor:
    """Norm of each row, of which long ones are added up in runs.

    In float32 small squares vanish beside a large sum, one after the other: a long row would come out short.
    """
    width = rows.shape[1]
    norms: Tensor
    if width <= _RUN:
        norms = torch.linalg.vector_norm(rows, dim=1)
        return norms
    rest = width % _RUN
    norms = torch.linalg.vector_norm(rows[:, : width - rest].view(len(rows), -1, _RUN), dim=2)
    if rest:
        norms = torch.cat([norms, row_norms(rows[:, width - rest :])[:, None]], 1)
    return row_norms(norms)


def row_squares(rows: Tensor) -> Tensor:
    """Squared norm of each row."""
    return row_norms(rows).square_()
