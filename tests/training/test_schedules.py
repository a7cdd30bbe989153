"""Schedules of the learning rate: moved by public facts and releases, and kept in checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler as schedulers
from torch.optim.swa_utils import SWALR
from torch.utils.data import DataLoader, TensorDataset

import tacit
from tacit.errors import InvalidValue, LedgerError
from tacit.evaluation import Evaluation
from tacit.training import Plan, PublicMetric, Trainer, clipped_gradient_sum, load_weights
from training.test_trainer import ROWS, Noticing, data, network, plan, trainer

STEPS = 10
SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "StepLR": lambda made: schedulers.StepLR(made, 3),
    "MultiStepLR": lambda made: schedulers.MultiStepLR(made, [2, 6, 11]),
    "ConstantLR": schedulers.ConstantLR,
    "LinearLR": schedulers.LinearLR,
    "ExponentialLR": lambda made: schedulers.ExponentialLR(made, 0.9),
    "PolynomialLR": lambda made: schedulers.PolynomialLR(made, STEPS),
    "CosineAnnealingLR": lambda made: schedulers.CosineAnnealingLR(made, STEPS),
    "CosineAnnealingWarmRestarts": lambda made: schedulers.CosineAnnealingWarmRestarts(made, 5),
    "CyclicLR": lambda made: schedulers.CyclicLR(made, 0.01, 0.1, step_size_up=3),
    "OneCycleLR": lambda made: schedulers.OneCycleLR(made, 0.5, total_steps=STEPS),
    "LambdaLR": lambda made: schedulers.LambdaLR(made, lambda step: 0.95**step),
    "MultiplicativeLR": lambda made: schedulers.MultiplicativeLR(made, lambda step: 0.95),
    "SequentialLR": lambda made: schedulers.SequentialLR(
        made, [schedulers.LinearLR(made, 0.1, total_iters=5), schedulers.CosineAnnealingLR(made, 5)], [5]
    ),
    "ChainedScheduler": lambda made: schedulers.ChainedScheduler(
        [schedulers.ConstantLR(made), schedulers.ExponentialLR(made, 0.9)]
    ),
    "SWALR": lambda made: SWALR(made, swa_lr=0.01),
}


planned = cache(lambda steps: plan(steps=steps))


def run(make: Callable[[Any], Any], seen: list[float], steps: int = STEPS, **options: Any) -> Trainer:
    """A run that notes the learning rate after every step."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def note(progress: Any) -> None:
        seen.append(optimizer.param_groups[0]["lr"])
        if progress.step == options.get("stop"):
            progress.stop()

    options = {"callbacks": [note], **options}
    given = {name: value for name, value in options.items() if name != "stop"}
    return trainer(planned(steps), model, optimizer=optimizer, schedule=make(optimizer), **given)


@pytest.mark.parametrize(
    ("name", "every"),
    [*((name, "step") for name in SCHEDULES), ("StepLR", "epoch"), ("SequentialLR", "epoch")],
)
def test_any_schedule_goes_on_from_a_checkpoint_as_it_would_have(
    name: str, every: str, tmp_path: Path
) -> None:
    whole: list[float] = []
    optimizer = torch.optim.SGD(network().parameters(), lr=0.1, momentum=0.9)
    schedule = SCHEDULES[name](optimizer)
    for step in range(1, STEPS + 1):
        optimizer.step()
        if every == "step" or step % 5 == 0:
            schedule.step()
        whole.append(optimizer.param_groups[0]["lr"])
    halves: list[float] = []
    path = tmp_path / "run.safetensors"
    options = {"schedule_every": every, "checkpoint": path, "checkpoint_every": 3}
    run(SCHEDULES[name], halves, stop=7, **options).fit(data())
    run(SCHEDULES[name], halves, **options).fit(data(), resume=True)
    assert halves == whole


def test_all_of_torchs_schedulers_are_tried() -> None:
    found = {name for name in schedulers.__all__ if name not in ("LRScheduler", "ReduceLROnPlateau")}
    assert found <= set(SCHEDULES)


def test_a_run_goes_on_with_the_kind_of_schedule_it_was_begun_with(tmp_path: Path) -> None:
    path, seen = tmp_path / "run.safetensors", []  # type: ignore[var-annotated]
    run(SCHEDULES["StepLR"], seen, checkpoint=path, stop=3).fit(data())
    with pytest.raises(InvalidValue, match="StepLR by step, as when the run was begun"):
        run(SCHEDULES["LinearLR"], seen, checkpoint=path).fit(data(), resume=True)
    with pytest.raises(InvalidValue, match="StepLR by step, as when the run was begun"):
        run(SCHEDULES["StepLR"], seen, checkpoint=path, schedule_every="epoch").fit(data(), resume=True)
    run(SCHEDULES["StepLR"], seen, checkpoint=path).fit(data(), resume=True)


