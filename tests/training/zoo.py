"""Modules and models of many kinds, each with a batch of inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCH = 5


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

    def __init__(self, length: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(7, 8), nn.Embedding(length, 8)
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


class Named(nn.Module):
    """Takes keyword arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 2), nn.Linear(4, 2)

    def forward(self, *, left: Tensor, right: Tensor) -> Tensor:
        return torch.tanh(self.left(left)) * self.right(right)


def _frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    model[2].weight.requires_grad_(False)
    model[4].bias.requires_grad_(False)
    return model


def _tied_linears() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3, bias=False))
    model[2].weight = model[0].weight
    return model


def _shared_bias() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4))
    model[2].bias = model[0].bias
    return model


def _eval(model: nn.Module) -> nn.Module:
    return model.eval()


def x(*shape: int) -> Callable[[], Tensor]:
    """Normal inputs."""
    return lambda: torch.randn(BATCH, *shape)


def words(*shape: int) -> Callable[[], Tensor]:
    """Indices below 7."""
    return lambda: torch.randint(0, 7, (BATCH, *shape))


ENCODER: dict[str, Any] = {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "dropout": 0.0}

ZOO: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "linear": (lambda: nn.Linear(3, 4), x(3)),
    "linear without bias": (lambda: nn.Linear(3, 4, bias=False), x(3)),
    "linear, sequence": (lambda: nn.Linear(9, 8), x(2, 9)),
    "linear, as long as the batch": (lambda: nn.Linear(9, 8), x(BATCH, 9)),
    "linear, many positions": (lambda: nn.Linear(2, 2), x(4, 3, 2)),
    "conv1d": (lambda: nn.Conv1d(2, 3, 3, stride=2, padding=1), x(2, 9)),
    "conv2d": (lambda: nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0)), x(2, 6, 5)),
    "conv2d same": (lambda: nn.Conv2d(2, 4, (4, 3), padding="same", dilation=(1, 2)), x(2, 6, 5)),
    "conv2d groups": (lambda: nn.Conv2d(4, 6, 3, groups=2, bias=False), x(4, 5, 5)),
    "conv2d depthwise": (lambda: nn.Conv2d(3, 6, 3, groups=3, dilation=2), x(3, 6, 6)),
    "conv2d wide": (lambda: nn.Conv2d(8, 16, 3), x(8, 4, 4)),
    "conv2d wide groups": (lambda: nn.Conv2d(16, 16, 3, groups=2), x(16, 4, 4)),
    "conv2d circular": (lambda: nn.Conv2d(2, 3, 3, padding=2, padding_mode="circular"), x(2, 5, 5)),
    "conv2d reflect": (lambda: nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="reflect"), x(2, 5, 5)),
    "conv3d": (lambda: nn.Conv3d(2, 2, 2, stride=(1, 2, 1), padding=1), x(2, 3, 4, 3)),
    "transposed conv": (lambda: nn.ConvTranspose2d(2, 3, 3, stride=2), x(2, 3, 3)),
    "embedding": (lambda: nn.Embedding(7, 4), words(3)),
    "embedding, long": (lambda: nn.Embedding(7, 2), words(9)),
    "embedding, one": (lambda: nn.Embedding(7, 2), words()),
    "embedding with padding": (lambda: nn.Embedding(7, 4, padding_idx=2), words(4)),
    "layer norm": (lambda: nn.LayerNorm(4), x(4)),
    "layer norm, two dimensions": (lambda: nn.LayerNorm((3, 4)), x(2, 3, 4)),
    "layer norm without bias": (lambda: nn.LayerNorm(4, bias=False), x(3, 4)),
    "group norm": (lambda: nn.GroupNorm(2, 4), x(4, 3, 3)),
    "instance norm": (lambda: nn.InstanceNorm2d(3, affine=True), x(3, 4, 4)),
    "rms norm": (lambda: nn.RMSNorm(4), x(3, 4)),
    "prelu": (lambda: nn.PReLU(3), x(3, 4)),
    "prelu of one": (lambda: nn.PReLU(), x(3, 4)),
    "bilinear": (lambda: nn.Bilinear(3, 2, 4), lambda: (torch.randn(BATCH, 3), torch.randn(BATCH, 2))),
    "scale": (lambda: Scale(4), x(3, 4)),
    "scale in a model": (lambda: nn.Sequential(nn.Linear(3, 4), Scale(4), nn.Tanh(), nn.Linear(4, 2)), x(3)),
    "attention": (
        lambda: Cross(batch_first=True),
        lambda: (torch.randn(BATCH, 3, 8), torch.randn(BATCH, 4, 8)),
    ),
    "attention, own widths": (
        lambda: Cross(kdim=6, vdim=6),
        lambda: (torch.randn(BATCH, 3, 8), torch.randn(BATCH, 4, 6)),
    ),
    "attention without bias": (
        lambda: Cross(bias=False),
        lambda: (torch.randn(BATCH, 3, 8), torch.randn(BATCH, 4, 8)),
    ),
    "attention, extra keys": (
        lambda: Cross(add_bias_kv=True, batch_first=True),
        lambda: (torch.randn(BATCH, 3, 8), torch.randn(BATCH, 4, 8)),
    ),
    "masked attention": (
        Masked,
        lambda: (
            torch.randn(BATCH, 4, 8),
            torch.tensor([[False] * 4] * 3 + [[False, False, True, True]] * 2),
        ),
    ),
    "rnn": (lambda: First(nn.RNN(3, 4, batch_first=True)), x(4, 3)),
    "rnn relu": (lambda: First(nn.RNN(3, 4, 2, nonlinearity="relu", batch_first=True)), x(4, 3)),
    "lstm": (lambda: First(nn.LSTM(3, 4, 2, batch_first=True)), x(4, 3)),
    "lstm both ways": (lambda: First(nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True)), x(4, 3)),
    "lstm projected": (lambda: First(nn.LSTM(3, 4, batch_first=True, proj_size=2)), x(4, 3)),
    "gru": (lambda: First(nn.GRU(3, 4, 2, batch_first=True, bias=False)), x(4, 3)),
    "gru both ways": (lambda: First(nn.GRU(3, 4, batch_first=True, bidirectional=True)), x(4, 3)),
    "perceptron": (lambda: nn.Sequential(nn.Linear(3, 9), nn.ReLU(inplace=True), nn.Linear(9, 2)), x(3)),
    "convolutional net": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2, 1),
            nn.Flatten(),
            nn.Linear(16, 3),
        ),
        x(1, 8, 8),
    ),
    "residual net": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), Residual(4), Residual(4), nn.Flatten(), nn.Linear(36, 3)),
        x(1, 5, 5),
    ),
    "transformer": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**ENCODER, batch_first=True), 2, enable_nested_tensor=False
        ),
        x(4, 8),
    ),
    "transformer, evaluating": (
        lambda: _eval(nn.TransformerEncoderLayer(**ENCODER, batch_first=True)),
        x(4, 8),
    ),
    "reused linear": (lambda: Reused(nn.Linear(3, 3)), x(3)),
    "reused conv": (lambda: Reused(nn.Conv2d(2, 2, 3, padding=1)), x(2, 4, 4)),
    "reused norm": (lambda: Reused(nn.LayerNorm(4)), x(4)),
    "reused recurrence": (lambda: Reused(First(nn.GRU(3, 3, batch_first=True))), x(4, 3)),
    "tied embedding": (TiedModules, words(4)),
    "tied embedding, bare": (TiedFunction, words(4)),
    "tied linears": (_tied_linears, x(3)),
    "shared bias": (_shared_bias, x(3)),
    "gpt": (lambda: TinyGPT(9), words(4)),
    "gpt, as long as the batch": (lambda: TinyGPT(9), words(BATCH)),
    "class token": (ClassToken, x(4, 8)),
    "flattened": (Flattened, x(4, 3)),
    "sequence first": (SequenceFirst, x(4, 3)),
    "sequence first, as long as the batch": (SequenceFirst, x(BATCH, 3)),
    "weight norm": (
        lambda: nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 2)
        ),
        x(3),
    ),
    "frozen parts": (_frozen, x(3)),
    "keywords": (Named, lambda: {"left": torch.randn(BATCH, 3), "right": torch.randn(BATCH, 4)}),
    "batch norm, evaluating": (
        lambda: _eval(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))),
        x(3),
    ),
}
