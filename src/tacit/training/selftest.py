"""Tests that a run makes of itself at its first step: examples apart, clipping and noise at work.

Each raises on a fault of model, loss or installation. With a sound model they pass on any data: they
compare computations with each other, not with anything known of the data.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from scipy import stats
from torch import Tensor, nn

from tacit.errors import InvalidValue, SelfTestFailed
from tacit.training import tree
from tacit.training.clipping import Clipping
from tacit.training.engine import clipped_gradients
from tacit.training.fallback import Loss
from tacit.training.routes import as_written

_FALSE_ALARM = 1e-12
_LOOKED_AT, _COMPARED = 16, 4


def _first(tree_: Any, rows: list[int]) -> Any:
    def pick(leaf: Any) -> Any:
        return leaf[torch.tensor(rows, device=leaf.device)] if tree.batched(leaf) else leaf

    return tree.mapped(pick, tree_)


def _losses(model: nn.Module, loss: Loss, inputs: Any, targets: Any, autocast: torch.dtype | None) -> Tensor:
    device = next(model.parameters()).device
    within: AbstractContextManager[Any] = nullcontext()
    if autocast is not None:
        within = torch.autocast(device.type, dtype=autocast)
    with torch.random.fork_rng(devices=[]), torch.no_grad(), within, as_written():
        torch.default_generator.manual_seed(0)
        return _forward(model, loss, inputs, targets).double()


def _forward(model: nn.Module, loss: Loss, inputs: Any, targets: Any) -> Tensor:
    """The losses, with the model's buffers left as they are."""
    buffers = {name: each.clone() for name, each in model.named_buffers()}
    args, kwargs = tree.arguments(inputs)
    return loss(torch.func.functional_call(model, buffers, args, kwargs), targets)


def draws_numbers(model: nn.Module, loss: Loss, inputs: Any, targets: Any) -> bool:
    """Whether model or loss draw random numbers: the device's generator moves, or two passes differ."""
    device = next(model.parameters()).device

    def states() -> list[Tensor]:
        found = [torch.default_generator.get_state()]
        if device.type != "cpu":
            found.append(torch.get_device_module(device).get_rng_state(device))
        return found

    with torch.random.fork_rng(devices=[]), torch.no_grad(), as_written():
        before = states()
        first = _forward(model, loss, inputs, targets)
        if not all(map(torch.equal, before, states())):
            return True
        return not torch.equal(first, _forward(model, loss, inputs, targets))


def finite_rows(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, views: int, autocast: torch.dtype | None
) -> list[int]:
    """The first few examples whose losses are finite, by number; fewer than two are nothing to compare."""
    some = list(range(min(_LOOKED_AT, tree.examples(inputs, targets) // views)))
    entries = [views * row + view for row in some for view in range(views)]
    losses = _losses(model, loss, _first(inputs, entries), _first(targets, entries), autocast)
    if losses.shape != (len(entries),):
        return []  # The engine says what is wrong with such a loss.
    sound = losses.view(-1, views).isfinite().all(1)
    return [row for row in some if bool(sound[row])][:_COMPARED]


def check_apart(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, views: int, autocast: torch.dtype | None
) -> None:
    """Refuse a model or loss in which examples change one another's losses or gradients.

    A few examples go through together. Each one's loss must be what it is when all the others are copies
    of that one, with the same random numbers; and, where the model draws none, each one's gradient must
    be as long as when it is alone.
    """
    rows = list(range(tree.examples(inputs, targets) // views))
    both = _losses(model, loss, inputs, targets, autocast)
    for row in rows:
        own = slice(views * row, views * row + views)
        copies = list(range(own.start, own.stop)) * len(rows)
        alone = _losses(model, loss, _first(inputs, copies), _first(targets, copies), autocast)
        if bool(((both[own] - alone[own]).abs() > 1e-4 * (1 + both[own].abs())).any()):
            raise _mixed(model, "the loss")
    if autocast is not None or draws_numbers(model, loss, inputs, targets):
        return
    together = clipped_gradients(model, loss, inputs, targets, 1.0, views=views).norms
    for row in rows:
        own_rows = list(range(views * row, views * row + views))
        one = clipped_gradients(
            model, loss, _first(inputs, own_rows), _first(targets, own_rows), 1.0, views=views
        ).norms
        if bool((together[row] - one[0]).abs() > 0.01 * one[0] + 1e-5 * float(together.max())):
            raise _mixed(model, "the gradient")


def _mixed(model: nn.Module, what: str) -> InvalidValue:
    return InvalidValue(
        "model and loss", type(model).__name__, f"such that one example does not change {what} of another",
        "Normalise, attend and average within an example only; a loss of the batch as a whole, such "
        "as a contrastive one, cannot be clipped by example.",
    )  # fmt: skip


def check_clipping(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, views: int, rule: Clipping, clip_norm: float
) -> None:
    """Compare the engine, on the first example alone, with plain backpropagation.

    A model that draws random numbers is not compared, as the two draw different ones.
    """
    rows = list(range(views))
    inputs, targets = _first(inputs, rows), _first(targets, rows)
    if draws_numbers(model, loss, inputs, targets):
        return
    trainable = {name: each for name, each in model.named_parameters() if each.requires_grad}
    with torch.enable_grad():
        found = clipped_gradients(model, loss, inputs, targets, clip_norm, rule=rule, views=views)
        value = _forward(model, loss, inputs, targets).mean()
        plain = torch.autograd.grad(value, list(trainable.values()), allow_unused=True)
    if not bool(found.norms.isfinite().all()):
        return
    given = {
        name: torch.zeros_like(each) if grad is None else grad
        for (name, each), grad in zip(trainable.items(), plain, strict=True)
    }
    squares = {name: grad.double().square().sum()[None] for name, grad in given.items()}
    weights, _ = rule.factors(squares, clip_norm, len(trainable))
    error = 0.0
    for name, grad in given.items():
        error += float((found.total[name].double() - grad.double() * weights[name].factors).square().sum())
    size = float(sum(each.double().square().sum() for each in found.total.values()))
    if not size <= (1.001 * clip_norm) ** 2 or not error <= (0.01 * clip_norm) ** 2:
        raise SelfTestFailed(
            f"The clipped gradient of one example is longer than clip_norm {clip_norm:g}, or another than "
            "that of plain backpropagation.",
            "Report the model: an engine that clips wrongly must not be used.",
        )


def check_noise(noise: Tensor) -> None:
    """Refuse noise whose squares do not add up to what standard normal ones do.

    The sum of squares of d standard normal numbers is χ² with d degrees of freedom; a sound source
    fails once in 10¹² runs.
    """
    low, high = stats.chi2.ppf([_FALSE_ALARM / 2, 1 - _FALSE_ALARM / 2], len(noise))
    total = float(noise.double().square().sum())
    if not low <= total <= high:
        raise SelfTestFailed(
            f"{len(noise)} numbers of noise have mean square {total / max(1, len(noise)):.6g}, not 1.",
            "Report the installation: a run without noise must not be released.",
        )
