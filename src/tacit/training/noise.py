"""Gaussian noise for whole models, from cryptographic bits.

PyTorch's own generator is seeded from 32 bits and its state can be computed from its output, so
whoever can guess all of the data but one example could tell which noise was added. The bits here are
those of :class:`tacit.randomness.Source`. Two uniform numbers become two normal ones (Box and
Muller 1958), the largest of them 9.4.

In float32 such pairs lie on a grid of circles and rays: whoever subtracts the right sum from a noisy one
finds a pair on the grid, and with a wrong sum does not. So each number is blurred by a uniform one of up to
1/64 either way, which spans at least hundreds of circles wherever a pair can lie. The blur is independent of
the data, so it takes nothing from the guarantee of the Gaussian, and it hides the circles, as a second
draw does for Holohan and Braghin (2021) at more cost. The last bits of a noisy sum could still tell the
sum, and are rounded away after the noise is added (:mod:`tacit.training.step`). The proof is about
real-valued noise, which floating point approximates, so the guarantee names the precision.

>>> normal(Source(random_state=3), 3, torch.float64)
tensor([..., ..., ...], dtype=torch.float64)
"""

from __future__ import annotations

import functools
import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.randomness import Source

_BLUR = 2.0**-6
# Pairs drawn at a time: as many as stay in the cache of a core.
_PAIRS = 1 << 14
# By precision: the type of the numbers, and the integers that radii, angles and blurs are drawn as.
_KINDS = {
    torch.float32: (np.float32, np.int64, np.int32, np.int16),
    torch.float64: (np.float64, np.int64, np.int64, np.int32),
}


def normal(source: Source, count: int, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    """Independent normal numbers of this standard deviation, blurred.

    NumPy computes them, since its calls cost less than PyTorch's, which matters for a small model.
    """
    made = np.empty(count + count % 2, _KINDS[dtype][0])
    for start in range(0, len(made), 2 * _PAIRS):
        part = made[start : start + 2 * _PAIRS].reshape(2, -1)
        radius, angle, blur = _draws(source, part.shape[1], scale, *_KINDS[dtype])
        np.cos(angle, out=part[0])
        np.sin(angle, out=part[1])
        part *= radius
        part += blur
    return torch.from_numpy(made[:count])


class Ahead:
    """:func:`normal`, drawn by a thread of its own while the gradients it is for are computed.

    Only for a source without a seed: with one, the order of the draws matters. A process forked in the
    meantime draws its own numbers, and so does one that is about to end and starts no more threads.
    """

    def __init__(self, *arguments: Any) -> None:
        self._arguments, self._process = arguments, os.getpid()
        self._drawn: Future[Tensor] | None = None
        with suppress(RuntimeError):
            self._drawn = _drawer().submit(normal, *arguments)

    def result(self) -> Tensor:
        """The numbers, as soon as they are drawn."""
        if self._drawn is None or self._process != os.getpid():
            return normal(*self._arguments)
        return self._drawn.result()


@functools.cache
def _drawer() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "noise")


# A forked process has none of the threads of the process it comes from.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drawer.cache_clear)


def _draws(
    source: Source, count: int, scale: float, real: Any, share: Any, turn: Any, shift: Any
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """scale × √(−2 ln u) and 2πv for so many pairs of numbers, and a blur for each number."""
    sizes = [count * np.dtype(kind).itemsize for kind in (share, turn, shift, shift)]
    drawn = source.words(sum(sizes), np.uint8)
    ends = sizes[0], sizes[0] + sizes[1]
    # u is in (0, 1], and as precise near 0 as floating point is: the tails come from there.
    radius = np.abs(drawn[: ends[0]].view(share).astype(real))
    radius += real(0.5)
    radius *= _per_step(real, share)
    np.log(radius, out=radius)
    radius *= real(-2 * scale**2)
    np.sqrt(radius, out=radius)
    angle = drawn[ends[0] : ends[1]].view(turn).astype(real)
    angle *= real(np.pi) * _per_step(real, turn)
    blur = drawn[ends[1] :].view(shift).astype(real).reshape(2, -1)
    blur *= real(_BLUR * scale) * _per_step(real, shift)
    return radius, angle, blur


@functools.cache
def _per_step(real: Any, whole: Any) -> Any:
    """The factor that brings integers of this type to between −1 and 1."""
    return real(-1 / np.iinfo(whole).min)
