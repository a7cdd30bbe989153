"""Plans: the event costs at most the claim, by our accountants and by another library's."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from tacit import accounting, events
from tacit.errors import CalibrationError, InvalidValue, WeakPrivacy
from tacit.federated import CLIENT, FederatedPlan, Metric
from tacit.relations import Unit
from tacit.training import Quantile

FACTS: dict[str, Any] = {"clients": 600, "cohort": 60, "rounds": 30, "epsilon": 2.0, "delta": 1e-5}
KINDS: dict[str, dict[str, Any]] = {
    "server": {"trust": "server"},
    "server, replaced": {"trust": "server", "relation": "replace_one"},
    "server, rotation": {"trust": "server", "sampling": "rotation"},
    "server, capped": {"trust": "server", "sampling": "rotation", "participations": 7},
    "server, everybody": {"trust": "server", "cohort": 600},
    "server, extras": {
        "trust": "server", "clipping": Quantile(), "metrics": (Metric("loss", 0.0, 9.0, noise=0.2),),
    },
    "aggregator": {"trust": "aggregator", "dropouts": 6},
    "aggregator, replaced": {"trust": "aggregator", "relation": "replace_one"},
    "aggregator, sampled": {"trust": "aggregator", "sampling": "poisson", "dropouts": 6, "honest": 40},
    "aggregator, sampled and replaced": {
        "trust": "aggregator", "sampling": "poisson", "relation": "replace_one",
    },
    "nobody": {"trust": "nobody"},
    "nobody, pure": {"trust": "nobody", "randomizer": "privunit"},
    "nobody, shuffled": {"trust": "nobody", "randomizer": "privunit", "shuffler": True, "dropouts": 5},
    "silo": {"trust": "silo"},
    "weights": {"trust": "server", "weights": (0.5,) * 300 + (1.0,) * 300},
}  # fmt: skip
PLANS = {name: FederatedPlan(**{**FACTS, **facts}) for name, facts in KINDS.items()}


@pytest.mark.parametrize("name", PLANS)
def test_the_event_costs_at_most_the_claim(name: str) -> None:
    plan = PLANS[name]
    spent = accounting.epsilon(plan.event, plan.delta, relation=plan.relation)
    assert spent <= plan.epsilon == 2.0
    assert name == "silo" or spent > 1.99
    promised = plan.guarantee()
    assert (promised.epsilon, promised.delta, promised.event) == (2.0, 1e-5, plan.event)
    assert promised.relation == plan.relation
    assert promised.unit == (Unit() if name == "silo" else CLIENT)


def as_peer(event: events.Event) -> dp_event.DpEvent:
    """The event in the words of dp-accounting."""
    match event:
        case events.Gaussian(z):
            return dp_event.GaussianDpEvent(z)
        case events.PoissonSampled(rate, inner):
            return dp_event.PoissonSampledDpEvent(rate, as_peer(inner))
        case events.Repeat(inner, times):
            return dp_event.SelfComposedDpEvent(as_peer(inner), times)
    raise NotImplementedError(event)


PEERS = ("server", "server, rotation", "server, capped", "server, extras", "aggregator")


@pytest.mark.parametrize("name", PEERS)
def test_another_library_finds_as_much(name: str) -> None:
    plan = PLANS[name]
    peer = PLDAccountant(neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE)
    peer.compose(as_peer(plan.event))
    assert plan.epsilon == pytest.approx(peer.get_epsilon(plan.delta), rel=3e-3)


def test_replacing_a_client_costs_more_than_adding_one() -> None:
    """The peer has no sampled Gaussian under replacement; with the same noise, adding must cost less."""
    plan = PLANS["server, replaced"]
    once = events.PoissonSampled(plan.sampling_rate, events.Gaussian(2 * plan.noise_multiplier))
    peer = RdpAccountant(neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE)
    peer.compose(as_peer(once), plan.rounds)
    assert 0.4 * plan.epsilon <= peer.get_epsilon(plan.delta) < plan.epsilon


def test_rotation_is_charged_by_participations() -> None:
    plan = PLANS["server, rotation"]
    assert plan.participations == 3
    assert plan.event == events.Repeat(events.Gaussian(plan.noise_multiplier), 3)
    assert PLANS["server, capped"].event.times == 7
    assert FederatedPlan(**{**FACTS, **KINDS["server, capped"], "participations": 99}).participations == 30


def test_local_reports_are_charged_by_report() -> None:
    assert PLANS["nobody"].event == events.Repeat(events.Gaussian(PLANS["nobody"].noise_multiplier), 3)
    pure, mixed = PLANS["nobody, pure"], PLANS["nobody, shuffled"]
    assert pure.event == events.Repeat(events.Pure(pure.report_epsilon), 3)
    assert mixed.event == events.Repeat(events.Shuffled(events.Pure(mixed.report_epsilon), 55), 3)
    assert mixed.report_epsilon > pure.report_epsilon
    assert pure.guarantee().noise == "float64"


def test_extras_share_the_noise_of_a_round() -> None:
    plan = PLANS["server, extras"]
    z, count, loss = plan.noise_for_sum, 2 * 0.05 * 60, 0.2 * 60
    assert math.isclose(z**-2 + count**-2 + loss**-2, plan.noise_multiplier**-2)
    for clip_norm in (0.3, 1.0, 7.0):
        scales = plan.extra_scales(clip_norm)
        bound = plan.report_norm(clip_norm)
        assert math.hypot(clip_norm, *scales) <= bound <= math.hypot(clip_norm, *scales) * (1 + 1e-11)
        deviation = bound * plan.noise_multiplier
        assert deviation == pytest.approx(clip_norm * z)
        assert [deviation / scale for scale in scales] == pytest.approx([count, loss])


def test_the_server_of_an_aggregator_sees_more() -> None:
    plan = PLANS["aggregator, sampled"]
    against = plan.guarantee_against_server()
    assert against.epsilon > plan.epsilon
    assert f"ε = {against.epsilon:.3f}"[:7] in str(plan.guarantee())
    draws = np.random.default_rng(0).binomial(plan.rounds, plan.sampling_rate, 1_000_000)
    repeated = against.event.events[1]
    assert isinstance(repeated, events.Repeat)
    assert (draws > repeated.times).mean() <= 5e-5
    assert repeated.times < plan.rounds
    assert PLANS["aggregator"].guarantee_against_server() == PLANS["aggregator"].guarantee()
    with pytest.raises(InvalidValue, match="aggregator"):
        PLANS["server"].guarantee_against_server()


def test_shares_of_noise_are_sized_for_the_honest() -> None:
    noise = PLANS["aggregator"].distributed()
    assert (noise.summands, noise.honest, noise.fewest(60)) == (60, 54, 54)
    plan = PLANS["aggregator, sampled"]
    noise = plan.distributed()
    assert noise.summands == plan.largest_cohort
    for asked in (20, 60, 90):
        assert noise.fewest(asked) <= -(-plan.honest * asked // plan.cohort) <= plan.needed(asked)
    draws = np.random.default_rng(0).binomial(plan.clients, plan.sampling_rate, 1_000_000)
    assert (draws > plan.largest_cohort).mean() <= 1e-5
    assert plan.largest_cohort < 2 * plan.cohort


@pytest.mark.parametrize("name", PLANS)
def test_json(name: str) -> None:
    plan = PLANS[name]
    text = json.dumps(plan.to_dict(), allow_nan=False)
    again = FederatedPlan.from_dict(json.loads(text))
    assert again == plan
    assert again.event == plan.event


def test_a_plan_that_overspends_is_refused() -> None:
    data = PLANS["server"].to_dict()
    with pytest.raises(CalibrationError):
        FederatedPlan.from_dict({**data, "noise_multiplier": data["noise_multiplier"] * 0.9})
    with pytest.raises(CalibrationError):
        FederatedPlan.from_dict({**data, "rounds": 60})
    for broken in ({}, [], {**data, "extra": 1}, {**data, "metrics": 3}, {**data, "metrics": [{}]}):
        with pytest.raises(InvalidValue):
            FederatedPlan.from_dict(broken)


@pytest.mark.parametrize(
    "facts",
    [
        {"trust": "server", "participations": 3},
        {"trust": "server", "honest": 50},
        {"trust": "server", "dropouts": 1},
        {"trust": "server", "shuffler": True},
        {"trust": "server", "report_epsilon": 1.0},
        {"trust": "nobody", "sampling": "poisson"},
        {"trust": "nobody", "relation": "add_remove"},
        {"trust": "nobody", "shuffler": True},
        {"trust": "nobody", "clipping": Quantile()},
        {"trust": "nobody", "randomizer": "privunit", "noise_multiplier": 1.0},
        {"trust": "aggregator", "dropouts": 59},
        {"trust": "aggregator", "honest": 60, "dropouts": 10},
        {"trust": "silo", "noise_multiplier": 1.0},
        {"trust": "silo", "metrics": (Metric("loss", 0.0, 1.0),)},
        {"trust": "server", "metrics": (Metric("loss", 0.0, 1.0, noise=1e-4),)},
        {"trust": "server", "delta": 0.0},
    ],
    ids=str,
)
def test_what_does_not_go_together(facts: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        FederatedPlan(**{**FACTS, **facts})


def test_words() -> None:
    for name, plan in PLANS.items():
        told = plan.describe()
        assert "ε = 2" in told, name
        assert str(plan) in told
    assert "stands in one silo" in PLANS["silo"].describe()
    assert "against the server" in PLANS["aggregator, sampled"].describe()


def test_weak_promises_are_warned_of() -> None:
    with pytest.warns(WeakPrivacy):
        FederatedPlan(**{**FACTS, "epsilon": 20.0, "trust": "server"})


def test_divisor_is_the_expected_weight() -> None:
    assert PLANS["server"].divisor == 60
    assert PLANS["weights"].divisor == 45
    assert [PLANS["weights"].weight(each) for each in (0, 599)] == [0.5, 1.0]
    assert PLANS["server"].weight(0) == 1.0


def test_a_silo_trains_by_its_own_plan() -> None:
    plan = PLANS["silo"].silo(population=500, batch_size=50, local_steps=4)
    assert (plan.steps, plan.epsilon, plan.delta, plan.unit) == (120, 2.0, 1e-5, Unit())
    with pytest.raises(InvalidValue, match="silo"):
        PLANS["server"].silo(population=500, batch_size=50, local_steps=4)
