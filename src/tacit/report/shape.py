"""Shape functions of an additive model on its page: what each column adds to the score, in its own units."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.models.description import Effects
from tacit.report.facts import Facts
from tacit.report.page import Section

__all__ = ["Shape", "shown"]

MOST_PANELS, MOST_BARS = 12, 12
"""How many columns are drawn, and how many categories of one."""


@dataclass(frozen=True)
class Shape:
    """What is drawn of one column."""

    title: str
    cells: tuple[str, ...]
    edges: tuple[float, ...] | None
    effects: tuple[float, ...]
    logarithmic: bool = False


def shown(facts: Facts) -> list[Section]:
    """The widest shape functions, drawn."""
    found = facts.description.shapes
    if not found:
        return []
    from tacit.report import plots

    drawn = [_drawn(facts, one) for one in found[:MOST_PANELS]]
    what = "the log-odds of the class" if facts.description.classes else "the prediction, from −1 to 1"
    few = f" The {len(drawn)} widest of {len(found)} are shown." if len(drawn) < len(found) else ""
    text = (
        f"The model is a sum: each panel shows what one column adds to {what}. Drawn is what was released, "
        f"noise included; where noise hides what the data say, the line stays flat.{few}"
    )
    picture = plots.embedded(plots.shape_figure(drawn), "What each column adds to the score.")
    return [Section("What each column adds", [text], figure=picture)]


def _drawn(facts: Facts, one: Effects) -> Shape:
    title = f"{one.column} → {one.output}" if one.output else one.column
    if one.edges is None:
        largest = sorted(range(len(one.effects)), key=lambda place: -abs(one.effects[place]))[:MOST_BARS]
        order = sorted(largest, key=lambda place: -one.effects[place])
        cells, effects = (tuple(part[place] for place in order) for part in (one.cells, one.effects))
        return Shape(title, tuple(map(str, cells)), None, tuple(map(float, effects)))
    edges, transform = _in_units(facts, one)
    return Shape(title, one.cells, edges, one.effects, transform == "log1p")


def _in_units(facts: Facts, one: Effects) -> tuple[tuple[float, ...] | None, str]:
    """The edges in the units of the table, where the preprocessor that scaled them is known."""
    if facts.preprocessor is None or one.edges is None:
        return one.edges, "identity"
    scaled = facts.preprocessor.scaled(one.column)
    if scaled is None:
        return one.edges, "identity"
    edges = facts.preprocessor.unscaled(one.column, one.edges)
    return tuple(edges.tolist()), scaled[2]
