"""A whole federation in one process, by every trust level; server optimisers; silos."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tacit.errors import InvalidValue
from tacit.federated import CLIENT, Adam, Averaging, FederatedPlan, Metric, Momentum, Silo, simulate
from tacit.ledger import Budget, Ledger
from tacit.relations import Unit
from tacit.training import Quantile

GOAL = np.array([0.6, -0.3])
FACTS: dict[str, Any] = {"clients": 300, "cohort": 100, "rounds": 9, "epsilon": 9.0, "delta": 1e-5}
KINDS: dict[str, dict[str, Any]] = {
    "server": {"trust": "server"},
    "server, extras": {
        "trust": "server", "clipping": Quantile(), "metrics": (Metric("loss", 0.0, 2.0),),
    },
    "aggregator": {"trust": "aggregator", "dropouts": 40},
    "aggregator, sampled": {
        "trust": "aggregator", "dropouts": 40, "sampling": "poisson", "clipping": Quantile(),
        "metrics": (Metric("loss", 0.0, 2.0),),
    },
    "nobody": {"trust": "nobody"},
    "nobody, pure": {"trust": "nobody", "randomizer": "privunit"},
}  # fmt: skip


def client_update(client: int, parameters: list[np.ndarray]) -> Any:
    """Half way to the goal; every ninth client fails in a way of its own."""
    match client % 27:
        case 0:
            raise RuntimeError("98765")
        case 9:
            return [np.full(2, np.nan)]
        case 18:
            return None
    difference = GOAL - parameters[0]
    return [0.5 * difference], {"loss": float(np.abs(difference).sum()), "examples": 98765}


@pytest.mark.parametrize("name", KINDS)
def test_every_trust_level_learns(name: str, tmp_path: Path) -> None:
    plan = FederatedPlan(**FACTS, **KINDS[name])
    seen = []
    with Ledger.open(
        tmp_path / "a.db", Budget(plan.epsilon * 1.01, 1e-5), unit=CLIENT, relation=plan.relation
    ) as ledger:
        run = simulate(
            plan, client_update, [np.zeros(2)], ledger=ledger, progress=seen.append, random_state=3
        )
        assert [entry.event for entry in ledger.entries()] == [plan.event]
    rough = 0.6 if plan.trust == "nobody" else 0.15
    np.testing.assert_allclose(run.parameters[0], GOAL, atol=rough)
    assert run.guarantee.epsilon == plan.epsilon
    assert run.guarantee.noise == "seeded"
    assert [each.number for each in seen] == list(range(9))
    assert "98765" not in "".join(map(str, seen))
    if plan.metrics:
        assert len(run.metrics) == 9
        assert set(run.metrics[0]) == {"loss"}
        assert run.metrics[-1]["loss"] < run.metrics[0]["loss"] <= 2.0
        assert seen[-1].clip_norm < 1.0
    else:
        assert run.metrics == ()


def test_given_parameters_stay_as_they_are() -> None:
    def spoil(client: int, parameters: list[np.ndarray]) -> Any:
        parameters[0][:] = 1e9
        return [np.zeros(2)]

    start = np.zeros(2)
    plan = FederatedPlan(**{**FACTS, "rounds": 2}, trust="server")
    run = simulate(plan, spoil, [start])
    assert not start.any()
    assert np.abs(run.parameters[0]).max() < 1.0


@pytest.mark.parametrize("optimizer", [Averaging(0.5), Momentum(0.2, 0.5), Adam(0.1)])
def test_optimisers_reach_the_goal(optimizer: Any) -> None:
    parameters = [np.zeros(2)]
    for _ in range(200):
        parameters = optimizer.move(parameters, [0.5 * (GOAL - parameters[0])])
    np.testing.assert_allclose(parameters[0], GOAL, atol=0.02)


def test_adam_is_that_of_torch() -> None:
    weights = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    peer = torch.optim.Adam([weights], lr=0.3, betas=(0.8, 0.95), eps=1e-3)
    ours, parameters = Adam(0.3, (0.8, 0.95), 1e-3), [np.zeros(3)]
    generator = np.random.default_rng(0)
    for _ in range(5):
        update = generator.normal(size=3)
        weights.grad = -torch.from_numpy(update)
        peer.step()
        parameters = ours.move(parameters, [update])
    np.testing.assert_allclose(parameters[0], weights.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: Averaging(0.0), lambda: Averaging(-1.0), lambda: Momentum(1.0, 1.0),
        lambda: Momentum(beta=-0.1), lambda: Adam(betas=(0.9, 1.0)), lambda: Adam(stability=0.0),
    ],
)  # fmt: skip
def test_optimisers_check_their_numbers(bad: Any) -> None:
    with pytest.raises(InvalidValue):
        bad()


# ----------------------------------------------------------------- silos


def silos(plan: FederatedPlan, ledgers: list[Any]) -> list[Silo]:
    made = []
    for number, ledger in enumerate(ledgers):
        generator = torch.Generator().manual_seed(number)
        rows = torch.randn(300, 2, generator=generator)
        labels = (rows[:, 0] > rows[:, 1]).long()
        model = nn.Linear(2, 2)
        made.append(
            Silo(
                model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=1.0),
                plan.silo(population=300, batch_size=60, local_steps=4), (rows, labels), local_steps=4,
                ledger=ledger, random_state=number,
            )
        )  # fmt: skip
    return made


def test_silos_learn_together_and_pay_by_themselves(tmp_path: Path) -> None:
    plan = FederatedPlan(clients=3, cohort=3, rounds=5, epsilon=4.0, delta=1e-5, trust="silo")
    ledgers = [Ledger.open(tmp_path / f"{each}.db", Budget(4.01, 1e-5)) for each in range(3)]
    made = silos(plan, ledgers)
    assert not any(ledger.entries() for ledger in ledgers)
    run = simulate(
        plan, lambda client, parameters: made[client].update(parameters), [np.zeros((2, 2)), np.zeros(2)]
    )
    rows = np.random.default_rng(9).normal(size=(1000, 2))
    scores = rows @ run.parameters[0].T + run.parameters[1]
    assert np.mean((scores[:, 1] > scores[:, 0]) == (rows[:, 0] > rows[:, 1])) > 0.9
    assert run.guarantee.unit == Unit()
    assert "one silo" in str(run.guarantee)
    for silo, ledger in zip(made, ledgers, strict=True):
        assert [entry.event for entry in ledger.entries()] == [silo.trainer.plan.event]
        assert silo.guarantee.epsilon <= plan.epsilon
        with pytest.raises(InvalidValue, match="all of them were taken"):
            silo.update(run.parameters)
        ledger.close()


def test_a_silo_takes_the_parameters_it_is_given() -> None:
    plan = FederatedPlan(clients=3, cohort=3, rounds=5, epsilon=4.0, delta=1e-5, trust="silo")
    (silo,) = silos(plan, [None])
    given = [np.full((2, 2), 0.25), np.full(2, -0.5)]
    change = silo.update(given)
    for one, other, new in zip(silo.parameters(), given, change, strict=True):
        np.testing.assert_allclose(one, other + new, atol=1e-6)


def test_plans_and_rounds_need_no_heavy_package() -> None:
    code = (
        "import sys; from tacit.federated import FederatedPlan, Rounds, simulate; "
        "print([name for name in ('torch', 'flwr', 'cryptography', 'ray', 'sklearn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
