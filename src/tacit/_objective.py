"""Objective perturbation in closed form: the privacy loss of a minimum that Gaussian noise has shifted.

Released is the minimum θ of J(θ) + ⟨b, θ⟩ with b ~ N(0, s²I) and J convex, twice differentiable and
strongly convex. Since b = −∇J(θ), the density of θ is that of b times det ∇²J(θ). One unit more adds
g(θ) to the gradient and a positive semidefinite matrix to the Hessian, so the loss of seeing θ, under
either neighbour, is at most

    c + ⟨b, g⟩/s² + ‖g‖²/(2s²) ≤ c + μ·χ + μ²/2,   μ = max ‖g‖/s,

where c bounds the change of ln det ∇²J, and χ is the length of b/s in a subspace that contains g(θ)
whatever θ is: for generalised linear models the line along x (Redberg, Koskela and Wang 2023), so that
χ is the absolute value of a normal variable; in general it has as many degrees of freedom as the
subspace has dimensions. Everything below is about the loss on the right, which the true one never exceeds.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, log_ndtr

from tacit import _gaussian

Array = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_PANELS = np.concatenate([[0.0], np.geomspace(0.01, 1.0, 8), np.arange(2.0, 29.0)])
"""Offsets from where an integral begins: fine, for where a tail begins, and even, for a bulk further on."""
_ROUNDING = 1e-9
"""Relative allowance for quadrature, whose own error is far smaller."""
_CHUNK = 5_000


def profile(noise_multiplier: float, log_determinant: float, directions: int, epsilon: ArrayLike) -> Array:
    """δ(ε) = E (1 − e^{ε − loss})₊, for ε ≥ 0."""
    eps, mu = np.asarray(epsilon, dtype=float), 1 / noise_multiplier
    if directions > 1:
        flat = np.concatenate(
            [
                _by_quadrature(mu, part - log_determinant - mu * mu / 2, directions)
                for part in np.array_split(eps.ravel(), max(1, math.ceil(eps.size / _CHUNK)))
            ]
        )
        return np.asarray(np.minimum(flat.reshape(eps.shape) * (1 + _ROUNDING), 1.0))
    rest = eps - log_determinant
    tail = 2 * _gaussian.profile(noise_multiplier, np.maximum(rest, mu * mu / 2))
    body = 1 - 2 * np.exp(np.minimum(rest, mu * mu / 2) + log_ndtr(-mu))
    return np.asarray(np.clip(np.where(rest >= mu * mu / 2, tail, body), 0.0, 1.0))


def divergence(noise_multiplier: float, log_determinant: float, directions: int, orders: Array) -> Array:
    """A bound on the Rényi divergence at each order: ln E e^{(α−1)·loss} / (α−1)."""
    mu = 1 / noise_multiplier
    moments = np.array([_log_moment(t, directions) for t in (orders - 1) * mu])
    return np.asarray((log_determinant + mu * mu / 2 + moments / (orders - 1)) * (1 + _ROUNDING))


def _log_moment(t: float, directions: int) -> float:
    """ln E e^{tχ}."""
    if directions == 1:
        return t * t / 2 + math.log(2) + float(log_ndtr(t))
    peak = (t + math.sqrt(t * t + 4 * (directions - 1))) / 2
    edges = np.linspace(max(0.0, peak - 14), peak + 14, 15)
    x, width = _points(edges[:-1], edges[1:])
    logs = t * x + _log_density(x, directions)
    top = float(logs.max())
    return top + math.log(float((np.exp(logs - top) * width).sum()))


def _by_quadrature(mu: float, shifted: Array, directions: int) -> Array:
    """∫ (1 − e^{shifted − μx})₊ dF(x): from where the integrand begins, which is smooth from there.

    χ lies within 14 of √directions, but for a share below e^−98 that is less than the rounding allowed for.
    """
    start = np.maximum(shifted / mu, max(0.0, math.sqrt(directions) - 14))[:, None]
    s, width = _points(_PANELS[:-1], _PANELS[1:])
    x = start + s
    gain = -np.expm1(np.minimum(shifted[:, None] - mu * x, 0.0))
    return np.asarray((gain * np.exp(_log_density(x, directions)) * width).sum(axis=1))


def _points(low: Array, high: Array) -> tuple[Array, Array]:
    """Nodes and weights of Gauss's rule on each panel, flat."""
    half = (high - low)[:, None] / 2
    return (low[:, None] + half * (1 + _NODES)).ravel(), (half * _WEIGHTS).ravel()


def _log_density(x: Array, directions: int) -> Array:
    """ln of the density of χ with ``directions`` degrees of freedom, for x > 0."""
    constant = (1 - directions / 2) * math.log(2) - float(gammaln(directions / 2))
    return np.asarray(constant + (directions - 1) * np.log(x) - np.square(x) / 2)
