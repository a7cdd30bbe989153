"""Measurements, which the engine computes: every row spread over public cells, in whole steps.

All statistics here but a plain sum have one form. A row has a mass of S steps and spreads it over the
cells of a table; the engine adds the rows up; noise goes on the cells; the rest is post-processing.

=========  ==================================================  ==============================
kind       cells of a row (a, b: steps above the lower bound)  from them
=========  ==================================================  ==============================
count      1                                                   counts, histograms, tables
mean       S − a, a                                            n and Σx
square     S − 2a + p, 2(a − p), p  with p = ⌊a²/S⌋            n, Σx and Σx²
product    S − a − b + p, a − p, b − p, p  with p = ⌊ab/S⌋     n, Σx, Σy and Σxy
total      the value itself, in signed steps                   Σx
centred    2a − S                                              Σx, where n is public
=========  ==================================================  ==============================

The cells of the first four are whole, none is negative (S − 2a + p = ⌊(S−a)²/S⌋, and so on), and they
add up to S. Hence adding or removing a row moves all cells together by S in ℓ1 and at most S in ℓ2, and
replacing one by 2S and √2·S: what a histogram with S = 1 costs. Noise for several moments of a column
costs no more than noise for a single count. Groups refine the cells and change nothing.

A plain sum moves by at most the larger bound in size, or, replaced within its group, by high − low
(0 included, for a row may be missing); replaced by a row of another group it moves two cells.

A row whose value is missing has no mass. Where the unit is a person with at most k rows, a person
with c > k rows counts k/c for each: her cells are shrunk by that factor, rounding down, so that
their sum is at most kS, and the bounds above hold with k in front.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np
from numpy.typing import NDArray

from tacit.data.cleaning.expressions import total
from tacit.data.source import UNIT, PrivateSource
from tacit.relations import Relation, Unit, histogram_sensitivity, sum_sensitivity
from tacit.tables.cells.axes import Axis
from tacit.tables.cells.values import Value

__all__ = ["Block", "Measurement", "measure", "weight"]

FRACTIONS = 2**26
"""Steps of a count that can be shared between groups, where the unit is a person."""

ROUNDED_DOWN = 1 - 2.0**-40
"""Covers the rounding of k/c and of a product in float64, so that shrinking never rounds up."""

Cells = NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """The contribution of each row: a kind of cells, the values they are made of, and which rows count."""

    kind: str
    values: tuple[Value, ...] = ()
    where: Any = field(default=None, compare=False)

    def parts(self, steps: Sequence[ir.IntegerValue]) -> list[ir.IntegerValue]:
        """The terms that the engine sums, from the steps of a row's values; all NULL where one is missing."""
        if self.kind in ("count", "mean", "total"):
            return list(steps)
        first, second = steps[0], steps[-1]
        if self.kind == "centred":
            return [first * 2 - self.mass_per_row]
        mass = float(self.mass_per_row)
        product = (first.cast("float64") * second.cast("float64") / mass).floor().cast("int64")
        if self.kind == "square":
            return [first, product]
        both = first.notnull() & second.notnull()
        return [*(ibis.ifelse(both, step, ibis.null("int64")) for step in (first, second)), product]

    def cells(self, parts: Sequence[Any]) -> list[Any]:
        """The cells other than the rest, from sums of the parts: numbers or expressions."""
        if self.kind == "square":
            return [(parts[0] - parts[1]) * 2, parts[1]]
        if self.kind == "product":
            return [parts[0] - parts[2], parts[1] - parts[2], parts[2]]
        return list(parts)

    @property
    def mass_per_row(self) -> int:
        """S: 1 for a count, else the width of the scale."""
        return self.values[0].scale.width if self.values else 1

    @property
    def summed(self) -> int:
        """How many parts the engine sums up."""
        return {"count": 0, "square": 2, "product": 3}.get(self.kind, 1)

    @property
    def signed(self) -> bool:
        """Whether the block is one sum, of either sign, rather than shares of a mass."""
        return self.kind in ("total", "centred")


