"""Individual accounting: each example pays for its own gradients, and leaves when its budget is spent.

The noise of a run is chosen for gradients of norm clip_norm, while most gradients are shorter, and become
shorter as the model learns. Here each example has a budget of its own, of ``participations`` steps at full
norm. A step at which it adds a gradient of norm n costs it (n ÷ clip_norm)², a step that does not see it
costs it nothing, and a gradient for which too little is left is shortened to what is left, in the end to
nothing (Feldman and Zrnic 2021; :mod:`tacit.accounting.individual`). So the noise need be no larger than for
``participations`` steps, while most examples stay for many more.

Guarantee. Given all releases before a step, the step's sum with the example and without it differ by the
gradient that it adds, whose norm depends on these releases and on the example alone, and so does the rule by
which it is shortened. On every path of releases the squared norms add up to at most participations ×
clip_norm². Gaussian releases whose means differ so, chosen adaptively, are together one Gaussian release of
noise multiplier z, where the noise of a step has standard deviation z·√participations·clip_norm (Smith and
Thakurta 2022; Koskela et al. 2023). Under replace_one both examples have such a budget, and the doubled
sensitivity covers the sum of their norms. No amplification by sampling is claimed: an example pays at each
step that sees it, whichever steps those are. With correlated noise an example's gradients are at least as
many steps apart as there are bands, so that the norm of the coefficients multiplies all of them alike.

Examples are told apart by their places in the batch: data set, collate function and augment must give the
examples of a batch as they were drawn, in that order, which the guarantee states as an assumption. A batch of
another length is refused.

What may be published is the plan's ε, which holds for everybody. How much an example has spent, and which
examples have left, depends on the data: only the curator may see it (:class:`PrivateCosts`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit import _gaussian
from tacit.accounting.individual import affordable
from tacit.errors import EngineFailed
from tacit.training.clipping import Clipping
from tacit.training.gradients.pieces import Weights
from tacit.training.plan import Plan
from tacit.training.sampling import Draw, RowNumbers

_UP = 1 + 2.0**-12
_KNOTS = 512
_NOTHING = 1e-20


class PrivateCosts:
    """What each example of a run has spent of its own budget; for the curator, never to be published.

    ``spent`` has, for each row of the data set, the squared norms of the gradients that it added, in units of
    clip_norm². Of several processes each has the costs of the rows that it samples: rank, rank + size, ….
    """

    def __init__(self, plan: Plan, spent: NDArray[np.float64], left: NDArray[np.bool_]) -> None:
        self._plan, self.spent = plan, spent
        self.left = left
        """Which rows had at least one gradient shortened or left out, since their budget was spent."""

    def epsilon(self) -> NDArray[np.float64]:
        """ε of each row for gradients as long as those that it added in this run, at the plan's δ.

        Under replace_one the row is replaced by one that spends its whole budget. The figure describes the
        path that the run took and depends on the data: the plan's ε is what was promised in advance, for all
        rows. It is rounded up to the next of a few hundred levels.
        """
        plan = self._plan
        most, factor = plan.full_gradients(plan.steps), plan.sensitivity / plan.clip_norm
        # A gradient of zeros is bounded by the smallest of numbers, which costs as good as nothing.
        levels = most * np.concatenate([[0.0, _NOTHING], (np.arange(1, _KNOTS + 1) / _KNOTS) ** 2])
        apart = np.sqrt(levels) + (factor - 1) * math.sqrt(most)
        noise = plan.noise_multiplier * factor * math.sqrt(most)
        knots = [_gaussian.epsilon(noise / each, plan.delta) if each else 0.0 for each in apart]
        return np.array(knots)[np.minimum(np.searchsorted(levels, self.spent), _KNOTS + 1)]


class Individual:
    """A clipping rule that also asks each example's own budget, and what each has spent so far."""

    def __init__(self, rule: Clipping, plan: Plan) -> None:
        self._rule, self._plan = rule, plan
        self._budget = float(plan.participations or 1)
        self._drawn: deque[RowNumbers] = deque()
        self._batch: RowNumbers = np.empty(0, np.int64)
        self._rows = self._batch
        self._price, self._short = np.empty(0), np.empty(0, bool)
        self._spent, self._left = np.empty(0), np.empty(0, bool)

    def begin(self, rows: int, draw: Draw) -> Draw:
        """Nobody of ``rows`` has spent anything; the draws, of which the rows of each batch are noted."""
        self._spent, self._left = np.zeros(rows), np.zeros(rows, bool)

        def noted(step: int) -> RowNumbers:
            drawn = draw(step)
            self._drawn.append(drawn)
            return drawn

        return noted

    def next_batch(self) -> None:
        """Go on to the batch that was drawn next."""
        self._batch = self._drawn.popleft()

    def next_rows(self, count: int) -> None:
        """The next so many examples of the batch are about to be clipped; none of them has paid yet."""
        if count > len(self._batch):
            raise _other_examples("more")
        self._rows = self._batch[:count]
        self._price, self._short = np.zeros(count), np.zeros(count, bool)

    def paid(self) -> None:
        """The examples that were clipped last have been added, and pay for it."""
        self._spent[self._rows] += self._price
        self._left[self._rows] |= self._short
        self._batch = self._batch[len(self._rows) :]

    def end_batch(self) -> None:
        """Refuse a batch that lacks examples: others would have paid in their place."""
        if len(self._batch):
            raise _other_examples("fewer")

    def factors(
        self, squares: Mapping[str, Tensor], clip_norm: float, parameters: int
    ) -> tuple[dict[str, Weights], Tensor]:
        """The factors of the rule, smaller for an example that cannot pay for all that it would add."""
        weights, norms = self._rule.factors(squares, clip_norm, parameters)
        added = sum(
            (weights[name].kept(weights[name].factors).double() ** 2 * weights[name].kept(each).double())
            for name, each in squares.items()
        )
        own = len(self._rows)
        price = np.minimum(added[:own].cpu().numpy() * (_UP / clip_norm**2), 1.0)  # type: ignore[index]
        shortened = affordable(price, self._budget - self._spent[self._rows])
        self._price, self._short = price * shortened**2, shortened < 1
        if self._short.any():
            times = torch.ones(len(norms), dtype=torch.float64)
            times[:own] = torch.from_numpy(shortened)
            weights = {name: each.times(times.to(norms.device)) for name, each in weights.items()}
        return weights, norms

    @property
    def costs(self) -> PrivateCosts:
        """What each example has spent so far."""
        return PrivateCosts(self._plan, self._spent.copy(), self._left.copy())


def _other_examples(how_many: str) -> EngineFailed:
    return EngineFailed(
        f"A batch holds {how_many} examples than were drawn, so it is not known which example pays for which "
        "gradient.",
        "Let collate_fn keep the examples as given, or plan accounting='worst-case'.",
    )
