"""Products of parameters and examples outside a layer with a rule: ``x @ p``, and what layers call within.

A product is bilinear: the output is linear in the parameter and in the examples. Each example's gradient of
the parameter follows from the example's input and from the gradient of its output, as in a layer with a rule,
and is a :class:`~.pieces.Piece`: norms and weighted sums without a gradient for each example where the Gram
matrices are smaller. Understood are ``@``, ``matmul``, ``mm``, ``bmm``, ``mv``, ``addmm``, ``F.linear``,
``F.bilinear`` and ``torch.einsum`` as contractions of labelled dimensions, convolutions, and look-ups in
tables, by themselves and in bags. Layers whose weights are computed, as by
``torch.nn.utils.parametrize``, call these too.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tacit.training.gradients.contraction import Bilinear, Contraction, Labels, Operand, Product
from tacit.training.gradients.convolution import Convolution
from tacit.training.gradients.lookups import Looked, bag_of
from tacit.training.gradients.pieces import Piece, Plain
from tacit.training.isolation.recording import Place


@dataclass
class Convolved(Product):
    """A convolution, its examples first."""

    weight: Tensor | None
    bias: Tensor | None
    input: Tensor
    shape: torch.Size
    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]
    groups: int

    def rows(self, made: Tensor) -> frozenset[int]:
        return frozenset({-made.dim()})

    def kept(self, made: Tensor, at: int) -> list[Place]:
        return [(self.input, 0)]

    def pieces(self, grad: Tensor, at: int) -> list[tuple[Tensor, Piece]]:
        found: list[tuple[Tensor, Piece]] = []
        if self.weight is not None:
            inputs, padding = self._padded(self.input.detach().to(grad.dtype))
            own = (self.shape, self.stride, padding, self.dilation, self.groups)
            found.append((self.weight, Convolution(inputs, grad, *own)))
        if self.bias is not None:
            found.append((self.bias, Plain(grad.flatten(2).sum(2))))
        return found

    def _padded(self, inputs: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        if not isinstance(self.padding, str):
            return inputs, self.padding
        if self.padding == "valid":
            return inputs, (0,) * len(self.stride)
        sides: list[int] = []
        for size, step in zip(reversed(self.shape[2:]), reversed(self.dilation), strict=True):
            whole = step * (size - 1)
            sides += [whole // 2, whole - whole // 2]
        return F.pad(inputs, sides), (0,) * len(self.stride)


def product(func: Any, args: Any, kwargs: Any, known: Container[int]) -> Product | None:
    """The product that a call is, if it is one, and parameters are where they can be served."""
    read = _READERS.get(func)
    if read is None:
        return None
    try:
        found = read(lambda each: isinstance(each, Tensor) and id(each) in known, *args, **kwargs)
    except TypeError:
        return None  # Arguments of a form that is not understood.
    if found is None or not found.own:
        return None
    return found if not isinstance(found, Contraction) or found.sound else None


Known = Callable[[Any], bool]


def _contraction(known: Known, operands: list[Operand], out: Labels, bias: Any = None) -> Contraction | None:
    """A contraction of operands of which at most one is a parameter's."""
    ours = [each for each in operands if known(each[0])]
    if len(ours) > 1 or (bias is not None and bias.dim() != 1):
        return None
    weight, labels = ours[0] if ours else (None, ())
    others = tuple(each for each in operands if not known(each[0]))
    return Contraction(weight, labels, others, out, bias if known(bias) else None)


def _lead(tensor: Tensor, trailing: int) -> Labels:
    """Labels of the dimensions before the last ones, counted from the end so that they broadcast."""
    return tuple(("lead", number) for number in range(trailing - tensor.dim(), 0))


def _linear(known: Known, input: Tensor, weight: Tensor, bias: Any = None) -> Contraction | None:
    lead = _lead(input, 1)
    if weight.dim() == 1:
        return _contraction(known, [(input, (*lead, "k")), (weight, ("k",))], lead) if bias is None else None
    return _contraction(known, [(input, (*lead, "k")), (weight, ("n", "k"))], (*lead, "n"), bias)


