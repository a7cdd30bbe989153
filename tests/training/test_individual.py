"""Individual accounting: each example pays for what it adds, leaves in time, and pays for nobody else."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from contract import training_cases as tc
from contract.registry import REGISTRY, check_audit
from tacit import accounting, events
from tacit.errors import EngineFailed, InvalidValue
from tacit.training import Plan, Quantile, Trainer
from tacit.training.individual import Individual
from training.test_trainer import quiet  # noqa: F401

pytestmark = pytest.mark.usefixtures("tested_once")

LENGTHS = torch.tensor([0.0, 0.1, 0.5, 1.0, 7.0, math.nan])


SIX: dict[str, Any] = {
    "population": 6, "batch_size": 6, "steps": 2, "delta": 1e-5, "noise_multiplier": 1.0,
    "accounting": "individual",
}  # fmt: skip


class Slope(nn.Module):
    """One weight for each example, along which its gradient points."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(rows))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows @ self.weight


def rows_of(lengths: torch.Tensor) -> torch.Tensor:
    return torch.diag(lengths.nan_to_num(0.0)).masked_fill(torch.diag(lengths.isnan()), math.nan)


def run(lengths: torch.Tensor = LENGTHS, dataset: Any = None, **changes: Any) -> tuple[Trainer, np.ndarray]:
    """A run in which all rows are seen in every step, and by how much each step moved each coordinate."""
    facts: dict[str, Any] = {
        "population": len(lengths), "batch_size": len(lengths), "steps": 6, "delta": 1e-5,
        "noise_multiplier": 1.0, "accounting": "individual", "participations": 2, **changes,
    }  # fmt: skip
    model = Slope(len(lengths))
    optimizer = torch.optim.SGD(model.parameters(), lr=float(facts["batch_size"]))
    places = [np.zeros(len(lengths))]
    trainer = Trainer(
        model, lambda outputs, targets: outputs, optimizer, Plan(**facts), progress=False, random_state=1,
        callbacks=[lambda progress: places.append(model.weight.detach().numpy().copy())],
    )  # fmt: skip
    trainer.fit((rows_of(lengths), torch.zeros(len(lengths))) if dataset is None else dataset)
    return trainer, -np.diff(places, axis=0)


@pytest.mark.usefixtures("quiet")
def test_each_example_adds_as_much_as_its_budget_pays_for() -> None:
    trainer, moved = run()
    assert moved[:, 0] == pytest.approx(0)
    assert moved[:, 1] == pytest.approx(0.1, rel=1e-5)
    assert moved[:, 2] == pytest.approx(0.5, rel=1e-5)
    for always_clipped in (3, 4):
        assert moved[:, always_clipped] == pytest.approx([1, 1, 0, 0, 0, 0], rel=1e-5)
    assert (moved[:, 5] == 0).all()
    costs = trainer.private_costs
    assert costs.spent == pytest.approx([0, 0.06, 1.5, 2, 2, 0], rel=1e-3)
    assert (costs.spent >= [0, 0.06, 1.5, 2, 2, 0]).all()
    assert costs.left.tolist() == [False, False, False, True, True, False]


@pytest.mark.usefixtures("quiet")
def test_the_squares_of_what_is_added_stay_within_the_budget_for_any_lengths() -> None:
    lengths = torch.rand(40, generator=torch.Generator().manual_seed(2)) * 1.5
    for clipping in ("flat", "automatic", "per-layer"):
        trainer, moved = run(lengths, clipping=clipping, steps=12, participations=3)
        added = (moved**2).sum(axis=0)
        assert added.max() <= 3 + 1e-6
        assert added.max() > 2.5
        assert (trainer.private_costs.spent >= added - 1e-6).all()


@pytest.mark.usefixtures("quiet")
def test_small_physical_batches_and_data_sets_charge_the_same_rows() -> None:
    whole, _ = run(LENGTHS[:5])
    dataset = TensorDataset(rows_of(LENGTHS[:5]), torch.zeros(5))
    for given in (dataset, (rows_of(LENGTHS[:5]), torch.zeros(5))):
        model = Slope(5)
        plan = Plan(
            population=5, batch_size=5, steps=6, delta=1e-5, noise_multiplier=1.0, accounting="individual",
            participations=2,
        )  # fmt: skip
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        trainer = Trainer(
            model, lambda outputs, targets: outputs, optimizer, plan, progress=False, physical_batch=2,
            random_state=1,
        )  # fmt: skip
        assert trainer.fit(given).private_costs.spent == pytest.approx(whole.private_costs.spent)


