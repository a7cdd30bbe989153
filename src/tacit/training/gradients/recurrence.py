"""RNN, LSTM and GRU with the time loop in one node of the graph.

Forward and backward loops are written out with as few operations a step as the recurrence allows:
everything that does not wait for the step before is one operation over all of time. The weights
that act on the state then have one input and one output gradient for the whole sequence, which is
what the rule of a linear map wants. Inside, time comes first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tacit.training.gradients.pieces import Gram, Matrix, Shift
from tacit.training.gradients.tape import Tape

_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
_aten = torch.ops.aten


def recurrence(
    layer: Any, tape: Tape, trainable: Container[int], inputs: Tensor, state: Any = None
) -> tuple[Tensor, Any]:
    """What the layer's own ``forward`` returns, watched; in the precision of its weights."""
    with torch.autocast(inputs.device.type, enabled=False):
        dtype = layer.weight_ih_l0.dtype
        if isinstance(state, tuple):
            state = tuple(each.to(dtype) for each in state)
        elif state is not None:
            state = state.to(dtype)
        return _recurrence(layer, tape, trainable, inputs.to(dtype), state)


def _recurrence(
    layer: Any, tape: Tape, trainable: Container[int], inputs: Tensor, state: Any
) -> tuple[Tensor, Any]:
    kind = type(layer).__name__
    values = inputs.transpose(0, 1).contiguous() if layer.batch_first else inputs
    directions = 2 if layer.bidirectional else 1
    count, examples = layer.num_layers * directions, values.shape[1]
    if state is None:
        hidden = values.new_zeros(count, examples, getattr(layer, "proj_size", 0) or layer.hidden_size)
        cells = values.new_zeros(count, examples, layer.hidden_size)
    else:
        hidden, cells = state if isinstance(state, tuple) else (state, state)
    last: list[Tensor] = []
    last_cells: list[Tensor] = []
    for depth in range(layer.num_layers):
        if depth and layer.dropout and layer.training:
            values = F.dropout(values, layer.dropout)
        sides = []
        for direction in range(directions):
            number = depth * directions + direction
            suffix = f"_l{depth}" + ("_reverse" if direction else "")
            weights = {name: getattr(layer, name + suffix, None) for name in _NAMES}
            start = (hidden[number], cells[number])
            side, cell = _one(kind, layer, weights, tape, trainable, values, start, bool(direction))
            sides.append(side)
            last.append(side[0 if direction else -1])
            last_cells.append(cell)
        values = torch.cat(sides, -1) if directions == 2 else sides[0]
    output = values.transpose(0, 1) if layer.batch_first else values
    final = torch.stack(last)
    return output, (final, torch.stack(last_cells)) if kind == "LSTM" else final


def _one(
    kind: str,
    layer: Any,
    weights: dict[str, Any],
    tape: Tape,
    trainable: Container[int],
    values: Tensor,
    start: tuple[Tensor, Tensor],
    backwards: bool,
) -> tuple[Tensor, Tensor]:
    """One layer in one direction: (time, examples, outputs), and the last cell state."""
    gram = Gram(uses=2)
    alone = kind == "GRU"

    def emit(states: Tensor, grads: Tensor, *names: str) -> None:
        dtype = torch.promote_types(grads.dtype, torch.float32)
        grads, states = grads.transpose(0, 1).to(dtype), states.transpose(0, 1).to(dtype)
        shift = Shift(grads)
        for name in names:
            parameter = weights[name]
            if parameter is None or id(parameter) not in trainable:
                continue
            if name.startswith("bias"):
                tape.add((parameter, shift))
            else:
                shared = Gram() if alone or name == "weight_hr" else gram
                piece = Matrix(states, grads, parameter.shape, gram=shared)
                tape.add((parameter, piece))

    biases = [weights["bias_ih"], weights["bias_hh"]]
    if not alone:
        biases = [None if biases[0] is None else biases[0] + biases[1], None]
    fixed = (weights["weight_ih"], weights["weight_hh"], *biases, weights["weight_hr"])
    emit.recording = tape.recording  # type: ignore[attr-defined]
    common = (tape.anchor, backwards, fixed, emit)

    def run() -> list[tuple[Tensor | None, int]]:
        if kind == "LSTM":
            side, cell = _LSTM.apply(values, *start, *common)  # type: ignore[no-untyped-call]
            return [(side, 1), (cell, 0)]
        if alone:
            return [(_GRU.apply(values, start[0], *common), 1)]  # type: ignore[no-untyped-call]
        rectified = layer.nonlinearity == "relu"
        return [(_Elman.apply(values, start[0], *common, rectified), 1)]  # type: ignore[no-untyped-call]

    given: list[tuple[Tensor | None, int]] = [(values, 1), (start[0], 0)]
    if kind == "LSTM":
        given.append((start[1], 0))
    side, *cell = tape.recording.trusted((kind, backwards), given, run, fixed)
    return side, cell[0] if cell else start[1]  # type: ignore[return-value]


def _order(steps: int, backwards: bool) -> list[int]:
    return list(range(steps))[::-1] if backwards else list(range(steps))


