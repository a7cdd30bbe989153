"""Release: an answer that may be published, with its interval and its guarantee."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tacit import _validate
from tacit.errors import InvalidValue, TacitError
from tacit.guarantee import Guarantee
from tacit.tables.cells.axes import Bins
from tacit.tables.statistics.postprocess import integer, non_negative

if TYPE_CHECKING:
    from tacit.drawing.charts import Figure

__all__ = ["Answer", "Release"]

Array = NDArray[Any]
Interval = Callable[[float, bool], tuple[Array, Array]]


@dataclass(frozen=True)
class Answer:
    """The numbers that a statistic computed, their intervals, and how they are shown.

    ``values`` is an array (of no dimension for a scalar); ``interval(confidence, simultaneous)``
    gives two arrays like it; ``show`` turns such an array into the number or table that the user
    sees. ``cells`` says that the values are counts, ``whole`` that the true ones are whole numbers,
    ``margins`` that the last place along every axis holds sums, but for the first ``groups`` axes: each
    group has a table of its own. ``bins`` are those of the last axis of a histogram.
    """

    values: Array
    interval: Interval
    show: Callable[[Array], Any]
    cells: bool = False
    whole: bool = False
    margins: bool = False
    groups: int = 0
    bins: Bins | None = None


class Release:
    """An answer that may be published: ``value``, :meth:`interval`, ``guarantee``.

    A release that belongs to a batch has no value until the batch has run.
    """

    def __init__(self, label: str, guarantee: Guarantee, answer: Answer | None = None) -> None:
        self.label = label
        """The question, as it stands in the ledger."""
        self.guarantee = guarantee
        """What is promised about this answer; other releases on the same data add to it."""
        self.bounds: dict[str, tuple[float, float]] | None = None
        """The bounds that were bought for this answer with bounds="dp", by column."""
        self._answer = answer

    def filled(self) -> Answer:
        """The numbers as the statistic made them; refused before the batch has run."""
        if self._answer is None:
            raise TacitError(
                f"{self.label} has not been released yet.", "Its value is there when the batch has ended."
            )
        return self._answer

    @property
    def value(self) -> Any:
        """The noisy answer: a number, a date, or a pandas object where it is a table."""
        answer = self.filled()
        return answer.show(answer.values)

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> tuple[Any, Any]:
        """Where the true answer of these data lies, at least this probably: (low, high), like the value.

        It accounts for the noise, not for sampling: the truth meant is what the same statistic on the
        bounded data would be without noise, not a population's parameter. That holds for every data set,
        few rows and equal ones included; where there is no such statistic, as of the mean of no rows, the
        interval says nothing. Values are those of the bounded rows, a sum's rounded to 2^−26 of the larger
        bound, the shares of a person with many rows to 2^−26 of a row. Quantiles are covered by every usual
        convention, and the counts of keys given that the keys are shown.

        Each number of a table has its own interval; ``simultaneous`` makes all of them hold at once.
        """
        answer = self.filled()
        level = _validate.open_probability("confidence", confidence)
        low, high = answer.interval(level, simultaneous)
        return answer.show(low), answer.show(high)

    def non_negative(self) -> Release:
        """The same answer without negative numbers; a table of counts keeps its total.

        Post-processing: the guarantee is untouched. A table, of each group if it has groups, becomes the
        nearest one without negative cells and with the same total, which is no farther from the truth.
        """
        return self._processed(non_negative)

    def integer(self) -> Release:
        """The same answer in whole numbers. Post-processing: the guarantee is untouched."""
        return self._processed(integer)

    def _processed(self, step: Callable[[Answer], Answer]) -> Release:
        return Release(self.label, self.guarantee, step(self.filled()))

    def to_frame(self, confidence: float = 0.95) -> pd.DataFrame:
        """One line per number, with its interval: columns ``value``, ``low``, ``high``.

        Bins are called as people write them, "25–34"; the index of ``value`` has their edges.
        """
        low, high = self.interval(confidence)
        frame = pd.DataFrame({"value": _long(self.value), "low": _long(low), "high": _long(high)})
        return self._called(frame)

    def _called(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The frame with bins called as people write them."""
        bins = self.filled().bins
        if bins is None:
            return frame
        names = list(frame.index.names)
        groups = [list(frame.index.get_level_values(level)) for level in range(len(names) - 1)]
        texts = list(bins.texts()) * (len(frame) // bins.size)
        frame.index = (
            pd.MultiIndex.from_arrays([*groups, texts], names=names)
            if groups
            else pd.Index(texts, name=names[0])
        )
        return frame

    def plot(self, path: str | os.PathLike[str] | None = None, *, confidence: float = 0.95) -> Figure:
        """The answer as a matplotlib figure, with its intervals and its guarantee in one sentence.

        Counts are bars, tables of two columns heatmaps, other numbers points; groups are panels. Written to
        ``path`` if that is given: .png, .svg or .pdf. Post-processing: drawing costs nothing.
        """
        from tacit.drawing import charts, files
        from tacit.tables.pictures import chart_of

        level = _validate.open_probability("confidence", confidence)
        figure = charts.figure_of([chart_of(self, level)])
        if path is not None:
            files.save(figure, Path(path))
        return figure

    def __str__(self) -> str:
        if self._answer is None:
            return f"{self.label}: not released yet"
        try:
            shown = self.to_frame()
        except InvalidValue:
            shown = self._called(pd.DataFrame({"value": _long(self.value)}))
        if shown.empty:
            return f"{self.label}: nothing passed the threshold\n{self.guarantee}"
        if len(shown) > 1 or "low" not in shown:
            table = shown.to_string(float_format=lambda number: f"{number:.6g}")
            return f"{self.label}\n{table}\n{self.guarantee}"
        value, low, high = (
            f"{number:.6g}" if isinstance(number, float) else str(number) for number in shown.iloc[0]
        )
        return f"{self.label}: {value} (95 %: {low} to {high})\n{self.guarantee}"

    def __repr__(self) -> str:
        return f"Release({self.label!r}{'' if self._answer else ', not released yet'})"


def _long(value: Any) -> pd.Series:
    """Any value as a series with one entry per number."""
    if isinstance(value, pd.DataFrame):
        return value.stack()
    if isinstance(value, pd.Series):
        return value
    if isinstance(value, np.ndarray):
        return pd.Series(value)
    return pd.Series(
        list(value) if isinstance(value, tuple) else [value],
        dtype=None if isinstance(value, int | float | tuple) else object,
    )
