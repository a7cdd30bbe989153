"""Forms that questions have in common: of one column or several, by group, with an interval of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.tables.language.kinds import BOUNDS, COLUMN, COLUMNS, CONFIDENCE, argument, plain
from tacit.tables.language.question import Question, column_names

__all__ = ["By", "Chosen", "Grouped", "Limits", "OfColumn", "OfColumns", "OfPairs", "Where"]

By: TypeAlias = str | Sequence[str] | None
Limits: TypeAlias = Any
"""None, a pair (low, high), or "dp"; of several columns also a mapping of them to pairs."""
Where: TypeAlias = Any
"""None, the text of a condition, or an Ibis expression of one row."""


@dataclass(frozen=True, kw_only=True)
class Grouped(Question):
    """A question that may be answered for each group: each combination of the public keys of columns."""

    by: By = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("by", () if self.by is None or self.by == () else column_names(self.by))

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(self.by or ())


@dataclass(frozen=True)
class OfColumn(Grouped):
    """A question about the values of one column, within bounds."""

    column: str = argument(COLUMN)
    bounds: Limits = argument(BOUNDS, default=None, kw_only=True)  # noqa: RUF009

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("bounds", plain(self.bounds))


@dataclass(frozen=True)
class OfColumns(Question):
    """A question about several columns together."""

    columns: Sequence[str] = argument(COLUMNS)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("columns", column_names(self.columns))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.columns)


@dataclass(frozen=True)
class Chosen(OfColumn):
    """A question that is answered by choosing among values, with an interval that is bought beside it."""

    confidence: float | None = argument(CONFIDENCE, default=0.95, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.confidence is not None:
            self._keep("confidence", _validate.open_probability("confidence", self.confidence))

    @property
    def fractions(self) -> tuple[float, ...]:
        """The fractions of rows below the values."""
        return (0.5,)

    @property
    def scalar(self) -> bool:
        """Whether a single value was asked for, rather than a list of them."""
        return True


@dataclass(frozen=True)
class OfPairs(OfColumns):
    """A question about each pair of columns, within bounds."""

    bounds: Limits = argument(BOUNDS, default=None, kw_only=True)  # noqa: RUF009

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.names) < 2:
            raise InvalidValue(
                "columns", self.columns, "at least two", "For a single column there is variance()."
            )
        self._keep("bounds", plain(self.bounds))
