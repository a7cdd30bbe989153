"""Plots, as files or as text for a page. Importing this module imports matplotlib."""

from __future__ import annotations

import base64
import io
import math
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tacit.errors import InvalidValue, TacitError
from tacit.report.planning import Comparison, TrainingPlan, rounded_up

__all__ = ["comparison_figure", "embedded", "new_figure", "save", "training_figure"]

STYLES = {
    "basic": ("#555555", "-", 1.8),
    "advanced": ("#D55E00", "-", 1.8),
    "moments": ("#CC79A7", "-", 1.8),
    "zcdp": ("#56B4E9", "-", 3.6),
    "rdp": ("#0072B2", (0, (4, 3)), 1.6),
    "pld": ("#009E73", "-", 3.0),
    "optimal": ("#E69F00", (0, (2, 2)), 1.6),
}
"""Colour (Okabe and Ito's, told apart by all), dashes and width, from the bottom to the top of the
drawing. zCDP and RDP often coincide, and so do PLD and optimal: one is broad, the other dashed."""


def new_figure(xlabel: str, ylabel: str, *titles: str) -> tuple[Figure, list[Axes]]:
    """Empty plots in the house style, one per title, side by side on the same axes."""
    figure = Figure(figsize=(7.6 if len(titles) == 1 else 9.6, 4.8), dpi=150, layout="constrained")
    panels = list(figure.subplots(1, len(titles), sharex=True, sharey=True, squeeze=False)[0])
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, loc="left", fontsize=11)
        axes.set_xlabel(xlabel)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, which="major", color="#dddddd", linewidth=0.7)
        axes.set_axisbelow(True)
    panels[0].set_ylabel(ylabel)
    return figure, panels


def training_figure(plan: TrainingPlan) -> Figure:
    """ε spent after each epoch of a training plan, and the ε that was asked for."""
    figure, (axes,) = new_figure(
        "epochs completed",
        "ε (tightest accountant)",
        f"ε spent during training, at δ = {plan.delta:g} under {plan.relation} of one row\n"
        f"population {plan.population:,}, batch {plan.batch_size:,}, "
        f"noise multiplier {rounded_up(plan.noise_multiplier, 4)}",
    )
    axes.plot(
        [row.epoch for row in plan.spend],
        [row.epsilon for row in plan.spend],
        color=STYLES["pld"][0],
        marker="o",
        markersize=4,
        label="ε spent",
    )
    if plan.target is not None:
        axes.axhline(plan.target, color="#555555", linestyle="--", linewidth=1.2, label="ε asked for")
        axes.legend(frameon=False, loc="lower right")
    axes.set_xlim(0, plan.epochs * 1.02)
    axes.set_ylim(0, None)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def comparison_figure(comparison: Comparison, title: str) -> Figure:
    """ε against the number of steps, by each accountant, on logarithmic axes."""
    figure, (axes,) = new_figure("number of steps (compositions)", f"ε at δ = {comparison.delta:g}", title)
    largest_first = sorted(comparison.curves, key=lambda name: -(comparison.accountants.get(name) or 0))
    lines = {}
    for name in sorted(comparison.curves, key=list(STYLES).index):
        colour, dashes, width = STYLES[name]
        values = [math.nan if value is None else value for value in comparison.curves[name]]
        end = comparison.accountants.get(name)
        lines[name] = axes.plot(
            comparison.grid,
            values,
            color=colour,
            linestyle=dashes,
            linewidth=width,
            label=f"{name}: " + ("none" if end is None else rounded_up(end, 3)),
        )[0]
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.legend(
        handles=[lines[name] for name in largest_first],
        title=f"ε after {comparison.steps:,} steps",
        frameon=False,
        alignment="left",
        loc="upper left",
    )
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure; the ending of the name says in which format."""
    kinds = tuple(figure.canvas.get_supported_filetypes())
    if path.suffix.lstrip(".").lower() not in kinds:
        raise InvalidValue("plot", str(path), "a file name with a known ending", "Use .png, .svg or .pdf.")
    try:
        figure.savefig(path)
    except OSError as error:
        raise TacitError(f"{path} cannot be written: {error.strerror}.", "Name another file.") from error


def embedded(figure: Figure) -> str:
    """A figure as a ``data:`` address, for a page that needs no other file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
