"""Scattering features: fixed wavelet filters that make images easy for a small private model."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.errors import InvalidValue

Array = NDArray[np.float64]

_WIDTH = 0.8
_FREQUENCY = 0.75 * math.pi
_ALIASES = range(-3, 4)
_CHUNK = 16


class Scattering(nn.Module):
    """The scattering transform of images on Morlet wavelets, to order 1 or 2.

    Order 0 is the image smoothed by a Gaussian φ; order 1 is ``|x ∗ ψ₁| ∗ φ`` and order 2 is
    ``||x ∗ ψ₁| ∗ ψ₂| ∗ φ``, where ψ₁ runs over ``scales`` dyadic scales and ``orientations`` angles and ψ₂
    over the coarser scales. Each is sampled every 2^scales pixels. An image of height h and width w
    becomes ``paths`` maps of h // 2^scales by w // 2^scales, where ``paths`` is 1 + scales · L +
    scales (scales − 1) / 2 · L² for L orientations: 81 maps of 7 × 7 from 28 × 28 at the defaults.

    **Guarantee.** The filters depend on nothing but the arguments here, there is nothing to train, and
    each image is transformed by itself, so features cost no privacy: the event and the relation of what
    is trained on them are those of the images. The transform shrinks distances: ‖S(x) − S(y)‖ ≤
    ‖x − y‖, both images mirrored over their borders as they are here.

    Input is a floating-point tensor of shape (batch, height, width) or (batch, channels, height, width);
    the maps of the channels follow one another. No gradient flows to the input. A row that is not
    finite gives features that are not, in that row only.

    Bruna and Mallat 2013; Oyallon and Mallat 2015; for private training, Tramèr and Boneh 2021.

    >>> features = Scattering((28, 28))
    >>> features(torch.zeros(5, 28, 28)).shape
    torch.Size([5, 81, 7, 7])
    """

    def __init__(
        self, shape: tuple[int, int] = (28, 28), *, scales: int = 2, orientations: int = 8, order: int = 2
    ) -> None:
        super().__init__()
        self.scales = _whole("scales", scales)
        self.orientations = _whole("orientations", orientations)
        if order not in (1, 2) or isinstance(order, bool):
            raise InvalidValue("order", order, "1 or 2")
        self.order = int(order)
        self.shape = _shape(shape, 2 ** (self.scales + 1))

    @property
    def paths(self) -> int:
        """How many maps each channel of an image becomes."""
        second = self.scales * (self.scales - 1) // 2 * self.orientations**2 if self.order == 2 else 0
        return 1 + self.scales * self.orientations + second

    @property
    def map_shape(self) -> tuple[int, int]:
        """Height and width of each map."""
        return self.shape[0] // 2**self.scales, self.shape[1] // 2**self.scales

    def extra_repr(self) -> str:
        """What is shown between the brackets of the module's name."""
        return f"{self.shape}, scales={self.scales}, orientations={self.orientations}, order={self.order}"

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """The features, shape (batch, channels · paths, height // 2^scales, width // 2^scales)."""
        if not isinstance(images, Tensor) or not images.is_floating_point():
            kind = images.dtype if isinstance(images, Tensor) else type(images)
            raise InvalidValue(
                "images", kind, "a floating-point tensor", "For bytes, pass images.float() / 255."
            )
        if images.dim() not in (3, 4) or tuple(images.shape[-2:]) != self.shape:
            raise InvalidValue(
                "images",
                tuple(images.shape),
                f"of shape (batch, {self.shape[0]}, {self.shape[1]}) or with channels after the batch",
                "Give Scattering the shape of your images.",
            )
        channels = images.shape[1] if images.dim() == 4 else 1
        dtype = images.dtype if images.dtype in (torch.float32, torch.float64) else torch.float32
        bank = _bank(self.shape, self.scales, self.orientations, dtype, images.device)
        flat = images.reshape(images.shape[0] * channels, 1, *self.shape)
        features = flat.new_empty(flat.shape[0], self.paths, *self.map_shape)
        with torch.autocast(images.device.type, enabled=False):
            for start in range(0, flat.shape[0], _CHUNK):
                rows = slice(start, start + _CHUNK)
                features[rows] = self._transform(flat[rows].to(dtype), bank)
        return features.view(images.shape[0], channels * self.paths, *self.map_shape)

    def _transform(self, images: Tensor, bank: _Bank) -> Tensor:
        padded = F.pad(images, bank.padding, mode="reflect")
        maps = [_smooth(padded, bank, 0)]
        deeper = []
        spectrum = torch.fft.fft2(padded)
        for scale in range(self.scales):
            size = _modulus(spectrum, bank.wavelets[0][scale], 2**scale).flatten(1, 2)
            maps.append(_smooth(size, bank, scale))
            if self.order == 2 and scale + 1 < self.scales:
                inner = torch.fft.fft2(size)
                for coarser in range(scale + 1, self.scales):
                    filters = bank.wavelets[scale][coarser - scale]
                    second = _modulus(inner, filters, 2 ** (coarser - scale))
                    deeper.append(_smooth(second.flatten(1, 2), bank, coarser))
        return torch.cat(maps + deeper, 1)


