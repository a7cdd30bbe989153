"""A batch of reports that was shuffled: each person answers by randomized response, and only counts are seen.

The twin claims twice as many reports as were mixed. The neighbours differ in one answer, 0 or 1, and the
others all answer 2: with a third value the reports of the others hide the least.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from contract.registry import SECRET, Case, Claiming, Make, Pair, register
from tacit import events, mechanisms
from tacit.errors import InvalidValue
from tacit.ledger import Ledger

REPORTS, LOCAL, FAILURE = 32, events.RandomizedResponse(2.0, 3), 0.03
EVENT = events.Shuffled(LOCAL, REPORTS)


@dataclasses.dataclass
class Batch:
    """How often each category was reported, for the first ``people`` of every row of answers."""

    people: int
    random_state: Any = None

    def __post_init__(self) -> None:
        self.ask = mechanisms.RandomizedResponse(
            LOCAL.epsilon, LOCAL.categories, random_state=self.random_state
        )
        self.event, self.noise = events.Shuffled(LOCAL, self.people), self.ask.noise

    def __call__(self, answers: Any) -> np.ndarray:
        reports = self.ask(np.asarray(answers)[..., : self.people])
        return np.stack([(reports == category).sum(axis=-1) for category in range(LOCAL.categories)], axis=-1)


def collected(ledger: Ledger, batch: Batch, access: Callable[[], Any]) -> Any:
    """The road of a batch: the charge, at a δ above 0, and then the answers."""
    with ledger.charge(batch.event, label="shuffled batch", delta=FAILURE, noise=batch.noise):
        return batch(access())


def answers(first: int) -> np.ndarray:
    return np.array([first] + [2] * (REPORTS - 1))


def many(make: Make, data: Any, runs: int, seed: int | None) -> np.ndarray:
    """Independent batches in one call."""
    return np.asarray(make(seed)(np.broadcast_to(data, (runs, len(data)))))


def loss(counts: np.ndarray) -> np.ndarray:
    """The logarithm of the ratio of likelihoods: each report is that of the person in question with the
    same chance.
    """
    growth = np.exp(LOCAL.epsilon)
    zeros, ones, others = counts.T
    return np.log(ones * growth + zeros + others / growth) - np.log(ones + zeros * growth + others / growth)


register(
    Case(
        name="shuffled_responses",
        event=EVENT,
        delta=FAILURE,
        make=partial(Batch, REPORTS),
        broken=lambda random_state: Claiming(Batch(REPORTS // 2, random_state), EVENT),
        data=answers(0),
        pair=Pair(answers(1), answers(0), loss, many, runs=(40_000, 40_000)),
        bad_inputs=(
            ("an answer that is no category", lambda: Batch(REPORTS, 1)([0, int(SECRET)]), InvalidValue),
            ("no reports", lambda: events.Shuffled(LOCAL, 0), InvalidValue),
            ("half a report", lambda: events.Shuffled(LOCAL, 1.5), InvalidValue),
            ("noise with a δ", lambda: events.Shuffled(events.Gaussian(1.0), 10), InvalidValue),
            ("a batch of batches", lambda: events.Shuffled(EVENT, 10), InvalidValue),
            ("no event", lambda: events.Shuffled(1.0, 10), InvalidValue),
        ),
        relation="replace_one",
        release=collected,
        left_out={
            "noise": "a count of reports depends on all answers; that of one report is seen in its own case"
        },
    )
)
