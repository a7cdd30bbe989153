"""Gradient boosting as a mechanism: one round on one column, and a row in the direction of its splits."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from contract.registry import Case, Make, Pair, register
from tacit import accounting, audit, events
from tacit.errors import InvalidValue
from tacit.estimators.boosting.model import GradientBoosting
from tacit.estimators.private import PrivateRows
from tacit.ledger import Ledger
from tacit.randomness import Source

RUNS = 300
LESS = 0.02
"""The noise of the twin, as a part of what it claims: what an audit of so few runs can see."""
Data = tuple[np.ndarray, np.ndarray]
ONE: Data = (np.ones((1, 1)), np.ones(1))
NOBODY: Data = (np.zeros((0, 1)), np.zeros(0))
DECLARED = {"classification": {"classes": [0, 1]}, "regression": {"target_bounds": (-1, 1)}}
GIVEN: dict[str, Any] = {
    "bounds": (-1, 1), "population": 1, "rounds": 1, "learning_rate": 1.0, "bins": 2, "slope": 0.5,
}  # fmt: skip
BAD: dict[str, tuple[Any, ...]] = {
    "epsilon": (0.0, -1.0, math.nan, "1", None),
    "delta": (-1e-9, 1.0, math.nan, "0"),
    "bounds": (None, (1, -1), (0, math.nan), "wide"),
    "population": (-1, 1.5, "many", None),
    "relation": ("both", None),
    "rows_per_unit": (0, 1.5),
    "random_state": ("seed", -1),
    "bins": (1, 300),
    "interactions": (-1, "all"),
}
"""Parameters that are refused before anything is charged."""


def made(task: str, epsilon: float, delta: float, **more: Any) -> GradientBoosting:
    return GradientBoosting(epsilon, delta, task=task, **{**GIVEN, **DECLARED[task], **more})


class Boosting:
    """From rows to the constant and the effects, all that one round releases."""

    def __init__(self, task: str, delta: float, random_state: int | None, less: float) -> None:
        self.estimator = made(task, 1.0, delta)
        self.random_state, self.source = random_state, Source(random_state)
        planned = self.estimator.plan(1)
        self.event, self.noise = planned.event, "seeded" if self.source.seeded else planned.kind
        spent = made(task, 1.0, delta) if less == 1 else made(task, *_with_less(planned.event, delta, less))
        self.recipe = spent._recipe(spent._public(1, spent._agreed(False)))

    def __call__(self, data: Data) -> np.ndarray:
        self.estimator._carry_out(self.recipe, PrivateRows(*data, None), self.source)
        return np.append(self.estimator.intercept_, self.estimator.effects_)


def _with_less(event: Any, delta: float, less: float) -> tuple[float, float]:
    """(ε, δ) whose noise is ``less`` times that of the event."""
    if delta == 0:
        return 1.0 / less, 0.0
    multiplier = event.event.noise_multiplier * less
    return accounting.epsilon(events.Gaussian(multiplier), delta) * (1 + 1e-9), delta


def fits(ledger: Ledger, boosting: Boosting, access: Any) -> GradientBoosting:
    estimator = boosting.estimator.set_params(ledger=ledger, random_state=boosting.random_state)
    return estimator.fit_rows(1, lambda: (*access(), None))


def constants(make: Make, data: Data, runs: int, seed: int | None) -> np.ndarray:
    mechanism = make(seed)
    return np.array([mechanism(data) for _ in range(runs)])


def likelihood(outputs: np.ndarray) -> np.ndarray:
    """The released numbers along the direction in which one row at the upper bound moves them."""
    return outputs[:, 0] + outputs[:, 2]


def of_boosting(task: str, delta: float) -> None:
    def refused(parameter: str, value: Any) -> Any:
        return made(task, 1.0, delta).set_params(**{parameter: value}).fit(*ONE)

    register(
        Case(
            name=f"boosting_{task}_{'approximate' if delta else 'pure'}",
            event=Boosting(task, delta, 1, 1.0).event,
            delta=delta,
            make=lambda random_state: Boosting(task, delta, random_state, 1.0),
            broken=lambda random_state: Boosting(task, delta, random_state, LESS),
            data=ONE,
            pair=Pair(ONE, NOBODY, likelihood, constants, (RUNS, RUNS), audit.Split(seed=0)),
            bad_inputs=tuple(
                (f"{parameter}={value!r}", partial(refused, parameter, value), InvalidValue)
                for parameter, values in BAD.items()
                for value in values
            ),
            release=fits,
            covers=frozenset({"gradient-boosting"}),
            left_out={
                "noise": "its scale, and a twin at two thirds of it, are in tests/estimators/test_boosting.py"
            },
        )
    )


for task, delta in (("classification", 0.0), ("classification", 1e-3), ("regression", 1e-3)):
    of_boosting(task, delta)
