"""The rows themselves, for whoever fits a model to them: the curator's own process, after the charge.

Nothing here adds noise. :func:`prepare` looks at names and types of columns, which are public, and can be
called before a charge; :func:`rows` reads the private rows, and belongs inside one.

>>> import pandas as pd
>>> from tacit.schema import Column, Schema
>>> schema = Schema({"age": Column("integer", bounds=(0, 120)), "name": Column("text")})
>>> rows(pd.DataFrame({"age": [41, 230, None], "name": ["A", "B", "C"]}), schema, ["age"])["age"].tolist()
[41, 120, <NA>]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from tacit.data.source import RAW, UNIT, Source, connect
from tacit.schema import Schema

__all__ = ["UNIT", "prepare", "rows"]


def prepare(source: Any, schema: Schema, columns: Iterable[str], *, delimiter: str = ",") -> Source:
    """Find these columns in a file or frame, without reading a row; the unit's column too, if there is one.

    Raises :class:`~tacit.errors.SourceMissing` if there is no such file, or a column is absent.
    """
    needed = Schema({name: schema[name] for name in columns}, schema.population, schema.unit)
    return connect(source, needed, delimiter=delimiter)


def rows(source: Any, schema: Schema, columns: Iterable[str], *, delimiter: str = ",") -> pd.DataFrame:
    """The private rows of these columns: read, parsed and clipped by what the schema declares of each value.

    PRIVATE, and not a release: it is for the process of the curator, and to be called inside the charge that
    pays for what is made of it. ``source`` is a file, a frame, or what :func:`prepare` made of one, and is
    closed afterwards. Declared categories are as stored, so that whoever looks them up can tell an
    undeclared value from a missing one. If the unit is a group, the column :data:`UNIT` tells the groups
    apart, and rows without one are left out.
    """
    names = list(columns)
    opened = source if isinstance(source, Source) else prepare(source, schema, names, delimiter=delimiter)
    try:
        table = opened.table
        stored = {name: RAW + name if RAW + name in table.columns else name for name in names}
        if UNIT in table.columns:
            stored[UNIT] = UNIT
        return opened.run(table.select(**{name: table[place] for name, place in stored.items()}))
    finally:
        opened.close()
