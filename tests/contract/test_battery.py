"""The battery: what every case in the registry inherits."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract import cases  # noqa: F401  (fills the registry)
from contract.registry import (
    REGISTRY,
    Case,
    check_audit,
    check_bad_inputs,
    check_charged_first,
    check_fresh,
    check_json,
    check_noise,
    check_repetition,
)
from tacit import accounting, events, mechanisms
from tacit.errors import UnsupportedEvent

UNANSWERED = {
    "event_only_delta": pytest.mark.xfail(
        reason="zcdp and pld divide by an ε of 0", raises=(ValueError, ArithmeticError)
    ),
    "zcdp": pytest.mark.xfail(reason="zcdp divides by a ρ of 0", raises=ZeroDivisionError),
}
"""Known faults of accountants, each of which raises instead of answering."""

ALL = [pytest.param(case, id=name) for name, case in REGISTRY.items()]
COUNTED = [pytest.param(case, id=name, marks=UNANSWERED.get(name, ())) for name, case in REGISTRY.items()]
MADE = [pytest.param(case, id=name) for name, case in REGISTRY.items() if case.make is not None]


def public_mechanisms() -> set[type]:
    """Every public class of mechanisms that can be called to make a release."""
    names = (getattr(mechanisms, name) for name in mechanisms.__all__)
    return {kind for kind in names if isinstance(kind, type) and "__call__" in dir(kind)}


def test_every_mechanism_has_a_case():
    made = {type(case.make(1)) for case in REGISTRY.values() if case.make is not None}
    assert public_mechanisms() <= made
    assert len(public_mechanisms()) >= 10


def test_every_event_has_a_case():
    kinds = {getattr(events, name) for name in events.__all__ if name not in ("Event", "from_json")}
    assert kinds <= {type(case.event) for case in REGISTRY.values()}


def test_cases_are_complete():
    """A case with a mechanism has all that the battery needs; none is silently left out of a check."""
    for case in REGISTRY.values():
        if case.make is not None:
            parts = (case.broken, case.data, case.pair, case.noise)
            assert all(part is not None for part in parts), case.name
            assert case.bad_inputs, case.name


@pytest.mark.parametrize("case", MADE)
def test_event_is_the_expected_one(case: Case):
    mechanism = case.make(1)
    assert mechanism.event == case.event
    assert mechanism.noise == "seeded"
    assert case.make(None).noise in ("exact", "float64")
    assert case.broken(1).event == case.event


def test_calibrated_noise_claims_what_was_asked():
    case = REGISTRY["gaussian_calibrated_vector"]
    assert 1 - 1e-6 < accounting.epsilon(case.event, case.delta) <= 1


@pytest.mark.parametrize("case", ALL)
def test_json(case: Case):
    check_json(case.event)


@pytest.mark.parametrize("case", COUNTED)
def test_repetition(case: Case):
    check_repetition(case.event)


NOTHING = (events.Compose(()), events.Repeat(events.Gaussian(1.0), 0), events.Parallel(()))


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize(
    "method",
    ["tightest", *(pytest.param(name, marks=UNANSWERED.get(name, ())) for name in accounting.METHODS)],
)
def test_nothing_costs_nothing(method: str, relation: str, delta: float):
    for nothing in NOTHING:
        try:
            assert accounting.epsilon(nothing, delta, relation=relation, method=method) == 0
        except UnsupportedEvent:
            continue


@pytest.mark.parametrize("case", MADE)
def test_noise(case: Case):
    check_noise(case)


@pytest.mark.parametrize("case", MADE)
def test_fresh(case: Case):
    check_fresh(case)


@pytest.mark.parametrize("case", MADE)
def test_audit(case: Case):
    check_audit(case)


@pytest.mark.parametrize("case", MADE)
def test_charged_first(case: Case, tmp_path: Path):
    check_charged_first(case, tmp_path)


@pytest.mark.parametrize("case", MADE)
def test_bad_inputs(case: Case):
    check_bad_inputs(case)