def test_a_schedule_that_would_end_within_the_run_is_refused_before_it() -> None:
    with pytest.raises(InvalidValue, match="total_steps=10"):
        run(lambda made: schedulers.OneCycleLR(made, 0.5, total_steps=4), [])
    run(lambda made: schedulers.OneCycleLR(made, 0.5, total_steps=4), [], schedule_every="epoch").fit(data())


def test_a_schedule_of_another_optimiser_or_none_is_refused() -> None:
    other = torch.optim.SGD(network().parameters(), lr=0.1)
    with pytest.raises(InvalidValue, match="made for the trainer's optimiser"):
        run(lambda made: schedulers.StepLR(other, 3), [])
    with pytest.raises(InvalidValue, match="a scheduler of"):
        run(lambda made: 0.9, [])
    with pytest.raises(InvalidValue, match="schedule_every"):
        run(SCHEDULES["StepLR"], [], schedule_every="batch")
    with pytest.raises(InvalidValue, match="given with schedule_every"):
        trainer(schedule_every="epoch")


def optimizer_rate(made: Trainer) -> float:
    return float(made.optimizer.param_groups[0]["lr"])


def plateau(made: Any) -> Any:
    return schedulers.ReduceLROnPlateau(made, mode="max", patience=0, factor=0.5)


def test_a_plateau_needs_a_released_metric() -> None:
    with pytest.raises(InvalidValue, match="given with ReduceLROnPlateau"):
        run(plateau, [])
    with pytest.raises(InvalidValue, match="only with ReduceLROnPlateau"):
        run(SCHEDULES["StepLR"], [], metric=lambda model: PublicMetric(1.0))


@pytest.mark.parametrize("kind", ["loss", "tensor", "diagnostics", "several"])
def test_what_is_no_release_does_not_move_the_learning_rate(kind: str) -> None:
    """The refusal names a type and no value: a loss without noise is somebody's."""
    seen: list[float] = []

    def metric(model: nn.Module) -> Any:
        figures = made.private_diagnostics
        assert figures is not None
        found = {"loss": figures.loss, "tensor": torch.tensor(figures.loss), "diagnostics": figures}
        return found.get(kind, (figures.loss, "loss"))

    made = run(plateau, seen, schedule_every="epoch", metric=metric)
    with pytest.raises(InvalidValue, match="a released figure") as told:
        made.fit(data())
    assert "PublicMetric" in str(told.value)
    assert "tacit.evaluate" in str(told.value)
    assert made.private_diagnostics is not None
    assert f"{made.private_diagnostics.loss:.3f}" not in str(told.value)
    assert set(seen) <= {0.1}


def test_a_schedule_that_other_code_moves_is_refused() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moved = plateau(optimizer)
    made = trainer(
        model=model, optimizer=optimizer, schedule=moved, schedule_every="epoch",
        metric=lambda model: PublicMetric(1.0),
        callbacks=[lambda progress: moved.step(progress.private_diagnostics.loss)],
    )  # fmt: skip
    with pytest.raises(InvalidValue, match="moved by the trainer alone"):
        made.fit(data())


def test_a_public_metric_moves_it_and_is_an_assumption(tmp_path: Path) -> None:
    values = iter([0.6, 0.6])
    seen: list[float] = []
    path = tmp_path / "run.safetensors"
    options: dict[str, Any] = {"schedule_every": "epoch", "checkpoint": path}
    options["metric"] = lambda model: PublicMetric(next(values))
    run(plateau, seen, stop=7, **options).fit(data())
    made = run(plateau, seen, **options).fit(data(), resume=True)
    assert [seen[0], seen[5], seen[9], optimizer_rate(made)] == [0.1, 0.1, 0.05, 0.05]
    assert any("computed from public examples" in each for each in made.guarantee.assumptions)


def evaluated(ledger: tacit.Ledger | None, epsilon: float = 0.25, **facts: Any) -> Evaluation:
    rows = np.linspace(-3, 3, 60)[:, None]
    fitted = LogisticRegression().fit(rows, rows[:, 0] > 0)
    return tacit.evaluate(fitted, rows, rows[:, 0] > 0, epsilon=epsilon, ledger=ledger, **facts)


