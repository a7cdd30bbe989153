"""What goes wrong if a check of a round is forgotten, found by the audit; and what holds with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from contract.federated_cases import CLIENTS, FAR, PLANS, case_of, making, sending
from contract.registry import Make, audited
from tacit.federated import FederatedPlan, Rounds
from tacit.federated import process as in_process
from tacit.federated.rounds import Round

SURVIVORS = CLIENTS // 5


def asked_survivors(one: Round, client_update: Any, parameters: Any, rounds: Rounds) -> None:
    """All clients but the first few drop out, with their shares of the noise."""
    encoder, survivors = one.encoder(), one.cohort[:SURVIVORS]
    total = np.zeros(encoder.width, np.uint64)
    for client in survivors:
        report = one.reports.vector(client_update(client, parameters)[0])
        total += encoder.encode(report, rounds.client_source(one.number, client), cohort=len(one.cohort))
    one.opened(total & np.uint64((1 << one.plan.bits) - 1), survivors)


@contextmanager
def dropped_out() -> Iterator[None]:
    """Too few clients survive."""
    with mock.patch.object(in_process, "_ask", asked_survivors):
        yield


@contextmanager
def opened_anyway() -> Iterator[None]:
    """A server that opens a sum whatever the number of survivors."""
    with dropped_out(), mock.patch.object(FederatedPlan, "needed", return_value=1):
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
    made = making(plan, breaking=dropped_out if sound else opened_anyway)
    found = audited(replace(case, pair=pair), made)
    assert (found.epsilon <= case.epsilon) == sound
