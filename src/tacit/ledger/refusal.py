"""The error for a charge that does not fit: what ran out, what is left, and what would still fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tacit.accounting.filters import ROUNDING, BudgetFilter
from tacit.errors import BudgetExceeded
from tacit.guarantee import ceiling, floor
from tacit.ledger.budget import Budget
from tacit.ledger.entries import LabelTotal

if TYPE_CHECKING:
    from tacit.ledger.posting import Refused

__all__ = ["exceeded"]

MOST_LABELS = 5


def exceeded(
    label: str,
    dataset: str,
    budget: Budget,
    rule: BudgetFilter,
    refused: Refused,
    shares: Sequence[LabelTotal],
    delta: float | None,
) -> BudgetExceeded:
    """The error for a refused charge; ``delta`` is what was declared for it."""
    left = max(0.0, budget.epsilon - refused.spent)
    left_delta = max(0.0, rule.delta_for_charges(refused.mode) - refused.total.delta)
    on = ", ".join(f"{part.label!r} {part.share:.0%}" for part in shares[:MOST_LABELS])
    on = f" (on {on}{', …' if len(shares) > MOST_LABELS else ''})" if on else ""
    if refused.mode in ("renyi", "gaussian"):
        reached, fits = _by_divergence(dataset, budget, rule, refused, left)
        spent, remaining = f"ε = {_up(refused.spent)}{on}", f"ε = {_down(left)}"
    else:
        reached, fits = _added_up(dataset, budget, refused, left, left_delta, delta)
        spent = f"ε = {_up(refused.spent)}, δ = {_up(refused.total.delta)}{on}"
        remaining = f"ε = {_down(left)}, δ = {_down(left_delta)}"
    return BudgetExceeded(
        f"Charging {label!r} {reached} of {budget}. Spent so far: {spent}; remaining: {remaining}.",
        f"Nothing was charged. {fits}",
        label=label,
        budget=budget,
        spent=refused.spent,
        would_be=refused.would_be,
        remaining=left,
        remaining_delta=left_delta,
    )


def _added_up(
    dataset: str, budget: Budget, refused: Refused, left: float, left_delta: float, delta: float | None
) -> tuple[str, str]:
    """How the sums of ε and δ would exceed the budget, and what would still fit."""
    total, price = refused.grown, refused.price
    still = f"At most ε = {_down(left)} with δ = {_down(left_delta)} still fits."
    if math.isinf(price.epsilon):
        if left_delta == 0 or delta is None:
            reached = f"needs a δ, and {dataset!r} has none left in its budget"
        else:
            reached = f"has no finite ε at the δ = {delta:.6g} declared for it; {dataset!r} has a budget"
            still = f"Declare a larger δ for it. {still}"
        return reached, f"{still} Noise that needs no δ (Laplace) may fit."
    over = [
        f"{name} = {_up(value)}"
        for name, value, most in (("ε", total.epsilon, budget.epsilon), ("δ", total.delta, budget.delta))
        if value > most * (1 + ROUNDING)
    ]
    out = " and ".join(each[0] for each in over)
    takes = f"this charge takes ε = {_up(price.epsilon)}, δ = {_up(price.delta)}"
    advice = " Ask for less: more noise, fewer steps, fewer questions."
    if "δ" in out:
        advice = " Declare a smaller δ, or use noise that needs none (Laplace)."
    return (
        f"would bring {dataset!r} to {', '.join(over)}, over its budget",
        f"{out} ran out: {takes}. {still}{advice}",
    )


def _by_divergence(
    dataset: str, budget: Budget, rule: BudgetFilter, refused: Refused, left: float
) -> tuple[str, str]:
    """How the total would exceed the budget, and what would still fit."""
    fits = f"ε ran out: at most ε = {_down(left)} in all is left for further charges."
    if refused.mode == "gaussian":
        room = rule.largest_squared - refused.total.renyi
        if room > rule.largest_squared * 1e-9:
            noise = _up(1 / math.sqrt(room))
            fits += f" Gaussian noise still fits with a noise multiplier of {noise} or more."
    if refused.price.delta > rule.delta_for_charges(refused.mode):
        return f"takes more δ than the rule of {dataset!r} leaves to charges, of its budget", (
            f"Of the budget's δ, {_down(rule.delta_for_charges(refused.mode))} is for charges, the rest for "
            "the total. Declare a smaller δ."
        )
    return (
        f"would bring {dataset!r} to ε = {_up(refused.would_be)} at δ = {budget.delta:.6g}, over its budget",
        f"{fits} Ask for less: more noise, fewer steps, fewer questions.",
    )


def _up(value: float) -> str:
    return f"{float(ceiling(value, 6)):.6g}" if math.isfinite(value) else "∞"


def _down(value: float) -> str:
    return f"{float(floor(value, 6)):.6g}"
