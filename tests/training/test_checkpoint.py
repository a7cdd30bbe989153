"""Runs that break off and go on: never more steps than were paid for, never a charge twice or forgotten."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tacit
from tacit.errors import InvalidValue, LedgerError, ModelUnreadable
from tacit.training import Plan, Quantile, Trainer, load_weights, saving
from tacit.training import step as steps
from tacit.training.networks.settings import RunPlan
from training.test_trainer import data, network, plan, trainer

pytestmark = pytest.mark.usefixtures("tested_once")

FACTS: dict[str, Any] = {"epsilon": 2.0, "steps": 20}


class PowerCut(Exception):
    """Ends a run as a crash would."""


@pytest.fixture
def ledger(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tacit.Ledger]:
    """Where epochs are charged one by one, by the rule under which they add up well."""
    by_epoch = "charge" in request.fixturenames and request.getfixturevalue("charge") == "epoch"
    budget, rule = tacit.Budget(epsilon=2.0, delta=1e-5), "renyi" if by_epoch else "basic"
    with tacit.Ledger.open(tmp_path / "study.db", budget=budget, filter=rule) as made:
        yield made


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many noisy sums were released, by all trainers together."""
    counted = [0]
    real = steps.PrivateStep.release

    def release(self: Any, parts: Any) -> Any:
        result = real(self, parts)
        counted[0] += 1
        return result

    monkeypatch.setattr(steps.PrivateStep, "release", release)
    return counted


def cut_at(number: int) -> Any:
    def cut(progress: Any) -> None:
        if progress.step == number:
            raise PowerCut

    return cut


def run(path: Path, ledger: tacit.Ledger | None, **options: Any) -> Trainer:
    changes = options.pop("plan", {})
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    return trainer(
        plan(**{**FACTS, **changes}), model, optimizer=optimizer, schedule=schedule, ledger=ledger,
        checkpoint=path, checkpoint_every=options.pop("every", 4), average=0.9, **options,
    )  # fmt: skip


@pytest.mark.parametrize("charge", ["run", "epoch"])
@pytest.mark.parametrize("cut", [1, 4, 5, 11, 19, 20])
def test_a_broken_run_goes_on_within_what_it_paid(
    charge: str, cut: int, tmp_path: Path, ledger: tacit.Ledger, released: list[int]
) -> None:
    path = tmp_path / "run.safetensors"
    with pytest.raises(PowerCut):
        run(path, ledger, plan={"charge": charge}, callbacks=[cut_at(cut)]).fit(data())
    made = run(path, ledger, plan={"charge": charge})
    made.fit(data(), resume=True)
    assert cut <= released[0] <= 20
    assert made.step_number == 20
    paid = [entry for entry in ledger.entries() if entry.cost != type(entry.cost)()]
    assert len(paid) == (1 if charge == "run" else 4)
    assert made.guarantee.epsilon == 2.0
    assert ledger.spent().epsilon <= 2.0


def test_cut_off_in_the_middle_of_a_step(tmp_path: Path, ledger: tacit.Ledger, released: list[int]) -> None:
    path = tmp_path / "run.safetensors"
    for attempt in range(12):
        made = run(path, ledger)

        def broken(*args: Any) -> None:
            raise PowerCut

        made.optimizer.register_step_post_hook(broken)
        with suppress(PowerCut):
            made.fit(data(), resume=attempt > 0)
    assert 1 < released[0] <= 20


def test_a_stop_in_order_loses_no_step(tmp_path: Path, ledger: tacit.Ledger, released: list[int]) -> None:
    path = tmp_path / "run.safetensors"
    first = run(path, ledger, callbacks=[lambda p: p.stop() if p.step == 7 else None])
    first.fit(data())
    assert (first.step_number, released[0]) == (7, 7)
    second = run(path, ledger)
    second.fit(data(), resume=True)
    assert released[0] == 20


