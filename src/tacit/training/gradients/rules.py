"""Rules of the layers whose per-example gradients follow from their input and output gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from tacit.training.gradients.convolution import Convolution
from tacit.training.gradients.pieces import Lookup, Matrix, Piece, Plain, Shift

# Given the layer, its input, its output's gradient, the batch dimension: pieces by parameter name.
Make = Callable[[Any, Tensor, Tensor, int], dict[str, Piece]]


@dataclass(frozen=True)
class Rule:
    """How a layer's pieces are made, and where its batch dimension may be."""

    make: Make
    first_only: bool = False
    trailing: Callable[[Any], int] = lambda layer: 0

    def fits(self, layer: nn.Module, dimension: int, dimensions: int) -> bool:
        """Whether the rule covers a call whose input has its examples along ``dimension``."""
        if self.first_only:
            return dimension == 0 and not _overhangs(layer)
        return dimension < dimensions - self.trailing(layer)


def _overhangs(layer: Any) -> bool:
    """Whether a transposed convolution has outputs that none of its inputs reach."""
    more = getattr(layer, "output_padding", ())
    return any(each >= step for each, step in zip(more, getattr(layer, "stride", ()), strict=False))


def rule_for(layer: nn.Module) -> Rule | None:
    """The rule of a layer that runs PyTorch's own ``forward`` on parameters it holds itself."""
    forward = getattr(type(layer), "forward", None)
    rule = RULES.get(forward)
    if rule is None or layer._parameters.get("weight") is None:
        return None
    if layer._modules or "forward" in layer.__dict__:
        return None
    return rule


def _examples_first(values: Tensor, dimension: int, trailing: int) -> Tensor:
    """(examples, positions, \\*trailing dimensions)."""
    values = values.movedim(dimension, 0) if dimension else values
    kept = values.shape[values.dim() - trailing :]
    positions = values.shape[1 : values.dim() - trailing].numel()
    return values.reshape(values.shape[0], positions, *kept)


def _linear(layer: nn.Linear, inputs: Tensor, grad: Tensor, dimension: int) -> dict[str, Piece]:
    grad = _examples_first(grad, dimension, 1)
    weight = Matrix(_examples_first(inputs, dimension, 1), grad, layer.weight.shape)
    found: dict[str, Piece] = {"weight": weight}
    if layer.bias is not None:
        found["bias"] = Shift(grad)
    return found


def _conv(layer: _ConvNd, inputs: Tensor, grad: Tensor, dimension: int) -> dict[str, Piece]:
    found: dict[str, Piece] = {"weight": Convolution.of(layer, inputs, grad)}
    if layer.bias is not None:
        found["bias"] = Plain(grad.flatten(2).sum(2))
    return found


def _embedding(layer: nn.Embedding, inputs: Tensor, grad: Tensor, dimension: int) -> dict[str, Piece]:
    indices = _examples_first(inputs, dimension, 0)
    grad = _examples_first(grad, dimension, 1)
    if layer.padding_idx is not None:
        grad = grad.masked_fill((indices == layer.padding_idx)[..., None], 0)
    return {"weight": Lookup(indices, grad, layer.num_embeddings)}


def _scale_and_shift(layer: Any, normal: Tensor, grad: Tensor) -> dict[str, Piece]:
    """Pieces of ``normal × weight + bias``, from (examples, positions, \\*shape of the weight)."""
    found: dict[str, Piece] = {"weight": Plain((normal * grad).sum(1))}
    if getattr(layer, "bias", None) is not None:
        found["bias"] = Plain(grad.sum(1))
    return found


def _layer_norm(layer: nn.LayerNorm, inputs: Tensor, grad: Tensor, dimension: int) -> dict[str, Piece]:
    normal = F.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
    trailing = len(layer.normalized_shape)
    return _scale_and_shift(
        layer, _examples_first(normal, dimension, trailing), _examples_first(grad, dimension, trailing)
    )


def _rms_norm(layer: nn.RMSNorm, inputs: Tensor, grad: Tensor, dimension: int) -> dict[str, Piece]:
    shape = list(layer.normalized_shape)
    normal = F.rms_norm(inputs, shape, eps=layer.eps)
    return _scale_and_shift(
        layer, _examples_first(normal, dimension, len(shape)), _examples_first(grad, dimension, len(shape))
    )


