"""The plots of the page of benchmarks, drawn from the tables in ``benchmarks/results``, light and dark."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

__all__ = ["PLOTS", "Plot", "draw_all"]

INKS = {
    "light": {
        "page": "#ffffff",
        "ink": "#1f2328",
        "soft": "#57606a",
        "grid": "#d0d7de",
        "series": ["#0072b2", "#d55e00", "#009e73", "#a2559c", "#7a6a00"],
    },
    "dark": {
        "page": "#131416",
        "ink": "#e6edf3",
        "soft": "#a3adb8",
        "grid": "#3d444d",
        "series": ["#58a6e0", "#f08a45", "#2bb88a", "#d992d3", "#cdb84a"],
    },
}
"""Colours on a light and on a dark page; those of series are told apart by the colour-blind."""
LINE: dict[str, float] = {"markersize": 5, "linewidth": 1.8, "capsize": 2.5}
BELOW: dict[str, Any] = {
    "fontsize": 9, "loc": "upper center", "bbox_to_anchor": (0.35, -0.13), "ncols": 2,
    "labelcolor": "linecolor",
}  # fmt: skip
"""A legend below the axes."""
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")

Row = dict[str, str]
Colours = dict[str, object]


@dataclass(frozen=True)
class Plot:
    """One plot: the table that it is drawn from, what a reader should see in it, and how it is drawn."""

    name: str
    table: str
    title: str
    says: str
    draw: Callable[[Axes, str, list[str]], None]
    height: float = 3.3


def rows(text: str, below: str = "", number: int = 0) -> list[Row]:
    """A table of a page: the ``number``-th one below the first line that begins with ``below``.

    A second column of the same name gets its place behind it: ``ratio``, ``ratio 5``.

    >>> rows("# A\\n\\n| x | y |\\n|---|---|\\n| 1 | 2 |\\n", "# A")
    [{'x': '1', 'y': '2'}]
    """
    lines = text.splitlines()
    start = next((place for place, line in enumerate(lines) if line.startswith(below)), None)
    if start is None:
        raise SystemExit(f"No line begins with {below!r}: tell tools/site/plots.py where the table is")
    block: list[str] = []
    for line in [*lines[start:], ""]:
        if line.startswith("|"):
            block.append(line)
        elif block:
            if number == 0:
                break
            number, block = number - 1, []
    cells = [
        [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
        for line in block
    ]
    names = [
        name if name not in cells[0][:place] else f"{name} {place}" for place, name in enumerate(cells[0])
    ]
    return [dict(zip(names, row, strict=True)) for row in cells[2:]]


def value(cell: str) -> float:
    """The number that a cell begins with, for instance the mean in ``0.8788 ± 0.0026``."""
    found = NUMBER.search(cell.replace(",", ""))
    if found is None:
        raise SystemExit(f"There is no number in the cell {cell!r} of a table")
    return float(found.group())


def spread(cell: str) -> float:
    """What follows ± in a cell; 0 if nothing does."""
    return value(cell.partition("±")[2]) if "±" in cell else 0.0


def _by_epsilon(
    axes: Axes,
    chosen: dict[str, Row],
    series: list[str],
    *,
    quantity: str,
    baseline: tuple[str, float] | None = None,
) -> None:
    """One line for each row, over its columns ``ε = …``, with standard deviations."""
    ticks: set[float] = set()
    for (name, row), colour, mark in zip(chosen.items(), series, "osD^v", strict=False):
        points = {value(key): cell for key, cell in row.items() if key.startswith("ε = ")}
        ticks |= set(points)
        axes.errorbar(
            list(points),
            [value(cell) for cell in points.values()],
            [spread(cell) for cell in points.values()],
            color=colour,
            marker=mark,
            **LINE,
            label=name,
        )
    _epsilons(axes, ticks)
    axes.set_ylabel(quantity)
    if baseline:
        axes.axhline(
            baseline[1], color=axes.yaxis.label.get_color(), linewidth=1, linestyle="--", label=baseline[0]
        )
    axes.legend(fontsize=9, loc="lower right", labelcolor="linecolor")


def _epsilons(axes: Axes, ticks: set[float]) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sorted(ticks)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
    axes.set_xlabel("ε")


def _linear(axes: Axes, text: str, series: list[str]) -> None:
    found = {(row[""], row["δ"]): row for row in rows(text, "## adult")}
    wanted = {
        "tacit, δ = 1e-6": ("tacit", "1e-06"),
        "tacit, δ = 0": ("tacit", "0"),
        "Opacus, tuned, δ = 1e-6": ("Opacus, tuned", "1e-06"),
        "diffprivlib, tuned, δ = 0": ("diffprivlib, tuned", "0"),
    }
    heading = next(line for line in text.splitlines() if line.startswith("## adult"))
    without = value(heading.partition("without privacy")[2])
    _by_epsilon(
        axes,
        {name: found[key] for name, key in wanted.items()},
        series,
        quantity="test AUROC",
        baseline=("without privacy", without),
    )


def _boosting(axes: Axes, text: str, series: list[str]) -> None:
    found = {row[""]: row for row in rows(text, "## Adult")}
    heading = next(line for line in text.splitlines() if line.startswith("## Adult"))
    peer = next(name for name in found if name.startswith("DP-EBM"))
    chosen = {
        "tacit, GradientBoosting": found["GradientBoosting"],
        "tacit, LogisticRegression": found["LogisticRegression"],
        peer: found[peer],
    }
    without = value(heading.partition("without privacy")[2])
    _by_epsilon(axes, chosen, series, quantity="test AUROC", baseline=("boosting without privacy", without))


def _accuracy(axes: Axes, text: str, series: list[str]) -> None:
    table = rows(text)
    for data, colour, mark in zip(sorted({row["data"] for row in table}), series, "os", strict=False):
        mine = [row for row in table if row["data"] == data]
        epsilons = [value(row["ε"]) for row in mine]
        axes.errorbar(
            epsilons,
            [value(row["test accuracy, %"]) for row in mine],
            [spread(row["test accuracy, %"]) for row in mine],
            color=colour,
            marker=mark,
            **LINE,
            label=data,
        )
        axes.plot(
            epsilons,
            [value(row["target"]) for row in mine],
            color=colour,
            linestyle="none",
            marker="_",
            markersize=14,
            markeredgewidth=1.8,
            label=f"{data}, target",
        )
    _epsilons(axes, {value(row["ε"]) for row in table})
    axes.set_ylabel("test accuracy, %")
    axes.legend(fontsize=9, loc="center right", labelcolor="linecolor")


def _bars(
    axes: Axes, names: list[str], groups: dict[str, list[float]], series: list[str], *, quantity: str
) -> None:
    """Horizontal bars, a group of them for each name, with their values."""
    height = 0.8 / len(groups)
    for place, ((label, values), colour) in enumerate(zip(groups.items(), series, strict=False)):
        drawn = axes.barh(
            [row + place * height for row in range(len(names))],
            values,
            height * 0.9,
            color=colour,
            label=label,
        )
        axes.bar_label(
            drawn,
            [f"{each:.2f}" for each in values],
            padding=3,
            fontsize=8,
            color=axes.yaxis.label.get_color(),
        )
    axes.set_yticks([row + 0.4 - height / 2 for row in range(len(names))], names, fontsize=9)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.axvline(1, color=axes.yaxis.label.get_color(), linewidth=1, linestyle="--")
    axes.set_xlabel(quantity)
    axes.set_xlim(0, 1.12 * max(max(values) for values in groups.values()))
    axes.legend(**BELOW)


def _speed(axes: Axes, text: str, series: list[str]) -> None:
    table = rows(text, "## Throughput, one thread")
    ours = [value(row["tacit"]) for row in table]
    best = [mine / value(row["tacit / best Opacus"]) for mine, row in zip(ours, table, strict=True)]
    names = [row[""].replace(", batch", ",\nbatch") for row in table]
    _bars(
        axes,
        names,
        {"tacit": ours, "the best mode of Opacus": best},
        series,
        quantity="throughput ÷ that of the step without privacy",
    )


def _tables(axes: Axes, text: str, series: list[str]) -> None:
    table = [
        row for row in rows(text, "## 5,000,000 rows") if row["second plain query"].startswith("clipped")
    ]
    plain, clipped = ([value(row[key]) for row in table] for key in ("ratio", "ratio 5"))
    _bars(
        axes,
        [row["question"] for row in table],
        {"÷ plain query": plain, "÷ query of clipped values": clipped},
        series,
        quantity="time of the private question ÷ time of the query",
    )


def _samplers(axes: Axes, text: str, series: list[str]) -> None:
    table = rows(text)
    axes.set_xscale("log")
    for place, (peer, colour) in enumerate(zip(("tacit", "OpenDP"), series, strict=False)):
        axes.barh(
            [row + place * 0.4 for row in range(len(table))],
            [value(row[peer]) for row in table],
            0.36,
            color=colour,
            label=peer,
        )
    axes.set_yticks(
        [row + 0.2 for row in range(len(table))],
        [f"{row['noise']}, {row['on']}, {row['scale']}" for row in table],
        fontsize=9,
    )
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.set_xlabel("microseconds a sample (logarithmic)")
    axes.legend(**BELOW)


PLOTS = (
    Plot(
        "linear",
        "linear.md",
        "Logistic regression of Adult",
        "Test AUROC of logistic regression on Adult by ε, beside tuned peers; bars are standard"
        " deviations over ten seeds.",
        _linear,
    ),
    Plot(
        "boosting",
        "classical.md",
        "Gradient boosting of Adult",
        "Test AUROC on Adult by ε: private gradient boosting, private logistic regression, and the private"
        " explainable boosting of another library.",
        _boosting,
    ),
    Plot(
        "dpsgd-accuracy",
        "dpsgd_accuracy.md",
        "Accuracy of DP-SGD",
        "Test accuracy of a linear model on scattering features, trained by DP-SGD, by ε; short strokes are"
        " the targets.",
        _accuracy,
    ),
    Plot(
        "dpsgd-speed",
        "dpsgd_speed.md",
        "Speed of DP-SGD",
        "Throughput of a private training step as a share of the step without privacy, on one thread.",
        _speed,
        5.2,
    ),
    Plot(
        "tables",
        "tables.md",
        "Time of private statistics",
        "Time of private questions about 5,000,000 rows, as a multiple of the plain query and of the query"
        " that clips its values too.",
        _tables,
        4.6,
    ),
    Plot(
        "samplers",
        "samplers.md",
        "Time of exact noise",
        "Microseconds for a sample of exact noise, in calls that draw many samples and, at the end, in calls"
        " that draw one.",
        _samplers,
        4.8,
    ),
)


def draw_all(tables: Path, folder: Path) -> tuple[Plot, ...]:
    """Draw every plot as SVG into a folder, once for light and once for dark pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for plot in PLOTS:
        text = (tables / plot.table).read_text(encoding="utf-8")
        for theme, inks in INKS.items():
            _draw(plot, text, inks, folder / f"{plot.name}-{theme}.svg")
    return PLOTS


def _draw(plot: Plot, text: str, inks: Colours, path: Path) -> None:
    ink, soft = inks["ink"], inks["soft"]
    style = {
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": soft,
        "xtick.color": ink,
        "ytick.color": ink,
        "axes.grid": True,
        "grid.color": inks["grid"],
        "grid.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "svg.hashsalt": plot.name,
        "legend.facecolor": inks["page"],
        "legend.edgecolor": "none",
        "legend.framealpha": 1,
    }
    with rc_context(style):
        figure = Figure(figsize=(5.6, plot.height), layout="constrained")
        plot.draw(figure.subplots(), text, list(inks["series"]))  # type: ignore[call-overload]
        figure.savefig(path, transparent=True, metadata={"Date": None})
