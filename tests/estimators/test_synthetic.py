"""Synthesizers: sensitivity, the scale of the noise, what is paid, junction trees, and what is generated."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import tacit
from contract.registry import check_json, check_repetition
from tacit import Budget, Column, Ledger, Schema, Unit, accounting, events
from tacit.data.made import made_frame
from tacit.errors import BudgetExceeded, CannotLearn, InvalidValue, SourceMissing, TacitError
from tacit.estimators import SYNTHESIZERS, HistogramSynthesizer, MarginalSynthesizer
from tacit.estimators.private import PrivateRows
from tacit.estimators.synthetic import prices
from tacit.estimators.synthetic.base import pair_distances
from tacit.estimators.synthetic.counting import cell_counts, marginal_counts, one_way_counts
from tacit.estimators.synthetic.domain import Attribute, Domain
from tacit.estimators.synthetic.generation import generated_codes, systematic
from tacit.estimators.synthetic.inference import Measured, Model
from tacit.estimators.synthetic.junction import JunctionTree, summed
from tacit.estimators.synthetic.marginals import _measure_pairs
from tacit.estimators.synthetic.merging import merged_cells, shares_within
from tacit.estimators.synthetic.selection import scores
from tacit.randomness import Source
from tacit.relations import Relation

SCHEMA = Schema({
    "sex": Column("category", categories=("f", "m")),
    "city": Column("category", categories=("x", "y", "z"), other="elsewhere", missing="x"),
    "age": Column("integer", bounds=(0, 99)),
    "height": Column("number", bounds=(100.0, 220.0), missing=170.0),
    "born": Column("date", bounds=("1990-01-01", "1999-12-31")),
    "well": Column("boolean"),
})  # fmt: skip
ROWS = 3000
ODD: dict[str, dict[str, list[Any]]] = {
    "nobody": {name: [] for name in SCHEMA},
    "missing": {name: [None, None] for name in SCHEMA},
    "undeclared": {
        "sex": ["?", "F "], "city": [7, "q"], "age": [math.nan, 1e300], "height": [math.inf, "tall"],
        "born": ["never", "2999-01-01"], "well": [3, "perhaps"],
    },
    "one row": {
        "sex": ["f"], "city": ["y"], "age": [41], "height": [180], "born": ["1995-05-05"], "well": [True],
    },
}  # fmt: skip


def people(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Sex tells of city and height, age of well; the rest is by itself."""
    random = np.random.default_rng(seed)
    sex = random.integers(0, 2, rows)
    age = random.integers(0, 100, rows)
    city = np.where(random.random(rows) < 0.8, sex, random.integers(0, 3, rows))
    days = random.integers(0, 3652, rows)
    return pd.DataFrame({
        "sex": np.array(["f", "m"])[sex],
        "city": np.array(["x", "y", "z"])[city],
        "age": age,
        "height": np.clip(random.normal(160 + 15 * sex, 6), 100, 220).round(1),
        "born": [(datetime.date(1990, 1, 1) + datetime.timedelta(int(day))).isoformat() for day in days],
        "well": age < 50,
    })  # fmt: skip


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return people()


@pytest.fixture(scope="module")
def fitted(table: pd.DataFrame) -> dict[str, Any]:
    """One fit of each kind, the histogram to three columns."""
    few = ["height", "born", "well"]
    return {
        "marginals": MarginalSynthesizer(3.0, 1e-6, schema=SCHEMA, bins=12, random_state=1).fit(table),
        "histogram": HistogramSynthesizer(3.0, schema=SCHEMA, exclude=few, random_state=1).fit(table),
    }


def domain_of(bins: int = 8) -> Domain:
    return Domain.of(SCHEMA, bins=bins)


def coded(data: Any, domain: Domain) -> PrivateRows:
    return PrivateRows(domain.codes(data), None, None)


