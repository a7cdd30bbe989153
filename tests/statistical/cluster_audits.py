"""k-means and principal components as cases for the audit of the whole library.

Fits of a few rows, with one row more or without it, which moves the centre or turns the component; the twin
spends a hundred times the ε that it claims (or more, where so few rows are hard to see).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from contract.registry import Case, Pair
from tacit import audit
from tacit.estimators import PCA, KMeans
from tacit.estimators.private import PrivateEstimator, PrivateRows
from tacit.randomness import Source

RUNS = {"tree": 150}
"""How often each neighbour is fitted, if not 250 times: enough to show an ε of 1.5, or of 2."""
SWUNG = np.array([[0.35, 0.0]])
"""A block of sample and aggregate moves towards this row as far as it may, and with a row at −1 beside it as
far to the other side."""
FEW = np.tile([0.6, 0.0], (2, 1))
MORE = np.vstack([FEW, [[-1.0, 0.0]]])
TURNED = np.vstack([FEW[:1], [[0.0, 1.0]]])


class Fitting:
    """An estimator without a target as a mechanism: from rows to one released number."""

    def __init__(
        self,
        make: Callable[[float], PrivateEstimator],
        seen: Callable[[Any], float],
        random_state: int | None,
        spent: float,
    ) -> None:
        self.estimator, self.seen, self.source = make(spent), seen, Source(random_state)
        self.event = make(1.0).plan(2).event
        self.recipe = self.estimator._recipe(self.estimator._public(2, self.estimator._agreed(False)))

    def __call__(self, rows: np.ndarray) -> float:
        self.estimator._carry_out(self.recipe, PrivateRows(rows, None, None), self.source)
        return self.seen(self.estimator)


def often(make: Any, rows: np.ndarray, runs: int, seed: int | None) -> np.ndarray:
    fitting = make(seed)
    return np.array([fitting(rows) for _ in range(runs)])


def centre(model: Any) -> float:
    """The added row draws the centre towards −1."""
    return -float(np.ravel(model.cluster_centers_)[0])


def direction(model: Any) -> float:
    """The added row turns the first component from the first feature to the second."""
    return abs(float(model.components_[0][1]))


def case_of(kind: type, method: str, delta: float, spent: float, **params: Any) -> Case:
    clusters = kind is KMeans
    seen, rows = (centre, (MORE, FEW)) if clusters else (direction, (TURNED, FEW[:1]))
    if method == "aggregate":
        rows = (np.vstack([SWUNG, [[-1.0, 0.0]]]), SWUNG)

    def make(epsilon: float) -> PrivateEstimator:
        return kind(epsilon, delta, method=method, norm=1.0, **params)

    def making(factor: float) -> Callable[[int | None], Fitting]:
        return lambda random_state: Fitting(make, seen, random_state, factor)

    return Case(
        name=f"{'k-means' if clusters else 'components'}_{method}_{'approximate' if delta else 'pure'}",
        event=make(1.0).plan(2).event,
        delta=delta,
        make=making(1.0),
        broken=making(spent),
        data=rows[0],
        pair=Pair(*rows, np.asarray, often, (RUNS.get(method, 250),) * 2, audit.Split(seed=0)),
    )


CASES = [
    *(case_of(KMeans, "tree", delta, 100.0, n_clusters=1) for delta in (0.0, 1e-3)),
    *(case_of(KMeans, "lloyd", delta, 100.0, n_clusters=1) for delta in (0.0, 1e-3)),
    *(case_of(KMeans, "aggregate", delta, 100.0, n_clusters=1, blocks=1) for delta in (0.0, 1e-3)),
    case_of(PCA, "analyze_gauss", 1e-3, 100.0, n_components=1),
    *(case_of(PCA, method, 0.0, 100.0, n_components=1) for method in ("wishart", "sulq", "exponential")),
]  # fmt: skip
