"""What tables have to keep beyond the battery: real charges, worst cases that are worst, broken twins."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contract import table_cases as tc
from contract.registry import REGISTRY, Case, Make, Noise, Pair, audited, check_audit, check_noise
from contract.table_questions import (
    BASE,
    PERSON,
    QUESTIONS,
    ROW,
    SCALES,
    Asked,
    Question,
    Row,
    Rows,
    Scales,
    cells,
    engine_cells,
    frame,
    hers,
    runs,
)
from tacit import Budget, Ledger, Unit, audit, events, mechanisms, tables
from tacit.data.cleaning import expressions
from tacit.errors import BudgetExceeded
from tacit.tables.cells import measure
from tacit.tables.cells.measure import FRACTIONS, Block, Measurement
from tacit.tables.cells.noise import Context
from tacit.tables.statistics.discovery import Keys
from tacit.tables.statistics.selection import Quantiles

# ---------------------------------------------------------------------------------------- charging first


def asks(table: tables.Table, question: Question) -> Any:
    cost = {"epsilon": question.epsilon, "delta": question.delta}
    return question.ask(table, **cost)


def reads_then_asks(table: tables.Table, question: Question) -> Any:
    """Looks how many rows there are before it asks what may be asked."""
    measure.measure(table.source, table.expression, table.unit, [Measurement(Block("count"))])
    return asks(table, question)


def check_charged_first(name: str, folder: Path, ask: Callable[..., Any] = asks) -> None:
    """A refused charge runs no query; a granted one is on disk before the first query is run."""
    question, case = QUESTIONS[name], REGISTRY[name]
    delta = question.delta or (0.5 if question.concentrated else 0.0)
    touched: list[tuple[events.Event, ...]] = []

    def opened(location: Path, epsilon: float) -> tuple[tables.Table, Ledger]:
        ledger = Ledger.open(
            location, budget=Budget(epsilon, delta), unit=question.unit, relation=question.relation,
            filter="renyi" if question.concentrated else None,
        )  # fmt: skip
        table = question.opened(case.data, ledger)
        run = table.source.run

        def recording(query: Any) -> pd.DataFrame:
            with Ledger.open(location) as second:
                touched.append(tuple(entry.event for entry in second.entries()))
            return run(query)

        table.source.run = recording
        return table, ledger

    table, ledger = opened(folder / "poor.db", question.epsilon / 20)
    with table, ledger:
        with pytest.raises(BudgetExceeded):
            ask(table, question)
        assert not touched, f"{name}: data were touched although the charge was refused"
        assert not ledger.entries()
    table, ledger = opened(folder / "rich.db", question.epsilon * (1 + 1e-6))
    with table, ledger:
        release = ask(table, question)
        assert touched, f"{name}: nothing was read"
        assert set(touched) == {(case.event,)}, f"{name}: entries when the data were read: {touched}"
        assert release.guarantee.event == case.event
        assert release.guarantee.epsilon <= question.epsilon * (1 + 1e-9)
        assert release.guarantee.delta <= question.delta
        assert [entry.event for entry in ledger.entries()] == [case.event]
        assert release.value is not None


REAL = [
    f"table_{name}"
    for name in (
        "count_replaced",
        "count_units",
        "sum_person",
        "mean_gaussian",
        "mean_of_known_n",
        "mean_with_bounds",
        "quantile",
        "quantile_person",
        "histogram",
        "crosstab_margins_person",
        "covariance",
        "keys_person",
        "top_replaced",
        "check_person",
        "bounds",
    )
]
"""Every kind of statistic, with each unit and relation among them."""


@pytest.mark.parametrize("name", REAL)
def test_the_real_table_charges_first(name: str, tmp_path: Path) -> None:
    check_charged_first(name, tmp_path)


@pytest.mark.parametrize("name", ["table_mean", "table_keys", "table_count_person"])
def test_a_table_that_reads_first_is_found(name: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="touched although the charge was refused"):
        check_charged_first(name, tmp_path, reads_then_asks)


# --------------------------------------------------------------------------------- worst cases are worst


def check_reach(name: str, moved: Callable[..., Any] = cells) -> None:
    """The neighbours are as far apart as their noise allows for: no farther, and no nearer."""
    question, case = QUESTIONS[name], REGISTRY[name]
    one, other = (
        np.concatenate([part.ravel() for part in moved(question, rows)]).astype(float)
        for rows in (case.pair.value, case.pair.neighbour)
    )
    scales = SCALES[name].each
    if question.delta:
        reach = ((one - other) ** 2 / scales**2).sum() / (2 * tc.RHO * question.part)
    else:
        reach = (np.abs(one - other) / scales).sum() / (question.epsilon * question.part)
    assert reach <= 1 + 1e-12, f"{name}: one unit moves the cells {reach:.6g} times as far as allowed"
    assert reach >= 1 - 1e-5, f"{name}: this is not the worst case, only {reach:.6g} of it"


@pytest.mark.parametrize("name", SCALES)
def test_the_worst_case_is_allowed_for_and_worst(name: str) -> None:
    check_reach(name)


def check_without(name: str, moved: Callable[..., Any]) -> None:
    """Both checks refuse cells that were computed without something."""
    with pytest.raises(AssertionError, match="times as far as allowed"):
        check_reach(name, moved)
    question, case = QUESTIONS[name], REGISTRY[name]

    def run(make: Make, rows: Rows, times: int, seed: int | None) -> np.ndarray:
        return make(seed).noisy(moved(question, rows), times)

    with pytest.raises(AssertionError, match="claims"):
        check_audit(replace(case, pair=replace(case.pair, run=run)))


def shrink_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = measure._shrunk

    def unshrunk(cell: Any, rows: Any, most: int, block: Any, *, shared: bool) -> Any:
        return everything(cell, rows, 10**6, block, shared=shared)

    weight = measure.weight
    monkeypatch.setattr(measure, "weight", lambda rows, most: weight(rows, 10**6))
    monkeypatch.setattr(measure, "_shrunk", unshrunk)


class TestTwins:
    @pytest.mark.parametrize(
        "name",
        ["table_sum_person", "table_mean", "table_mean_of_known_n"],
    )
    def test_values_that_are_not_clipped(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def unclipped(value: Any, *bounds: Any) -> Any:
            return value.nullif(math.nan) if value.type().is_floating() else value

        monkeypatch.setattr(expressions, "clip", unclipped)
        check_without(name, cache(engine_cells))

    @pytest.mark.parametrize(
        "name",
        ["table_count_person", "table_sum_person", "table_mean_gaussian", "table_histogram_person"],
    )
    def test_people_who_are_not_shrunk(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        shrink_nobody(monkeypatch)
        check_without(name, cache(engine_cells))

    @pytest.mark.parametrize("name", ["table_quantile_person", "table_top_person"])
    def test_people_who_are_not_shrunk_in_choices(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        question, case = QUESTIONS[name], REGISTRY[name]
        one, other = (cells(question, rows)[0] for rows in (case.pair.value, case.pair.neighbour))
        assert np.abs(one - other).sum() <= 3 * FRACTIONS
        shrink_nobody(monkeypatch)
        one, other = (engine_cells(question, rows)[0] for rows in (case.pair.value, case.pair.neighbour))
        assert np.abs(one - other).sum() == 7 * FRACTIONS

    @pytest.mark.parametrize("name", ["table_mean", "table_mean_person"])
    def test_missing_values_that_count(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A row with nothing in it moves nothing; it would, if NaN were the upper bound."""
        question, nothing = QUESTIONS[name], (*BASE, Row("she", pay=math.nan))
        before, after = (engine_cells(question, rows) for rows in (BASE, nothing))
        assert all(np.array_equal(*pair) for pair in zip(before, after, strict=True))
        clip = expressions.clip

        def largest(value: Any, lower: Any, upper: Any, missing: Any = None) -> Any:
            return clip(value, lower, upper, upper if value.type().is_floating() else missing)

        monkeypatch.setattr(expressions, "clip", largest)
        before, after = (engine_cells(question, rows) for rows in (BASE, nothing))
        assert not all(np.array_equal(*pair) for pair in zip(before, after, strict=True))

    def test_a_quantile_that_forgets_how_many_rows_a_person_has(self) -> None:
        class Forgets(Quantiles):
            def _sensitivity(self, fraction: float, context: Context) -> float:
                return super()._sensitivity(fraction, replace(context, unit=ROW))

        def broken(random_state: Any) -> Asked:
            asked = QUESTIONS["table_quantile_person"].made(random_state)
            known = {field.name: getattr(asked.statistic, field.name) for field in fields(Quantiles)}
            return replace(asked, statistic=Forgets(**known))

        with pytest.raises(AssertionError, match="claims"):
            check_audit(REGISTRY["table_quantile_person"], broken)

    def test_a_histogram_that_shows_undeclared_categories(self, tmp_path: Path) -> None:
        def audit_of(shown: Callable[[Rows], int]) -> None:
            """How many categories there are to see, from a table without and with another one."""

            def run(make: Make, rows: Rows, times: int, seed: int | None) -> np.ndarray:
                return np.full(times, shown(rows))

            extra = (*BASE, Row("she", sex="Z"))
            pair = Pair(extra, BASE, lambda seen: seen.astype(float), run, (1000, 1000), audit.Fixed(4.0))
            check_audit(replace(REGISTRY["table_histogram"], pair=pair))

        question = Question(lambda t, **cost: t.histogram("sex", **cost))

        def declared(rows: Rows) -> int:
            with Ledger.open(tmp_path / f"{len(rows)}.db", budget=Budget(9.0)) as ledger:
                found = asks(question.opened(rows, ledger), question).value
            assert found.index.tolist() == ["F", "M"]
            return len(found)

        audit_of(declared)
        with pytest.raises(AssertionError, match="claims"):
            audit_of(lambda rows: frame(rows)["sex"].nunique())


