"""Checkpoints: a run written down so that it can go on, never having taken more steps than it paid for.

A checkpoint is written before a block of steps, and says which steps that block reserves. A run that
breaks off in the middle of a block goes on *after* it, with the weights from before: steps that may
have been taken, and seen, count as taken. A run that was stopped in order loses none.

What is in the file is post-processing of the noisy steps: parameters, averages, optimiser and schedule.
Losses, norms and the length of the data set are not.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from tacit.errors import InvalidValue, ModelUnreadable
from tacit.training import saving

if TYPE_CHECKING:
    from tacit.training.trainer import Trainer


class Checkpoint:
    """The file of a run, rewritten whole every ``every`` steps."""

    def __init__(self, path: saving.PATH, every: int) -> None:
        self.path, self.every = Path(path), every
        self._reserved = 0
        self._resumed = 0

    def due(self, number: int) -> bool:
        """Whether the block reserved by the last write has been taken."""
        return number >= self._reserved

    def reserve(self, number: int, last: int) -> int:
        """The end of the block that begins at this step, within what is paid."""
        return min(number + self.every, last)

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
            "resumed": self._resumed,
            "clip_norm": trainer.clip_norm,
            "plan": _facts(trainer),
            "state": {name: saving.packed(value, tensors, name) for name, value in state.items()},
        }
        saving.write(self.path, tensors, {"checkpoint": json.dumps(facts)}, overwrite=True)
        self._reserved = reserved

    def read(self, trainer: Trainer) -> int:
        """Put the run back as it was, and return the number of its next step."""
        tensors, kept = saving.read(self.path)
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
        account.reopen(facts["run"], facts["resumed"])
        account.confirm(facts["paid"])
        state: dict[str, Any] = {
            name: saving.unpacked(value, tensors) for name, value in facts["state"].items()
        }
        saving.put(trainer.model, state["model"])
        trainer.optimizer.load_state_dict(state["optimizer"])
        if trainer.schedule is not None and state["schedule"] is not None:
            trainer.schedule.load_state_dict(state["schedule"])
        if trainer._average is not None and state["average"] is not None:
            trainer._average.load_state_dict(state["average"])
        trainer._core.clip_norm = facts["clip_norm"]
        step = trainer.plan.next_start(int(facts["reserved"]))
        self._resumed = facts["resumed"] + 1
        self.write(trainer, step, step)
        account.mark(f"resumed {self._resumed}")
        return step


def _facts(trainer: Trainer) -> dict[str, Any]:
    facts = {
        each.name: getattr(trainer.plan, each.name)
        for each in dataclasses.fields(trainer.plan)
        if each.name != "epochs"
    }
    made: dict[str, Any] = json.loads(json.dumps(facts, default=repr))
    return made