def _before(states: Tensor, first: Tensor, backwards: bool) -> Tensor:
    """The state before each step, in the places of the states after them."""
    if backwards:
        return torch.cat([states[1:], first[None]])
    return torch.cat([first[None], states[:-1]])


def _unwatched(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A way back as one operation of its pass, with its examples where they were on the way there."""

    @functools.wraps(backward)
    def run(ctx: Any, *grads: Any) -> Any:
        values, outputs = saved = ctx.saved_tensors
        places = [(grads[0], 1), (values, 1), (outputs, 1), (ctx.h, 0)]
        places += [(grads[1], 0), (ctx.c, 0)] if len(grads) > 1 else []
        ctx.emit.recording.rows("gradient", *places)
        made: list[Any] = []

        def call() -> list[tuple[Tensor | None, int]]:
            made.extend(backward(ctx, saved, *grads))
            return [(made[0], 1), *((each, 0) for each in made[1 : 1 + len(grads)])]

        ctx.emit.recording.trusted(backward.__qualname__, places, call, ctx.fixed)
        return tuple(made)

    return run


class _LSTM(torch.autograd.Function):
    """h and c of all steps, and the pieces of its weights as it goes back."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, h: Tensor, c: Tensor, anchor: Tensor, backwards: bool, fixed: Any, emit: Any
    ) -> tuple[Tensor, Tensor]:
        entrance, weight, bias, _, projection = fixed
        gates = F.linear(values, entrance, bias)
        steps, examples, width = gates.shape[0], gates.shape[1], gates.shape[2] // 4
        cells, squashed = (gates.new_empty(steps, examples, width) for _ in range(2))
        outputs = gates.new_empty(steps, examples, h.shape[1])
        ctx.h, ctx.c = h, c
        across, down = weight.t(), None if projection is None else projection.t()
        both, third = gates[:, :, : 2 * width].unbind(), gates[:, :, 2 * width : 3 * width].unbind()
        every, entries, forgets = gates.unbind(), gates[:, :, :width].unbind(), gates[:, :, width:].unbind()
        outs, into = gates[:, :, 3 * width :].unbind(), outputs.unbind()
        own, small = cells.unbind(), squashed.unbind()
        for step in _order(steps, backwards):
            every[step].addmm_(h, across)
            both[step].sigmoid_()
            third[step].tanh_()
            out = outs[step].sigmoid_()
            c = torch.mul(forgets[step][:, :width], c, out=own[step]).addcmul_(entries[step], third[step])
            torch.tanh(c, out=small[step])
            if down is None:
                h = torch.mul(out, small[step], out=into[step])
            else:
                h = torch.mm(out * small[step], down, out=into[step])
        ctx.save_for_backward(values, outputs)
        ctx.kept, ctx.backwards, ctx.fixed, ctx.emit = (gates, cells, squashed), backwards, fixed, emit
        ctx.set_materialize_grads(False)
        return outputs, c.clone()

    @staticmethod
    @_unwatched
    def backward(ctx: Any, saved: Any, *grads: Any) -> Any:
        (values, outputs), (gates, cells, squashed) = saved, ctx.kept
        entrance, weight, _, _, projection = ctx.fixed
        ctx.kept = None
        onto, dc = grads
        steps, examples, width = cells.shape
        entry, forget, new, out = gates.chunk(4, 2)
        if projection is not None:
            entering, leaving = out * squashed, torch.empty_like(outputs)
        # From here on the gates' own places hold what turns dc, or dh, into their gradients.
        inner = _aten.tanh_backward(out, squashed)
        _aten.sigmoid_backward.grad_input(squashed, out, grad_input=out)
        stays = forget.contiguous()
        before = _before(cells, ctx.c, ctx.backwards)
        _aten.sigmoid_backward.grad_input(before, stays, grad_input=forget)
        changed = _aten.sigmoid_backward(new, entry)
        _aten.tanh_backward.grad_input(entry, new, grad_input=new)
        entry.copy_(changed)
        dc = outputs.new_zeros(examples, width) if dc is None else dc.clone()
        every, outs, keep, within = gates.unbind(), out.unbind(), stays.unbind(), inner.unbind()
        three = gates.view(steps, examples, 4, width)[:, :, :3].unbind()
        later: Tensor | None = None
        for step in _order(steps, not ctx.backwards):
            dh = _joined(None if onto is None else onto[step], later, weight, outputs)
            if projection is not None:
                leaving[step] = dh
                dh = dh @ projection
            dc.addcmul_(dh, within[step])
            three[step].mul_(dc[:, None])
            outs[step].mul_(dh)
            dc.mul_(keep[step])
            later = every[step]
        ctx.emit(values, gates, "weight_ih", "bias_ih", "bias_hh")
        ctx.emit(_before(outputs, ctx.h, ctx.backwards), gates, "weight_hh")
        if projection is not None:
            ctx.emit(entering, leaving, "weight_hr")
        return _inputs(ctx, gates, entrance), _first(ctx, later, weight), dc, None, None, None, None


