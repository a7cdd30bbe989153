"""The slow, plain way: one example at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tacit.training import clipped_gradient_sum
from tacit.training.batches import tree

RTOL = 1e-6


def plain_loop(
    model: nn.Module, loss: Any, inputs: Any, targets: Any, clip_norm: float
) -> tuple[dict[str, Tensor], Tensor]:
    """Clipped sum and norms by one ordinary backward pass per example."""
    names = [name for name, each in model.named_parameters() if each.requires_grad]
    leaves = [each for each in model.parameters() if each.requires_grad]
    total = {name: torch.zeros_like(each) for name, each in zip(names, leaves, strict=True)}
    norms = []
    for number in range(tree.examples(inputs, targets)):

        def alone(leaf: Any, number: int = number) -> Any:
            return leaf[number : number + 1] if tree.batched(leaf) else leaf

        args, kwargs = tree.arguments(tree.mapped(alone, inputs))
        value = loss(model(*args, **kwargs), tree.mapped(alone, targets)).sum()
        grads = torch.autograd.grad(value, leaves, allow_unused=True)
        flat = [torch.zeros_like(p) if g is None else g for p, g in zip(leaves, grads, strict=True)]
        norm = torch.sqrt(sum(g.double().square().sum() for g in flat))
        norms.append(norm)
        if not torch.isfinite(norm):
            continue
        for name, g in zip(names, flat, strict=True):
            total[name] += g * min(1.0, clip_norm / max(float(norm), 1e-300))
    return total, torch.stack(norms)


def distance(one: dict[str, Tensor], two: dict[str, Tensor]) -> float:
    """The ℓ2 distance of two sums."""
    return float(torch.sqrt(sum((one[name] - two[name]).double().square().sum() for name in one)))


def size(one: dict[str, Tensor]) -> float:
    """The ℓ2 norm of a sum."""
    return float(torch.sqrt(sum(each.double().square().sum() for each in one.values())))


def squared(outputs: Any, targets: Any) -> Tensor:
    """A loss for outputs of any shape: half the squared distance to the target, per example."""
    outputs = outputs[0] if isinstance(outputs, tuple) else outputs
    spread = outputs.flatten(1) - targets.reshape(len(targets), -1)[:, :1]
    return (spread + 0.1 * spread.pow(3)).square().sum(1) / 2


def assert_equal_to_loop(
    model: nn.Module, inputs: Any, targets: Any, loss: Any = squared, clip_norm: float | None = None
) -> Tensor:
    """Sum and norms equal the plain loop's; clipping is made to act on about half the examples."""
    _, norms = plain_loop(model, loss, inputs, targets, 1.0)
    clip_norm = clip_norm or float(norms.median()) or 1.0
    expected, norms = plain_loop(model, loss, inputs, targets, clip_norm)
    found, own = clipped_gradient_sum(model, loss, inputs, targets, clip_norm)
    assert list(found) == list(expected)
    torch.testing.assert_close(own.double(), norms.double(), rtol=RTOL, atol=RTOL * float(norms.max()))
    for name in expected:
        assert found[name].shape == expected[name].shape
        torch.testing.assert_close(found[name], expected[name], rtol=RTOL, atol=RTOL * clip_norm, msg=name)
    return own