def _bilinear(
    known: Known, input1: Tensor, input2: Tensor, weight: Tensor, bias: Any = None
) -> Contraction | None:
    lead = _lead(input1, 1)
    if known(input1) or known(input2) or input1.dim() != input2.dim():
        return None
    others: list[Operand] = [(input1, (*lead, "i")), (input2, (*lead, "j"))]
    labels: Labels = ("n", "i", "j")
    if not known(weight):
        others.append((weight, labels))
    return Bilinear(
        weight if known(weight) else None, labels if known(weight) else (), tuple(others), (*lead, "n"),
        bias if known(bias) else None, bias,
    )  # fmt: skip


def _matmul(known: Known, input: Tensor, other: Tensor, bias: Any = None) -> Contraction | None:
    left = ("k",) if input.dim() == 1 else (*_lead(input, 2), "m", "k")
    right = ("k",) if other.dim() == 1 else (*_lead(other, 2), "k", "n")
    lead = max(left[:-2], right[:-2], key=len)
    out = (*lead, *(("m",) if input.dim() > 1 else ()), *(("n",) if other.dim() > 1 else ()))
    return _contraction(known, [(input, left), (other, right)], out, bias)


def _matmul_turned(known: Known, other: Tensor, input: Tensor) -> Contraction | None:
    return _matmul(known, input, other)


def _addmm(known: Known, bias: Tensor, mat1: Tensor, mat2: Tensor) -> Contraction | None:
    return _matmul(known, mat1, mat2, bias)


def _einsum(known: Known, equation: Any, *operands: Any) -> Contraction | None:
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    if not isinstance(equation, str) or "->" not in equation:
        return None
    given, _, out = equation.replace(" ", "").partition("->")
    sides = given.split(",")
    if len(sides) != len(operands) or "..." in "".join(
        side for side, each in zip(sides, operands, strict=True) if known(each)
    ):
        return None
    named: list[Operand] = []
    dots: set[Labels] = set()
    for side, tensor in zip(sides, operands, strict=True):
        before, mark, after = side.partition("...")
        middle = tuple(("lead", number) for number in range(len(side) - 3 * bool(mark) - tensor.dim(), 0))
        if mark:
            dots.add(middle)
        elif middle:
            return None
        named.append((tensor, (*before, *middle, *after)))
    if len(dots) > 1:
        return None
    before, mark, after = out.partition("...")
    return _contraction(known, named, (*before, *(dots.pop() if mark and dots else ()), *after))


def _convolution(dimensions: int) -> Callable[..., Convolved | None]:
    def read(
        known: Known, input: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1,
    ) -> Convolved | None:  # fmt: skip
        def each(value: Any) -> tuple[int, ...]:
            return (
                (value,) * dimensions if isinstance(value, int) else tuple(value) * (dimensions // len(value))
            )

        if input.dim() != dimensions + 2 or known(input):
            return None
        sides = padding if isinstance(padding, str) else each(padding)
        return Convolved(
            weight if known(weight) else None, bias if known(bias) else None, input, weight.shape,
            each(stride), sides, each(dilation), groups,
        )  # fmt: skip

    return read


def _embedding(
    known: Known, input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: Any = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Looked | None:  # fmt: skip
    if known(input) or not known(weight) or max_norm is not None or scale_grad_by_freq:
        return None
    return Looked(weight, input, padding_idx)


_READERS: dict[Any, Callable[..., Any]] = {
    F.linear: _linear,
    F.bilinear: _bilinear,
    torch.bilinear: _bilinear,
    torch.einsum: _einsum,
    torch.addmm: _addmm,
    Tensor.addmm: _addmm,
    Tensor.__rmatmul__: _matmul_turned,
    **dict.fromkeys((Tensor.__matmul__, torch.matmul, Tensor.matmul, torch.mm, Tensor.mm), _matmul),
    **dict.fromkeys((torch.bmm, Tensor.bmm, torch.mv, Tensor.mv), _matmul),
    F.conv1d: _convolution(1),
    F.conv2d: _convolution(2),
    F.conv3d: _convolution(3),
    F.embedding: _embedding,
    F.embedding_bag: bag_of,
}
