"""Flower apps in one process: what is released, what clients may send, and what is paid."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as strategies
from scipy import stats

import flower_apps as apps
from flower_apps import FAULTS, LONG, TrickyGrid
from tacit import Budget, Ledger
from tacit.errors import BudgetExceeded, InvalidValue
from tacit.federated import CLIENT, FederatedPlan, Metric, Quantile, simulate
from tacit.federated.flower import ProcessGrid, clipped, private

AVERAGING = {
    "FedAvg": strategies.FedAvg,
    "FedAvgM": lambda: strategies.FedAvgM(server_learning_rate=0.5, server_momentum=0.9),
    "FedAdam": lambda: strategies.FedAdam(eta=0.1, tau=0.1),
    "FedYogi": lambda: strategies.FedYogi(eta=0.1, tau=0.1),
    "FedAdagrad": lambda: strategies.FedAdagrad(eta=0.1, tau=0.1),
    "FedProx": lambda: strategies.FedProx(proximal_mu=0.1),
}


def numbers(arrays: ArrayRecord) -> np.ndarray:
    return np.concatenate([array.numpy().astype(float).ravel() for array in arrays.values()])


def learned(
    train: apps.Train, strategy: Any = None, *, mods: Any = (clipped,), grid: Any = None, **facts: Any
) -> np.ndarray:
    """The model after all rounds of a plan, with seeded noise."""
    plan = apps.plan(**facts)
    grid = grid or ProcessGrid(apps.app(train, mods=mods), plan.clients)
    return numbers(
        private(strategy or strategies.FedAvg(), plan, None, random_state=5).start(grid, apps.model()).arrays
    )


@pytest.mark.parametrize("name", AVERAGING)
def test_a_strategy_acts_on_the_private_mean_as_it_does_on_the_mean(name: str) -> None:
    found = learned(apps.steady, AVERAGING[name]())
    plain = AVERAGING[name]()
    plain.fraction_evaluate = 0.0
    grid = ProcessGrid(apps.app(apps.steady, mods=()), 10)
    expected = numbers(plain.start(grid, apps.model(), num_rounds=3).arrays)
    assert found == pytest.approx(expected, abs=2e-4)
    assert np.abs(expected).max() > 0.01


@pytest.mark.parametrize("mods", [(clipped,), ()], ids=["with the mod", "without it"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_reply_counts_as_zero(fault: str, mods: Any) -> None:
    found = learned(apps.one_faulty(FAULTS[fault]), mods=mods)
    assert np.array_equal(found, learned(apps.one_faulty(None), mods=mods))


@pytest.mark.parametrize("mods", [(clipped,), ()], ids=["with the mod", "without it"])
@pytest.mark.parametrize("fault", LONG)
def test_a_long_reply_is_clipped(fault: str, mods: Any) -> None:
    found = learned(apps.one_faulty(LONG[fault]), mods=mods, rounds=1)
    without = learned(apps.one_faulty(None), mods=mods, rounds=1)
    assert np.linalg.norm(found - without) == pytest.approx(1.0 / 10, rel=1e-6)


def test_a_reply_that_comes_twice_late_or_from_a_stranger_counts_once_or_never() -> None:
    def with_replies(twice: int, late: int) -> np.ndarray:
        grid = TrickyGrid(apps.app(apps.steady), 12)
        grid.twice, grid.late = (
            {1000 + each for each in range(twice)},
            {1000 + each for each in range(9, 9 + late)},
        )
        return learned(apps.steady, grid=grid)

    assert np.array_equal(with_replies(0, 0), with_replies(3, 0))
    zero_instead = learned(apps.one_faulty(None, who=9))
    assert np.array_equal(with_replies(3, 1), zero_instead)


def test_nodes_beyond_the_plan_are_not_asked_and_missing_ones_count_as_zero() -> None:
    grid = TrickyGrid(apps.app(apps.steady), 14)
    many = learned(apps.steady, grid=grid)
    assert {message.metadata.dst_node_id for message in grid.sent} == set(range(1000, 1010))
    assert np.array_equal(many, learned(apps.steady))
    few = learned(apps.steady, grid=TrickyGrid(apps.app(apps.steady), 9), rounds=1)
    assert np.array_equal(few, learned(apps.one_faulty(None, who=9), rounds=1))


def test_the_noise_is_that_of_the_plan() -> None:
    """A χ² test of the released coordinates, which refuses two thirds of the noise."""

    def variance(noise_multiplier: float) -> float:
        plan = apps.plan(rounds=40, clients=4, cohort=4, noise_multiplier=noise_multiplier, clip_norm=2.0)
        grid = ProcessGrid(apps.app(apps.one_faulty(None, who=0)), 0)
        steps, before = [], np.zeros(10)
        strategy = private(strategies.FedAvg(min_available_nodes=0, min_train_nodes=0), plan, None)

        def keep(number: int, arrays: ArrayRecord) -> None:
            nonlocal before
            steps.append(numbers(arrays) - before)
            before = numbers(arrays)

        strategy.start(grid, apps.model(), evaluate_fn=keep)
        return float(np.sum(np.square(steps[1:])))

    deviation = 1.5 * 2.0 / 4
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], 400)
    assert low < variance(1.5) / deviation**2 < high
    assert not low < variance(1.0) / deviation**2 < high


@pytest.mark.parametrize("mods", [(clipped,), ()], ids=["with the mod", "without it"])
def test_flower_releases_what_the_rounds_release(mods: Any) -> None:
    """With one seed for both, so that the audits of Rounds and their broken twins cover Flower too."""
    plan = apps.plan(clients=30, cohort=10, rounds=4, noise_multiplier=1.0, clip_norm=0.2)

    def train(message: Message, context: Context) -> Message:
        (given,) = message.content["arrays"].to_numpy_ndarrays()
        return apps.answered(message, ArrayRecord([given + update(apps.number_of(context), given)]))

    def update(client: int, given: np.ndarray) -> np.ndarray:
        return 0.5 * (np.arange(5.0) * client / 100 - given)

    grid = ProcessGrid(apps.app(train, mods=mods), 30)
    found = private(strategies.FedAvg(), plan, None, random_state=8).start(grid, ArrayRecord([np.zeros(5)]))
    expected = simulate(plan, lambda client, given: [update(client, given[0])], [np.zeros(5)], random_state=8)
    assert numbers(found.arrays) == pytest.approx(expected.parameters[0], abs=1e-12)
    other = simulate(plan, lambda client, given: [update(client, given[0])], [np.zeros(5)], random_state=9)
    assert numbers(found.arrays) != pytest.approx(other.parameters[0], abs=1e-3)


def test_a_run_is_charged_once_before_anybody_is_asked(tmp_path: Path) -> None:
    plan = apps.plan(noise_multiplier=0.0, epsilon=3.0)
    seen = []

    with Ledger.open(tmp_path / "study.db", budget=Budget(5.0, 1e-4), unit=CLIENT) as ledger:

        def train(message: Message, context: Context) -> Message:
            seen.append(ledger.spent().epsilon)
            return apps.steady(message, context)

        grid = ProcessGrid(apps.app(train), 10)
        strategy = private(strategies.FedAvg(), plan, ledger)
        strategy.start(grid, apps.model())
        assert len(seen) == 30
        assert min(seen) == max(seen) > 0
        assert len(ledger.entries()) == 1
        assert strategy.guarantee.epsilon == 3.0
        assert strategy.guarantee.unit == CLIENT
        seen.clear()
        with pytest.raises(BudgetExceeded):
            private(strategies.FedAvg(), plan, ledger).start(grid, apps.model())
        assert not seen


def test_what_leaves_a_client_is_a_clipped_update_and_nothing_else() -> None:
    def train(message: Message, context: Context) -> Message:
        assert "tacit" not in message.content
        return apps.answered(message, apps.moved(message, 100.0), loss=0.7, secret=4711.0)

    grid = TrickyGrid(apps.app(train), 10)
    learned(train, grid=grid, rounds=1)
    for reply in grid.received:
        assert list(reply.content) == ["tacit.update"]
        assert np.linalg.norm(numbers(reply.content["tacit.update"])) <= 1 + 1e-6


class Spy(strategies.FedAvg):
    """A strategy that notes what it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[list[Message]] = []

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        self.shown.append(list(replies))
        return super().aggregate_train(server_round, self.shown[-1])


