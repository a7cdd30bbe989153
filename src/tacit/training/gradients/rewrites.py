"""Attention and recurrent layers, computed from watched linear maps while a tape runs.

Each function here computes what the module's own ``forward`` does, from matrix products that the
tape can watch, so that the rule of a linear map covers their weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.training.gradients.recurrence import recurrence
from tacit.training.gradients.tape import Tape

Forward = Callable[..., Any]


def rewritable(layer: Any) -> bool:
    """Whether the layer is attention or recurrence in a form computed here."""
    if "forward" in layer.__dict__ or hasattr(layer, "parametrizations"):
        return False
    if type(layer).forward is nn.MultiheadAttention.forward:
        return layer.bias_k is None and layer.bias_v is None and not layer.add_zero_attn
    return type(layer) in (nn.RNN, nn.LSTM, nn.GRU)


def rewritten(layer: nn.Module, tape: Tape, trainable: Container[int]) -> Forward:
    """A ``forward`` for the layer that the tape can watch."""
    if isinstance(layer, nn.MultiheadAttention):
        return lambda *args, **kwargs: _attention(layer, tape, trainable, *args, **kwargs)
    return lambda *args, **kwargs: recurrence(layer, tape, trainable, *args, **kwargs)


def batch_dimension(layer: Any) -> int:
    """The dimension of the layer's input along which it takes examples."""
    return 0 if layer.batch_first else 1


def _attention(
    layer: Any,
    tape: Tape,
    trainable: Container[int],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    width, heads = layer.embed_dim, layer.num_heads
    same = query is key and key is value
    if not layer.batch_first:
        query, key, value = (each.transpose(0, 1) for each in (query, key, value))
    bias: Any = layer.in_proj_bias
    if layer.in_proj_weight is None:
        separate: list[Any] = [layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight]
        parts = []
        for number, (each, weight) in enumerate(zip((query, key, value), separate, strict=True)):
            part = tape.linear(each, weight, None, trainable)
            if bias is not None:
                part = tape.shift(part, bias, trainable, rows=(number * width, width))
            parts.append(part)
    elif same:
        parts = list(tape.linear(query, layer.in_proj_weight, bias, trainable).chunk(3, -1))
    else:
        parts = [
            tape.linear(each, layer.in_proj_weight, bias, trainable, rows=(number * width, width))
            for number, each in enumerate((query, key, value))
        ]
    q, k, v = (part.view(*part.shape[:2], heads, width // heads).transpose(1, 2) for part in parts)
    mask = _mask(q, k, key_padding_mask, attn_mask)
    dropout = layer.dropout if layer.training else 0.0
    weights = None
    if need_weights:
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // heads)
        weights = torch.softmax(scores if mask is None else scores + mask, -1)
        weights = F.dropout(weights, dropout) if dropout else weights
        mixed = weights @ v
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        causal = is_causal and mask is None
        mixed = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal=causal)
    output = tape.linear(
        mixed.transpose(1, 2).flatten(2), layer.out_proj.weight, layer.out_proj.bias, trainable
    )
    return output if layer.batch_first else output.transpose(0, 1), weights


def _mask(q: Tensor, k: Tensor, padding: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """The masks as one number to add to each score, or None."""
    total: Tensor | None = None
    if mask is not None:
        mask = _additive(mask, q)
        total = mask if mask.dim() == 2 else mask.view(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    if padding is not None:
        padding = _additive(padding, q)[:, None, None, :]
        total = padding if total is None else total + padding
    return total


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill(mask, -math.inf)
    return mask.to(like.dtype)
