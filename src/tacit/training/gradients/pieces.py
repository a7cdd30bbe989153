"""Pieces: the gradients that one parameter received from a batch, and what the engine asks of them.

A :class:`Piece` stands for the per-example gradients of one parameter without holding them: it
can give their squared norms, give them outright, and give their weighted sum.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from tacit.training.gradients.norms import gram_squares, row_norms, row_squares, smallest
from tacit.training.gradients.sums import RUN, outer_products, weighted_rows

# A squared norm from Gram matrices that cancelled to less than this share of its terms is
# computed again from the gradient itself.
_CANCELLED = 1e-4
# Multiplications that take as long as writing and twice reading a number of a gradient.
_PASSES = 24
# Positions from which on a Gram matrix has one block of rows more.
_BLOCKS = (0, 48, 128, 128)


@dataclass(frozen=True)
class Weights:
    """A factor for each example, and which examples are to add exactly 0, if any."""

    factors: Tensor
    dropped: Tensor | None = None

    def to(self, dtype: torch.dtype) -> Weights:
        """The same in another precision."""
        return self if self.factors.dtype == dtype else Weights(self.factors.to(dtype), self.dropped)

    def at(self, rows: Tensor) -> Weights:
        """The weights of these examples alone."""
        return Weights(self.factors[rows], None if self.dropped is None else self.dropped[rows])

    def besides(self, rows: Tensor) -> Weights:
        """The weights with these examples dropped."""
        dropped = torch.zeros_like(self.factors, dtype=torch.bool) if self.dropped is None else self.dropped
        return Weights(self.factors.index_fill(0, rows, 0), dropped.index_fill(0, rows, True))

    def times(self, shares: Tensor) -> Weights:
        """The weights with each example's factor multiplied by its share."""
        return Weights(self.factors * shares.to(self.factors.dtype), self.dropped)

    def kept(self, values: Tensor) -> Tensor:
        """The values with dropped examples set to 0, so that 0 × NaN does not arise."""
        if self.dropped is None:
            return values
        return values.masked_fill(self.dropped.view(-1, *[1] * (values.dim() - 1)), 0)

    def scaled(self, values: Tensor) -> Tensor:
        """Factor × values, 0 for dropped examples."""
        return self.kept(values) * self.factors.view(-1, *[1] * (values.dim() - 1))

    def products(self, one: Tensor, two: Tensor) -> tuple[Tensor, Tensor]:
        """Two factors of a product, the smaller of them scaled; both 0 for dropped examples."""
        if one.numel() <= two.numel():
            return self.scaled(one), self.kept(two)
        return self.kept(one), self.scaled(two)


class Piece(ABC):
    """The gradients of one parameter, one for each of the examples in the batch."""

    @abstractmethod
    def squares(self) -> Tensor:
        """Squared norm of each example's gradient: (examples,)."""

    @abstractmethod
    def gradients(self) -> Tensor:
        """Each example's gradient: (examples, \\*shape of the parameter)."""

    @abstractmethod
    def weighted(self, weights: Weights) -> Tensor:
        """Sum over examples of factor × gradient, in the precision of the factors, or in float64.

        A dropped example adds 0, NaN or not. How many are added up in float32: :mod:`.sums`.
        """

    def settle(self) -> None:  # noqa: B027
        """Write the gradients out, and let go of what they come from, where that takes less room."""


@dataclass
class Plain(Piece):
    """Gradients held outright."""

    values: Tensor

    def squares(self) -> Tensor:
        return row_squares(self.values.reshape(len(self.values), -1))

    def gradients(self) -> Tensor:
        return self.values

    def weighted(self, weights: Weights) -> Tensor:
        values = weights.kept(self.values)
        return weighted_rows(values.reshape(len(values), -1), weights.factors).view(values.shape[1:])


class Mended(Piece):
    """Gradients whose squared norms come from products that may cancel.

    An example whose terms cancelled to a small share is mended: its gradient is written out, and
    both its norm and its part of the sum come from that, so that the two agree however large the
    terms were. For all others what rounding may have lost is added to the square.
    """

    _rows: Tensor | None = None
    _exact: Tensor | None = None

    @abstractmethod
    def _instantiate(self, rows: Tensor | None) -> Tensor:
        """Gradients of the examples with these numbers, or of all."""

    @abstractmethod
    def _bulk(self, weights: Weights) -> Tensor:
        """The weighted sum, from the terms."""

    def _mended(self, squares: Tensor, bound: Tensor) -> Tensor:
        """The squares, given the square of the sum of the terms' norms."""
        squares = squares + 4 * torch.finfo(squares.dtype).eps * bound
        cancelled = squares < _CANCELLED * bound
        if bool(cancelled.any()):
            self._rows = cancelled.nonzero()[:, 0]
            self._exact = self._instantiate(self._rows)
            squares[self._rows] = row_squares(self._exact.flatten(1))
        return squares

    def gradients(self) -> Tensor:
        return self._instantiate(None)

    def weighted(self, weights: Weights) -> Tensor:
        if self._rows is None or self._exact is None:
            return self._bulk(weights)
        exact = Plain(self._exact).weighted(weights.at(self._rows))
        return self._bulk(weights.besides(self._rows)) + exact


