"""What can be said of a fitted model, and of what was spent on it, without any data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tacit.data.preprocessor import Preprocessor
from tacit.errors import TacitError
from tacit.evaluation import Evaluation, evaluations_of
from tacit.guarantee import Guarantee
from tacit.ledger import Ledger
from tacit.models.description import Description
from tacit.models.fitted import description_of, guarantee_of, last_step
from tacit.report.membership import Tradeoff, in_words

__all__ = ["Facts", "Spending"]

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
    model: Any
    """The estimator, without the pipeline around it, or the network."""
    description: Description
    preprocessor: Preprocessor | None
    guarantee: Guarantee
    evaluations: tuple[Evaluation, ...] = field(default=())

    @classmethod
    def of(cls, model: Any, name: str = "model") -> Facts:
        """The facts about whatever was fitted: an estimator, a pipeline that ends in one, or a network."""
        first = model.steps[0][1] if hasattr(model, "steps") else None
        return cls(
            name,
            last_step(model),
            description_of(model),
            first if isinstance(first, Preprocessor) else None,
            guarantee_of(model),
            evaluations_of(model),
        )

    @property
    def private(self) -> bool:
        """Whether anything is promised at all."""
        return math.isfinite(self.guarantee.epsilon)

    @property
    def is_network(self) -> bool:
        """Whether the model consists of the tensors of a network."""
        return bool(self.description.tensors)

    @cached_property
    def attack(self) -> Tradeoff:
        """What the best membership attack can do."""
        return Tradeoff.of(self.guarantee)

    @cached_property
    def words(self) -> list[str]:
        """The guarantee in plain words."""
        return in_words(self.guarantee, self.attack)

    @cached_property
    def planned(self) -> tuple[str, ...]:
        """What the plan of the fit said, from public facts alone; nothing where it would differ now."""
        if not hasattr(self.model, "plan") or not self.private:
            return ()
        features = getattr(self.model, "n_features_in_", 1)
        try:
            plan = self.model.plan(features if self.preprocessor is None else self.preprocessor.features)
        except TacitError:
            return ()
        return tuple(plan.notes) if plan.event == self.guarantee.event else ()
