"""Audits of the real trainer: worst-case canaries and one run with many, and twins that must be caught.

Seeds are not fixed: each audit is made at a confidence of 1 − 1e-6, so that a sound trainer fails once
in a million runs.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from tacit import audit

if not find_spec("torch"):
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
from torch import Tensor, nn

from tacit.training import Plan, Trainer, clipping
from tacit.training import step as steps

CONFIDENCE = 1 - 1e-6
RUNS = 500
CANARY = 100.0


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def towards(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss whose gradient is the example itself, whatever the weights are."""
    return outputs[:, 0]


def twin(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break the trainer in one way, past its own self-test."""
    if name == "two thirds of the noise":
        monkeypatch.setattr(
            steps.PrivateStep, "noise_multiplier", property(lambda self: 2 / 3 * self.plan.noise_multiplier)
        )
    elif name == "no clipping":
        real = clipping.Flat.factors
        monkeypatch.setattr(
            clipping.Flat, "factors", lambda self, squares, norm, k: real(self, squares, 1e9, k)
        )
        monkeypatch.setattr(steps, "check_clipping", lambda *args: None)


def moved(plan: Plan, rows: Tensor) -> np.ndarray:
    """How far a run moves weights that start at 0, in units of the canary's direction."""
    model = nn.Linear(rows.shape[1], 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=float(plan.batch_size))
    Trainer(model, towards, optimizer, plan, progress=False, physical_batch=4096).fit(
        (rows, torch.zeros(len(rows)))
    )
    return -model.weight.detach().numpy()[0]


def worst_case(plan: Plan) -> audit.AuditResult:
    """Data in which a canary of the largest gradient alone points its way, with it and without.

    Its gradient is the same at every step, so their sum is all there is to see. The others' are orthogonal
    to it. Under rate 1 the sum is exactly Gaussian.
    """
    others = torch.zeros(3, 2)
    others[:, 1] = torch.tensor([1.0, -1.0, 0.5])
    canary = torch.tensor([[CANARY, 0.0]])
    inside = [moved(plan, torch.cat([others, canary]))[0] for _ in range(RUNS)]
    outside = [moved(plan, others)[0] for _ in range(RUNS)]
    middle = plan.steps * plan.clip_norm / 2
    guesses = audit.choose_threshold(
        np.array(inside), np.array(outside), rule=audit.Fixed(middle), delta=plan.delta, confidence=CONFIDENCE
    )
    return audit.gaussian(**guesses.counts(), delta=plan.delta, confidence=CONFIDENCE)


def one_run(plan: Plan, canaries: int) -> audit.AuditResult:
    """Many canaries, each in by the toss of a coin, each with a direction of its own; one run."""
    coins = np.random.default_rng().random(canaries) < 0.5
    rows = CANARY * torch.eye(canaries)[torch.from_numpy(np.flatnonzero(coins))]
    scores = moved(plan, rows)
    guessed = 3 * canaries // 10
    correct = int(coins[np.argsort(scores)[-guessed:]].sum())
    return audit.one_run(
        canaries=canaries, guesses=guessed, correct=correct, delta=plan.delta, confidence=CONFIDENCE
    )


@pytest.mark.parametrize("name", ["sound", "two thirds of the noise", "no clipping"])
def test_worst_case_canary(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(population=4, batch_size=4, steps=2, clip_norm=1.0, epsilon=11.0, delta=1e-5)
    twin(name, monkeypatch)
    result = worst_case(plan)
    if name == "sound":
        assert result.epsilon > 0.4 * plan.epsilon
        assert not result.contradicts(plan.epsilon)
    else:
        assert result.contradicts(plan.epsilon)


@pytest.mark.parametrize("sampling", ["poisson", "shuffle"])
@pytest.mark.parametrize("name", ["sound", "no clipping"])
def test_one_run_of_many_canaries(sampling: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    facts: dict[str, Any] = {"population": 1500, "clip_norm": 1.0, "epsilon": 3.5, "delta": 1e-11}
    plan = Plan(**facts, batch_size=250, steps=8, sampling=sampling)
    twin(name, monkeypatch)
    result = one_run(plan, 3000)
    assert result.contradicts(plan.epsilon) == (name == "no clipping")
