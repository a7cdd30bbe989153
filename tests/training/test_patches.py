"""Patch features: against a direct computation, and the properties they promise."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tacit.errors import InvalidValue
from tacit.relations import Relation, Unit
from tacit.training import Patches
from tacit.training.networks.drawings import dead_leaves
from tacit.training.networks.network import Network, Preparation
from tacit.training.networks.settings import Settings

SHAPE = (3, 12, 14)


@pytest.fixture(scope="module")
def features() -> Patches:
    return Patches(SHAPE, filters=8, side=4, drawings=60)


def images(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed))


def slow(features: Patches, image: Tensor) -> Tensor:
    """Responses of one image to the patches, place by place, pooled like an image of responses."""
    side, filters = features.side, features.kernel.flatten(1).double()
    rows, columns = SHAPE[1] - side + 1, SHAPE[2] - side + 1
    found = torch.zeros(2 * len(filters), rows, columns, dtype=torch.float64)
    for row in range(rows):
        for column in range(columns):
            patch = image[:, row : row + side, column : column + side].double().flatten()
            patch = (patch - patch.mean()) / (patch.var(unbiased=False) + 0.04**2).sqrt()
            matched = filters @ patch
            found[:, row, column] = torch.cat([matched, -matched]).sub(features.threshold).clamp(min=0)
    return F.adaptive_avg_pool2d(found, features.cells)


def test_responses_are_those_of_every_place(features: Patches) -> None:
    for image in images(2):
        upright, mirrored = slow(features, image), slow(features, image.flip(2))
        half = features.kernel.shape[0] // 2
        both = (upright + mirrored) / 2
        expected = torch.cat([both[:half], both[2 * half : 3 * half]]).flatten(1).sqrt()
        found = features.responses(image[None])[0].double()
        torch.testing.assert_close(found, expected, atol=2e-3, rtol=1e-3)


def test_an_image_and_its_mirror_image_have_the_same_features(features: Patches) -> None:
    inputs = images(4)
    torch.testing.assert_close(features(inputs), features(inputs.flip(3)), atol=1e-4, rtol=1e-4)
    other = Patches(SHAPE, filters=8, side=4, drawings=60, mirrored=False)
    assert (other(inputs) - other(inputs.flip(3))).abs().max() > 0.1


def test_features_have_length_4_and_the_same_seed_gives_the_same(features: Patches) -> None:
    found = features(images(5))
    assert found.shape == (5, features.width) == (5, 8 * 9)
    torch.testing.assert_close(found.norm(dim=1), torch.full((5,), 4.0))
    other = Patches(SHAPE, filters=8, side=4, drawings=60, seed=1)
    assert (other(images(5)) - found).abs().max() > 0.1


def test_drawings_are_whitened_in_each_mode() -> None:
    made = Patches(SHAPE, filters=8, side=4, drawings=400, floor=1e-9)
    drawn = dead_leaves(400, SHAPE, torch.Generator().manual_seed(0))
    turned = (made.responses(drawn) - made.centre) @ made.modes
    for mode in range(9):
        white = turned[:, :, mode] @ made.directions[mode]
        torch.testing.assert_close(white.T @ white / 400, torch.eye(8), atol=0.02, rtol=0.0)


def test_every_image_is_transformed_by_itself(features: Patches) -> None:
    inputs = images(20)
    whole = features(inputs)
    odd = inputs.clone()
    odd[3], odd[4], odd[5] = torch.nan, torch.inf, 1e30
    found = features(odd)
    others = [row for row in range(20) if row not in (3, 4, 5)]
    torch.testing.assert_close(found[others], whole[others], atol=0, rtol=0)
    assert not found[3].isfinite().any()
    assert features(inputs[:0]).shape == (0, features.width)
    assert features(torch.zeros(1, *SHAPE)).isfinite().all()


def test_nothing_is_trained_and_buffers_restore_the_features(features: Patches) -> None:
    assert not list(features.parameters())
    assert not features(images(2).requires_grad_()).requires_grad
    other = Patches(SHAPE, filters=8, side=4, drawings=60, seed=2)
    other.load_state_dict(features.state_dict())
    torch.testing.assert_close(other(images(3)), features(images(3)), atol=0, rtol=0)


def test_drawings_lie_in_the_unit_cube_and_vary() -> None:
    drawn = dead_leaves(50, (1, 10, 12), torch.Generator().manual_seed(3))
    assert drawn.shape == (50, 1, 10, 12)
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    assert drawn.std() > 0.1


@pytest.mark.parametrize(
    "options",
    [
        {"shape": (12, 12)}, {"shape": (3, 5, 12)}, {"shape": (0, 12, 12)}, {"filters": 7}, {"filters": 1},
        {"side": 1}, {"cells": 0}, {"floor": 0.0}, {"drawings": 1}, {"threshold": float("nan")},
    ],
)  # fmt: skip
def test_odd_settings_are_refused(options: dict[str, object]) -> None:
    given: dict[str, object] = {"shape": SHAPE, "filters": 8, "drawings": 20} | options
    with pytest.raises(InvalidValue):
        Patches(given.pop("shape"), **given)  # type: ignore[arg-type]


def test_odd_images_are_refused(features: Patches) -> None:
    for odd in (torch.zeros(2, *SHAPE, dtype=torch.uint8), torch.zeros(2, 3, 12, 12), torch.zeros(SHAPE)):
        with pytest.raises(InvalidValue):
            features(odd)


def test_the_recipe_is_the_benchmarks() -> None:
    """As in benchmarks/dpsgd_accuracy.py on Fashion-MNIST, with a rate that falls to zero and no average."""
    made = Settings.of("patches", 60_000)
    assert (made.batch_size, made.epochs, made.lr, made.clip_norm) == (3750, 25, 1.6, 2.0)
    assert (made.momentum, made.optimizer, made.average, made.fading) == (0.9, "sgd", None, "to zero")
    assert Settings.of("cnn", 60_000).fading == "none"
    with pytest.raises(InvalidValue, match="fading"):
        Settings.of("patches", 60_000, fading="slowly")


def test_the_learning_rate_falls_to_zero() -> None:
    made = Settings.of("linear", 40, epochs=1, batch_size=8, lr=1.0, fading="to zero")
    network = Network.new("linear", (1, 2, 2), (0, 1), Preparation())
    plan = made.plan(
        population=40, epsilon=5.0, delta=1e-4, relation=Relation.ADD_REMOVE, unit=Unit(), started={}
    )
    rates: list[float] = []
    trainer = made.trainer(
        network, plan, None,
        callbacks=[lambda step: rates.append(step.trainer.optimizer.param_groups[0]["lr"])],
    )  # fmt: skip
    trainer.fit((torch.rand(40, 1, 2, 2), torch.randint(0, 2, (40,))))
    assert rates == pytest.approx([0.8, 0.6, 0.4, 0.2, 0.0])
    assert ("optimiser", "sgd, lr 1, falling to 0, momentum 0.9") in made.described(plan)