@pytest.mark.usefixtures("quiet")
def test_a_row_pays_only_in_the_steps_that_see_it() -> None:
    for sampling in ("shuffle", "cyclic", "poisson"):
        trainer, moved = run(torch.ones(30), batch_size=10, steps=12, participations=4, sampling=sampling)
        seen = (moved > 0.5).sum(axis=0)
        assert trainer.private_costs.spent == pytest.approx(seen, rel=1e-3)
        assert seen.max() <= 4
        if sampling != "poisson":
            assert (seen == 4).all()


def test_the_run_is_one_release_with_noise_for_the_budget() -> None:
    facts: dict[str, Any] = {
        "population": 1000, "batch_size": 1000, "steps": 50, "delta": 1e-5, "epsilon": 1.0,
    }  # fmt: skip
    plan = Plan(**facts, accounting="individual", participations=10)
    assert plan.event == events.Gaussian(plan.noise_multiplier)
    assert plan.spent <= 1
    assert plan.step_noise == pytest.approx(plan.noise_multiplier * math.sqrt(10))
    worst = Plan(**facts)
    assert plan.step_noise == pytest.approx(worst.step_noise / math.sqrt(5), rel=1e-3)
    everybody = Plan(**facts, accounting="individual")
    assert everybody.participations == 50
    assert everybody.step_noise == pytest.approx(worst.step_noise, rel=1e-3)
    assert plan.event_of(5) == events.Gaussian(plan.noise_multiplier * math.sqrt(2) * (1 - 2**-53))
    both = Plan(
        **{**facts, "batch_size": 100}, accounting="individual", participations=2, noise="correlated",
        sampling="cyclic",
    )  # fmt: skip
    norm = math.hypot(*both.correlation.coefficients)
    assert both.step_noise == pytest.approx(both.noise_multiplier * math.sqrt(2) * norm)


def test_the_curator_sees_each_examples_own_epsilon() -> None:
    trainer, _ = run()
    own = trainer.private_costs.epsilon()
    # A gradient of 0 pays for what may have been lost below the smallest number (gradients.norms).
    assert own[5] == 0 <= own[0] < 0.005
    assert own[3] == own[4] == pytest.approx(trainer.guarantee.epsilon, rel=1e-6)
    exact = accounting.epsilon(events.Gaussian(math.sqrt(2 / 1.5)), 1e-5)
    assert exact <= own[2] <= 1.01 * exact
    plain = Plan(population=6, batch_size=6, steps=2, delta=1e-5, noise_multiplier=1.0)
    optimizer = torch.optim.SGD(trainer.model.parameters(), lr=1.0)
    with pytest.raises(InvalidValue, match="'individual'"):
        _ = Trainer(trainer.model, nn.MSELoss(), optimizer, plain).private_costs


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"charge": "epoch"}, "charged at once"),
        ({"clipping": Quantile()}, "has one clip_norm"),
        ({"participations": 0}, "participations"),
        ({"accounting": "worst-case"}, "left out in worst-case"),
    ],
)
def test_what_it_does_not_cover_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        run(**changes)


def test_neither_checkpoints_nor_loops_of_ones_own(tmp_path: Path) -> None:
    plan = Plan(**SIX)
    for options in ({}, {"checkpoint": tmp_path / "run"}):
        model = Slope(6)
        trainer = Trainer(model, nn.MSELoss(), torch.optim.SGD(model.parameters()), plan, **options)
        with pytest.raises(InvalidValue, match="kept in no file"):
            next(trainer.batches((torch.eye(6), torch.zeros(6))))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", list(tc.INDIVIDUAL))
def test_an_example_that_leaves_one_step_late_is_found(name: str) -> None:
    case = REGISTRY[name]
    to_the_end = tc.ExpectedIndividual(tc.TRAINING[name]).loss_to_the_end
    case = replace(case, pair=replace(case.pair, score=to_the_end))
    with pytest.raises(AssertionError, match=r"claims ε = .*, but ε ≥"):
        check_audit(case, tc.making(tc.TRAINING[name], late=1.0), seed=2)


