"""Charts of numbers with intervals: bars, points, histograms, heatmaps, and panels of them for groups.

>>> chart = Chart("count() by sex", "bars", (Panel(("Female", "Male"), (10, 21), (8, 19), (12, 23)),))
>>> figure = figure_of([chart])
>>> [axes.get_title(loc="left") for axes in figure.get_axes()]
['count() by sex']
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Figure
from matplotlib.figure import SubFigure
from matplotlib.ticker import FuncFormatter, MaxNLocator

__all__ = ["Chart", "Panel", "figure_of"]

BLUE, SKY, INK, SOFT, LINE, PAPER = "#0072B2", "#56B4E9", "#222222", "#555555", "#dddddd", "#ffffff"
WIDE, NARROW = 7.6, 3.9
"""Inches across a drawing, and across one for small screens."""
MOST_NAMES = 40
"""The most bars that have a name each; of more, some names are written."""
MOST_PANELS, MOST_HEATMAPS = 24, 12
"""The most groups that are drawn; a note says how many were left out."""
LONGEST_NAME = 34
"""Letters of a name that are written."""


@dataclass(frozen=True)
class Panel:
    """The numbers of one group: by name, each with the ends of its interval, or None where there is none.

    Of a heatmap ``names`` are those of the rows, and ``columns`` those of the columns; numbers go row by row.
    """

    names: Sequence[str]
    values: Sequence[Any]
    low: Sequence[Any] | None = None
    high: Sequence[Any] | None = None
    title: str = ""
    columns: Sequence[str] = ()
    edges: Sequence[str] = ()
    """Of bins, one more than there are: written below the bars where there is no room for the names."""
    sums: bool = False
    """Whether the last row and the last column are sums, which would drown the others' colours."""


@dataclass(frozen=True)
class Chart:
    """What is drawn: ``kind`` is bars (from zero), bins (bars side by side), points or heatmap."""

    title: str
    kind: str
    panels: tuple[Panel, ...]
    note: str = ""
    axis: str = ""
    """What the names are names of."""
    value: str = ""
    """What the numbers are."""
    signed: bool = False
    """Whether numbers below zero are as good as others, so that colours go to both sides of it."""
    width: float = WIDE
    """Inches."""

    @property
    def upright(self) -> bool:
        """Whether bars stand; else they lie, and their names are beside them."""
        names = self.panels[0].names
        if self.kind == "bins" or len(names) > MOST_NAMES:
            return True
        fit = len(names) <= 12 and sum(len(name) + 2 for name in names) < self.letters
        return self.kind == "bars" and fit

    @property
    def drawn(self) -> tuple[Panel, ...]:
        """The panels that there is room for."""
        return self.panels[: MOST_HEATMAPS if self.kind == "heatmap" else MOST_PANELS]

    @property
    def across(self) -> int:
        """How many panels stand side by side."""
        number = len(self.drawn)
        if number == 1 or self.width < 5:
            return 1
        wide = self.kind == "heatmap" and len(self.panels[0].columns) > 4
        return 1 if wide else 2 if number < 5 or self.kind == "heatmap" else 3

    @property
    def letters(self) -> int:
        """How many letters of a name below a panel fit across it."""
        return int(11 * self.width) // self.across

    @property
    def down(self) -> int:
        """How many rows of panels there are."""
        return math.ceil(len(self.drawn) / self.across)

    @property
    def height(self) -> float:
        """Inches."""
        names = len(self.panels[0].names)
        if self.kind == "heatmap":
            each = 0.9 + 0.36 * max(names, 2)
        elif self.upright:
            each = 3.6 if self.down == 1 else 2.4
        else:
            each = 0.75 + 0.27 * max(names, 2)
        return self.down * each + 0.2 * (len(self.heading) + len(self.told))

    @property
    def heading(self) -> list[str]:
        """The lines of the title."""
        return textwrap.wrap(self.title, int(10.5 * self.width))

    @property
    def told(self) -> list[str]:
        """The lines of the note, with what could not be drawn."""
        drawn, there = len(self.drawn), len(self.panels)
        more = f"The first {drawn} of {there} groups." if drawn < there else ""
        return textwrap.wrap(" ".join(filter(None, (more, self.note))), int(14 * self.width))


