"""Questions as a user asks them: answers, charges, refusals, and the same answer on every engine."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pandas as pd
import pytest
from ibis import _

import tacit
from tacit import Budget, Column, Ledger, Schema, Unit, tables
from tacit.errors import BudgetExceeded, EngineFailed, InvalidValue, SourceMissing, TacitError
from tacit.tables.cells.measure import measure
from tacit.tables.cells.noise import CellNoise
from tacit.tables.statistics.discovery import LearnedBounds, NoisyBounds

N = 4000


def people() -> pd.DataFrame:
    rng = np.random.default_rng(11)
    return pd.DataFrame({
        "id": rng.integers(0, 900, N),
        "age": rng.integers(15, 95, N),
        "pay": np.where(rng.random(N) < 0.05, np.nan, rng.lognormal(10, 1, N)),
        "sex": rng.choice(["F", "M", "?"], N, p=[0.5, 0.45, 0.05]),
        "town": rng.choice(["a", "b", "c", "d"], N),
        "street": [f"street {k}" for k in rng.integers(0, 40, N) ** 2 // 40],
        "ok": rng.random(N) < 0.3,
        "day": [datetime.date(2020, 1, 1) + datetime.timedelta(days=int(d)) for d in rng.integers(0, 700, N)],
    })  # fmt: skip


def schema(unit: Unit | None = None, **facts: Any) -> Schema:
    return Schema(
        {
            "age": Column("integer", bounds=(18, 90), missing=18),
            "pay": Column("number", bounds=(0, 200_000)),
            "sex": Column("category", categories=("F", "M")),
            "town": Column("category", categories=("a", "b", "c"), other="elsewhere"),
            "street": Column("text"),
            "ok": Column("boolean"),
            "day": Column("date", bounds=(datetime.date(2020, 1, 1), datetime.date(2021, 12, 31))),
        },
        unit=unit or Unit(),
        **facts,
    )


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., tables.Table]]:
    """Opens a table with a ledger of its own, and closes both."""
    made: list[Any] = []

    def open_table(
        source: Any = None, unit: Unit | None = None, budget: Budget | None = None,
        relation: str = "add_remove", random_state: int | None = 7, **facts: Any,
    ) -> tables.Table:  # fmt: skip
        budget = budget or Budget(1e4, 1e-3)
        ledger = Ledger.open(
            tmp_path / f"{len(made)}.db", budget=budget, unit=unit or Unit(), relation=relation
        )
        known = schema(unit, **facts)
        table = tables.open(
            people() if source is None else source, schema=known, ledger=ledger, random_state=random_state
        )
        made.extend([table, ledger])
        return table

    yield open_table
    for each in made:
        each.close()


def everything(table: tables.Table) -> dict[str, Any]:
    """Every question, asked with little noise; the values by name."""
    older = table.filter(_.age >= 40).derive("monthly", _.pay / 12, bounds=(0, 20_000))
    with table.batch(epsilon=4e4) as b:
        answers = {
            "count": b.count(), "count by": b.count(by=["sex", "town"]), "where": b.count(where=_.age < 30),
            "sum": b.sum("pay", by="sex"), "mean": b.mean("pay"), "mean by": b.mean("age", by="town"),
            "mean day": b.mean("day"), "variance": b.variance("pay"), "std": b.std("age", by="ok"),
            "quantile": b.quantile("pay", [0.25, 0.5]), "median": b.median("age", by="sex"),
            "histogram": b.histogram("pay", [0, 1e4, 5e4, 2e5]), "days": b.histogram("day", 4),
            "crosstab": b.crosstab(["sex", "ok"], margins=True), "covariance": b.covariance(["age", "pay"]),
            "correlation": b.correlation(["age", "pay"]), "top": b.top("town", 2), "bounds": b.bounds("pay"),
            "bought": b.mean("pay", bounds="dp"),
        }  # fmt: skip
        if table.unit.column:
            answers["units"] = b.count_units()
    with older.batch(epsilon=4e4) as b:
        answers |= {"older": b.count(), "monthly": b.mean("monthly")}
    answers["keys"] = table.keys("street", epsilon=50.0, delta=1e-6)
    return {name: release.value for name, release in answers.items()}


@pytest.mark.parametrize("unit", [Unit(), Unit("id", 3)], ids=str)
def test_the_same_answers_on_every_engine(
    unit: Unit, opened: Any, duckdb_maker: Any, spark_maker: Any
) -> None:
    ours, duckdb, spark = (
        everything(opened(source, unit=unit, budget=Budget(1e6, 1e-3)))
        for source in (people(), duckdb_maker(people()), spark_maker(people()))
    )
    for name, value in ours.items():
        for other in (duckdb[name], spark[name]):
            if isinstance(value, pd.DataFrame):
                pd.testing.assert_frame_equal(value, other, check_exact=True)
            elif isinstance(value, pd.Series):
                pd.testing.assert_series_equal(value, other, check_exact=True)
            else:
                assert value == other, name


def test_answers_are_those_of_pandas(opened: Any) -> None:
    """With next to no noise, every statistic is what pandas makes of the clipped data."""
    found = everything(opened(budget=Budget(1e6, 1e-3)))
    data = people()
    data = data.assign(age=data.age.clip(18, 90), pay=data.pay.clip(0, 200_000))
    data["town"] = data.town.where(data.town != "d", "elsewhere")
    known = data[data.sex != "?"]
    assert found["count"] == N
    assert found["where"] == (data.age < 30).sum()
    assert found["count by"].to_dict() == known.groupby(["sex", "town"]).size().to_dict()
    assert found["sum"].to_numpy() == pytest.approx(known.groupby("sex").pay.sum().to_numpy(), rel=1e-4)
    assert found["mean"] == pytest.approx(data.pay.mean(), rel=1e-5)
    assert found["mean by"].to_numpy() == pytest.approx(data.groupby("town").age.mean().to_numpy(), rel=1e-4)
    days = pd.to_datetime(data.day)
    assert abs(pd.Timestamp(found["mean day"]) - days.mean()) < pd.Timedelta(days=1)
    assert found["variance"] == pytest.approx(data.pay.var(), rel=1e-4)
    assert found["std"].to_numpy() == pytest.approx(data.groupby("ok").age.std().to_numpy(), rel=1e-3)
    assert found["quantile"].to_numpy() == pytest.approx(data.pay.quantile([0.25, 0.5]).to_numpy(), abs=30)
    assert found["median"].to_dict() == known.groupby("sex").age.median().to_dict()
    assert found["histogram"].tolist() == np.histogram(data.pay.dropna(), [0, 1e4, 5e4, 2e5])[0].tolist()
    assert found["days"].sum() == N
    margins = pd.crosstab(known.sex, known.ok, margins=True)
    assert found["crosstab"].to_numpy() == pytest.approx(margins.to_numpy(), abs=0.1)
    both = data[["age", "pay"]].dropna()
    assert found["covariance"].loc["age", "pay"] == pytest.approx(both.cov().loc["age", "pay"], rel=1e-2)
    assert found["correlation"].loc["age", "pay"] == pytest.approx(both.corr().loc["age", "pay"], abs=1e-4)
    assert found["top"].tolist() == data.town.value_counts().index[:2].tolist()
    low, high = found["bounds"]
    assert low <= data.pay.min()
    assert high >= data.pay.quantile(0.99)
    assert found["older"] == (data.age >= 40).sum()
    assert found["monthly"] == pytest.approx(data.pay[data.age >= 40].mean() / 12, rel=1e-4)
    streets = data.street.value_counts()
    assert found["keys"].to_dict() == streets[streets >= 2].to_dict()


def test_mean_with_a_public_number_of_rows_needs_less_noise(opened: Any) -> None:
    """Where every row counts, n is no longer part of the noise."""
    with opened(population=N).batch(epsilon=1.0) as known:
        known.mean("age")
    with opened().batch(epsilon=1.0) as unknown:
        unknown.mean("age")
    with opened(population=N).filter(_.ok).batch(epsilon=1.0) as filtered:
        filtered.mean("age")
    assert known.plan()[0].error == pytest.approx(36 * 3 / N, rel=0.01)
    assert unknown.plan()[0].error is None
    assert filtered.plan()[0].error > 1.3 * known.plan()[0].error


class TestCharging:
    def test_one_charge_before_anything_is_read(self, opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        table = opened(budget=Budget(1.0))
        read: list[int] = []
        run = type(table.source).run
        monkeypatch.setattr(
            type(table.source), "run",
            lambda self, query: (read.append(len(table.ledger.entries())), run(self, query))[1],
        )  # fmt: skip
        with table.batch(epsilon=0.75) as b:
            b.count()
            b.mean("pay", by="sex", weight=2.0)
        assert read == [1, 1]
        assert table.ledger.spent().epsilon == pytest.approx(0.75)
        assert b.guarantee.epsilon == pytest.approx(0.75)
        with pytest.raises(BudgetExceeded, match="count"):
            table.count(epsilon=0.3)
        assert read == [1, 1]

    def test_weights_divide_the_budget(self, opened: Any) -> None:
        with opened().batch(epsilon=0.8) as b:
            one, three = b.count(), b.count(by="sex", weight=3.0)
        assert (one.guarantee.epsilon, three.guarantee.epsilon) == pytest.approx((0.2, 0.6))

    def test_gaussian_batches_spend_no_more_than_asked(self, opened: Any) -> None:
        with opened().batch(epsilon=1.0, delta=1e-6) as b:
            b.count()
            b.median("age")
            b.keys("street")
        assert 0.5 < b.guarantee.epsilon <= 1.0
        assert b.guarantee.delta == 1e-6

    def test_groups_cost_what_one_answer_costs(self, opened: Any) -> None:
        table = opened(budget=Budget(0.5))
        table.crosstab(["sex", "town", "ok"], epsilon=0.5)
        assert table.ledger.spent().epsilon == 0.5

    def test_a_failed_block_charges_nothing(self, opened: Any) -> None:
        table = opened()
        with pytest.raises(InvalidValue), table.batch(epsilon=1.0) as b:
            b.mean("pay", by=[b.count().label])
        assert not table.ledger.entries()

    def test_an_answer_is_there_when_its_batch_has_ended(self, opened: Any) -> None:
        with opened().batch(epsilon=1.0) as b:
            answer = b.count()
            with pytest.raises(TacitError, match="not been released yet"):
                answer.interval()
        assert abs(answer.value - N) < 50
        with pytest.raises(TacitError, match="has ended"):
            b.count()

    def test_a_long_batch_has_a_short_label(self, opened: Any) -> None:
        table = opened()
        with table.batch(epsilon=1.0) as b:
            for town in ("a", "b", "c"):
                b.count(by="sex", where=(_.town == town) & (_.age > 30) & (_.pay > 1000))
        table.count(where=_.town.isin([f"{k:05}" for k in range(50)]), epsilon=1.0)
        labels = [entry.label for entry in table.ledger.entries()]
        assert all(len(label) <= 200 for label in labels)
        assert "more" in labels[0]

    def test_a_seed_is_told(self, opened: Any) -> None:
        assert opened().count(epsilon=1.0).guarantee.noise == "seeded"
        assert opened(random_state=None).count(epsilon=1.0).guarantee.noise == "exact"

    def test_noise_is_bought_once_for_each_question(
        self, opened: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Plan, event, guarantee and answer come from the same mechanisms."""
        bought: list[Any] = []
        buy = CellNoise.bought.__func__

        def counted(cls: Any, measurement: Any, *arguments: Any) -> CellNoise:
            bought.append(measurement)
            return buy(cls, measurement, *arguments)

        monkeypatch.setattr(CellNoise, "bought", classmethod(counted))
        with opened().batch(epsilon=1.0) as b:
            b.count()
            b.mean("pay", by="sex")
            b.median("age")
            quotes, event, guarantee = b.plan(), b.event, b.guarantee
        assert len(bought) == 3
        assert event == guarantee.event == b.event
        assert [quote.event for quote in quotes] == [noisy.event for noisy in b._noisy()]
        assert len(bought) == 3

    def test_noise_that_was_not_charged_is_never_drawn(self, opened: Any) -> None:
        """The statistic within bought bounds has the event that was charged before they were known."""
        table = opened()
        batch = table.batch(epsilon=1.0)
        batch.mean("pay", bounds="dp")
        (noisy,) = batch._noisy()
        cells = measure(table.source, table.expression, table.unit, noisy.statistic.measurements())
        assert noisy.answer(cells).noisy.event == noisy.proper_event
        with pytest.raises(TacitError, match="not what was charged"):
            replace(noisy, proper_event=tacit.events.Pure(0.1)).answer(cells)

    def test_noise_is_fresh(self, opened: Any) -> None:
        table = opened(random_state=None)
        assert len({table.sum("pay", epsilon=0.1).value for _ in range(4)}) == 4


