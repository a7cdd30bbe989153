"""What one unit can move: cells of neighbouring tables differ by no more than the sensitivity."""

from __future__ import annotations

import math
from collections.abc import Iterator

import ibis
import numpy as np
import pandas as pd
import pytest

import tacit
from tacit import Column, Schema, Unit
from tacit.data.source import connect
from tacit.relations import Relation
from tacit.tables.cells.axes import Axis, Bins, Steps, bins_of, key_axis
from tacit.tables.cells.measure import FRACTIONS, Block, Measurement, measure
from tacit.tables.cells.values import value_of
from tacit.tables.statistics.selection import _scores

COLUMNS = {
    "age": Column("integer", bounds=(17, 90)),
    "pay": Column("number", bounds=(-5.0, 2e5)),
    "far": Column("number", bounds=(1e15, 1e15 + 3)),
    "huge": Column("integer", bounds=(-(2**53), 2**53)),
    "sex": Column("category", categories=("F", "M")),
    "town": Column("category", categories=("a", "b", "c"), other="elsewhere"),
    "ok": Column("boolean"),
}
AWKWARD = {
    "age": [None, 17, 90, 16, 91, 40, 2**31, -(2**31)],
    "pay": [None, math.nan, math.inf, -math.inf, 0.0, -5.0, 2e5, 1e300, -1e300, 123.456, 5e-324],
    "far": [None, 1e15, 1e15 + 3, 1e15 + 1.37, 0.0, math.inf],
    "huge": [None, 2**63 - 1, -(2**63), 2**53, -(2**53), 0, 1],
    "sex": [None, "F", "M", "X", ""],
    "town": [None, "a", "b", "c", "d", "elsewhere"],
    "ok": [None, True, False],
}
WORLDS = 120
"""How many tables, a third of them without the differing unit, a third with it, a third with another."""


def frame(rows: list[dict[str, object]]) -> pd.DataFrame:
    made = pd.DataFrame(rows, columns=[*AWKWARD, "who", "world"]).astype(object)
    return made.astype({"pay": float, "far": float})


def exact(rows: list[dict[str, object]], unit: Unit, measurements: list[Measurement]) -> list[np.ndarray]:
    source = connect(frame(rows), Schema(COLUMNS, unit=unit))
    try:
        return measure(source, source.table, unit, measurements)
    finally:
        source.close()


def measurements() -> Iterator[Measurement]:
    schema = Schema(COLUMNS)
    axes: list[tuple[Axis, ...]] = [
        (),
        (key_axis(schema, "sex"),),
        (key_axis(schema, "town"), key_axis(schema, "ok")),
        (key_axis(schema, "age"),),
        (Bins("pay", "number", (-math.inf, 0.0, 10.0, math.inf), (-math.inf, 0.0, 10.0, math.inf)),),
        (Steps(value_of(schema, "pay", None, resolution=4)),),
    ]
    for these in axes:
        yield Measurement(Block("count"), these)
    for column in ("age", "pay", "far", "huge", "ok"):
        for these in axes[:2]:
            yield Measurement(Block("mean", (value_of(schema, column, None),)), these)
            yield Measurement(Block("square", (value_of(schema, column, None, "fine"),)), these)
            yield Measurement(Block("total", (value_of(schema, column, None, "around_zero"),)), these)
    pair = tuple(value_of(schema, column, None, "fine") for column in ("age", "pay"))
    yield Measurement(Block("product", pair))
    yield Measurement(Block("product", pair), axes[1])
    yield Measurement(Block("mean", (value_of(schema, "pay", (0.0, 1.0)),)))


ALL = list(measurements())


def worlds(unit: Unit, seed: int) -> list[dict[str, object]]:
    """The rows of many small tables: those of others, and in two of three worlds those of one unit."""
    rng = np.random.default_rng(seed)

    def rows(most: int, who: str) -> list[dict[str, object]]:
        count = int(rng.integers(0, most + 1))
        return [
            {"who": who, **{name: values[rng.integers(len(values))] for name, values in AWKWARD.items()}}
            for _ in range(count)
        ]

    made = []
    for first in range(0, WORLDS, 3):
        others = [row for who in ("he", "they") for row in rows(4, who)]
        for world, hers in ((first, []), (first + 1, rows(9 if unit.column else 1, "she")),
                            (first + 2, rows(9 if unit.column else 1, "she"))):  # fmt: skip
            made += [{**row, "world": world, "who": f"{world} {row['who']}"} for row in (*others, *hers)]
    return made