class TestDomain:
    def test_every_odd_value_falls_into_one_cell(self) -> None:
        domain = domain_of()
        for data in ODD.values():
            codes = domain.codes(data)
            assert codes.shape == (len(data["sex"]), 6)
            assert ((codes >= 0) & (codes < np.array(domain.cells))).all()

    def test_the_rules(self) -> None:
        """Missing is a cell of its own unless a constant stands in; undeclared is ``other`` or missing."""
        codes = dict(zip(SCHEMA, domain_of().codes(ODD["undeclared"]).T.tolist(), strict=True))
        assert codes["sex"] == [2, 2]
        assert codes["city"] == [3, 3]
        assert codes["age"] == [8, 7]
        missing = dict(zip(SCHEMA, domain_of().codes(ODD["missing"])[0].tolist(), strict=True))
        assert missing["city"] == 0
        assert missing["height"] == 4
        assert missing["age"] == 8

    def test_whole_numbers_have_whole_bins(self) -> None:
        gain = Schema({"gain": Column("integer", bounds=(0, 99_999))})
        (attribute,) = Domain.of(gain, bins=16, transforms={"gain": "log1p"}).attributes
        assert attribute.edges is not None
        assert attribute.edges[:3] == (0.0, 1.0, 3.0)
        assert attribute.edges[-1] == 100_000
        few = Schema({"rooms": Column("integer", bounds=(1, 5))})
        assert Domain.of(few).attributes[0].edges == (1, 2, 3, 4, 5, 6)

    def test_public_edges(self) -> None:
        ages = Schema({"age": Column("integer", bounds=(0, 99))})
        assert Domain.of(ages, bins={"age": [18, 65]}).attributes[0].edges == (0, 18, 65, 100)
        for bad in ([65, 18], [0.5], ["a"], 0):
            with pytest.raises(InvalidValue):
                Domain.of(ages, bins={"age": bad})

    def test_values_fall_back_into_their_cells(self) -> None:
        """What is generated of a cell is read as that cell again, at both ends of a bin too."""
        domain = domain_of(7)
        for attribute in domain.attributes:
            cells = np.arange(attribute.cells)
            for share in (0.0, 0.5, 1 - 1e-9):
                drawn = attribute.drawn(cells, np.full(cells.size, share))
                made = made_frame({attribute.name: drawn}, domain.schema)
                one = Domain((attribute,))
                assert one.codes(made)[:, 0].tolist() == cells.tolist(), attribute.name

    def test_columns_without_bounds_are_refused(self) -> None:
        for column in (Column("text"), Column("integer"), Column("category")):
            with pytest.raises(InvalidValue):
                Domain.of({"name": column, "age": Column("integer", bounds=(0, 1))})

    def test_the_column_of_the_unit_is_left_out(self) -> None:
        schema = Schema({"id": Column("text"), "age": Column("integer", bounds=(0, 1))}, unit=Unit("id", 2))
        assert Domain.of(schema).names == ("age",)


