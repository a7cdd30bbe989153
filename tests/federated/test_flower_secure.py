"""Secure aggregation over Flower: the sum, dropouts at every stage, and what a client refuses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message
from flwr.serverapp.strategy import FedAvg

import flower_apps as apps
from tacit.errors import InvalidValue, MessageRefused
from tacit.federated import FederatedPlan, Metric
from tacit.federated.flower import ProcessGrid, clipped, private
from tacit.federated.flower.messages import RECORD, Instruction
from tacit.federated.secure import KeysMessage, Occasion, SecureClient, SecureServer


def secret(**changed: Any) -> FederatedPlan:
    """Six clients in each of two rounds, of which two may leave, with little noise."""
    facts: dict[str, Any] = {
        "clients": 6, "cohort": 6, "rounds": 2, "noise_multiplier": 0.005, "delta": 1e-5,
        "trust": "aggregator", "dropouts": 2, "bits": 24,
    }  # fmt: skip
    return FederatedPlan(**{**facts, **changed})


def flat(record: ArrayRecord) -> np.ndarray:
    return np.concatenate([array.numpy().astype(float).ravel() for array in record.values()])


class StagedGrid(ProcessGrid):
    """A grid that notes the stages, and loses replies of some of them."""

    def __init__(self, plan: FederatedPlan, train: apps.Train = apps.steady, pinned: Any = None) -> None:
        super().__init__(apps.app(train, mods=[clipped(pinned or plan)]), plan.clients)
        self.lost: set[tuple[str, int]] = set()
        self.sent: list[tuple[str, Message]] = []
        self.received: list[tuple[str, Message]] = []

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        messages = list(messages)
        stage = messages[0].content[RECORD]["stage"]
        self.sent += [(stage, message) for message in messages]
        replies = [
            reply
            for reply in super().send_and_receive(messages, timeout=timeout)
            if (stage, reply.metadata.src_node_id - 1000) not in self.lost
        ]
        self.received += [(stage, reply) for reply in replies]
        return replies

    def stages(self) -> list[str]:
        return list(dict.fromkeys(stage for stage, _ in self.sent))


def learned(plan: FederatedPlan, grid: ProcessGrid) -> np.ndarray:
    return flat(private(FedAvg(), plan, None).start(grid, apps.model(), num_rounds=1).arrays)


def expected(*clients: int) -> np.ndarray:
    """What the mean of the updates of these clients, of six, comes to."""
    return np.full(10, sum(0.01 * (each + 1) for each in clients) / 6)


def test_the_server_learns_the_noisy_sum() -> None:
    plan = secret()
    grid = StagedGrid(plan)
    assert learned(plan, grid) == pytest.approx(expected(*range(6)), abs=0.01)
    assert grid.stages() == ["keys", "shares", "masked", "unmask"]
    assert not any(reply.has_error() for _, reply in grid.received)


def test_nothing_but_masked_numbers_and_shares_leaves_a_client() -> None:
    plan = secret()
    grid = StagedGrid(plan)
    learned(plan, grid)
    assert {tuple(reply.content) for _, reply in grid.received} == {(RECORD,)}
    assert {tuple(reply.content[RECORD]) for _, reply in grid.received} == {("payload",)}
    for stage, message in grid.sent:
        assert ("arrays" in message.content) == (stage == "masked")


@pytest.mark.parametrize("stage", ["keys", "shares", "masked", "unmask"])
def test_clients_may_leave_at_every_stage(stage: str) -> None:
    plan = secret()
    grid = StagedGrid(plan)
    grid.lost = {(stage, 1), (stage, 4)}
    left = range(6) if stage == "unmask" else (0, 2, 3, 5)
    assert learned(plan, grid) == pytest.approx(expected(*left), abs=0.01)


@pytest.mark.parametrize("stage", ["keys", "shares", "masked", "unmask"])
def test_where_too_few_are_left_nothing_is_opened(stage: str) -> None:
    plan = secret()
    grid = StagedGrid(plan)
    grid.lost = {(stage, 1), (stage, 3), (stage, 4)}
    strategy = private(FedAvg(), plan, None)
    found = strategy.start(grid, apps.model(), num_rounds=2)
    assert not flat(found.arrays).any()
    assert ("unmask" in grid.stages()) == (stage == "unmask")
    assert strategy.guarantee.epsilon == plan.epsilon


@pytest.mark.parametrize("fault", apps.FAULTS)
def test_a_fault_on_a_client_counts_as_zero_and_cannot_be_seen(fault: str) -> None:
    plan = secret()
    grid = StagedGrid(plan, apps.one_faulty(apps.FAULTS[fault]))
    assert learned(plan, grid) == pytest.approx(expected(0, 1, 2, 4, 5), abs=0.01)
    assert not any(reply.has_error() for _, reply in grid.received)


def test_an_update_is_clipped_before_it_is_masked() -> None:
    plan = secret(clip_norm=0.5)
    grid = StagedGrid(plan, apps.one_faulty(apps.LONG["norm 1e9"]))
    others = np.full(10, sum(0.01 * (each + 1) for each in (0, 1, 2, 4, 5)) / 6)
    assert np.linalg.norm(learned(plan, grid) - others) == pytest.approx(0.5 / 6, abs=0.01)


def test_metrics_and_poisson_cohorts() -> None:
    plan = secret(
        clients=30, cohort=20, rounds=2, sampling="poisson", dropouts=8, noise_multiplier=0.5,
        metrics=(Metric("loss", 0.0, 1.0, noise=0.2),),
    )  # fmt: skip
    grid = StagedGrid(plan)
    result = private(FedAvg(), plan, None).start(grid, apps.model())
    assert list(result.train_metrics_clientapp) == [1, 2]
    assert not any("tacit.metrics" in reply.content for _, reply in grid.received)


def test_the_noise_is_in_what_clients_send_and_is_that_of_the_plan() -> None:
    """With σ = 4 the released coordinates have the deviation σ·clip_norm ÷ cohort, or a little more."""
    plan = secret(noise_multiplier=4.0, rounds=6, participations=6)
    steps: list[np.ndarray] = []
    private(FedAvg(), plan, None).start(
        StagedGrid(plan, apps.one_faulty(None)), ArrayRecord([np.zeros(400)]),
        evaluate_fn=lambda number, arrays: steps.append(flat(arrays)),
    )  # fmt: skip
    found = np.std(np.diff(steps, axis=0))
    assert 4.0 / 6 * 0.95 < found < 4.0 / 6 * np.sqrt(6 / 4) * 1.1


def conversation(plan: FederatedPlan) -> tuple[ProcessGrid, dict[str, Any]]:
    grid = ProcessGrid(apps.app(apps.steady, mods=[clipped(plan)]), plan.clients)
    facts = {
        "session": "00" * 16, "round": 0, "asked": 6, "clip_norm": 1.0, "dimension": 10, "rotation": 5,
        "client": 0,
    }  # fmt: skip
    return grid, facts


def said(
    grid: ProcessGrid, plan: FederatedPlan, stage: str, facts: dict[str, Any], *payload: bytes
) -> Message:
    content = apps.RecordDict({RECORD: Instruction(plan.to_dict(), stage, 0, facts, payload).record()})
    (reply,) = grid.send_and_receive([Message(content, 1000, "train")])
    return reply


@pytest.mark.parametrize(
    "wrong",
    [
        {"asked": 7},
        {"asked": 1},
        {"asked": "6"},
        {"client": 6},
        {"client": None},
        {"clip_norm": 0.0},
        {"session": "x"},
    ],
)
def test_a_round_that_is_none_of_the_plan_is_refused(wrong: dict[str, Any]) -> None:
    plan = secret()
    grid, facts = conversation(plan)
    assert said(grid, plan, "keys", {**facts, **wrong}).has_error()


def test_the_facts_of_a_round_hold_until_its_end() -> None:
    plan = secret()
    grid, facts = conversation(plan)
    assert not said(grid, plan, "keys", facts).has_error()
    assert said(grid, plan, "shares", {**facts, "asked": 5}, b"").has_error()
    assert "tacit.masking" not in grid._contexts[1000].state


@pytest.mark.parametrize("stage", ["shares", "masked", "unmask", "open everything"])
def test_no_stage_comes_before_the_first_or_with_garbage(stage: str) -> None:
    plan = secret()
    grid, facts = conversation(plan)
    assert said(grid, plan, stage, facts, b"garbage").has_error()
    assert not said(grid, plan, "keys", facts).has_error()
    assert said(grid, plan, stage, facts, b"garbage").has_error()
    assert said(grid, plan, stage, facts, b"garbage").has_error()


def test_a_client_takes_part_as_often_as_it_agreed_to() -> None:
    plan = secret(participations=2, rounds=2)
    grid, facts = conversation(plan)
    outcomes = [said(grid, plan, "keys", {**facts, "round": each}).has_error() for each in range(4)]
    assert outcomes == [False, False, True, True]


def test_a_client_that_was_asked_for_its_share_gives_no_second_one() -> None:
    """Shares of a self-mask and of the mask key of one client are never both given."""
    plan = secret()
    asked: list[Message] = []

    class Greedy(StagedGrid):
        def send_and_receive(
            self, messages: Iterable[Message], *, timeout: float | None = None
        ) -> list[Message]:
            messages = list(messages)
            replies = super().send_and_receive(messages, timeout=timeout)
            if messages[0].content[RECORD]["stage"] == "unmask":
                again = [Message(each.content, each.metadata.dst_node_id, "train") for each in messages]
                asked.extend(ProcessGrid.send_and_receive(self, again))
            return replies

    learned(plan, Greedy(plan))
    assert len(asked) == 6
    assert all(reply.has_error() for reply in asked)


def test_a_client_cannot_speak_for_another() -> None:
    plan = secret()

    class Forging(StagedGrid):
        def answer(self, message: Message) -> Message:
            reply = super().answer(message)
            if message.metadata.dst_node_id == 1002 and message.content[RECORD]["stage"] == "keys":
                keys = replace(KeysMessage.from_bytes(reply.content[RECORD]["payload"]), number=3)
                reply.content[RECORD]["payload"] = keys.to_bytes()
            return reply

    assert learned(plan, Forging(plan)) == pytest.approx(expected(0, 1, 3, 4, 5), abs=0.01)


def test_a_client_of_secure_aggregation_survives_being_written_down() -> None:
    """Between all steps, with one client that leaves: the sum is exact, and no step is taken twice."""
    on, vectors = Occasion(bytes(16), 3), {number: np.arange(4) * (number + 1) for number in range(4)}
    clients = {number: SecureClient(number, 3, on=on, dimension=4, bits=20) for number in vectors}

    def again(number: int) -> SecureClient:
        clients[number] = SecureClient.from_bytes(clients[number].to_bytes())
        return clients[number]

    server = SecureServer(clients, 3, 4, 20, on=on)
    rosters = server.keys([again(number).advertise() for number in vectors])
    inboxes = server.shares([again(number).share(roster) for number, roster in rosters.items()])
    with pytest.raises(MessageRefused):
        again(0).share(rosters[0])
    del inboxes[0]
    lists = server.masked([again(n).masked(vectors[n], inbox) for n, inbox in inboxes.items()])
    total = server.unmask([again(number).unmask(alive) for number, alive in lists.items()])
    assert total.tolist() == (vectors[1] + vectors[2] + vectors[3]).tolist()


def unpinned(message: Message, context: Context) -> Message:
    raise AssertionError("the rows were read")


def test_without_a_pinned_plan_a_client_refuses() -> None:
    plan = secret()
    grid = ProcessGrid(apps.app(unpinned), 6)
    assert not learned(plan, grid).any()


def test_a_plan_whose_cohorts_no_sparse_graph_bears_is_refused_before_anything_is_paid() -> None:
    plan = secret(clients=6000, cohort=600, dropouts=290, noise_multiplier=4.0)
    with pytest.raises(InvalidValue, match="dropouts"):
        private(FedAvg(), plan, ledger=None)
    with pytest.raises(InvalidValue, match="dropouts"):
        clipped(plan)
