"""The trainer: what it charges, what it adds, what it refuses."""

from __future__ import annotations

import ast
import copy
import itertools
import math
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler

import tacit
from tacit import events
from tacit.errors import BudgetExceeded, InvalidValue, ModelUnreadable, SelfTestFailed
from tacit.randomness import Source
from tacit.training import Plan, Quantile, Trainer, clipped_gradient_sum, load_weights, noise
from tacit.training import step as steps
from tacit.training.gradients import engine, fallback
from tacit.training.isolation.selftest import draws_numbers

ROWS = 60


def data(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(1)
    return torch.randn(rows, 3, generator=made), torch.randint(0, 2, (rows,), generator=made)


def plan(**changes: Any) -> Plan:
    facts: dict[str, Any] = {
        "population": ROWS,
        "batch_size": 12,
        "steps": 8,
        "clip_norm": 0.5,
        "delta": 1e-5,
    }
    facts |= changes
    if "epsilon" not in facts:
        facts.setdefault("noise_multiplier", 1.0)
    return Plan(**facts)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def trainer(planned: Plan | None = None, model: nn.Module | None = None, **options: Any) -> Trainer:
    model = model or network()
    optimizer = options.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=0.1)
    loss = options.pop("loss", nn.CrossEntropyLoss())
    return Trainer(model, loss, optimizer, planned or plan(), **options)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise and no rounding, so that what lies under it can be seen."""
    monkeypatch.setattr(steps, "_GRID_BITS", 60)
    monkeypatch.setattr(steps, "normal", lambda source, *args: torch.zeros(args[0], dtype=args[1]))
    monkeypatch.setattr(steps, "check_noise", lambda noise: None)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[tacit.Ledger]:
    with tacit.Ledger.open(tmp_path / "study.db", budget=tacit.Budget(epsilon=3.0, delta=1e-5)) as made:
        yield made


class Noticing(Dataset[Any]):
    """Rows that note when they are read."""

    def __init__(self, ledger: tacit.Ledger | None = None) -> None:
        self.inputs, self.targets = data()
        self.ledger = ledger
        self.charged: list[int] = []

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        self.charged.append(-1 if self.ledger is None else len(self.ledger.entries()))
        return self.inputs[row], self.targets[row]


# What a step is


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("physical_batch", [None, 1, 5, 1000])
def test_a_step_is_the_clipped_sum_over_the_expected_batch(physical_batch: int | None) -> None:
    inputs, targets = data()
    model = network()
    before = copy.deepcopy(model)
    made = trainer(plan(batch_size=ROWS, steps=1), model, physical_batch=physical_batch)
    made.fit((inputs, targets))
    total, _ = clipped_gradient_sum(before, nn.CrossEntropyLoss(reduction="none"), inputs, targets, 0.5)
    for name, each in before.named_parameters():
        moved = dict(model.named_parameters())[name] - each
        assert torch.allclose(moved, -0.1 * total[name] / ROWS, atol=1e-7), name


def test_noise_has_the_plans_standard_deviation(monkeypatch: pytest.MonkeyPatch) -> None:
    def spread(relation: str, factor: float) -> float:
        model = nn.Linear(400, 100)
        made = trainer(plan(batch_size=ROWS, steps=1, noise_multiplier=1.5, relation=relation), model,
                       optimizer=torch.optim.SGD(model.parameters(), lr=1.0), random_state=4,
                       loss=lambda outputs, targets: outputs.sum(1) * 0.0)  # fmt: skip
        if factor != 1:
            monkeypatch.setattr(
                steps.PrivateStep,
                "noise_multiplier",
                property(lambda self: factor * self.plan.noise_multiplier),
            )
        before = torch.cat([each.detach().flatten().clone() for each in model.parameters()])
        made.fit((torch.randn(ROWS, 400), torch.zeros(ROWS)))
        after = torch.cat([each.detach().flatten() for each in model.parameters()])
        return float((after - before).double().square().sum() * ROWS**2)

    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], 400 * 100 + 100)
    for relation, sensitivity in (("add_remove", 0.5), ("replace_one", 1.0)):
        assert low < spread(relation, 1) / (1.5 * sensitivity) ** 2 < high
    assert spread("add_remove", 2 / 3) / (1.5 * 0.5) ** 2 < low


@pytest.mark.usefixtures("quiet")
def test_views_are_one_example(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, targets = data(6)
    model = network()
    before = copy.deepcopy(model)
    shift = torch.tensor([0.5, -0.5]).repeat(6)[:, None]
    trainer(plan(population=6, batch_size=6, steps=1), model, views=2, augment=lambda x: x + shift).fit(
        (inputs, targets)
    )
    total = {name: torch.zeros_like(each) for name, each in before.named_parameters()}
    for row in range(6):
        loss = nn.CrossEntropyLoss()(before(inputs[[row, row]] + shift[:2]), targets[[row, row]])
        found = torch.autograd.grad(loss, list(before.parameters()))
        norm = math.sqrt(sum(float(each.square().sum()) for each in found))
        for name, each in zip(total, found, strict=True):
            total[name] += each * min(1, 0.5 / norm)
    for (name, each), now in zip(before.named_parameters(), model.parameters(), strict=True):
        assert torch.allclose(now - each, -0.1 * total[name] / 6, atol=1e-6), name


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("clipping", ["per-layer", "automatic", Quantile(count_noise=2.0)], ids=str)
@pytest.mark.parametrize("far", [False, True])
def test_every_rule_bounds_what_an_example_adds(clipping: Any, far: bool) -> None:
    inputs, targets = data(1)
    model = network()
    before = [each.detach().clone() for each in model.parameters()]
    trainer(plan(population=1, batch_size=1, steps=1, clipping=clipping), model).fit(
        (inputs * (1000 if far else 1), targets)
    )
    after = [each.detach() for each in model.parameters()]
    moved = math.sqrt(sum(float((a - b).square().sum()) for a, b in zip(after, before, strict=True)))
    assert 0 < moved <= 0.1 * 0.5 * 1.0001


def test_quantile_finds_the_quantile() -> None:
    quantile = Quantile(count_noise=0.05)
    planned = plan(batch_size=ROWS, steps=150, clip_norm=5.0, clipping=quantile, noise_multiplier=0.5)
    inputs = torch.linspace(0.2, 2.0, ROWS)[:, None]
    model = nn.Linear(1, 1, bias=False)
    still = torch.optim.SGD(model.parameters(), lr=0.0)
    made = trainer(planned, model, loss=lambda outputs, _: outputs[:, 0], optimizer=still, random_state=1)
    made.fit((inputs, torch.zeros(ROWS)))
    assert abs(made.clip_norm - 1.1) < 0.15


@pytest.mark.usefixtures("quiet")
def test_averages() -> None:
    inputs, targets = data()
    path: list[Tensor] = []
    for average in (0.5, "tail"):
        model = network()
        path.clear()

        def note(progress: Any, model: nn.Module = model) -> None:
            path.append(model[0].weight.detach().clone())  # type: ignore[index]

        made = trainer(plan(batch_size=ROWS, steps=6), model, average=average, callbacks=[note])
        made.fit((inputs, targets))
        kept = path if average == 0.5 else path[3:]
        mean = kept[0].clone()
        for number, each in enumerate(kept[1:], 1):
            mean = (mean + each) / 2 if average == 0.5 else mean + (each - mean) / (number + 1)
        assert torch.allclose(model[0].weight, mean, atol=1e-6)


# Bad examples


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e38])
def test_an_example_that_is_not_finite_adds_nothing(bad: float) -> None:
    inputs, targets = data(8)
    spoiled = inputs.clone()
    spoiled[3] = bad
    models = network(), network()
    for model, rows, labels in (
        (models[0], spoiled, targets),
        (models[1], torch.cat([inputs[:3], inputs[4:]]), torch.cat([targets[:3], targets[4:]])),
    ):
        trainer(plan(population=8, batch_size=8, steps=3), model, loss=_cubed).fit((rows, labels))
    for one, two in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.isfinite(one).all()
        if not math.isfinite(bad) or bad > 1e30:
            assert torch.allclose(one, two, atol=1e-6)


def _cubed(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.pow(3).sum(1) - targets


@pytest.mark.parametrize("rows", [0, 1, 2, 59, 61, 200])
def test_the_length_of_the_data_changes_nothing_that_shows(
    rows: int, capsys: pytest.CaptureFixture[str]
) -> None:
    made = trainer(progress=False)
    made.fit(data(rows))
    assert made.step_number == 8
    assert made.guarantee == plan().guarantee()
    assert capsys.readouterr() == ("", "")


def test_empty_batches_are_ordinary_steps() -> None:
    model = network()
    before = copy.deepcopy(model)
    made = trainer(plan(population=10**6, batch_size=1, steps=5, noise_multiplier=1.0), model)
    made.fit(Noticing())
    assert made.step_number == 5
    assert not torch.equal(model[0].weight, before[0].weight)


def test_another_length_is_refused_where_it_is_public() -> None:
    with pytest.raises(InvalidValue, match="population, 60"):
        trainer(plan(relation="replace_one")).fit(data(59))


# The ledger


def test_the_run_is_charged_before_a_row_is_read(ledger: tacit.Ledger) -> None:
    rows = Noticing(ledger)
    made = trainer(plan(epsilon=2.0), ledger=ledger)
    made.fit(rows)
    assert rows.charged
    assert min(rows.charged) == 1
    (entry,) = ledger.entries()
    assert entry.event == made.plan.event
    assert entry.noise == "float32"
    assert made.guarantee.epsilon == 2.0 >= ledger.spent().epsilon > 1.9


def test_a_spent_budget_refuses_before_a_row_is_read(ledger: tacit.Ledger) -> None:
    trainer(plan(epsilon=2.0), ledger=ledger).fit(data())
    rows, model = Noticing(ledger), network()
    before = copy.deepcopy(model)
    with pytest.raises(BudgetExceeded):
        trainer(plan(epsilon=2.0), model, ledger=ledger).fit(rows)
    assert not rows.charged
    assert torch.equal(model[0].weight, before[0].weight)


def test_a_crash_leaves_the_charge(ledger: tacit.Ledger) -> None:
    def fail(progress: Any) -> None:
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        trainer(plan(epsilon=2.0), ledger=ledger, callbacks=[fail]).fit(data())
    assert ledger.spent().epsilon > 1.9


def test_an_early_stop_keeps_what_was_not_charged(tmp_path: Path) -> None:
    planned = plan(epsilon=2.0, charge="epoch", steps=50)
    budget = tacit.Budget(epsilon=2.0, delta=1e-5)
    with tacit.Ledger.open(tmp_path / "s.db", budget=budget, filter="renyi") as ledger:
        made = trainer(planned, ledger=ledger, callbacks=[lambda p: p.stop() if p.step == 12 else None])
        made.fit(data())
        assert made.step_number == 12
        assert [entry.event for entry in ledger.entries()] == [planned.event_of(5)] * 3
        assert ledger.spent().epsilon < 0.75 * 2.0
        assert made.guarantee.event == planned.event_of(15)
        assert any("when to stop" in each for each in made.guarantee.assumptions)


def test_all_epochs_fit_into_the_budget_they_were_planned_for(tmp_path: Path) -> None:
    budget = tacit.Budget(epsilon=2.0, delta=1e-5)
    with tacit.Ledger.open(tmp_path / "s.db", budget=budget, filter="renyi") as ledger:
        trainer(plan(epsilon=2.0, charge="epoch", steps=50), ledger=ledger).fit(data())
        assert len(ledger.entries()) == 10
        assert ledger.spent().epsilon <= 2.0


def test_another_relation_is_refused(tmp_path: Path) -> None:
    with (
        tacit.Ledger.open(
            tmp_path / "s.db", budget=tacit.Budget(epsilon=2.0), relation="replace_one"
        ) as ledger,
        pytest.raises(tacit.TacitError, match="ledger promises privacy under replace_one, not add_remove"),
    ):
        trainer(ledger=ledger)


def test_another_unit_is_refused(tmp_path: Path) -> None:
    unit = tacit.Unit("patient", 3)
    with (
        tacit.Ledger.open(tmp_path / "s.db", budget=tacit.Budget(epsilon=2.0), unit=unit) as ledger,
        pytest.raises(tacit.TacitError, match="ledger protects one patient"),
    ):
        trainer(ledger=ledger)


def test_anything_but_a_ledger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"ledger must be a tacit\.Ledger"):
        trainer(ledger=str(tmp_path / "s.db"))


def test_a_seed_is_said() -> None:
    made = trainer(random_state=3).fit(data())
    assert made.guarantee.noise == "seeded"
    assert "NO PRIVACY" in str(made.guarantee).upper()


# A loop of one's own


def test_own_loop_is_the_same_run() -> None:
    models = network(), network()
    one = trainer(model=models[0], random_state=5).fit(data())
    two = trainer(model=models[1], random_state=5)
    for inputs, targets in two.batches(data()):
        two.step(inputs, targets)
    assert torch.equal(models[0][0].weight, models[1][0].weight)
    assert one.guarantee == two.guarantee


def test_a_batch_without_its_step_is_refused() -> None:
    made = trainer()
    batches = made.batches(data())
    next(batches)
    with pytest.raises(InvalidValue, match="once for each batch"):
        next(batches)


def test_steps_without_a_batch_are_refused() -> None:
    made = trainer()
    with pytest.raises(InvalidValue, match="without a batch"):
        made.step(*data(3))
    batches = made.batches(data())
    batch = next(batches)
    made.step(*batch)
    with pytest.raises(InvalidValue, match="without a batch"):
        made.step(*batch)


def test_rows_left_out_are_refused() -> None:
    made = trainer(plan(batch_size=ROWS, steps=2))
    batches = made.batches(data())
    inputs, targets = next(batches)
    with pytest.raises(InvalidValue, match="transformed row by row"):
        made.step(inputs[1:], targets[1:])


def test_a_step_that_fails_ends_the_run() -> None:
    model = network()

    def broken(optimizer: Any, args: Any, kwargs: Any) -> None:
        raise RuntimeError("no step")

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(broken)
    made = trainer(model=model, optimizer=optimizer)
    batches = made.batches(data())
    with pytest.raises(RuntimeError, match="no step"):
        made.step(*next(batches))
    with pytest.raises(InvalidValue, match="once for each batch"):
        next(batches)


def test_two_loops_at_once_are_refused() -> None:
    made = trainer()
    one, two = made.batches(data()), made.batches(data())
    next(one)
    with pytest.raises(InvalidValue, match="fitted once"):
        next(two)
    with pytest.raises(InvalidValue, match="begun"):
        copy.copy(made).fit(data())


def test_gradients_from_before_are_not_applied() -> None:
    model = network()
    inputs, targets = data()
    nn.CrossEntropyLoss()(model(inputs), targets).backward()
    model[0].requires_grad_(False)  # type: ignore[index]
    before = model[0].weight.detach().clone()  # type: ignore[index]
    trainer(model=model).fit((inputs, targets))
    assert torch.equal(before, model[0].weight)  # type: ignore[index]


def test_parameters_of_others_are_refused() -> None:
    model = network()
    with pytest.raises(InvalidValue, match="and no others"):
        trainer(
            model=model,
            optimizer=torch.optim.SGD([*model.parameters(), nn.Parameter(torch.zeros(2))], lr=0.1),
        )


def test_random_layers_leave_the_global_generator_alone() -> None:
    drawn = []
    for rows in (20, 50):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        trainer(plan(batch_size=ROWS, steps=3), model).fit(data(rows))
        drawn.append(torch.rand(1))
    assert torch.equal(*drawn)


def test_a_trainer_runs_once() -> None:
    made = trainer().fit(data())
    with pytest.raises(InvalidValue, match="fitted once"):
        made.fit(data())


def test_the_number_of_steps_is_counted_by_the_trainer_alone() -> None:
    made = trainer()
    for number in (-5, 3):
        with pytest.raises(AttributeError):
            made.step_number = number  # type: ignore[misc]
    assert made.fit(data()).step_number == 8


def test_two_threads_on_one_model_are_refused_before_the_charge(ledger: tacit.Ledger) -> None:
    """One run stands still within a step; another, and a step of a loop of one's own, are refused."""
    model, within, go_on = network(), threading.Event(), threading.Event()

    def standing(inputs: Tensor) -> Tensor:
        within.set()
        assert go_on.wait(120)
        return inputs

    own = trainer(plan(batch_size=ROWS), model)
    batches = own.batches(data())
    batch = next(batches)
    first = trainer(plan(batch_size=ROWS), model, augment=standing)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(first.fit, data())
        try:
            assert within.wait(120)
            with pytest.raises(InvalidValue, match="Another step on this model is running"):
                trainer(plan(epsilon=2.0), model, ledger=ledger).fit(data())
            late = trainer(plan(epsilon=2.0), model, ledger=ledger).batches(data())
            with pytest.raises(InvalidValue, match="Another step on this model is running"):
                next(late)
            with pytest.raises(InvalidValue, match="Another step on this model is running"):
                own.step(*batch)
            assert not ledger.entries()
            assert (first.step_number, own.step_number) == (0, 0)
            trainer(model=network()).fit(data())
        finally:
            go_on.set()
        run.result()
    assert first.step_number == 8
    own.step(*batch)
    for batch in batches:
        own.step(*batch)
    assert own.step_number == 8


