"""Tests that a run makes of itself: examples apart, clipping and noise at work.

They are the second line behind the proof (:mod:`tacit.training.isolation`), and draw rows and random numbers
afresh each time. Each raises on a fault of model, loss or installation. With a sound model they pass on any
data: they compare computations with each other, not with anything known of the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from scipy import stats
from torch import Tensor, nn

from tacit.errors import SelfTestFailed
from tacit.training.batches import tree
from tacit.training.clipping import Clipping
from tacit.training.gradients.engine import clipped_gradients
from tacit.training.gradients.fallback import Loss
from tacit.training.gradients.pieces import Weights
from tacit.training.isolation.generators import generators_kept
from tacit.training.isolation.program import mixed
from tacit.training.isolation.state import guarded
from tacit.training.isolation.written import as_written

_FALSE_ALARM = 1e-12
_LOOKED_AT, _COMPARED = 16, 4
_CLOSE = 0.01


def _first(tree_: Any, rows: list[int]) -> Any:
    def pick(leaf: Any) -> Any:
        return leaf[torch.tensor(rows, device=leaf.device)] if tree.batched(leaf) else leaf

    return tree.mapped(pick, tree_)


def _precision(model: nn.Module, autocast: torch.dtype | None) -> AbstractContextManager[Any]:
    if autocast is None:
        return nullcontext()
    return torch.autocast(next(model.parameters()).device.type, dtype=autocast)


def _losses(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, autocast: torch.dtype | None, seed: int
) -> Tensor:
    with generators_kept(), torch.no_grad(), _precision(model, autocast), as_written():
        torch.default_generator.manual_seed(seed)
        return _forward(model, loss, inputs, targets).double()


def _forward(model: nn.Module, loss: Loss, inputs: Any, targets: Any) -> Tensor:
    """The losses, with all that model and loss hold left as it is."""
    buffers = {name: each.clone() for name, each in model.named_buffers()}
    args, kwargs = tree.arguments(inputs)
    with guarded(model, loss, (inputs, targets)):
        return loss(torch.func.functional_call(model, buffers, args, kwargs), targets)


def draws_numbers(model: nn.Module, loss: Loss, inputs: Any, targets: Any) -> bool:
    """Whether model or loss draw random numbers: the device's generator moves, or two passes differ."""
    device = next(model.parameters()).device

    def states() -> list[Tensor]:
        found = [torch.default_generator.get_state()]
        if device.type != "cpu":
            found.append(torch.get_device_module(device).get_rng_state(device))
        return found

    with generators_kept(), torch.no_grad(), as_written():
        before = states()
        first = _forward(model, loss, inputs, targets)
        if not all(map(torch.equal, before, states())):
            return True
        return not torch.equal(first, _forward(model, loss, inputs, targets))


