"""What a ledger says, as plain data: for JSON, and for whoever adds it up by other means."""

from __future__ import annotations

import json
from typing import Any

from tacit.ledger import Ledger, Line

__all__ = ["statement"]


def statement(ledger: Ledger) -> dict[str, Any]:
    """One dataset of a ledger: budget, rule, who is protected, every charge, running totals, what remains.

    ``spent``, ``remaining`` and the charges are those of :meth:`tacit.Ledger.spent`,
    :meth:`tacit.Ledger.remaining`, :meth:`tacit.Ledger.remaining_delta` and :meth:`tacit.Ledger.history`.
    """
    spent = ledger.spent()
    return {
        "dataset": ledger.dataset,
        "budget": {"epsilon": ledger.budget.epsilon, "delta": ledger.budget.delta},
        "filter": ledger.filter,
        "relation": str(ledger.relation),
        "unit": ledger.unit.to_dict(),
        "spent": {"epsilon": spent.epsilon, "delta": spent.delta},
        "remaining": {"epsilon": ledger.remaining(), "delta": ledger.remaining_delta()},
        "fixed_in_advance": {"epsilon": ledger.fixed_in_advance().epsilon, "delta": ledger.budget.delta},
        "noise": spent.noise,
        "assumptions": list(spent.assumptions),
        "labels": [
            {"label": part.label, "charges": part.charges, "share": part.share} for part in ledger.by_label()
        ],
        "charges": [_charge(line, ledger.filter) for line in ledger.history()],
    }


def _charge(line: Line, rule: str | None) -> dict[str, Any]:
    entry = line.entry
    counted = {"gaussian": "mu_squared", "renyi": "divergence"}.get(rule or "")
    return {
        "entry": entry.number,
        "time": entry.time,
        "label": entry.label,
        "scope": entry.scope,
        "partition": entry.partition,
        "event": json.loads(entry.event.to_json()),
        "epsilon": entry.cost.epsilon,
        "delta": entry.cost.delta if rule != "gaussian" else line.delta,
        **({} if counted is None else {counted: entry.cost.renyi}),
        "declared_delta": entry.delta,
        "spent": {"epsilon": line.epsilon, "delta": line.delta},
        "noise": entry.noise,
        "version": entry.version,
        "hash": entry.hash,
    }
