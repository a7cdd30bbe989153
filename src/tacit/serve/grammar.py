"""Questions as JSON: the text of the grammar, or a value, ``{"statistic": "mean", "column": "age"}``.

A value has the fields of the question's class in :mod:`tacit.tables.questions`, and says what text cannot:
bounds that differ by column, edges at infinity.

>>> question_of({"statistic": "mean", "column": "age", "by": ["sex"], "where": "age >= 40"})
Mean(where='age >= 40', weight=1.0, label=None, by=('sex',), column='age', bounds=None)
>>> question_to(question_of("histogram(age, [0, 50, 100])"))
{'statistic': 'histogram', 'column': 'age', 'edges': [0, 50, 100]}
>>> question_of({"statistic": "mean", "column": ["age"]})
Traceback (most recent call last):
    ...
tacit.errors.InvalidValue: column must be a column, got ['age']. ...
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any

from tacit.errors import InvalidValue
from tacit.tables.language.condition import Expression
from tacit.tables.language.kinds import BOUNDS, COLUMN, COLUMNS, EDGES
from tacit.tables.language.question import LONGEST_LABEL, kind_of
from tacit.tables.questions import CATALOGUE, Question, parse

__all__ = ["question_of", "question_to"]

_LONGEST = 10_000


def question_of(value: Any, confidence: float = 0.95) -> Question:
    """The question that a text or a value of JSON asks; InvalidValue if it asks none."""
    if isinstance(value, str):
        if len(value) > _LONGEST or not value.isprintable():
            raise InvalidValue("question", value[:40], f"printable text of at most {_LONGEST} characters")
        return _parsed(value, confidence)
    if not isinstance(value, Mapping) or not isinstance(value.get("statistic"), str):
        shown = type(value).__name__
        raise InvalidValue("question", shown, "a text, or an object with a statistic", _advice())
    name = value["statistic"]
    if name not in CATALOGUE:
        raise InvalidValue("statistic", name, "a known one", _advice())
    kind = CATALOGUE[name]
    known = {one.name: one for one in fields(kind) if one.init}
    given = {field: _read(part) for field, part in value.items() if field != "statistic"}
    for field, part in given.items():
        if field not in known:
            raise InvalidValue("question", field, f"made of {', '.join(known)}, for {name}")
        if part is not None or known[field].default is MISSING:
            _check(field, known[field], part)
    lacking = [field for field, one in known.items() if one.default is MISSING and field not in given]
    if lacking:
        raise InvalidValue("question", sorted(given), f"complete: {name} needs {', '.join(lacking)}")
    if "confidence" in known and "confidence" not in given:
        given["confidence"] = confidence
    return kind(**given)


def _check(name: str, field: Any, value: Any) -> None:
    """Refuse a value of another kind than the field's."""
    if name in ("where", "label"):
        most = _LONGEST if name == "where" else LONGEST_LABEL
        if not isinstance(value, str) or len(value) > most or not value.isprintable():
            raise InvalidValue(name, value, f"printable text of at most {most} characters")
    elif name == "by":
        listed = (value,) if isinstance(value, str) else value
        if not isinstance(listed, tuple) or not all(isinstance(one, str) for one in listed):
            raise InvalidValue(name, value, "a column, or a list of columns")
    elif kind_of(field) is BOUNDS and isinstance(value, dict):
        for pair in value.values():
            _check(name, field, pair)
    else:
        kind = kind_of(field)
        alone = kind is COLUMNS and isinstance(value, str)
        plain = value if kind is not EDGES or not isinstance(value, tuple) else (0,) if value else ()
        numbers = kind is not EDGES or not isinstance(value, tuple) or all(map(_is_edge, value))
        if not alone and not (kind.accepts(plain) and numbers):
            shown = list(value) if isinstance(value, tuple) else value
            advice = "It is a text." if kind is COLUMN else "See the catalogue of questions."
            raise InvalidValue(name, shown, kind.description, advice)


@lru_cache(maxsize=1024)
def _parsed(text: str, confidence: float) -> Question:
    return parse(text, confidence=confidence)


def _is_edge(value: Any) -> bool:
    return type(value) in (int, float, str)


def _read(value: Any, depth: int = 4) -> Any:
    """Lists as tuples, and the words "inf" and "-inf" as the numbers that JSON lacks."""
    if depth == 0:
        raise InvalidValue("question", "…", "flat: its values are not that deep")
    if isinstance(value, list):
        return tuple(float(one) if one in ("inf", "-inf") else _read(one, depth - 1) for one in value)
    if isinstance(value, dict):
        return {key: _read(part, depth - 1) for key, part in value.items()}
    return value


def question_to(question: Question) -> dict[str, Any]:
    """The question as a value of JSON; a condition that is an expression cannot be sent."""
    if isinstance(question.where, Expression):
        advice = 'Write it as text: where="age >= 40".'
        raise InvalidValue("where", str(question.where), "text, where a service is asked", advice)
    sent: dict[str, Any] = {"statistic": question.name}
    for one in fields(question):
        value = getattr(question, one.name)
        if one.init and (one.default is MISSING or value != one.default) and value != ():
            sent[one.name] = _written(value)
    return sent


def _written(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_written(one) for one in value]
    if isinstance(value, Mapping):
        return {key: _written(part) for key, part in value.items()}
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return value


def _advice() -> str:
    return "Statistics: " + ", ".join(CATALOGUE) + "."