class TestSensitivity:
    @pytest.mark.parametrize("relation", list(Relation))
    def test_no_pair_of_rows_moves_further_than_claimed(self, relation: Relation) -> None:
        """Odd rows, ordinary rows and none; the claim of every pass is reached."""
        domain = domain_of()
        tables = [{name: [values[name][0]] for name in values} for values in list(ODD.values())[1:]]
        tables += [people(1, seed).to_dict("list") for seed in range(6)]
        merged = [np.arange(size, dtype=np.int32) // 2 for size in domain.cells]
        passes = {
            6: lambda rows: np.concatenate(one_way_counts(domain.cells, rows)),
            1: lambda rows: marginal_counts(merged, [(0, 2)], rows)[0, 2].ravel(),
        }
        nobody = PrivateRows(np.zeros((0, 6), dtype=np.int32), None, None)
        for columns, count in passes.items():
            each = [count(coded(table, domain)) for table in tables]
            if relation is Relation.ADD_REMOVE:
                moved = [one - count(nobody) for one in each]
            else:
                moved = [a - b for a, b in itertools.combinations(each, 2)]
            claimed = prices.moved(relation, Unit(), columns)
            for norm, most in zip((1, 2), claimed, strict=True):
                found = max(float(np.linalg.norm(one, norm)) for one in moved)
                assert found <= most * (1 + 1e-12)
                if columns == 1 or relation is Relation.ADD_REMOVE:
                    assert found == pytest.approx(most)

    def test_a_score_moves_by_at_most_one_row(self) -> None:
        """Scores are whole numbers, and no further row moves one by more than 1, which some row does."""
        domain = Domain.of(SCHEMA, bins=4)
        rows = domain.codes(people(200))
        one_way = one_way_counts(domain.cells, PrivateRows(rows, None, None))
        model = Model(
            domain.cells, 203.7,
            {(i,): Measured(each + 0.0, np.ones(each.size)) for i, each in enumerate(one_way)},
        )  # fmt: skip
        model.fit(40)
        merged = [np.arange(size, dtype=np.int32) for size in domain.cells]
        pairs = list(itertools.combinations(range(6), 2))

        def scored(codes: Any) -> Any:
            return scores(model, marginal_counts(merged, pairs, PrivateRows(codes, None, None)), 3.3)

        before = scored(rows)
        assert before.dtype == np.int64
        largest = 0
        for row in domain.codes(people(20, 5)):
            move = np.abs(scored(np.vstack([rows, row[None]])) - before).max()
            assert move <= 1
            largest = max(largest, int(move))
        assert largest == 1

    def test_a_unit_counts_all_its_rows(self) -> None:
        for kind in SYNTHESIZERS.values():
            facts = {"schema": SCHEMA, "exclude": ["height"], "bins": 4}
            noise = [_recipe(kind(1.0, **facts, rows_per_unit=rows)) for rows in (1, 3)]
            found = [each.prices.one_way if hasattr(each, "prices") else each.mechanism for each in noise]
            assert found[1].sensitivity == 3 * found[0].sensitivity
            assert found[1].epsilon == pytest.approx(found[0].epsilon)
        models = [MarginalSynthesizer(1.0, 1e-6, schema=SCHEMA, rows_per_unit=rows) for rows in (1, 3)]
        pairs = [_recipe(each).prices.each for each in models]
        assert pairs[1].choice.sensitivity == 3 * pairs[0].choice.sensitivity
        assert pairs[1].noise.sensitivity == pytest.approx(3 * pairs[0].noise.sensitivity)

    def test_passes_add_over_blocks(self, table: pd.DataFrame) -> None:
        domain = domain_of(4)
        codes = domain.codes(table)
        blocks = [PrivateRows(part, None, None) for part in np.array_split(codes, 7)]
        whole = PrivateRows(codes, None, None)
        merged = [np.arange(size, dtype=np.int32) // 2 for size in domain.cells]
        for count in (
            lambda rows: np.concatenate(one_way_counts(domain.cells, rows)),
            lambda rows: marginal_counts(merged, [(1, 4)], rows)[1, 4],
            lambda rows: cell_counts(domain.cells, rows),
        ):
            assert (sum(count(block) for block in blocks) == count(whole)).all()


def _recipe(model: Any) -> Any:
    width = len(model.columns)
    return model._recipe(model._public(width, model._agreed(model._by_unit())))


class TestNoise:
    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_scale(self, delta: float) -> None:
        """Counts of nobody are noise alone: accepted at its scale, and rejected at 2/3 and 3/2 of it."""
        wide = Schema({f"c{i}": Column("integer", bounds=(0, 499)) for i in range(4)}, population=100_000)
        made = MarginalSynthesizer(1.0, delta, schema=wide, bins=500, rounds=2, random_state=3)
        bought = _recipe(made).prices
        made.fit({name: [] for name in wide})
        sizes, even = (40, 40, 40), Measured(np.full(40, 1000.0), np.ones(40))
        model = Model(sizes, 40_000.0, {(place,): even for place in range(3)})
        pairs = {pair: np.zeros((40, 40), dtype=np.int64) for pair in itertools.combinations(range(3), 2)}
        _measure_pairs(bought.each, bought.rounds, model, pairs, 10**6, Source(3))
        one = np.concatenate(made.one_way_)
        chosen = [pair for pair in pairs if pair in model.measured]
        two = np.concatenate([model.measured[pair].counts.ravel() for pair in chosen])
        assert (one.size, two.size) == (2004, 3200)
        for sample, noise in ((one, bought.one_way), (two, bought.each.noise)):
            for factor, sound in ((1.0, True), (2 / 3, False), (1.5, False)):
                assert (_fit_of(sample, noise, factor) > 1e-6) is sound

    def test_histogram(self) -> None:
        wide = Schema({f"c{i}": Column("integer", bounds=(0, 49)) for i in range(2)}, population=100_000)
        made = HistogramSynthesizer(1.0, schema=wide, bins=50, random_state=3).fit({"c0": [], "c1": []})
        noise = _recipe(made).mechanism
        for factor, sound in ((1.0, True), (2 / 3, False), (1.5, False)):
            assert (_fit_of(made.counts_.ravel(), noise, factor) > 1e-6) is sound


def _fit_of(sample: Any, noise: Any, factor: float) -> float:
    """The p-value of noise ``factor`` times as large as claimed, by counts in ten bins."""
    scale = float(noise.deviation) * factor
    kind = stats.norm if hasattr(noise, "noise_multiplier") else stats.laplace
    scale = scale if kind is stats.norm else scale / math.sqrt(2)
    edges = np.unique(np.floor(kind.ppf(np.arange(1, 10) / 10, scale=float(noise.deviation)))) + 0.5
    chances = np.diff(np.concatenate([[0.0], kind.cdf(edges, scale=scale), [1.0]]))
    counts = np.bincount(np.searchsorted(edges, sample), minlength=chances.size)
    return float(stats.chisquare(counts, chances * sample.size).pvalue)


class TestPrices:
    @pytest.mark.parametrize("kind", SYNTHESIZERS.values())
    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    @pytest.mark.parametrize("relation", list(Relation))
    @pytest.mark.parametrize("rows", [1, 3])
    def test_the_claim(self, kind: Any, delta: float, relation: Relation, rows: int) -> None:
        """The event costs no more than was asked for, nor much less, whoever is protected."""
        for epsilon in (0.2, 4.0):
            made = kind(
                epsilon, delta, schema=SCHEMA, bins=4, exclude=["born"], relation=relation, rows_per_unit=rows
            )
            spent = accounting.epsilon(made.plan().event, delta, relation=relation)
            assert 0.8 * epsilon <= spent <= epsilon * (1 + 1e-9)

    def test_every_step_is_in_the_event(self) -> None:
        event = MarginalSynthesizer(1.0, 1e-6, schema=SCHEMA, rounds=5).plan().event
        assert isinstance(event, events.Compose)
        first, choices, pairs = event.events
        assert isinstance(first, events.ZeroConcentrated)
        assert (choices.times, pairs.times) == (5, 5)
        assert isinstance(choices.event, events.BoundedRange)
        check_json(event)
        check_repetition(event)

    def test_a_choice_that_is_not_paid_for_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Shares that add up to more than 1: the fit refuses before it is charged."""
        monkeypatch.setattr(prices, "_shares", lambda rounds: (0.2, 0.15, 0.8))
        with pytest.raises(TacitError, match="more than was asked for"):
            MarginalSynthesizer(1.0, schema=SCHEMA).plan()

    def test_no_more_rounds_than_pairs(self) -> None:
        few = Schema({name: SCHEMA[name] for name in ("sex", "well")})
        assert _recipe(MarginalSynthesizer(1.0, schema=few)).prices.rounds == 1
        alone = Schema({"sex": SCHEMA["sex"]})
        made = MarginalSynthesizer(1.0, schema=alone, random_state=1).fit({"sex": ["f"] * 50 + ["m"] * 50})
        assert made.measured_ == []
        assert made.sample(10).columns.tolist() == ["sex"]

    def test_nothing_is_bought_where_the_population_is_public(self) -> None:
        known = dataclasses.replace(SCHEMA, population=500)
        facts = {"exclude": ["age", "height", "born"]}
        assert HistogramSynthesizer(1.0, schema=known, **facts).plan().parts == (("histogram", 1.0),)
        parts = HistogramSynthesizer(1.0, schema=SCHEMA, **facts).plan().parts
        assert [part for part, _ in parts] == ["population", "histogram"]


class TestTheRoad:
    @pytest.mark.parametrize("kind", SYNTHESIZERS.values())
    def test_charged_first(self, kind: Any, tmp_path: Path) -> None:
        touched: list[int] = []
        few = Schema({name: SCHEMA[name] for name in ("sex", "well")})
        rows = {"sex": ["f", "m"], "well": [True, None]}

        def read() -> Any:
            touched.append(len(ledger.entries()))
            return rows, None, None

        with Ledger.open(tmp_path / "poor.db", Budget(0.5)) as ledger:
            with pytest.raises(BudgetExceeded):
                kind(1.0, schema=few, ledger=ledger).fit_rows(2, read)
            assert not touched
        with Ledger.open(tmp_path / "rich.db", Budget(2.0)) as ledger:
            made = kind(1.0, schema=few, ledger=ledger).fit_rows(2, read)
            assert touched == [1]
            assert [entry.event for entry in ledger.entries()] == [made.event_]
            assert (made.guarantee_.epsilon, made.guarantee_.noise) == (1.0, "exact")

    @pytest.mark.parametrize("kind", SYNTHESIZERS.values())
    @pytest.mark.parametrize("odd", ODD)
    def test_odd_rows(self, kind: Any, odd: str) -> None:
        """None of these may raise, warn, or show in the shape."""
        made = kind(1.0, schema=SCHEMA, bins=2, random_state=1).fit(ODD[odd])
        sample = made.sample(50, random_state=1)
        assert sample.shape == (50, 6)
        assert made.population_ >= 1

    @pytest.mark.parametrize("kind", SYNTHESIZERS.values())
    def test_people(self, kind: Any) -> None:
        few = Schema({name: SCHEMA[name] for name in ("sex", "well")})
        made = kind(1.0, schema=few, rows_per_unit=2, random_state=1)
        made.fit({"sex": ["f"] * 4, "well": [True] * 4}, units=["a", "a", "a", "b"])
        assert made.guarantee_.unit == Unit("unit", 2)

    @pytest.mark.parametrize("kind", SYNTHESIZERS.values())
    def test_fits_are_fresh(self, kind: Any) -> None:
        few = Schema({name: SCHEMA[name] for name in ("sex", "well")})
        rows = {"sex": ["f", "m"] * 20, "well": [True, False] * 20}
        fits = [kind(1.0, schema=few, random_state=seed).fit(rows) for seed in (None, None, None, 1, 1)]
        seen = [np.ravel(_counts(each)).tolist() for each in fits]
        assert len({tuple(each) for each in seen[:4]}) == 4
        assert seen[3] == seen[4]

    def test_no_row_decides_what_is_measured_or_refused(self) -> None:
        """Too many cells, a missing column: refused by public facts, before rows are looked at."""
        with pytest.raises(InvalidValue, match="MarginalSynthesizer"):
            HistogramSynthesizer(1.0, schema=SCHEMA, bins=400).plan()
        with pytest.raises(SourceMissing):
            MarginalSynthesizer(1.0, schema=SCHEMA).fit({"sex": ["f"]})
        with pytest.raises(InvalidValue):
            MarginalSynthesizer(1.0, schema=SCHEMA, pair_bins=1).plan()
        with pytest.warns(CannotLearn):
            MarginalSynthesizer(0.01, schema=SCHEMA, population=20, random_state=1).fit(ODD["one row"])


def _counts(model: Any) -> Any:
    return model.counts_ if hasattr(model, "counts_") else np.concatenate(model.one_way_)


class TestJunctionTrees:
    def test_marginals_are_those_of_the_whole_table(self) -> None:
        """Random potentials on a graph with a cycle: against the whole joint distribution, cell by cell."""
        random = np.random.default_rng(1)
        sizes = (2, 3, 2, 3, 2)
        sets = [(0, 1), (1, 2), (2, 3), (0, 3), (4,)]
        potentials = {each: random.normal(0, 2, [sizes[i] for i in each]) for each in sets}
        joint = np.zeros(sizes)
        for each, values in potentials.items():
            joint += values.reshape([sizes[i] if i in each else 1 for i in range(5)])
        whole = np.exp(joint) / np.exp(joint).sum()
        tree = JunctionTree.of(sets, sizes)
        beliefs = tree.beliefs(potentials)
        for clique, belief in zip(tree.cliques, beliefs, strict=True):
            assert belief == pytest.approx(summed(whole, (0, 1, 2, 3, 4), clique))
        for pair, share in tree.pairs(beliefs).items():
            assert share == pytest.approx(summed(whole, (0, 1, 2, 3, 4), pair)), pair
        assert tree.log_partition(potentials)[0] == pytest.approx(math.log(np.exp(joint).sum()))
        assert len(tree.pairs(beliefs)) == 10

    def test_inference_meets_exact_marginals(self) -> None:
        random = np.random.default_rng(2)
        whole = random.dirichlet(np.ones(24)).reshape(2, 3, 4)
        sets = [(0, 1), (1, 2), (0, 2)]
        exact = {each: summed(whole, (0, 1, 2), each) for each in sets}
        measured = {each: Measured(1e6 * share, np.ones(share.shape)) for each, share in exact.items()}
        model = Model((2, 3, 4), 1e6, measured)
        model.fit(500)
        for each, share in exact.items():
            assert model.tree.marginal(model.beliefs, each) == pytest.approx(share, abs=2e-4)

    def test_generation_keeps_to_the_model(self) -> None:
        """Every cell of the first clique has its expected number of rows, rounded up or down."""
        random = np.random.default_rng(3)
        tree = JunctionTree.of([(0, 1), (1, 2)], (3, 4, 2))
        beliefs = tree.beliefs({(0, 1): random.normal(size=(3, 4)), (1, 2): random.normal(size=(4, 2))})
        codes = generated_codes(tree, beliefs, 5000, random)
        counts = np.zeros((3, 4))
        np.add.at(counts, (codes[:, 0], codes[:, 1]), 1)
        assert (np.abs(counts - 5000 * beliefs[0]) < 1 + 1e-9).all()
        other = np.zeros((3, 2))
        np.add.at(other, (codes[:, 0], codes[:, 2]), 1)
        assert np.abs(other / 5000 - tree.pairs(beliefs)[0, 2]).max() < 0.02

    def test_systematic_sampling_of_nothing(self) -> None:
        random = np.random.default_rng(1)
        assert systematic(np.ones((2, 3)), np.zeros(0, dtype=np.int64), random).size == 0
        assert set(systematic(np.zeros((1, 2)), np.zeros(9, dtype=np.int64), random).tolist()) == {0, 1}


class TestMerging:
    def test_rare_categories_are_merged(self) -> None:
        attribute = Attribute("c", Column("category", categories=("a", "b", "c", "d")), None)
        into = merged_cells(attribute, np.array([500, 2, 300, -4, 1]), 5.0, 800.0, 16)
        assert into.tolist() == [0, 2, 1, 2, 2]
        assert shares_within(into, np.array([500, 2, 300, -4, 1]), 800.0).sum() == pytest.approx(3.0)

    def test_bins_are_merged_with_their_neighbours(self) -> None:
        attribute = Attribute("n", Column("number", bounds=(0, 6)), tuple(map(float, range(7))))
        into = merged_cells(attribute, np.array([500, 3, 400, 2, 1, 0, 2]), 5.0, 900.0, 3)
        assert into.tolist() == [0, 1, 1, 1, 1, 1, 1]
        assert (np.diff(into) >= 0).all()


class TestWhatIsMade:
    @pytest.mark.parametrize("kind", SYNTHESIZERS)
    def test_types_and_values(self, kind: str, fitted: dict[str, Any], table: pd.DataFrame) -> None:
        made = fitted[kind].sample(500, random_state=1)
        assert len(made) == 500
        assert made["age"].dropna().between(0, 99).all()
        assert set(made["sex"].dropna()) <= {"f", "m"}
        if kind == "marginals":
            assert made.columns.tolist() == list(SCHEMA)
            assert made["height"].between(100, 220).all()
            first, last = datetime.date(1990, 1, 1), datetime.date(1999, 12, 31)
            assert all(first <= day <= last for day in made["born"].dropna())
            assert str(made["well"].dtype) == "boolean"

    def test_dependences_are_kept(self, fitted: dict[str, Any], table: pd.DataFrame) -> None:
        model = fitted["marginals"]
        made = model.sample(random_state=1)
        assert abs(len(made) - ROWS) < 200
        assert ((made["age"] < 50) == made["well"]).mean() > 0.9
        women, men = (made.loc[made["sex"] == sex, "height"].mean() for sex in ("f", "m"))
        assert men - women == pytest.approx(15, abs=4)
        found = model.dependences()
        names = list(SCHEMA)
        assert found[names.index("age"), names.index("well")] > 0.4
        assert found[names.index("sex"), names.index("age")] < 0.1
        assert model.distances(table, made).mean() < 0.12
        assert ("age", "well") in {(names[a], names[b]) for a, b in model.measured_}

    def test_the_population_is_that_of_the_schema(self, table: pd.DataFrame) -> None:
        known = dataclasses.replace(SCHEMA, population=777)
        facts = {"exclude": ["height", "born", "age"], "random_state": 1}
        for kind in SYNTHESIZERS.values():
            assert len(kind(1.0, schema=known, **facts).fit(table).sample()) == 777

    @pytest.mark.parametrize("kind", SYNTHESIZERS)
    def test_saving(self, kind: str, fitted: dict[str, Any], tmp_path: Path) -> None:
        model = fitted[kind]
        tacit.save(model, tmp_path / "model.tacit")
        loaded = tacit.load(tmp_path / "model.tacit")
        assert loaded.guarantee_ == model.guarantee_
        assert loaded.sample(200, random_state=5).equals(model.sample(200, random_state=5))
        assert loaded.describe() == model.describe()
        assert json.loads(loaded.guarantee_.to_json())["epsilon"] == 3.0
        pairs = model.describe().dependences
        assert pairs.columns == tuple(model.columns)
        assert [value for _, _, value in pairs.listed()] == sorted(
            (value for _, _, value in pairs.listed()), reverse=True
        )

    def test_samples_differ_and_repeat(self, fitted: dict[str, Any]) -> None:
        model = fitted["marginals"]
        assert not model.sample(50).equals(model.sample(50))
        assert model.sample(50, random_state=1).equals(model.sample(50, random_state=1))
        assert len(model.sample(0)) == 0

    def test_distances(self) -> None:
        rows = np.array([[0, 0], [0, 1], [1, 1], [1, 1]])
        assert pair_distances((2, 2), rows, rows).tolist() == [[0.0, 0.0], [0.0, 0.0]]
        assert pair_distances((2, 2), rows, rows[:2]).tolist() == [[0.5, 0.5], [0.5, 0.25]]


def test_source_is_used_for_all_noise(table: pd.DataFrame) -> None:
    """A seed repeats every released number."""
    few = ["height", "born", "city"]
    one, other = (
        MarginalSynthesizer(1.0, 1e-6, schema=SCHEMA, exclude=few, bins=6, random_state=4).fit(table)
        for _ in range(2)
    )
    assert one.measured_ == other.measured_
    assert all((a == b).all() for a, b in zip(one.two_way_, other.two_way_, strict=True))
    assert one.guarantee_.noise == "seeded"
