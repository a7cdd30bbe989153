"""Aggregators of votes: one query each, with the neighbours that an answer tells apart best.

The twins: two thirds of the noise or less; noise that is added inside the maximum and charged once, as if it
were the noise of the maximum; a cost that is released with the noise of a far smaller sensitivity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from contract import registry
from contract.registry import Case, Pair, register
from tacit import audit, events
from tacit.errors import InvalidValue
from tacit.ledger import Ledger
from tacit.mechanisms import Gaussian
from tacit.pate import (
    ConfidentGNMax,
    GNMax,
    GumbelMax,
    InteractiveGNMax,
    LNMax,
    MeanVote,
    MedianVote,
    MultiLabel,
    sanitise,
)
from tacit.pate.sanitising import _event, sanitising_scale
from tacit.randomness import Source

SECRET = int(registry.SECRET)
HIDDEN = "the noise is that of a mechanism with a case of its own, and shows in labels only"
DELTA = 0.1

BAD_VOTES: tuple[Any, ...] = (
    [[SECRET, -1]],
    [[SECRET, np.nan]],
    [[SECRET, np.inf]],
    [[SECRET, 0.5]],
    [[SECRET]],
    [SECRET, 3],
    [[[SECRET, 3]]],
    [[SECRET, 3], [SECRET]],
    [["a", "b"]],
    [[True, False]],
    [[SECRET + 0j, 3]],
    None,
    np.ma.masked_array([[SECRET, 3]], [[True, False]]),
)


class Asked:
    """One query to an aggregator as a mechanism: from votes, or predictions, to what is answered."""

    def __init__(
        self,
        make: Callable[[], Any],
        context: dict[str, Any],
        claims: events.Event,
        random_state: int | Source | None,
    ) -> None:
        self.aggregator, self.context, self.event = make(), context, claims
        self.random_state = random_state
        self.source = random_state if isinstance(random_state, Source) else Source(random_state)
        self.noise = "seeded" if self.source.seeded else "exact"

    def __call__(self, votes: Any) -> np.ndarray:
        return self.aggregator.answer(votes, random_state=self.source, **self.context)


def asks(ledger: Ledger, asked: Asked, access: Callable[[], Any]) -> Any:
    """The road of a release: the aggregator charges its ledger, then has the votes read."""
    stop = {"answers": 1} if getattr(asked.aggregator, "tests", False) else {}
    return asked.aggregator.release(
        access, asked=1, ledger=ledger, delta=DELTA if asked.event_needs_delta else 0.0,
        random_state=asked.random_state, **asked.context, **stop,
    )  # fmt: skip


def many(axis: int, make: Any, data: np.ndarray, runs: int, seed: int | None) -> np.ndarray:
    """Independent runs as queries of one call: the noise of each query is its own."""
    asked = make(seed)
    asked.context = {name: np.repeat(value, runs, axis=0) for name, value in asked.context.items()}
    return np.asarray(asked(np.repeat(data, runs, axis=axis)))


def registered(
    name: str,
    make: Callable[[], Any],
    broken: Callable[[], Any],
    neighbours: tuple[Any, Any],
    score: Callable[[np.ndarray], np.ndarray],
    *,
    data: Any,
    delta: float = DELTA,
    runs: int = 20_000,
    axis: int = 0,
    context: dict[str, Any] | None = None,
    bad: tuple[tuple[str, Callable[[], Any], type[Exception]], ...] = (),
    bad_data: tuple[Any, ...] = BAD_VOTES,
) -> None:
    event, given = make().event(asked=1), context or {}
    first, second = (np.asarray(each) for each in neighbours)

    class OneQuery(Asked):
        event_needs_delta = delta > 0

    calls = tuple(
        (f"answer({value!r:.40})", partial(make().answer, value, **given), InvalidValue) for value in bad_data
    )
    register(
        Case(
            name=name,
            event=event,
            delta=delta,
            make=partial(OneQuery, make, given, event),
            broken=partial(OneQuery, broken, given, event),
            data=np.asarray(data),
            pair=Pair(first, second, score, partial(many, axis), (runs, runs), audit.Split(seed=0)),
            bad_inputs=(*bad, *calls),
            release=asks,
            covers=frozenset({type(make()).__name__}),
            left_out={"noise": HIDDEN},
        )
    )


def first_wins(labels: np.ndarray) -> np.ndarray:
    return (labels == 0).astype(float)


def refused(kind: type, **parameters: Any) -> tuple[str, Callable[[], Any], type[Exception]]:
    return f"{kind.__name__}({parameters})", partial(kind, **parameters), InvalidValue


ROOT = 2**0.5
TIE = [[50, 50]]
LOST, LOST_MORE = [[48, 52]], [[47, 53]]

registered(
    "gnmax",
    partial(GNMax, ROOT),
    partial(GNMax, ROOT * 2 / 3),
    (TIE, [[49, 51]]),
    first_wins,
    data=TIE,
    bad=(
        refused(GNMax, sigma=0.0),
        refused(GNMax, sigma=np.nan),
        refused(GNMax, teachers=0),
        ("sum", partial(GNMax(teachers=3).answer, [[SECRET, 1]]), InvalidValue),
        ("asked", lambda: GNMax().release(lambda: TIE, delta=DELTA), InvalidValue),
        ("no delta", lambda: GNMax().release(TIE), InvalidValue),
        ("random_state", lambda: GNMax().answer(TIE, random_state=-1), InvalidValue),
    ),
)
registered(
    "lnmax",
    partial(LNMax, 0.5),
    partial(LNMax, 0.75),
    (LOST, LOST_MORE),
    first_wins,
    data=TIE,
    delta=0.0,
    runs=100_000,
    bad=(refused(LNMax, gamma=0.0), refused(LNMax, gamma=np.inf), refused(LNMax, gamma="1")),
)
registered(
    "gumbel_max",
    partial(GumbelMax, 1.0),
    partial(GumbelMax, 1.5),
    (LOST, LOST_MORE),
    first_wins,
    data=TIE,
    delta=0.0,
    runs=100_000,
    bad=(refused(GumbelMax, epsilon=0.0), refused(GumbelMax, epsilon=2.0**-40)),
)


class NoiseInsideTheMaximum(ConfidentGNMax):
    """Tests, and answers from, the noisy counts of the test, as if only their maximum had been seen."""

    def answer(self, votes: Any, *, random_state: Any = None, **_: Any) -> np.ndarray:
        noise = Gaussian(ROOT, noise_multiplier=self.sigma_threshold / ROOT, random_state=random_state)
        noisy = noise(np.asarray(votes))
        return np.where(noisy.max(axis=1) >= self.threshold, noisy.argmax(axis=1), -1)


registered(
    "confident_gnmax",
    partial(ConfidentGNMax, 0, 1.0, 3 * ROOT),
    partial(NoiseInsideTheMaximum, 0, 1.0, 3 * ROOT),
    (TIE, [[49, 51]]),
    first_wins,
    data=TIE,
    bad=(
        refused(ConfidentGNMax, threshold=np.nan),
        refused(ConfidentGNMax, sigma_threshold=0.0),
        refused(ConfidentGNMax, sigma_answer=-1.0),
        ("neither ledger nor answers", lambda: ConfidentGNMax().release(TIE, delta=DELTA), InvalidValue),
        ("answers", lambda: ConfidentGNMax().release(TIE, answers=-1, delta=DELTA), InvalidValue),
        ("more answers", lambda: ConfidentGNMax().event(asked=1, answered=2), InvalidValue),
    ),
)
registered(
    "confident_gnmax_test",
    partial(ConfidentGNMax, 51, 1.0, 40 * ROOT),
    partial(ConfidentGNMax, 51, 2 / 3, 40 * ROOT),
    ([[51, 49]], TIE),
    lambda labels: (labels >= 0).astype(float),
    data=[[51, 51]],
)
registered(
    "interactive_gnmax",
    partial(InteractiveGNMax, 1.0, 1.0, 40 * ROOT, teachers=100),
    partial(InteractiveGNMax, 1.0, 2 / 3, 40 * ROOT, teachers=100),
    ([[51, 49]], TIE),
    lambda labels: (labels >= 0).astype(float),
    data=[[51, 49]],
    context={"student": np.array([[0.5, 0.5]])},
    bad=(
        refused(InteractiveGNMax),
        refused(InteractiveGNMax, teachers=100, confidence=1.0),
        ("no student", partial(InteractiveGNMax(teachers=100).answer, TIE), InvalidValue),
        ("student", partial(InteractiveGNMax(teachers=100).answer, TIE, student=[[2.0, 0.0]]), InvalidValue),
    ),
)

BAD_PREDICTIONS: tuple[Any, ...] = ([SECRET], [[SECRET], [1, 2]], "text", None, [[[[SECRET]]]], [["a"]])


def labels_given(labels: np.ndarray) -> np.ndarray:
    return labels.sum(axis=1).astype(float)


def two_teachers(first: int, second: int) -> np.ndarray:
    return np.array([[[first] * 4], [[second] * 4]])


registered(
    "multi_label_counts",
    partial(MultiLabel, 4, 2.0, threshold=1.5, teachers=2),
    partial(MultiLabel, 4, 1.0, threshold=1.5, teachers=2),
    (two_teachers(1, 1), two_teachers(1, 0)),
    labels_given,
    data=two_teachers(1, 0),
    axis=1,
    bad=(
        refused(MultiLabel, labels=0, teachers=2),
        refused(MultiLabel, labels=2, method="votes", teachers=2),
        refused(MultiLabel, labels=2, method="clipped", teachers=2),
        refused(MultiLabel, labels=2, clip_norm=1.0, teachers=2),
        refused(MultiLabel, labels=20, method="powerset", teachers=2),
    ),
    bad_data=BAD_PREDICTIONS,
)
registered(
    "multi_label_clipped",
    partial(MultiLabel, 4, ROOT, method="clipped", clip_norm=1.0, threshold=0.5, teachers=1),
    partial(MultiLabel, 4, ROOT / 2, method="clipped", clip_norm=1.0, threshold=0.5, teachers=1),
    (np.array([[[1, 0, 0, 0]]]), np.array([[[0, 1, 0, 0]]])),
    lambda labels: (labels[:, 0] - labels[:, 1]).astype(float),
    data=np.array([[[1, 0, 0, 0]]]),
    axis=1,
    bad_data=BAD_PREDICTIONS,
)
registered(
    "multi_label_powerset",
    partial(MultiLabel, 1, ROOT, method="powerset", teachers=2),
    partial(MultiLabel, 1, ROOT * 2 / 3, method="powerset", teachers=2),
    (np.array([[[1]], [[0]]]), np.array([[[0]], [[0]]])),
    labels_given,
    data=np.array([[[1]], [[0]]]),
    axis=1,
    bad_data=BAD_PREDICTIONS,
)
registered(
    "mean_vote",
    partial(MeanVote, (0.0, 10.0), 1.0, teachers=1),
    partial(MeanVote, (0.0, 10.0), 2 / 3, teachers=1),
    ([[12.0]], [[-3.0]]),
    lambda values: values,
    data=[[5.0]],
    axis=1,
    bad=(
        refused(MeanVote, bounds=(1.0, 1.0), teachers=2),
        refused(MeanVote, bounds=(0.0, np.inf), teachers=2),
        refused(MeanVote, bounds=(0.0, 1.0), noise_multiplier=0.0, teachers=2),
        refused(MeanVote, bounds=(0.0, 1.0), teachers=0),
    ),
    bad_data=BAD_PREDICTIONS,
)
registered(
    "median_vote",
    partial(MedianVote, (0.0, 10.0), 1.0, 2, teachers=1),
    partial(MedianVote, (0.0, 10.0), 3.0, 2, teachers=1),
    ([[0.0]], [[10.0]]),
    lambda values: -values,
    data=[[np.nan]],
    delta=0.0,
    axis=1,
    bad=(
        refused(MedianVote, bounds=(0.0, 1.0), candidates=1, teachers=2),
        refused(MedianVote, bounds=(0.0, 1.0), epsilon=0.0, teachers=2),
    ),
    bad_data=BAD_PREDICTIONS,
)

# ------------------------------------------------------------------ the cost itself, with noise

PRICE: dict[str, Any] = {"order": 5.0, "cost": 0.5, "beta": 0.02}
CLAIMED = _event(5.0, 0.02, sanitising_scale(5.0, 0.02, 0.5))
COSTLY = GNMax(10.0, teachers=40)
SPLIT = [[20, 20]]


class Costing:
    """The data-dependent cost of one answer, released; in the twin at a price it was not charged."""

    def __init__(self, cost: float, random_state: int | Source | None) -> None:
        self.event, self.cost, self.random_state = CLAIMED, cost, random_state
        self.source = random_state if isinstance(random_state, Source) else Source(random_state)
        self.noise = "seeded" if self.source.seeded else "float64"

    def __call__(self, votes: Any) -> float:
        how = {**PRICE, "cost": self.cost}
        return sanitise(
            COSTLY, votes, delta=DELTA, confidence=0.5, random_state=self.source, **how
        ).divergence


def costs(ledger: Ledger, costing: Costing, access: Callable[[], Any]) -> Any:
    return sanitise(
        COSTLY, access, classes=2, delta=DELTA, ledger=ledger, random_state=costing.random_state, **PRICE
    )


def often(make: Any, data: Any, runs: int, seed: int | None) -> np.ndarray:
    made = make(seed)
    return np.array([made(data) for _ in range(runs)])


ENDS = [[34, 6]] * 3, [[33, 7]] * 3

register(
    Case(
        name="sanitised_cost",
        event=CLAIMED,
        delta=DELTA,
        make=partial(Costing, 0.5),
        broken=partial(Costing, 60.0),
        data=ENDS[0],
        pair=Pair(ENDS[1], ENDS[0], np.asarray, often, (200, 200), audit.Split(seed=0)),
        bad_inputs=(
            ("order", lambda: sanitise(COSTLY, SPLIT, order=1.0, cost=0.5, delta=DELTA), InvalidValue),
            ("cost", lambda: sanitise(COSTLY, SPLIT, order=5.0, cost=0.0, delta=DELTA), InvalidValue),
            (
                "beta",
                lambda: sanitise(COSTLY, SPLIT, order=5.0, cost=0.5, beta=0.3, delta=DELTA),
                InvalidValue,
            ),
            ("teachers", lambda: sanitise(replace(COSTLY, teachers=None), SPLIT, **PRICE), InvalidValue),
            ("classes", lambda: sanitise(COSTLY, lambda: SPLIT, **PRICE, delta=DELTA), InvalidValue),
            ("votes", lambda: sanitise(COSTLY, [[SECRET, -1]], **PRICE, delta=DELTA), InvalidValue),
            ("expected", lambda: sanitise(COSTLY, SPLIT, **PRICE, answered="expected"), InvalidValue),  # type: ignore[arg-type]
        ),
        release=costs,
        covers=frozenset({"sanitise"}),
        left_out={"noise": "its scale depends on the votes"},
    )
)
