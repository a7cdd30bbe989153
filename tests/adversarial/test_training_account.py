"""Attacks on the account of a run: steps nobody paid for, costs forgotten, sums that move too far."""

from __future__ import annotations

import copy
import os
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

import tacit
from contract.mends import Scene, mend, replacing
from tacit import events
from tacit.errors import InvalidValue, LedgerError, TacitError
from tacit.randomness import Source
from tacit.training import Plan, Trainer, past
from tacit.training import account as charging
from tacit.training import step as steps
from tacit.training.checkpoint import Checkpoint

ROWS, STEPS = 40, 20


class PowerCut(BaseException):
    """Ends a run as a crash would."""


def data() -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(1)
    return torch.randn(ROWS, 3, generator=made), torch.randint(0, 2, (ROWS,), generator=made)


def plan(**changes: Any) -> Plan:
    facts: dict[str, Any] = {"population": ROWS, "batch_size": 8, "steps": STEPS, "delta": 1e-5}
    return Plan(**{**facts, "noise_multiplier": 4.0, **changes})


def trainer(planned: Plan, ledger: tacit.Ledger | None = None, **options: Any) -> Trainer:
    model = options.pop("model", None) or nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Trainer(model, nn.CrossEntropyLoss(), optimizer, planned, ledger, **options)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[tacit.Ledger]:
    budget = tacit.Budget(epsilon=50.0, delta=1e-3)
    with tacit.Ledger.open(tmp_path / "study.db", budget=budget, filter="renyi") as made:
        yield made


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    return releases(monkeypatch)


def releases(patch: pytest.MonkeyPatch) -> list[Any]:
    """The noisy sums released from now on, by all trainers together, with the rows each of them saw."""
    counted: list[Any] = []
    real = steps.PrivateStep.release

    def release(self: Any, parts: Any) -> Any:
        counted.append(self)
        return real(self, parts)

    patch.setattr(steps.PrivateStep, "release", release)
    return counted


class Attack:
    """Goes on with copies of a run's file in any order, with blocks of any length, cut off at any place."""

    def __init__(self, folder: Path, ledger: tacit.Ledger | None, planned: Plan, seed: int) -> None:
        self.folder, self.ledger, self.plan = folder, ledger, planned
        self.files = [folder / "run"]
        self.luck = random.Random(seed)

    def runs(self, times: int) -> None:
        for _ in range(times):
            path = self.luck.choice(self.files)
            self._cut(self.luck.choice(["step", "claim", "claimed", "written", "none", "stop"]), path)
            if path.exists():
                self.files.append(self.folder / f"copy {len(self.files)}")
                shutil.copy(path, self.files[-1])

    def _cut(self, where: str, path: Path) -> None:
        at = self.luck.randrange(1, 8)

        def callback(progress: Any) -> None:
            if progress.step % 8 == at and where == "step":
                raise PowerCut
            if progress.step % 8 == at and where == "stop":
                progress.stop()
            if self.luck.random() < 0.1:
                self.files.append(self.folder / f"copy {len(self.files)}")
                shutil.copy(path, self.files[-1])

        def cut(kind: Any, name: str, before: bool) -> None:
            real, left = getattr(kind, name), [self.luck.randrange(1, 4)]

            def broken(*args: Any, **more: Any) -> Any:
                left[0] -= 1
                if before and left[0] == 0:
                    raise PowerCut
                result = real(*args, **more)
                if left[0] == 0:
                    raise PowerCut
                return result

            patch.setattr(kind, name, broken)

        with pytest.MonkeyPatch.context() as patch:
            if where in ("claim", "claimed"):
                cut(charging.Account, "claim", where == "claim")
            elif where == "written":
                cut(Checkpoint, "write", False)
            made = trainer(
                self.plan, self.ledger, checkpoint=path, checkpoint_every=self.luck.randrange(1, 12),
                callbacks=[callback],
            )  # fmt: skip
            with suppress(PowerCut, TacitError):
                made.fit(data(), resume=path.exists())


PLANS: dict[str, dict[str, Any]] = {
    "poisson": {},
    "by epoch": {"charge": "epoch"},
    "shuffle": {"sampling": "shuffle"},
    "fixed": {"sampling": "fixed", "relation": "replace_one"},
}