def _by_channel(layer: Any, normal: Tensor, grad: Tensor) -> dict[str, Piece]:
    """Pieces of a scale and shift per channel, the channels being dimension 1."""
    flat = grad.reshape(*grad.shape[:2], -1)
    found: dict[str, Piece] = {"weight": Plain(torch.linalg.vecdot(normal.reshape(flat.shape), flat))}
    if layer.bias is not None:
        found["bias"] = Plain(flat.sum(2))
    return found


def _group_norm(layer: nn.GroupNorm, inputs: Tensor, grad: Tensor, dimension: int) -> dict[str, Piece]:
    return _by_channel(layer, F.group_norm(inputs, layer.num_groups, eps=layer.eps), grad)


def group_norm_by(
    statistics: tuple[Tensor, Tensor], layer: Any, inputs: Tensor, grad: Tensor, dimension: int
) -> dict[str, Piece]:
    """Pieces of a GroupNorm whose mean m and inverse deviation r are known: Σ g (x − m) r and Σ g."""
    mean, inverse = (
        each.view(len(inputs), -1).repeat_interleave(inputs.shape[1] // layer.num_groups, 1)
        for each in statistics
    )
    flat = grad.flatten(2)
    shift = flat.sum(2)
    scale = (torch.linalg.vecdot(inputs.flatten(2), flat) - mean * shift) * inverse
    found: dict[str, Piece] = {"weight": Plain(scale)}
    if layer.bias is not None:
        found["bias"] = Plain(shift)
    return found


def _instance_norm(layer: _InstanceNorm, inputs: Tensor, grad: Tensor, dimension: int) -> dict[str, Piece]:
    own = (layer.running_mean, layer.running_var) if not layer.training else (None, None)
    normal = F.instance_norm(inputs, *own, use_input_stats=own[0] is None, eps=layer.eps)
    return _by_channel(layer, normal, grad)


def _batch_norm(layer: _BatchNorm, inputs: Tensor, grad: Tensor, dimension: int) -> dict[str, Piece]:
    # Accepted with fixed statistics only.
    normal = F.batch_norm(inputs, layer.running_mean, layer.running_var, eps=layer.eps)
    return _by_channel(layer, normal, grad)


def _conv_transpose(layer: Any, inputs: Tensor, grad: Tensor, dimension: int) -> dict[str, Piece]:
    # The convolution that takes the gradient back to the input has the same weight.
    own = (layer.weight.shape, layer.stride, layer.padding, layer.dilation, layer.groups)
    found: dict[str, Piece] = {"weight": Convolution(grad, inputs, *own)}
    if layer.bias is not None:
        found["bias"] = Plain(grad.flatten(2).sum(2))
    return found


def _prelu(layer: nn.PReLU, inputs: Tensor, grad: Tensor, dimension: int) -> dict[str, Piece]:
    values = inputs.clamp(max=0) * grad
    if layer.num_parameters == 1:
        return {"weight": Plain(values.flatten(1).sum(1, keepdim=True))}
    return {"weight": Plain(values.flatten(2).sum(2) if values.dim() > 2 else values)}


RULES: dict[Any, Rule] = {
    nn.Linear.forward: Rule(_linear, trailing=lambda layer: 1),
    nn.Embedding.forward: Rule(_embedding),
    nn.LayerNorm.forward: Rule(_layer_norm, trailing=lambda layer: len(layer.normalized_shape)),
    nn.RMSNorm.forward: Rule(_rms_norm, trailing=lambda layer: len(layer.normalized_shape)),
    nn.GroupNorm.forward: Rule(_group_norm, first_only=True),
    _InstanceNorm.forward: Rule(_instance_norm, first_only=True),
    _BatchNorm.forward: Rule(_batch_norm, first_only=True),
    nn.PReLU.forward: Rule(_prelu, first_only=True),
    **{
        kind.forward: Rule(_conv_transpose, first_only=True)
        for kind in (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    },
    **{kind.forward: Rule(_conv, first_only=True) for kind in (nn.Conv1d, nn.Conv2d, nn.Conv3d)},
}
