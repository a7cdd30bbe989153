"""The record of one forward and backward pass: which tensors to watch, and what came back."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import torch
from torch import Tensor, nn

from tacit.training.layers import Matrix, Piece, Rows, Shift

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


class Tape:
    """Keeps, for each watched output, the gradient of the loss and what to make of it.

    Parameters are constants while the tape runs, so that the backward pass carries gradients
    from output to output and computes none for a parameter.
    """

    def __init__(self) -> None:
        self.anchor = torch.zeros((), requires_grad=True)
        self._kept: list[tuple[Callable[[Tensor], Pieces], Tensor]] = []

    def watch(self, output: Tensor, make: Callable[[Tensor], Pieces]) -> Tensor:
        """Watch an output; ``make`` turns its gradient into the pieces of the parameters behind it."""
        if not output.requires_grad:
            output = _Start.apply(output, self.anchor)  # type: ignore[no-untyped-call]

        def keep(grad: Tensor) -> None:
            self._kept.append((make, grad.detach()))

        output.register_hook(keep)  # type: ignore[no-untyped-call]
        return output

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
            values, grad = (each[:, None] if each.dim() == 2 else each for each in (kept, grad))
            for parameter, piece in ((weight, Matrix(values, grad, own.shape)), (bias, Shift(grad))):
                if parameter is not None and id(parameter) in trainable:
                    whole = piece if rows is None else Rows(piece, start, count, parameter.shape)
                    found.append((parameter, whole))
            return found

        return self.watch(output, make)

    def shift(self, values: Tensor, bias: Tensor, trainable: Container[int], rows: tuple[int, int]) -> Tensor:
        """``values`` (examples, positions, p) plus rows of a bias, watched."""
        start, count = rows
        output = values + bias[start : start + count]
        if id(bias) not in trainable:
            return output
        return self.watch(output, lambda grad: [(bias, Rows(Shift(grad), start, count, bias.shape))])

    def run(self, losses: Tensor) -> dict[int, list[Piece]]:
        """The backward pass; what each parameter received, by the parameter's identity."""
        if losses.requires_grad:
            torch.autograd.grad(losses, [self.anchor], torch.ones_like(losses), allow_unused=True)
        received: dict[int, list[Piece]] = {}
        for make, grad in self._kept:
            for parameter, piece in make(grad):
                received.setdefault(id(parameter), []).append(piece)
        self._kept.clear()
        return received
