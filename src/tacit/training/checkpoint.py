"""Checkpoints: a run written down so that it can go on, never having taken more steps than it paid for.

A block of steps is claimed (:class:`tacit.training.account.Account`), then a checkpoint is written that says
which steps the block reserves, then they are taken. A run that breaks off in the middle of a block goes on
*after* it, with the weights from before: steps that may have been taken, and seen, count as taken. A
run that was stopped in order loses none.

What is in the file is post-processing of the noisy steps: parameters, averages, optimiser and schedule.
Losses, norms and the length of the data set are not.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from tacit.errors import InvalidValue, ModelUnreadable
from tacit.training import past, saving

if TYPE_CHECKING:
    from tacit.training.trainer import Trainer


class Checkpoint:
    """The file of a run, rewritten whole every ``every`` steps."""

    def __init__(self, path: saving.PATH, every: int) -> None:
        self.path, self.every = Path(path), every
        self._reserved = 0

    def due(self, number: int) -> bool:
        """Whether the block reserved by the last write has been taken."""
        return number >= self._reserved

    def begin(self, trainer: Trainer, step: int, last: int) -> None:
        """Claim and reserve the block of steps from this one on, within what is paid up to ``last``."""
        reserved = min(step + self.every, last)
        trainer._account.claim(step, reserved)
        self.write(trainer, step, reserved)

    def end(self, trainer: Trainer, step: int) -> None:
        """Write the run as it was stopped in order, or ended, before ``step``."""
        trainer._account.give_back(step)
        self.write(trainer, step, step)

    @property
    def place(self) -> str:
        """What tells this file apart from its copies."""
        return hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:16]

    def write(self, trainer: Trainer, step: int, reserved: int) -> None:
        """Write the run as it stands before ``step``, with steps up to ``reserved`` about to be taken."""
        tensors: dict[str, Tensor] = {}
        state = {
            "model": trainer.model.state_dict(),
            "optimizer": trainer.optimizer.state_dict(),
            "schedule": None if trainer.schedule is None else trainer.schedule.state_dict(),
            "average": None if trainer._average is None else trainer._average.state_dict(),
        }
        facts = {
            "run": trainer._account.run,
            "ledger": trainer._account.ledger is not None,
            "paid": trainer._account.paid,
            "noise": trainer._account.noise,
            "step": step,
            "reserved": reserved,
            "clip_norm": trainer.clip_norm,
            "plan": _facts(trainer),
            "before": past.packed(trainer._account.before),
            "state": {name: saving.packed(value, tensors, name) for name, value in state.items()},
        }
        group = trainer._group
        whole, kept = group.gathered(tensors), {"checkpoint": json.dumps(facts)}
        group.together(lambda: saving.write(self.path, whole, kept, overwrite=True))
        self._reserved = reserved

    def read(self, trainer: Trainer) -> int:
        """Put the run back as it was, and return the number of its next step."""
        group = trainer._group
        tensors, kept = group.together(lambda: saving.read(self.path))
        if "checkpoint" not in kept:
            raise ModelUnreadable(
                f"{str(self.path)!r} is a model, not the checkpoint of a run.", "Name another file.",
                path=self.path,
            )  # fmt: skip
        facts = json.loads(kept["checkpoint"])
        if facts["plan"] != _facts(trainer):
            raise InvalidValue(
                "plan", str(trainer.plan), "the plan the run was begun with",
                "A run goes on as it was planned; start another for another plan.",
            )  # fmt: skip
        for name, mine in (("average", trainer._average), ("schedule", trainer.schedule)):
            if (mine is None) != (facts["state"][name] is None):
                given = "left out" if facts["state"][name] is None else "given"
                raise InvalidValue(name, "another", f"{given}, as when the run was begun")
        account = trainer._account
        if facts["ledger"] and account.ledger is None:
            raise InvalidValue(
                "ledger", None, "the ledger the run was charged to", "Pass ledger= to Trainer."
            )
        if not facts["ledger"] and account.ledger is not None:
            raise InvalidValue(
                "ledger", account.ledger.location, "left out, as the run was begun without one",
                "Charge what was released without a ledger to it first, and start another run.",
            )  # fmt: skip
        if facts["noise"] == "seeded" and account.noise != "seeded":
            account.noise = "seeded"
        start = account.reopen(facts["run"], int(facts["paid"]), int(facts["reserved"]))
        account.inherit(past.unpacked(facts["before"]))
        state: dict[str, Any] = {
            name: saving.unpacked(value, tensors) for name, value in facts["state"].items()
        }
        group.spread(state, trainer.model, trainer.optimizer)
        saving.put(trainer.model, state["model"])
        trainer.optimizer.load_state_dict(state["optimizer"])
        if trainer.schedule is not None and state["schedule"] is not None:
            trainer.schedule.load_state_dict(state["schedule"])
        if trainer._average is not None and state["average"] is not None:
            trainer._average.load_state_dict(state["average"])
        trainer._core.clip_norm = facts["clip_norm"]
        return start


def _facts(trainer: Trainer) -> dict[str, Any]:
    facts = {
        each.name: getattr(trainer.plan, each.name)
        for each in dataclasses.fields(trainer.plan)
        if each.name != "epochs"
    }
    made: dict[str, Any] = json.loads(json.dumps(facts, default=repr))
    return made
