"""Question: the base of every question, and how one is written as text and read from it.

    question   statistic(arguments, option=value) [by column, …] [where condition]
    condition  comparisons (== != < <= > >=, also chained), in (…), not in (…), is None, is not None,
               joined by and, or, not; + - * / on numbers; dates as 'YYYY-MM-DD'

Text stands in 'single quotes', a column whose name is not a plain word in "double quotes" or
`backticks`; a quotation mark inside is written twice. ``=`` and ``<>`` are read as ``==`` and
``!=``. In a batch, ``weight=2`` gives a question twice the share of one without.

The fields of a question are its grammar. Those without ``kw_only`` stand in parentheses in their order, the
others as ``option=value``; ``by`` and ``where`` follow the parentheses.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.tables.language.condition import Expression
from tacit.tables.language.grammar import Parser, condition_of
from tacit.tables.language.kinds import COLUMN, COLUMNS, NUMBER, Kind, argument, name_text, named_by, plain

__all__ = ["Catalogue", "Question", "column_names", "read"]

LONGEST_LABEL = 200
LARGEST_WEIGHT = 1e100
"""Sums of weights must not overflow."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question about private rows, as a value: what is asked, of which columns, among which rows.

    ``str(question)`` is its text, and :func:`tacit.tables.questions.parse` reads the text back. Only what
    the grammar has no words for cannot be written: a condition that is an Ibis expression, bounds that differ
    by column, and edges at infinity.
    """

    where: Any = None
    """The rows that count: the text of a condition, an Ibis expression of one row, or None for all."""
    weight: float = argument(NUMBER, default=1.0)
    """The share of a batch, compared with questions of weight 1; a question asked alone gets everything."""
    label: str | None = field(default=None, compare=False)
    """How the charge is called in the ledger, if not by the text of the question."""
    written: str = field(default="", init=False, compare=False, repr=False)
    """The text that the question was read from, if it was; not that of a copy with something replaced."""

    name: ClassVar[str]
    """The statistic, as the grammar and the methods of a table call it: ``count_units`` of ``CountUnits``."""

    def __init_subclass__(cls) -> None:
        cls.name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()

    def __post_init__(self) -> None:
        if isinstance(self.where, str):
            condition_of(self.where)
            self._keep("where", self.where.strip())
        elif self.where is not None and not isinstance(self.where, Expression):
            self._keep("where", Expression(self.where))
        self._keep("weight", _validate.positive("weight", self.weight))
        if self.weight > LARGEST_WEIGHT:
            raise InvalidValue("weight", self.weight, f"at most {LARGEST_WEIGHT:g}")
        if self.label is not None and not isinstance(self.label, str):
            raise InvalidValue("label", self.label, "text")

    def _keep(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @classmethod
    def arguments(cls) -> dict[str, Field[Any]]:
        """The fields that stand in parentheses, in the order of the grammar: options last, then weight."""
        known = [one for one in fields(cls) if "kind" in one.metadata]
        return {one.name: one for one in sorted(known, key=lambda one: (one.kw_only, one.name == "weight"))}

    @classmethod
    def usage(cls) -> str:
        """How it is asked for, as help and error messages show it."""
        examples = (kind_of(one).example for one in cls.arguments().values() if not one.kw_only)
        return f"{cls.name}({', '.join(examples)})"

    @classmethod
    def grouped(cls) -> bool:
        """Whether there may be one answer for each group: ``by``."""
        return any(one.name == "by" for one in fields(cls))

    @property
    def groups(self) -> tuple[str, ...]:
        """The columns that it groups by; none where there is a single answer."""
        return ()

    @property
    def asked(self) -> str:
        """The text of the question without its weight and its condition."""
        return self._text("weight")

    def _text(self, *left_out: str) -> str:
        written = []
        for name, one in self.arguments().items():
            value = getattr(self, name)
            if name in left_out or (one.default is not MISSING and value == one.default):
                continue
            text = kind_of(one).write(value)
            written.append(f"{name}={text}" if one.kw_only else text)
        groups = ", ".join(map(name_text, self.groups))
        return f"{self.name}({', '.join(written)})" + (f" by {groups}" if groups else "")

    def __str__(self) -> str:
        return self._text() + ("" if self.where is None else f" where {self.where}")


Catalogue = Mapping[str, type[Question]]
"""Questions by the names of their statistics."""

_SYNONYMS = {
    "average": "mean",
    "avg": "mean",
    "var": "variance",
    "stddev": "std",
    "percentile": "quantile",
    "cov": "covariance",
    "corr": "correlation",
}


def kind_of(one: Field[Any]) -> Kind:
    """The kind that a field of a question was declared with."""
    found: Kind = one.metadata["kind"]
    return found


def column_names(columns: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several, each once."""
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if not names or len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
        raise InvalidValue("columns", columns, "names of columns, each once")
    return names


