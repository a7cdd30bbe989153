"""Students learn from public inputs and released answers, which is post-processing and costs nothing.

A student may learn from the answered inputs alone, or from all public inputs, of which most have no answer:

* ``"self-training"``: the student predicts the inputs without an answer, and is fitted again with the
  predictions it is surest of, for a few rounds (Yarowsky 1995);
* ``"propagation"``: answers spread along a graph of nearest neighbours among the public inputs (Zhou,
  Bousquet, Lal, Weston and Schölkopf 2003), and the student is fitted to the label that each input ends up
  with. Answers that disagree with their neighbourhood are outvoted, so this also removes noise from them;
* ``"discriminant-propagation"``: the same, and then three times more along the graph in coordinates that
  separate the labels so far (Fisher's discriminants, from the surest four fifths of the inputs).

Model files hold no pickle. A student of a class in :data:`KINDS` is stored as its parameters, and fitted
again to the public inputs and the released answers when the file is loaded; any other is handed in by
whoever loads the file (:meth:`~tacit.pate.PATEClassifier.teach`).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue
from tacit.pate.teachers import check_estimator, fresh

__all__ = [
    "KINDS",
    "SEMI_SUPERVISED",
    "check_student",
    "from_parts",
    "known",
    "propagated",
    "taught",
    "to_parts",
]

PROPAGATIONS = {"propagation": 0, "discriminant-propagation": 3}
"""Ways of propagation, and how often answers spread anew in discriminant coordinates."""
SEMI_SUPERVISED = (None, "self-training", *PROPAGATIONS)
"""How a student may use public inputs that have no answer."""
KINDS = {
    "decision-tree": "sklearn.tree:DecisionTreeClassifier",
    "extra-trees": "sklearn.ensemble:ExtraTreesClassifier",
    "forest": "sklearn.ensemble:RandomForestClassifier",
    "gaussian-nb": "sklearn.naive_bayes:GaussianNB",
    "gradient-boosting": "sklearn.ensemble:HistGradientBoostingClassifier",
    "linear-svc": "sklearn.svm:LinearSVC",
    "logistic": "sklearn.linear_model:LogisticRegression",
    "mlp": "sklearn.neural_network:MLPClassifier",
    "neighbors": "sklearn.neighbors:KNeighborsClassifier",
    "pca": "sklearn.decomposition:PCA",
    "pipeline": "sklearn.pipeline:Pipeline",
    "ridge": "sklearn.linear_model:RidgeClassifier",
    "scale": "sklearn.preprocessing:StandardScaler",
    "svc": "sklearn.svm:SVC",
}
"""Classes of scikit-learn that model files know, by the tags they have there, which never change their
meaning."""

SURE = 0.9
"""A prediction at least this probable is taken over by self-training."""
ROUNDS = 5
"""Self-training stops after so many rounds."""
SURE_SHARE = 0.8
"""Discriminant coordinates are fitted to this share of the inputs, those whose label is surest."""
STEPS = 300
"""Label propagation takes so many steps along the graph."""

Array = NDArray[np.float64]


def known(tag: str) -> Any:
    """The class that goes by a tag of :data:`KINDS`."""
    home, _, name = KINDS[tag].partition(":")
    return getattr(import_module(home), name)


def to_parts(estimator: Any) -> Any:
    """An estimator as its tag and its parameters, for a model file; None where its class is not known.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> to_parts(DecisionTreeClassifier(max_depth=3))["kind"]
    'decision-tree'
    """
    name = f"{type(estimator).__module__}:{type(estimator).__name__}"
    for tag, place in KINDS.items():
        home, _, kind = place.partition(":")
        if name.startswith(home) and name.endswith(f":{kind}") and type(estimator) is known(tag):
            break
    else:
        return None
    if tag == "pipeline":
        steps = [(each, to_parts(step)) for each, step in estimator.steps]
        return None if any(part is None for _, part in steps) else {"kind": tag, "steps": steps}
    params = estimator.get_params(deep=False)
    plain = all(_plain(value) for value in params.values())
    return {"kind": tag, "params": params} if plain else None


def _plain(value: Any) -> bool:
    """Whether a parameter is of a type that a model file holds."""
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _plain(each) for key, each in value.items())
    return value is None or isinstance(value, (bool, int, float, str, np.generic))


def from_parts(parts: Mapping[str, Any]) -> Any:
    """The estimator that :func:`to_parts` described; a class that is not in the closed list raises."""
    kind = known(parts["kind"])
    if parts["kind"] == "pipeline":
        return kind([(str(name), from_parts(step)) for name, step in parts["steps"]])
    return kind(**parts["params"])


def check_student(student: Any, semi_supervised: str | None) -> None:
    """Refuse, before anything is charged, a student that cannot be taught in this way."""
    check_estimator("student", student)
    if semi_supervised not in SEMI_SUPERVISED:
        ways = ", ".join(repr(way) for way in SEMI_SUPERVISED)
        raise InvalidValue("semi_supervised", semi_supervised, f"one of {ways}")
    if semi_supervised == "self-training" and not hasattr(student, "predict_proba"):
        advice = "Use one with probabilities, or semi_supervised='propagation'."
        raise InvalidValue("student", type(student).__name__, "with predict_proba, for self-training", advice)


def taught(
    student: Any,
    inputs: NDArray[Any],
    answered: NDArray[np.int64],
    answers: NDArray[np.int64],
    classes: NDArray[Any],
    *,
    semi_supervised: str | None,
    seed: int,
) -> Any:
    """A copy of the student, fitted to answers and, semi-supervised, to the other public inputs.

    Where the answers name fewer than two classes nothing can be learned, and None is returned.
    """
    if len(np.unique(answers)) < 2:
        return None
    if semi_supervised in PROPAGATIONS:
        labels = propagated(inputs, answered, answers, len(classes), rounds=PROPAGATIONS[semi_supervised])
        return fresh(student, seed).fit(inputs, classes[labels])
    model = fresh(student, seed)
    model.fit(inputs[answered], classes[answers])
    if semi_supervised is None:
        return model
    for _ in range(ROUNDS):
        chances = model.predict_proba(inputs)
        sure = chances.max(axis=1) >= SURE
        labels = np.asarray(model.classes_)[chances.argmax(axis=1)]
        labels[answered], sure[answered] = classes[answers], True
        again = fresh(student, seed)
        again.fit(inputs[sure], labels[sure])
        model = again
    return model


def propagated(
    inputs: NDArray[Any],
    answered: NDArray[np.int64],
    answers: NDArray[np.int64],
    classes: int,
    *,
    rounds: int = 0,
    neighbours: int = 8,
    clamping: float = 0.99,
) -> NDArray[np.int64]:
    """A class for every input: answers that spread along the graph of nearest neighbours.

    ``clamping`` is α of Zhou and others 2003: how much an input takes from its neighbours at each step. In
    the end the classes are weighted so that their shares are those among the answers, and inputs that no
    answer reaches get the most frequent answer. In each of ``rounds`` the answers spread once more, along the
    graph in the discriminant coordinates of the labels so far.

    >>> points = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> propagated(points, np.array([0, 2]), np.array([1, 0]), 2, neighbours=1).tolist()
    [1, 1, 0, 0]
    """
    start: Array = np.zeros((len(inputs), classes))
    start[answered, answers] = 1.0
    labels: NDArray[np.int64]
    labels, lead = _spread(inputs, start, neighbours, clamping)
    for _ in range(rounds):
        sure = lead >= np.quantile(lead, 1 - SURE_SHARE)
        if len(np.unique(labels[sure])) < 2:
            break
        labels, lead = _spread(_discriminant(inputs, labels, sure), start, neighbours, clamping)
    return labels


def _discriminant(inputs: NDArray[Any], labels: NDArray[np.int64], sure: NDArray[np.bool_]) -> NDArray[Any]:
    """Coordinates that separate the classes best, by the labels that are surest."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    separated = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.1).fit(inputs[sure], labels[sure])
    return np.asarray(separated.transform(inputs))