def test_the_wrapped_strategy_sees_one_reply_without_metrics_of_clients() -> None:
    spy = Spy()
    learned(apps.steady, spy)
    assert [len(replies) for replies in spy.shown] == [1, 1, 1]
    for (reply,) in spy.shown:
        assert list(reply.content) == ["arrays", "metrics"]
        assert dict(reply.content["metrics"]) == {"num-examples": 1.0}


def test_metrics_are_absent_or_bought() -> None:
    def evaluated(records: list[RecordDict], weighted_by: str) -> MetricRecord:
        raise AssertionError("no client is evaluated")

    def run(**facts: Any) -> Any:
        plan = apps.plan(noise_multiplier=1.0, **facts)
        grid = TrickyGrid(apps.app(apps.steady), 10)
        wrapped = strategies.FedAvg(evaluate_metrics_aggr_fn=evaluated, train_metrics_aggr_fn=evaluated)
        return private(wrapped, plan, None, random_state=3).start(grid, apps.model()), grid

    result, grid = run()
    assert not result.train_metrics_clientapp
    assert not result.evaluate_metrics_clientapp
    assert all("tacit.metrics" not in reply.content for reply in grid.received)
    result, grid = run(metrics=(Metric("loss", 0.0, 2.0, noise=0.3),))
    assert all(dict(reply.content["tacit.metrics"]) == {"loss": 0.5} for reply in grid.received)
    bought = [metrics["loss"] for metrics in result.train_metrics_clientapp.values()]
    assert len(set(bought)) == 3
    assert set(bought) != {0.5}


