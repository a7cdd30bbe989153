"""User-level DP-SGD: all rows of a unit are one example, drawn together and clipped as one."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

import tacit
from tacit.data.units import unit_numbers
from tacit.errors import InvalidValue
from tacit.relations import Unit
from tacit.training import ByUnit, Plan, Trainer
from tacit.training.gradients import routes
from training.test_trainer import quiet  # noqa: F401

PEOPLE = np.array(["b", "a", "a", None, "c", "a", "b", "a", "c", "c"], dtype=object)
FACTS: dict[str, Any] = {
    "population": 3, "batch_size": 3, "steps": 1, "delta": 1e-5, "noise_multiplier": 1.0,
    "unit": Unit("person", 3),
}  # fmt: skip


def rows(count: int = len(PEOPLE)) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(3)
    return torch.randn(count, 4, generator=made) * 3, torch.randint(0, 2, (count,), generator=made)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))


def stepped(dataset: Any, **options: Any) -> tuple[Trainer, dict[str, torch.Tensor]]:
    """One step, and by how much it moved each parameter."""
    facts = {**FACTS, **options.pop("plan", {})}
    model = network()
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=float(facts["batch_size"]))
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), optimizer, Plan(**facts), progress=False, random_state=1, **options
    )
    trainer.fit(dataset)
    return trainer, {name: before[name] - each.detach() for name, each in model.named_parameters()}


def clipped_by_hand(people: list[list[int]], clip_norm: float = 1.0) -> dict[str, torch.Tensor]:
    """Σ over people of the gradient of their mean loss, clipped, by plain backpropagation."""
    inputs, targets = rows()
    total: dict[str, torch.Tensor] = {}
    for own in people:
        model = network()
        nn.functional.cross_entropy(model(inputs[own]), targets[own]).backward()
        grads = {name: each.grad for name, each in model.named_parameters()}
        norm = torch.sqrt(sum((each**2).sum() for each in grads.values()))
        for name, each in grads.items():
            total[name] = total.get(name, 0) + each * min(1.0, clip_norm / float(norm))
    return total


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("clip_norm", [0.2, 1.0, 50.0])
@pytest.mark.parametrize("options", [{}, {"physical_batch": 1}, {"examples": "alone"}], ids=str)
def test_a_unit_is_clipped_as_one(clip_norm: float, options: dict[str, Any]) -> None:
    bounded = ByUnit(rows(), PEOPLE, rows_per_unit=3, random_state=5)
    own = [sorted(set(each.tolist())) for each in bounded._places]
    assert own[0] == [0, 6]
    assert own[2] == [4, 8, 9]
    assert len(own[1]) == 3
    assert set(own[1]) < {1, 2, 5, 7}
    _, moved = stepped(bounded, plan={"clip_norm": clip_norm}, **options)
    for name, expected in clipped_by_hand(own, clip_norm).items():
        torch.testing.assert_close(moved[name], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("quiet")
def test_data_sets_and_loaders_give_the_same_units() -> None:
    _, expected = stepped(ByUnit(rows(), PEOPLE, rows_per_unit=3, random_state=5))
    for dataset in (TensorDataset(*rows()), DataLoader(TensorDataset(*rows()), batch_size=2)):
        _, moved = stepped(ByUnit(dataset, PEOPLE, rows_per_unit=3, random_state=5))
        for name, each in expected.items():
            torch.testing.assert_close(moved[name], each)


@pytest.mark.usefixtures("quiet")
def test_a_unit_moves_the_sum_by_at_most_the_clip_norm() -> None:
    """However many rows it has, of whatever size; where rows are examples, four of them move it further."""
    inputs, targets = rows(8)
    inputs = inputs.clone()
    inputs[:4] = 100 * inputs[0]
    targets = targets.clone()
    targets[:4] = targets[0]
    others = np.array([0, 0, 0, 0, 1, 1, 2, 3])
    plan = {"population": 4, "batch_size": 4, "unit": Unit("person", 4)}

    def sums(keep: np.ndarray, unit: bool) -> dict[str, torch.Tensor]:
        some = inputs[keep], targets[keep]
        if unit:
            return stepped(ByUnit(some, others[keep], rows_per_unit=4), plan=plan)[1]
        return stepped(some, plan={**plan, "unit": Unit()})[1]

    def change(unit: bool) -> float:
        with_them, without = sums(np.ones(8, bool), unit), sums(others > 0, unit)
        return float(torch.sqrt(sum(((with_them[name] - without[name]) ** 2).sum() for name in without)))

    assert change(True) <= 1 + 1e-5
    assert change(False) > 2


@pytest.mark.usefixtures("quiet")
def test_a_row_that_is_not_finite_silences_its_unit_alone() -> None:
    inputs, targets = rows()
    broken = inputs.clone()
    broken[0] = torch.nan
    bounded = ByUnit((broken, targets), PEOPLE, rows_per_unit=3, random_state=5)
    _, moved = stepped(bounded)
    for name, expected in clipped_by_hand([sorted(set(each)) for each in bounded._places[1:]]).items():
        torch.testing.assert_close(moved[name], expected, rtol=1e-4, atol=1e-6)


def test_the_guarantee_and_the_ledger_are_for_units(tmp_path: Any) -> None:
    unit = Unit("person", 3)
    with tacit.Ledger.open(tmp_path / "a.db", budget=tacit.Budget(20.0, 1e-4), unit=unit) as ledger:
        trainer, _ = stepped(ByUnit(rows(), PEOPLE, rows_per_unit=3), ledger=ledger)
        assert trainer.guarantee.unit == unit
        assert ledger.spent().epsilon == pytest.approx(trainer.guarantee.epsilon, rel=1e-6)


def test_individual_accounting_and_correlated_noise_count_units() -> None:
    plan = {
        "population": 30, "batch_size": 10, "steps": 6, "accounting": "individual", "sampling": "cyclic",
        "noise": "correlated", "participations": 1,
    }  # fmt: skip
    trainer, _ = stepped(ByUnit(rows(90), np.arange(90) // 3, rows_per_unit=3), plan=plan)
    assert len(trainer.private_costs.spent) == 30
    assert trainer.private_costs.spent.max() <= 1


@pytest.mark.parametrize(
    ("dataset", "changes", "said"),
    [
        (lambda: rows(), {}, "units with 3 rows"),
        (lambda: ByUnit(rows(), PEOPLE, rows_per_unit=2), {}, "units with 3 rows"),
        (lambda: ByUnit(rows(), PEOPLE, rows_per_unit=3), {"unit": Unit()}, "units with 1 rows"),
        (lambda: ByUnit(rows(), PEOPLE[:5], rows_per_unit=3), {}, "units"),
        (lambda: ByUnit(rows(), PEOPLE, rows_per_unit=0), {}, "rows_per_unit"),
        (rows, {"sampling": "ordered", "relation": "replace_one"}, "drawn together"),
    ],
)
def test_what_does_not_fit_is_refused(dataset: Any, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        stepped(dataset(), plan=changes)


def test_views_and_augmentation_are_refused() -> None:
    for options in ({"views": 2}, {"augment": lambda inputs: inputs}):
        with pytest.raises(InvalidValue, match="several rows"):
            stepped(ByUnit(rows(), PEOPLE, rows_per_unit=3), **options)


def test_no_units_at_all() -> None:
    nobody = ByUnit(rows(2), [None, None], rows_per_unit=3)
    assert len(nobody) == 0
    trainer, _ = stepped(nobody)
    assert trainer.step_number == 1


@pytest.mark.parametrize("more", [1, 2, 5, 50])
def test_with_a_known_seed_no_unit_chooses_the_rows_of_another(more: int) -> None:
    """A seed is public: what is kept of one unit must not move with the number of rows of another."""

    def kept(first: int) -> list[int]:
        inputs = torch.zeros(first + 6, 1)
        made = ByUnit((inputs, inputs), ["a"] * first + ["b"] * 6, rows_per_unit=3, random_state=0)
        return (made._places[1] - first).tolist()

    assert kept(more) == kept(3)


def test_rows_are_chosen_at_random() -> None:
    inputs, names = torch.zeros(8, 1), ["a"] * 8
    drawn = [ByUnit((inputs, inputs), names, rows_per_unit=2)._places[0] for _ in range(600)]
    assert all(len(set(own.tolist())) == 2 for own in drawn)
    counts = np.bincount(np.concatenate(drawn), minlength=8)
    assert counts.min() > 80  # 150 ± 10.6; a false alarm below 1e-9


def _sorting(items: list[Any]) -> Any:
    """As collate functions for sequences do: the longest first."""
    return default_collate(sorted(items, key=lambda item: -float(item[0][0])))


def _dropping(items: list[Any]) -> Any:
    return default_collate([item for item in items if item[0][0] < 0] or items[:1])


@pytest.mark.usefixtures("quiet")
def test_a_collate_function_that_reorders_rows_mixes_no_units() -> None:
    """Units of as many rows as fit, whose own order does not matter."""
    inputs, targets = rows(9)
    people = np.array([0, 1, 2] * 3)
    loader = DataLoader(TensorDataset(inputs, targets), collate_fn=_sorting)
    _, expected = stepped(ByUnit((inputs, targets), people, rows_per_unit=3))
    _, moved = stepped(ByUnit(loader, people, rows_per_unit=3))
    for name, each in expected.items():
        torch.testing.assert_close(moved[name], each)


def test_a_collate_function_that_drops_rows_is_refused() -> None:
    """Three rows less are one unit less, and every row behind them in the example of another unit."""
    inputs, targets = rows(9)
    inputs[:, 0] = torch.tensor([1.0, -1, -1, 1, -1, -1, 1, -1, -1])
    loader = DataLoader(TensorDataset(inputs, targets), collate_fn=_dropping)
    with pytest.raises(InvalidValue, match="keeps the rows of a unit"):
        stepped(ByUnit(loader, np.arange(9) // 3, rows_per_unit=3))


def test_a_collate_function_of_several_shapes_is_refused() -> None:
    inputs, targets = rows(9)

    def padded(items: list[Any]) -> Any:
        longest = 1 + max(int(item[0][0] > 0) for item in items)
        return torch.stack([item[0].repeat(longest) for item in items]), torch.stack([i[1] for i in items])

    inputs[:, 0] = torch.tensor([1.0] * 3 + [-1.0] * 6)
    loader = DataLoader(TensorDataset(inputs, targets), collate_fn=padded)
    parts = ByUnit(loader, np.arange(9) // 3, rows_per_unit=3).batches([np.arange(3)], 3)
    with pytest.raises(InvalidValue, match="one shape"):
        next(parts)


def test_one_row_of_each_unit() -> None:
    """With one row per unit there is nothing to weigh: targets are the data set's own."""
    one = {"unit": Unit("person", 1)}
    bounded = ByUnit(rows(), PEOPLE, rows_per_unit=1)
    trainer, _ = stepped(bounded, plan=one)
    assert (len(bounded), trainer.step_number) == (3, 1)
    assert trainer.guarantee.unit == Unit("person", 1)


