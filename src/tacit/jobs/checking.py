"""How well a file keeps to its schema: exactly, for the curator. The question ``check()`` is private."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.schema import Schema

__all__ = ["Checked", "curator_check"]


@dataclass(frozen=True)
class Checked:
    """Exact numbers of rows. PRIVATE: for the curator's eyes, to be neither stored nor published."""

    rows: int
    """How many rows were read."""
    columns: Mapping[str, Sequence[int]]
    """Of each column, how many values are missing, outside of bounds or categories, and not of the type."""
    not_text: int
    """How many lines of CSV files are not text in the declared encoding."""
    too_short: int
    """How many of them have fewer values than there are names. Both kinds are left out of every answer."""


def curator_check(
    source: str | os.PathLike[str], schema: Schema | str | os.PathLike[str], *, delimiter: str | None = None
) -> Checked:
    """Count what does not fit the schema, exactly. NOT PRIVATE, and no release: nothing is charged or stored.

    For the curator, before anything is spent: a column that is read wrongly would cost its ε for nothing.
    Whoever may not see the rows may not see these numbers; for them there is ``tables.Table.check``.
    """
    from tacit.data.files import is_csv, paths_of
    from tacit.data.headers import odd_lines
    from tacit.data.source import connect
    from tacit.data.states import counted
    from tacit.relations import Unit
    from tacit.schema import Column, Schema

    known = Schema.of(schema)
    whom = known.unit.column
    if whom is not None and whom not in known.columns:
        known = known.with_column(whom, Column("text"))
    if delimiter is not None:
        known = replace(known, csv=replace(known.csv, delimiter=delimiter))
    opened = connect(source, replace(known, unit=Unit()))
    try:
        cells = counted(opened, list(known))
    finally:
        opened.close()
    texts = [path for path in paths_of(source) or () if is_csv(path)]
    odd = [odd_lines(path, known.csv) for path in texts]
    columns = {name: tuple(map(int, line[1:])) for name, line in zip(known, cells, strict=True)}
    return Checked(int(cells[0].sum()), columns, sum(bad for bad, _ in odd), sum(short for _, short in odd))
