"""Draws the picture of the README: what ε means. Writes epsilon-light.svg and epsilon-dark.svg beside itself.

A count is released with Laplace noise at ε = 1. The two curves are the distributions of the released number
with and without one person; the bars say how sure anybody can become, from 50 %, that this person was in the
data.
"""

from __future__ import annotations

import argparse
import io
import math
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit import Guarantee, events
from tacit.report.membership import odds

EPSILON = 1.0
COUNT = 100
BARS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
INKS = {
    "light": {
        "ink": "#1f2328", "soft": "#57606a", "blue": "#0072b2", "orange": "#d55e00", "green": "#009e73",
        "bar": "#ffffff",
    },
    "dark": {
        "ink": "#e6edf3", "soft": "#a3adb8", "blue": "#58a6e0", "orange": "#f08a45", "green": "#2bb88a",
        "bar": "#000000",
    },
}  # fmt: skip
"""Colours on a light and on a dark page."""


def curves(axes: Axes, inks: dict[str, str]) -> None:
    """The released number with and without one person, and the largest ratio between the two."""
    points = np.linspace(COUNT - 6, COUNT + 5, 1101)
    for centre, name, side in ((COUNT, "blue", "with you"), (COUNT - 1, "orange", "without you")):
        height = EPSILON / 2 * np.exp(-EPSILON * np.abs(points - centre))
        axes.plot(points, height, color=inks[name], linewidth=2.4)
        right = name == "blue"
        axes.annotate(
            side, (centre, EPSILON / 2), (10 if right else -10, -2), textcoords="offset points",
            color=inks[name], fontsize=11, ha="left" if right else "right",
        )  # fmt: skip
    low, high = (EPSILON / 2 * math.exp(-EPSILON * distance) for distance in (2.5, 1.5))
    axes.annotate(
        "", (COUNT + 1.5, low), (COUNT + 1.5, high),
        arrowprops={"arrowstyle": "<->", "color": inks["ink"], "shrinkA": 0, "shrinkB": 0},
    )  # fmt: skip
    axes.annotate(
        f"nowhere more than\ne^ε = {math.exp(EPSILON):.2f} times as likely",
        (COUNT + 1.7, (low + high) / 2 + 0.03), color=inks["ink"], fontsize=10,
    )  # fmt: skip
    axes.set_title(f"What is released: a count with noise, ε = {EPSILON:g}", color=inks["ink"], fontsize=11)
    axes.set_xlim(COUNT - 6, COUNT + 7.5)
    axes.set_ylim(0, 0.56)
    axes.set_yticks([])
    axes.set_xlabel("released number", color=inks["soft"])


def bars(axes: Axes, inks: dict[str, str]) -> None:
    """How sure anybody can become that a person was in the data, by ε."""
    sure = [odds(Guarantee(epsilon, 0.0, events.Pure(epsilon))) for epsilon in BARS]
    axes.barh(range(len(BARS)), [value - 0.5 for value in sure], left=0.5, color=inks["green"], height=0.62)
    for place, value in enumerate(sure):
        share = math.ceil(1000 * value) / 10 if value < 0.999 else math.ceil(10000 * value) / 100
        colour, side, shift = ("bar", "right", -6) if value > 0.9 else ("ink", "left", 6)
        axes.annotate(
            f"{share:g}%", (value, place), (shift, 0), textcoords="offset points",
            color=inks[colour], va="center", ha=side, fontsize=10,
        )  # fmt: skip
    axes.set_yticks(range(len(BARS)), [f"ε = {epsilon:g}" for epsilon in BARS])
    axes.invert_yaxis()
    axes.set_xlim(0.5, 1.0)
    axes.set_xticks([0.5, 0.75, 1.0], ["50%", "75%", "100%"])
    axes.set_title("How sure anybody can become that you were in", color=inks["ink"], fontsize=11)
    axes.set_xlabel("sure, if 50% before", color=inks["soft"])


def picture(inks: dict[str, str]) -> str:
    """Both drawings as SVG, on no background."""
    figure = Figure(figsize=(9.6, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    curves(left, inks)
    bars(right, inks)
    for axes in (left, right):
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color(inks["soft"])
        axes.tick_params(colors=inks["ink"], length=0)
    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": "epsilon"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Write the picture for light and for dark pages."""
    parser = argparse.ArgumentParser(description="Draw what ε means, for the README.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write to")
    options = parser.parse_args(arguments)
    for name, inks in INKS.items():
        (options.out / f"epsilon-{name}.svg").write_text(picture(inks), encoding="utf-8")


if __name__ == "__main__":
    main()