def test_adaptive_clipping_gets_the_new_norm_to_the_clients() -> None:
    def train(message: Message, context: Context) -> Message:
        return apps.answered(message, apps.moved(message, 1.0))

    grid = TrickyGrid(apps.app(train), 10)
    learned(
        train, grid=grid, noise_multiplier=1.0, clip_norm=0.1, clipping=Quantile(count_noise=0.1), rounds=10
    )
    lengths = [np.linalg.norm(numbers(reply.content["tacit.update"])) for reply in grid.received]
    assert lengths[0] == pytest.approx(0.1, rel=1e-5)
    assert lengths[-1] > 0.15


def test_a_poisson_cohort_is_secret_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("flwr").propagate = True
    plan = apps.plan(clients=40, cohort=10, noise_multiplier=1.0, rounds=6)
    with caplog.at_level(logging.DEBUG):
        grid = TrickyGrid(apps.app(apps.steady), 40)
        private(strategies.FedAvg(), plan, None).start(grid, apps.model())
    sizes = {
        str(len([m for m in grid.sent if m.metadata.group_id == g]))
        for g in {m.metadata.group_id for m in grid.sent}
    }
    assert len(sizes) > 1
    assert "[ROUND 6/6]" in caplog.text
    told = caplog.text.replace(plan.describe(), "")
    assert "Sampled" not in told
    assert "results" not in told
    assert not any(str(node) in told for node in grid.get_node_ids())


@pytest.mark.parametrize(
    "strategy",
    [
        strategies.Krum(), strategies.MultiKrum(), strategies.Bulyan(), strategies.FedMedian(),
        strategies.FedTrimmedAvg(), strategies.QFedAvg(0.1), strategies.FedXgbBagging(),
        strategies.DifferentialPrivacyServerSideFixedClipping(strategies.FedAvg(), 1.0, 1.0, 2), object(),
    ],
    ids=lambda each: type(each).__name__,
)  # fmt: skip
def test_strategies_that_compare_clients_or_add_noise_are_refused(strategy: Any) -> None:
    with pytest.raises(InvalidValue, match="strategy must be"):
        private(strategy, apps.plan(), None)


def test_more_rounds_than_the_plan_has_are_refused_before_the_charge(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "study.db", budget=Budget(5.0, 1e-4), unit=CLIENT) as ledger:
        strategy = private(strategies.FedAvg(), apps.plan(), ledger)
        with pytest.raises(InvalidValue, match="num_rounds must be between 1 and 3"):
            strategy.start(ProcessGrid(apps.app(apps.steady), 10), apps.model(), num_rounds=4)
        assert not ledger.entries()


def test_whole_numbers_of_a_model_stay_as_they_were() -> None:
    from flwr.app import Array

    start = ArrayRecord({"weight": Array(np.zeros(2)), "steps": Array(np.array(5))})

    def train(message: Message, context: Context) -> Message:
        sent = message.content["arrays"]
        after = {"weight": Array(sent["weight"].numpy() + 0.1), "steps": Array(np.array(77))}
        return apps.answered(message, ArrayRecord(after))

    plan = apps.plan(rounds=1)
    found = private(strategies.FedAvg(), plan, None).start(ProcessGrid(apps.app(train), 10), start).arrays
    assert found["steps"].numpy() == 5
    assert found["weight"].numpy() == pytest.approx([0.1, 0.1], abs=1e-4)


def test_a_plan_of_another_class_is_refused() -> None:
    with pytest.raises(InvalidValue, match="FederatedPlan"):
        private(strategies.FedAvg(), {"clients": 3}, None)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="FederatedPlan"):
        clipped("plan")  # type: ignore[call-overload]
    assert isinstance(apps.plan(), FederatedPlan)


def test_a_shuffler_is_not_claimed_where_the_server_sees_the_senders() -> None:
    plan = FederatedPlan(
        clients=500, cohort=500, rounds=1, epsilon=1.0, delta=1e-5, trust="nobody", randomizer="privunit",
        shuffler=True,
    )  # fmt: skip
    with pytest.raises(InvalidValue, match="shuffler"):
        private(strategies.FedAvg(), plan, None)
    with pytest.raises(InvalidValue, match="shuffler"):
        clipped(plan)
