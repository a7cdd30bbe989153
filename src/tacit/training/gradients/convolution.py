"""The weight of a convolution."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.modules.conv import _ConvNd

from tacit.training.gradients.norms import gram_squares, row_squares
from tacit.training.gradients.pieces import Mended, Plain, Weights
from tacit.training.gradients.sums import RUN, in_runs

# Numbers of patches written out at a time.
_ROOM = 1 << 19


@dataclass
class Convolution(Mended):
    """The weight of a convolution of any number of dimensions, stride, dilation and groups.

    Per-example gradients are the weight gradient of one convolution in which every example is a
    group of its own. Where the images are small and the channels many, the squared norm comes
    from Gram matrices instead; that of the patches is a sum, over the places of the kernel, of
    shifted copies of the Gram matrix of the pixels, and no patch is written out.
    """

    inputs: Tensor
    grads: Tensor
    shape: torch.Size
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    held: Tensor | None = field(default=None, repr=False)

    @classmethod
    def of(cls, layer: _ConvNd, inputs: Tensor, grads: Tensor) -> Convolution:
        """The piece of a layer; padding that is not plain zeros is written out first."""
        sides = layer._reversed_padding_repeated_twice
        padding = tuple(sides[::-2])
        if layer.padding_mode != "zeros" or padding != tuple(sides[-2::-2]):
            mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
            inputs = F.pad(inputs, sides, mode=mode)
            padding = (0,) * len(padding)
        return cls(inputs, grads, layer.weight.shape, layer.stride, padding, layer.dilation, layer.groups)

    def settle(self) -> None:
        if not self._gram_is_cheaper():
            self.held = self._written_out(None)
            self.inputs = self.grads = self.held.new_empty(0)

    def squares(self) -> Tensor:
        if self.held is None:
            self.settle()
        if self.held is None:
            widths = self.shape[1:].numel(), self.shape[0] // self.groups
            squares, bound = gram_squares([self._pixel_gram()], [self._output_gram()], widths)
            return self._mended(*(each.view(-1, self.groups).sum(1) for each in (squares, bound)))
        return row_squares(self.held.flatten(1))

    def _bulk(self, weights: Weights) -> Tensor:
        if self.held is not None:
            return self._ordered(Plain(self.held).weighted(weights)).contiguous()
        dtype, run = weights.factors.dtype, max(1, RUN // self.grads.shape[2:].numel())
        if dtype != self.grads.dtype:
            # A convolution in float64 takes longer than writing gradients out.
            total = torch.zeros(self.shape, dtype=dtype, device=self.grads.device)
            for rows in torch.split(torch.arange(len(self.grads), device=self.grads.device), run):
                total += Plain(self._instantiate(rows)).weighted(weights.at(rows))
            return total
        like = self.inputs.new_empty(self.shape)
        return in_runs(
            lambda inputs, grads: self._weight_gradient(inputs, grads, like, self.groups), dtype,
            *weights.products(self.inputs, self.grads), run=run,
        )  # fmt: skip

    def _weight_gradient(self, inputs: Tensor, grads: Tensor, like: Tensor, groups: int) -> Tensor:
        none = [0] * len(self.stride)
        found: Tensor = torch.ops.aten.convolution_backward(
            grads, inputs, like, None, self.stride, self.padding, self.dilation, False, none, groups,
            [False, True, False],
        )[1]  # fmt: skip
        return found

    def _instantiate(self, rows: Tensor | None) -> Tensor:
        return self._ordered(self._written_out(rows) if rows is not None or self.held is None else self.held)

    def _ordered(self, gradients: Tensor) -> Tensor:
        """With the channels back before the places of the kernel."""
        dimensions = len(self.stride)
        return gradients if self.groups > 1 else gradients.movedim(-1, -1 - dimensions)

    def _written_out(self, rows: Tensor | None) -> Tensor:
        """Gradients of these examples or all, channels last unless there are groups."""
        inputs, grads = (self.inputs, self.grads) if rows is None else (self.inputs[rows], self.grads[rows])
        if self.groups == 1:
            return self._from_patches(inputs, grads)
        examples = len(inputs)
        like = inputs.new_empty((examples * self.shape[0], *self.shape[1:]))
        inputs, grads = (each.flatten(0, 1)[None] for each in (inputs, grads))
        made = self._weight_gradient(inputs, grads, like, examples * self.groups)
        return made.view(examples, *self.shape)

    def _from_patches(self, inputs: Tensor, grads: Tensor) -> Tensor:
        """Gradients as products of patches and output gradients, a few examples or rows at a time.

        Patches are written out with their channels last, in long runs of what lies together in memory.
        """
        inputs, grads = inputs.movedim(1, -1), grads.movedim(1, -1)
        sides = [side for more in reversed(self.padding) for side in (more, more)]
        inputs = F.pad(inputs, (0, 0, *sides)) if any(sides) else inputs.contiguous()
        examples, *strides, channel = inputs.stride()
        places, positions, channels = self.shape[2:], grads.shape[1:-1], self.shape[1]
        patches = inputs.as_strided(
            (len(inputs), *positions, *places, channels),
            (
                examples,
                *(each * step for each, step in zip(strides, self.stride, strict=True)),
                *(each * gap for each, gap in zip(strides, self.dilation, strict=True)),
                channel,
            ),
        )
        made = inputs.new_empty(len(inputs), self.shape[0], places.numel() * channels)
        across = positions[1:].numel()
        room = max(1, _ROOM // (across * made.shape[2]))
        rows, some = min(room, positions[0]), max(1, room // positions[0])
        for parts in zip(*(torch.split(each, some) for each in (patches, grads, made)), strict=True):
            whole, grad, part = parts
            for start in range(0, positions[0], rows):
                cut = slice(start, start + rows)
                patch = whole[:, cut].reshape(len(part), -1, made.shape[2])
                turned = grad[:, cut].reshape(len(part), -1, self.shape[0]).transpose(1, 2)
                torch.baddbmm(part, turned, patch, beta=int(start > 0), out=part)
        return made.view(len(made), self.shape[0], *places, channels)

    def _gram_is_cheaper(self) -> bool:
        """Compares multiplications; the copies of the pixels' Gram matrix cost about four each."""
        padded = zip(self.inputs.shape[2:], self.padding, strict=True)
        pixels = math.prod(size + 2 * more for size, more in padded)
        positions, places = self.grads.shape[2:].numel(), math.prod(self.shape[2:])
        rows, channels = self.shape[0] // self.groups, self.shape[1]
        gram = pixels**2 * channels + 4 * places * positions**2 + positions**2 * rows
        return gram < positions * rows * channels * places

    def _output_gram(self) -> Tensor:
        grads = self.grads.reshape(len(self.grads) * self.groups, -1, self.grads.shape[2:].numel())
        return grads.transpose(1, 2) @ grads

    def _pixel_gram(self) -> Tensor:
        """The Gram matrix of the patches: (examples × groups, positions, positions)."""
        sides = [side for more in reversed(self.padding) for side in (more, more)]
        inputs = F.pad(self.inputs, sides) if any(sides) else self.inputs
        sizes, outs = inputs.shape[2:], self.grads.shape[2:]
        flat = inputs.reshape(len(inputs) * self.groups, -1, sizes.numel())
        pixels = (flat.transpose(1, 2) @ flat).view(-1, *sizes, *sizes)
        total: Tensor | None = None
        for place in itertools.product(*map(range, self.shape[2:])):
            starts = [at * gap for at, gap in zip(place, self.dilation, strict=True)]
            cut = tuple(
                slice(start, start + step * (out - 1) + 1, step)
                for start, step, out in zip(starts, self.stride, outs, strict=True)
            )
            part = pixels[(slice(None), *cut, *cut)]
            total = part.clone() if total is None else total.add_(part)
        assert total is not None
        return total.reshape(len(flat), outs.numel(), outs.numel())
