"""Modules that use their parameters in many ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Scale(nn.Module):
    """Plain parameters, used directly."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))
        self.shift = nn.Parameter(torch.randn(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.shift


class Residual(nn.Module):
    """GroupNorm and convolutions with a skip."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(F.relu(self.norm(x)))


class Reused(nn.Module):
    """One layer, three times."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(self.layer(x))
        return x


class TiedModules(nn.Module):
    """The embedding is also the output layer, as a module."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embed(x)))


class TiedFunction(nn.Module):
    """The embedding is also the output layer, by a bare matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.mix = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.mix(self.embed(x))) @ self.embed.weight.T


class TinyGPT(nn.Module):
    """Position embedding looked up without the batch; causal attention."""

    def __init__(self, length: int, **options: Any) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(7, 8), nn.Embedding(length, 8, **options)
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.head = nn.Linear(8, 7)

    def forward(self, x: Tensor) -> Tensor:
        h = self.token(x) + self.position(torch.arange(x.shape[1]))
        q, k, v = self.qkv(self.norm(h)).chunk(3, -1)
        return self.head(h + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True)))


class ClassToken(nn.Module):
    """A learned token put before the sequence, and learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.place = nn.Parameter(torch.randn(1, 5, 8))
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        return self.head(self.block(h)[:, 0])


class Direct(nn.Module):
    """Parameters the model uses itself, in a way given by a function of inputs, parameters and a layer."""

    def __init__(self, use: Callable[..., Tensor], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.use, self.inner = use, nn.Linear(4, 4)
        self.own = nn.ParameterList(torch.randn(shape) for shape in shapes)

    def forward(self, x: Tensor) -> Tensor:
        return self.use(torch.tanh(self.inner(x)), *self.own)


class Doubled(torch.autograd.Function):
    """A product whose factors no function mode sees."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(x, scale)
        return 2 * x * scale

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, scale = ctx.saved_tensors
        return 2 * grads[0] * scale, (2 * grads[0] * x).sum((0, 1))


class LearnedStart(nn.Module):
    """A recurrence that starts from a learned state."""

    def __init__(self) -> None:
        super().__init__()
        self.h, self.c = nn.Parameter(torch.randn(2, 1, 4)), nn.Parameter(torch.randn(2, 1, 4))
        self.rnn, self.head = nn.LSTM(3, 4, 2, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        state = self.h.expand(-1, len(x), -1).contiguous(), self.c.repeat(1, len(x), 1)
        out, (h, c) = self.rnn(x, state)
        return self.head(out).sum(1) + h[0][:, :2] * c[1][:, 2:]


class Flattened(nn.Module):
    """Positions folded into the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(torch.tanh(self.inner(x.flatten(0, 1))).view(x.shape[0], x.shape[1], -1))


class SequenceFirst(nn.Module):
    """Time before batch within."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(3, 4), nn.LayerNorm(4)
        self.rnn, self.head = nn.GRU(4, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(self.norm(self.inner(x.transpose(0, 1))))[0][-1])


class Cross(nn.Module):
    """Attention of one input to another, with keys and values of their own widths or not."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2, **options)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        if not self.attend.batch_first:
            query, key = query.transpose(0, 1), key.transpose(0, 1)
        mixed, weights = self.attend(query, key, key)
        assert weights.shape[0] == mixed.shape[0 if self.attend.batch_first else 1]
        return mixed if self.attend.batch_first else mixed.transpose(0, 1)


class Masked(nn.Module):
    """Self-attention with a causal mask and padding."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return self.attend(x, x, x, key_padding_mask=padding, attn_mask=causal, need_weights=False)[0]


class First(nn.Module):
    """The first output of a module that returns several."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[0]


class Last(nn.Module):
    """The last states of a recurrence, or the last cells."""

    def __init__(self, inner: nn.Module, which: int = 0) -> None:
        super().__init__()
        self.inner, self.which = inner, which

    def forward(self, x: Tensor) -> Tensor:
        states = self.inner(x)[1]
        return (states[self.which] if isinstance(states, tuple) else states).transpose(0, 1)


class Recomputed(nn.Module):
    """Activations computed again on the way back."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


class Packed(nn.Module):
    """Sequences of different lengths, packed."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.rnn(packed)[1][0][-1])


class Cells(nn.Module):
    """A recurrence by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for moment in x.unbind(1):
            state = self.cell(moment, state)
        return state[0]


class Named(nn.Module):
    """Takes keyword arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 2), nn.Linear(4, 2)

    def forward(self, *, left: Tensor, right: Tensor) -> Tensor:
        return torch.tanh(self.left(left)) * self.right(right)


class LowerTriangle(nn.Module):
    """A parametrisation: the weight below its diagonal."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight.tril() * 2


class Weighted(nn.Module):
    """A bag whose entries have weights, of the words alone or of a table of their own."""

    def __init__(self, bag: nn.EmbeddingBag, learned: bool = False) -> None:
        super().__init__()
        self.bag, self.table = bag, nn.Embedding(7, 1) if learned else None

    def forward(self, words: Tensor) -> Tensor:
        like = self.bag.weight.dtype
        weights = (words + 1).to(like).sqrt() if self.table is None else self.table(words)[..., 0].exp()
        return self.bag(words, per_sample_weights=weights)


class Bags(nn.Module):
    """A bag called on all words in a row, and on where each example begins."""

    def __init__(self, bag: nn.EmbeddingBag) -> None:
        super().__init__()
        self.bag = bag

    def forward(self, words: Tensor) -> Tensor:
        count, length = words.shape
        return self.bag(words.flatten(), torch.arange(count + self.bag.include_last_offset) * length)


class Table(nn.Module):
    """A table without a layer, looked up by words."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(7, 4))

    def forward(self, words: Tensor) -> Tensor:
        return torch.tanh(F.embedding(words, self.table, padding_idx=1))