def read(text: str, catalogue: Catalogue, defaults: Mapping[str, Any]) -> Question:
    """The question that ``text`` asks, or :class:`tacit.errors.InvalidValue` that says where it fails.

    ``defaults`` are values for options that a statistic has and the text leaves out.
    """
    parser = Parser(text)
    kind = _statistic(parser, catalogue)
    parser.expect("(", f"an opening parenthesis, as in {kind.usage()}")
    given = list(parser.sequence("(", lambda: _argument(parser)))
    by: tuple[str, ...] = ()
    where: str | None = None
    while parser.token.kind != "end":
        if not by and parser.take("by"):
            by = _groups(parser)
        elif where is None and parser.take("where"):
            start = parser.token.start
            parser.disjunction()
            last = parser.tokens[parser.next - 1]
            where = text[start : last.start + len(last.text)]
        else:
            may_follow = {
                "an operator": where is not None,
                "'by'": kind.grouped() and not by,
                "'where'": where is None,
            }
            words = ", ".join(word for word, possible in may_follow.items() if possible)
            raise parser.refuse(f"{words} or its end")
    if by and not kind.grouped():
        able = ", ".join(name for name, other in catalogue.items() if other.grouped())
        raise parser.invalid(f"without 'by', as {kind.name} has no groups", f"These have: {able}.")
    options = {name: value for name, value in defaults.items() if name in kind.arguments()}
    options.update(_fit(parser, kind, given))
    if by:
        options["by"] = by
    written = " ".join(text.split())
    shortened = written if len(written) <= LONGEST_LABEL else written[: LONGEST_LABEL - 1] + "…"
    question = kind(**options, where=where)
    question._keep("written", shortened)
    return question


def _statistic(parser: Parser, catalogue: Catalogue) -> type[Question]:
    token = parser.token
    known = "It starts with one of: " + ", ".join(catalogue) + "."
    if token.kind == "end":
        raise parser.invalid("a statistic, such as mean(age)", known)
    if token.kind != "word":
        raise parser.refuse("the name of a statistic", known)
    name = token.text.lower()
    if name not in catalogue:
        close = [_SYNONYMS[name]] if name in _SYNONYMS else difflib.get_close_matches(name, catalogue, n=1)
        meant = f"Did you mean {catalogue[close[0]].usage()}? " if close else ""
        raise parser.invalid(f"about a known statistic, not {token.text[:40]!r}", meant + known)
    parser.next += 1
    return catalogue[name]


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


def _fit(parser: Parser, kind: type[Question], given: list[tuple[str, Any]]) -> dict[str, Any]:
    """The arguments by the names of their fields, each checked against its kind."""
    known = kind.arguments()
    takes = ", ".join(f"{name} ({kind_of(one).description})" for name, one in known.items())
    wrong = parser.invalid(f"of the form {kind.usage()}", f"It takes {takes}.")
    positional = [value for name, value in given if not name]
    order = [name for name, one in known.items() if not one.kw_only]
    if order and kind_of(known[order[0]]) is COLUMNS and len(positional) > 1:
        positional = [tuple(positional)]
    if len(positional) > len(order):
        raise wrong
    named = [*zip(order, positional, strict=False), *((name, value) for name, value in given if name)]
    found = dict(named)
    required = {name for name, one in known.items() if one.default is MISSING}
    if len(found) < len(named) or not known.keys() >= found.keys() >= required:
        raise wrong
    if not all(kind_of(known[name]).accepts(value) for name, value in found.items()):
        raise wrong
    names = {name for name in found if kind_of(known[name]) in (COLUMN, COLUMNS)}
    return {name: named_by(value) if name in names else plain(value) for name, value in found.items()}
