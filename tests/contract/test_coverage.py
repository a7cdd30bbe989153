"""Whatever public makes a release has a case in the registry.

The list is derived from the code: a class or function that is added, and forgotten here, fails.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pytest

import tacit
from contract import estimator_cases
from contract.registry import Case, registered
from contract.table_questions import QUESTIONS, Question
from contract.test_estimator_battery import FITS
from tacit import estimators, mechanisms, pate, tables
from tacit.estimators.linear.noise import PLACES
from tacit.estimators.private import PrivateEstimator
from tacit.estimators.registry import ESTIMATORS
from tacit.local.numbers import NumberMechanism
from tacit.local.oracle import FrequencyOracle, LocalMechanism, SupportOracle
from tacit.tables.questions import Question as Value

PASSES_ON = {
    "Payment", "Table", "open", "balance", "show_refusal", "share_budget",
    "private", "PrivateStrategy", "Clipped", "clipped", "planned",
}  # fmt: skip
"""Take a ledger and make no release of their own: questions of a table and estimators, listed below, do.

What carries a federation over Flower releases what Rounds and Reports do: see test_flower_process.py.
What the service plans are jobs.
"""

LOCAL_BASES = (LocalMechanism, FrequencyOracle, SupportOracle, NumberMechanism)
"""Bases of local mechanisms, which randomize nothing themselves."""

WITH_TORCH = (
    "tacit.training", "tacit.labels.loss", "tacit.labels.network", "tacit.federated.silo", "tacit.language",
)  # fmt: skip
"""Modules that need torch."""

ABOVE = ("tacit.cli", "tacit.jobs", "tacit.report")
"""Rooms that call what is covered, for whole jobs."""


def public(prefix: str = "tacit.") -> Iterable[tuple[str, Any]]:
    """Everything that a public module of tacit exports, with its module."""
    for found in pkgutil.walk_packages(tacit.__path__, "tacit."):
        hidden = any(part.startswith("_") for part in found.name.split("."))
        if not hidden and found.name.startswith(prefix) and not found.name.startswith(ABOVE):
            if not find_spec("torch") and found.name.startswith(WITH_TORCH):
                continue
            module = importlib.import_module(found.name)
            for name in getattr(module, "__all__", ()):
                yield found.name, getattr(module, name)


def callables() -> set[str]:
    """Mechanisms: public classes whose objects can be called."""
    named = {name: getattr(mechanisms, name) for name in mechanisms.__all__}
    return {name for name, kind in named.items() if isinstance(kind, type) and "__call__" in dir(kind)}


def questions() -> set[str]:
    """Questions of tables: the classes, and what can be asked of a table and of a batch alike.

    ``ask`` takes any of them as a value.
    """
    kinds = (value for _, value in public("tacit.tables") if isinstance(value, type))
    leaves = (kind for kind in kinds if issubclass(kind, Value) and not kind.__subclasses__())
    named = {snake(kind.__name__) for kind in leaves}
    methods = {name for name in dir(tables.Batch) if not name.startswith("_") and hasattr(tables.Table, name)}
    return named | methods - {"ask"}


def snake(name: str) -> str:
    """The method that asks a question of this class."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def fitted() -> set[str]:
    """Estimators: registered, or exported."""
    exported = (getattr(estimators, name) for name in estimators.__all__)
    known = {kind: name for name, kind in ESTIMATORS.items()}
    return set(ESTIMATORS) | {
        known.get(kind, kind.__name__)
        for kind in exported
        if isinstance(kind, type) and issubclass(kind, PrivateEstimator) and kind is not PrivateEstimator
    }


def placed() -> set[str]:
    """Every estimator with every place of noise that it takes."""
    return {
        f"{name} with noise at {place}"
        for name in estimator_cases.DECLARED
        for place in PLACES
        if estimator_cases.fits_at(name, place)
    }


def bought() -> set[str]:
    """What is bought on the way: public classes that have ``buy`` and an event."""
    return {
        value.__name__
        for _, value in public("tacit.estimators")
        if isinstance(value, type) and hasattr(value, "buy") and hasattr(value, "event")
    }


def aggregators() -> set[str]:
    """Aggregators of votes and predictions: public classes that answer and say what one answer costs."""
    bases = (pate.Aggregator, pate.PredictionAggregator)
    kinds = {
        value for _, value in public("tacit.pate") if isinstance(value, type) and issubclass(value, bases)
    }
    return {kind.__name__ for kind in kinds if kind not in bases}


def randomizers() -> set[str]:
    """Local mechanisms: public classes that randomize the value of a person."""
    return {
        value.__name__
        for _, value in public("tacit.local")
        if isinstance(value, type) and issubclass(value, LocalMechanism) and value not in LOCAL_BASES
    }