class TestShapes:
    """What is there does not depend on what the data hold."""

    @pytest.mark.parametrize("unit", [Unit(), Unit("id", 3)], ids=str)
    def test_an_empty_table_answers_like_any_other(self, opened: Any, unit: Unit) -> None:
        full, empty = (opened(data, unit=unit) for data in (people(), people().iloc[:0]))
        for ask in (
            lambda t: t.count(by=["sex", "town"], epsilon=1.0),
            lambda t: t.mean("pay", by="sex", epsilon=1.0),
            lambda t: t.variance("pay", epsilon=1.0),
            lambda t: t.quantile("day", [0.1, 0.9], by="ok", epsilon=1.0),
            lambda t: t.crosstab(["sex", "ok"], margins=True, epsilon=1.0),
            lambda t: t.correlation(["age", "pay"], epsilon=1.0),
            lambda t: t.bounds("pay", epsilon=1.0),
            lambda t: t.mean("day", epsilon=1.0),
            lambda t: t.top("town", 2, epsilon=1.0),
        ):
            one, other = ask(full), ask(empty)
            assert type(one.value) is type(other.value)
            if isinstance(one.value, pd.Series | pd.DataFrame):
                assert one.value.index.equals(other.value.index) or one.label.startswith("top")
                assert one.value.shape == other.value.shape

    def test_what_is_not_declared_does_not_show(self, opened: Any) -> None:
        data = people().assign(sex="secret", town="nowhere")
        table = opened(data)
        assert table.count(by="sex", epsilon=1e3).value.to_dict() == {"F": 0, "M": 0}
        assert table.count(by="town", epsilon=1e3).value.to_dict() == {"a": 0, "b": 0, "c": 0, "elsewhere": N}

    def test_all_missing(self, opened: Any) -> None:
        table = opened(people().assign(pay=np.nan))
        assert 0 <= table.mean("pay", epsilon=1.0).value <= 200_000
        low, high = table.mean("pay", epsilon=1.0).interval()
        assert -0.01 <= low <= high <= 200_000.01


