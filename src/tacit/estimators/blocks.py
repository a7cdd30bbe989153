"""The private rows of a fit: all of them in memory, or those of a table, block by block.

An estimator that needs only sums and counts asks for them with ``rows.each(function)``: the function makes
something of one block, and what it made of all blocks is added up (:func:`added`). In memory there is one
block, which holds all rows. The rows of a table are a query: every pass runs it again, the engine cleans the
values row by row, and a block of :data:`~tacit.data.engine.results.BLOCK_ROWS` rows is in memory at a time;
beside it what was made of all blocks, up to :data:`KEPT_BYTES`.

A row of a table has the same features as in memory, for the :class:`~tacit.data.preprocessor.Preprocessor`
makes them from that row alone, as a synthesizer does its cells. So a sum over blocks is the sum over all
rows: exactly, where the summands are whole numbers or multiples of a power of two (counts, and numbers on a
grid), however the blocks are cut; up to rounding, where they are any floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit.randomness import Source
from tacit.relations import Unit

if TYPE_CHECKING:
    from tacit.data.preprocessor import Preprocessor
    from tacit.data.source import PrivateSource

__all__ = ["PrivateRows", "Rows", "TableRows", "added"]

T = TypeVar("T")

KEPT_BYTES = 1 << 26
"""What a pass over a table makes of its blocks is kept up to this size; else every pass makes it anew."""


class Rows(Protocol):
    """The private rows of a fit, inside the charge. They must not be kept on the estimator."""

    def each(self, made: Callable[[PrivateRows], T], *, keep: bool = False) -> Iterable[T]:
        """What ``made`` makes of each block; every iteration over it is a pass over the rows.

        With ``keep`` the results are kept, and the rows are read once: for results that are far smaller than
        the rows, of a model that needs very many passes.
        """

    @property
    def used(self) -> int:
        """How many rows count: private."""

    @property
    def whole(self) -> bool:
        """Whether no condition leaves rows out: public."""


def added(parts: Iterable[T]) -> T:
    """The sum of what was made of each block."""
    return reduce(add, parts)


@dataclass(frozen=True)
class PrivateRows:
    """Rows in memory: one block, or all rows of a fit, which are one block then."""

    matrix: NDArray[Any]
    """Numbers (rows, features), NaN for what is no number."""
    targets: NDArray[Any] | None
    """One per row; None where there are none."""
    keep: NDArray[np.bool_] | None
    """The rows that count, so that no unit has too many; None where all do."""
    weights: NDArray[Any] | None = None
    """How much each row is to count, as it was handed over; None where no weights were."""
    units: NDArray[Any] | None = None
    """The unit of each row; None where a row is one."""

    def part(self, chosen: NDArray[np.bool_]) -> PrivateRows:
        """The rows that were chosen, with all that belongs to them."""
        return replace(self, **{name: each[chosen] for name, each in vars(self).items() if each is not None})

    def each(self, made: Callable[[PrivateRows], T], *, keep: bool = False) -> Iterable[T]:
        """What ``made`` makes of the rows, which are one block: it is made once."""
        return [made(self)]

    @property
    def nbytes(self) -> int:
        """The memory that the rows take."""
        return sum(each.nbytes for each in vars(self).values() if each is not None)

    @property
    def used(self) -> int:
        """How many rows count: private."""
        return len(self.matrix) if self.keep is None else int(self.keep.sum())

    @property
    def whole(self) -> bool:
        """True: rows in memory are those that were handed over."""
        return True


@dataclass(frozen=True)
class TableRows:
    """The rows of a cleaned table on an engine, with what ``block`` makes of them."""

    source: PrivateSource
    table: Any
    """:attr:`PrivateSource.table`, an Ibis table, or a filter or a side of a split of it."""
    columns: Sequence[str]
    """The columns that are read."""
    block: Callable[[Any], PrivateRows]
    """Makes the rows of a pandas frame of these columns, each from that row alone."""
    named: Mapping[str, Any] = field(default_factory=dict)
    """What the fitted estimator says of its features, beside their number."""
    chosen: Any = None
    """The query for these columns of the rows that count; None until :meth:`bounded` has chosen them."""

    @classmethod
    def prepared(cls, source: PrivateSource, table: Any, maker: Preprocessor) -> Self:
        """The rows with the features, and the target where there is one, that ``maker`` makes."""

        def block(frame: Any) -> PrivateRows:
            targets = None if maker.target is None else maker.target_values(frame)
            return PrivateRows(np.asarray(maker.transform(frame)), targets, None)

        names = [*maker.columns, *([] if maker.target is None else [maker.target])]
        return cls(source, table, names, block)

    def bounded(self, unit: Unit, draw: Source) -> Self:
        """The same with at most ``unit.rows`` rows of each unit.

        See :func:`tacit.data.reading.chosen_rows`. The key is drawn once for all passes of a fit.
        """
        from tacit.data.reading import chosen_rows

        most = None if unit.column is None else unit.rows
        key = draw.words(32, np.uint8).tobytes().hex()
        return replace(self, chosen=chosen_rows(self.source, self.table, self.columns, most, key))

    def each(self, made: Callable[[PrivateRows], T], *, keep: bool = False) -> Iterable[T]:
        """What ``made`` makes of each block; without ``keep``, an iteration runs the query again."""
        passes = _Passes(self, made)
        return list(passes) if keep else passes

    @property
    def used(self) -> int:
        """How many rows count, by a query of its own: private."""
        found = self.source.run(self._query.aggregate(rows=self._query.count()))
        return int(found["rows"].iloc[0])

    @property
    def whole(self) -> bool:
        """Whether no condition leaves rows out, of this view or of the Ibis table below it: public."""
        from tacit.data.reading import is_whole

        return is_whole(self.table)

    @property
    def _query(self) -> Any:
        if self.chosen is None:
            raise RuntimeError("The rows of each unit have to be bounded first.")
        return self.chosen

    def blocks(self) -> Iterator[PrivateRows]:
        """One pass over the rows."""
        return map(self.block, self.source.blocks(self._query))


class _Passes(Iterable[T]):
    """Passes over the blocks of a table; if all that the first one made is small, later ones go over that."""

    def __init__(self, rows: TableRows, made: Callable[[PrivateRows], T]) -> None:
        self._rows, self._made = rows, made
        self._kept: list[T] | None = None
        self._large = False

    def __iter__(self) -> Iterator[T]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[T] = []
        size = 0.0
        for block in self._rows.blocks():
            found = self._made(block)
            if not self._large:
                kept.append(found)
                size += _bytes(found)
            if size > KEPT_BYTES:
                self._large, kept = True, []
            yield found
        if not self._large:
            self._kept = kept


def _bytes(made: Any) -> float:
    """The memory that a result takes; without end for one of a kind that does not tell."""
    if isinstance(made, (tuple, list)):
        return sum(map(_bytes, made))
    return float(getattr(made, "nbytes", math.inf))
