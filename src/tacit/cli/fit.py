"""``tacit fit``: a private model from a file of private rows, paid for from a ledger."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from tacit import _validate
from tacit.cli import options, spending
from tacit.cli.common import described, opened, show_refusal
from tacit.cli.inspect import tested
from tacit.cli.spending import say
from tacit.errors import BudgetExceeded, InvalidValue, TacitError
from tacit.jobs.fit import Job, Trial
from tacit.jobs.same import refuse_same_file
from tacit.ledger import Ledger

if TYPE_CHECKING:
    from tacit.data.preprocessor import Preprocessor
    from tacit.estimators.linear.base import Planned
    from tacit.schema import Schema

__all__ = ["fit"]

MODELS = {
    "logistic": "LogisticRegression",
    "svc": "LinearSVC",
    "linear": "LinearRegression",
    "ridge": "Ridge",
}


def fit(
    source: Annotated[
        str, typer.Argument(help="A CSV or Parquet file, or a pattern: 'part-*.csv'.", show_default=False)
    ],
    schema: Annotated[
        Path, typer.Option(help="What is public about the table; see tacit schema.", show_default=False)
    ],
    target: Annotated[str, typer.Option(help="The column to predict.", show_default=False)],
    model: Annotated[str, typer.Option(help="logistic, svc, linear or ridge.", show_default=False)],
    epsilon: Annotated[float, typer.Option(help="ε to spend on the fit.", show_default=False)],
    ledger: options.LedgerPlace,
    out: Annotated[Path, typer.Option(help="File to write the model to.", show_default=False)],
    delta: Annotated[float, typer.Option(help="δ to spend; above 0 the noise is Gaussian.")] = 0.0,
    dataset: Annotated[str, typer.Option(help="The dataset in the ledger.")] = "default",
    noise: Annotated[
        str | None,
        typer.Option(help="Where noise enters: objective, output, …", show_default="the model's own"),
    ] = None,
    intervals: Annotated[
        float, typer.Option(help="Part of ε that buys intervals of the coefficients: 0.1, say.")
    ] = 0.0,
    buy_rows: Annotated[
        bool, typer.Option("--buy-rows", help="Buy the number of rows with a part of ε; gradient needs it.")
    ] = False,
    norm: Annotated[
        float | None, typer.Option(help="Shorten rows to this ℓ2 norm.", show_default="√(columns)")
    ] = None,
    transform: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=log1p|sqrt", help="Before scaling; may be repeated."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Make no feature of it; may be repeated.")
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(help="Rows to measure the model on.", show_default=False, rich_help_panel=options.TEST),
    ] = None,
    test_epsilon: options.TestEpsilon = None,
    test_public: options.TestPublic = False,
    test_dataset: options.TestDataset = None,
    groups_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,…",
            help="Measure by these columns too.",
            rich_help_panel=options.TEST,
            show_default=False,
        ),
    ] = None,
    dry_run: options.DryRun = False,
    label: Annotated[
        str | None, typer.Option(help="Of the charge, in the ledger.", show_default="model and target")
    ] = None,
    overwrite: options.Overwrite = False,
    delimiter: Annotated[str, typer.Option(help=r"What separates the values of a CSV; \t is a tab.")] = ",",
    seed: options.Seed = None,
    quiet: options.Quiet = False,
) -> None:
    """Fit a private model to a file, and pay for it from a ledger.

    The schema says what is public: categories become one feature each, numbers
    are scaled by their bounds, and the classes of the target are its declared
    categories (logistic, svc); for linear and ridge the target has bounds.

    The ledger is charged before a row is read. With --dry-run nothing is
    charged, read or written, and the exit code is 2 if the budget would not
    suffice. A refused charge changes nothing.

    With --test the model is measured on rows that were not used to fit it:
    charged with --test-epsilon, or free if the rows are public. The rows that
    the model was fitted to are refused, whatever their file is called.
    """
    name = _validate.choice("model", model, tuple(MODELS))
    _validate.epsilon(epsilon)
    _validate.delta(delta)
    spending.check_test(test, test_epsilon, test_public, test_dataset, groups_by)
    from tacit.data.preprocessor import Preprocessor
    from tacit.schema import Schema

    known = Schema.load(schema)
    excluded = list(exclude or ())
    if known.unit.column in known.columns:
        excluded.append(str(known.unit.column))
    maker = Preprocessor(
        known, target=target, norm=norm, transforms=_transforms(transform or ()), exclude=excluded
    )
    groups = _groups(groups_by, known)
    separator = "\t" if delimiter == r"\t" else delimiter
    with ExitStack() as stack:
        book = stack.enter_context(opened(ledger, dataset, known, delta))
        _check_ledger(book, known, delta, target)
        chosen = {"epsilon": epsilon, "delta": delta, "noise": noise, "intervals": intervals or None}
        chosen["n"] = "dp" if buy_rows else known.rows
        estimator = _estimator(name, maker, book, chosen, seed)
        job = Job(maker, estimator, _planned(estimator, maker), book, label or f"{name} model of {target}")
        trial = None
        if test is not None:
            other = book
            if test_epsilon is not None and test_dataset is not None and test_dataset != dataset:
                other = stack.enter_context(opened(ledger, test_dataset, known, 0.0))
                _check_ledger(other, known, 0.0, target)
            trial = Trial(job, other, test, test_epsilon, groups, f"test of the {job.label}")
        spending.writable(out, overwrite)
        job.find(source, separator, stack)
        if trial is not None:
            trial.find(separator, stack)
        console = Console(quiet=quiet)
        _show_plan(console, job, dry_run)
        then = spending.after(job, trial)
        if dry_run:
            spending.show_balance(console, job, trial, then, "rows")
        if then is None:
            spending.refuse(job, trial, "rows")
        if not dry_run:
            if trial is not None and trial.others:
                refuse_same_file(source, trial.source)
            _run(job, trial, out, overwrite, console)


def _transforms(given: Iterable[str]) -> dict[str, str] | None:
    found = {}
    for text in given:
        column, sign, how = text.rpartition("=")
        if not sign or not column or not how:
            raise InvalidValue("transform", text, "a column and what to do, such as capital_gain=log1p")
        found[column] = how
    return found or None


def _groups(given: str | None, schema: Schema) -> list[str]:
    names = [name.strip() for name in given.split(",")] if given else []
    for name in names:
        if schema[name].categories is None:
            advice = "Declare its categories in the schema; to read them off the rows would leak."
            raise InvalidValue("groups-by", name, "a column with declared categories", advice)
    return list(dict.fromkeys(names))


def _check_ledger(book: Ledger, schema: Schema, delta: float, target: str) -> None:
    if book.unit != schema.unit:
        raise TacitError(
            f"The ledger protects one {book.unit}, not one {schema.unit}.",
            "Declare the same unit in the schema ([unit] column, rows) and when the ledger is made.",
        )
    spending.check_delta(
        book, delta, target, "Leave --delta out for pure differential privacy, or ask for less."
    )


def _estimator(name: str, maker: Preprocessor, book: Ledger, chosen: dict[str, Any], seed: int | None) -> Any:
    from tacit import estimators

    kind = getattr(estimators, MODELS[name])
    settings = {option: value for option, value in chosen.items() if value is not None}
    if "intervals" in settings and "intervals" not in kind().get_params():
        raise InvalidValue("intervals", settings["intervals"], f"left out for {name}")
    column, target = maker.schema[maker.target], f"target {maker.target!r}"
    if name in ("logistic", "svc"):
        if maker.classes is None:
            advice = "Declare its categories in the schema, or fit a linear or ridge model to a number."
            raise InvalidValue(target, column.type, f"declared with categories, for {name}", advice)
        settings["classes"] = list(maker.classes)
    else:
        if maker.target_bounds is None:
            advice = "Declare its bounds in the schema, or fit a logistic or svc model to categories."
            raise InvalidValue(target, column.type, f"a number with declared bounds, for {name}", advice)
        settings["target_bounds"] = maker.target_bounds
    return kind(relation=str(book.relation), rows_per_group=book.unit.rows, random_state=seed, **settings)


def _planned(estimator: Any, maker: Preprocessor) -> Planned:
    try:
        planned: Planned = estimator.plan(maker.features)
    except InvalidValue as error:
        name, value, requirement = (getattr(error, part) for part in ("name", "value", "requirement"))
        if name != "n":
            raise
        advice = "Declare rows in the schema if the number is public, or add --buy-rows."
        raise InvalidValue("number of rows", value, requirement, advice) from None
    return planned


def _show_plan(console: Console, job: Job, dry_run: bool) -> None:
    features, maker = job.maker.features, job.maker
    used = len(job.columns) - 1
    say(console, f"A {job.label}, from {len(features.names)} features of {used} columns, will spend", "")
    say(console, *(f"  {line}" for line in str(job.planned).splitlines()), "")
    if dry_run:
        say(console, f"Noise: {job.kind}, {described(job.planned.event)}.", "", maker.describe(), "")


def _run(job: Job, trial: Trial | None, out: Path, overwrite: bool, console: Console) -> None:
    """Fit, save, test, and save again: what was paid for is not lost if the test fails."""
    from tacit.models import save

    book, place = job.book, out
    try:
        with spending.progress(console) as tell:
            model = job.run(tell)
            place = spending.kept(lambda path, over: save(model, path, overwrite=over), out, overwrite)
            tests = () if trial is None else (trial.run(model, tell),)
            if tests:
                place = spending.kept(
                    lambda path, _: save(model, path, overwrite=True, evaluations=tests), place, True
                )
    except BudgetExceeded as error:
        show_refusal(error, book)
        raise typer.Exit(2) from error
    guarantee = job.estimator.guarantee_
    for one in tests:
        console.print(tested(one))
    spending.settled(console, guarantee, job, trial)
    say(console, f"Model written to {place}")
    if place != out:
        raise typer.Exit(2)
