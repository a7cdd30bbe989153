"""Job: work that is planned from public facts, priced, and then run: charge first, then read.

A function ``plan_…`` checks everything that is public and returns a job; no row has been read then, and
nothing has been charged or written. :meth:`Job.balances` says what the job would leave of each budget,
:meth:`Job.afford` refuses a job that cannot be paid in full, and ``run`` charges, reads and releases.
"""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from tacit import events
from tacit.errors import BudgetExceeded, InvalidValue
from tacit.guarantee import floor
from tacit.ledger import Ledger, Payment

__all__ = ["Balance", "Due", "Job", "Refused", "Say", "called", "ledger_of", "silent", "warned", "whole"]

Say = Callable[[str], None]
"""Is told what is being done, to show progress; no word of it depends on the rows."""


def silent(text: str) -> None:
    """Show no progress."""


def warned(text: str) -> None:
    """Say what the caller has to know as a warning."""
    warnings.warn(text, UserWarning, stacklevel=2)


def called(source: object) -> str:
    """A source in words: its path, or, of one that is open or on an engine, the table."""
    return os.fspath(source) if isinstance(source, str | os.PathLike) else "the table"


def ledger_of(payment: Payment) -> Ledger:
    """The ledger that pays, where there must be one."""
    if payment.ledger is None:
        raise InvalidValue("ledger", None, "a tacit.Ledger")
    return payment.ledger


@dataclass(frozen=True)
class Due:
    """A charge that a job will make."""

    payment: Payment
    event: events.Event
    label: str
    """What the ledger calls the charge."""
    epsilon: float
    delta: float
    noise: str
    called: str = ""
    """What a refusal says it is for; unless told, the label with an article."""

    @property
    def ledger(self) -> Ledger:
        """Where it is charged."""
        return ledger_of(self.payment)


@dataclass(frozen=True)
class Balance:
    """What is spent of a budget, and what would be spent after the charges that are due."""

    spent: float
    """ε spent in all, now."""
    remaining: float
    """ε that remains, now."""
    after: float | None
    """ε spent in all afterwards; None if the charges would be refused."""
    ledger: Ledger
    dues: Sequence[Due]

    @classmethod
    def of(cls, ledger: Ledger, dues: Sequence[Due]) -> Balance:
        """Read the ledger; nothing is charged."""
        return cls(ledger.spent().epsilon, ledger.remaining(), _after(ledger, dues), ledger, tuple(dues))

    @property
    def left(self) -> float | None:
        """ε that would remain afterwards; None if the charges would be refused."""
        return None if self.after is None else max(0.0, self.ledger.budget.epsilon - self.after)


def _after(ledger: Ledger, dues: Sequence[Due]) -> float | None:
    """ε spent in all after these charges, one after the other, or None if one of them would be refused."""
    first, *others = dues
    after = first.payment.preview(first.event, delta=first.delta)
    if after is None or not others:
        return after
    if ledger.filter in ("renyi", "gaussian"):
        together = events.Compose(tuple(due.event for due in dues))
        return first.payment.preview(together, delta=sum(due.delta for due in dues))
    total = after + sum(due.epsilon for due in others)
    delta = sum(due.delta for due in dues)
    fits = delta <= ledger.remaining_delta() * (1 + 1e-12)
    if ledger.allowance is not None:
        own, limit = ledger.spent_within(), ledger.allowance.budget
        fits = fits and own[0] + sum(due.epsilon for due in dues) <= limit.epsilon * (1 + 1e-12)
        fits = fits and own[1] + delta <= limit.delta * (1 + 1e-12)
    return total if fits and total <= ledger.budget.epsilon * (1 + 1e-12) else None


class Refused(BudgetExceeded):
    """A job cannot be paid in full: nothing was charged. Fields: those of the base, and ``ledger``."""

    ledger: Ledger


class Job:
    """Work that is planned and priced. Close it, or use it in a ``with`` block, to let go of its files."""

    unread = "rows"
    """What has not been read before the charge, in words."""

    def __init__(self, dues: Sequence[Due | None]) -> None:
        self._stack = ExitStack()
        self.dues = tuple(due for due in dues if due is not None)
        """The charges that the job will make, in order."""

    def balances(self) -> list[Balance]:
        """What would become of each budget; nothing is charged and no row is read."""
        return [Balance.of(dues[0].ledger, dues) for dues in self._by_ledger()]

    def _by_ledger(self) -> list[list[Due]]:
        by_ledger: dict[int, list[Due]] = {}
        for due in self.dues:
            by_ledger.setdefault(id(due.ledger), []).append(due)
        return list(by_ledger.values())

    def afford(self) -> None:
        """Raise :class:`Refused` if the job cannot be paid in full; nothing is charged either way."""
        for dues in self._by_ledger():
            if _after(dues[0].ledger, dues) is None:
                raise self._refusal(Balance.of(dues[0].ledger, dues))

    def _refusal(self, balance: Balance) -> Refused:
        ledger, dues = balance.ledger, balance.dues
        wanted = []
        for due in dues:
            failure = f", δ = {due.delta:g}" if due.delta else ""
            wanted.append(f"ε = {due.epsilon:g}{failure} for {due.called or f'the {due.label}'}")
        advice = "Ask for less, with a smaller epsilon=."
        if dues[0].delta and dues[0].epsilon <= balance.remaining:
            advice = (
                f"ε alone would fit, but charges share the δ = {ledger.budget.delta:g} of the ledger too, of "
                f"which {float(floor(ledger.remaining_delta(), 6)):g} is left. "
                "Give each a part of it with delta=, or make a ledger with a larger one."
            )
        return Refused(
            f"{' and '.join(wanted)} would not fit into the budget of {ledger.dataset!r}, {ledger.budget}. "
            f"Spent so far: ε = {balance.spent:.6g}; remaining: ε = {balance.remaining:.6g}.",
            f"Nothing was charged, and no {self.unread} were read. {advice}",
            label=dues[0].label,
            budget=ledger.budget,
            spent=balance.spent,
            would_be=None,
            ledger=ledger,
        )

    def holding(self, stack: ExitStack) -> Self:
        """The job, which will close what the stack would have closed."""
        self._stack = stack.pop_all()
        return self

    def close(self) -> None:
        """Close the files, and the ledgers that the job opened itself."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


P = ParamSpec("P")
J = TypeVar("J", bound=Job)
R = TypeVar("R")


def whole(plan: Callable[P, J]) -> Callable[[Callable[[J], R]], Callable[P, R]]:
    """Make a function of a whole job: it takes the arguments of ``plan``, and refuses what cannot be paid."""

    def decorated(run: Callable[[J], R]) -> Callable[P, R]:
        @functools.wraps(run)
        def job(*arguments: P.args, **options: P.kwargs) -> R:
            with plan(*arguments, **options) as planned:
                planned.afford()
                return run(planned)

        returned = inspect.signature(run).return_annotation
        job.__signature__ = inspect.signature(plan).replace(return_annotation=returned)  # type: ignore[attr-defined]
        return job

    return decorated
