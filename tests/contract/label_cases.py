"""Estimators that protect labels alone, audited by what their bases are handed: the only thing that leaves a
fit.

A fit randomizes every label on its own, so one fit to many rows with the same label shows as many independent
responses. The twins randomize with a larger ε than they claim; and there is one whose prior was fitted to the
very labels that it is used for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from contract.registry import SECRET, Case, Pair, register
from tacit import audit, events
from tacit.errors import InvalidValue
from tacit.labels import (
    PATEFM,
    LabelPrivateClassifier,
    LabelPrivateRegressor,
    NoisyOneHot,
    Response,
    SubsetResponse,
)
from tacit.labels.bins import ResponseOnBins, cell_of
from tacit.labels.prior import ResponseWithPrior
from tacit.ledger import Ledger
from tacit.mechanisms import Gaussian
from tacit.randomness import Source
from tacit.relations import LABEL

ROWS = 40
FEATURES = np.zeros((ROWS, 1))


class Watching(ClassifierMixin, BaseEstimator):
    """A classifier that keeps what it is handed, and predicts nothing of use."""

    def fit(self, X: Any, y: Any) -> Watching:
        self.seen_, self.classes_ = np.asarray(y), np.unique(y)
        return self

    def fit_responses(self, X: Any, log_likelihood: Any) -> Watching:
        self.seen_, self.classes_ = log_likelihood, np.arange(log_likelihood.shape[1])
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


class WatchingNumbers(RegressorMixin, BaseEstimator):
    """A regression that keeps what it is handed."""

    def fit(self, X: Any, y: Any) -> WatchingNumbers:
        self.seen_ = np.asarray(y)
        return self


class Seeing:
    """A fit as a mechanism: from the labels of all rows to what its base is handed."""

    def __init__(self, estimator: Any, event: events.Event, random_state: int | None) -> None:
        self.estimator = estimator.set_params(random_state=random_state)
        self.source, self.event = Source(random_state), event
        self.noise = "seeded" if self.source.seeded else "exact"

    def __call__(self, labels: Any) -> np.ndarray:
        rows = len(labels)
        features = np.zeros((rows, 1))
        self.estimator._planned(features, rows)
        self.estimator._learn(features, np.asarray(labels), self.source)
        return np.asarray(self.estimator.base_.seen_)


def fits(ledger: Ledger, seeing: Seeing, access: Callable[[], Any]) -> Any:
    """The road of a fit: the charge, and then the labels."""
    return seeing.estimator.set_params(ledger=ledger).fit_labels(FEATURES, access)


def in_rows(make: Any, data: int, runs: int, seed: int | None) -> np.ndarray:
    """As many responses as rows, of one fit to labels that are all the same."""
    return make(seed)(np.full(runs, data))


BAD_LABELS: tuple[Any, ...] = (None, "no", np.zeros((ROWS, 2)), np.zeros(3))


def refused(make: Callable[..., Any], wrong: tuple[dict[str, Any], ...]) -> Any:
    """Parameters and labels that no fit takes; none of the errors shows a label."""
    calls = [
        (f"{parameters}", lambda p=parameters: make().set_params(**p).fit(FEATURES, np.zeros(ROWS)))
        for parameters in wrong
    ]
    calls += [(f"labels {type(bad)}", lambda bad=bad: make().fit(FEATURES, bad)) for bad in BAD_LABELS]
    text = np.full(ROWS, SECRET)
    calls.append(("labels stored as text", lambda: make().fit(FEATURES, text)))
    return tuple((what, call, InvalidValue) for what, call in calls)


WRONG = (
    {"epsilon": 0.0}, {"epsilon": np.nan}, {"classes": None}, {"classes": [1, 1]}, {"base": object()},
    {"method": "none"}, {"delta": 1.0}, {"rounds": 0}, {"folds": 1}, {"random_state": -1},
)  # fmt: skip


def classifier(method: str, *, epsilon: float = 1.0, claimed: Any, **more: Any) -> Callable[..., Seeing]:
    def make(seed: int | None) -> Seeing:
        base = LabelPrivateClassifier(Watching(), epsilon, method=method, classes=[0, 1, 2], **more)
        return Seeing(base, claimed, seed)

    return make


def told(seen: np.ndarray) -> np.ndarray:
    """The log-likelihood ratio of label 1 against label 0, from what a base is handed."""
    return seen[:, 1] - seen[:, 0]


def chosen(seen: np.ndarray) -> np.ndarray:
    return (seen == 1).astype(float)


def register_classifier(method: str, event: events.Event, *, delta: float = 0.0, **more: Any) -> None:
    hard = method == "lp-1st"
    rules = {"lp-1st": audit.Fixed(1.0), "prior": audit.Fixed(0.5), "alibi": audit.Split(seed=0)}
    rule = rules.get(method, audit.Fixed(0.999))
    register(
        Case(
            name=f"labels_{method}_{'gaussian' if delta else 'pure'}",
            event=event,
            delta=delta,
            make=classifier(method, claimed=event, delta=delta, **more),
            broken=classifier(method, epsilon=4.0 if delta else 1.5, claimed=event, delta=delta, **more),
            data=np.arange(ROWS) % 3,
            pair=Pair(1, 0, chosen if hard else told, in_rows, rule=rule),
            bad_inputs=refused(
                lambda: LabelPrivateClassifier(Watching(), method=method, classes=[0, 1, 2], **more), WRONG
            ),
            relation="replace_one",
            unit=LABEL,
            release=fits,
            covers=frozenset({"LabelPrivateClassifier"}),
            left_out={"noise": "responses are compared with their tables in tests/labels"},
        )
    )


register_classifier("response", Response(3, 1.0).event)
register_classifier("lp-1st", Response(3, 1.0).event)
register_classifier("subset", SubsetResponse(3, 1.0).event)
register_classifier("alibi", NoisyOneHot(3, 1.0).event)
register_classifier("alibi", NoisyOneHot(3, 1.0, 1e-3).event, delta=1e-3)
register_classifier("prior", events.Pure(1.0), prior=(0.4, 0.35, 0.25))


class OwnPrior(Seeing):
    """A twin of LP-2ST whose prior was fitted to the labels that it is then used for; shows its responses."""

    def __call__(self, labels: Any) -> np.ndarray:
        own = np.eye(3)[np.asarray(labels)] * 0.9 + 0.05
        mechanism = ResponseWithPrior(1.0, own)
        return np.eye(3)[mechanism.respond(np.asarray(labels), self.source)]


register(
    Case(
        name="labels_lp-2st_pure",
        event=events.Pure(1.0),
        make=classifier("lp-2st", claimed=events.Pure(1.0)),
        broken=lambda seed: OwnPrior(
            LabelPrivateClassifier(Watching(), method="lp-2st", classes=[0, 1, 2]), events.Pure(1.0), seed
        ),
        data=np.arange(ROWS) % 3,
        pair=Pair(1, 0, told, in_rows, rule=audit.Split(seed=0)),
        bad_inputs=refused(
            lambda: LabelPrivateClassifier(Watching(), method="lp-2st", classes=[0, 1, 2]),
            (*WRONG, {"first_part": 1.0}),
        ),
        relation="replace_one",
        unit=LABEL,
        release=fits,
        left_out={"noise": "responses are compared with their tables in tests/labels"},
    )
)

class OwnHistogram(Seeing):
    """A twin that makes the bins of the labels themselves, and pays for the responses alone."""

    def __call__(self, labels: Any) -> np.ndarray:
        numbers = np.asarray(labels, dtype=float)
        prior = np.bincount(cell_of(numbers, (0.0, 1.0), 4), minlength=4) / len(numbers)
        mechanism = ResponseOnBins(0.875, (0.0, 1.0), prior)
        return mechanism.values[mechanism.respond(numbers, self.source)]


def fitted_often(make: Any, label: float, runs: int, seed: int | None) -> np.ndarray:
    """The response of the only row, in one fit after the other: the bins are those of its own fit."""
    made = make(seed)
    return np.array([made([label])[0] for _ in range(runs)])


BOUGHT = events.Compose((events.Pure(0.125), events.Pure(0.875)))
PRIOR = (0.25, 0.25, 0.25, 0.25)


def regression(epsilon: float, claimed: Any, **more: Any) -> Callable[..., Seeing]:
    def make(seed: int | None) -> Seeing:
        base = LabelPrivateRegressor(WatchingNumbers(), epsilon, target_bounds=(0.0, 1.0), cells=4, **more)
        return Seeing(base, claimed, seed)

    return make


WRONG_NUMBERS = (
    {"epsilon": 0.0}, {"target_bounds": None}, {"target_bounds": (1, 0)}, {"base": object()}, {"cells": 1},
    {"prior": "none"}, {"prior": (0.5, -0.5)}, {"random_state": -1},
)  # fmt: skip

PUBLIC = events.RandomizedResponse(1.0, 2)

for name, claimed, more, broken, pair in (
    (
        "public", PUBLIC, {"prior": PRIOR}, regression(1.5, PUBLIC, prior=PRIOR),
        Pair(1, 0, np.asarray, in_rows, rule=audit.Split(seed=0)),
    ),
    (
        "bought", BOUGHT, {"prior": "dp"},
        lambda seed: OwnHistogram(regression(1.0, BOUGHT, prior="dp")(seed).estimator, BOUGHT, seed),
        Pair(1.0, 0.0, np.asarray, fitted_often, (300, 300), audit.Fixed(0.5)),
    ),
):  # fmt: skip
    register(
        Case(
            name=f"labels_bins_{name}",
            event=claimed,
            make=regression(1.0, claimed, **more),
            broken=broken,
            data=np.linspace(0, 1, ROWS),
            pair=pair,
            bad_inputs=refused(
                lambda more=more: LabelPrivateRegressor(
                    WatchingNumbers(), target_bounds=(0.0, 1.0), cells=4, **more
                ),
                WRONG_NUMBERS,
            ),
            relation="replace_one",
            unit=LABEL,
            release=fits,
            left_out={"noise": "responses are compared with their tables in tests/labels"},
            covers=frozenset({"LabelPrivateRegressor"}),
        )
    )


@dataclasses.dataclass
class Noisy:
    """Votes with Gaussian noise, each as often as it is asked."""

    multiplier: float = 2.0
    claimed: float = 2.0

    def event(self, *, asked: int, answered: int) -> events.Event:
        return events.Repeat(events.Gaussian(self.claimed), asked)

    def answer(self, votes: Any, random_state: Any = None) -> np.ndarray:
        noise = Gaussian(2**0.5, noise_multiplier=self.multiplier, random_state=random_state)
        return np.array([int(np.argmax(noise(np.asarray(row, dtype=float)))) for row in votes])


class Following(ClassifierMixin, BaseEstimator):
    """Says the first label that it finds, everywhere; keeps what it is handed, −1 for no label."""

    def fit(self, X: Any, y: Any) -> Following:
        self.seen_, self.classes_ = np.asarray(y), np.array([0, 1])
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        known = self.seen_[self.seen_ >= 0]
        return np.eye(2)[np.full(len(X), known[0] if len(known) else 0)]


class Asking(Seeing):
    """Teachers with one label each; the released answers to as many queries as there are."""

    def __call__(self, labels: Any) -> np.ndarray:
        features = np.zeros((len(labels), 1))
        self.estimator._learn(features, np.asarray(labels), self.source)
        return np.array([self.estimator.answered_, *self.estimator.answers_])


def asking(multiplier: float) -> Callable[..., Asking]:
    def make(seed: int | None) -> Asking:
        model = PATEFM(
            Following(),
            Noisy(multiplier),
            teachers=2,
            queries=2,
            classes=[0, 1],
            delta=1e-3,
            random_state=seed,
        )
        return Asking(model, Noisy().event(asked=2, answered=2), seed)

    return make


def teachers(make: Any, data: Any, runs: int, seed: int | None) -> np.ndarray:
    made = make(seed)
    return np.array([made(data) for _ in range(runs)])


register(
    Case(
        name="labels_pate_fm",
        event=Noisy().event(asked=2, answered=2),
        delta=1e-3,
        make=asking(2.0),
        broken=asking(0.2),
        data=np.arange(ROWS) % 2,
        pair=Pair(
            np.array([1, 1]), np.array([0, 1]), lambda seen: seen[:, 1:].sum(axis=1), teachers,
            runs=(400, 400), rule=audit.Fixed(1.5),
        ),
        bad_inputs=refused(
            lambda: PATEFM(Following(), Noisy(), teachers=2, queries=2, classes=[0, 1], delta=1e-3),
            (
                {"classes": None}, {"aggregator": object()}, {"teachers": 1}, {"queries": ROWS + 1},
                {"answers": 0}, {"delta": 1.0}, {"base": object()}, {"random_state": -1},
            ),
        ),
        relation="replace_one",
        unit=LABEL,
        release=fits,
        left_out={"noise": "the noise is the aggregator's"},
        covers=frozenset({"PATEFM"}),
    )
)  # fmt: skip
