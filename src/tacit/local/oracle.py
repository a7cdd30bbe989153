"""What every mechanism of local differential privacy has in common, and what every frequency oracle has.

*Relation and unit.* Neighbours differ in the value of one person (``replace_one``), and the report of a
person is computed from the value of that person alone. So a mechanism is ε-differentially private if no
report is more than e^ε times as likely for one value as for another; that is local differential privacy
(Kasiviswanathan et al. 2011). Whether somebody reports, and how many people do, is not hidden. A person who
reports twice spends ε twice: ``Repeat(event, 2)``.

*Reports.* The report of a person says that it *supports* some of the categories. If the true category is
supported with probability p and every other category with probability q, then the share of the reports that
support a category of frequency f has mean q + (p − q)·f, and (share − q)/(p − q) is an unbiased estimate of f
with variance (f·p(1 − p) + (1 − f)·q(1 − q))/(n·(p − q)²) for n reports; the frequency meant is that among
those who reported. Wang, Blocki, Li and Jha (2017), "Locally differentially private protocols for frequency
estimation", call these protocols pure.

*Intervals.* The number of reports that support a category is a sum of n independent Bernoulli variables,
whose tails beyond the mean ± 1 are at most those of the binomial distribution with the same mean (Hoeffding
1956). So the interval of Clopper and Pearson, widened where a single report supports a category or none
but one does (:func:`shares_interval`), covers the mean share at every n, and it is mapped to frequencies.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate, events
from tacit.errors import InvalidValue
from tacit.guarantee import Guarantee
from tacit.mechanisms._base import Float64, Int64, Mechanism, tail
from tacit.randomness import uniform
from tacit.relations import Relation, Unit

if TYPE_CHECKING:
    from tacit.local.release import Frequencies
    from tacit.tables.release import Release

__all__ = [
    "Counted", "FrequencyOracle", "LocalMechanism", "SupportOracle", "listed", "numbered", "rows_of",
    "sequence", "shares_interval", "whole",
]  # fmt: skip

LARGEST_LAW = 2**16
"""The law of a report is listed for at most so many different reports."""

ASSUMPTIONS = (
    "every person randomizes their own value and reports once",
    "whether somebody reports is not hidden",
)


@dataclass(frozen=True)
class LocalMechanism(Mechanism):
    """Base of all local mechanisms: a person runs :meth:`randomize`, the collector runs :meth:`estimate`.

    ``epsilon`` bounds the logarithm of the ratio of the probabilities of any report under any two values of
    one person. The collector needs the same public parameters as the people who report, and nothing secret.
    """

    epsilon: float = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("epsilon", _validate.epsilon(self.epsilon))
        if self.epsilon < 2.0**-30:
            raise InvalidValue("epsilon", self.epsilon, "at least 2^-30")

    @property
    def event(self) -> events.Event:
        """What one report costs the person who sends it."""
        return events.Pure(self.epsilon)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to every person who sends one report."""
        return Guarantee(
            self.epsilon, 0.0, self.event, Relation.REPLACE_ONE, Unit(name="person"), self.noise, ASSUMPTIONS
        )

    def randomize(self, values: Any) -> NDArray[Any]:
        """A report for each value; each value is another person's."""
        raise NotImplementedError

    def estimate(self, reports: Any) -> Release:
        """The statistic of all who reported, from their reports alone: post-processing."""
        raise NotImplementedError


@dataclass(frozen=True)
class Counted:
    """How many accepted reports support each category, how many were accepted, and how many refused."""

    supporting: Int64
    accepted: int
    refused: int


