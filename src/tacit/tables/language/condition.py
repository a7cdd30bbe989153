"""Conditions on rows: a tree read from text, checked against the schema, translated to Ibis.

A condition is made of comparisons, ``and``, ``or``, ``not``, lists, ``is None`` and the four operations of
arithmetic, and of nothing else, so it depends on one row only. Its mistakes (a value of the wrong kind, a
category that was never declared) are found in the schema, before any data are read.

>>> from tacit.schema import Column, Schema
>>> schema = Schema({"age": Column("integer", bounds=(17, 90))})
>>> to_ibis(Operation(">=", (Name("age"), Literal(40))), schema, "age >= 40")
(_['age'] >= 40)
"""

from __future__ import annotations

import datetime
import difflib
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tacit.errors import InvalidValue
from tacit.schema import LARGEST

if TYPE_CHECKING:
    from tacit.schema import Schema

__all__ = [
    "ARITHMETIC",
    "COMPARISONS",
    "Expression",
    "Literal",
    "Name",
    "Node",
    "Operation",
    "date_of",
    "to_ibis",
]

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}

_KINDS = {"integer": "number", "number": "number", "boolean": "boolean", "date": "date", "text": "text"}
_WORDS = {"number": "a number", "text": "text", "boolean": "true or false", "date": "a date"}


@dataclass(frozen=True, eq=False)
class Expression:
    """A condition that was given as an Ibis expression; it equals itself alone.

    Ibis expressions compare to expressions, not to true or false, so that a value cannot hold them as they
    are.
    """

    given: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.given is other.given

    def __hash__(self) -> int:
        return id(self.given)

    def __str__(self) -> str:
        from ibis import Deferred

        shown = repr(self.given) if isinstance(self.given, Deferred) else ""
        return shown if shown and shown.isprintable() else "a condition"


@dataclass(frozen=True)
class Name:
    """A column, by name; ``quoted`` if the name stood in quotation marks."""

    name: str
    quoted: bool = field(default=False, compare=False)
    depth: int = field(default=0, init=False, repr=False)


@dataclass(frozen=True)
class Literal:
    """A constant: a number, text, True, False or None."""

    value: Any
    depth: int = field(default=0, init=False, repr=False)


@dataclass(frozen=True)
class Operation:
    """The operation ``symbol`` on its parts; ``depth`` is the height of the tree."""

    symbol: str
    parts: tuple[Node, ...]
    depth: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", 1 + max(part.depth for part in self.parts))


Node = Name | Literal | Operation


def to_ibis(tree: Node, schema: Schema, text: str) -> Any:
    """The condition as a deferred Ibis expression, true where a row is to be counted.

    ``text`` is the text that the tree was read from, for error messages.
    """
    return _Translation(schema, text).condition(tree)


def date_of(text: str) -> datetime.date | None:
    """The date written as YYYY-MM-DD, or None."""
    try:
        return datetime.date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.A) else None
    except ValueError:
        return None


@dataclass(frozen=True)
class _Value:
    """A deferred expression or, if ``constant``, a Python value; with its kind and public categories."""

    kind: str
    value: Any
    constant: bool = False
    name: str = ""
    categories: tuple[Any, ...] | None = None

    def __str__(self) -> str:
        shown = self.name or (repr(self.value) if self.constant else "the calculation")
        return f"{shown} is {_WORDS[self.kind]}"


