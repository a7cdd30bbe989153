"""Gaussian noise for whole models, from cryptographic bits.

PyTorch's own generator is seeded from 32 bits and its state can be computed from its output, so
whoever can guess all of the data but one example could tell which noise was added. The bits here are
those of :class:`tacit.randomness.Source`. Two uniform numbers become two normal ones (Box and
Muller 1958); with 32 random bits in float32 and 64 in float64 the largest are 6.7 and 9.4.

Small radii come from uniform numbers near 1, which lie on a coarse grid: subtracting the right sum leaves
pairs of numbers on known circles, and the wrong one does not. So every number is the sum of two, divided by
√2, of which no grid is left to see (Holohan and Braghin 2021). The result approximates real-valued
noise, which is what the proof is about, so the guarantee names its precision.

>>> normal(Source(random_state=3), 3, torch.float64)
tensor([..., ..., ...], dtype=torch.float64)
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from tacit.randomness import Source

_BLOCK = 1 << 16


def normal(source: Source, count: int, dtype: torch.dtype) -> Tensor:
    """Independent standard normal numbers, each from two others."""
    made = torch.empty(count, dtype=torch.float32 if dtype == torch.float32 else torch.float64)
    for part in torch.split(made, _BLOCK) if count > _BLOCK else (made,):
        half = -(-len(part) // 2)
        rest = len(part) - half
        radius, angle = _polar(source, 2 * half, dtype)
        across, up = angle.cos().mul_(radius), angle.sin_().mul_(radius)
        torch.add(across[:half], across[half:], out=part[:half])
        torch.add(up[:rest], up[half : half + rest], out=part[half:])
    return made


def _polar(source: Source, count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Radius and angle of so many pairs of normal numbers of variance ½: √(−ln u) and 2πv."""
    bits, whole, signed, real = (
        (32, np.uint32, np.int32, np.float32)
        if dtype == torch.float32
        else (64, np.uint64, np.int64, np.float64)
    )
    drawn = source.words(2 * count, whole)
    # u is in (0, 1], and as precise near 0 as floating point is: the tails come from there.
    share = torch.from_numpy(drawn[:count].astype(real)).add_(0.5)
    radius = share.reciprocal_().mul_(2.0**bits).log_().sqrt_()
    angle = torch.from_numpy(drawn[count:].view(signed).astype(real)).mul_(math.pi / 2 ** (bits - 1))
    return radius, angle
