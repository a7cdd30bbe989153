"""Weights of rows and classes: fits with noise at every place that weights reach, and the sizes of classes.

The neighbours are one row that asks to count a million times, and no row. The twin forgets to clip.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from contract.estimator_cases import CLAIMING, HIDDEN, RUNS, fitted_often, signs
from contract.registry import Case, Pair, register
from tacit import audit
from tacit.data.given import real
from tacit.errors import InvalidValue
from tacit.estimators import LinearRegression, LogisticRegression
from tacit.estimators.linear.weights import ClassPurchase, class_counts
from tacit.estimators.private import PrivateRows
from tacit.ledger import Ledger
from tacit.randomness import Source

Weighted = tuple[np.ndarray, np.ndarray, np.ndarray]
HEAVY: Weighted = (np.ones((1, 1)), np.ones(1), np.array([1e6]))
NOBODY: Weighted = (np.zeros((0, 1)), np.zeros(0), np.zeros(0))
KINDS: dict[str, type] = dict.fromkeys(("objective", "output", "gradient"), LogisticRegression)
KINDS |= dict.fromkeys(("adaptive", "statistics", "functional", "exponential"), LinearRegression)
"""The place of noise, and the estimator it is audited in. With noise on the input a row is counted or not:
there a heavier weight is the same as 1, clipped or not."""
DECLARED: dict[type, dict[str, Any]] = {
    LogisticRegression: {"classes": [0, 1]}, LinearRegression: {"target_bounds": (-1, 1)},
}  # fmt: skip


def unclipped(kind: type) -> type:
    """The twin: weights as they are handed over."""

    class Unclipped(kind):  # type: ignore[misc, valid-type]
        def _row_weights(self, rows: Any, targets: Any, classes: Any) -> Any:
            return real(rows.weights) / self.weight_bound

    return Unclipped


class Weighing:
    """A weighted fit as a mechanism: from rows, targets and weights to the weight of the one feature."""

    def __init__(
        self, kind: type, place: str, delta: float, random_state: int | None, epsilon: float = 1.0
    ) -> None:
        self.estimator = kind(
            epsilon, delta, noise=place, bounds=([-1], [1]), population=1, fit_intercept=False,
            weight_bound=4.0, **DECLARED.get(kind, DECLARED.get(kind.__base__, {})),
        )  # fmt: skip
        self.random_state, self.source = random_state, Source(random_state)
        planned = self.estimator.plan(1)
        self.event, self.noise = planned.event, "seeded" if self.source.seeded else planned.kind
        self.recipe = self.estimator._recipe(self.estimator._public(1, self.estimator._agreed(False)))

    def __call__(self, data: Weighted) -> np.ndarray:
        x, y, w = data
        self.estimator._carry_out(self.recipe, PrivateRows(x, y, None, w), self.source)
        return np.ravel(self.estimator.coef_)


def weighed(ledger: Ledger, fitting: Weighing, access: Any) -> Any:
    """The road of a fit to private rows that come with weights."""
    estimator = fitting.estimator.set_params(ledger=ledger, random_state=fitting.random_state)
    taken: list[Any] = []

    class Late(type(estimator)):  # type: ignore[misc]
        def _carry_out(self, recipe: Any, rows: Any, source: Any) -> None:
            taken.append(access())
            x, y, w = taken[-1]
            super()._carry_out(recipe, PrivateRows(x, y, None, w), source)

    late = Late(**estimator.get_params())
    return late.fit(np.zeros((1, 1)), np.zeros(1), sample_weight=np.ones(1))


def refused(place: str, name: str, value: Any) -> Any:
    x, y, w = HEAVY
    made = Weighing(KINDS[place], place, 0.0, 1).estimator.set_params(**{name: value})
    return made.fit(x, y, sample_weight=w)


def of_place(place: str, claimed: float) -> Case:
    kind, delta = KINDS[place], 1e-3 if place in ("gradient", "statistics") else 0.0
    return Case(
        name=f"weighted_{place}_{'approximate' if delta else 'pure'}",
        event=Weighing(kind, place, delta, 1, claimed).event,
        delta=delta,
        make=partial(Weighing, kind, place, delta, epsilon=claimed),
        broken=partial(Weighing, unclipped(kind), place, delta, epsilon=claimed),
        data=HEAVY,
        pair=signs(HEAVY, NOBODY),
        bad_inputs=tuple(
            (f"weight_bound={value!r}", partial(refused, place, "weight_bound", value), InvalidValue)
            for value in (0.0, -1.0, math.nan, math.inf, "1", None)
        ),
        release=weighed,
        left_out={"noise": HIDDEN},
    )


for place in KINDS:
    CLAIMING[register(of_place(place, 1.0)).name] = partial(of_place, place)


class Counting:
    """The purchase of the sizes of classes as a mechanism: from labels to the ratio of two weights."""

    def __init__(self, random_state: int | None, spent: float = 1.0) -> None:
        self.purchase, self.source = ClassPurchase(spent, (0, 1)), Source(random_state)
        self.event = ClassPurchase(1.0, (0, 1)).event
        self.noise = "seeded" if self.source.seeded else "exact"

    def __call__(self, labels: np.ndarray) -> np.ndarray:
        everybody = np.concatenate([np.repeat([0, 1], 50), labels])
        found = self.purchase.buy(class_counts(everybody, None, (0, 1)), self.source)
        return np.array([found[0] / found[1]])


ONE, NONE = np.ones(1), np.zeros(0)
register(
    Case(
        name="ClassPurchase",
        event=Counting(1).event,
        make=Counting,
        broken=partial(Counting, spent=100.0),
        data=ONE,
        pair=Pair(ONE, NONE, np.asarray, fitted_often, (RUNS, RUNS), audit.Split(seed=0)),
        bad_inputs=tuple(
            (f"ε = {value!r}", partial(ClassPurchase, value, (0, 1)), InvalidValue)
            for value in (0.0, -1.0, math.nan, "1")
        ),
        covers=frozenset({"ClassPurchase"}),
        left_out={"noise": HIDDEN},
    )
)
