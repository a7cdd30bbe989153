"""Modules and models of many kinds, each with a batch of inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from training.modules import (
    Bags,
    Cells,
    ClassToken,
    Cross,
    Direct,
    Doubled,
    First,
    Flattened,
    Last,
    LearnedStart,
    LowerTriangle,
    Masked,
    Named,
    Packed,
    Recomputed,
    Residual,
    Reused,
    Scale,
    SequenceFirst,
    Table,
    TiedFunction,
    TiedModules,
    TinyGPT,
    Weighted,
)

BATCH = 5


def _frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    model[2].weight.requires_grad_(False)
    model[4].bias.requires_grad_(False)
    return model


def _frozen_recurrence() -> nn.Module:
    model = First(nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True))
    for name, each in model.named_parameters():
        each.requires_grad_(name.endswith(("hh_l0", "ih_l1_reverse")))
    return model


def _tied_linears() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3, bias=False))
    model[2].weight = model[0].weight
    return model


def _shared_bias() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4))
    model[2].bias = model[0].bias
    return model


def _half_frozen(model: Direct) -> nn.Module:
    model.own[0].requires_grad_(False)
    return model


def _old_weight_norm() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 2))


def _masked_weight() -> nn.Module:
    model = nn.Linear(4, 3)
    nn.utils.parametrize.register_parametrization(model, "weight", LowerTriangle())
    return nn.Sequential(model, nn.Tanh())


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
    "transposed conv, groups": (
        lambda: nn.ConvTranspose2d(4, 6, (3, 2), stride=3, padding=1, output_padding=2, groups=2, bias=False),
        x(4, 3, 4),
    ),
    "transposed conv1d": (lambda: nn.ConvTranspose1d(8, 16, 3, dilation=2), x(8, 3)),
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
    "positions, cut": (lambda: Direct(lambda x, p: x + p[:, : x.shape[1]], (1, 6, 4)), x(3, 4)),
    "positions, in place": (lambda: Direct(lambda x, p: (x * 1).add_(x).__iadd__(p), (3, 4)), x(3, 4)),
    "positions, as long as the batch": (lambda: Direct(lambda x, p: p + x, (BATCH, 4)), x(BATCH, 4)),
    "scale by channel": (
        lambda: Direct(lambda x, p: x.transpose(1, 2) * p.view(1, -1, 1), (4,)),
        x(3, 4),
    ),
    "scale and temperature": (
        lambda: Direct(lambda x, p, q: (x * p.exp() / (q.square() + 1).unsqueeze(0) - q) * p, (), (4,)),
        x(3, 4),
    ),
    "scales together": (lambda: Direct(lambda x, p, q: x * (p * q + 1), (4,), (3, 1)), x(3, 4)),
    "scales, sequence first": (
        lambda: Direct(lambda x, p: (x.transpose(0, 1) * p[0]).transpose(0, 1), (2, 3, 1, 1)),
        x(3, 4),
    ),
    "token repeated": (
        lambda: Direct(lambda x, p: torch.cat([p.repeat(len(x), 2, 1), x], 1), (1, 2, 4)),
        x(3, 4),
    ),
    "token repeated without the batch": (
        lambda: Direct(lambda x, p: x + p.repeat(3, 1), (1, 4)),
        x(3, 4),
    ),
    "token expanded": (
        lambda: Direct(lambda x, p: torch.cat([p.expand(len(x), 2, 4), x, p.expand_as(x)], 1), (4,)),
        x(3, 4),
    ),
    "bare product": (lambda: Direct(lambda x, p, q: x @ p + q, (4, 2), (2,)), x(3, 4)),
    "mixed uses": (lambda: Direct(lambda x, p: (x + p) @ p.t(), (3, 4)), x(3, 4)),
    "picked positions": (lambda: Direct(lambda x, p: x + p[[1, 0, 1]] + p[torch.tensor(2)], (4, 4)), x(3, 4)),
    "out of sight": (lambda: Direct(lambda x, p: Doubled.apply(x, p), (4,)), x(3, 4)),
    "learned start": (LearnedStart, x(4, 3)),
    "recurrence, one way frozen": (_frozen_recurrence, x(4, 3)),
    "recurrence, states alone": (lambda: Last(nn.LSTM(3, 4, bidirectional=True, batch_first=True)), x(4, 3)),
    "recurrence, cells alone": (lambda: Last(nn.LSTM(3, 4, batch_first=True, proj_size=2), 1), x(4, 3)),
    "gru, states alone": (lambda: Last(nn.GRU(3, 4, 2, batch_first=True)), x(4, 3)),
    "rnn without bias": (
        lambda: First(nn.RNN(3, 4, bidirectional=True, bias=False, batch_first=True)),
        x(4, 3),
    ),
    "recurrence, one moment": (lambda: First(nn.LSTM(3, 4, batch_first=True)), x(1, 3)),
    "conv2d, few positions": (lambda: nn.Conv2d(2, 8, 4, stride=2), x(2, 6, 6)),
    "flattened": (Flattened, x(4, 3)),
    "sequence first": (SequenceFirst, x(4, 3)),
    "sequence first, as long as the batch": (SequenceFirst, x(BATCH, 3)),
    "weight norm": (
        lambda: nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 2)
        ),
        x(3),
    ),
    "weight norm, sequence": (lambda: weight_norm(nn.Linear(3, 4)), x(5, 3)),
    "weight norm, columns": (lambda: weight_norm(nn.Linear(3, 4), dim=1), x(2, 3)),
    "weight norm, used again": (lambda: Reused(weight_norm(nn.Linear(3, 3))), x(3)),
    "weight norm of a convolution": (
        lambda: nn.Sequential(weight_norm(nn.Conv2d(2, 3, 3, stride=2, padding=1)), nn.Flatten()),
        x(2, 6, 5),
    ),
    "weight norm, same padding": (
        lambda: weight_norm(nn.Conv1d(2, 4, 4, padding="same", dilation=2, groups=2)),
        x(2, 7),
    ),
    "weight norm by hooks": (_old_weight_norm, x(3)),
    "spectral norm, evaluating": (
        lambda: _eval(nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4)), nn.Tanh())),
        x(3),
    ),
    "orthogonal": (
        lambda: nn.utils.parametrizations.orthogonal(nn.Linear(4, 4), orthogonal_map="matrix_exp"),
        x(4),
    ),
    "masked weight": (_masked_weight, x(4)),
    "low rank": (lambda: Direct(lambda x, p, q: x @ (p @ q), (4, 2), (2, 3)), x(3, 4)),
    "product, turned": (lambda: Direct(lambda x, p: torch.tanh(x @ p.t()) @ p, (2, 4)), x(3, 4)),
    "product on the left": (lambda: Direct(lambda x, p: p @ x, (2, 3)), x(3, 4)),
    "product by head": (lambda: Direct(lambda x, p: x @ p, (2, 4, 3)), x(2, 3, 4)),
    "product with a vector": (lambda: Direct(lambda x, p: torch.matmul(x, p)[:, None], (4,)), x(4)),
    "linear, bare": (lambda: Direct(nn.functional.linear, (2, 4), (2,)), x(3, 4)),
    "linear, frozen weight": (lambda: _half_frozen(Direct(nn.functional.linear, (2, 4), (2,))), x(3, 4)),
    "addmm": (lambda: Direct(lambda x, p, q: torch.addmm(q, x, p), (4, 2), (2,)), x(4)),
    "einsum": (lambda: Direct(lambda x, p: torch.einsum("bti,oi->bto", x, p), (2, 4)), x(3, 4)),
    "einsum, dots": (lambda: Direct(lambda x, p: torch.einsum("...i,io->...o", x, p), (4, 2)), x(3, 4)),
    "einsum by head": (
        lambda: Direct(lambda x, p: torch.einsum("bhti,hio->bhto", x, p), (2, 4, 3)),
        x(2, 3, 4),
    ),
    "einsum of three": (
        lambda: Direct(lambda x, p: torch.einsum("bi,oij,bj->bo", x, p, x.sin()), (2, 4, 4)),
        x(4),
    ),
    "einsum, two places": (
        lambda: Direct(lambda x, p: torch.einsum("bhd,hde->be", x, p), (3, 4, 2)),
        x(3, 4),
    ),
    "einsum, in another order": (
        lambda: Direct(lambda x, p: torch.einsum("bhd,hed->be", x, p), (3, 2, 4)),
        x(3, 4),
    ),
    "bilinear, sequence": (
        lambda: nn.Bilinear(3, 2, 4, bias=False),
        lambda: (torch.randn(BATCH, 3, 3), torch.randn(BATCH, 3, 2)),
    ),
    "bag, sum": (lambda: nn.EmbeddingBag(7, 4, mode="sum", padding_idx=2), words(3)),
    "bag, mean with padding": (lambda: nn.EmbeddingBag(7, 4, padding_idx=2), words(6)),
    "bag, largest": (lambda: nn.EmbeddingBag(7, 4, mode="max"), words(3)),
    "bag, weighted": (
        lambda: nn.Sequential(Weighted(nn.EmbeddingBag(7, 4, mode="sum")), nn.Linear(4, 2)),
        words(3),
    ),
    "bag, learned weights": (lambda: Weighted(nn.EmbeddingBag(7, 4, mode="sum"), learned=True), words(3)),
    "bag, offsets": (lambda: Bags(nn.EmbeddingBag(7, 4)), words(3)),
    "bag, all offsets": (lambda: Bags(nn.EmbeddingBag(7, 4, include_last_offset=True)), words(3)),
    "table, bare": (Table, words(3)),
    "batch norm of images, evaluating": (
        lambda: _eval(nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))),
        x(2, 4, 4),
    ),
    "recomputed": (
        lambda: Recomputed(
            nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4)),
            nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.Sigmoid()),
            First(nn.GRU(4, 3, batch_first=True)),
        ),
        x(4, 3),
    ),
    "recomputed, with a scale": (
        lambda: Recomputed(nn.Sequential(nn.Linear(3, 4), Scale(4), nn.Tanh()), nn.Linear(4, 2)),
        x(4, 3),
    ),
    "packed": (Packed, lambda: (torch.randn(BATCH, 4, 3), torch.tensor([4, 2, 3, 1, 4]))),
    "cells": (Cells, x(3, 3)),
    "bag of words": (lambda: nn.Sequential(nn.EmbeddingBag(7, 4), nn.Linear(4, 2)), words(3)),
    "sparse embedding": (lambda: nn.Sequential(nn.Embedding(7, 4, sparse=True), nn.Linear(4, 2)), words(3)),
    "sparse positions": (lambda: TinyGPT(9, sparse=True), words(4)),
    "frozen parts": (_frozen, x(3)),
    "keywords": (Named, lambda: {"left": torch.randn(BATCH, 3), "right": torch.randn(BATCH, 4)}),
    "batch norm, evaluating": (
        lambda: _eval(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))),
        x(3),
    ),
}
