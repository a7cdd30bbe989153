"""Income on Adult: from a file of people to a private model, what it cost, and a page that says so.

Runs the commands that a user would type: a ledger is made, a logistic regression is fitted at ε = 1 and
tested on other people with ε of its own, two cheaper models are fitted beside it, and a report is written.
Adult is public, so for once it can be checked afterwards, free of charge, how good the private models
really are, and what privacy took away from the best one without noise. With private data that would
cost budget, or be a leak.

Prints what is done and spent, and writes adult.db, income*.tacit and income.html to out/.
"""

from __future__ import annotations

import argparse
import sys
import time
import webbrowser
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, roc_auc_score
from typed import command

import tacit
from tacit import datasets
from tacit.data.reading import private_rows
from tacit.evaluation import evaluations_of
from tacit.models import load

BUDGETS = {"people to fit": 1.5, "people to test on": 2.0}
"""ε of each half. Nobody is in both, so they have budgets of their own."""
DELTA = 1e-6
MODELS = {"income.tacit": (1.0, 1.0), "income-0.3.tacit": (0.3, 0.5), "income-0.1.tacit": (0.1, 0.5)}
"""ε of the fit and ε of the test, by model; the first is the one the report is about."""
GROUPS = "sex,race"
TRANSFORMS = ("capital_gain=log1p", "capital_loss=log1p")


def fit_words(files: datasets.Files, folder: Path, name: str, seed: int | None) -> list[str]:
    """The command that fits a model, and tests it on the other half."""
    epsilon, tested = MODELS[name]
    words = [
        "fit",
        str(files.train),
        "--schema",
        str(files.schema),
        "--target",
        "income",
        "--model",
        "logistic",
    ]
    words += ["--epsilon", f"{epsilon:g}", "--delta", f"{DELTA:g}", "--ledger", str(folder / "adult.db")]
    fitted, other = BUDGETS
    words += ["--dataset", fitted, "--out", str(folder / name), "--label", f"model at ε = {epsilon:g}"]
    for transform in TRANSFORMS:
        words += ["--transform", transform]
    words += ["--test", str(files.test), "--test-epsilon", f"{tested:g}", "--test-dataset", other]
    if name == next(iter(MODELS)):
        words += ["--groups-by", GROUPS, "--interval-share", "0.1"]
    else:
        words += ["--quiet"]
    return [*words, *([] if seed is None else ["--seed", str(seed)])]


def in_truth(files: datasets.Files, models: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """AUROC and accuracy on all test rows, without noise: allowed because Adult is public.

    The last is scikit-learn's model on the same features, without privacy.
    """
    maker = next(iter(models.values())).steps[0][1]
    schema = maker.schema
    train, test = (private_rows(path, schema, list(schema)) for path in (files.train, files.test))
    features, labels = maker.transform(train), maker.target_values(train)
    others, truth = maker.transform(test), maker.target_values(test)
    made = {name: model.steps[-1][1] for name, model in models.items()}
    made["without privacy"] = LogisticRegression(max_iter=1000).fit(features, labels.astype(str))
    return {
        name: (
            roc_auc_score(truth == ">50K", model.decision_function(others)),
            accuracy_score(truth.astype(str), model.predict(others)),
        )
        for name, model in made.items()
    }


def results(models: dict[str, Any], truth: dict[str, tuple[float, float]]) -> Table:
    """What was got for which ε: as measured with budget, and as it is."""
    table = Table(title="What it got: AUROC on people who were not used to fit", title_justify="left")
    for heading in ("ε", "measured, with budget", "95% interval", "in truth", "accuracy in truth"):
        table.add_column(heading, justify="right")
    for name in sorted(models, key=lambda name: MODELS[name][0]):
        evaluation = evaluations_of(models[name])[0]
        low, high = evaluation.intervals["auroc"]
        measured = f"{evaluation.figures['auroc']:.3f} for ε = {MODELS[name][1]:g}"
        auroc, accuracy = truth[name]
        table.add_row(
            f"{MODELS[name][0]:g}", measured, f"{low:.3f} to {high:.3f}", f"{auroc:.3f}", f"{accuracy:.3f}"
        )
    auroc, accuracy = truth["without privacy"]
    table.add_row("∞", "", "", f"{auroc:.3f}", f"{accuracy:.3f}")
    return table


def balance(ledger: tacit.Ledger) -> Table:
    """What was spent on one half of the people, and on what."""
    table = Table("charged on", "share of cost", title_justify="left", caption_justify="left")
    table.title = f"What was spent: {ledger.dataset}"
    for part in ledger.by_label():
        table.add_row(part.label, f"{part.share:.0%}")
    table.caption = (
        f"ε = {ledger.spent().epsilon:.4g} of {ledger.budget.epsilon:g}; {ledger.remaining():.4g} remains"
    )
    return table


def main(arguments: list[str] | None = None) -> None:
    """Fit, test, report, and print what was spent."""
    parser = argparse.ArgumentParser(description="A private model of income on Adult, with its report.")
    parser.add_argument("--random-state", type=int, help="seed, for a reproducible run without privacy")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder to write to (default: out)")
    parser.add_argument("--no-open", action="store_true", help="do not open the report in a browser")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in ("adult.db*", "income*.tacit", "income.html"):
        for leftover in folder.glob(pattern):
            leftover.unlink()
    console, files, database = Console(highlight=False), datasets.adult(), folder / "adult.db"

    console.rule("A ledger, before anything else")
    for half, budget in BUDGETS.items():
        words = ["--dataset", half, "--epsilon", f"{budget:g}", "--delta", "1e-5"]
        command(console, "ledger", "init", str(database), *words)
    console.rule("A private model, tested on other people")
    for name in MODELS:
        command(console, *fit_words(files, folder, name, options.random_state))
    console.rule("The report")
    page = folder / "income.html"
    first, *others = (str(folder / name) for name in MODELS)
    compared = [word for name in others for word in ("--compare", name)]
    command(console, "report", first, "--out", str(page), "--ledger", str(database), *compared)

    console.rule("What was spent, and what it got")
    models = {name: load(folder / name) for name in MODELS}
    for half in BUDGETS:
        with tacit.Ledger.open(database, dataset=half) as ledger:
            console.print(balance(ledger))
    console.print(results(models, in_truth(files, models)))
    console.print(
        f"\nWritten in {time.monotonic() - started:.0f} s: {page}, {database}, {first}", markup=False
    )
    if sys.stdout.isatty() and not options.no_open:
        webbrowser.open(page.resolve().as_uri())


if __name__ == "__main__":
    main()
