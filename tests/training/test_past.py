"""A guarantee covers every private run that went into the model's weights: before, during and after it."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tacit
from tacit import accounting, events
from tacit.errors import BudgetExceeded, InvalidValue
from tacit.training import Plan, Trainer, past

ROWS, STEPS, DELTA = 40, 12, 1e-5


def data() -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(1)
    return torch.randn(ROWS, 3, generator=made), torch.randint(0, 2, (ROWS,), generator=made)


def plan(**changes: Any) -> Plan:
    facts: dict[str, Any] = {"population": ROWS, "batch_size": 8, "steps": STEPS, "delta": DELTA}
    return _plan(**{**facts, "noise_multiplier": 4.0, **changes})


@functools.cache
def _plan(**facts: Any) -> Plan:
    return Plan(**facts)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def trainer(model: nn.Module, planned: Plan | None = None, **options: Any) -> Trainer:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    return Trainer(model, nn.CrossEntropyLoss(), optimizer, planned or plan(), **options)


LOUD = {"noise_multiplier": 3.0, "steps": 5}


def loud(model: nn.Module, **options: Any) -> Trainer:
    """A run with less noise on this model."""
    return trainer(model, plan(**LOUD), **options).fit(data())


def _on_the_model(model: nn.Module) -> None:
    loud(model)


def _on_a_part(model: nn.Module) -> None:
    loud(nn.Sequential(model[0]))  # type: ignore[index]


def _on_a_tied_weight(model: nn.Module) -> None:
    other = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    other[2].weight = model[2].weight  # type: ignore[index]
    loud(other)


def _on_a_copy(model: nn.Module) -> None:
    other = copy.deepcopy(model)
    loud(other)
    model.load_state_dict(other.state_dict())


def _on_another_model(model: nn.Module) -> None:
    other = network()
    loud(other)
    model.load_state_dict(other.state_dict())


def _beside_the_version(model: nn.Module) -> None:
    other = network()
    loud(other)
    with torch.no_grad():
        for own, its in zip(model.parameters(), other.parameters(), strict=True):
            own.data.copy_(its.data)


def _with_an_average(model: nn.Module) -> None:
    other = network()
    loud(other, average="tail")
    model.load_state_dict(other.state_dict())


def _a_layer_exchanged(model: nn.Module) -> None:
    other = network()
    loud(other)
    model[0] = other[0]  # type: ignore[index]


WAYS = [
    _on_the_model, _on_a_part, _on_a_tied_weight, _on_a_copy, _on_another_model, _beside_the_version,
    _with_an_average, _a_layer_exchanged,
]  # fmt: skip


@functools.cache
def price(*made: events.Event) -> float:
    return accounting.epsilon(events.Compose(made), DELTA)


def covers(way: Callable[[nn.Module], None], step: int, **options: Any) -> Trainer:
    """Let a callback act after a step, and see that the guarantee covers the loud run from then on."""
    both = price(plan().event, plan(**LOUD).event)

    def callback(progress: Any) -> None:
        if progress.step == step:
            way(progress.trainer.model)
            assert progress.trainer.guarantee.epsilon == pytest.approx(both, rel=1e-6)

    made = trainer(network(), callbacks=[callback], **options).fit(data())
    assert made.guarantee.epsilon == pytest.approx(both, rel=1e-6)
    assert made.epsilon() == pytest.approx(both, rel=1e-6)
    return made


LAST = [(STEPS, _on_the_model), (STEPS, _on_another_model)]


@pytest.mark.parametrize(("step", "way"), [*((1, way) for way in WAYS), *LAST])
def test_a_run_in_a_callback_counts(way: Any, step: int, tmp_path: Path) -> None:
    """It stated the ε of the outer run alone."""
    made = covers(way, step)
    tacit.save(made, tmp_path / "model")
    assert fitted_on(made.model) == pytest.approx(price(plan().event, plan().event, plan(**LOUD).event))


def fitted_on(model: nn.Module) -> float:
    return trainer(model).fit(data()).guarantee.epsilon


@pytest.mark.parametrize("way", [_on_the_model, _on_another_model])
def test_without_looking_the_run_in_a_callback_is_forgotten(
    way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin, which looks for other runs at the beginning only."""
    monkeypatch.setattr(past.Trace, "arrived", lambda self: ())
    with pytest.raises(AssertionError):
        covers(way, 1)