def test_a_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise and with every row in every batch, a run in two parts is the run in one."""
    monkeypatch.setattr(steps, "normal", lambda source, *args: torch.zeros(args[0], dtype=args[1]))
    monkeypatch.setattr(steps, "check_noise", lambda noise: None)
    changes = {"batch_size": 60, "clipping": Quantile(count_noise=0.5)}
    whole = run(tmp_path / "a", None, plan=changes)
    whole.fit(data())
    stop = run(tmp_path / "b", None, plan=changes, callbacks=[lambda p: p.stop() if p.step == 9 else None])
    stop.fit(data())
    rest = run(tmp_path / "b", None, plan=changes)
    rest.fit(data(), resume=True)
    for one, two in zip(whole.model.parameters(), rest.model.parameters(), strict=True):
        assert torch.allclose(one, two, atol=1e-6)
    assert whole.clip_norm == pytest.approx(rest.clip_norm)
    assert any("only one copy" in each for each in rest.guarantee.assumptions)


def test_a_copy_cannot_go_on_too(tmp_path: Path, ledger: tacit.Ledger, released: list[int]) -> None:
    path, copy = tmp_path / "run.safetensors", tmp_path / "copy.safetensors"

    def note(progress: Any) -> None:
        if progress.step == 10:
            shutil.copy(path, copy)

    run(path, ledger, callbacks=[note]).fit(data())
    with pytest.raises(LedgerError, match="taken already"):
        run(copy, ledger).fit(data(), resume=True)
    assert released[0] == 20


def test_of_two_at_once_one_goes_on(tmp_path: Path, ledger: tacit.Ledger, released: list[int]) -> None:
    path = tmp_path / "run.safetensors"
    with pytest.raises(PowerCut):
        run(path, ledger, callbacks=[cut_at(6)]).fit(data())
    shutil.copy(path, tmp_path / "copy.safetensors")
    one, two = run(path, ledger), run(tmp_path / "copy.safetensors", ledger)
    first = one.batches(data(), resume=True)
    one.step(*next(first))
    with pytest.raises(LedgerError, match="taken already"):
        next(two.batches(data(), resume=True))


def test_shuffled_epochs_begin_anew(tmp_path: Path, released: list[int]) -> None:
    changes = {"sampling": "shuffle"}
    with pytest.raises(PowerCut):
        run(tmp_path / "run", None, plan=changes, every=2, callbacks=[cut_at(6)]).fit(data())
    made = run(tmp_path / "run", None, plan=changes, every=2)
    seen: list[int] = []
    made.callbacks = (lambda p: seen.append(p.step),)
    made.fit(data(), resume=True)
    assert seen[0] == 11  # steps 6 to 10 belong to the epoch that was broken off


def test_weights_without_their_charge_are_refused(tmp_path: Path, ledger: tacit.Ledger) -> None:
    path = tmp_path / "run.safetensors"
    with pytest.raises(PowerCut):
        run(path, ledger, callbacks=[cut_at(6)]).fit(data())
    with pytest.raises(InvalidValue, match="ledger"):
        run(path, None).fit(data(), resume=True)
    with tacit.Ledger.open(tmp_path / "other.db", budget=tacit.Budget(epsilon=2.0, delta=1e-5)) as other:
        with pytest.raises(LedgerError, match="no charge"):
            run(path, other).fit(data(), resume=True)
        assert not other.entries()
    with pytest.raises(ModelUnreadable, match="checkpoint of a run"):
        load_weights(path, network())


def test_another_plan_or_file_is_refused(tmp_path: Path, ledger: tacit.Ledger) -> None:
    path = tmp_path / "run.safetensors"
    with pytest.raises(PowerCut):
        run(path, ledger, callbacks=[cut_at(6)]).fit(data())
    with pytest.raises(InvalidValue, match="plan the run was begun with"):
        run(path, ledger, plan={"steps": 30}).fit(data(), resume=True)
    with pytest.raises(InvalidValue, match="does not exist yet"):
        run(path, ledger).fit(data())
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ModelUnreadable):
        run(path, ledger).fit(data(), resume=True)
    with pytest.raises(InvalidValue, match="used with a checkpoint"):
        trainer().fit(data(), resume=True)


def test_a_charge_without_a_checkpoint_is_found_again(
    tmp_path: Path, ledger: tacit.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The power fails between the charge and the first block."""
    path = tmp_path / "run.safetensors"
    made = run(path, ledger)

    def fail(state: Any, last: int) -> None:
        raise PowerCut

    monkeypatch.setattr(made._run.checkpoint, "begin", fail)
    with pytest.raises(PowerCut):
        made.fit(data())
    assert len(ledger.entries()) == 1
    run(path, ledger).fit(data(), resume=True)
    assert sum(entry.cost.epsilon > 0 for entry in ledger.entries()) == 1


def test_resume_without_a_file_begins(tmp_path: Path) -> None:
    made = run(tmp_path / "run", None)
    made.fit(data(), resume=True)
    assert made.step_number == 20


def test_a_seeded_part_makes_the_whole_seeded(tmp_path: Path) -> None:
    with pytest.raises(PowerCut):
        run(tmp_path / "run", None, random_state=1, callbacks=[cut_at(6)]).fit(data())
    made = run(tmp_path / "run", None)
    made.fit(data(), resume=True)
    assert made.guarantee.noise == "seeded"


def test_state_a_file_cannot_hold_is_named(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.param_groups[0]["odd"] = object()
    made = trainer(model=model, optimizer=optimizer, checkpoint=tmp_path / "run")
    with pytest.raises(tacit.TacitError, match="object"):
        made.fit(data())


@pytest.mark.parametrize("name", ["average", "schedule"])
def test_what_was_averaged_or_scheduled_goes_on_so(name: str, tmp_path: Path) -> None:
    with suppress(PowerCut):
        run(tmp_path / "run", None, callbacks=[cut_at(5)]).fit(data())
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    kept = {"average": 0.9, "schedule": torch.optim.lr_scheduler.StepLR(optimizer, 3)}
    del kept[name]
    other = trainer(plan(**FACTS), model, optimizer=optimizer, checkpoint=tmp_path / "run", **kept)
    with pytest.raises(InvalidValue, match=f"{name} must be given, as when the run was begun"):
        other.fit(data(), resume=True)


def test_a_checkpoint_from_before_correlated_noise_is_gone_on_with(tmp_path: Path) -> None:
    """Neither the plan nor the options of ``tacit train`` had these facts then."""
    path = tmp_path / "run"
    facts = {
        **{each.name: getattr(plan(**FACTS), each.name) for each in dataclasses.fields(Plan)},
        "epochs": None, "epsilon": 0.0,
        "started": {"noise": "independent", "bands": None, "fading": "none", "lr": 0.1},
    }  # fmt: skip
    broken = trainer(RunPlan(**facts), checkpoint=path, checkpoint_every=4, callbacks=[cut_at(6)])
    with pytest.raises(PowerCut):
        broken.fit(data())
    tensors, kept = saving.read(path)
    held = json.loads(kept["checkpoint"])
    for name in ("noise", "bands", "accounting", "participations"):
        del held["plan"][name]
    held["plan"]["started"] = {"lr": 0.1}
    saving.write(path, tensors, {"checkpoint": json.dumps(held)}, overwrite=True)
    made = trainer(RunPlan(**facts), checkpoint=path, checkpoint_every=4)
    assert made.fit(data(), resume=True).step_number == made.plan.steps
