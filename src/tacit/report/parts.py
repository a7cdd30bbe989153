"""Clusters and components on a model's page: how large each is, and what it is, feature by feature."""

from __future__ import annotations

from tacit.report.facts import Facts
from tacit.report.numbers import number
from tacit.report.page import Fold, Section

__all__ = ["cell", "shown"]

MOST_ROWS, MOST_COLUMNS = 20, 12
"""A longer list of features is folded away; wider ones are cut, and the file has the rest."""


def shown(facts: Facts) -> list[Section]:
    """The sizes, drawn as bars, and the table of all features."""
    sizes, profiles = facts.description.sizes, facts.description.profiles
    sections = []
    if sizes is not None:
        from tacit.report import plots

        drawn = plots.coefficient_figure(sizes.names, sizes.values, title=sizes.heading)
        rows = [[name, number(value)] for name, value in zip(sizes.names, sizes.values, strict=True)]
        sections.append(
            Section(
                sizes.heading, [sizes.about], table=(("", "value"), rows),
                figure=plots.embedded(drawn, f"{sizes.heading}, as bars."),
            )
        )  # fmt: skip
    if profiles is not None:
        names = profiles.names[:MOST_COLUMNS]
        cut = f" The first {len(names)} of {len(profiles.names)} are shown."
        about = profiles.about + (cut if len(names) < len(profiles.names) else "")
        rows = [[feature, *map(cell, values[:MOST_COLUMNS])] for feature, values in profiles.rows]
        table = (("feature", *names), rows)
        if len(rows) <= MOST_ROWS:
            sections.append(Section(profiles.heading, [about], table=table))
        else:
            fold = Fold(f"The list of {len(rows)} features", table=table)
            sections.append(Section(profiles.heading, [about], fold=fold))
    return sections


def cell(value: float | str) -> str:
    """A number as the page writes it, a large one in full; a date as it is."""
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 else number(value)
