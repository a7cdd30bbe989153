"""The road of PATE, from rows to answers: teachers, and neighbours without teachers.

The neighbours are one row and the same row with another label, or one row and nobody. The twins: a
partition that gives a row to all teachers, and neighbours that are drawn from all rows and charged as if
from a sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier

from contract.registry import Case, Pair, register
from tacit import audit, events
from tacit.errors import InvalidValue
from tacit.ledger import Ledger
from tacit.pate import GNMax, PATEClassifier, PrivateNeighbors
from tacit.pate.answering import PrivateRows
from tacit.randomness import Source

DELTA, TEACHERS = 0.1, 3
QUERY = np.zeros((1, 1))
HIDDEN = "the noise is that of an aggregator with a case of its own, and shows in labels only"

Rows = tuple[np.ndarray, np.ndarray]


class GivesToAll(PATEClassifier):
    """The twin whose teachers learn from overlapping rows."""

    def _partition(self, plan: Any, rows: PrivateRows, source: Source) -> Any:
        return np.zeros(len(rows.labels), dtype=np.int64)

    def _answers(self, plan: Any, queries: Any, rows: PrivateRows, source: Source, tell: Any) -> Any:
        votes = np.zeros((len(queries), 2), dtype=np.int64)
        votes[:, rows.labels[0]] = TEACHERS
        return plan.aggregator.answer(votes, random_state=source)


class TakesAll(PrivateNeighbors):
    """The twin that draws no sample, and is charged for one."""

    def _answers(self, plan: Any, queries: Any, rows: PrivateRows, source: Source, tell: Any) -> Any:
        self.sampling_rate = 1.0
        return super()._answers(plan, queries, rows, source, tell)


def teachers(kind: type[PATEClassifier] = PATEClassifier, **changed: Any) -> PATEClassifier:
    given: dict[str, Any] = {
        "teacher": DummyClassifier(), "student": DummyClassifier(), "n_teachers": TEACHERS,
        "aggregator": GNMax(math.sqrt(2)), "epsilon": 50.0, "delta": DELTA, "classes": [0, 1],
        "relation": "replace_one", "n_queries": 1,
    }  # fmt: skip
    return kind(**given | changed)


def neighbours(kind: type[PrivateNeighbors] = PrivateNeighbors, **changed: Any) -> PrivateNeighbors:
    given: dict[str, Any] = {
        "student": DummyClassifier(), "n_neighbors": 3, "sampling_rate": 0.5, "epsilon": 1.0, "delta": DELTA,
        "classes": [0, 1], "n_queries": 1,
    }  # fmt: skip
    return kind(**given | changed)


class Answered:
    """A fit as a mechanism: from rows and labels to the answers to one query."""

    def __init__(self, make: Callable[[], Any], claims: events.Event, random_state: int | None) -> None:
        self.model, self.event = make(), claims
        self.random_state, self.source = random_state, Source(random_state)
        self.noise = "seeded" if self.source.seeded else "exact"
        self.plan = self.model.plan(1)

    def __call__(self, data: Rows, queries: np.ndarray = QUERY) -> np.ndarray:
        rows = PrivateRows(data[0], data[1], None)
        return np.asarray(self.model._answers(self.plan, queries, rows, self.source, None))


def many(make: Any, data: Rows, runs: int, seed: int | None) -> np.ndarray:
    """Independent runs as queries of one fit: the sample and the noise of each query are its own."""
    return np.asarray(make(seed)(data, np.zeros((runs, 1))))


def fitted(ledger: Ledger, answered: Answered, access: Callable[[], Any]) -> Any:
    """The road of a fit to rows that are read inside the charge."""
    model = answered.model.set_params(ledger=ledger, random_state=answered.random_state)
    return model.fit_rows(QUERY, lambda: (*access(), None))


def zero(labels: np.ndarray) -> np.ndarray:
    return (labels == 0).astype(float)


def refused(make: Callable[..., Any], **parameters: Any) -> tuple[str, Callable[[], Any], type[Exception]]:
    def fit() -> Any:
        return make(**parameters).fit(QUERY, [0], QUERY)

    return f"{make.__name__}({parameters})", fit, InvalidValue


ONE: Rows = (QUERY, np.array([0]))
OTHER: Rows = (QUERY, np.array([1]))
BESIDE: Rows = (np.array([[0.0], [1.0], [1.0], [1.0]]), np.array([0, 1, 1, 1]))
WITHOUT: Rows = (BESIDE[0][1:], BESIDE[1][1:])

register(
    Case(
        name="pate_classifier",
        event=teachers().plan(1).event,
        delta=DELTA,
        make=partial(Answered, teachers, teachers().plan(1).event),
        broken=partial(Answered, partial(teachers, GivesToAll), teachers().plan(1).event),
        data=ONE,
        pair=Pair(ONE, OTHER, zero, many, (20_000, 20_000), audit.Split(seed=0)),
        bad_inputs=(
            refused(teachers, classes=None),
            refused(teachers, n_teachers=0),
            refused(teachers, aggregator="gnmax"),
            refused(teachers, epsilon=math.nan),
            refused(teachers, delta=1.0),
            refused(teachers, relation="both"),
            refused(teachers, teacher=None),
            refused(teachers, n_queries=2),
        ),
        relation="replace_one",
        release=fitted,
        covers=frozenset({"PATEClassifier"}),
        left_out={"noise": HIDDEN},
    )
)
register(
    Case(
        name="private_neighbors",
        event=neighbours().plan(1).event,
        delta=DELTA,
        make=partial(Answered, neighbours, neighbours().plan(1).event),
        broken=partial(Answered, partial(neighbours, TakesAll), neighbours().plan(1).event),
        data=BESIDE,
        pair=Pair(BESIDE, WITHOUT, zero, many, (20_000, 20_000), audit.Split(seed=0)),
        bad_inputs=(
            refused(neighbours, classes=[0]),
            refused(neighbours, n_neighbors=0),
            refused(neighbours, sampling_rate=1.5),
            refused(neighbours, epsilon=0.0),
            refused(neighbours, student=None),
        ),
        release=fitted,
        covers=frozenset({"PrivateNeighbors"}),
        left_out={"noise": HIDDEN},
    )
)
