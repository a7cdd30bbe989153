"""Networks by name for the standard cases, and settings to train them privately."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.training.networks.autoencoder import AutoEncoder
from tacit.training.networks.patches import Patches
from tacit.training.networks.scattering import Scattering

Shape = tuple[int, ...]

_COLOUR = 3
_LARGE = 20


@dataclass(frozen=True)
class Recipe:
    """How an architecture is made, and settings that suit it at 60,000 examples, found on MNIST."""

    make: Callable[[Shape, int], nn.Sequential]
    images: bool
    least: int
    batch_size: int
    epochs: float
    lr: float
    clip_norm: float
    momentum: float = 0.9
    optimizer: str = "sgd"
    average: float | str | None = "tail"
    fading: str = "none"


def architecture(name: str, shape: Sequence[int], classes: int) -> nn.Sequential:
    """A small network that suits private training, by name.

    ``shape`` is that of one example, (channels, height, width) or (values,), and ``classes`` how many
    classes there are. Outputs are one score for each class. No layer lets examples mix, so each may be
    given to :class:`tacit.training.Trainer` as it is. A name, a shape and a number depend on no data, so that
    the architecture costs nothing.

    ===============  ====================================================================================
    ``linear``       one linear layer: multinomial logistic regression
    ``mlp``          one hidden layer of 128, tanh
    ``autoencoder``  one linear layer on the codes of an :class:`tacit.training.AutoEncoder` of two layers;
                     what learns codes and classes together is its ``stage()`` (dPA)
    ``cnn``          two convolutions and two linear layers, tanh (Papernot et al. 2021); for colour images
                     of 16 pixels or more, six convolutions and two linear layers of the same authors
    ``scattering``   one linear layer on group-normalised :class:`tacit.training.Scattering` features
                     (Tramèr and Boneh 2021); all before the linear layer is fixed, and can be computed once
    ``patches``      one linear layer on :class:`tacit.training.Patches`, as fixed as scattering features: 256
                     patches, 3 × 3 cells and mirror images for colour images, 96, 6 × 6 and none for
                     grey ones
    ``resnet``       thirteen convolutions in six residual blocks, group-normalised (De et al. 2022, but
                     smaller)
    ===============  ====================================================================================

    >>> import torch
    >>> architecture("cnn", (1, 28, 28), classes=10)(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 10])
    """
    recipe = recipe_of(name)
    sides = tuple(_validate.count("shape", side, 1) for side in shape)
    _validate.count("classes", classes, 2)
    return made(recipe, name, sides, classes)


def made(recipe: Recipe, name: str, sides: Shape, outputs: int) -> nn.Sequential:
    """The network of a recipe for examples of this shape."""
    if recipe.images and (len(sides) != 3 or min(sides[1:]) < recipe.least):
        raise InvalidValue(
            "shape", sides, f"channels, height and width of images of {recipe.least} pixels or more, "
            f"for {name!r}", "Use 'mlp' or 'linear' for other data.",
        )  # fmt: skip
    if not sides:
        raise InvalidValue("shape", sides, "that of one example, such as (1, 28, 28) or (30,)")
    return recipe.make(sides, outputs)


def recipe_of(name: str, on_features: bool = False) -> Recipe:
    """The settings for the architecture of this name, on raw examples or on fixed features of them."""
    if on_features and name in RECIPES and name not in HEADS:
        advice = "An architecture for images takes the images themselves: leave features= out."
        raise InvalidValue("architecture", name, f"{' or '.join(map(repr, HEADS))} on features", advice)
    recipes = HEADS if on_features else RECIPES
    return recipes[_validate.choice("architecture", name, tuple(recipes))]


def fixed_part(network: nn.Sequential) -> nn.Sequential | None:
    """The layers in front of the first trained one, if they are worth computing once; otherwise None."""
    trained = [place for place, layer in enumerate(network) if any(True for _ in layer.parameters())]
    fixed = isinstance(network[0], Scattering | Patches)
    return nn.Sequential(*list(network)[: trained[0]]) if fixed else None


def _linear(shape: Shape, classes: int) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


def _mlp(shape: Shape, classes: int) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 128), nn.Tanh(), nn.Linear(128, classes))


def _autoencoder(shape: Shape, classes: int) -> nn.Sequential:
    return nn.Sequential(AutoEncoder(shape, classes))


def _cnn(shape: Shape, classes: int) -> nn.Sequential:
    channels, height, width = shape
    if channels >= _COLOUR and min(height, width) >= 16:
        return _deep_cnn(shape, classes)
    if min(height, width) >= _LARGE:
        front = [
            nn.Conv2d(channels, 16, 8, 2, padding=2), nn.Tanh(), nn.MaxPool2d(2, 1),
            nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1),
        ]  # fmt: skip
        sides = [_after(_after(side, 8, 2, 2) - 1, 4, 2, 0) - 1 for side in (height, width)]
    else:
        front = [
            nn.Conv2d(channels, 16, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2),
        ]  # fmt: skip
        sides = [side // 4 for side in (height, width)]
    return nn.Sequential(
        *front, nn.Flatten(), nn.Linear(32 * math.prod(sides), 32), nn.Tanh(), nn.Linear(32, classes)
    )


def _after(side: int, kernel: int, stride: int, padding: int) -> int:
    return (side + 2 * padding - kernel) // stride + 1


def _deep_cnn(shape: Shape, classes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    before = shape[0]
    for width in (32, 64, 128):
        for _ in range(2):
            layers += [nn.Conv2d(before, width, 3, padding=1), nn.Tanh()]
            before = width
        layers.append(nn.MaxPool2d(2))
    features = 128 * math.prod(side // 8 for side in shape[1:])
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 128), nn.Tanh(), nn.Linear(128, classes))


def _scattering(shape: Shape, classes: int) -> nn.Sequential:
    channels, height, width = shape
    fixed = Scattering((height, width))
    maps = channels * fixed.paths
    norm = nn.GroupNorm(maps // 3, maps, affine=False)
    return nn.Sequential(fixed, norm, nn.Flatten(), nn.Linear(maps * math.prod(fixed.map_shape), classes))


def _patches(shape: Shape, classes: int) -> nn.Sequential:
    channels, height, width = shape
    colour, least = channels >= _COLOUR, min(height, width)
    fixed = Patches(
        (channels, height, width), filters=256 if colour else 96, side=min(6, least // 2),
        cells=min(3 if colour else 6, least // 4), mirrored=colour,
    )  # fmt: skip
    layer = nn.Linear(fixed.width, classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(fixed, layer)


class _Block(nn.Module):
    """A residual block of two normalised convolutions."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.first_norm = nn.GroupNorm(math.gcd(16, before), before)
        self.first = nn.Conv2d(before, width, 3, stride, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(math.gcd(16, width), width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.past: nn.Module = nn.Identity()
        if before != width:
            self.past = nn.Conv2d(before, width, 1, stride, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """The input plus the output of the convolutions."""
        ready = F.relu(self.first_norm(inputs))
        added = self.second(F.relu(self.second_norm(self.first(ready))))
        past: Tensor = self.past(inputs if isinstance(self.past, nn.Identity) else ready)
        result: Tensor = past + added
        return result


def _resnet(shape: Shape, classes: int) -> nn.Sequential:
    widths = (16, 32, 64)
    layers: list[nn.Module] = [nn.Conv2d(shape[0], widths[0], 3, padding=1, bias=False)]
    before = widths[0]
    for width in widths:
        layers += [_Block(before, width, 1 if before == width else 2), _Block(width, width, 1)]
        before = width
    ends = [nn.GroupNorm(16, before), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *ends, nn.Linear(before, classes))


RECIPES = {
    "linear": Recipe(_linear, False, 1, batch_size=2048, epochs=20, lr=16.0, clip_norm=0.1),
    "mlp": Recipe(_mlp, False, 1, batch_size=1024, epochs=20, lr=4.0, clip_norm=0.1),
    "autoencoder": Recipe(_autoencoder, False, 1, batch_size=1024, epochs=20, lr=4.0, clip_norm=0.1),
    "cnn": Recipe(_cnn, True, 4, batch_size=1024, epochs=15, lr=4.0, clip_norm=0.1),
    "scattering": Recipe(_scattering, True, 8, batch_size=4096, epochs=20, lr=8.0, clip_norm=0.1),
    "patches": Recipe(
        _patches, True, 8, batch_size=3750, epochs=25, lr=1.6, clip_norm=2.0, average=None,
        fading="to zero",
    ),
    "resnet": Recipe(_resnet, True, 8, batch_size=1024, epochs=30, lr=2.0, clip_norm=0.1),
}
"""All architectures by name."""

HEADS = {
    "linear": Recipe(_linear, False, 1, batch_size=5000, epochs=30, lr=16.0, clip_norm=0.3),
    "mlp": Recipe(_mlp, False, 1, batch_size=5000, epochs=30, lr=4.0, clip_norm=0.3),
}
"""Architectures on fixed features of norm 1.

The settings of ``"linear"`` lie between some that were compared on held-out training images of CIFAR-10;
those of ``"mlp"`` are not tuned.
"""
