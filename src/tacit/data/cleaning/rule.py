"""The rule of cleaning: what one value becomes under the declaration of its column.

The rule looks at one value and at the :class:`~tacit.schema.Column`, and at nothing else, so that no row
decides how another is read. It is total: whatever the value is (NULL, NaN, ±∞, the ends of int64, text that
is no number, a date of the year 290000), it becomes a value of the declared type or is missing, and nothing
is raised. An exception that only some data cause would tell something about them.

A value is first read, and then bounded. How it is read, by declared type; what fits none of this is missing:

``integer``, ``number``
    a real number, as float64: the nearest one, ±∞ beyond the largest. True is 1 and False is 0; a complex
    number without imaginary part is real. NaN is missing.
``boolean``
    true and false, the numbers 1 and 0, and in any case the words ``true``, ``t``, ``yes``, ``y``, ``1`` and
    ``false``, ``f``, ``no``, ``n``, ``0``.
``date``
    a day; of a time the day (in UTC if it has a zone); of text the YYYY-MM-DD that it starts with, alone or
    before a blank or a ``T``. Days before the year 1 and after 9999 are the first and the last day of these.
``category``, ``text``
    text as it is; truth values as ``true`` and ``false``; whole numbers below 2⁵³ in size as their digits;
    days as YYYY-MM-DD, if in the years 1 … 9999; a UUID as its text. Where the categories are numbers,
    whole numbers below 2⁵³ in size.

Text is a number if it is written in decimal digits with or without sign, point and exponent, or is
``inf`` or ``infinity``: :data:`NUMBER`. In a CSV file whose schema declares the comma as its decimal mark,
comma and point change places first: ``1,5`` is a number and ``1.5`` is none. Surrounding :data:`BLANKS` do
not count. Empty or blank text is missing; no other word is ("NA" is a category like any other, and no
number). Numbers become text or whole-number categories only below 2⁵³ in size, where a number
stored as a float is still the one meant.
All other complex numbers, bytes, durations, times of the day and collections are missing.

How it is bounded, in this order:

1. A missing value becomes the ``missing`` constant, which lies within the bounds and among the categories;
   without one it stays missing.
2. An ``integer`` becomes its whole part, towards −∞.
3. A number or day outside the bounds becomes the nearer bound, ±∞ too. Without bounds an ``integer`` lies
   within ±2⁵³, a ``date`` within the years 1 … 9999, and a ``number`` anywhere.
4. Text is taken without surrounding blanks; that of a declared category is looked up as it is first. An
   undeclared category becomes ``other`` or, without it, missing, and is then not replaced by the
   ``missing`` constant. Integers with categories are those numbers only, and are not clipped.

The sign of a zero is not part of the rule.
"""

from __future__ import annotations

import datetime
import math
from typing import Any

from tacit.schema import LARGEST, Column

__all__ = [
    "BLANKS",
    "DAY",
    "FALSE",
    "FIRST_DAY",
    "LARGEST",
    "LAST_DAY",
    "NUMBER",
    "TRUE",
    "coded",
    "kind_of",
    "limits",
]

BLANKS = " \t\n\r\v\f"
"""The characters that do not count around text."""

TRUE, FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
"""The words for truth values, in lower case."""

NUMBER = "[+-]?(([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?|[iI][nN][fF]([iI][nN][iI][tT][yY])?)"
"""A number in text without surrounding blanks, as a pattern that Python, RE2 and Java read alike."""

DAY = "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"
"""What a day looks like in text; whether there is such a day, the calendar says."""

FIRST_DAY, LAST_DAY = datetime.date.min, datetime.date.max
"""The first day of the year 1 and the last of 9999."""


def kind_of(column: Column) -> str:
    """As what values of the column are read: the declared type, ``text``, or ``code`` for whole numbers.

    >>> kind_of(Column("category", categories=(1, 2))), kind_of(Column("category"))
    ('code', 'text')
    """
    if column.type == "category":
        return "text" if column.categories is None or isinstance(column.categories[0], str) else "code"
    return "code" if column.type == "integer" and column.categories is not None else column.type


def coded(column: Column) -> bool:
    """Whether values of the column are looked up among declared categories. Truth values are not."""
    return column.categories is not None and column.type != "boolean"


def limits(column: Column) -> tuple[Any, Any]:
    """Between what the values of an integer, a number or a date are clipped."""
    without = {"integer": (-LARGEST, LARGEST), "date": (FIRST_DAY, LAST_DAY)}
    return column.bounds or without.get(column.type, (-math.inf, math.inf))
