"""The ledgers of a job: opened by place or taken as they are, and agreed with before anything is read."""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack

from tacit.errors import BudgetExceeded, LedgerMissing
from tacit.jobs.files import files_of
from tacit.ledger import Ledger, Payment
from tacit.relations import Unit

__all__ = ["Place", "agreed", "another"]

Place = Ledger | str | os.PathLike[str]
"""An open ledger, which stays open, or where one is: a path or a database URL."""


def agreed(
    ledger: Place, dataset: str, *, unit: Unit | None, delta: float, label: str, stack: ExitStack
) -> Payment:
    """Open the ledger and agree with it on whom it protects; refuse a δ that it never allows.

    A ledger that is opened here is closed with the stack. ``dataset`` is for one that is. Without a ``unit``,
    that of the ledger is taken.
    """
    book = (
        ledger
        if isinstance(ledger, Ledger)
        else stack.enter_context(_opened(ledger, dataset, unit or Unit(), delta))
    )
    payment = Payment.agreed(book, unit=unit)
    if delta > book.budget.delta:
        raise BudgetExceeded(
            f"delta={delta:g} is more than the ledger allows in all, δ = {book.budget.delta:g}.",
            "Ask for less, or for a kind of noise that needs no δ.",
            label=label,
            budget=book.budget,
            spent=None,
            would_be=None,
        )
    return payment


def another(
    payment: Payment, ledger: Place, dataset: Ledger | str | None, *, unit: Unit, stack: ExitStack
) -> Payment:
    """The payment for other people's rows: the same, unless ``dataset`` names another budget."""
    own = payment.ledger
    if own is None or dataset is None or dataset == own.dataset:
        return payment
    if isinstance(dataset, Ledger) and _same(dataset, own):
        return payment
    place = dataset if isinstance(dataset, Ledger) else ledger
    name = dataset.dataset if isinstance(dataset, Ledger) else dataset
    if isinstance(place, Ledger) and place is own:
        place = own.location
    return agreed(place, name, unit=unit, delta=0.0, label="test", stack=stack)


def _same(one: Ledger, other: Ledger) -> bool:
    """Whether charges to both are charges to one budget, however each was opened."""
    return one.dataset == other.dataset and (
        one.location == other.location or files_of(one.location) == files_of(other.location)
    )


def _opened(location: str | os.PathLike[str], dataset: str, unit: Unit, delta: float) -> Ledger:
    """The ledger there, or how to make it."""
    try:
        return Ledger.open(location, dataset=dataset)
    except LedgerMissing as error:
        options = ["--epsilon", "1", *(["--delta", "1e-6"] if delta else [])]
        options += [] if dataset == "default" else ["--dataset", dataset]
        if unit.column is not None:
            options += ["--unit", unit.column, "--rows-per-unit", str(unit.rows)]
        place: str = error.location  # type: ignore[attr-defined]
        command = shlex.join(["tacit", "ledger", "init", place, *options])
        raise LedgerMissing(
            error.problem, f"Make it with the ε that may be spent in all: {command}", location=place
        ) from None
