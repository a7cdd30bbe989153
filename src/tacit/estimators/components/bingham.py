"""Exact draws from the Bingham distribution: the exponential mechanism over directions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from tacit.mechanisms._base import normals
from tacit.randomness import Source

__all__ = ["bingham", "directions"]

Array = NDArray[np.float64]

DRAWS = 32
"""Candidates that are drawn at a time."""


def bingham(matrix: Any, source: Source) -> Array:
    """A unit vector v with density ∝ exp(vᵀAv), for a symmetric matrix A.

    It is a rejection sampler (Kent, Ganeiber and Mardia 2013). With A shifted so that −Λ has the largest
    eigenvalue 0, candidates are angular central Gaussian: y/‖y‖ for y ~ N(0, Ω⁻¹), Ω = I + 2Λ/b, whose
    density is ∝ (vᵀΩv)^(−q/2) in q dimensions. Since −t + (q/2)·log(1 + 2t/b) is largest at t = (q − b)/2, a
    candidate with t = vᵀΛv is accepted with the probability exp(−t + (q/2)·log(1 + 2t/b) − that maximum); b,
    the root of Σ 1/(b + 2Λᵢ) = 1, makes that most frequent. Each draw has exactly the density that is
    stated, up to the rounding of float64: no Markov chain has to mix.

    >>> found = bingham(np.diag([50.0, 0.0]), Source(1))
    >>> bool(abs(found[0]) > 0.9), bool(abs(np.linalg.norm(found) - 1) < 1e-12)
    (True, True)
    """
    values, axes = np.linalg.eigh(np.asarray(matrix, dtype=np.float64))
    falls = values.max() - values
    size = falls.size
    if size == 1:
        return axes[:, 0] * (1.0 if source.bits(1) else -1.0)
    root = brentq(lambda b: float((1 / (b + 2 * falls)).sum() - 1), 1.0 - 1e-12, size + 1e-12)
    spread = 1 / np.sqrt(1 + 2 * falls / root)
    top = -(size - root) / 2 + size / 2 * math.log(size / root)
    while True:
        drawn = normals(source, (DRAWS, size)) * spread
        drawn /= np.sqrt(np.square(drawn).sum(axis=1))[:, None]
        reached = (np.square(drawn) * falls).sum(axis=1)
        chance = np.exp(np.minimum(size / 2 * np.log1p(2 * reached / root) - reached - top, 0.0))
        accepted = np.flatnonzero(source.uniforms(DRAWS) < chance)
        if accepted.size:
            return np.asarray(axes @ drawn[accepted[0]])


def directions(matrix: Any, scale: float, number: int, source: Source) -> Array:
    """Orthonormal rows, each drawn ∝ exp(scale·vᵀAv) among those orthogonal to the ones before.

    After a direction was drawn, the matrix is restricted to its orthogonal complement, in which rows
    are no longer than before: each draw costs what the first did.
    """
    rest = np.asarray(matrix, dtype=np.float64)
    basis = np.eye(len(rest))
    found = []
    for _ in range(number):
        own = bingham(scale * (basis.T @ rest @ basis), source)
        found.append(basis @ own)
        basis = np.linalg.qr(np.array(found).T, mode="complete")[0][:, len(found) :]
    return np.array(found)
