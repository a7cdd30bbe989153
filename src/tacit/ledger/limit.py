"""The limit that an allowance sets to a charge, counted by the rule of the dataset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from tacit.accounting import filters
from tacit.errors import BudgetExceeded
from tacit.guarantee import ceiling, floor
from tacit.ledger.allowance import Allowance
from tacit.ledger.budget import Terms

__all__ = ["Limit", "overdrawn"]


@dataclass(frozen=True)
class Limit:
    """An allowance as a charge is held against it, counted by the rule of the dataset."""

    allowance: Allowance
    terms: Terms

    @cached_property
    def _filter(self) -> filters.BudgetFilter:
        budget, order = self.allowance.budget, self.terms.order
        return filters.BudgetFilter(budget.epsilon, budget.delta, self.terms.relation, order=order)

    def spent(self, total: filters.Cost, mode: str | None) -> float:
        """ε of the allowance that is spent, at its δ; infinite where its δ is overspent."""
        if mode == "gaussian" and self.allowance.budget.delta == 0:
            return 0.0 if total == filters.Cost() else float("inf")
        return self._filter.spent(total, mode)

    def allows(self, total_with: Callable[[filters.Cost], filters.Cost], quote: filters.Quote) -> bool:
        """Whether a charge at this price fits into the allowance."""
        return self.spent(total_with(quote.cost), quote.mode) <= self.allowance.budget.epsilon


def overdrawn(label: str, limit: Limit, total: filters.Cost, mode: str | None) -> BudgetExceeded:
    """The error for a charge that fits into the budget of the dataset, but not into the allowance."""
    budget = limit.allowance.budget
    spent = min(limit.spent(total, mode), budget.epsilon)
    left = max(0.0, budget.epsilon - spent)
    return BudgetExceeded(
        f"Charging {label!r} would exceed the allowance {limit.allowance.name!r} of {budget}, of which "
        f"ε = {float(ceiling(spent, 6)):.6g} is spent; remaining: ε = {float(floor(left, 6)):.6g}.",
        "Nothing was charged. Ask for less, or have the allowance raised.",
        label=label,
        budget=budget,
        spent=spent,
        would_be=None,
        remaining=left,
        allowance=limit.allowance.name,
    )
