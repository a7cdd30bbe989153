"""Noise that no single party knows: clients add shares of it, and a server sees the sum alone.

Each client clips its update, rotates it, rounds it to integers, adds its share of Skellam noise and sends
the result modulo 2^bits through secure aggregation (:mod:`tacit.federated.secure`). The server learns the
sum modulo 2^bits.

**Relation.** ``add_remove`` compares a round with one in which the client's update is zero. That the client
takes part, and that its share of noise is in the sum, is no secret from the server, which sees who answers
("zero-out", Kairouz, Liu and Steinke 2021). ``replace_one`` compares two updates of the client.

**Sensitivity.** An update becomes a vector of integers whose Euclidean norm is at most B = ⌊(1 +
slack)·steps⌋ steps of the grid, where ``steps`` of them make clip_norm. That is checked in exact arithmetic
on the integers themselves, whatever floating point did before: rounding is drawn again until it holds, and
after ``TRIES`` draws the numbers are rounded towards zero, and to zero if even that fails. The step of the
grid follows from the dimension so that a draw fails rarely: rounding adds at most a quarter to each squared
coordinate, and (2·slack + slack²)·steps² ≥ width/4 + 2·steps leaves two standard deviations. So the
sensitivity is (1 + slack)·clip_norm in any dimension, twice that under ``replace_one``; the ℓ1 norm, at
most √width·B, does not enter.

**Event.** ``Gaussian(noise_multiplier)``, for one round. The noise of the honest clients in the sum is
Sk(v) with v = needed_variance((noise_multiplier · sensitivity)²) or more, and by the theorem of
:mod:`tacit.federated.skellam` it is then no easier to see through than Gaussian noise of standard deviation
noise_multiplier × sensitivity. Noise of other clients, the updates of other clients and reduction modulo
2^bits are post-processing.

**Who has to be honest.** Each of m clients draws Sk(v·summands/(honest·m)), so that the shares of any
⌈honest·m/summands⌉ of them add up to v; more of them, to more. The guarantee holds as long as that many
clients whose shares are in the opened sum keep them to themselves: ``fewest(m)`` tells how many, and a
round that fewer survive must not be opened (the threshold of the clients sees to it). All m shares add up
to Sk(v·summands/honest), for every m.

**Sampling.** A sum of a random cohort is amplified only against those who do not learn the cohort, and only
if the noise does not tell its size. For that the server replaces the shares of clients that dropped out
(:meth:`Encoder.top_up`), after which the noise in the sum is Sk(v·summands/honest), whoever took part.

**Wrap-around** modulo 2^bits costs accuracy, never privacy. :meth:`DistributedNoise.wrap_probability`
bounds it for updates that all point the same way, and ``bits_needed`` says what would do.

References: Agarwal, Kairouz, Liu 2021, "The Skellam mechanism for differentially private federated
learning"; Kairouz, Liu, Steinke 2021, "The distributed discrete Gaussian mechanism for federated learning
with secure aggregation", whose rotation and conditional rounding are used here; Dong, Roth, Su 2019,
"Gaussian differential privacy".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import hadamard

from tacit import _validate, events
from tacit.errors import InvalidValue
from tacit.federated.skellam import LARGEST_VARIANCE, needed_variance, skellam
from tacit.randomness import Source
from tacit.relations import Relation

__all__ = ["DistributedNoise", "Encoder"]

Float64 = NDArray[np.float64]
UInt64 = NDArray[np.uint64]

SMALLEST_BLOCK = 1024
"""Updates are padded with zeros to blocks of at least so many numbers, each rotated by itself."""
PADDING = 1.07
"""Blocks are as large as padding to this multiple of the dimension allows."""
TRIES = 32
"""How often rounding is drawn before numbers are rounded towards zero."""
RARE = 1e-6
"""The probability of a wrap-around anywhere in a round at which ``bits_needed`` are enough."""
MOST_STEPS = 2**28


@dataclass(frozen=True)
class DistributedNoise:
    """The noise of one round that clients add in shares; public facts only.

    ``clip_norm`` bounds an update; ``bits`` is the size of a number that is sent; ``summands`` is the
    largest cohort; ``honest`` is how many of so many clients, at the fewest, add their share, stay until
    the sum is opened and keep the share to themselves (in a smaller cohort, the same proportion).
    ``noise_multiplier`` is the standard deviation of their noise over the sensitivity. ``slack`` is how
    much the sensitivity exceeds clip_norm, for rounding.

    Guarantee: ``event``, for whoever sees the opened sum and knows everything but the update and the share of
    ``honest`` clients; proof and references are in :mod:`tacit.federated.distributed`.

    >>> noise = DistributedNoise(1.0, bits=18, summands=100, honest=90, noise_multiplier=1.0)
    >>> noise.event, noise.fewest(50), noise.wrap_probability(1000) < 1e-6
    (Gaussian(noise_multiplier=1.0), 45, True)
    >>> encoder = noise.encoder(3, seed=7)
    >>> source = Source(random_state=1)
    >>> total = sum(encoder.encode([0.6, 0.0, -0.8], source) for _ in range(100))
    >>> encoder.decode(total % 2**18).round(1).tolist()
    [59.5, -1.3, -80.6]
    """

    clip_norm: float
    bits: int
    summands: int
    honest: int
    noise_multiplier: float
    relation: str = "add_remove"
    slack: float = 2.0**-8

    def __post_init__(self) -> None:
        keep = object.__setattr__
        keep(self, "clip_norm", _validate.positive("clip_norm", self.clip_norm))
        keep(self, "bits", _validate.count("bits", self.bits, 4))
        keep(self, "summands", _validate.count("summands", self.summands, 1))
        keep(self, "honest", _validate.count("honest", self.honest, 1))
        keep(self, "noise_multiplier", _validate.positive("noise_multiplier", self.noise_multiplier))
        keep(self, "relation", Relation.of(self.relation).value)
        keep(self, "slack", _validate.positive("slack", self.slack))
        if self.bits > 62:
            raise InvalidValue("bits", self.bits, "at most 62")
        if self.honest > self.summands:
            raise InvalidValue("honest", self.honest, f"at most summands = {self.summands}")
        if not 2.0**-16 <= self.slack <= 1:
            raise InvalidValue("slack", self.slack, "between 2^-16 and 1")
        if self._effective(SMALLEST_BLOCK) < 1:
            raise InvalidValue("noise_multiplier", self.noise_multiplier, "at least one step of the grid")

    @property
    def event(self) -> events.Gaussian:
        """What one round costs, without amplification by sampling."""
        return events.Gaussian(self.noise_multiplier)

    def sampled(self, rate: float) -> events.PoissonSampled:
        """What one round costs those who do not learn its cohort, which held each client with probability
        ``rate``.

        Under ``replace_one`` the worst case of sampled Gaussian noise needs three distributions at once,
        and the theorem compares two. So the noise is then known as concentrated, which costs more.
        """
        if self.relation == "add_remove":
            return events.PoissonSampled(rate, self.event)
        return events.PoissonSampled(rate, events.ZeroConcentrated(_up(0.5 / self.noise_multiplier**2)))

    @property
    def sensitivity(self) -> float:
        """The Euclidean distance that one client's update moves the sum, at most."""
        return _up(self._factor * (1 + self.slack) * self.clip_norm)

    def fewest(self, cohort: int) -> int:
        """How many honest clients of a cohort have to be in a sum that may be opened."""
        return -(-self.honest * self._cohort(cohort) // self.summands)

    def steps(self, dimension: int) -> int:
        """How many steps of the grid make clip_norm, for updates of this dimension."""
        width, slack = _width(dimension), self.slack
        grown = 2 * slack + slack * slack
        steps = math.ceil((2 + math.sqrt(4 + grown * width)) / (2 * grown))
        if steps > MOST_STEPS:
            raise InvalidValue("dimension", dimension, "smaller", "A larger slack makes the grid coarser.")
        return steps

    def share(self, dimension: int, cohort: int | None = None) -> Fraction:
        """The variance of the noise of each of ``cohort`` clients, in squared steps of the grid."""
        size = self.summands if cohort is None else self._cohort(cohort)
        return needed_variance(self._effective(dimension)) * self.summands / (self.honest * size)

    def deviation(self, dimension: int) -> float:
        """The standard deviation of each number of the sum when all shares are in it."""
        total = self.share(dimension) * self.summands
        return math.sqrt(total) * self.clip_norm / self.steps(dimension)

    def wrap_probability(self, dimension: int, *, bits: int | None = None, aligned: bool = True) -> float:
        """A bound on the probability that any number of the sum leaves its 2^bits values.

        It holds for any updates, even if all of them are the same; with ``aligned`` false, for updates that
        add up to nothing, where the noise alone could wrap around. By Chernoff: after a rotation with
        random signs each number of the sum is sub-Gaussian with variance (summands·steps)²/block, rounding
        adds summands/4, and ln E e^(θN) = v(cosh θ − 1) for Skellam noise N of variance v.
        """
        size, block = _width(dimension), _block(dimension)
        signal = (self.summands * self.steps(dimension)) ** 2 / block if aligned else 0.0
        spread, noise = signal + self.summands / 4, float(self.share(dimension) * self.summands)
        reach = 2.0 ** ((self.bits if bits is None else bits) - 1) - 1

        def exponent(log_tilt: float) -> float:
            tilt = math.exp(log_tilt)
            return tilt * tilt * spread / 2 + noise * (math.cosh(tilt) - 1) - tilt * reach

        from scipy.optimize import minimize_scalar

        best = minimize_scalar(exponent, bounds=(-60.0, 5.0), method="bounded", options={"xatol": 1e-6})
        return min(1.0, math.exp(min(0.0, math.log(2 * size) + float(best.fun))))

    def bits_needed(self, dimension: int) -> int:
        """The fewest bits with which wrap-around is rare (one round in a million), whatever the updates."""
        for bits in range(4, 63):
            if self.wrap_probability(dimension, bits=bits) <= RARE:
                return bits
        raise InvalidValue("dimension", dimension, "smaller", "No 62 bits hold the sum.")

    def encoder(self, dimension: int, seed: int) -> Encoder:
        """What clients and the server of a round agree on; ``seed``, public, draws the signs of the
        rotation.
        """
        return Encoder(self, dimension, seed)

    @property
    def _factor(self) -> int:
        return 1 if self.relation == "add_remove" else 2

    def _effective(self, dimension: int) -> Fraction:
        """The variance of the Gaussian noise that is to be matched, in squared steps."""
        return (Fraction(self.noise_multiplier) * self._factor) ** 2 * self._largest_square(dimension)

    def _largest_square(self, dimension: int) -> int:
        """B², which no rounded update exceeds."""
        return math.floor(((1 + Fraction(self.slack)) * self.steps(dimension)) ** 2)

    def _cohort(self, cohort: int) -> int:
        size = _validate.count("cohort", cohort, 1)
        if size > self.summands:
            raise InvalidValue("cohort", cohort, f"at most summands = {self.summands}")
        return size


class Encoder:
    """From one client's update to integers modulo 2^bits, and from their sum back; see the module.

    ``width`` is how many integers are sent. The encoder holds public facts only, and one serves many clients.
    """

    def __init__(self, noise: DistributedNoise, dimension: int, seed: int) -> None:
        self.noise = noise
        self.dimension = _validate.count("dimension", dimension, 1)
        self.block, self.width = _block(self.dimension), _width(self.dimension)
        self.steps = noise.steps(self.dimension)
        self.largest_square = noise._largest_square(self.dimension)
        if noise._effective(self.dimension) > LARGEST_VARIANCE * noise.honest:
            raise InvalidValue(
                "noise_multiplier", noise.noise_multiplier, f"smaller with slack = {noise.slack!r}",
                "The noise spans too many steps of the grid; a larger slack makes the grid coarser.",
            )  # fmt: skip
        if noise.wrap_probability(self.dimension, aligned=False) > 1e-3:
            raise InvalidValue(
                "bits",
                noise.bits,
                f"{noise.bits_needed(self.dimension)} or more for {self.dimension} numbers",
                "With fewer the noise alone wraps around; a larger slack makes the grid coarser.",
            )
        words = Source(_validate.count("seed", seed)).words(self.width, np.uint8)
        self._signs = np.where(words & 1, 1.0, -1.0)
        self._variances: dict[int | None, Fraction] = {}
        self._mask = np.uint64((1 << noise.bits) - 1)

    def encode(self, vector: ArrayLike, source: Source, *, cohort: int | None = None) -> UInt64:
        """The update, rounded, with this client's share of noise, modulo 2^bits.

        ``cohort`` is how many clients take part in the round; without it, all ``summands``. An update of
        the wrong shape, with complex numbers, or with a number that is not finite in float64, counts as
        zero, and a longer one than clip_norm is scaled down.
        """
        noisy = self.rounded(vector, source) + self._share(source, cohort)
        return noisy.view(np.uint64) & self._mask

    def rounded(self, vector: ArrayLike, source: Source) -> NDArray[np.int64]:
        """The update in steps of the grid, rotated and rounded at random; private, without noise.

        The sum of its squares is at most ``largest_square``.
        """
        turned = self._turned(vector)
        for _ in range(TRIES):
            whole = np.floor(turned + source.words(self.width, np.uint32) * 2.0**-32).astype(np.int64)
            if int(np.dot(whole, whole)) <= self.largest_square:
                return whole
        whole = np.trunc(turned).astype(np.int64)
        return whole if int(np.dot(whole, whole)) <= self.largest_square else np.zeros_like(whole)

    def top_up(self, total: ArrayLike, answered: int, source: Source, *, cohort: int | None = None) -> UInt64:
        """The sum with fresh shares in place of those of clients that dropped out, as sampling needs it."""
        size = self.noise.summands if cohort is None else cohort
        missing = size - _validate.count("answered", answered)
        if missing < 0:
            raise InvalidValue("answered", answered, f"at most the cohort of {size}")
        noise = np.zeros(self.width, dtype=np.int64)
        for _ in range(missing):
            noise += self._share(source, cohort)
        return (self._given(total) + noise.view(np.uint64)) & self._mask

    def decode(self, total: ArrayLike) -> Float64:
        """The noisy sum of the clipped updates, from the sum of what clients sent, modulo 2^bits."""
        values = (self._given(total) & self._mask).astype(np.int64)
        half, modulus = 1 << (self.noise.bits - 1), 1 << self.noise.bits
        centred = np.where(values >= half, values - modulus, values).astype(np.float64)
        turned = _rotated(centred, self.block) * self._signs
        return np.asarray(turned[: self.dimension] * (self.noise.clip_norm / self.steps))

    def _share(self, source: Source, cohort: int | None) -> NDArray[np.int64]:
        """The noise of one client."""
        if cohort not in self._variances:
            self._variances[cohort] = self.noise.share(self.dimension, cohort)
        return skellam(source, self._variances[cohort], self.width)

    def _given(self, total: ArrayLike) -> UInt64:
        array = np.asarray(total)
        if array.shape != (self.width,) or array.dtype.kind not in "iu":
            raise InvalidValue(
                "total", f"{array.dtype} of shape {array.shape}", f"{self.width} whole numbers"
            )
        return array.astype(np.uint64)

    def _turned(self, vector: Any) -> Float64:
        """The clipped update, rotated, in steps of the grid."""
        try:
            raw = np.asarray(vector)
            with np.errstate(all="ignore"):
                given = np.zeros(0) if raw.dtype.kind == "c" else raw.astype(np.float64, copy=False)
        except (TypeError, ValueError, OverflowError):
            given = np.zeros(0)
        padded = np.zeros(self.width)
        if given.shape == (self.dimension,):
            padded[: self.dimension] = given
        largest = float(np.abs(padded).max())
        if not math.isfinite(largest):
            padded[:] = 0.0
        elif largest > 0:
            padded /= largest
            norm = math.sqrt(float(np.dot(padded, padded)))
            padded *= self.steps * min(1.0 / norm, largest / self.noise.clip_norm)
        padded *= self._signs
        return _rotated(padded, self.block)


def _block(dimension: int) -> int:
    """The largest power of two to whose multiples the dimension is padded at little cost."""
    size = SMALLEST_BLOCK
    best = size
    while size < 2 * dimension:
        if -(-dimension // size) * size <= PADDING * dimension:
            best = size
        size *= 2
    return best


def _width(dimension: int) -> int:
    block = _block(dimension)
    return -(-dimension // block) * block


_BASE = 32
_SMALL: Float64 = hadamard(_BASE).astype(np.float64)


def _rotated(values: Float64, block: int) -> Float64:
    """The orthonormal Walsh–Hadamard transform of each block of the values."""
    now = (values.reshape(-1, _BASE) @ _SMALL).reshape(-1)
    other, half = np.empty_like(now), _BASE
    while half < block:
        pairs, turned = now.reshape(-1, 2, half), other.reshape(-1, 2, half)
        np.add(pairs[:, 0], pairs[:, 1], out=turned[:, 0])
        np.subtract(pairs[:, 0], pairs[:, 1], out=turned[:, 1])
        now, other, half = other, now, 2 * half
    now *= 1 / math.sqrt(block)
    return now


def _up(value: float) -> float:
    return math.nextafter(value, math.inf)
