"""From a raw CSV, as spreadsheets in much of Europe write it, to a report: no schema edits but bounds.

The file has semicolons between values, decimal commas, text in Latin-1, columns of yes and no, and gaps. It
is made up here, so that the example needs no other file: patients of a clinic, and whether they came back
within a year; and a second file of other patients, to test the model on. ``tacit schema init`` finds out how
the file is written and what its columns are, and leaves the bounds open, since bounds that were read from the
rows would give somebody away. A person fills them in from common sense; that is the only edit. All other
steps are commands, shown as they are typed.

Prints the commands and what they say, and writes clinic.csv, clinic-others.csv, clinic.toml, clinic.db,
clinic.tacit and clinic.html to out/.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from rich.console import Console
from typed import command

ROWS = 4000
BOUNDS = {
    "age": (18, 100),
    "Größe (cm)": (120, 220),
    "pressure": (70, 220),
    "visits": (0, 30),
}
"""What everybody knows of such columns, before any patient was seen."""
MISSING = 0.05


def raw_file(path: Path, seed: int) -> None:
    """Write patients as a spreadsheet would: semicolons, decimal commas, Latin-1, gaps."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 95, ROWS)
    height = rng.normal(171, 9, ROWS)
    pressure = rng.normal(105 + age / 2.5, 11)
    smoker = rng.random(ROWS) < 0.3
    visits = rng.poisson(2 + age / 40)
    returned = age / 25 + 1.5 * smoker + 0.2 * visits + rng.logistic(size=ROWS) > 4
    numbers = {
        "age": [str(value) for value in age],
        "Größe (cm)": [f"{value:.1f}".replace(".", ",") for value in height],
        "pressure": [f"{value:.1f}".replace(".", ",") for value in pressure],
        "visits": [str(value) for value in visits],
    }
    gaps = {name: rng.random(ROWS) < (MISSING if name != "age" else 0) for name in numbers}
    columns = {name: np.where(gaps[name], "", values) for name, values in numbers.items()}
    columns["smoker"] = np.where(smoker, "yes", "no")
    columns["returned"] = np.where(returned, "yes", "no")
    lines = [";".join(columns), *(";".join(row) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="latin-1")


def fill_in(schema: Path) -> None:
    """What a person does in an editor: write bounds in place of each ``# bounds = [?, ?]``."""
    lines, column = [], ""
    for line in schema.read_text(encoding="utf-8").splitlines():
        if line.startswith("[columns."):
            column = line.removeprefix("[columns.").removesuffix("]").strip('"')
        if line.startswith("# bounds = [?, ?]"):
            low, high = BOUNDS[column]
            line = f"bounds = [{low}, {high}]"
        lines.append(line)
    schema.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    """Go from the raw file to the page."""
    parser = argparse.ArgumentParser(description="From a CSV with semicolons to a report.")
    parser.add_argument("--random-state", type=int, help="seed, for a reproducible run without privacy")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder to write to (default: out)")
    options = parser.parse_args(arguments)
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob("clinic*"):
        leftover.unlink()
    data, schema, ledger, model, page = (
        str(folder / f"clinic.{ending}") for ending in ("csv", "toml", "db", "tacit", "html")
    )
    seed = [] if options.random_state is None else ["--seed", str(options.random_state)]
    console = Console(highlight=False)
    others = str(folder / "clinic-others.csv")
    raw_file(Path(data), 0)
    raw_file(Path(others), 1)

    console.rule("What is public: the schema")
    command(console, "schema", "init", data, "--out", schema)
    fill_in(Path(schema))
    console.print(f"(In an editor: bounds of {', '.join(BOUNDS)}.)", markup=False)
    command(console, "schema", "check", schema, "--source", data)
    console.rule("What may be spent: the ledger")
    command(console, "ledger", "init", ledger, "--epsilon", "2", "--delta", "1e-6")
    command(console, "ledger", "init", ledger, "--epsilon", "1", "--dataset", "others")
    console.rule("Questions")
    public = ["--schema", schema, "--ledger", ledger]
    asked = ["count() by smoker", "mean(pressure) by returned"]
    command(console, "query", data, *asked, *public, "--epsilon", "0.5", *seed)
    console.rule("A model, and how good it is")
    fit = ["--target", "returned", "--model", "logistic", "--epsilon", "1.5", "--delta", "1e-6"]
    test = ["--test", others, "--test-epsilon", "1", "--test-dataset", "others"]
    command(console, "fit", data, *public, *fit, *test, "--interval-share", "0.1", "--out", model, *seed)
    console.rule("The page")
    words = ["--unit-name", "patient", "--responsible", "Data office of the clinic"]
    command(console, "report", model, "--ledger", ledger, "--out", page, *words)


if __name__ == "__main__":
    main()