class _Bank(NamedTuple):
    """Filters for one size of image.

    ``wavelets[r][j]``, on the grid of every 2^r-th pixel, holds the spectra of the wavelets of scale
    r + j; ``smoothing[r]`` the two matrices that smooth and sample the rows and columns of that grid.
    """

    padding: tuple[int, int, int, int]
    wavelets: list[list[Tensor]]
    smoothing: list[tuple[Tensor, Tensor]]


def _modulus(spectrum: Tensor, filters: Tensor, step: int) -> Tensor:
    """|x ∗ ψ| on every step-th pixel, for each filter in turn: (batch, maps, filters, height, width).

    Sampling every step-th pixel is averaging the spectrum over its step² folds.
    """
    height, width = spectrum.shape[-2] // step, spectrum.shape[-1] // step
    first, *others = (
        (..., slice(row * height, (row + 1) * height), slice(column * width, (column + 1) * width))
        for row in range(step)
        for column in range(step)
    )
    folded = spectrum.unsqueeze(2)[first] * filters[first]
    for fold in others:
        folded.add_(spectrum.unsqueeze(2)[fold] * filters[fold])
    size: Tensor = torch.fft.ifft2(folded).abs()
    return size / step**2


def _smooth(maps: Tensor, bank: _Bank, level: int) -> Tensor:
    rows, columns = bank.smoothing[level]
    return rows @ maps @ columns.T


