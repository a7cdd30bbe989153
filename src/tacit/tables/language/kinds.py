"""Kinds of argument: the values that each place in the text of a question may hold, and how they are written.

A field of a question names its kind in its metadata. The kind tells the grammar which values to accept and
how to describe them in an error message, and it tells the question how to write its own value as text.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tacit.tables.language.condition import Name, date_of
from tacit.tables.language.grammar import KEYWORDS

__all__ = [
    "BOUNDS",
    "COLUMN",
    "COLUMNS",
    "CONFIDENCE",
    "EDGES",
    "NUMBER",
    "NUMBERS",
    "SWITCH",
    "WHOLE",
    "Kind",
    "argument",
    "name_text",
    "named_by",
    "plain",
]


@dataclass(frozen=True)
class Kind:
    """One kind: its description for messages, which values it accepts, how it writes them, and an example."""

    description: str
    accepts: Callable[[Any], bool]
    write: Callable[[Any], str]
    example: str = ""


def argument(kind: Kind, **options: Any) -> Any:
    """A field of a question whose text is of this kind; ``options`` are those of a dataclass field."""
    return field(metadata={"kind": kind}, **options)


def plain(value: Any) -> Any:
    """A value as the text of a question holds it.

    Columns are given by their names, lists are tuples, 'YYYY-MM-DD' is a date, and NumPy's numbers are
    Python's.
    """
    if isinstance(value, Name):
        return value.name
    if isinstance(value, str):
        return date_of(value) or value
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(map(plain, value)) if isinstance(value, list | tuple) else value


def named_by(value: Any) -> Any:
    """The name of a column, or the names of several, however they are quoted."""
    if isinstance(value, tuple):
        return tuple(map(named_by, value))
    return value.name if isinstance(value, Name) else value


def name_text(name: str) -> str:
    """The name of a column as a question writes it: in double quotes unless it is a plain word."""
    if re.fullmatch(r"[^\W\d]\w*", name) and name.lower() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def _names_text(names: tuple[str, ...]) -> str:
    written = ", ".join(map(name_text, names))
    return written if len(names) > 1 else f"[{written}]"


def _value_text(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_value_text, value)) + "]"
    if isinstance(value, Mapping):
        parts = (f"{name_text(key)}: {_value_text(part)}" for key, part in value.items())
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, datetime.date):
        return f"'{value.isoformat()}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else repr(value)


def _bounds_text(bounds: Any) -> str:
    return "dp" if isinstance(bounds, str) and bounds == "dp" else _value_text(bounds)


def _is_name(value: Any) -> bool:
    return isinstance(value, Name | str)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_whole(value: Any) -> bool:
    return type(value) is int


def _is_list(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(type(part) in (int, float, str) for part in value)


def _are_names(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(map(_is_name, value))


def _are_bounds(value: Any) -> bool:
    return value == "dp" or value == Name("dp") or (_is_list(value) and len(value) == 2)


COLUMN = Kind("a column", _is_name, name_text, "column")
COLUMNS = Kind("two columns or more", _are_names, _names_text, "column, other")
BOUNDS = Kind("'dp' or [low, high]", _are_bounds, _bounds_text)
WHOLE = Kind("a whole number", _is_whole, _value_text, "5")
NUMBER = Kind("a number", _is_number, _value_text)
NUMBERS = Kind(
    "a number or a list of numbers", lambda value: _is_number(value) or _is_list(value), _value_text, "0.25"
)
EDGES = Kind(
    "a whole number or a list of edges", lambda value: _is_whole(value) or _is_list(value), _value_text, "20"
)
SWITCH = Kind("True or False", lambda value: isinstance(value, bool), _value_text)
CONFIDENCE = Kind("a number or None", lambda value: value is None or _is_number(value), _value_text)
