"""What can be said of a fitted model, and of what was spent on it, without any data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tacit.data.preprocessor import Preprocessor
from tacit.errors import TacitError
from tacit.evaluation import Evaluation, evaluations_of
from tacit.guarantee import Guarantee
from tacit.ledger import Budget, Entry, Ledger
from tacit.models.description import Description
from tacit.models.fitted import description_of, guarantee_of, last_step
from tacit.relations import Unit
from tacit.report.membership import Tradeoff, in_words
from tacit.schema import About, Schema

__all__ = ["Facts", "Spending"]

@dataclass(frozen=True)
class Spending:
    """What a ledger says was charged, and what is left."""

    location: str
    dataset: str
    budget: Budget
    unit: Unit
    spent: float
    remaining: float
    shares: tuple[tuple[str, int, float], ...]
    """Label, number of charges and share of the cost."""
    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, ledger: Ledger) -> Spending:
        """Read a ledger."""
        return cls(
            ledger.location,
            ledger.dataset,
            ledger.budget,
            ledger.unit,
            ledger.spent().epsilon,
            ledger.remaining(),
            tuple((part.label, part.charges, part.share) for part in ledger.by_label()),
            tuple(ledger.entries()),
        )

    def entry_of(self, guarantee: Guarantee) -> Entry | None:
        """The last charge for just this event, if there is one."""
        found = (each for each in reversed(self.entries) if each.event == guarantee.event)
        return next(found, None)


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
    about: About = field(default_factory=About)

    @classmethod
    def of(
        cls,
        model: Any,
        name: str = "model",
        *,
        unit_name: str | None = None,
        data: str | None = None,
        responsible: str | None = None,
    ) -> Facts:
        """The facts about whatever was fitted: an estimator, a pipeline that ends in one, or a network.

        ``unit_name`` is what people call one unit, ``data`` names the data in words and ``responsible`` who
        answers for them; left out, each is what the schema declares, if the model was made by one.
        """
        first = model.steps[0][1] if hasattr(model, "steps") else None
        maker = first if isinstance(first, Preprocessor) else None
        schema = None if maker is None else Schema.of(maker.schema)
        told = About() if schema is None else schema.about
        description, promised = description_of(model), guarantee_of(model)
        called = unit_name or promised.unit.name or (None if schema is None else schema.unit.name)
        return cls(
            name,
            last_step(model),
            description,
            maker,
            replace(promised, unit=replace(promised.unit, name=called)),
            evaluations_of(model),
            About(data or told.data, responsible or told.responsible),
        )

    @property
    def private(self) -> bool:
        """Whether anything is promised at all."""
        return math.isfinite(self.guarantee.epsilon)

    @property
    def is_linear(self) -> bool:
        """Whether a prediction is a sum over features, each times its coefficient."""
        return hasattr(self.model, "coef_")

    @property
    def has_no_target(self) -> bool:
        """Whether the model describes rows, by clusters, components or pairs of columns, not a target."""
        return self.description.profiles is not None or self.description.dependences is not None

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