class _GRU(torch.autograd.Function):
    """h of all steps, and the pieces of its weights as it goes back."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, h: Tensor, anchor: Tensor, backwards: bool, fixed: Any, emit: Any
    ) -> Tensor:
        entrance, weight, shift, bias, _ = fixed
        gates = F.linear(values, entrance, shift)
        steps, examples, width = gates.shape[0], gates.shape[1], gates.shape[2] // 3
        own, outputs = (gates.new_empty(steps, examples, width) for _ in range(2))
        ctx.h, across = h, weight.t()
        for step in _order(steps, backwards):
            add = h @ across if bias is None else torch.addmm(bias, h, across)
            gates[step, :, : 2 * width].add_(add[:, : 2 * width]).sigmoid_()
            reset, share, new = gates[step].chunk(3, 1)
            own[step] = add[:, 2 * width :]
            new.addcmul_(reset, own[step]).tanh_()
            h = torch.sub(h, new, out=outputs[step]).mul_(share).add_(new)
        ctx.save_for_backward(values, outputs)
        ctx.kept, ctx.backwards, ctx.fixed, ctx.emit = (gates, own), backwards, fixed, emit
        return outputs

    @staticmethod
    @_unwatched
    def backward(ctx: Any, saved: Any, *grads: Any) -> Any:
        (values, outputs), (gates, own), (entrance, weight, *_) = saved, ctx.kept, ctx.fixed
        ctx.kept = None
        steps, _, width = outputs.shape
        reset, share, new = gates.chunk(3, 2)
        before = _before(outputs, ctx.h, ctx.backwards)
        factors = torch.empty_like(gates).view(*outputs.shape[:2], 3, width)
        inner = _aten.tanh_backward(1 - share, new)
        torch.mul(_aten.sigmoid_backward(own, reset), inner, out=factors[:, :, 0])
        _aten.sigmoid_backward.grad_input(before - new, share, grad_input=factors[:, :, 1])
        torch.mul(inner, reset, out=factors[:, :, 2])
        flat = factors.flatten(2)
        dh = torch.zeros_like(outputs[0])
        for step in _order(steps, not ctx.backwards):
            dh = dh.add_(grads[0][step])
            factors[step].mul_(dh[:, None])
            inner[step].mul_(dh)
            dh = torch.addmm(dh.mul_(share[step]), flat[step], weight)
        ctx.emit(before, flat, "weight_hh", "bias_hh")
        onto = torch.cat([flat[:, :, : 2 * width], inner], 2)
        ctx.emit(values, onto, "weight_ih", "bias_ih")
        return _inputs(ctx, onto, entrance), dh, None, None, None, None


class _Elman(torch.autograd.Function):
    """h of all steps, and the pieces of its weights as it goes back."""

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        h: Tensor,
        anchor: Tensor,
        backwards: bool,
        fixed: Any,
        emit: Any,
        rectified: bool,
    ) -> Tensor:
        entrance, weight, bias, _, _ = fixed
        outputs = F.linear(values, entrance, bias)
        ctx.h, across = h, weight.t()
        for step in _order(len(values), backwards):
            h = outputs[step].addmm_(h, across)
            h = h.relu_() if rectified else h.tanh_()
        ctx.save_for_backward(values, outputs)
        ctx.backwards, ctx.fixed, ctx.emit, ctx.rectified = backwards, fixed, emit, rectified
        return outputs

    @staticmethod
    @_unwatched
    def backward(ctx: Any, saved: Any, *grads: Any) -> Any:
        (values, outputs), (entrance, weight, *_) = saved, ctx.fixed
        before = _before(outputs, ctx.h, ctx.backwards)
        passed = torch.empty_like(outputs)
        dh: Tensor | None = None
        for step in _order(len(outputs), not ctx.backwards):
            dh = _joined(grads[0][step], dh, weight, outputs)
            if ctx.rectified:
                dh = _aten.threshold_backward.grad_input(dh, outputs[step], 0, grad_input=passed[step])
            else:
                dh = _aten.tanh_backward.grad_input(dh, outputs[step], grad_input=passed[step])
        ctx.emit(values, passed, "weight_ih", "bias_ih", "bias_hh")
        ctx.emit(before, passed, "weight_hh")
        return _inputs(ctx, passed, entrance), _first(ctx, dh, weight), None, None, None, None, None


def _inputs(ctx: Any, grads: Tensor, entrance: Tensor) -> Tensor | None:
    """The gradient of the inputs, if anyone asks."""
    return grads @ entrance if ctx.needs_input_grad[0] else None


def _first(ctx: Any, later: Tensor | None, weight: Tensor) -> Tensor | None:
    """The gradient of the state before the first step, if anyone asks."""
    return later @ weight if later is not None and ctx.needs_input_grad[1] else None


def _joined(onto: Tensor | None, later: Tensor | None, weight: Tensor, like: Tensor) -> Tensor:
    """The gradient of a state: what the outputs pass on and what the step after it does."""
    if later is None:
        return torch.zeros_like(like[0]) if onto is None else onto
    return later @ weight if onto is None else torch.addmm(onto, later, weight)
