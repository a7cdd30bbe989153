"""Description: what a fitted model says of itself, in words and numbers that were released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["CONFIDENCE", "Description", "Weight", "numbered"]

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
    drawing: str = ""
    """The model as a drawing, the text of an SVG file; a tree has one."""

    def named(self, features: Sequence[str]) -> Description:
        """The same with names for features that were only numbered."""
        names = dict(zip(numbered(len(features)), features, strict=True))
        weights = (replace(one, feature=names.get(one.feature, one.feature)) for one in self.weights)
        return replace(self, weights=tuple(weights))
