"""Which stored types can be what is declared: decided by types alone, before anything is charged.

The type in which a Parquet file, a table of an engine, a frame or an array stores a column is public, like
the column's name; no value is looked at. A column of text that is declared as a number would be missing in
every row but those whose text happens to be digits, and a budget would buy nothing: it is refused, and the
message says how to mend it.

Some columns have no stored type: those of a CSV file, where everything is text, and of a frame or an array of
objects, where every value has its own. What they hold is read value by value
(:mod:`tacit.data.cleaning.rule`), for any other check would depend on private values.

==========================================  ====================================================
declared                                    stored as
==========================================  ====================================================
integer, number, whole-number categories    numbers, truth values
boolean                                     truth values, numbers, text
date                                        dates, times, text
text categories                             text
category without categories, text           text, numbers, truth values, dates
==========================================  ====================================================

A column that is stored as nothing but missing values can be anything.
"""

from __future__ import annotations

from typing import Any

from tacit.data.cleaning.rule import coded, kind_of
from tacit.errors import SourceMissing
from tacit.schema import Column

__all__ = ["family_of", "fits", "require"]

_NUMERIC = ("boolean", "integer", "wide", "float", "null")
_FITTING = {
    "integer": _NUMERIC,
    "number": _NUMERIC,
    "code": _NUMERIC,
    "boolean": (*_NUMERIC, "text"),
    "date": ("date", "timestamp", "text", "null"),
    "text": (*_NUMERIC, "text", "date"),
    "label": ("text", "null"),
}
_KINDS = {
    "b": "boolean",
    "i": "integer",
    "u": "integer",
    "f": "float",
    "U": "text",
    "T": "text",
    "M": "timestamp",
}
_NAMES = {
    "string": "text", "str": "text", "utf8": "text", "categorical": "text", "enum": "text",
    "large_string": "text", "string_view": "text", "bool": "boolean", "boolean": "boolean", "date": "date",
    "date32[day]": "date", "date64[ms]": "date", "null": "null",
}  # fmt: skip
"""Families by the names of types in pandas, Polars and Arrow, in lower case, without parameters."""
_PREFIXES = {
    "uint": "integer", "int": "integer", "float": "float", "double": "float", "halffloat": "float",
    "decimal": "wide", "datetime": "timestamp", "timestamp": "timestamp", "string": "text", "enum": "text",
    "categorical": "text", "dictionary<values=string": "text", "dictionary<values=large_string": "text",
}  # fmt: skip


def family_of(stored: Any) -> str | None:
    """The family of a type of NumPy, pandas, Polars or Arrow; None for objects, and for what has no type.

    >>> import numpy as np
    >>> [family_of(np.dtype(kind)) for kind in ("int8", "float32", "<U3", "datetime64[s]", "object")]
    ['integer', 'float', 'text', 'timestamp', None]
    """
    if stored is None or (
        (kind := getattr(stored, "kind", "")) == "O" and type(stored).__module__ == "numpy.dtypes"
    ):
        return None
    if (categories := getattr(stored, "categories", None)) is not None and hasattr(categories, "dtype"):
        return family_of(categories.dtype)
    if type(stored).__module__.startswith("numpy"):
        return _KINDS.get(kind, "nested")
    if hasattr(stored, "pyarrow_dtype"):
        stored = stored.pyarrow_dtype
    name = str(stored).lower()
    if name == "object":
        return None
    found = (family for prefix, family in _PREFIXES.items() if name.startswith(prefix))
    return _NAMES.get(name) or next(found, "nested")


def fits(family: str, column: Column) -> bool:
    """Whether values that are stored so can be what is declared."""
    return family in _FITTING[_wanted(column)]


def _wanted(column: Column) -> str:
    kind = kind_of(column)
    return "label" if kind == "text" and coded(column) else kind


def require(name: str, family: str | None, told: Any, column: Column) -> None:
    """Raise :class:`~tacit.errors.SourceMissing` if what is stored cannot be what is declared.

    ``told`` is what the type is called where it is stored.
    """
    if family is None or fits(family, column):
        return
    wanted = _wanted(column)
    problem = f"Column {name!r} is stored as {told}, "
    if wanted == "label" and family in (*_NUMERIC, "date"):
        problem += "but its categories are text."
        advice = "Write them as whole numbers, such as categories = [1, 2], or store the column as text."
        if family == "boolean":
            advice = 'Declare it as type = "boolean", or store the column as text.'
        if family in ("date", "float"):
            advice = "Store the column as text."
    elif wanted == "code" and family == "text":
        problem += "but its categories are whole numbers."
        advice = 'Write them as text, such as categories = ["1", "2"], or store the column as whole numbers.'
    elif family == "text" and wanted in ("integer", "number"):
        problem += f"but declared as {column.type}."
        advice = "Store it as numbers (in a frame, or as objects), or declare it as a category or as text."
    else:
        problem += f"which cannot be a column of {column.type}."
        advice = "Declare another type, or convert the column first."
    raise SourceMissing(problem, advice, column=name)