@dataclass(frozen=True)
class FrequencyOracle(LocalMechanism):
    """Base of all frequency oracles: reports of one category each, and estimates of all frequencies.

    ``categories`` is the public list of categories, or their number k for values 0 … k − 1. A value that is
    none of them (NaN, None, an undeclared name) is replaced by a uniformly drawn category before it is
    randomized: an error would tell the collector of the value. The law of such a report is the average of
    the laws of all categories, so no ratio exceeds e^ε, and the expected estimate of each category grows by
    1/k of the share of such values. Declare a category for other values to count them apart.
    """

    categories: Sequence[Hashable] | int = field(kw_only=True)
    _names: tuple[Hashable, ...] | None = field(init=False, repr=False, compare=False)
    _size: int = field(init=False, repr=False, compare=False)

    MOST = 2**20
    """The largest number of categories."""

    def __post_init__(self) -> None:
        super().__post_init__()
        names: tuple[Hashable, ...] | None = None
        if isinstance(self.categories, Iterable) and not isinstance(self.categories, str):
            names = tuple(self.categories)
            self._keep("categories", names)
            try:
                distinct = len(set(names))
            except TypeError:
                raise InvalidValue("categories", self.categories, "hashable") from None
            if distinct != len(names) or any(name != name for name in names):
                raise InvalidValue("categories", self.categories, "distinct values, without NaN")
        size = len(names) if names is not None else _validate.count("categories", self.categories, 2)
        if not 2 <= size <= self.MOST:
            raise InvalidValue("categories", self.categories, f"between 2 and {self.MOST} categories")
        self._keep("_names", names)
        self._keep("_size", size)

    @property
    def size(self) -> int:
        """The number of categories, k."""
        return self._size

    @property
    def report_bits(self) -> float:
        """The size of one report in bits, if all different reports are numbered."""
        raise NotImplementedError

    def law(self, value: Any) -> dict[Any, Fraction]:
        """The exact probability of every report for this value, where there are at most 2^16 reports.

        A report is a whole number or the bytes of a row of bits, as :meth:`randomize` returns it. For a value
        that is none of the categories, it is the average of the laws of all categories.
        """
        code = int(self._codes([value])[0])
        if code >= 0:
            return self._law(code)
        mixed: dict[Any, Fraction] = {}
        for each in range(self.size):
            for report, chance in self._law(each).items():
                mixed[report] = mixed.get(report, Fraction(0)) + chance / self.size
        return mixed

    def randomize(self, values: Any) -> NDArray[Any]:
        """A report for each of the values, a sequence with one value of each person.

        As many random numbers are drawn for a value that is none of the categories as for another.
        """
        codes = self._codes(values)
        anything = uniform(self._source, self.size, codes.size)
        return self._randomized(np.where(codes < 0, anything, codes))

    def estimate(self, reports: Any) -> Frequencies:
        """The frequency of every category among those who reported: ``value`` is an array of k numbers.

        The estimates are unbiased and may leave [0, 1]; ``non_negative()`` and ``on_simplex()`` project them.
        ``interval(confidence, simultaneous=…)`` covers at every number of reports. Reports that the mechanism
        cannot make, which a hostile client may send, are left out: ``refused`` says how many there were.
        """
        from tacit.local.release import Frequencies

        counted = self._counted(reports)
        if not counted.accepted:
            raise InvalidValue("reports", "none", "at least one that the mechanism can make")
        return Frequencies.of(self, counted)

    def variance(self, frequency: Any, reports: int) -> Any:
        """The variance of the estimate of a category of this frequency, from so many reports."""
        raise NotImplementedError

    def frequencies(self, counted: Counted) -> Float64:
        """The unbiased estimates."""
        raise NotImplementedError

    def interval(self, counted: Counted, confidence: float, coordinates: int) -> tuple[Float64, Float64]:
        """Intervals of which ``coordinates`` hold at once with this confidence."""
        raise NotImplementedError

    def _law(self, code: int) -> dict[Any, Fraction]:
        raise NotImplementedError

    def _randomized(self, codes: Int64) -> NDArray[Any]:
        raise NotImplementedError

    def _counted(self, reports: Any) -> Counted:
        raise NotImplementedError

    def _codes(self, values: Any) -> Int64:
        """The place of each value among the categories, −1 for none of them; never an error for a value."""
        array = sequence("values", values)
        if self._names is None:
            return whole(array, self.size)
        from tacit.data.given import places

        return places(array, self._names)

    def _listable(self, reports: int) -> None:
        if reports > LARGEST_LAW:
            raise InvalidValue("categories", self.size, f"so few that at most {LARGEST_LAW} reports exist")


