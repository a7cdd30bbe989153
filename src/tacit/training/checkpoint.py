"""Checkpoints: a run written down so that it can go on, never having taken more steps than it paid for.

A block of steps is claimed (:class:`tacit.training.account.Account`), then a checkpoint is written that says
which steps the block reserves, then they are taken. A run that breaks off in the middle of a block goes on
*after* it, with the weights from before: steps that may have been taken, and seen, count as taken. A
run that was stopped in order loses none.

:class:`tacit.training.state.RunState` says what is in the file.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from tacit.errors import ModelUnreadable, TacitError
from tacit.training import past, saving
from tacit.training.isolation.checking import unsound

if TYPE_CHECKING:
    from tacit.training.state import RunState


class Checkpoint:
    """The file of a run, rewritten whole every ``every`` steps."""

    def __init__(self, path: saving.PATH, every: int) -> None:
        self.path, self.every = Path(path), every
        self._reserved = 0

    @property
    def place(self) -> str:
        """A digest of the file's path, which tells this file apart from its copies."""
        return hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:16]

    def due(self, number: int) -> bool:
        """Whether all steps that the last write reserved were taken before step ``number``."""
        return number >= self._reserved

    def begin(self, state: RunState, last: int) -> None:
        """Claim and reserve the next block of steps, within those that are paid for, up to ``last``."""
        reserved = min(state.taken + self.every, last)
        state.account.claim(state.taken, reserved)
        self.write(state, reserved)

    def end(self, state: RunState) -> None:
        """Write a run that was stopped in order, or has ended, and give back what it claimed beyond."""
        state.account.give_back(state.taken)
        self.write(state, state.taken)

    def write(self, state: RunState, reserved: int) -> None:
        """Write the run as it stands, with the steps before ``reserved`` about to be taken."""
        tensors: dict[str, Tensor] = {}
        facts = state.to_mapping(reserved)
        facts["state"] = {name: saving.packed(value, tensors, name) for name, value in facts["state"].items()}
        whole, kept = state.group.gathered(tensors), {"checkpoint": json.dumps(facts)}
        state.group.together(lambda: saving.write(self.path, whole, kept, overwrite=True))
        self._reserved = reserved

    def void(self, fault: Exception) -> None:
        """Note in the file that a fault was found in its run, which then does not go on from it."""
        with suppress(OSError, TacitError):
            tensors, kept = saving.read(self.path)
            facts = {**json.loads(kept["checkpoint"]), "fault": str(fault)}
            saving.write(self.path, tensors, {"checkpoint": json.dumps(facts)}, overwrite=True)

    def read(self, state: RunState) -> None:
        """Put the run in the file back, so that it goes on with its next step."""
        tensors, kept = state.group.together(lambda: saving.read(self.path))
        if "checkpoint" not in kept:
            raise ModelUnreadable(
                f"{str(self.path)!r} is a model, not the checkpoint of a run.", "Name another file.",
                path=self.path,
            )  # fmt: skip
        facts = json.loads(kept["checkpoint"])
        if "fault" in facts or past.is_void(facts["run"]):
            fault = facts.get("fault", "by another trainer of this process")
            raise unsound("The run of this checkpoint", fault)
        facts["state"] = {name: saving.unpacked(value, tensors) for name, value in facts["state"].items()}
        state.restore(facts)