def test_units_of_one_row_are_no_rows() -> None:
    """One more row of a person may be chosen in place of the one before, and the sum moves by both."""
    targets = torch.tensor([0, 1, 0, 1, 0, 1])
    inputs = 50 * torch.ones(6, 4)

    def kept(count: int) -> int:
        made = ByUnit((inputs[:count], targets[:count]), ["a"] * count, rows_per_unit=1, random_state=0)
        return int(targets[made._places[0, 0]])

    assert len({kept(count) for count in range(1, 7)}) == 2
    with pytest.raises(InvalidValue, match="for units, and not for rows"):
        stepped(ByUnit(rows(), PEOPLE, rows_per_unit=1), plan={"unit": Unit()})


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("own", [1, 2, 3])
def test_a_unit_of_few_rows_does_not_choose_how_all_are_computed(own: int) -> None:
    """What fills it up weighs nothing and has no gradient: that says nothing about the way of the others."""
    units = ByUnit(rows(10 * own), np.arange(10 * own) // own, rows_per_unit=3)
    trainer, _ = stepped(units, plan={"population": 10, "batch_size": 10})
    assert [each.fallback for each in routes._ROUTES[trainer.model].values()] == [()]


class _Nowhere(datetime.tzinfo):
    def utcoffset(self, when: datetime.datetime | None) -> datetime.timedelta:
        raise RuntimeError("private")


def test_no_name_of_a_unit_raises() -> None:
    """A name that cannot be compared is none; it ends no run, and the others keep their rows."""
    odd: list[Any] = [
        1, 1.0, True, "1", None, float("nan"), torch.tensor([1, 2]), np.array([1, 2]), {1: 2},
        datetime.time(1, tzinfo=_Nowhere()), datetime.datetime(2020, 1, 1, tzinfo=_Nowhere()), 2,
    ]  # fmt: skip
    made = ByUnit(rows(len(odd)), odd, rows_per_unit=3)
    assert made._places[0].tolist() == [0, 1, 2]
    assert made._places[-1].tolist() == [11, 11, 11]


class _Fickle(datetime.tzinfo):
    """A zone that answers so often, and raises then."""

    def __init__(self, answers: int) -> None:
        self.answers = answers

    def utcoffset(self, when: datetime.datetime | None) -> datetime.timedelta:
        self.answers -= 1
        if self.answers < 0:
            raise RuntimeError("private")
        return datetime.timedelta(hours=1)


@pytest.mark.parametrize("answers", [1, 2, 3])
@pytest.mark.parametrize(
    "name",
    [
        datetime.time(1),
        datetime.datetime(2020, 1, 1),
        datetime.datetime.min,
    ],
)
def test_a_zone_that_raises_later_takes_nobody_along(
    name: datetime.time | datetime.datetime, answers: int
) -> None:
    """Whoever is called like the row with that zone keeps a unit, and its row."""
    honest = name.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    column = np.empty(2, dtype=object)
    column[:] = [name.replace(tzinfo=_Fickle(answers)), honest]
    assert unit_numbers(column)[1] >= 0


def test_a_loss_of_the_batch_is_not_spread_over_rows() -> None:
    def loss(outputs: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, own)

    plan = Plan(**FACTS)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    trainer = Trainer(model, loss, optimizer, plan, progress=False)
    with pytest.raises(InvalidValue, match="one loss per example"):
        trainer.fit(ByUnit(rows(), PEOPLE, rows_per_unit=3))


@pytest.mark.parametrize(
    "names",
    [
        torch.arange(10.0, requires_grad=True), torch.arange(10).to(torch.bfloat16),
        torch.tensor([0.0, 1, 2, 3, 4, 5, 6, 7, 8, torch.nan]), torch.arange(10) // 2,
    ],
    ids=["grad", "bfloat16", "nan", "int"],
)  # fmt: skip
def test_names_may_be_any_tensor(names: torch.Tensor) -> None:
    whole = [each for each in names.tolist() if each == each]
    assert len(ByUnit(rows(), names, rows_per_unit=3)) == len(set(whole))


def test_units_of_units_are_refused() -> None:
    with pytest.raises(InvalidValue, match="made of rows once"):
        ByUnit(ByUnit(rows(), PEOPLE, rows_per_unit=3), [0, 0, 1], rows_per_unit=3)