@dataclass(frozen=True)
class SupportOracle(FrequencyOracle):
    """Base of the oracles whose reports support the true category with ``keep``, any other with ``other``."""

    @property
    def keep(self) -> Fraction:
        """The probability p that a report supports the true category."""
        raise NotImplementedError

    @property
    def other(self) -> Fraction:
        """The probability q that a report supports a given other category."""
        raise NotImplementedError

    def variance(self, frequency: Any, reports: int) -> Any:
        """The variance of the estimate of a category of this frequency, from so many reports."""
        _validate.count("reports", reports, 1)
        p, q, f = float(self.keep), float(self.other), np.asarray(frequency, dtype=np.float64)
        found = (f * p * (1 - p) + (1 - f) * q * (1 - q)) / (reports * float(self.keep - self.other) ** 2)
        return float(found) if found.ndim == 0 else found

    def frequencies(self, counted: Counted) -> Float64:
        """The unbiased estimates (share − q)/(p − q)."""
        return self._unmixed(counted.supporting / counted.accepted)

    def interval(self, counted: Counted, confidence: float, coordinates: int) -> tuple[Float64, Float64]:
        """Clopper–Pearson intervals of the shares, mapped to frequencies in [0, 1]."""
        low, high = shares_interval(counted.supporting, counted.accepted, tail(confidence, coordinates))
        return np.clip(self._unmixed(low), 0.0, 1.0), np.clip(self._unmixed(high), 0.0, 1.0)

    def _unmixed(self, shares: Float64) -> Float64:
        return np.asarray((shares - float(self.other)) / float(self.keep - self.other))


def shares_interval(counts: Int64, total: int, miss: float) -> tuple[Float64, Float64]:
    """Where the mean of ``total`` independent Bernoulli variables lies that add up to each of ``counts``.

    Both ends together miss with at most this probability. They are those of Clopper and Pearson, but for
    counts of 1 and ``total`` − 1. The theorem of Hoeffding (1956) says P(S ≥ s) ≤ P(Binomial ≥ s) for s ≥
    mean + 1. A binomial tail of at most 1/4 begins there if s ≥ 2, since P(Binomial ≥ mean) > 1/4 for a mean
    above 1 (Greenberg and Mohri 2014); a larger ``miss`` is replaced by 1/2. For s = 1 it need not, and one
    variable that is not like the others makes P(S ≥ 1) larger than the binomial tail; but P(S ≥ 1) is at
    most the mean (Markov), so the lower end of a count of 1 is side/total. The upper end of total − 1
    mirrors it.
    """
    from scipy.special import betainccinv, betaincinv

    side = min(miss, 0.5) / 2
    numbers = np.asarray(counts, dtype=np.float64)
    low = betaincinv(np.maximum(numbers, 1), total - numbers + 1, side)
    high = betainccinv(numbers + 1, np.maximum(total - numbers, 1), side)
    low = np.where(numbers == 1, side / max(total, 1), low)
    high = np.where(numbers == total - 1, 1 - side / max(total, 1), high)
    outwards = 1e-12
    return (
        np.where(numbers > 0, np.maximum(low - outwards, 0.0), 0.0),
        np.where(numbers < total, np.minimum(high + outwards, 1.0), 1.0),
    )


def numbered(reports: Any, bound: int) -> tuple[Int64, int]:
    """The reports that are whole numbers below ``bound``, and how many are not."""
    codes = whole(sequence("reports", reports, "report"), bound)
    accepted = codes[codes >= 0]
    return accepted, codes.size - accepted.size


