"""Federations in the registry: rounds of every trust level on worst-case clients, with broken twins.

Each client has a coordinate of its own, along which its update points. There clients are sampled, clipped and
covered with noise independently of each other, so one round with many clients is many rounds with one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from scipy.special import ndtr

from contract.cases import BAD_PARAMETERS, INF, NAN
from contract.registry import Case, Make, Noise, Pair, register
from tacit import events
from tacit.errors import CalibrationError, InvalidValue
from tacit.federated import CLIENT, FederatedPlan, Metric, Rounds
from tacit.federated import process as in_process
from tacit.federated.rounds import Round
from tacit.ledger import Ledger
from tacit.randomness import Source
from tacit.training import Quantile

CLIENTS = 250
FAR = 100.0
DELTA, ROUNDS = 0.05, 3
NOISE_MULTIPLIER, EXTRA_MULTIPLIER = 1.0, 5.0
NOTHING = np.zeros(0)
Breaking = Callable[[], AbstractContextManager[Any]]


def sending(length: float) -> np.ndarray:
    """How long an update each client sends, along its own coordinate."""
    return np.full(CLIENTS, length)


@dataclass(frozen=True)
class Claiming:
    """``plan`` is carried out and ``claimed`` is charged."""

    plan: FederatedPlan
    claimed: FederatedPlan
    source: Source

    @property
    def event(self) -> events.Event:
        return self.claimed.event

    @property
    def noise(self) -> str:
        return "seeded" if self.source.seeded else self.plan.noise_kind


@dataclass(frozen=True)
class Federated(Claiming):
    """A federation as a mechanism: from the clients' updates to the released sums, in units of clip_norm.

    ``breaking`` is in force during the run, and ``twice`` lets each client report twice, behind the back of
    the round.
    """

    breaking: Breaking = nullcontext
    twice: bool = False

    def __call__(self, lengths: np.ndarray, ledger: Ledger | None = None) -> np.ndarray:
        return self.released(lambda: lengths, ledger)

    def released(self, read: Callable[[], np.ndarray], ledger: Ledger | None = None) -> np.ndarray:
        seed = self.source.bits(63) if self.source.seeded else None
        rounds = Rounds(self.plan, [(CLIENTS,)], ledger=ledger, random_state=seed)
        sums = []
        with self.breaking():
            while not rounds.finished:
                one = rounds.begin()
                lengths = read()

                def update(
                    client: int, given: Any, lengths: np.ndarray = lengths, one: Round = one
                ) -> tuple[list[np.ndarray], dict[str, float]]:
                    if client >= len(lengths):
                        raise LookupError
                    if self.twice and client not in one._waiting:
                        one._waiting.add(client)
                    sent = np.zeros(CLIENTS)
                    sent[client] = lengths[client]
                    return [sent], {"loss": INF if lengths[client] == 0 else 1.0}

                for _ in range(1 + self.twice):
                    in_process._ask(one, update, [], rounds)
                total = one.finish()[0] * self.plan.divisor / one.clip_norm
                sums.append(total)
        return np.array(sums)


def making(plan: FederatedPlan, **options: Any) -> Make:
    kind = Local if plan.trust == "nobody" else Federated

    def make(random_state: Any) -> Federated | Local:
        source = random_state if isinstance(random_state, Source) else Source(random_state)
        return kind(options.get("run", plan), plan, source, **{
            name: value for name, value in options.items() if name != "run"
        })  # fmt: skip

    return make


def with_less_noise(plan: FederatedPlan) -> Make:
    weak = replace(plan, epsilon=0.0, noise_multiplier=plan.noise_multiplier * 2 / 3)
    return making(plan, run=weak)


@dataclass(frozen=True)
class Local(Claiming):
    """A round in which nobody is trusted, as a mechanism: from one number of each client to its report."""

    def __call__(self, lengths: np.ndarray) -> np.ndarray:
        return self.released(lambda: lengths)

    def released(self, read: Callable[[], np.ndarray], ledger: Ledger | None = None) -> np.ndarray:
        rounds = Rounds(self.plan, [(1,)], ledger=ledger)
        one = rounds.begin()
        lengths = read()
        seen = []
        for client, length in enumerate(lengths):
            report = one.reports.randomized(one.reports.vector([np.array([length])]), self.source)
            assert one.receive(client, [report])
            seen.append(report / one.clip_norm)
        total = one.finish()[0] * self.plan.divisor / one.clip_norm
        np.testing.assert_allclose(total, sum(seen), atol=1e-9)
        return np.array(seen).T


@contextmanager
def unclipped() -> Iterator[None]:
    """A server that adds up what it is sent."""

    def as_sent(vector: np.ndarray, clip_norm: float, step: float) -> np.ndarray:
        return np.divide(vector, step, out=vector)

    with mock.patch("tacit.federated.reports.in_steps", as_sent):
        yield


@contextmanager
def noiseless() -> Iterator[None]:
    """A server that forgets the noise."""
    with mock.patch.object(Round, "_noisy", lambda one: one._total * one._step):
        yield


def runs(make: Make, lengths: np.ndarray, times: int, seed: int | None) -> np.ndarray:
    """As many runs of one client each, the rounds of each run in one line."""
    made = make(seed)
    return np.concatenate([made(lengths).T for _ in range(-(-times // CLIENTS))])[:times]


@dataclass(frozen=True)
class Expected:
    """What a round should show of one client, from relation and trust alone."""

    plan: FederatedPlan
    extras: int = 0

    @property
    def spread(self) -> float:
        """The noise on the sum in units of clip_norm; count and metrics are paid for by more of it."""
        multiplier = (NOISE_MULTIPLIER**-2 - self.extras * EXTRA_MULTIPLIER**-2) ** -0.5
        return multiplier * (1 if self.plan.relation == "add_remove" else 2)

    @property
    def without(self) -> float:
        return 0.0 if self.plan.relation == "add_remove" else -1.0

    def loss(self, seen: np.ndarray) -> np.ndarray:
        """The log-likelihood ratio of a run with the client and without it."""
        rate = self.plan.sampling_rate
        seen = np.clip(seen, -20.0, 20.0)
        ratio = np.exp(((seen - self.without) ** 2 - (seen - 1) ** 2) / (2 * self.spread**2))
        return np.log(1 - rate + rate * ratio).sum(axis=1)

    def cdf(self, points: np.ndarray, factor: float) -> np.ndarray:
        return ndtr(points / (factor * self.spread))

    def draw(self, make: Make, runs: int, seed: int | None) -> np.ndarray:
        made = make(seed)
        few = sending(0.0) if self.plan.trust != "server" else NOTHING
        rounds = -(-runs // (2 * CLIENTS * self.plan.rounds))
        return np.concatenate(
            [made(lengths).ravel() for lengths in (sending(0.0), few) for _ in range(rounds)]
        )[:runs]


def released(ledger: Ledger, made: Federated | Local, data_access: Callable[[], Any]) -> Any:
    """A federation charges its ledger itself; the clients are asked after that."""
    read: list[Any] = []

    def once() -> Any:
        read[:] = read or [data_access()]
        return read[0]

    return made.released(once, ledger)


GOOD: dict[str, Any] = {
    "clients": 10, "cohort": 5, "rounds": 2, "clip_norm": 1.0, "noise_multiplier": 1.0, "delta": DELTA,
    "trust": "server",
}  # fmt: skip
BAD_PLANS: dict[str, tuple[Any, ...]] = {
    "clients": (0, -1, 4, 2.5, "2", None, True),
    "cohort": (0, -1, 11, 1.5, "2", None, True),
    "rounds": (0, -1, 1.5, "1", None, True),
    "clip_norm": (0.0, -1.0, 1e-10, 1e10, NAN, INF, "1", None, True),
    "noise_multiplier": BAD_PARAMETERS["noise_multiplier"],
    "delta": (*BAD_PARAMETERS["delta"], 0.0),
    "trust": ("everybody", None, 1),
    "sampling": ("uniform", None, 1),
    "participations": (2, -1, 1.5),
    "honest": (3, -1),
    "dropouts": (1, -1, 0.5),
    "shuffler": (True,),
    "randomizer": ("laplace", None),
    "report_epsilon": (1.0,),
    "relation": ("both", 1),
    "clipping": ("none", None, 1.0),
    "metrics": ((1,), (Metric("a", 0, 1), Metric("a", 0, 2)), (Metric("a", 0, 1, noise=0.001),)),
    "weights": ((1.0,), (2.0,) * 10, (NAN,) * 10, (0.0,) * 10),
}
GOOD_METRIC: dict[str, Any] = {"name": "m", "lower": 0.0, "upper": 1.0}
BAD_METRICS: dict[str, tuple[Any, ...]] = {
    "name": ("", " ", None, 1),
    "lower": (1.0, 2.0, NAN, INF, None, "0"),
    "upper": (0.0, -1.0, NAN, INF, None, "1"),
    "noise": (0.0, -1.0, NAN, INF, None),
}


def bad_inputs(plan: FederatedPlan) -> tuple[tuple[str, Callable[[], Any], type[Exception]], ...]:
    """Each fact of a plan and of a metric, and each option of the rounds, made bad in turn."""
    calls: list[tuple[str, Callable[[], Any]]] = [
        (f"FederatedPlan({name}={value!r:.30})", partial(FederatedPlan, **{**GOOD, name: value}))
        for name, values in BAD_PLANS.items()
        for value in values
        if not (name == "noise_multiplier" and value is None)
    ]
    calls += [
        (f"Metric({name}={value!r})", partial(Metric, **{**GOOD_METRIC, name: value}))
        for name, values in BAD_METRICS.items()
        for value in values
    ]
    calls += [
        (f"Rounds(shapes={shapes!r})", partial(Rounds, plan, shapes))
        for shapes in ((), [()] * 0, [(0,)], [(-1,)], 3, ["ab"], None)
    ]
    options: dict[str, tuple[Any, ...]] = {
        "random_state": BAD_PARAMETERS["random_state"], "label": ("", None, "x" * 200), "ledger": ("book", 1),
    }  # fmt: skip
    calls += [
        (f"Rounds({name}={value!r:.20})", partial(Rounds, plan, [(1,)], **{name: value}))
        for name, values in options.items()
        for value in values
    ]
    other = [(what, call, InvalidValue) for what, call in calls]
    dear = partial(FederatedPlan, **{**GOOD, "epsilon": 0.01})
    return (*other, ("more than ε allows", dear, CalibrationError))


EXTRAS: dict[str, Any] = {
    "clipping": Quantile(learning_rate=2.0, count_noise=EXTRA_MULTIPLIER / (2 * CLIENTS)),
    "metrics": (Metric("loss", 0.0, 4.0, noise=EXTRA_MULTIPLIER / CLIENTS),),
}
KINDS: dict[str, dict[str, Any]] = {
    "federated_server": {"cohort": CLIENTS, "rounds": 1},
    "federated_server_sampled": {"cohort": CLIENTS // 2, "rounds": ROUNDS},
    "federated_server_replaced": {"cohort": CLIENTS, "rounds": 1, "relation": "replace_one"},
    "federated_server_metrics": {"cohort": CLIENTS, "rounds": 1, **EXTRAS},
    "federated_aggregator": {"cohort": CLIENTS, "rounds": 1, "trust": "aggregator"},
    "federated_nobody": {"cohort": CLIENTS, "rounds": 1, "trust": "nobody"},
}
PLANS: dict[str, FederatedPlan] = {
    name: FederatedPlan(
        clients=CLIENTS, noise_multiplier=NOISE_MULTIPLIER, delta=DELTA, **{"trust": "server", **facts}
    )
    for name, facts in KINDS.items()
}
"""The plans of the registry, by name."""
TWINS: dict[str, Make] = {
    "federated_server_unclipped": making(PLANS["federated_server"], breaking=unclipped),
    "federated_server_noiseless": making(PLANS["federated_server"], breaking=noiseless),
    "federated_server_reported_twice": making(PLANS["federated_server"], twice=True),
}
"""Broken twins by what was forgotten; their sound siblings are the same federation."""
AS_BEFORE = "the noise is that of the federation on a trusted server, where it is tested"


def case_of(name: str, plan: FederatedPlan, number: int, **more: Any) -> Case:
    expected = Expected(plan, len(plan._extra_multipliers))
    other = sending(0.0) if plan.trust == "aggregator" else NOTHING
    other = sending(-FAR) if plan.relation == "replace_one" else other
    return Case(
        name=name,
        event=plan.event,
        delta=DELTA,
        make=making(plan),
        data=sending(FAR)[:3] if plan.trust != "aggregator" else sending(FAR),
        pair=Pair(sending(FAR), other, expected.loss, runs, (number, number)),
        bad_inputs=bad_inputs(plan),
        relation=str(plan.relation),
        unit=CLIENT,
        release=released,
        covers=frozenset({"Rounds", "simulate"}),
        **more,
    )


for named, planned in PLANS.items():
    known = Expected(planned, len(planned._extra_multipliers))
    times = {"nobody": 6000, "aggregator": 8000}.get(planned.trust, 9000)
    alone = Noise(known.draw, known.cdf, 2000)
    register(case_of(named, planned, times, broken=with_less_noise(planned), noise=alone))
for named, twin in TWINS.items():
    register(case_of(named, PLANS["federated_server"], 2000, broken=twin, left_out={"noise": AS_BEFORE}))
