"""The battery: what every case in the registry inherits.

Mechanisms and one case of every other kind are audited here. Other audits take many whole fits and runs:
``make audit`` has them (``tests/statistical/test_library_audit.py``).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from contract.registry import (
    Case,
    audited_here,
    check_audit,
    check_bad_inputs,
    check_charged_first,
    check_fresh,
    check_json,
    check_noise,
    check_repetition,
    check_support,
    registered,
)
from tacit import accounting, events

REGISTRY = registered()

MADE = [pytest.param(case, id=name) for name, case in REGISTRY.items() if case.make is not None]
SEEN = [pytest.param(case, id=name) for name, case in REGISTRY.items() if case.noise is not None]
AUDITED = [pytest.param(case, id=case.name) for case in audited_here()]

EVENTS = [
    pytest.param(event, id=name)
    for event, name in {case.event: name for name, case in reversed(REGISTRY.items())}.items()
]
"""Each event once, under the name of the first case that charges it."""


def test_every_event_has_a_case():
    others = ("Event", "WITHOUT_PRIVACY", "from_json")
    kinds = {getattr(events, name) for name in events.__all__ if name not in others}
    assert kinds <= {type(case.event) for case in REGISTRY.values()}


def test_cases_are_complete():
    """A case with a mechanism has all that the battery needs, or says why a check is left out."""
    for case in REGISTRY.values():
        if case.make is not None:
            assert case.broken is not None, case.name
            assert case.data is not None, case.name
            assert case.bad_inputs, case.name
            assert set(case.left_out) == {part for part in ("noise", "pair") if getattr(case, part) is None}


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


@pytest.mark.parametrize("event", EVENTS)
def test_json(event: events.Event):
    check_json(event)


@pytest.mark.parametrize("event", EVENTS)
def test_repetition(event: events.Event):
    check_repetition(event)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_nothing_costs_nothing(relation: str, delta: float):
    for nothing in (events.Compose(()), events.Repeat(events.Gaussian(1.0), 0), events.Parallel(())):
        for method in ("tightest", "basic", "advanced", "zcdp", "rdp", "pld"):
            assert accounting.epsilon(nothing, delta, relation=relation, method=method) == 0, method


@pytest.mark.parametrize("case", SEEN)
def test_noise(case: Case):
    check_noise(case)


@pytest.mark.parametrize("case", MADE)
def test_fresh(case: Case):
    check_fresh(case)


@pytest.mark.parametrize("case", AUDITED)
def test_audit(case: Case):
    check_audit(case)


@pytest.mark.parametrize("case", SEEN)
def test_no_trailing_bit_tells_the_value(case: Case):
    """Also where the noise is computed in float64: value and noise meet on a grid."""
    if np.asarray(case.make(1)(case.data)).dtype.kind == "f":
        check_support(case)


@pytest.mark.parametrize("case", MADE)
def test_charged_first(case: Case, tmp_path: Path):
    check_charged_first(case, tmp_path)


@pytest.mark.parametrize("case", MADE)
def test_bad_inputs(case: Case):
    check_bad_inputs(case)
