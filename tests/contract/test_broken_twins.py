"""The battery's own checks reject what is broken: each is called on a twin with one known fault."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from contract import broken, cases, registry
from contract.registry import Case
from tacit import accounting, events

REGISTRY = registry.registered()

ALL = [pytest.param(case, id=name) for name, case in REGISTRY.items()]
SEEN = [pytest.param(case, id=name) for name, case in REGISTRY.items() if case.noise is not None]
AUDITED = [pytest.param(case, id=case.name) for case in registry.audited_here()]


@pytest.mark.parametrize("case", SEEN)
def test_two_thirds_of_the_noise_by_its_scale(case: Case):
    with pytest.raises(AssertionError, match="noise is off"):
        registry.check_noise(case, case.broken)


@pytest.mark.parametrize("case", AUDITED)
def test_less_noise_by_audit(case: Case):
    with pytest.raises(AssertionError, match=r"claims ε = .*, but ε ≥"):
        registry.check_audit(case, case.broken, seed=2)


def test_more_noise_than_claimed_is_not_passed_off():
    case = REGISTRY["laplace"]
    too_much = cases.claiming(
        case.event, lambda seed: cases.mechanisms.Laplace(1.5, epsilon=1.0, random_state=seed)
    )
    with pytest.raises(AssertionError, match="noise is off"):
        registry.check_noise(case, too_much)


def test_the_wrong_shape_of_noise():
    with pytest.raises(AssertionError, match="noise is off"):
        registry.check_noise(REGISTRY["laplace"], broken.LaplaceLike)


def test_floating_point_noise_passed_off_as_exact():
    case = REGISTRY["laplace"]
    registry.check_noise(case, broken.FloatingLaplace)
    with pytest.raises(AssertionError, match=r"claims ε = .*, but ε ≥"):
        registry.check_support(case, broken.FloatingLaplace)


def test_too_few_samples_are_noticed():
    """A check that could not tell two thirds of the noise from all of it says so."""
    case = REGISTRY["laplace"]
    with pytest.raises(AssertionError, match="would pass unnoticed"):
        registry.check_noise(replace(case, noise=replace(case.noise, runs=100)))


class TestClipping:
    @pytest.mark.parametrize("side", [lambda case: case, broken.below], ids=["above", "below"])
    def test_clipped(self, side):
        registry.check_audit(side(broken.sum_case(broken.ClippedSum)))

    @pytest.mark.parametrize("side", [lambda case: case, broken.below], ids=["above", "below"])
    def test_not_clipped(self, side):
        with pytest.raises(AssertionError, match="UnclippedSum claims"):
            registry.check_audit(side(broken.sum_case(broken.UnclippedSum)))

    def test_clipped_on_one_side(self):
        case = broken.sum_case(broken.ClippedOnOneSide)
        registry.check_audit(case)
        with pytest.raises(AssertionError, match="ClippedOnOneSide claims"):
            registry.check_audit(broken.below(case))


class TestCharging:
    @pytest.mark.parametrize(
        ("release", "finding"),
        [
            (broken.release_then_charge, "touched although the charge was refused"),
            (broken.release_without_charge, "beyond the budget"),
            (broken.release_in_spite_of_refusal, "beyond the budget"),
            (broken.release_of_half, "beyond the budget"),
        ],
        ids=lambda value: getattr(value, "__name__", None),
    )
    @pytest.mark.parametrize("name", ["laplace", "gaussian", "sparse_vector"])
    def test_broken_order(self, name: str, release, finding: str, tmp_path: Path):
        with pytest.raises(AssertionError, match=finding):
            registry.check_charged_first(REGISTRY[name], tmp_path, release)


class TestRepetition:
    @pytest.mark.parametrize("accountant", [broken.forgets_repetition, broken.forgets_every_count])
    @pytest.mark.parametrize("case", ALL)
    def test_forgotten(self, case: Case, accountant):
        with pytest.raises(AssertionError, match="cost"):
            registry.check_repetition(case.event, accountant)

    def test_only_one_method_forgets(self):
        def forgets(event: events.Event, delta: float, *, relation: str, method: str) -> float:
            accountant = broken.forgets_every_count if method == "pld" else accounting.epsilon
            return accountant(event, delta, relation=relation, method=method)

        with pytest.raises(AssertionError, match="by pld"):
            registry.check_repetition(events.RandomizedResponse(1.0, 3), forgets)


def test_unknown_fields_are_not_ignored():
    with pytest.raises(AssertionError, match="was read as"):
        registry.check_json(events.Gaussian(1.0), broken.forgets_to_check)


def test_noise_that_repeats_itself():
    with pytest.raises(AssertionError, match="one stream"):
        registry.check_fresh(REGISTRY["laplace"], broken.RepeatsItself)


def test_nan_that_passes():
    case = REGISTRY["laplace"]
    calls = [("call(nan)", partial(broken.AcceptsAnything(), np.nan), ValueError)]
    with pytest.raises(AssertionError, match="accepted"):
        registry.check_bad_inputs(replace(case, bad_inputs=tuple(calls)))


def test_the_wrong_error():
    def divides() -> float:
        return 1 / 0

    calls = (("division", divides, ValueError),)
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        registry.check_bad_inputs(replace(REGISTRY["laplace"], bad_inputs=calls))