def test_marks_alone_do_not_see_weights_that_were_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin that does not look at content."""
    monkeypatch.setattr(past, "_by_content", lambda held, mine="": set())
    covers(_on_the_model, 1)
    with pytest.raises(AssertionError):
        covers(_on_another_model, 1)


@pytest.mark.parametrize("way", [_on_the_model, _on_another_model])
def test_in_a_loop_of_ones_own(way: Any) -> None:
    made, both = trainer(network()), price(plan().event, plan(**LOUD).event)
    for number, (inputs, targets) in enumerate(made.batches(data())):
        if number == 2:
            way(made.model)
        made.step(inputs, targets)
    assert made.guarantee.epsilon == pytest.approx(both, rel=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_after_it_counts(way: Any) -> None:
    """The model is not any more what the first run left."""
    made = trainer(network()).fit(data())
    assert made.guarantee.epsilon == pytest.approx(plan().epsilon)
    way(made.model)
    assert made.guarantee.epsilon == pytest.approx(price(plan().event, plan(**LOUD).event), rel=1e-6)


def test_runs_in_runs_count_all() -> None:
    """Three runs on one model, each within the one before: all three state the cost of all."""
    made: list[Trainer] = []

    def callback(progress: Any) -> None:
        if progress.step == 2 and len(made) < 3:
            made.append(trainer(progress.trainer.model, callbacks=[callback]))
            made[-1].fit(data())

    made.append(trainer(network(), callbacks=[callback]))
    made[0].fit(data())
    assert len(made) == 3
    assert {len(each.guarantee.event.events) for each in made} == {3}  # type: ignore[attr-defined]
    assert {each.guarantee.epsilon for each in made} == {price(*(plan().event,) * 3)}


def test_a_run_that_goes_on_pays_more_later() -> None:
    """The inner run knew one epoch of the outer run; in the end it states all epochs."""
    epochs = plan(charge="epoch")
    inner: list[Trainer] = []
    known: list[float] = []

    def callback(progress: Any) -> None:
        if progress.step == 1:
            inner.append(trainer(progress.trainer.model, callbacks=[within]))
            inner[0].fit(data())

    def within(progress: Any) -> None:
        known.append(progress.trainer.guarantee.epsilon)

    outer = trainer(network(), epochs, callbacks=[callback]).fit(data())
    whole = price(epochs.event, plan().event)
    assert max(known) < whole
    assert inner[0].guarantee.epsilon == pytest.approx(whole, rel=1e-6)
    assert outer.guarantee.epsilon == pytest.approx(whole, rel=1e-6)


def test_an_older_note_does_not_replace_a_later_one() -> None:
    few, many = (
        past.Run("a run of this test", plan(steps=steps).guarantee(), steps=steps) for steps in (3, 9)
    )
    for order in itertools.permutations([few, many]):
        for run in order:
            past.known([run])
        assert past._RUNS[few.number].alone == many.alone
    assert past.Run.from_json(many.to_json()) == many


def test_the_ledger_is_charged_for_it(tmp_path: Path) -> None:
    spent = tacit.Budget(epsilon=3.0, delta=2e-5)
    with tacit.Ledger.open(tmp_path / "study.db", budget=spent, filter="renyi") as ledger:
        covers(_on_the_model, 1, ledger=ledger)
        charged = [entry.event for entry in ledger.entries()]
    assert charged == [plan().event, plan(**LOUD).event]
    small = tacit.Budget(epsilon=1.0, delta=2e-5)
    with tacit.Ledger.open(tmp_path / "small.db", budget=small, filter="renyi") as ledger:
        made = trainer(network(), callbacks=[lambda progress: loud(progress.trainer.model)], ledger=ledger)
        with pytest.raises(BudgetExceeded):
            made.fit(data())
        assert made.step_number == 1


def test_other_people_are_not_presumed(tmp_path: Path) -> None:
    """A run was declared to be on other people than those before it; of later ones nothing was declared."""
    model = network()
    trainer(model).fit(data())

    def callback(progress: Any) -> None:
        if progress.step == 1:
            _on_another_model(model)

    made = trainer(
        model, earlier="disjoint", callbacks=[callback, _stop_at(3)], checkpoint=tmp_path / "run",
        checkpoint_every=1,
    ).fit(data())  # fmt: skip
    assert past.OTHER_PEOPLE not in made.guarantee.assumptions
    all_of_them = price(plan().event, plan().event, plan(**LOUD).event)
    assert made.guarantee.epsilon == pytest.approx(all_of_them, rel=1e-6)
    again = trainer(network(), earlier="disjoint", checkpoint=tmp_path / "run", checkpoint_every=1)
    assert again.fit(data(), resume=True).guarantee.epsilon == pytest.approx(all_of_them, rel=1e-6)


def _stop_at(step: int) -> Callable[[Any], None]:
    return lambda progress: progress.stop() if progress.step == step else None


def test_an_inner_run_on_other_people() -> None:
    def callback(progress: Any) -> None:
        if progress.step == 1:
            loud(progress.trainer.model, earlier="disjoint")

    made = trainer(network(), callbacks=[callback]).fit(data())
    assert made.guarantee.event == events.Parallel((plan().event, plan(**LOUD).event))
    assert past.OTHER_PEOPLE in made.guarantee.assumptions


def test_a_run_under_another_relation_takes_the_guarantee_away() -> None:
    other = network()
    trainer(other, plan(relation="replace_one")).fit(data())
    made = trainer(network(), callbacks=[lambda progress: progress.trainer.model.load_state_dict(kept)])
    kept = other.state_dict()
    with pytest.raises(InvalidValue, match="earlier run on this model"):
        made.fit(data())
    with pytest.raises(InvalidValue, match="earlier run on this model"):
        _ = made.guarantee
    with pytest.raises(InvalidValue, match="earlier run on this model"):
        made.epsilon()


def test_weights_of_its_own_are_no_other_run() -> None:
    """Going back to an earlier step, or to the start, adds nothing; nor does another run with its seed."""
    kept: list[Any] = []

    def callback(progress: Any) -> None:
        kept.append(copy.deepcopy(progress.trainer.model.state_dict()))
        if progress.step in (4, 8):
            progress.trainer.model.load_state_dict(kept[0 if progress.step == 4 else 1])

    model = network()
    kept.append(copy.deepcopy(model.state_dict()))
    made = trainer(model, callbacks=[callback]).fit(data())
    assert made.guarantee.event == plan().event
    torch.manual_seed(3)
    first = trainer(network(), random_state=7).fit(data())
    torch.manual_seed(3)
    second = trainer(network(), random_state=7).fit(data())
    assert all(map(torch.equal, first.model.parameters(), second.model.parameters()))
    assert first.guarantee.event == plan().event


class _Telling(nn.Module):
    """Computes with a frozen module that is not registered, of which its own methods tell."""

    def __init__(self, inner: nn.Module, name: str) -> None:
        super().__init__()
        self.head = nn.Linear(2, 2)
        self.__dict__["inner"] = (inner,)
        self.__dict__[name] = lambda *args, **options: itertools.chain(
            getattr(nn.Module, name)(self, *args, **options), getattr(inner, name)()
        )

    def forward(self, inputs: Tensor) -> Tensor:
        made: Tensor = self.head(self.inner[0](inputs))
        return made


@pytest.mark.parametrize("name", ["parameters", "named_parameters", "modules"])
def test_what_a_model_tells_of_by_methods_of_its_own_counts(name: str) -> None:
    """Weights of an earlier run that are no entries of a registered module, but are told of all the same."""
    inner = network()
    loud(inner)
    inner.requires_grad_(False)
    made = trainer(_Telling(inner, name), progress=False).fit(data())
    both = price(plan(**LOUD).event, plan().event)
    assert made.guarantee.epsilon == pytest.approx(both, rel=1e-6)
