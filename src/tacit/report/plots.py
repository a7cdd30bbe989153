"""Plots, as files or as text for a page. Importing this module imports matplotlib."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, PercentFormatter

from tacit.drawing.files import save
from tacit.models.description import Pairs
from tacit.report.membership import percent_up
from tacit.report.page import Picture
from tacit.report.planning import Comparison, TrainingCost, rounded_up
from tacit.report.shape import Shape

__all__ = [
    "attack_figure",
    "calibration_figure",
    "coefficient_figure",
    "comparison_figure",
    "embedded",
    "inline",
    "interval_figure",
    "new_figure",
    "percent_axis",
    "save",
    "shape_figure",
    "training_figure",
    "utility_figure",
]

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

INKS = {
    "#000000": "var(--ink)",
    "#222222": "var(--ink)",
    "#555555": "var(--soft)",
    "#dddddd": "var(--line)",
    "#ffffff": "var(--paper)",
    "#0072b2": "var(--blue)",
    "#56b4e9": "var(--sky)",
    "#009e73": "var(--green)",
    "#00684b": "var(--deep)",
    "#d55e00": "var(--orange)",
    "#e69f00": "var(--yellow)",
    "#cc79a7": "var(--pink)",
}
"""The colours of drawings, by the names under which a page knows them, light or dark."""
NARROW = 3.9
"""The width in inches of a drawing for small screens."""


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


def percent_axis(axes: Axes, which: str) -> None:
    """Make an axis logarithmic, with percentages at its powers of ten."""
    getattr(axes, f"set_{which}scale")("log")
    axis = getattr(axes, f"{which}axis")
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
    axis.set_minor_formatter(NullFormatter())


def training_figure(cost: TrainingCost) -> Figure:
    """ε spent after each epoch of a training plan, and the ε that was asked for."""
    plan = cost.plan
    figure, (axes,) = new_figure(
        "epochs completed",
        "ε (tightest accountant)",
        f"ε spent during training, at δ = {plan.delta:g} under {plan.relation} of one row\n"
        f"population {plan.population:,}, batch {plan.batch_size:,}, "
        f"noise multiplier {rounded_up(plan.noise_multiplier, 4)}",
    )
    axes.plot(
        [row.epoch for row in cost.spend],
        [row.epsilon for row in cost.spend],
        color=STYLES["pld"][0],
        marker="o",
        markersize=4,
        label="ε spent",
    )
    if cost.target is not None:
        axes.axhline(cost.target, color="#555555", linestyle="--", linewidth=1.2, label="ε asked for")
        axes.legend(frameon=False, loc="lower right")
    axes.set_xlim(0, cost.spend[-1].epoch * 1.02)
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


def attack_figure(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    marks: Sequence[tuple[float, float]],
    about: tuple[str, str] = ("people not in the data", "people in the data"),
) -> Figure:
    """The trade-off curve of the best attack: misses against false alarms, each ``about`` whom.

    Up to two ``curves`` by name; ``marks`` are points of the last curve to be labelled, each a share of false
    alarms and a share of misses.
    """
    figure, (axes,) = new_figure(
        f"false alarms, of {about[0]}",
        f"misses, of {about[1]}",
        "No attack does better than the curve",
    )
    axes.plot(
        [0, 1], [1, 0], color="#555555", linestyle="--", linewidth=1.2, label="guessing: nothing learnt"
    )
    colours = ("#56B4E9", "#009E73")[-len(curves) :]
    for (label, (wrong, missed)), colour, width in zip(curves.items(), colours, (2.0, 2.6), strict=False):
        axes.plot(wrong, missed, color=colour, linewidth=width, label=label)
    wrong, missed = list(curves.values())[-1]
    axes.fill_between(wrong, missed, color="#009E73", alpha=0.08, linewidth=0)
    axes.annotate("ruled out", (0.03, 0.03), color="#00684b", fontsize=9)
    for mark, height in marks:
        axes.plot([mark], [height], "o", color="#222222", markersize=5)
        axes.annotate(
            f"{mark:.0%} false alarms: finds at most {percent_up(1 - height)}",
            (mark, height), (14, 2), textcoords="offset points", fontsize=9,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5},
        )  # fmt: skip
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    figure.legend(frameon=False, loc="outside upper left")
    return figure


def profile_figure(points: Sequence[tuple[float, float]], stated: tuple[float, float]) -> Figure:
    """The privacy profile: pairs of ε and δ that all hold, and the stated pair."""
    figure, (axes,) = new_figure("ε", "δ", "Pairs of ε and δ that hold together")
    axes.plot([point[0] for point in points], [point[1] for point in points], color="#009E73", linewidth=2.6)
    axes.plot(*[[value] for value in stated], "o", color="#222222", markersize=6)
    axes.annotate(
        f"stated: ε = {rounded_up(stated[0], 4)}, δ = {stated[1]:g}",
        stated, (-12, -3), textcoords="offset points", fontsize=9, ha="right",
    )  # fmt: skip
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlim(0, None)
    return figure


def coefficient_figure(
    names: Sequence[str],
    values: Sequence[float],
    intervals: Sequence[tuple[float, float]] | None = None,
    title: str = "",
    pale: Sequence[bool] = (),
) -> Figure:
    """Bars, the first on top; with intervals, as whiskers; those that are ``pale`` stand back."""
    figure = Figure(figsize=(7.6, 0.9 + 0.27 * max(len(names), 3)), dpi=150, layout="constrained")
    axes = figure.subplots()
    places = range(len(names))
    bars = axes.barh(places, values, color=["#0072B2" if v > 0 else "#D55E00" for v in values], height=0.72)
    for bar, doubtful in zip(bars, pale, strict=False):
        bar.set_alpha(0.3 if doubtful else 1.0)
    if intervals is not None:
        axes.hlines(
            places,
            [low for low, _ in intervals],
            [high for _, high in intervals],
            color="#222222",
            linewidth=1.4,
        )
    axes.set_yticks(places, names, fontsize=9)
    axes.invert_yaxis()
    axes.axvline(0, color="#222222", linewidth=0.9)
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(True, axis="x", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    return figure


def shape_figure(shapes: Sequence[Shape]) -> Figure:
    """What each column adds to the score: steps over a number, bars for categories, on one scale."""
    across = min(3, max(len(shapes), 1))
    down = -(-len(shapes) // across)
    figure = Figure(figsize=(7.6, 2.3 * max(down, 1)), dpi=150, layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    for axes in grid.ravel()[len(shapes) :]:
        axes.set_axis_off()
    for axes, shape in zip(grid.ravel(), shapes, strict=False):
        axes.set_xlabel(shape.title, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=7)
        axes.set_axisbelow(True)
        if shape.edges is None:
            places = range(len(shape.effects))
            colours = ["#0072B2" if value > 0 else "#D55E00" for value in shape.effects]
            axes.barh(places, shape.effects, color=colours, height=0.72)
            axes.set_yticks(places, [name[:18] for name in shape.cells], fontsize=6)
            axes.invert_yaxis()
            axes.axvline(0, color="#222222", linewidth=0.8)
            axes.grid(True, axis="x", color="#dddddd", linewidth=0.7)
            continue
        axes.stairs(shape.effects, shape.edges, baseline=None, color="#0072B2", linewidth=1.4)
        axes.axhline(0, color="#222222", linewidth=0.8)
        axes.grid(True, axis="y", color="#dddddd", linewidth=0.7)
        if shape.logarithmic:
            size = math.floor(math.log10(max(shape.edges[-1], 1e-9)))
            powers = [10.0 ** (size - 1), 10.0**size]
            axes.set_xscale("symlog", linthresh=10.0 ** (size - 2))
            axes.set_xlim(shape.edges[0], shape.edges[-1])
            axes.set_xticks([0.0, *powers], ["0", *(f"{power:,.6g}" for power in powers)])
            axes.minorticks_off()
    return figure


def interval_figure(
    names: Sequence[str], values: Sequence[float], intervals: Sequence[tuple[float, float]], title: str
) -> Figure:
    """Points with whiskers, the first on top, shares from 0 to 100 %."""
    figure = Figure(figsize=(7.6, 0.9 + 0.34 * max(len(names), 2)), dpi=150, layout="constrained")
    axes = figure.subplots()
    places = range(len(names))
    axes.hlines(
        places, [low for low, _ in intervals], [high for _, high in intervals], color="#56B4E9", linewidth=4
    )
    axes.plot(values, places, "o", color="#0072B2", markersize=6)
    axes.set_yticks(places, names, fontsize=9)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_title(title, loc="left", fontsize=11)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(True, axis="x", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    return figure


def utility_figure(points: Sequence[tuple[float, float, float, float]], figure_name: str) -> Figure:
    """A measured figure (value, low, high) against the ε of the model it was measured on."""
    figure, (axes,) = new_figure("ε of the model", figure_name, f"Measured {figure_name} against ε")
    ordered = sorted(points)
    epsilons, values = [point[0] for point in ordered], [point[1] for point in ordered]
    axes.vlines(
        epsilons,
        [point[2] for point in ordered],
        [point[3] for point in ordered],
        color="#56B4E9",
        linewidth=4,
    )
    axes.plot(epsilons, values, "o-", color="#0072B2", linewidth=1.4)
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    return figure


def pairs_figure(pairs: Pairs, title: str) -> Figure:
    """A number from 0 to 1 for every two columns, as a heatmap; darker is larger."""
    names = [name if len(name) <= 18 else f"{name[:17]}…" for name in pairs.columns]
    side = 1.9 + 0.36 * max(len(names), 4)
    figure = Figure(figsize=(min(side + 0.6, 9.6), min(side, 9.0)), dpi=150, layout="constrained")
    axes = figure.subplots()
    top = max((max(line) for line in pairs.values), default=0.0)
    for a, line in enumerate(pairs.values):
        for b, value in enumerate(line):
            share = value / top if top > 0 else 0.0
            axes.add_patch(Rectangle((b - 0.5, a - 0.5), 1, 1, facecolor="#0072B2", alpha=share, linewidth=0))
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xticks(range(len(names)), names, fontsize=8, rotation=90)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.tick_params(length=0)
    axes.set_aspect("equal")
    axes.set_title(f"{title}; the darkest is {top:.2g}", loc="left", fontsize=11)
    return figure


def calibration_figure(table: Sequence[Mapping[str, float | None]]) -> Figure:
    """Observed shares against predicted probabilities, larger points for more rows, none for under 1 %."""
    figure, (axes,) = new_figure(
        "predicted probability", "observed share", "Calibration: larger points stand for more rows"
    )
    axes.plot([0, 1], [0, 1], color="#555555", linestyle="--", linewidth=1.2, label="as predicted")
    total = sum(max(line["count"] or 0.0, 0.0) for line in table)
    points = [
        (line["predicted"], line["observed"], line["count"] or 0.0)
        for line in table
        if line["predicted"] is not None and line["observed"] is not None
    ]
    points = [point for point in points if point[2] >= total / 100]
    largest = max((count for _, _, count in points), default=1.0)
    sizes = [20 + 180 * count / largest for _, _, count in points]
    axes.scatter([x for x, _, _ in points], [y for _, y, _ in points], s=sizes, color="#0072B2", alpha=0.8)
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.02, 1.02)
    axes.legend(frameon=False, loc="upper left")
    return figure


def embedded(figure: Figure, text: str = "") -> Picture:
    """A figure as SVG inside a page, whose colours follow the page; ``text`` says what is drawn.

    The title becomes the caption. The narrow version is drawn anew for small screens, with letters as large.
    """
    panels = figure.get_axes()
    caption = "; ".join(filter(None, (axes.get_title(loc="left") for axes in panels)))
    for axes in panels:
        axes.set_title("", loc="left")
    wide = inline(figure, "wide")
    width, height = figure.get_size_inches()
    figure.set_size_inches(NARROW, min(height, NARROW) if height > width / 2 else height)
    return Picture(wide, inline(figure, "narrow"), caption, text)


def inline(figure: Figure, salt: str) -> str:
    """SVG that may stand in HTML: no declarations, addresses, metadata or styles, and colours by name."""
    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": salt, "text.parse_math": False}):
        for text in figure.findobj(Text):
            text.set_parse_math(False)
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    drawn = buffer.getvalue()
    drawn = re.sub(r' xmlns(:xlink)?="[^"]*"', "", drawn[drawn.index("<svg") :].replace("xlink:href", "href"))
    drawn = re.sub(r"<(metadata|style)\b.*?</\1>|<!--.*?-->", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", drawn)
    drawn = re.sub(r'<g id="[^"]*"', "<g", drawn)
    drawn = re.sub(r"(?<=: )#[0-9a-f]{6}\b", lambda found: INKS.get(found.group(), found.group()), drawn)
    return re.sub(r"'DejaVu Sans'[^;\"]*", "system-ui, sans-serif", drawn).strip()
