"""The rounds of a server: what hostile, slow or absent clients can do, and what is charged and released."""

from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tacit import events
from tacit.errors import BudgetExceeded, InvalidValue, TacitError
from tacit.federated import CLIENT, FederatedPlan, Metric, Rounds
from tacit.federated.rounds import Round
from tacit.ledger import Budget, Ledger
from tacit.relations import Unit
from tacit.training import Quantile

NAN, INF = math.nan, math.inf


def plan_of(**facts: Any) -> FederatedPlan:
    """Rounds of all of a few clients, with so little noise that sums can be read."""
    usual = {"clients": 8, "cohort": 8, "rounds": 3, "noise_multiplier": 1e-6, "delta": 1e-5}
    return FederatedPlan(**{"trust": "server", **usual, **facts})


def begun(plan: FederatedPlan | None = None, **options: Any) -> Round:
    return Rounds(plan or plan_of(), [(2,), (1, 1)], **options).begin()


def update(length: float = 0.5) -> list[np.ndarray]:
    return [np.array([length, 0.0]), np.zeros((1, 1))]


HOSTILE = {
    "NaN": [np.array([NAN, 1.0]), np.zeros((1, 1))],
    "infinity": [np.array([INF, 1.0]), np.zeros((1, 1))],
    "minus infinity": [np.array([0.0, 1.0]), np.array([[-INF]])],
    "a wrong shape": [np.ones(3), np.zeros((1, 1))],
    "one array too few": [np.ones(2)],
    "one array too many": [*update(), np.ones(1)],
    "nothing": None,
    "text": "update",
    "objects": [np.array([object(), object()]), np.zeros((1, 1))],
    "complex numbers": [np.array([1j, 1.0]), np.zeros((1, 1))],
}


