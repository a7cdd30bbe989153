"""Frequencies: the release that a frequency oracle estimates from reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.guarantee import Guarantee
from tacit.mechanisms import without_negatives
from tacit.tables.release import Answer, Release

if TYPE_CHECKING:
    from tacit.local.oracle import Counted, FrequencyOracle

__all__ = ["Frequencies"]


class Frequencies(Release):
    """Estimated frequencies with their intervals and the guarantee of each report.

    ``value`` is an array with one number per category; ``categories`` are its names; ``reports`` is the
    number of reports that were counted, and ``refused`` that of the reports that the mechanism cannot make.

    >>> import tacit
    >>> oracle = tacit.local.RandomizedResponse(categories=["no", "yes"], epsilon=1.0, random_state=1)
    >>> found = oracle.estimate(oracle.randomize(["yes"] * 300 + ["no"] * 700))
    >>> found.on_simplex().value.round(3).tolist(), found.categories, found.reports
    ([0.706, 0.294], ('no', 'yes'), 1000)
    """

    def __init__(
        self,
        label: str,
        guarantee: Guarantee,
        answer: Answer | None = None,
        *,
        categories: tuple[Any, ...] = (),
        reports: int = 0,
        refused: int = 0,
    ) -> None:
        super().__init__(label, guarantee, answer)
        self.categories = categories
        """The names of the categories, in the order of ``value``."""
        self.reports = reports
        """How many reports were counted."""
        self.refused = refused
        """How many reports were left out, because the mechanism cannot make them."""

    @classmethod
    def of(cls, oracle: FrequencyOracle, counted: Counted) -> Frequencies:
        """What the oracle makes of the supports that it counted."""

        def interval(confidence: float, simultaneous: bool) -> tuple[NDArray[Any], NDArray[Any]]:
            return oracle.interval(counted, confidence, oracle.size if simultaneous else 1)

        names = tuple(range(oracle.size)) if oracle._names is None else oracle._names
        return cls(
            f"frequencies by {type(oracle).__name__}",
            oracle.guarantee,
            Answer(oracle.frequencies(counted), interval, np.asarray, cells=True),
            categories=names,
            reports=counted.accepted,
            refused=counted.refused,
        )

    def on_simplex(self) -> Frequencies:
        """The nearest frequencies without negatives that add up to 1. Post-processing: it costs nothing.

        Projection is no farther from the truth in ℓ2, and it is biased where the truth is near 0.
        """

        def projected(answer: Answer) -> Answer:
            values = without_negatives(answer.values + (1 - answer.values.sum()) / answer.values.size)

            def interval(confidence: float, simultaneous: bool) -> tuple[NDArray[Any], NDArray[Any]]:
                low, high = answer.interval(confidence, simultaneous)
                return np.minimum(low, values), np.maximum(high, values)

            return replace(answer, values=values, interval=interval)

        return self._processed(projected)

    def _processed(self, step: Callable[[Answer], Answer]) -> Frequencies:
        return Frequencies(
            self.label,
            self.guarantee,
            step(self.filled()),
            categories=self.categories,
            reports=self.reports,
            refused=self.refused,
        )