# ------------------------------------------------------------------------------------------- discoveries

UNIQUE = hers(Row(zip="x"), Row(zip="y"), Row(zip="z"), Row(zip="w"))
"""Four keys that nobody else has, of which she may show three."""
DISCOVERY = replace(tc.FOUND, delta=tc.DELTA)


def check_unique_keys(kind: type[Keys], unit: Unit, relation: str, added: Rows) -> None:
    """What only one unit has is shown with probability at most δ, for all its keys together."""
    question = replace(DISCOVERY, unit=unit, relation=relation)

    def make(random_state: Any) -> Asked:
        asked = question.made(random_state)
        return replace(asked, statistic=kind(asked.statistic.column))

    pair = Pair(
        (*BASE, *added),
        BASE,
        lambda seen: (seen[:, -1] > 0).astype(float),
        runs,
        (20_000, 20_000),
        audit.Fixed(1.0),
    )
    case = replace(REGISTRY["table_keys"], event=events.Approximate(1.0, tc.DELTA), delta=tc.DELTA, pair=pair)
    check_audit(case, make)
    shown = pair.score(runs(make, pair.value, 20_000, 5)).mean()
    if kind is Keys:
        assert tc.DELTA / 4 < shown < tc.DELTA, f"{shown} of δ = {tc.DELTA}: not the worst case"


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize(("unit", "added"), [(ROW, UNIQUE[:1]), (PERSON, UNIQUE)], ids=["row", "person"])
def test_unique_keys_stay_unknown(unit: Unit, relation: str, added: Rows) -> None:
    check_unique_keys(Keys, unit, relation, added)


