"""The deep private auto-encoder: why its published form does not hold, and what the sound form keeps."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tacit
from tacit import Budget, Ledger, accounting
from tacit.errors import BudgetExceeded, GuaranteeVoid, InvalidValue
from tacit.training import AutoEncoder, Plan, Trainer, clipped_gradient_sum, load_weights
from tacit.training.networks import tabular
from tacit.training.networks.autoencoder import combined
from tacit.training.networks.network import Network, Preparation
from tacit.training.networks.settings import Settings
from training.oracle import assert_equal_to_loop, distance, size

pytestmark = pytest.mark.usefixtures("tested_once")

Array = np.ndarray
PLAN: dict[str, Any] = {"population": 60, "batch_size": 30, "clip_norm": 1.0, "delta": 1e-4}


# ----------------------------------------------------------------- what was wrong with the published one


UNITS, WIDTH, RATE = 3, 4, 1e-5
PUBLISHED = WIDTH * (UNITS + UNITS**2 / 4)
"""The published sensitivity of all coefficients together."""


def coefficients(rows: Array, weights: Array) -> tuple[Array, Array]:
    """Those of the reconstruction error in the weights, to degree 2, as published: Σ(½ − x)hᵀ, Σhhᵀ/8."""
    hidden = 1 / (1 + np.exp(-rows @ weights.T))
    return hidden.T @ (0.5 - rows), hidden.T @ hidden / 8


def published_training(rows: Array, epsilon: float, steps: int, seed: int) -> list[Array]:
    """The weights of a minimisation whose coefficients have Laplace noise that was drawn once."""
    random = np.random.default_rng(seed)
    first, second = (random.laplace(scale=PUBLISHED / epsilon, size=(UNITS, n)) for n in (WIDTH, UNITS))
    weights = [random.normal(size=(UNITS, WIDTH))]
    for _ in range(steps):
        one, two = coefficients(rows, weights[-1])
        gradient = one + first + 2 * (two + second) @ weights[-1]
        weights.append(weights[-1] - RATE * gradient)
    return weights


def unexplained(rows: Array, weights: list[Array]) -> float:
    """What one draw of noise cannot explain of the steps, if these were the rows: 0 for the true ones."""
    left, explains = [], []
    for before, after in pairwise(weights):
        one, two = coefficients(rows, before)
        left.append((before - after) / RATE - one - 2 * two @ before)
        explains.append(np.vstack([np.eye(WIDTH), 2 * before]))
    seen, known = np.hstack(left).T, np.hstack(explains).T
    noise = np.linalg.lstsq(known, seen, rcond=None)[0]
    return float(np.abs(seen - known @ noise).max())


def test_noise_on_the_coefficients_once_tells_neighbours_apart_for_certain() -> None:
    """The noise is thousands of times as large as what one row adds, and is solved for and taken away."""
    random = np.random.default_rng(1)
    rows = random.uniform(size=(200, WIDTH))
    neighbour = rows.copy()
    neighbour[7] = random.uniform(size=WIDTH)
    for seed in range(20):
        true, other = (rows, neighbour) if seed % 2 else (neighbour, rows)
        weights = published_training(true, epsilon=1e-3, steps=6, seed=seed)
        assert np.abs(weights[1] - weights[0]).max() > 1000 * RATE
        assert unexplained(true, weights) < 1e-6
        assert unexplained(other, weights) > 1e-4


def test_noise_drawn_anew_is_paid_for_in_every_step() -> None:
    """Neighbours' coefficients differ again at every step, nearly by the sensitivity: costs add up."""
    random = np.random.default_rng(2)
    rows, epsilon, steps = random.uniform(size=(50, WIDTH)), 0.5, 30
    one, other = (np.vstack([rows, np.full((1, WIDTH), value)]) for value in (0.0, 1.0))
    losses = []
    for _ in range(steps):
        weights = random.uniform(2, 4, size=(UNITS, WIDTH))
        both = zip(coefficients(one, weights), coefficients(other, weights), strict=True)
        linear, quadratic = (np.abs(a - b).sum() for a, b in both)
        losses.append((linear + WIDTH * quadratic) * epsilon / PUBLISHED)
    assert max(losses) <= epsilon
    assert sum(losses) > steps * epsilon / 2
    whole = accounting.epsilon(tacit.events.Repeat(tacit.events.Pure(epsilon), steps), 0.0)
    assert whole == pytest.approx(steps * epsilon)


# ----------------------------------------------------------------- examples are kept apart


def examples(rows: int = 60, width: int = 6) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    inputs = torch.randn(rows, 2) @ torch.randn(2, width)
    return inputs, (inputs[:, 0] > 0).long()


def small(**options: Any) -> AutoEncoder:
    torch.manual_seed(2)
    return AutoEncoder((6,), 2, (5, 3), **options)