def finite_rows(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, views: int, autocast: torch.dtype | None
) -> list[int]:
    """A few examples, drawn at random, whose losses are finite; fewer than two are nothing to compare."""
    some = torch.randperm(tree.examples(inputs, targets) // views)[:_LOOKED_AT].tolist()
    entries = [views * row + view for row in some for view in range(views)]
    losses = _losses(model, loss, _first(inputs, entries), _first(targets, entries), autocast, _seed())
    if losses.shape != (len(entries),):
        return []  # The engine says what is wrong with such a loss.
    sound = losses.view(-1, views).isfinite().all(1).tolist()
    return [row for row, fine in zip(some, sound, strict=True) if fine][:_COMPARED]


def _seed() -> int:
    """A fresh seed, from the generator that the run has seeded."""
    return int(torch.randint(1 << 62, ()))


def check_apart(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, views: int, autocast: torch.dtype | None
) -> None:
    """Refuse a model or loss in which examples change one another's losses or gradients.

    A few examples go through together. Each one's loss and each one's gradient must be what they are when
    all the others are copies of that one, with the same random numbers; under autocast to its precision.
    """
    rows = list(range(tree.examples(inputs, targets) // views))
    seed = _seed()
    coarse = 0.01 if autocast is None else 0.05
    both = _losses(model, loss, inputs, targets, autocast, seed)
    for row in rows:
        own = slice(views * row, views * row + views)
        copies = list(range(own.start, own.stop)) * len(rows)
        same, other = _first((inputs, targets), copies)
        alone = _losses(model, loss, same, other, autocast, seed)
        if bool(((both[own] - alone[own]).abs() > 1e-4 * (1 + both[own].abs())).any()):
            raise mixed("the loss")
        together = _gradient(model, loss, inputs, targets, row, views, autocast, seed)
        one = _gradient(model, loss, same, other, row, views, autocast, seed)
        if not bool(one.isfinite().all() & together.isfinite().all()):
            continue
        if float((together - one).norm()) > coarse * float(one.norm()) + 1e-5 * (1 + float(together.norm())):
            raise mixed("the gradient")


class _Only:
    """The gradient of one example as it is, and of the others nothing."""

    def __init__(self, row: int) -> None:
        self.row = row

    def factors(
        self, squares: Mapping[str, Tensor], clip_norm: float, parameters: int
    ) -> tuple[dict[str, Weights], Tensor]:
        """Weights for each parameter, and each example's norm."""
        norms = torch.stack(list(squares.values())).sum(0).sqrt()
        others = torch.arange(len(norms), device=norms.device) != self.row
        return dict.fromkeys(squares, Weights((~others).to(norms.dtype), others)), norms


def _gradient(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, row: int, views: int,
    autocast: torch.dtype | None, seed: int,
) -> Tensor:  # fmt: skip
    """What the engine finds for one example of a batch."""
    with generators_kept():
        torch.default_generator.manual_seed(seed)
        found = clipped_gradients(
            model, loss, inputs, targets, 1.0, rule=_Only(row), views=views, autocast=autocast
        ).total
    return torch.cat([each.double().flatten() for each in found.values()])


def check_clipping(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, views: int, rule: Clipping, clip_norm: float,
    alone: bool = False, autocast: torch.dtype | None = None,
) -> None:  # fmt: skip
    """Compare the engine, on the first example alone, with plain backpropagation.

    A model that draws random numbers is not compared, as the two draw different ones. Under ``autocast``
    backpropagation rounds the gradients of parameters to its precision u, and the engine does not: they may
    lie 4u of clip_norm further apart. A product of another number of rows may be rounded otherwise, and the
    engine computes one entry beside a copy of itself, or alone: it has to agree with either.
    """
    rows = list(range(views))
    inputs, targets = _first(inputs, rows), _first(targets, rows)
    if draws_numbers(model, loss, inputs, targets):
        return
    trainable = {name: each for name, each in model.named_parameters() if each.requires_grad}
    with torch.enable_grad():
        found = clipped_gradients(
            model, loss, inputs, targets, clip_norm, rule=rule, views=views, alone=alone, autocast=autocast
        )
    if not bool(found.norms.isfinite().all()):
        return

    def error(times: int) -> float:
        """The square of the distance to the clipped gradient of so many copies of the example."""
        copies = _first((inputs, targets), rows * times)
        with torch.enable_grad(), _precision(model, autocast):
            value = _forward(model, loss, *copies).mean()
        with guarded(model, loss, (), resumed=True):
            plain = torch.autograd.grad(value, list(trainable.values()), allow_unused=True)
        given = {
            name: torch.zeros_like(each) if grad is None else grad
            for (name, each), grad in zip(trainable.items(), plain, strict=True)
        }
        squares = {name: grad.double().square().sum()[None] for name, grad in given.items()}
        weights, _ = rule.factors(squares, clip_norm, len(trainable))
        return sum(
            float((found.total[name].double() - grad.double() * weights[name].factors).square().sum())
            for name, grad in given.items()
        )

    size = float(sum(each.double().square().sum() for each in found.total.values()))
    allowed = (_CLOSE + (0 if autocast is None else 4 * torch.finfo(autocast).eps)) * clip_norm
    near = error(1) <= allowed**2 or (autocast is not None and error(2) <= allowed**2)
    if not size <= (1.001 * clip_norm) ** 2 or not near:
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
