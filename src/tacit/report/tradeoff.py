"""The trade-off on one page: utility, attacks and gaps between groups, each against ε."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit.report.page import Fact, Picture, Section, Summary, render
from tacit.report.summary import written

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["tradeoff_figure", "tradeoff_page"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")
Row = Mapping[str, Any]


def tradeoff_page(rows: Sequence[Row], figure: str, delta: float, name: str) -> str:
    """The page as HTML that needs no other file.

    ``rows`` have a model, an ε (infinite without noise), the mean and the deviation of its utility, the
    share of members that an attack finds at 1 % of false alarms, the most that the guarantee allows, and gaps
    between groups by column.
    """
    columns = list(rows[0]["gaps"]) if rows else []
    heads = ["model", "ε", figure, "attack AUROC", "found at 1 %", "most allowed"]
    heads += [f"gap: {column}" for column in columns]
    table = [
        [
            row["model"], _epsilon(row["epsilon"]), _spread(row["utility"], row["deviation"]),
            f"{row['attack_auroc']:.3f}", f"{row['members_found']:.2%}", f"{row['allowed']:.2%}",
            *(f"{row['gaps'][column]:.3f}" for column in columns),
        ]
        for row in rows
    ]  # fmt: skip
    sections = [
        Section("All figures", [_explained(figure)], table=(heads, table)),
        _drawn("Utility", rows, lambda row: row["utility"], figure, f"{figure} on the test rows", True),
        Section(
            "What an attack finds",
            [
                "A membership attack looks at each row by itself and guesses whether the model was fitted to "
                "it. A stronger one, with shadow models, may find more. No attack exceeds the dashed line, "
                "on average over the noise, by the guarantee alone. "
                "The shares that were found are of some hundreds or thousands of rows and have the sampling "
                "error of such shares, so that at small ε one may lie above the line by chance.",
            ],
            figure=_picture(rows, lambda row: row["members_found"], "members found at 1 % of false alarms",
                            bound=lambda row: row["allowed"]),
        ),
        *(
            _drawn(f"Groups of {column}", rows, lambda row, column=column: row["gaps"][column],
                   f"largest gap between groups of {column}", "difference of accuracies")
            for column in columns
        ),
    ]  # fmt: skip
    facts: list[Fact] = [
        ("What", f"{len({row['model'] for row in rows})} models of {name}, each fitted at several ε"),
        ("δ", f"{delta:g}"),
        ("Rows", "public: all figures are exact, and nothing was charged"),
        ("This page", written()),
    ]
    lead = "What privacy costs, what it buys, and who pays: the same models at several ε, on public rows."
    return render(f"Privacy and utility: {name}", lead, sections, Summary(_sentence(rows, figure), facts))


def tradeoff_figure(
    rows: Sequence[Row], value: Any, label: str, bound: Any = None, whiskers: bool = False
) -> Figure:
    """A figure of every model against ε, and the fit without noise as a dotted line.

    ``bound`` is drawn dashed, on a logarithmic axis; ``whiskers`` show the deviation over fits.
    """
    from tacit.report.plots import new_figure, percent_axis

    figure, (axes,) = new_figure("ε of the model", label, label)
    finite = sorted({row["epsilon"] for row in rows if math.isfinite(row["epsilon"])})
    for model, colour in zip(dict.fromkeys(row["model"] for row in rows), COLOURS * 4, strict=False):
        own = sorted((row for row in rows if row["model"] == model), key=lambda row: row["epsilon"])
        private = [row for row in own if math.isfinite(row["epsilon"])]
        axes.plot([row["epsilon"] for row in private], [value(row) for row in private], "o-", color=colour,
                  linewidth=1.8, markersize=5, label=model)  # fmt: skip
        if whiskers:
            spread = [row["deviation"] or 0.0 for row in private]
            axes.errorbar([row["epsilon"] for row in private], [value(row) for row in private], spread,
                          fmt="none", ecolor=colour, elinewidth=1.2, capsize=3)  # fmt: skip
        for row in own:
            if math.isinf(row["epsilon"]):
                axes.axhline(value(row), color=colour, linestyle=":", linewidth=1.2)
    if bound is not None and finite:
        most = {row["epsilon"]: bound(row) for row in rows if math.isfinite(row["epsilon"])}
        axes.plot(finite, [most[each] for each in finite], "--", color="#222222", linewidth=1.4,
                  label="most that ε allows")  # fmt: skip
        percent_axis(axes, "y")
    axes.set_xscale("log")
    axes.set_xticks(finite, [f"{epsilon:g}" for epsilon in finite])
    axes.minorticks_off()
    figure.legend(frameon=False, loc="outside upper left", ncols=3)
    return figure


def _drawn(
    heading: str, rows: Sequence[Row], value: Any, label: str, told: str, whiskers: bool = False
) -> Section:
    note = "Dotted lines are fits without noise." if any(math.isinf(row["epsilon"]) for row in rows) else None
    return Section(heading, figure=_picture(rows, value, label, told=told, whiskers=whiskers), note=note)


def _picture(
    rows: Sequence[Row], value: Any, label: str, bound: Any = None, told: str = "", whiskers: bool = False
) -> Picture:
    from tacit.report import plots

    return plots.embedded(tradeoff_figure(rows, value, label, bound, whiskers), told or label)


def _explained(figure: str) -> str:
    return (
        f"Means over the fits of each model at each ε; ± is the standard deviation of {figure} over fits. "
        "ε = ∞ is the fit without noise."
    )


def _sentence(rows: Sequence[Row], figure: str) -> str:
    private = [row for row in rows if math.isfinite(row["epsilon"])]
    least = min(row["epsilon"] for row in private)
    best = max((row for row in private if row["epsilon"] == least), key=lambda row: row["utility"])
    reached = f"{figure} {best['utility']:.3f}"
    return f"At ε = {least:g}, the best of these models, {best['model']}, reaches {reached}."


def _epsilon(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:g}"


def _spread(value: float, deviation: float | None) -> str:
    return f"{value:.3f}" if deviation is None else f"{value:.3f} ± {deviation:.3f}"
