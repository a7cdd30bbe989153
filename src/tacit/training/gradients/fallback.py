"""Per-example gradients of any parameter: one more pass of the whole model, example by example."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tacit.errors import InvalidValue, NotIsolated
from tacit.training.batches import tree
from tacit.training.isolation.generators import generators_kept
from tacit.training.isolation.growth import zeros
from tacit.training.isolation.program import Program
from tacit.training.isolation.recording import Recording
from tacit.training.isolation.state import State
from tacit.training.isolation.unproved import Unproved

Loss = Callable[[Any, Any], Tensor]


def per_example_gradients(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, names: tuple[str, ...],
    storages: Mapping[int, str], program: Program | None,
) -> dict[str, Tensor]:  # fmt: skip
    """Gradients of the named parameters for each example: (examples, \\*shape of the parameter).

    The model sees each example as a batch of one, under ``torch.func.vmap``, if the pass is proved to keep
    examples apart: the ``program`` of what ran below the wrappers of ``vmap``, on the whole batch, is proved
    as every other is, so that code which takes the wrappers off gains nothing. Otherwise, and without a
    program, a plain loop runs the model on one example after the other, and puts back what model and loss
    hold after each. Layers that draw random numbers draw them afresh for this pass.
    """
    every = dict(model.named_parameters())
    chosen = {name: every[name].detach() for name in names}

    def one(parameters: dict[str, Tensor], inputs: Any, targets: Any) -> Tensor:
        def alone(leaf: Any) -> Any:
            return leaf.unsqueeze(0) if isinstance(leaf, Tensor) else leaf

        args, kwargs = tree.mapped(alone, tree.arguments(inputs))
        output = functional_call(model, parameters, args, kwargs)
        losses = loss(output, tree.mapped(alone, targets))
        check_losses(losses, 1)
        return losses.sum()

    if program is not None and not program.alone and tree.examples(inputs, targets) > 1:
        state = State(model, loss)
        try:
            found = _mapped(one, chosen, inputs, targets, storages, program, state)
            return {name: found[name] for name in names}
        except NotIsolated:
            pass  # Alone, an example is mixed with nobody.
        except InvalidValue:
            raise
        except (RuntimeError, ValueError, Unproved):
            pass
        finally:
            state.restore()
    with warnings.catch_warnings():
        if program is not None:
            # Layers may warn of a batch of one, which nobody asked for.
            warnings.simplefilter("ignore", UserWarning)
        return _loop(one, chosen, inputs, targets, storages, State(model, loss, contents=True))


def _mapped(
    one: Callable[..., Tensor], chosen: dict[str, Tensor], inputs: Any, targets: Any,
    storages: Mapping[int, str], program: Program, state: State,
) -> dict[str, Tensor]:  # fmt: skip
    names = {**storages, **{each.untyped_storage()._cdata: f"{name!r}" for name, each in chosen.items()}}

    def run(inputs: Any, targets: Any) -> tuple[dict[str, Tensor], Recording]:
        places = tree.mapped(lambda leaf: 0 if tree.batched(leaf) else None, (inputs, targets))
        data = [leaf for leaf in tree.tensors((inputs, targets)) if tree.batched(leaf)]
        recording = Recording(data, names, reading=False, held=state.holds)
        with warnings.catch_warnings(), recording:
            warnings.simplefilter("ignore", UserWarning)
            mapped = vmap(grad(one), in_dims=(None, *places), randomness="different")
            found: dict[str, Tensor] = mapped(chosen, inputs, targets)
            recording.rows("gradient", *((each, 0) for each in found.values()))
        return found, recording

    def tiny(size: int) -> Recording:
        with generators_kept():
            return run(*zeros((inputs, targets), size))[1]

    found, recording = run(inputs, targets)
    program.prove(recording, tree.examples(inputs, targets), tiny)
    return found


def _loop(
    one: Callable[..., Tensor], chosen: dict[str, Tensor], inputs: Any, targets: Any,
    storages: Mapping[int, str], state: State,
) -> dict[str, Tensor]:  # fmt: skip
    rows: dict[str, list[Tensor]] = {name: [] for name in chosen}
    examples = tree.examples(inputs, targets)
    batch = {leaf.untyped_storage()._cdata for leaf in tree.tensors((inputs, targets)) if tree.batched(leaf)}
    # An example that sets a seed, or draws more or fewer numbers than another, does so for itself.
    seeds = torch.randint(1 << 62, (examples,)).tolist()
    after = torch.default_generator.get_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    for number, seed in enumerate(seeds):

        def pick(leaf: Any, number: int = number) -> Any:
            return leaf[number].clone() if tree.batched(leaf) else leaf

        leaves = {name: each.clone().requires_grad_() for name, each in chosen.items()}
        pair = tree.mapped(pick, (inputs, targets))
        found: Sequence[Tensor | None] = [None] * len(leaves)
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % (1 << 32))  # noqa: NPY002
        try:
            names = {**storages, **{each.untyped_storage()._cdata: name for name, each in leaves.items()}}
            recording = Recording(tree.tensors(pair), names, held=state.holds, others=batch)
            with torch.enable_grad(), recording:
                value = one(leaves, *pair)
                if value.requires_grad:
                    found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
            if recording.unknown and recording.disturbed:
                raise NotIsolated(
                    "model and loss", "a tensor that came from another thread",
                    "computed in the thread that calls them",
                    "The thread may have kept it from another example.",
                )  # fmt: skip
        finally:
            state.restore()
            _seeded_as(*after)
        for (name, leaf), each in zip(leaves.items(), found, strict=True):
            dense = each if each is None or each.layout == torch.strided else each.to_dense()
            rows[name].append(torch.zeros_like(leaf) if dense is None else dense)
    return {name: torch.stack(each).detach() for name, each in rows.items()}


def _seeded_as(state: Tensor, python: Any, numpy: Any) -> None:
    """Put the generators back, so that the examples of the next part draw nothing that one of these left."""
    torch.default_generator.set_state(state)
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002


def check_losses(losses: Any, examples: int) -> None:
    """Refuse a loss that does not return one number per example."""
    if not isinstance(losses, Tensor) or losses.shape != (examples,):
        got = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses)
        raise InvalidValue(
            "loss",
            got,
            f"a function that returns one loss per example, shape ({examples},)",
            'Build the loss with reduction="none", and sum what is left over within an example.',
        )
