"""Audits of the real trainer: worst-case canaries, one run with many, and the count that moves clip_norm.

Seeds of sound trainers are not fixed: each audit is made at a confidence of 1 − 1e-6, so that one of them
fails once in a million runs. Twins with one fault each must be caught; where chance would let one in a
hundred go, their seeds are fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from tacit import accounting, audit, events

if not find_spec("torch"):
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
from torch import Tensor, nn

from tacit.training import Plan, Quantile, Trainer, clipping
from tacit.training import step as steps
from tacit.training.noise import normal

CONFIDENCE = 1 - 1e-6
RUNS = 500
CANARY = 100.0


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


def moved(plan: Plan, rows: Tensor, seed: int | None = None) -> np.ndarray:
    """How far a run moves weights that start at 0, in units of the canary's direction."""
    model = nn.Linear(rows.shape[1], 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=float(plan.batch_size))
    options: dict[str, Any] = {"progress": False, "physical_batch": 4096, "random_state": seed}
    Trainer(model, towards, optimizer, plan, **options).fit((rows, torch.zeros(len(rows))))
    return -model.weight.detach().numpy()[0]


def worst_case(plan: Plan, seeded: bool) -> audit.AuditResult:
    """Data in which a canary of the largest gradient alone points its way, with it and without.

    Its gradient is the same at every step, so their sum is all there is to see. The others' are orthogonal
    to it. Under rate 1 the sum is exactly Gaussian.
    """
    others = torch.zeros(3, 2)
    others[:, 1] = torch.tensor([1.0, -1.0, 0.5])
    canary = torch.tensor([[CANARY, 0.0]])
    seeds = range(2 * RUNS) if seeded else [None] * (2 * RUNS)
    inside = [moved(plan, torch.cat([others, canary]), seed)[0] for seed in seeds[:RUNS]]
    outside = [moved(plan, others, seed)[0] for seed in seeds[RUNS:]]
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


@pytest.mark.audit
@pytest.mark.parametrize("name", ["sound", "two thirds of the noise", "no clipping"])
def test_worst_case_canary(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(population=4, batch_size=4, steps=2, clip_norm=1.0, epsilon=11.0, delta=1e-5)
    twin(name, monkeypatch)
    result = worst_case(plan, seeded=name != "sound")
    if name == "sound":
        assert result.epsilon > 0.4 * plan.epsilon  # less has a probability of 3e-9
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


# --------------------------------------------------------------------------- the count that moves clip_norm

STEP, COUNT, DELTA = 0.5, 0.52, 1e-5
SUM = (STEP**-2 - COUNT**-2) ** -0.5
"""Noise multipliers of a step and, within it, of the count, which costs nearly all of it, and of the sum."""
MEMBERS, SLOW = 12, 1e-6
"""A clip_norm that moves so little that an example just within it stays there, and is as public."""


def quantile_plan(relation: str, runs: int) -> Plan:
    """Every step sees everything, so one run of so many steps is as many runs of one step."""
    return Plan(
        population=MEMBERS, batch_size=MEMBERS, steps=runs, noise_multiplier=STEP, delta=DELTA,
        relation=relation, clipping=Quantile(learning_rate=SLOW, count_noise=COUNT / (2 * MEMBERS)),
    )  # fmt: skip


@dataclass(frozen=True)
class Neighbours:
    """Data that differ in one example, and what sum and count of a step are on each, without noise.

    The sum is that along the example, in units of clip_norm; an example within clip_norm counts ½, one
    beyond it −½. ``reach`` is how far apart the relation lets both be: in clip_norms, and twice halves.
    """

    one: Tensor
    other: Tensor
    sums: tuple[float, float]
    counts: tuple[float, float]
    reach: float

    def losses(self, seen: np.ndarray, of_sum: float) -> np.ndarray:
        """The log-likelihood ratio of what was seen of each step, if the sum had this noise multiplier.

        With an infinite one the count alone is looked at.
        """
        parts = (self.sums, of_sum * self.reach), (self.counts, COUNT * self.reach / 2)
        return sum(
            (each - np.mean(ends)) * (ends[0] - ends[1]) / spread**2
            for each, (ends, spread) in zip(seen.T, parts, strict=True)
        )


CANARY_ROW, NEAR_ROW = torch.tensor([[CANARY, 0.0]]), torch.tensor([[-0.999, 0.0]])
REST = torch.tensor([[0.0, CANARY]] * 5 + [[0.0, 0.0]] * 6)
"""Orthogonal to the canary, five beyond clip_norm and six within it."""
NEIGHBOURS = {
    "add_remove": Neighbours(CANARY_ROW, torch.zeros(0, 2), (1.0, 0.0), (-0.5, 0.0), 1.0),
    "replace_one": Neighbours(
        torch.cat([REST, CANARY_ROW]), torch.cat([REST, NEAR_ROW]), (1.0, -0.999), (0.0, 1.0), 2.0
    ),
}


def published(plan: Plan, rows: Tensor, seed: int | None) -> np.ndarray:
    """What each step tells: the noisy sum from the weights, the noisy count from two clip_norms."""
    model = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=float(plan.batch_size))
    norms, places = [plan.clip_norm], [0.0]

    def look(progress: Any) -> None:
        norms.append(progress.trainer.clip_norm)
        places.append(-model.weight[0, 0].item())

    options: dict[str, Any] = {"progress": False, "physical_batch": MEMBERS, "callbacks": [look]}
    made = Trainer(model, towards, optimizer, plan, random_state=seed, **options)
    made.fit((rows.double(), torch.zeros(len(rows))))
    sums = np.diff(places) / norms[:-1]
    within = plan.clipping.share - np.diff(np.log(norms)) / plan.clipping.learning_rate
    return np.column_stack([sums, plan.batch_size * (within - 0.5)])


