"""Reports: an update with the count and the metrics beside it, as one vector of bounded norm.

What a client computes under "aggregator" and "nobody" and the server under "server" is the same: the update,
clipped to clip_norm, then one coordinate for the count of a :class:`tacit.training.Quantile` and one for each
metric, scaled as :meth:`FederatedPlan.extra_scales` says. The norm of the whole is at most
:meth:`FederatedPlan.report_norm`, with certainty (:mod:`tacit.federated.updates`). A report is protected by
noise on all of its coordinates alike.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit import mechanisms
from tacit.errors import InvalidValue
from tacit.federated.plan import FederatedPlan
from tacit.federated.updates import Updates, Vector, grid, in_steps, within
from tacit.randomness import Source
from tacit.training.clipping import Quantile

if TYPE_CHECKING:
    from tacit.local.privunit import PrivUnit

__all__ = ["Reports"]


class Reports:
    """Makes reports by a plan, for arrays of declared shapes, at the clip_norm of a round.

    >>> plan = FederatedPlan(clients=10, cohort=5, rounds=2, noise_multiplier=1.0, delta=1e-5, trust="server")
    >>> Reports(plan, Updates([(2,)]), 1.0).vector([[30.0, 40.0]]).round(9)
    array([0.6, 0.8])
    """

    def __init__(self, plan: FederatedPlan, updates: Updates, clip_norm: float) -> None:
        self.plan, self.updates, self.clip_norm = plan, updates, clip_norm
        self.norm = plan.report_norm(clip_norm)
        self.step = grid(self.norm, plan.clients)
        self._scales = plan.extra_scales(clip_norm)

    @property
    def dimension(self) -> int:
        """The numbers in a report."""
        return self.updates.dimension + len(self._scales)

    def steps(
        self, arrays: Any, reported: Any = None, unclipped: bool | None = None, weight: float = 1.0,
        out: Vector | None = None,
    ) -> Vector:  # fmt: skip
        """A report in whole steps of a grid on which sums of all clients' reports are exact.

        ``reported`` are the client's metrics by name; ``unclipped`` says whether the update was within
        clip_norm before the client itself clipped it, and is found out if not told. ``out`` is a vector to
        write the report to.
        """
        whole = np.empty(self.dimension) if out is None else out
        update = self.updates.flatten(arrays, whole[: self.updates.dimension])
        if update is None:
            whole.fill(0.0)
            return whole
        values = [metric.scaled(reported) for metric in self.plan.metrics]
        if isinstance(self.plan.clipping, Quantile):
            fits = within(update, self.clip_norm) if unclipped is None else unclipped is True
            values.insert(0, 1.0 if fits else -1.0)
        in_steps(update, self.clip_norm, self.step)
        if weight != 1:
            np.multiply(update, weight, out=update)
            np.trunc(update, out=update)
        if values:
            np.trunc(np.array(values) * self._scales / self.step, out=whole[self.updates.dimension :])
        return whole

    def vector(
        self, arrays: Any, reported: Any = None, unclipped: bool | None = None, weight: float = 1.0
    ) -> Vector:
        """A report in units of the update."""
        return self.steps(arrays, reported, unclipped, weight) * self.step

    def split(self, total: Vector) -> tuple[Vector, list[float]]:
        """A sum of reports as the sum of updates, and the sums of count and metrics in their units of 1."""
        update = total[: self.updates.dimension]
        beside = total[self.updates.dimension :] / np.array(self._scales or ())
        return update, [float(each) for each in beside]

    def check(self) -> None:
        """Refuse, before anything is charged, a plan by which reports of this dimension get no noise."""
        if self.plan.trust == "aggregator":
            self.plan.distributed(self.clip_norm).encoder(self.dimension, 0)
        elif self.plan.trust == "nobody" and self.plan.randomizer == "privunit":
            self._direction.length  # noqa: B018
        elif self.plan.trust != "silo":
            self.gaussian(Source())

    def gaussian(self, source: Source) -> mechanisms.Gaussian:
        """The noise on a sum of reports ("server"), or on each of them ("nobody")."""
        return mechanisms.Gaussian(
            sensitivity=self.plan.sensitivity(self.clip_norm),
            noise_multiplier=self.plan.noise_multiplier, random_state=source,
        )  # fmt: skip

    def randomized(self, report: Vector, source: Source) -> Vector:
        """The report with all the noise it needs by itself ("nobody")."""
        if self.plan.trust != "nobody":
            raise InvalidValue("trust", self.plan.trust, "'nobody' where reports are randomised one by one")
        if self.plan.randomizer == "gaussian":
            return np.asarray(self.gaussian(source)(report))
        leaning = replace(self._direction, random_state=source) if source.seeded else self._direction
        return np.asarray(leaning.randomize(report), np.float64)

    @cached_property
    def _direction(self) -> PrivUnit:
        from tacit.local.privunit import PrivUnit

        return PrivUnit(epsilon=self.plan.report_epsilon, dimension=self.dimension, clip_norm=self.norm)

    @property
    def longest_randomized(self) -> float:
        """A norm that a randomised report exceeds with probability below 10⁻⁹: longer ones are cut to it."""
        if self.plan.randomizer == "privunit":
            return self._direction.length * (1 + 1e-4)
        deviation = self.plan.sensitivity(self.clip_norm) * self.plan.noise_multiplier
        return self.norm + deviation * (math.sqrt(self.dimension) + 7)
