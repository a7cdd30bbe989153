"""``tacit predict``: what a saved model says of other rows. No budget is needed."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tacit import jobs
from tacit.cli import options
from tacit.cli.common import as_json, chosen_format, deliver, say, status
from tacit.jobs.files import spare

__all__ = ["predict"]


def predict(
    model: options.ModelFile,
    source: Annotated[
        str,
        typer.Argument(
            help="A CSV or Parquet file, or a pattern: 'part-*.csv'; for a network, as in tacit train.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="CSV or JSON to write.", show_default="standard output")
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(metavar="csv|json", help="How to write.", show_default="by the ending of --out, or csv"),
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Write the probability of each class as well.")
    ] = False,
    overwrite: options.Overwrite = False,
    delimiter: options.Delimiter = None,
    inputs: Annotated[
        str | None, typer.Option(help="For a network: the array in .npz.", show_default="x, images, …")
    ] = None,
) -> None:
    """Predict the target of other rows with a saved model; spends nothing.

    Clusters have no target: each row gets the number of its cluster. Components
    give each row one number for each of them.

    The rows are read by the schema inside the model; their target may be
    absent. A network reads examples as in tacit train, and no labels. There is
    one line for each row, in the same order; lines of a CSV that have too few
    values are no rows.

    A model may be used as often as you like: its guarantee covers those it was
    fitted to, whatever is predicted. It says nothing of the rows it is used
    on. A prediction depends on the row it is made for, and whoever sees the
    prediction learns something about that row.
    """
    style = chosen_format(format, out, ("csv", "json"))
    if out is not None:
        spare(out, overwrite, model, source)
    with status(f"Predicting for {source}"):
        found = jobs.predict(model, source, proba=proba, delimiter=delimiter, inputs=inputs)
    deliver(as_json(_records(found)) if style == "json" else _csv(found), out, "predictions")
    if out is not None:
        say(
            Console(),
            f"Predictions written to {out}. Nothing was charged: the model's guarantee covers the people it "
            "was fitted to, whatever it is used for.",
            "It does not cover the people in these rows: a prediction tells something of the row it is for.",
        )


def _records(found: jobs.Predicted) -> list[dict[str, Any]]:
    """One object for each row: its file if it has one, the prediction, and probabilities if asked for."""
    records = []
    for row, value in enumerate(found.values):
        record: dict[str, Any] = {"file": found.files[row]} if found.files else {}
        record |= dict(zip(found.parts, value, strict=True)) if found.parts else {found.target: value}
        if found.classes:
            named = map(str, found.classes)
            record["probabilities"] = dict(zip(named, found.probabilities[row], strict=True))
        records.append(record)
    return records


def _csv(found: jobs.Predicted) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    named, chances = bool(found.files), found.probabilities if found.classes else [()] * len(found.values)
    titles = found.parts or (found.target,)
    writer.writerow([*(["file"] if named else []), *titles, *(f"p({label})" for label in found.classes)])
    for row, (value, each) in enumerate(zip(found.values, chances, strict=True)):
        name = [found.files[row]] if named else []
        cells = map(_plain, value) if found.parts else [_plain(value)]
        writer.writerow([*name, *cells, *(f"{chance:.6g}" for chance in each)])
    return stream.getvalue()


def _plain(value: Any) -> Any:
    return f"{value:.10g}" if isinstance(value, float) else value
