"""Fits from a table: the same model as in memory, from rows that come in blocks and never all at once."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tacit import Budget, Column, Ledger, Schema, accounting, events, tables
from tacit.data import source as sources
from tacit.data.engine import results
from tacit.data.reading import private_rows
from tacit.data.source import PrivateSource
from tacit.errors import BudgetExceeded, EngineFailed, InvalidValue, SourceMissing, TacitError
from tacit.estimators import (
    PCA,
    DecisionTree,
    GradientBoosting,
    HistogramSynthesizer,
    KMeans,
    LinearRegression,
    LogisticRegression,
    MarginalSynthesizer,
    NaiveBayes,
    Preprocessor,
    RandomTrees,
    Ridge,
    blocks,
)
from tacit.estimators.blocks import TableRows
from tacit.estimators.linear import noise
from tacit.estimators.private import PrivateEstimator
from tacit.estimators.synthetic.base import Synthesizer
from tacit.randomness import Source
from tacit.relations import Unit

ROWS = 6000
SCHEMA = Schema({
    "age": Column("integer", bounds=(0, 100)),
    "sex": Column("category", categories=("F", "M")),
    "income": Column("number", bounds=(-5, 5)),
    "born": Column("date", bounds=("1900-01-01", "2020-12-31")),
    "ill": Column("category", categories=("no", "yes")),
})  # fmt: skip
PEOPLE = dataclasses.replace(SCHEMA, unit=Unit("who", 2))
LABELS = {"classes": ["no", "yes"], "random_state": 1}
Make = Callable[[], PrivateEstimator]

MODELS: dict[str, tuple[str | None, Make]] = {
    "bayes": ("ill", lambda: NaiveBayes(1.0, **LABELS)),
    "bayes of moments": ("ill", lambda: NaiveBayes(1.0, 1e-6, numbers="gaussian", **LABELS)),
    "tree": ("ill", lambda: DecisionTree(1.0, **LABELS)),
    "tree by gain": ("ill", lambda: DecisionTree(1.0, choice="noisy_gain", **LABELS)),
    "random trees": ("ill", lambda: RandomTrees(1.0, trees=4, depth=4, **LABELS)),
    "disjoint trees": ("ill", lambda: RandomTrees(1.0, trees=5, depth=3, data="disjoint", **LABELS)),
    "boosting": ("ill", lambda: GradientBoosting(1.0, 1e-6, rounds=8, interactions=1, **LABELS)),
    "boosted numbers": (
        "income",
        lambda: GradientBoosting(1.0, task="regression", target_bounds=(-5, 5), rounds=4, random_state=1),
    ),
    "least squares": ("income", lambda: LinearRegression(1.0, target_bounds=(-5, 5), random_state=1)),
    "ridge": ("income", lambda: Ridge(1.0, noise="functional", target_bounds=(-5, 5), random_state=1)),
    "logistic": ("ill", lambda: LogisticRegression(1.0, class_weight="balanced", **LABELS)),
    "clusters": (None, lambda: KMeans(1.0, 1e-6, n_clusters=2, depth=2, passes=1, random_state=1)),
    "components": (None, lambda: PCA(1.0, 1e-6, n_components=2, mean="dp", random_state=1)),
    "marginals": (None, lambda: MarginalSynthesizer(1.0, 1e-6, bins=8, rounds=1, random_state=1)),
    "histogram": (None, lambda: HistogramSynthesizer(1.0, bins=2, random_state=1)),
    "bought bounds": ("ill", lambda: LogisticRegression(1.0, bounds="dp", population="dp", **LABELS)),
}
EXACT = [name for name in MODELS if name not in ("least squares", "ridge", "logistic", "bought bounds")]
"""The models whose rows are added up in whole numbers: how the blocks are cut does not matter at all."""
COUNTED = ("clusters", "components", "marginals", "histogram")
"""Models without a target."""


def rows(number: int = ROWS) -> pd.DataFrame:
    """Rows with missing values, undeclared categories and values beyond the bounds."""
    random = np.random.default_rng(7)
    frame = pd.DataFrame({
        "age": random.integers(0, 110, number).astype(float),
        "sex": np.array(["F", "M", "?"])[random.integers(0, 3, number)],
        "income": random.normal(0, 3, number),
        "born": pd.to_datetime("1950-01-01") + pd.to_timedelta(random.integers(0, 20_000, number), "D"),
        "who": random.permutation(number) // 2,
    })  # fmt: skip
    frame["ill"] = np.where(frame["age"] + random.normal(0, 20, number) > 50, "yes", "no")
    frame.loc[::17, "age"] = np.nan
    frame.loc[::23, "ill"] = "perhaps"
    frame["born"] = frame["born"].dt.strftime("%Y-%m-%d")
    return frame


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("rows")
    rows().to_csv(folder / "rows.csv", index=False)
    rows().to_parquet(folder / "rows.parquet", row_group_size=1000)
    rows().sample(frac=1, random_state=3).to_parquet(folder / "mixed.parquet")
    return {path.stem if path.stem == "mixed" else path.suffix[1:]: path for path in folder.iterdir()}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.db", Budget(10.0, 1e-3)) as made:
        yield made


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 1000 rows, of which nothing is kept from one pass to the next."""
    monkeypatch.setattr(PrivateSource.blocks, "__defaults__", (1000,))
    monkeypatch.setattr(blocks, "KEPT_BYTES", 0)


