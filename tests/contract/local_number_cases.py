"""Local mechanisms for numbers and vectors, and models from local reports, audited by their reports.

The score of a report is its log-likelihood ratio under the sound mechanism. The twins spend one and a half
times ε, spend all of ε on each of several answers, send the length of a vector as it is, or ask everybody
twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from contract.local_cases import EPSILONS, PEOPLE, Randomizing, log_ratio, people, refused
from contract.registry import SECRET, Case, Pair, register
from tacit import audit, events, local
from tacit.errors import InvalidValue
from tacit.ledger import Ledger
from tacit.local.privunit import Cap
from tacit.local.windows import Mixture, Windows
from tacit.relations import Unit

CLAIMED = events.Pure(1.0)
LAWS = {"noise": "reports are compared with their exact laws in tests/local"}
BOUNDS = tuple({"bounds": bad} for bad in (None, (1, 0), (0, np.inf), ([], [])))


def rows(make: Any, data: Any, runs: int, seed: int | None) -> np.ndarray:
    """As many reports as runs, of people who all have the same row."""
    return make(seed)(np.tile(data, (runs, 1)))


def register_reports(name: str, **told: Any) -> None:
    register(Case(name=name, relation="replace_one", unit=Unit(name="person"), left_out=LAWS, **told))


# ----------------------------------------------------------------- numbers


def numbers(kind: Any, epsilon: float) -> Callable[[int | None], Randomizing]:
    return lambda seed: Randomizing(kind(bounds=(0, 1), epsilon=epsilon, random_state=seed), CLAIMED)


for kind in (local.Duchi, local.Piecewise, local.Hybrid):
    register_reports(
        f"local_{kind.__name__}",
        event=CLAIMED,
        make=numbers(kind, 1.0),
        broken=numbers(kind, 1.5),
        data=np.linspace(0, 1, PEOPLE),
        pair=Pair(
            1.0, 0.0, log_ratio(kind(bounds=(0, 1), epsilon=1.0).law, 1.0, 0.0), people,
            rule=audit.Fixed(0.999),
        ),
        bad_inputs=refused(kind, {"bounds": (0, 1)}, (*EPSILONS, *BOUNDS)),
        covers=frozenset({kind.__name__}),
    )  # fmt: skip

SEVERAL: dict[str, Any] = {"bounds": ([0, 0, 0], 1), "epsilon": 5.0}


class Overspending(local.Hybrid):
    """A twin that spends all of ε on each of the numbers that it asks for."""

    def _made(self, epsilon: Fraction) -> Windows | Mixture:
        return super()._made(epsilon * self.asked)


def of_answers(reports: np.ndarray) -> np.ndarray:
    """The sum of the log-likelihood ratios of all answers of a person, 0 where there is none."""
    found = np.zeros(reports.shape)
    one = log_ratio(local.Hybrid(**SEVERAL).law, 1.0, 0.0)
    found[reports >= 0] = one(reports[reports >= 0])
    return found.sum(axis=1)


register_reports(
    "local_Hybrid_attributes_overspent",
    event=events.Pure(5.0),
    make=lambda seed: Randomizing(local.Hybrid(**SEVERAL, random_state=seed), events.Pure(5.0)),
    broken=lambda seed: Randomizing(Overspending(**SEVERAL, random_state=seed), events.Pure(5.0)),
    data=np.linspace(0, 1, 3 * PEOPLE).reshape(PEOPLE, 3),
    pair=Pair([1.0] * 3, [0.0] * 3, of_answers, rows, rule=audit.Fixed(4.99)),
    bad_inputs=(
        ("four columns", lambda: local.Hybrid(**SEVERAL).randomize(np.ones((2, 4))), InvalidValue),
        ("one column", lambda: local.Hybrid(**SEVERAL).randomize(np.full(3, float(SECRET))), InvalidValue),
        ("reports", lambda: local.Hybrid(**SEVERAL).estimate(np.ones((2, 4))), InvalidValue),
    ),
)

# ----------------------------------------------------------------- vectors

CAP = Cap.best(3, 1.0)
LEAST = 1 - 2 * float(local.privunit._quantile(3, float(CAP.share)))
"""The least inner product of a direction in the cap with that of the vector."""
TOWARDS = np.array([0.0, 0.6, 0.8])


def in_caps(reports: np.ndarray) -> np.ndarray:
    """The log-likelihood ratio of TOWARDS against its opposite, for reports of dimension 3 and ε = 1."""
    products = reports @ TOWARDS / np.linalg.norm(reports, axis=-1)
    return (products >= LEAST).astype(float) - (products <= -LEAST)


def vectors(epsilon: float = 1.0, **more: Any) -> Callable[[int | None], Randomizing]:
    return lambda seed: Randomizing(
        local.PrivUnit(dimension=3, epsilon=epsilon, random_state=seed, **more), CLAIMED
    )


BAD_VECTORS = (
    *(
        (f"{bad}", lambda bad=bad: local.PrivUnit(**{"dimension": 3, "epsilon": 1.0, **bad}), InvalidValue)
        for bad in (*EPSILONS, {"dimension": 1}, {"dimension": 2.0}, {"clip_norm": 0.0}, {"clip_norm": "1"})
    ),
    ("no matrix", lambda: vectors()(1)(float(SECRET)), InvalidValue),
    ("a text", lambda: vectors()(1)(SECRET), InvalidValue),
    ("columns", lambda: vectors()(1)(np.full((2, 4), float(SECRET))), InvalidValue),
    ("no reports", lambda: vectors()(1).mechanism.estimate(np.zeros((0, 3))), InvalidValue),
)

register_reports(
    "local_PrivUnit",
    event=CLAIMED,
    make=vectors(),
    broken=vectors(1.5),
    data=np.eye(3),
    pair=Pair(TOWARDS, -TOWARDS, in_caps, rows, rule=audit.Fixed(1.0)),
    bad_inputs=BAD_VECTORS,
    covers=frozenset({"PrivUnit"}),
)


class Lengthy(Randomizing):
    """A twin that randomizes the direction, and sends the length as it is."""

    def __call__(self, values: Any) -> np.ndarray:
        return super().__call__(values) * np.linalg.norm(values, axis=1, keepdims=True)


register_reports(
    "local_PrivUnit_of_a_ball_length_sent",
    event=CLAIMED,
    make=vectors(clip_norm=1.0),
    broken=lambda seed: Lengthy(vectors(clip_norm=1.0)(seed).mechanism, CLAIMED),
    data=np.eye(3),
    pair=Pair(
        TOWARDS, 0.5 * TOWARDS, lambda reports: np.linalg.norm(reports, axis=1), rows, (20_000, 20_000),
        audit.Fixed(0.75 * local.PrivUnit(dimension=3, epsilon=1.0, clip_norm=1.0).length),
    ),
    bad_inputs=BAD_VECTORS,
)  # fmt: skip

# ----------------------------------------------------------------- models


@dataclasses.dataclass
class Asking:
    """A fit as a mechanism: from rows and targets to all reports of the people, as one group."""

    model: Any
    times: int = 1
    """How often everybody is asked; 1 if sound."""

    def __post_init__(self) -> None:
        self.protocol = self.model.protocol(3, PEOPLE)
        self.event, self.noise = CLAIMED, self.protocol.mechanism.noise

    def __call__(self, data: tuple[Any, Any]) -> np.ndarray:
        X, y = data
        targets, start = self.model._targets(np.asarray(y)), np.zeros((3, 1))
        asked = (self.model._reports(self.protocol, start, np.asarray(X), targets) for _ in range(self.times))
        return np.stack(list(asked), axis=1)


def asked_once(make: Any, data: Any, runs: int, seed: int | None) -> np.ndarray:
    return make(seed)((np.tile(TOWARDS, (runs, 1)), np.full(runs, data)))


def fits(ledger: Ledger, asking: Asking, access: Callable[[], Any]) -> Any:
    """The road of a fit: the charge, and then the rows."""
    return asking.model.set_params(ledger=ledger).fit_rows(3, PEOPLE, access)


MODELS: dict[type[Any], dict[str, Any]] = {
    local.LocalLogisticRegression: {"classes": [0, 1]},
    local.LocalLinearRegression: {"target_bounds": (0, 1)},
}
WRONG_MODELS: tuple[dict[str, Any], ...] = (
    {"epsilon": 0.0}, {"epsilon": np.nan}, {"norm": None}, {"norm": 0.0}, {"steps": 0}, {"clip_norm": -1.0},
    {"learning_rate": 0.0}, {"random_state": -1}, {"ledger": "study.db"},
)  # fmt: skip
DATA = (np.tile(np.eye(3), (PEOPLE, 1))[:PEOPLE], np.arange(PEOPLE) % 2)


def fitting(kind: type[Any], times: int = 1, **more: Any) -> Callable[[int | None], Asking]:
    parameters = {"epsilon": 1.0, "norm": 1.0, "fit_intercept": False, **MODELS[kind], **more}
    return lambda seed: Asking(kind(**parameters, random_state=seed), times)


def refused_fits(kind: type[Any]) -> Any:
    def fit(X: Any, y: Any, **more: Any) -> Any:
        return fitting(kind)(1).model.set_params(**more).fit(X, y)

    unnamed = dict.fromkeys(MODELS[kind])
    calls = [(f"{bad}", lambda bad=bad: fit(*DATA, **bad)) for bad in (*WRONG_MODELS, unnamed)]
    calls += [
        ("rows stored as text", lambda: fit(np.full((PEOPLE, 3), SECRET), DATA[1])),
        ("targets stored as text", lambda: fit(DATA[0], np.full(PEOPLE, SECRET))),
        ("another number of targets", lambda: fit(DATA[0], np.full(3, int(SECRET)))),
    ]
    return tuple((what, call, InvalidValue) for what, call in calls)


for model in MODELS:
    register_reports(
        f"local_{model.__name__}_asked_twice",
        event=CLAIMED,
        make=fitting(model),
        broken=fitting(model, times=2),
        data=DATA,
        pair=Pair(
            0, 1, lambda reports: in_caps(reports).sum(axis=1), asked_once, (40_000, 40_000),
            audit.Split(seed=0),
        ),
        bad_inputs=refused_fits(model),
        release=fits,
        covers=frozenset({model.__name__}),
    )  # fmt: skip