class NoThreshold(Keys):
    """Every key that occurs is shown."""

    def threshold(self, noise: mechanisms.DiscreteLaplace, delta: float, keys: int) -> int:
        return -(2**40)


class ThresholdOfRows(Keys):
    """The threshold where the unit is a row, though a person may have three keys."""

    def threshold(self, noise: mechanisms.DiscreteLaplace, delta: float, keys: int) -> int:
        return super().threshold(replace(noise, sensitivity=1), delta, 1)


class WholeDelta(Keys):
    """Each of the three keys may be shown with probability δ."""

    def threshold(self, noise: mechanisms.DiscreteLaplace, delta: float, keys: int) -> int:
        return super().threshold(noise, 3 * delta, keys)


@pytest.mark.parametrize("kind", [NoThreshold, ThresholdOfRows, WholeDelta])
def test_thresholds_that_are_too_low(kind: type[Keys]) -> None:
    with pytest.raises(AssertionError, match="claims"):
        check_unique_keys(kind, PERSON, "add_remove", UNIQUE)


def test_keys_beyond_the_bound_are_not_counted() -> None:
    (found,) = cells(replace(DISCOVERY, unit=PERSON), (*BASE, *UNIQUE))
    assert found["n"].sum() == len(BASE) + 3


def test_an_audit_of_keys_is_the_same_in_whatever_order_an_engine_returns_them() -> None:
    (exact,) = cells(tc.FOUND, tc.MANY_KEYS)
    forwards, backwards = (tc.FOUND.made(1).found(keys, runs=20) for keys in (exact, exact[::-1]))
    assert np.array_equal(forwards, backwards)


