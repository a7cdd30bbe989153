"""The clipped sum of per-example gradients, by book-keeping."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import EngineFailed, InvalidValue
from tacit.training.batches import tree
from tacit.training.clipping import Clipping, Flat, checked_clip_norm
from tacit.training.gradients.fallback import Loss, per_example_gradients
from tacit.training.gradients.losses import per_example, unnamed_bounds
from tacit.training.gradients.passes import exactly, taped
from tacit.training.gradients.pieces import Piece, Plain
from tacit.training.gradients.routes import Parts, Routes, everything_by_itself, forget, routes_for
from tacit.training.gradients.sums import BLOCK, EXACT, summed, wide
from tacit.training.gradients.views import grouped
from tacit.training.isolation.checking import check_model
from tacit.training.isolation.generators import generators_held, generators_kept
from tacit.training.isolation.growth import zeros
from tacit.training.isolation.recording import Recording
from tacit.training.isolation.state import State
from tacit.training.isolation.trial import holds
from tacit.training.isolation.unproved import Changed, Unproved
from tacit.training.isolation.written import as_written

_FLAT = Flat()
# How often a pass is run again that was disturbed by another thread, before its examples are run one by one.
_AGAIN = 2
_TOLD: set[str] = set()
DISTURBED = (
    "Another thread of this program ran while a batch was computed, and may have computed with its examples: "
    "they are computed one by one, which is slow. If your threads leave the examples alone, say so with "
    'Trainer(threads="trusted").'
)


def clipped_gradient_sum(
    model: nn.Module, loss: Any, inputs: Any, targets: Any, clip_norm: float
) -> tuple[dict[str, Tensor], Tensor]:
    """Sum over examples of gradients clipped to ``clip_norm``, and each example's gradient norm.

    The gradient g of an example, over all trainable parameters together, enters the sum as
    g × min(1, ``clip_norm``/‖g‖₂). ``loss`` is one that :class:`Trainer` takes: a loss of ``torch.nn``, or a
    function such that ``loss(model(inputs), targets)`` gives one loss per example.
    Examples lie along the first dimension of every tensor. A tuple or list of inputs is passed
    as positional arguments and a mapping as keyword arguments.

    Guarantee: adding or removing an example changes the sum by at most ``clip_norm`` in ℓ2, and
    replacing one by at most twice that, up to rounding, provided no layer mixes examples
    (:func:`check_model` runs first). The sum is not private until noise is added, and the norms
    never are: they are for the step that adds it, not for release.

    One backward pass carries gradients from layer to layer; norms come from each layer's input and
    output gradient, and the sum from one weighted product per layer (DP-SGD: Abadi et al. 2016;
    book-keeping: Bu et al. 2023). Parameters that no rule covers cost one more pass.

    ==========================  =====================================================
    case                        result
    ==========================  =====================================================
    gradient not finite         the example adds exactly zero, and its norm is inf or NaN
    no examples                 zeros, and no norms
    frozen parameter            not in the sum
    unused parameter            zeros
    more than 2048 examples     the sum is in float64: :mod:`tacit.training.gradients.sums`
    ==========================  =====================================================

    The model is left as it was: hooks, ``requires_grad``, ``.grad`` and mode.

    >>> import torch
    >>> from torch import nn
    >>> model = nn.Linear(2, 1, bias=False)
    >>> loss = lambda outputs, targets: (outputs[:, 0] - targets).square() / 2
    >>> inputs = torch.tensor([[3.0, 4.0], [0.03, 0.04]])
    >>> targets = model(inputs)[:, 0].detach() - 2
    >>> total, norms = clipped_gradient_sum(model, loss, inputs, targets, clip_norm=1.0)
    >>> print(total["weight"], norms)
    tensor([[0.6600, 0.8800]]) tensor([10.0000,  0.1000])
    """
    clip_norm, each = checked_clip_norm(clip_norm), per_example(loss)
    expected = tree.examples(inputs, targets)
    left: list[Any] = [(inputs, targets)]
    total: dict[str, Tensor] = {}
    norms: list[Tensor] = []
    while left:
        (some_inputs, some_targets), left = tree.cut(left[0][0], left[0][1], BLOCK)
        with unnamed_bounds():
            clipped = clipped_gradients(model, each, some_inputs, some_targets, clip_norm, expected=expected)
        norms.append(clipped.norms)
        for name, part in clipped.total.items():
            total[name] = total[name].add_(part) if name in total else part
    return total, torch.cat(norms)


@dataclass(frozen=True)
class Clipped:
    """The clipped sum by parameter, and what is for the curator alone: norms and losses.

    ``losses`` is None where no pass over the whole batch computed them.
    """

    total: dict[str, Tensor]
    norms: Tensor
    losses: Tensor | None


def clipped_gradients(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    clip_norm: float,
    *,
    rule: Clipping = _FLAT,
    views: int = 1,
    autocast: torch.dtype | None = None,
    expected: int = 0,
    alone: bool = False,
) -> Clipped:
    """:func:`clipped_gradient_sum` with another rule, several views of each example, or autocast.

    With ``views`` an example is that many consecutive entries of every tensor, and its gradient is
    the mean over them, clipped as one: the sensitivity does not depend on the number of views
    (De et al. 2022). Under ``autocast`` layers run in that precision; norms and sums are computed in
    float32 from the same numbers, so that what is summed is what was measured. Of a batch of many
    ``expected`` examples the sum is in float64 (:mod:`.sums`). ``alone`` computes every
    example by itself, in a plain loop (:mod:`tacit.training.gradients.fallback`).
    """
    entries = tree.examples(inputs, targets)
    examples = entries // views
    if entries % views:
        raise InvalidValue("inputs", "another length", f"a multiple of the {views} views of each example")
    check_model(model)
    parts = Parts(model)
    trainable = parts.trainable
    like = next(iter(trainable.values()))
    widths = {name: summed(each.dtype, expected) for name, each in trainable.items()}
    if entries == 0:
        total = {name: torch.zeros_like(each, dtype=widths[name]) for name, each in trainable.items()}
        return Clipped(total, like.new_zeros(0), like.new_zeros(0))
    inputs, targets = tree.mapped(_own, (inputs, targets))
    with generators_held():
        state = State.of(model, loss)
        parts.holds = state.holds
        try:
            with _precision(like.device, autocast), as_written():
                pieces, losses, entries = _apart(parts, loss, inputs, targets, entries, views, alone, state)
        finally:
            state.restore()
    with torch.no_grad(), exactly(like.device):
        if views > 1:
            pieces = {name: grouped(piece, views) for name, piece in pieces.items()}
        squares = {name: piece.squares() for name, piece in pieces.items()}
        if any(len(each) != entries // views for each in squares.values()):
            raise EngineFailed("A layer gave gradients for another number of examples.", "Report the model.")
        if squares:
            weights, norms = rule.factors(squares, clip_norm, len(trainable))
        else:
            weights, norms = {}, like.new_zeros(entries // views)
        if len(norms) > examples:
            copies = torch.arange(examples, len(norms), device=norms.device)
            weights = {name: each.besides(copies) for name, each in weights.items()}
            norms, losses = norms[:examples], None if losses is None else losses[:examples]
        total = {
            name: pieces.pop(name)
            .weighted(weights[name].to(wide(each.dtype, expected > EXACT)))
            .to(widths[name])
            if name in pieces
            else torch.zeros_like(each, dtype=widths[name])
            for name, each in trainable.items()
        }
    return Clipped(total, norms, losses)


def _own(leaf: Any) -> Any:
    """A tensor of its own, in order and from the start of its storage, so that its rows can be followed."""
    if not isinstance(leaf, Tensor):
        return leaf
    leaf = leaf.detach()
    plain = leaf.is_contiguous() and not leaf.storage_offset()
    return leaf if plain and leaf.nbytes == leaf.untyped_storage().nbytes() else leaf.contiguous().clone()


def _apart(
    parts: Parts, loss: Loss, inputs: Any, targets: Any, entries: int, views: int, alone: bool, state: State
) -> tuple[dict[str, Piece], Tensor | None, int]:
    """What each parameter received from each example, by the routes if they are proved, or alone.

    The number returned is how many entries that are. A single entry goes through the routes with a copy of
    itself, since PyTorch lays out a batch of one in memory in another way. A pass that broke off may have
    left something of its examples in the model: the ``state`` is put back before the next.
    """
    routes = everything_by_itself(parts)
    if not alone:
        for first in (True, False):
            routes = routes_for(
                parts, loss, inputs, targets,
                lambda made, again: holds(parts, loss, inputs, targets, made, taped, again=again),
                state.restore,
            )  # fmt: skip
            if routes.program.alone:
                break
            some, many = (inputs, targets), entries
            if entries == 1:
                some, many = tree.mapped(_doubled, some), 2
            try:
                return *_pieces(parts, loss, some[0], some[1], routes, many, views, alone), many
            except Unproved as error:
                state.restore()
                if not (first and isinstance(error, Changed)):
                    break
                forget(parts.model)
        routes = routes.instead or routes
    return *_pieces(parts, loss, inputs, targets, routes, entries, views, alone), entries


def _doubled(leaf: Any) -> Any:
    return torch.cat([leaf, leaf]) if tree.batched(leaf) else leaf


def _precision(device: torch.device, autocast: torch.dtype | None) -> AbstractContextManager[Any]:
    if autocast is None:
        return nullcontext()
    return torch.autocast(device.type, dtype=autocast)


def _pieces(
    parts: Parts, loss: Loss, inputs: Any, targets: Any, routes: Routes, entries: int, views: int, alone: bool
) -> tuple[dict[str, Piece], Tensor | None]:
    """What each trainable parameter received, by name, and the losses; unused ones are left out."""
    model, trainable = parts.model, parts.trainable
    pieces: dict[str, Piece] = {}
    losses = None
    if len(routes.fallback) < len(trainable):
        pieces, losses = _proved(parts, loss, inputs, targets, routes, entries, views)
    if routes.fallback:
        program = None if alone else routes.mapped
        found = per_example_gradients(model, loss, inputs, targets, routes.fallback, parts.names, program)
        for name, values in found.items():
            values = values.to(wide(values.dtype))
            pieces[name] = Plain(values if views == 1 else values / views)
    return pieces, losses


def _proved(
    parts: Parts, loss: Loss, inputs: Any, targets: Any, routes: Routes, entries: int, views: int
) -> tuple[dict[str, Piece], Tensor]:
    """What parameters received by way of the tape, proved to be each example's own, and the losses."""
    pieces, losses, recording = taped(parts, loss, inputs, targets, routes, entries, views)
    for _ in range(_AGAIN if recording.disturbed else 0):
        pieces, losses, recording = taped(parts, loss, inputs, targets, routes, entries, views)
        if not recording.disturbed:
            break
    if recording.disturbed and DISTURBED not in _TOLD:
        _TOLD.add(DISTURBED)
        named = f" It was: {recording.others}." if recording.others else ""
        warnings.warn(DISTURBED + named, RuntimeWarning, stacklevel=2)

    def tiny(size: int) -> Recording:
        some, other = zeros((inputs, targets), size)
        with generators_kept():
            return taped(parts, loss, some, other, routes, size, views)[2]

    routes.program.prove(recording, entries, tiny)
    return pieces, losses
