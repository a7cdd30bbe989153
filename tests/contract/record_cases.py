"""Records with adaptive Laplace noise, audited record by record, with their labels, and as pairs of records.

The twins forget that the features of a record share ε, keep labels too often, and share one draw of noise
between two records, as the published mechanism does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from contract.local_cases import PEOPLE
from contract.registry import SECRET, Case, Pair, register
from tacit import audit, events, local
from tacit.errors import InvalidValue
from tacit.ledger import Ledger
from tacit.mechanisms import Laplace
from tacit.randomness import Source
from tacit.relations import Unit

DECLARED: dict[str, Any] = {"epsilon": 1.0, "bounds": ([0, -1, 0], [1, 1, 10]), "relevance": [4, 1, 1]}
LOW, HIGH = np.array([0.0, -1.0, 0.0]), np.array([1.0, 1.0, 10.0])
LABELLED: dict[str, Any] = {**DECLARED, "epsilon": 2.0, "classes": ["no", "yes"], "label_share": 0.5}
SCALES = {"noise": "scales are checked in tests/local/test_adaptive_laplace.py"}


def mechanism(**more: Any) -> local.AdaptiveLaplace:
    return local.AdaptiveLaplace(**{**DECLARED, **more})


class OnRecords:
    """The mechanism as the battery calls it: from rows, with their labels last where there are any."""

    def __init__(self, made: local.AdaptiveLaplace, event: events.Event) -> None:
        self.made, self.event, self.noise = made, event, made.noise

    def __call__(self, rows: Any) -> np.ndarray:
        rows = np.asarray(rows)
        if self.made.classes is None:
            return self.made.randomize(rows)[0]
        names = np.array(self.made.classes)[rows[:, -1].astype(int)]
        records, labels = self.made.randomize(rows[:, :-1], names)
        return np.column_stack([records, labels])


class WholeForEach(local.AdaptiveLaplace):
    """A twin that spends β_j·ε on feature j, and not β_j·ε/d."""

    def _shares(self) -> np.ndarray:
        return self.weights


def overkept(made: local.AdaptiveLaplace) -> local.AdaptiveLaplace:
    """A twin whose labels are randomized with twice their ε."""
    sound = made._response
    kept = local.RandomizedResponse(
        categories=sound.size, epsilon=2 * sound.epsilon, random_state=made._source
    )
    object.__setattr__(made, "_response", kept)
    return made


def of_records(records: np.ndarray, declared: dict[str, Any] = DECLARED) -> np.ndarray:
    """The log-likelihood ratio of HIGH against LOW."""
    scales = local.AdaptiveLaplace(**declared).scales
    return ((np.abs(records - LOW) - np.abs(records - HIGH)) / scales).sum(axis=1)


def of_labels(records: np.ndarray) -> np.ndarray:
    """The ratio of a record HIGH with "yes" against LOW with "no"."""
    told = np.where(records[:, -1] > 0, 1.0, -1.0) * LABELLED["epsilon"] * LABELLED["label_share"]
    return of_records(records[:, :-1], LABELLED) + told


def tiled(make: Any, data: Any, runs: int, seed: int | None) -> np.ndarray:
    return make(seed)(np.tile(data, (runs, 1)))


BAD: tuple[dict[str, Any], ...] = (
    {"epsilon": 0.0}, {"epsilon": np.nan}, {"bounds": None}, {"bounds": (1, 0)}, {"bounds": (0, np.inf)},
    {"relevance": [1, 2]}, {"relevance": [1, np.nan, 1]}, {"relevance": "much"}, {"floor": -0.1},
    {"floor": 1.1}, {"floor": 0.0, "relevance": [1, 1, 0]}, {"features": 4}, {"random_state": -1},
    {"classes": [1]}, {"classes": [0, 1], "label_share": 1.0}, {"classes": [0, 1], "label_share": 0.0},
)  # fmt: skip
WRONG: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("four columns", lambda: mechanism().randomize(np.full((2, 4), float(SECRET)))),
    ("labels without classes", lambda: mechanism().randomize(np.ones((2, 3)), [SECRET] * 2)),
    ("no labels", lambda: mechanism(classes=[0, 1]).randomize(np.full((2, 3), float(SECRET)))),
    ("one label", lambda: mechanism(classes=[0, 1]).randomize(np.ones((2, 3)), [SECRET])),
    ("a text", lambda: mechanism().randomize(SECRET)),
)


def registered_records(name: str, **told: Any) -> None:
    register(Case(name=name, relation="replace_one", unit=Unit(name="person"), left_out=SCALES, **told))


CLAIMED = mechanism().event
registered_records(
    "local_AdaptiveLaplace",
    event=CLAIMED,
    make=lambda seed: OnRecords(mechanism(random_state=seed), CLAIMED),
    broken=lambda seed: OnRecords(WholeForEach(**DECLARED, random_state=seed), CLAIMED),
    data=np.tile(HIGH, (PEOPLE, 1)),
    pair=Pair(HIGH, LOW, of_records, tiled, (40_000, 40_000), audit.Fixed(0.99)),
    bad_inputs=(
        *((f"{bad}", lambda bad=bad: mechanism(**bad), InvalidValue) for bad in BAD),
        *((what, call, InvalidValue) for what, call in WRONG),
    ),
    covers=frozenset({"AdaptiveLaplace"}),
)

WITH_LABELS = local.AdaptiveLaplace(**LABELLED).event
registered_records(
    "local_AdaptiveLaplace_labels_overkept",
    event=WITH_LABELS,
    make=lambda seed: OnRecords(local.AdaptiveLaplace(**LABELLED, random_state=seed), WITH_LABELS),
    broken=lambda seed: OnRecords(
        overkept(local.AdaptiveLaplace(**LABELLED, random_state=seed)), WITH_LABELS
    ),
    data=np.tile(np.append(HIGH, 1), (PEOPLE, 1)),
    pair=Pair(np.append(HIGH, 1), np.append(LOW, 0), of_labels, tiled, (100_000, 100_000), audit.Fixed(1.99)),
    bad_inputs=tuple((what, call, InvalidValue) for what, call in WRONG),
)

# ----------------------------------------------------------------- the road, and two records of one batch


def explain(row: np.ndarray) -> np.ndarray:
    """The relevance that a public linear model gives the features of a row."""
    return np.abs([0.1, 0.7, 0.2] * row)


class SharedNoise(Laplace):
    """A twin that draws noise once for two rows after each other."""

    def each(self, rows: Any) -> np.ndarray:
        noisy = super().each(np.asarray(rows)[::2])
        return np.repeat(noisy - np.asarray(rows)[::2], 2, axis=0) + np.asarray(rows)


def sharing(made: local.AdaptiveLaplace) -> local.AdaptiveLaplace:
    noise = made._noise
    twin = SharedNoise(noise.sensitivity, epsilon=noise.epsilon, random_state=made._source)
    object.__setattr__(made, "_noise", twin)
    return made


class Sharing(local.AdaptiveLaplaceRecords):
    """A twin whose records have one draw of noise for two of them."""

    def _mechanisms(self, described: Any, source: Any) -> Any:
        bought, made = super()._mechanisms(described, source)
        return bought, sharing(made)


@dataclasses.dataclass
class Fitting:
    """A fit as a mechanism: from rows to their records, two after each other as one output."""

    model: Any
    event: events.Event

    def __post_init__(self) -> None:
        self.made = self.model._mechanisms(3, Source(self.model.random_state))[1]
        self.noise = self.made.noise

    def __call__(self, data: Any) -> np.ndarray:
        self.model._release(None, self.made, np.asarray(data), None)
        return self.model.records_.reshape(-1, 2, 3)


def fits(ledger: Ledger, fitting: Fitting, access: Callable[[], Any]) -> Any:
    """The road of a fit: the charge, and then the rows."""
    return fitting.model.set_params(ledger=ledger).fit_rows(3, lambda: (access(), None))


def pairs(make: Any, data: Any, runs: int, seed: int | None) -> np.ndarray:
    return make(seed)(np.tile(data, (runs, 1)))


def apart(records: np.ndarray) -> np.ndarray:
    """How far the first record of two is above the second, in the feature with the least noise."""
    return records[:, 0, 0] - records[:, 1, 0]


ROAD = local.AdaptiveLaplaceRecords(**DECLARED)._mechanisms(3, Source())[1].event


def road(kind: Any, **more: Any) -> Callable[[int | None], Fitting]:
    return lambda seed: Fitting(kind(**{**DECLARED, **more}, random_state=seed), ROAD)


def refused(**more: Any) -> Any:
    return local.AdaptiveLaplaceRecords(**{**DECLARED, **more}).fit(np.tile(HIGH, (3, 1)), [0, 1, 0])


registered_records(
    "local_AdaptiveLaplaceRecords_noise_shared",
    event=ROAD,
    make=road(local.AdaptiveLaplaceRecords),
    broken=road(Sharing),
    data=np.tile(HIGH, (PEOPLE, 1)),
    pair=Pair(np.stack([HIGH, LOW]), np.stack([LOW, LOW]), apart, pairs, (20_000, 20_000), audit.Fixed(0.5)),
    bad_inputs=(
        *((f"{bad}", lambda bad=bad: refused(**bad), InvalidValue) for bad in BAD if "features" not in bad),
        ("a share of nothing", lambda: refused(relevance=explain, relevance_share=0.0), InvalidValue),
        ("a ledger by name", lambda: refused(ledger="study.db"), InvalidValue),
        (
            "rows stored as text",
            lambda: local.AdaptiveLaplaceRecords(**DECLARED).fit(np.full((3, 3), SECRET)),
            InvalidValue,
        ),
    ),
    release=fits,
    covers=frozenset({"AdaptiveLaplaceRecords"}),
)
