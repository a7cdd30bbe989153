"""Description: what a fitted model says of itself, in words and numbers that were released."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tacit.drawing.trees import Node

__all__ = ["CONFIDENCE", "Description", "Effects", "Pairs", "Weight", "numbered"]

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

    def named(
        self,
        features: Sequence[str],
        edge: Callable[[str, float | str], float | str] = lambda column, value: value,
    ) -> Description:
        """The same with names for features that were only numbered; ``edge`` tells where a tree splits."""
        names = dict(zip(numbered(len(features)), features, strict=True))
        weights = (replace(one, feature=names.get(one.feature, one.feature)) for one in self.weights)
        shapes = (one.named(names) for one in self.shapes)
        tree = None if self.tree is None else self.tree.named(names, edge)
        return replace(self, weights=tuple(weights), shapes=tuple(shapes), tree=tree)