@pytest.mark.parametrize("part", [0, 1, "head", "all"])
def test_a_gradient_is_that_of_the_example_alone(part: Any) -> None:
    inputs, labels = examples()
    labels[3] = -1
    stage = small(reconstruction=3.0).double().stage(part)
    assert_equal_to_loop(stage, inputs.double(), labels, stage.loss)
    whole, norms = clipped_gradient_sum(stage, stage.loss, inputs.double(), labels, 0.01)
    for row in (0, 3, 59):
        kept = torch.arange(60) != row
        less, _ = clipped_gradient_sum(stage, stage.loss, inputs.double()[kept], labels[kept], 0.01)
        assert distance(whole, less) <= 0.01 * (1 + 1e-9)
        assert distance(whole, less) == pytest.approx(min(0.01, float(norms[row])), rel=1e-6, abs=1e-12)
    assert size(whole) > 0.01


class OfTheBatch(AutoEncoder):
    """A twin: the reconstruction error in units of the batch's variance, as of a batch-normalised layer."""

    def forward(self, inputs: Tensor) -> Any:
        scores, errors = super().forward(inputs)
        return scores, errors / (inputs.var(0, correction=0).mean() + 0.1)


class OfTheErrors(AutoEncoder):
    """A twin: an example's error beside the mean error of its batch."""

    def forward(self, inputs: Tensor) -> Any:
        scores, errors = super().forward(inputs)
        return scores, errors / errors.detach().mean()


@pytest.mark.parametrize("kind", [OfTheBatch, OfTheErrors])
def test_a_reconstruction_normalised_by_the_batch_is_refused(kind: type[AutoEncoder]) -> None:
    stage = kind((6,), 2, (5, 3)).stage()
    trainer = Trainer(
        stage, stage.loss, torch.optim.SGD(stage.parameters(), 0.1), Plan(**PLAN, epochs=1, epsilon=1.0)
    )
    with pytest.raises(InvalidValue, match="does not change the"):
        trainer.fit(examples())
    with pytest.raises(GuaranteeVoid):
        trainer.guarantee  # noqa: B018


def test_a_batchnormalised_layer_is_refused_by_name() -> None:
    model = small()
    model.encoders[0] = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5))
    with pytest.raises(InvalidValue, match=r"layer 'encoders\.0\.1'"):
        tacit.training.check_model(model.stage())


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_an_odd_example_changes_no_other_and_adds_at_most_its_share(value: float) -> None:
    inputs, labels = examples()
    stage = small().stage()
    without, _ = clipped_gradient_sum(stage, stage.loss, inputs, labels, 0.1)
    odd = torch.cat([inputs, torch.full((1, 6), value)])
    found, _ = clipped_gradient_sum(stage, stage.loss, odd, torch.cat([labels, labels[:1]]), 0.1)
    assert distance(found, without) <= 0.1 * (1 + 1e-5)


# ----------------------------------------------------------------- every layer pays


def trained(stage: AutoEncoder, ledger: Ledger | None = None, **options: Any) -> Trainer:
    plan = Plan(**PLAN, epochs=2, noise_multiplier=3.0)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
    return Trainer(stage, stage.loss, optimizer, plan, ledger, progress=False, **options).fit(examples())


def test_stages_compose_and_each_changes_its_own_part(tmp_path: Path) -> None:
    model, spent = small(), []
    for part, prefixes in (
        (0, ("encoders.0", "decoders.0")),
        (1, ("encoders.1", "decoders.1")),
        ("head", ("head",)),
    ):
        before = copy.deepcopy(model.state_dict())
        trainer = trained(model.stage(part))
        spent.append(trainer.guarantee.epsilon)
        moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
        assert moved == {name for name in before if name.startswith(prefixes)}
    steps = tacit.events.Repeat(trainer.plan.event, 3)
    assert spent[0] == pytest.approx(trainer.plan.epsilon)
    assert spent[2] == pytest.approx(accounting.epsilon(steps, 1e-4), rel=1e-3)
    assert spent[0] < spent[1] < spent[2]

    tacit.save(trainer, tmp_path / "dpa.safetensors")
    fresh = AutoEncoder((6,), 2, (5, 3))
    assert load_weights(tmp_path / "dpa.safetensors", fresh) == trainer.guarantee
    inputs, _ = examples()
    assert torch.equal(fresh(inputs), model(inputs))
    again = trained(fresh.stage())  # the file remembers what its weights have cost
    assert again.guarantee.epsilon > spent[2]
    assert tacit.load(tmp_path / "dpa.safetensors").guarantee_ == trainer.guarantee