def sequence(name: str, values: Any, what: str = "value") -> NDArray[Any]:
    """One thing of each person as an array of one dimension; refused by the kind of container alone."""
    requirement = f"a sequence, one {what} of each person"
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidValue(name, type(values), requirement)
    array = values if isinstance(values, np.ndarray) else listed(values)
    if array.ndim != 1:
        raise InvalidValue(name, f"{array.ndim} dimensions", requirement)
    return array


def rows_of(reports: Any, columns: int, *, bytes_only: bool) -> tuple[NDArray[Any], int]:
    """Reports that are rows of numbers, as a matrix, and how many of a list are no such rows.

    In a list every row was sent by somebody, who may be hostile: a row of another length or type is left
    out, and the others count. A matrix has one shape and one type, which its maker chose: a wrong one is
    refused. Rows are of bytes (uint8), or of whole numbers of any type.
    """
    if isinstance(reports, list | tuple):
        kept = [row for each in reports if (row := _row(each, columns, bytes_only)) is not None]
        empty = np.zeros((0, columns), dtype=np.uint8)
        return np.stack(kept) if kept else empty, len(reports) - len(kept)
    matrix: NDArray[Any] = reports if isinstance(reports, np.ndarray) else np.empty(0, dtype=object)
    if matrix.ndim != 2 or matrix.shape[1] != columns or not _fits(matrix, bytes_only):
        told = f"shape {matrix.shape} of {matrix.dtype}" if matrix is reports else type(reports)
        raise InvalidValue(
            "reports", told, f"rows of {columns} {'bytes, uint8' if bytes_only else 'whole numbers'}",
            "Stack the reports of all people, each as randomize() made it.",
        )  # fmt: skip
    return matrix, 0


def _row(row: Any, columns: int, bytes_only: bool) -> NDArray[Any] | None:
    """One row of a list as an array; a list of whole numbers is a row, and bytes are a row of bytes."""
    if type(row) is bytes and bytes_only:
        row = np.frombuffer(row, dtype=np.uint8)
    elif type(row) in (list, tuple) and not bytes_only:
        small = len(row) == columns and all(type(item) is int and abs(item) < 2**31 for item in row)
        row = np.array(row, dtype=np.int64) if small else None
    sound = type(row) is np.ndarray and row.shape == (columns,) and _fits(row, bytes_only)
    return row if sound else None


def _fits(array: NDArray[Any], bytes_only: bool) -> bool:
    return array.dtype == np.uint8 if bytes_only else array.dtype.kind in "iu"


def listed(values: Iterable[Any]) -> NDArray[Any]:
    """A sequence as an array of numbers where all are plain numbers, else of objects."""
    items = list(values)
    if all(type(item) in (int, float, bool) for item in items) and all(
        abs(item) < 2**53 for item in items if type(item) is int
    ):
        return np.array(items, dtype=np.float64 if any(type(item) is float for item in items) else np.int64)
    return np.fromiter(items, dtype=object, count=len(items))


def whole(array: NDArray[Any], bound: int) -> Int64:
    """Whole numbers from 0 to ``bound`` − 1 as they are, −1 for everything else."""
    if isinstance(array, np.ma.MaskedArray):
        raise InvalidValue("values", type(array), "without a mask", "Fill what is masked by a public rule.")
    if array.dtype.kind not in "iubf":
        return np.fromiter((_one(item, bound) for item in array.tolist()), np.int64, array.size)
    with np.errstate(invalid="ignore"):
        kept = (array >= 0) & (array < bound)
        if array.dtype.kind == "f":
            kept &= array == np.floor(array)
        return np.where(kept, array.astype(np.int64), -1)


def _one(item: Any, bound: int) -> int:
    try:
        number = int(item)
        return number if number == item and 0 <= number < bound else -1
    except Exception:
        return -1
