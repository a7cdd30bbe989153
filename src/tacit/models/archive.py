"""Estimators and pipelines in an archive: JSON and arrays in a zip, with their guarantee and no pickle.

An archive holds ``tacit.json`` (format, class by tag, parameters, public attributes, guarantee,
evaluations) and arrays in NumPy's format. Members are stored uncompressed, and the archive ends in a comment
with the SHA-256 of every byte before it, so a file altered anywhere does not load. That guards against
accidents and careless edits; whoever forges a file can forge its digest, and a guarantee is worth what
its source is. One thing a forged file cannot do: state a smaller ε than its event costs, which is computed
anew wherever a file is read. Whoever forges the event as well is found out by the ledger alone.

Classes are known by a tag in a closed registry and never imported by name. A class is saved as its parameters
and the attributes that were released. Ledger and seed are left out, and the rows a model was fitted to appear
nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from tacit._version import __version__
from tacit.data.preprocessor import Preprocessor
from tacit.errors import InvalidValue, ModelUnreadable
from tacit.guarantee import Guarantee
from tacit.models.claims import checked_evaluations, checked_guarantee
from tacit.models.codec import decoded, encoded
from tacit.models.container import FORMAT, Reading, read, write
from tacit.models.registry import (
    ARCHIVE,
    PATH,
    Kind,
    kind_of,
    kind_tagged,
    register,
    register_reader,
    saved_classes,
)

__all__ = ["describe", "load", "save"]

Array = NDArray[Any]

_PRIVATE = ("ledger", "random_state")


def save(model: Any, path: PATH, *, overwrite: bool, evaluations: Sequence[Mapping[str, Any]]) -> None:
    """Write an estimator or a pipeline with its guarantee, all of it or nothing."""
    steps = model.steps if isinstance(model, Pipeline) else [("", model)]
    arrays: list[Array] = []
    saved = [_saved_step(name, step, arrays) for name, step in steps]
    if all(step["guarantee"] is None for step in saved):
        raise InvalidValue(
            "model", type(model).__name__, "or end in a private estimator", "Save the pipeline."
        )
    facts = {
        "format": FORMAT,
        "made_by": f"tacit {__version__}",
        "pipeline": isinstance(model, Pipeline),
        "steps": saved,
        "evaluations": [encoded(evaluation, arrays) for evaluation in evaluations],
        "arrays": len(arrays),
    }
    write(path, facts, arrays, overwrite=overwrite)


def load(path: PATH) -> Any:
    """The estimator or pipeline in a file, with its guarantee and its stored evaluations, if any.

    The list of evaluations is shared with the last step, which empties it when it is fitted again.
    """
    facts, arrays = read(path)
    with Reading(path):
        steps = [(step["name"], _loaded_step(step, arrays)) for step in facts["steps"]]
        if not steps or all(step["guarantee"] is None for step in facts["steps"]):
            raise ModelUnreadable("The file has no guarantee.", "Save the fitted model with tacit.save.")
        model = Pipeline(steps) if facts["pipeline"] else steps[0][1]
        if facts["evaluations"]:
            model.evaluations_ = steps[-1][1]._evaluations = list(_evaluations(facts, arrays))
    return model


def describe(path: PATH) -> dict[str, Any]:
    """What a file says, checked for its digest but not made into a model."""
    facts, arrays = read(path)
    with Reading(path):
        described = {**facts, "steps": []}
        _evaluations(facts, arrays)
        for step in facts["steps"]:
            guarantee = _guarantee(step)
            state = decoded(step["state"], [f"{array.dtype} {array.shape}" for array in arrays])
            statement = None if guarantee is None else guarantee.statement()
            described["steps"].append({**step, "state": state, "statement": statement})
    return described


def _evaluations(facts: Mapping[str, Any], arrays: Sequence[Array]) -> tuple[Mapping[str, Any], ...]:
    return checked_evaluations(decoded(each, arrays) for each in facts["evaluations"])


def _saved_step(name: str, step: Any, arrays: list[Array]) -> dict[str, Any]:
    step = step._saved_as() if hasattr(step, "_saved_as") else step
    kind = kind_of(step)
    if kind is None:
        advice = f"Only what accounts for the rows it reads can be saved: {', '.join(saved_classes())}."
        raise InvalidValue("model", type(step).__name__, "of a class that tacit can save", advice)
    guarantee = getattr(step, "guarantee_", None)
    if not kind.public and not isinstance(guarantee, Guarantee):
        raise InvalidValue("model", type(step).__name__, "fitted, with its guarantee_", "Call fit first.")
    state, named = _pack(step, kind.attributes)
    return {
        "name": name,
        "tag": kind.tag,
        "state": encoded({"state": state, "arrays": named}, arrays),
        "guarantee": None if kind.public or guarantee is None else json.loads(guarantee.to_json()),
    }


def _loaded_step(step: Mapping[str, Any], arrays: list[Array]) -> Any:
    kind = kind_tagged(step["tag"])
    if kind is None:
        problem = f"The file holds a model of the unknown kind {step['tag']!r:.80}."
        raise ModelUnreadable(problem, "Update tacit, if a later version wrote it.")
    guarantee = _guarantee(step)
    if guarantee is None and not kind.public:
        raise ModelUnreadable("The file has no guarantee.", "Save the fitted model with tacit.save.")
    content = decoded(step["state"], arrays)
    model = _unpack(kind, content["state"], content["arrays"])
    if guarantee is not None:
        model.guarantee_, model.event_ = guarantee, guarantee.event
    return model


def _pack(model: Any, attributes: Sequence[str]) -> tuple[dict[str, Any], dict[str, Array]]:
    if hasattr(model, "_to_saved"):
        packed: tuple[dict[str, Any], dict[str, Array]] = model._to_saved()
        return packed
    params = {name: value for name, value in model.get_params(deep=False).items() if name not in _PRIVATE}
    found = {name: getattr(model, name) for name in attributes if hasattr(model, name)}
    return {"params": params, "attributes": found}, {}


def _unpack(kind: Kind, state: dict[str, Any], arrays: dict[str, Array]) -> Any:
    names = getattr(kind.type, "_get_param_names", None)
    if names is not None and (unknown := sorted(set(state.get("params", ())) - set(names()))):
        found = f"{', '.join(unknown):.200}"
        raise ModelUnreadable(
            f"The file has parameters that {kind.type.__name__} does not have: {found}.",
            "Another version of tacit wrote it: fit or save the model again with this one.",
        )
    if hasattr(kind.type, "_from_saved"):
        return kind.type._from_saved(state, arrays)
    model = kind.type(**state["params"])
    for name, value in state["attributes"].items():
        if name not in kind.attributes:
            raise ValueError("an attribute that is not saved")
        setattr(model, name, value)
    return model


def _guarantee(step: Mapping[str, Any]) -> Guarantee | None:
    return None if step["guarantee"] is None else checked_guarantee(step["guarantee"])


register("preprocessor", Preprocessor, public=True)
register_reader(ARCHIVE, load, describe)
