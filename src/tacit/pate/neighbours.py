"""PrivateNeighbors: answers from the nearest private rows, without teachers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate, accounting, events
from tacit.data.arithmetic import lengths
from tacit.data.declared import declared_classes
from tacit.data.units import bounded_units, unit_numbers
from tacit.errors import InvalidValue
from tacit.ledger import Payment
from tacit.pate.answering import Answering, PrivateRows
from tacit.pate.noisy_max import GNMax
from tacit.pate.planning import AnswerPlan
from tacit.randomness import Source, bernoulli
from tacit.relations import Relation

__all__ = ["PrivateNeighbors"]


class PrivateNeighbors(Answering):
    """A classifier that learns from noisy votes of the private rows nearest to each public query.

    For each query every unit is sampled anew with ``sampling_rate``; the ``n_neighbors`` rows of the sample
    that are nearest vote with their labels; Gaussian noise is added to the counts, and the largest is the
    answer. Nothing is trained on private rows. Distances are taken in the features as they are: hand in
    features that were computed by a public function, such as a network that was trained on public data or
    :class:`tacit.training.Scattering`.

    **Sensitivity.** A unit of m rows that enters the sample puts at most m of its rows among the nearest,
    and pushes as many others out: at most m votes are added to one count and m taken from another, √2·m in
    the ℓ2 norm. A distance is computed from its row alone, and ties go to the row that comes first, so no
    other row changes its rank.

    **Event.** ``Repeat(PoissonSampled(sampling_rate, Gaussian(z)), n_queries)`` with noise z·√2·m under
    ``add_remove``. Under ``replace_one`` the event requires that a unit which enters the sample moves the
    counts by at most half of what one that is replaced does. That does not hold here (both move them by
    √2·m), so the noise is z·2·√2·m, for which both bounds hold.

    **Released**: the answers and the student (:mod:`tacit.pate.answering`).

    Parameters are those of :class:`~tacit.pate.PATEClassifier`, but for teachers and aggregator;
    ``rows_per_unit`` bounds how many rows of a unit are used.

    Zhu, Yu, Chandraker and Wang 2020, "Private-kNN".

    >>> from sklearn.datasets import make_blobs
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = make_blobs(3000, centers=3, random_state=1)
    >>> model = PrivateNeighbors(
    ...     LogisticRegression(), n_neighbors=50, sampling_rate=0.1, n_queries=30, epsilon=1.0, delta=1e-5,
    ...     classes=[0, 1, 2], random_state=1,
    ... )
    >>> model = model.fit(X[:2500], y[:2500], queries=X[2500:])
    >>> float(np.mean(model.predict(X[2500:]) == y[2500:])) > 0.9
    True
    """

    title = "student of private neighbours"

    def __init__(
        self,
        student: Any = None,
        *,
        n_neighbors: int = 100,
        sampling_rate: float = 0.1,
        epsilon: float = 1.0,
        delta: float = 0.0,
        classes: Any = None,
        n_queries: int | None = None,
        semi_supervised: str | None = None,
        relation: str = "add_remove",
        rows_per_unit: int = 1,
        ledger: Any = None,
        label: str | None = None,
        verbose: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.student = student
        self.n_neighbors = n_neighbors
        self.sampling_rate = sampling_rate
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.n_queries = n_queries
        self.semi_supervised = semi_supervised
        self.relation = relation
        self.rows_per_unit = rows_per_unit
        self.ledger = ledger
        self.label = label
        self.verbose = verbose
        self.random_state = random_state

    def _planned(self, queries: int, payment: Payment) -> AnswerPlan:
        declared_classes(self.classes)
        voters = _validate.count("n_neighbors", self.n_neighbors, 1)
        rate = _validate.probability("sampling_rate", self.sampling_rate)
        if rate == 0:
            raise InvalidValue("sampling_rate", rate, "above 0")
        epsilon, delta = _validate.epsilon(self.epsilon), _validate.delta(self.delta)
        asked = queries if self.n_queries is None else _validate.count("n_queries", self.n_queries, 1)
        if asked > queries:
            raise InvalidValue("n_queries", asked, f"at most the number of queries, {queries}")

        def event(noise: float) -> events.Event:
            return events.Repeat(events.PoissonSampled(rate, events.Gaussian(noise)), asked)

        noise = accounting.calibrate(event, epsilon=epsilon, delta=delta, relation=payment.relation)
        moved = math.sqrt(2) * payment.unit.rows
        if payment.relation is Relation.REPLACE_ONE:
            moved *= 2
        sigma = math.nextafter(noise * moved, math.inf)
        cost = accounting.epsilon(event(noise), delta, relation=payment.relation)
        doubts: tuple[str, ...] = ()
        if sigma > voters / 3:
            doubts = (
                f"The noise on each count, {sigma:.3g}, is more than a third of the {voters} votes: "
                "most answers will be wrong. Ask fewer queries, let more neighbours vote, or raise epsilon=.",
            )
        return AnswerPlan(
            GNMax(sigma=sigma), asked, asked, event(noise), cost, delta, payment.relation, voters,
            doubts=doubts, voters="neighbours",
        )  # fmt: skip

    def _answers(
        self, plan: AnswerPlan, queries: NDArray[Any], rows: PrivateRows, source: Source, tell: Any
    ) -> NDArray[np.int64]:
        used, units = rows.labels >= 0, np.arange(len(rows.labels))
        if rows.units is not None:
            used &= bounded_units(rows.units, self.rows_per_unit, source)
            units = unit_numbers(rows.units)
        matrix, labels, units = rows.matrix[used], rows.labels[used], units[used]
        people = int(units.max(initial=-1)) + 1
        rate, classes = Fraction(self.sampling_rate), len(declared_classes(self.classes))
        votes = np.zeros((len(queries), classes), dtype=np.int64)
        for i, query in enumerate(queries):
            sampled = np.flatnonzero(bernoulli(source, rate, people)[units])
            with np.errstate(all="ignore"):
                apart = lengths(matrix[sampled] - query)
            nearest = sampled[np.argsort(apart, kind="stable")[: plan.teachers]]
            votes[i] = np.bincount(labels[nearest], minlength=classes)
        return np.asarray(plan.aggregator.answer(votes, random_state=source))

    def _facts(self) -> tuple[tuple[str, str], ...]:
        return (
            ("neighbours", f"{self.n_neighbors}, sampled with rate {self.sampling_rate:g} for each query"),
        )
