"""Attacks on the rounds of a federation that once told more than was paid for, or failed after the charge."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy.stats import binom, norm

from tacit import accounting
from tacit.errors import InvalidValue, LedgerError
from tacit.federated import CLIENT, FederatedPlan, Metric, Quantile, Rounds, simulate
from tacit.federated.checkpoint import Checkpoint
from tacit.federated.cohorts import Cohorts
from tacit.ledger import Budget, Ledger

FACTS: dict[str, Any] = {"clients": 8, "cohort": 4, "rounds": 6, "delta": 1e-5, "noise_multiplier": 2.0}


def plan_of(**more: Any) -> FederatedPlan:
    return FederatedPlan(**{**FACTS, "trust": "server", **more})


# ---------------------------------------------------------------------------------- noise is drawn once


def test_a_checkpoint_that_cannot_be_written_draws_no_second_noise(tmp_path: Path) -> None:
    plan = plan_of(cohort=8, clipping=Quantile(count_noise=2.0), metrics=(Metric("loss", -9.0, 9.0, 1.0),))
    rounds = Rounds(plan, [(2,)], checkpoint=tmp_path / "run")
    one = rounds.begin()
    offered: list[Checkpoint] = []

    def full(self: Checkpoint, path: Any) -> None:
        offered.append(self)
        raise OSError("No space left on device")

    with mock.patch.object(Checkpoint, "write", full):
        for _ in range(2):
            with pytest.raises(OSError, match="No space"):
                one.finish()
    update = one.finish()
    assert rounds.metrics == one.metrics
    for each in (*offered, Checkpoint.read(tmp_path / "run")):
        assert each.update is not None
        assert np.array_equal(each.update, update[0])
        assert (each.metrics, each.clip_norm) == (rounds.metrics, rounds.clip_norm)


def test_a_finished_round_cannot_be_given_up() -> None:
    one = Rounds(plan_of(), [(2,)]).begin()
    update = one.finish()
    one.give_up()
    assert not one.aborted
    assert np.array_equal(one.finish()[0], update[0])


def test_a_round_too_many_leaves_the_last_one_open() -> None:
    rounds = Rounds(plan_of(rounds=1), [(2,)])
    one = rounds.begin()
    with pytest.raises(InvalidValue, match="all were taken"):
        rounds.begin()
    assert one.finish()[0].any()


# ----------------------------------------------------------------------------------- the cap of a client


def test_an_older_file_put_back_keeps_the_cap(tmp_path: Path) -> None:
    """The ledger knows a round that the older file does not: everybody may have been in its cohort."""
    plan = plan_of(sampling="rotation", participations=2)
    file, old = tmp_path / "run", tmp_path / "old"
    often = np.zeros(plan.clients, int)
    with Ledger.open(tmp_path / "a.db", Budget(plan.epsilon * 1.01, 1e-5), unit=CLIENT) as ledger:
        Rounds(plan, [(2,)], ledger=ledger, checkpoint=file).begin([0, 1]).finish()
        often[[0, 1]] += 1
        for _ in range(2):
            rounds = Rounds(plan, [(2,)], ledger=ledger, checkpoint=file)
            shutil.copy(file, old)
            try:
                one = rounds.begin([0, 1])
            except InvalidValue:
                break
            often[list(one.cohort)] += 1
            one.finish()
            shutil.copy(old, file)
        while not (rounds := Rounds(plan, [(2,)], ledger=ledger, checkpoint=file)).finished:
            one = rounds.begin()
            often[list(one.cohort)] += 1
            one.finish()
    assert often.max() <= 2


def test_threads_take_no_round_and_no_client_twice() -> None:
    plan = plan_of(clients=400, cohort=200, rounds=4, sampling="rotation")
    rounds = Rounds(plan, [(2,)])
    together, begun, refused = threading.Barrier(8), [], []

    def server() -> None:
        together.wait()
        try:
            begun.append(rounds.begin())
        except (InvalidValue, LedgerError) as error:
            refused.append(error)

    draw = Cohorts.draw

    def slow(*given: Any) -> tuple[int, ...]:
        members = draw(*given)
        time.sleep(0.01)
        return members

    threads = [threading.Thread(target=server) for _ in range(8)]
    with mock.patch.object(Cohorts, "draw", slow):
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert sorted(each.number for each in begun) == [0, 1, 2, 3]
    assert len(refused) == 4
    assert max(np.bincount([client for each in begun for client in each.cohort])) <= plan.participations


# -------------------------------------------------------------------------- silence that tells about rows


@pytest.mark.parametrize("trust", ["aggregator", "nobody"])
def test_a_client_that_fails_on_its_rows_is_not_silent(trust: str) -> None:
    """Silence is seen by the server, and gives a round of secure aggregation up: it must not tell of rows."""
    plan = plan_of(trust=trust, cohort=8, rounds=1)

    def update(client: int, parameters: Any) -> Any:
        if client == 3:
            raise RuntimeError("a row of this client")
        return [np.zeros(2)]

    seen: list[Any] = []
    run = simulate(plan, update, [np.zeros(2)], progress=seen.append)
    assert seen[0].private_counts.received == 8
    assert run.parameters[0].any(), "the round was not given up"


def test_the_guarantee_says_that_silence_is_not_covered() -> None:
    for trust in ("aggregator", "nobody"):
        assert "whether a client answers does not depend on its rows" in str(
            plan_of(trust=trust).guarantee().assumptions
        )


# --------------------------------------------------------------- cohorts that are hidden, and rounds given up


def given_up_delta(plan: FederatedPlan, epsilon: float) -> float:
    """δ of one round at ε if exactly one other client was drawn: there is a sum if the client was, too."""
    noise, far = plan.noise_multiplier, epsilon * plan.noise_multiplier
    unamplified = norm.cdf(0.5 / noise - far) - np.exp(epsilon) * norm.cdf(-0.5 / noise - far)
    others = binom.pmf(1, plan.clients - 1, plan.sampling_rate)
    return float(plan.sampling_rate * others * unamplified)


def test_small_secret_cohorts_that_are_given_up_are_paid_for() -> None:
    plan = plan_of(
        clients=200, cohort=4, rounds=1, noise_multiplier=0.5, delta=0.01, trust="aggregator",
        sampling="poisson",
    )  # fmt: skip
    for epsilon in (1.0, 2.0, 3.0):
        assert accounting.delta(plan.event, epsilon, relation="add_remove") >= given_up_delta(plan, epsilon)
    with pytest.raises(InvalidValue, match="larger under sampling='poisson'"):
        plan_of(clients=1000, cohort=4, trust="aggregator", sampling="poisson")


def test_large_secret_cohorts_cost_what_they_did() -> None:
    hidden = plan_of(clients=6000, cohort=600, trust="aggregator", sampling="poisson")
    assert hidden.epsilon == pytest.approx(plan_of(clients=6000, cohort=600).epsilon, rel=1e-9)
    assert "kept secret" not in str(hidden.guarantee_against_server().assumptions)
    assert "given up" in str(hidden.guarantee().assumptions)


def test_a_federation_of_very_many_clients_with_secret_cohorts() -> None:
    plan = plan_of(clients=10**7, cohort=10**4, rounds=1, trust="aggregator", sampling="poisson", bits=30)
    assert 10_400 < plan.largest_cohort < 10_600
    assert plan.guarantee_against_server().epsilon > 0
    assert plan.guarantee_against_server().event.events[1].times >= 1


# --------------------------------------------------------------------------- refusals come before the charge


@pytest.mark.parametrize(
    "facts",
    [
        {"trust": "nobody", "randomizer": "privunit", "noise_multiplier": 0.0, "report_epsilon": 1.0},
        {"noise_multiplier": 1e12},
        {"trust": "nobody", "noise_multiplier": 1e12},
    ],
    ids=str,
)
def test_noise_that_cannot_be_drawn_is_refused_before_the_charge(facts: Any, tmp_path: Path) -> None:
    plan = plan_of(**facts)
    with Ledger.open(tmp_path / "a.db", Budget(100.0, 1e-5), unit=CLIENT, relation=plan.relation) as ledger:
        with pytest.raises(InvalidValue):
            Rounds(plan, [(1,)], ledger=ledger)
        assert not ledger.entries()


@pytest.mark.parametrize(
    "facts",
    [
        {"metrics": Metric("loss", 0.0, 1.0)},
        {"weights": 5},
        {"weights": [5e-324, *[0.0] * 7]},
        {"weights": [0.0] * 8},
    ],
    ids=str,
)
def test_usual_mistakes_are_named(facts: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(facts))):
        plan_of(**facts)


def test_metrics_of_a_range_too_small_to_halve_are_refused() -> None:
    with pytest.raises(InvalidValue, match="bounds"):
        Metric("loss", 0.0, 5e-324)


@pytest.mark.parametrize("cohort", [["a"], [1.5], [None], 3])
def test_chosen_cohorts_are_whole_numbers(cohort: Any) -> None:
    with pytest.raises(InvalidValue, match="cohort"):
        Rounds(plan_of(sampling="rotation"), [(2,)]).begin(cohort)


def test_numbers_of_numpy_name_clients() -> None:
    one = Rounds(plan_of(sampling="rotation"), [(2,)]).begin([3])
    assert one.receive(np.int64(3), [np.ones(2)])
    assert not one.receive(3, [np.ones(2)])


def test_a_printed_epsilon_is_not_below_the_true_one() -> None:
    for noise in (1.23, 1.3, 1.7, 2.1):
        plan = plan_of(noise_multiplier=noise, delta=1.0000004e-5)
        shown = str(plan).split("ε = ")[1].split()
        assert float(shown[0]) >= plan.epsilon
        assert float(shown[4]) >= plan.delta
