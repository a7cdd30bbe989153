"""Allowance: a part of a dataset's budget that one party may spend, enforced where the budget is.

A curator gives several analysts a part each. What one of them spends is added up from the entries that were
charged for them, in the transaction that charges the next: of two charges that fit each, and not both, one is
refused, whichever of the two limits it would exceed. The parts need not add up to the budget. The budget is
the promise; an allowance only says who may use it up, and bounds what its holder alone has learnt.

The entries of an allowance name the run that they pay for, ``"<allowance>/<run>"``
(:class:`tacit.ledger.work.Work`), so that the chain of hashes says who spent what, and a run is paid for
once.

>>> import tempfile, pathlib
>>> from tacit import events
>>> from tacit.ledger import Budget, Ledger
>>> path = pathlib.Path(tempfile.mkdtemp()) / "study.db"
>>> with Ledger.open(path, budget=Budget(epsilon=1.0)) as ledger:
...     with ledger.within(Allowance("ada", Budget(epsilon=0.5), run="7f3a")) as hers:
...         with hers.charge(events.Laplace(2.0), label="age histogram"):
...             pass
...         hers.charge(events.Laplace(10.0), label="income")
Traceback (most recent call last):
    ...
tacit.errors.BudgetExceeded: Charging 'income' would exceed the allowance 'ada' of ε = 0.5, δ = 0, ...
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tacit.errors import InvalidValue
from tacit.ledger.budget import Budget
from tacit.ledger.work import Work

__all__ = ["Allowance"]

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


@dataclass(frozen=True)
class Allowance:
    """What one party may spend of a dataset's budget, and what for.

    ``name`` is made of small letters, digits and hyphens. ``run`` names the one piece of work that the
    charges of a ledger opened with this allowance pay for: a second ledger with the same run is refused its
    charges, so that a request that was repeated is not paid for twice. ``resumed`` says that whoever charged
    for the run first was interrupted and has released nothing, and never will: what the run has paid for
    already is then not charged again. Each charge of a run may be resumed, and only as it was: the same
    event, δ and noise.
    """

    name: str
    budget: Budget
    run: str | None = None
    resumed: bool = False

    def __post_init__(self) -> None:
        for part, value in (("name", self.name), ("run", self.run)):
            if not (part == "run" and value is None) and not (
                isinstance(value, str) and _NAME.fullmatch(value)
            ):
                raise InvalidValue(part, value, "of small letters, digits and hyphens, at most 64 of them")
        if not isinstance(self.budget, Budget):
            raise InvalidValue("budget", self.budget, "a tacit.Budget")
        if self.resumed and self.run is None:
            raise InvalidValue("run", None, "given where it is resumed")

    @property
    def prefix(self) -> str:
        """How the runs of this allowance begin in the ledger."""
        return f"{self.name}/"

    def named(self, run: str) -> str:
        """The name of a run of this allowance in the ledger."""
        return self.prefix + run

    def work(self, work: Work | None, number: int) -> Work | None:
        """What charge ``number`` says about the run: it pays for one step, and takes it.

        Steps that are paid for and taken at once, those of a training run without checkpoints, are one step.
        """
        at_once = work is not None and work.paid is not None and work.paid == work.taken
        if work is not None and not (at_once and self.run is not None):
            return replace(work, run=self.named(work.run))
        if self.run is None:
            return Work(self.named("-"))
        step = (number, number + 1)
        return Work(self.named(self.run), paid=step, taken=step)
