"""One example moves the clipped sum by no more than its bound, whatever it holds."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tacit.training import clipped_gradient_sum
from tacit.training.batches import tree
from training.oracle import assert_equal_to_loop, distance, size, squared
from training.test_exactness import doubled
from training.zoo import BATCH, ZOO

CLIP = 0.3
ROUNDING = 1 + 1e-9


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()


@pytest.mark.parametrize("name", ZOO)
def test_replace_and_remove(name: str) -> None:
    """Replacing an example moves the sum by at most 2 × clip_norm, removing it by clip_norm."""
    torch.manual_seed(2)
    make, draw = ZOO[name]
    model = make().double()
    inputs, other = (tree.mapped(doubled, draw()) for _ in range(2))
    targets = torch.randn(BATCH, dtype=torch.float64)
    total, _ = clipped_gradient_sum(model, squared, inputs, targets, CLIP)
    mixed = _combine(inputs, other)
    replaced, _ = clipped_gradient_sum(model, squared, mixed, targets * torch.tensor([1, 1, -9, 1, 1]), CLIP)
    assert distance(total, replaced) <= 2 * CLIP * ROUNDING
    kept = torch.tensor([0, 1, 3, 4])
    removed, _ = clipped_gradient_sum(
        model, squared, tree.mapped(lambda leaf: leaf[kept], inputs), targets[kept], CLIP
    )
    assert distance(total, removed) <= CLIP * ROUNDING


def _combine(inputs: object, other: object) -> object:
    """The inputs with the third example taken from the others."""
    flat = iter(tree.tensors(other))

    def swap(leaf: Tensor) -> Tensor:
        leaf = leaf.clone()
        leaf[2] = next(flat)[2]
        return leaf

    return tree.mapped(swap, inputs)


@pytest.mark.parametrize("scale", [0.0, 1e-150, 1e-3, 1e3, 1e30, 1e150, 1e300, math.inf, math.nan])
def test_adversarial_values(scale: float) -> None:
    torch.manual_seed(3)
    model = perceptron()
    inputs, targets = torch.randn(6, 4).double(), torch.randn(6).double()
    total, _ = clipped_gradient_sum(model, squared, inputs, targets, CLIP)
    without, _ = clipped_gradient_sum(model, squared, inputs[1:], targets[1:], CLIP)
    for changed_targets in (False, True):
        changed, aims = inputs.clone(), targets.clone()
        changed[0] *= scale
        if changed_targets:
            aims[0] = scale
        found, norms = clipped_gradient_sum(model, squared, changed, aims, CLIP)
        assert distance(found, without) <= CLIP * ROUNDING
        assert distance(found, total) <= 2 * CLIP * ROUNDING
        if not math.isfinite(float(norms[0])):
            assert distance(found, without) == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(("positions", "width"), [(2, 64), (3, 64), (8, 64), (51, 110), (130, 270)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cancelling_positions(positions: int, width: int, dtype: torch.dtype) -> None:
    """Huge positions that nearly cancel: the Gram matrices round the norm away, the sum does not."""
    torch.manual_seed(4)
    model = nn.Linear(width, width, bias=False).to(dtype)
    signs = torch.tensor(
        [(-1.0) ** (number % 2) for number in range(positions - positions % 2)] + [0.0] * (positions % 2)
    )

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs * targets).sum((1, 2))

    for gap in (1e-2, 1e-4, 1e-6, 1e-7, 1e-8, 0.0):
        base = 1e6 * torch.randn(1, 1, width)
        inputs = (base + gap * 1e6 * torch.randn(1, positions, width)).to(dtype)
        targets = (signs[None, :, None] * torch.randn(1, 1, width)).to(dtype)
        total, _ = clipped_gradient_sum(model, loss, inputs, targets, 1.0)
        assert size(total) <= 1 + 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cancelling_words_and_pixels(dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    words, convolution = nn.Embedding(90, 8).to(dtype), nn.Conv2d(32, 64, 2, bias=False).to(dtype)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs * targets).flatten(1).sum(1)

    for gap in (1e-2, 1e-5, 1e-7, 0.0):
        targets = 1e9 * torch.randn(1, 1, 8) * torch.tensor([1.0, -1.0, 1.0, -1.0])[None, :, None]
        targets = targets + gap * 1e9 * torch.randn(1, 4, 8)
        total, _ = clipped_gradient_sum(words, loss, torch.full((1, 4), 7), targets.to(dtype), 1.0)
        assert size(total) <= 1 + 1e-5
        pixels = 1e6 * (torch.randn(1, 32, 1, 1) + gap * torch.randn(1, 32, 3, 3))
        signs = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]) * torch.randn(1, 64, 1, 1)
        total, _ = clipped_gradient_sum(convolution, loss, pixels.to(dtype), signs.to(dtype), 1.0)
        assert size(total) <= 1 + 1e-5


@pytest.mark.parametrize("name", ["perceptron", "convolutional net", "class token", "lstm", "tied embedding"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_not_finite_adds_exactly_zero(name: str, value: float) -> None:
    torch.manual_seed(5)
    make, draw = ZOO[name]
    model, inputs = make().double(), tree.mapped(doubled, draw())
    targets = torch.randn(BATCH, dtype=torch.float64)
    targets[2] = value
    total, norms = clipped_gradient_sum(model, squared, inputs, targets, CLIP)
    kept = [0, 1, 3, 4]
    expected, own = clipped_gradient_sum(model, squared, inputs[kept], targets[kept], CLIP)
    assert not norms[2].isfinite()
    torch.testing.assert_close(norms[kept], own)
    assert distance(total, expected) < 1e-12
    alone, _ = clipped_gradient_sum(model, squared, inputs[2:3], targets[2:3], CLIP)
    assert all((each == 0).all() for each in alone.values())


def test_clipping_acts() -> None:
    """With a small clip_norm the sum of one is of that norm; with a large one it is the gradient."""
    torch.manual_seed(6)
    model, inputs, targets = perceptron(), torch.randn(1, 4).double(), torch.ones(1).double()
    small, norms = clipped_gradient_sum(model, squared, inputs, targets, 1e-3)
    assert size(small) == pytest.approx(1e-3)
    large, _ = clipped_gradient_sum(model, squared, inputs, targets, 1e6)
    assert size(large) == pytest.approx(float(norms[0]))


def test_backpropagation_by_hand() -> None:
    """Two inputs, two hidden perceptrons, one output, no bias: the worked example of a survey."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.10, 0.20], [0.05, 0.15]]))
        model[1].weight.copy_(torch.tensor([[0.08, 0.12]]))
    inputs, targets = torch.tensor([[1.0, 2.0]]).double(), torch.tensor([1.0]).double()
    half: Callable[[Tensor, Tensor], Tensor] = lambda out, y: (out[:, 0] - y).square() / 2  # noqa: E731
    assert half(model(inputs), targets).item() == pytest.approx(0.421, abs=5e-4)
    total, norms = clipped_gradient_sum(model, half, inputs, targets, clip_norm=100.0)
    error = 0.082 - 1
    assert total["0.weight"].flatten().tolist() == pytest.approx(
        [error * 0.08, error * 0.16, error * 0.12, error * 0.24]
    )
    assert total["1.weight"].flatten().tolist() == pytest.approx([error * 0.50, error * 0.35])
    assert float(norms[0]) == pytest.approx(size(total))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter -= 0.05 * total[name]
    updated = [*model[0].weight.flatten().tolist(), *model[1].weight.flatten().tolist()]
    assert updated == pytest.approx([0.104, 0.207, 0.056, 0.161, 0.103, 0.136], abs=5e-4)
    assert model(inputs).item() == pytest.approx(0.105, abs=1e-3)


def test_float32_close_to_loop() -> None:
    """In single precision the norms and sums are those of the loop to single precision."""
    torch.manual_seed(7)
    model, draw = ZOO["transformer"][0](), ZOO["transformer"][1]
    inputs, targets = draw(), torch.randn(BATCH)
    total, norms = clipped_gradient_sum(model, squared, inputs, targets, 1.0)
    double, own = clipped_gradient_sum(model.double(), squared, inputs.double(), targets.double(), 1.0)
    assert total["layers.0.linear1.weight"].dtype == torch.float32
    torch.testing.assert_close(norms.double(), own, rtol=1e-4, atol=0)
    assert distance(total, double) < 1e-4
    assert_equal_to_loop(model, inputs.double(), targets.double())
