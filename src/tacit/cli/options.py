"""Options and arguments that several commands share, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "TEST",
    "Dataset",
    "Delimiter",
    "Delta",
    "DryRun",
    "Exclude",
    "Format",
    "Label",
    "LedgerPlace",
    "ModelFile",
    "OnlyDataset",
    "Out",
    "Overwrite",
    "Page",
    "Quiet",
    "SchemaFile",
    "Seed",
    "Source",
    "Test",
    "TestDataset",
    "TestEpsilon",
    "TestPublic",
    "Transform",
]

TEST = "Testing on other data"


def _tab(delimiter: str | None) -> str | None:
    return "\t" if delimiter in (r"\t", "tab") else delimiter


Source = Annotated[
    str, typer.Argument(help="A CSV or Parquet file, or a pattern: 'part-*.csv'.", show_default=False)
]
ModelFile = Annotated[Path, typer.Argument(help="A model that tacit fit or train wrote.", show_default=False)]
SchemaFile = Annotated[
    Path, typer.Option(help="What is public about the table; see tacit schema.", show_default=False)
]
LedgerPlace = Annotated[str, typer.Option(help="Path of the ledger, or a database URL.", show_default=False)]
Delta = Annotated[float, typer.Option(help="δ to spend; above 0 the noise is Gaussian.")]
Dataset = Annotated[str, typer.Option(help="The dataset of the ledger that is charged.")]
OnlyDataset = Annotated[str | None, typer.Option(help="Only this dataset of the ledger.", show_default="all")]
Label = Annotated[
    str | None, typer.Option(help="What the ledger calls the charge.", show_default="what is made")
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        help=r"What separates the values of a CSV; \t is a tab.", callback=_tab, show_default="the schema's"
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show cost and noise; spend, read and write nothing.")
]
Format = Annotated[
    str, typer.Option("--format", help="How to print: table for people, or json.", metavar="table|json")
]
Page = Annotated[Path | None, typer.Option(help="HTML page to write.", show_default="none")]
Transform = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN=log1p|sqrt", help="Transform a number before scaling; may be repeated."),
]
Exclude = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="Make no feature of it; may be repeated.")
]
Out = Annotated[Path | None, typer.Option(help="File to write.", show_default="standard output")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")]
Seed = Annotated[
    int | None,
    typer.Option(help="Makes the noise repeatable, for tests: NO PRIVACY.", show_default=False),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
Test = Annotated[
    str | None, typer.Option(help="Test the model on these data.", show_default=False, rich_help_panel=TEST)
]
TestEpsilon = Annotated[
    float | None,
    typer.Option(help="ε to spend on the test, on private data.", show_default=False, rich_help_panel=TEST),
]
TestPublic = Annotated[
    bool, typer.Option("--test-public", help="The test data are public: free.", rich_help_panel=TEST)
]
TestDataset = Annotated[
    str | None,
    typer.Option(
        help="Charge the test to this dataset of the ledger: it must share nobody with --dataset.",
        rich_help_panel=TEST,
        show_default="--dataset",
    ),
]
