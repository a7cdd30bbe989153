"""``tacit query``: ask questions of a table and pay for them from a ledger, or see what they would cost."""

from __future__ import annotations

import csv
import io
import json
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tacit import _validate
from tacit.cli.common import balance, deliver, described, opened, pair, show_refusal, status, up
from tacit.errors import BudgetExceeded, TacitError
from tacit.guarantee import Guarantee
from tacit.ledger import Ledger
from tacit.tables.questions import CATALOGUE, parse

if TYPE_CHECKING:
    from tacit.cli.answers import AnswerLines
    from tacit.tables import Batch, Quote

__all__ = ["query"]

FORMATS = ("table", "json", "csv")


def query(
    source: Annotated[
        str, typer.Argument(help="A CSV or Parquet file, or a pattern: 'part-*.csv'.", show_default=False)
    ],
    questions: Annotated[
        list[str],
        typer.Argument(metavar="QUESTION", help="Such as 'mean(hours) by sex'.", show_default=False),
    ],
    schema: Annotated[
        Path, typer.Option(help="What is public about the table; see tacit schema.", show_default=False)
    ],
    ledger: Annotated[str, typer.Option(help="Path of the ledger, or a database URL.", show_default=False)],
    epsilon: Annotated[
        float, typer.Option(help="ε to spend, on all questions together.", show_default=False)
    ],
    delta: Annotated[float, typer.Option(help="δ to spend; above 0 the noise is Gaussian.")] = 0.0,
    dataset: Annotated[str, typer.Option(help="The dataset in the ledger.")] = "default",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show costs and expected errors; spend and read nothing.")
    ] = False,
    rows: Annotated[
        int | None,
        typer.Option(help="A guess of the number of rows, for --dry-run.", show_default="the schema's"),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    format: Annotated[
        str | None, typer.Option(help="table, json or csv.", show_default="by the ending of --out, or table")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write the answers to.", show_default="standard output")
    ] = None,
    delimiter: Annotated[str, typer.Option(help=r"What separates the values of a CSV; \t is a tab.")] = ",",
    seed: Annotated[
        int | None,
        typer.Option(help="Makes the noise repeatable, for tests: NO PRIVACY.", show_default=False),
    ] = None,
) -> None:
    """Ask questions of a private table, and pay for them from a ledger.

    A question is a statistic, with optional groups and an optional condition:

        mean(hours) by sex where age >= 40 and country in ('Cuba', 'India')

    {statistics}

    Text goes in 'single quotes', a column whose name is not a plain word in
    "double quotes". Several questions share the ε evenly; weight=2 inside a
    question gives it two shares.

    The ledger is charged before the data are read. With --dry-run nothing is
    charged or read, and the exit code is 2 if the budget would not suffice.
    """
    _validate.epsilon(epsilon)
    _validate.delta(delta)
    _validate.open_probability("confidence", confidence)
    style = _style(format, out)
    from tacit.schema import Schema

    known = Schema.load(schema)
    with opened(ledger, dataset, known, delta) as book:
        if delta > book.budget.delta:
            raise BudgetExceeded(
                f"--delta {delta:g} is more than the ledger allows in all, δ = {book.budget.delta:g}.",
                "Leave --delta out for pure differential privacy, or ask for less.",
                label=questions[0],
                budget=book.budget,
                spent=None,
                would_be=None,
            )
        from tacit import tables

        asked = [parse(text, confidence=confidence) for text in questions]
        separator = "\t" if delimiter == r"\t" else delimiter
        with tables.open(source, schema=known, ledger=book, random_state=seed, delimiter=separator) as table:
            batch = table.batch(epsilon=epsilon, delta=delta)
            releases = [batch.ask(question) for question in asked]
            if dry_run:
                _show_plan(batch, book, style, out, rows)
                return
            from tacit.cli.answers import answer_of

            try:
                with _reserved(out), status(f"Asking {source}"):
                    batch.run()
                    answers = [answer_of(release, confidence) for release in releases]
            except BudgetExceeded as error:
                show_refusal(error, book)
                raise typer.Exit(2) from error
            _show_answers(answers, batch.guarantee, book, confidence, style, out)


_STATISTICS = "Statistics: " + ", ".join(kind.usage() for kind in CATALOGUE.values()) + "."
query.__doc__ = (query.__doc__ or "").replace(
    "{statistics}", textwrap.fill(_STATISTICS, 75, subsequent_indent="    ", break_on_hyphens=False)
)


def _style(format: str | None, out: Path | None) -> str:
    if format is not None:
        return _validate.choice("format", format, FORMATS)
    ending = out.suffix.lower().removeprefix(".") if out else ""
    return ending if ending in FORMATS else "table"


@contextmanager
def _reserved(out: Path | None) -> Iterator[None]:
    """Find out that a file can be written before anything is spent; leave no trace if nothing is."""
    if out is None:
        yield
        return
    new = not out.exists()
    try:
        with out.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise TacitError(
            f"{out} cannot be written: {error.strerror}. Nothing was charged.", "Name another file."
        ) from None
    try:
        yield
    except BaseException:
        if new:
            out.unlink(missing_ok=True)
        raise