@pytest.mark.parametrize("sent", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_update_counts_as_zeros(sent: Any) -> None:
    one = begun()
    assert not one.receive(0, sent)
    for client in range(1, 8):
        assert one.receive(client, update())
    assert not one.receive(0, update()), "the first report counts"
    released = one.finish()
    np.testing.assert_allclose(released[0], [7 * 0.5 / 8, 0.0], atol=1e-4)
    assert [each.shape for each in released] == [(2,), (1, 1)]
    counts = one.private_counts
    assert (counts.asked, counts.received, counts.zero, counts.refused) == (8, 8, 1, 1)


@pytest.mark.parametrize("length", [1e9, 1e300, -1e9, 1.0])
def test_a_long_update_counts_as_one_of_clip_norm(length: float) -> None:
    one = begun()
    assert one.receive(3, update(length))
    np.testing.assert_allclose(one.finish()[0], [math.copysign(1 / 8, length), 0.0], atol=1e-4)


@pytest.mark.parametrize("client", [8, -1, 10**9, "0", None, 0.0, True, [0], np.int64(8)], ids=str)
def test_strangers_are_refused(client: Any) -> None:
    one = begun()
    assert not one.receive(client, update())
    np.testing.assert_allclose(one.finish()[0], 0.0, atol=1e-4)


def test_late_and_second_reports_are_refused() -> None:
    one = begun()
    assert one.receive(0, update())
    assert not one.receive(0, update(-0.5))
    released = one.finish()
    assert not one.receive(1, update())
    for again, first in zip(one.finish(), released, strict=True):
        assert np.array_equal(again, first), "a round has one release"
    np.testing.assert_allclose(released[0], [0.5 / 8, 0.0], atol=1e-4)


def test_what_is_returned_is_a_copy() -> None:
    one = begun()
    one.finish()[0][:] = 7.0
    assert not (one.finish()[0] == 7.0).any()


def test_an_empty_round_is_an_ordinary_round() -> None:
    one = begun(plan_of(noise_multiplier=1.0))
    released = one.finish()
    assert np.abs(released[0]).max() > 0, "there is noise on nothing"
    assert not one.aborted


def test_the_divisor_is_public() -> None:
    """One report or eight: the sum is divided by the expected cohort."""
    plan = plan_of(clients=16, cohort=8, rounds=1)
    one = begun(plan, random_state=5)
    assert len(one.cohort) != 8
    for client in one.cohort:
        one.receive(client, update())
    np.testing.assert_allclose(one.finish()[0][0], len(one.cohort) * 0.5 / 8, atol=1e-4)


def test_the_charge_comes_first_and_once(tmp_path: Path) -> None:
    plan = plan_of(noise_multiplier=2.0)
    with Ledger.open(tmp_path / "a.db", Budget(plan.epsilon / 2, 1e-5), unit=CLIENT) as poor:
        rounds = Rounds(plan, [(2,), (1, 1)], ledger=poor)
        with pytest.raises(BudgetExceeded):
            rounds.begin()
        assert not poor.entries()
        with pytest.raises(InvalidValue, match="not begun"):
            _ = rounds.guarantee
    with Ledger.open(tmp_path / "b.db", Budget(plan.epsilon * 1.01, 1e-5), unit=CLIENT) as ledger:
        rounds = Rounds(plan, [(2,), (1, 1)], ledger=ledger)
        for _ in range(3):
            rounds.begin().finish()
        assert [entry.event for entry in ledger.entries()] == [plan.event]
        assert ledger.spent().epsilon <= plan.epsilon * 1.01
        with pytest.raises(InvalidValue, match="all were taken"):
            rounds.begin()
        assert rounds.guarantee.epsilon == plan.epsilon
        assert rounds.guarantee.noise == "exact"


def test_a_ledger_of_rows_is_refused(tmp_path: Path) -> None:
    with (
        Ledger.open(tmp_path / "rows.db", Budget(10.0, 1e-5), unit=Unit()) as ledger,
        pytest.raises(TacitError, match="protects one row, not one client"),
    ):
        Rounds(plan_of(), [(2,)], ledger=ledger)


def test_a_silo_has_no_ledger_at_the_server(tmp_path: Path) -> None:
    plan = FederatedPlan(clients=4, cohort=4, rounds=2, epsilon=1.0, delta=1e-5, trust="silo")
    with (
        Ledger.open(tmp_path / "rows.db", Budget(10.0, 1e-5)) as ledger,
        pytest.raises(InvalidValue, match="own ledger"),
    ):
        Rounds(plan, [(2,)], ledger=ledger)


def test_silos_are_averaged_as_they_are() -> None:
    plan = FederatedPlan(clients=4, cohort=4, rounds=2, epsilon=1.0, delta=1e-5, trust="silo")
    one = Rounds(plan, [(2,), (1, 1)]).begin()
    for client, length in enumerate((1.0, 3.0, NAN, 4.0)):
        one.receive(client, update(length))
    np.testing.assert_allclose(one.finish()[0], [2.0, 0.0], rtol=1e-5)


def test_a_round_that_is_still_open_is_given_up() -> None:
    rounds = Rounds(plan_of(noise_multiplier=1.0), [(2,), (1, 1)])
    first = rounds.begin()
    first.receive(0, update())
    second = rounds.begin()
    assert first.aborted
    assert not first.receive(1, update())
    assert not any(each.any() for each in first.finish()), "nothing is released of it"
    assert second.number == 1
    second.finish()


def test_rounds_are_not_copied() -> None:
    rounds = Rounds(plan_of(), [(2,)])
    for made in (rounds, rounds.begin()):
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(InvalidValue, match="copied or pickled"):
                way(made)


def test_a_forked_process_releases_nothing() -> None:
    """Parent and child would draw different noise for one round."""
    rounds = Rounds(plan_of(noise_multiplier=1.0), [(2,), (1, 1)])
    one = rounds.begin()
    with mock.patch("os.getpid", return_value=-1):
        for way in (one.finish, rounds.begin):
            with pytest.raises(InvalidValue, match="another process"):
                way()
    one.finish()


def test_noise_has_the_stated_scale() -> None:
    plan = plan_of(noise_multiplier=3.0, clip_norm=0.5, rounds=1)
    one = Rounds(plan, [(40_000,)], random_state=2).begin()
    spread = one.finish()[0].std() * plan.divisor
    assert spread == pytest.approx(1.5, rel=0.03)
    again = Rounds(plan, [(40_000,)], random_state=2).begin().finish()[0]
    assert np.array_equal(one.finish()[0], again)
    other = Rounds(plan, [(40_000,)]).begin().finish()[0]
    assert not np.array_equal(other, Rounds(plan, [(40_000,)]).begin().finish()[0])


def test_rounds_of_one_run_have_noise_of_their_own() -> None:
    rounds = Rounds(plan_of(noise_multiplier=1.0), [(5,)], random_state=2)
    first, second = rounds.begin().finish()[0], rounds.begin().finish()[0]
    assert not np.array_equal(first, second)


# ----------------------------------------------------------------- cohorts


def test_poisson_cohorts() -> None:
    plan = plan_of(clients=1000, cohort=100, rounds=400)
    rounds = Rounds(plan, [(1,)], random_state=4)
    cohorts = [rounds.begin().cohort for _ in range(400)]
    sizes = np.array([len(cohort) for cohort in cohorts])
    assert sizes.mean() == pytest.approx(100, abs=3)
    assert sizes.std() == pytest.approx(math.sqrt(90), rel=0.25)
    often = np.bincount(np.concatenate(cohorts), minlength=1000)
    assert often.std() == pytest.approx(math.sqrt(400 * 0.09), rel=0.15)
    with pytest.raises(InvalidValue, match="secret draw"):
        Rounds(plan, [(1,)]).begin([1, 2])


def test_nobody_is_asked_more_often_than_allowed() -> None:
    plan = plan_of(clients=10, cohort=4, rounds=7, sampling="rotation")
    rounds = Rounds(plan, [(1,)])
    cohorts = [rounds.begin().cohort for _ in range(7)]
    assert plan.participations == 3
    assert {len(cohort) for cohort in cohorts} == {4}
    assert np.bincount(np.concatenate(cohorts)).max() <= 3


def test_chosen_cohorts_keep_the_cap() -> None:
    plan = plan_of(clients=10, cohort=4, rounds=7, sampling="rotation", participations=1)
    rounds = Rounds(plan, [(1,)])
    assert rounds.begin([3, 1, 3]).cohort == (1, 3)
    for chosen in ([1], [10], [-1], range(5)):
        with pytest.raises(InvalidValue):
            rounds.begin(chosen)
    assert rounds.number == 1, "a refused choice takes no round"
    rounds.begin()
    rounds.begin()
    assert rounds.begin().cohort == ()


# ----------------------------------------------------------------- extras


def test_clip_norm_follows_the_quantile() -> None:
    plan = plan_of(
        clients=200, cohort=200, rounds=60, noise_multiplier=1.0, clip_norm=10.0,
        clipping=Quantile(share=0.5, learning_rate=0.3),
    )  # fmt: skip
    rounds = Rounds(plan, [(2,)], random_state=1)
    lengths = np.linspace(0.0, 2.0, 200)
    while not rounds.finished:
        one = rounds.begin()
        assert one.clip_norm == rounds.clip_norm
        for client in one.cohort:
            one.receive(client, [np.array([lengths[client], 0.0])])
        one.finish()
    assert rounds.clip_norm == pytest.approx(1.0, abs=0.2)


def test_clients_that_clip_say_whether_they_had_to() -> None:
    plan = plan_of(
        clients=50, cohort=50, rounds=1, clipping=Quantile(learning_rate=1.0), noise_multiplier=0.1
    )
    found = []
    for unclipped in (None, True, False):
        rounds = Rounds(plan, [(1,)], random_state=1)
        one = rounds.begin()
        for client in one.cohort:
            one.receive(client, [np.array([0.5])], unclipped=unclipped)
        one.finish()
        found.append(rounds.clip_norm)
    assert found[0] == found[1] == pytest.approx(math.exp(-0.5), rel=0.05)
    assert found[2] == pytest.approx(math.exp(0.5), rel=0.05)


def test_metrics_are_bought_or_absent() -> None:
    plan = plan_of(
        clients=100, cohort=100, rounds=1, noise_multiplier=1.0,
        metrics=(Metric("loss", 0.0, 4.0), Metric("accuracy", 0.0, 1.0)),
    )  # fmt: skip
    one = Rounds(plan, [(1,)], random_state=3).begin()
    for client in one.cohort:
        reported = {"loss": 3.0, "accuracy": NAN if client < 50 else 1.0, "examples": 98765}
        one.receive(client, [np.zeros(1)], reported)
    assert one.metrics == {}
    one.finish()
    assert set(one.metrics) == {"loss", "accuracy"}
    assert one.metrics["loss"] == pytest.approx(3.0, abs=0.5)
    assert one.metrics["accuracy"] == pytest.approx(0.75, abs=0.12)
    silent = Rounds(plan_of(), [(1,)]).begin()
    silent.receive(0, [np.zeros(1)], {"loss": 3.0})
    silent.finish()
    assert silent.metrics == {}


def test_weights_are_public_and_at_most_one() -> None:
    plan = plan_of(clients=4, cohort=4, weights=(1.0, 0.5, 0.0, 0.25))
    one = Rounds(plan, [(1,)]).begin()
    for client, length in enumerate((1.0, -100.0, 1.0, 1.0)):
        one.receive(client, [np.array([length])])
    np.testing.assert_allclose(one.finish()[0] * plan.divisor, [1.0 - 0.5 + 0.25], atol=1e-4)
    assert plan.divisor == 1.75


# ----------------------------------------------------------------- nobody, aggregator


def test_local_reports_are_cut_to_what_noise_explains() -> None:
    plan = plan_of(trust="nobody", noise_multiplier=1.0)
    one = Rounds(plan, [(2,)]).begin()
    assert one.receive(0, [np.array([1e300, 0.0])])
    assert not one.receive(1, [np.array([NAN, 0.0])])
    assert 0 < one.finish()[0][0] * 8 <= one.reports.longest_randomized


def test_too_few_reports_for_a_shuffler() -> None:
    plan = FederatedPlan(
        clients=40, cohort=20, rounds=2, report_epsilon=1.0, delta=1e-5, trust="nobody", shuffler=True,
        randomizer="privunit", dropouts=5,
    )  # fmt: skip
    rounds = Rounds(plan, [(4,)], random_state=1)
    for answered, aborted in ((14, True), (15, False)):
        one = rounds.begin()
        for client in one.cohort[:answered]:
            source = rounds.client_source(one.number, client)
            report = one.reports.randomized(one.reports.vector([np.ones(4)]), source)
            assert one.receive(client, [report])
        assert one.finish()[0].any() != aborted
        assert one.aborted == aborted


@pytest.mark.parametrize("sampling", ["rotation", "poisson"])
@pytest.mark.parametrize("lost", ["none", "as many as allowed", "one more"])
def test_too_few_survivors_for_an_aggregator(sampling: str, lost: str) -> None:
    plan = plan_of(
        clients=40, cohort=20, rounds=1, trust="aggregator", noise_multiplier=0.5, dropouts=2,
        sampling=sampling,
    )  # fmt: skip
    rounds = Rounds(plan, [(3,)], random_state=11)
    one = rounds.begin()
    asked = len(one.cohort)
    needed = -(-18 * asked // 20)
    assert plan.needed(asked) == needed
    survivors = one.cohort[: {"none": asked, "as many as allowed": needed, "one more": needed - 1}[lost]]
    encoder, report = one.encoder(), one.reports.vector([np.array([1.0, 0, 0])])
    total = sum(
        encoder.encode(report, rounds.client_source(0, client), cohort=asked) for client in survivors
    )
    enough = lost != "one more"
    assert one.opened(total % 2**18, [*survivors, *survivors[:5], 41, -1]) == enough
    assert not one.opened(total % 2**18, one.cohort), "the first sum counts"
    released = one.finish()[0]
    assert one.aborted != enough
    if not enough:
        assert not released.any()
        return
    spread = 0.5 * math.sqrt(20 / 18) * 1.01
    assert abs(released[0] * 20 - len(survivors)) < 6 * spread
    with pytest.raises(InvalidValue, match="opened"):
        one.receive(0, update())


def test_an_aborted_round_releases_nothing_and_stays_charged(tmp_path: Path) -> None:
    plan = plan_of(trust="aggregator", noise_multiplier=1.0, rounds=2)
    with Ledger.open(tmp_path / "a.db", Budget(plan.epsilon * 1.01, 1e-5), unit=CLIENT) as ledger:
        rounds = Rounds(plan, [(3,)], ledger=ledger)
        one = rounds.begin()
        assert not one.opened(np.zeros(one.encoder().width, np.uint64), one.cohort[:-1])
        assert not one.finish()[0].any()
        assert one.aborted
        assert rounds.number == 1
        assert [entry.event for entry in ledger.entries()] == [plan.event]
    assert plan.event == events.Repeat(events.Gaussian(1.0), 2)


def test_bits_that_are_too_few_are_refused_before_the_charge(tmp_path: Path) -> None:
    plan = plan_of(trust="aggregator", noise_multiplier=1.0, bits=8)
    with Ledger.open(tmp_path / "a.db", Budget(plan.epsilon * 1.01, 1e-5), unit=CLIENT) as ledger:
        with pytest.raises(InvalidValue, match="bits"):
            Rounds(plan, [(5000,)], ledger=ledger)
        assert not ledger.entries()
