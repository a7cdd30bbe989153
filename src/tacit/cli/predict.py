"""``tacit predict``: what a saved model says of other rows. No budget is needed."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tacit.cli.common import deliver, is_network, model_at, status
from tacit.errors import InvalidValue, TacitError

__all__ = ["predict"]


def predict(
    model: Annotated[Path, typer.Argument(help="A model that tacit fit or train wrote.", show_default=False)],
    source: Annotated[
        str,
        typer.Argument(
            help="A CSV or Parquet file, or a pattern: 'part-*.csv'; for a network, as in tacit train.",
            show_default=False,
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="CSV to write.", show_default="standard output")] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="The probability of each class as well (logistic).")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file to write.")] = False,
    delimiter: Annotated[str, typer.Option(help=r"What separates the values of a CSV; \t is a tab.")] = ",",
    inputs: Annotated[
        str | None, typer.Option(help="For a network: the array in .npz.", show_default="x, images, …")
    ] = None,
) -> None:
    """Predict the target of other rows with a saved model; spends nothing.

    The rows are read by the schema inside the model; their target may be
    absent. A network reads examples as in tacit train, and no labels. There is
    one line for each row, in the same order; lines of a CSV that have too few
    values are no rows.

    A model may be used as often as you like: its guarantee covers those it was
    fitted to, whatever is predicted. It says nothing of the rows it is used
    on. A prediction depends on the row it is made for, and whoever sees the
    prediction learns something about that row.
    """
    if out is not None and out.exists() and not overwrite:
        raise TacitError(f"{out} exists and was left as it is.", "Name another file, or add --overwrite.")
    fitted = model_at(model)
    if is_network(model):
        text = _by_network(fitted, model, Path(source), inputs, proba)
    else:
        text = _by_schema(fitted, model, source, delimiter, proba)
    deliver(text, out)
    if out is not None:
        console = Console()
        for line in (
            f"Predictions written to {out}. Nothing was charged: the model's guarantee covers the people it "
            "was fitted to, whatever it is used for.",
            "It does not cover the people in these rows: a prediction tells something of the row it is for.",
        ):
            console.print(line, markup=False, highlight=False)


def _by_schema(fitted: Any, model: Path, source: str, delimiter: str, proba: bool) -> str:
    from tacit.data.reading import prepare, private_rows

    maker = preprocessor_of(fitted, model)
    if proba and not hasattr(fitted, "predict_proba"):
        raise InvalidValue(
            "model", str(model), "one with probabilities, such as logistic", "Leave --proba out."
        )
    schema, unused = maker.schema, {maker.target, *maker.exclude}
    columns = [name for name in schema if name not in unused]
    known = type(schema)({name: schema[name] for name in columns})
    opened = prepare(source, known, columns, delimiter="\t" if delimiter == r"\t" else delimiter)
    with status(f"Predicting {maker.target} for {source}"):
        frame = private_rows(opened, known, columns)
        return _csv(fitted, frame, str(maker.target), proba)


def _by_network(network: Any, model: Path, source: Path, inputs: str | None, proba: bool) -> str:
    import numpy as np

    from tacit.jobs import train as runs

    if not isinstance(network, runs.Network):
        advice = "Put its weights into a model of your own with tacit.training.load."
        raise TacitError(f"{model} does not name its architecture.", advice)
    where = runs.Where(
        inputs, size=network.shape[1:] if len(network.shape) == 3 else None, grey=network.shape[0] == 1,
        labelled=False, test=True,
    )  # fmt: skip
    found = runs.find(source, where)
    if found.shape != network.shape:
        raise InvalidValue("source", found.shape, f"examples of the shape {network.shape}")
    with status(f"Predicting for {source}"):
        chances = network.predict_proba(found.read()[0])
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    named = bool(found.files)
    columns = [f"p({label})" for label in network.classes_] if proba else []
    writer.writerow([*(["file"] if named else []), "class", *columns])
    for row, each in enumerate(chances):
        label = network.classes_[int(each.argmax())] if np.isfinite(each).all() else ""
        shown = [f"{chance:.6g}" for chance in each] if proba else []
        writer.writerow([*([found.files[row]] if named else []), label, *shown])
    return stream.getvalue()


def preprocessor_of(fitted: Any, path: Path) -> Any:
    """The preprocessor in a saved pipeline."""
    from tacit.data.preprocessor import Preprocessor

    steps = [step for _, step in getattr(fitted, "steps", ())]
    if not steps or not isinstance(steps[0], Preprocessor):
        advice = "Use it from Python: tacit.load(...).predict(X)."
        raise TacitError(f"{path} has no schema of a table in it.", advice)
    return steps[0]


def _csv(fitted: Any, frame: Any, target: str, proba: bool) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    classes = list(fitted.classes_) if proba else []
    writer.writerow([target, *(f"p({label})" for label in classes)])
    if len(frame):
        chances = fitted.predict_proba(frame) if proba else [()] * len(frame)
        for value, row in zip(fitted.predict(frame).tolist(), chances, strict=True):
            writer.writerow([_plain(value), *(f"{chance:.6g}" for chance in row)])
    return stream.getvalue()


def _plain(value: Any) -> Any:
    return f"{value:.10g}" if isinstance(value, float) else value
