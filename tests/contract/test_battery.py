"""The battery: what every case in the registry inherits."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from contract import cases, table_cases  # noqa: F401  (fill the registry)
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
    check_support,
)
from tacit import accounting, events, mechanisms

if find_spec("torch"):
    from contract import training_cases  # noqa: F401

MADE = [pytest.param(case, id=name) for name, case in REGISTRY.items() if case.make is not None]

EVENTS = [
    pytest.param(event, id=name)
    for event, name in {case.event: name for name, case in reversed(REGISTRY.items())}.items()
]
"""Each event once, under the name of the first case that charges it."""


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
