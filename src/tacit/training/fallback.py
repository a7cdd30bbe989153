"""Per-example gradients of any parameter: one more pass of the whole model, example by example."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tacit.errors import InvalidValue
from tacit.training import tree

Loss = Callable[[Any, Any], Tensor]


def per_example_gradients(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, names: tuple[str, ...]
) -> dict[str, Tensor]:
    """Gradients of the named parameters for each example: (examples, \\*shape of the parameter).

    The model sees each example as a batch of one, under ``torch.func.vmap``; a model vmap cannot
    run is run in a plain loop. Layers that draw random numbers draw them afresh for this pass.
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

    places = tree.mapped(lambda leaf: 0 if tree.batched(leaf) else None, (inputs, targets))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            found = vmap(grad(one), in_dims=(None, *places), randomness="different")(chosen, inputs, targets)
    except InvalidValue:
        raise
    except (RuntimeError, ValueError):
        found = _loop(one, chosen, inputs, targets)
    return {name: found[name] for name in names}


def _loop(one: Callable[..., Tensor], chosen: dict[str, Tensor], inputs: Any, targets: Any) -> Any:
    rows: dict[str, list[Tensor]] = {name: [] for name in chosen}
    for number in range(tree.examples(inputs, targets)):

        def pick(leaf: Any, number: int = number) -> Any:
            return leaf[number] if tree.batched(leaf) else leaf

        leaves = {name: each.clone().requires_grad_() for name, each in chosen.items()}
        with torch.enable_grad():
            value = one(leaves, tree.mapped(pick, inputs), tree.mapped(pick, targets))
        found: Sequence[Tensor | None] = [None] * len(leaves)
        if value.requires_grad:
            found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
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
