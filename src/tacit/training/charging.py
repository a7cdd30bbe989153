"""What a run has paid for, stage by stage; the ledger is the truth where there is one."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from tacit import accounting, events
from tacit.errors import InvalidValue, LedgerError
from tacit.guarantee import Guarantee
from tacit.relations import Relation
from tacit.training.distributed import ALONE, Group
from tacit.training.plan import ASSUMPTIONS, Plan

if TYPE_CHECKING:
    from tacit.ledger import Ledger

LONGEST_LABEL = 120


class Account:
    """The charges of one run.

    Every entry carries the run's own number in its label, so that a run that goes on from a checkpoint
    finds what it has paid, whatever happened in between: no stage is paid twice, none is taken
    unpaid. With checkpoints, each block of steps is claimed by an entry of its own, at no cost, before it
    is taken: of two copies of a checkpoint, or two processes, only one can take a block.
    Of several processes the first reads and writes the ledger, and all hear what came of it.
    """

    def __init__(
        self, plan: Plan, ledger: Ledger | None, label: str, noise: str, group: Group = ALONE
    ) -> None:
        self.plan, self.ledger, self.noise, self.group = plan, ledger, noise, group
        self.name = label
        self.run = ""
        self.paid = 0
        self.resumed = False
        if not isinstance(label, str) or not 0 < len(label) <= LONGEST_LABEL:
            raise InvalidValue("label", label, f"text of 1 to {LONGEST_LABEL} characters")
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
        self._name_run(self.group.together(self._new))

    def _new(self) -> str:
        by_epoch = self.ledger is not None and self.plan.charge == "epoch"
        if by_epoch and any(entry.mode == "basic" for entry in self.ledger.entries()):  # type: ignore[union-attr]
            raise InvalidValue(
                "plan.charge", "epoch", "'run' in a ledger that adds up ε and δ",
                "Epochs add up well only under a Rényi filter: open another ledger with "
                "Budget(..., filter='renyi').",
            )  # fmt: skip
        return secrets.token_hex(4)

    def reopen(self, run: str) -> None:
        """Go on with a run: find what it has paid."""
        self._name_run(run)
        self.paid = self.group.together(self._found)

    def _name_run(self, run: str) -> None:
        if self.run:
            raise InvalidValue("trainer", "a run already begun", "fitted once", "Make a new trainer.")
        self.run = run

    def _found(self) -> int:
        """Steps paid according to the ledger."""
        if self.ledger is None:
            return self.paid
        paid = sum(entry.label.endswith(f" [{self.run}]") for entry in self.ledger.entries())
        return sum(self.plan.stages()[:paid])

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
        self.group.together(lambda: self._charge(last - self.paid))
        self.paid = last

    def _charge(self, steps: int) -> None:
        if self.ledger is not None:
            whole = self.plan.charge == "run"
            delta = self.plan.delta if whole else None
            with self.ledger.charge(self.plan.event_of(steps), self.label, delta=delta, noise=self.noise):
                pass

    def claim(self, step: int) -> None:
        """Take the block of steps that begins here, which only one process ever can."""
        self.group.together(lambda: self._claim(f" [{self.run}] from step {step}"))

    def _claim(self, what: str) -> None:
        if self.ledger is None:
            return
        with self.ledger.charge(events.Compose(()), self.name + what, noise="exact") as mine:
            pass
        first = next(entry for entry in self.ledger.entries() if entry.label.endswith(what))
        if first.number != mine.number:
            raise LedgerError(
                f"Steps of the run {self.label!r} were taken already, from another copy of its checkpoint.",
                "A run is paid for once: go on from its newest checkpoint, or start another.",
                location=self.ledger.location,
            )

    def guarantee(self, *, stopped: bool = False) -> Guarantee:
        """What may be promised about everything this run has released."""
        if not self.paid:
            raise InvalidValue(
                "trainer", "a run not begun", "fitted first", "plan.guarantee() tells what it will promise."
            )
        plan = self.plan
        assumptions: tuple[str, ...] = ASSUMPTIONS
        if self.resumed and self.ledger is None:
            assumptions += ("of every checkpoint only one copy was gone on from",)
        if self.paid < plan.steps:
            assumptions += (
                "when to stop was chosen without the data, and without what was released of them",
            )
        elif stopped:
            assumptions += ("when to stop was chosen in view of nothing but what was released",)
        event = plan.event_of(self.paid)
        epsilon = plan.epsilon
        if self.paid < plan.steps:
            epsilon = accounting.epsilon(event, plan.delta, relation=plan.relation)
        relation = Relation.of(plan.relation)
        return Guarantee(epsilon, plan.delta, event, relation, plan.unit, self.noise, assumptions)
