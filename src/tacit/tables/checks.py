"""Check: the question how well a table keeps to its schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tacit.tables.language.kinds import COLUMNS, argument
from tacit.tables.language.question import Question, column_names

__all__ = ["Check"]


@dataclass(frozen=True)
class Check(Question):
    """The shares of values that are missing, outside of bounds or categories, or not of the type, by column.

    ``columns`` are those to look at, all that the schema declares if left out. The fewer they are, the less
    noise there is.

    Relation: that of the ledger, of one unit.
    Sensitivity: a row is in one of four states (fine, missing, outside, not of the type) of each of d
    columns. So it moves d counts by 1 each: d in ℓ1 and √d in ℓ2, replaced 2d and √(2d). A person moves k
    times as much. The number of rows, which the shares are of, is read off the same counts.
    Event: one for all columns: Pure(ε); with δ > 0, ZeroConcentrated(ρ).
    Method: discrete Laplace or discrete Gaussian noise on every count (Dwork, McSherry, Nissim, Smith 2006);
    intervals allow for the noise of both parts of a ratio.
    """

    columns: Sequence[str] | None = argument(COLUMNS, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns is not None:
            self._keep("columns", column_names(self.columns))
