"""Attacks over Flower: servers that press clients with a pinned plan, and apps as newcomers write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp.strategy import FedAvg

import flower_apps as apps
from tacit import Budget, Ledger
from tacit.errors import InvalidValue
from tacit.federated import CLIENT, FederatedPlan, Quantile
from tacit.federated.flower import ProcessGrid, clipped, private
from tacit.federated.flower.messages import RECORD, Instruction


def local(**changed: Any) -> FederatedPlan:
    facts: dict[str, Any] = {
        "clients": 4, "cohort": 4, "rounds": 2, "noise_multiplier": 2.0, "delta": 1e-5, "trust": "nobody",
    }  # fmt: skip
    return FederatedPlan(**{**facts, **changed})


def asked(grid: ProcessGrid, plan: FederatedPlan, stage: str = "update", **facts: Any) -> Message:
    """The reply of the first client to a server that states these facts about a round."""
    told = Instruction(plan.to_dict(), stage, 0, {"clip_norm": plan.clip_norm, "client": 0, **facts})
    content = RecordDict({"arrays": apps.model(), RECORD: told.record()})
    (reply,) = grid.send_and_receive([Message(content, 1000, MessageType.TRAIN)])
    return reply


def idle(message: Message, context: Context) -> Message:
    return apps.answered(message, apps.moved(message, 0.0))


@pytest.mark.parametrize("clipping", ["fixed", Quantile(count_noise=0.5)], ids=["fixed", "adaptive"])
@pytest.mark.parametrize("clip_norm", [5e-324, 1e-310, 1e-200, 1e200, 1.7e308])
def test_no_clip_norm_of_the_server_tells_updates_apart(clip_norm: float, clipping: Any) -> None:
    """With a subnormal clip_norm a report of zeros was sent, and every other raised ZeroDivisionError."""
    plan = apps.plan(clipping=clipping) if clipping != "fixed" else local()
    outcomes = []
    for train in (idle, apps.steady):
        grid = ProcessGrid(apps.app(train, mods=[clipped(plan)]), 1)
        outcomes.append(asked(grid, plan, clip_norm=clip_norm).has_error())
        assert RECORD not in grid._contexts[1000].state
    assert outcomes == [True, True]


@pytest.mark.parametrize("clip_norm", [1e-9, 0.5, 2.0, 1e9])
def test_a_pinned_clip_norm_is_not_the_servers_to_choose(clip_norm: float) -> None:
    plan = local()
    grid = ProcessGrid(apps.app(apps.steady, mods=[clipped(plan)]), 1)
    reply = asked(grid, plan, clip_norm=clip_norm)
    assert "not the one of the plan" in reply.error.reason
    assert not asked(grid, plan).has_error()


def test_a_pinned_clip_norm_holds_under_secure_aggregation_too() -> None:
    plan = local(trust="aggregator", noise_multiplier=0.1)
    grid = ProcessGrid(apps.app(apps.steady, mods=[clipped(plan)]), 1)
    facts = {"session": "00" * 16, "round": 0, "asked": 4, "dimension": 10, "rotation": 5}
    assert "not the one of the plan" in asked(grid, plan, "keys", **facts, clip_norm=5e-324).error.reason
    assert not asked(grid, plan, "keys", **facts).has_error()


@pytest.mark.parametrize("spoilt", [{"metrics": None}, {"metrics": [1]}, {"clipping": {}}, {"trust": "silo"}])
def test_no_message_makes_the_mod_raise(spoilt: dict[str, Any]) -> None:
    """Flower sends the text of an exception to the server, and forgets what the client has counted."""
    plan = {**apps.plan().to_dict(), **spoilt}
    plan.pop("delta")
    told = Instruction(plan, "update", 0, {"clip_norm": 1.0})
    for train in (apps.steady, apps.one_faulty(apps.FAULTS["an exception"], who=0)):
        grid = ProcessGrid(apps.app(train), 1)
        content = RecordDict({"arrays": apps.model(), RECORD: told.record()})
        (reply,) = grid.send_and_receive([Message(content, 1000, MessageType.TRAIN)])
        assert not reply.has_error() or "raised" not in reply.error.reason


@pytest.mark.parametrize("trust", ["server", "nobody"])
def test_a_pinned_client_counts_and_charges_under_every_trust(trust: str, tmp_path: Path) -> None:
    """Under trust="server" a pinned client sent any number of reports, and its ledger stayed empty."""
    plan = local(trust=trust, participations=2, rounds=4, sampling="rotation")
    with Ledger.open(
        tmp_path / "mine.db", budget=Budget(9 * plan.epsilon, 1e-3), unit=CLIENT, relation=plan.relation
    ) as ledger:
        grid = ProcessGrid(apps.app(apps.steady, mods=[clipped(plan, ledger=ledger)]), 1)
        assert [asked(grid, plan).has_error() for _ in range(4)] == [False, False, True, True]
        assert len(ledger.entries()) == 1


def _forgets(message: Message, context: Context) -> Message:
    context.state = RecordDict()
    return apps.steady(message, context)


def _leaves(message: Message, context: Context) -> Message:
    raise SystemExit("a secret row: 4711")


@pytest.mark.parametrize("train", [_forgets, _leaves])
def test_no_train_function_makes_a_client_forget_its_reports_or_stay_silent(train: apps.Train) -> None:
    plan = local(participations=2, rounds=4)
    grid = ProcessGrid(apps.app(train, mods=[clipped(plan)]), 1)
    assert [asked(grid, plan).has_error() for _ in range(4)] == [False, False, True, True]


def test_usual_mistakes_with_the_mod_are_explained() -> None:
    with pytest.raises(InvalidValue, match=r"mods=\[clipped\]"):
        clipped()  # type: ignore[call-overload]
    silo = FederatedPlan(clients=3, cohort=3, rounds=1, epsilon=1.0, delta=1e-5, trust="silo")
    with pytest.raises(InvalidValue, match="silo"):
        clipped(silo, ledger=object())  # type: ignore[call-overload]


def test_a_cohort_above_a_hundred_masks_on_a_sparse_graph() -> None:
    """Ten of 130 clients answer nothing; each client sends sealed shares to its neighbours alone."""
    from tacit.federated.secure import SharesMessage

    plan = local(
        clients=130, cohort=130, rounds=1, trust="aggregator", noise_multiplier=0.003, dropouts=20, bits=24
    )
    shares: list[int] = []

    class Losing(ProcessGrid):
        def answer(self, message: Message) -> Message:
            reply = super().answer(message)
            stage = message.content[RECORD]["stage"]
            if stage == "shares":
                payload = reply.content[RECORD]["payload"]
                shares.append(len(SharesMessage.from_bytes(payload).boxes))
            lost = message.metadata.dst_node_id < 1010 and stage == "masked"
            return apps.FAULTS["an error"](message) if lost else reply

    def train(message: Message, context: Context) -> Message:
        return apps.answered(message, apps.moved(message, 0.1))

    grid = Losing(apps.app(train, mods=[clipped(plan)]), 130)
    arrays = private(FedAvg(), plan, None).start(grid, apps.model()).arrays
    assert len(shares) == 130
    assert max(shares) < 100
    for array in arrays.values():
        assert array.numpy() == pytest.approx(np.full(array.shape, 0.1 * 120 / 130), abs=0.01)


def _torch_app() -> tuple[ArrayRecord, Callable[[Message, Context], Message]]:
    torch = pytest.importorskip("torch")

    def network() -> Any:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))

    def train(message: Message, context: Context) -> Message:
        model = network()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        inputs = torch.randn(8, 2)
        model(inputs).square().mean().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        return apps.answered(message, ArrayRecord(model.state_dict()))

    return ArrayRecord(network().state_dict()), train


def _sklearn_app() -> tuple[ArrayRecord, Callable[[Message, Context], Message]]:
    from sklearn.linear_model import SGDClassifier

    def train(message: Message, context: Context) -> Message:
        model = SGDClassifier(loss="log_loss", random_state=0)
        model.partial_fit(np.eye(3), [0, 1, 1], classes=[0, 1])
        model.coef_, model.intercept_ = message.content["arrays"].to_numpy_ndarrays()
        model.partial_fit(np.eye(3), [0, 1, 1])
        return apps.answered(message, ArrayRecord([model.coef_, model.intercept_]))

    return ArrayRecord([np.zeros((1, 3)), np.zeros(1)]), train


@pytest.mark.parametrize("make", [_torch_app, _sklearn_app], ids=["PyTorch", "scikit-learn"])
@pytest.mark.parametrize("trust", ["server", "aggregator"])
def test_an_app_of_a_newcomer_becomes_private(make: Any, trust: str) -> None:
    """A state_dict with batch normalization's counter of steps, and coef_ with intercept_."""
    start, train = make()
    plan = local(trust=trust, noise_multiplier=0.01, dropouts=0 if trust == "server" else 1)
    mods = [clipped] if trust == "server" else [clipped(plan)]
    grid = ProcessGrid(apps.app(train, mods=mods), 4)
    arrays = private(FedAvg(), plan, None).start(grid, start).arrays
    assert list(arrays) == list(start)
    for name, array in start.items():
        assert arrays[name].dtype == array.dtype
        learned = not np.array_equal(arrays[name].numpy(), array.numpy())
        assert learned is (np.dtype(array.dtype).kind == "f")


def test_a_reply_that_flower_cannot_read_does_not_end_the_run() -> None:
    class Unreadable(apps.TrickyGrid):
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Message]:
            super().send_and_receive(messages, timeout=timeout)
            if len(self.sent) < 9:
                raise ValueError("not all required objects are there: a secret row: 4711")
            return self.received[-4:]

    plan = apps.plan(clients=4, cohort=4)
    grid = Unreadable(apps.app(apps.steady), 4)
    arrays = private(FedAvg(), plan, None).start(grid, apps.model()).arrays
    assert arrays["bias"].numpy() == pytest.approx(np.full(4, 0.025), abs=1e-4)
