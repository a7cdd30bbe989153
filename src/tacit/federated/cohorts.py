"""Cohorts: which clients are asked in a round, and how often each was.

The draw looks at no client's data. Under Poisson sampling it comes from OS entropy and stays with the server,
which is what amplification rests on. Under rotation nothing is claimed for it: what counts is the cap on the
rounds of one client, and clients that were asked least often are asked first, in random order.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue
from tacit.federated.plan import FederatedPlan
from tacit.randomness import Source
from tacit.training.sampling import Poisson

__all__ = ["Cohorts"]


class Cohorts:
    """Draws cohorts by a plan, and never lets a client take part more often than it allows.

    >>> plan = FederatedPlan(clients=5, cohort=2, rounds=5, noise_multiplier=1.0, delta=1e-5, trust="server",
    ...                      sampling="rotation")
    >>> cohorts = Cohorts(plan)
    >>> for _ in range(5):
    ...     cohorts.count(cohorts.draw(Source(3)))
    >>> cohorts.asked
    array([2, 2, 2, 2, 2])
    """

    def __init__(self, plan: FederatedPlan) -> None:
        self.plan = plan
        self.asked: NDArray[np.int64] = np.zeros(plan.clients, np.int64)
        """How often each client was asked; counted under rotation alone."""

    def draw(self, source: Source, chosen: Iterable[int] | None = None) -> tuple[int, ...]:
        """The cohort of the next round; under rotation it may be ``chosen`` without looking at data."""
        if self.plan.sampling == "poisson":
            if chosen is not None:
                raise InvalidValue(
                    "cohort", "chosen", "left out under sampling='poisson'",
                    "Amplification needs a secret draw. Set sampling='rotation' in the plan.",
                )  # fmt: skip
            draws = Poisson(self.plan.sampling_rate).draws(source, self.plan.clients)
            return tuple(int(each) for each in draws(0))
        return self._turn(source) if chosen is None else self._checked(chosen)

    def count(self, cohort: tuple[int, ...]) -> None:
        """Note that these clients are asked."""
        if self.plan.sampling == "rotation":
            self.asked[list(cohort)] += 1

    def count_unknown(self, rounds: int) -> None:
        """Note rounds that were taken, of which no file tells the cohort: anybody may have been asked."""
        if self.plan.sampling == "rotation":
            self.asked += rounds

    def _turn(self, source: Source) -> tuple[int, ...]:
        order = np.lexsort((source.words(self.plan.clients), self.asked))
        free = order[self.asked[order] < self.plan.participations]
        return tuple(sorted(int(each) for each in free[: self.plan.cohort]))

    def _checked(self, chosen: Iterable[int]) -> tuple[int, ...]:
        try:
            cohort = tuple(sorted({operator.index(each) for each in chosen}))
        except TypeError:
            raise InvalidValue("cohort", chosen, "the numbers of clients", "Write [0, 4, 7].") from None
        if len(cohort) > self.plan.cohort or not all(0 <= each < self.plan.clients for each in cohort):
            most, last = self.plan.cohort, self.plan.clients - 1
            raise InvalidValue("cohort", len(cohort), f"at most {most} clients, from 0 to {last}")
        if any(self.asked[each] >= self.plan.participations for each in cohort):
            raise InvalidValue(
                "cohort", "a client that was asked often enough",
                f"clients asked in fewer than {self.plan.participations} rounds",
                "Choose others, or leave the choice to the plan.",
            )  # fmt: skip
        return cohort
