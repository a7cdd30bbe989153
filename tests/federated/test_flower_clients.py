"""The client mod: which plan it follows, what it refuses, and what it sends where nobody is trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp.strategy import FedAvg

import flower_apps as apps
from flower_apps import FAULTS, TrickyGrid
from tacit import Budget, Ledger, events
from tacit.federated import CLIENT, FederatedPlan
from tacit.federated.flower import ProcessGrid, clipped, private
from tacit.federated.flower.silos import promised
from tacit.guarantee import Guarantee


def local(**changed: Any) -> FederatedPlan:
    """Ten clients, each in one of two rounds, whom nobody else protects."""
    facts: dict[str, Any] = {
        "clients": 10, "cohort": 5, "rounds": 2, "noise_multiplier": 2.0, "delta": 1e-5, "trust": "nobody",
    }  # fmt: skip
    return FederatedPlan(**{**facts, **changed})


def run(plan: FederatedPlan, train: apps.Train, mods: Any, clients: int | None = None) -> TrickyGrid:
    grid = TrickyGrid(apps.app(train, mods=mods), clients or plan.clients)
    private(FedAvg(), plan, None).start(grid, apps.model())
    return grid


def reasons(grid: TrickyGrid) -> set[str]:
    return {reply.error.reason for reply in grid.received if reply.has_error()}


def never(message: Message, context: Context) -> Message:
    raise AssertionError("the rows were read")


def flat(record: ArrayRecord) -> np.ndarray:
    return np.concatenate([array.numpy().astype(float).ravel() for array in record.values()])


def test_a_client_that_trusts_nobody_takes_no_plan_from_the_server() -> None:
    told = reasons(run(local(), never, [clipped]))
    assert told == {
        "Under trust='nobody' a client does not take its plan from the server: use clipped(plan)."
    }


@pytest.mark.parametrize(
    "other", [{"noise_multiplier": 1.0}, {"clip_norm": 2.0}, {"delta": 1e-4}, {"participations": 2}]
)
def test_a_client_refuses_any_other_plan_than_its_own(other: dict[str, Any]) -> None:
    (told,) = reasons(run(local(**other), never, [clipped(local())]))
    assert told.startswith("The server's plan is not the one")


def test_a_server_of_less_trust_cannot_ask_for_the_bare_update() -> None:
    (told,) = reasons(run(apps.plan(), never, [clipped(local())]))
    assert told.startswith("The server's plan is not the one")


@pytest.mark.parametrize("randomizer", ["gaussian", "privunit"])
def test_reports_are_randomized_on_the_client(randomizer: str) -> None:
    changed = {"randomizer": "privunit", "noise_multiplier": 0.0, "report_epsilon": 6.0}
    plan = local(**(changed if randomizer == "privunit" else {}))
    grid = run(plan, apps.steady, [clipped(plan)])
    reports = [flat(reply.content["tacit.update"]) for reply in grid.received]
    assert len(reports) == 10
    assert all(list(reply.content) == ["tacit.update"] for reply in grid.received)
    assert len({report.tobytes() for report in reports}) == 10
    assert np.mean([np.linalg.norm(report) for report in reports]) > 1.5


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_on_a_client_cannot_be_seen_in_its_report(fault: str) -> None:
    plan = local()
    grid = run(plan, lambda message, context: FAULTS[fault](message), [clipped(plan)])
    assert not reasons(grid)
    assert {tuple(reply.content) for reply in grid.received} == {("tacit.update",)}
    assert all(np.isfinite(flat(reply.content["tacit.update"])).all() for reply in grid.received)


def instructed(grid: ProcessGrid, plan: FederatedPlan, number: int) -> Message:
    """What a server sends that asks one client again and again."""
    from tacit.federated.flower.messages import RECORD, Instruction

    told = Instruction(plan.to_dict(), "update", number, {"clip_norm": plan.clip_norm, "client": 0})
    content = RecordDict({"arrays": apps.model(), "config": ConfigRecord(), RECORD: told.record()})
    return Message(content, 1000, MessageType.TRAIN, group_id="greedy")


def test_a_client_sends_no_more_reports_than_the_plan_allows() -> None:
    plan = local(participations=2, rounds=4)
    grid = ProcessGrid(apps.app(apps.steady, mods=[clipped(plan)]), 1)
    replies = [reply for each in range(5) for reply in grid.send_and_receive([instructed(grid, plan, each)])]
    assert [reply.has_error() for reply in replies] == [False, False, True, True, True]
    assert "as many reports as the plan allows" in replies[-1].error.reason


def test_a_client_with_a_ledger_pays_for_each_run_before_its_first_report(tmp_path: Path) -> None:
    plan = local(participations=2, rounds=4)
    with Ledger.open(
        tmp_path / "mine.db", budget=Budget(2.5 * plan.epsilon, 1e-4), unit=CLIENT, relation="replace_one"
    ) as ledger:
        seen = []

        def train(message: Message, context: Context) -> Message:
            seen.append(len(ledger.entries()))
            return apps.steady(message, context)

        sent = []
        for _ in range(6):
            grid = ProcessGrid(apps.app(train, mods=[clipped(plan, ledger=ledger)]), 1)
            for number in range(2):
                (reply,) = grid.send_and_receive([instructed(grid, plan, number)])
                sent.append(not reply.has_error())
        runs = len(ledger.entries())
        assert 2 <= runs < 6
        assert sent == [True] * 2 * runs + [False] * (12 - 2 * runs)
        assert seen == [each + 1 for each in range(runs) for _ in range(2)]


def test_a_client_answers_to_nothing_but_rounds() -> None:
    app = apps.app(never)
    app.evaluate()(never)
    app.query()(never)
    grid = ProcessGrid(app, 2)
    for kind in (MessageType.TRAIN, MessageType.EVALUATE, MessageType.QUERY):
        message = Message(RecordDict({"arrays": apps.model(), "config": ConfigRecord()}), 1000, kind)
        (reply,) = grid.send_and_receive([message])
        assert reply.has_error()
        assert "rounds of tacit.federated.private alone" in reply.error.reason


@pytest.mark.parametrize(
    "facts",
    [
        {"clip_norm": 0.0},
        {"clip_norm": -1.0},
        {"clip_norm": float("inf")},
        {"clip_norm": "1"},
        {},
        {"clip_norm": True},
    ],
)
def test_a_client_refuses_a_clip_norm_that_is_none(facts: dict[str, Any]) -> None:
    from tacit.federated.flower.messages import RECORD, Instruction

    grid = ProcessGrid(apps.app(never), 1)
    told = Instruction(apps.plan().to_dict(), "update", 0, facts)
    message = Message(RecordDict({"arrays": apps.model(), RECORD: told.record()}), 1000, MessageType.TRAIN)
    (reply,) = grid.send_and_receive([message])
    assert "clip_norm above 0" in reply.error.reason


def silo_plan() -> FederatedPlan:
    return FederatedPlan(clients=3, cohort=3, rounds=1, epsilon=1.0, delta=1e-5, trust="silo")


@pytest.mark.parametrize(
    ("stated", "sends"),
    [
        (Guarantee(1.0, 1e-5, events.Approximate(1.0, 1e-5)), True),
        (Guarantee(0.5, 0.0, events.Pure(0.5)), True),
        (Guarantee(1.1, 1e-5, events.Approximate(1.1, 1e-5)), False),
        (Guarantee(1.0, 1e-4, events.Approximate(1.0, 1e-4)), False),
        (Guarantee(1.0, 1e-5, events.Approximate(1.0, 1e-5), "replace_one"), False),
        (Guarantee(1.0, 1e-5, events.Approximate(1.0, 1e-5), noise="seeded"), False),
        (None, False),
    ],
)
def test_a_silo_sends_what_its_own_guarantee_covers(stated: Guarantee | None, sends: bool) -> None:
    def train(message: Message, context: Context) -> Message:
        reply = apps.answered(message, apps.moved(message, 30.0))
        reply.content.update({} if stated is None else promised(stated))
        return reply

    grid = run(silo_plan(), train, [clipped])
    assert all(reply.has_error() is not sends for reply in grid.received)
    if sends:
        assert flat(grid.received[0].content["tacit.update"]) == pytest.approx([30.0] * 10)