class _Translation:
    def __init__(self, schema: Schema, text: str) -> None:
        self.schema = schema
        self.text = text

    def refuse(self, requirement: str, next_step: str) -> InvalidValue:
        return InvalidValue("where", self.text, requirement, next_step)

    def condition(self, tree: Node) -> Any:
        """The tree as something that is true or false of a row."""
        match tree:
            case Operation("and" | "or" as symbol, parts):
                join = operator.and_ if symbol == "and" else operator.or_
                return _balanced(join, [self.condition(part) for part in parts])
            case Operation("not", (part,)):
                return ~self.condition(part)
        value = self.value(tree)
        if value.kind != "boolean" or value.constant:
            raise self.refuse(
                "true or false of each row", f"{value}: compare it with something, as in age >= 40."
            )
        return value.value

    def value(self, tree: Node) -> _Value:
        match tree:
            case Name():
                return self.column(tree)
            case Literal(value):
                return self.constant(value)
            case Operation("-", (part,)):
                return self.arithmetic("-", Literal(0), part)
            case Operation(symbol, (left, right)) if symbol in ARITHMETIC:
                return self.arithmetic(symbol, left, right)
            case Operation(symbol, (left, right)) if symbol in COMPARISONS:
                return self.comparison(symbol, self.value(left), self.value(right))
            case Operation("in" | "not in" as symbol, (left, *options)):
                return self.membership(symbol, self.value(left), [self.value(option) for option in options])
            case Operation("is" | "is not" as symbol, (part,)):
                subject = self.value(part)
                if subject.constant:
                    raise self.refuse("about columns", f"{subject}, whichever the row.")
                missing = subject.value.isnull()
                return _Value("boolean", missing if symbol == "is" else ~missing)
        return _Value("boolean", self.condition(tree))

    @property
    def categories(self) -> set[Any]:
        """The categories of all columns, which are public."""
        return {value for column in self.schema.columns.values() for value in column.categories or ()}

    def column(self, tree: Name) -> _Value:
        from ibis import _

        if tree.name not in self.schema.columns and tree.quoted:
            raise self.refuse(
                "about columns of the schema",
                f"It has no column {tree.name!r}; text goes in single quotes, as in sex == 'Female'.",
            )
        if tree.name not in self.schema.columns and tree.name in self.categories:
            raise self.refuse(
                "about columns of the schema",
                f"{tree.name!r} is a category; text goes in single quotes: '{tree.name}'.",
            )
        column = self.schema[tree.name]
        categories = column.categories
        if column.type == "category":
            kind = "text" if isinstance((categories or ("",))[0], str) else "number"
        else:
            kind = _KINDS[column.type]
        if categories is not None and column.other is not None:
            categories = (*categories, column.other)
        return _Value(kind, _[tree.name], name=tree.name, categories=categories)

    def constant(self, value: Any) -> _Value:
        if value is None:
            raise self.refuse("without None in comparisons", "Write: is None, or: is not None.")
        if isinstance(value, bool):
            return _Value("boolean", value, constant=True)
        if isinstance(value, str):
            return _Value("text", value, constant=True)
        if not math.isfinite(value) or (isinstance(value, int) and abs(value) > LARGEST):
            raise self.refuse("without numbers too large for float64", "Whole numbers may reach 2**53.")
        return _Value("number", value, constant=True)

    def arithmetic(self, symbol: str, left_tree: Node, right_tree: Node) -> _Value:
        left, right = self.value(left_tree), self.value(right_tree)
        for operand in (left, right):
            if operand.kind != "number":
                raise self.refuse(f"calculated from numbers where {symbol!r} stands", f"{operand}.")
        if left.constant and right.constant:
            try:
                return self.constant(ARITHMETIC[symbol](left.value, right.value))
            except ArithmeticError:
                raise self.refuse("without division by zero or overflow", "Check its numbers.") from None
        return _Value("number", ARITHMETIC[symbol](left.value, right.value))

    def comparison(self, symbol: str, left: _Value, right: _Value) -> _Value:
        if left.constant and right.constant:
            raise self.refuse("about columns", f"{left.value!r} {symbol} {right.value!r} names none.")
        left, right = self.alike(left, right), self.alike(right, left)
        if left.kind == "boolean" and symbol not in ("==", "!="):
            raise self.refuse("without an order of true and false", "Use == or !=.")
        if symbol in ("==", "!="):
            self.declared(left, right)
            self.declared(right, left)
        return _Value("boolean", COMPARISONS[symbol](left.value, right.value))

    def membership(self, symbol: str, subject: _Value, options: list[_Value]) -> _Value:
        if subject.constant:
            raise self.refuse("about columns", f"{subject.value!r} {symbol} … names none.")
        found = [self.alike(option, subject) for option in options]
        for option in found:
            self.declared(subject, option)
        values = [option.value for option in found]
        test = subject.value.isin if symbol == "in" else subject.value.notin
        return _Value("boolean", test(values))

    def alike(self, value: _Value, other: _Value) -> _Value:
        """``value``, as the kind of ``other``: text that stands for a date becomes one."""
        if value.kind == other.kind:
            return value
        if value.constant and value.kind == "text" and other.kind == "date":
            date = date_of(value.value)
            if date is None:
                raise self.refuse(
                    "about dates written as 'YYYY-MM-DD'", f"{other}; {value.value!r} is not one."
                )
            return _Value("date", date, constant=True)
        if other.constant and other.kind == "text" and value.kind == "date":
            return value
        raise self.refuse("a comparison of like with like", f"{value}; {other}.")

    def declared(self, column: _Value, value: _Value) -> None:
        """Refuse a constant that the schema rules out: no row can equal it."""
        if column.categories is None or not value.constant or value.value in column.categories:
            return
        known = [str(category) for category in column.categories]
        lowered = {name.lower(): name for name in known}
        close = difflib.get_close_matches(str(value.value).lower(), list(lowered), n=1)
        some = ", ".join(map(repr, column.categories[:8])) + (", …" if len(known) > 8 else "")
        raise self.refuse(
            f"about declared categories of {column.name}",
            f"{value.value!r} is not one. "
            + (f"Did you mean {lowered[close[0]]!r}?" if close else f"They are {some}."),
        )


def _balanced(join: Callable[[Any, Any], Any], parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return join(_balanced(join, parts[:half]), _balanced(join, parts[half:]))
