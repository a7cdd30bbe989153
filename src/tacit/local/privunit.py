"""PrivUnit: vectors, each reported as a random direction that leans towards its own."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.data import given
from tacit.errors import InvalidValue
from tacit.local.oracle import LocalMechanism
from tacit.mechanisms._base import normals
from tacit.mechanisms.randomized_response import favoured
from tacit.randomness import Source, bernoulli

if TYPE_CHECKING:
    from tacit.local.means import Means

__all__ = ["Cap", "PrivUnit"]

Float64 = NDArray[np.float64]

BLOCK = 1 << 16
"""About so many coordinates are randomized at a time."""
_TOLERANCE = 1e-4
"""How much the length of a report may differ, relatively, from the one that all reports have."""
_UNIT = 2**53
LARGEST_EPSILON = 80.0
"""The probability of the cap is computed with 160 bits, which hold e^−80 well."""


@dataclass(frozen=True)
class Cap:
    """The cap of a sphere around a direction, and how likely the report lies in it.

    T is the inner product of a uniform direction with a fixed one, and the cap has all directions for which T
    is among the largest ``share`` of its values. ``inside`` is the largest multiple of 2^−60 for which the
    density of a report in the cap, inside/share, is at most e^ε times the density outside,
    (1 − inside)/(1 − share). Both numbers are rational, and no incomplete beta function has a part in this
    ratio: the cap is drawn by its share, and not by the angle that belongs to it.
    """

    dimension: int
    epsilon: float
    share: Fraction
    inside: Fraction = field(init=False, compare=False)

    def __post_init__(self) -> None:
        these, others = self.share.numerator, self.share.denominator - self.share.numerator
        object.__setattr__(self, "inside", favoured(self.epsilon, these, others))

    @classmethod
    def best(cls, dimension: int, epsilon: float) -> Cap:
        """The cap with which reports vary least, by a search over its share.

        Bhowmick et al. split ε by a rule between the choice of cap or rest and the angle of the cap; Asi,
        Feldman and Talwar (2022) showed that the best of all splits is optimal among unbiased mechanisms.
        """
        from scipy.optimize import minimize_scalar

        def mean(log_share: float) -> float:
            share = math.exp(log_share)
            odds = share + (1 - share) * math.exp(-epsilon)
            return -_pull(dimension, share) * -math.expm1(-epsilon) / odds

        found = minimize_scalar(
            mean, bounds=(-epsilon - 10.0, math.log(0.5)), method="bounded", options={"xatol": 1e-6}
        )
        return cls(dimension, epsilon, Fraction(math.exp(float(found.x))))

    @property
    def mean(self) -> float:
        """The mean of the inner product of a report's direction with the true one."""
        return _pull(self.dimension, float(self.share)) * self._contrast

    @property
    def mean_square(self) -> float:
        """The mean square of that inner product.

        Of a uniform direction it is 1/d, and the part of it that lies in the cap follows from integration by
        parts: E[T²; cap] = (share + (d − 1)·γ·E[T; cap])/d, where γ is the least T in the cap.
        """
        d, share = self.dimension, float(self.share)
        angle = 1.0 - 2.0 * float(_quantile(d, share))
        within = (share + (d - 1) * angle * _pull(d, share)) / d
        inside = float(self.inside)
        return inside / share * within + (1 - inside) / (1 - share) * (1 / d - within)

    @property
    def _contrast(self) -> float:
        """The density in the cap minus that outside, relative to a uniform direction."""
        return float(self.inside / self.share - (1 - self.inside) / (1 - self.share))

    def products(self, count: int, source: Source) -> tuple[Float64, Float64]:
        """Inner products T of the directions of reports with the true ones, and √(1 − T²).

        Both are computed from z = (1 − T)/2, as 1 − 2z and 2√(z(1 − z)). A small cap has T so near to 1 that
        1 − T² would keep few digits or none, and the steps in between would show the true direction.
        """
        share = float(self.share)
        inside = bernoulli(source, self.inside, count)
        uniforms = source.uniforms(count)
        tails = np.where(inside, share * uniforms, share + (1 - share) * uniforms)
        z = np.asarray(_quantile(self.dimension, tails))
        return 1.0 - 2.0 * z, 2.0 * np.sqrt(z * (1.0 - z))


