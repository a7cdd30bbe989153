"""Correlated noise: its sensitivity by brute force, its covariance in a run, and what a broken run leaves."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from scipy.optimize import check_grad
from torch import nn

from tacit import accounting, events
from tacit.errors import InvalidValue
from tacit.randomness import Source
from tacit.report import training_cost
from tacit.training import Plan, Quantile, Trainer
from tacit.training.correlation import Correlation, _objective, optimised
from tacit.training.sampling import Cyclic, Ordered
from training.test_checkpoint import PowerCut, cut_at, run
from training.test_trainer import data

pytestmark = pytest.mark.usefixtures("tested_once")

FACTS: dict[str, Any] = {
    "population": 60_000, "batch_size": 1000, "epochs": 3, "delta": 1e-5, "sampling": "cyclic",
    "noise": "correlated",
}  # fmt: skip


def matrix(correlation: Correlation, steps: int) -> np.ndarray:
    return sum(value * np.eye(steps, k=-place) for place, value in enumerate(correlation.coefficients))


def largest_change(strategy: np.ndarray, apart: int) -> float:
    """The largest ‖C·S‖ of an example that moves rows ``apart`` apart by ±1."""
    steps, largest = len(strategy), 0.0
    for first in range(apart):
        rows = range(first, steps, apart)
        for signs in itertools.product((-1, 1), repeat=len(rows)):
            moved = np.zeros(steps)
            moved[list(rows)] = signs
            largest = max(largest, float(np.linalg.norm(strategy @ moved)))
    return largest


@pytest.mark.parametrize(
    ("steps", "apart", "bands"), [(12, 4, 4), (12, 4, 3), (11, 4, 2), (9, 3, 1), (6, 6, 6)]
)
def test_the_sensitivity_is_that_of_the_worst_example(steps: int, apart: int, bands: int) -> None:
    correlation = optimised(steps=steps, bands=bands)
    claimed = correlation.sensitivity(-(-steps // apart))
    strategy = matrix(correlation, steps)
    assert largest_change(strategy, apart) <= claimed
    if steps % apart == 0:
        longer = matrix(correlation, steps + bands)[:, :steps]
        reached = np.zeros(steps)
        reached[::apart] = 1
        assert np.linalg.norm(longer @ reached) == pytest.approx(claimed)
    begun_anew = strategy.copy()
    begun_anew[steps // 2 :, : steps // 2] = 0
    assert largest_change(begun_anew, apart) <= claimed


def test_bands_that_reach_into_the_next_epoch_would_break_the_bound() -> None:
    correlation = optimised(steps=12, bands=6)
    assert largest_change(matrix(correlation, 12), 3) > 1.1 * correlation.sensitivity(4)
    with pytest.raises(InvalidValue, match="at most the steps of an epoch, 60"):
        Plan(**FACTS, noise_multiplier=1.0, bands=61)


def test_the_coefficients_are_a_minimum() -> None:
    for steps, bands in ((50, 4), (1000, 8), (10_000, 2)):
        found = np.array(optimised(steps=steps, bands=bands).coefficients[1:])
        slope = check_grad(lambda x: _objective(x, steps)[0], lambda x: _objective(x, steps)[1], found)  # noqa: B023
        assert slope < 1e-5
        assert np.abs(_objective(found, steps)[1]).max() < 1e-3
    errors = [optimised(steps=1000, bands=bands).error(1000) for bands in (1, 2, 4, 8, 16, 32)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == pytest.approx(math.sqrt(500.5))


def test_error_is_the_noise_of_running_sums() -> None:
    correlation = Correlation((1.0, 0.7, 0.2))
    sums = np.tri(30) @ np.linalg.inv(matrix(correlation, 30))
    mean = (sums**2).sum() / 30
    assert correlation.error(30) == pytest.approx(math.sqrt(mean) * math.hypot(1.0, 0.7, 0.2))


def test_a_run_is_one_release_and_its_first_epochs_cost_less() -> None:
    plan = Plan(**FACTS, epsilon=2.0)
    assert plan.event == events.Gaussian(plan.noise_multiplier)
    assert plan.spent <= 2.0
    once = plan.event_of(60)
    assert isinstance(once, events.Gaussian)
    assert once.noise_multiplier == pytest.approx(plan.noise_multiplier * math.sqrt(3))
    assert plan.event_of(61) == plan.event_of(120)
    alone = accounting.epsilon(events.Repeat(once, 3), 1e-5)
    assert alone == pytest.approx(2.0, rel=1e-6)
    assert plan.bands == 32
    assert "correlated over 32 steps" in str(plan)
    norm = math.hypot(*plan.correlation.coefficients)
    assert plan.step_noise == pytest.approx(plan.noise_multiplier * math.sqrt(3) * norm)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sampling": "poisson"}, "'cyclic' or 'ordered'"),
        ({"sampling": "ordered"}, "relation='replace_one'"),
        ({"charge": "epoch"}, "charged at once"),
        ({"clipping": Quantile()}, "has one clip_norm"),
        ({"bands": 0}, "bands"),
        ({"noise": "pink"}, "noise"),
        ({"noise": "independent", "bands": 3}, "left out"),
    ],
)
def test_what_correlated_noise_does_not_cover_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        Plan(**{**FACTS, "noise_multiplier": 1.0, **changes})


def test_an_example_has_one_place_in_all_epochs() -> None:
    for sampler in (Cyclic(5), Ordered(5)):
        draw = sampler.draws(Source(3), 103)
        epochs = [[draw(5 * epoch + place).tolist() for place in range(5)] for epoch in range(3)]
        assert epochs[0] == epochs[1] == epochs[2]
        assert sorted(itertools.chain(*epochs[0])) == list(range(103))
    assert all(rows == sorted(rows) for rows in epochs[0])


def tensors_in(path: Path) -> dict[str, list[int]]:
    with safe_open(path, "pt") as kept:
        return {name: list(kept.get_tensor(name).shape) for name in kept.keys()}  # noqa: SIM118


CHANGES: dict[str, Any] = {"sampling": "cyclic", "noise": "correlated", "bands": 4}


def test_a_broken_run_goes_on_with_the_next_epoch_and_no_noise_is_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with pytest.raises(PowerCut):
        run(tmp_path / "plain", None, every=2, callbacks=[cut_at(6)]).fit(data())
    broken = run(path, None, plan=CHANGES, every=2, callbacks=[cut_at(6)])
    with pytest.raises(PowerCut):
        broken.fit(data())
    core = broken._run.state.core
    assert len(core._past_noise) == 3
    kept, plain = (tensors_in(each) for each in (path, tmp_path / "plain"))
    assert kept == plain
    for noise in core._past_noise:
        assert noise[:2].numpy().tobytes() not in path.read_bytes()
    made = run(path, None, plan=CHANGES, every=2)
    assert not made._run.state.core._past_noise
    seen: list[int] = []
    made.callbacks = (lambda progress: seen.append(progress.step),)
    made.fit(data(), resume=True)
    assert seen[0] == 11
    assert made.guarantee.event == made.plan.event


def test_correlation_begins_anew_where_other_parameters_are_trained() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))

    def freeze(progress: Any) -> None:
        if progress.step == 3:
            model[0].requires_grad_(False)

    plan = Plan(population=40, batch_size=4, steps=8, delta=1e-5, noise_multiplier=1.0, **CHANGES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = Trainer(model, lambda out, aim: out[:, 0], optimizer, plan, progress=False, callbacks=[freeze])
    trainer.fit((torch.randn(40, 3), torch.zeros(40)))
    assert trainer.step_number == 8
    assert {len(noise) for noise in trainer._run.state.core._past_noise} == {4}


def test_a_run_shorter_than_an_epoch_has_no_more_bands_than_steps() -> None:
    short = {**FACTS, "epochs": 0.1, "noise_multiplier": 1.0}
    plan = Plan(**short)
    assert (plan.steps, plan.bands, plan.correlation.bands) == (6, 6, 6)
    with pytest.raises(InvalidValue, match="at most the steps of the run, 6"):
        Plan(**short, bands=7)
    for noise in (1.0, 1e6):
        sampled = Plan(population=60_000, batch_size=1000, steps=6, delta=1e-5, noise_multiplier=noise)
        assert training_cost(sampled).to_dict()["recommended"] == "poisson"


def test_noise_of_the_sum_is_that_of_a_step() -> None:
    for changes in ({}, {"accounting": "individual"}):
        plan = Plan(**FACTS, noise_multiplier=1.0, **changes)
        assert training_cost(plan).noise_per_clip_norm == plan.step_noise > 1.7


def test_the_better_noise_is_recommended() -> None:
    facts: dict[str, Any] = {"population": 60_000, "batch_size": 1024, "epochs": 30, "delta": 1e-5}
    weak, strong = (training_cost(Plan(**facts, epsilon=epsilon)) for epsilon in (1.0, 8.0))
    assert (weak.recommended, strong.recommended) == ("poisson", "correlated")
    assert strong.to_dict()["running_noise_correlated"] < strong.to_dict()["running_noise"]


@pytest.mark.parametrize("sampling", ["shuffle", "cyclic"])
def test_whole_epochs_begin_no_other_epoch(sampling: str) -> None:
    """60000 ÷ 256 steps are no whole number, and the rest of 15 epochs must not pay for a 16th."""
    facts = {**FACTS, "batch_size": 256, "epochs": 15, "noise": "independent", "noise_multiplier": 1.0}
    plan = Plan(**{**facts, "sampling": sampling})
    assert (plan.steps, plan.steps_per_epoch) == (15 * 234, 234)
    assert plan.event == events.Repeat(events.Gaussian(1.0), 15)
    assert Plan(**{**facts, "noise": "correlated"}).full_gradients(15 * 234) == 15