def in_memory(place: Path, name: str) -> PrivateEstimator:
    return of_frame(private_rows(place, SCHEMA, list(SCHEMA)), name)


def of_frame(
    frame: pd.DataFrame, name: str, schema: Schema = SCHEMA, exclude: Sequence[str] = (), units: Any = None
) -> PrivateEstimator:
    target, make = MODELS[name]
    model = make().set_params(rows_per_unit=schema.unit.rows)
    if isinstance(model, Synthesizer):
        return model.set_params(schema=schema, exclude=exclude).fit(frame, units=units)
    maker = Preprocessor(schema, target=target, exclude=exclude)
    targets = None if target is None else maker.target_values(frame)
    return model.fit(maker.fit_transform(frame), targets, units=units)


def from_table(place: Path, name: str, ledger: Ledger, schema: Schema = SCHEMA) -> PrivateEstimator:
    with tables.open(place, schema=schema, ledger=ledger) as table:
        return of_table(table, name)


def of_table(table: tables.Table, name: str, exclude: Sequence[str] = ()) -> PrivateEstimator:
    target, make = MODELS[name]
    model = make()
    if isinstance(model, Synthesizer):
        return model.set_params(exclude=exclude).fit_table(table)
    return model.fit_table(table, target, exclude=exclude)[-1]


def released(model: PrivateEstimator) -> dict[str, Any]:
    return {name: getattr(model, name) for name in model.released if hasattr(model, name)}


def assert_same(one: PrivateEstimator, other: PrivateEstimator, tolerance: float | None = None) -> None:
    found, wanted = released(one), released(other)
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        if tolerance is None or isinstance(value, dict) or np.asarray(value).dtype.kind not in "if":
            np.testing.assert_equal(found[name], value, err_msg=name)
        else:
            np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance, err_msg=name)
    assert one.event_ == other.event_


