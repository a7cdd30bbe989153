"""Predictions of a saved model for the rows of a file; no budget is needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import InvalidValue
from tacit.jobs.opening import named_network, opened_model
from tacit.relations import Unit

if TYPE_CHECKING:
    from tacit.data.preprocessor import Preprocessor

__all__ = ["Predicted", "feature_rows", "predict"]


@dataclass(frozen=True)
class Predicted:
    """Predictions, one for each row or example of the file, in its order."""

    target: str
    """What is predicted: the column, ``"cluster"``, ``"components"``, or ``"class"`` for a network."""
    values: Sequence[Any]
    """The predictions; None for an example whose numbers are not finite; a list of numbers for components."""
    classes: tuple[Any, ...]
    """The classes that the probabilities are for; none if probabilities were not asked for."""
    probabilities: Sequence[Any]
    """The probability of each class, for each row."""
    files: tuple[str, ...] = ()
    """The names of images, where each example is a file."""
    parts: tuple[str, ...] = ()
    """The names of the numbers of each row, where it has several."""


def predict(
    model: str | os.PathLike[str],
    source: str | os.PathLike[str],
    *,
    proba: bool = False,
    delimiter: str | None = None,
    inputs: str | None = None,
) -> Predicted:
    """Predict the target of the rows of a file with a saved model; nothing is charged.

    The rows are read by the schema inside the model, and their target may be absent. A network reads
    examples, of the array ``inputs`` in an .npz file, and no labels. The guarantee of a model covers the
    people it was fitted to, whatever it is used for. It does not cover the people in these rows.
    """
    fitted, maker = opened_model(model)
    if maker is None:
        return _by_network(named_network(fitted, Path(model)), Path(source), inputs, proba)
    return _by_schema(fitted, maker, Path(model), source, delimiter, proba)


def _by_schema(
    fitted: Any, maker: Preprocessor, model: Path, source: Any, delimiter: str | None, proba: bool
) -> Predicted:
    if proba and not hasattr(fitted, "predict_proba"):
        raise InvalidValue(
            "model", str(model), "one with probabilities, such as logistic", "Leave proba= out."
        )
    frame = feature_rows(maker, source, delimiter)
    classes = tuple(fitted.classes_) if proba else ()
    transforms = not hasattr(fitted, "predict")
    parts = tuple(fitted.get_feature_names_out()) if transforms else ()
    target = maker.target or ("components" if transforms else "cluster")
    if not len(frame):
        return Predicted(target, [], classes, [], parts=parts)
    chances = fitted.predict_proba(frame) if proba else []
    found = fitted.transform(frame) if transforms else fitted.predict(frame)
    return Predicted(target, found.tolist(), classes, chances, parts=parts)


def feature_rows(maker: Preprocessor, source: str | os.PathLike[str], delimiter: str | None) -> Any:
    """The rows of a file that need no target, as the preprocessor of a model takes them."""
    from tacit.data.reading import prepare, private_rows

    schema, unused = maker.schema, {maker.target, *maker.exclude}
    columns = [name for name in schema if name not in unused]
    known = replace(schema, columns={name: schema[name] for name in columns}, population=None, unit=Unit())
    return private_rows(prepare(source, known, columns, delimiter=delimiter), known, columns)


def _by_network(network: Any, source: Path, inputs: str | None, proba: bool) -> Predicted:
    import numpy as np

    from tacit.data.examples import Where, find

    where = Where(
        inputs, size=network.shape[1:] if len(network.shape) == 3 else None, grey=network.shape[0] == 1,
        labelled=False, test=True,
    )  # fmt: skip
    found = find(source, where)
    if found.shape != network.shape:
        raise InvalidValue("source", found.shape, f"examples of the shape {network.shape}")
    chances = network.predict_proba(found.read()[0])
    known = [network.classes_[int(each.argmax())] if np.isfinite(each).all() else None for each in chances]
    classes = tuple(network.classes_) if proba else ()
    return Predicted("class", known, classes, chances if proba else [], found.files)
