"""Rounds: what the server of a federation does, whatever carries the messages.

    rounds = Rounds(plan, shapes, ledger=ledger, checkpoint="run.federation")
    while not rounds.finished:
        one = rounds.begin()                 # charged before anybody is asked
        for client in one.cohort: ...        # ask; one.receive(client, arrays) for each answer
        update = one.finish()                # released: noisy sum ÷ expected cohort

Released, and fit for publication: what :meth:`Round.finish` returns, :attr:`Round.metrics`, the clip_norm and
the guarantee. For the curator alone: the cohort under Poisson sampling, which report was refused and why, how
many came (:attr:`Round.private_counts`), and how long a round took. Nothing here logs or prints.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue
from tacit.federated.account import RoundsAccount
from tacit.federated.checkpoint import Checkpoint, place_of
from tacit.federated.cohorts import Cohorts
from tacit.federated.plan import FederatedPlan
from tacit.federated.reports import Reports
from tacit.federated.updates import Shapes, Updates, Vector, grid, in_steps
from tacit.guarantee import NOISE_KINDS, Guarantee
from tacit.randomness import Source
from tacit.training.clipping import Quantile

if TYPE_CHECKING:
    from tacit.federated.distributed import Encoder
    from tacit.ledger import Ledger

__all__ = ["PrivateCounts", "Round", "Rounds"]


LONGEST = 1e9
"""The longest update of a silo that is averaged as it is."""


class Rounds:
    """The rounds of one federation, paid for as a whole before the first of them.

    Guarantee: the plan's (:meth:`FederatedPlan.guarantee`), for all updates, metrics and clip_norms of all
    rounds together. Each round is released once: its noise is drawn once, a round that was begun and not
    finished when the server was killed counts as taken, and copies of a checkpoint take no round twice
    (:mod:`tacit.federated.account`). ``ledger`` must protect clients:
    ``tacit.Ledger.open(…, unit=tacit.federated.CLIENT)``.

    If the file ``checkpoint`` exists, the run in it goes on; :attr:`state` are arrays of the caller's that
    are kept in it, and :attr:`pending` is the last released update, if the state in the file is older than
    it. ``random_state`` is a seed for tests, and the guarantee says so.

    >>> plan = FederatedPlan(clients=20, cohort=10, rounds=2, noise_multiplier=1.0, delta=1e-5,
    ...                      trust="server")
    >>> rounds = Rounds(plan, shapes=[(3,)], random_state=1)
    >>> one = rounds.begin()
    >>> [one.receive(client, [np.ones(3)]) for client in one.cohort] == [True] * len(one.cohort)
    True
    >>> one.receive(one.cohort[0], [np.ones(3)])
    False
    >>> one.finish()
    [array([..., ..., ...])]
    """

    def __init__(
        self,
        plan: FederatedPlan,
        shapes: Shapes,
        *,
        ledger: Ledger | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        label: str = "federated learning",
        random_state: int | None = None,
    ) -> None:
        if not isinstance(plan, FederatedPlan):
            raise InvalidValue("plan", plan, "a tacit.federated.FederatedPlan")
        self.plan, self.updates = plan, Updates(shapes)
        Reports(plan, self.updates, plan.clip_norm).check()
        self.path = None if checkpoint is None else Path(checkpoint)
        place = None if self.path is None else place_of(self.path)
        self._account = RoundsAccount(plan, ledger, label, place)
        self._cohorts = Cohorts(plan)
        self._seed = random_state
        self._noise = "seeded" if Source(random_state).seeded else plan.noise_kind
        self._open: Round | None = None
        self._turn = threading.Lock()
        self.number = 0
        """The next round, from 0."""
        self.clip_norm = plan.clip_norm
        self.metrics: dict[str, float] = {}
        """The metrics that the last finished round released."""
        self.state: dict[str, NDArray[Any]] = {}
        self.pending: list[Vector] | None = None
        if self.path is not None and self.path.exists():
            self._go_on(Checkpoint.read(self.path))

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise _not_copied()

    def _go_on(self, found: Checkpoint) -> None:
        if found.plan != self.plan.to_dict() or found.shapes != self.updates.shapes:
            raise InvalidValue(
                "checkpoint", str(self.path), "of a run of this plan with these shapes",
                "Name another file; another plan is another run, and is charged by itself.",
            )  # fmt: skip
        self.number = self._account.reopen(found.run, found.number)
        self.clip_norm, self.metrics, self.state = found.clip_norm, found.metrics, found.state
        self._cohorts.asked = found.asked
        self._cohorts.count_unknown(self.number - found.number)
        self._noise = max(self._noise, found.noise, key=NOISE_KINDS.index)
        self.pending = None if found.update is None else self.updates.unflatten(found.update)

    @property
    def finished(self) -> bool:
        """Whether all rounds of the plan were taken."""
        return self.number >= self.plan.rounds

    @property
    def guarantee(self) -> Guarantee:
        """What may be promised about everything that was released, once the run is paid for."""
        if not self._account.paid:
            raise InvalidValue(
                "rounds", "not begun", "begun first", "plan.guarantee() tells what they will promise."
            )
        return replace(self.plan.guarantee(self._noise), unit=self._account.payment.unit)

    def begin(self, cohort: Iterable[int] | None = None) -> Round:
        """Pay, claim the next round, and draw its cohort; a round that is still open is given up.

        ``cohort`` may be given under ``sampling="rotation"``, chosen without looking at any client's data.
        """
        with self._turn:
            source = self.client_source(self.number)
            members = self._cohorts.draw(source, cohort)
            self._account.take(self.number, self._noise)
            if self._open is not None:
                self._open.give_up()
            self.number += 1
            self._cohorts.count(members)
            self._write()
            self._open = Round(self, self.number - 1, members, source)
            self.pending = None
            return self._open

    def client_source(self, number: int, client: int | None = None) -> Source:
        """Bits for one round of the server or of a client; with a seed, others for each round and client.

        Where there is a seed, a run that goes on from a file draws what it would have drawn.
        """
        if self._seed is None:
            return Source()
        text = f"{self._seed} {number} {client}".encode()
        return Source(int.from_bytes(hashlib.sha256(text).digest()[:8], "little"))

    def _write(self, update: Vector | None = None) -> None:
        if self.path is not None:
            Checkpoint(
                self._account.run, self.plan.to_dict(), self.updates.shapes, self.number, self.clip_norm,
                self._cohorts.asked, self._noise, update, self.metrics, self.state,
            ).write(self.path)  # fmt: skip

    def _released(self, update: Vector, metrics: dict[str, float], clip_norm: float) -> None:
        self.metrics, self.clip_norm = metrics, clip_norm
        self._write(update)
        self._open = None


@dataclass(frozen=True)
class PrivateCounts:
    """How the reports of a round fared, for the curator alone: they must not be published."""

    asked: int
    received: int
    zero: int
    refused: int


class Round:
    """One round: who is asked, what came, and what is released of it.

    A report enters the sum once, for a client of the cohort. What was sent cannot raise an error: a report
    that is malformed or not finite counts as zeros, and a second one, one of a stranger or a late one is
    refused.
    """

    def __init__(self, rounds: Rounds, number: int, cohort: tuple[int, ...], source: Source) -> None:
        self._rounds, self._source, self.plan = rounds, source, rounds.plan
        self.number, self.cohort = number, cohort
        """The clients to ask. A Poisson cohort is secret: it is the server's alone."""
        self.clip_norm = self._next_clip_norm = rounds.clip_norm
        self.reports = Reports(self.plan, rounds.updates, self.clip_norm)
        self.metrics: dict[str, float] = {}
        """The released means of the plan's metrics, once the round is finished."""
        self.aborted = False
        """Whether too few reports came to open the sum; nothing of the round is released then."""
        self._waiting = set(cohort)
        self._step = self._grid()
        self._total: Vector = np.zeros(self.reports.dimension)
        self._scratch = np.empty(self.reports.dimension)
        self._offered = self._opened = False
        self._received = self._zero = self._refused = 0
        self._over = False
        self._made: Vector | None = None
        self._update: list[Vector] | None = None
        self._lock = threading.Lock()
        self.rotation_seed = source.bits(63)
        """A public number that clients rotate their reports by ("aggregator")."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise _not_copied()

    def _grid(self) -> float:
        if self.plan.trust in ("nobody", "silo"):
            return grid(self._longest, self.plan.clients)
        return self.reports.step

    @property
    def _longest(self) -> float:
        """The norm that reports are cut to which are protected already, so that none spoils the others."""
        return self.reports.longest_randomized if self.plan.trust == "nobody" else LONGEST

    @property
    def private_counts(self) -> PrivateCounts:
        """For the curator alone."""
        return PrivateCounts(len(self.cohort), self._received, self._zero, self._refused)

    def receive(
        self, client: int, arrays: Any, metrics: Any = None, *, unclipped: bool | None = None
    ) -> bool:
        """Take the report of a client; whether it entered the sum as it was sent, but for clipping.

        ``arrays`` is the update; under "nobody" it is the randomised update. ``metrics`` are figures by
        name, of which those that the plan declares are read. ``unclipped`` says whether the update was within
        clip_norm before the client itself clipped it. Which reports were taken is the curator's to know.
        With a shuffler, the rounds are the shuffler's, who alone knows which client sent which report.
        """
        if self.plan.trust == "aggregator":
            raise InvalidValue(
                "trust", self.plan.trust, "one in which the server sees reports",
                "Give the opened sum to Round.opened.",
            )  # fmt: skip
        with self._lock:
            known = isinstance(client, (int, np.integer)) and not isinstance(client, bool)
            if self._over or not known or client not in self._waiting:
                self._refused += 1
                return False
            self._waiting.remove(client)
            steps = self._checked(client, arrays, metrics, unclipped)
            self._received += 1
            if steps[0] == 0 and not steps.any():
                self._zero += 1
                return False
            np.add(self._total, steps, out=self._total)
            return True

    def _checked(self, client: int, arrays: Any, metrics: Any, unclipped: bool | None) -> Vector:
        weight = self.plan.weight(client)
        if self.plan.trust == "server":
            return self.reports.steps(arrays, metrics, unclipped, weight, self._scratch)
        vector = self._rounds.updates.flatten(arrays, self._scratch)
        if vector is None:
            return np.zeros(self.reports.dimension)
        in_steps(vector, self._longest, self._step)
        return vector if weight == 1 else np.trunc(vector * weight)

    def opened(self, total: NDArray[np.uint64], survivors: Collection[int]) -> bool:
        """Take the sum of the encoded reports of ``survivors``, modulo 2^bits ("aggregator").

        Whether it is used: a sum with fewer survivors than the plan needs must not be opened, has too
        little noise, and is dropped. The first sum counts.
        """
        if self.plan.trust != "aggregator":
            raise InvalidValue("trust", self.plan.trust, "'aggregator' where only the sum is opened")
        with self._lock:
            if self._over or self._offered:
                return False
            self._offered = True
            alive, asked = len(set(survivors) & set(self.cohort)), len(self.cohort)
            if alive < self.plan.needed(asked) or asked > self.plan.largest_cohort:
                return False
            encoder = self.encoder()
            if self.plan.hidden_cohorts:
                # The noise must not tell how many took part: amplification rests on a secret cohort.
                total = encoder.top_up(total, alive, self._source, cohort=asked)
            self._total, self._opened, self._received = encoder.decode(total), True, alive
            return True

    def encoder(self) -> Encoder:
        """What each client of this round encodes its report with ("aggregator").

        ``encoder.encode(report, source, cohort=len(one.cohort))``: shares of noise are sized for the cohort.
        """
        noise = self.plan.distributed(self.clip_norm)
        return noise.encoder(self.reports.dimension, self.rotation_seed)

    def give_up(self) -> None:
        """End the round without a release; it stays charged and taken. A finished round stays finished."""
        with self._lock:
            if self._update is not None:
                return
            self._over = self.aborted = True
            self._update = self._rounds.updates.unflatten(np.zeros(self._rounds.updates.dimension))

    def finish(self) -> list[Vector]:
        """Release the round: the noisy sum of updates ÷ the public expected cohort.

        The checkpoint is written before anything is returned. A second call returns the same arrays, and so
        does one after a checkpoint that could not be written: noise is drawn once. A round with too few
        reports, where the plan needs a quorum, returns zeros, as does one that was given up.
        """
        with self._lock:
            if self._update is None:
                self._rounds._account.check_process()
                self._over = True
                if self._made is None:
                    self._made = self._release()
                self._rounds._released(self._made, self.metrics, self._next_clip_norm)
                self._update = self._rounds.updates.unflatten(self._made)
            return [each.copy() for each in self._update]

    def _release(self) -> Vector:
        plan, clip_norm = self.plan, self.clip_norm
        needed = plan.needed(len(self.cohort))
        self.aborted = not self._opened if plan.trust == "aggregator" else self._received < needed
        if self.aborted:
            update: Vector = np.zeros(self._rounds.updates.dimension)
        else:
            update, beside = self.reports.split(self._noisy())
            update = update / plan.divisor
            shares = [each / plan.cohort for each in beside]
            if isinstance(plan.clipping, Quantile):
                clip_norm = plan.clipping.moved(clip_norm, shares.pop(0) * plan.cohort / 2, plan.cohort)
            self.metrics = {
                metric.name: metric.mean(share) for metric, share in zip(plan.metrics, shares, strict=True)
            }
        self._next_clip_norm = clip_norm
        return update

    def _noisy(self) -> Vector:
        """The sum with its noise; the server adds it under "server", and it is in the sum otherwise."""
        if self.plan.trust == "aggregator":
            return self._total
        total = self._total * self._step
        if self.plan.trust != "server":
            return total
        return np.asarray(self.reports.gaussian(self._source)(total))


def _not_copied() -> InvalidValue:
    return InvalidValue(
        "rounds", "copied or pickled", "kept where they were made: each round is released once",
        "Write a checkpoint, and go on from it.",
    )  # fmt: skip