def charging() -> set[str]:
    """Whatever else is public and takes a ledger: evaluations, trainers, and the next room."""
    return {
        value.__name__
        for _, value in public()
        if callable(value) and "ledger" in parameters(value) and value.__name__ not in PASSES_ON
        if not (isinstance(value, type) and issubclass(value, PrivateEstimator))
    }


def parameters(value: Any) -> Iterable[str]:
    try:
        return inspect.signature(value).parameters
    except (TypeError, ValueError):
        return ()


@dataclass
class Recorder:
    """Notes which question is asked of it."""

    asked: set[str]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        self.asked.add(name)
        return lambda *given, **named: self


def asked(question: Question) -> set[str]:
    noted = Recorder(set())
    question.ask(noted, epsilon=1.0)
    return noted.asked


def covered(cases: Iterable[Case]) -> set[str]:
    """What the cases cover, by name."""
    found: set[str] = set()
    for case in cases:
        found |= case.covers
        if case.make is not None:
            found.add(type(case.make(1)).__name__)
        if case.name in QUESTIONS:
            found |= asked(QUESTIONS[case.name])
    return found


MAKERS: dict[str, Callable[[], set[str]]] = {
    "mechanisms": callables,
    "questions": questions,
    "estimators": fitted,
    "places of noise": placed,
    "purchases": bought,
    "aggregators": aggregators,
    "local mechanisms": randomizers,
    "whatever takes a ledger": charging,
}
FEWEST = {
    "mechanisms": 10, "questions": 14, "estimators": 4, "places of noise": 21, "purchases": 3,
    "aggregators": 8, "local mechanisms": 12,
    "whatever takes a ledger": 2 if find_spec("torch") else 1,
}  # fmt: skip
"""How many there are at least: a derivation that finds nothing would find nothing missing."""


@pytest.fixture(scope="module")
def known() -> set[str]:
    """What has a case; for an estimator, the way to fit it in the battery of estimators is one."""
    kinds = {fit.kind for fit in FITS.values()}
    return covered(registered().values()) | {name for name, kind in ESTIMATORS.items() if kind in kinds}


@pytest.mark.parametrize("kind", MAKERS)
def test_everything_that_makes_a_release_has_a_case(kind: str, known: set[str]) -> None:
    makers = MAKERS[kind]()
    assert len(makers) >= FEWEST[kind], makers
    assert makers <= known, f"without a case: {sorted(makers - known)}"


# ----------------------------------------------------------------- what is forgotten is found


class Forgotten:
    """A mechanism that nobody registered."""

    event = tacit.events.Pure(1.0)

    def __call__(self, value: Any) -> Any:
        return value

    def buy(self, rows: Any) -> Any:
        return rows


class ForgottenEstimator(PrivateEstimator):
    """An estimator that nobody registered."""


def forgotten(X: Any, *, ledger: Any = None) -> Any:
    """A function that charges."""


@pytest.mark.parametrize(
    ("kind", "place", "name", "value"),
    [
        ("mechanisms", mechanisms, "Forgotten", Forgotten),
        ("estimators", estimators, "ForgottenEstimator", ForgottenEstimator),
        ("purchases", importlib.import_module("tacit.estimators.purchases"), "Forgotten", Forgotten),
        ("whatever takes a ledger", tables, "forgotten", forgotten),
    ],
    ids=["a mechanism", "an estimator", "a purchase", "a function"],
)
def test_a_forgotten_one_is_found(
    kind: str, place: Any, name: str, value: Any, known: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, value, raising=False)
    monkeypatch.setattr(place, "__all__", [*place.__all__, name])
    assert MAKERS[kind]() - known == {name}


def test_a_forgotten_question_is_found(known: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (tables.Table, tables.Batch):
        monkeypatch.setattr(kind, "mode", lambda self, column: None, raising=False)
    assert questions() - known == {"mode"}


def test_a_forgotten_place_of_noise_is_found(known: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLACES, "nowhere", PLACES["output"])
    monkeypatch.setattr(estimator_cases, "fits_at", lambda name, place: place == "nowhere")
    assert {each.split(" at ")[1] for each in placed() - known} == {"nowhere"}


@pytest.mark.parametrize("name", ["laplace", "table_count", "logistic_output_pure"])
def test_a_case_that_is_taken_away_is_missed_if_it_is_the_only_one(name: str, known: set[str]) -> None:
    cases = registered()
    lost = covered([cases[name]])
    others = covered(case for case in cases.values() if not lost & covered([case]))
    assert lost <= known
    assert not lost & others
