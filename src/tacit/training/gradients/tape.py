"""The tape of one forward and backward pass: watched outputs, and the pieces made of their gradients."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward
from torch.utils.checkpoint import CheckpointError

from tacit.training.gradients.pieces import Matrix, Piece, Rows, Shift, merge
from tacit.training.isolation.confinement import no_dispatch_modes, no_function_modes
from tacit.training.isolation.unproved import Unproved

if TYPE_CHECKING:
    from tacit.training.isolation.recording import Place, Recording

Pieces = list[tuple[Tensor, Piece]]


class _Start(torch.autograd.Function):
    """Gives a tensor that needs no gradient a place in the graph, so that it can be watched."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, anchor: Tensor) -> Tensor:
        ctx.mark_dirty(value)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None]:
        return None, None


@contextmanager
def _unwatched() -> Iterator[None]:
    """Within, what the engine computes from an example's gradient is its own affair."""
    with no_function_modes(), no_dispatch_modes():
        yield


class Tape:
    """Keeps, for each watched output, the gradient of the loss and what to make of it.

    Parameters are constants while the tape runs, so that the backward pass carries gradients
    from output to output and computes none for a parameter.
    """

    def __init__(self, recording: Recording) -> None:
        self.anchor = torch.zeros((), requires_grad=True)
        self.recording = recording
        self._made: Pieces = []
        self._leaves: list[tuple[Tensor, int, Callable[[Tensor], Pieces]]] = []
        self._behind: dict[int, Callable[[Piece], Pieces]] = {}

    def watch(
        self, output: Tensor, make: Callable[[Tensor], Pieces], dimension: int = 0, *kept: Place
    ) -> Tensor:
        """Watch an output; ``make`` turns its gradient into the pieces of the parameters behind it.

        Its gradient must have the examples along ``dimension``, and the tensors ``kept`` for the pieces along
        theirs.
        """
        if not torch.is_grad_enabled():
            return output
        if not output.requires_grad:
            output = _Start.apply(output, self.anchor)  # type: ignore[no-untyped-call]

        # The graph outlives the hook: what the hook holds on to must not.
        waiting = [(make, kept)]
        del make, kept

        def keep(grad: Tensor) -> None:
            self.recording.rows("gradient", (grad, dimension), *waiting[0][1])
            with _unwatched(), torch.no_grad():
                self.add(*waiting.pop()[0](grad.detach()))

        output.register_hook(keep)  # type: ignore[no-untyped-call]
        return output

    def add(self, *pieces: tuple[Tensor, Piece]) -> None:
        """Pieces made while the backward pass runs; what they are made from is let go of where it can be."""
        for parameter, piece in pieces:
            piece.settle()
            self._made.append((parameter, piece))

    def behind(self, tensor: Tensor, make: Callable[[Piece], Pieces]) -> None:
        """``make`` turns all that a function of parameters received into the pieces of the parameters."""
        self._behind[id(tensor)] = make

    def leaf(self, value: Tensor, make: Callable[[Tensor], Pieces], dimension: int) -> Tensor:
        """Watch a tensor with which a computation starts, spread over the examples along a dimension."""
        self._leaves.append((value, dimension, make))
        return value

    def linear(
        self,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        trainable: Container[int],
        *,
        rows: tuple[int, int] | None = None,
    ) -> Tensor:
        """Rows of the weight times ``inputs`` (examples, [positions,] d), plus bias; watched."""
        start, count = rows or (0, weight.shape[0])
        own, shift = weight, bias
        if rows is not None:
            own = weight[start : start + count]
            shift = None if bias is None else bias[start : start + count]
        output = nn.functional.linear(inputs, own, shift)
        if id(weight) not in trainable and (bias is None or id(bias) not in trainable):
            return output
        kept = inputs.detach()

        def make(grad: Tensor) -> Pieces:
            found: Pieces = []
            dtype = torch.promote_types(weight.dtype, torch.float32)
            values, grad = (each[:, None] if each.dim() == 2 else each for each in (kept, grad))
            values, grad = values.to(dtype), grad.to(dtype)
            for parameter, piece in ((weight, Matrix(values, grad, own.shape)), (bias, Shift(grad))):
                if parameter is not None and id(parameter) in trainable:
                    whole = piece if rows is None else Rows(piece, start, count, parameter.shape)
                    found.append((parameter, whole))
            return found

        return self.watch(output, make, 0, (kept, 0))

    def shift(self, values: Tensor, bias: Tensor, trainable: Container[int], rows: tuple[int, int]) -> Tensor:
        """``values`` (examples, positions, p) plus rows of a bias, watched."""
        start, count = rows
        output = values + bias[start : start + count]
        if id(bias) not in trainable:
            return output
        dtype = torch.promote_types(bias.dtype, torch.float32)
        return self.watch(
            output, lambda grad: [(bias, Rows(Shift(grad.to(dtype)), start, count, bias.shape))]
        )

    def run(self, losses: Tensor) -> dict[int, list[Piece]]:
        """The backward pass; what each parameter received, by the parameter's identity."""
        if losses.requires_grad:
            leaves = (self.anchor, *(leaf for leaf, _, _ in self._leaves))
            try:
                # As torch.autograd.grad does, but with what watches functions still watching.
                ones = (torch.ones_like(losses),)
                _, *found = _engine_run_backward(
                    (losses,), ones, False, False, leaves, True, accumulate_grad=False
                )
            except CheckpointError as error:
                raise Unproved from error
            for (_, dimension, make), grad in zip(self._leaves, found, strict=True):
                if grad is not None:
                    self.recording.rows("gradient", (grad, dimension))
                    with _unwatched():
                        self._made.extend(make(grad))
        received: dict[int, list[Piece]] = {}
        for parameter, piece in self._made:
            received.setdefault(id(parameter), []).append(piece)
        for key, through in self._behind.items():
            if key in received:
                with _unwatched():
                    parts = through(merge(received.pop(key)))
                for parameter, piece in parts:
                    received.setdefault(id(parameter), []).append(piece)
        self._made.clear()
        self._behind.clear()
        self._leaves.clear()
        return received