def figure_of(charts: Sequence[Chart]) -> Figure:
    """One figure with all charts, one below the other, as wide as the widest."""
    heights = [chart.height for chart in charts]
    width = max(chart.width for chart in charts)
    figure = Figure(figsize=(width, sum(heights)), dpi=150, layout="constrained")
    with rc_context({"text.parse_math": False}):
        places: Any = [figure]
        if len(charts) > 1:
            places = figure.subfigures(len(charts), 1, height_ratios=heights)
        for place, chart in zip(places, charts, strict=True):
            _draw(place, chart)
    return figure


def _draw(figure: Figure | SubFigure, chart: Chart) -> None:
    panels = chart.drawn
    alone = len(panels) == 1
    shared = chart.kind != "heatmap"
    grid = figure.subplots(chart.down, chart.across, squeeze=False, sharex=shared, sharey=shared)
    title = "\n".join(chart.heading)
    if not alone and title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    scale = _scale(panels, chart.signed) if chart.kind == "heatmap" else None
    for axes, panel in zip(grid.flat, panels, strict=False):
        if alone:
            axes.set_title(title, loc="left", fontsize=11)
        else:
            axes.set_title(_short(panel.title), fontsize=10)
        if scale is not None:
            _heatmap(axes, panel, scale, chart.letters)
        elif chart.upright:
            _standing(axes, panel, chart)
        else:
            _lying(axes, panel, chart)
        for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
            for label in labels:
                label.set_fontsize(9)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    _name_axes(grid, chart)
    if chart.told:
        # A label below the figure, which the layout makes room for.
        figure.supxlabel("\n".join(chart.told), x=0.01, ha="left", fontsize=8.5, color=SOFT)


def _name_axes(grid: Any, chart: Chart) -> None:
    """What names and numbers are, at the left and at the bottom."""
    across, up = (chart.axis, chart.value) if chart.upright else (chart.value, chart.axis)
    if chart.kind == "heatmap":
        across, up = chart.value, chart.axis
    for axes in grid[0 if chart.kind == "heatmap" else -1]:
        axes.set_xlabel(_short(across), fontsize=9)
    for axes in grid[:, 0]:
        axes.set_ylabel(_short(up), fontsize=9)


def _short(name: str, most: int = LONGEST_NAME) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _number(value: float, _: Any = None) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 and float(value).is_integer() else f"{value:g}"


def _ends(panel: Panel) -> tuple[list[Any], list[Any]] | None:
    return None if panel.low is None or panel.high is None else (list(panel.low), list(panel.high))


def _plain_axes(axes: Axes, along: str) -> None:
    hidden = ["top", "right"] if along == "y" else ["top", "right", "left"]
    axes.spines[hidden].set_visible(False)
    axes.grid(True, axis="x" if along == "x" else "y", color=LINE, linewidth=0.7)
    axes.set_axisbelow(True)


def _standing(axes: Axes, panel: Panel, chart: Chart) -> None:
    """Bars that stand beside each other; of very many an outline and a band for their intervals."""
    places, ends = np.arange(len(panel.names)), _ends(panel)
    many = len(places) > 150
    if many:
        axes.fill_between(places, panel.values, step="mid", color=BLUE, alpha=0.55, linewidth=0)
        if ends is not None:
            axes.fill_between(places, *ends, step="mid", color=INK, alpha=0.25, linewidth=0)
    else:
        width = 0.98 if chart.kind == "bins" else 0.72
        axes.bar(places, panel.values, width=width, color=BLUE, edgecolor=PAPER, linewidth=0.5)
        if ends is not None:
            axes.vlines(places, *ends, color=INK, linewidth=1.4 if len(places) < 60 else 0.8)
    axes.axhline(0, color=INK, linewidth=0.9)
    _name_bars(axes, panel, chart)
    axes.set_xlim(-0.6, len(places) - 0.4)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.yaxis.set_major_formatter(FuncFormatter(_number))
    _plain_axes(axes, "y")


