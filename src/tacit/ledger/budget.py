"""What is promised about a dataset: a budget, a relation and a unit.

>>> Budget(epsilon=3.0, delta=1e-6)
Budget(epsilon=3.0, delta=1e-06, filter=None)
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from tacit import _validate
from tacit.relations import Relation, Unit

__all__ = ["FILTERS", "Budget", "Terms"]

FILTERS = ("renyi", "basic")
"""The filters that can enforce a budget; both stay valid when charges are chosen adaptively."""


@dataclass(frozen=True)
class Budget:
    """The most that may ever be spent on a dataset: (ε, δ) over all charges together.

    ``filter`` forces how charges are added up, ``"renyi"`` or ``"basic"``; left out, the first
    charge decides.
    """

    epsilon: float
    delta: float = 0.0
    filter: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.epsilon(self.epsilon))
        object.__setattr__(self, "delta", _validate.delta(self.delta))
        if self.filter is not None:
            _validate.choice("filter", self.filter, FILTERS)

    def __str__(self) -> str:
        forced = "" if self.filter is None else f" ({self.filter} filter)"
        return f"ε = {self.epsilon:.6g}, δ = {self.delta:.6g}{forced}"


@dataclass(frozen=True)
class Terms:
    """All that is fixed when a dataset enters a ledger; stored in the entry that opens it.

    ``order`` is the Rényi order at which its charges are counted, if they are: totals of
    different orders cannot be added, so it must outlive any change in how orders are chosen.
    """

    budget: Budget
    relation: Relation
    unit: Unit
    order: float | None = None

    def __str__(self) -> str:
        return f"{self.budget}, {self.relation} of one {self.unit}"

    def to_json(self) -> str:
        """One line of JSON, keys sorted."""
        told = asdict(self) | {"unit": self.unit.to_dict()}
        return json.dumps(told, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Terms:
        """The terms that ``text`` describes; ValueError, TypeError or KeyError if it does not."""
        data = json.loads(text)
        order = None if data["order"] is None else float(data["order"])
        return cls(Budget(**data["budget"]), Relation.of(data["relation"]), Unit(**data["unit"]), order)
