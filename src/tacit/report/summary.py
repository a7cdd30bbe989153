"""The box at the top of a model's page: what, for whom, ε in one sentence, and all that these people paid."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime

from tacit._version import __version__
from tacit.report.facts import Facts, Spending
from tacit.report.membership import odds, percent_up
from tacit.report.numbers import counted, ends, number, price, up
from tacit.report.page import Fact, Summary
from tacit.report.wording import called, protected, suspicion

__all__ = ["MAIN", "model_summary", "written"]

MAIN = ("auroc", "accuracy", "r2")
"""The first of these that there is stands for all."""
NOBODY = "not named; [about] in the schema or --responsible names somebody"


def model_summary(facts: Facts, spending: Sequence[Spending] = ()) -> Summary:
    """What the box of a model's page says."""
    same = _same_people(facts, spending)
    told: list[Fact] = [
        ("What", f"{facts.description.title}, in the file {facts.name}"),
        ("Protects", protected(facts.guarantee.unit)),
        ("This model", price(facts.guarantee)),
        ("The same people", _in_all(facts, same)),
        ("How good", _measured(facts)),
        ("Data", _data(facts, same)),
        *_fitted(facts, same),
        ("This page", written()),
        ("Responsible", facts.about.responsible or NOBODY),
    ]
    return Summary(_sentence(facts), told)


def written(today: date | None = None) -> str:
    """When a page is written, and by which version.

    >>> written(date(2026, 3, 1)).startswith("written on 1 March 2026 by tacit ")
    True
    """
    return f"written on {_day(today or datetime.now(UTC).date())} by tacit {__version__}"


def _day(day: date) -> str:
    return f"{day.day} {day:%B %Y}"


def _sentence(facts: Facts) -> str:
    guarantee = facts.guarantee
    if not facts.private:
        return "This model was fitted without noise: it promises nothing to the people in the data."
    if guarantee.noise == "seeded":
        return "The noise of this model was seeded, for a test: it promises nothing to anybody in the data."
    apart = f", apart from a probability of {guarantee.delta:g}" if guarantee.delta else ""
    whom = suspicion(guarantee.unit, f"the data of one given {called(guarantee.unit)} were used")
    return (
        f"With ε = {up(guarantee.epsilon)}, whoever studies this model can become at most "
        f"{percent_up(odds(guarantee))} sure that {whom}, if 50% sure before{apart}."
    )


def _same_people(facts: Facts, spending: Sequence[Spending]) -> Sequence[Spending]:
    """The datasets of the ledger that this model was charged to; all of them if its charge is not found."""
    return [one for one in spending if one.entry_of(facts.guarantee) is not None] or spending


def _in_all(facts: Facts, same: Sequence[Spending]) -> str:
    if not same:
        return "what else was spent on them is not known here: no ledger was given (tacit report --ledger)"
    told = []
    for one in same:
        spent = (
            f"ε = {up(one.spent)} of {one.budget.epsilon:g} spent on them in all, in "
            f"{counted(len(one.entries), 'charge')} to “{one.dataset}”; ε = {one.remaining:.4g} remains"
        )
        if one.entry_of(facts.guarantee) is None:
            spent += "; this model is not among the charges"
        if one.unit != facts.guarantee.unit:
            spent += f"; that ledger protects one {one.unit}"
        told.append(spent)
    return ". ".join(told)


def _measured(facts: Facts) -> str:
    for one in facts.evaluations:
        for name in MAIN:
            if (value := one.figures.get(name)) is not None:
                rows = "other, public rows" if one.guarantee is None else "other, private rows"
                return f"{name} {number(value)} ({ends(one.intervals[name])}), measured on {rows}"
    return "there is no target to measure it by" if facts.has_no_target else "not measured"


def _data(facts: Facts, same: Sequence[Spending]) -> str:
    parts = [facts.about.data] if facts.about.data else []
    parts += [f"“{one.dataset}” in the ledger {one.location}" for one in same]
    if facts.preprocessor is not None:
        parts.append(f"{counted(len(facts.preprocessor.columns), 'column')} as the schema declares them")
    return "; ".join(parts) or "not named; [about] in the schema names them"


def _fitted(facts: Facts, same: Sequence[Spending]) -> list[Fact]:
    """When the model was charged, where a ledger says so."""
    found = [(one, entry) for one in same if (entry := one.entry_of(facts.guarantee)) is not None]
    made = "Trained" if facts.is_network else "Fitted"
    return [
        (made, f"{_day(datetime.fromisoformat(entry.time).date())}, charged as entry {entry.number}")
        for _, entry in found[:1]
    ]
