"""Silos: a client that is an institution protects its own rows, and its replies say by which guarantee."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from tacit.errors import TacitError
from tacit.guarantee import Guarantee
from tacit.relations import Relation

__all__ = ["GUARANTEE", "promised", "shortfall"]

GUARANTEE = "tacit.guarantee"
"""The name of the record in which a train function states the guarantee of its silo's training."""


def promised(guarantee: Guarantee) -> dict[str, ConfigRecord]:
    """The record that a silo's train function adds to its reply, beside the model that its Trainer made.

    ``RecordDict({"arrays": ArrayRecord(…), **promised(silo.guarantee)})``. The record stays on the client:
    the mod reads it and sends the update alone.

    >>> from tacit import events
    >>> list(promised(Guarantee(1.0, 1e-5, events.Approximate(1.0, 1e-5))))
    ['tacit.guarantee']
    """
    return {GUARANTEE: ConfigRecord({"guarantee": guarantee.to_json()})}


def shortfall(records: RecordDict, plan: Mapping[str, Any]) -> str | None:
    """Why a reply of a silo may not leave it, from public facts alone; None where it may."""
    try:
        stated: Mapping[str, Any] = records.config_records[GUARANTEE]
        found = Guarantee.from_json(stated["guarantee"])
    except (KeyError, TypeError, ValueError, TacitError):
        return "A silo's train function states its guarantee: add **promised(silo.guarantee) to its reply."
    if found.unit.part is not None or found.relation is not Relation.of(plan["relation"]):
        return "The guarantee of the silo protects labels alone, or is of another relation than the plan."
    if found.epsilon > plan["epsilon"] or found.delta > plan["delta"] or found.noise == "seeded":
        return "The silo's guarantee is weaker than the plan's: train by FederatedPlan.silo, without a seed."
    return None