def test_a_budget_for_two_stages_refuses_the_third(tmp_path: Path) -> None:
    model = small()
    two = accounting.epsilon(tacit.events.Repeat(Plan(**PLAN, epochs=2, noise_multiplier=3.0).event, 2), 1e-4)
    with Ledger.open(tmp_path / "book.db", Budget(two * 1.2, 1e-4), filter="renyi") as ledger:
        for part in (0, 1):
            trained(model.stage(part), ledger)
        before = copy.deepcopy(model.state_dict())
        with pytest.raises(BudgetExceeded):
            trained(model.stage("head"), ledger)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert len(ledger.entries()) == 2


def test_two_threads_on_two_stages_are_refused() -> None:
    """Stages share parameters and their gradients: two at once would mix the sum of one with other noise."""
    model, within, go_on = small(), threading.Event(), threading.Event()

    def standing(inputs: Tensor) -> Tensor:
        within.set()
        assert go_on.wait(120)
        return inputs

    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(trained, model.stage(), augment=standing)
        try:
            assert within.wait(120)
            with pytest.raises(InvalidValue, match="Another step on this model is running"):
                trained(model.stage())
            trained(small().stage())
        finally:
            go_on.set()
        run.result()
    assert trained(model.stage(0)).step_number == 4


def test_a_stage_shares_its_layers_and_the_module_still_scores() -> None:
    model = small()
    inputs, _ = examples()
    stage = model.stage(1)
    assert stage.encoders is model.encoders
    assert stage(inputs).shape == (60,)
    assert model(inputs).shape == (60, 2)
    scores, errors = model.stage()(inputs)
    assert torch.equal(scores, model(inputs))
    torch.testing.assert_close(errors, (model.reconstruct(inputs) - inputs).square().mean(1))
    assert all(each.requires_grad for each in model.parameters())
    assert list(stage.state_dict()) == list(model.state_dict())


def test_images_keep_their_shape() -> None:
    model = AutoEncoder((1, 4, 4), 3, (5,))
    images = torch.rand(7, 1, 4, 4)
    assert model.reconstruct(images).shape == images.shape
    assert model.encode(images).shape == (7, 5)


@pytest.mark.parametrize(
    "wrong",
    [{"hidden": ()}, {"hidden": (0,)}, {"shape": (0,)}, {"reconstruction": -1.0}, {"classes": 0}],
    ids=str,
)
def test_parameters_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        AutoEncoder(**{"shape": (6,), "classes": 2, **wrong})


@pytest.mark.parametrize("part", [2, -1, "tail", None, True, 1.5])
def test_stages_are_a_closed_list(part: Any) -> None:
    with pytest.raises(InvalidValue, match="part"):
        small().stage(part)


# ----------------------------------------------------------------- it learns, and is known by name


@pytest.mark.parametrize("parts", [("all",), (0, 1, "head")])
def test_it_learns_codes_and_classes(parts: tuple[Any, ...]) -> None:
    inputs, labels = examples(600)
    model = small()
    for part in parts:
        stage = model.stage(part)
        plan = Plan(
            population=600, batch_size=200, epochs=15, clip_norm=1.0, noise_multiplier=0.5, delta=1e-5
        )
        optimizer = torch.optim.SGD(stage.parameters(), lr=0.3, momentum=0.9)
        Trainer(stage, stage.loss, optimizer, plan, random_state=3, progress=False).fit((inputs, labels))
    with torch.no_grad():
        assert (model(inputs).argmax(1) == labels).float().mean() > 0.93
        left = (model.reconstruct(inputs) - inputs).square().mean() / inputs.square().mean()
    assert left < 0.7


def test_a_number_may_be_learnt_beside_the_reconstruction() -> None:
    scores, errors = torch.tensor([[0.5], [1.0]]), torch.tensor([2.0, 3.0])
    found = combined(tabular.squared_error)((scores, errors), torch.tensor([0.0, torch.nan]))
    assert found.tolist() == [2.25, 3.0]


def test_a_network_by_name_trains_and_loads(tmp_path: Path) -> None:
    network = Network.new("autoencoder", (6,), ("no", "yes"), Preparation())
    settings = Settings.of("autoencoder", 60, epochs=2.0, batch_size=30)
    before = copy.deepcopy(network.model.state_dict())
    trainer = settings.trainer(network, Plan(**PLAN, epochs=2, epsilon=2.0), None, progress=False)
    network.guarantee_ = trainer.fit(examples()).guarantee
    assert not any(torch.equal(value, before[name]) for name, value in network.model.state_dict().items())
    tacit.save(network, tmp_path / "net.safetensors")
    again = tacit.load(tmp_path / "net.safetensors")
    inputs = examples()[0].numpy()
    assert again.predict_proba(inputs).tobytes() == network.predict_proba(inputs).tobytes()
    assert again.guarantee_ == trainer.guarantee
    assert again.title == "auto-encoder with a softmax head of 2 classes"
