"""Reports as a column of a private table: the frequencies behind a noisy histogram of reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.errors import InvalidValue
from tacit.local.oracle import shares_interval
from tacit.local.release import Frequencies
from tacit.local.response import RandomizedResponse
from tacit.mechanisms._base import Float64, tail
from tacit.tables.release import Answer

if TYPE_CHECKING:
    from tacit.tables.release import Release

__all__ = ["frequencies_of"]


def frequencies_of(histogram: Release, oracle: RandomizedResponse) -> Frequencies:
    """The frequencies of the true categories, from a histogram of a column of randomized responses.

    A collector who holds the reports in a private table, beside other columns, asks the table for a
    histogram of that column, which adds noise and is charged, and undoes the randomization of the reports
    here.

    Guarantee: that of the histogram; this is post-processing. The ε of the oracle protects every person
    from the holder of the table, and the guarantee of the histogram from whoever sees the result.

    An interval holds with its confidence over the responses and the noise together, each of which takes
    half of the chance to miss. It is that of Clopper and Pearson for the fewest reports of a category among
    the most reports in all, and the other way round.

    >>> import pathlib, tempfile
    >>> import pandas as pd, tacit
    >>> oracle = tacit.local.RandomizedResponse(categories=["no", "yes"], epsilon=2.0, random_state=1)
    >>> answers = oracle.randomize(["yes"] * 3000 + ["no"] * 7000)
    >>> frame = pd.DataFrame({"smokes": ["no" if code == 0 else "yes" for code in answers]})
    >>> schema = tacit.Schema({"smokes": tacit.Column("category", categories=["no", "yes"])})
    >>> place = pathlib.Path(tempfile.mkdtemp()) / "study.db"
    >>> ledger = tacit.Ledger.open(place, budget=tacit.Budget(epsilon=1.0))
    >>> table = tacit.tables.open(frame, schema=schema, ledger=ledger, random_state=1)
    >>> found = frequencies_of(table.histogram("smokes", epsilon=0.5), oracle)
    >>> found.value.round(2).tolist(), found.guarantee.price
    ([0.7, 0.3], 'ε = 0.5, δ = 0')
    >>> table.close(); ledger.close()
    """
    if not isinstance(oracle, RandomizedResponse):
        raise InvalidValue(
            "oracle", type(oracle).__name__, "RandomizedResponse",
            "The reports of other oracles are no categories; estimate them with Reports.",
        )  # fmt: skip
    names = tuple(range(oracle.size)) if isinstance(oracle.categories, int) else tuple(oracle.categories)
    values = _counts(histogram.value, names)
    total = max(float(values.sum()), 1.0)

    def interval(confidence: float, simultaneous: bool) -> tuple[Float64, Float64]:
        miss = tail(confidence, oracle.size if simultaneous else 1)
        few, many = histogram.interval(1 - (1 - confidence) / 2, simultaneous=True)
        low, high = (np.maximum(_counts(part, names), 0.0) for part in (few, many))
        least, most = max(int(np.floor(low.sum())), 1), max(int(np.ceil(high.sum())), 1)
        below, _ = shares_interval(np.floor(low).astype(np.int64), most, miss / 2)
        _, above = shares_interval(np.minimum(np.ceil(high), least).astype(np.int64), least, miss / 2)
        return np.clip(oracle._unmixed(below), 0.0, 1.0), np.clip(oracle._unmixed(above), 0.0, 1.0)

    answer = Answer(oracle._unmixed(values / total), interval, np.asarray, cells=True)
    label = f"frequencies behind {histogram.label}"
    return Frequencies(label, histogram.guarantee, answer, categories=names, reports=round(total))


def _counts(shown: Any, names: tuple[Any, ...]) -> Float64:
    """The counts of these categories, as the histogram shows them."""
    try:
        found = np.array([float(shown.loc[name]) for name in names])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InvalidValue(
            "histogram", "other categories", "a histogram of the categories of the oracle, without groups",
            "Ask table.histogram(column) for a column that is declared with the same categories.",
        ) from None  # fmt: skip
    return found
