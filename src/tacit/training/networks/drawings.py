"""Drawings: random images that resemble photographs in their statistics and come from no data."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_LEAVES = 70
_LEAST, _MOST = 1.5, 30.0
_BEYOND = 8


def dead_leaves(count: int, shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
    """Images of overlapping ellipses: (count, channels, height, width), values in [0, 1].

    Ellipses cover each other like leaves on the ground. The density of a radius r falls as r⁻³, so that the
    images look alike at every scale, as photographs do (Lee, Mumford and Huang 2001). Each ellipse has a
    colour near the image's own and a shading; over the whole image lies a faint texture with a 1/f spectrum.
    """
    channels, height, width = shape

    def uniform(*sides: int) -> Tensor:
        return torch.rand(count, *sides, generator=generator)

    def normal(*sides: int) -> Tensor:
        return torch.randn(count, *sides, generator=generator)

    brightness, contrast = uniform(1, 1, 1), 0.15 + 0.25 * uniform(1, 1, 1)

    def colour() -> Tensor:
        grey = brightness + contrast * normal(1, 1, 1)
        return grey + 0.12 * normal(channels, 1, 1) if channels > 1 else grey

    rows, columns = torch.arange(float(height))[:, None], torch.arange(float(width))
    images = colour().expand(count, *shape).clone()
    for _ in range(_LEAVES):
        radius = (_LEAST**-2 - uniform(1, 1) * (_LEAST**-2 - _MOST**-2)) ** -0.5
        down = rows - ((height + 2 * _BEYOND) * uniform(1, 1) - _BEYOND)
        right = columns - ((width + 2 * _BEYOND) * uniform(1, 1) - _BEYOND)
        angle, stretch = math.pi * uniform(1, 1), (0.5 * normal(1, 1)).exp()
        along = right * angle.cos() + down * angle.sin()
        across = down * angle.cos() - right * angle.sin()
        distance = ((along / stretch) ** 2 + (across * stretch) ** 2).sqrt()
        inside = torch.sigmoid((radius - distance) / 0.5)[:, None]
        shading = 0.3 * contrast[:, 0] * normal(1, 1) * along / radius.clamp(min=3)
        images += (colour() + shading[:, None].clamp(-0.5, 0.5) - images) * inside
    return (images + _texture(count, height, width, generator) * uniform(1, 1, 1)).clamp_(0, 1)


def _texture(count: int, height: int, width: int, generator: torch.Generator) -> Tensor:
    vertical, horizontal = torch.fft.fftfreq(height)[:, None], torch.fft.fftfreq(width)
    frequency = (vertical**2 + horizontal**2).sqrt().clamp(min=1 / max(height, width))
    noise = torch.randn(count, 1, height, width, generator=generator)
    field: Tensor = torch.fft.ifft2(torch.fft.fft2(noise) / frequency).real
    scaled: Tensor = 0.12 * field / field.std()
    return scaled