def test_bounds_at_the_threshold() -> None:
    """With the bin of those far out just at the threshold, nearly all of ε can be seen."""
    number = tc.reach(1.0)
    pair = replace(
        tc.overlooking(number, (tc.FAR,)),
        value=(*tc.around(number), tc.FAR),
        neighbour=tc.around(number),
        score=lambda seen: 1 - tc.overlooked(seen),
    )
    case = replace(REGISTRY["table_bounds"], pair=pair)
    assert 0.5 < audited(case).epsilon < 1


# ------------------------------------------------------------------------------------- choices, exactly


def losses(asked: Asked, one: np.ndarray, other: np.ndarray) -> float:
    """The most that all choices together can tell two tables apart."""
    pairs = zip(asked.chances((one,)), asked.chances((other,)), strict=True)
    return sum(float(np.abs(np.log(a / b)).max()) for a, b in pairs)


def neighbours(unit: Unit, relation: str, shape: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random cells, and with a unit more or another one; a person's rows are spread over many cells."""
    generator = np.random.default_rng(seed)
    table = generator.poisson(generator.choice([0.05, 0.5, 3.0]), shape)
    mass = 1 if unit is ROW else FRACTIONS

    def added() -> np.ndarray:
        rows = 1 if unit is ROW else int(generator.integers(1, 12))
        ends = generator.random() < 0.5
        last = generator.choice([0, shape[-2] - 1], rows) if ends else generator.integers(0, shape[-2], rows)
        first = [generator.integers(0, size, rows) for size in shape[:-2]]
        more = np.zeros(shape, dtype=np.int64)
        np.add.at(more, (*first, last, np.zeros(rows, dtype=int)), mass)
        return (
            more if rows <= unit.rows else np.floor(more * unit.rows / rows * (1 - 2**-40)).astype(np.int64)
        )

    return table * mass + added(), table * mass + (0 if relation == "add_remove" else added())


CHOICES = {
    "value and interval": lambda t: t.median("age"),
    "a fraction": lambda t: t.quantile("age", 0.9, confidence=None),
    "fractions": lambda t: t.quantile("age", [0.1, 0.75], confidence=None),
    "groups": lambda t: t.median("age", by="sex", confidence=None),
    "leader": lambda t: t.top("kind", 1),
}


@pytest.mark.parametrize("concentrated", [False, True], ids=["flips", "exponential"])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("unit", [ROW, PERSON], ids=["row", "person"])
@pytest.mark.parametrize("name", CHOICES)
def test_no_choice_tells_more_than_it_costs(name: str, unit: Unit, relation: str, concentrated: bool) -> None:
    question = Question(CHOICES[name], unit, relation, concentrated=concentrated)
    asked, twin = question.made(1), question.made(1, less=2 / 3)
    shape = asked.statistic.measurements()[0].shape
    assert sum(sizes(asked.event)) == pytest.approx(1.0)
    worst = dict.fromkeys(("asked", "twin"), 0.0)
    for seed in range(12):
        one, other = neighbours(unit, relation, shape, seed)
        worst["asked"] = max(worst["asked"], losses(asked, one, other))
        worst["twin"] = max(worst["twin"], losses(twin, one, other))
    assert worst["asked"] <= 1 + 1e-5
    assert 1.1 < worst["twin"] / worst["asked"] < 1.8


def sizes(event: events.Event) -> list[float]:
    """The ε of each choice."""
    if isinstance(event, events.Repeat):
        return sizes(event.event) * event.times
    if isinstance(event, events.Compose):
        return [size for part in event.events for size in sizes(part)]
    return [event.epsilon]


def test_several_leaders_share_the_price() -> None:
    asked = Question(lambda t: t.top("kind", 4)).made(1)
    assert asked.event == events.Repeat(events.Pure(0.25), 4)


def test_gaussian_noise_on_people() -> None:
    question = tc.gaussian(tc.PEOPLE)
    noise = Noise(tc.draw_people, Scales(((tc.SIGMA, 1),), gaussian=True).cdf, 1600)
    case = Case("people", tc.CONCENTRATED, tc.DELTA, make=question.made, noise=noise)
    assert question.made(1).event == tc.CONCENTRATED
    check_noise(case)
    with pytest.raises(AssertionError, match="noise is off"):
        check_noise(case, lambda random_state: question.made(random_state, 2 / 3))
