"""Estimators as mechanisms, with twins that follow another recipe: from rows to numbers that they release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from contract.estimator_cases import HIDDEN
from contract.registry import Case, Pair, register
from tacit import audit
from tacit.errors import InvalidValue
from tacit.ledger import Ledger
from tacit.randomness import Source

Bad = tuple[tuple[str, Any], ...]


class Fitting(ABC):
    """An estimator of two columns as a mechanism; ``change`` makes the recipe of a twin of its own."""

    planned_with: ClassVar[tuple[int, ...]] = (2,)
    """What ``plan`` takes: the number of columns, unless a schema says it."""

    def __init__(
        self, make: Callable[[], Any], seen: Any, change: Callable[[Any], Any], random_state: int | None
    ) -> None:
        self.estimator, self.seen = make(), seen
        self.random_state, self.source = random_state, Source(random_state)
        planned = self.estimator.plan(*self.planned_with)
        self.event, self.noise = planned.event, "seeded" if self.source.seeded else planned.kind
        public = self.estimator._public(2, self.estimator._agreed(False))
        self.recipe = change(self.estimator._recipe(public))

    @abstractmethod
    def __call__(self, data: Any) -> np.ndarray:
        """Carry out the recipe, and return what is seen of the release."""

    @staticmethod
    @abstractmethod
    def rows(data: Any) -> tuple[Any, Any, Any]:
        """The data as ``fit_rows`` wants to have them read: features, target and units."""


def fits(ledger: Ledger, fitting: Fitting, access: Callable[[], Any]) -> Any:
    """The road of a fit: the estimator charges its ledger, then has the rows read."""
    estimator = fitting.estimator.set_params(ledger=ledger, random_state=fitting.random_state)
    return estimator.fit_rows(2, lambda: fitting.rows(access()))


def often(make: Any, data: Any, runs: int, seed: int | None) -> np.ndarray:
    made = make(seed)
    return np.array([made(data) for _ in range(runs)])


def same(recipe: Any) -> Any:
    return recipe


def registered(
    name: str, kind: type[Fitting], make: partial[Any], seen: Any, broken: Any,
    pair: tuple[Any, Any], runs: int, bad: Bad, given: tuple[Any, ...],
    covers: frozenset[str] = frozenset(),
) -> None:  # fmt: skip
    """A case; ``bad`` are parameters that are refused when the estimator is fitted to ``given``."""

    def refused(parameter: str, value: Any) -> Any:
        return make().set_params(**{parameter: value}).fit(*given)

    register(
        Case(
            name=name,
            event=kind(make, seen, same, 1).event,
            make=partial(kind, make, seen, same),
            broken=partial(kind, make, seen, broken),
            data=pair[0],
            pair=Pair(*pair, np.asarray, often, (runs, runs), audit.Split(seed=0)),
            bad_inputs=tuple((f"{p}={v!r}", partial(refused, p, v), InvalidValue) for p, v in bad),
            release=fits,
            covers=covers,
            left_out={"noise": HIDDEN},
        )
    )
