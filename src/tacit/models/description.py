"""Description: what a fitted model says of itself, in words and numbers that were released."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tacit.drawing.trees import Node

__all__ = ["CONFIDENCE", "Description", "Effects", "Pairs", "Profiles", "Sizes", "Weight", "numbered"]

CONFIDENCE = 0.95
"""The level of the intervals of weights."""


def numbered(width: int) -> tuple[str, ...]:
    """Names of features that have none: ``feature 0``, ``feature 1`` …"""
    return tuple(f"feature {place}" for place in range(width))


@dataclass(frozen=True)
class Weight:
    """One released number of a model, with the interval that includes the privacy noise, if there is one."""

    output: str
    feature: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def label(self) -> str:
        """The feature, and the class where there are several."""
        return f"{self.feature} → {self.output}" if self.output else self.feature


@dataclass(frozen=True)
class Effects:
    """What one column adds to the score of an additive model, cell by cell; a missing value adds 0."""

    column: str
    output: str
    """The class where there are more than two, else empty."""
    cells: tuple[str, ...]
    """What the cells are called."""
    edges: tuple[float, ...] | None
    """Where the cells of a number meet, as the model reads it; None for categories."""
    effects: tuple[float, ...]

    def named(self, names: Mapping[str, str]) -> Effects:
        """The same with names in place of those that are keys; a category is called by its value."""
        column = names.get(self.column, self.column)
        cells = tuple(names.get(cell, cell).removeprefix(f"{column}=") for cell in self.cells)
        return replace(self, column=column, cells=cells)

    @property
    def spread(self) -> float:
        """The largest effect less the smallest."""
        return max(self.effects, default=0.0) - min(self.effects, default=0.0)


@dataclass(frozen=True)
class Pairs:
    """A number for every two columns of a table, as total variation distances are: from 0 to 1."""

    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    """A symmetric matrix; on the diagonal what is said of single columns, or 0."""

    def listed(self) -> list[tuple[str, str, float]]:
        """Every pair of columns with its number, the largest first."""
        names = self.columns
        found = [
            (names[a], names[b], self.values[a][b]) for b in range(len(names)) for a in range(b)
        ]
        return sorted(found, key=lambda each: -each[2])


@dataclass(frozen=True)
class Sizes:
    """One released number for each part of a model: rows of clusters, variance of components."""

    heading: str
    about: str
    """What the numbers are, in a sentence."""
    names: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Profiles:
    """One column of released numbers for each cluster or component, with one row for each feature."""

    heading: str
    about: str
    """What the numbers are, in a sentence."""
    names: tuple[str, ...]
    """The names of the clusters or components."""
    rows: tuple[tuple[str, tuple[float | str, ...]], ...]
    """The name of a feature, and its number in each of them."""
    in_units: bool = False
    """Whether the numbers are values of the features, which are shown in the units of the table."""

    def named(
        self, names: Mapping[str, str], value: Callable[[str, float | str], float | str]
    ) -> Profiles:
        """The same with names in place of those that are keys, and values as ``value`` writes them."""
        rows = []
        for feature, numbers in self.rows:
            told = names.get(feature, feature)
            rows.append((told, tuple(value(told, each) for each in numbers) if self.in_units else numbers))
        return replace(self, rows=tuple(rows))


@dataclass(frozen=True)
class Description:
    """What reports, ``tacit inspect`` and the command line may say of a fitted model.

    Whatever is fitted has a method ``describe()`` that returns one of these, so that nobody has to ask for
    its class. All of it is public or was released.
    """

    title: str
    """What the model is, in a few words: ``"logistic regression"``."""
    facts: tuple[tuple[str, str], ...] = ()
    """Settings and origin, as pairs of words."""
    classes: tuple[Any, ...] = ()
    """The classes there may be; none for a regression."""
    weights: tuple[Weight, ...] = ()
    """Released coefficients, the largest first; intervals have the level :data:`CONFIDENCE`."""
    tensors: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Names and shapes of the parameters of a network."""
    run: tuple[tuple[str, str], ...] = ()
    """How a network was trained, as pairs of words."""
    shapes: tuple[Effects, ...] = ()
    """What each column adds to the score, where the model is a sum of such functions; the widest first."""
    tree: Node | None = None
    """The model as a tree that can be drawn, if it is one."""
    dependences: Pairs | None = None
    """How far every two columns are from independent in a model that makes tables: total variation."""
    sizes: Sizes | None = None
    """How large the parts of the model are, where it has clusters or components."""
    profiles: Profiles | None = None
    """What the clusters or components are, feature by feature."""

    def named(
        self,
        features: Sequence[str],
        edge: Callable[[str, float | str], float | str] = lambda column, value: value,
    ) -> Description:
        """The same with names for features that were only numbered; ``edge`` writes where a tree splits.

        ``edge`` also writes the coordinates of centres in the units of the table.
        """
        names = dict(zip(numbered(len(features)), features, strict=True))
        weights = (replace(one, feature=names.get(one.feature, one.feature)) for one in self.weights)
        shapes = (one.named(names) for one in self.shapes)
        tree = None if self.tree is None else self.tree.named(names, edge)
        profiles = None if self.profiles is None else self.profiles.named(names, edge)
        return replace(self, weights=tuple(weights), shapes=tuple(shapes), tree=tree, profiles=profiles)