def _quantile(dimension: int, tail: Any) -> Any:
    """(1 − T)/2 for the T that is exceeded with this probability: (1 + T)/2 has a symmetric beta law."""
    from scipy.special import betaincinv

    half = (dimension - 1) / 2
    return betaincinv(half, half, tail)


def _pull(dimension: int, share: float) -> float:
    """E[T; T in the cap] = (1 − γ²)^((d−1)/2)/((d − 1)·B(½, (d−1)/2)), in logarithms.

    1 − γ² is 4z(1 − z) for z = (1 − γ)/2, which keeps its digits where γ is near 1.
    """
    from scipy.special import betaln

    half = (dimension - 1) / 2
    z = float(_quantile(dimension, share))
    return math.exp(half * math.log(4 * z * (1 - z)) - math.log(2 * half) - float(betaln(0.5, half)))


@dataclass(frozen=True)
class PrivUnit(LocalMechanism):
    """Vectors with an ε-private direction, whose mean is estimated without bias.

    Relation: ``replace_one`` of one person's vector. Event: ``Pure(ε)``. The report is a direction that is
    drawn uniformly from the cap around the person's direction with probability p, and else uniformly from the
    rest of the sphere; the densities differ by a factor of at most e^ε (:class:`Cap`), whatever the two
    vectors. Divided by m, the mean inner product with the true direction, it is unbiased.

    *Length.* Without ``clip_norm`` a vector counts as its direction. With it, a vector of length r is clipped
    to ``clip_norm``, and its direction is turned around with probability (1 − r/clip_norm)/2 before it is
    randomized: the mean of the turned direction is the vector divided by ``clip_norm``, so the length costs
    no part of ε (Duchi, Jordan and Wainwright 2018). The variance of a report, summed over the coordinates,
    is (clip_norm/m)² − r².

    *Rounding.* Which side of the cap is drawn is exact; the direction is computed in float64, and rounded to
    float32 in the report. So the guarantee says "float64 noise". A vector of zeros or with a NaN or an
    infinity counts as no vector: a fixed direction, turned around by a fair coin. No vector raises an error.

    Reports are rows of float32, as long as the vectors, and unbiased as they are.

    Bhowmick, Duchi, Freudiger, Kapoor and Rogers 2018, "Protection against reconstruction and its
    applications in private federated learning"; Asi, Feldman and Talwar 2022, "Optimal algorithms for mean
    estimation under local differential privacy".

    >>> gradients = PrivUnit(dimension=3, epsilon=4.0, clip_norm=2.0, random_state=1)
    >>> reports = gradients.randomize([[0.5, 1.0, 0.0], [1.5, 0.0, 0.0]] * 1000)
    >>> reports.dtype, gradients.estimate(reports).value.round(1).tolist(), gradients.noise
    (dtype('float32'), [1.0, 0.5, -0.0], 'seeded')
    """

    dimension: int = field(kw_only=True)
    clip_norm: float | None = field(default=None, kw_only=True)
    cap: Cap = field(init=False, repr=False, compare=False)
    """The cap, chosen for the least variance."""
    length: float = field(init=False, repr=False, compare=False)
    """The length of every report."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.count("dimension", self.dimension, 2)
        if self.epsilon > LARGEST_EPSILON:
            raise InvalidValue("epsilon", self.epsilon, f"at most {LARGEST_EPSILON:g}")
        if self.clip_norm is not None:
            self._keep("clip_norm", _validate.positive("clip_norm", self.clip_norm))
        self._keep("cap", Cap.best(self.dimension, self.epsilon))
        self._keep("length", (self.clip_norm or 1.0) / self.cap.mean)
        if not 1e-30 < self.length < 1e30:
            raise InvalidValue("clip_norm", self.clip_norm, "so that reports fit into float32")

    @property
    def noise(self) -> str:
        """The kind of noise, one of :data:`tacit.guarantee.NOISE_KINDS`."""
        return "seeded" if self._source.seeded else "float64"

    def randomize(self, vectors: Any) -> NDArray[np.float32]:
        """A report for each row, which is another person's vector; or one report for a single vector."""
        single = isinstance(vectors, np.ndarray) and vectors.ndim == 1 and vectors.dtype != object
        matrix = self._matrix("vectors", vectors[None] if single else vectors)
        reports = np.empty(matrix.shape, dtype=np.float32)
        rows = max(1, BLOCK // self.dimension)
        for start in range(0, len(matrix), rows):
            part = np.array(matrix[start : start + rows], dtype=np.float64)
            reports[start : start + rows] = self._randomized(part)
        return reports[0] if single else reports

    def estimate(self, reports: Any) -> Means:
        """The mean vector of those who reported; ``value`` is an array with one number per coordinate.

        Reports that the mechanism cannot make, by their length, are left out: ``refused`` says how many.
        Intervals are those of each coordinate, for the worst direction there is.
        """
        from tacit.local.means import Means, bernstein

        matrix = self._matrix("reports", reports)
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.sqrt(np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64))
            sound = np.abs(lengths - self.length) <= _TOLERANCE * self.length
        count = int(sound.sum())
        if not count:
            raise InvalidValue("reports", "none", "at least one that the mechanism can make")
        mean = (matrix if count == len(matrix) else matrix[sound]).mean(axis=0, dtype=np.float64)
        square, largest = self.cap.mean_square, self.clip_norm or 1.0
        variance = self.length**2 * max(square, (1 - square) / (self.dimension - 1)) * (1 + 1e-6)

        def radius(miss: float) -> Float64:
            return bernstein(variance, self.length + largest, count, miss)

        return Means.of(
            self, mean, radius, bounds=(-largest, largest), reports=count, refused=len(matrix) - count
        )

    def variance(self, norm: float | None = None, reports: int = 1) -> float:
        """The mean squared distance of the estimate from the mean of so many vectors of this norm."""
        longest = self.clip_norm or 1.0
        norm = longest if norm is None else min(_validate.non_negative("norm", norm), longest)
        return (self.length**2 - norm**2) / _validate.count("reports", reports, 1)

    def _matrix(self, name: str, rows: Any) -> NDArray[Any]:
        matrix = given.declared_matrix(rows, self.dimension)
        if matrix.shape[1] != self.dimension:
            raise InvalidValue(name, f"{matrix.shape[1]} columns", f"{self.dimension} columns")
        return matrix

    def _randomized(self, rows: Float64) -> Float64:
        """Reports of a block of rows, which is overwritten.

        The part of a normal vector that is at right angles to the direction is uniform among them.
        """
        count = len(rows)
        shares = self._to_directions(rows)
        words = (self._source.words(count) >> np.uint64(11)).astype(np.int64)
        rows[words >= np.rint((1.0 + shares) / 2.0 * _UNIT).astype(np.int64)] *= -1.0
        products, beside = self.cap.products(count, self._source)
        across = normals(self._source, rows.shape)
        across -= np.einsum("ij,ij->i", across, rows)[:, None] * rows
        square = np.maximum(np.einsum("ij,ij->i", across, across), 1e-300)
        across *= (self.length * beside / np.sqrt(square))[:, None]
        rows *= (self.length * products)[:, None]
        rows += across
        return rows

    def _to_directions(self, rows: Float64) -> Float64:
        """Make each row a direction, and return its length as a share of ``clip_norm``."""
        largest = np.maximum(rows.max(axis=1), -rows.min(axis=1))
        sound = np.isfinite(largest) & (largest > 0)
        rows[~sound] = 0.0
        rows[~sound, 0] = 1.0
        largest = np.where(sound, largest, 1.0)
        rows /= largest[:, None]
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        rows /= lengths[:, None]
        if self.clip_norm is None:
            return np.where(sound, 1.0, 0.0)
        with np.errstate(over="ignore"):
            return np.asarray(np.where(sound, np.minimum(lengths * (largest / self.clip_norm), 1.0), 0.0))
