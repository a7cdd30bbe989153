"""What a run has paid for, stage by stage; the ledger is the truth where there is one."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from tacit import _validate, accounting, events
from tacit.errors import InvalidValue, LedgerError
from tacit.guarantee import Guarantee
from tacit.ledger.work import Span, Work, conflict, held
from tacit.relations import Relation
from tacit.training import past
from tacit.training.parallel.distributed import ALONE, Group
from tacit.training.plan import ASSUMPTIONS, Plan

if TYPE_CHECKING:
    from tacit.ledger import Ledger

LONGEST_LABEL = 120

_HERE: dict[str, list[Work]] = {}
"""What runs without a ledger have paid for and taken in this process."""
_TURN = threading.Lock()


class Account:
    """The charges of one run, and the steps it may take.

    The entries of a run carry its own number, drawn at random, and the steps [first, last) that they pay
    for or take (:mod:`tacit.ledger.work`). Steps are claimed before they are taken and before a
    checkpoint is written that counts them as taken, in one transaction of the ledger: of
    copies of a checkpoint, or of several processes, only one ever takes a step, and all of them together
    take no more than was paid for, however their blocks lie. A run without checkpoints claims its
    steps as it pays for them. Shuffled epochs are claimed whole, since a batch of one is no sample by itself.
    A run that is stopped in order gives back what it claimed and did not take.

    Without a ledger the same holds within one process; that no copy of a checkpoint is gone on from in
    another one is an assumption of the guarantee. So is, with a ledger, that there is one ledger: a copy
    of its file knows nothing of what is claimed in the other.
    Of several processes that train together the first reads and writes the ledger, and all hear what came
    of it.
    """

    def __init__(
        self, plan: Plan, ledger: Ledger | None, label: str, noise: str, group: Group = ALONE,
        place: str | None = None, earlier: str = "composed",
    ) -> None:  # fmt: skip
        self.plan, self.ledger, self.noise, self.group = plan, ledger, noise, group
        self.name, self.place = label, place
        self.disjoint = _validate.choice("earlier", earlier, past.EARLIER) == "disjoint"
        self.before: tuple[past.Run, ...] = ()
        self.run = ""
        self.paid = self._claimed = 0
        self._process = os.getpid()
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
        return f"{self.name} [{self.run[:8]}]"

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
        return secrets.token_hex(16)

    def reopen(self, run: str, paid: int, reserved: int) -> int:
        """Go on with a run whose file counts steps before ``reserved`` as taken; the first step left.

        Refused where the ledger has no charge for what the file holds, or where others have gone on
        with the run since the file was written. One block after it, claimed for this very file, is
        one that broke off before the file was written: it counts as taken.
        """
        self._name_run(run)
        self.paid, taken = self.group.together(lambda: self._found(paid, reserved))
        if self.paid < paid:
            raise self._missing()
        start = self.plan.next_start(reserved)
        later = [work for work in taken if work.taken and work.taken[1] > start]
        if len(later) > 1 or any(work.place != self.place for work in later):
            raise self._refused("steps after those of this checkpoint were taken already, from a copy of it")
        return max([start, *(work.taken[1] for work in later if work.taken)])

    def inherit(self, runs: Iterable[past.Run]) -> None:
        """Count the runs that the weights come from; refuse those that promise something about others."""
        found = {run.number: run for run in (*self.before, *runs) if run.number != self.run}
        past.check(found.values(), self.plan.guarantee())
        self.before = past.known(found.values())

    @property
    def history(self) -> tuple[past.Run, ...]:
        """The runs before this one, and this one as far as it is paid for."""
        if not self.paid:
            return self.before
        return (*self.before, self._as_run(replace(self.plan.guarantee(self.noise), event=self._event)))

    def _as_run(self, alone: Guarantee) -> past.Run:
        return past.Run(self.run, alone, tuple(run.number for run in self.before), self.disjoint)

    @property
    def _event(self) -> events.Event:
        return self.plan.event_of(self.paid)

    def _name_run(self, run: str) -> None:
        if self.run:
            raise InvalidValue("trainer", "a run already begun", "fitted once", "Make a new trainer.")
        self.run = run

    def _found(self, paid: int, reserved: int) -> tuple[int, list[Work]]:
        """How many steps are paid for, from the first on, and what is claimed."""
        if self.ledger is None:
            with _TURN:
                known = _HERE.setdefault(self.run, [Work(self.run, (0, paid), (0, reserved))])
        else:
            entries = self.ledger.work_of(self.run)
            if any(
                entry.work and entry.work.paid and entry.event != self.plan.event_of(_length(entry.work.paid))
                for entry in entries
            ):
                raise self._missing()
            known = [entry.work for entry in entries if entry.work]
        whole, taken = held(known)
        last = 0
        for span in sorted(whole):
            last = span[1] if span[0] == last else last
        return last, [
            replace(work, taken=span)
            for work in known
            for span in taken
            if work.taken and work.taken[0] <= span[0] < work.taken[1]
        ]

    def _missing(self) -> LedgerError:
        return LedgerError(
            f"The ledger has no charge for the run {self.label!r} that this checkpoint comes from.",
            "Open the ledger the run was charged to; weights without their charge are not released.",
            location=None if self.ledger is None else self.ledger.location,
        )

    def _refused(self, problem: str) -> LedgerError:
        return LedgerError(
            f"Of the run {self.label!r}, {problem}.",
            "A run is paid for once: go on from its newest checkpoint, or start another.",
            location=None if self.ledger is None else self.ledger.location,
        )

    def pay(self, last: int) -> None:
        """Charge for all steps before ``last`` that are not paid yet; refused, nothing is taken.

        The ledger is also charged for the runs that the weights come from, unless it was, or they were
        declared to be of other people.
        """
        if last <= self.paid:
            return
        if self.before and not self.disjoint:
            self.group.together(self._pay_before)
        span = self.paid, last
        work = Work(self.run, paid=span, taken=None if self.place else span)
        self._post(work, self.plan.event_of(_length(span)), self.label, self.noise)
        self.paid = last
        if not self.place:
            self._claimed = last

    def _pay_before(self) -> None:
        for run in self.before if self.ledger is not None else ():
            if not self.ledger.work_of(run.number):  # type: ignore[union-attr]
                alone, label = run.alone, f"run before {self.label} [{run.number[:8]}]"
                work = Work(run.number)
                self.ledger.charge(alone.event, label, delta=alone.delta, noise=alone.noise, work=work)  # type: ignore[union-attr]

    def claim(self, first: int, last: int) -> None:
        """Take the steps from ``first`` to before ``last``, which only one process ever can."""
        first, last = max(first, self._claimed), self.plan.next_start(last)
        if first < last:
            label = f"{self.label} from step {first}"
            self._post(Work(self.run, taken=(first, last), place=self.place), events.Compose(()), label)
            self._claimed = last

    def give_back(self, step: int) -> None:
        """Give back the steps from this one on that were claimed: no step is taken any more."""
        first, last = self.plan.next_start(step), self._claimed
        if self.place and first < last:
            label = f"{self.label} stopped before step {first}"
            self._post(Work(self.run, back=(first, last)), events.Compose(()), label)
            self._claimed = first

    def check_process(self) -> None:
        """Refuse to go on in a process forked off the one that began the run: both would take its steps."""
        if self._process != os.getpid():
            raise InvalidValue(
                "trainer", "of another process", "used in the process it was made in",
                "Make a trainer in each process; its steps are paid for once.",
            )  # fmt: skip

    def _post(self, work: Work, event: events.Event, label: str, noise: str = "exact") -> None:
        self.check_process()
        self.group.together(lambda: self._written(work, event, label, noise))

    def _written(self, work: Work, event: events.Event, label: str, noise: str) -> None:
        if self.ledger is not None:
            delta = self.plan.delta if work.paid and self.plan.charge == "run" else None
            with self.ledger.charge(event, label, delta=delta, noise=noise, work=work):
                return
        with _TURN:
            earlier = _HERE.setdefault(self.run, [])
            problem = conflict(work, earlier)
            if problem is not None:
                raise self._refused(problem)
            earlier.append(work)

    def guarantee(self, *, stopped: bool = False) -> Guarantee:
        """What may be promised about everything this run has released, the runs before it included."""
        if not self.paid:
            raise InvalidValue(
                "trainer", "a run not begun", "fitted first", "plan.guarantee() tells what it will promise."
            )
        alone = self._alone(stopped=stopped)
        if not self.before:
            return alone
        assumptions = ("the earlier runs on this model saw none of these people",) if self.disjoint else ()
        together = past.composed((*self.before, self._as_run(alone)), alone.delta)
        return replace(together, assumptions=(*together.assumptions, *assumptions))

    def epsilon(self, steps: int) -> float:
        """ε of so many steps, the runs before this one included."""
        alone = replace(self.plan.guarantee(), event=self.plan.event_of(steps))
        return past.composed((*self.before, self._as_run(alone)), alone.delta).epsilon

    def _alone(self, *, stopped: bool = False) -> Guarantee:
        """What may be promised about this run if the weights it began with were public."""
        plan = self.plan
        assumptions: tuple[str, ...] = ASSUMPTIONS
        if self.place and self.ledger is None:
            assumptions += ("of every checkpoint only one copy was gone on from",)
        if self.paid < plan.steps:
            assumptions += (
                "when to stop was chosen without the data, and without what was released of them",
            )
        elif stopped:
            assumptions += ("when to stop was chosen in view of nothing but what was released",)
        epsilon = plan.epsilon
        if self.paid != plan.steps:
            epsilon = accounting.epsilon(self._event, plan.delta, relation=plan.relation)
        relation = Relation.of(plan.relation)
        return Guarantee(epsilon, plan.delta, self._event, relation, plan.unit, self.noise, assumptions)


def _length(span: Span) -> int:
    return span[1] - span[0]
