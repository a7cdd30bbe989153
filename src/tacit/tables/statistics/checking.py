"""How well a table keeps to its schema: noisy counts of the states of every column, and their shares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ibis.expr.types as ir
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tacit.data.cleaning.expressions import total
from tacit.data.source import STATE, UNIT, PrivateSource
from tacit.data.states import STATES, laid_out, possible, sums_of_states
from tacit.relations import Relation, Unit, histogram_sensitivity
from tacit.schema import Schema
from tacit.tables.cells.measure import FRACTIONS, Block, Measurement, weight
from tacit.tables.cells.noise import Context, Share
from tacit.tables.statistics.contrasts import Law, reach_of_sums
from tacit.tables.statistics.statistic import CellStatistic, Expected, NoisyCells

__all__ = ["Checked", "check"]

Array = NDArray[Any]


@dataclass(frozen=True)
class StateCells(Measurement):
    """How many rows are in each state of each column. Each row is in one state of every column.

    Adding or removing a row moves one count of each of the d columns by 1: d in ℓ1, √d in ℓ2. Replacing it
    moves up to two counts of each: 2d and √(2d). A person with at most k rows, or more that are shrunk to
    k, moves the counts of a column by at most k in all, and so k times as much.
    """

    columns: int = 1

    def mass(self, unit: Unit) -> int:
        return 1 if unit.column is None else FRACTIONS

    def sensitivity(self, relation: Relation, unit: Unit, norm: int) -> float:
        one = unit.rows * self.mass(unit) * histogram_sensitivity(relation, norm)
        return one * self.columns if norm == 1 else one * math.sqrt(self.columns) * (1 + 2.0**-48)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.columns, len(STATES)


@dataclass(frozen=True)
class Checked(CellStatistic):
    """The shares of each state but the first, by column, from one query over all columns."""

    names: tuple[str, ...] = ()
    where: Any = field(default=None, compare=False)

    def measurements(self) -> Sequence[Measurement]:
        return ()

    def read(self, source: PrivateSource, table: ir.Table, context: Context) -> Sequence[Any]:
        kept = table if self.where is None else table.filter(self.where)
        if context.unit.column is None:
            found = source.run(kept.aggregate(**sums_of_states(kept, self.names)))
        else:
            found = source.run(self._of_people(source, kept, context.unit))
        return [laid_out(found)]

    def _of_people(self, source: PrivateSource, table: ir.Table, unit: Unit) -> ir.Table:
        """Sums in fractions of a row: each row of a person with c > k rows counts k/c, rounded down."""
        columns = {STATE + name: table[STATE + name] for name in self.names}
        rows = table.select(**{UNIT: source.unit(table)}, **columns).view()
        each = rows.group_by(UNIT).aggregate(**sums_of_states(rows, self.names)).view()
        shared = weight(each["n"], unit.rows)
        return each.aggregate(**{name: total(each[name] * shared) for name in each.columns if name != UNIT})

    def with_noise(self, share: Share, context: Context) -> NoisyCheck:
        bought = super().with_noise(share, context)
        return NoisyCheck(self, bought.noises, whole=False)


@dataclass(frozen=True)
class NoisyCheck(NoisyCells):
    """The counts with noise, and the shares made of them."""

    def expected(self, population: int | None) -> Expected:
        error, note = super().expected(population)
        return error, note if error is None else f"of a share, among {population} rows"


def check(schema: Schema, names: tuple[str, ...], where: Any) -> Checked:
    """The shares of values in each state.

    Of how many rows, all columns say: each row is in one state of each of them. Their mean has less noise.
    """
    may = np.array([possible(schema[name]) for name in names])
    mass = 1 if schema.unit.column is None else FRACTIONS
    many = len(names)

    def rows_of(cells: Array) -> float:
        return float(np.where(may, cells, 0).sum()) / mass / many

    def estimate(parts: Sequence[Array]) -> Array:
        (cells,) = parts
        shares = np.clip(cells / mass / max(rows_of(cells), 1.0), 0.0, 1.0)
        return np.where(may, shares, 0.0)[..., 1:]

    def enclosed(parts: Sequence[Array], laws: Sequence[Law], miss: float) -> tuple[Array, Array]:
        (cells,), (law,) = parts, laws
        of_cell = reach_of_sums([(law, 1.0, 1)], miss / 2) / mass
        of_rows = reach_of_sums([(law, 1.0 / many, int(may.sum()))], miss / 2) / mass
        rows, counts = rows_of(cells), cells / mass
        low = np.maximum(counts - of_cell, 0.0) / max(rows + of_rows, 1.0)
        high = (counts + of_cell) / (rows - of_rows) if rows - of_rows > 0 else np.ones_like(counts)
        low, high = (np.where(may, np.clip(ends, 0.0, 1.0), 0.0)[..., 1:] for ends in (low, high))
        return low, high

    def typical(rows: float) -> Sequence[Array]:
        cells = np.zeros((many, len(STATES)))
        cells[:, 0] = rows * mass
        return [cells]

    def show(values: Array) -> pd.DataFrame:
        index = pd.Index(names, name="column")
        return pd.DataFrame(values, index=index, columns=pd.Index(STATES[1:], name="values"))

    return Checked(
        (StateCells(Block("count"), (), many),),
        estimate,
        show,
        enclosed=enclosed,
        numbers=int(may[:, 1:].sum()),
        typical=typical,
        names=names,
        where=where,
    )
