"""Evaluation: figures with their intervals and their guarantee, and the dictionary that files keep of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tacit.errors import InvalidValue
from tacit.guarantee import Guarantee, above

__all__ = ["Evaluation", "evaluations_of"]


@dataclass(frozen=True)
class Evaluation:
    """How good a model is, with intervals; made by :func:`evaluate`.

    ``figures`` and ``intervals`` are by name: ``"accuracy"``, ``"auroc"``, ``"sex=Male: accuracy"``, ``"sex:
    accuracy gap"``. A figure is None where it is not determined: the noisy counts leave nothing to divide by,
    or its interval has no end. An interval covers
    what the figure would be on the population that the rows are a sample of, each with probability
    ``confidence``; it includes the privacy noise. ``guarantee`` is None for public rows.
    """

    kind: str
    figures: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float, float]]
    guarantee: Guarantee | None = None
    confidence: float = 0.95
    label: str = "evaluation"
    rows: float | None = None
    reliability: tuple[Mapping[str, float | None], ...] = ()
    classes: tuple[Any, ...] = ()
    confusion: tuple[tuple[float, ...], ...] | None = None
    groups: Mapping[str, Mapping[str, Mapping[str, float | None]]] = field(default_factory=dict)

    @property
    def accuracy(self) -> float | None:
        """The share of rows whose class is predicted."""
        return self.figures.get("accuracy")

    @property
    def auroc(self) -> float | None:
        """The probability that a row of the second class scores higher than one of the first."""
        return self.figures.get("auroc")

    @property
    def calibration(self) -> dict[str, Any] | None:
        """The expected calibration error and the table of predicted and observed shares it comes from."""
        if "calibration error" not in self.figures:
            return None
        return {"error": self.figures["calibration error"], "table": list(self.reliability)}

    def between(self, name: str) -> str:
        """The interval of a figure in words: "0.81 to 0.9", or that it is not determined."""
        low, high = self.intervals[name]
        if math.isinf(low) or math.isinf(high) or self.figures[name] is None:
            rows = "by these rows" if self.guarantee is None else f"at ε = {above(self.guarantee.epsilon, 6)}"
            return f"not determined {rows}"
        return f"{low:.4g} to {high:.4g}"

    def to_dict(self) -> dict[str, Any]:
        """The evaluation in JSON's terms; an infinite end of an interval is None."""
        guarantee = None if self.guarantee is None else json.loads(self.guarantee.to_json())
        return {
            "kind": self.kind,
            "figures": dict(self.figures),
            "intervals": {
                name: [end if math.isfinite(end) else None for end in ends]
                for name, ends in self.intervals.items()
            },
            "guarantee": guarantee,
            "confidence": self.confidence,
            "label": self.label,
            "rows": self.rows,
            "reliability": [dict(line) for line in self.reliability],
            "classes": list(self.classes),
            "confusion": None if self.confusion is None else [list(line) for line in self.confusion],
            "groups": {name: {k: dict(v) for k, v in each.items()} for name, each in self.groups.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Evaluation:
        """The evaluation that :meth:`to_dict` described."""
        try:
            rest = dict(data)
            guarantee, confusion = rest.pop("guarantee"), rest.pop("confusion")
            ends = {
                name: (-math.inf if low is None else float(low), math.inf if high is None else float(high))
                for name, (low, high) in rest.pop("intervals").items()
            }
            return cls(
                intervals=ends,
                guarantee=None if guarantee is None else Guarantee.from_json(json.dumps(guarantee)),
                confusion=None if confusion is None else tuple(tuple(line) for line in confusion),
                classes=tuple(rest.pop("classes")),
                reliability=tuple(rest.pop("reliability")),
                **rest,
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidValue("evaluation", type(data).__name__, "as to_dict() makes it") from None

    def __str__(self) -> str:
        source = "public rows, exact" if self.guarantee is None else "private rows"
        lines = [f"{self.label}: {self.kind}, on {source}; {self.confidence:.0%} intervals"]
        wide = max(map(len, self.figures), default=0)
        for name, value in self.figures.items():
            shown = "unknown" if value is None else f"{value:.4f}"
            lines.append(f"  {name:<{wide}}  {shown}  ({self.between(name)})")
        if self.guarantee is not None and "r2" in self.figures and self.figures["r2"] is None:
            lines.append(
                "  r2 compares the errors with the spread of the targets, which the noise hides: tighter "
                "target_bounds, more rows or a larger ε would show it."
            )
        return "\n".join([*lines, *([] if self.guarantee is None else [str(self.guarantee)])])


def evaluations_of(model: Any) -> tuple[Evaluation, ...]:
    """The evaluations that were saved beside a model, from the file it was loaded from; none without any.

    Model files keep the dictionaries of :meth:`Evaluation.to_dict`, and :func:`tacit.load` checks that none
    states less than it cost.
    """
    stored = getattr(model, "evaluations_", ())
    return tuple(each if isinstance(each, Evaluation) else Evaluation.from_dict(each) for each in stored)