def audits_of_steps(
    relation: str, runs: int, seed: int | None = None, of_sum: float = SUM
) -> tuple[audit.AuditResult, audit.AuditResult]:
    """What worst-case neighbours prove about the count alone, and about sum and count together."""
    pair, plan = NEIGHBOURS[relation], quantile_plan(relation, runs)
    seeds = (None, None) if seed is None else (2 * seed, 2 * seed + 1)
    seen = [published(plan, rows, each) for rows, each in zip((pair.one, pair.other), seeds, strict=True)]
    found = []
    for noise in (np.inf, of_sum):
        inside, outside = (pair.losses(each, noise) for each in seen)
        guesses = audit.choose_threshold(
            inside, outside, rule=audit.Fixed(0.0), delta=DELTA, confidence=CONFIDENCE
        )
        found.append(audit.gaussian(**guesses.counts(), delta=DELTA, confidence=CONFIDENCE))
    return found[0], found[1]


CLAIMS = [accounting.epsilon(events.Gaussian(noise), DELTA) for noise in (COUNT, STEP)]
"""Of the count, and of the step."""
SEED = 1


def count_noise_times(factor: float) -> Callable[[pytest.MonkeyPatch], None]:
    """The model has two weights: one number alone is the noise of the count."""

    def scaled(source: Any, count: int, *args: Any) -> Tensor:
        return normal(source, count, *args) * (factor if count == 1 else 1.0)

    return lambda monkeypatch: monkeypatch.setattr(steps, "normal", scaled)


def free_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum has the noise of the whole step, as if no count had been taken."""
    monkeypatch.setattr(
        Quantile, "noise_for_sum", lambda self, noise_multiplier, batch_size: noise_multiplier
    )


@pytest.mark.audit
@pytest.mark.parametrize("relation", NEIGHBOURS)
def test_the_count_and_the_step_cost_what_they_should(relation: str) -> None:
    for result, claim in zip(audits_of_steps(relation, 500), CLAIMS, strict=True):
        assert 0.4 * claim < result.epsilon
        assert not result.contradicts(claim)


@pytest.mark.audit
@pytest.mark.parametrize(
    ("relation", "factor", "runs"),
    [
        pytest.param("add_remove", 2 / 3, 700, id="two thirds of the noise"),
        pytest.param("add_remove", 1 / 2, 300, id="a quarter taken for a half"),
        pytest.param("replace_one", 1 / 2, 300, id="the relation forgotten"),
        pytest.param("add_remove", 0.0, 120, id="no noise"),
        pytest.param("replace_one", 0.0, 120, id="no noise where one is replaced"),
    ],
)
def test_a_count_with_too_little_noise(
    relation: str, factor: float, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_noise_times(factor)(monkeypatch)
    counted, together = audits_of_steps(relation, runs, SEED)
    assert counted.contradicts(CLAIMS[0])
    if factor <= 1 / 2:
        assert together.contradicts(CLAIMS[1])


@pytest.mark.audit
def test_a_count_that_is_not_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sum and count each keep what they claim; only together they tell too much."""
    free_count(monkeypatch)
    counted, together = audits_of_steps("add_remove", 1000, SEED, of_sum=STEP)
    assert not counted.contradicts(CLAIMS[0])
    assert together.contradicts(CLAIMS[1])


def _told_by_the_last_bits(dtype: torch.dtype) -> tuple[audit.AuditResult, float]:
    """Whether an example of gradient 1 was there, from the last bits of what one step moves."""
    number, digits = 20_000, -int(np.log2(torch.finfo(dtype).eps))
    finer = []
    for rows in (number, 0):
        model = nn.Embedding(number, 1, dtype=dtype)
        nn.init.zeros_(model.weight)
        plan = Plan(population=1, batch_size=1, steps=1, noise_multiplier=1.0, delta=1e-5)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        trainer = Trainer(
            model, lambda out, _: -2 * out[:, 0], optimizer, plan, progress=False, physical_batch=number
        )
        trainer.fit((torch.arange(rows), torch.zeros(rows)))
        moved = model.weight.detach().numpy()[:, 0].astype(float)
        finer.append(int(((abs(moved) < 0.5) & (np.ldexp(moved, digits + 1) % 1 != 0)).sum()))
    report = audit.clopper_pearson(
        true_positives=finer[1], positives=number, false_positives=finer[0], negatives=number,
        delta=1e-5, confidence=CONFIDENCE,
    )  # fmt: skip
    return report, plan.epsilon


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_last_bits_of_a_step_tell_nothing(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum 1 + N is a multiple of the last bit of 1 however small it comes out, while 0 + N is not."""
    report, claimed = _told_by_the_last_bits(dtype)
    assert not report.contradicts(claimed)
    finer = 20 - int(np.log2(torch.finfo(dtype).eps))
    monkeypatch.setattr(steps, "_GRID_BITS", finer)
    report, claimed = _told_by_the_last_bits(dtype)
    assert report.contradicts(claimed)