# Data sets


def _as_dataset() -> Dataset[Any]:
    return Noticing()


@pytest.mark.parametrize(
    "make",
    [
        data,
        lambda: tuple(each.numpy() for each in data()),
        lambda: TensorDataset(*data()),
        _as_dataset,
        lambda: DataLoader(TensorDataset(*data()), batch_size=7, shuffle=True),
        lambda: DataLoader(Noticing(), batch_size=7, num_workers=0),
    ],
    ids=["tensors", "arrays", "tensor data set", "data set", "loader", "loader of a data set"],
)
@pytest.mark.filterwarnings("ignore:The DataLoader's batches")
def test_data_sets_of_every_kind_are_the_same(make: Any) -> None:
    models = network(), network()
    trainer(model=models[0], random_state=5).fit(data())
    trainer(model=models[1], random_state=5, physical_batch=4).fit(make())
    assert torch.allclose(models[0][0].weight, models[1][0].weight, atol=1e-6)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from zip(*data(), strict=True)


@pytest.mark.parametrize(
    "make",
    [
        Stream,
        lambda: DataLoader(Stream()),
        lambda: DataLoader(Noticing(), sampler=WeightedRandomSampler([1.0] * ROWS, ROWS)),
        lambda: [1, 2, 3],
        lambda: "data",
        lambda: None,
    ],
    ids=["stream", "loader of a stream", "weighted loader", "list", "text", "none"],
)
def test_what_cannot_be_sampled_is_refused(make: Any, ledger: tacit.Ledger) -> None:
    with pytest.raises(InvalidValue, match="dataset"):
        trainer(plan(epsilon=2.0), ledger=ledger).fit(make())


