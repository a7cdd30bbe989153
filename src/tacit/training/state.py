"""RunState: a run as it stands between two steps, which checkpoints keep and processes agree on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tacit.errors import InvalidValue
from tacit.training import past, saving
from tacit.training.account import Account
from tacit.training.averaging import Average
from tacit.training.parallel.distributed import ProcessGroup
from tacit.training.plan import Plan
from tacit.training.schedules import Schedule
from tacit.training.step import PrivateStep

_ADDED_LATER = {"noise": "independent", "bands": None, "accounting": "worst-case", "participations": None}
"""Facts of a plan that older checkpoints do not have, as they were then."""


@dataclass
class RunState:
    """Everything that a run consists of, and how many steps it has taken.

    What :meth:`to_mapping` gives is public, or post-processing of the noisy steps: parameters, averages,
    optimiser and schedule. Losses, gradient norms and the length of the data set are not in it.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Schedule | None
    average: Average | None
    account: Account
    core: PrivateStep
    group: ProcessGroup
    taken: int = 0

    @property
    def plan(self) -> Plan:
        """What the run does, as it is charged."""
        return self.account.plan

    def to_mapping(self, reserved: int) -> dict[str, Any]:
        """The run before its next step, with the steps before ``reserved`` claimed; tensors as they are."""
        return {
            "run": self.account.run,
            "ledger": self.account.ledger is not None,
            "paid": self.account.paid,
            "noise": self.account.noise,
            "step": self.taken,
            "reserved": reserved,
            "clip_norm": self.core.clip_norm,
            "plan": self._plan_facts(),
            "before": past.packed(self.account.before),
            "late": list(self.account.late),
            "metrics": past.packed(self.account.metrics),
            "public_metric": self.account.public_metric,
            "schedule": None if self.schedule is None else self.schedule.kind,
            "state": {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "schedule": None if self.schedule is None else self.schedule.state_dict(),
                "average": None if self.average is None else self.average.state_dict(),
            },
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Put the run back as :meth:`to_mapping` kept it, behind the steps that may have been taken since.

        Raises :class:`tacit.errors.InvalidValue` where the trainer was made otherwise than the run was begun,
        and :class:`tacit.errors.LedgerError` where the ledger has no charge for it, or others went on with
        it.
        """
        self._check_like(kept)
        if kept["noise"] == "seeded":
            self.account.noise = "seeded"
        start = self.account.reopen(kept["run"], int(kept["paid"]), int(kept["reserved"]))
        self.account.inherit(past.unpacked(kept["before"]))
        self.account.late = tuple(kept.get("late", ()))
        self.account.metrics = past.unpacked(kept.get("metrics", "[]"))
        self.account.public_metric = bool(kept.get("public_metric", False))
        state: dict[str, Any] = dict(kept["state"])
        self.group.spread(state, self.model, self.optimizer)
        saving.put(self.model, state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.core.clip_norm = kept["clip_norm"]
        self.taken = start

    def _check_like(self, kept: Mapping[str, Any]) -> None:
        if _as_written_now(kept["plan"]) != self._plan_facts():
            raise InvalidValue(
                "plan", str(self.plan), "the plan the run was begun with",
                "A run goes on as it was planned; start another for another plan.",
            )  # fmt: skip
        for name, mine in (("average", self.average), ("schedule", self.schedule)):
            if (mine is None) != (kept["state"][name] is None):
                given = "left out" if kept["state"][name] is None else "given"
                raise InvalidValue(name, "another", f"{given}, as when the run was begun")
        kind = kept.get("schedule")
        if self.schedule is not None and kind is not None and kind != self.schedule.kind:
            raise InvalidValue("schedule", self.schedule.kind, f"{kind}, as when the run was begun")
        ledger = self.account.ledger
        if kept["ledger"] and ledger is None:
            raise InvalidValue(
                "ledger", None, "the ledger the run was charged to", "Pass ledger= to Trainer."
            )
        if not kept["ledger"] and ledger is not None:
            raise InvalidValue(
                "ledger", ledger.location, "left out, as the run was begun without one",
                "Charge what was released without a ledger to it first, and start another run.",
            )  # fmt: skip

    def _plan_facts(self) -> dict[str, Any]:
        names = [each.name for each in dataclasses.fields(self.plan) if each.name != "epochs"]
        facts = {name: getattr(self.plan, name) for name in names}
        made: dict[str, Any] = json.loads(json.dumps(facts, default=repr))
        return made

    def agreed_facts(self, rows: int, *, resume: bool) -> dict[str, Any]:
        """What has to be the same in all processes that train one model, by the name a refusal gives it."""
        return {
            "plan": self.plan,
            "len(dataset)": rows,
            "ledger is None": self.account.ledger is None,
            "random_state is None": not self.core.source.seeded,
            "checkpoint is None": self.account.place is None,
            "resume": resume,
            "views": self.core.views,
            "physical_batch is None": self.core.physical_batch is None,
            "average is None": self.average is None,
            "model.parameters()": [
                (name, tuple(each.shape), each.dtype, each.requires_grad)
                for name, each in self.model.named_parameters()
            ],
        }


def _as_written_now(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a plan in a checkpoint, with those that did not exist when it was written."""
    facts = {**_ADDED_LATER, **plan}
    if "started" in facts:
        then = {"noise": facts["noise"], "bands": facts["bands"], "fading": "none"}
        facts["started"] = {**then, **facts["started"]}
    return facts
