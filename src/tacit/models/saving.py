"""Saving fitted models with their guarantees, and loading them: JSON and arrays in a zip, no pickle.

A model file holds ``tacit.json`` (format, class by tag, parameters, public attributes, guarantee,
evaluations) and arrays in NumPy's format. Members are stored uncompressed, and the archive ends in a comment
with the SHA-256 of every byte before it, so a file altered anywhere does not load. That guards against
accidents and careless edits; whoever forges a file can forge its digest, and a guarantee is worth what
its source is. One thing a forged file cannot do: state a smaller ε than its event costs, which is computed
anew wherever a file is read. Whoever forges the event as well is found out by the ledger alone.

Classes are known by a tag in a closed registry and never imported by name. A class is saved as its parameters
and the attributes that were released. Ledger and seed are left out, and the rows a model was fitted to appear
nowhere.

>>> import tempfile, pathlib
>>> from tacit.estimators import LogisticRegression
>>> model = LogisticRegression(epsilon=1.0, classes=[0, 1], norm=1.0).fit(np.array([[0.1], [0.9]]), [0, 1])
>>> path = pathlib.Path(tempfile.mkdtemp()) / "small.tacit"
>>> save(model, path)
>>> load(path).guarantee_ == model.guarantee_
True
>>> describe(path)["steps"][0]["statement"].startswith("(ε = 1, δ = 0)-differentially private")
True
"""

from __future__ import annotations

import datetime
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from tacit.accounting import check_claim
from tacit.data.features import Features
from tacit.data.preprocessor import Preprocessor
from tacit.errors import InvalidValue, ModelUnreadable
from tacit.evaluation.evaluate import Evaluation
from tacit.guarantee import Guarantee
from tacit.models.container import FORMAT, KINDS, Reading, read, write
from tacit.schema import Schema

__all__ = ["describe", "load", "register", "save"]

Array = NDArray[Any]

_PRIVATE = ("ledger", "random_state")
_PATH = str | os.PathLike[str]


@dataclass(frozen=True)
class _Registered:
    tag: str
    type: type[Any]
    attributes: tuple[str, ...]
    public: bool


_registry: dict[str, _Registered] = {}


def register(tag: str, cls: type[Any], attributes: Sequence[str] = (), *, public: bool = False) -> None:
    """Let models of this class be saved, under a tag that never changes its meaning.

    A scikit-learn estimator is saved as its parameters and those of the ``attributes`` that are set, which
    must be public or released. A class may do it in its own way: ``_to_saved() -> (dict, arrays by name)``
    and the class method ``_from_saved(dict, arrays)``. ``public`` says that it reads nothing from the data
    it is fitted to, and so needs no guarantee.
    """
    known = _registry.get(tag)
    if known is not None and known.type is not cls:
        raise InvalidValue("tag", tag, f"new, it stands for {known.type.__name__}")
    _registry[tag] = _Registered(tag, cls, tuple(attributes), public)


def _pack(model: Any, attributes: Sequence[str]) -> tuple[dict[str, Any], dict[str, Array]]:
    if hasattr(model, "_to_saved"):
        packed: tuple[dict[str, Any], dict[str, Array]] = model._to_saved()
        return packed
    params = {name: value for name, value in model.get_params(deep=False).items() if name not in _PRIVATE}
    found = {name: getattr(model, name) for name in attributes if hasattr(model, name)}
    return {"params": params, "attributes": found}, {}


def _unpack(known: _Registered, state: dict[str, Any], arrays: dict[str, Array]) -> Any:
    if hasattr(known.type, "_from_saved"):
        return known.type._from_saved(state, arrays)
    model = known.type(**state["params"])
    for name, value in state["attributes"].items():
        if name not in known.attributes:
            raise ValueError("an attribute that is not saved")
        setattr(model, name, value)
    return model


def save(
    model: Any, path: _PATH, *, overwrite: bool = False, evaluations: Sequence[Evaluation] | None = None
) -> None:
    """Write a fitted model with its guarantee, all of it or nothing; over a file only with ``overwrite``.

    ``model`` is a tacit estimator, or a scikit-learn pipeline of a :class:`Preprocessor` and estimators.
    ``evaluations`` (those of the model, if it was loaded with some) are kept beside it.
    """
    steps = model.steps if isinstance(model, Pipeline) else [("", model)]
    arrays: list[Array] = []
    saved = [_saved_step(name, step, arrays) for name, step in steps]
    if all(step["guarantee"] is None for step in saved):
        raise InvalidValue(
            "model", type(model).__name__, "or end in a private estimator", "Save the pipeline."
        )
    kept = getattr(model, "evaluations_", ()) if evaluations is None else evaluations
    facts = {
        "format": FORMAT,
        "made_by": f"tacit {_version()}",
        "pipeline": isinstance(model, Pipeline),
        "steps": saved,
        "evaluations": [_encoded(evaluation.to_dict(), arrays) for evaluation in kept],
        "arrays": len(arrays),
    }
    write(path, facts, arrays, overwrite=overwrite)


def load(path: _PATH) -> Any:
    """The model in a file, ready to predict, with the guarantee it was saved with.

    A file that is altered in any byte, truncated, written by a later format, of an unknown class, without
    its guarantee or with one that states less than its event costs raises :class:`ModelUnreadable`. Nothing
    in a file is executed.
    """
    facts, arrays = read(path)
    with Reading(path):
        steps = [(step["name"], _loaded_step(step, arrays)) for step in facts["steps"]]
        if not steps or all(step["guarantee"] is None for step in facts["steps"]):
            raise ModelUnreadable("The file has no guarantee.", "Save the fitted model with tacit.save.")
        model = Pipeline(steps) if facts["pipeline"] else steps[0][1]
        if facts["evaluations"]:
            model.evaluations_ = _evaluations(facts, arrays)
    return model