@pytest.mark.parametrize("unit", [Unit(), Unit("who", 3)], ids=str)
def test_no_unit_moves_the_cells_farther_than_the_sensitivity(unit: Unit) -> None:
    """Every pair of neighbours among many tables of awkward values, in one query per axes."""
    schema = Schema({**COLUMNS, "world": Column("integer", bounds=(0, WORLDS - 1))}, unit=unit)
    apart = key_axis(schema, "world")
    together = [Measurement(each.block, (apart, *each.axes)) for each in ALL]
    source = connect(frame(worlds(unit, seed=3)), schema)
    found = measure(source, source.table, unit, together)
    source.close()
    for alone, outer, cells in zip(ALL, together, found, strict=True):
        finer = outer.mass(unit) / alone.mass(unit)
        without, one, other = (cells[k::3].reshape(WORLDS // 3, -1).astype(float) for k in range(3))
        for relation, moved in (("add_remove", one - without), ("replace_one", one - other)):
            for norm in (1, 2):
                allowed = alone.sensitivity(Relation(relation), unit, norm) * finer
                reached = np.linalg.norm(moved, norm, axis=1).max()
                assert reached <= allowed * (1 + 1e-12), (alone, relation, norm, reached, allowed)
        assert np.abs(one - without).max() > 0, alone


@pytest.mark.parametrize("unit", [Unit(), Unit("who", 3)], ids=str)
def test_the_sensitivity_is_reached(unit: Unit) -> None:
    """No bound is larger than it must be: some unit moves the cells as far, but for rounding."""
    few = [each for each in ALL if not each.axes or each.axes[0].column == "sex"]
    corners = [
        {"age": 90, "pay": 2e5, "far": 1e15 + 3, "huge": 2**53, "sex": "F", "town": "a", "ok": True},
        {"age": 17, "pay": -5.0, "far": 1e15, "huge": -(2**53), "sex": "M", "town": "b", "ok": False},
    ]
    moved = [exact([{**corner, "who": "she"}] * (7 if unit.column else 1), unit, few) for corner in corners]
    for measurement, one, other in zip(few, *moved, strict=True):
        allowed = measurement.sensitivity(Relation.ADD_REMOVE, unit, 1)
        reached = max(np.abs(one).sum(), np.abs(other).sum())
        assert reached >= allowed * (1 - 1e-6) - unit.rows * 4, measurement


def test_cells_of_rows_against_pandas() -> None:
    rng = np.random.default_rng(5)
    n = 3000
    data = pd.DataFrame({
        "age": rng.integers(10, 100, n),
        "pay": np.where(rng.random(n) < 0.1, np.nan, rng.normal(4e4, 8e4, n)),
        "sex": rng.choice(["F", "M", "X"], n),
    })  # fmt: skip
    schema = Schema({name: COLUMNS[name] for name in ("age", "pay", "sex")})
    source = connect(data, schema)
    age, pay = (value_of(schema, name, None, "fine") for name in ("age", "pay"))
    wanted = [
        Measurement(Block("count"), (key_axis(schema, "sex"),)),
        Measurement(Block("mean", (value_of(schema, "age", None),)), (key_axis(schema, "sex"),)),
        Measurement(Block("square", (pay,))),
        Measurement(Block("product", (age, pay))),
    ]
    counts, means, squares, products = measure(source, source.table, Unit(), wanted)
    source.close()
    clipped = data.assign(age=data.age.clip(17, 90), pay=data.pay.clip(-5, 2e5))
    known = clipped[clipped.sex.isin(["F", "M"])].groupby("sex")
    assert counts[..., 0].tolist() == known.size().tolist()
    assert means[..., 1].tolist() == (known.age.sum() - 17 * known.size()).tolist()
    assert means.sum(axis=-1).tolist() == (73 * known.size()).tolist()
    there = clipped.dropna()
    z, a = (there.pay + 5) / 200005, (there.age - 17) / 73
    mass = 2**26
    assert squares.sum() == mass * len(there)
    assert squares[2] / mass == pytest.approx((z**2).sum(), abs=1e-3)
    assert (squares[1] / 2 + squares[2]) / mass == pytest.approx(z.sum(), abs=1e-3)
    assert products.sum() == mass * len(there)
    assert products[3] / mass == pytest.approx((a * z).sum(), abs=1e-3)


def test_people_are_shrunk_to_their_bound() -> None:
    """A person with c > k rows counts k/c for each: shares of groups stay as they were."""
    hers = [{"age": 90, "sex": "F", "who": "she"}] * 4 + [{"age": 17, "sex": "M", "who": "she"}] * 2
    his = [{"age": 53, "sex": "M", "who": "he"}] * 2
    unit = Unit("who", 3)
    schema = Schema({name: COLUMNS[name] for name in ("age", "sex")}, unit=unit)
    source = connect(pd.DataFrame(hers + his), schema)
    by_sex = (key_axis(schema, "sex"),)
    plain, grouped, ages = measure(
        source, source.table, unit,
        [Measurement(Block("count")), Measurement(Block("count"), by_sex),
         Measurement(Block("mean", (value_of(schema, "age", None),)), by_sex)],
    )  # fmt: skip
    source.close()
    assert plain.tolist() == [5]
    assert grouped[..., 0] / FRACTIONS == pytest.approx([2, 3], abs=1e-5)
    assert ages[0] == pytest.approx([0, 2 * 73], abs=1)
    assert ages[1] == pytest.approx([73 + 2 * 37, 2 * 36], abs=2)


def test_rows_without_a_person_are_left_out() -> None:
    unit = Unit("who", 2)
    data = pd.DataFrame({"age": [20, 30, 40], "who": ["a", None, None]})
    schema = Schema({"age": COLUMNS["age"]}, unit=unit)
    source = connect(data, schema)
    assert measure(source, source.table, unit, [Measurement(Block("count"))])[0].tolist() == [1]
    source.close()


def test_one_query_for_the_same_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema({"age": COLUMNS["age"], "sex": COLUMNS["sex"]})
    source = connect(pd.DataFrame({"age": [20, 30], "sex": ["F", "M"]}), schema)
    ran: list[ibis.Table] = []
    run = type(source).run
    monkeypatch.setattr(type(source), "run", lambda self, query: ran.append(query) or run(self, query))
    age = value_of(schema, "age", None)
    measure(
        source, source.table, Unit(),
        [Measurement(Block("count")), Measurement(Block("mean", (age,))), Measurement(Block("total", (age,))),
         Measurement(Block("count"), (key_axis(schema, "sex"),))],
    )  # fmt: skip
    source.close()
    assert len(ran) == 2
    assert tacit.tables is not None


@pytest.mark.parametrize("fraction", [0.05, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("scale", [0.3, 2.0, 40.0])
def test_a_row_moves_no_score_of_a_quantile_farther_than_claimed(fraction: float, scale: float) -> None:
    """By max(q, 1−q) when it is added, by 1 when it is replaced; and some row does move one as far."""
    rng = np.random.default_rng(8)
    reached, replaced = 0.0, 0.0

    def scores(rows: np.ndarray) -> np.ndarray:
        return _scores(rows * FRACTIONS, FRACTIONS, fraction, 1.5, scale)

    for _ in range(2000):
        counts = rng.integers(0, rng.choice([2, 12, 200]), 9)
        before = scores(counts)
        added, moved = counts.copy(), counts.copy()
        added[rng.integers(9)] += 1
        here, there = rng.permutation(9)[:2]
        if counts[here] > 0:
            moved[here] -= 1
            moved[there] += 1
        reached = max(reached, np.abs(scores(added) - before).max())
        replaced = max(replaced, np.abs(scores(moved) - before).max())
    assert reached == pytest.approx(max(fraction, 1 - fraction))
    assert replaced == pytest.approx(1.0)


def test_counting_people_by_reading_twice_is_the_same_sum() -> None:
    generator = np.random.default_rng(4)
    size, unit = 3_000, Unit("who", 3)
    data = pd.DataFrame(
        {
            "age": generator.integers(10, 95, size),
            "sex": generator.choice(["F", "M", "?", None], size),
            "who": np.where(generator.random(size) < 0.1, None, generator.integers(0, 700, size).astype(str)),
        }
    )
    data.loc[:400, "who"] = "the same"
    schema = Schema({name: COLUMNS[name] for name in ("age", "sex")}, unit=unit)
    source = connect(data, schema)
    axes = (key_axis(schema, "sex"), bins_of(schema, "age", [20, 30, 33, 80]))
    wanted = [Measurement(Block("count"), axes)]
    assert source.steady
    (twice,) = measure(source, source.table, unit, wanted)
    source.steady = False
    (once,) = measure(source, source.table, unit, wanted)
    source.close()
    assert once.sum() > 0
    assert twice.tolist() == once.tolist()


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (-3.7, 91.3), (0.0, 2e5), (1e-9, 3e-9), (-1e100, 1e100)]
)
@pytest.mark.parametrize("count", [1, 3, 10, 20, 49, 64])
def test_equal_bins_agree_with_their_edges(low: float, high: float, count: int) -> None:
    """Values at and beside every edge, whether the bin is computed or searched for."""
    schema = Schema({"x": Column("number", bounds=(low, high))})
    axis = bins_of(schema, "x", count)
    assert isinstance(axis, Bins)
    edges = np.array(axis.edges)
    beside = [edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)]
    between = np.random.default_rng(1).uniform(low / 2, high / 2, 500)
    x = np.clip(np.concatenate([*beside, between]), low, high)
    source = connect(pd.DataFrame({"x": x}), schema)
    (cells,) = measure(source, source.table, Unit(), [Measurement(Block("count"), (axis,))])
    source.close()
    expected = np.minimum(np.searchsorted(edges, x, side="right") - 1, count - 1)
    assert cells[:, 0].tolist() == np.bincount(expected, minlength=count).tolist()


def test_some_equal_bins_are_computed_and_some_searched_for() -> None:
    schema = Schema({"x": Column("number", bounds=(0.0, 2e5)), "y": Column("number", bounds=(-3.7, 91.3))})
    regular, irregular = bins_of(schema, "x", 20), bins_of(schema, "y", 49)
    assert isinstance(regular, Bins)
    assert isinstance(irregular, Bins)
    assert regular._width == 1e4
    assert irregular._width is None
