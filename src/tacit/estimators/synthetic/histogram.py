"""HistogramSynthesizer: rows from a noisy count of every combination of few columns."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import events
from tacit.errors import InvalidValue
from tacit.estimators.counting import moved
from tacit.estimators.private import Public, Recipe, Rows
from tacit.estimators.purchases import Purchases
from tacit.estimators.synthetic.base import Synthesizer
from tacit.estimators.synthetic.counting import cell_counts
from tacit.estimators.synthetic.domain import Domain
from tacit.estimators.synthetic.generation import systematic
from tacit.estimators.synthetic.junction import summed
from tacit.estimators.synthetic.merging import shares_within
from tacit.estimators.synthetic.prices import Noise, within_claim
from tacit.mechanisms import integer_noise
from tacit.randomness import Source

__all__ = ["HistogramSynthesizer"]

MOST_CELLS = 2**20
"""A domain with more cells is refused: nearly all of them would be empty, and noise."""


@dataclass(frozen=True)
class _HistogramRecipe(Recipe):
    domain: Domain = field(kw_only=True)
    mechanism: Noise = field(kw_only=True)
    purchases: Purchases = field(kw_only=True)
    population: int | None = field(kw_only=True)


class HistogramSynthesizer(Synthesizer):
    """Private synthetic tables of few columns, from the noisy count of each cell of the whole domain.

    All dependences between the columns are kept, as far as counts rise above the noise. The noise is the same
    for each of the cells, which multiply with every column: for more than a few columns use
    :class:`MarginalSynthesizer`.

    Relation: ``add_remove`` or ``replace_one`` of one row, or of one unit of at most ``rows_per_unit`` rows.
    Sensitivity: a row is in one cell. The counts move by 1 in ℓ1 and ℓ2; for a row that is replaced by 2 and
    √2; for a unit of k rows k times as far.
    Event: ``Pure`` (discrete Laplace noise) or, where δ > 0 allows a smaller one, ``ZeroConcentrated``
    (discrete Gaussian noise). Where the number of rows is not public, a share of 0.02 of ε buys it first.
    Papers: Dwork, McSherry, Nissim and Smith 2006; the projection to counts without negatives costs nothing.

    ``epsilon``, ``delta``
        the whole cost of ``fit``.
    ``schema``, ``bins``, ``transforms``, ``exclude``, ``population``
        as for :class:`MarginalSynthesizer`; numbers have 8 bins unless told.
    ``relation``, ``rows_per_unit``, ``ledger``, ``label``, ``verbose``, ``random_state``
        as for every estimator, see :mod:`tacit.estimators.private`.

    Released: ``counts_``, the noisy counts of all cells, and ``population_``.

    >>> from tacit import Column, Schema
    >>> schema = Schema({"smokes": Column("boolean"), "ill": Column("boolean")}, population=200)
    >>> rows = {"smokes": [True, False] * 100, "ill": [True, False] * 100}
    >>> model = HistogramSynthesizer(1.0, schema=schema, random_state=1).fit(rows)
    >>> model.counts_.shape, model.event_
    ((3, 3), Pure(epsilon=1.0))
    >>> made = model.sample(random_state=1)
    >>> len(made), bool((made["smokes"] == made["ill"]).mean() > 0.9)
    (200, True)
    """

    title = "synthesizer of a histogram"
    released = (*Synthesizer.released, "counts_")

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        schema: Any = None,
        bins: Any = 8,
        transforms: Any = None,
        exclude: Any = (),
        population: int | None = None,
        relation: Any = "add_remove",
        rows_per_unit: int = 1,
        ledger: Any = None,
        label: str | None = None,
        verbose: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.schema = schema
        self.bins = bins
        self.transforms = transforms
        self.exclude = exclude
        self.population = population
        self.relation = relation
        self.rows_per_unit = rows_per_unit
        self.ledger = ledger
        self.label = label
        self.verbose = verbose
        self.random_state = random_state

    def _recipe(self, public: Public) -> _HistogramRecipe:
        domain, population = self._domain(), self._declared_population()
        cells = math.prod(domain.cells)
        if cells > MOST_CELLS:
            advice = "Leave columns out, cut numbers into fewer bins=, or use a MarginalSynthesizer."
            raise InvalidValue("cells of all columns together", cells, f"at most {MOST_CELLS}", advice)
        bought = Purchases.of(public, population="dp" if population is None else population, bounds=None)
        l1, l2 = moved(public.relation, public.unit)
        mechanism = integer_noise(round(l1), l2, bought.epsilon, bought.delta)
        event = events.Compose((*bought.costs, mechanism.event)) if bought.costs else mechanism.event
        within_claim(public, event)
        deviation = float(mechanism.deviation)
        doubts = []
        if population is not None and population < deviation * math.sqrt(cells):
            doubts.append(
                f"{population} rows in {cells} cells have noise of deviation {deviation:.4g} on each: the "
                "synthetic rows would be noise. Fewer columns, fewer bins= or a larger epsilon= would help."
            )
        return _HistogramRecipe(
            event, "exact", (*bought.parts, ("histogram", bought.epsilon)),
            (f"{cells} cells of {len(domain.names)} columns; noise of deviation {deviation:.4g} on each",),
            doubts=tuple(doubts), domain=domain, mechanism=mechanism, purchases=bought, population=population,
        )  # fmt: skip

    def _carry_out(self, recipe: _HistogramRecipe, rows: Rows, source: Source) -> None:
        bought = recipe.purchases.buy_population(rows, source)
        exact = cell_counts(recipe.domain.cells, rows)
        self.counts_ = np.asarray(dataclasses.replace(recipe.mechanism, random_state=source)(exact))
        self.domain_ = recipe.domain.to_dict()
        self.population_ = float(recipe.population or bought or 1)

    def _shares(self) -> NDArray[np.float64]:
        """The share of the rows in each cell, from the noisy counts without negatives."""
        flat = self.counts_.ravel()
        found = shares_within(np.zeros(flat.size, dtype=np.int32), flat, self.population_)
        return found.reshape(self.counts_.shape)

    def _generated(self, rows: int, random: np.random.Generator) -> NDArray[np.int64]:
        flat = systematic(self._shares().reshape(1, -1), np.zeros(rows, dtype=np.int64), random)
        return np.column_stack(np.unravel_index(flat, self.counts_.shape)).astype(np.int64)

    def _pair_shares(self) -> dict[tuple[int, int], NDArray[np.float64]]:
        shares, held = self._shares(), tuple(range(self.counts_.ndim))
        return {pair: summed(shares, held, pair) for pair in combinations(held, 2)}
