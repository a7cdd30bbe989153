"""What is promised about a dataset: a budget, the rule that adds up, a relation and a unit.

>>> Budget(epsilon=3.0, delta=1e-6)
Budget(epsilon=3.0, delta=1e-06)
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from tacit import _validate
from tacit.relations import Relation, Unit, relation_for

__all__ = ["BETTER", "FILTERS", "RULES", "Budget", "Terms"]

RULES = {
    "basic": "the ε's and δ's of the charges add up",
    "renyi": "the Rényi divergences of the charges add up",
    "gaussian": "the μ² of the charges add up (Gaussian privacy)",
}
"""The rules by which charges can be counted; all stay valid when charges are chosen adaptively."""

BETTER = {
    "basic": "for few releases, and can be checked by hand",
    "renyi": "for dozens of small releases of any kind",
    "gaussian": "for releases with Gaussian noise and no sampling",
}
"""What each rule is for."""

FILTERS = tuple(RULES)


@dataclass(frozen=True)
class Budget:
    """The most that may ever be spent on a dataset: (ε, δ) over all charges together."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.epsilon(self.epsilon))
        object.__setattr__(self, "delta", _validate.delta(self.delta))

    def __str__(self) -> str:
        return f"ε = {self.epsilon:.6g}, δ = {self.delta:.6g}"


@dataclass(frozen=True)
class Terms:
    """All that is fixed when a dataset enters a ledger; stored in the entry that opens it.

    ``order`` is the Rényi order at which its charges are counted, if they are: totals of
    different orders cannot be added, so it must outlive any change in how orders are chosen.
    ``filter`` is the rule by which charges are counted, one of :data:`RULES`; None in ledgers of earlier
    versions, where the first charge decided.
    """

    budget: Budget
    relation: Relation
    unit: Unit
    order: float | None = None
    filter: str | None = None

    def __post_init__(self) -> None:
        if self.filter is not None:
            _validate.choice("filter", self.filter, FILTERS)
        relation_for(self.unit, self.relation)

    def __str__(self) -> str:
        rule = "" if self.filter is None else f", filter={self.filter!r}"
        return f"{self.budget}, {self.relation} of one {self.unit}{rule}"

    def to_json(self) -> str:
        """One line of JSON, keys sorted; the rule is written with the budget, as it always was."""
        data: dict[str, Any] = asdict(self) | {"unit": self.unit.to_dict()}
        data["budget"]["filter"] = data.pop("filter")
        return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Terms:
        """The terms that ``text`` describes; ValueError, TypeError or KeyError if it does not."""
        data = json.loads(text)
        order = None if data["order"] is None else float(data["order"])
        rule = data["budget"].pop("filter")
        return cls(Budget(**data["budget"]), Relation.of(data["relation"]), Unit(**data["unit"]), order, rule)
