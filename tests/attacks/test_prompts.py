"""Attacks on prompts, on numbers and functions whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from tacit import attacks
from tacit.errors import InvalidValue


def test_what_is_easy_for_every_prompt_is_no_sign():
    assert attacks.calibrated([5.0, 1.0], [5.0, 0.0]).tolist() == [0.0, 1.0]
    rng = np.random.default_rng(1)
    ease, member = rng.normal(0, 5, 400), np.arange(400) < 200
    target, references = ease + member + rng.normal(0, 0.3, 400), ease + rng.normal(0, 0.3, (8, 400))
    raw = attacks.MembershipScores(target, member).auroc
    assert raw < 0.7 < 0.95 < attacks.MembershipScores(attacks.calibrated(target, references), member).auroc


def test_exposure_of_first_and_last():
    assert attacks.exposure(0.0, [-1.0] * 7).bits == 3.0
    assert attacks.exposure(-1.0, [-1.0] * 7).bits == 0.0


def test_extraction_counts_attempts():
    said = {"My": "nothing", "The": "code is 1 2\n3"}
    assert attacks.extract(said.__getitem__, "CODE is 123", ["My", "The"]) == attacks.Extracted(
        True, 2, ("nothing", "code is 1 2\n3")
    )
    assert not attacks.extract(str.upper, "123", ["a", "b"]).found


@pytest.mark.parametrize(
    "call",
    [
        lambda: attacks.calibrated([1.0], [[1.0, 2.0]]),
        lambda: attacks.calibrated([], []),
        lambda: attacks.calibrated([np.nan], [1.0]),
        lambda: attacks.exposure(np.inf, [1.0]),
        lambda: attacks.exposure(1.0, []),
        lambda: attacks.extract(str, "  ", ["a"]),
        lambda: attacks.extract(str, "secret", "abc"),
    ],
)
def test_bad_inputs(call):
    with pytest.raises(InvalidValue):
        call()
