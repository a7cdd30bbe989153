"""What commands that make a model share: a look before spending, refusals, and files that are not lost."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import typer
from rich.console import Console
from rich.markup import escape

from tacit import _validate, events
from tacit.cli.common import balance, pair, show_refusal, up
from tacit.errors import BudgetExceeded, TacitError
from tacit.guarantee import Guarantee
from tacit.jobs.fit import Say
from tacit.ledger import Ledger

__all__ = [
    "after",
    "check_delta",
    "check_test",
    "kept",
    "progress",
    "refuse",
    "say",
    "settled",
    "show_balance",
    "writable",
]


class Work(Protocol):
    """What is to be charged: something planned, with a label."""

    @property
    def book(self) -> Ledger:
        """Where it is charged."""

    @property
    def label(self) -> str:
        """What the ledger calls it."""

    @property
    def planned(self) -> Any:
        """Its ``event``, ``epsilon`` and ``delta``."""


class Test(Protocol):
    """A test that is charged too, unless its ``epsilon`` is None."""

    @property
    def book(self) -> Ledger:
        """Where it is charged."""

    @property
    def epsilon(self) -> float | None:
        """What it spends."""

    @property
    def event(self) -> events.Event:
        """What it does."""


def check_test(
    test: str | None, epsilon: float | None, public: bool, dataset: str | None, groups: str | None = None
) -> None:
    """Refuse options of a test that do not go together."""
    if epsilon is not None:
        _validate.epsilon(epsilon)
    if test is None:
        given = {"test-epsilon": epsilon, "test-public": public, "test-dataset": dataset, "groups-by": groups}
        for name, value in given.items():
            if value:
                raise TacitError(f"--{name} is for rows to test on.", "Name them with --test.")
    elif (epsilon is None) == (not public):
        raise TacitError(
            "--test needs either --test-epsilon or --test-public.",
            "Give --test-epsilon 0.2, say, for private rows; --test-public for rows that anyone may see.",
        )
    elif public and dataset:
        raise TacitError(
            "--test-dataset is where private rows are charged.", "Leave it or --test-public out."
        )


def check_delta(book: Ledger, delta: float, label: str, advice: str) -> None:
    """Refuse a δ that the ledger never allows."""
    if delta > book.budget.delta:
        raise BudgetExceeded(
            f"--delta {delta:g} is more than the ledger allows in all, δ = {book.budget.delta:g}.",
            advice,
            label=label,
            budget=book.budget,
            spent=None,
            would_be=None,
        )


def writable(out: Path, overwrite: bool) -> None:
    """Find out that a file can be written before anything is spent, and leave no trace."""
    new = not out.exists()
    if not new and not overwrite:
        raise TacitError(f"{out} exists and was left as it is.", "Name another file, or add --overwrite.")
    try:
        with out.open("ab"):
            pass
    except OSError as error:
        raise TacitError(
            f"{out} cannot be written: {error.strerror}. Nothing was charged.", "Name another file."
        ) from None
    if new:
        out.unlink()


def say(console: Console, *lines: str) -> None:
    """Print lines as they are."""
    for line in lines:
        console.print(line, markup=False, highlight=False)


def after(job: Work, trial: Test | None) -> float | None:
    """ε spent in all after the work and the test, or None if one of them would be refused."""
    book, planned = job.book, job.planned
    after = book.preview(planned.event, delta=planned.delta or None)
    if after is None or trial is None or trial.epsilon is None:
        return after
    if trial.book is not book:
        return None if trial.book.preview(trial.event) is None else after
    if any(entry.mode == "renyi" for entry in book.entries()):
        both = events.Compose((planned.event, trial.event))
        return book.preview(both, delta=planned.delta or None)
    both_added = after + trial.epsilon
    return both_added if both_added <= book.budget.epsilon * (1 + 1e-12) else None


def show_balance(console: Console, job: Work, trial: Test | None, after: float | None, unread: str) -> None:
    """What is spent and what remains, now and afterwards."""
    balances = [(job.book, after)]
    if trial is not None and trial.book is not job.book:
        own = job.book.preview(job.planned.event, delta=job.planned.delta or None)
        balances = [(job.book, own), (trial.book, trial.book.preview(trial.event))]
    for book, then in balances:
        left = None if then is None else max(0.0, book.budget.epsilon - then)
        console.print(balance(book, book.spent().epsilon, book.remaining(), then, left))
    if after is not None:
        say(console, f"This would fit. Nothing was charged, and no {unread} were read.")


def refuse(job: Work, trial: Test | None, unread: str) -> None:
    """Refuse before anything is charged; the ledger says what was spent on what."""
    book, planned = job.book, job.planned
    failure = f", δ = {planned.delta:g}" if planned.delta else ""
    wanted = f"ε = {planned.epsilon:g}{failure} for the {job.label}"
    if trial is not None and trial.epsilon is not None:
        tested = f"ε = {trial.epsilon:g} for the test"
        if trial.book is book:
            wanted += f" and {tested}"
        elif book.preview(planned.event, delta=planned.delta or None) is not None:
            book, wanted = trial.book, tested
    advice = "Ask for less, with a smaller --epsilon."
    if planned.delta and planned.epsilon <= book.remaining():
        advice = (
            f"ε alone would fit, but charges share the δ = {book.budget.delta:g} of the ledger too. "
            "Give each a part of it with --delta, or make a ledger with a larger one."
        )
    error = BudgetExceeded(
        f"{wanted} would not fit into the budget of {book.dataset!r}, {book.budget}. "
        f"Spent so far: ε = {book.spent().epsilon:.6g}; remaining: ε = {book.remaining():.6g}.",
        f"Nothing was charged, and no {unread} were read. {advice}",
        label=job.label,
        budget=book.budget,
        spent=book.spent().epsilon,
        would_be=None,
    )
    show_refusal(error, book)
    raise typer.Exit(2)


def settled(console: Console, guarantee: Guarantee, job: Work, trial: Test | None, when: str = "now") -> None:
    """What is promised, what was charged for it, and what remains."""
    charged = {job.book: [pair(guarantee)]}
    if trial is not None and trial.epsilon is not None:
        charged.setdefault(trial.book, []).append(f"ε = {up(trial.epsilon)} for the test")
    say(console, str(guarantee))
    for each, costs in charged.items():
        say(
            console,
            f"Charged {when}: {', and '.join(costs)}. Spent in all: ε = {up(each.spent().epsilon)} of "
            f"{each.budget.epsilon:.6g} at δ = {each.budget.delta:.6g}; remaining: ε = "
            f"{each.remaining():.6g} ({each.location}, {each.dataset}).",
        )


@contextmanager
def progress(console: Console) -> Iterator[Say]:
    """What is being done, on the terminal's standard error, gone when it is done."""
    errors = Console(stderr=True, quiet=console.quiet)
    if not errors.is_terminal or errors.quiet:
        yield lambda text: None
        return
    with errors.status("") as status:
        yield lambda text: status.update(f"{escape(text)} …")


def kept(write: Callable[[Path, bool], None], out: Path, overwrite: bool) -> Path:
    """Write what was paid for; if that fails at last, somewhere else."""
    try:
        write(out, overwrite)
    except TacitError as error:
        place = Path(tempfile.mkdtemp(prefix="tacit-")) / out.name
        write(place, True)
        typer.echo(f"tacit: {error.problem} The model was written to {place} instead.", err=True)
        return place
    return out
