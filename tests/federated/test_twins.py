"""What goes wrong if a check of a round is forgotten, found by the audit; and what holds with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from contract.federated_cases import CLIENTS, FAR, PLANS, case_of, making, sending
from contract.registry import Make, audited
from tacit.federated import FederatedPlan

SURVIVORS = CLIENTS // 5


@contextmanager
def opened_anyway() -> Iterator[None]:
    """A server that opens a sum whatever the number of survivors."""
    with mock.patch.object(FederatedPlan, "needed", return_value=1):
        yield


def runs_of_survivors(make: Make, lengths: np.ndarray, times: int, seed: int | None) -> np.ndarray:
    """The coordinates of those that answer; all others drop out with their shares of the noise."""
    made = make(seed)
    return np.concatenate([made(lengths).T[: len(lengths)] for _ in range(-(-times // len(lengths)))])[:times]


@pytest.mark.parametrize("sound", [True, False])
def test_a_sum_that_too_few_survive_must_not_be_opened(sound: bool) -> None:
    plan = PLANS["federated_aggregator"]
    case = case_of("survivors", plan, 1500)
    assert case.pair is not None
    pair = replace(
        case.pair, value=sending(FAR)[:SURVIVORS], neighbour=sending(0.0)[:SURVIVORS], run=runs_of_survivors
    )
    twin = making(plan, breaking=opened_anyway)
    found = audited(replace(case, pair=pair), making(plan) if sound else twin)
    assert (found.epsilon <= case.epsilon) == sound
