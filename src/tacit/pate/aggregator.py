"""What every aggregator of votes does: answer, cost, release."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate, events
from tacit.accounting import rdp
from tacit.accounting.terms import resolve
from tacit.errors import InvalidValue
from tacit.pate.bounds import Array, checked_orders, gaps_of, worst_gaps
from tacit.pate.cost import RenyiCost
from tacit.pate.releasing import CHOSEN_BY_ROWS, Answers, Asking, source_of
from tacit.pate.votes import Int64, Labels, checked_votes
from tacit.randomness import Source
from tacit.relations import Relation, Unit

__all__ = ["ABSTAINED", "Aggregator"]

ABSTAINED = -1
"""The label of a query that the teachers did not answer."""

DIRECTIONS = ("both", "one")
_ROWS = 4096
Bool = NDArray[np.bool_]


@dataclass(frozen=True)
class Aggregator:
    """Base of the aggregators: from votes of shape (queries, classes) to one label per query.

    *Relation.* Each record is seen by one teacher. Under ``add_remove`` that teacher is chosen without
    looking at other records: by a hash of the record, or at random for each. Under ``replace_one`` it is
    chosen by nothing that a replacement changes: by the place of the record, by a key that stays, or at
    random for each place. A hash of the content does not do there: the new record may go to another teacher,
    so that two teachers are retrained and the answers may reveal four times the Rényi divergence. With the
    right choice one change of the records retrains one teacher, and changes that teacher's vote on each
    query: one vote moves from one class to another. So the costs are the same under both relations.

    *Sensitivity.* The votes of a query move by √2 in ℓ2 and by 2 in ℓ1, each count by 1 at most.

    ``teachers`` declares how many teachers vote; votes that do not sum to it are refused.
    """

    teachers: int | None = field(default=None, kw_only=True)

    tests: ClassVar[bool] = False
    """Whether queries are tested first, and answered only if they pass."""

    def __post_init__(self) -> None:
        if self.teachers is not None:
            self._keep("teachers", _validate.count("teachers", self.teachers, 1))

    def _keep(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    # ------------------------------------------------------------------ what a subclass says

    def _answer_event(self) -> events.Event:
        """One answer."""
        raise NotImplementedError

    def _test_event(self) -> events.Event:
        """One test, passed or not."""
        raise NotImplementedError

    def _labels(self, votes: Int64, source: Source) -> Labels:
        """A label for each query, by noise from ``source``."""
        raise NotImplementedError

    def _passed(self, votes: Int64, student: Array | None, source: Source) -> Bool:
        """Which queries pass the test."""
        return np.ones(len(votes), dtype=np.bool_)

    def _unanswered(self, queries: int, student: Array | None) -> Labels:
        """The labels of queries that do not pass, from public facts alone."""
        return np.full(queries, ABSTAINED, dtype=np.int64)

    def _student(self, student: Any, shape: tuple[int, ...]) -> Array | None:
        """The predictions of the student, for aggregators that compare the votes with them."""
        if student is not None:
            raise InvalidValue("student", type(student), "left out", "Only InteractiveGNMax takes it.")
        return None

    def _test_chances(self, votes: Int64, student: Array | None) -> Array:
        """The probability of each query to pass."""
        return np.ones(len(votes))

    def _test_cost(self, votes: Int64, student: Array | None, orders: Array, both: bool) -> Array:
        """Data-dependent divergences of all tests together."""
        return np.zeros_like(orders)

    def _log_q(self, gaps: Int64) -> Array:
        """ln of a bound on the probability that a query is answered with another class than the winner."""
        raise NotImplementedError

    def _answer_cost(self, log_q: Array, weights: Array, orders: Array) -> Array:
        """Data-dependent divergences of the answers, each with its weight, together."""
        raise NotImplementedError

    # ------------------------------------------------------------------ what everybody calls

    def event(self, *, asked: int, answered: int | None = None) -> events.Event:
        """What is charged for ``asked`` queries of which ``answered`` were answered (unless told, all)."""
        queries = _validate.count("asked", asked)
        answers = queries if answered is None else _validate.count("answered", answered)
        if answers > queries or (answers < queries and not self.tests):
            requirement = f"at most asked, {queries}" if self.tests else f"{queries}: every query is answered"
            raise InvalidValue("answered", answered, requirement)
        answering = events.Repeat(self._answer_event(), answers)
        if not self.tests:
            return answering
        return events.Compose((events.Repeat(self._test_event(), queries), answering))

    def answer(
        self, votes: ArrayLike, *, student: ArrayLike | None = None, random_state: int | Source | None = None
    ) -> Labels:
        """The label of each query, −1 where the aggregator abstains.

        This is the mechanism alone and charges nothing: whoever calls it charges
        ``event(asked=len(votes), answered=(labels >= 0).sum())``; :meth:`release` does both.
        """
        counts = self._checked(votes)
        given = self._student(student, counts.shape)
        source = source_of(random_state)
        return self._answered(counts, given, self._passed(counts, given, source), source)

    def release(
        self,
        votes: ArrayLike | Callable[[], ArrayLike],
        *,
        asked: int | None = None,
        answers: int | None = None,
        student: ArrayLike | None = None,
        ledger: Any = None,
        delta: float = 0.0,
        relation: Relation | str | None = None,
        unit: Unit | None = None,
        label: str | None = None,
        random_state: int | Source | None = None,
    ) -> Answers:
        """Answers that are charged before the votes are used, with their guarantee.

        ``votes`` is an array, or a function that returns one and is called inside the charge; then ``asked``
        says how many queries it has. ``answers`` stops an aggregator that tests after so many answers: the
        tests and that many answers are charged as one event, and the guarantee is its ε at ``delta``.
        Without ``answers`` it goes on to the last query: the tests are charged first, and then the answers
        that are given, as a second entry, each at ``delta``. How many they are depends on the rows. Only a
        filter makes that sound, so a ledger is needed, and the guarantee is the budget that the ledger
        enforces.
        """
        asking = Asking(self, answers=answers, delta=delta, label=label, random_state=random_state)
        return asking.release(votes, asked, student, ledger, relation, unit)

    def rdp(
        self,
        votes: ArrayLike,
        orders: ArrayLike,
        *,
        data_dependent: bool = False,
        directions: str = "both",
        answered: ArrayLike | str | None = None,
        student: ArrayLike | None = None,
    ) -> RenyiCost:
        """Rényi divergences of answering these queries, at ``orders``.

        ``answered`` says which queries were answered, as booleans (``labels >= 0``); None counts all of them.
        ``"expected"`` weights each answer with its probability, as the tables of the paper do.

        ``data_dependent`` lowers the bound where the teachers agree. It is computed from the votes and hence
        not releasable (see :class:`RenyiCost`). ``directions="both"`` bounds both divergences between the
        votes and every neighbour; ``"one"`` is the published bound, which leaves one of them out.
        """
        counts = self._checked(votes)
        given = self._student(student, counts.shape)
        at = checked_orders(orders)
        both = _validate.choice("directions", directions, DIRECTIONS) == "both"
        weights = self._weights(counts, given, answered)
        expected = isinstance(answered, str)
        if data_dependent:
            total = self._answer_cost(self._all_log_q(counts, both), weights, at)
            total = np.minimum(total, weights.sum() * self._curve(self._answer_event(), at))
            if self.tests:
                total = total + self._test_cost(counts, given, at, both)
        else:
            total = weights.sum() * self._curve(self._answer_event(), at)
            if self.tests:
                total = total + len(counts) * self._curve(self._test_event(), at)
        releasable = not data_dependent and not (expected and self.tests)
        chosen = (CHOSEN_BY_ROWS,) if self.tests and answered is not None else ()
        return RenyiCost(at, total, releasable, "both" if both else "one", expected, chosen)

    # ------------------------------------------------------------------ shared by the two

    def _all_log_q(self, votes: Int64, both: bool) -> Array:
        """ln q of every query, or of the worst of its neighbours, a block that fits the cache at a time."""
        found = np.empty(len(votes))
        for start in range(0, len(votes), _ROWS):
            gaps = gaps_of(votes[start : start + _ROWS])
            found[start : start + _ROWS] = self._log_q(worst_gaps(gaps) if both else gaps)
        return found

    def _checked(self, votes: Any) -> Int64:
        return checked_votes(votes, teachers=self.teachers)

    def _answered(self, votes: Int64, student: Array | None, passed: Bool, source: Source) -> Labels:
        labels = self._unanswered(len(votes), student)
        labels[passed] = self._labels(votes[passed], source)
        return labels

    def _weights(self, votes: Int64, student: Array | None, answered: Any) -> Array:
        """How much of each answer is counted."""
        if isinstance(answered, str):
            _validate.choice("answered", answered, ("expected",))
            return self._test_chances(votes, student)
        if answered is None:
            return np.ones(len(votes))
        mask = np.asarray(answered)
        if mask.dtype.kind != "b" or mask.shape != (len(votes),):
            raise InvalidValue("answered", mask.shape, f"{len(votes)} booleans, one per query")
        if not self.tests and not mask.all():
            advice = "Leave it out: this aggregator answers every query."
            raise InvalidValue("answered", int(mask.sum()), f"all of {len(votes)} queries", advice)
        return mask.astype(float)

    @staticmethod
    def _curve(event: events.Event, orders: Array) -> Array:
        return rdp.curve(resolve(event, Relation.REPLACE_ONE), orders).divergences


ROOT = math.sqrt(2.0)
"""The ℓ2 sensitivity of the votes on one query, rounded up."""
