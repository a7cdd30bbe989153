"""Models with private labels in files: their parameters, the fitted base, and the guarantee.

The base is somebody else's class, and is saved only if it is one of :data:`BASES`: by its tag there, its
parameters and its fitted attributes, which are post-processing of what was released. No name of a class is
taken from a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from sklearn.base import BaseEstimator

from tacit.errors import InvalidValue
from tacit.labels.classifier import LabelPrivateClassifier
from tacit.labels.private import LabelPrivateEstimator
from tacit.labels.regressor import LabelPrivateRegressor
from tacit.models.registry import register

__all__ = ["BASES", "from_saved", "to_saved"]

_COMMON = ("classes_", "n_features_in_", "feature_names_in_")
_NEVER = ("base", "ledger", "random_state")


@dataclass(frozen=True)
class Base:
    """A class of base estimators that can be saved, and its fitted attributes."""

    home: str
    name: str
    attributes: tuple[str, ...]

    def load(self) -> type[Any]:
        """The class."""
        return getattr(import_module(self.home), self.name)  # type: ignore[no-any-return]


_LINEAR = ("coef_", "intercept_", "n_iter_")
BASES: Mapping[str, Base] = {
    "logistic-regression": Base("sklearn.linear_model", "LogisticRegression", _LINEAR),
    "gaussian-nb": Base(
        "sklearn.naive_bayes", "GaussianNB", ("theta_", "var_", "class_prior_", "class_count_", "epsilon_")
    ),
    "linear-regression": Base("sklearn.linear_model", "LinearRegression", _LINEAR),
    "ridge": Base("sklearn.linear_model", "Ridge", _LINEAR),
    "perceptron": Base("tacit.labels.network", "Perceptron", ("weights_",)),
}
"""The bases that can be saved, by their tags, which never change their meaning."""

_ATTRIBUTES = {
    LabelPrivateClassifier: ("classes_", "n_features_in_", "feature_names_in_"),
    LabelPrivateRegressor: ("bins_", "n_features_in_", "feature_names_in_"),
}


def to_saved(model: LabelPrivateEstimator) -> dict[str, Any]:
    """Parameters and attributes of a fitted model and of its base; refuses a base that cannot be saved."""
    base = model.base_
    tag = next((tag for tag, each in BASES.items() if _is(base, each)), None)
    if tag is None:
        known = ", ".join(each.name for each in BASES.values())
        raise InvalidValue("base", type(base).__name__, "of a class that can be saved", f"It may be {known}.")
    params = {name: value for name, value in model.get_params(deep=False).items() if name not in _NEVER}
    if isinstance(params.get("prior"), BaseEstimator):
        params["prior"] = None
    if "classes" in params:
        params["classes"] = model.classes_.tolist()
    return {
        "params": params,
        "attributes": _found(model, _ATTRIBUTES[type(model)]),
        "base": {
            "tag": tag,
            "params": {k: v for k, v in base.get_params(deep=False).items() if k not in _NEVER},
            "attributes": _found(base, (*_COMMON, *BASES[tag].attributes)),
        },
    }


def from_saved(cls: type[LabelPrivateEstimator], state: Mapping[str, Any]) -> Any:
    """The model that :func:`to_saved` described."""
    told = state["base"]
    kind = BASES[told["tag"]]
    if {*_NEVER} & {*state["params"], *told["params"]}:
        raise ValueError("a parameter that is not saved")
    fitted = _filled(kind.load()(**told["params"]), told["attributes"], (*_COMMON, *kind.attributes))
    made = cls(base=kind.load()(**told["params"]), **state["params"])
    made.base_ = fitted
    return _filled(made, state["attributes"], _ATTRIBUTES[cls])


def _is(base: Any, kind: Base) -> bool:
    return type(base).__name__ == kind.name and type(base) is kind.load()


def _found(model: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(model, name) for name in names if name in vars(model)}


def _filled(model: Any, attributes: Mapping[str, Any], known: tuple[str, ...]) -> Any:
    for name, value in attributes.items():
        if name not in known:
            raise ValueError("an attribute that is not saved")
        setattr(model, name, value)
    return model


register("label-private-classifier", LabelPrivateClassifier)
register("label-private-regressor", LabelPrivateRegressor)
