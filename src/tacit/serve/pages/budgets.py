"""What pages say of budgets: a dataset with its grants, and what was spent over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.relations import Unit
from tacit.report.wording import called, protected
from tacit.serve.actions import auditing, holdings
from tacit.serve.pages.visits import Visit
from tacit.serve.planning import EVALUATION, NETWORK

__all__ = ["asked_epsilon", "held", "in_force", "offered", "spending"]

FORMS = {"ask": "Ask", "fit": "Fit", "train": "Train", "synthesize": "Synthesize", "evaluate": "Measure"}
"""The forms of a dataset, by the last part of their addresses, each with the name of its tab."""


def held(visit: Visit, name: str) -> dict[str, Any]:
    """A dataset as this visitor may see it, with the grants and what its unit is called."""
    about = holdings.see_dataset(visit.service, visit.caller, name)
    grants = about.get("grants")
    if grants is None:
        grants = holdings.list_grants(visit.service, visit.caller, name)
    unit = Unit(**about["unit"])
    return {
        **about,
        "grants": [{**grant, "state": _state(grant)} for grant in grants],
        "protects": protected(unit),
        "whom": called(unit),
    }


def asked_epsilon(asked: Mapping[str, Any]) -> float:
    """ε that a request asks for in all: a fit with a test is charged for both."""
    return float(asked["epsilon"]) + float(asked.get("test_epsilon") or 0.0)


def in_force(about: dict[str, Any]) -> list[dict[str, Any]]:
    """The grants that can be used, the newest first."""
    return [grant for grant in reversed(about["grants"]) if grant["state"] == "in force"]


def offered(grants: list[dict[str, Any]]) -> dict[str, str]:
    """The forms that grants in force allow to be sent: questions always, a job where a grant lists it."""
    from tacit.estimators.registry import ESTIMATORS, SYNTHESIZERS

    listed = {model for grant in grants if grant["state"] == "in force" for model in grant["models"]}
    needed = {"fit": ESTIMATORS, "train": (NETWORK,), "synthesize": SYNTHESIZERS, "evaluate": (EVALUATION,)}
    return {what: name for what, name in FORMS.items() if what == "ask" or listed & set(needed[what])}


def _state(grant: dict[str, Any]) -> str:
    if grant["revoked"] is not None:
        return "revoked"
    return "in force" if grant["in_force"] else "expired"


def spending(visit: Visit, about: dict[str, Any], requests: list[dict[str, Any]]) -> dict[str, Any] | None:
    """What was spent over time, of the whole budget or, for an analyst, of the own grants; None for nothing.

    An analyst's is the sum over the own requests that were charged and whose end may be told.
    """
    if visit.caller.own is None:
        entries = auditing.read_ledger(visit.service, visit.caller, about["name"])["entries"]
        points = [(one["time"], one["spent"]["epsilon"]) for one in entries]
        budget, whose = about["budget"]["epsilon"], f"ε spent on {about['name']} over time"
    else:
        total, points = 0.0, []
        for one in reversed(requests):
            if one["dataset"] == about["name"] and one["entry"] is not None:
                total += asked_epsilon(one["asked"])
                points.append((one["created"], total))
        budget = sum(grant["budget"]["epsilon"] for grant in about["grants"])
        whose = f"ε charged for your requests to {about['name']} over time"
    if not points:
        return None
    return {"points": points, "budget": budget, "about": whose, "now": visit.service.now()}
