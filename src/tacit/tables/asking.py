"""The methods that ask: one of each question, on a table for an ε, in a batch for a weight.

Only signatures are written here, for readers, editors and type checkers. :func:`asks` makes each method from
its question, whose fields it must repeat, and takes its help from there.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from typing import Any, TypeVar, cast

from tacit.errors import InvalidValue
from tacit.tables import questions
from tacit.tables.language.forms import By, Limits, Where
from tacit.tables.language.question import Question
from tacit.tables.release import Release

__all__ = ["BatchQuestions", "TableQuestions", "asks"]

Method = TypeVar("Method", bound=Callable[..., Release])

TERMS = ("epsilon", "delta")
"""Parameters of a method that are not part of its question."""

PARAMETERS = {
    "epsilon": "the ε that the answer may cost.",
    "delta": "the δ that it may cost. Above 0 the noise is Gaussian, which composes better; else Laplace.",
    "weight": "the share of the batch's ε and δ, compared with questions of weight 1.",
    "by": "a column, or several, whose keys are public: one answer for each key or combination of keys. A\n"
    "row has one key, so groups cost no more than a single answer; each is noisier, having fewer rows.",
    "where": "the rows that count: a condition as text (\"age >= 40 and sex = 'Female'\") or as a\n"
    "row-by-row Ibis expression, see :meth:`tacit.tables.Table.filter`.",
    "bounds": 'None for those of the schema, (low, high) for public ones given here, "dp" to buy them with\n'
    "a fifth of the cost.",
    "label": "how the charge is called in the ledger; the question itself if left out.",
}
"""Parameters that several questions have, explained once."""


def asks(kind: type[Question]) -> Callable[[Method], Method]:
    """Make the method that asks a question of this kind, with the signature of the function below it."""

    def made(declared: Method) -> Method:
        signature = inspect.signature(declared, eval_str=True)
        _check(kind, signature)
        priced = "epsilon" in signature.parameters

        @functools.wraps(declared)
        def method(self: Any, *arguments: Any, **options: Any) -> Any:
            given = signature.bind_partial(self, *arguments, **options).arguments
            given.pop("self")
            if priced and given.get("epsilon") is None:
                raise InvalidValue("epsilon", None, "given", "Every answer has a price: epsilon=0.1, say.")
            terms = {name: given.pop(name) for name in TERMS if name in given}
            return self.ask(kind(**given), **terms)

        method.__signature__ = signature  # type: ignore[attr-defined]
        method.__doc__ = _help(kind, signature)
        return cast(Method, method)

    return made


def _check(kind: type[Question], signature: inspect.Signature) -> None:
    """Refuse a signature that does not repeat the fields of the question, with their defaults."""
    own = ("self", *TERMS)
    declared = {name: one.default for name, one in signature.parameters.items() if name not in own}
    known = {
        one.name: inspect.Parameter.empty if one.default is MISSING else one.default
        for one in fields(kind)
        if one.name != "written" and (one.name != "weight" or "epsilon" not in signature.parameters)
    }
    if declared != known:
        raise TypeError(f"{kind.__name__} has the fields {known}, its method declares {declared}")


def _help(kind: type[Question], signature: inspect.Signature) -> str:
    explained = {name: text for name, text in PARAMETERS.items() if name in signature.parameters}
    lines = [f"{name}\n    " + text.replace("\n", "\n    ") for name, text in explained.items()]
    return "\n".join([inspect.cleandoc(kind.__doc__ or ""), "", *lines])


# fmt: off
class TableQuestions:
    """One method for each question; every answer is paid for by itself."""

    @asks(questions.Count)
    def count(self, *, epsilon: float, delta: float = 0.0, by: By = None, where: Where = None,
              label: str | None = None) -> Release: ...

    @asks(questions.CountUnits)
    def count_units(self, *, epsilon: float, delta: float = 0.0, where: Where = None,
                    label: str | None = None) -> Release: ...

    @asks(questions.Sum)
    def sum(self, column: str, *, epsilon: float, delta: float = 0.0, by: By = None, bounds: Limits = None,
            where: Where = None, label: str | None = None) -> Release: ...

    @asks(questions.Mean)
    def mean(self, column: str, *, epsilon: float, delta: float = 0.0, by: By = None, bounds: Limits = None,
             where: Where = None, label: str | None = None) -> Release: ...

    @asks(questions.Variance)
    def variance(self, column: str, *, epsilon: float, delta: float = 0.0, by: By = None,
                 bounds: Limits = None, where: Where = None, label: str | None = None) -> Release: ...

    @asks(questions.Std)
    def std(self, column: str, *, epsilon: float, delta: float = 0.0, by: By = None, bounds: Limits = None,
            where: Where = None, label: str | None = None) -> Release: ...

    @asks(questions.Quantile)
    def quantile(self, column: str, q: float | Sequence[float], *, epsilon: float, delta: float = 0.0,
                 by: By = None, bounds: Limits = None, confidence: float | None = 0.95, where: Where = None,
                 label: str | None = None) -> Release: ...

    @asks(questions.Median)
    def median(self, column: str, *, epsilon: float, delta: float = 0.0, by: By = None,
               bounds: Limits = None, confidence: float | None = 0.95, where: Where = None,
               label: str | None = None) -> Release: ...

    @asks(questions.Histogram)
    def histogram(self, column: str, edges: int | Sequence[Any] | None = None, *, epsilon: float,
                  delta: float = 0.0, by: By = None, where: Where = None,
                  label: str | None = None) -> Release: ...

    @asks(questions.Crosstab)
    def crosstab(self, columns: str | Sequence[str], *, epsilon: float, delta: float = 0.0, by: By = None,
                 margins: bool = False, where: Where = None, label: str | None = None) -> Release: ...

    @asks(questions.Covariance)
    def covariance(self, columns: Sequence[str], *, epsilon: float, delta: float = 0.0,
                   bounds: Limits = None, where: Where = None, label: str | None = None) -> Release: ...

    @asks(questions.Correlation)
    def correlation(self, columns: Sequence[str], *, epsilon: float, delta: float = 0.0,
                    bounds: Limits = None, where: Where = None, label: str | None = None) -> Release: ...

    @asks(questions.Keys)
    def keys(self, column: str, *, epsilon: float, delta: float = 0.0, where: Where = None,
             label: str | None = None) -> Release: ...

    @asks(questions.Top)
    def top(self, column: str, k: int, *, epsilon: float, delta: float = 0.0, where: Where = None,
            label: str | None = None) -> Release: ...

    @asks(questions.Bounds)
    def bounds(self, column: str, *, epsilon: float, delta: float = 0.0, where: Where = None,
               label: str | None = None) -> Release: ...

    @asks(questions.Check)
    def check(self, columns: Sequence[str] | None = None, *, epsilon: float, delta: float = 0.0,
              where: Where = None, label: str | None = None) -> Release: ...


class BatchQuestions:
    """One method for each question; all answers share the ε and δ of the batch, by weight."""

    @asks(questions.Count)
    def count(self, *, weight: float = 1.0, by: By = None, where: Where = None,
              label: str | None = None) -> Release: ...

    @asks(questions.CountUnits)
    def count_units(self, *, weight: float = 1.0, where: Where = None,
                    label: str | None = None) -> Release: ...

    @asks(questions.Sum)
    def sum(self, column: str, *, weight: float = 1.0, by: By = None, bounds: Limits = None,
            where: Where = None, label: str | None = None) -> Release: ...

    @asks(questions.Mean)
    def mean(self, column: str, *, weight: float = 1.0, by: By = None, bounds: Limits = None,
             where: Where = None, label: str | None = None) -> Release: ...

    @asks(questions.Variance)
    def variance(self, column: str, *, weight: float = 1.0, by: By = None, bounds: Limits = None,
                 where: Where = None, label: str | None = None) -> Release: ...

    @asks(questions.Std)
    def std(self, column: str, *, weight: float = 1.0, by: By = None, bounds: Limits = None,
            where: Where = None, label: str | None = None) -> Release: ...

    @asks(questions.Quantile)
    def quantile(self, column: str, q: float | Sequence[float], *, weight: float = 1.0, by: By = None,
                 bounds: Limits = None, confidence: float | None = 0.95, where: Where = None,
                 label: str | None = None) -> Release: ...

    @asks(questions.Median)
    def median(self, column: str, *, weight: float = 1.0, by: By = None, bounds: Limits = None,
               confidence: float | None = 0.95, where: Where = None, label: str | None = None) -> Release: ...

    @asks(questions.Histogram)
    def histogram(self, column: str, edges: int | Sequence[Any] | None = None, *, weight: float = 1.0,
                  by: By = None, where: Where = None, label: str | None = None) -> Release: ...

    @asks(questions.Crosstab)
    def crosstab(self, columns: str | Sequence[str], *, weight: float = 1.0, by: By = None,
                 margins: bool = False, where: Where = None, label: str | None = None) -> Release: ...

    @asks(questions.Covariance)
    def covariance(self, columns: Sequence[str], *, weight: float = 1.0, bounds: Limits = None,
                   where: Where = None, label: str | None = None) -> Release: ...

    @asks(questions.Correlation)
    def correlation(self, columns: Sequence[str], *, weight: float = 1.0, bounds: Limits = None,
                    where: Where = None, label: str | None = None) -> Release: ...

    @asks(questions.Keys)
    def keys(self, column: str, *, weight: float = 1.0, where: Where = None,
             label: str | None = None) -> Release: ...

    @asks(questions.Top)
    def top(self, column: str, k: int, *, weight: float = 1.0, where: Where = None,
            label: str | None = None) -> Release: ...

    @asks(questions.Bounds)
    def bounds(self, column: str, *, weight: float = 1.0, where: Where = None,
               label: str | None = None) -> Release: ...

    @asks(questions.Check)
    def check(self, columns: Sequence[str] | None = None, *, weight: float = 1.0, where: Where = None,
              label: str | None = None) -> Release: ...
