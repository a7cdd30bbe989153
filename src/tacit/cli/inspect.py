"""``tacit inspect``: what a saved model is, and what it promises."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tacit.cli import options
from tacit.cli.common import described, pair, say, show_json, up, wants_json
from tacit.drawing.trees import Node, text

if TYPE_CHECKING:
    from tacit.evaluation import Evaluation
    from tacit.models import Description, Weight
    from tacit.report.facts import Facts

__all__ = ["inspect", "tested"]

MOST_LEAVES = 40
"""A tree with more leaves is not printed."""


def inspect(
    model: Annotated[Path, typer.Argument(help="A model that tacit fit or train wrote.", show_default=False)],
    format: options.Format = "table",
    top: Annotated[
        int | None, typer.Option(help="Only so many coefficients, the largest.", min=0, show_default="all")
    ] = None,
) -> None:
    """Show the guarantee of a saved model, what it was made from, and its coefficients or layers.

    A file that was altered, or that has no guarantee, is refused.
    """
    from tacit.models import load
    from tacit.report.facts import Facts

    in_json = wants_json(format)
    facts = Facts.of(load(model), model.name)
    if in_json:
        show_json(_plain(facts))
        return
    console = Console()
    _show_guarantee(console, facts)
    if facts.preprocessor is not None:
        console.print(
            f"What it was made from:\n{facts.preprocessor.describe()}", markup=False, highlight=False
        )
    for evaluation in facts.evaluations:
        console.print(tested(evaluation))
    _show_settings(console, facts.description)
    if facts.description.tree is not None:
        say(console, *_tree(facts.description.tree))
    for table in _parts(facts.description):
        console.print(table)
    if facts.description.weights:
        console.print(_coefficients(facts.description.weights, top, facts.is_linear))


def _show_guarantee(console: Console, facts: Facts) -> None:
    guarantee = facts.guarantee
    title = escape(f"{facts.name}: {facts.description.title}")
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_row(
        "guarantee", f"ε = {up(guarantee.epsilon) if facts.private else '∞'}, δ = {guarantee.delta:g}"
    )
    table.add_row("protects", escape(f"{guarantee.relation} of one {guarantee.unit}"))
    table.add_row("noise", guarantee.noise)
    table.add_row("event", escape(described(guarantee.event)))
    for assumption in guarantee.assumptions:
        table.add_row("assuming", escape(assumption))
    console.print(table)
    for paragraph in facts.words:
        console.print(paragraph + "\n", markup=False, highlight=False)


def tested(evaluation: Evaluation) -> Table:
    """The figures of all rows, and of each group the accuracy; the model file has the others too."""
    paid = (
        "public rows, free" if evaluation.guarantee is None else f"private rows, {pair(evaluation.guarantee)}"
    )
    table = Table("", "value", f"{evaluation.confidence:.0%} interval", title=f"Tested on {paid}")
    table.title_justify = "left"
    for name, value in evaluation.figures.items():
        if ":" in name and not name.endswith(": accuracy"):
            continue
        shown = "unknown" if value is None else f"{value:.4g}"
        table.add_row(escape(name), shown, evaluation.between(name))
    return table


def _show_settings(console: Console, described: Description) -> None:
    if described.facts or described.run:
        title = "What it is, and the run that made it" if described.run else "What it is"
        table = Table(title=title, show_header=False, title_justify="left")
        for name, value in (*described.facts, *described.run):
            table.add_row(name, escape(value))
        console.print(table)
    if described.tensors:
        layers = Table("parameter", "shape", title_justify="left")
        for name, shape in described.tensors:
            layers.add_row(escape(name), " × ".join(map(str, shape)))
        console.print(layers)


def _tree(root: Node) -> list[str]:
    if root.leaves > MOST_LEAVES:
        return [f"The tree has {root.leaves} leaves: tacit report lists them, and so does --format json."]
    return ["The tree:", text(root)]


def _parts(described: Description) -> list[Table]:
    """How large clusters or components are, and what they are."""
    from tacit.report.parts import cell

    found, sizes, profiles = [], described.sizes, described.profiles
    if sizes is not None:
        table = Table("", "value", title=sizes.about, title_justify="left")
        for name, value in zip(sizes.names, sizes.values, strict=True):
            table.add_row(name, f"{value:.4g}")
        found.append(table)
    if profiles is not None:
        table = Table("feature", *profiles.names, title=profiles.about, title_justify="left")
        for feature, values in profiles.rows:
            table.add_row(escape(feature), *map(cell, values))
        found.append(table)
    return found


def _coefficients(rows: Sequence[Weight], top: int | None, linear: bool) -> Table:
    from tacit.report.coefficients import doubt

    intervals = any(row.low is not None for row in rows)
    several = len({row.output for row in rows}) > 1
    title = "Coefficients, the largest first" if linear else "Features, the strongest first"
    table = Table(title=title, title_justify="left")
    if several:
        table.add_column("class", overflow="fold")
    table.add_column("feature", overflow="fold")
    table.add_column("coefficient" if linear else "value", justify="right", no_wrap=True)
    if intervals:
        table.add_column("interval with the privacy noise", justify="right")
        table.add_column("", no_wrap=True)
    for row in rows[:top]:
        cells = [escape(row.output)] if several else []
        cells += [escape(row.feature), f"{row.value:.4f}"]
        if intervals:
            cells.append("" if row.low is None else f"{row.low:.4f} to {row.high:.4f}")
            cells.append(doubt(row, len(rows)))
        table.add_row(*cells)
    return table


def _plain(facts: Facts) -> dict[str, Any]:
    maker, described = facts.preprocessor, facts.description
    about: dict[str, Any] = {}
    if facts.is_network:
        shapes = {name: list(shape) for name, shape in described.tensors}
        about = {"network": dict((*described.facts, *described.run)), "parameters": shapes}
    return {
        **about,
        "model": described.title,
        "guarantee": json.loads(facts.guarantee.to_json()),
        "statement": facts.guarantee.statement(),
        "in_words": facts.words,
        "attack": {f"{rate:g}": facts.attack.power(rate) for rate in (0.001, 0.01, 0.1)},
        "event": json.loads(facts.guarantee.event.to_json()),
        "preprocessor": None if maker is None else maker.to_dict(),
        "classes": [_value(label) for label in described.classes],
        "coefficients": [
            {
                "class": row.output or None,
                "feature": row.feature,
                "value": row.value,
                "low": row.low,
                "high": row.high,
            }
            for row in described.weights
        ],
        **({} if described.tree is None else {"tree": asdict(described.tree)}),
        **({} if described.sizes is None else {"sizes": asdict(described.sizes)}),
        **({} if described.profiles is None else {"profiles": asdict(described.profiles)}),
        "evaluations": [evaluation.to_dict() for evaluation in facts.evaluations],
    }


def _value(label: Any) -> Any:
    return label.item() if hasattr(label, "item") else label
