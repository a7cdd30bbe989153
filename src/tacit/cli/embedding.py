"""Options of ``tacit train`` for fixed features, and what is shown while they are computed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tacit.cli import completion
from tacit.cli.common import say

if TYPE_CHECKING:
    from tacit.jobs.networks import TrainJob

__all__ = ["Cache", "Features", "Mirrored", "Pixels", "Text", "Tokens", "counter", "show_cache"]

_PANEL = "Fixed features, computed once and free of privacy cost"

Features = Annotated[
    str | None,
    typer.Option(
        help="Train on fixed features: of images efficientnet-lite0 or scattering, of a text minilm.",
        rich_help_panel=_PANEL, show_default=False, autocompletion=completion.features,
    ),
]  # fmt: skip
Pixels = Annotated[
    int | None,
    typer.Option(
        help="Make images this wide and high for efficientnet-lite0; a multiple of 32.",
        rich_help_panel=_PANEL, show_default="160",
    ),
]  # fmt: skip
Mirrored = Annotated[
    bool,
    typer.Option(
        "--mirrored", help="Average the features of an image and its mirror image; for efficientnet-lite0.",
        rich_help_panel=_PANEL,
    ),
]  # fmt: skip
Text = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="The column of texts, of type text in the schema.", rich_help_panel=_PANEL,
        show_default="the only one", autocompletion=completion.columns,
    ),
]  # fmt: skip
Tokens = Annotated[
    int | None,
    typer.Option(
        help="Cut texts off after so many tokens for minilm.", rich_help_panel=_PANEL, show_default="128"
    ),
]
Cache = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER|none", help="Keep features here for the next run; they are as private as the data.",
        rich_help_panel=_PANEL, show_default="tacit/features in the user's caches",
    ),
]  # fmt: skip


def show_cache(console: Console, job: TrainJob) -> None:
    """Say where feature rows are kept, if there are any."""
    if job.network.features is not None:
        kept = "not kept" if job.cache is None else f"kept in {job.cache.folder}, as private as the examples"
        say(console, f"Features are {kept}.")


@contextmanager
def counter(console: Console, job: TrainJob) -> Iterator[Callable[[int, int], None] | None]:
    """A bar of the examples whose features are computed, on a terminal; for the curator, who may see them."""
    if console.quiet or job.network.features is None or not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = Progress(*columns, console=Console(stderr=True))
    task = shown.add_task("features", total=None)

    def seen(done: int, total: int) -> None:
        shown.start()
        shown.update(task, completed=done, total=total)
        if done >= total:
            shown.stop()

    try:
        yield seen
    finally:
        shown.stop()