def half_gram(values: Tensor) -> list[Tensor]:
    """Gram matrices vvᵀ of (examples, positions, d), in blocks of rows up to the diagonal.

    They are symmetric, so what is to the right of the diagonal blocks need not be computed.
    """
    positions = values.shape[1]
    count = sum(positions >= least for least in _BLOCKS)
    ends = [positions * number // count for number in range(count + 1)]
    return [values[:, start:end] @ values[:, :end].transpose(1, 2) for start, end in pairwise(ends)]


class Gram:
    """The Gram matrix ggᵀ of output gradients, for as many weights as share them."""

    def __init__(self, uses: int = 1) -> None:
        self.uses = uses
        self._grads: Tensor | None = None
        self._value: list[Tensor] | None = None

    def of(self, grads: Tensor) -> list[Tensor]:
        """:func:`half_gram`, computed once for the same gradients."""
        self.uses -= 1
        value = self._value
        if value is None or self._grads is None or not _same(self._grads, grads):
            value = half_gram(grads)
        self._grads, self._value = (grads, value) if self.uses > 0 else (None, None)
        return value


def _same(one: Tensor, two: Tensor) -> bool:
    """Whether two tensors are the same numbers in the same place."""
    places = [(each.data_ptr(), each.dtype, each.shape, each.stride()) for each in (one, two)]
    return places[0] == places[1]


@dataclass
class Matrix(Mended):
    """A weight that maps ``inputs`` to outputs at several positions: Σ over positions of g aᵀ.

    ``inputs`` is (examples, positions, d), ``grads`` (examples, positions, p). With T positions
    the squared norm is ⟨aaᵀ, ggᵀ⟩, two T×T matrices, or comes from the p×d gradients, which then
    serve for the sum as well: whichever takes less time, as long as the gradients take no more
    than about the room of inputs and output gradients (Goodfellow 2015; Li et al. 2022; Bu et al. 2023).
    """

    inputs: Tensor
    grads: Tensor
    shape: torch.Size
    held: Tensor | None = field(default=None, repr=False)
    gram: Gram = field(default_factory=Gram, repr=False)

    def settle(self) -> None:
        positions, width, height = self.inputs.shape[1], self.inputs.shape[2], self.grads.shape[2]
        if positions > 1 and width * height <= positions * (width + height) * min(1.0, positions / _PASSES):
            self.held = self._instantiate(None)
            self.inputs = self.grads = self.held.new_empty(0)

    def squares(self) -> Tensor:
        if self.held is None:
            self.settle()
        if self.held is not None:
            return row_squares(self.held.flatten(1))
        if self.inputs.shape[1] == 1:
            sizes: list[Tensor] = [
                row_norms(each[:, 0]) + math.sqrt(each.shape[2] * smallest(each.dtype))
                for each in (self.inputs, self.grads)
            ]
            return (sizes[0] * sizes[1]).square_()
        widths = self.inputs.shape[2], self.grads.shape[2]
        return self._mended(*gram_squares(half_gram(self.inputs), self.gram.of(self.grads), widths))

    def _instantiate(self, rows: Tensor | None) -> Tensor:
        if self.held is not None:
            return self.held if rows is None else self.held[rows]
        inputs, grads = (self.inputs, self.grads) if rows is None else (self.inputs[rows], self.grads[rows])
        return torch.bmm(grads.transpose(1, 2), inputs).view(-1, *self.shape)

    def _bulk(self, weights: Weights) -> Tensor:
        if self.held is not None:
            return Plain(self.held).weighted(weights)
        grads, inputs = weights.products(self.grads, self.inputs)
        if inputs.stride(0) < inputs.stride(1):
            grads, inputs = grads.transpose(0, 1), inputs.transpose(0, 1)
        return outer_products(grads.flatten(0, 1), inputs.flatten(0, 1), weights.factors.dtype).view(
            self.shape
        )


@dataclass
class Shift(Piece):
    """A bias added at several positions: Σ over positions of ``grads`` (examples, positions, p)."""

    grads: Tensor
    held: Tensor | None = field(default=None, repr=False)

    def settle(self) -> None:
        self._sums()
        self.grads = self.grads.new_empty(0)

    def _sums(self) -> Tensor:
        if self.held is None:
            self.held = self.grads[:, 0] if self.grads.shape[1] == 1 else self.grads.sum(1)
        return self.held

    def squares(self) -> Tensor:
        return row_squares(self._sums())

    def gradients(self) -> Tensor:
        return self._sums()

    def weighted(self, weights: Weights) -> Tensor:
        return weighted_rows(weights.kept(self._sums()), weights.factors)


@dataclass
class Lookup(Mended):
    """A table of ``height`` vectors looked up at ``indices`` (examples, positions).

    The squared norm is that of the sums over positions with the same index.
    """

    indices: Tensor
    grads: Tensor
    height: int

    def squares(self) -> Tensor:
        if self.indices.shape[1] == 1:
            return row_squares(self.grads[:, 0])
        same = (self.indices[:, :, None] == self.indices[:, None, :]).to(self.grads.dtype)
        norms = torch.linalg.vector_norm(self.grads, dim=2)
        bound = (norms * (same @ norms[:, :, None])[:, :, 0]).sum(1)
        return self._mended((self.grads * (same @ self.grads)).sum((1, 2)), bound)

    def _instantiate(self, rows: Tensor | None) -> Tensor:
        indices, grads = (
            (self.indices, self.grads) if rows is None else (self.indices[rows], self.grads[rows])
        )
        offset = torch.arange(len(indices), device=indices.device)[:, None] * self.height
        table = grads.new_zeros(len(indices) * self.height, grads.shape[-1])
        table.index_add_(0, (indices + offset).flatten(), grads.flatten(0, 1))
        return table.view(len(indices), self.height, -1)

    def _bulk(self, weights: Weights) -> Tensor:
        grads, indices = weights.scaled(self.grads).flatten(0, 1), self.indices.flatten()
        if len(indices) > RUN:
            grads = grads.double()
        table = grads.new_zeros(self.height, grads.shape[-1])
        return table.index_add_(0, indices, grads)


@dataclass
class Rows(Piece):
    """Some rows of a parameter, from ``start``; the others received nothing."""

    part: Piece
    start: int
    count: int
    shape: torch.Size

    def squares(self) -> Tensor:
        return self.part.squares()

    def gradients(self) -> Tensor:
        part = self.part.gradients()
        whole = part.new_zeros(part.shape[0], *self.shape)
        whole[:, self.start : self.start + self.count] = part
        return whole

    def weighted(self, weights: Weights) -> Tensor:
        part = self.part.weighted(weights)
        whole = part.new_zeros(self.shape)
        whole[self.start : self.start + self.count] = part
        return whole


@dataclass
class Disjoint(Piece):
    """Pieces for different rows of one parameter."""

    parts: list[Rows]

    def squares(self) -> Tensor:
        return torch.stack([part.squares() for part in self.parts]).sum(0)

    def gradients(self) -> Tensor:
        return torch.stack([part.gradients() for part in self.parts]).sum(0)

    def weighted(self, weights: Weights) -> Tensor:
        return torch.stack([part.weighted(weights) for part in self.parts]).sum(0)


def merge(pieces: list[Piece]) -> Piece:
    """One piece for a parameter that was used several times.

    Uses as a matrix are one use at more positions. Other uses are added example by example, so
    that the products between two uses are in the norm.
    """
    if len(pieces) == 1:
        return pieces[0]
    rows = [piece for piece in pieces if isinstance(piece, Rows)]
    if len(rows) == len(pieces):
        starts: dict[tuple[int, int], list[Piece]] = {}
        for row in rows:
            starts.setdefault((row.start, row.count), []).append(row.part)
        ends = sorted(starts)
        if all(one[0] + one[1] <= two[0] for one, two in pairwise(ends)):
            return Disjoint([Rows(merge(starts[key]), *key, rows[0].shape) for key in ends])
    matrices = [piece for piece in pieces if isinstance(piece, Matrix)]
    if len(matrices) == len(pieces) and all(piece.held is None for piece in matrices):
        inputs = torch.cat([piece.inputs for piece in matrices], 1)
        return Matrix(inputs, torch.cat([piece.grads for piece in matrices], 1), matrices[0].shape)
    total = pieces[0].gradients()
    for piece in pieces[1:]:
        total = total + piece.gradients()
    return Plain(total)
