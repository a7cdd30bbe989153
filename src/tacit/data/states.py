"""States: how far each stored value is what its column declares.

A value is fine, missing, outside (its bounds, or its categories) or not of the type: then it is there, and
the rule of cleaning (:mod:`tacit.data.cleaning.rule`) cannot read it. Every row is in one state of every
column (:func:`tacit.data.cleaning.expressions.state`). The cleaned table has the state of each column beside
it, as a whole number from 0 to 3; queries that do not ask for it do not compute it.

Nothing here adds noise: :func:`counted` is for the curator alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import ibis.expr.types as ir
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tacit.data.cleaning.rule import coded
from tacit.data.source import STATE, PrivateSource
from tacit.schema import Column

__all__ = ["STATES", "counted", "laid_out", "possible", "sums_of_states"]

STATES = ("fine", "missing", "outside", "not of the type")
"""In this order."""


def possible(column: Column) -> tuple[bool, ...]:
    """Which states a value of the column may be in, by its declaration."""
    limited = coded(column) or column.bounds is not None
    return True, True, limited, True


def sums_of_states(table: ir.Table, names: Sequence[str]) -> dict[str, ir.IntegerScalar]:
    """How many rows there are, ``n``, and how many are in each state but the first: ``c<column>_<state>``."""
    sums = {"n": table.count()}
    for place, name in enumerate(names):
        for number in range(1, len(STATES)):
            sums[f"c{place}_{number}"] = (table[STATE + name] == number).cast("int64").sum().fill_null(0)
    return sums


def counted(source: PrivateSource, names: Sequence[str]) -> NDArray[np.int64]:
    """The exact number of rows in each state of each column, one line for a column. PRIVATE."""
    return laid_out(source.run(source.table.aggregate(**sums_of_states(source.table, names))))


def laid_out(sums: pd.DataFrame) -> NDArray[np.int64]:
    """What :func:`sums_of_states` found, one line for a column, one place for a state."""
    found = sums.fillna(0).iloc[0].astype("int64")
    others = found.drop("n").to_numpy(dtype=np.int64).reshape(-1, len(STATES) - 1)
    return np.column_stack([int(found["n"]) - others.sum(axis=1), others])
