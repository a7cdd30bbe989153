"""Several views of each example: their gradients are added up before they are clipped.

The views themselves are made by :mod:`tacit.training.batches.views`.
"""

from __future__ import annotations

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
