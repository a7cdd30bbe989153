"""The models of ``dpsgd_speed.py``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """A transformer block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.before(x)).chunk(3, -1)
        q, k, v = (part.view(*x.shape[:2], 4, -1).transpose(1, 2) for part in parts)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Transformer(nn.Module):
    """Two blocks, and 2500 words: 1.4 million parameters at width 192."""

    def __init__(self, width: int = 192, words: int = 2500) -> None:
        super().__init__()
        self.embed, self.blocks = nn.Embedding(words, width), nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.embed(x)).mean(1))


class Recurrent(nn.Module):
    """One recurrent layer on 1000 words."""

    def __init__(self, kind: Any = nn.LSTM, width: int = 128) -> None:
        super().__init__()
        self.embed, self.rnn = nn.Embedding(1000, 64), kind(64, width, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(self.embed(x))[0][:, -1])


class WideBlock(nn.Module):
    """A pre-activation residual block."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = nn.GroupNorm(16, inputs), nn.GroupNorm(16, outputs)
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.one(x))
        return self.skip(y) + self.second(F.relu(self.two(self.first(y))))


def wide_resnet() -> nn.Module:
    blocks = [WideBlock(16, 32, 1), WideBlock(32, 64, 2), WideBlock(64, 128, 2)]
    tail = [nn.GroupNorm(16, 128), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)]
    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), *blocks, *tail)


def mnist_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def cifar_cnn() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 32), (32, 64), (64, 64), (64, 128), (128, 128)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if inputs == outputs else []
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 128), nn.ReLU(), nn.Linear(128, 10))


def mlp(width: int = 1000) -> nn.Module:
    return nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))


@dataclass(frozen=True)
class Case:
    """A model, its inputs and a batch size; ``peer`` is the model Opacus takes in its place."""

    title: str
    make: Callable[[], nn.Module]
    draw: Callable[[int], Tensor]
    batch: int
    peer: Callable[[], nn.Module] | None = None


def pixels(*shape: int) -> Callable[[int], Tensor]:
    return lambda batch: torch.randn(batch, *shape)


def words(below: int, length: int) -> Callable[[int], Tensor]:
    return lambda batch: torch.randint(0, below, (batch, length))


def _dp_lstm() -> nn.Module:
    from opacus.layers import DPLSTM

    return Recurrent(DPLSTM)


CASES = {
    "logistic": Case("logistic 784→10", lambda: nn.Linear(784, 10), pixels(784), 1024),
    "mlp": Case("MLP 784-1000-10", mlp, pixels(784), 1024),
    "mnist-cnn": Case("MNIST CNN (26 k)", mnist_cnn, pixels(1, 28, 28), 256),
    "cifar-cnn": Case("CIFAR CNN (550 k)", cifar_cnn, pixels(3, 32, 32), 256),
    "wrn": Case("WideResNet-10-2 + GroupNorm", wide_resnet, pixels(3, 32, 32), 64),
    "transformer": Case("transformer (1.4 M, 2 layers, T=64)", Transformer, words(2500, 64), 64),
    "lstm": Case("LSTM (64→128, T=32)", Recurrent, words(1000, 32), 64, _dp_lstm),
}
