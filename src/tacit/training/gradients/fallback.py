"""Per-example gradients of any parameter: one more pass of the whole model, example by example."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tacit.errors import InvalidValue, NotIsolated
from tacit.training.batches import tree
from tacit.training.gradients.tape import OtherRows
from tacit.training.isolation.program import prove_mapped
from tacit.training.isolation.recording import Recording
from tacit.training.isolation.state import State

Loss = Callable[[Any, Any], Tensor]


def per_example_gradients(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, names: tuple[str, ...],
    storages: Mapping[int, str], *, mapped: bool = True,
) -> dict[str, Tensor]:  # fmt: skip
    """Gradients of the named parameters for each example: (examples, \\*shape of the parameter).

    The model sees each example as a batch of one, under ``torch.func.vmap``, if nothing but operations of
    PyTorch itself ran there. Otherwise, and where not ``mapped``, a plain loop runs the model on one example
    after the other, and puts back what model and loss hold after each. Layers that draw random numbers draw
    them afresh for this pass.
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

    if mapped:
        state = State(model, loss)
        try:
            found = _mapped(one, chosen, inputs, targets, storages)
            return {name: found[name] for name in names}
        except NotIsolated:
            pass  # Alone, an example is mixed with nobody.
        except InvalidValue:
            raise
        except (RuntimeError, ValueError, OtherRows):
            pass
        finally:
            state.restore()
    state = State(model, loss, contents=True)
    return _loop(one, chosen, inputs, targets, storages, state)


def _mapped(
    one: Callable[..., Tensor], chosen: dict[str, Tensor], inputs: Any, targets: Any,
    storages: Mapping[int, str],
) -> dict[str, Tensor]:  # fmt: skip
    places = tree.mapped(lambda leaf: 0 if tree.batched(leaf) else None, (inputs, targets))
    data = [leaf for leaf in tree.tensors((inputs, targets)) if tree.batched(leaf)]
    with warnings.catch_warnings(), Recording(data, storages, reading=False) as recording:
        warnings.simplefilter("ignore", UserWarning)
        found: dict[str, Tensor] = vmap(grad(one), in_dims=(None, *places), randomness="different")(
            chosen, inputs, targets
        )
    prove_mapped(recording, tree.examples(inputs, targets), [(each, 0) for each in found.values()])
    return found


def _loop(
    one: Callable[..., Tensor], chosen: dict[str, Tensor], inputs: Any, targets: Any,
    storages: Mapping[int, str], state: State,
) -> dict[str, Tensor]:  # fmt: skip
    rows: dict[str, list[Tensor]] = {name: [] for name in chosen}
    examples = tree.examples(inputs, targets)
    # An example that sets the seed sets its own.
    seeds = torch.randint(1 << 62, (examples,)).tolist()
    for number, seed in enumerate(seeds):

        def pick(leaf: Any, number: int = number) -> Any:
            return leaf[number].clone() if tree.batched(leaf) else leaf

        leaves = {name: each.clone().requires_grad_() for name, each in chosen.items()}
        pair = tree.mapped(pick, (inputs, targets))
        found: Sequence[Tensor | None] = [None] * len(leaves)
        torch.default_generator.manual_seed(seed)
        try:
            with torch.enable_grad(), Recording(tree.tensors(pair), storages):
                value = one(leaves, *pair)
                if value.requires_grad:
                    found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
        finally:
            state.restore()
        for (name, leaf), each in zip(leaves.items(), found, strict=True):
            dense = each if each is None or each.layout == torch.strided else each.to_dense()
            rows[name].append(torch.zeros_like(leaf) if dense is None else dense)
    return {name: torch.stack(each).detach() for name, each in rows.items()}


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
