"""Random drawings: images made without any data, from which features may be scaled at no cost."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.training import Scattering

SIDE = 28


def strokes(count: int, generator: torch.Generator) -> Tensor:
    """One to three curves with a pen of random width, often joined end to end."""

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    made = []
    for _ in range(math.ceil(count / 250)):
        bends = SIDE / 2 + 22 * (uniform(250, 3, 3, 2) - 0.5)
        joined = uniform(250, 2, 1) < 0.6
        bends[:, 1:, 0] = torch.where(joined, bends[:, :-1, 2], bends[:, 1:, 0])
        t = torch.linspace(0, 1, 24).view(1, 1, 24, 1)
        start, middle, end = bends.split(1, 2)
        points = (1 - t) ** 2 * start + 2 * t * (1 - t) * middle + t**2 * end
        drawn = torch.arange(3) < torch.randint(1, 4, (250, 1), generator=generator)
        points = torch.where(drawn[:, :, None, None], points, torch.tensor(1e3)).flatten(1, 2)
        pixels = torch.cartesian_prod(torch.arange(float(SIDE)), torch.arange(float(SIDE)))
        distance = torch.cdist(pixels.expand(250, -1, -1), points).amin(2)
        width = 0.7 + 1.3 * uniform(250, 1)
        made.append(torch.sigmoid((width - distance) / 0.35).view(250, SIDE, SIDE))
    return torch.cat(made)[:count]


def blobs(count: int, generator: torch.Generator) -> Tensor:
    """Smooth shapes on black, filled with a rougher texture."""

    def field(power: float) -> Tensor:
        line = torch.fft.fftfreq(SIDE)
        frequency = (line[:, None] ** 2 + line**2).sqrt().clamp(min=1 / SIDE)
        noise = torch.randn(count, SIDE, SIDE, generator=generator)
        values = torch.fft.ifft2(torch.fft.fft2(noise) * frequency**-power).real
        centred = values - values.mean((1, 2), keepdim=True)
        return centred / values.std((1, 2), keepdim=True)

    def level() -> Tensor:
        return torch.rand(count, 1, 1, generator=generator)

    return torch.sigmoid(6 * (field(2.0) - level() + 0.3)) * torch.sigmoid(1.2 * field(1.0) * level())


def upright(images: Tensor) -> Tensor:
    """Each image sheared so that its ink leans neither way, and moved so that it is in the middle."""
    place = torch.linspace(-1, 1, SIDE)
    ink = images.sum((1, 2)).clamp(min=1e-6)
    x = (images.sum(1) @ place) / ink
    y = (images.sum(2) @ place) / ink
    across, down = place - x[:, None], place - y[:, None]
    lean = (images * down[:, :, None] * across[:, None, :]).sum((1, 2)) / ink
    spread = (images.sum(2) * down**2).sum(1) / ink
    shear = (lean / (spread + 1e-3)).clamp(-1, 1)
    moves = torch.zeros(len(images), 2, 3)
    moves[:, 0, 0] = moves[:, 1, 1] = 1
    moves[:, 0, 1], moves[:, 0, 2], moves[:, 1, 2] = shear, x, y
    grid = F.affine_grid(moves, [len(images), 1, SIDE, SIDE], align_corners=True)
    return F.grid_sample(images[:, None], grid, align_corners=True)[:, 0]


class Whitened(nn.Module):
    """Scattering features, scaled by the covariance of those of drawings, each image to length 1.

    Coefficients are raised to ``power``, group-normalised and centred by the mean over the drawings;
    then taken along the first ``width`` eigenvectors of the drawings' covariance, each divided by
    √(eigenvalue + ``floor`` × the largest). Nothing depends on the private data, and each image is
    transformed by itself: the features are free.
    """

    def __init__(self, drawn: Tensor, width: int, power: float = 1.0, floor: float = 0.01) -> None:
        super().__init__()
        self.scattering, self.power = Scattering((SIDE, SIDE)), power
        features = self.normalised(self.scattering(drawn))
        self.centre = features.mean(0)
        features -= self.centre
        values, vectors = torch.linalg.eigh(features.T @ features / len(features))
        values, vectors = values.flip(0)[:width].clamp(min=0), vectors.flip(1)[:, :width]
        self.directions = vectors / (values + floor * values[0]).sqrt()

    def normalised(self, maps: Tensor) -> Tensor:
        return F.group_norm(maps.clamp(min=0) ** self.power, 27).flatten(1)

    def scaled(self, maps: Tensor) -> Tensor:
        return F.normalize((self.normalised(maps) - self.centre) @ self.directions)

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([self.scaled(self.scattering(part)) for part in images.split(2000)])
