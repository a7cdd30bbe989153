"""One budget for a pipeline of several private steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sklearn.pipeline import Pipeline

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.estimators.private import PrivateEstimator

__all__ = ["share_budget"]


def share_budget(
    pipeline: Pipeline,
    epsilon: float,
    delta: float = 0.0,
    *,
    shares: Mapping[str, float] | None = None,
    ledger: Any = None,
) -> Pipeline:
    """Split one (ε, δ) between the private steps of a pipeline, and return the same pipeline.

    ``shares`` names the part that each private step gets, by the step's name; left out, all get the same.
    Each step charges what it costs to ``ledger``, if that is given, before it reads a row.

    Guarantee: the steps together are (ε, δ)-private by basic composition, whatever each does with the output
    of those before it: the shares of ε add up to at most ε, those of δ to at most δ. A saved pipeline, its
    report and its evaluation state the guarantee of all steps together. A private estimator that is not a
    step of its own (inside another pipeline, a ``FeatureUnion`` or a ``ColumnTransformer``), or of which no
    share can be set, is refused: it would spend on top of ε.

    >>> from sklearn.pipeline import make_pipeline
    >>> from tacit.estimators import PCA, LogisticRegression
    >>> steps = make_pipeline(PCA(n_components=1, bounds=(-1, 1)), LogisticRegression(classes=[0, 1]))
    >>> whole = share_budget(steps, 1.0, 1e-6, shares={"pca": 0.25, "logisticregression": 0.75})
    >>> [step.epsilon for _, step in whole.steps]
    [0.25, 0.75]
    """
    if not isinstance(pipeline, Pipeline):
        raise InvalidValue("pipeline", type(pipeline).__name__, "a scikit-learn Pipeline")
    whole, failure = _validate.epsilon(epsilon), _validate.delta(delta)
    private = _private_steps(pipeline)
    parts = dict.fromkeys(private, 1 / len(private)) if shares is None else dict(shares)
    if set(parts) != set(private):
        raise InvalidValue("shares", sorted(parts), f"one for each of {', '.join(private)}")
    found = {name: _validate.positive(f"share of {name}", part) for name, part in parts.items()}
    if math.fsum(found.values()) > 1 + 1e-12:
        raise InvalidValue("shares", math.fsum(found.values()), "1 or less together")
    if ledger is not None:
        for each in private.values():
            each.set_params(ledger=ledger)
    for name, value in (("epsilon", whole), ("delta", failure)):
        given = {step: value * part for step, part in found.items()}
        while math.fsum(given.values()) > value:
            given = {step: math.nextafter(one, 0.0) for step, one in given.items()}
        for step, one in given.items():
            private[step].set_params(**{name: one})
    return pipeline


def _private_steps(pipeline: Pipeline) -> dict[str, PrivateEstimator]:
    """The private steps by name, which must be all that spends in the pipeline."""
    private = {name: step for name, step in pipeline.steps if isinstance(step, PrivateEstimator)}
    if not private:
        raise InvalidValue("pipeline", [name for name, _ in pipeline.steps], "one with a private step")
    if len(set(map(id, private.values()))) < len(private):
        raise InvalidValue("pipeline", list(private), "one with an estimator of its own for each step")
    for name, step in pipeline.steps:
        if name in private or not hasattr(step, "get_params"):
            continue
        if any(hasattr(part, "epsilon") and hasattr(part, "ledger") for part in (step, *_parts(step))):
            advice = "Make it a step of its own, or give it a budget by itself."
            raise InvalidValue(f"step {name!r}", type(step).__name__, "one that spends no ε", advice)
    return private


def _parts(step: Any) -> list[Any]:
    return list(step.get_params().values())