# Models and losses


class Centred(nn.Module):
    """Subtracts the mean of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.layer(x - x.mean(0))
        return made


def test_a_model_that_mixes_examples_is_found_at_the_first_step() -> None:
    with pytest.raises(InvalidValue, match="does not change the"):
        trainer(model=Centred()).fit(data())


def test_a_loss_that_mixes_examples_is_found_at_the_first_step() -> None:
    with pytest.raises(InvalidValue, match="does not change the"):
        trainer(loss=lambda outputs, targets: (outputs - outputs.mean(0)).square().sum(1)).fit(data())


def test_a_loss_of_the_whole_batch_is_refused() -> None:
    with pytest.raises(InvalidValue, match="one loss per example"):
        trainer(loss=lambda outputs, targets: outputs.sum()).fit(data())


def test_clipping_that_does_not_act_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.training import clipping

    real = clipping.Flat.factors

    def lazy(self: Any, squares: Any, clip_norm: float, parameters: int) -> Any:
        return real(self, squares, 1e9, parameters)

    monkeypatch.setattr(clipping.Flat, "factors", lazy)
    with pytest.raises(SelfTestFailed, match="clip_norm"):
        trainer().fit(data())


@pytest.mark.parametrize("factor", [0.0, 2 / 3, 1.5])
def test_noise_that_does_not_act_is_found(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    real = steps.normal
    monkeypatch.setattr(steps, "normal", lambda *args: factor * real(*args))
    with pytest.raises(SelfTestFailed, match="mean square"):
        trainer(model=nn.Linear(3, 200)).fit(data())


@pytest.mark.parametrize("many", [1 << 30, 0], ids=["after", "beside"])
def test_noise_is_the_same_beside_the_gradients_and_after(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh in every step, of the right size, and on the grid."""
    monkeypatch.setattr(steps, "_MANY", many)
    model = nn.Linear(3, 5000)
    start = [each.detach().clone() for each in model.parameters()]
    planned = plan(steps=2, batch_size=ROWS, sampling="fixed", relation="replace_one")
    made = trainer(planned, model, loss=lambda outputs, targets: 0 * outputs[:, 0])
    places = [torch.cat([each.flatten() for each in start])]
    for inputs, targets in made.batches(data()):
        made.step(inputs, targets)
        places.append(torch.cat([each.detach().flatten() for each in model.parameters()]))
    first, second = (10 * (old - new) * ROWS for old, new in itertools.pairwise(places))
    for moved in (first, second):
        total = float(moved.double().square().sum())
        assert stats.chi2(len(moved)).sf(total) > 1e-9
        assert stats.chi2(len(moved)).cdf(total) > 1e-9
        in_steps = moved.double() * 64
        assert float((in_steps - in_steps.round()).abs().max()) < 0.05
    assert abs(float(np.corrcoef(first, second)[0, 1])) < 0.05