def _rendered(parts: Sequence[str | Table], out: Path | None) -> str:
    """Lines and tables as text: as wide as the terminal on standard output, wider in a file."""
    console = Console() if out is None else Console(file=io.StringIO(), width=200)
    with console.capture() as capture:
        for part in parts:
            console.print(part, markup=False, highlight=False)
    return capture.get()


def _show_answers(
    answers: list[AnswerLines],
    guarantee: Guarantee,
    ledger: Ledger,
    confidence: float,
    style: str,
    out: Path | None,
) -> None:
    from tacit.cli.answers import to_csv, to_json, to_tables

    spent, remaining = ledger.spent().epsilon, ledger.remaining()
    if style == "json":
        body = {
            "confidence": confidence,
            "answers": to_json(answers),
            "guarantee": json.loads(guarantee.to_json()),
            "spent": guarantee.epsilon,
            "ledger": ledger.location,
            "dataset": ledger.dataset,
            "budget": {"epsilon": ledger.budget.epsilon, "delta": ledger.budget.delta},
            "spent_in_all": spent,
            "remaining": remaining,
        }
        text = json.dumps(body, allow_nan=False, ensure_ascii=False, indent=2) + "\n"
    elif style == "csv":
        text = to_csv(answers)
    else:
        text = _rendered(list(to_tables(answers, confidence)), out)
    deliver(text, out)
    if style == "json" and out is None:
        return
    together = "" if len(answers) == 1 else f"The {len(answers)} answers together: "
    console = Console(stderr=out is None and style == "csv")
    for line in (
        f"{together}{guarantee}",
        f"Charged now: {pair(guarantee)}. Spent in all: ε = {up(spent)} of "
        f"{ledger.budget.epsilon:.6g} at δ = {ledger.budget.delta:.6g}; remaining: ε = {remaining:.6g} "
        f"({ledger.location}, {ledger.dataset}).",
        *([f"Answers written to {out}"] if out else []),
    ):
        console.print(line, markup=False, highlight=False)


def _show_plan(batch: Batch, ledger: Ledger, style: str, out: Path | None, rows_guessed: int | None) -> None:
    plans, whole = batch.plan(population=rows_guessed), batch.guarantee
    spent, remaining = ledger.spent().epsilon, ledger.remaining()
    after = ledger.preview(whole.event, delta=whole.delta or None)
    left = None if after is None else max(0.0, ledger.budget.epsilon - after)
    rows = [_plain(plan) for plan in plans]
    if style == "json":
        body = {
            "questions": rows,
            "guarantee": json.loads(whole.to_json()),
            "budget": {"epsilon": ledger.budget.epsilon, "delta": ledger.budget.delta},
            "spent_in_all": spent,
            "remaining": remaining,
            "spent_in_all_after": after,
            "remaining_after": left,
            "fits": after is not None,
        }
        text = json.dumps(body, allow_nan=False, ensure_ascii=False, indent=2) + "\n"
    elif style == "csv":
        stream = io.StringIO()
        writer = csv.DictWriter(stream, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "event": json.dumps(row["event"])} for row in rows)
        text = stream.getvalue()
    else:
        text = _rendered([_plan_table(plans), balance(ledger, spent, remaining, after, left)], out)
    deliver(text, out)
    together = f"{pair(whole)} for {'this question' if len(plans) == 1 else f'these {len(plans)} questions'}"
    if after is None:
        raise BudgetExceeded(
            f"{together} would not fit into the budget: ε = {remaining:.6g} remains of {ledger.budget}.",
            "Nothing was charged. Ask for less, or with a smaller --epsilon.",
            label=plans[0].label,
            budget=ledger.budget,
            spent=spent,
            would_be=None,
        )
    if style == "table":
        line = f"{together} would fit. Nothing was charged, and no data were read."
        Console().print(line, markup=False, highlight=False)


def _plain(plan: Quote) -> dict[str, Any]:
    event = json.loads(plan.event.to_json())
    return {**vars(plan), "event": event}


def _plan_table(plans: Sequence[Quote]) -> Table:
    table = Table()
    table.add_column("question", overflow="fold", min_width=20)
    table.add_column("ε", justify="right", no_wrap=True)
    if any(plan.delta for plan in plans):
        table.add_column("δ", justify="right", no_wrap=True)
    table.add_column("95 % error", justify="right", no_wrap=True)
    table.add_column("event and note", overflow="fold")
    for plan in plans:
        failure = [up(plan.delta, 4)] if any(other.delta for other in plans) else []
        table.add_row(
            escape(plan.label),
            up(plan.epsilon, 4),
            *failure,
            "" if plan.error is None else f"± {plan.error:.3g}",
            escape("\n".join(filter(None, (described(plan.event), plan.note)))),
        )
    return table
