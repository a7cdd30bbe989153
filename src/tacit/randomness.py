"""Random bits, and integer samplers that are exact: no floating point decides an outcome.

A :class:`Source` is a stream of uniform bits: cryptographic, from OS entropy, by default, or a
seeded generator for tests, which is marked so. Every sampler here turns bits into integers with exactly
the stated probabilities. They rest on one primitive, used a whole array at a time: an event of
probability P happens when U < P, where U is uniform and its binary digits are drawn only as far
as the comparison needs them. Sixteen digits decide all but one draw in 65536, sixty-four more
settle the rest, and for the one in 2^80 that is left Python's integers, which compute P by
interval arithmetic, go on for as long as it takes.

=====================  ==================================  ===================================
sampler                probability of k                    how
=====================  ==================================  ===================================
uniform                1/bound on 0 … bound−1              rejection
bernoulli              p                                   comparison with the digits of p
bernoulli_exp          e^−x                                comparison with the digits of e^−x
geometric              (1−e^−rate) e^(−rate·k), k ≥ 0      its binary digits are independent
discrete_laplace       ∝ e^(−|k|/scale)                    a zero, or a sign and 1 + geometric
discrete_gaussian      ∝ e^(−k²/2·variance)                rejection from discrete_laplace
=====================  ==================================  ===================================

The last two and the rejection are those of Canonne, Kamath and Steinke 2020, "The discrete
Gaussian for differential privacy". Digit j of a geometric variable is one with probability
1/(1 + e^(rate·2^j)), independently of the others, because e^(−rate·k) factors over the digits of
k. How many bits are drawn depends on the outcome only in rejection and in the rare undecided
comparisons, so running time says almost nothing about the noise.

>>> from fractions import Fraction
>>> discrete_laplace(Source(random_state=7), Fraction(10), 8).tolist()
[3, -8, -8, 32, 31, -9, 27, 0]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.errors import InvalidValue

try:
    from ssl import RAND_bytes as _entropy
except ImportError:
    from os import urandom as _entropy

__all__ = [
    "LARGEST",
    "MAX_SCALE",
    "Source",
    "Stream",
    "bernoulli",
    "bernoulli_exp",
    "discrete_gaussian",
    "discrete_laplace",
    "drawn_from",
    "exp_bounds",
    "geometric",
    "uniform",
]

Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]
Stream = Callable[[int], bytes]
"""Gives the next so many uniform bytes."""
Digits = Callable[[int], int]
"""A probability P as a function of ``bits``: ⌊P·2^bits⌋, exactly."""

MAX_SCALE = 2**54
"""The largest scale of a geometric, discrete Laplace or discrete Gaussian draw."""

LARGEST = 2**62
"""Draws beyond this saturate, the only departure from exactness: 256 scales out or more, with a
probability of at most e^−256. Whoever adds a draw to at most 2^60 and clips to 2^61 sees none."""

_streams: ContextVar[Iterator[Stream] | None] = ContextVar("streams", default=None)
_BLOCK = 1 << 14
_GATE, _TAIL = 13, 32  # see _Geometric
_FRACTION, _REACH = 12, 11  # see _Gaussian


class Source:
    """A stream of uniform random bits.

    Without ``random_state`` the bits are OpenSSL's: AES-256 in counter mode, seeded and reseeded
    from the operating system, and on its own after a fork (where Python lacks OpenSSL, the
    operating system answers each request). There is no buffer here to reuse, copy or share; but a
    virtual machine resumed twice from one snapshot repeats the generator's state, so take none while
    releases are being made. Where a service has to be able to repeat a release, the bits come from streams of
    its own, see :func:`drawn_from`. With
    ``random_state`` (a whole number) the stream is reproducible and ``seeded`` is true: whoever
    knows the seed can subtract the noise, so it is for tests only.

    >>> Source().seeded, Source(random_state=1).seeded
    (False, True)
    """

    def __init__(self, random_state: int | None = None) -> None:
        self._stream = None
        streams = _streams.get()
        self._drawn: Stream = _entropy if streams is None or random_state is not None else next(streams)
        if random_state is not None:
            self._stream = np.random.Philox(_validate.count("random_state", random_state))

    @property
    def seeded(self) -> bool:
        """Whether the stream is reproducible, hence without privacy."""
        return self._stream is not None

    def apart(self) -> Source:
        """Another stream, from which draws do not move this one; reproducible if this one is.

        >>> one, other = Source(1), Source(1)
        >>> _ = one.apart().words(1000)
        >>> one.bits(64) == other.bits(64), one.apart().bits(64) == one.bits(64)
        (True, False)
        """
        made = Source()
        if self._stream is not None:
            made._stream = self._stream.jumped()
        return made

    def words(self, shape: int | tuple[int, ...], dtype: Any = np.uint64) -> NDArray[Any]:
        """Uniform unsigned integers of ``dtype``."""
        count = math.prod(shape) if isinstance(shape, tuple) else shape
        size = count * np.dtype(dtype).itemsize
        if self._stream is None:
            return np.frombuffer(self._drawn(size), dtype).reshape(shape)
        raw: NDArray[np.uint64] = np.asarray(self._stream.random_raw(-(-size // 8)), dtype=np.uint64)
        return np.frombuffer(raw.tobytes()[:size], dtype).reshape(shape)

    def bits(self, count: int) -> int:
        """A uniform Python integer of ``count`` bits."""
        return int.from_bytes(self.words(-(-count // 8), np.uint8).tobytes(), "little") & ((1 << count) - 1)

    def uniforms(self, count: int) -> NDArray[np.float64]:
        """Numbers in (0, 1), odd multiples of 2^−54, for *float64 noise*.

        What is computed from them approximates real-valued noise, which is what a privacy proof is
        about; the guarantee has to say so.
        """
        return np.asarray(((self.words(count) >> np.uint64(11)) + 0.5) * 2.0**-53)


@contextmanager
def drawn_from(streams: Iterator[Stream]) -> Iterator[None]:
    """Each source that is made in the body without a seed draws from the next of these streams.

    For whoever must be able to repeat a release bit by bit, and keeps the key of the streams as secret as
    the data. The noise is as good as the streams: each has to be indistinguishable from uniform bits
    without the key, and none may repeat another, in this body or in one under another key. Then the sources
    are not ``seeded``, and a guarantee is what it is with the bits of the operating system.

    >>> import hashlib, itertools
    >>> def streams(key):
    ...     for number in itertools.count():
    ...         draw = itertools.count()
    ...         yield lambda size, n=number, d=draw: hashlib.shake_256(
    ...             key + f"{n} {next(d)}".encode()).digest(size)
    >>> def noise():
    ...     with drawn_from(streams(b"a secret of 256 bits")):
    ...         return Source().bits(64), Source().bits(64)
    >>> first = noise()
    >>> first == noise(), first[0] == first[1], Source().bits(64) in first
    (True, False, False)
    """
    token = _streams.set(streams)
    try:
        yield
    finally:
        _streams.reset(token)


def exp_bounds(x: Fraction, bits: int) -> tuple[int, int]:
    """Integers (low, high), a few units apart, with low ≤ 2^bits · e^−x ≤ high, for x ≥ 0.

    The exponent is divided by 2^k, the alternating series summed in fixed point, and the result
    squared k times. Flooring loses under 4 units in each term and under 8 in the tail.
    """
    if x > bits:
        return 0, 1
    halvings = max(0, math.floor(x).bit_length() + 3)
    precision = bits + 2 * halvings + 16
    y = (x.numerator << precision) // (x.denominator << halvings)
    term = total = 1 << precision
    terms = 1
    while term:
        term = (term * y >> precision) // terms
        total += -term if terms & 1 else term
        terms += 1
    low, high = total - 4 * terms - 8, min(total + 4 * terms + 8, 1 << precision)
    for _ in range(halvings):
        low, high = low * low >> precision, (high * high >> precision) + 1
    shift = precision - bits
    return low >> shift, (high >> shift) + 1


def _settle(bounds: Callable[[int], tuple[int, int]], bits: int, guard: int = 16) -> int:
    low, high = bounds(bits + guard)
    return low >> guard if low >> guard == high >> guard else _settle(bounds, bits, 2 * guard)


def _exp_digits(x: Fraction, bits: int) -> int:
    return _settle(partial(exp_bounds, x), bits) if x else 1 << bits


def _logistic_digits(x: Fraction, bits: int) -> int:
    """The digits of 1/(1 + e^x)."""

    def bounds(precision: int) -> tuple[int, int]:
        low, high = exp_bounds(x, precision)
        one = 1 << precision
        return (low << precision) // (one + low), (high << precision) // (one + high) + 1

    return _settle(bounds, bits)


def _decide(source: Source, digits: Digits, drawn: int = 0, bits: int = 0) -> bool:
    """Whether U < P, where the first ``bits`` digits of U are ``drawn``."""
    while True:
        threshold = digits(bits)
        if drawn != threshold:
            return drawn < threshold
        drawn, bits = drawn << 64 | source.bits(64), bits + 64


class _Chances:
    """A table of probabilities, compared with uniform draws a whole array at a time."""

    def __init__(self, digits: Sequence[Digits]) -> None:
        self.digits = digits
        leading = [min(each(80), (1 << 80) - 1) for each in digits]
        self.first = np.array([value >> 64 for value in leading], dtype=np.uint16)
        self.second = np.array([value & ((1 << 64) - 1) for value in leading], dtype=np.uint64)

    def flip(self, source: Source, index: Int64, shape: int | tuple[int, int]) -> Bool:
        """Independent trials of the given shape; ``index`` broadcasts to it and picks the chances."""
        drawn = source.words(shape, np.uint16)
        first = self.first[index]
        result: Bool = drawn < first
        ties = np.flatnonzero(drawn == first)
        if ties.size:
            picked = np.broadcast_to(index, result.shape).flat[ties]
            more = source.words(picked.size)
            settled = more < self.second[picked]
            for i in np.flatnonzero(more == self.second[picked]):
                chance = int(picked[i])
                prefix = int(self.first[chance]) << 64 | int(more[i])
                settled[i] = _decide(source, self.digits[chance], prefix, 80)
            result.flat[ties] = settled
        return result


class _Geometric:
    """P(k) = (1 − r) r^k with r = e^−rate.

    k = low + 2^L·high. The lowest L digits, over which the density is flat to one part in 2^13,
    are proposed uniformly and accepted with probability e^(−rate·low); the digits of ``high`` are
    drawn one by one up to a remainder, again geometric, of probability e^−32, drawn by trials.
    """

    def __init__(self, rate: Fraction) -> None:
        if rate <= 0 or rate * MAX_SCALE < 1:
            raise InvalidValue("scale", float(1 / rate) if rate else math.inf, "positive and at most 2^54")
        self.rate = rate
        self.low = max(0, math.floor(1 / (rate * 2**_GATE)).bit_length() - 1)
        unit = rate * 2**self.low
        self.high = math.ceil(_TAIL / unit - 1).bit_length()
        self.tail = unit * 2**self.high
        digits: list[Digits] = [partial(_logistic_digits, unit * 2**j) for j in range(self.high)]
        self.chances = _Chances([*digits, partial(_exp_digits, self.tail)])
        self.rows = np.arange(self.high + 1)[:, None]
        self.weights = np.left_shift(1, np.arange(self.high), dtype=np.int64)

    def draw(self, source: Source, size: int) -> Int64:
        flips = self.chances.flip(source, self.rows, (self.high + 1, size))
        if size < 64:
            value = self.weights @ flips[:-1]
        else:
            short = np.zeros(size, dtype=np.int32)
            for row in flips[-2::-1]:
                short <<= 1
                short |= row
            value = short.astype(np.int64)
        for i in np.flatnonzero(flips[-1]):
            value[i] = min(int(value[i]) + (self._remainder(source) << self.high), LARGEST >> self.low)
        if self.low:
            words = source.words(size)
            low = (words & np.uint64((1 << self.low) - 1)).astype(np.int64)
            for i in np.flatnonzero(words >> np.uint64(64 - _GATE) == (1 << _GATE) - 1):
                low[i] = self._low(source, int(low[i]))
            value <<= self.low
            value |= low
        return value

    def _remainder(self, source: Source) -> int:
        count = 1
        while _decide(source, partial(_exp_digits, self.tail)):
            count += 1
        return count

    def _low(self, source: Source, low: int) -> int:
        """The lowest digits, where the first 13 digits of U are ones and leave U < e^(−rate·low) open."""
        drawn, bits = (1 << _GATE) - 1, _GATE
        while not _decide(source, partial(_exp_digits, self.rate * low), drawn, bits):
            low, drawn, bits = source.bits(self.low), 0, 0
        return low


class _Laplace:
    """Zero with probability tanh(1/(2·scale)), else a sign and 1 + geometric."""

    def __init__(self, scale: Fraction) -> None:
        self.geometric = _geometric(1 / scale)
        self.nonzero = _Chances([lambda bits: _logistic_digits(1 / scale, bits + 1)])

    def draw(self, source: Source, size: int) -> Int64:
        value = self.geometric.draw(source, size)
        value += 1
        value *= self.nonzero.flip(source, _ZERO, size)
        negative = (source.words(size, np.uint8) & 1).astype(np.bool_)
        return np.negative(value, out=value, where=negative)


class _Gaussian:
    """Rejection from a discrete Laplace of scale t ≈ σ: accept y with probability e^−γ, where
    γ = (|y| − σ²/t)² / 2σ².

    γ is bounded below in 64-bit integers by a multiple of 2^−12, from which it differs by less
    than 2^−11. That multiple is looked up in two tables; the rest matters only when the first
    eleven digits of a uniform draw are all ones, and is then computed exactly. Proposals beyond
    11σ, one in 60000, are decided exactly too. In units of 2^−24, v falls short of |y|/σ by under
    3 (inverse, two shifts) and centre of σ/t by under 1.
    """

    def __init__(self, variance: Fraction) -> None:
        if variance <= 0 or variance > MAX_SCALE**2 // 4:
            raise InvalidValue("standard deviation", math.sqrt(variance), "positive and at most 2^53")
        self.variance = variance
        places = max(0, (math.floor(2**24 / variance).bit_length() + 1) // 2)
        self.scale = Fraction(math.isqrt(math.floor(variance * 4**places)), 2**places)
        self.proposal = _laplace(self.scale)
        self.reach = math.isqrt(math.floor(_REACH**2 * variance))
        self.shift = max(0, self.reach.bit_length() - 30)
        self.inverse = math.isqrt(math.floor(4 ** (54 + self.shift) / variance)) if self.reach else 0
        self.centre = math.isqrt(math.floor(2**48 * variance / self.scale**2))

    def exponent(self, y: int) -> Fraction:
        return (y - self.variance / self.scale) ** 2 / (2 * self.variance)

    def lower(self, y: Int64) -> Int64:
        """A lower bound of γ for 0 ≤ y ≤ reach, in units of 2^−12."""
        v = (y >> self.shift) * self.inverse >> 30
        gap = np.maximum(np.abs(v - self.centre) - 3, 0)
        bound: Int64 = gap * gap >> (49 - _FRACTION)
        return bound

    def draw(self, source: Source, size: int) -> Int64:
        proposed = self.proposal.draw(source, size)
        y = np.abs(proposed)
        far = y > self.reach
        bound = self.lower(np.minimum(y, self.reach))
        coarse, fine = _exp_tables()
        accepted = coarse.flip(source, bound >> 10, size)
        accepted &= fine.flip(source, bound & 1023, size)
        accepted &= ~far
        rest = source.words(size, np.uint16)
        for i in np.flatnonzero(accepted & (rest >= 0xFFE0)):
            gamma = self.exponent(int(y[i])) - Fraction(int(bound[i]), 1 << _FRACTION)
            accepted[i] = _decide(source, partial(_exp_digits, gamma), int(rest[i]), 16)
        for i in np.flatnonzero(far):
            accepted[i] = _decide(source, partial(_exp_digits, self.exponent(int(y[i]))))
        return proposed[accepted]


@cache
def _exp_tables() -> tuple[_Chances, _Chances]:
    coarse = _Chances([partial(_exp_digits, Fraction(i, 4)) for i in range(256)])
    fine = _Chances([partial(_exp_digits, Fraction(i, 4096)) for i in range(1024)])
    return coarse, fine


_ZERO = np.zeros(1, dtype=np.int64)
_geometric = lru_cache(128)(_Geometric)
_laplace = lru_cache(128)(_Laplace)
_gaussian = lru_cache(128)(_Gaussian)


def _in_blocks(draw: Callable[[int], NDArray[Any]], size: int, dtype: Any) -> NDArray[Any]:
    """``size`` values from a sampler that returns some of those it is asked for."""
    result = np.empty(_validate.count("size", size), dtype)
    done = 0
    while done < size:
        part = draw(min(size - done, _BLOCK))[: size - done]
        result[done : done + part.size] = part
        done += part.size
    return result


def uniform(source: Source, bound: int, size: int) -> Int64:
    """Uniform integers from 0 to ``bound`` − 1, for bounds up to 2^62."""
    if not 1 <= bound <= LARGEST:
        raise InvalidValue("bound", bound, "between 1 and 2^62")
    shift = np.uint64(64 - max(1, (bound - 1).bit_length()))

    def draw(count: int) -> Int64:
        words: Int64 = (source.words(count) >> shift).astype(np.int64)
        return words[words < bound]

    return _in_blocks(draw, size, np.int64)


def bernoulli(source: Source, p: Fraction, size: int) -> Bool:
    """True with probability ``p``."""
    if not 0 <= p <= 1:
        raise InvalidValue("p", p, "in [0, 1]")
    chances = _Chances([lambda bits: (p.numerator << bits) // p.denominator])
    return _in_blocks(lambda count: chances.flip(source, _ZERO, count), size, np.bool_)


def bernoulli_exp(source: Source, x: Fraction, size: int) -> Bool:
    """True with probability e^−``x``, for x ≥ 0."""
    if x < 0:
        raise InvalidValue("x", x, "0 or more")
    chances = _Chances([partial(_exp_digits, x)])
    return _in_blocks(lambda count: chances.flip(source, _ZERO, count), size, np.bool_)


def geometric(source: Source, rate: Fraction, size: int) -> Int64:
    """k ≥ 0 with P(K ≥ k) = e^(−rate·k)."""
    sampler = _geometric(Fraction(rate))
    return _in_blocks(lambda count: sampler.draw(source, count), size, np.int64)


def discrete_laplace(source: Source, scale: Fraction, size: int) -> Int64:
    """k with probability proportional to e^(−|k|/scale)."""
    sampler = _laplace(Fraction(scale))
    return _in_blocks(lambda count: sampler.draw(source, count), size, np.int64)


def discrete_gaussian(source: Source, variance: Fraction, size: int) -> Int64:
    """k with probability proportional to e^(−k²/(2·variance))."""
    sampler = _gaussian(Fraction(variance))
    return _in_blocks(lambda count: sampler.draw(source, count + count // 3 + 8), size, np.int64)