def test_more_examples_than_were_drawn_are_refused() -> None:
    plan = Plan(**SIX)
    rule = Individual(plan.rule, plan)
    rule.begin(6, lambda step: np.arange(3))(0)
    rule.next_batch()
    with pytest.raises(EngineFailed, match="more examples than were drawn"):
        rule.next_rows(4)


def without_the_largest(items: list[Any]) -> Any:
    return default_collate([item for item in items if item[1] < 5])


class Numbered(Dataset[Any]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.eye(6)[row], torch.tensor(row)


@pytest.mark.usefixtures("quiet")
def test_a_batch_that_lacks_examples_is_refused_before_its_release() -> None:
    loader = DataLoader(Numbered(), collate_fn=without_the_largest)
    model = Slope(6)
    trainer = Trainer(
        model, lambda outputs, targets: outputs, torch.optim.SGD(model.parameters(), lr=1.0), Plan(**SIX),
        progress=False,
    )  # fmt: skip
    with (
        pytest.warns(UserWarning, match="batches"),
        pytest.raises(EngineFailed, match="fewer examples than were drawn"),
    ):
        trainer.fit(loader)
    assert trainer.step_number == 0
    assert not model.weight.detach().any()
    assert "in the order of its rows" in str(trainer.plan.guarantee())


@pytest.mark.usefixtures("quiet")
def test_an_empty_batch_costs_nothing_and_does_not_end_the_run() -> None:
    trainer, moved = run(torch.ones(6), batch_size=1, steps=40, participations=40)
    assert (moved.max(axis=1) < 0.5).any()
    assert (moved > 0.5).sum(axis=0) == pytest.approx(trainer.private_costs.spent)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    "options", [{"examples": "alone"}, {"views": 2}, {"physical_batch": 1}, {"autocast": torch.bfloat16}]
)
def test_every_way_to_compute_a_batch_charges_the_rows_that_are_in_it(options: dict[str, Any]) -> None:
    lengths = torch.tensor([0.0, 0.25, 0.5, 1.0, 8.0])
    plan = Plan(
        population=5, batch_size=5, steps=6, delta=1e-5, noise_multiplier=1.0, accounting="individual",
        participations=2,
    )  # fmt: skip
    model = Slope(5)
    trainer = Trainer(
        model, lambda outputs, targets: outputs, torch.optim.SGD(model.parameters(), lr=5.0), plan,
        progress=False, **options,
    ).fit((torch.diag(lengths), torch.zeros(5)))  # fmt: skip
    costs = trainer.private_costs
    assert costs.spent == pytest.approx([0, 6 / 16, 1.5, 2, 2], rel=1e-3)
    assert -model.weight.detach().numpy() == pytest.approx([0, 1.5, 3, 2, 2], rel=1e-3)
    assert costs.left.tolist() == [False, False, False, True, True]


@pytest.mark.usefixtures("quiet")
def test_rounding_does_not_decide_who_leaves() -> None:
    """Rows whose norms differ by a rounding add nearly the same, also where the budget runs out."""
    lengths = (math.sqrt(0.2) * (1 + torch.linspace(-2e-4, 1e-6, 41, dtype=torch.float64))).float()
    trainer, moved = run(lengths, steps=14, participations=2)
    assert np.diff(moved, axis=1) == pytest.approx(0, abs=2e-3)
    assert (moved**2).sum(axis=0).max() <= 2
    assert trainer.private_costs.left.all()


def test_the_own_epsilon_of_a_row_is_that_of_the_noise_it_was_hidden_by() -> None:
    """Also where the budget outlasts the run, and where the row is replaced by one that spends all."""
    for participations, relation in ((50, "add_remove"), (2, "replace_one")):
        changes = {"steps": 2, "participations": participations, "relation": relation}
        trainer, _ = run(torch.tensor([0.0, 0.5, 1.0]), **changes)
        own = trainer.private_costs.epsilon()
        assert own[2] == pytest.approx(trainer.guarantee.epsilon, rel=1e-6)
        apart = [0.0, 0.5, 1.0] if relation == "add_remove" else [0.5, 0.75, 1.0]
        exact = [accounting.epsilon(events.Gaussian(1 / each), 1e-5) if each else 0.0 for each in apart]
        assert (own >= exact).all()
        assert own == pytest.approx(exact, rel=0.01)
