"""What the trainer has to keep beyond the battery: real charges, files that say enough, broken twins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if not find_spec("torch"):
    pytest.skip("torch is not installed", allow_module_level=True)

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

import tacit
from contract import training_cases as tc
from contract.broken import release_in_spite_of_refusal
from contract.registry import REGISTRY, Case, check_audit, check_charged_first, check_fresh, check_noise
from contract.training_cases import Coordinates
from tacit import Budget, Ledger, accounting, models
from tacit.errors import BudgetExceeded, ModelUnreadable
from tacit.randomness import Source
from tacit.training import Plan, Quantile, Trainer, load_weights, step, trainer
from tacit.training.clipping import Automatic, Flat, PerLayer
from tacit.training.gradients.pieces import Weights
from tacit.training.sampling import Poisson
from tacit.training.saving import write
from tacit.training.step import PrivateStep

NAMES = list(tc.TRAINING)
RULES = ("flat", "per_layer", "automatic", "quantile")


# ---------------------------------------------------------------------------------------- charging first


class Unread(Dataset):  # type: ignore[type-arg]
    """Rows that are fetched when the first of them is asked for; how many there are is known."""

    def __init__(self, length: int, access: Callable[[], np.ndarray]) -> None:
        self.length, self.access = length, access
        self.rows: np.ndarray | None = None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, row: int) -> tuple[Any, float]:
        if self.rows is None:
            self.rows = self.access()
        return torch.from_numpy(self.rows[row]), 0.0


def fits(ledger: Ledger, training: tc.Training, access: Callable[[], np.ndarray]) -> Trainer:
    """The road a run takes: the trainer charges, and reads."""
    return training.trainer(ledger).fit(Unread(training.plan.population, access))


def looks_then_fits(ledger: Ledger, training: tc.Training, access: Callable[[], np.ndarray]) -> Trainer:
    access()
    return fits(ledger, training, access)


def fits_uncharged(ledger: Ledger, training: tc.Training, access: Callable[[], np.ndarray]) -> Trainer:
    return training.trainer().fit(Unread(training.plan.population, access))


def fits_then_charges(ledger: Ledger, training: tc.Training, access: Callable[[], np.ndarray]) -> Trainer:
    made = fits_uncharged(ledger, training, access)
    with ledger.charge(training.event, "late"):
        return made


def short(name: str) -> Case:
    """The case on a handful of examples, which are read one by one."""
    case, plan = REGISTRY[name], tc.TRAINING[name]
    batch_size = round(4 * plan.sampling_rate)
    rule = tc.quantile(batch_size) if isinstance(plan.clipping, Quantile) else plan.clipping
    few = replace(plan, population=4, batch_size=batch_size, clipping=rule, epsilon=0.0)
    return replace(case, data=tc.examples(tc.FAR, 4), make=tc.making(few))


@pytest.mark.parametrize("name", NAMES)
def test_the_real_trainer_charges_first(name: str, tmp_path: Path) -> None:
    check_charged_first(short(name), tmp_path, fits)


@pytest.mark.parametrize(
    ("release", "finding"),
    [
        (looks_then_fits, "touched although the charge was refused"),
        (fits_then_charges, "touched although the charge was refused"),
        (fits_uncharged, "beyond the budget"),
        (release_in_spite_of_refusal, "beyond the budget"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
@pytest.mark.parametrize("name", ["training_flat", "training_sampled_quantile"])
def test_trainers_that_charge_wrongly(name: str, release: Any, finding: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=finding):
        check_charged_first(short(name), tmp_path, release)


def check_spent(training: tc.Training, case: Case, path: Path, fit: Callable[..., Trainer] = fits) -> None:
    """What a run has spent is gone: another is refused, reads nothing and moves nothing."""
    budget = Budget(1.5 * case.epsilon, case.delta)
    with Ledger.open(path, budget, relation=case.relation) as ledger:
        fit(ledger, training, lambda: case.data)
        before = Coordinates().state_dict()

        class Watched(tc.Training):
            def trainer(self, *given: Any, **options: Any) -> Trainer:
                made.append(super().trainer(*given, **options))
                return made[-1]

        made: list[Trainer] = []
        again = Watched(training.plan, training.source)
        try:
            fit(ledger, again, lambda: pytest.fail("data were touched"))
        except BudgetExceeded:
            pass
        else:
            raise AssertionError("a run beyond the budget was made")
        after = made[0].model.state_dict()
        assert all(torch.equal(after[key], before[key]) for key in before)
        assert len(ledger.entries()) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_spent_budget_stops(name: str, tmp_path: Path) -> None:
    case = short(name)
    check_spent(case.make(1), case, tmp_path / "ledger.db")


# ------------------------------------------------------------------------------------------------- files


def check_saved(training: tc.Training, case: Case, path: Path) -> None:
    """A file carries weights together with what may be promised about them."""
    trainer = training.trainer()
    trainer.fit((torch.from_numpy(case.data), torch.zeros(len(case.data))))
    tacit.save(trainer, path)
    empty = Coordinates()
    told = load_weights(path, empty)
    assert told.event == case.event, f"{case.name}: the file speaks of {told.event}"
    assert told.epsilon == accounting.epsilon(case.event, case.delta, relation=case.relation)
    assert (told.delta, str(told.relation)) == (case.delta, case.relation)
    assert told == trainer.guarantee
    assert told.noise == ("seeded" if training.source.seeded else "float64")
    assert np.array_equal(empty.along(), trainer.model.along())


@pytest.mark.parametrize("seed", [1, None])
@pytest.mark.parametrize("name", NAMES)
def test_a_saved_file_carries_the_guarantee(name: str, seed: int | None, tmp_path: Path) -> None:
    case = short(name)
    check_saved(case.make(seed), case, tmp_path / "model.safetensors")


class TestFilesThatSayTooLittle:
    def test_no_guarantee(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def write_weights(trainer: Trainer, path: Path, **options: Any) -> None:
            write(path, trainer.model.state_dict(), {}, overwrite=False)

        monkeypatch.setitem(models.registry._writers, Trainer, write_weights)
        case = short("training_flat")
        with pytest.raises(ModelUnreadable):
            check_saved(case.make(1), case, tmp_path / "model.safetensors")

    def test_that_of_one_step(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        event_of = Plan.event_of
        monkeypatch.setattr(Plan, "event_of", lambda plan, steps: event_of(plan, 1))
        case = short("training_sampled_flat")
        with pytest.raises(AssertionError, match="the file speaks of"):
            check_saved(case.make(1), case, tmp_path / "model.safetensors")


# -------------------------------------------------------------------------------------------- other ways


@pytest.mark.parametrize("name", ["training_flat", "training_sampled_quantile"])
def test_steps_taken_by_hand(name: str) -> None:
    """The same checks find the same in a loop outside of the trainer."""
    case, plan = REGISTRY[name], tc.TRAINING[name]
    check_noise(case, tc.making(plan, by_hand=True))
    check_audit(case, tc.making(plan, by_hand=True))
    twin = tc.making(plan, by_hand=True, noise_factor=lambda step: 2 / 3)
    with pytest.raises(AssertionError, match="noise is off"):
        check_noise(case, twin)
    with pytest.raises(AssertionError, match="claims"):
        check_audit(case, twin)


# ----------------------------------------------------------------------------------------- broken twins


Factors = Callable[[Any, Mapping[str, Tensor], float, int], Any]
SOUND: dict[type, Factors] = {kind: kind.factors for kind in (Flat, PerLayer, Automatic)}


def not_clipped(rule: Any, squares: Mapping[str, Tensor], clip_norm: float, parameters: int) -> Any:
    """Gradients stay as long as they are."""
    norms = torch.stack(list(squares.values())).sum(0).sqrt()
    return dict.fromkeys(squares, Weights(torch.ones_like(norms))), norms


def half_as_long_again(rule: Any, squares: Mapping[str, Tensor], clip_norm: float, parameters: int) -> Any:
    return SOUND[type(rule)](rule, squares, 1.5 * clip_norm, parameters)


def one_part(rule: Any, squares: Mapping[str, Tensor], clip_norm: float, parameters: int) -> Any:
    """Every parameter may have the whole clip_norm."""
    return SOUND[type(rule)](rule, squares, clip_norm, 1)


@pytest.mark.parametrize("kind", tc.KINDS)
@pytest.mark.parametrize(
    ("name", "rule", "factors"),
    [
        ("flat", Flat, not_clipped),
        ("flat", Flat, half_as_long_again),
        ("quantile", Flat, not_clipped),
        ("quantile", Flat, half_as_long_again),
        ("per_layer", PerLayer, not_clipped),
        ("per_layer", PerLayer, one_part),
        ("automatic", Automatic, half_as_long_again),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_rules_that_clip_wrongly(
    kind: str, name: str, rule: type, factors: Factors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule, "factors", factors)
    monkeypatch.setattr(step, "check_clipping", lambda *given: None)
    with pytest.raises(AssertionError, match="claims"):
        check_audit(REGISTRY[f"{kind}_{name}"])


@pytest.mark.parametrize("rule", RULES)
def test_a_sampler_that_takes_everyone(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Poisson, "draws", lambda sampler, source, rows: lambda step: np.arange(rows))
    check_audit(REGISTRY[f"training_{rule}"])
    with pytest.raises(AssertionError, match="claims"):
        check_audit(REGISTRY[f"training_sampled_{rule}"])


def test_noise_that_does_not_follow_clip_norm() -> None:
    case, plan = REGISTRY["training_sampled_quantile"], tc.TRAINING["training_sampled_quantile"]
    twin = tc.making(plan, noise_factor=lambda step: step.plan.clip_norm / step.clip_norm)
    with pytest.raises(AssertionError, match="noise is off"):
        check_noise(case, twin)
    with pytest.raises(AssertionError, match="claims"):
        check_audit(case, twin)


def test_noise_that_is_that_of_the_last_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer whose bits come from one seed, whatever it is told."""
    monkeypatch.setattr(trainer, "Source", lambda random_state: Source(7))
    with pytest.raises(AssertionError, match="one stream"):
        check_fresh(REGISTRY["training_flat"])


def test_a_step_that_leaves_out_empty_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise where there is nobody to cover shows that there is nobody."""
    add_noise = PrivateStep._add_noise

    def only_if_any(self: PrivateStep, total: dict[str, Tensor], norms: Tensor, *drawn: Any) -> None:
        with tc.noise_times(lambda step: 1.0 if len(norms) else 1e-9):
            add_noise(self, total, norms, *drawn)

    monkeypatch.setattr(PrivateStep, "_add_noise", only_if_any)
    case = REGISTRY["training_flat"]
    with pytest.raises(AssertionError, match="noise is off"):
        check_noise(case)
    with pytest.raises(AssertionError, match="claims"):
        check_audit(case)
