"""Account: what a run has paid for, stage by stage, and which steps it may take.

The ledger is the truth where there is one; all charges go through :class:`tacit.ledger.Payment`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tacit import _validate, accounting, events
from tacit.errors import InvalidValue, LedgerError, TacitError
from tacit.guarantee import Guarantee
from tacit.ledger import Payment
from tacit.ledger.work import Span, Work, held, known_here, take_here
from tacit.randomness import Source
from tacit.relations import Relation
from tacit.training import past
from tacit.training.parallel.distributed import ONE_PROCESS, ProcessGroup
from tacit.training.plan import Plan

if TYPE_CHECKING:
    from tacit.ledger import Ledger

LONGEST_LABEL = 120
METRIC = " metric "
"""Between the number of a run and that of an evaluation which moved its learning rate."""


class Account:
    """The charges of one run, and the steps it may take.

    Each run has a number of its own, drawn at random. Its entries in the ledger carry this number, and the
    steps [first, last) that they pay for or take (:mod:`tacit.ledger.work`). A block of steps is claimed, in
    one transaction of the ledger, before any of them is taken and before a checkpoint counts them as taken.
    So of several processes, or of copies of a checkpoint, only one ever takes a step, and all of them
    together take no more steps than were paid for, however their blocks overlap. A run without checkpoints
    claims its steps as it pays for them. Shuffled epochs are claimed whole, since a batch of one is no sample
    by itself. A run that is stopped in order gives back the steps that it claimed and did not take.

    Without a ledger the same holds within one process; the guarantee then assumes that no other process
    continues the run from a copy of a checkpoint. With a ledger it assumes that there is one ledger: a copy
    of the ledger's file does not know what is claimed in the other. Of several processes that train together
    the first reads and writes the ledger, and all of them get its answer or its refusal.
    """

    def __init__(
        self, plan: Plan, ledger: Ledger | None, label: str, noise: str, group: ProcessGroup = ONE_PROCESS,
        place: str | None = None, earlier: str = "composed",
    ) -> None:  # fmt: skip
        self.plan, self.noise, self.group = plan, noise, group
        self.name, self.place = label, place
        self._declared = _validate.choice("earlier", earlier, past.EARLIER) == "disjoint"
        self.before: tuple[past.Run, ...] = ()
        self.late: tuple[str, ...] = ()
        """The numbers of runs whose weights came into the model while this run went on."""
        self.metrics: tuple[past.Run, ...] = ()
        """The private evaluations that have moved the learning rate."""
        self.public_metric = False
        """Whether a number that was declared public has moved it."""
        self.run = ""
        self.paid = self._claimed = 0
        self._process = os.getpid()
        if not isinstance(label, str) or not 0 < len(label) <= LONGEST_LABEL:
            raise InvalidValue("label", label, f"text of 1 to {LONGEST_LABEL} characters")
        self.payment = Payment.agreed(ledger, relation=plan.relation, unit=plan.unit)

    @property
    def ledger(self) -> Ledger | None:
        """The ledger that the run is charged to, if any."""
        return self.payment.ledger

    @property
    def label(self) -> str:
        """What the ledger calls this run."""
        return f"{self.name} [{self.run[:8]}]"

    def open(self) -> None:
        """Begin a new run."""
        self._name_run(self.group.together(self._new))

    def _new(self) -> str:
        """The number of a new run; epochs are not charged one by one where the ledger adds up ε and δ."""
        rule = self.ledger.filter if self.ledger is not None and self.plan.charge == "epoch" else None
        if rule in ("basic", "gaussian"):
            raise InvalidValue(
                "plan.charge", "epoch", f"'run' in a ledger with filter={rule!r}",
                "Epochs add up well only by their Rényi divergences: make a ledger with "
                "tacit.Ledger.open(..., filter='renyi').",
            )  # fmt: skip
        return f"{Source().bits(128):032x}"

    def pay(self, last: int) -> None:
        """Charge for all steps before ``last`` that are not paid for yet; if that is refused, none is taken.

        The ledger is also charged for the runs that the weights come from, unless it was charged for them
        already, or they were declared to be on other people.
        """
        if last <= self.paid:
            return
        if self.before and not self.disjoint:
            self._pay_for(self.before)
        span = self.paid, last
        work = Work(self.run, paid=span, taken=None if self.place else span)
        self._post(work, self.plan.event_of(_length(span)), self.label, self.noise)
        self.paid = last
        if not self.place:
            self._claimed = last

    def _pay_for(self, runs: Iterable[past.Run]) -> None:
        self.group.together(lambda: self._charge_for(runs))

    def _charge_for(self, runs: Iterable[past.Run]) -> None:
        if self.ledger is None:
            return
        for run in runs:
            if not _charged_for(self.ledger, run.number):
                alone, label = run.alone, f"run before {self.label} [{run.number[:8]}]"
                work = Work(run.number)
                with self.payment.charge(alone.event, label, noise=alone.noise, delta=alone.delta, work=work):
                    pass

    def claim(self, first: int, last: int) -> None:
        """Claim the steps from ``first`` to before ``last``, which only one process ever can."""
        first, last = max(first, self._claimed), self.plan.next_start(last)
        if first < last:
            label = f"{self.label} from step {first}"
            self._post(Work(self.run, taken=(first, last), place=self.place), events.Compose(()), label)
            self._claimed = last

    def give_back(self, step: int) -> None:
        """Give back the claimed steps from this one on: the run takes no further step."""
        first, last = self.plan.next_start(step), self._claimed
        if self.place and first < last:
            label = f"{self.label} stopped before step {first}"
            self._post(Work(self.run, back=(first, last)), events.Compose(()), label)
            self._claimed = first

    def forfeit(self) -> None:
        """Claim all steps that are left, for no file: a run with a fault goes on from no copy either."""
        span = self._claimed, self.paid
        if self.group.size == 1 and span[0] < span[1]:
            with suppress(TacitError):
                self._post(Work(self.run, taken=span), events.Compose(()), f"{self.label} has no guarantee")

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
            delta = self.plan.delta if work.paid and self.plan.charge == "run" else 0.0
            with self.payment.charge(event, label, noise=noise, delta=delta, work=work):
                return
        problem = take_here(work)
        if problem is not None:
            raise self._refused(problem)

    def reopen(self, run: str, paid: int, reserved: int) -> int:
        """Go on with a run whose checkpoint counts the steps before ``reserved`` as taken; the next step.

        Raises :class:`tacit.errors.LedgerError` where the ledger has no charge for the run, or where others
        have gone on with it since the checkpoint was written. One block of steps behind it may have been
        claimed from this very file, by a process that broke off before it could write the file again: these
        steps count as taken.
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

    def _found(self, paid: int, reserved: int) -> tuple[int, list[Work]]:
        """How many steps are paid for, from the first on without a gap, and the blocks that are claimed."""
        if self.ledger is None:
            known = known_here(Work(self.run, (0, paid), (0, reserved)))
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

    def _name_run(self, run: str) -> None:
        if self.run:
            raise InvalidValue("trainer", "a run already begun", "fitted once", "Make a new trainer.")
        self.run = run

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

    def inherit(self, runs: Iterable[past.Run]) -> None:
        """Count the runs that the weights come from; refuse those of another relation or unit."""
        found = {run.number: run for run in (*self.before, *runs) if run.number != self.run}
        past.check(found.values(), self.plan.guarantee())
        self.before = past.known(found.values())

    def arrive(self, runs: Iterable[past.Run]) -> None:
        """Count runs whose weights other code put into the model while this run goes on, and pay for them.

        Nothing was declared about their people, so that none of the runs counts as disjoint any more. Refused
        are those of another relation or unit.
        """
        new = self.unknown(runs)
        if new:
            self.late += tuple(run.number for run in new)
            self.inherit(new)
            self._pay_for(new)

    def unknown(self, runs: Iterable[past.Run]) -> tuple[past.Run, ...]:
        """Those runs that are neither this one nor counted in it."""
        mine = {self.run, *(run.number for run in (*self.before, *self.metrics))}
        return tuple(run for run in runs if run.number not in mine)

    @property
    def disjoint(self) -> bool:
        """Whether all runs before this one were declared to be on other people."""
        return self._declared and not self.late

    def count_metric(self, released: Guarantee | None, label: str) -> None:
        """Count an evaluation that moves the learning rate: the weights come from it too.

        None is a number that was declared public. An evaluation under another relation or of another unit is
        refused, and so is one that the ledger of the run was not charged for since the run began: an earlier
        charge for such an event paid for something else.
        """
        if released is None:
            self.public_metric = True
            return
        mine = self.plan.relation, self.plan.unit
        if (released.relation, released.unit) != mine:
            raise InvalidValue(
                "metric", f"for {released.relation} of one {released.unit}",
                f"an evaluation for {mine[0]} of one {mine[1]}, as the run is",
                "The cost of both together can be stated only under one relation and for one unit.",
            )  # fmt: skip
        found = past.Run(f"{self.run}{METRIC}{len(self.metrics)}", released)
        self.group.together(lambda: self._check_charged((*self.metrics, found), label))
        self.metrics = (*self.metrics, *past.known([found]))

    def _check_charged(self, metrics: Iterable[past.Run], label: str) -> None:
        if self.ledger is None:
            return
        begun = min((entry.number for entry in self.ledger.work_of(self.run)), default=0)
        charged = [entry.event for entry in self.ledger.entries() if entry.number > begun]
        for metric in metrics:
            if metric.alone.event not in charged:
                raise LedgerError(
                    f"The ledger of the run has no charge for {label!r}, which moves the learning rate.",
                    "Pass ledger= to tacit.evaluate: what the model learns from its rows has to be paid for.",
                    location=self.ledger.location,
                )
            charged.remove(metric.alone.event)

    @property
    def history(self) -> tuple[past.Run, ...]:
        """The runs before this one, this one as far as it is paid for, and the metrics it was moved by."""
        if not self.paid:
            return self.before
        mine = self._as_run(replace(self.plan.guarantee(self.noise), event=self._event))
        return (*self.before, mine, *self.metrics)

    def _as_run(self, alone: Guarantee) -> past.Run:
        before = tuple(run.number for run in self.before)
        return past.Run(self.run, alone, before, self.disjoint, self.paid)

    @property
    def _event(self) -> events.Event:
        return self.plan.event_of(self.paid)

    def guarantee(self, found: Iterable[past.Run] = (), *, stopped: bool = False) -> Guarantee:
        """What may be promised about all that this run has released, with the runs before it and ``found``.

        ``found`` are the runs that the weights were found to come from since.
        """
        if not self.paid:
            raise InvalidValue(
                "trainer", "a run not begun", "fitted first", "plan.guarantee() tells what it will promise."
            )
        alone = self._alone(stopped=stopped)
        runs = self._together(alone, found)
        return past.composed(runs, alone.delta) if len(runs) > 1 else alone

    def epsilon(self, steps: int, found: Iterable[past.Run] = ()) -> float:
        """ε of so many steps, with the runs before this one and ``found``."""
        alone = replace(self.plan.guarantee(), event=self.plan.event_of(steps))
        return past.composed(self._together(alone, found), alone.delta).epsilon

    def _together(self, alone: Guarantee, found: Iterable[past.Run]) -> tuple[past.Run, ...]:
        """All runs that the weights come from, oldest first; another relation or unit is refused."""
        new = self.unknown(found)
        past.check(new, alone)
        return past.oldest_first((*self.before, *self.metrics, *new), self._as_run(alone))

    def _alone(self, *, stopped: bool = False) -> Guarantee:
        """What this run by itself promises: its guarantee if the weights it began with were public."""
        plan = self.plan
        assumptions = plan.assumptions
        if self.place and self.ledger is None:
            assumptions += ("the run was continued from only one copy of each checkpoint",)
        if self.public_metric:
            assumptions += ("the metric that moved the learning rate was computed from public examples",)
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


def _charged_for(ledger: Ledger, number: str) -> bool:
    """Whether the ledger was charged for a run, or for a metric of a run.

    A run that paid for its steps here took no metric that was not charged here, too. One that was trained
    elsewhere, and was paid for as a run before another, was not looked at, and its entry names no steps.
    """
    if ledger.work_of(number):
        return True
    run, metric, _ = number.partition(METRIC)
    return bool(metric) and any(entry.work and entry.work.paid for entry in ledger.work_of(run))


def _length(span: Span) -> int:
    return span[1] - span[0]
