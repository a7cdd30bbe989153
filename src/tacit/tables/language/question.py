"""Questions as text: ``mean(hours) by sex where age >= 40``.

    question   statistic(arguments, option=value) [by column, …] [where condition]
    condition  comparisons (== != < <= > >=, also chained), in (…), not in (…), is None, is not None,
               joined by and, or, not; + - * / on numbers; dates as 'YYYY-MM-DD'

Text stands in 'single quotes', a column whose name is not a plain word in "double quotes" or
`backticks`; a quotation mark inside is written twice. ``=`` and ``<>`` are read as ``==`` and
``!=``. In a batch, ``weight=2`` gives a question twice the share of one without.

>>> question = parse("mean(hours) by sex where age >= 40")
>>> question.name, question.arguments, question.by, question.where
('mean', ('hours',), ('sex',), 'age >= 40')
>>> parse("maen(hours)")
Traceback (most recent call last):
    ...
tacit.errors.InvalidValue: question must be about a known statistic, ... Did you mean mean(column)? ...
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tacit.errors import InvalidValue
from tacit.tables.language.condition import Name, Node, date_of, to_ibis
from tacit.tables.language.grammar import Parser

if TYPE_CHECKING:
    from tacit.schema import Schema

__all__ = ["STATISTICS", "Form", "Question", "ask", "parse"]

COLUMN = "a column"
COLUMNS = "two columns or more"
BOUNDS = "'dp' or [low, high]"
WHOLE = "a whole number"
NUMBER = "a number"
NUMBERS = "a number or a list of numbers"
EDGES = "a whole number or a list of edges"
SWITCH = "True or False"
INTERVAL = "a number or None"


@dataclass(frozen=True)
class Form:
    """How a statistic is asked for: its parameters in order, of which ``required`` are needed."""

    usage: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    required: int = 0
    options: Mapping[str, str] = field(default_factory=dict)
    by: bool = False

    @property
    def known(self) -> dict[str, str]:
        """Everything that may be given, and what it must be."""
        return {**self.parameters, **self.options, "weight": NUMBER}


def _of_one(name: str) -> Form:
    return Form(f"{name}(column)", {"column": COLUMN}, 1, {"bounds": BOUNDS}, by=True)


def _of_several(name: str, **options: str) -> Form:
    return Form(f"{name}(column, column)", {"columns": COLUMNS}, 1, options)


_CHOSEN = {"bounds": BOUNDS, "interval": INTERVAL}
STATISTICS: Mapping[str, Form] = {
    "count": Form("count()", by=True),
    "count_units": Form("count_units()"),
    **{name: _of_one(name) for name in ("sum", "mean", "variance", "std")},
    "median": Form("median(column)", {"column": COLUMN}, 1, _CHOSEN, by=True),
    "quantile": Form("quantile(column, 0.25)", {"column": COLUMN, "q": NUMBERS}, 2, _CHOSEN, by=True),
    "histogram": Form("histogram(column, 20)", {"column": COLUMN, "edges": EDGES}, 1),
    "crosstab": _of_several("crosstab", margins=SWITCH),
    "covariance": _of_several("covariance", bounds=BOUNDS),
    "correlation": _of_several("correlation", bounds=BOUNDS),
    "keys": Form("keys(column)", {"column": COLUMN}, 1),
    "top": Form("top(column, 5)", {"column": COLUMN, "k": WHOLE}, 2),
    "bounds": Form("bounds(column)", {"column": COLUMN}, 1),
}
"""Every statistic that can be asked for, and how."""

_SYNONYMS = {
    "average": "mean",
    "avg": "mean",
    "var": "variance",
    "stddev": "std",
    "percentile": "quantile",
    "cov": "covariance",
    "corr": "correlation",
}
_KNOWN = "It starts with one of: " + ", ".join(STATISTICS) + "."


@dataclass(frozen=True)
class Question:
    """One statistic asked for: what, of which columns, in which groups, among which rows.

    ``arguments`` and ``options`` are those of the method of this ``name`` on a table or a batch;
    ``where`` is the text of the condition, None for all rows.
    """

    name: str
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    by: tuple[str, ...] = ()
    where: str | None = None
    text: str = field(default="", compare=False)
    condition: Node | None = field(default=None, repr=False, compare=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it is about, then those it groups by; those of its condition left out."""
        first = self.arguments[:1]
        return (*(first[0] if first and isinstance(first[0], tuple) else first), *self.by)


def ask(target: Any, question: Question | str, schema: Schema, **terms: Any) -> Any:
    """Put the question to a table or a batch of it: call its method, and return what that returns.

    Columns and condition are first checked against the schema; no data are read here. ``terms``
    go to the method as they are, such as ``epsilon`` for a table. The ledger shows the question as
    it was written.
    """
    asked = parse(question) if isinstance(question, str) else question
    columns = [schema[name] for name in asked.columns]
    arguments, options = asked.arguments, dict(asked.options)
    if arguments and columns[0].type == "date":
        arguments = (arguments[0], *map(_dated, arguments[1:]))
        options = {name: _dated(value) for name, value in options.items()}
    if asked.by:
        options["by"] = list(asked.by)
    if asked.condition is not None:
        options["where"] = to_ibis(asked.condition, schema, str(asked.where))
    options["label"] = asked.text if len(asked.text) <= 200 else asked.text[:199] + "…"
    return getattr(target, asked.name)(*arguments, **{**terms, **options})


