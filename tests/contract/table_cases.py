"""Every statistic of tables in the registry, on worst-case neighbours.

What is charged and how large the noise should be is written down here from bounds, unit and relation alone:
a row has S steps of mass, a person with seven rows counts as three.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from ibis import _

from contract.cases import chances_cdf
from contract.registry import Make, Noise, Pair
from contract.table_questions import (
    BASE,
    CATEGORIES,
    FREQUENT,
    LEFT,
    NEAR,
    OUTSIDE,
    PERSON,
    RIGHT,
    Question,
    Ranks,
    Row,
    Rows,
    Scales,
    draws,
    hers,
    of_cells,
    of_table,
    runs,
)
from tacit import accounting, audit, events, tables
from tacit.tables.cells.measure import FRACTIONS
from tacit.tables.statistics.selection import RANK_SHARE

EPSILON, DELTA = 2.0, 0.05
"""What Gaussian noise and selections are asked for; an audit needs a δ that can be seen."""

ALLOWED = accounting.calibrate(
    lambda noise: events.ZeroConcentrated(0.5 / noise**2), epsilon=EPSILON, delta=DELTA
)
RHO = 0.5 / ALLOWED**2 * (1 - 1e-9)
PAY, PAY_SUM, FINE = 3 * 2**24, 2**25, 2**26
"""Steps of 2^−22 in the range of pay, and to the farther of its bounds; steps of squares and products."""


def concentrated(rho: float) -> events.ZeroConcentrated:
    """The event of noise bought for ρ, by way of its σ: to the last bit."""
    return events.ZeroConcentrated(0.5 / (1 / math.sqrt(2 * rho)) ** 2)


def person(question: Question) -> Question:
    return replace(question, unit=PERSON)


def replaced(question: Question) -> Question:
    return replace(question, relation="replace_one")


def gaussian(question: Question) -> Question:
    return replace(question, epsilon=EPSILON, delta=DELTA)


ONE = events.Pure(1.0)
CONCENTRATED = concentrated(RHO)
SIGMA = 1 / math.sqrt(2 * RHO)
TOP, BOTTOM = Row("she", 64, OUTSIDE), Row("she", 0, -OUTSIDE)
"""Rows at, or beyond, the upper and the lower bound of what they hold."""

NO_COLUMN = (
    ("unknown column", lambda t: t.mean("salary", epsilon=1.0)),
    ("no column", lambda t: t.mean(None, epsilon=1.0)),
    ("text", lambda t: t.mean("zip", epsilon=1.0)),
    ("category", lambda t: t.mean("sex", epsilon=1.0)),
    ("no bounds", lambda t: t.mean("free", epsilon=1.0)),
    *(
        (f"bounds={bounds!r}", lambda t, bounds=bounds: t.mean("pay", bounds=bounds, epsilon=1.0))
        for bounds in ((8, -4), (1, 1), (0, math.nan), (-math.inf, 1), (1,), (1, 2, 3), "01", 7, (None, 1))
    ),
)
NO_KEYS = (
    ("unknown keys", lambda t: t.count(by="zip", epsilon=1.0)),
    ("keys of a number", lambda t: t.count(by="pay", epsilon=1.0)),
    ("twice the same", lambda t: t.crosstab(["sex", "sex"], epsilon=1.0)),
    ("no column at all", lambda t: t.crosstab([], epsilon=1.0)),
    ("people of rows", lambda t: t.count_units(epsilon=1.0)),
    ("margins of one column", lambda t: t.crosstab(["sex"], margins=True, epsilon=1.0)),
)
NO_EDGES = tuple(
    (f"edges={edges!r}", lambda t, edges=edges: t.histogram("age", edges, epsilon=1.0))
    for edges in (0, -1, [3], [5, 1], [1, 1], [0, math.nan], "ab", 10**6, [None, 1])
)
NO_PAIR = (
    ("one column", lambda t: t.covariance(["age"], epsilon=1.0)),
    ("a category", lambda t: t.covariance(["age", "sex"], epsilon=1.0)),
    ("bounds of one only", lambda t: t.covariance(["age", "free"], bounds={"age": (0, 1)}, epsilon=1.0)),
)

COUNT = Question(lambda t, **cost: t.count(**cost))
of_cells("count", COUNT, (TOP,), (), ((1, 1),), ONE, *NO_KEYS)
of_cells("count_person", person(COUNT), hers(TOP), (), ((3, 1),), ONE)
of_cells(
    "count_replaced",
    replaced(Question(lambda t, **cost: t.count(where=_.age >= 40, **cost))),
    (TOP,), (BOTTOM,), ((1, 1),), ONE,
    ("no condition", lambda t: t.count(where=_.age + 1, epsilon=1.0)),
)  # fmt: skip
COUNT_BY = Question(lambda t, **cost: t.count(by="sex", **cost))
of_cells("count_gaussian", gaussian(COUNT_BY), (TOP,), (), ((SIGMA, 2),), CONCENTRATED)

SUM = Question(lambda t, **cost: t.sum("pay", **cost))
SUM_BY = Question(lambda t, **cost: t.sum("pay", by="sex", **cost))
of_cells("sum", SUM, (TOP,), (), ((PAY_SUM, 1),), ONE, *NO_COLUMN)
of_cells("sum_person", person(SUM), hers(TOP), (), ((3 * PAY_SUM, 1),), ONE)
of_cells("sum_replaced", replaced(SUM), (TOP,), (BOTTOM,), ((PAY, 1),), ONE)
of_cells("sum_by_replaced", replaced(SUM_BY), (TOP,), (TOP._replace(sex="M"),), ((2 * PAY_SUM, 2),), ONE)

MEAN = Question(lambda t, **cost: t.mean("pay", **cost))
KNOWN = Question(lambda t, **cost: t.mean("full", **cost), rows=5)
of_cells("mean", MEAN, (TOP,), (), ((PAY, 2),), ONE, *NO_COLUMN)
of_cells("mean_person", person(MEAN), hers(TOP), (), ((3 * PAY, 2),), ONE)
of_cells("mean_replaced", replaced(MEAN), (TOP,), (BOTTOM,), ((2 * PAY, 2),), ONE)
of_cells("mean_gaussian", gaussian(person(MEAN)), hers(BOTTOM), (), ((3 * PAY * SIGMA, 2),), CONCENTRATED)
of_cells("mean_of_known_n", KNOWN, (BOTTOM,), (), ((PAY, 1),), ONE)
of_cells("mean_of_known_n_replaced", replaced(KNOWN), (TOP,), (BOTTOM,), ((2 * PAY, 1),), ONE)

VARIANCE = Question(lambda t, **cost: t.variance("pay", **cost))
STD = Question(lambda t, **cost: t.std("age", by="sex", **cost))
of_cells("variance", VARIANCE, (TOP,), (), ((FINE, 3),), ONE, *NO_COLUMN)
of_cells("std_person", person(STD), hers(TOP), (), ((3 * FINE, 6),), ONE)

HISTOGRAM = Question(lambda t, **cost: t.histogram("age", 4, **cost))
SPREAD = hers(TOP, BOTTOM, TOP, TOP, BOTTOM)
of_cells("histogram", HISTOGRAM, (TOP,), (), ((1, 4),), ONE, *NO_EDGES)
of_cells("histogram_person", person(HISTOGRAM), SPREAD, (), ((3 * FRACTIONS, 4),), ONE)
HISTOGRAM_BY = Question(lambda t, **cost: t.histogram("age", 4, by="sex", **cost))
of_cells(
    "histogram_by", HISTOGRAM_BY, (TOP,), (), ((1, 8),), ONE, *NO_EDGES,
    ("groups by itself", lambda t: t.histogram("sex", by="sex", epsilon=1.0)),
    ("unknown groups", lambda t: t.histogram("age", 4, by="zip", epsilon=1.0)),
)  # fmt: skip
of_cells("histogram_by_person", person(HISTOGRAM_BY), SPREAD, (), ((3 * FRACTIONS, 8),), ONE)
of_cells(
    "histogram_by_replaced", replaced(HISTOGRAM_BY), (TOP,), (TOP._replace(sex="M"),), ((2, 8),), ONE
)

CROSSTAB = Question(lambda t, **cost: t.crosstab(["sex", "town"], **cost))
MARGINS = Question(lambda t, **cost: t.crosstab(["sex", "town"], margins=True, **cost))
MOVED = Row("she", sex="M", town="r")
of_cells("crosstab", CROSSTAB, (MOVED,), (), ((1, 6),), ONE, *NO_KEYS)
of_cells("crosstab_replaced", replaced(CROSSTAB), (MOVED,), (Row("she"),), ((2, 6),), ONE)
of_cells(
    "crosstab_margins", MARGINS, (MOVED,), (), ((2, 6), (4, 2), (4, 3)),
    events.Compose((events.Pure(0.5), events.Pure(0.25), events.Pure(0.25))), *NO_KEYS,
)  # fmt: skip
of_cells(
    "crosstab_margins_person",
    gaussian(person(MARGINS)),
    hers(MOVED),
    (),
    tuple(
        (3 * FRACTIONS * SIGMA / math.sqrt(part), cells)
        for part, cells in ((1 / 2, 6), (1 / 4, 2), (1 / 4, 3))
    ),
    events.Compose(tuple(concentrated(RHO * part) for part in (1 / 2, 1 / 4, 1 / 4))),
)
MARGINS_BY = Question(lambda t, **cost: t.crosstab(["sex", "kind"], by="town", margins=True, **cost))
KINDS = len(CATEGORIES)
of_cells(
    "crosstab_margins_by", MARGINS_BY, (MOVED,), (), ((2, 6 * KINDS), (4, 6), (4, 3 * KINDS)),
    events.Compose((events.Pure(0.5), events.Pure(0.25), events.Pure(0.25))),
    ("groups by a column of the table", lambda t: t.crosstab(["sex", "town"], by="sex", epsilon=1.0)),
    ("margins of one column", lambda t: t.crosstab(["sex"], by="town", margins=True, epsilon=1.0)),
)  # fmt: skip

COVARIANCE = Question(lambda t, **cost: t.covariance(["age", "pay"], **cost))
CORRELATION = Question(lambda t, **cost: t.correlation(["age", "pay"], **cost))
THIRDS = events.Repeat(events.Pure(1 / 3), 3)
of_cells("covariance", COVARIANCE, (TOP,), (), ((3 * FINE, 10),), THIRDS, *NO_PAIR)
of_cells("correlation_person", person(CORRELATION), hers(BOTTOM), (), ((9 * FINE, 10),), THIRDS, *NO_PAIR)


def chosen(
    place: int, chance: Callable[[float], float], rows: Rows, runs: int = 500, column: int = 0
) -> Noise:
    """How often a choice falls on ``place``, which ``chance(factor)`` tells."""
    return Noise(
        lambda make, runs, seed: (make(seed).many(rows, runs)[:, column] == place).astype(float),
        lambda x, factor: chances_cdf([1 - chance(factor), chance(factor)])(np.asarray(x)),
        runs,
    )


def best_of(others: int, gap: float, flips: bool) -> Callable[[float], float]:
    """How often one of many wins that is ahead by ``gap``, in rates, of ``others`` that are level.

    By permute-and-flip it is the one accepted first, at time t, with ∏(1 − t·p) of the others not before.
    """

    def chance(factor: float) -> float:
        p = math.exp(-gap / factor)
        return (1 - (1 - p) ** (others + 1)) / ((others + 1) * p) if flips else 1 / (1 + others * p)

    return chance


def selection(
    name: str,
    question: Question,
    more: Rows,
    fewer: Rows,
    score: Callable[[np.ndarray], np.ndarray],
    noise: Noise,
    *bad: tuple[str, Callable[[tables.Table], Any]],
) -> None:
    """Register a choice among candidates, at ε = 2."""
    event = events.BoundedRange(EPSILON) if question.concentrated else events.Pure(EPSILON)
    pair = Pair(more, fewer, score, draws, rule=audit.Fixed(1.0))
    of_table(name, replace(question, epsilon=EPSILON), pair, noise, event, *bad)


def spread(*places: int) -> Rows:
    """One row each at these ranks, of different people."""
    return tuple(Row(f"person {i}", rank=place) for i, place in enumerate(places))


NO_FRACTION = (
    *(
        (f"q={q!r}", lambda t, q=q: t.quantile("rank", q, epsilon=1.0))
        for q in (0, 1, 0.0, 1.0, -0.1, 1.5, math.nan, "half", None, [], [0.5, 0.5], [0.5, 2.0], True)
    ),
    *(
        (f"confidence={level!r}", lambda t, level=level: t.median("rank", confidence=level, epsilon=1.0))
        for level in (0, 1, math.nan, "95 %")
    ),
    ("text", lambda t: t.median("zip", epsilon=1.0)),
    ("no bounds", lambda t: t.median("free", epsilon=1.0)),
)
MEDIAN = Question(lambda t, **cost: t.median("rank", confidence=None, **cost))
END = LEFT + RIGHT


def beyond(seen: np.ndarray) -> np.ndarray:
    """Whether the choice fell above the rows in the middle.

    Half a row off on either side without the row below all others; with it, level below and a row off above.
    """
    return (seen[:, 0] > LEFT).astype(float)


selection(
    "quantile", MEDIAN, spread(LEFT), spread(LEFT, 0), beyond,
    chosen(LEFT, best_of(END, 5.0, flips=True), spread(*[LEFT] * 5)), *NO_FRACTION,
)  # fmt: skip
selection(
    "quantile_of_a_fraction", Question(lambda t, **cost: t.quantile("rank", 0.5, confidence=None, **cost)),
    spread(LEFT), spread(LEFT, 0), beyond,
    chosen(LEFT, best_of(END, 5.0, flips=True), spread(*[LEFT] * 5)), *NO_FRACTION,
)  # fmt: skip
selection(
    "quantile_person", replace(person(MEDIAN), concentrated=True),
    spread(*[LEFT] * 3), spread(*[LEFT] * 3) + hers(Row(rank=0)), beyond,
    chosen(LEFT, best_of(END, 5.0, flips=False), spread(*[LEFT] * 15)),
)  # fmt: skip
selection(
    "quantile_replaced", replaced(MEDIAN), spread(0, LEFT, LEFT, END), spread(0, LEFT, LEFT, 0), beyond,
    chosen(LEFT, best_of(END, 5.0, flips=True), spread(*[LEFT] * 10)),
)  # fmt: skip

MEDIAN_RANKS = Ranks(lambda t, **cost: t.median("rank", **cost), epsilon=1 / RANK_SHARE)
"""For ε = 5 the ranks have ε = 1: five parts of the rows, cut by four ends."""
SEVERAL_RANKS = Ranks(lambda t, **cost: t.quantile("rank", [0.5, 0.3], by="sex", **cost), epsilon=5.0)
"""Nine parts of the rows of either sex."""
FIRST_RANK, LAST_RANK = Row("she", rank=0), Row("she", rank=END)

of_cells(
    "ranks", MEDIAN_RANKS, (FIRST_RANK,), (), ((FRACTIONS, 5),), ONE, *NO_FRACTION, number=6000
)  # fmt: skip
of_cells(
    "ranks_person", person(MEDIAN_RANKS), hers(FIRST_RANK, LAST_RANK), (), ((3 * FRACTIONS, 5),), ONE,
    number=6000,
)  # fmt: skip
of_cells(
    "ranks_replaced", replaced(MEDIAN_RANKS), (FIRST_RANK,), (LAST_RANK,), ((2 * FRACTIONS, 5),), ONE,
    number=6000,
)  # fmt: skip
of_cells(
    "ranks_by_replaced", replaced(SEVERAL_RANKS), (FIRST_RANK,), (FIRST_RANK._replace(sex="M"),),
    ((2 * FRACTIONS, 18),), ONE, number=6000,
)  # fmt: skip

LEADING = Question(lambda t, **cost: t.top("kind", 1, **cost))
LEVEL: Rows = tuple(Row(f"person {i}", kind=kind) for i, kind in enumerate(CATEGORIES))
FIRST, SECOND = (Row("she", kind=kind) for kind in CATEGORIES[:2])
CLOSE: Rows = LEVEL + (FIRST,) * 19 + (SECOND,) * 21


def leads(seen: np.ndarray) -> np.ndarray:
    return (seen[:, 0] == 0).astype(float)


NO_NUMBER = tuple(
    (f"k={k!r}", lambda t, k=k: t.top("kind", k, epsilon=1.0)) for k in (0, -1, 31, 1.5, "2", None, True)
)
selection(
    "top", LEADING, (*LEVEL, FIRST), LEVEL, leads,
    chosen(0, best_of(29, 4.0, flips=True), (*LEVEL, FIRST, FIRST)), *NO_NUMBER,
)  # fmt: skip
selection(
    "top_person", replace(person(LEADING), concentrated=True), LEVEL + hers(FIRST), LEVEL, leads,
    chosen(0, best_of(29, 4.0, flips=False), LEVEL + tuple(FIRST._replace(who=f"fan {i}") for i in range(6))),
)  # fmt: skip
selection(
    "top_replaced", replaced(LEADING), (*CLOSE, FIRST), (*CLOSE, SECOND), leads,
    chosen(0, best_of(29, 4.0, flips=True), LEVEL + (FIRST,) * 4),
)  # fmt: skip

FOUND = Question(lambda t, **cost: t.keys("zip", **cost), delta=1e-7)
MANY_KEYS: Rows = tuple(Row(f"{key}{i}", zip=key) for key in FREQUENT for i in range(150))
NO_DISCOVERY = (
    ("no delta", lambda t: t.keys("zip", epsilon=1.0)),
    ("declared keys", lambda t: t.keys("sex", epsilon=1.0, delta=1e-6)),
    ("a number", lambda t: t.keys("free", epsilon=1.0, delta=1e-6)),
    ("unknown column", lambda t: t.keys("zap", epsilon=1.0, delta=1e-6)),
)


def discovered(name: str, question: Question, scale: float, more: Rows, fewer: Rows, *bad: Any) -> None:
    """Register the discovery of keys, with neighbours that differ in keys that many have."""
    scales = Scales(((scale, len(FREQUENT)),))

    def score(seen: np.ndarray) -> np.ndarray:
        one, other = (
            np.array([sum(row.zip == k for row in distinct(rows)) for k in FREQUENT])
            for rows in (more, fewer)
        )
        counts = seen[:, :-1]
        return (np.abs(counts - other) - np.abs(counts - one)).sum(axis=1) / np.abs(one - other).sum()

    def draw(make: Make, runs: int, seed: int | None) -> np.ndarray:
        return (make(seed).many(MANY_KEYS, -(-runs // 8))[:, :-1] - 150).ravel().astype(float)

    pair = Pair(more, fewer, score, runs, (20_000, 20_000), audit.Fixed(1 - 1e-9))
    event = events.Approximate(1.0, 1e-7)
    of_table(name, question, pair, Noise(draw, scales.cdf, 4000), event, *bad)


def distinct(rows: Rows) -> list[Row]:
    """One row for each key of each person."""
    return list({(row.who, row.zip): row for row in rows}.values())


discovered("keys", FOUND, 1, (*MANY_KEYS, Row("she")), MANY_KEYS, *NO_DISCOVERY)
discovered(
    "keys_person", person(FOUND), 3, MANY_KEYS + hers(Row(zip="a"), Row(zip="b"), Row(zip="c")), MANY_KEYS
)
discovered("keys_replaced", replaced(FOUND), 2, (*MANY_KEYS, Row("she")), (*MANY_KEYS, Row("she", zip="b")))


FAR = Row("she", free=1000.0)
BINS = 2 * 84 + 1
"""Bins between powers of two from 2^−20 to 2^63, either way, and around zero."""


def around(number: int) -> Rows:
    """A crowd near one, and ``number`` people far out."""
    crowd = tuple(Row(f"near {i}", free=1.0) for i in range(100))
    return crowd + tuple(Row(f"far {i}", free=1000.0) for i in range(number))


def overlooked(seen: np.ndarray) -> np.ndarray:
    """Whether the bounds leave out those who are far out."""
    return (seen[:, 1] == NEAR[1]).astype(float)


def reach(epsilon: float) -> int:
    """The count above which a bin is noticed: noise alone gets there one time in a hundred, in any bin."""
    ratio = math.exp(-epsilon)
    return next(k for k in range(10**6) if 2 * ratio ** (k + 1) / (1 + ratio) * BINS <= 0.01)


def noticing(rows: int, number: int) -> Noise:
    """How often ``number`` people far out widen the bounds, noise and threshold both growing."""

    def chance(factor: float) -> float:
        if rows == 1:
            limit = reach(1 / factor)
            return float(1 - Scales(((1, 1),)).cdf(np.array([limit - number]), factor)[0])
        left = (number - rows * factor * math.log(100 * BINS)) / (rows * factor)
        return 0.5 * math.exp(left) if left < 0 else 1 - 0.5 * math.exp(-left)

    return chosen(1024, chance, around(number), 300, column=1)


NO_RANGE = (
    ("text", lambda t: t.bounds("zip", epsilon=1.0)),
    ("category", lambda t: t.bounds("sex", epsilon=1.0)),
    ("unknown column", lambda t: t.bounds("fee", epsilon=1.0)),
    ("bounds of text", lambda t: t.mean("zip", bounds="dp", epsilon=1.0)),
)
LEARNED = Question(lambda t, **cost: t.bounds("free", **cost))


def overlooking(number: int, added: Rows) -> Pair:
    """Neighbours of whom the one with more people far out is less likely to overlook them."""
    return Pair(around(number), around(number) + added, overlooked, runs, (1200, 1200), audit.Fixed(1.0))


of_table("bounds", LEARNED, overlooking(reach(1.5), (FAR,)), noticing(1, reach(1.0)), ONE, *NO_RANGE)
of_table("bounds_person", person(LEARNED), overlooking(19, hers(FAR)), noticing(3, 29), ONE)

BOUGHT = Question(lambda t, **cost: t.mean("free", bounds="dp", **cost))
MASS = 2**25
"""Steps of 2^−25 from one to two."""


CROWD = around(0)
LAST = (100 * MASS, 0)
"""The exact cells of the crowd, all of it at the lower bound."""


def draw_after_bounds(make: Make, runs: int, seed: int | None) -> np.ndarray:
    return (make(seed).many(CROWD, -(-runs // 2)) - LAST).ravel().astype(float)


of_table(
    "mean_with_bounds",
    BOUGHT,
    Pair((*CROWD, FAR), CROWD, lambda seen: seen[:, 1], runs, rule=audit.Fixed(MASS)),
    Noise(draw_after_bounds, Scales(((MASS / 0.8, 1),)).cdf),
    events.Compose((events.Pure(0.2), events.Pure(0.8))),
    *NO_RANGE,
)

PEOPLE = person(Question(lambda t, **cost: t.count_units(**cost)))


def draw_people(make: Make, runs: int, seed: int | None) -> np.ndarray:
    return make(seed).many(BASE, runs)[:, 0].astype(float) - len(BASE)


of_table(
    "count_units", PEOPLE,
    Pair(BASE + hers(TOP), BASE, lambda seen: seen[:, 0], runs, (1500, 1500), audit.Fixed(len(BASE) + 1)),
    Noise(draw_people, Scales(((1, 1),)).cdf, 2500), ONE,
)  # fmt: skip

CHECK = Question(lambda t, **cost: t.check(["age", "pay", "sex"], **cost))
"""A row is in one of four states of each of three columns."""
CHECK_TWO = Question(lambda t, **cost: t.check(["age", "sex"], **cost))
UNFIT = Row("she", None, OUTSIDE, "X")
NO_CHECK = tuple(
    (f"columns={columns!r}", lambda t, columns=columns: t.check(columns, epsilon=1.0))
    for columns in (["nobody"], [], ["age", "age"], [7], "who")
)
of_cells("check", CHECK, (UNFIT,), (), ((3, 12),), ONE, *NO_CHECK)
of_cells("check_person", person(CHECK), hers(UNFIT), (), ((9 * FRACTIONS, 12),), ONE)
of_cells("check_replaced", replaced(CHECK_TWO), (Row("she"),), (UNFIT,), ((4, 8),), ONE)
of_cells("check_gaussian", gaussian(CHECK), (UNFIT,), (), ((math.sqrt(3) * SIGMA, 12),), CONCENTRATED)