def test_a_private_evaluation_that_moves_it_counts_in_every_guarantee(tmp_path: Path) -> None:
    """The weights are a function of the evaluations too, whose people may be those of the run."""
    seen: list[float] = []
    options = {"schedule_every": "epoch", "checkpoint": tmp_path / "run.safetensors"}
    metric = lambda model: (evaluated(None), "accuracy")  # noqa: E731
    run(plateau, seen, metric=metric, stop=7, **options).fit(data())
    made = run(plateau, seen, metric=metric, **options).fit(data(), resume=True)
    alone = made.plan.epsilon
    promised = made.guarantee
    assert alone + 0.1 < promised.epsilon <= alone + 0.5 + 1e-6
    assert isinstance(promised.event, tacit.events.Compose)
    assert promised.event.events.count(tacit.events.Pure(0.25)) == 2
    assert made.epsilon() == pytest.approx(promised.epsilon)
    tacit.save(made, tmp_path / "model.safetensors")
    fresh = network()
    assert load_weights(tmp_path / "model.safetensors", fresh) == promised
    further = trainer(plan(steps=1), fresh).fit(data())
    assert further.guarantee.epsilon > promised.epsilon


def test_a_run_with_a_ledger_takes_evaluations_that_were_charged_to_it(tmp_path: Path) -> None:
    budget = tacit.Budget(epsilon=5.0, delta=1e-5)
    facts: dict[str, Any] = {"population": ROWS, "batch_size": 12, "steps": 10, "epsilon": 2.0, "delta": 1e-5}

    def begun(ledger: tacit.Ledger | None, metric: Any) -> Trainer:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return trainer(
            Plan(**facts), model, optimizer=optimizer, schedule=plateau(optimizer), schedule_every="epoch",
            metric=metric, ledger=ledger,
        )  # fmt: skip

    refused = pytest.raises(LedgerError, match="no charge for 'evaluation'")
    with tacit.Ledger.open(tmp_path / "study.db", budget=budget) as ledger, refused:
        begun(ledger, lambda model: evaluated(None)).fit(data())
    with tacit.Ledger.open(tmp_path / "other.db", budget=budget) as ledger:
        made = begun(ledger, lambda model: evaluated(ledger)).fit(data())
        assert len(ledger.entries()) == 3
        assert made.guarantee.epsilon <= 2.5 + 1e-6
    with pytest.raises(InvalidValue, match="under one relation"):
        begun(None, lambda model: evaluated(None, relation="replace_one")).fit(data())


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("rows", [Noticing, lambda: TensorDataset(*data())])
def test_a_data_loader_whose_batches_are_replaced_is_told_of_once(shuffle: bool, rows: Any) -> None:
    loader = DataLoader(rows(), batch_size=7, shuffle=shuffle)
    with pytest.warns(UserWarning, match="batch_size=7") as told:
        trainer().fit(loader)
    assert len(told) == 1
    text = str(told[0].message)
    assert ("shuffled" in text) == shuffle
    assert "each example is drawn with probability 0.2 (12 expected)" in text


LOSSES: dict[str, tuple[Any, Any]] = {
    "mean": (nn.CrossEntropyLoss(), nn.CrossEntropyLoss(reduction="none")),
    "sum": (nn.CrossEntropyLoss(reduction="sum"), nn.CrossEntropyLoss(reduction="none")),
    "function": (F.cross_entropy, nn.CrossEntropyLoss(reduction="none")),
    "partial": (
        partial(partial(F.cross_entropy, reduction="sum"), label_smoothing=0.1),
        nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1),
    ),
    "own": (lambda *given: F.cross_entropy(*given, reduction="none"), nn.CrossEntropyLoss(reduction="none")),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_engine_takes_the_losses_that_the_trainer_takes(name: str) -> None:
    given, plain = LOSSES[name]
    model = network()
    found, norms = clipped_gradient_sum(model, given, *data(), 0.5)
    wanted, plain_norms = clipped_gradient_sum(model, plain, *data(), 0.5)
    assert len(norms) == ROWS
    torch.testing.assert_close(norms, plain_norms)
    for each, value in wanted.items():
        torch.testing.assert_close(found[each], value)
    assert trainer(loss=given).fit(data()).step_number == 8


@pytest.mark.parametrize("loss", [lambda out, to: F.cross_entropy(out, to), "mean", None])
def test_what_gives_no_loss_for_each_example_is_refused_alike(loss: Any) -> None:
    told = []
    for act in (
        lambda: trainer(loss=loss).fit(data()), lambda: clipped_gradient_sum(network(), loss, *data(), 0.5)
    ):  # fmt: skip
        with pytest.raises(InvalidValue) as error:
            act()
        told.append(str(error.value))
    assert told[0] == told[1]


def test_a_class_outside_of_the_model_is_told_of_without_its_number() -> None:
    inputs, targets = data()
    with pytest.raises(InvalidValue, match="Count the model's outputs"):
        clipped_gradient_sum(network(), nn.CrossEntropyLoss(), inputs, targets + 7, 0.5)
