"""Every estimator in the registry, with noise at every place where it can enter, and all that it buys.

A fit is planned once and carried out many times on the rows, as the skeleton of estimators does after the
charge. Where noise enters before a minimum is found, it cannot be seen alone: its scale is tested beside each
place in tests/estimators. The twin here spends a hundred times the ε that it claims.

The neighbours are one row at the bounds, and none. The row draws the weight to its side, and without rows the
noise is as often on either side: the attack asks for the sign of the weight. For Laplace noise on the weight
nothing tells more, because each weight on the other side is e^ε times as likely without the row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from contract.registry import Case, Make, Pair, register
from tacit import audit
from tacit.errors import InvalidValue
from tacit.estimators.linear.curvature import CurvaturePurchase
from tacit.estimators.linear.losses import Logistic
from tacit.estimators.linear.noise import PLACES
from tacit.estimators.linear.noise.place import Problem
from tacit.estimators.linear.rows import ScaledRows, Space
from tacit.estimators.private import PrivateEstimator, PrivateRows
from tacit.estimators.purchases import BoundsPurchase, CountPurchase
from tacit.estimators.registry import ESTIMATORS
from tacit.ledger import Ledger
from tacit.randomness import Source

Data = tuple[np.ndarray, np.ndarray]
DECLARED: dict[str, dict[str, Any]] = {
    "logistic": {"classes": [0, 1]},
    "svc": {"classes": [0, 1]},
    "linear": {"target_bounds": (-1, 1)},
    "ridge": {"target_bounds": (-1, 1)},
}
"""What each estimator must be told of its target; an estimator that is missing here has no case."""

ONE: Data = (np.ones((1, 1)), np.ones(1))
NOBODY: Data = (np.zeros((0, 1)), np.zeros(0))
RUNS = 200
"""How often each neighbour is fitted: enough to show an ε of up to 1.8."""

EXCESS = 100.0
"""How many times its ε the twin spends."""
SETTINGS: dict[str, Any] = {"input": PLACES["input"](cells=5)}  # type: ignore[call-arg]
"""Settings of a place, where the usual ones take long."""

HIDDEN = "noise enters before the weights are found; its scale is tested in tests/estimators"
ELSEWHERE = "the audit of the same place of noise is that of another estimator"


class Fitting:
    """An estimator as a mechanism: from rows to the weights that it releases."""

    def __init__(
        self,
        make: Callable[[float], PrivateEstimator],
        random_state: int | None,
        spent: float,
        promised: float = 1.0,
    ) -> None:
        self.estimator, claimed = make(spent), make(promised)
        self.random_state, self.source = random_state, Source(random_state)
        planned = claimed.plan(1)
        self.event, self.noise = planned.event, "seeded" if self.source.seeded else planned.kind
        self.recipe = self.estimator._recipe(self.estimator._public(1, self.estimator._agreed(False)))

    def __call__(self, data: Data) -> np.ndarray:
        self.estimator._carry_out(self.recipe, PrivateRows(*data, None), self.source)
        return np.ravel(self.estimator.coef_)


def fits(ledger: Ledger, fitting: Fitting, access: Callable[[], Data]) -> PrivateEstimator:
    """The road of a fit: the estimator charges its ledger, then has the rows read."""
    estimator = fitting.estimator.set_params(ledger=ledger, random_state=fitting.random_state)
    return estimator.fit_rows(1, lambda: (*access(), None))


def fitted_often(make: Make, data: Data, runs: int, seed: int | None) -> np.ndarray:
    made = make(seed)
    return np.array([made(data)[0] for _ in range(runs)])


BAD: dict[str, tuple[Any, ...]] = {
    "epsilon": (0.0, -1.0, math.nan, "1", None),
    "delta": (-1e-9, 1.0, math.nan, "0"),
    "bounds": (None, (1, -1), (0, math.nan), "wide"),
    "population": (-1, 1.5, "many"),
    "relation": ("both", None),
    "rows_per_unit": (0, 1.5),
    "random_state": ("seed", -1),
    "noise": ("nowhere", None, 7),
}
"""Parameters that are refused before anything is charged."""


def positive(weights: np.ndarray) -> np.ndarray:
    """1 for a weight on the side of the row, and 0 for another."""
    return (np.asarray(weights) > 0).astype(float)


def signs(value: Any, neighbour: Any, runs: int = RUNS) -> Pair:
    """Fits with a row and without, told apart by the sign of the weight."""
    return Pair(value, neighbour, positive, fitted_often, (runs, runs), audit.Fixed(0.5))


CLAIMING: dict[str, Callable[[float], Case]] = {}
"""How to make each case for another ε than 1, with neighbours."""


def of_estimator(name: str, place: str, audited: bool, delta: float, **params: Any) -> None:
    """Register a fit of one feature."""
    case = case_of(name, place, delta, 1.0, **params)
    CLAIMING[case.name] = lambda claimed: case_of(name, place, delta, claimed, **params)
    register(case if audited else replace(case, pair=None, left_out={**case.left_out, "pair": ELSEWHERE}))


def case_of(name: str, place: str, delta: float, claimed: float, **params: Any) -> Case:
    """A fit of one feature that claims this ε."""
    kind = ESTIMATORS[name]
    given = {"bounds": ([-1], [1]), "population": 1, "fit_intercept": False, **DECLARED[name], **params}

    def make(epsilon: float) -> PrivateEstimator:
        return kind(epsilon, delta, **given)

    def refused(parameter: str, value: Any) -> Any:
        return make(1.0).set_params(**{parameter: value}).fit(*ONE)

    return Case(
        name=f"{name}_{place}_{'approximate' if delta else 'pure'}",
        event=Fitting(make, 1, claimed, claimed).event,
        delta=delta,
        make=lambda random_state: Fitting(make, random_state, claimed, claimed),
        broken=lambda random_state: Fitting(make, random_state, EXCESS * claimed, claimed),
        data=ONE,
        pair=signs(ONE, NOBODY),
        bad_inputs=tuple(
            (f"{parameter}={value!r}", partial(refused, parameter, value), InvalidValue)
            for parameter, values in BAD.items()
            for value in values
        ),
        release=fits,
        covers=frozenset({name, f"{name} with noise at {place}"}),
        left_out={"noise": HIDDEN},
    )


def fits_at(name: str, place: str) -> bool:
    """Whether an estimator takes noise at a place."""
    try:
        ESTIMATORS[name](1.0, noise=place, bounds=([-1], [1]), population=1, **DECLARED[name]).plan(1)
    except InvalidValue:
        return False
    return True


PLACED = [(name, place) for name in DECLARED for place in PLACES if fits_at(name, place)]
"""Every estimator with every place of noise that it takes."""

AUDITED = {place: name for name, place in reversed(PLACED)} | {"input": "ridge"}
"""The estimator on which a place of noise is audited: the first that takes it, or a quick one."""

for name, place in PLACED:
    for delta in (0.0, 1e-3):
        of_estimator(name, place, AUDITED[place] == name, delta, noise=SETTINGS.get(place, place))
for delta in (0.0, 1e-3):
    of_estimator("linear", "residuals", True, delta, noise=PLACES["statistics"](residuals=True))  # type: ignore[call-arg]


class Buying:
    """A purchase as a mechanism: from rows to one number that is released."""

    def __init__(self, kind: type, delta: float, random_state: int | None, spent: float) -> None:
        self.purchase, claimed = purchase_of(kind, spent, delta), purchase_of(kind, 1.0, delta)
        self.source = Source(random_state)
        self.event = claimed.event
        self.noise = "seeded" if self.source.seeded else getattr(claimed, "kind", "exact")

    def __call__(self, data: Data) -> np.ndarray:
        x, y = data
        if isinstance(self.purchase, CountPurchase):
            return np.array([self.purchase.buy(1000 + len(x), self.source)])
        if isinstance(self.purchase, BoundsPurchase):
            return self.purchase.buy(self.purchase.counts(x, None), self.source)[1]
        rows = ScaledRows(x, y[:, None], Space.of(np.array([-1.0]), np.array([1.0]), None, intercept=False))
        return self.purchase.buy(rows, np.zeros((1, 1)), self.source).ravel()


def purchase_of(kind: type, epsilon: float, delta: float) -> Any:
    if kind is CountPurchase:
        return CountPurchase(epsilon)
    if kind is BoundsPurchase:
        return BoundsPurchase(epsilon, delta, 1)
    return CurvaturePurchase(epsilon, delta, Problem(Logistic(), 1, 1.0, delta))


MANY: Data = (np.repeat(2.0 ** np.arange(40), 10)[:, None], np.ones(400))
"""So many rows of each size that noise decides which of them are seen."""


def of_purchase(kind: type, delta: float) -> None:
    """Register what an estimator buys before or after its fit."""
    bad = (0.0, -1.0, math.nan, "1")
    register(
        Case(
            name=f"{kind.__name__}_{'approximate' if delta else 'pure'}",
            event=purchase_of(kind, 1.0, delta).event,
            delta=delta,
            make=lambda random_state: Buying(kind, delta, random_state, 1.0),
            broken=lambda random_state: Buying(kind, delta, random_state, 100.0),
            data=MANY,
            pair=Pair(ONE, NOBODY, np.asarray, fitted_often, (RUNS, RUNS), audit.Split(seed=0)),
            bad_inputs=tuple(
                (f"ε = {epsilon!r}", partial(priced, kind, epsilon, delta), InvalidValue) for epsilon in bad
            ),
            covers=frozenset({kind.__name__}),
            left_out={"noise": HIDDEN},
        )
    )


def priced(kind: type, epsilon: Any, delta: float) -> Any:
    return purchase_of(kind, epsilon, delta).event


of_purchase(CountPurchase, 0.0)
for kind in (BoundsPurchase, CurvaturePurchase):
    for delta in (0.0, 1e-3):
        of_purchase(kind, delta)
