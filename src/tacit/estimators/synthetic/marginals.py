"""MarginalSynthesizer: select marginals, measure them, generate rows from a graphical model of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.estimators.private import Public, Recipe, Rows
from tacit.estimators.synthetic.base import Synthesizer
from tacit.estimators.synthetic.counting import Marginal, marginal_counts, one_way_counts
from tacit.estimators.synthetic.domain import Domain
from tacit.estimators.synthetic.generation import generated_codes, systematic
from tacit.estimators.synthetic.inference import Measured, Model
from tacit.estimators.synthetic.junction import JunctionTree
from tacit.estimators.synthetic.merging import DEVIATIONS, merged_cells, population_of, shares_within
from tacit.estimators.synthetic.prices import Noise, Prices, Round
from tacit.estimators.synthetic.selection import chosen_pair
from tacit.randomness import Source

__all__ = ["MarginalSynthesizer"]

STEPS, LAST_STEPS = 60, 500
"""Steps of the inference after each round, and after the last."""


@dataclass(frozen=True)
class _MarginalRecipe(Recipe):
    domain: Domain = field(kw_only=True)
    prices: Prices = field(kw_only=True)
    population: int | None = field(kw_only=True)


class MarginalSynthesizer(Synthesizer):
    """Private synthetic tables, from noisy marginals of single columns and of chosen pairs of columns.

    All one-way marginals are measured with noise. Then, in each round, the pair of columns that the model
    describes worst is chosen by the exponential mechanism, and measured with noise. A graphical model of all
    measured marginals (a junction tree) then generates rows. What depends on three columns or more is not
    measured, and is reproduced as far as pairs imply it.

    Relation: ``add_remove`` or ``replace_one`` of one row, or of one unit of at most ``rows_per_unit`` rows.
    Sensitivity: a row is in one cell of every marginal. All d one-way marginals move by d in ℓ1 and √d in
    ℓ2, one pair by 1 in both, and the score of a pair, an ℓ1 distance to public counts, by 1. A row that is
    replaced moves ℓ1 distances and scores by twice and ℓ2 distances by √2 times that; a unit of k rows k
    times as far.
    Event: ``Compose`` of the one-way measurement, of ``rounds`` choices (``BoundedRange`` each) and of
    ``rounds`` measurements: ``ZeroConcentrated`` for δ > 0 (discrete Gaussian noise), ``Pure`` for δ = 0
    (discrete Laplace noise).
    Papers: McKenna, Miklau and Sheldon 2021 (select, measure, generate); McKenna, Mullins, Sheldon and
    Miklau 2022 (choose adaptively, among pairs that keep the model tractable), with a fixed number of rounds.

    ``epsilon``, ``delta``
        the whole cost of ``fit``. A δ above 0 is much better: noise then grows with the root of the rounds.
    ``schema``
        what is public: a :class:`tacit.Schema`, its path or a mapping. All columns need categories or bounds.
    ``bins``
        how many bins of equal width numbers are cut into; or for named columns their number or their edges.
    ``transforms``
        ``{"gain": "log1p"}``: bins of equal width on this scale, as in
        :class:`~tacit.estimators.Preprocessor`.
    ``exclude``
        columns that are left out; the unit's column always is.
    ``rounds``
        how many pairs are chosen and measured; twice the number of columns unless told.
    ``pair_bins``
        about how many bins a number has in a pair: bins are merged by their noisy counts.
    ``model_cells``
        how many cells the cliques of the model may have in all: the more, the more pairs fit, and the slower.
    ``population``
        the public number of rows; that of the schema unless told, else estimated from the one-way marginals,
        at no further cost.
    ``relation``, ``rows_per_unit``, ``ledger``, ``label``, ``verbose``, ``random_state``
        as for every estimator, see :mod:`tacit.estimators.private`.

    A value that is missing, or undeclared without ``other``, is a cell of its own and generated as missing.

    Released: ``one_way_``, the noisy counts of each column; ``population_``; how cells were merged
    (``merged_``, ``shares_``); ``measured_``, the chosen pairs, and ``two_way_``, their noisy counts; the
    model (``cliques_``, ``beliefs_``).

    >>> from tacit import Column, Schema
    >>> schema = Schema({"smokes": Column("boolean"), "ill": Column("boolean"),
    ...                  "age": Column("integer", bounds=(20, 59))})
    >>> ages = list(range(20, 60)) * 50
    >>> rows = {"smokes": [age > 40 for age in ages], "ill": [age > 40 for age in ages], "age": ages}
    >>> model = MarginalSynthesizer(1.0, 1e-6, schema=schema, bins=8, random_state=1).fit(rows)
    >>> made = model.sample(1000, random_state=1)
    >>> made.columns.tolist(), bool((made["smokes"] == made["ill"]).mean() > 0.9)
    (['smokes', 'ill', 'age'], True)
    """

    title = "synthesizer of marginals"
    released = (
        *Synthesizer.released, "one_way_", "merged_", "shares_", "measured_", "two_way_", "cliques_",
        "beliefs_",
    )  # fmt: skip

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        schema: Any = None,
        bins: Any = 32,
        transforms: Any = None,
        exclude: Any = (),
        rounds: int | None = None,
        pair_bins: int = 16,
        model_cells: int = 40_000,
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
        self.rounds = rounds
        self.pair_bins = pair_bins
        self.model_cells = model_cells
        self.population = population
        self.relation = relation
        self.rows_per_unit = rows_per_unit
        self.ledger = ledger
        self.label = label
        self.verbose = verbose
        self.random_state = random_state

    def _recipe(self, public: Public) -> _MarginalRecipe:
        domain, population = self._domain(), self._declared_population()
        columns = len(domain.attributes)
        wanted = 2 * columns if self.rounds is None else _validate.count("rounds", self.rounds, 0)
        _validate.count("pair_bins", self.pair_bins, 2)
        _validate.count("model_cells", self.model_cells, 1)
        prices = Prices.of(public, columns=columns, rounds=min(wanted, columns * (columns - 1) // 2))
        deviation = float(prices.one_way.deviation)
        cells = sum(domain.cells)
        notes = [f"{columns} columns of {cells} cells; noise of deviation {deviation:.4g} on each cell"]
        if prices.each is not None:
            pair = float(prices.each.noise.deviation)
            notes.append(f"{prices.rounds} chosen pairs of columns; noise of deviation {pair:.4g} on each")
        doubts = []
        if population is not None and population < 2 * DEVIATIONS * deviation:
            doubts.append(
                f"Counts of {population} rows have noise of deviation {deviation:.4g}: the synthetic rows "
                "would be noise. A larger epsilon=, a delta= above 0 or fewer columns would help."
            )
        return _MarginalRecipe(
            prices.event, "exact", prices.parts or (("marginals", public.epsilon),), tuple(notes),
            doubts=tuple(doubts), domain=domain, prices=prices, population=population,
        )  # fmt: skip

    def _carry_out(self, recipe: _MarginalRecipe, rows: Rows, source: Source) -> None:
        prices, domain = recipe.prices, recipe.domain
        noisy = noisy_columns(recipe, rows, source)
        deviation = float(prices.one_way.deviation)
        population = population_of(noisy) if recipe.population is None else float(recipe.population)
        merged = [
            merged_cells(attribute, counts, deviation, population, self.pair_bins)
            for attribute, counts in zip(domain.attributes, noisy, strict=True)
        ]
        model = Model(
            tuple(int(into.max()) + 1 for into in merged),
            population,
            {
                (place,): Measured(_merge(into, counts), _merge(into, np.full(into.size, deviation**2)))
                for place, (into, counts) in enumerate(zip(merged, noisy, strict=True))
            },
        )
        if prices.each is not None:
            pairs = list(combinations(range(len(merged)), 2))
            tables = marginal_counts(merged, pairs, rows)
            _measure_pairs(prices.each, prices.rounds, model, tables, self.model_cells, source)
        model.fit(LAST_STEPS)
        self.domain_, self.population_ = domain.to_dict(), population
        self.one_way_, self.merged_ = noisy, merged
        self.shares_ = [
            shares_within(into, counts, population) for into, counts in zip(merged, noisy, strict=True)
        ]
        self.measured_ = [marginal for marginal in model.measured if len(marginal) > 1]
        self.two_way_ = [model.measured[pair].counts for pair in self.measured_]
        self.cliques_, self.beliefs_ = list(model.tree.cliques), model.beliefs

    def _tree(self) -> JunctionTree:
        return JunctionTree.of(self.cliques_, tuple(int(into.max()) + 1 for into in self.merged_))

    def _generated(self, rows: int, random: np.random.Generator) -> NDArray[np.int64]:
        tree = self._tree()
        codes = generated_codes(tree, self.beliefs_, rows, random)
        for place, (into, shares) in enumerate(zip(self.merged_, self.shares_, strict=True)):
            within = np.zeros((tree.sizes[place], into.size))
            within[into, np.arange(into.size)] = shares
            codes[:, place] = systematic(within, codes[:, place], random)
        return codes

    def _pair_shares(self) -> dict[tuple[int, int], NDArray[np.float64]]:
        found = {}
        for (a, b), table in self._tree().pairs(self.beliefs_).items():
            within = np.multiply.outer(self.shares_[a], self.shares_[b])
            found[a, b] = table[np.ix_(self.merged_[a], self.merged_[b])] * within
        return found

    def _facts(self) -> tuple[tuple[str, str], ...]:
        names = self.feature_names_in_
        pairs = ", ".join(f"{names[a]} × {names[b]}" for a, b in self.measured_)
        return (*super()._facts(), ("measured pairs", pairs or "none"))


def _noisy(mechanism: Noise, counts: NDArray[np.int64], source: Source) -> NDArray[np.int64]:
    return np.asarray(dataclasses.replace(mechanism, random_state=source)(counts))


def noisy_columns(recipe: _MarginalRecipe, rows: Rows, source: Source) -> list[NDArray[np.int64]]:
    """The counts of every column, released as one vector."""
    exact = np.concatenate(one_way_counts(recipe.domain.cells, rows))
    noisy = _noisy(recipe.prices.one_way, exact, source)
    return np.split(noisy, np.cumsum(recipe.domain.cells)[:-1])


def _merge(into: NDArray[np.int32], numbers: NDArray[Any]) -> NDArray[np.float64]:
    """The sum of the numbers of each merged cell."""
    return np.asarray(np.bincount(into, weights=numbers), dtype=np.float64)


def _measure_pairs(
    each: Round,
    rounds: int,
    model: Model,
    tables: Mapping[Marginal, NDArray[np.int64]],
    largest: int,
    source: Source,
) -> None:
    """Choose and measure a pair in each round; ``tables`` are PRIVATE counts of all pairs."""
    for _ in range(rounds):
        model.fit(STEPS)
        chosen = chosen_pair(each, model, tables, largest, source)
        if chosen is None:
            return
        noisy = _noisy(each.noise, tables[chosen], source).astype(np.float64)
        model.measured[chosen] = Measured(noisy, np.full(noisy.shape, float(each.noise.deviation) ** 2))