@pytest.mark.fresh
@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("before", [True, False], ids=["asked for before", "asked for after"])
def test_a_forked_process_draws_its_own_noise(before: bool) -> None:
    arguments = (Source(), 3, torch.float32, 1.0)
    ahead = noise.Ahead(*arguments)
    own = ahead.result().tolist()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            drawn = ahead if before else noise.Ahead(*arguments)
            os.write(writer, repr(drawn.result().tolist()).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found = ast.literal_eval(pipe.read().decode())
    assert len(found) == 3
    assert found != own


def test_noise_is_drawn_where_no_more_threads_start(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = ThreadPoolExecutor(1)
    ended.shutdown()
    monkeypatch.setattr(noise, "_drawer", lambda: ended)
    assert len(noise.Ahead(Source(), 5, torch.float32, 1.0).result()) == 5


def test_a_failing_source_fails_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Tensor:
        raise OSError("no entropy")

    monkeypatch.setattr(steps, "_MANY", 0)
    monkeypatch.setattr(noise, "normal", fail)
    made = trainer()
    with pytest.raises(OSError, match="no entropy"):
        made.fit(data())
    assert made.step_number == 0


def test_dropout_passes_the_self_test() -> None:
    trainer(model=nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))).fit(data())


class OwnGenerator(nn.Linear):
    generator = torch.Generator().manual_seed(2)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input + torch.randn(input.shape, generator=self.generator))


