"""Description: what a fitted model says of itself, in words and numbers that were released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Description", "Weight"]


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

    Whatever is fitted has a method ``describe()`` that returns one of these; nobody asks for its class. All of
    it is public or was released.
    """

    title: str
    """What the model is, in a few words: ``"logistic regression"``."""
    facts: tuple[tuple[str, str], ...] = ()
    """Settings and origin, as pairs of words."""
    classes: tuple[Any, ...] = ()
    """The classes there may be; none for a regression."""
    weights: tuple[Weight, ...] = ()
    """Released coefficients, the largest first."""
    tensors: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Names and shapes of the parameters of a network."""
