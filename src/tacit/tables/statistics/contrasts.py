"""How far weighted sums of known noise reach: the tails that intervals are made of.

The noise N_i of the cells is independent, symmetric and log-concave, and its distribution is public. A
*contrast* is a weighted sum Σ w_i N_i. Its quantile at a fixed probability above one half has two properties
that the intervals of :mod:`tacit.tables.statistics.intervals` rest on:

- it grows with every |w_i|, because P(|Z + u| ≤ t) falls with |u| for a symmetric unimodal Z;
- it is a norm of the weights, hence convex (Meyer and Reisner 1991 for bodies, Bobkov 2010 for log-concave
  measures): the half-spaces of that probability have a convex body in common that touches them all.

Noise on whole steps is compared with its continuous counterpart: coupled by quantiles, discrete and
continuous Laplace noise of scale s differ by at most max(c, 1 − c) steps with c = s·ln(2/(1 + e^(−1/s))),
which lies in [0, ½], and Gaussian noise by at most one. A contrast is then allowed Σ|w_i| times that much
more, which is little where the noise is many steps wide.

Every function errs towards longer tails: weights are only ever rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

__all__ = ["Law", "reach", "reach_of_sums", "surprising"]

Array = NDArray[Any]

APART = 1 / 256
"""How far apart, in parts of themselves, the weights of few Laplace variables are kept: see :func:`_few`."""

WIDEST = 5_000.0
"""Up to how many steps of scale the distribution of noise in whole steps is computed as it is."""

SMALLEST = 1 / 50
"""Weights below this part of the largest are raised to it; it adds less than 0.1 % to a contrast of four."""


@dataclass(frozen=True)
class Law:
    """The noise of one cell in whole steps: Laplace of this scale, or Gaussian of this standard deviation."""

    scale: float
    gaussian: bool

    @property
    def rounding(self) -> float:
        """How far the noise may lie from its continuous counterpart, in steps."""
        if self.gaussian:
            return 1.0
        lag = self.scale * math.log(2 / (1 + math.exp(-1 / self.scale)))
        return max(lag, 1 - lag)


def surprising(law: Law, weights: Array, distance: Array, miss: float | Array) -> NDArray[np.bool_]:
    """Where P(|Σ w_i N_i| ≥ distance) is certainly below ``miss``; weights in the last dimension."""
    size, distance = np.abs(np.asarray(weights, float)), np.asarray(distance, float)
    left = (distance - law.rounding * size.sum(axis=-1)) / law.scale
    if law.gaussian:
        return np.asarray(left > -ndtri(miss / 2) * np.sqrt((size**2).sum(axis=-1)) * (1 + 1e-9))
    if size.shape[-1] <= 4:
        return np.asarray((left > 0) & (_few(size, np.maximum(left, 0), miss) < miss * 0.99))
    flat = size.reshape(-1, size.shape[-1])
    each = np.broadcast_to(miss, size.shape[:-1]).ravel().tolist()
    ends = np.array([reach(False, tuple(_raised(one)), part) for one, part in zip(flat, each, strict=True)])
    ends = ends.reshape(size.shape[:-1])
    return np.asarray(left > ends)


def _raised(size: Array) -> Array:
    """Weights in order, none far below the largest, to three digits, rounded up: so that few differ."""
    raised = np.sort(np.maximum(size, SMALLEST * size.max(axis=-1, keepdims=True)), axis=-1)
    digit = 10.0 ** (np.floor(np.log10(np.maximum(raised, 1e-300))) - 3)
    return np.asarray(np.ceil(raised / digit) * digit)


def _few(size: Array, distance: Array, miss: float | Array) -> Array:
    """P(|Σ w_i L_i| ≥ distance) for at most four Laplace variables of scale 1, within ``miss``/100 above.

    1/∏(1 + w_i²t²) = Σ A_i/(1 + w_i²t²) with A_i = ∏ w_i²/(w_i² − w_j²): the tail is Σ A_i e^(−distance/w_i).
    Equal weights would divide by zero: each is raised until it is a little above the next smaller one, which
    only makes the tail longer. How little depends on ``miss``, below which cancellation must stay.
    """
    apart = np.maximum(APART, (1e-14 / miss) ** (1 / 3))
    raised = np.sort(np.maximum(size, SMALLEST * size.max(axis=-1, keepdims=True)), axis=-1)
    raised = np.maximum(raised, 1e-300)
    for i in range(1, raised.shape[-1]):
        raised[..., i] = np.maximum(raised[..., i], raised[..., i - 1] * (1 + apart))
    squares = (raised / raised[..., -1:]) ** 2
    tail = np.zeros(distance.shape)
    for i in range(raised.shape[-1]):
        factor = np.ones(distance.shape)
        for j in range(raised.shape[-1]):
            if i != j:
                factor *= squares[..., i] / (squares[..., i] - squares[..., j])
        tail = tail + factor * np.exp(-distance / raised[..., i])
    return tail


@lru_cache(maxsize=65536)
def reach(gaussian: bool, weights: tuple[float, ...], miss: float, counts: tuple[int, ...] = ()) -> float:
    """A t with P(|Σ w_i N_i| ≥ t) ≤ ``miss`` for continuous noise of scale 1, ``counts`` of each weight."""
    size = np.abs(np.array(weights, float))
    times = np.array(counts or (1,) * len(weights), float)
    if not (size * times).any():
        return 0.0
    spread = math.sqrt(float((times * size**2).sum()))
    if gaussian:
        return -float(ndtri(miss / 2)) * spread * (1 + 1e-9)
    if times.sum() == 1:
        return float(size[0]) * math.log(1 / miss) * (1 + 1e-9)
    size = np.maximum(size, SMALLEST * size.max())
    far = _far(False, tuple(size), tuple(times), miss / 200)
    nodes, values = _characteristic(size, times, miss, far)
    low, high = 0.0, far
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        tail = 1 - 2 * float((values * np.sin(nodes * middle)).sum())
        low, high = (middle, high) if tail + miss / 50 > miss else (low, middle)
    return high


def _far(gaussian: bool, weights: Sequence[float], counts: Sequence[float], miss: float) -> float:
    """A t with P(|Σ| ≥ t) ≤ ``miss``, found at once: by E e^(sX) = ∏ 1/(1 − s²w²) at the best s of a few."""
    size, times = np.asarray(weights, float), np.asarray(counts, float)
    if gaussian:
        return -float(ndtri(miss / 2)) * math.sqrt(float((times * size**2).sum()))
    parts = np.linspace(0.02, 0.98, 49)[:, np.newaxis]
    logs = -(times * np.log1p(-((parts * size / size.max()) ** 2))).sum(axis=1)
    return float(((logs + math.log(2 / miss)) / (parts[:, 0] / size.max())).min())


def _characteristic(size: Array, times: Array, miss: float, far: float) -> tuple[Array, Array]:
    """Nodes t_k and weights v_k with P(0 ≤ X < x) = Σ v_k sin(t_k x), for 0 ≤ x ≤ ``far``.

    Gil-Pelaez at the points (k + ½)h. The sum repeats with period 2π/h ≥ 2·``far``, beyond which the
    probability is below ``miss``/200; it ends where the characteristic function is below ``miss``/500, and
    falls at least as fast as 1/t² from there.
    """
    step = math.pi / far
    end = 1 / size.max()
    while float(-(times * np.log1p((size * end) ** 2)).sum()) > math.log(miss / 500):
        end *= 1.1
    index = np.arange(math.ceil(end / step) + 1) + 0.5
    nodes = index * step
    logs = np.zeros(nodes.shape)
    for one, number in zip(size, times, strict=True):
        logs -= number * np.log1p((one * nodes) ** 2)
    return nodes, np.exp(logs) / (math.pi * index)


def reach_of_sums(terms: Sequence[tuple[Law, float, int]], miss: float) -> float:
    """A t with P(|Σ| ≥ t) ≤ ``miss``, for the sum of noise in whole steps: (law, weight, how often) each.

    Where the noise is at most :data:`WIDEST` steps wide, the distribution is computed on a lattice of step h,
    by the product of Fourier transforms. Each term is moved by at most h/2 on the way there.
    """
    kept = tuple((law, abs(weight), times) for law, weight, times in terms if weight and times)
    return _reach_of_sums(kept, miss) if kept else 0.0


@lru_cache(maxsize=256)
def _reach_of_sums(terms: tuple[tuple[Law, float, int], ...], miss: float) -> float:
    gaussian = terms[0][0].gaussian
    counts = tuple(times for _, _, times in terms)
    scaled = tuple(law.scale * weight for law, weight, _ in terms)
    loose = reach(gaussian, scaled, miss, counts) + sum(law.rounding * w * times for law, w, times in terms)
    if max(law.scale for law, _, _ in terms) > WIDEST:
        return loose
    far = _far(gaussian, scaled, counts, miss * 1e-6) + sum(law.rounding * w * n for law, w, n in terms)
    step = loose / 2000
    size = 2 ** math.ceil(math.log2(2.5 * far / step))
    transform = np.ones(size // 2 + 1)
    for law, weight, times in terms:
        points, chances = _sum_of(law, times, miss)
        places = np.rint(points * weight / step).astype(np.int64) % size
        transform = transform * np.fft.rfft(np.bincount(places, chances, size)).real
    law_of_sum = np.maximum(np.fft.irfft(transform, size), 0.0)[: size // 2]
    tails = 2 * law_of_sum[::-1].cumsum()[::-1] + miss * 1e-3
    first = int(np.argmax(tails <= miss)) if (tails <= miss).any() else size
    return min(loose, (first + len(terms) / 2) * step)


def _sum_of(law: Law, times: int, miss: float) -> tuple[Array, Array]:
    """The distribution of the sum of as many such noises: whole numbers and their probabilities."""
    far = _far(law.gaussian, (law.scale,), (times,), miss * 1e-6) + 40 * law.scale + times
    half = 2 ** math.ceil(math.log2(far))
    points = np.arange(-half, half)
    logs = -(points**2) / (2 * law.scale**2) if law.gaussian else -np.abs(points) / law.scale
    chances = np.fft.ifftshift(np.exp(logs) / np.exp(logs).sum())
    summed = np.fft.irfft(np.fft.rfft(chances).real ** times, 2 * half)
    return points, np.maximum(np.fft.fftshift(summed), 0.0)
