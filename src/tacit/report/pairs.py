"""Pairs of columns on the page of a synthesizer: how they depend, and how close its rows are to others."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.models.description import Pairs
from tacit.report.facts import Facts
from tacit.report.numbers import number
from tacit.report.page import Fold, Picture, Section

__all__ = ["Closeness", "closeness", "dependences"]

NOT_PRIVATE = "NOT PRIVATE: for the curator's eyes"


@dataclass(frozen=True)
class Closeness:
    """How far synthetic rows are from others in every two columns, and whether the others are public."""

    distances: Pairs
    """Total variation distances; those of single columns on the diagonal."""
    public: bool
    """Whether the rows compared with are public; otherwise the distances are private."""

    @property
    def mean(self) -> float:
        """The mean over all pairs of columns; 0 where there is no pair."""
        found = [value for _, _, value in self.distances.listed()]
        return sum(found) / max(len(found), 1)


def dependences(facts: Facts) -> list[Section]:
    """How far every two columns are from independent, from what was released."""
    found = facts.description.dependences
    if found is None or len(found.columns) < 2:
        return []
    from tacit.report import plots

    about = (
        "For every two columns, how far they are from independent in the model: the total variation distance "
        "between their joint distribution and the product of their own, 0 for independent columns. It comes "
        "from noisy counts that were paid for. A pair that was not measured is as dependent as the measured "
        "pairs imply."
    )
    drawn = plots.pairs_figure(found, "Distance from independence")
    text = "For every two columns, how far they are from independent."
    return [_section("Which columns depend on each other", about, found, plots.embedded(drawn, text))]


def closeness(found: Closeness | None) -> list[Section]:
    """How far the synthetic rows are from the rows that they were compared with."""
    if found is None:
        return []
    from tacit.report import plots

    rows = "public rows" if found.public else "the private rows"
    about = (
        f"For every two columns, the total variation distance between synthetic rows and {rows}: the largest "
        "difference of the share that any set of cells has, 0 for equal distributions. Numbers are compared "
        f"by the bins of the model. The mean over all pairs is {number(found.mean)}."
    )
    warning = (
        ""
        if found.public
        else " These distances are exact numbers about private rows, and no guarantee covers them: do not "
        "publish this page, store it or pass it on."
    )
    heading = "How close the synthetic rows are"
    drawn = plots.pairs_figure(found.distances, f"Distance from {rows}")
    text = f"For every two columns, how far the synthetic rows are from {rows}."
    return [
        _section(
            heading if found.public else f"{heading} ({NOT_PRIVATE})",
            about + warning, found.distances, plots.embedded(drawn, text),
        )
    ]  # fmt: skip


def _section(heading: str, about: str, pairs: Pairs, picture: Picture) -> Section:
    rows = [[f"{a} × {b}", number(value)] for a, b, value in pairs.listed()]
    return Section(
        heading, [about], figure=picture, fold=Fold("All pairs", table=(("columns", "distance"), rows))
    )