def _name_bars(axes: Axes, panel: Panel, chart: Chart) -> None:
    """Names below bars that stand; where there is no room for them, edges, some of them, or turned names."""
    number, letters = len(panel.names), chart.letters
    room = max(1, letters // (2 + max(map(len, panel.names), default=1)))
    if number > room and panel.edges:
        step = math.ceil((number + 1) / max(2, letters // (3 + max(map(len, panel.edges)))))
        axes.set_xticks([i - 0.5 for i in range(0, number + 1, step)], list(panel.edges[::step]))
        return
    turned = room < number <= letters // 2
    step = 1 if turned else math.ceil(number / room)
    shown = range(0, number, step)
    axes.set_xticks(list(shown), [_short(panel.names[i]) for i in shown], rotation=90 if turned else 0)


def _lying(axes: Axes, panel: Panel, chart: Chart) -> None:
    """Bars that lie, or points, below each other, the first on top."""
    places, ends = range(len(panel.names)), _ends(panel)
    numbers = all(isinstance(value, int | float) for value in panel.values)
    if chart.kind == "bars":
        axes.barh(places, panel.values, color=BLUE, height=0.72)
        axes.axvline(0, color=INK, linewidth=0.9)
        if ends is not None:
            axes.hlines(places, *ends, color=INK, linewidth=1.4)
    else:
        if ends is not None:
            axes.hlines(places, *ends, color=SKY, linewidth=4)
        axes.plot(panel.values, places, "o", color=BLUE, markersize=6)
    axes.set_yticks(places, [_short(name) for name in panel.names])
    axes.set_ylim(len(places) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    if numbers:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
        axes.xaxis.set_major_formatter(FuncFormatter(_number))
    else:
        axes.tick_params(axis="x", rotation=30)
    _plain_axes(axes, "x")


def _scale(panels: Sequence[Panel], signed: bool) -> tuple[Any, Normalize]:
    """Colours for the cells of all panels: from zero, or to both sides of it."""
    cells = np.concatenate([_table(panel)[_inner(panel)].ravel() for panel in panels])
    low, high = float(cells.min(initial=0)), float(cells.max(initial=0))
    if signed:
        most = max(-low, high) or 1.0
        return colormaps["RdBu"], Normalize(-most, most)
    return colormaps["Blues"], Normalize(0, high * 1.15 or 1.0)


def _table(panel: Panel) -> Any:
    return np.asarray(panel.values, dtype=float).reshape(len(panel.names), len(panel.columns))


def _inner(panel: Panel) -> tuple[slice, slice]:
    end = -1 if panel.sums else None
    return slice(None, end), slice(None, end)


def _heatmap(axes: Axes, panel: Panel, scale: tuple[Any, Normalize], letters: int) -> None:
    """A table as coloured cells with their numbers; sums stand beside it without colour."""
    table, (colours, norm) = _table(panel), scale
    inner = table[_inner(panel)]
    axes.pcolormesh(inner, cmap=colours, norm=norm, edgecolors=PAPER, linewidth=0.8)
    rows, columns = table.shape
    if table.size <= 400 and columns * 5 <= letters:
        half = _half_widths(panel) if columns * 10 <= letters else None
        for i, j in np.ndindex(rows, columns):
            coloured = i < inner.shape[0] and j < inner.shape[1]
            dark = coloured and np.dot(colours(norm(table[i, j]))[:3], [0.3, 0.59, 0.11]) < 0.55
            text = _cell_text(table[i, j], None if half is None else half[i, j])
            colour = ("#fefefe" if dark else "#1a1a1a") if coloured else INK
            axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=7.5, color=colour)
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    stepped = max(1, math.ceil(columns / 24))
    turned = sum(len(_short(name, 16)) + 2 for name in panel.columns) > letters - 14
    shown = range(0, columns, stepped)
    axes.set_xticks([j + 0.5 for j in shown], [_short(panel.columns[j], 16) for j in shown],
                    rotation=90 if turned else 0)  # fmt: skip
    stepped = max(1, math.ceil(rows / MOST_NAMES))
    axes.set_yticks(
        [i + 0.5 for i in range(0, rows, stepped)], [_short(name) for name in panel.names[::stepped]]
    )
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _half_widths(panel: Panel) -> Any:
    ends = _ends(panel)
    if ends is None:
        return None
    low, high = (np.asarray(end, dtype=float) for end in ends)
    return ((high - low) / 2).reshape(len(panel.names), len(panel.columns))


def _cell_text(value: float, half: float | None) -> str:
    if half is None or not half > 0:
        return _number(float(f"{value:.4g}"))
    digits = min(6, max(0, 1 - math.floor(math.log10(half))))
    return f"{round(value, digits) + 0.0:,.{digits}f}\n±{half:,.{digits}f}"