@pytest.mark.parametrize(
    ("model", "draws"),
    [(nn.Linear(3, 3), False), (nn.Dropout(1e-9), True), (OwnGenerator(3, 3), True)],
    ids=["none", "no unit dropped", "a generator of its own"],
)
def test_random_numbers_are_noticed_whatever_they_are(model: nn.Module, draws: bool) -> None:
    """Two passes of a dropout may agree by chance; that it drew must not depend on it."""
    model = nn.Sequential(nn.Linear(3, 3), model)
    inputs, targets = torch.randn(4, 3), torch.zeros(4, 3)
    state = torch.get_rng_state()
    assert draws_numbers(model, nn.L1Loss(reduction="none"), inputs, targets) is draws
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    "model",
    [nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), nn.ReLU(), nn.Linear(3, 2).requires_grad_(False)],
    ids=["batch norm", "no parameters", "frozen"],
)
def test_models_that_cannot_be_trained_are_refused_at_once(model: nn.Module) -> None:
    parameters = list(model.parameters()) or [nn.Parameter(torch.zeros(1))]
    with pytest.raises(InvalidValue):
        trainer(model=model, optimizer=torch.optim.SGD(parameters, lr=0.1))


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "sgd"},
        {"optimizer": torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)},
        {"loss": None},
        {"physical_batch": 0},
        {"views": 0},
        {"average": 1.0},
        {"average": "swa"},
        {"autocast": torch.int8},
        {"checkpoint_every": 0, "checkpoint": "x"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_bad_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        trainer(**options)


def test_lbfgs_is_refused() -> None:
    model = network()
    with pytest.raises(InvalidValue, match="closure"):
        trainer(model=model, optimizer=torch.optim.LBFGS(model.parameters()))


@pytest.mark.parametrize(
    "kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad]
)
def test_any_optimiser(kind: Any) -> None:
    model = network()
    optimizer = kind(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
    trainer(model=model, optimizer=optimizer, schedule=schedule).fit(data())
    assert optimizer.param_groups[0]["lr"] < 1e-6


def test_bfloat16_autocast_bounds_what_an_example_adds() -> None:
    model = network()
    made = trainer(model=model, autocast=torch.bfloat16, random_state=1)
    made.fit(data())
    assert all(each.dtype == torch.float32 for each in model.parameters())


def test_memory_that_runs_out_only_makes_smaller_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    real = steps.clipped_gradients

    def small(model: Any, loss: Any, inputs: Any, *rest: Any, **more: Any) -> Any:
        if len(inputs) > 5:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes.")
        return real(model, loss, inputs, *rest, **more)

    models = network(), network()
    trainer(model=models[0], random_state=5).fit(data())
    monkeypatch.setattr(steps, "clipped_gradients", small)
    made = trainer(model=models[1], random_state=5)
    made.fit(data())
    assert torch.allclose(models[0][0].weight, models[1][0].weight, atol=1e-6)


# Files


def test_saved_weights_carry_their_guarantee(tmp_path: Path) -> None:
    made = trainer().fit(data())
    tacit.save(made, tmp_path / "m.safetensors")
    fresh = network()
    assert load_weights(tmp_path / "m.safetensors", fresh) == made.guarantee
    assert torch.equal(fresh[0].weight, made.model[0].weight)
    with pytest.raises(tacit.TacitError, match="exists"):
        tacit.save(made, tmp_path / "m.safetensors")


def test_nothing_for_the_curator_is_in_a_file(tmp_path: Path) -> None:
    made = trainer(checkpoint=tmp_path / "run.safetensors").fit(data())
    tacit.save(made, tmp_path / "m.safetensors")
    figures = made.private_diagnostics
    assert figures is not None
    for file in tmp_path.iterdir():
        text = file.read_bytes()
        for secret in ('"loss"', "clipped", "diagnostics", f"{figures.loss:.4f}", str(figures.loss)):
            assert secret.encode() not in text, (file, secret)


def test_altered_and_strange_files_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    made = trainer().fit(data())
    path = tmp_path / "m.safetensors"
    tacit.save(made, path)
    content = path.read_bytes()
    for name, changed in {
        "weights": content[:-1] + bytes([content[-1] ^ 1]),
        "epsilon": content.replace(b"epsilon", b"Epsilon", 1),
        "short": content[:-4],
        "empty": b"",
    }.items():
        (tmp_path / name).write_bytes(changed)
        with pytest.raises(ModelUnreadable):
            load_weights(tmp_path / name, network())
    save_file(network().state_dict(), tmp_path / "plain")
    with pytest.raises(ModelUnreadable, match="no guarantee"):
        load_weights(tmp_path / "plain", network())
    with pytest.raises(InvalidValue, match="same parameters"):
        load_weights(path, nn.Linear(3, 2))
    with pytest.raises(ModelUnreadable):
        load_weights(tmp_path / "missing", network())


def test_before_a_run_there_is_no_guarantee() -> None:
    with pytest.raises(InvalidValue, match="fitted first"):
        _ = trainer().guarantee


def test_progress_shows_epsilon_and_marks_what_is_not_public(capsys: pytest.CaptureFixture[str]) -> None:
    trainer(progress=True).fit(data())
    shown = " ".join(capsys.readouterr().err.split())
    assert "8/8" in shown
    assert "ε" in shown
    assert "curator" in shown


def test_full_batch_is_plain_gaussian_descent() -> None:
    made = trainer(plan(batch_size=ROWS, steps=4))
    seen: list[int] = []
    made.callbacks = (lambda p: seen.append(p.private_diagnostics.examples),)
    made.fit(data())
    assert seen == [ROWS] * 4
    assert made.guarantee.event == events.Repeat(events.Gaussian(1.0), 4)


def test_epsilon_so_far_grows_to_the_plans() -> None:
    made = trainer()
    values: list[float] = []
    made.callbacks = (lambda p: values.append(p.epsilon()),)
    made.fit(data())
    assert values == sorted(values)
    assert values[-1] == pytest.approx(made.plan.epsilon)
    assert np.isfinite(values).all()


def test_images_go_through_in_parts_that_suit_a_cpu() -> None:
    """By shapes alone: 64 channels of 128 × 128 pixels are 4 MiB, and 16 are taken at once."""
    targets = torch.zeros(40).long()
    for side, channels, most in ((128, 64, 16), (16, 4, 3072)):
        model = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(channels, 2),
        )  # fmt: skip
        made = trainer(plan(steps=1, batch_size=40, population=40), model)
        made.fit((torch.randn(40, 1, side, side), targets))
        assert made._run.state.core.physical_batch == most


@pytest.fixture
def busy_thread() -> Iterator[None]:
    """A thread of the user's own program, which is never still for long."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.0002):
            sum(range(100))

    thread = threading.Thread(target=work)
    thread.start()
    yield
    stop.set()
    thread.join()


def test_a_busy_thread_is_told_of_once_and_may_be_trusted(
    busy_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batches are computed one by one, with the same result, unless it is declared harmless."""
    looped: list[int] = []
    loop = fallback._loop

    def counted(*given: Any) -> Any:
        looped.append(1)
        return loop(*given)

    monkeypatch.setattr(fallback, "_loop", counted)
    monkeypatch.setattr(engine, "_TOLD", set())
    with pytest.warns(RuntimeWarning, match="Another thread of this program ran") as told:
        watched = trainer(random_state=1).fit(data())
    assert looped
    assert len(told) == 1
    looped.clear()
    trusted = trainer(random_state=1, threads="trusted").fit(data())
    assert not looped
    for one, other in zip(watched.model.parameters(), trusted.model.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    with pytest.raises(InvalidValue, match="threads"):
        trainer(threads="mine")