class TestRefusals:
    @pytest.mark.parametrize(
        ("ask", "message"),
        [
            (lambda t: t.mean("agee", epsilon=1.0), "Did you mean 'age'"),
            (lambda t: t.mean("sex", epsilon=1.0), "numeric"),
            (lambda t: t.mean("street", epsilon=1.0), "numeric"),
            (lambda t: t.mean("pay", bounds=(5, 1), epsilon=1.0), "ordered"),
            (lambda t: t.mean("pay", bounds="data", epsilon=1.0), "pair"),
            (lambda t: t.mean("pay"), "price"),
            (lambda t: t.mean("pay", epsilon=float("nan")), "epsilon"),
            (lambda t: t.mean("pay", epsilon=0), "epsilon"),
            (lambda t: t.mean("pay", by="street", epsilon=1.0), "keys are public"),
            (lambda t: t.mean("pay", by=["sex", "sex"], epsilon=1.0), "each once"),
            (lambda t: t.quantile("pay", 1.5, epsilon=1.0), "q must be"),
            (lambda t: t.quantile("pay", [], epsilon=1.0), "q must be"),
            (lambda t: t.top("town", 9, epsilon=1.0), "at most"),
            (lambda t: t.histogram("pay", [3, 2], epsilon=1.0), "increasing"),
            (lambda t: t.histogram("pay", 10**6, epsilon=1.0), "bins"),
            (lambda t: t.histogram("sex", 5, epsilon=1.0), "categories"),
            (lambda t: t.keys("street", epsilon=1.0), "delta"),
            (lambda t: t.keys("sex", epsilon=1.0, delta=1e-6), "without declared"),
            (lambda t: t.covariance(["pay"], epsilon=1.0), "at least two"),
            (lambda t: t.sum("day", epsilon=1.0), "dates have no sum"),
            (lambda t: t.count_units(epsilon=1.0), "people"),
            (lambda t: t.count(where=_.age + 1, epsilon=1.0), "true or false"),
            (lambda t: t.count(where=_.age > _.age.mean(), epsilon=1.0), "mixes rows"),
            (lambda t: t.filter(_.pay.rank() > 3), "row"),
            (lambda t: t.derive("age", _.pay), "new name"),
            (lambda t: t.derive("rank", ibis.row_number()), "row"),
            (lambda t: t.batch(epsilon=1.0, delta=2.0), "delta"),
        ],
    )  # fmt: skip
    def test_before_anything_is_charged(self, opened: Any, ask: Any, message: str) -> None:
        table = opened()
        with pytest.raises(InvalidValue, match=message):
            ask(table)
        assert not table.ledger.entries()

    def test_an_unknown_option(self, opened: Any) -> None:
        with pytest.raises(TypeError, match="epsilom"):
            opened().count(epsilom=1.0)

    def test_another_unit_than_the_ledger_protects(self, tmp_path: Path) -> None:
        with Ledger.open(tmp_path / "l.db", budget=Budget(1.0), unit=Unit("id", 3)) as ledger:
            with pytest.raises(TacitError, match="protects one id"):
                tables.open(people(), schema=schema(), ledger=ledger)
            with pytest.raises(TacitError, match="replace_one"):
                tables.open(people(), schema=schema(Unit("id", 3)), ledger=ledger, relation="replace_one")
            with pytest.raises(InvalidValue, match=r"tacit\.Ledger"):
                tables.open(people(), schema=schema(), ledger="l.db")

    def test_a_missing_column(self, tmp_path: Path) -> None:
        with (
            Ledger.open(tmp_path / "l.db", budget=Budget(1.0)) as ledger,
            pytest.raises(SourceMissing, match="'pay'"),
        ):
            tables.open(people().drop(columns="pay"), schema=schema(), ledger=ledger)

    def test_a_broken_engine_says_nothing_about_the_data(self, opened: Any, tmp_path: Path) -> None:
        path = tmp_path / "people.parquet"
        people().to_parquet(path)
        table = opened(str(path))
        path.write_bytes(b"98765 not a parquet file 98765")
        with pytest.raises(EngineFailed) as caught:
            table.count(epsilon=1.0)
        assert "98765" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert len(table.ledger.entries()) == 1

    def test_quantile_intervals_are_what_was_paid_for(self, opened: Any) -> None:
        table = opened()
        paid = table.median("pay", epsilon=1.0, confidence=0.9)
        low, high = paid.interval(0.9)
        assert low <= paid.value <= high
        with pytest.raises(InvalidValue, match=r"at most 0\.9"):
            paid.interval(0.95)
        with pytest.raises(InvalidValue, match="without an interval"):
            table.median("pay", epsilon=1.0, confidence=None).interval()