class TestEquality:
    @pytest.mark.parametrize("name", list(MODELS))
    def test_files_are_fitted_as_rows_in_memory_bit_by_bit(
        self, name: str, files: dict[str, Path], ledger: Ledger
    ) -> None:
        wanted = in_memory(files["parquet"], name)
        assert_same(from_table(files["parquet"], name, ledger), wanted)
        assert_same(from_table(files["csv"], name, ledger), wanted)

    @pytest.mark.parametrize("name", [name for name in MODELS if name != "bought bounds"])
    @pytest.mark.usefixtures("small_blocks")
    def test_neither_the_cut_nor_the_order_of_rows_matters(
        self, name: str, files: dict[str, Path], ledger: Ledger
    ) -> None:
        """Rows that draw their tree, one after the other, have others in another order."""
        wanted, tolerance = in_memory(files["parquet"], name), None if name in EXACT else 1e-9
        assert_same(from_table(files["parquet"], name, ledger), wanted, tolerance)
        if name not in ("disjoint trees", "logistic"):
            assert_same(from_table(files["mixed"], name, ledger), wanted, tolerance)

    def test_other_rows_make_another_model(self, files: dict[str, Path], ledger: Ledger) -> None:
        """The comparison can fail."""
        table = tables.open(rows().iloc[:-1], schema=SCHEMA, ledger=ledger)
        one_less = MODELS["bayes"][1]().fit_table(table, "ill")[-1]
        with pytest.raises(AssertionError):
            assert_same(one_less, in_memory(files["parquet"], "bayes"))

    @pytest.mark.parametrize("fault", ["dropped", "twice"])
    @pytest.mark.usefixtures("small_blocks")
    def test_a_lost_or_repeated_block_is_noticed(
        self, fault: str, files: dict[str, Path], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = results.blocks_of

        def broken(*given: Any) -> Iterator[pa.Table]:
            first, *rest = whole(*given)
            yield from [first] * (2 if fault == "twice" else 0)
            yield from rest

        monkeypatch.setattr(sources, "blocks_of", broken)
        for name in ("bayes", "tree", "boosting", "least squares", *COUNTED):
            found, wanted = from_table(files["parquet"], name, ledger), in_memory(files["parquet"], name)
            with pytest.raises(AssertionError):
                assert_same(found, wanted, None if name in EXACT else 1e-9)

    def test_no_rows_at_all(self, ledger: Ledger) -> None:
        with tables.open(rows(), schema=SCHEMA, ledger=ledger) as table:
            nobody = table.filter("age > 10 and age < 5")
            for name in ("bayes", "tree", "random trees", "boosting", "least squares", *COUNTED):
                assert_same(of_table(nobody, name), of_frame(rows(0), name))

    def test_the_pipeline_predicts_from_a_frame(self, files: dict[str, Path], ledger: Ledger) -> None:
        with tables.open(files["csv"], schema=SCHEMA, ledger=ledger) as table:
            model = MODELS["tree"][1]().fit_table(table, "ill")
        frame = rows(50)
        maker = Preprocessor(SCHEMA, target="ill")
        expected = in_memory(files["csv"], "tree").predict(np.asarray(maker.transform(frame)))
        assert model.predict(frame).tolist() == expected.tolist()


class TestView:
    @pytest.mark.parametrize("name", ["bayes", "components", "histogram"])
    def test_filters_and_derived_columns_are_honoured(
        self, name: str, files: dict[str, Path], ledger: Ledger
    ) -> None:
        """The declared number of rows is that of all rows, and does not hold for those of a filter."""
        import ibis

        declared = dataclasses.replace(SCHEMA, population=ROWS)
        with tables.open(files["parquet"], schema=declared, ledger=ledger) as table:
            view = table.filter("age >= 40").derive("old", ibis._.age >= 70)
            model = of_table(view, name, exclude=["born"])
        schema = SCHEMA.with_column("old", Column("boolean"))
        frame = private_rows(files["parquet"], SCHEMA, list(SCHEMA))
        frame = frame[(frame["age"] >= 40).fillna(False)]
        frame["old"] = frame["age"] >= 70
        assert_same(model, of_frame(frame, name, schema, ["born"]))
        assert ledger.entries()[0].label == f"{model.title} where age >= 40"

    def test_a_synthesizer_has_the_schema_of_the_table_that_it_was_fitted_to(self, ledger: Ledger) -> None:
        few = Schema({name: SCHEMA[name] for name in ("age", "sex")}, population=50)
        model = HistogramSynthesizer(1.0, bins=2, random_state=1)
        with tables.open(rows(50), schema=few, ledger=ledger) as table:
            assert len(model.fit_table(table).sample()) == 50
            assert model.schema == few
            assert model.fit_table(table.filter("age >= 40")).population_ != 50
            assert model.plan().event == model.event_
            other = HistogramSynthesizer(1.0, schema=SCHEMA)
            with pytest.raises(InvalidValue, match="that of the table"):
                other.fit_table(table)
            assert other.schema is SCHEMA
            dear = HistogramSynthesizer(20.0)
            with pytest.raises(BudgetExceeded):
                dear.fit_table(table)
            assert dear.schema is None


class TestUnits:
    @pytest.mark.parametrize("name", ["boosting", "clusters", "histogram"])
    def test_as_in_memory_where_nobody_has_too_many_rows(
        self, name: str, files: dict[str, Path], tmp_path: Path
    ) -> None:
        """The column of the unit is declared, and makes no feature."""
        frame = private_rows(files["csv"], PEOPLE, list(PEOPLE))
        wanted = of_frame(frame, name, PEOPLE, units=frame[sources.UNIT])
        declared = PEOPLE.with_column("who", Column("integer", bounds=(0, ROWS)))
        with Ledger.open(tmp_path / "people.db", Budget(5.0, 1e-3), unit=PEOPLE.unit) as book:
            model = from_table(files["csv"], name, book, declared)
        assert_same(model, wanted)
        assert model.guarantee_.unit == PEOPLE.unit

    @pytest.mark.usefixtures("small_blocks")
    def test_nobody_counts_more_often_than_the_unit_says(self, tmp_path: Path) -> None:
        """5 people of 40 rows each, and 600 of one: at most 2 rows of each count, the same in every pass."""
        frame = rows(800)
        frame["who"] = [f"p{i % 5}" for i in range(200)] + [f"q{i}" for i in range(600)]
        made = self.chosen(frame)
        assert made.used == 5 * 2 + 600
        assert made.features() == made.features()
        assert len({str(self.chosen(frame, seed).features()) for seed in range(4)}) > 1

    def test_what_one_person_adds_leaves_the_choice_of_others(self, tmp_path: Path) -> None:
        frame = rows(300)
        frame["who"] = [f"p{i % 10}" for i in range(300)]
        without = frame[frame["who"] != "p3"]
        one, other = self.chosen(frame).features(), self.chosen(without).features()
        assert len(other) == 18
        assert len(one) == 20
        left = one.copy()
        for row in other:
            left.remove(row)
        assert len(left) == 2

    @staticmethod
    def chosen(frame: pd.DataFrame, seed: int = 1) -> Any:
        class Chosen(blocks.TableRows):
            def features(self) -> list[Any]:
                return sorted(row for block in self.blocks() for row in map(tuple, block.matrix.tolist()))

        opened = sources.connect(frame, PEOPLE)
        maker = Preprocessor(PEOPLE, target="ill")
        return Chosen.prepared(opened, opened.table, maker).bounded(PEOPLE.unit, Source(seed))


class TestCharge:
    def test_the_charge_comes_before_the_rows(
        self, files: dict[str, Path], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[int] = []
        whole = results.blocks_of

        def watched(*given: Any) -> Iterator[pa.Table]:
            seen.append(len(ledger.entries()))
            return whole(*given)

        monkeypatch.setattr(sources, "blocks_of", watched)
        names = ("bayes", "tree", "random trees", "boosting", "ridge", "bought bounds", *COUNTED[1:])
        for number, name in enumerate(names, 1):
            model = from_table(files["parquet"], name, ledger)
            assert seen
            assert set(seen) == {number}
            assert ledger.entries()[-1].event == model.event_
            seen.clear()

    def test_a_refused_fit_reads_nothing(
        self, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def forbidden(*given: Any) -> Any:
            raise AssertionError("a row was read")

        monkeypatch.setattr(sources, "blocks_of", forbidden)
        monkeypatch.setattr(PrivateSource, "run", forbidden)
        with Ledger.open(tmp_path / "poor.db", Budget(0.5, 1e-3)) as poor:
            for name in MODELS:
                with pytest.raises(BudgetExceeded):
                    from_table(files["parquet"], name, poor)
            assert not poor.entries()

    def test_individual_accounting_needs_rows_in_memory(self, ledger: Ledger) -> None:
        own = LogisticRegression(1.0, 1e-6, population=50, noise=noise.Gradient(participations=3), **LABELS)
        opened = tables.open(rows(), schema=SCHEMA, ledger=ledger)
        with opened as table, pytest.raises(InvalidValue, match="sums and counts"):
            own.fit_table(table, "ill")
        assert not ledger.entries()

    def test_what_the_engine_says_is_withheld(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """In the middle of a pass as at its start; a fit that failed leaves nothing behind."""

        def failing(*given: Any) -> Iterator[pa.Table]:
            yield from list(results.blocks_of(*given))[:1]
            raise ValueError("secret")

        monkeypatch.setattr(sources, "blocks_of", failing)
        with tables.open(rows(), schema=SCHEMA, ledger=ledger) as table:
            model = MODELS["tree"][1]()
            with pytest.raises(EngineFailed) as caught:
                model.fit_table(table, "ill")
        assert "secret" not in str(caught.value) + "".join(capsys.readouterr())
        assert caught.value.__cause__ is caught.value.__context__ is None
        assert not [name for name in vars(model) if name.endswith("_")]


class TestAgreement:
    def test_relation_and_unit_are_those_of_the_table(self, tmp_path: Path) -> None:
        with (
            Ledger.open(tmp_path / "a.db", Budget(5.0), unit=PEOPLE.unit, relation="replace_one") as ledger,
            tables.open(rows(200), schema=PEOPLE, ledger=ledger) as table,
        ):
            model = NaiveBayes(1.0, **LABELS).fit_table(table, "ill")[-1]
            assert (model.guarantee_.relation, model.guarantee_.unit) == (ledger.relation, PEOPLE.unit)
            assert model.event_ == ledger.entries()[0].event
            said = {"relation": "replace_one", "rows_per_unit": 2, "ledger": ledger}
            NaiveBayes(1.0, **LABELS, **said).fit_table(table, "ill")
            with pytest.raises(TacitError, match="at most 3 rows"):
                NaiveBayes(1.0, **LABELS, rows_per_unit=3).fit_table(table, "ill")

    def test_how_many_rows_meet_a_condition_is_paid_for(self, tmp_path: Path) -> None:
        """Under replace_one the number of all rows is public. A row may leave those that meet a condition."""
        model = LinearRegression(1.0, target_bounds=(-5, 5), population="dp")
        with (
            Ledger.open(tmp_path / "a.db", Budget(5.0), relation="replace_one") as ledger,
            tables.open(rows(200), schema=SCHEMA, ledger=ledger) as table,
        ):
            model.fit_table(table, "income")
            assert events.Pure(0.02) not in model.event_.events
            part = table.filter("age >= 50")
            model.fit_table(part, "income")
            assert events.Pure(0.02) in model.event_.events
            assert accounting.epsilon(model.event_, 0.0, relation="replace_one") <= 1.0
            maker = Preprocessor(SCHEMA, target="income")
            maker.fit(dict.fromkeys(maker.columns, ()))
            model.set_params(relation="replace_one", ledger=ledger)
            filtered = TableRows.prepared(table.source, part.expression, maker)
            with pytest.raises(TacitError, match="not paid for"):
                model.fit_blocks(maker.features, lambda: filtered)

    def test_refusals(self, ledger: Ledger, tmp_path: Path) -> None:
        with Ledger.open(tmp_path / "other.db", Budget(1.0)) as other:
            table = tables.open(rows(20), schema=SCHEMA, ledger=ledger)
            with pytest.raises(InvalidValue, match="ledger"):
                NaiveBayes(1.0, **LABELS, ledger=other).fit_table(table, "ill")
            with pytest.raises(InvalidValue, match="target"):
                NaiveBayes(1.0, **LABELS).fit_table(table)
            with pytest.raises(TacitError, match="replace_one"):
                NaiveBayes(1.0, **LABELS, relation="replace_one").fit_table(table, "ill")

            with pytest.raises(InvalidValue, match="target"):
                KMeans(1.0).fit_table(table, "ill")
            with pytest.raises(InvalidValue, match="drawn in memory"):
                KMeans(1.0, method="aggregate").fit_table(table)

            class Whole(NaiveBayes):
                fits_tables = False

            with pytest.raises(InvalidValue, match="sums and counts"):
                Whole(1.0, **LABELS).fit_table(table, "ill")
            table.close()
            with pytest.raises(SourceMissing, match="closed"):
                NaiveBayes(1.0, **LABELS).fit_table(table, "ill")
            assert not ledger.entries()


BIG = """
import resource, sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from tacit import Budget, Column, Ledger, Schema, tables
from tacit.estimators import GradientBoosting, NaiveBayes

folder, part = sys.argv[1], 20_000
random = np.random.default_rng(1)
kinds = pa.array([f"k{i:02}" for i in range(80)])
numbers = [f"x{i}" for i in range(15)]
columns = {**dict.fromkeys(numbers, pa.float64()), "kind": pa.string(), "ill": pa.bool_()}
schema = Schema({
    **dict.fromkeys(numbers, Column("number", bounds=(0, 1))),
    "kind": Column("category", categories=tuple(kinds.to_pylist())),
    "ill": Column("boolean"),
})
with Ledger.open(f"{folder}/big.db", Budget(9.0, 1e-3)) as ledger:
    for parts in (10, 40):
        with pq.ParquetWriter(f"{folder}/{parts}.parquet", pa.schema(columns)) as out:
            for _ in range(parts):
                made = dict(zip(numbers, random.uniform(0, 1, (15, part))))
                kind = kinds.take(pa.array(random.integers(0, 80, part)))
                out.write_table(pa.table({**made, "kind": kind, "ill": made["x0"] > 0.5}))
        options = {"schema": schema, "ledger": ledger, "memory_limit": "64MB"}
        with tables.open(f"{folder}/{parts}.parquet", **options) as table:
            NaiveBayes(1.0, classes=[False, True]).fit_table(table, "ill")
            GradientBoosting(1.0, 1e-6, classes=[False, True], rounds=1).fit_table(table, "ill")
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.audit
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """600 000 rows more are 456 MB of features, and twice the 77 MB that they store if the engine collects
    them; boosting keeps 15 MB of codes and targets, and 15 MB more for a moment."""
    command = [sys.executable, "-W", "error", "-c", BIG, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    few, many = map(int, done.stdout.split())
    assert many - few < 70