@pytest.mark.parametrize("kept", ["ledger", "no ledger"])
@pytest.mark.parametrize("changes", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("seed", range(3))
def test_no_step_is_taken_twice(
    changes: dict[str, Any], seed: int, kept: str, tmp_path: Path, released: list[Any]
) -> None:
    """Copies of a checkpoint took 180, 163 and 170 steps on a charge for 100."""
    planned = plan(**changes)
    with tacit.Ledger.open(
        tmp_path / "study.db", tacit.Budget(50.0, 1e-3), relation=planned.relation, filter="renyi"
    ) as ledger:
        attack = Attack(tmp_path, ledger if kept == "ledger" else None, planned, seed)
        attack.runs(10)
        assert len(released) <= STEPS
        if kept == "ledger":
            ledger.verify()
            charged = [entry for entry in ledger.entries() if entry.event != events.Compose(())]
            assert len(charged) <= (4 if changes.get("charge") else 1)


def compares_no_intervals(patch: pytest.MonkeyPatch) -> None:
    """The twin: steps are taken as the file says, and the ledger does not compare them with earlier ones."""
    patch.setattr("tacit.ledger.posting.conflict", lambda work, earlier: None)

    def reopen(self: Any, run: str, paid: int, reserved: int) -> int:
        self.run, self.paid = run, paid
        return reserved

    patch.setattr(charging.Account, "reopen", reopen)


@mend(4, "copies of a checkpoint", twin=compares_no_intervals)
def copies_of_a_checkpoint(scene: Scene) -> None:
    """Copies of a checkpoint took 180, 163 and 170 steps on a charge for 100."""
    released, budget = releases(scene.patch), tacit.Budget(epsilon=50.0, delta=1e-3)
    with tacit.Ledger.open(scene.path / "study.db", budget=budget, filter="renyi") as ledger:
        Attack(scene.path, ledger, plan(), 0).runs(12)
    assert 0 < len(released) <= STEPS, f"{len(released)} steps were taken and {STEPS} paid for"


def blocks(path: Path, ledger: tacit.Ledger | None, every: int, **options: Any) -> Trainer:
    return trainer(plan(), ledger, checkpoint=path, checkpoint_every=every, **options)


def test_blocks_that_begin_elsewhere(tmp_path: Path, ledger: tacit.Ledger, released: list[Any]) -> None:
    """Blocks of 4 and of 3 begin at different steps, and overlap all the same."""
    path, other = tmp_path / "run", tmp_path / "copy"

    def note(progress: Any) -> None:
        if progress.step == 5:
            shutil.copy(path, other)

    blocks(path, ledger, 4, callbacks=[note]).fit(data())
    for every in (3, 5, 7):
        with pytest.raises(LedgerError, match="taken already"):
            blocks(other, ledger, every).fit(data(), resume=True)
    assert len(released) == STEPS


def test_the_block_is_claimed_before_the_file_says_so(
    tmp_path: Path, ledger: tacit.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    order: list[str] = []
    for kind, name in ((charging.Account, "claim"), (Checkpoint, "write")):
        real = getattr(kind, name)

        def noted(*args: Any, real: Any = real, name: str = name) -> Any:
            order.append(name)
            return real(*args)

        monkeypatch.setattr(kind, name, noted)
    with pytest.raises(PowerCut):
        blocks(path, ledger, 4, callbacks=[_cut_at(4)]).fit(data())
    assert order[:3] == ["write", "claim", "write"]


def _cut_at(number: int) -> Any:
    def cut(progress: Any) -> None:
        if progress.step == number:
            raise PowerCut

    return cut


def test_a_run_cut_off_between_claim_and_file_goes_on(
    tmp_path: Path, ledger: tacit.Ledger, released: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    real = Checkpoint.write

    def write(self: Any, state: Any, reserved: int) -> None:
        if state.taken == 8:
            raise PowerCut
        real(self, state, reserved)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "write", write)
        with pytest.raises(PowerCut):
            blocks(path, ledger, 4).fit(data())
    shutil.copy(path, tmp_path / "copy")
    with pytest.raises(LedgerError, match="taken already"):
        blocks(tmp_path / "copy", ledger, 4).fit(data(), resume=True)
    made = blocks(path, ledger, 4).fit(data(), resume=True)
    assert made.step_number == STEPS
    assert len(released) == STEPS - 4


def test_a_label_pays_for_nothing(tmp_path: Path, ledger: tacit.Ledger, released: list[Any]) -> None:
    """Entries at no cost that are called as a run is were taken for its charges."""
    path = tmp_path / "run"
    planned = plan(charge="epoch")
    facts: dict[str, Any] = {"checkpoint": path, "checkpoint_every": 2}
    with pytest.raises(PowerCut):
        trainer(planned, ledger, callbacks=[_cut_at(3)], **facts).fit(data())
    first = next(entry for entry in ledger.entries() if entry.cost.renyi > 0)
    for _ in range(3):
        ledger.charge(events.Compose(()), label=first.label)
    trainer(planned, ledger, **facts).fit(data(), resume=True)
    assert sum(entry.cost.renyi > 0 for entry in ledger.entries()) == 4


def test_a_file_of_another_plan_is_not_paid_for(tmp_path: Path, ledger: tacit.Ledger) -> None:
    """The file is forged to plan less noise than was paid for; anybody can compute its digest."""
    from tacit.training import saving

    path = tmp_path / "run"
    with pytest.raises(PowerCut):
        blocks(path, ledger, 4, callbacks=[_cut_at(3)]).fit(data())
    tensors, facts = saving.read(path)
    quieter = plan(noise_multiplier=0.5)
    forged = facts["checkpoint"].replace('"noise_multiplier": 4.0', '"noise_multiplier": 0.5')
    forged = forged.replace(f'"epsilon": {plan().epsilon}', f'"epsilon": {quieter.epsilon}')
    saving.write(path, tensors, {"checkpoint": forged}, overwrite=True)
    with pytest.raises(LedgerError, match="no charge"):
        trainer(quieter, ledger, checkpoint=path).fit(data(), resume=True)


@pytest.mark.parametrize("twice", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_trainer_is_not_copied(twice: Any, released: list[Any]) -> None:
    """Each copy would take the step of the batch at hand once more."""
    made = trainer(plan())
    batches = made.batches(data())
    batch = next(batches)
    with pytest.raises(InvalidValue, match="paid for once"):
        twice(made)
    made.step(*batch)
    with pytest.raises(InvalidValue, match="without a batch"):
        made.step(*batch)
    assert len(released) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("act", ["step", "stop"])
def test_a_fork_takes_no_step_and_gives_none_back(act: str, tmp_path: Path, ledger: tacit.Ledger) -> None:
    made = blocks(tmp_path / "run", ledger, 4)
    batches = made.batches(data())
    batch = next(batches)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        told = b"no error"
        try:
            if act == "step":
                made.step(*batch)
            else:
                made._run.state.account.give_back(1)
        except BaseException as error:
            told = str(error).encode()
        os.write(writer, told)
        os._exit(0)
    os.waitpid(child, 0)
    assert b"process it was made in" in os.read(reader, 1000)
    made.step(*batch)


def test_the_plan_of_a_run_is_not_exchanged() -> None:
    made = trainer(plan())
    with pytest.raises(AttributeError):
        made.plan = plan(steps=1000)  # type: ignore[misc]


def test_two_at_once_share_the_steps(tmp_path: Path, ledger: tacit.Ledger, released: list[Any]) -> None:
    with pytest.raises(PowerCut):
        blocks(tmp_path / "run", ledger, 4, callbacks=[_cut_at(6)]).fit(data())
    loops = []
    for number, every in enumerate((3, 5, 12)):
        shutil.copy(tmp_path / "run", tmp_path / f"copy {number}")
        made = blocks(tmp_path / f"copy {number}", ledger, every)
        loops.append((made, made.batches(data(), resume=True)))
    while loops:
        made, batches = loops.pop(0)
        try:
            made.step(*next(batches))
            loops.append((made, batches))
        except (StopIteration, LedgerError):
            pass
    assert len(released) <= STEPS


def core(examples: int, model: nn.Module | None = None) -> steps.PrivateStep:
    planned = Plan(population=examples, batch_size=examples, steps=1, noise_multiplier=1.0, delta=1e-9)
    made = steps.PrivateStep(
        model or nn.Linear(3, 1, bias=False), lambda out, aim: out.flatten(1).sum(1) * aim, planned,
        Source(random_state=1),
    )  # fmt: skip
    made._test_due = False
    return made


def moved(made: steps.PrivateStep, inputs: Tensor, row: Tensor, places: list[int]) -> float:
    """How far the computed sum moves, in clip_norms, where a row is put in at one of these places."""

    def total(rows: Tensor) -> Tensor:
        found, _, _ = made._summed([(rows, torch.ones(len(rows)))])
        return torch.cat([each.double().flatten() for each in found.values()])

    before = total(inputs)
    found = [total(torch.cat([inputs[:place], row, inputs[place:]])) for place in places]
    return max(float((each - before).norm()) for each in found) / made.clip_norm


def aligned(examples: int) -> Tensor:
    """Rows whose gradients point into nearly the same direction."""
    made = torch.Generator().manual_seed(examples)
    return torch.randn(examples, 3, generator=made).abs() * torch.tensor([1.0, 0.05, 0.05])


ROW = torch.tensor([[1.0, 0.9, 0.7]])


def test_four_million_examples() -> None:
    """In float32 the row that is put in first moves the sum by 2.6 clip_norms: all blocks round anew."""
    assert moved(core(4_000_000), aligned(4_000_000), ROW, [0, 1_999_999]) <= 1.001


@pytest.mark.parametrize("examples", [500, 2048, 2049, 16_384, 16_385, 100_000, 300_000])
@pytest.mark.parametrize("physical", [None, 1000])
def test_every_number_of_examples(examples: int, physical: int | None) -> None:
    for inputs in (aligned(examples), torch.tensor([[0.6, 0.64, 0.48]]).repeat(examples, 1)):
        made = core(examples)
        made.physical_batch = physical
        assert moved(made, inputs, ROW, [0, examples // 2, examples]) <= 1.001


def adds_up_in_float32(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tacit.training.gradients.sums.MANY", 1 << 60)
    patch.setattr("tacit.training.gradients.engine.EXACT", 1 << 60)
    patch.setattr(steps, "BLOCK", 100_000)


@mend(6, "sums of very many gradients", twin=adds_up_in_float32)
def very_many_gradients(scene: Scene) -> None:
    """In float32 a row that is put in first moves the sum of a million by 1.06 clip_norms."""
    far = max(moved(core(many), aligned(many), ROW, [0]) for many in (600_000, 1_000_000))
    assert far <= 1.001, f"one example moved the sum by {far} clip_norms"


class Positions(nn.Module):
    """A parameter used at many positions of each example."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.layer: nn.Module = {
            "matrix": nn.Linear(40, 30, bias=False), "shift": nn.Linear(1, 2),
            "lookup": nn.Embedding(5, 3), "convolution": nn.Conv1d(24, 24, 3, bias=False),
        }[kind]  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "lookup":
            return self.layer((x[:, :16] > 9).long())
        if self.kind == "shift":
            return self.layer(x[:, :16, None])
        if self.kind == "convolution":
            return self.layer(x[:, None, :8].expand(-1, 24, 8))
        return self.layer(x[:, None, :].expand(-1, 16, 40))


@pytest.mark.parametrize("examples", [2000, 9000, 20_000])
@pytest.mark.parametrize("kind", ["matrix", "shift", "lookup", "convolution"])
def test_many_positions(kind: str, examples: int) -> None:
    """An example adds a term for each of its positions, of which each is rounded."""
    torch.manual_seed(3)
    inputs = torch.rand(examples, 40) / 100 + 1
    row = torch.rand(1, 40) / 100 + 1
    assert moved(core(examples, Positions(kind)), inputs, row, [0, examples]) <= 1.001


def test_noise_is_added_to_the_sum_before_it_is_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise, what four million examples and one more release is one clip_norm apart."""
    monkeypatch.setattr(steps, "normal", lambda source, *args: torch.zeros(args[0], dtype=args[1]))
    monkeypatch.setattr(steps, "check_noise", lambda noise: None)
    found = []
    for more in (0.0, 1.0):
        made = core(4_000_000)
        total = {"weight": torch.tensor([[4e6 / 3 + more, 1.0, 2.0]], dtype=torch.float64)}
        made._add_noise(total, torch.zeros(0), None)
        step = made._steps[0]
        given = made.model.weight.grad
        assert given is not None
        found.append(float(given[0, 0]) * 4_000_000)
        assert given.dtype == torch.float32
    assert found[1] - found[0] == pytest.approx(1.0, abs=4 * step + 4_000_000 * 2**-24)


def test_the_rows_of_a_batch_are_in_random_order() -> None:
    """In the order of the data, a row that is put in first would move all others to another place."""
    seen: list[list[float]] = []
    made = trainer(plan(batch_size=ROWS, steps=3))
    for inputs, targets in made.batches((torch.arange(ROWS * 3.0).view(ROWS, 3), data()[1])):
        seen.append(inputs[:, 0].tolist())
        made.step(inputs, targets)
    assert all(sorted(rows) == torch.arange(0, ROWS * 3.0, 3).tolist() != rows for rows in seen)
    assert seen[0] != seen[1]


def fitted(model: nn.Module, ledger: tacit.Ledger | None = None, **options: Any) -> Trainer:
    return trainer(options.pop("plan", plan()), ledger, model=model, **options).fit(data())


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def _same(model: nn.Module) -> nn.Module:
    return model


def _loaded(model: nn.Module) -> nn.Module:
    other = network()
    other.load_state_dict(model.state_dict())
    return other


def _pickled(model: nn.Module) -> nn.Module:
    made: nn.Module = pickle.loads(pickle.dumps(model))
    return made


def _changed(model: nn.Module) -> nn.Module:
    other = copy.deepcopy(model)
    with torch.no_grad():
        for each in other.parameters():
            each.add_(0.5)
    return other


def _by_numpy(model: nn.Module) -> nn.Module:
    other = network()
    with torch.no_grad():
        for mine, theirs in zip(other.parameters(), model.parameters(), strict=True):
            mine.copy_(torch.from_numpy(theirs.detach().numpy().copy()))
    return other


def _in_double(model: nn.Module) -> nn.Module:
    other = network().double()
    other.load_state_dict(model.state_dict())
    return other.float()


def _frozen_under_another_head(model: nn.Module) -> nn.Module:
    body = model[0]  # type: ignore[index]
    body.requires_grad_(False)
    return nn.Sequential(body, nn.Tanh(), nn.Linear(4, 2))


def _parameters_alone(model: nn.Module) -> nn.Module:
    other = network()
    other[0].weight = model[0].weight  # type: ignore[index]
    return other


WAYS = [
    _same, copy.deepcopy, _loaded, _pickled, _changed, _by_numpy, _in_double, _frozen_under_another_head,
    _parameters_alone,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_second_run_counts_the_first(way: Any, tmp_path: Path) -> None:
    """It stated the ε of the second run alone."""
    first = fitted(network())
    alone = first.guarantee.epsilon
    second = fitted(way(first.model))
    both = events.Compose((plan().event, plan().event))
    assert second.guarantee.event == both
    assert second.guarantee.epsilon == tacit.accounting.epsilon(both, 1e-5) > 1.2 * alone
    tacit.save(second, tmp_path / "model")
    assert tacit.training.load_weights(tmp_path / "model", copy.deepcopy(second.model)) == second.guarantee
    assert second.epsilon() == second.guarantee.epsilon
    third = fitted(way(second.model))
    assert third.guarantee.event == events.Compose((plan().event,) * 3)


def test_a_model_of_its_own_counts_nothing() -> None:
    fitted(network())
    assert fitted(network()).guarantee.event == plan().event


def _nothing_before(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(past, "of", lambda *held: ())
    patch.setattr(past.Trace, "arrived", lambda self: ())


@mend(5, "a second run", twin=_nothing_before)
def second_run(scene: Scene) -> None:
    """It stated the ε of the second run alone."""
    second = fitted(fitted(network()).model).guarantee
    both = tacit.accounting.epsilon(events.Compose((plan().event,) * 2), 1e-5)
    assert second.epsilon >= both, f"two runs cost {both}; the model says {second.epsilon}"


@mend(5, "a run within a run", twin=replacing(past.Trace, "arrived", lambda self: ()))
def run_within_a_run(scene: Scene) -> None:
    """The outer run stated its own ε alone."""

    def callback(progress: Any) -> None:
        if progress.step == 5:
            fitted(progress.trainer.model)

    outer = fitted(network(), callbacks=[callback]).guarantee
    both = tacit.accounting.epsilon(events.Compose((plan().event,) * 2), 1e-5)
    assert outer.epsilon >= both, f"two runs cost {both}; the model says {outer.epsilon}"


def test_weights_of_a_snapshot_in_the_middle() -> None:
    kept: dict[str, Any] = {}

    def snapshot(progress: Any) -> None:
        if progress.step == 3:
            kept.update(copy.deepcopy(progress.trainer.model.state_dict()))

    fitted(network(), callbacks=[snapshot])
    other = network()
    other.load_state_dict(kept)
    assert fitted(other).guarantee.event == events.Compose((plan().event,) * 2)


def test_the_state_of_an_optimiser_counts() -> None:
    model, other = network(), network()
    one, two = (torch.optim.Adam(each.parameters()) for each in (model, other))
    Trainer(model, nn.CrossEntropyLoss(), one, plan()).fit(data())
    two.load_state_dict(one.state_dict())
    made = Trainer(other, nn.CrossEntropyLoss(), two, plan()).fit(data())
    assert made.guarantee.event == events.Compose((plan().event,) * 2)


def test_a_file_brings_its_runs_along(tmp_path: Path) -> None:
    first = fitted(network())
    tacit.save(first, tmp_path / "model")
    code = f"""
import torch
from torch import nn
from tacit.training import Plan, Trainer, load_weights
from tacit.training import past
model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
load_weights({str(tmp_path / "model")!r}, model)
with torch.no_grad():
    for each in model.parameters():
        each.mul_(2)
(run,) = past.of(model)
print(run.number, run.alone.event.to_json())
"""
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert told.split(maxsplit=1) == [first._run.state.account.run, plan().event.to_json() + "\n"]


def test_the_same_run_counts_once(tmp_path: Path) -> None:
    first = fitted(network())
    tacit.save(first, tmp_path / "model")
    other = network()
    tacit.training.load_weights(tmp_path / "model", other)
    both = nn.Sequential(*first.model[:2], nn.Linear(4, 3), copy.deepcopy(other[0]), nn.Linear(4, 2))  # type: ignore[index]
    assert fitted(both).guarantee.event == events.Compose((plan().event,) * 2)


def test_a_file_does_not_promise_more_than_its_runs(tmp_path: Path) -> None:
    first = fitted(network())
    early = first.guarantee
    second = fitted(first.model)
    with pytest.raises(InvalidValue, match="2 private runs"):
        tacit.training.save_weights(first.model, tmp_path / "model", early)
    tacit.training.save_weights(first.model, tmp_path / "model", second.guarantee)


def test_the_ledger_pays_for_each_run_once(tmp_path: Path, ledger: tacit.Ledger) -> None:
    model = network()
    outside = fitted(model)
    fitted(model, ledger)
    charged = [entry.event for entry in ledger.entries()]
    assert charged == [plan().event] * 2, "the run before was charged too: the ledger had not known of it"
    assert outside._run.state.account.run in {entry.work.run for entry in ledger.entries() if entry.work}
    third = fitted(model, ledger)
    assert len(ledger.entries()) == 3
    assert third.guarantee.event == events.Compose((plan().event,) * 3)
    assert third.guarantee.epsilon <= ledger.spent().epsilon


def test_other_people_are_declared(tmp_path: Path, ledger: tacit.Ledger) -> None:
    model = network()
    first = fitted(model).guarantee
    louder = plan(noise_multiplier=2.0)
    second = fitted(model, ledger, plan=louder, earlier="disjoint")
    assert second.guarantee.event == events.Parallel((plan().event, louder.event))
    assert first.epsilon < second.guarantee.epsilon == pytest.approx(louder.epsilon, rel=1e-3)
    assert "saw none of these people" in str(second.guarantee)
    assert len(ledger.entries()) == 1
    tacit.save(second, tmp_path / "model")
    both = second.guarantee.event
    third = fitted(model, ledger)
    assert third.guarantee.event == events.Compose((both, plan().event))
    with pytest.raises(InvalidValue, match="earlier"):
        trainer(plan(), earlier="forgotten")


def test_a_resumed_run_counts_what_came_before_it_and_itself_once(tmp_path: Path) -> None:
    model = fitted(network()).model
    with pytest.raises(PowerCut):
        blocks(tmp_path / "run", None, 4, model=model, callbacks=[_cut_at(6)]).fit(data())
    both = events.Compose((plan().event,) * 2)
    for again in (network(), model):
        shutil.copy(tmp_path / "run", tmp_path / "copy")
        made = blocks(tmp_path / "copy", None, 4, model=again)
        with suppress(LedgerError):
            made.fit(data(), resume=True)
            assert made.guarantee.event == both


def test_runs_under_another_relation_have_no_common_price() -> None:
    model = fitted(network()).model
    with pytest.raises(InvalidValue, match="earlier run on this model"):
        fitted(model, plan=plan(relation="replace_one"))


def test_what_goes_on_from_a_void_run_is_void() -> None:
    first = fitted(network())
    past.void(first.model, first._run.state.account.run)
    assert fitted(_loaded(first.model)).guarantee.epsilon == float("inf")


def evaluated(ledger: tacit.Ledger | None) -> Any:
    rows = np.linspace(-3, 3, 40)[:, None]
    fitted = LogisticRegression().fit(rows, rows[:, 0] > 0)
    return tacit.evaluate(fitted, rows, rows[:, 0] > 0, epsilon=0.25, ledger=ledger)


def moved_by(ledger: tacit.Ledger | None, paying: tacit.Ledger | None, **options: Any) -> Trainer:
    """A run whose learning rate an evaluation moves, charged to the second ledger."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    made = Trainer(
        model, nn.CrossEntropyLoss(), optimizer, plan(steps=5), ledger, schedule=schedule,
        metric=lambda model: evaluated(paying), schedule_every="epoch", **options,
    )  # fmt: skip
    return made.fit(data())


def counts_every_charge(patch: pytest.MonkeyPatch) -> None:
    """Take any charge for such an event, however old, for that of the metric."""
    real = charging.Account._check_charged

    def older(self: Any, metrics: Any, label: str) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(type(self.ledger), "work_of", lambda ledger, run: [])
            real(self, metrics, label)

    patch.setattr(charging.Account, "_check_charged", older)


@mend(4, "a metric that was not paid for", twin=counts_every_charge)
def a_metric_that_was_not_paid_for(scene: Scene) -> None:
    """A charge from before the run paid for another release, though its event be the same."""
    budget = tacit.Budget(epsilon=50.0, delta=1e-3)
    ledger = tacit.Ledger.open(scene.path / "study.db", budget=budget, filter="renyi")
    evaluated(ledger)
    with pytest.raises(LedgerError, match="no charge for"):
        moved_by(ledger, None)


def test_a_second_run_pays_once_for_the_metrics_of_the_first(ledger: tacit.Ledger) -> None:
    first = moved_by(ledger, ledger)
    assert [entry.label for entry in ledger.entries()][1:] == ["evaluation"]
    trainer(plan(steps=1), ledger, model=first.model).fit(data())
    assert len(ledger.entries()) == 3


def test_a_second_run_pays_for_the_metrics_of_a_first_without_a_ledger(ledger: tacit.Ledger) -> None:
    first = moved_by(None, None)
    trainer(plan(steps=1), ledger, model=first.model).fit(data())
    charged = [entry.event for entry in ledger.entries()]
    assert len(charged) == 3
    assert charged.count(events.Pure(0.25)) == 1
    trainer(plan(steps=1), ledger, model=first.model).fit(data())
    assert len(ledger.entries()) == 4
