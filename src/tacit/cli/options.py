"""Options that commands which make a model share."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "TEST",
    "DryRun",
    "LedgerPlace",
    "Overwrite",
    "Quiet",
    "Seed",
    "TestDataset",
    "TestEpsilon",
    "TestPublic",
]

TEST = "Testing on other data"

LedgerPlace = Annotated[str, typer.Option(help="Path of the ledger, or a database URL.", show_default=False)]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show cost and noise; spend, read and write nothing.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the files to write.")]
Seed = Annotated[
    int | None,
    typer.Option(help="Makes the noise repeatable, for tests: NO PRIVACY.", show_default=False),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
TestEpsilon = Annotated[
    float | None,
    typer.Option(help="They are private: ε to spend.", show_default=False, rich_help_panel=TEST),
]
TestPublic = Annotated[
    bool, typer.Option("--test-public", help="They are public: free.", rich_help_panel=TEST)
]
TestDataset = Annotated[
    str | None,
    typer.Option(
        help="Charge the test to this dataset of the ledger: it must share nobody with --dataset.",
        rich_help_panel=TEST,
        show_default="--dataset",
    ),
]