def test_a_plan_reads_nothing_and_says_what_to_expect(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(population=N)
    monkeypatch.setattr(type(table.source), "run", lambda self, query: pytest.fail("data were read"))
    b = table.batch(epsilon=1.0)
    b.count()
    b.mean("pay")
    b.median("pay")
    b.crosstab(["sex", "ok"], margins=True)
    b.top("town", 2)
    b.bounds("pay")
    b.mean("pay", bounds="dp")
    plans = b.plan()
    assert [plan.epsilon for plan in plans] == pytest.approx([1 / 7] * 7)
    assert plans[0].error == pytest.approx(21, abs=1)
    assert plans[1].error > 0
    assert "rows in rank" in plans[2].note
    assert not table.ledger.entries()


def test_releases_read_well(opened: Any) -> None:
    table = opened()
    one = table.mean("pay", epsilon=1.0)
    assert str(one).startswith("mean(pay): ")
    assert "95 %" in str(one)
    frame = table.mean("pay", by="sex", epsilon=1.0).to_frame()
    assert list(frame.columns) == ["value", "low", "high"]
    assert (frame.low <= frame.value).all()
    assert (frame.value <= frame.high).all()
    assert "where" in table.filter(_.age > 30).count(epsilon=1.0).label
    assert tacit.tables.open is tables.open


@pytest.mark.parametrize("brought", [False, True], ids=["a file", "a table of a file"])
def test_nan_in_parquet_is_seen(opened: Any, tmp_path: Path, brought: bool) -> None:
    """DuckDB 2 takes NaN out of sight where a file's statistics leave it out; an average would be NaN."""
    path = str(tmp_path / "people.parquet")
    data = people().assign(pay=[1.0, float("nan")] * (N // 2), age=[30.0, float("nan")] * (N // 2))
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: pa.array(data[name].to_numpy(), from_pandas=False) for name in ("pay", "age")}
    rest = pa.Table.from_pandas(data.drop(columns=["pay", "age"]), preserve_index=False)
    for name, column in columns.items():
        rest = rest.append_column(name, column)
    pq.write_table(rest, path)
    connection = ibis.duckdb.connect()
    raw = connection.read_parquet(path)
    assert connection.to_pyarrow(raw.filter(raw.pay.isnan()).count()).as_py() == 0, "DuckDB has been mended"
    table = opened(raw if brought else path, budget=Budget(1e6))
    assert table.mean("pay", epsilon=1e4).value == pytest.approx(1.0, abs=0.1)
    assert table.sum("age", epsilon=1e4).value == pytest.approx(30 * N / 2 + 18 * N / 2, abs=1)
    connection.disconnect()


def test_columns_can_be_derived_from_derived_ones(opened: Any) -> None:
    """Each view is a step of its own in the query, which grows with their number and no faster."""
    table = opened(budget=Budget(1e6))
    table = table.derive("x0", _.pay / 1000, bounds=(0, 200))
    for step in range(10):
        table = table.derive(f"x{step + 1}", table.expression[f"x{step}"] + 1, bounds=(0, 300))
    clipped = people().pay.clip(0, 200_000) / 1000
    assert len(str(ibis.to_sql(table.expression.aggregate(table.expression.x10.sum())))) < 60_000
    assert table.mean("x10", epsilon=1e4).value == pytest.approx(clipped.mean() + 10, rel=1e-3)


@dataclass(frozen=True)
class NoNoise:
    """Stands for noise that is zero, with a threshold of choice."""

    threshold: int

    def __call__(self, cells: Any) -> Any:
        return cells

    def half_width(self, confidence: float, coordinates: int) -> int:
        return self.threshold


class TestOddities:
    def test_bounds_too_close_for_steps(self, tmp_path: Path) -> None:
        known = Schema({"x": Column("number", bounds=(0.0, 1e-320))})
        with Ledger.open(tmp_path / "l.db", budget=Budget(9.0)) as ledger:
            table = tables.open(pd.DataFrame({"x": [0.0, 1e-320]}), schema=known, ledger=ledger)
            for ask in (table.mean, table.sum, table.variance, table.median):
                with pytest.raises(InvalidValue, match="apart"):
                    ask("x", epsilon=1.0)
            assert not ledger.entries()
            table.close()

    @pytest.mark.parametrize("kind", ["number", "integer"])
    @pytest.mark.parametrize("threshold", [0, 2])
    def test_bought_bounds_are_a_range_whatever_the_noise(self, kind: str, threshold: int) -> None:
        """Noise may make any bin the largest, above the threshold or below it: each of them is tried."""
        statistic = LearnedBounds("x", kind)
        bins = statistic.bins.size
        bought = NoisyBounds(statistic, NoNoise(threshold), 1)
        for largest in np.eye(bins, dtype=np.int64):
            low, high = bought.bounds(largest[:, None])
            assert -math.inf < low < high < math.inf

    def test_bought_bounds_are_a_range_even_of_nothing(self, tmp_path: Path) -> None:
        """Through the whole road, once for each source and column; the test above tries every outcome."""
        known = Schema({"x": Column("number"), "k": Column("integer")})
        data = pd.DataFrame({"x": [math.inf, -math.inf], "k": [2**63 - 1, -(2**63)]})
        with Ledger.open(tmp_path / "l.db", budget=Budget(1e4)) as ledger:
            for source in (data, data.iloc[:0], data.iloc[:1]):
                table = tables.open(source, schema=known, ledger=ledger, random_state=3)
                for column in ("x", "k"):
                    low, high = table.bounds(column, epsilon=0.1).value
                    assert low < high
                    answer = table.mean(column, bounds="dp", epsilon=0.1)
                    assert set(answer.bounds) == {column}
                table.close()

    def test_a_batch_of_choices_and_noise_stays_within_its_budget(self, opened: Any) -> None:
        with opened().batch(epsilon=0.0353, delta=3e-4) as b:
            b.crosstab(["sex", "ok"], weight=2.04)
            b.quantile("age", [0.1, 0.5], weight=2.88)
        assert b.guarantee.epsilon <= 0.0353

    def test_undeclared_codes_do_not_count_in_a_mean(self, tmp_path: Path) -> None:
        known = Schema({"v": Column("integer", categories=(1, 2, 3), missing=1)}, population=100)
        with Ledger.open(tmp_path / "l.db", budget=Budget(1e4)) as ledger:
            table = tables.open(pd.DataFrame({"v": [1] * 50 + [9] * 50}), schema=known, ledger=ledger)
            assert table.mean("v", bounds=(0, 10), epsilon=100.0).value == pytest.approx(1, abs=0.1)
            table.close()

    def test_keys_of_a_category_without_categories(self, tmp_path: Path) -> None:
        known = Schema({"z": Column("category")})
        with Ledger.open(tmp_path / "l.db", budget=Budget(1e4, 1e-3)) as ledger:
            table = tables.open(pd.DataFrame({"z": ["a"] * 90 + ["b"]}), schema=known, ledger=ledger)
            assert list(table.keys("z", epsilon=5.0, delta=1e-6).value.index) == ["a"]
            table.close()
