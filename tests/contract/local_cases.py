"""Mechanisms of local differential privacy, audited by their reports: each is another person's.

All people of a run have the same value, so one call shows as many independent reports. The score of a
report is its exact log-likelihood ratio, from the law of the sound mechanism. The twins keep the true value
too often, and the twin of RAPPOR forgets its permanent response between two reports.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from contract.registry import SECRET, Case, Pair, register
from tacit import audit, events, local
from tacit.errors import InvalidValue
from tacit.local.oracle import LocalMechanism
from tacit.relations import Unit

PEOPLE = 40


class Randomizing:
    """A local mechanism as the battery calls it: from values to reports."""

    def __init__(self, mechanism: LocalMechanism, event: events.Event) -> None:
        self.mechanism, self.event, self.noise = mechanism, event, mechanism.noise

    def __call__(self, values: Any) -> np.ndarray:
        return self.mechanism.randomize(values)


def overkeeping(kind: Any) -> Any:
    """A twin that keeps the true value too often: a third of the probability of losing it is gone."""

    class Overkeeping(kind):  # type: ignore[misc]
        @property
        def keep(self) -> Fraction:
            sound = kind.keep.fget(self)
            return Fraction(sound + Fraction(int((1 - sound) / 3 * 2**60), 2**60))

    return Overkeeping


def keys(reports: np.ndarray) -> tuple[list[Any], np.ndarray]:
    """The different reports as the law names them, and which of them each report is."""
    if reports.ndim == 1:
        found, places = np.unique(reports, return_inverse=True)
        return found.tolist(), places
    found, places = np.unique(reports, axis=0, return_inverse=True)
    named = [row.tobytes() if reports.dtype == np.uint8 else tuple(row.tolist()) for row in found]
    return named, places.reshape(-1)


def log_ratio(law: Callable[[Any], dict[Any, Any]], value: Any, neighbour: Any) -> Any:
    """The score of a report: the log-likelihood ratio of two values."""
    first, second = law(value), law(neighbour)

    def score(reports: np.ndarray) -> np.ndarray:
        named, places = keys(reports)
        return np.array([math.log(first[name] / second[name]) for name in named])[places]

    return score


def people(make: Any, data: Any, runs: int, seed: int | None) -> np.ndarray:
    return make(seed)(np.full(runs, data))


def refused(kind: Any, more: dict[str, Any], wrong: tuple[dict[str, Any], ...]) -> Any:
    """Parameters, values and reports that are refused; no error shows a value."""

    def sound() -> Any:
        return kind(epsilon=1.0, **more)

    calls = [(f"{bad}", lambda bad=bad: kind(**{"epsilon": 1.0, **more, **bad})) for bad in wrong]
    calls += [
        ("a value that is no sequence", lambda: sound().randomize(int(SECRET))),
        ("a text", lambda: sound().randomize(SECRET)),
        ("no reports", lambda: sound().estimate(sound().randomize([]))),
        ("reports of another shape", lambda: sound().estimate(np.zeros((3, 3, 3)))),
        ("confidence", lambda: sound().estimate(sound().randomize([1, 2])).interval(1.5)),
    ]
    return tuple((what, call, InvalidValue) for what, call in calls)


EPSILONS = ({"epsilon": 0.0}, {"epsilon": np.nan}, {"epsilon": 1e-12}, {"random_state": -1})
DOMAINS: tuple[Any, ...] = (1, ["a", "a"], [[], {}], 2**21)
WRONG = (*EPSILONS, *({"categories": bad} for bad in DOMAINS))


def register_local(kind: type[LocalMechanism], *, wrong: Any, **more: Any) -> None:
    claimed, twin = kind(epsilon=1.0, **more).event, overkeeping(kind)
    score = log_ratio(kind(epsilon=1.0, **more).law, 1, 0)
    register(
        Case(
            name=f"local_{kind.__name__}",
            event=claimed,
            make=lambda seed: Randomizing(kind(epsilon=1.0, random_state=seed, **more), claimed),
            broken=lambda seed: Randomizing(twin(epsilon=1.0, random_state=seed, **more), claimed),
            data=np.arange(PEOPLE) % 2,
            pair=Pair(1, 0, score, people, rule=audit.Fixed(0.999)),
            bad_inputs=refused(kind, more, wrong),
            relation="replace_one",
            unit=Unit(name="person"),
            covers=frozenset({kind.__name__}),
            left_out={"noise": "reports are compared with their exact laws in tests/local"},
        )
    )


for oracle in (
    local.RandomizedResponse, local.OptimizedUnary, local.SymmetricUnary, local.LocalHashing,
    local.HadamardResponse, local.SubsetSelection,
):  # fmt: skip
    register_local(oracle, categories=4, wrong=WRONG)

SIZES = ({"bits": 0}, {"step": 9}, {"bits": 3, "step": 2}, {"kept": 0}, {"bits": 64})
register_local(local.HeavyHitters, bits=2, step=1, wrong=(*EPSILONS, *SIZES))

FILTERS: dict[str, Any] = {"epsilon": 1.2, "report_epsilon": 1.0, "bits": 8, "hashes": 1, "cohorts": 1}
RAPPOR = local.Rappor(**FILTERS)


class Reporting(Randomizing):
    """Two reports of each person, side by side, from one permanent response; or, if broken, from two."""

    def __init__(self, random_state: int | None, forgetful: bool) -> None:
        super().__init__(local.Rappor(**FILTERS, random_state=random_state), RAPPOR.event)
        self.forgetful = forgetful

    def __call__(self, values: Any) -> np.ndarray:
        rappor = self.mechanism
        assert isinstance(rappor, local.Rappor)
        memory = rappor.permanent(values)
        again = rappor.permanent(values) if self.forgetful else memory
        return np.stack([rappor.report(memory), rappor.report(again)], axis=1)


def of_both(reports: np.ndarray) -> np.ndarray:
    """The sum of the log-likelihood ratios of the two reports of a person."""
    one = log_ratio(RAPPOR.law, 1, 0)
    return one(np.ascontiguousarray(reports[:, 0])) + one(np.ascontiguousarray(reports[:, 1]))


UNFIT = (*EPSILONS, {"report_epsilon": 2.0}, {"bits": 1}, {"hashes": 0}, {"cohorts": 2**17})
BAD_RAPPOR: list[tuple[str, Any]] = [
    *((f"{bad}", lambda bad=bad: local.Rappor(**{**FILTERS, **bad})) for bad in UNFIT),
    ("a value that is no sequence", lambda: RAPPOR.randomize(int(SECRET))),
    ("no candidates", lambda: RAPPOR.estimate(RAPPOR.randomize([1]))),
    ("too many", lambda: RAPPOR.estimate(RAPPOR.randomize([1]), range(100))),
    ("no reports", lambda: RAPPOR.estimate(RAPPOR.randomize([]), [0])),
]

register(
    Case(
        name="local_Rappor",
        event=RAPPOR.event,
        make=lambda seed: Reporting(seed, forgetful=False),
        broken=lambda seed: Reporting(seed, forgetful=True),
        data=np.arange(PEOPLE) % 2,
        pair=Pair(1, 0, of_both, people, rule=audit.Fixed(1.99)),
        bad_inputs=tuple((what, call, InvalidValue) for what, call in BAD_RAPPOR),
        relation="replace_one",
        unit=Unit(name="person"),
        covers=frozenset({"Rappor"}),
        left_out={"noise": "reports are compared with their exact laws in tests/local"},
    )
)
