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
from typing import TYPE_CHECKING, Any

import pandas as pd

from tacit.data.source import RAW, UNIT, PrivateSource, connect
from tacit.data.splitting import Side, keyed_hash
from tacit.schema import Schema

if TYPE_CHECKING:
    import ibis.expr.types as ir

__all__ = ["UNIT", "chosen_rows", "is_whole", "prepare", "private_rows"]


_RANK = "__rank__"
_HASH = "__hash__"


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
        stored = as_stored(table, names)
        if UNIT in table.columns:
            stored[UNIT] = table[UNIT]
        return opened.run(table.select(**stored))
    finally:
        opened.close()


def as_stored(table: ir.Table, names: Iterable[str]) -> dict[str, ir.Value]:
    """These columns of a cleaned table, declared categories as they are stored."""
    return {name: table[RAW + name if RAW + name in table.columns else name] for name in names}


def is_whole(table: ir.Table) -> bool:
    """Whether no condition leaves rows out, by the plan of the table and without reading a row."""
    import ibis.expr.operations as ops

    return not table.op().find(ops.Filter)


def chosen_rows(
    source: PrivateSource, table: ir.Table, columns: Iterable[str], most: int | None, key: str
) -> ir.Table:
    """These columns of a cleaned table, of at most ``most`` rows of each unit; of all rows if that is None.

    The rows of a unit are ranked by a hash of their columns with a secret ``key``, and the first are taken.
    So which rows of a unit count depends on that unit's rows, on the key and on nothing else, and is the same
    in every query with that key. Rows of a unit with equal columns have equal hashes, and which of them is
    taken makes no difference. The rows come in the order of their hashes, so that every query with that key
    gives the same rows in the same order, whatever the threads of the engine do.

    >>> import pandas as pd
    >>> from tacit.relations import Unit
    >>> from tacit.schema import Column
    >>> schema = Schema({"age": Column("integer", bounds=(0, 120))}, unit=Unit("who"))
    >>> source = prepare(pd.DataFrame({"age": [41, 42, 43], "who": ["A", "B", "A"]}), schema, ["age"])
    >>> len(source.run(chosen_rows(source, source.table, ["age"], 1, "secret")))
    2
    >>> source.close()
    """
    import ibis

    stored = as_stored(table, columns)
    if most is None:
        return table.select(**stored)
    rows = table.select(**stored, **{UNIT: source.unit(table)}).view()
    hashed = rows.mutate(**{_HASH: keyed_hash(key, [rows[name] for name in stored])}).view()
    ranked = hashed.mutate(**{
        _RANK: ibis.row_number().over(group_by=hashed[UNIT], order_by=hashed[_HASH])
    }).view()  # fmt: skip
    return ranked.filter(ranked[_RANK] < most).order_by(_HASH).select(*stored)
