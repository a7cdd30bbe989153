"""Patch features: how images respond to patches of random drawings, for a small private model."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.training.networks.drawings import dead_leaves

_CONTRAST = 0.04
_PATCHES = 50_000
_PATCH_FLOOR = 0.1
_LENGTH = 4.0
_CHUNK = 8
_AT_ONCE = 2000
_COLOUR = 3


class Patches(nn.Module):
    """Responses of an image to patches of drawings, pooled over cells and whitened by drawings.

    Every ``side`` × ``side`` patch of an image is freed of its brightness and contrast and compared with
    ``filters`` patches, which were cut from random drawings of overlapping ellipses and whitened by the
    covariance of such patches. What exceeds ``threshold`` standard deviations, of either sign, is averaged
    over ``cells`` × ``cells`` parts of the image. The square roots of these averages are centred by their
    mean over the drawings. The cells are turned to the eigenvectors of their covariance over the drawings;
    for each of these, the responses along the eigenvectors of theirs are divided by √(eigenvalue + ``floor``
    × the largest of all). Where ``mirrored``, half of the patches are mirror images of the others, and the
    features are the mean over an image and its mirror image. The result has length 4, so that the bias of a
    linear layer behind it, whose input is 1, takes a small share of the clipped gradient.

    **Guarantee.** Patches and drawings come from a random generator, nothing here is trained or reads other
    images, and each image is transformed by itself, so features cost no privacy: the event and the
    relation of what is trained on them are those of the images. The noise that DP-SGD adds to the output of
    a linear layer depends on the length of the features and not on their number, so that many do no harm.

    Input is a tensor of floats, (batch, channels, height, width), pixels in [0, 1]. No gradient flows to
    it. A row that is not finite gives features that are not, in that row only. Making the module takes some
    seconds, in which the drawings are transformed and their covariance is decomposed; patches, means and
    directions are buffers, so that they are saved with a network.

    Coates, Ng and Lee 2011, whose patches and covariances are those of the data; Lee, Mumford and Huang 2001
    for the drawings.

    >>> features = Patches((1, 16, 16), filters=8, drawings=50)
    >>> features(torch.zeros(5, 1, 16, 16)).shape
    torch.Size([5, 72])
    """

    kernel: Tensor
    centre: Tensor
    modes: Tensor
    directions: Tensor

    def __init__(
        self, shape: tuple[int, int, int] = (3, 32, 32), *, filters: int = 512, side: int = 6, cells: int = 3,
        mirrored: bool = True, threshold: float = 0.8, floor: float = 5e-4, drawings: int = 3000,
        seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.side, self.cells = _validate.count("side", side, 2), _validate.count("cells", cells, 1)
        self.shape = _shape(shape, self.side + self.cells - 1)
        self.mirrored, self.threshold = bool(mirrored), _validate.finite("threshold", threshold)
        self.floor = _validate.positive("floor", floor)
        _validate.count("filters", filters, 2)
        if self.mirrored and filters % 2:
            raise InvalidValue("filters", filters, "even, since half of them are mirror images")
        _validate.count("drawings", drawings, 2)
        made = _made(
            self.shape, filters, self.side, self.cells, self.mirrored, self.threshold, self.floor, drawings,
            seed,
        )  # fmt: skip
        for name, values in zip(("kernel", "centre", "modes", "directions"), made, strict=True):
            self.register_buffer(name, values.clone())

    @property
    def width(self) -> int:
        """How many features an image has."""
        return self.centre.numel()

    def extra_repr(self) -> str:
        """What is shown between the brackets of the module's name."""
        return f"{self.shape}, filters={len(self.kernel)}, side={self.side}, cells={self.cells}"

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """The features, shape (batch, width)."""
        if not isinstance(images, Tensor) or not images.is_floating_point():
            kind = images.dtype if isinstance(images, Tensor) else type(images)
            raise InvalidValue(
                "images", kind, "a floating-point tensor", "For bytes, pass images.float() / 255."
            )
        if tuple(images.shape[1:]) != self.shape:
            raise InvalidValue(
                "images", tuple(images.shape), f"of shape (batch, {', '.join(map(str, self.shape))})",
                "Give Patches the shape of your images.",
            )  # fmt: skip
        made = [self.whitened(self.responses(part)) for part in torch.split(images.float(), _AT_ONCE)]
        return torch.cat(made) if made else images.new_zeros(0, self.width, dtype=torch.float32)

    def whitened(self, responses: Tensor) -> Tensor:
        """Features of responses, each of length 4."""
        turned = ((responses - self.centre) @ self.modes).permute(2, 0, 1)
        return _LENGTH * F.normalize((turned @ self.directions).permute(1, 0, 2).flatten(1))

    @torch.no_grad()
    def responses(self, images: Tensor) -> Tensor:
        """Roots of the pooled responses: (batch, responses, cells²)."""
        return _responses(images, self.kernel, self.cells, self.mirrored, self.threshold)


