"""Tables that are made, not read: columns of generated values as a frame, and the frame as a file.

>>> import numpy as np
>>> from tacit.schema import Column, Schema
>>> schema = Schema({"age": Column("integer", bounds=(0, 120)),
...                  "born": Column("date", bounds=("1900-01-01", "2020-12-31"))})
>>> made_frame({"age": np.array([41.0, np.nan]), "born": np.array([0.0, 10957.0])}, schema)
    age        born
0    41  1970-01-01
1  <NA>  2000-01-01
"""

from __future__ import annotations

import datetime
import io
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tacit._dialect import Dialect
from tacit._writing import write
from tacit.schema import Column, Schema

__all__ = ["made_frame", "write_frame"]

_EPOCH = datetime.date(1970, 1, 1).toordinal()


def made_frame(columns: Mapping[str, NDArray[Any]], schema: Schema) -> pd.DataFrame:
    """Generated columns as a frame, each in the type that its declaration has; None and NaN are missing.

    Dates are days since 1970. Integers are ``Int64`` and truth values ``boolean``, which can be missing.
    """
    return pd.DataFrame({name: _series(values, schema[name]) for name, values in columns.items()})


def _series(values: NDArray[Any], column: Column) -> pd.Series[Any]:
    if column.type == "date":
        days = values.tolist()
        found = [None if day != day else datetime.date.fromordinal(_EPOCH + int(day)) for day in days]
        return pd.Series(found, dtype=object)
    if column.type == "boolean":
        return pd.Series(values, dtype="boolean")
    if column.type == "integer" or (column.categories and not isinstance(column.categories[0], str)):
        whole = [None if each is None or each != each else int(each) for each in values.tolist()]
        return pd.Series(pd.array(whole, dtype="Int64"))
    return pd.Series(values, dtype=np.float64 if column.type == "number" else object)


def write_frame(
    frame: pd.DataFrame, path: str | os.PathLike[str], dialect: Dialect, *, overwrite: bool = False
) -> None:
    """Write a frame: as Parquet if the name ends so, else as CSV in this dialect; all of it or nothing."""
    if os.fspath(path).lower().endswith((".parquet", ".pq")):
        stream = io.BytesIO()
        frame.to_parquet(stream, index=False)
        write(path, stream.getvalue(), overwrite=overwrite)
        return
    tabs = os.fspath(path).lower().endswith(".tsv") and dialect.delimiter == ","
    text = frame.to_csv(
        index=False, sep="\t" if tabs else dialect.delimiter, decimal=dialect.decimal, lineterminator="\n"
    )
    write(path, text.encode(dialect.encoding, "replace"), overwrite=overwrite)
