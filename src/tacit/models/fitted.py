"""What a fitted object says of itself, whether it is an estimator, a pipeline or a network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tacit.errors import InvalidValue
from tacit.guarantee import Guarantee
from tacit.models.description import Description

__all__ = ["description_of", "guarantee_of", "last_step"]


def last_step(model: Any) -> Any:
    """The estimator at the end of a pipeline; anything else is itself."""
    return model.steps[-1][1] if hasattr(model, "steps") else model


def guarantee_of(model: Any) -> Guarantee:
    """The guarantee of a fitted model; of a pipeline, that of its last step."""
    guarantee = getattr(last_step(model), "guarantee_", None)
    if not isinstance(guarantee, Guarantee):
        raise InvalidValue(
            "model", type(last_step(model)).__name__, "fitted, with its guarantee_", "Call fit first."
        )
    return guarantee


def description_of(model: Any) -> Description:
    """The description of a fitted model.

    A pipeline is described by its last step. Where the pipeline begins with a
    :class:`~tacit.data.preprocessor.Preprocessor`, the title names its target, and features go by the names
    that its schema gives them, and a tree splits in the units of the table.
    """
    fitted = last_step(model)
    if not hasattr(fitted, "describe"):
        raise InvalidValue("model", type(fitted).__name__, "fitted by tacit, with a method describe()")
    description: Description = fitted.describe()
    if fitted is model:
        return description
    from tacit.data.preprocessor import Preprocessor

    first = model.steps[0][1]
    if not isinstance(first, Preprocessor):
        return description
    title = description.title if first.target is None else f"{description.title} of {first.target}"
    return replace(description.named(first.features.names, first.in_units), title=title)
