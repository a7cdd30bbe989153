"""The loss as the engine wants it: one number for each example."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from tacit.errors import InvalidValue
from tacit.training.gradients.fallback import Loss

# Parts of PyTorch's messages that quote the index itself.
_NAMING = ("out of bounds", "takes value", "got value")


def per_example(loss: Any) -> Loss:
    """The loss with one number for each example.

    A loss of ``torch.nn`` or of ``torch.nn.functional``, by itself or in a ``functools.partial``, is computed
    with ``reduction="none"``; if an example then has several losses, they are averaged, or added up where the
    reduction was ``"sum"`` or ``"batchmean"``. Any other callable is used as it is, and must return one
    number for each example.

    >>> import torch
    >>> per_example(nn.MSELoss())(torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 0.0]]))
    tensor([5.])
    >>> per_example(nn.functional.mse_loss)(torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 0.0]]))
    tensor([5.])
    """
    if not callable(loss):
        raise InvalidValue("loss", type(loss), "a loss of torch.nn or a function of (outputs, targets)")
    each: Any
    reduction: Any = getattr(loss, "reduction", None)
    if isinstance(loss, nn.Module) and reduction is not None:
        each = copy.copy(loss)
        each.reduction = "none"
    elif (reduction := _usual_reduction(loss)) is not None:
        each = partial(loss, reduction="none")
    else:
        return loss  # type: ignore[no-any-return]

    def losses(outputs: Any, targets: Any) -> Tensor:
        values: Tensor = each(outputs, targets)
        if values.dim() < 2:
            return values
        rest = values.flatten(1)
        return rest.sum(1) if reduction in ("sum", "batchmean") else rest.mean(1)

    return losses


def _usual_reduction(loss: Any) -> str | None:
    """How a function of ``torch.nn.functional`` reduces the losses of a batch; None for all others."""
    given: dict[str, Any] = {}
    function = loss
    while isinstance(function, partial):
        given, function = {**function.keywords, **given}, function.func
    if getattr(function, "__module__", None) != F.__name__:
        return None
    try:
        parameter = inspect.signature(function).parameters["reduction"]
    except (KeyError, TypeError, ValueError):
        return None
    return str(given.get("reduction", parameter.default))


@contextmanager
def unnamed_bounds() -> Iterator[None]:
    """Replace errors that quote an index out of bounds: the index comes from a private example."""
    try:
        yield
    except (IndexError, RuntimeError) as error:
        if not any(words in str(error) for words in _NAMING):
            raise
        raise InvalidValue(
            "inputs and targets", "a number out of bounds", "classes and places that model and loss have",
            "Count the model's outputs, and its words.",
        ) from None  # fmt: skip
