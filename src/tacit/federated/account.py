"""Account: the one charge of a federation, and the rounds that it pays for, each taken once.

The whole run is charged before the first round, at the tightest price. With a checkpoint, each round is
claimed in the ledger before its cohort is drawn (:mod:`tacit.ledger.work`), so of several servers, or of
copies of a checkpoint, only one ever takes a round. A round that was claimed and has not been written down as
finished counts as taken: its noise, which somebody may have seen, is never drawn again. Without a ledger the
same holds within one process.
"""

from __future__ import annotations

import os
import secrets
import threading

from tacit import events
from tacit.errors import InvalidValue, LedgerError
from tacit.federated.plan import FederatedPlan
from tacit.ledger import Payment
from tacit.ledger.work import Work, conflict

LONGEST_LABEL = 120

_HERE: dict[str, list[Work]] = {}
"""The rounds that runs without a ledger have taken in this process, by run."""
_TURN = threading.Lock()


class RoundsAccount:
    """What a run of a federation has paid for, and which rounds it has taken."""

    def __init__(self, plan: FederatedPlan, ledger: object, label: str, place: str | None) -> None:
        if not isinstance(label, str) or not 0 < len(label) <= LONGEST_LABEL:
            raise InvalidValue("label", label, f"text of 1 to {LONGEST_LABEL} characters")
        if plan.trust == "silo" and ledger is not None:
            raise InvalidValue(
                "ledger", "of the server", "None for trust='silo'",
                "Each silo charges its own ledger: give it to tacit.federated.Silo.",
            )  # fmt: skip
        self.plan, self.label, self.place = plan, label, place
        self.run = secrets.token_hex(16)
        self.paid = False
        self.payment = Payment.agreed(ledger, relation=plan.relation, unit=plan.unit)
        self._process = os.getpid()

    def take(self, number: int, noise: str) -> None:
        """Pay for the run, if that was not done yet, and claim one round of it."""
        self.check_process()
        if number >= self.plan.rounds:
            raise InvalidValue(
                "rounds", number, f"fewer than {self.plan.rounds} before another begins: all were taken",
                "Make a plan for more rounds; it is another run, with a charge and a checkpoint of its own.",
            )  # fmt: skip
        if not self.paid:
            whole = (0, self.plan.rounds)
            work = Work(self.run, paid=whole, taken=None if self.place else whole)
            self._post(work, self.plan.event, noise)
            self.paid = True
        if self.place:
            work = Work(self.run, taken=(number, number + 1), place=self.place)
            self._post(work, events.Compose(()), "exact")

    def check_process(self) -> None:
        """Refuse to go on in a process forked off the one that made the rounds: both would release them."""
        if self._process != os.getpid():
            raise InvalidValue(
                "rounds", "of another process", "used in the process they were made in",
                "Make them in each process; a round is paid for once.",
            )  # fmt: skip

    def _post(self, work: Work, event: events.Event, noise: str) -> None:
        label = f"{self.label} [{self.run[:8]}]"
        if self.payment.ledger is not None:
            delta = self.plan.delta if work.paid else 0.0
            label += "" if work.paid or work.taken is None else f" round {work.taken[0]}"
            with self.payment.charge(event, label, noise=noise, delta=delta, work=work):
                return
        with _TURN:
            earlier = _HERE.setdefault(self.run, [])
            problem = conflict(work, earlier)
            if problem is not None:
                raise self._refused(problem)
            earlier.append(work)

    def reopen(self, run: str, number: int) -> int:
        """Go on with a run whose checkpoint counts the rounds before ``number`` as taken; the next round.

        One round more may have been claimed from this very file by a server that was killed before it could
        write the file again: it counts as taken.
        """
        self.run, self.paid = run, True
        known = self._known(number)
        if not any(work.paid == (0, self.plan.rounds) for work in known):
            raise LedgerError(
                "The ledger has no charge for the run that this checkpoint comes from.",
                "Open the ledger the run was charged to.",
                location=None if self.payment.ledger is None else self.payment.ledger.location,
            )
        later = [work for work in known if work.taken and work.taken[1] > number]
        if len(later) > 1 or any(work.place != self.place for work in later):
            raise self._refused("rounds after those of this checkpoint were taken already, from a copy of it")
        return max([number, *(work.taken[1] for work in later if work.taken)])

    def _known(self, number: int) -> list[Work]:
        if self.payment.ledger is None:
            before = (0, number) if number else None
            begun = Work(self.run, (0, self.plan.rounds), before, place=self.place)
            with _TURN:
                return list(_HERE.setdefault(self.run, [begun]))
        entries = self.payment.ledger.work_of(self.run)
        return [
            entry.work
            for entry in entries
            if entry.work and (not entry.work.paid or entry.event == self.plan.event)
        ]

    def _refused(self, problem: str) -> LedgerError:
        return LedgerError(
            f"Of this run, {problem}.", "A round is paid for once: go on from the newest checkpoint.",
            location=None if self.payment.ledger is None else self.payment.ledger.location,
        )  # fmt: skip