@lru_cache(maxsize=32)
def _bank(
    shape: tuple[int, int], scales: int, orientations: int, dtype: torch.dtype, device: torch.device
) -> _Bank:
    """Filters on images mirrored 2^scales pixels or more over each border, to whole multiples of 2^scales."""
    step = 2**scales
    padded = [-(-length // step) * step + 2 * step for length in shape]
    before = [(long - short) // 2 for long, short in zip(padded, shape, strict=True)]
    after = [long - short - at for long, short, at in zip(padded, shape, before, strict=True)]
    wavelets = []
    for level in range(scales):
        grid = (padded[0] >> level, padded[1] >> level)
        wavelets.append([_morlets(grid, scale, orientations) for scale in range(scales - level)])
    gain = min(_gain(bank, scales - level) for level, bank in enumerate(wavelets))

    def ready(values: Array) -> Tensor:
        return torch.from_numpy(values).to(device, dtype)

    smoothing = [
        (
            ready(_smoother(padded[0], shape[0], before[0], scales, level)),
            ready(_smoother(padded[1], shape[1], before[1], scales, level)),
        )
        for level in range(scales)
    ]
    scaled = [[ready(gain * filters) for filters in bank] for bank in wavelets]
    return _Bank((before[1], after[1], before[0], after[0]), scaled, smoothing)


def _morlets(grid: tuple[int, int], scale: int, orientations: int) -> Array:
    """Spectra of the Morlet wavelets of one scale on a grid, highest value near 1, shape (angles, *grid).

    ψ(u) = (e^{iξ·u} − κ) g(u), where g is a Gaussian of width 0.8 · 2^scale along ξ and ``orientations`` / 4
    times that across, |ξ| = 3π/4 / 2^scale, and κ makes the mean of ψ zero. Its spectrum is
    ĝ(ω − ξ) − κ ĝ(ω), summed over the aliases that the grid makes.
    """
    angles = math.pi * np.arange(orientations).reshape(-1, 1, 1) / orientations
    along, across = _WIDTH * 2**scale, _WIDTH * 2**scale * orientations / 4
    centre = _FREQUENCY / 2**scale

    def bump(shift: float) -> Array:
        total = np.zeros((orientations, *grid))
        for up in _ALIASES:
            for left in _ALIASES:
                rows = 2 * math.pi * (np.fft.fftfreq(grid[0])[:, None] + up)
                columns = 2 * math.pi * (np.fft.fftfreq(grid[1])[None, :] + left)
                forward = np.cos(angles) * columns + np.sin(angles) * rows - shift
                sideways = np.cos(angles) * rows - np.sin(angles) * columns
                total += np.exp(-((along * forward) ** 2 + (across * sideways) ** 2) / 2)
        return total

    wave, level = bump(centre), bump(0.0)
    return wave - wave[:, :1, :1] / level[:, :1, :1] * level


def _gain(wavelets: list[Array], scales: int) -> float:
    """The factor on the wavelets at which smoothing and wavelets together never increase a norm.

    For real signals that is |φ̂(ω)|² + ½ Σ (|ψ̂(ω)|² + |ψ̂(−ω)|²) ≤ 1 at every frequency.
    """
    grid = wavelets[0].shape[1:]
    energy = sum(np.asarray((filters**2).sum(0)) for filters in wavelets)
    mirrored = np.roll(np.flip(energy, (0, 1)), (1, 1), (0, 1))
    width = _WIDTH * 2 ** (scales - 1)
    lines = [_transfer(length, width) for length in grid]
    room = 1 - (lines[0][:, None] * lines[1][None, :]) ** 2
    half = (energy + mirrored) / 2
    return float(np.sqrt(np.min(room[half > 0] / half[half > 0])))


def _transfer(length: int, width: float) -> Array:
    """The spectrum of a sampled Gaussian that adds up to 1."""
    frequencies = np.fft.fftfreq(length) + np.array(_ALIASES)[:, None]
    shape = np.exp(-((2 * math.pi * width * frequencies) ** 2) / 2).sum(0)
    return np.asarray(shape / shape[0])


def _smoother(padded: int, length: int, before: int, scales: int, level: int) -> Array:
    """The matrix that takes Gaussian means of one line of a grid around centres 2^scales pixels apart."""
    count = length // 2**scales
    centres = before + (length - 1) / 2 + 2**scales * (np.arange(count) - (count - 1) / 2)
    distance = centres[:, None] - 2**level * np.arange(padded >> level)
    distance = (distance + padded / 2) % padded - padded / 2
    width = _WIDTH * 2 ** (scales - 1)
    weights = sum(np.exp(-(((distance + turn * padded) / width) ** 2) / 2) for turn in _ALIASES)
    return np.asarray(weights / weights.sum(1, keepdims=True))


def _whole(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidValue(name, value, "a whole number, 1 or more")
    return value


def _shape(shape: tuple[int, int], least: int) -> tuple[int, int]:
    sides = tuple(shape) if isinstance(shape, tuple | list) else ()
    if len(sides) != 2 or any(isinstance(side, bool) or not isinstance(side, int) for side in sides):
        raise InvalidValue("shape", shape, "the height and width of the images, two whole numbers")
    if min(sides) < least:
        raise InvalidValue(
            "shape", shape, f"at least {least} pixels each way at these scales", "Ask for fewer scales."
        )
    return sides[0], sides[1]
