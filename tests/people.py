"""A small schema of people, and what the rows of a source become behind a schema."""

from __future__ import annotations

import datetime
from typing import Any

import pandas as pd

from tacit.data.source import connect
from tacit.schema import Column, Schema

DAY = datetime.date(2020, 1, 2)
PEOPLE = Schema(
    {
        "age": Column("integer", bounds=(0, 120)),
        "sex": Column("category", categories=("F", "M"), other="o"),
        "seen": Column("date"),
    }
)
AGE = Schema({"age": Column("integer", bounds=(0, 120))})


def rows(source: Any, schema: Schema = PEOPLE, **options: Any) -> list[tuple[Any, ...]]:
    """The declared columns of all rows, None for what is missing."""
    opened = connect(source, schema, **options)
    frame = opened.run(opened.table.select(*schema))
    opened.close()
    found = frame.itertuples(index=False)
    return [tuple(None if pd.isna(value) else value for value in row) for row in found]


def column(values: Any, declared: Column, **options: Any) -> list[Any]:
    return [value for (value,) in rows(pd.DataFrame({"x": values}), Schema({"x": declared}), **options)]