def _dated(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_dated, value))
    return (date_of(value) or value) if isinstance(value, str) else value


def parse(text: str) -> Question:
    """The question that ``text`` asks, or :class:`tacit.errors.InvalidValue` that says where it fails."""
    parser = Parser(text)
    name = _statistic(parser)
    form = STATISTICS[name]
    parser.expect("(", f"an opening parenthesis, as in {form.usage}")
    given = list(parser.sequence("(", lambda: _argument(parser)))
    by: tuple[str, ...] = ()
    where: str | None = None
    condition: Node | None = None
    while parser.token.kind != "end":
        if not by and parser.take("by"):
            by = _groups(parser)
        elif condition is None and parser.take("where"):
            start = parser.token.start
            condition = parser.disjunction()
            last = parser.tokens[parser.next - 1]
            where = text[start : last.start + len(last.text)]
        else:
            may_follow = {
                "an operator": condition is not None,
                "'by'": form.by and not by,
                "'where'": condition is None,
            }
            words = ", ".join(word for word, possible in may_follow.items() if possible)
            raise parser.refuse(f"{words} or its end")
    if by and not form.by:
        able = ", ".join(name for name, other in STATISTICS.items() if other.by)
        raise parser.invalid(f"without 'by', as {name} has no groups", f"These have: {able}.")
    arguments, options = _fit(parser, form, given)
    return Question(name, arguments, options, by, where, " ".join(text.split()), condition)


def _statistic(parser: Parser) -> str:
    token = parser.token
    if token.kind == "end":
        raise parser.invalid("a statistic, such as mean(age)", _KNOWN)
    if token.kind != "word":
        raise parser.refuse("the name of a statistic", _KNOWN)
    name = token.text.lower()
    if name not in STATISTICS:
        close = [_SYNONYMS[name]] if name in _SYNONYMS else difflib.get_close_matches(name, STATISTICS, n=1)
        meant = f"Did you mean {STATISTICS[close[0]].usage}? " if close else ""
        raise parser.invalid(f"about a known statistic, not {token.text[:40]!r}", meant + _KNOWN)
    parser.next += 1
    return name


def _argument(parser: Parser) -> tuple[str, Any]:
    """The name of an argument, empty if it has none, and its value."""
    name = ""
    if parser.token.kind == "word" and parser.tokens[parser.next + 1].plain == "==":
        name = parser.token.text.lower()
        parser.next += 2
    return name, parser.value()


def _groups(parser: Parser) -> tuple[str, ...]:
    columns = [parser.column("a column to group by")]
    while parser.take(","):
        columns.append(parser.column("a column to group by"))
    return tuple(columns)


def _fit(parser: Parser, form: Form, given: list[tuple[str, Any]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments in the order of the method's parameters, and the options, each checked."""
    takes = ", ".join(f"{name} ({kind})" for name, kind in form.known.items())
    wrong = parser.invalid(f"of the form {form.usage}", f"It takes {takes}.")
    positional = [value for name, value in given if not name]
    order = list(form.parameters)
    if "columns" in order and positional and not isinstance(positional[0], tuple):
        positional = [tuple(positional)]
    if len(positional) > len(order):
        raise wrong
    named = [*zip(order, positional, strict=False), *((name, value) for name, value in given if name)]
    found = dict(named)
    if len(found) < len(named) or not form.known.keys() >= found.keys() >= {*order[: form.required]}:
        raise wrong
    values = {name: _checked(form.known[name], value, wrong) for name, value in found.items()}
    return tuple(values.pop(name) for name in order if name in values), values


def _checked(kind: str, value: Any, wrong: InvalidValue) -> Any:
    """The value of an argument, if it is of this kind; a column by its name."""
    plain = value.name if isinstance(value, Name) else value
    if kind == COLUMNS and isinstance(value, tuple) and len(value) > 1:
        return tuple(_checked(COLUMN, part, wrong) for part in value)
    number, listed = type(value) in (int, float), _is_list(value)
    fits = {
        COLUMN: isinstance(plain, str),
        BOUNDS: plain == "dp" or (listed and len(value) == 2),
        WHOLE: type(value) is int,
        NUMBER: number,
        NUMBERS: number or listed,
        EDGES: type(value) is int or listed,
        SWITCH: isinstance(value, bool),
        INTERVAL: number or value is None,
    }
    if not fits.get(kind, False):
        raise wrong
    return plain


def _is_list(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(type(part) in (int, float, str) for part in value)
