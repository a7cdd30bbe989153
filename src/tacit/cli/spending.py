"""What commands print around a charge: the look before, a refusal, and what is left."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tacit.cli.common import pair, say, show_json, up
from tacit.cli.wording import told
from tacit.errors import BudgetExceeded
from tacit.guarantee import Guarantee
from tacit.jobs import Balance, Due, Job
from tacit.jobs.job import Say
from tacit.ledger import Ledger

__all__ = [
    "balance",
    "balances",
    "carried_out",
    "plan_facts",
    "progress",
    "refusals",
    "settled",
    "show_balances",
    "warn",
]


def balance(found: Balance) -> Table:
    """What is spent and what remains, now and after the charge."""
    ledger = found.ledger
    table = Table("ε", "now", "afterwards", title=escape(f"{ledger.location}: {ledger.dataset}"))
    table.title_justify = "left"
    for name, now, then in (
        ("spent", found.spent, found.after),
        ("remaining", found.remaining, found.left),
    ):
        table.add_row(name, f"{now:.6g}", "refused" if then is None else f"{then:.6g}")
    return table


def balances(job: Job) -> list[dict[str, Any]]:
    """What is spent and what remains of every budget, for JSON; ``None`` afterwards means a refusal."""
    return [
        {
            "ledger": each.ledger.location,
            "dataset": each.ledger.dataset,
            "budget": {"epsilon": each.ledger.budget.epsilon, "delta": each.ledger.budget.delta},
            "spent": each.spent,
            "remaining": each.remaining,
            "spent_after": each.after,
            "remaining_after": each.left,
        }
        for each in job.balances()
    ]


def plan_facts(job: Any, **more: Any) -> dict[str, Any]:
    """What a job that is ``planned`` will do and cost, for JSON; ``more`` is of that job alone."""
    planned, due = job.planned, job.dues[0]
    return {
        "label": job.label,
        **more,
        "epsilon": planned.epsilon,
        "delta": planned.delta,
        "protects": f"{planned.relation} of one {planned.unit}",
        "parts": [{"part": part, "epsilon": cost} for part, cost in planned.parts],
        "notes": list(planned.notes),
        "expected": list(planned.expected),
        "doubts": list(planned.doubts),
        "noise": due.noise,
        "event": json.loads(due.event.to_json()),
        "ledgers": balances(job),
    }


def show_balances(console: Console, job: Job) -> None:
    """What is spent and what remains of every budget, now and afterwards."""
    found = job.balances()
    for each in found:
        console.print(balance(each))
    if all(each.after is not None for each in found):
        say(console, f"This would fit. Nothing was charged, and no {job.unread} were read.")


@contextmanager
def refusals(ledger: Ledger | None) -> Iterator[None]:
    """Say why a charge was refused, and what the budget went to, and exit with 2."""
    try:
        yield
    except BudgetExceeded as error:
        typer.echo(told(error), err=True)
        _show_shares(getattr(error, "ledger", ledger))
        raise typer.Exit(2) from error


def _show_shares(ledger: Ledger | None) -> None:
    shares = [] if ledger is None else ledger.by_label()
    if shares:
        table = Table("label", "charges", "share of cost", title="Spent on", title_justify="left")
        for part in shares:
            table.add_row(escape(part.label), str(part.charges), f"{part.share:.1%}")
        Console(stderr=True).print(table)


def settled(
    console: Console, guarantee: Guarantee, ledger: Ledger | None, tests: Sequence[Due], when: str = "now"
) -> None:
    """What is promised, what was charged for it and for tests, and what remains."""
    charged = {} if ledger is None else {ledger: [pair(guarantee)]}
    for due in tests:
        charged.setdefault(due.ledger, []).append(f"ε = {up(due.epsilon)} for the test")
    say(console, str(guarantee))
    for each, costs in charged.items():
        say(
            console,
            f"Charged {when}: {', and '.join(costs)}. Spent in all: ε = {up(each.spent().epsilon)} of "
            f"{each.budget.epsilon:.6g} at δ = {each.budget.delta:.6g}; remaining: ε = "
            f"{each.remaining():.6g} ({each.location}, {each.dataset}).",
        )


def carried_out(console: Console, job: Any, plan: Mapping[str, Any], dry_run: bool, in_json: bool) -> Any:
    """What the job made; None for a dry run, which shows the plan and what it would leave of the budget."""
    if dry_run and in_json:
        show_json(plan)
    elif dry_run:
        show_balances(console, job)
    with refusals(job.dues[0].payment.ledger):
        job.afford()
        if dry_run:
            return None
        with progress(console) as tell:
            return job.run(tell, warn)


@contextmanager
def progress(console: Console) -> Iterator[Say]:
    """Show what is being done on the terminal's standard error, and remove it when it is done."""
    errors = Console(stderr=True, quiet=console.quiet)
    if not errors.is_terminal or errors.quiet:
        yield lambda text: None
        return
    with errors.status("") as status:
        yield lambda text: status.update(f"{escape(text)} …")


def warn(text: str) -> None:
    """Say on standard error what has to be known."""
    typer.echo(f"tacit: {text}", err=True)
