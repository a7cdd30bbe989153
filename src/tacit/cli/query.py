"""``tacit query``: ask questions of a table and pay for them from a ledger, or see what they would cost."""

from __future__ import annotations

import csv
import io
import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tacit import jobs
from tacit.cli import options, spending
from tacit.cli.common import as_json, chosen_format, deliver, described, pair, say, status, up
from tacit.errors import TacitError
from tacit.guarantee import Guarantee
from tacit.jobs.files import reserved, spare
from tacit.ledger import Ledger
from tacit.tables.questions import CATALOGUE

if TYPE_CHECKING:
    from tacit.tables import Quote, Release
    from tacit.tables.lines import AnswerLines

__all__ = ["query"]


def query(
    source: options.Source,
    questions: Annotated[
        list[str],
        typer.Argument(metavar="QUESTION", help="Such as 'mean(hours) by sex'.", show_default=False),
    ],
    schema: options.SchemaFile,
    ledger: options.LedgerPlace,
    epsilon: Annotated[
        float, typer.Option(help="ε to spend, on all questions together.", show_default=False)
    ],
    delta: options.Delta = 0.0,
    dataset: options.Dataset = "default",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show costs and expected errors; spend and read nothing.")
    ] = False,
    population: Annotated[
        int | None,
        typer.Option(help="A guess of the number of rows, for --dry-run.", show_default="the schema's"),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Confidence of the intervals.")] = 0.95,
    format: Annotated[
        str | None, typer.Option(help="table, json or csv.", show_default="by the ending of --out, or table")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write the answers to.", show_default="standard output")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the answers: .png, .svg or .pdf.", show_default=False)
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Write one HTML page with all answers, drawn.", show_default=False)
    ] = None,
    overwrite: options.Overwrite = False,
    delimiter: options.Delimiter = None,
    seed: options.Seed = None,
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
    style = chosen_format(format, out, ("table", "json", "csv"))
    for place in (out, plot, page):
        if place is not None:
            spare(place, overwrite, source, schema, ledger)
    _check_places(out, plot, page)
    with jobs.plan_query(
        source, questions, schema=schema, ledger=ledger, epsilon=epsilon, delta=delta, dataset=dataset,
        confidence=confidence, delimiter=delimiter, random_state=seed,
    ) as job:  # fmt: skip
        if dry_run:
            _show_plan(job, style, out, population)
            return
        from tacit.tables.lines import answer_of

        book = job.dues[0].ledger
        places = reserved(out), reserved(plot), reserved(page)
        with spending.refusals(book), places[0], places[1], places[2], status(f"Asking {source}"):
            answered = job.run()
            answers = [answer_of(release, confidence) for release in answered.releases]
        _show_answers(answers, answered.guarantee, book, confidence, style, out)
        quiet = Console(stderr=style != "table" and out is None)
        if plot is not None:
            _draw(quiet, answered.releases, confidence, plot)
        if page is not None:
            from tacit.report.answers import answers_page

            name = Path(source).name
            text = answers_page(
                answered.releases, answered.guarantee, name=name, ledger=book, confidence=confidence
            )
            deliver(text, page, "pages")
            say(quiet, f"Page written to {page}")


_STATISTICS = "Statistics: " + ", ".join(kind.usage() for kind in CATALOGUE.values()) + "."
query.__doc__ = (query.__doc__ or "").replace(
    "{statistics}", textwrap.fill(_STATISTICS, 75, subsequent_indent="    ", break_on_hyphens=False)
)


def _check_places(out: Path | None, plot: Path | None, page: Path | None) -> None:
    """Refuse two results in one file, and a picture of no known format, before anything is charged."""
    named = [place.resolve() for place in (out, plot, page) if place is not None]
    if len(set(named)) < len(named):
        raise TacitError("--out, --plot and --page name the same file.", "Name one for each.")
    if plot is not None:
        from tacit.drawing.files import check_ending

        check_ending(plot)


def _draw(console: Console, releases: Sequence[Release], confidence: float, plot: Path) -> None:
    """All answers in one picture, below each other; those without numbers are left out, and said to be."""
    from tacit.drawing import charts, files
    from tacit.tables.pictures import chart_of, drawable

    drawn = [release for release in releases if drawable(release, confidence)]
    if drawn:
        files.save(charts.figure_of([chart_of(release, confidence) for release in drawn]), plot)
        say(console, f"Plot written to {plot}")
    else:
        plot.unlink(missing_ok=True)
    for release in releases:
        if release not in drawn:
            say(console, f"Not drawn, for it has no numbers: {release.label}")


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
        text = as_json(body)
    elif style == "csv":
        text = to_csv(answers)
    else:
        text = _rendered(list(to_tables(answers, confidence)), out)
    deliver(text, out, "answers")
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


def _show_plan(job: jobs.QueryJob, style: str, out: Path | None, population: int | None) -> None:
    plans, whole, (found,) = job.plan(population), job.batch.guarantee, job.balances()
    ledger, after = found.ledger, found.after
    rows = [_plain(plan) for plan in plans]
    if style == "json":
        body = {
            "questions": rows,
            "guarantee": json.loads(whole.to_json()),
            "budget": {"epsilon": ledger.budget.epsilon, "delta": ledger.budget.delta},
            "spent_in_all": found.spent,
            "remaining": found.remaining,
            "spent_in_all_after": after,
            "remaining_after": found.left,
            "fits": after is not None,
        }
        text = as_json(body)
    elif style == "csv":
        stream = io.StringIO()
        writer = csv.DictWriter(stream, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "event": json.dumps(row["event"])} for row in rows)
        text = stream.getvalue()
    else:
        text = _rendered([_plan_table(plans), spending.balance(found)], out)
    deliver(text, out, "answers")
    job.afford()
    if style == "table":
        line = (
            f"{pair(whole)} for {job.dues[0].called} would fit. Nothing was charged, and no data were read."
        )
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
