"""What the mechanisms for bounded numbers have in common: Duchi, Piecewise and Hybrid.

*Guarantee.* The report of a number is drawn by :class:`~tacit.local.windows.Windows`: a finite table of
rational probabilities, of which two in a column have a ratio of at most e^ε. A person with d numbers is asked
for k of them, which are drawn without regard to the numbers, and every answer is ε/k-private, with ε/k as a
rational number. So the whole report, which tells what was asked, is ε-private by composition.

*Values.* A number outside the bounds, infinities included, counts as the nearer bound. NaN, None and whatever
is no number count as the middle of the bounds. No value raises an error, which would tell the collector of
it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.data import given
from tacit.data.features import box, declared_width
from tacit.errors import InvalidValue
from tacit.local.oracle import LARGEST_LAW, LocalMechanism, numbered
from tacit.local.windows import Mixture, Windows

if TYPE_CHECKING:
    from tacit.local.means import Means

__all__ = ["NumberMechanism"]

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

NOT_ASKED = -1
"""What a report holds for a number that the person was not asked for."""
SPENT_EACH = 2.5
"""A person is asked for one number for every 2.5 of ε, at least for one (Wang et al. 2019, section IV)."""


@dataclass(frozen=True)
class NumberMechanism(LocalMechanism):
    """Base of the mechanisms for bounded numbers.

    ``bounds`` is (lower, upper), two numbers for one number per person; where one of them is a list, a person
    has as many numbers (attributes), and a row of a matrix is a person's. Each person is asked for ``asked``
    of the attributes, chosen at random, and spends ε/``asked`` on each.

    Reports are whole numbers, one per person: the codes of :meth:`values`. For d attributes they are a matrix
    with d columns, with −1 where the person was not asked.
    """

    bounds: Any = field(kw_only=True)
    asked: int = field(init=False, compare=False)
    """For how many attributes each person is asked."""
    _lower: Float64 = field(init=False, repr=False, compare=False)
    _upper: Float64 = field(init=False, repr=False, compare=False)
    _several: bool = field(init=False, repr=False, compare=False)
    _randomizer: Windows | Mixture = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        width = declared_width(self.bounds)
        lower, upper = box(self.bounds, 1 if width is None else width)
        if not lower.size:
            raise InvalidValue("bounds", self.bounds, "of one attribute or more")
        self._keep("_several", width is not None)
        self._keep("_lower", lower)
        self._keep("_upper", upper)
        self._keep("asked", max(1, min(lower.size, math.floor(self.epsilon / SPENT_EACH))))
        self._keep("_randomizer", self._made(Fraction(self.epsilon) / self.asked))

    def _made(self, epsilon: Fraction) -> Windows | Mixture:
        """The randomizer of a number in [−1, 1]."""
        raise NotImplementedError

    @property
    def attributes(self) -> int:
        """How many numbers a person has."""
        return self._lower.size

    @property
    def report_bits(self) -> float:
        """The size of one report in bits, if all different reports are numbered."""
        which = math.log2(math.comb(self.attributes, self.asked))
        return which + self.asked * math.log2(self._randomizer.cells)

    def law(self, value: Any, attribute: int = 0) -> dict[int, Fraction]:
        """The exact probability of every answer of a person with this value who is asked for it."""
        if self._randomizer.cells > LARGEST_LAW:
            raise InvalidValue("epsilon", self.epsilon, f"so small that at most {LARGEST_LAW} reports exist")
        number = self._scaled(given.real([value])[:, None], slice(attribute, attribute + 1))
        return dict(enumerate(self._randomizer.law(float(number[0, 0]))))

    def randomize(self, values: Any) -> Int64:
        """A report for each value, or for each row of values; each is another person's."""
        numbers = self._scaled(self._matrix(values))
        if self.asked == self.attributes:
            reports = self._randomizer.draw(numbers, self._source)
        else:
            order = np.argsort(self._source.words(numbers.shape), axis=1, kind="stable")
            chosen = order[:, : self.asked]
            answers = self._randomizer.draw(np.take_along_axis(numbers, chosen, axis=1), self._source)
            reports = np.full(numbers.shape, NOT_ASKED, dtype=np.int64)
            np.put_along_axis(reports, chosen, answers, axis=1)
        return reports if self._several else reports[:, 0]

    def values(self, reports: Any) -> Float64:
        """The number that each report stands for, NaN where the person was not asked.

        It is unbiased: its mean over the randomness of the person is the person's own number.
        """
        codes = np.asarray(reports)
        middle, half = self._lower / 2 + self._upper / 2, self._upper / 2 - self._lower / 2
        if not self._several:
            middle, half = middle[0], half[0]
        return np.where(codes < 0, np.nan, middle + half * self._randomizer.values(codes))

    def estimate(self, reports: Any) -> Means:
        """The mean of those who reported: ``value`` is a number, or an array with one for each attribute.

        The estimate is unbiased. Reports that the mechanism cannot make, which a hostile client may send, are
        left out: ``refused`` says how many there were. An attribute that nobody was asked for is NaN.
        """
        from tacit.local.means import Means, bernstein

        accepted, refused = self._accepted(reports)
        if not len(accepted):
            raise InvalidValue("reports", "none", "at least one that the mechanism can make")
        codes = accepted.reshape(len(accepted), self.attributes)
        known = codes >= 0
        counts = known.sum(axis=0)
        middle, half = self._lower / 2 + self._upper / 2, self._upper / 2 - self._lower / 2
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.where(known, self._randomizer.values(codes), 0.0).sum(axis=0) / counts
            means = middle + half * scaled
        variance = self._largest_variance() + (1.0 if self.asked < self.attributes else 0.0)
        reach = self._randomizer.largest + 1.0

        def radius(miss: float) -> Float64:
            with np.errstate(over="ignore"):
                found = half * bernstein(variance, reach, counts, miss)
            return found if self._several else found[0]

        bounds = (self._lower, self._upper) if self._several else (self._lower[0], self._upper[0])
        return Means.of(
            self, means if self._several else np.asarray(means[0]), radius, bounds=bounds,
            reports=len(accepted), refused=refused,
        )  # fmt: skip

    def variance(self, value: Any, reports: int = 1) -> Any:
        """The variance of the estimated mean if all of so many people have this value.

        For d attributes ``value`` has d numbers, and the people who are asked for each are taken to be
        ``asked``/d of all.
        """
        count = _validate.count("reports", reports, 1) * self.asked / self.attributes
        array = np.asarray(value, dtype=np.float64)
        numbers = self._scaled(array.reshape(-1, self.attributes))
        half = self._upper / 2 - self._lower / 2
        found = np.square(half) * self._randomizer.variance(numbers) / count
        return float(found[0, 0]) if array.ndim == 0 else found.reshape(array.shape)

    def largest_variance(self, reports: int = 1) -> Any:
        """At least :meth:`variance`, whatever the values; an array for several attributes."""
        count = _validate.count("reports", reports, 1) * self.asked / self.attributes
        found = np.square(self._upper / 2 - self._lower / 2) * self._largest_variance() / count
        return found if self._several else float(found[0])

    def _largest_variance(self) -> float:
        return float(self._randomizer.variance_bound(np.array(self._randomizer.corners)).max())

    def _matrix(self, values: Any) -> NDArray[Any]:
        if not self._several:
            return given.real(given.column("values", values))[:, None]
        matrix = given.declared_matrix(values, self.attributes)
        if matrix.shape[1] != self.attributes:
            raise InvalidValue("values", f"{matrix.shape[1]} columns", f"{self.attributes} columns")
        return matrix

    def _scaled(self, matrix: NDArray[Any], columns: slice = slice(None)) -> Float64:
        """Numbers in [−1, 1], the bounds at the ends; 0 for what is no number."""
        lower, upper = self._lower[columns], self._upper[columns]
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = (matrix.astype(np.float64) - (lower / 2 + upper / 2)) / (upper / 2 - lower / 2)
        return np.clip(np.where(np.isnan(numbers), 0.0, numbers), -1.0, 1.0)

    def _accepted(self, reports: Any) -> tuple[Int64, int]:
        """The reports that the mechanism can make, and how many others there are."""
        if not self._several:
            return numbered(reports, self._randomizer.cells)
        matrix = given.declared_matrix(reports, self.attributes).astype(np.float64)
        if matrix.shape[1] != self.attributes:
            raise InvalidValue("reports", f"{matrix.shape[1]} columns", f"{self.attributes} columns")
        whole = (matrix == np.floor(matrix)) & (matrix >= NOT_ASKED) & (matrix < self._randomizer.cells)
        sound = whole.all(axis=1) & ((matrix >= 0).sum(axis=1) == self.asked)
        return matrix[sound].astype(np.int64), int((~sound).sum())
