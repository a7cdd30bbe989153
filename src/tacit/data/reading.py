"""Reading private rows into memory, for whoever fits a model to them: the curator's own process.

Nothing here adds noise. :func:`prepare` looks at names and types of columns, which are public, and may be
called before a charge; :func:`private_rows` reads the rows, and belongs inside the charge.

>>> import pandas as pd
>>> from tacit.schema import Column, Schema
>>> schema = Schema({"age": Column("integer", bounds=(0, 120)), "name": Column("text")})
>>> people = pd.DataFrame({"age": [41, 230, None], "name": ["A", "B", "C"]})
>>> private_rows(people, schema, ["age"])["age"].tolist()
[41, 120, <NA>]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pandas as pd

from tacit.data.source import RAW, UNIT, PrivateSource, connect
from tacit.data.splitting import Side
from tacit.schema import Schema

__all__ = ["UNIT", "prepare", "private_rows"]


def prepare(
    source: Any, schema: Schema, columns: Iterable[str], *, delimiter: str | None = None
) -> PrivateSource:
    """Find these columns in a file or frame, without reading a row; the unit's column too, if there is one.

    Raises :class:`~tacit.errors.SourceMissing` if there is no such file, or a column is absent.
    """
    needed = replace(schema, columns={name: schema[name] for name in columns})
    return connect(source, needed, delimiter=delimiter)


def private_rows(
    source: Any,
    schema: Schema,
    columns: Iterable[str],
    *,
    delimiter: str | None = None,
    side: Side | None = None,
) -> pd.DataFrame:
    """The private rows of these columns: each value read and clipped as the schema declares.

    PRIVATE, and not a release: call it in the process of the curator, inside the charge that pays for what is
    made of the rows. ``source`` is a file, a frame, or the result of :func:`prepare`; it is closed then.
    Declared categories are as stored, so that whoever looks them up can tell an undeclared value from a
    missing one. If the schema names a unit, the column :data:`UNIT` holds the unit of each row, and rows
    without one are left out. ``side`` is the part of the rows that is read, of a split
    (:mod:`tacit.data.splitting`), for which the source has to be prepared with all columns that are hashed.
    """
    names = list(columns)
    opened = source
    if not isinstance(source, PrivateSource):
        opened = prepare(source, schema, names, delimiter=delimiter)
    try:
        table = opened.table if side is None else side.of(opened)
        stored = {name: RAW + name if RAW + name in table.columns else name for name in names}
        if UNIT in table.columns:
            stored[UNIT] = UNIT
        return opened.run(table.select(**{name: table[place] for name, place in stored.items()}))
    finally:
        opened.close()
