"""Several views of each example: made before a pass, their gradients added up before they are clipped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tacit.training import tree
from tacit.training.data import Pair
from tacit.training.gradients.pieces import Disjoint, Lookup, Matrix, Piece, Plain, Rows, Shift


def grouped(piece: Piece, views: int) -> Piece:
    """The piece of examples that are ``views`` consecutive entries of this one, summed.

    Views are further positions where a piece has positions; otherwise gradients are added outright.
    """
    if isinstance(piece, Matrix) and piece.held is None:
        inputs, grads = (
            each.reshape(len(each) // views, -1, each.shape[-1]) for each in (piece.inputs, piece.grads)
        )
        return Matrix(inputs, grads, piece.shape)
    if isinstance(piece, Shift) and piece.held is None:
        return Shift(piece.grads.reshape(len(piece.grads) // views, -1, piece.grads.shape[-1]))
    if isinstance(piece, Lookup):
        examples = len(piece.indices) // views
        grads = piece.grads.reshape(examples, -1, piece.grads.shape[-1])
        return Lookup(piece.indices.reshape(examples, -1), grads, piece.height)
    if isinstance(piece, Rows):
        return Rows(grouped(piece.part, views), piece.start, piece.count, piece.shape)
    if isinstance(piece, Disjoint):
        return Disjoint([Rows(grouped(r.part, views), r.start, r.count, r.shape) for r in piece.parts])
    values = piece.gradients()
    return Plain(values.reshape(len(values) // views, views, *values.shape[1:]).sum(1))


Augment = Callable[[Any], Any]


def viewed(pair: Pair, views: int, augment: Augment | None, *, alone: bool) -> Pair:
    """The pair with every entry as many times as there are views, one after the other, and augmented.

    ``augment`` is given all inputs at once, or those of one example where examples are to be ``alone``.
    """
    if views == 1 and augment is None:
        return pair

    def repeat(leaf: Any) -> Any:
        return leaf.repeat_interleave(views, 0) if tree.batched(leaf) else leaf

    inputs, targets = tree.mapped(repeat, pair) if views > 1 else pair
    entries = tree.examples(inputs, targets)
    if augment is None or not entries:
        return inputs, targets
    if not alone:
        return augment(inputs), targets

    def cut(start: int) -> Any:
        return tree.mapped(lambda leaf: leaf[start : start + views] if tree.batched(leaf) else leaf, inputs)

    return joined([augment(cut(start)) for start in range(0, entries, views)]), targets


def joined(parts: list[Any]) -> Any:
    """The entries of several trees, one after the other."""

    def join(leaves: list[Any]) -> Any:
        return torch.cat(leaves) if isinstance(leaves[0], Tensor) and leaves[0].dim() else leaves[0]

    return tree.zipped(join, parts)
