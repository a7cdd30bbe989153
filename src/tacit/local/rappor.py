"""RAPPOR: reports on values of an open domain, again and again, from one memorised random answer.

Erlingsson, Pihur and Korolova, "RAPPOR: Randomized aggregatable privacy-preserving ordinal response"
(2014). A client belongs to one of several *cohorts*, drawn uniformly, and writes its value into a Bloom
filter by h hash functions of the cohort. The *permanent response* flips each bit of the filter with
probability r; the client keeps it and uses it for every report on the same value. An *instantaneous* report
flips each bit of the permanent response again, with probability s.

Why it is private. The cohort is drawn without looking at the value. The filters of two values differ in at
most 2h bits. The ratio of the probabilities of a permanent response is at most ((1 − r)/r)^(2h), so that

    r = 1/(e^(ε/2h) + 1)

makes the permanent response, and all reports ever computed from it, ε-differentially private: that is the
longitudinal guarantee. One report alone has bits that differ from the filter with probability t = r(1 − s)
+ (1 − r)s, and is ``report_epsilon``-differentially private for t = 1/(e^(report_epsilon/2h) + 1).
Probabilities are multiples of 2^−60 that err private, and bits are drawn exactly. A value that changes has
a permanent response of its own, and its reports spend ε again.

The estimate. A bit of the filter of cohort j is 1 for a candidate or not, which makes a public matrix X.
With m cohorts, t_ji = m·Σ(S_i − t)/(n(1 − 2t)), summed over the reports S of cohort j, has the mean Σ_c
X_ji,c·f_c if everybody's value is among the candidates. The frequencies are fitted to these numbers by
least squares with f ≥ 0. The intervals are those of the unconstrained fit f̂ = X⁺t, which is unbiased:
given the cohorts it is a sum of independent Bernoulli variables of known weights, which are sub-Gaussian
with variance proxy (1 − 2t)/(2·ln((1 − t)/t)) (Kearns and Saul 1998), and the draw of the cohorts adds a
bounded term (Hoeffding 1963). Half of the probability to miss goes to each of the two.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate, events
from tacit.errors import InvalidValue
from tacit.local import bits as packed
from tacit.local.oracle import LARGEST_LAW, LocalMechanism, rows_of
from tacit.mechanisms._base import Float64, Int64, tail
from tacit.mechanisms.randomized_response import favoured
from tacit.randomness import uniform

if TYPE_CHECKING:
    from tacit.local.release import Frequencies

__all__ = ["Rappor"]

_STEP = Fraction(1, 2**60)


@dataclass(frozen=True)
class Rappor(LocalMechanism):
    """Permanent and instantaneous randomized response on Bloom filters (Erlingsson et al. 2014).

    ``epsilon`` is the longitudinal guarantee: all reports of a client on one value, however many, are
    ε-differentially private together if the client keeps its permanent response. ``report_epsilon``, at
    most ``epsilon``, is the guarantee of one report; left out, there is no instantaneous step, and the
    permanent response is the report (one-time RAPPOR). ``bits`` is the size of a filter, ``hashes`` and
    ``cohorts`` are the numbers of hash functions and cohorts. All are public, and equal for clients and the
    collector. For a small closed list of categories, :class:`SymmetricUnary` is the basic RAPPOR without a
    Bloom filter.

    The event is ``Pure(ε)``. A value of any type is hashed by its text, so no value is refused.

    >>> rappor = Rappor(epsilon=4.0, report_epsilon=2.0, bits=32, cohorts=8, random_state=1)
    >>> memory = rappor.permanent(["cat.example"] * 6000 + ["dog.example"] * 4000)
    >>> monday, tuesday = rappor.report(memory), rappor.report(memory)
    >>> found = rappor.estimate(monday, candidates=["cat.example", "dog.example", "owl.example"])
    >>> found.value.round(1).tolist()
    [0.6, 0.4, 0.0]
    >>> rappor.event, rappor.report_event
    (Pure(epsilon=4.0), Pure(epsilon=2.0))
    """

    report_epsilon: float | None = field(default=None, kw_only=True)
    bits: int = field(default=64, kw_only=True)
    hashes: int = field(default=2, kw_only=True)
    cohorts: int = field(default=16, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.report_epsilon is not None:
            self._keep("report_epsilon", _validate.epsilon(self.report_epsilon, "report_epsilon"))
            if not 2.0**-30 <= self.report_epsilon <= self.epsilon:
                raise InvalidValue("report_epsilon", self.report_epsilon, "between 2^-30 and epsilon")
        for name, least, most in (("bits", 2, 4096), ("hashes", 1, 16), ("cohorts", 1, 2**16)):
            if _validate.count(name, getattr(self, name), least) > most:
                raise InvalidValue(name, getattr(self, name), f"at most {most}")

    @property
    def report_event(self) -> events.Event:
        """What one report costs, if the permanent response is never used again."""
        return events.Pure(self.epsilon if self.report_epsilon is None else self.report_epsilon)

    @property
    def permanent_flip(self) -> Fraction:
        """The probability r of flipping a bit of the filter in the permanent response."""
        return 1 - favoured(Fraction(self.epsilon) / (2 * self.hashes), 1, 1)

    @property
    def report_flip(self) -> Fraction:
        """The probability s of flipping a bit of the permanent response in a report."""
        if self.report_epsilon is None:
            return Fraction(0)
        wanted = 1 - favoured(Fraction(self.report_epsilon) / (2 * self.hashes), 1, 1)
        least = max(Fraction(0), (wanted - self.permanent_flip) / (1 - 2 * self.permanent_flip))
        return math.ceil(least / _STEP) * _STEP

    @property
    def total_flip(self) -> Fraction:
        """The probability t that a bit of a report differs from that of the filter."""
        r, s = self.permanent_flip, self.report_flip
        return r * (1 - s) + (1 - r) * s

    @property
    def report_bits(self) -> float:
        """The size of one report in bits: the filter and the number of the cohort."""
        return self.bits + math.log2(self.cohorts)

    def permanent(self, values: Any) -> NDArray[np.uint8]:
        """The permanent response to each value: what the client must keep, and must not show to anybody.

        The first two bytes of a row are the number of the cohort, the others the bits.
        """
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise InvalidValue("values", type(values), "a sequence, one value of each person")
        texts = [_text(value) for value in values]
        cohorts = uniform(self._source, self.cohorts, len(texts))
        pairs = list(zip(texts, cohorts.tolist(), strict=True))
        places = {pair: place for place, pair in enumerate(dict.fromkeys(pairs))}
        filters = np.array([self._filter(*pair) for pair in places], dtype=bool).reshape(-1, self.bits)
        encoded = np.packbits(filters, axis=1, bitorder="little")
        rows = packed.bernoulli_rows(self._source, self.permanent_flip, len(texts), self.bits)
        rows ^= encoded[[places[pair] for pair in pairs]]
        number = cohorts.astype("<u2").view(np.uint8).reshape(len(texts), 2)
        return np.concatenate([number, rows], axis=1)

    def report(self, permanent: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """A report from each permanent response; may be called again and again on the same ones."""
        rows = np.array(permanent, dtype=np.uint8)
        if rows.ndim != 2 or rows.shape[1] != 2 + packed.width(self.bits):
            raise InvalidValue("permanent", f"shape {rows.shape}", "rows as permanent() makes them")
        rows[:, 2:] ^= packed.bernoulli_rows(self._source, self.report_flip, len(rows), self.bits)
        return rows

    def randomize(self, values: Any) -> NDArray[np.uint8]:
        """One report for each value, from permanent responses that are forgotten."""
        return self.report(self.permanent(values))

    def law(self, value: Any, *, permanent: bool = False) -> dict[bytes, Fraction]:
        """The exact probability of every report, or of every permanent response, for small filters."""
        if self.bits > 16 or self.cohorts << self.bits > LARGEST_LAW:
            raise InvalidValue("bits", self.bits, f"so small that at most {LARGEST_LAW} reports exist")
        flip = self.permanent_flip if permanent else self.total_flip
        found = {}
        for cohort in range(self.cohorts):
            ones = np.flatnonzero(self._filter(_text(value), cohort))
            bloom = sum(1 << int(place) for place in ones)
            for row in range(1 << self.bits):
                flips = (row ^ bloom).bit_count()
                chance = flip**flips * (1 - flip) ** (self.bits - flips) / self.cohorts
                found[cohort.to_bytes(2, "little") + row.to_bytes(packed.width(self.bits), "little")] = chance
        return found

    def estimate(self, reports: Any, candidates: Sequence[Any] = ()) -> Frequencies:
        """The frequency of each candidate among those who reported, if every value is a candidate.

        A value that is none of them adds to the estimates of candidates whose bits it shares. Reports of
        cohorts that do not exist are left out; ``refused`` counts them.
        """
        from tacit.local.release import Frequencies
        from tacit.tables.release import Answer

        names = tuple(candidates)
        if not names or len({_text(name) for name in names}) != len(names):
            raise InvalidValue("candidates", names, "at least one, all different")
        rows, refused = rows_of(reports, 2 + packed.width(self.bits), bytes_only=True)
        cohorts = np.ascontiguousarray(rows[:, :2]).view("<u2").reshape(-1).astype(np.int64)
        sound = cohorts < self.cohorts
        if self.bits % 8:
            sound &= rows[:, -1] >> self.bits % 8 == 0
        if not sound.any():
            raise InvalidValue("reports", "none", "at least one that the mechanism can make")
        design = self._design(names)
        inverse: Float64 = np.asarray(np.linalg.pinv(design), dtype=np.float64)
        if np.linalg.matrix_rank(design) < len(names):
            raise InvalidValue(
                "candidates", len(names), "so few that their Bloom filters tell them apart",
                "Ask about fewer candidates, or collect reports with more bits or cohorts.",
            )  # fmt: skip
        measured, sizes = self._measured(rows[sound, 2:], cohorts[sound])
        from scipy.optimize import nnls

        values = np.asarray(nnls(design, measured)[0])
        fitted = inverse @ measured

        def interval(confidence: float, simultaneous: bool) -> tuple[Float64, Float64]:
            away = self._away(design, inverse, sizes, tail(confidence, len(names) if simultaneous else 1))
            low, high = np.clip(fitted - away, 0.0, 1.0), np.clip(fitted + away, 0.0, 1.0)
            return np.minimum(low, values), np.maximum(high, values)

        return Frequencies(
            "frequencies by Rappor",
            self.guarantee,
            Answer(values, interval, np.asarray),
            categories=names,
            reports=int(sound.sum()),
            refused=refused + int((~sound).sum()),
        )

    def _filter(self, text: bytes, cohort: int) -> NDArray[np.bool_]:
        """The Bloom filter of a text in a cohort. The hash functions are public."""
        bloom = np.zeros(self.bits, dtype=bool)
        for number in range(self.hashes):
            key = cohort.to_bytes(4, "little") + number.to_bytes(4, "little")
            digest = hashlib.blake2b(text, digest_size=8, key=key, person=b"tacit.rappor").digest()
            bloom[int.from_bytes(digest, "little") % self.bits] = True
        return bloom

    def _design(self, names: Sequence[Any]) -> Float64:
        """X: a row for every bit of every cohort, a column for every candidate."""
        filters = [
            np.concatenate([self._filter(_text(name), cohort) for cohort in range(self.cohorts)])
            for name in names
        ]
        return np.array(filters, dtype=np.float64).T

    def _measured(self, rows: NDArray[np.uint8], cohorts: Int64) -> tuple[Float64, Int64]:
        """The unbiased shares t_ji, and the numbers of reports of the cohorts."""
        sizes = np.bincount(cohorts, minlength=self.cohorts)
        order = np.argsort(cohorts, kind="stable")
        parts = np.split(rows[order], np.cumsum(sizes)[:-1])
        ones = np.array([packed.column_counts(part, self.bits) for part in parts])
        flip = float(self.total_flip)
        shares = self.cohorts * (ones - sizes[:, None] * flip) / (len(rows) * (1 - 2 * flip))
        return shares.reshape(-1), sizes

    def _away(self, design: Float64, inverse: Float64, sizes: Int64, miss: float) -> Float64:
        """How far the unconstrained fit of each candidate may be from its frequency."""
        m, n, flip = self.cohorts, int(sizes.sum()), float(self.total_flip)
        weights = inverse.reshape(len(inverse), m, self.bits)
        proxy = (1 - 2 * flip) / (2 * math.log((1 - flip) / flip))
        squares = ((weights**2).sum(axis=2) * sizes).sum(axis=1) * (m / (n * (1 - 2 * flip))) ** 2
        filters = design.reshape(m, self.bits, -1)
        most, least = np.full(design.shape[1:] * 2, -math.inf), np.full(design.shape[1:] * 2, math.inf)
        for cohort in range(m):
            means = m * weights[:, cohort] @ filters[cohort]
            most, least = np.maximum(most, means), np.minimum(least, means)
        spread = (most - least).max(axis=1)
        level = math.log(4 / miss)
        return np.asarray(np.sqrt(2 * proxy * squares * level) + spread * math.sqrt(level / (2 * n)))


def _text(value: Any) -> bytes:
    """The bytes that are hashed; what has no text counts as the empty one."""
    try:
        return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
    except Exception:
        return b""
