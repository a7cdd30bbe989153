"""Routes are tried before they are used: a row of a layer's gradient must come from one example alone.

What a model does with its rows can be followed only so far; there are always ways to move them that
nobody thought of. So routes are tried on a batch like the one at hand, its numbers a little shaken and
the parameters too, so that nothing is 0 by chance. Of all losses but one example's are multiplied by
0: whatever is then found in another example's row is not that example's, and the routes are not used.
The gradient found must also be that of plain backpropagation, where the same random numbers were drawn: where
the loss is the same.

Examples that say nothing about the routes are not tried: those that a weight of 0 or an unknown label leaves
out, and those whose loss or gradient is no number. Else one such row would decide how all other examples of
a run are computed, and rounded.

Under autocast routes are tried twice. Without autocast they must find the gradient to the precision of
float32, unless the model runs under autocast only. With it, backpropagation rounds each gradient of a
parameter to the precision u of autocast once for every use of the parameter, and the routes do not: their
difference may be 4u of the parameter's gradient and u/2 of the whole (u = 2⁻⁷ in bfloat16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.training.batches import tree
from tacit.training.gradients.fallback import Loss
from tacit.training.gradients.pieces import Piece, Weights
from tacit.training.gradients.routes import Parts, Routes
from tacit.training.isolation.generators import generators_kept
from tacit.training.isolation.recording import Recording
from tacit.training.isolation.state import guarded
from tacit.training.isolation.unproved import Unproved

# Pieces and losses of a batch, by the routes; the arguments are those of the engine.
Taped = Callable[[Parts, Loss, Any, Any, Routes, int], tuple[dict[str, Piece], Tensor, Recording]]

_FEWEST, _FEW, _MOST = 3, 8, 64
_SHAKEN = 0.05
_ELSEWHERE = 1e-9


def holds(
    parts: Parts, loss: Loss, inputs: Any, targets: Any, routes: Routes, taped: Taped, *, again: bool = False
) -> bool:
    """Whether the routes keep examples apart, and find what plain backpropagation finds.

    Tried ``again``, as they held for the same model and examples of other shapes, they are tried on fewer.
    """
    device = _device(parts)
    if torch.is_autocast_enabled(device):
        try:
            with torch.autocast(device, enabled=False):
                if not _hold(parts, loss, inputs, targets, routes, taped, again=again):
                    return False
        except (RuntimeError, NotImplementedError):
            pass  # Layers of different precision need autocast to fit together.
    return _hold(parts, loss, inputs, targets, routes, taped, again=again)


def _hold(
    parts: Parts, loss: Loss, inputs: Any, targets: Any, routes: Routes, taped: Taped, *, again: bool
) -> bool:
    entries = tree.examples(inputs, targets)
    size = max(_FEWEST, min(entries, _FEW if again else _MOST))
    rows = torch.arange(size) % entries
    with generators_kept(), _shaken(parts):
        torch.default_generator.manual_seed(0)
        tried = _tried(parts, loss, inputs, targets, rows)
        for telling in (_with_losses, _with_gradients):
            told = telling(parts, loss, tried)
            if not told:
                return True
            if len(told) < size:
                rows = rows[torch.tensor(told)[torch.arange(size) % len(told)]]
                tried = _tried(parts, loss, inputs, targets, rows)
        return all(_apart(parts, loss, tried, routes, taped, row) for row in sorted({0, size // 2, size - 1}))


@dataclass(frozen=True)
class _Tried:
    """Examples that routes are tried on, their losses in a graph, and whether these are random."""

    inputs: Any
    targets: Any
    losses: Tensor
    random: bool

    def gradients(self, parts: Parts, loss: Loss, value: Tensor, names: Iterable[str]) -> list[Tensor | None]:
        """Gradients of a value of these losses, by plain backpropagation."""
        chosen = [parts.trainable[name] for name in names]
        with guarded(parts.model, loss, (), resumed=True):
            found = torch.autograd.grad(value, chosen, retain_graph=True, allow_unused=True)
        return [each if each is None or each.layout == torch.strided else each.to_dense() for each in found]


def _tried(parts: Parts, loss: Loss, inputs: Any, targets: Any, rows: Tensor) -> _Tried:
    """These rows, their numbers a little shaken."""

    def pick(leaf: Any) -> Any:
        return leaf.index_select(0, rows.to(leaf.device)).detach() if tree.batched(leaf) else leaf

    inputs, targets = tree.mapped(pick, (inputs, targets))
    try:
        shaken = tree.mapped(_shake, inputs)
        return _Tried(shaken, targets, *_plain(parts, loss, shaken, targets))
    except (IndexError, RuntimeError):
        # Numbers that a model takes for places in a table may leave it when they are shaken.
        return _Tried(inputs, targets, *_plain(parts, loss, inputs, targets))


def _with_losses(parts: Parts, loss: Loss, tried: _Tried) -> list[int]:
    """The examples with a loss: a number, and not 0 as where weights or unknown labels leave one out."""
    values = tried.losses.detach()
    return (values.isfinite() & (values != 0)).nonzero()[:, 0].tolist()


def _with_gradients(parts: Parts, loss: Loss, tried: _Tried) -> list[int]:
    """The examples whose gradients are numbers; each is looked at by itself only where one is not."""
    every = range(len(tried.losses))

    def finite(some: _Tried) -> bool:
        if not some.losses.requires_grad:
            return True
        found = some.gradients(parts, loss, some.losses.sum(), parts.trainable)
        return all(bool(each.isfinite().all()) for each in found if each is not None)

    if finite(tried):
        return list(every)
    return [
        row
        for row in every
        if finite(_tried(parts, loss, tried.inputs, tried.targets, torch.full((_FEWEST,), row)))
    ]


def _apart(parts: Parts, loss: Loss, tried: _Tried, routes: Routes, taped: Taped, row: int) -> bool:
    size, losses = len(tried.losses), tried.losses
    names = [name for name in parts.trainable if name not in routes.fallback]
    plain: list[Tensor | None] | None = None
    if losses.requires_grad:
        plain = tried.gradients(parts, loss, losses[row], names)
        if not any(bool(each.any()) for each in plain if each is not None):
            return True  # An example without a gradient says nothing about whose it is.
    torch.default_generator.manual_seed(1)

    def only(outputs: Any, targets: Any) -> Tensor:
        values = loss(outputs, targets)
        kept = torch.arange(size, device=values.device) == row
        return torch.where(kept, values, torch.zeros_like(values))

    try:
        pieces, own, _ = taped(parts, only, tried.inputs, tried.targets, routes, size)
    except Unproved:
        return False
    with torch.no_grad(), torch.autocast(_device(parts), enabled=False):
        squares = {name: piece.squares() for name, piece in pieces.items()}
        if any(len(each) != size for each in squares.values()):
            return False
        whole = sum(float(each.sum()) for each in squares.values())
        for each in squares.values():
            each[row] = 0
            if not float(each.max()) <= _ELSEWHERE * whole:
                return False
        if plain is None or (tried.random and not torch.isclose(own[row], losses[row].detach(), rtol=1e-5)):
            return True
        ones = Weights(torch.ones(size, device=losses.device))
        found = {name: piece.weighted(ones.to(_wide(parts, name))) for name, piece in pieces.items()}
    for name, grad in zip(names, plain, strict=True):
        parameter = parts.trainable[name]
        expected = torch.zeros_like(parameter) if grad is None else grad
        got = found.get(name, torch.zeros_like(parameter))
        coarse, least = _tolerances(parameter.dtype, parameter.device.type)
        apart = float((got.double() - expected.double()).norm())
        if not apart <= coarse * float(expected.double().norm()) + least * whole**0.5:
            return False
    return True


def _tolerances(dtype: torch.dtype, device: str) -> tuple[float, float]:
    """How far two gradients of a parameter may lie apart, in parts of its own and of the whole gradient."""
    coarse, least = (1e-3 if torch.finfo(dtype).bits >= 32 else 0.1), 1e-5
    if torch.is_autocast_enabled(device):
        rounding = torch.finfo(torch.get_autocast_dtype(device)).eps
        coarse, least = max(coarse, 4 * rounding), rounding / 2
    return coarse, least


def _plain(parts: Parts, loss: Loss, inputs: Any, targets: Any) -> tuple[Tensor, bool]:
    """The losses, in a graph, and whether they depend on random numbers."""
    args, kwargs = tree.arguments(inputs)
    found = []
    with torch.enable_grad():
        for seed in (1, 2):
            torch.default_generator.manual_seed(seed)
            with guarded(parts.model, loss, (inputs, targets)):
                found.append(loss(parts.model(*args, **kwargs), targets))
    return found[0], not torch.equal(found[0].detach().nan_to_num(), found[1].detach().nan_to_num())


@contextmanager
def _shaken(parts: Parts) -> Iterator[None]:
    """Within, parameters and buffers are others than they were, and afterwards to the bit the same."""
    every: list[Tensor] = [*parts.trainable.values(), *parts.model.buffers()]
    before = [each.detach().clone() for each in every]
    try:
        with torch.no_grad():
            for parameter in parts.trainable.values():
                parameter.add_(torch.randn_like(parameter) * (_SHAKEN * (parameter.abs().mean() + _SHAKEN)))
        # Autocast keeps rounded copies of parameters, which would be those of other numbers now.
        torch.clear_autocast_cache()
        yield
    finally:
        with torch.no_grad():
            for each, kept in zip(every, before, strict=True):
                each.copy_(kept)
        torch.clear_autocast_cache()


def _shake(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor) or not leaf.is_floating_point():
        return leaf
    return leaf.nan_to_num(0.0, 1.0, -1.0) * (1 + _SHAKEN * torch.randn_like(leaf))


def _device(parts: Parts) -> str:
    return next(iter(parts.trainable.values())).device.type


def _wide(parts: Parts, name: str) -> torch.dtype:
    return torch.promote_types(parts.trainable[name].dtype, torch.float32)
