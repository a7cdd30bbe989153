"""What can be said of a fitted model, and of what was spent on it, without any data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from tacit.data.preprocessor import Preprocessor
from tacit.errors import InvalidValue
from tacit.evaluation.evaluate import Evaluation
from tacit.guarantee import Guarantee
from tacit.ledger import Ledger
from tacit.report.membership import Tradeoff, in_words

__all__ = ["Coefficient", "Facts", "Spending"]

CONFIDENCE = 0.95
"""Of the intervals of coefficients."""
TITLES = {
    "LogisticRegression": "logistic regression",
    "LinearSVC": "linear support vector classifier",
    "LinearRegression": "linear regression",
    "Ridge": "ridge regression",
}


@dataclass(frozen=True)
class Coefficient:
    """One coefficient, with the interval that includes the privacy noise, if the model has one."""

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
class Spending:
    """What a ledger says was charged, and what is left."""

    location: str
    dataset: str
    budget: str
    spent: float
    remaining: float
    charges: int
    shares: tuple[tuple[str, int, float], ...]
    """Label, number of charges and share of the cost."""

    @classmethod
    def of(cls, ledger: Ledger) -> Spending:
        """Read a ledger."""
        return cls(
            ledger.location,
            ledger.dataset,
            str(ledger.budget),
            ledger.spent().epsilon,
            ledger.remaining(),
            len(ledger.entries()),
            tuple((part.label, part.charges, part.share) for part in ledger.by_label()),
        )


@dataclass(frozen=True)
class Facts:
    """What can be said of a fitted model without any data."""

    name: str
    estimator: Any
    preprocessor: Preprocessor | None
    guarantee: Guarantee
    evaluations: tuple[Evaluation, ...] = field(default=())

    @classmethod
    def of(cls, model: Any, name: str = "model") -> Facts:
        """The facts about a fitted estimator, a pipeline of a preprocessor and one, or a trained network."""
        if hasattr(model, "made_of") and isinstance(model.guarantee_, Guarantee):
            tests = tuple(Evaluation.from_dict(one) for one in model.evaluations)
            return cls(name, model, None, model.guarantee_, tests)
        steps = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
        estimator = steps[-1]
        guarantee = getattr(estimator, "guarantee_", None)
        if not isinstance(guarantee, Guarantee) or not hasattr(estimator, "coef_"):
            raise InvalidValue("model", type(estimator).__name__, "a fitted linear model with its guarantee_")
        first = steps[0] if isinstance(steps[0], Preprocessor) else None
        return cls(name, estimator, first, guarantee, tuple(getattr(model, "evaluations_", ())))

    @property
    def private(self) -> bool:
        """Whether anything is promised at all."""
        return math.isfinite(self.guarantee.epsilon)

    @property
    def network(self) -> Any:
        """The model, if it is a network, else None."""
        return self.estimator if hasattr(self.estimator, "made_of") else None

    @property
    def title(self) -> str:
        """What the model is, in a few words."""
        if self.network is not None:
            return str(self.network.title)
        kind = TITLES.get(type(self.estimator).__name__, type(self.estimator).__name__)
        return kind if self.preprocessor is None else f"{kind} of {self.preprocessor.target}"

    @cached_property
    def attack(self) -> Tradeoff:
        """What the best membership attack can do."""
        return Tradeoff.of(self.guarantee)

    @cached_property
    def words(self) -> list[str]:
        """The guarantee in plain words."""
        return in_words(self.guarantee, self.attack)

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes there may be; none for a regression."""
        return tuple(getattr(self.estimator, "classes_", ()))

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features."""
        if self.preprocessor is not None:
            return self.preprocessor.features.names
        names = getattr(self.estimator, "feature_names_in_", None)
        width = np.atleast_2d(self.estimator.coef_).shape[1]
        return (
            tuple(f"feature {place}" for place in range(width)) if names is None else tuple(map(str, names))
        )

    def coefficients(self) -> list[Coefficient]:
        """Every coefficient, the largest first."""
        values = np.atleast_2d(self.estimator.coef_)
        low, high = self._intervals(values)
        outputs = [str(label) for label in self.classes] if len(values) > 1 else [""]
        found = [
            Coefficient(
                output,
                feature,
                float(values[i, j]),
                None if low is None else float(low[i, j]),
                None if high is None else float(high[i, j]),
            )
            for i, output in enumerate(outputs)
            for j, feature in enumerate(self.features)
        ]
        return sorted(found, key=lambda one: -abs(one.value))

    def _intervals(self, values: Any) -> tuple[Any, Any]:
        """Values less and plus so many standard errors, which include the privacy noise."""
        errors = getattr(self.estimator, "coef_error_", None)
        if errors is None:
            return None, None
        width = ndtri((1 + CONFIDENCE) / 2) * np.asarray(errors, dtype=float).reshape(values.shape)
        return values - width, values + width
