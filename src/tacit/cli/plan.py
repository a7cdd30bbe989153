"""``tacit plan``: what a training run, a repeated step or a list of releases will cost; no data needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tacit import _validate, events
from tacit.cli import options
from tacit.cli.common import show_json, wants_json
from tacit.errors import TacitError

if TYPE_CHECKING:
    from tacit.ledger import Budget
    from tacit.report import Comparison, TrainingCost
    from tacit.report.planning import Say
    from tacit.report.rules import RuleCost

__all__ = ["plan"]

TRAINING = "A training run"
STEP = "One step, repeated (--compare)"
RULES = "A ledger and its rules (--ledger)"


def plan(
    delta: Annotated[float, typer.Option(help="The δ at which ε is stated.", show_default=False)],
    population: Annotated[
        int | None, typer.Option(help="How many rows there are; public.", rich_help_panel=TRAINING)
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Expected size of a batch.", rich_help_panel=TRAINING)
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the data, in expectation.", rich_help_panel=TRAINING)
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="The most ε to spend: finds the noise.", rich_help_panel=TRAINING)
    ] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Noise stddev ÷ sensitivity: finds ε. Also with --compare."),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare accountants on a step.", rich_help_panel=STEP)
    ] = False,
    steps: Annotated[int | None, typer.Option(help="How many steps.", rich_help_panel=STEP)] = None,
    sigma: Annotated[
        float | None, typer.Option(help="Stddev of the Gaussian noise of a step.", rich_help_panel=STEP)
    ] = None,
    sensitivity: Annotated[
        float | None, typer.Option(help="ℓ2 sensitivity of a step; with --sigma.", rich_help_panel=STEP)
    ] = None,
    step_epsilon: Annotated[
        float | None, typer.Option(help="ε of a step known by (ε, δ) alone.", rich_help_panel=STEP)
    ] = None,
    step_delta: Annotated[
        float | None, typer.Option(help="δ of such a step; 0 if left out.", rich_help_panel=STEP)
    ] = None,
    ledger: Annotated[
        list[str] | None,
        typer.Option(
            help="Releases you intend, such as 'ages 0.1 x 50', or a file with one such line each; may be "
            "repeated. Compares the rules of a ledger with the budget --epsilon and --delta.",
            rich_help_panel=RULES,
            show_default=False,
        ),
    ] = None,
    relation: Annotated[str, typer.Option(help="add_remove or replace_one.")] = "add_remove",
    plot: Annotated[
        Path | None, typer.Option(help="Draw to this file: .png, .svg or .pdf.", show_default=False)
    ] = None,
    format: options.Format = "table",
) -> None:
    """Plan what to spend, before any data are touched.

    A training run (DP-SGD: Gaussian noise on clipped sums of Poisson-sampled
    batches) needs --population, --batch-size, --epochs, and either --epsilon,
    which finds the noise, or --noise-multiplier, which finds ε. The number of
    steps is epochs × population ÷ batch size, to the nearest whole number, as
    in tacit train.

    With --compare, a step is repeated --steps times and every accountant that
    applies states its ε. The step is Gaussian noise (--sigma and
    --sensitivity, or --noise-multiplier), or is known only by its (ε, δ)
    (--step-epsilon and --step-delta).

    With --ledger, the rules by which a ledger can add up are compared for a
    list of intended releases: 'ages 0.1 x 50' are fifty of ε = 0.1 that need
    no δ, 'means 0.2 1e-8 x 10' ten of (0.2, 1e-8) with Gaussian noise,
    'sums noise_multiplier=20' one with Gaussian noise of that size, and
    'model epsilon=1 delta=1e-7 population=60000 batch_size=256 epochs=15'
    a training run.
    """
    in_json = wants_json(format)
    training = {"--population": population, "--batch-size": batch_size, "--epochs": epochs}
    stepwise = {
        "--steps": steps,
        "--sigma": sigma,
        "--sensitivity": sensitivity,
        "--step-epsilon": step_epsilon,
        "--step-delta": step_delta,
    }
    if ledger:
        _refuse({**training, **stepwise, "--noise-multiplier": noise_multiplier, "--plot": plot},
                "not for --ledger", "Leave it out; settings of a release go into its text.")  # fmt: skip
        _require({"--epsilon": epsilon}, "--ledger")
        _rules(ledger, float(epsilon or 0.0), delta, relation, in_json)
    elif compare:
        _refuse(
            {**training, "--epsilon": epsilon}, "for a training run", "Leave it out, or leave out --compare."
        )
        _require({"--steps": steps}, "--compare")
        event = _step(sigma, sensitivity, noise_multiplier, step_epsilon, step_delta)
        _compare(event, int(steps or 0), delta, relation, plot, in_json)
    else:
        _refuse(stepwise, "for a step", "Add --compare, or leave it out.")
        _require(training, "a training run")
        if (epsilon is None) == (noise_multiplier is None):
            raise TacitError(
                "A training run needs either --epsilon or --noise-multiplier, not both.",
                "Give --epsilon to find the noise, --noise-multiplier to find ε.",
            )
        name, given = ("epsilon", epsilon) if epsilon is not None else ("noise_multiplier", noise_multiplier)
        _validate.positive(name, given)
        from tacit.report import training_cost
        from tacit.training.plan import Plan

        with _progress() as say:
            say("calibrating the noise")
            planned = Plan(
                population=int(population or 0),
                batch_size=int(batch_size or 0),
                epochs=int(epochs or 0),
                delta=delta,
                epsilon=epsilon or 0.0,
                noise_multiplier=noise_multiplier or 0.0,
                relation=relation,
            )
            cost = training_cost(planned, target=epsilon, say=say)
        if plot is not None:
            from tacit.report import plots

            plots.save(plots.training_figure(cost), plot)
        if in_json:
            show_json(cost.to_dict())
        else:
            _show_training(cost, plot)


def _rules(asked: list[str], epsilon: float, delta: float, relation: str, in_json: bool) -> None:
    from tacit.ledger import Budget
    from tacit.report.rules import compare_rules

    budget = Budget(epsilon, delta)
    with _progress() as say:
        say("adding up")
        found = compare_rules(_listed(asked), budget, relation)
    if in_json:
        show_json({"budget": {"epsilon": epsilon, "delta": delta}, "rules": [one.to_dict() for one in found]})
        return
    _show_rules(found, budget)


def _listed(asked: list[str]) -> Iterator[str]:
    """The releases asked for, and those in the files asked for."""
    for each in asked:
        if not Path(each).is_file():
            yield each
            continue
        for line in Path(each).read_text(encoding="utf-8").splitlines():
            if told := line.partition("#")[0].strip():
                yield told


def _show_rules(found: list[RuleCost], budget: Budget) -> None:
    from tacit.ledger.budget import RULES as MEANING
    from tacit.report import rounded_up

    console = Console()
    best = min(found, key=lambda one: (-one.fits, one.epsilon))
    table = Table(
        "rule", "fits", "ε spent", "δ spent", "", title=f"A ledger with {budget}", title_justify="left"
    )
    for column in table.columns[1:4]:
        column.justify, column.no_wrap = "right", True
    for one in found:
        note = f"{one.refused}: {one.why}" if one.refused else ""
        if one is best:
            note = f"goes furthest{'; ' if note else ''}{note}"
        spent = [rounded_up(one.epsilon), f"{one.delta:.3g}"] if one.fits else ["0", "0"]
        style = "bold" if one is best else ""
        table.add_row(one.name, f"{one.fits} of {one.of}", *spent, escape(note), style=style)
    console.print(table)
    for one in found:
        console.print(f"{one.name}: {MEANING[one.name]}.", markup=False, highlight=False)
    made = f"--epsilon {budget.epsilon:g} --delta {budget.delta:g} --filter {best.name}"
    line = f"Make it with: tacit ledger init study.db {made}"
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _compare(
    event: events.Event, steps: int, delta: float, relation: str, plot: Path | None, in_json: bool
) -> None:
    from tacit.report import compare_accountants

    with _progress() as say:
        result = compare_accountants(
            event, steps=steps, delta=delta, relation=relation, curves=plot is not None, say=say
        )
    if plot is not None:
        from tacit.report import plots

        plots.save(plots.comparison_figure(result, f"{steps:,} steps of {_described(event)}"), plot)
    if in_json:
        show_json(result.to_dict())
    else:
        _show_comparison(result, plot)


def _step(
    sigma: float | None,
    sensitivity: float | None,
    noise_multiplier: float | None,
    step_epsilon: float | None,
    step_delta: float | None,
) -> events.Event:
    """The one step that the options describe; exactly one description must be given."""
    described = {
        "--sigma and --sensitivity": sigma is not None or sensitivity is not None,
        "--noise-multiplier": noise_multiplier is not None,
        "--step-epsilon and --step-delta": step_epsilon is not None or step_delta is not None,
    }
    given = [name for name, there in described.items() if there]
    if len(given) != 1:
        raise TacitError(
            "--compare needs one description of the step, got " + (" besides ".join(given) or "none") + ".",
            "Give one of: " + "; ".join(described) + ".",
        )
    if noise_multiplier is not None:
        return events.Gaussian(noise_multiplier)
    if step_epsilon is not None:
        return events.Approximate(step_epsilon, step_delta) if step_delta else events.Pure(step_epsilon)
    _require({"--step-epsilon": step_epsilon} if step_delta is not None else {}, "--step-delta")
    _require({"--sigma": sigma, "--sensitivity": sensitivity}, "a Gaussian step")
    from tacit import _validate

    return events.Gaussian(
        _validate.positive("sigma", sigma) / _validate.positive("sensitivity", sensitivity)
    )


def _refuse(options: dict[str, Any], purpose: str, advice: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise TacitError(f"{name} is {purpose}.", advice)


def _require(options: dict[str, Any], purpose: str) -> None:
    missing = [name for name, value in options.items() if value is None]
    if missing:
        raise TacitError(f"{purpose} needs {', '.join(missing)}.", "See tacit plan --help.")


@contextmanager
def _progress() -> Iterator[Say]:
    """Show what is being computed on standard error, and remove it when it is done."""
    console = Console(stderr=True)
    with console.status("") as status:
        yield lambda text: status.update(f"{text} …")


def _described(event: events.Event) -> str:
    match event:
        case events.Gaussian(noise_multiplier=z):
            return f"Gaussian noise, noise multiplier (σ ÷ sensitivity) {z:.6g}"
        case events.Approximate(epsilon=e, delta=d):
            return f"({e:g}, {d:g})-differential privacy"
        case events.Pure(epsilon=e):
            return f"{e:g}-differential privacy"
    return str(event)


def _show_training(cost: TrainingCost, plot: Path | None) -> None:
    from tacit.report import rounded_up

    console, plan = Console(), cost.plan
    factor = "" if cost.noise_per_clip_norm == plan.noise_multiplier else "2 × "
    summary = Table(title="Training plan", title_justify="left", show_header=False)
    summary.add_row("noise multiplier", f"{rounded_up(plan.noise_multiplier)} (rounded up)")
    summary.add_row("noise", f"standard deviation {rounded_up(plan.noise_multiplier)} × {factor}clip norm")
    summary.add_row("sampling rate", f"{plan.batch_size} ÷ {plan.population} = {plan.sampling_rate:.6g}")
    summary.add_row("steps", f"{plan.steps} (epochs × population ÷ batch size, to the nearest)")
    summary.add_row("spends", f"ε = {rounded_up(cost.epsilon)} at δ = {plan.delta:g}")
    if cost.slack is not None:
        summary.add_row("slack", f"ε = {cost.slack:.2g} of {cost.target:g} asked for is not spent")
    summary.add_row("protects", f"{plan.relation} of one row; batches must be Poisson-sampled")
    if cost.correlated is not None:
        noises = f"{plan.running_noise:.4g}, and {cost.correlated.running_noise:.4g} with correlated noise"
        summary.add_row("noise in the sum of all gradients so far", f"{noises} (× clip norm)")
        better = {"poisson": "this plan", "correlated": "tacit train --noise correlated, without sampling"}
        summary.add_row("recommended", better[cost.recommended])
    console.print(summary)
    console.print("ε of a run planned to end after an epoch, with this noise:", highlight=False)
    epochs = Table("epoch", "steps", "ε")
    for column in epochs.columns:
        column.justify = "right"
    for row in cost.spend:
        epochs.add_row(str(row.epoch), str(row.steps), rounded_up(row.epsilon))
    console.print(epochs)
    console.print(_accountants(cost.accountants, f"ε of all {plan.steps} steps, by accountant"))
    if plot is not None:
        console.print(f"Plot written to {plot}", markup=False, highlight=False)


def _show_comparison(comparison: Comparison, plot: Path | None) -> None:
    console = Console()
    event, count = comparison.event, comparison.steps
    title = f"ε of {count} steps at δ = {comparison.delta:g}, by accountant"
    console.print(f"One step: {_described(event)}.", markup=False, highlight=False)
    if isinstance(event, events.Approximate):
        total = (count * event.epsilon, count * event.delta)
        console.print(
            f"Added up: ({total[0]:.6g}, {total[1]:.6g}); the rest of δ is left to the other accountants.",
            markup=False,
            highlight=False,
        )
    console.print(_accountants(comparison.accountants, title))
    if plot is not None:
        console.print(f"Plot written to {plot}", markup=False, highlight=False)


def _accountants(answers: dict[str, float], title: str) -> Table:
    from tacit.report import ACCOUNTANTS, rounded_up

    best = min(answers, key=lambda name: answers[name])
    table = Table("accountant", "ε", "", "how", title=title, title_justify="left")
    table.columns[1].justify = "right"
    for name, value in answers.items():
        mark = "tightest" if name == best else ""
        table.add_row(name, rounded_up(value), mark, ACCOUNTANTS.get(name, ""), style="bold" if mark else "")
    return table
