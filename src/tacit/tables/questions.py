"""Every question that can be asked of private data, as a value.

A question is a frozen dataclass. The methods of :class:`~tacit.tables.Table` and
:class:`~tacit.tables.Batch`, the text that ``tacit query`` reads, and the help of both are made from the
classes in this module.

>>> question = Mean("hours", by="sex", where="age >= 40")
>>> print(question)
mean(hours) by sex where age >= 40
>>> parse("mean(hours) by sex where age >= 40") == question
True
>>> parse("maen(hours)")
Traceback (most recent call last):
    ...
tacit.errors.InvalidValue: question must be about a known statistic, ... Did you mean mean(column)? ...

All answers have this in common. Neighbours are those of the ledger's relation, ``add_remove`` or
``replace_one``, of one unit, a row or a person with at most k rows. Sensitivities below are those of adding
or removing one row, with S for the steps that a column's range is divided into; a person moves k times as
much. The noise on whole numbers is discrete Laplace without δ (Ghosh, Roughgarden, Sundararajan 2009), with
the event Pure(ε), and discrete Gaussian with δ > 0 (Canonne, Kamath, Steinke 2020), with the event
ZeroConcentrated(ρ).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.tables.checks import Check
from tacit.tables.language.forms import Chosen, Grouped, OfColumn, OfColumns, OfPairs
from tacit.tables.language.kinds import COLUMN, EDGES, NUMBERS, SWITCH, WHOLE, argument, plain
from tacit.tables.language.question import Question, read

__all__ = [
    "CATALOGUE",
    "Bounds",
    "Check",
    "Correlation",
    "Count",
    "CountUnits",
    "Covariance",
    "Crosstab",
    "Histogram",
    "Keys",
    "Mean",
    "Median",
    "Quantile",
    "Question",
    "Std",
    "Sum",
    "Top",
    "Variance",
    "parse",
]

@dataclass(frozen=True)
class Count(Grouped):
    """The number of rows; where the unit is a person, at most ``rows`` of each.

    Relation: that of the ledger, of one unit.
    Sensitivity: 1 in ℓ1 and ℓ2. Replacing a row moves two groups: 2 and √2, without groups 1. A person moves
    k times as much.
    Event: Pure(ε); with δ > 0, ZeroConcentrated(ρ).
    Method: discrete Laplace noise (Ghosh, Roughgarden, Sundararajan 2009) or discrete Gaussian noise
    (Canonne, Kamath, Steinke 2020) on every count.
    """


@dataclass(frozen=True)
class CountUnits(Question):
    """The number of different units (people) that have a row.

    Relation: that of the ledger, of one unit, however many rows it has.
    Sensitivity: 1. Event: Pure(ε); with δ > 0, ZeroConcentrated(ρ).
    Method: the noise of :class:`Count`, on the number.
    """


@dataclass(frozen=True)
class Sum(OfColumn):
    """The sum of a column; rows where it is missing add nothing.

    Relation: that of the ledger, of one unit.
    Sensitivity: the larger bound in size; replacing a row within its group moves the sum by high − low, and
    into another group two sums. A person moves k times as much.
    Event: Pure(ε); with δ > 0, ZeroConcentrated(ρ).
    Method: values are clipped to the bounds and counted in whole steps, which add up exactly (Casacuberta,
    Shoemate, Vadhan, Wagaman 2022); discrete Laplace or discrete Gaussian noise.
    """


@dataclass(frozen=True)
class Mean(OfColumn):
    """The mean of a column over the rows where it is there.

    Where the schema declares the number of rows and a constant for missing values, so that every row counts,
    n is known and the noise is smaller still.

    Relation: that of the ledger, of one unit.
    Sensitivity: a row divides S steps between two cells, which give n and Σx: S in ℓ1 and ℓ2, replaced 2S and
    √2·S. With n known, the sum of values around the middle of the range: S half steps, replaced 2S. A person
    moves k times as much.
    Event: Pure(ε); with δ > 0, ZeroConcentrated(ρ).
    Method: discrete Laplace or discrete Gaussian noise on the cells; the interval is that of a ratio
    (Fieller 1954).
    """


@dataclass(frozen=True)
class Variance(OfColumn):
    """The sample variance of a column.

    Relation: that of the ledger, of one unit.
    Sensitivity: a row divides S steps among three cells, which give n, Σx and Σx²: S in ℓ1 and ℓ2, replaced
    2S and √2·S. A person moves k times as much.
    Event: Pure(ε); with δ > 0, ZeroConcentrated(ρ).
    Method: discrete Laplace or discrete Gaussian noise on the cells; the interval encloses the mean first
    (Fieller 1954; Berger and Boos 1994).
    """


@dataclass(frozen=True)
class Std(OfColumn):
    """The sample standard deviation of a column: the root of its variance.

    Relation: that of the ledger, of one unit.
    Sensitivity, event and method: those of the variance. The root is post-processing.
    """


@dataclass(frozen=True)
class Quantile(Chosen):
    """The values below which the fractions ``q`` of the rows lie.

    ``confidence`` is that of the interval, which costs a quarter of the epsilon; None spends everything on
    the value.

    Relation: that of the ledger, of one unit.
    Sensitivity: max(q, 1 − q) of a candidate's score, which is its distance from the quantile in rows;
    replaced 1, or with groups twice as much as added. The ranks behind the interval are one histogram: 1,
    replaced 2. A person moves k times as much.
    Event: one choice for each quantile, Pure(ε) or BoundedRange(ε); with an interval two more for each, and
    Pure(ε) or ZeroConcentrated(ρ) for the ranks.
    Method: permute-and-flip (McKenna and Sheldon 2020) or, where the ledger adds up Rényi divergences, the
    exponential mechanism (McSherry and Talwar 2007; Durfee and Rogers 2019) among up to 2^16 steps between
    the bounds (Smith 2011); ends of the interval are accepted for their noisy ranks.
    """

    q: float | Sequence[float] = argument(NUMBERS)

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.q
        several = hasattr(given, "__len__")
        found = tuple(_validate.open_probability("q", one) for one in (given if several else (given,)))
        if not found or len(set(found)) < len(found):
            raise InvalidValue("q", given, "a fraction in (0, 1), or several different ones")
        self._keep("q", found if several else found[0])

    @property
    def fractions(self) -> tuple[float, ...]:
        return tuple(self.q) if isinstance(self.q, Sequence) else (self.q,)

    @property
    def scalar(self) -> bool:
        return not isinstance(self.q, Sequence)


@dataclass(frozen=True)
class Median(Chosen):
    """The median of a column: its quantile at one half.

    ``confidence`` is that of the interval, which costs a quarter of the epsilon; None spends everything on
    the value.

    Relation: that of the ledger, of one unit.
    Sensitivity, event and method: those of the quantile at q = ½.
    """


@dataclass(frozen=True)
class Histogram(Grouped):
    """Counts over the categories of a column, or over bins of a numeric one; one histogram for each group.

    ``edges`` is a number of equal bins between the bounds, or increasing edges: bins are
    [e0, e1), …, the last one closed, and values outside are left out. One row is in one bin of one
    group, so that all histograms together cost what one count costs.

    Relation: that of the ledger, of one unit.
    Sensitivity: 1 in ℓ1 and ℓ2 of the bins of all groups together, replaced 2 and √2. A person moves k times
    as much.
    Event: Pure(ε); with δ > 0, ZeroConcentrated(ρ).
    Method: discrete Laplace or discrete Gaussian noise on every bin (Dwork, McSherry, Nissim, Smith 2006).
    """

    column: str = argument(COLUMN)
    edges: int | Sequence[Any] | None = argument(EDGES, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("edges", plain(self.edges))


@dataclass(frozen=True)
class Crosstab(OfColumns, Grouped):
    """A contingency table of any number of columns with public keys; one table for each group.

    ``margins`` adds the sums, called All; those of a group are of its own table. Half of the cost goes to
    measuring them directly, and least squares makes table and margins consistent: sums over many cells become
    much more accurate, single cells less so.

    Relation: that of the ledger, of one unit.
    Sensitivity: 1 in ℓ1 and ℓ2 of the tables of all groups together, for a row is in one cell of one group,
    and so for each margin; replaced 2 and √2. A person moves k times as much.
    Event: Pure(ε); with δ > 0, ZeroConcentrated(ρ); with margins one for the table and one for each of them.
    Method: discrete Laplace or discrete Gaussian noise on every cell; margins by generalised least squares
    (Hay, Rastogi, Miklau, Suciu 2010).
    """

    margins: bool = argument(SWITCH, default=False, kw_only=True)


@dataclass(frozen=True)
class Covariance(OfPairs):
    """The covariance matrix of two or more columns, positive semidefinite.

    Relation: that of the ledger, of one unit.
    Sensitivity: for each column and each pair, a row divides S steps among three or four cells, which give n,
    the sums and those of squares or products: S in ℓ1 and ℓ2, replaced 2S and √2·S. A person moves k times as
    much.
    Event: one for each column and pair, for even parts of the cost: Pure(ε); with δ > 0, ZeroConcentrated(ρ).
    Method: discrete Laplace or discrete Gaussian noise on the cells; negative eigenvalues become 0. Intervals
    enclose the means first (Fieller 1954; Berger and Boos 1994).
    """


@dataclass(frozen=True)
class Correlation(OfPairs):
    """The matrix of correlation coefficients of two or more columns.

    Relation: that of the ledger, of one unit.
    Sensitivity and event: those of the :class:`Covariance`, which is divided by the deviations:
    post-processing.
    Method: that of the covariance; intervals enclose means and deviations first (Fieller 1954; Berger and
    Boos 1994).
    """


@dataclass(frozen=True)
class Keys(Question):
    """The values of a column that enough units have, with how many have each; needs δ > 0.

    For columns whose keys are not known in advance. Keys that few units have stay unknown.

    Relation: that of the ledger, of one unit.
    Sensitivity: a unit counts once for each of at most k different keys: k in ℓ1, replaced 2k.
    Event: Approximate(ε, δ).
    Method: discrete Laplace noise on the keys that occur, and a threshold (Korolova, Kenthapadi, Mishra,
    Ntoulas 2009).
    """

    column: str = argument(COLUMN)


@dataclass(frozen=True)
class Top(Question):
    """The ``k`` most frequent of a column's public keys, most frequent first, without counts.

    Relation: that of the ledger, of one unit.
    Sensitivity: 1 of each key's count, all in one direction if a row is added. A person moves as many rows as
    count for her.
    Event: k choices, each Pure(ε) or BoundedRange(ε) for 1/k of the cost.
    Method: permute-and-flip (McKenna and Sheldon 2020) or, where the ledger adds up Rényi divergences, the
    exponential mechanism (McSherry and Talwar 2007; Durfee and Rogers 2019), one key after the other.
    """

    column: str = argument(COLUMN)
    k: int = argument(WHOLE)


@dataclass(frozen=True)
class Bounds(Question):
    """Bounds around nearly all values of a numeric column, as powers of two.

    Relation: that of the ledger, of one unit.
    Sensitivity: 1 in ℓ1 and ℓ2 of a histogram of exponents, replaced 2 and √2. A person moves k times as
    much.
    Event: Pure(ε); with δ > 0, ZeroConcentrated(ρ).
    Method: discrete Laplace or discrete Gaussian noise on every bin; the outer edges of the bins that noise
    alone would hardly fill.
    """

    column: str = argument(COLUMN)


CATALOGUE: dict[str, type[Question]] = {
    kind.name: kind
    for kind in (
        Count,
        CountUnits,
        Sum,
        Mean,
        Variance,
        Std,
        Median,
        Quantile,
        Histogram,
        Crosstab,
        Covariance,
        Correlation,
        Keys,
        Top,
        Bounds,
        Check,
    )
}
"""Every question by the name of its statistic."""


def parse(text: str, **defaults: Any) -> Question:
    """The question that ``text`` asks, or :class:`tacit.errors.InvalidValue` that says where it fails.

    ``defaults`` are values for options that a statistic has and the text leaves out: ``confidence=0.9`` is
    for quantiles whose text names no other.
    """
    return read(text, CATALOGUE, defaults)
