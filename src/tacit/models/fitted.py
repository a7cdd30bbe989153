"""What a fitted object says of itself, whether it is an estimator, a pipeline or a network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tacit import events
from tacit.data.features import PAID_APART
from tacit.errors import InvalidValue
from tacit.guarantee import NOISE_KINDS, Guarantee
from tacit.models.description import Description

__all__ = ["description_of", "guarantee_of", "last_step"]


def last_step(model: Any) -> Any:
    """The estimator at the end of a pipeline; anything else is itself."""
    return model.steps[-1][1] if hasattr(model, "steps") else model


def guarantee_of(model: Any) -> Guarantee:
    """The guarantee of a fitted model; of a pipeline, that of all its private steps together.

    Where the features of one step were made by another, their cost is counted if that step is as it was then;
    if it was fitted again since, the guarantee says that the cost of then comes on top.

    Several steps are composed: ε and δ are the sums of theirs, the event is the ``Compose`` of theirs.
    Private steps inside another step (a pipeline, a ``FeatureUnion``, a ``ColumnTransformer``) count as well.
    """
    steps = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    found = _told(steps, set())
    if not isinstance(getattr(steps[-1], "guarantee_", None), Guarantee):
        last = type(steps[-1]).__name__
        raise InvalidValue("model", last, "fitted, with its guarantee_", "Call fit first.")
    return found[0] if len(found) == 1 else _composed(found)


def _told(part: Any, seen: set[int]) -> list[Guarantee]:
    """The guarantees of all fitted parts; what has one speaks for its own parts."""
    if id(part) in seen:
        return []
    seen.add(id(part))
    own = getattr(part, "guarantee_", None)
    if isinstance(own, Guarantee):
        return [own]
    parts: Iterable[Any] = ()
    if isinstance(part, (list, tuple)):
        parts = part
    elif isinstance(part, dict):
        parts = part.values()
    elif hasattr(part, "get_params") and not isinstance(part, type):
        parts = vars(part).values()
    return [told for each in parts for told in _told(each, seen)]


def _composed(found: Sequence[Guarantee]) -> Guarantee:
    """One guarantee for several releases from the same rows, by basic composition."""
    first = found[0]
    if any((each.relation, each.unit) != (first.relation, first.unit) for each in found):
        told = ", ".join(f"{each.relation} of one {each.unit}" for each in found)
        raise InvalidValue("model", told, "fitted under one relation and for one unit in all its steps")
    kinds = {each.noise for each in found}
    counted = {f"{PAID_APART}{each.price}" for each in found}
    assumed = dict.fromkeys(each for one in found for each in one.assumptions if each not in counted)
    return replace(
        first,
        epsilon=_sum_up([each.epsilon for each in found]),
        delta=min(_sum_up([each.delta for each in found]), math.nextafter(1.0, 0.0)),
        event=events.Compose(tuple(each.event for each in found)),
        noise=next(kind for kind in reversed(NOISE_KINDS) if kind in kinds),
        assumptions=tuple(assumed),
    )


def _sum_up(parts: Sequence[float]) -> float:
    """The sum of the parts, rounded up where float64 does not hold it.

    >>> _sum_up([0.25, 0.75]), _sum_up([0.1, 0.2]) >= 0.3, _sum_up([1.0, math.inf])
    (1.0, True, inf)
    """
    found = math.fsum(parts)
    if math.isinf(found) or Fraction(found) >= sum(map(Fraction, parts)):
        return found
    return math.nextafter(found, math.inf)


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
