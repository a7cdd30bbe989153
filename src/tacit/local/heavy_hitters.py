"""Heavy hitters: frequent values of a domain that is too large to be listed.

The prefix extending method of Wang, Li and Jha, "Locally differentially private heavy hitter
identification" (2019). A value is a sequence of symbols. Every person draws one of as many groups as there
are symbols, uniformly, and reports once: the members of group i report the first i symbols of their values
by local hashing. The collector estimates the frequencies of all first symbols from the reports of group 1,
keeps the most frequent ones, extends each of them by every symbol, and goes on with group 2.

Why it is ε-differentially private. The group and the hash function are drawn without looking at the value,
and the hash of the prefix is reported by randomized response (:mod:`tacit.local.hashing`): no report is
more than e^ε times as likely for one value as for another. What the collector does with reports is
post-processing.

Why the intervals cover. The reports of the last group that support a value are those of a sample without
replacement of all people. A hypergeometric variable is a sum of independent Bernoulli variables (its
generating polynomial has real roots only), hence so is their number, and an interval of
:func:`~tacit.local.oracle.shares_interval` covers the frequency among *all* people. Which values are
candidates of the last group was decided by the reports of the other groups. A value that nobody has is
supported by each report of the last group with the same probability, whoever its members are; so the C
candidates that nobody has are wrongly found with the probability that C fixed values would be. Whether a
value that somebody has becomes a candidate may depend on how many of its people are in the last group. There
are at most D such values, D the number of reports or of possible values, and the intervals of all of them
hold at once. So intervals are taken at the level of C + D values together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.local.hashing import agreeing, best_range, digits, responded
from tacit.local.oracle import LARGEST_LAW, LocalMechanism, rows_of, sequence, shares_interval, whole
from tacit.mechanisms._base import Float64, Int64, tail
from tacit.mechanisms.randomized_response import favoured
from tacit.randomness import uniform

if TYPE_CHECKING:
    from tacit.local.release import Frequencies

__all__ = ["HeavyHitters"]

_ROWS = 1 << 14


@dataclass(frozen=True)
class HeavyHitters(LocalMechanism):
    """Finds the frequent values among whole numbers of many bits, or among short texts.

    ``bits`` is the size of a value: whole numbers from 0 to 2^bits − 1, or, with ``text=True``, texts of at
    most bits/8 bytes in UTF-8. ``step`` is the number of bits of a symbol, which divides ``bits``; texts
    have 8. ``kept`` is how many prefixes are extended after each group. All are public.

    Guarantee: ε-local differential privacy; the event is ``Pure(ε)``. A number out of range, NaN or None is
    replaced by a uniformly drawn value before it is randomized; a text that is too long is cut.

    >>> hitters = HeavyHitters(bits=32, epsilon=2.0, random_state=1)
    >>> addresses = [3232235777] * 4000 + [134744072] * 3000 + list(range(3000))
    >>> found = hitters.estimate(hitters.randomize(addresses))
    >>> found.categories, found.value.round(1).tolist()
    ((3232235777, 134744072), [0.4, 0.3])
    """

    bits: int = field(default=32, kw_only=True)
    step: int = field(default=8, kw_only=True)
    text: bool = field(default=False, kw_only=True)
    kept: int = field(default=32, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.count("bits", self.bits, 1)
        _validate.count("step", self.step, 1)
        _validate.count("kept", self.kept, 1)
        most = 8 * 64 if self.text else 62
        if self.step > 8 or self.bits % self.step or self.bits > most or (self.text and self.step != 8):
            raise InvalidValue(
                "bits",
                (self.bits, self.step),
                f"a multiple of step, at most {most}, with a step of at most 8",
                "Texts have a step of 8.",
            )

    @property
    def groups(self) -> int:
        """The number of symbols of a value, and of groups of people."""
        return self.bits // self.step

    @property
    def hash_range(self) -> int:
        """The range g of the hash functions, a prime."""
        return best_range(self.epsilon, 0.0)

    @property
    def keep(self) -> Fraction:
        """The probability of reporting the hash of the true prefix."""
        return favoured(self.epsilon, 1, self.hash_range - 1)

    @property
    def report_bits(self) -> float:
        """The size of one report in bits, at most."""
        each = np.log2(self.hash_range)
        return float(np.log2(self.groups) + each * (1 + self._digits * self.groups))

    @property
    def _digits(self) -> int:
        return digits(2**self.step, self.hash_range)

    def randomize(self, values: Any) -> NDArray[np.int16]:
        """A report for each value: the group, the hash of the prefix after randomized response, and the
        vector.

        The vector has one number for every digit of the value; those beyond the prefix are not used.
        """
        symbols = self._symbols(values)
        starts = range(0, max(1, len(symbols)), _ROWS)
        return np.concatenate([self._randomized(symbols[start : start + _ROWS]) for start in starts])

    def _randomized(self, symbols: Int64) -> NDArray[np.int16]:
        n, g = len(symbols), self.hash_range
        group = uniform(self._source, self.groups, n)
        length = self.groups * self._digits
        vectors = uniform(self._source, g, n * length).reshape(n, length)
        spread = self._spread(symbols)
        used = np.arange(spread.shape[1])[None, :] < ((group + 1) * self._digits)[:, None]
        hashes = (vectors * spread * used).sum(axis=1) % g
        answers = responded(self._source, hashes, g, self.keep)
        return np.concatenate([group[:, None], answers[:, None], vectors], axis=1).astype(np.int16)

    def law(self, value: Any) -> dict[tuple[int, ...], Fraction]:
        """The exact probability of every report for this value, for tiny domains.

        For what is no value, it is the average of the laws of all values.
        """
        g, length = self.hash_range, self._digits * self.groups
        if self.groups * g ** (length + 1) > LARGEST_LAW:
            raise InvalidValue("bits", self.bits, f"so small that at most {LARGEST_LAW} reports exist")
        if not self.text and whole(sequence("value", [value]), 2**self.bits)[0] < 0:
            laws = [self.law(each) for each in range(2**self.bits)]
            return {report: sum(law[report] for law in laws) / Fraction(len(laws)) for report in laws[0]}
        spread = self._spread(self._symbols([value]))[0]
        rest = (1 - self.keep) / (g - 1)
        return {
            (group, answer, *vector): (
                self.keep
                if sum(a * v for a, v in zip(vector, spread[: (group + 1) * self._digits], strict=False)) % g
                == answer
                else rest
            )
            / (self.groups * g**length)
            for group in range(self.groups)
            for vector in np.ndindex(*[g] * length)
            for answer in range(g)
        }

    def estimate(self, reports: Any, *, confidence: float = 0.95) -> Frequencies:
        """The values that are found to be frequent, the most frequent first, with their frequencies.

        A value is found if its support is beyond what chance makes of the candidates of the last group that
        are nobody's; with this ``confidence``, every value found is somebody's. ``categories`` are the
        values. The intervals, at any confidence, hold for all values found at once, so ``simultaneous``
        changes nothing.
        """
        from tacit.local.release import Frequencies
        from tacit.tables.release import Answer

        rows, refused = self._sound(reports)
        prefixes: Int64 = np.zeros((1, 0), dtype=np.int64)
        supports: Int64 = np.zeros(0, dtype=np.int64)
        total = 0
        for group in range(self.groups):
            part = rows[rows[:, 0] == group]
            total = len(part)
            supports = self._supports(part, prefixes)
            children = np.tile(np.arange(2**self.step), len(prefixes))[:, None]
            prefixes = np.concatenate([np.repeat(prefixes, 2**self.step, axis=0), children], axis=1)
            if group + 1 < self.groups:
                chosen = np.argsort(-supports, kind="stable")[: self.kept]
                prefixes = prefixes[chosen]
        if not total:
            raise InvalidValue("reports", "none", "at least one of the last group")
        candidates = len(supports)
        low, _ = self._bounds(supports, total, tail(confidence, candidates))
        found = np.argsort(-supports, kind="stable")
        found = found[low[found] > 0]
        chosen = supports[found]
        together = candidates + min(len(rows), 2**self.bits)

        def interval(level: float, simultaneous: bool) -> tuple[Float64, Float64]:
            return self._bounds(chosen, total, tail(level, together))

        return Frequencies(
            "frequent values by HeavyHitters",
            self.guarantee,
            Answer(self._unmixed(chosen / total), interval, np.asarray),
            categories=tuple(self._value(prefix) for prefix in prefixes[found]),
            reports=len(rows),
            refused=refused,
        )

    def _symbols(self, values: Any) -> Int64:
        """The symbols of each value, the first ones first; uniform ones for what is no value."""
        if self.text:
            if isinstance(values, str | bytes) or not isinstance(values, Iterable):
                raise InvalidValue("values", type(values), "a sequence, one value of each person")
            length = self.groups
            rows = np.array(
                [np.frombuffer(_encoded(value, length), dtype=np.uint8) for value in values], dtype=np.uint8
            ).reshape(-1, length)
            return rows.astype(np.int64)
        codes = whole(sequence("values", values), 2**self.bits)
        anything = uniform(self._source, 2**self.bits, codes.size)
        codes = np.where(codes < 0, anything, codes)
        shifts = self.step * np.arange(self.groups - 1, -1, -1)
        return np.asarray((codes[:, None] >> shifts) & (2**self.step - 1))

    def _spread(self, symbols: Int64) -> Int64:
        """The digits over the field of all symbols, those of each symbol in turn."""
        powers = self.hash_range ** np.arange(self._digits)
        found = symbols[:, :, None] // powers % self.hash_range
        return np.asarray(found.reshape(len(symbols), self._digits * symbols.shape[1]))

    def _sound(self, reports: Any) -> tuple[NDArray[np.int64], int]:
        """The reports that the mechanism can make, and how many others there are."""
        columns = 2 + self._digits * self.groups
        rows, refused = rows_of(reports, columns, bytes_only=False)
        tops = np.array([self.groups] + [self.hash_range] * (columns - 1))
        sound = ((rows >= 0) & (rows < tops)).all(axis=1)
        return rows[sound].astype(np.int64), refused + int((~sound).sum())

    def _supports(self, rows: NDArray[np.int64], prefixes: Int64) -> Int64:
        """For each prefix and each next symbol, how many of the reports of a group support it."""
        g, m = self.hash_range, self._digits
        used = prefixes.shape[1] * m
        vectors = rows[:, 2 + used : 2 + used + m] @ g ** np.arange(m)
        known = rows[:, 2 : 2 + used].astype(np.float64) @ self._spread(prefixes).astype(np.float64).T
        left = (rows[:, 1][:, None] - known.astype(np.int64)) % g
        return np.concatenate(
            [agreeing(vectors, left[:, place], g, m)[: 2**self.step] for place in range(len(prefixes))]
        )

    def _unmixed(self, shares: Float64) -> Float64:
        other = Fraction(1, self.hash_range)
        return np.asarray((shares - float(other)) / float(self.keep - other))

    def _bounds(self, supports: Int64, total: int, miss: float) -> tuple[Float64, Float64]:
        low, high = shares_interval(supports, total, miss)
        return np.clip(self._unmixed(low), 0.0, 1.0), np.clip(self._unmixed(high), 0.0, 1.0)

    def _value(self, symbols: Int64) -> Any:
        if self.text:
            return bytes(symbols.tolist()).rstrip(b"\0").decode("utf-8", "replace")
        number = 0
        for symbol in symbols.tolist():
            number = number << self.step | symbol
        return number


def _encoded(value: Any, length: int) -> bytes:
    """The text in UTF-8, cut or filled up with zero bytes; what has no text counts as the empty one."""
    try:
        text = "" if value is None else str(value)
        return text.encode("utf-8", "replace")[:length].ljust(length, b"\0")
    except Exception:
        return b"\0" * length
