"""Attacks on collaborative learning: images and labels from gradients, images by a generator."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

if not find_spec("torch"):
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
from torch import Tensor, nn

from tacit.attacks import gan, gradients
from tacit.errors import InvalidValue
from tacit.training import clipped_gradient_sum

LOSS = nn.CrossEntropyLoss()
STEPS = {"dlg": 40, "idlg": 40, "geiping": 300}


def network(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1), nn.Sigmoid(), nn.Flatten(), nn.Linear(8 * 64, 4))
        for weight in model.parameters():
            nn.init.uniform_(weight, -0.5, 0.5)
    return model


def picture() -> tuple[Tensor, Tensor]:
    """A bright square on the dark, 8 × 8."""
    image = torch.zeros(1, 1, 8, 8)
    image[..., 2:6, 3:7] = 0.9
    return image, torch.tensor([2])


@pytest.mark.parametrize(("method", "least"), [("dlg", 25.0), ("idlg", 25.0), ("geiping", 15.0)])
def test_an_image_is_in_its_gradient(method: str, least: float) -> None:
    model, (image, label) = network(), picture()
    seen = gradients.gradients_of(model, LOSS, image, label)
    before = [each.detach().clone() for each in model.parameters()]
    found = gradients.invert_gradients(model, LOSS, seen, image.shape, method=method, steps=STEPS[method])
    assert gradients.psnr(found.inputs, image) > least
    assert found.labels.tolist() == [2]
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_noise_hides_the_image_but_not_always_the_label() -> None:
    """Noise of the size of the clip norm hides the image; the label is hidden by larger noise only."""
    model, (image, label) = network(), picture()
    sums, _ = clipped_gradient_sum(model, nn.CrossEntropyLoss(reduction="none"), image, label, 1.0)
    generator = torch.Generator().manual_seed(1)

    def noisy(size: float) -> list[Tensor]:
        return [each + size * torch.randn(each.shape, generator=generator) for each in sums.values()]

    found = gradients.invert_gradients(model, LOSS, noisy(1.0), image.shape, method="geiping", steps=150)
    assert gradients.psnr(found.inputs, image) < 12
    assert gradients.infer_labels(noisy(1e-2), batch_size=1).tolist() == [2]
    wrong = [gradients.infer_labels(noisy(5.0), batch_size=1).tolist() != [2] for _ in range(40)]
    assert sum(wrong) >= 10


def test_a_small_gradient_is_inverted_as_well() -> None:
    """A model that is nearly right sends tiny gradients: they hide nothing."""
    model, (image, label) = network(), picture()

    def tiny(outputs: Tensor, targets: Tensor) -> Tensor:
        return 1e-4 * LOSS(outputs, targets)

    seen = gradients.gradients_of(model, tiny, image, label)
    for method in ("dlg", "idlg"):
        found = gradients.invert_gradients(model, tiny, seen, image.shape, method=method, steps=30)
        assert gradients.psnr(found.inputs, image) > 25


def test_the_model_and_the_random_state_stay_as_they_are() -> None:
    """Batch normalisation and dropout in training mode, a frozen layer, and a part in another mode."""
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Dropout(0.1),
        nn.Linear(144, 16), nn.Sigmoid(), nn.Linear(16, 4),
    )  # fmt: skip
    model[0].weight.requires_grad_(False)  # type: ignore[union-attr]
    model[3].eval()
    image, label = picture()
    seen = gradients.gradients_of(model, LOSS, image, label)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    drawn = torch.get_rng_state()
    for method in ("dlg", "geiping"):
        gradients.invert_gradients(model, LOSS, seen, image.shape, method=method, steps=2)
    gan.GanAdversary((1, 8, 8), victim=0, fake=2).observe(model, steps=2, batch_size=4)
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert [each.training for each in model] == [True, True, True, False, True, True, True]
    assert torch.equal(torch.get_rng_state(), drawn)


@pytest.mark.parametrize("scale", [1.0, 0.03, 3.0])
def test_labels_of_a_batch_that_was_clipped_or_summed(scale: float) -> None:
    model = network()
    images = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        for weight in model[-1].parameters():  # type: ignore[union-attr]
            weight.mul_(0.02)
    for labels in ([0, 1, 3], [1, 1, 2], [3, 3, 3]):
        seen = gradients.gradients_of(model, LOSS, images, torch.tensor(labels))
        scaled = [scale * each for each in seen]
        assert gradients.infer_labels(scaled, batch_size=3).tolist() == labels


def test_labels_of_a_batch() -> None:
    model = network()
    images = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        model[-1].bias.zero_()  # type: ignore[index,union-attr,operator]
        model[-1].weight.mul_(0.05)  # type: ignore[index,union-attr,operator]
    for labels in ([0, 1, 3], [1, 1, 2], [3, 3, 3]):
        seen = gradients.gradients_of(model, LOSS, images, torch.tensor(labels))
        assert gradients.infer_labels(seen, batch_size=3).tolist() == labels


def test_weights_before_and_after_a_step_are_as_good_as_a_gradient() -> None:
    model, (image, label) = network(), picture()
    before = [each.detach().clone() for each in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    LOSS(model(image), label).backward()
    optimizer.step()
    after = [each.detach().clone() for each in model.parameters()]
    seen = gradients.as_gradients(before, after, rate=0.1)
    direct = gradients.gradients_of(network(), LOSS, image, label)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(seen, direct, strict=True))


def test_the_generator_learns_the_victims_class() -> None:
    """The victim has squares on the left, others on the right; the adversary has neither."""
    generator = torch.Generator().manual_seed(3)

    def batch(count: int) -> tuple[Tensor, Tensor]:
        labels = torch.randint(0, 2, (count,), generator=generator)
        images = 0.05 * torch.rand(count, 1, 8, 8, generator=generator)
        images[labels == 0, :, :, :4] += 0.8
        images[labels == 1, :, :, 4:] += 0.8
        return images, labels

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        shared = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(shared.parameters(), lr=5e-3)
    adversary = gan.GanAdversary((1, 8, 8), victim=0, fake=2, seed=5)
    for _ in range(40):
        images, labels = batch(32)
        made, fake = adversary.poison(16)
        optimizer.zero_grad()
        LOSS(shared(torch.cat([images, made])), torch.cat([labels, fake])).backward()
        optimizer.step()
        adversary.observe(shared, steps=10)
    found = adversary.samples(64).mean(dim=0)[0]
    assert found[:, :4].mean() > found[:, 4:].mean() + 0.2


@pytest.mark.parametrize(
    "call",
    [
        lambda: gradients.infer_labels([torch.ones(2, 2)], batch_size=1),
        lambda: gradients.invert_gradients(network(), LOSS, [torch.ones(1)], (1, 1, 8, 8), method="dlg"),
        lambda: gradients.invert_gradients(
            network(), LOSS, list(network().parameters()), (1, 1, 8, 8), method="guess"
        ),
        lambda: gradients.as_gradients([torch.ones(1)], [torch.ones(1)], rate=0.0),
    ],
)
def test_what_is_refused(call: Any) -> None:
    with pytest.raises(InvalidValue):
        call()