@lru_cache(maxsize=4)
@torch.no_grad()
def _made(
    shape: tuple[int, int, int], filters: int, side: int, cells: int, mirrored: bool, threshold: float,
    floor: float, drawings: int, seed: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Patches, and the mean, the modes of the cells and the directions of responses of drawings to them."""
    generator = torch.Generator().manual_seed(seed)
    drawn = dead_leaves(drawings, shape, generator)
    kernel = _filters(drawn, filters // 2 if mirrored else filters, side, generator)
    kernel = torch.cat([kernel, kernel.flip(3)]) if mirrored else kernel
    found = _responses(drawn, kernel, cells, mirrored, threshold)
    centre = found.mean(0)
    found -= centre
    across = found.flatten(0, 1)
    modes = torch.linalg.eigh(across.T @ across)[1]
    turned = (found @ modes).permute(2, 0, 1)
    values, vectors = torch.linalg.eigh(turned.mT @ turned / len(found))
    scale = (values.clamp(min=0) + floor * values.max()).sqrt()
    return kernel, centre, modes, vectors / scale[:, None]


def _responses(images: Tensor, kernel: Tensor, cells: int, mirrored: bool, threshold: float) -> Tensor:
    parts = []
    kernel = kernel.contiguous(memory_format=torch.channels_last)
    for part in torch.split(images, _CHUNK):
        channels_last = part.contiguous(memory_format=torch.channels_last)
        matched = F.conv2d(channels_last, kernel).div_(_deviation(part, kernel.shape[2]))
        above = F.adaptive_avg_pool2d((matched - threshold).relu_(), cells)
        below = F.adaptive_avg_pool2d(matched.neg_().sub_(threshold).relu_(), cells)
        parts.append(torch.cat([above, below], 1))
    pooled = torch.cat(parts)
    if mirrored:
        drawn, turned = torch.unflatten(pooled, 1, (2, 2, -1)).unbind(2)
        pooled = ((drawn + turned.flip(-1)) / 2).flatten(1, 2)
    return pooled.flatten(2).sqrt_()


def _filters(drawn: Tensor, count: int, side: int, generator: torch.Generator) -> Tensor:
    """Whitened patches of drawings, (count, channels, side, side); responses of drawings have deviation 1."""
    sample = _normalised(_cut(drawn, side, _PATCHES, generator))
    values, vectors = torch.linalg.eigh(sample.T @ sample / len(sample))
    whiten = (vectors * (values + _PATCH_FLOOR) ** -0.5) @ vectors.T
    chosen = F.normalize(_normalised(_cut(drawn, side, count, generator)) @ whiten) @ whiten
    chosen -= chosen.mean(1, keepdim=True)
    chosen /= (sample @ chosen.T).std(0).clamp(min=1e-6)[:, None]
    filters: Tensor = chosen.view(count, drawn.shape[1], side, side)
    return filters


def _deviation(images: Tensor, side: int) -> Tensor:
    """√(variance + a little) of the numbers of each patch."""
    channels = images.shape[1]
    box = images.new_full((1, channels, side, side), 1 / (channels * side**2))
    mean = F.conv2d(images, box)
    return (F.conv2d(images * images, box) - mean * mean).clamp_(min=0).add_(_CONTRAST**2).sqrt_()


def _normalised(patches: Tensor) -> Tensor:
    centred = patches - patches.mean(1, keepdim=True)
    return centred / (centred.var(1, keepdim=True, unbiased=False) + _CONTRAST**2).sqrt()


def _cut(images: Tensor, side: int, count: int, generator: torch.Generator) -> Tensor:
    """Patches of random images at random places, one in each row."""

    def places(below: int) -> Tensor:
        return torch.randint(0, below, (count,), generator=generator)

    height, width = images.shape[2:]
    image, top, left = places(len(images)), places(height - side + 1), places(width - side + 1)
    reach = torch.arange(side)
    rows, columns = top[:, None, None] + reach[:, None], left[:, None, None] + reach
    return images[image[:, None, None], :, rows, columns].permute(0, 3, 1, 2).flatten(1)


def _shape(shape: tuple[int, int, int], least: int) -> tuple[int, int, int]:
    sides = tuple(shape) if isinstance(shape, tuple | list) else ()
    if len(sides) != _COLOUR or any(isinstance(side, bool) or not isinstance(side, int) for side in sides):
        raise InvalidValue("shape", shape, "channels, height and width of the images, three whole numbers")
    if min(sides[1:]) < least or sides[0] < 1:
        raise InvalidValue("shape", shape, f"at least {least} pixels each way", "Ask for a smaller side.")
    return sides[0], sides[1], sides[2]
