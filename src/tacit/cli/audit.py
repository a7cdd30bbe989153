"""``tacit audit``: what an attack's scores prove about ε, and whether they refute a claim."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from tacit import audit as audits
from tacit.cli import options
from tacit.cli.common import say, show_json, wants_json

__all__ = ["app"]

app = typer.Typer(
    help="Turn the scores of an attack into a lower bound on ε, and compare it with a claim.",
    no_args_is_help=True,
)

Claim = Annotated[float | None, typer.Option(help="The ε that was claimed at δ.", show_default="none")]
RelationTold = Annotated[
    str | None,
    typer.Option(metavar="add_remove|replace_one", help="How the data sets differed.", show_default="untold"),
]
UnitTold = Annotated[
    str | None, typer.Option(help="What one of them has more or other: row.", show_default="untold")
]
Delta = Annotated[float, typer.Option(help="δ at which ε is bounded.")]
Confidence = Annotated[float, typer.Option(help="How sure the bound is.")]
High = Annotated[str, typer.Option(metavar="in|out", help="What a high score means.")]
REFUTED = 3
"""The exit code where a claim is refuted."""


@app.command("scores")
def scores(
    scores_in: Annotated[
        str, typer.Argument(help="Scores of runs with the unit: CSV or .npy.", show_default=False)
    ],
    scores_out: Annotated[str, typer.Argument(help="Scores of runs without it.", show_default=False)],
    method: Annotated[
        str, typer.Option(metavar="clopper_pearson|gaussian", help="The bound.", show_default=False)
    ],
    threshold: Annotated[
        str,
        typer.Option(
            help="split, a number fixed beforehand, or several numbers with commas (Bonferroni).",
            show_default=False,
        ),
    ],
    delta: Delta = 0.0,
    confidence: Confidence = 0.95,
    claimed: Claim = None,
    relation: RelationTold = None,
    unit: UnitTold = None,
    high: High = "in",
    format: options.Format = "table",
) -> None:
    """Bound ε from one score per run, on data with and without a unit.

    Neither the method nor the threshold has a default: a threshold that was
    chosen by looking at the scores refutes sound mechanisms. The exit code is
    3 if the claim is refuted.
    """
    from tacit.jobs.auditing import About, audit_scores

    json = wants_json(format)
    result = audit_scores(
        scores_in, scores_out, rule=_rule(threshold), method=method, delta=delta, confidence=confidence,
        high=high, about=About(claimed, relation, unit),
    )  # fmt: skip
    _show(result, json)


@app.command("canaries")
def canaries(
    file: Annotated[
        str, typer.Argument(help="Lines of a score and 1 or 0 (in, out): CSV or .npy.", show_default=False)
    ],
    method: Annotated[
        str, typer.Option(metavar="one_run|one_run_fdp", help="The bound.", show_default=False)
    ],
    highest: Annotated[
        int, typer.Option(help="Guess in for so many of the highest scores.", show_default=False)
    ],
    lowest: Annotated[int, typer.Option(help="Guess out for so many of the lowest.", show_default=False)],
    delta: Delta = 1e-6,
    confidence: Confidence = 0.95,
    claimed: Claim = None,
    relation: RelationTold = None,
    unit: UnitTold = None,
    high: High = "in",
    format: options.Format = "table",
) -> None:
    """Bound ε from one run, into which a fair coin put each canary or not.

    How many guesses are made has to be fixed before the scores are seen. The
    exit code is 3 if the claim is refuted.
    """
    from tacit.jobs.auditing import About, audit_canaries

    json = wants_json(format)
    result = audit_canaries(
        file, rule=audits.Extremes(highest, lowest), method=method, delta=delta, confidence=confidence,
        high=high, about=About(claimed, relation, unit),
    )  # fmt: skip
    _show(result, json)


def _rule(text: str) -> audits.Fixed | audits.Split | audits.Bonferroni:
    """The threshold rule that a word or numbers name."""
    from tacit.errors import InvalidValue

    if text == "split":
        return audits.Split(seed=0)
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidValue("threshold", text, "split, a number, or numbers with commas") from None
    return audits.Fixed(numbers[0]) if len(numbers) == 1 else audits.Bonferroni(tuple(numbers))


def _show(result: audits.AuditResult, json: bool) -> None:
    if json:
        show_json(result.to_dict())
    else:
        console = Console()
        say(console, str(result), f"Guesses by {result.rule}.")
        if result.claimed is not None:
            say(console, f"{result.verdict[0].upper()}{result.verdict[1:]}.")
    if result.claimed is not None and result.contradicts(result.claimed):
        raise typer.Exit(REFUTED)
