"""Products of parameters and examples, and of them those that contract labelled dimensions.

A product is linear in its parameter and in the examples. Each example's gradient of the parameter follows
from the example's input and from the gradient of its output, as in a layer with a rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.training.gradients.pieces import Matrix, Piece, Plain, Shift
from tacit.training.isolation.recording import Place

Labels = tuple[Any, ...]
Operand = tuple[Tensor, Labels]


class Product(ABC):
    """A call in which parameters meet examples; ``weight`` and ``bias`` are the operands that are served."""

    weight: Tensor | None
    bias: Tensor | None

    @property
    def own(self) -> list[Tensor]:
        """The operands that are parameters, or functions of parameters."""
        return [each for each in (self.weight, self.bias) if each is not None]

    @abstractmethod
    def rows(self, made: Tensor) -> frozenset[int]:
        """The dimensions of the output, counted from its end, along which examples may lie."""

    @abstractmethod
    def kept(self, made: Tensor, at: int) -> list[Place]:
        """The tensors that pieces are made from, and where their examples lie if the output's are ``at``."""

    def public(self, at: int) -> list[Tensor]:
        """Other tensors that pieces are made from, which must not have been computed from examples."""
        return []

    def run(self, call: Callable[[], Tensor], value: Callable[[Any], Any]) -> Tensor:
        """The output; ``call`` computes it as written, and ``value`` gives the numbers of an operand."""
        return call()

    @abstractmethod
    def pieces(self, grad: Tensor, at: int) -> list[tuple[Tensor, Piece]]:
        """Each example's gradient of the operands, from the gradient of the output."""


@dataclass
class Contraction(Product):
    """A sum of products over labelled dimensions, as ``torch.einsum`` has them, plus a bias."""

    weight: Tensor | None
    labels: Labels
    others: tuple[Operand, ...]
    out: Labels
    bias: Tensor | None = None

    @property
    def sound(self) -> bool:
        """Whether every label stands for one length, and once in an operand; none is the weight's alone."""
        sizes: dict[Any, int] = {}
        every = [*self.others, *([(self.weight, self.labels)] if self.weight is not None else [])]
        for tensor, labels in every:
            if len(set(labels)) != len(labels) or len(labels) != tensor.dim():
                return False
            for label, size in zip(labels, tensor.shape, strict=True):
                if sizes.setdefault(label, size) != size:
                    return False
        known = {label for _, labels in self.others for label in labels} | set(self.out)
        return set(self.labels) <= known and set(self.out) <= sizes.keys()

    def rows(self, made: Tensor) -> frozenset[int]:
        taken = {*self.labels, *(self.out[-1:] if self.bias is not None else ())}
        met = {label for _, labels in self.others for label in labels}
        count = len(self.out)
        return frozenset(
            number - count for number, each in enumerate(self.out) if each in met and each not in taken
        )

    def kept(self, made: Tensor, at: int) -> list[Place]:
        row = self.out[at]
        return [(tensor, labels.index(row)) for tensor, labels in self.others if row in labels]

    def public(self, at: int) -> list[Tensor]:
        return [tensor for tensor, labels in self.others if self.out[at] not in labels]

    def pieces(self, grad: Tensor, at: int) -> list[tuple[Tensor, Piece]]:
        row = self.out[at]
        found: list[tuple[Tensor, Piece]] = []
        if self.weight is not None:
            found.append((self.weight, self._weight(grad, row)))
        if self.bias is not None:
            rest = [label for label in self.out[:-1] if label != row]
            found.append((self.bias, Shift(_folded(grad, self.out, ([row], rest, [self.out[-1]])))))
        return found

    def _weight(self, grad: Tensor, row: Any) -> Piece:
        assert self.weight is not None
        inputs, labels = self._joined(grad.dtype)
        shape = self.weight.shape
        summed = [each for each in self.labels if each not in self.out]
        made = [each for each in self.labels if each not in labels]
        positions = [each for each in labels if each in self.out and each != row and each not in self.labels]
        if list(self.labels) in (made + summed, summed + made):
            values = _folded(inputs, labels, ([row], positions, summed))
            grads = _folded(grad, self.out, ([row], positions, made))
            if list(self.labels) == made + summed:
                return Matrix(values, grads, shape)
            return Matrix(grads, values, shape)
        numbers = {label: place for place, label in enumerate(dict.fromkeys((*labels, *self.out)))}
        sides = ([numbers[each] for each in side] for side in (labels, self.out, (row, *self.labels)))
        left, right, both = sides
        return Plain(torch.einsum(inputs, left, grad, right, both))

    def _joined(self, dtype: torch.dtype) -> Operand:
        """The other operands as one, without labels that neither weight nor output have."""
        wanted = {*self.labels, *self.out}
        every = tuple(dict.fromkeys(each for _, labels in self.others for each in labels if each in wanted))
        if len(self.others) == 1 and self.others[0][1] == every:
            return self.others[0][0].detach().to(dtype), every
        numbers: dict[Any, int] = {}
        given: list[Any] = []
        for tensor, labels in self.others:
            given += [tensor.detach().to(dtype), [numbers.setdefault(each, len(numbers)) for each in labels]]
        return torch.einsum(*given, [numbers[each] for each in every]), every


@dataclass
class Bilinear(Contraction):
    """``F.bilinear``, computed as a linear map of the outer products of its two inputs; ``shift`` or None."""

    shift: Tensor | None = None

    def run(self, call: Callable[[], Tensor], value: Callable[[Any], Any]) -> Tensor:
        (one, left), (two, right), *rest = self.others
        outer = one[..., :, None] * two[..., None, :]
        weight = self.weight if self.weight is not None else rest[0][0]
        self.others = ((outer, (*left, right[-1])), *rest)
        return torch.nn.functional.linear(outer.flatten(-2), value(weight).flatten(1), value(self.shift))


def _folded(values: Tensor, labels: Labels, order: tuple[list[Any], ...]) -> Tensor:
    """The tensor with its dimensions in this order, those of one list as one dimension."""
    values = values.permute([labels.index(each) for part in order for each in part])
    sizes, place = [], 0
    for part in order:
        sizes.append(values.shape[place : place + len(part)].numel())
        place += len(part)
    return values.reshape(sizes)
