"""Whether a guarantee promises no more than its event gives."""

from __future__ import annotations

import math

from tacit.accounting.api import epsilon
from tacit.errors import InvalidValue, UnsupportedEvent
from tacit.guarantee import Guarantee

__all__ = ["check_claim"]

_ROUNDING = 1e-6
"""By how much, as a share, accountants of two versions or machines may differ."""


def check_claim(guarantee: Guarantee) -> None:
    """Refuse a guarantee whose ε is smaller than what its event costs at its δ, under its relation.

    A file that was edited, or written by other code, may state any ε beside any event. Whoever states a
    smaller event as well is not found out: that takes the ledger, or trust in the source.

    >>> from tacit import events
    >>> check_claim(Guarantee(1.0, 0.0, events.Pure(1.0)))
    >>> check_claim(Guarantee(0.1, 0.0, events.Pure(1.0)))
    Traceback (most recent call last):
    ...
    tacit.errors.InvalidValue: epsilon of the guarantee must be at least what its event costs, got 0.1. ...
    """
    if math.isinf(guarantee.epsilon):
        return
    try:
        cost = epsilon(guarantee.event, guarantee.delta, relation=guarantee.relation)
    except UnsupportedEvent:
        cost = math.inf
    if not cost <= guarantee.epsilon * (1 + _ROUNDING):
        raise InvalidValue(
            "epsilon of the guarantee", guarantee.epsilon, "at least what its event costs",
            f"By the event it is {cost:.6g} at δ = {guarantee.delta:g}. Ask whoever wrote it.",
        )  # fmt: skip