def _spread(inputs: NDArray[Any], start: Array, neighbours: int, clamping: float) -> tuple[Any, Any]:
    """A class for each input, and by how much it is ahead of the next one, between 0 and 1."""
    from scipy.sparse import diags_array
    from sklearn.neighbors import kneighbors_graph

    graph = kneighbors_graph(inputs, min(neighbours, len(inputs) - 1), mode="distance")
    middle = np.median(graph.data) if graph.nnz else 1.0
    graph.data = np.exp(-np.square(graph.data / (middle if middle > 0 else 1.0)))
    graph = graph.maximum(graph.T)
    scale = diags_array(1 / np.sqrt(np.maximum(np.asarray(graph.sum(axis=1)).ravel(), 1e-300)))
    along = scale @ graph @ scale
    spread = start
    for _ in range(STEPS):
        spread = clamping * (along @ spread) + (1 - clamping) * start
    masses, expected = spread.sum(axis=0), start.sum(axis=0)
    share = spread * (expected + 1.0) / np.where(masses > 0, masses, 1.0)
    first, second = np.sort(share, axis=1)[:, :-3:-1].T
    labels = np.where(first > 0, share.argmax(axis=1), int(expected.argmax())).astype(np.int64)
    return labels, (first - second) / np.where(first > 0, first, 1.0)