@dataclass(frozen=True)
class Measurement:
    """A block on axes: an array of the axes' sizes with one more dimension for the cells of the block."""

    block: Block
    axes: tuple[Axis, ...] = ()

    def mass(self, unit: Unit) -> int:
        """S, the mass of one row in steps."""
        shared = self.block.kind == "count" and unit.column is not None and self.axes
        return FRACTIONS if shared else self.block.mass_per_row

    def sensitivity(self, relation: Relation, unit: Unit, norm: int) -> float:
        """How far one unit can move all cells together, in steps, in the ℓ1 or ℓ2 norm."""
        if self.block.signed:
            scale = self.block.values[0].scale
            if self.block.kind == "centred":
                low, high = -scale.width, scale.width
            else:
                low, high = (math.floor(bound / scale.step + 0.5) for bound in (scale.lower, scale.upper))
            low, high = min(low, 0), max(high, 0)
            same_group = sum_sensitivity(low, high, relation)
            if self.axes and relation is Relation.REPLACE_ONE:
                other_group = max(-low, high) * histogram_sensitivity(relation, norm)
                return unit.rows * max(same_group, other_group)
            return unit.rows * same_group
        if math.prod(self.shape) == 1:
            return unit.rows * self.mass(unit) * sum_sensitivity(0, 1, relation)
        return unit.rows * self.mass(unit) * histogram_sensitivity(relation, norm)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result: one number per cell."""
        cells = self.block.summed + (0 if self.block.signed else 1)
        return (*(axis.size for axis in self.axes), cells)


def measure(
    source: PrivateSource, table: ir.Table, unit: Unit, measurements: Sequence[Measurement]
) -> list[Cells]:
    """The exact cells of all measurements, those on the same axes in one query."""
    results: list[Cells | None] = [None] * len(measurements)
    for axes in dict.fromkeys(measurement.axes for measurement in measurements):
        members = [i for i, measurement in enumerate(measurements) if measurement.axes == axes]
        blocks = [measurements[i].block for i in members]
        answers = (_rows if unit.column is None else _people)(source, table, unit, axes, blocks)
        for i, cells in zip(members, answers, strict=True):
            results[i] = cells
    return [cells for cells in results if cells is not None]


def _prepared(
    source: PrivateSource, table: ir.Table, axes: Sequence[Axis], blocks: Sequence[Block]
) -> ir.Table:
    """Row by row: the keys, and the parts of each block as ``c<block>_<part>``.

    In two steps, so that the engine computes the steps of a value once, however often they are used.
    """
    columns: dict[str, ir.Value] = {f"key{i}": axis.key(source, table) for i, axis in enumerate(axes)}
    if UNIT in table.columns:
        columns[UNIT] = source.unit(table)
    names: dict[Any, str] = {}
    for i, block in enumerate(blocks):
        if block.where is not None:
            columns[f"kept{i}"] = block.where
        for value in block.values:
            if (block.kind == "total", value) not in names:
                name = names[block.kind == "total", value] = f"steps{len(names)}"
                columns[name] = value.signed_steps(table) if block.kind == "total" else value.steps(table)
    first = table.select(**(columns or {"row": ibis.literal(1, "int8")}))
    parts: dict[str, ir.Value] = {}
    for i, block in enumerate(blocks):
        made = block.parts([first[names[block.kind == "total", value]] for value in block.values])
        for j, part in enumerate(made or [ibis.literal(1, "int64")]):
            kept = part if block.where is None else ibis.ifelse(first[f"kept{i}"], part, ibis.null("int64"))
            parts[f"c{i}_{j}"] = kept
    return first.select(*(name for name in columns if name.startswith("key") or name == UNIT), **parts)


def _sums(
    rows: ir.Table, blocks: Sequence[Block], add: Callable[[ir.IntegerValue], ir.IntegerScalar] = total
) -> dict[str, ir.IntegerValue]:
    """For each block, how many rows count and the sum of each of its parts."""
    sums: dict[str, ir.IntegerValue] = {}
    for i, block in enumerate(blocks):
        whole = block.kind == "count" and block.where is None
        sums[f"n{i}"] = rows.count() if whole else rows[f"c{i}_0"].count()
        for j in range(block.summed):
            sums[f"c{i}_{j}"] = add(rows[f"c{i}_{j}"])
    return sums


def _inner_total(value: ir.IntegerValue) -> ir.IntegerScalar:
    """The exact sum as the engine has it, for use inside a query; to narrow it costs as much as the sum."""
    return value.sum().fill_null(0)


def _rows(
    source: PrivateSource, table: ir.Table, unit: Unit, axes: tuple[Axis, ...], blocks: Sequence[Block]
) -> Iterator[Cells]:
    """Cells of rows: every row counts in full."""
    rows = _prepared(source, table, axes, blocks)
    grouped = rows.group_by([f"key{i}" for i in range(len(axes))]) if axes else rows
    found = _Found(source, grouped.aggregate(**_sums(rows, blocks)), axes)
    for i, block in enumerate(blocks):
        parts = [found.cells(f"c{i}_{j}") for j in range(block.summed)]
        if block.signed:
            yield np.stack(parts, axis=-1)
            continue
        cells = block.cells(parts)
        yield np.stack([block.mass_per_row * found.cells(f"n{i}") - sum(cells), *cells], axis=-1)


def _people(
    source: PrivateSource, table: ir.Table, unit: Unit, axes: tuple[Axis, ...], blocks: Sequence[Block]
) -> Iterator[Cells]:
    """Cells of people: those with more than ``unit.rows`` rows are shrunk to that."""
    keys = [f"key{i}" for i in range(len(axes))]
    rows = _prepared(source, table, axes, blocks)
    if axes and source.steady and all(block.kind == "count" and block.where is None for block in blocks):
        sums = _counts_of_people(rows, keys, unit, blocks)
    else:
        sums = _sums_of_people(rows, keys, unit, blocks)
    found = _Found(source, sums, axes)
    for i, block in enumerate(blocks):
        cells = 1 if block.signed else block.summed + 1
        yield np.stack([found.cells(f"s{i}_{j}") for j in range(cells)], axis=-1)


def _counts_of_people(rows: ir.Table, keys: Sequence[str], unit: Unit, blocks: Sequence[Block]) -> ir.Table:
    """As :func:`_sums_of_people`, several times faster, where the table may be read twice."""
    each = rows.group_by(UNIT).aggregate(all=rows.count())
    each = each.select(person=each[UNIT], weight=weight(each["all"], unit.rows))
    joined = rows.inner_join(each, rows[UNIT] == each.person)
    return joined.group_by(keys).aggregate(**{f"s{i}_0": total(joined.weight) for i in range(len(blocks))})


def _sums_of_people(rows: ir.Table, keys: Sequence[str], unit: Unit, blocks: Sequence[Block]) -> ir.Table:
    each = rows.group_by([UNIT, *keys]).aggregate(**_sums(rows, blocks, _inner_total))
    if keys:
        each = each.mutate(
            **{f"all{i}": each[f"n{i}"].sum().over(group_by=UNIT).cast("int64") for i in range(len(blocks))}
        )
    sums = {}
    for i, block in enumerate(blocks):
        number = each[f"all{i}"] if keys else each[f"n{i}"]
        for j, cell in enumerate(_cells_of_person(each, i, block)):
            sums[f"s{i}_{j}"] = total(_shrunk(cell, number, unit.rows, block, shared=bool(keys)))
    return (each.group_by(keys) if keys else each).aggregate(**sums)


def _cells_of_person(each: ir.Table, i: int, block: Block) -> list[ir.IntegerValue]:
    if block.signed:
        return [each[f"c{i}_0"]]
    cells = block.cells([each[f"c{i}_{j}"] for j in range(block.summed)])
    rest = each[f"n{i}"] * block.mass_per_row
    for cell in cells:
        rest = rest - cell
    return [rest, *cells]


def _shrunk(
    cell: ir.IntegerValue, rows: ir.IntegerValue, most: int, block: Block, *, shared: bool
) -> ir.IntegerValue:
    """The cell of a person with ``rows`` rows, as if she had at most ``most``; towards zero."""
    if block.kind == "count":
        return cell * weight(rows, most) if shared else ibis.ifelse(rows > most, _whole(most), cell)
    share = cell.abs().cast("float64") * float(most) / rows.nullif(0).cast("float64") * ROUNDED_DOWN
    smaller = share.floor().cast("int64")
    if block.signed:
        smaller = ibis.ifelse(cell < 0, -smaller, smaller)
    return ibis.ifelse(rows > most, smaller, cell)


def weight(rows: ir.IntegerValue, most: int) -> ir.IntegerValue:
    """The weight of each row of a person with ``rows`` rows, in fractions of one: at most most/rows."""
    share = float(most * FRACTIONS) / rows.nullif(0).cast("float64") * ROUNDED_DOWN
    return ibis.ifelse(rows > most, share.floor().cast("int64"), _whole(FRACTIONS))


def _whole(number: int) -> ir.IntegerScalar:
    return ibis.literal(number, "int64")


class _Found:
    """The grouped result of a query, to be laid out on the axes; keys that are not public fall away."""

    def __init__(self, source: PrivateSource, query: ir.Table, axes: tuple[Axis, ...]) -> None:
        self.frame = source.run(query)
        self.shape = tuple(axis.size for axis in axes)
        places = [axis.index(source, self.frame[f"key{i}"]) for i, axis in enumerate(axes)]
        self.known = np.ones(len(self.frame), dtype=bool)
        for place, size in zip(places, self.shape, strict=True):
            self.known &= (place >= 0) & (place < size)
        self.places = tuple(place[self.known] for place in places)

    def cells(self, name: str) -> Cells:
        """One sum, laid out on the axes; zero where the engine found no row."""
        numbers = self.frame[name].fillna(0).to_numpy(dtype=np.int64)[self.known]
        if not self.shape:
            return np.array(numbers.sum(), dtype=np.int64)
        laid_out = np.zeros(self.shape, dtype=np.int64)
        np.add.at(laid_out, self.places, numbers)
        return laid_out