def describe(path: _PATH) -> dict[str, Any]:
    """What a file says, checked for its digest but not made into a model.

    Arrays appear as their type and shape; each step that has a guarantee states it in words too.
    """
    facts, arrays = read(path)
    with Reading(path):
        described = {**facts, "steps": []}
        _evaluations(facts, arrays)
        for step in facts["steps"]:
            guarantee = _guarantee(step)
            state = _decoded(step["state"], [f"{array.dtype} {array.shape}" for array in arrays])
            statement = None if guarantee is None else guarantee.statement()
            described["steps"].append({**step, "state": state, "statement": statement})
    return described


def _evaluations(facts: Mapping[str, Any], arrays: Sequence[Array]) -> tuple[Evaluation, ...]:
    """The evaluations in a file, of which none may state less than it cost."""
    found = tuple(Evaluation.from_dict(_decoded(each, arrays)) for each in facts["evaluations"])
    for each in found:
        if each.guarantee is not None:
            check_claim(each.guarantee)
    return found


def _saved_step(name: str, step: Any, arrays: list[Array]) -> dict[str, Any]:
    known = next((entry for entry in _registry.values() if type(step) is entry.type), None)
    if known is None:
        advice = "Only estimators that account for what they read can be saved: "
        tags = ", ".join(entry.type.__name__ for entry in _registry.values())
        raise InvalidValue(
            "model", type(step).__name__, "of a class that tacit can save", advice + tags + "."
        )
    guarantee = getattr(step, "guarantee_", None)
    if not known.public and not isinstance(guarantee, Guarantee):
        raise InvalidValue("model", type(step).__name__, "fitted, with its guarantee_", "Call fit first.")
    state, named = _pack(step, known.attributes)
    return {
        "name": name,
        "tag": known.tag,
        "state": _encoded({"state": state, "arrays": named}, arrays),
        "guarantee": None if known.public or guarantee is None else json.loads(guarantee.to_json()),
    }


def _loaded_step(step: Mapping[str, Any], arrays: list[Array]) -> Any:
    known = _registry.get(step["tag"])
    if known is None:
        problem = f"The file holds a model of the unknown kind {step['tag']!r:.80}."
        raise ModelUnreadable(problem, "Update tacit, if a later version wrote it.")
    guarantee = _guarantee(step)
    if guarantee is None and not known.public:
        raise ModelUnreadable("The file has no guarantee.", "Save the fitted model with tacit.save.")
    content = _decoded(step["state"], arrays)
    model = _unpack(known, content["state"], content["arrays"])
    if guarantee is not None:
        model.guarantee_, model.event_ = guarantee, guarantee.event
    return model


def _guarantee(step: Mapping[str, Any]) -> Guarantee | None:
    given = step["guarantee"]
    if given is None:
        return None
    guarantee = Guarantee.from_json(json.dumps(given))
    check_claim(guarantee)
    return guarantee


def _encoded(value: Any, arrays: list[Array]) -> Any:
    """A value in JSON's terms: what JSON lacks is an object with a single key that begins with ``~``."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"~float": repr(value)}
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) and not name.startswith("~") for name in value):
            raise InvalidValue("keys", list(value), "text that does not begin with ~")
        return {name: _encoded(each, arrays) for name, each in value.items()}
    if isinstance(value, list):
        return [_encoded(each, arrays) for each in value]
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O" and value.ndim == 1:
            return {"~objects": [_encoded(each, arrays) for each in value.tolist()]}
        if value.dtype.kind not in KINDS:
            raise InvalidValue("array", str(value.dtype), "of numbers, truth values or text")
        arrays.append(np.asarray(value))
        return {"~array": len(arrays) - 1}
    for tag, (kind, encode, _) in _CODEC.items():
        if isinstance(value, kind):
            return {tag: encode(value, arrays)}
    raise InvalidValue("value", type(value).__name__, "of a type that can be saved")


def _decoded(value: Any, arrays: Sequence[Any]) -> Any:
    if isinstance(value, list):
        return [_decoded(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1 or not (tag := next(iter(value))).startswith("~"):
        return {name: _decoded(each, arrays) for name, each in value.items()}
    content = value[tag]
    if tag == "~array":
        if not 0 <= content < len(arrays):
            raise ValueError("no such array")
        return arrays[content]
    if tag == "~float":
        return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[content]
    if tag == "~objects":
        made = np.empty(len(content), dtype=object)
        made[:] = _decoded(content, arrays)
        return made
    return _CODEC[tag][2](content, arrays)


_CODEC: dict[str, tuple[type[Any], Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "~tuple": (
        tuple,
        lambda value, arrays: _encoded(list(value), arrays),
        lambda content, arrays: tuple(_decoded(content, arrays)),
    ),
    "~schema": (Schema, lambda value, _: value.to_toml(), lambda content, _: Schema.from_toml(content)),
    "~date": (
        datetime.date,
        lambda value, _: value.isoformat(),
        lambda content, _: datetime.date.fromisoformat(content),
    ),
    "~features": (
        Features,
        lambda value, arrays: _encoded(asdict(value), arrays),
        lambda content, arrays: Features(**_decoded(content, arrays)),
    ),
}


def _version() -> str:
    try:
        return metadata.version("tacit")
    except metadata.PackageNotFoundError:
        return "of an unknown version"


register("preprocessor", Preprocessor, public=True)
