"""Deliberately broken twins: what the battery exists to reject.

Each has the fault that its docstring names, and no other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from contract.registry import Case, Pair
from tacit import accounting, audit, events
from tacit.ledger import Ledger
from tacit.mechanisms import Laplace
from tacit.randomness import Source
from tacit.relations import Relation, sum_sensitivity

FAR_OUTSIDE = 50.0


@dataclass
class ClippedSum:
    """A sum of values clipped to [0, 1], with Laplace noise: sound, the original of the twins below."""

    epsilon: float = 1.0
    random_state: int | Source | None = None

    def __post_init__(self) -> None:
        sensitivity = sum_sensitivity(0.0, 1.0, Relation.ADD_REMOVE)
        self._laplace = Laplace(sensitivity, epsilon=self.epsilon, random_state=self.random_state)
        self.event, self.noise = self._laplace.event, self._laplace.noise

    def bounded(self, values: np.ndarray) -> np.ndarray:
        return np.clip(values, 0.0, 1.0)

    def __call__(self, values: np.ndarray) -> float:
        return self._laplace(float(self.bounded(np.asarray(values)).sum()))


class UnclippedSum(ClippedSum):
    """Clipping is skipped: one value far outside the bounds moves the sum as far as it likes."""

    def bounded(self, values: np.ndarray) -> np.ndarray:
        return values


class ClippedOnOneSide(ClippedSum):
    """Only the upper bound is enforced."""

    def bounded(self, values: np.ndarray) -> np.ndarray:
        return np.minimum(values, 1.0)


def sum_case(kind: type[ClippedSum]) -> Case:
    """A sum whose worst-case neighbours differ in one value far outside the bounds, on either side."""
    values = np.linspace(0.0, 1.0, 20)

    def run(make: Any, rows: np.ndarray, runs: int, seed: int | None) -> np.ndarray:
        mechanism = make(seed)
        return np.array([mechanism(rows) for _ in range(runs)])

    return Case(
        name=kind.__name__,
        event=events.Laplace(1.0),
        make=lambda random_state: kind(random_state=random_state),
        data=values,
        pair=Pair(
            np.append(values, FAR_OUTSIDE),
            values,
            lambda x: x,
            run,
            (1000, 1000),
            audit.Split(seed=1),
        ),
    )


def below(case: Case) -> Case:
    """The same case with the far value below the bounds."""
    pair = case.pair
    assert pair is not None
    return replace(
        case, pair=replace(pair, value=np.append(pair.neighbour, -FAR_OUTSIDE), score=lambda x: -x)
    )


def release_then_charge(ledger: Ledger, mechanism: Any, data_access: Callable[[], Any]) -> Any:
    """The budget is charged after the data were read."""
    data = data_access()
    with ledger.charge(mechanism.event, label="late"):
        return mechanism(data)


def release_without_charge(ledger: Ledger, mechanism: Any, data_access: Callable[[], Any]) -> Any:
    """The budget is never charged."""
    return mechanism(data_access())


def release_in_spite_of_refusal(ledger: Ledger, mechanism: Any, data_access: Callable[[], Any]) -> Any:
    """A refused charge is swallowed."""
    try:
        with ledger.charge(mechanism.event, label="stubborn"):
            return mechanism(data_access())
    except Exception:
        return mechanism(data_access())


def release_of_half(ledger: Ledger, mechanism: Any, data_access: Callable[[], Any]) -> Any:
    """A smaller event is charged than the one that happens."""
    with ledger.charge(events.Pure(1e-3), label="cheap"):
        return mechanism(data_access())


def forgets_repetition(event: events.Event, delta: float, **options: Any) -> float:
    """An accountant for which Repeat costs as much as doing it once."""
    while isinstance(event, events.Repeat) and event.times > 0:
        event = event.event
    return accounting.epsilon(event, delta, **options)


def forgets_every_count(event: events.Event, delta: float, **options: Any) -> float:
    """An accountant that counts equal events once, however they were written down."""

    def once(of: events.Event) -> events.Event:
        if isinstance(of, events.Repeat):
            return once(of.event) if of.times else events.Compose(())
        if isinstance(of, events.Compose):
            return events.Compose(tuple(dict.fromkeys(once(part) for part in of.events)))
        return of

    return accounting.epsilon(once(event), delta, **options)


def forgets_to_check(text: str) -> events.Event:
    """A decoder that ignores fields it does not know."""
    try:
        data = json.loads(text)
        data.pop("extra", None)
        text = json.dumps(data)
    except (ValueError, AttributeError, TypeError, RecursionError):
        pass
    return events.from_json(text)


class RepeatsItself:
    """The same noise in every call: a generator made anew, from one seed, each time."""

    event = events.Laplace(1.0)
    noise = "seeded"

    def __init__(self, random_state: int | Source | None = None) -> None:
        self.random_state = random_state

    def __call__(self, value: Any) -> Any:
        return Laplace(1.0, epsilon=1.0, random_state=12345)(value)


class AcceptsAnything:
    """NaN comes out as NaN, which shows that it was there."""

    event = events.Laplace(1.0)
    noise = "seeded"

    def __init__(self, random_state: int | Source | None = None) -> None:
        self.random_state = random_state

    def __call__(self, value: Any) -> Any:
        return np.asarray(value, dtype=float) + 1.0


class LaplaceLike:
    """Noise of the right variance and the wrong shape: Gaussian where Laplace was claimed."""

    event = events.Laplace(1.0)
    noise = "seeded"

    def __init__(self, random_state: int | None) -> None:
        self._generator = np.random.default_rng(random_state)

    def __call__(self, value: Any) -> Any:
        return value + self._generator.normal(0, math.sqrt(2), np.shape(value))


class FloatingLaplace:
    """Laplace noise of the right scale, drawn and added in floating point."""

    event = events.Laplace(1.0)
    noise = "exact"

    def __init__(self, random_state: int | None) -> None:
        self._generator = np.random.default_rng(random_state)

    def __call__(self, value: Any) -> Any:
        return value + self._generator.laplace(0, 1, np.shape(value))
