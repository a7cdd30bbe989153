"""What a run has paid for, stage by stage; the ledger is the truth where there is one."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from tacit import accounting, events
from tacit.errors import InvalidValue, LedgerError
from tacit.guarantee import Guarantee
from tacit.relations import Relation
from tacit.training.plan import ASSUMPTIONS, Plan

if TYPE_CHECKING:
    from tacit.ledger import Ledger

_STOPPED = "when to stop the run was not chosen in view of the data"


class Account:
    """The charges of one run.

    Every entry carries the run's own number in its label, so that a run that goes on from a checkpoint
    finds what it has paid, whatever happened in between: no stage is paid twice, none is taken
    unpaid. Goings-on are entries too, at no cost: of two copies of a checkpoint only one can go on.
    """

    def __init__(self, plan: Plan, ledger: Ledger | None, label: str, noise: str) -> None:
        self.plan, self.ledger, self.noise = plan, ledger, noise
        self.name = label
        self.run = ""
        self.paid = 0
        if ledger is not None and (ledger.relation != plan.relation or ledger.unit != plan.unit):
            raise InvalidValue(
                "ledger", f"{ledger.relation} of one {ledger.unit}",
                f"for the relation and unit of the plan, {plan.relation} of one {plan.unit}",
                "Open a ledger or make a plan for the same promise.",
            )  # fmt: skip

    @property
    def label(self) -> str:
        """What the ledger calls this run."""
        return f"{self.name} [{self.run}]"

    def open(self) -> None:
        """Begin a new run."""
        self.run = secrets.token_hex(4)
        by_epoch = self.ledger is not None and self.plan.charge == "epoch"
        if by_epoch and any(entry.mode == "basic" for entry in self.ledger.entries()):  # type: ignore[union-attr]
            raise InvalidValue(
                "plan.charge", "epoch", "'run' in a ledger that adds up ε and δ",
                "Epochs add up well only under a Rényi filter: open another ledger with "
                "Budget(..., filter='renyi').",
            )  # fmt: skip

    def reopen(self, run: str, resumed: int) -> None:
        """Go on with a run: find what it has paid, and that nobody else has gone on with it."""
        self.run = run
        if self.ledger is None:
            return
        entries = self.ledger.entries()
        paid = sum(entry.label == self.label for entry in entries)
        if not paid and resumed:
            raise self._missing()
        labels = {entry.label for entry in entries}
        if {self._mark("finished"), self._mark(f"resumed {resumed + 1}")} & labels:
            raise LedgerError(
                f"The run {self.label!r} has been finished, or resumed from a copy of this checkpoint.",
                "A run is paid for once: start another.",
                location=self.ledger.location,
            )
        self.paid = sum(self.plan.stages()[:paid])

    def confirm(self, paid: int) -> None:
        """Refuse weights of steps that the ledger knows nothing of."""
        if self.ledger is not None and self.paid < paid:
            raise self._missing()
        self.paid = max(self.paid, paid)

    def _missing(self) -> LedgerError:
        assert self.ledger is not None
        return LedgerError(
            f"The ledger has no charge for the run {self.label!r} that this checkpoint comes from.",
            "Open the ledger the run was charged to; weights without their charge are not released.",
            location=self.ledger.location,
        )

    def pay(self, last: int) -> None:
        """Charge for all steps before ``last`` that are not paid yet; refused, nothing is taken."""
        if last <= self.paid:
            return
        if self.ledger is not None:
            whole = self.plan.charge == "run"
            event = self.plan.event_of(last - self.paid)
            delta = self.plan.delta if whole else None
            with self.ledger.charge(event, self.label, delta=delta, noise=self.noise):
                pass
        self.paid = last

    def mark(self, what: str) -> None:
        """An entry without cost, for whoever goes on from a checkpoint."""
        if self.ledger is not None:
            with self.ledger.charge(events.Compose(()), self._mark(what), noise="exact"):
                pass

    def _mark(self, what: str) -> str:
        return f"{self.label} {what}"

    def guarantee(self) -> Guarantee:
        """What may be promised about everything this run has released."""
        if not self.paid:
            raise InvalidValue(
                "trainer", "a run not begun", "fitted first", "plan.guarantee() tells what it will promise."
            )
        plan = self.plan
        if self.paid == plan.steps:
            return plan.guarantee(self.noise)
        event = plan.event_of(self.paid)
        epsilon = accounting.epsilon(event, plan.delta, relation=plan.relation)
        relation, assumptions = Relation.of(plan.relation), (*ASSUMPTIONS, _STOPPED)
        return Guarantee(epsilon, plan.delta, event, relation, plan.unit, self.noise, assumptions)
