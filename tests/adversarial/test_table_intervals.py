"""Intervals of tables cover the exact answer as often as they say, for every data set.

The noise is drawn again and again on known cells, which is all that an interval is about. Of R independent
intervals that cover with probability 95 %, the share that does is below 95 % − 4.9·√(0.95·0.05/R) once in
two million; the seeds are fixed. Every check is shown to find an interval that does not hold: the one that
was made by drawing the noise once more and taking it off (means, covariances), by choosing candidates for
their ranks (quantiles), or by forgetting that a key is only shown if it has passed a threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contract.mends import Scene, mend, replacing
from tacit import Budget, Column, Schema, Unit, mechanisms
from tacit.data.source import connect
from tacit.errors import InvalidValue
from tacit.mechanisms._grid import grid_exponent
from tacit.randomness import Source as RandomSource
from tacit.relations import Relation
from tacit.tables import Table
from tacit.tables.cells.axes import Axis
from tacit.tables.cells.measure import FRACTIONS, measure
from tacit.tables.cells.noise import Context
from tacit.tables.release import Answer
from tacit.tables.statistics import intervals, moments, ranks, selection
from tacit.tables.statistics.contrasts import Law, reach_of_sums, surprising
from tacit.tables.statistics.discovery import NoisyKeys
from tacit.tables.statistics.postprocess import non_negative
from tacit.tables.statistics.selection import MOST_TOUCHED, TARGET_ROUNDED, Quantiles

MISS = 0.05
ROW = 2.0**26
Array = np.ndarray


def check_covered(inside: Any) -> None:
    inside = np.asarray(inside)
    allowed = 1 - MISS - 4.9 * math.sqrt(MISS * (1 - MISS) / len(inside))
    share = inside.mean(axis=0)
    assert np.all(share >= allowed), f"covers {share}, not {1 - MISS}"


# ------------------------------------------------------------------------ functions of noisy cells


def columns(name: str, n: int) -> tuple[Array, Array]:
    """Two columns of n values between 0 and 1."""
    rng = np.random.default_rng(n)
    x = {
        "spread": rng.random(n),
        "skewed": rng.random(n) ** 8,
        "both bounds": np.arange(n) % 2 * 1.0,
        "at a bound": np.ones(n),
        "tied": np.full(n, 0.3),
    }[name]
    return x, 1 - x


DATA = ("spread", "skewed", "both bounds", "at a bound", "tied")
SIZES = (1, 2, 10, 12, 50, 1000)
REPEATS = 2000


def cells_of(kind: str, x: Array, y: Array) -> Array:
    corners = {
        "mean": (1 - x, x),
        "variance": ((1 - x) ** 2, 2 * x * (1 - x), x * x),
        "covariance": ((1 - x) * (1 - y), x * (1 - y), (1 - x) * y, x * y),
    }[kind]
    return np.array([corner.sum() for corner in corners]) * ROW


def truth_of(kind: str, x: Array, y: Array) -> float:
    if kind == "mean":
        return float(x.mean())
    other = x if kind == "variance" else y
    return float(((x - x.mean()) * (other - other.mean())).sum() / max(len(x) - 1, 1))


def noisy(cells: Array, law: Law, repeats: int, seed: int) -> Array:
    rng, size = np.random.default_rng(seed), (repeats, len(cells))
    drawn = rng.normal(0, law.scale, size) if law.gaussian else rng.laplace(0, law.scale, size)
    return np.rint(cells) + np.rint(drawn)


def enclosed(kind: str, cells: Array, law: Law, miss: float = MISS) -> tuple[Array, Array]:
    if kind == "mean":
        return intervals.mean(cells, law, miss)
    return intervals.covariance(cells, ROW, law, miss)


def estimated(kind: str, cells: Array) -> Array:
    """Read off the cells as a release is."""
    mass = cells.sum(axis=-1)
    with np.errstate(all="ignore"):
        if kind == "mean":
            return np.clip(np.where(mass > 0, cells[..., 1] / mass, 0.5), 0, 1)
        one, other = (
            [cells[..., 1] / 2 + cells[..., 2]] * 2
            if kind == "variance"
            else [cells[..., side] + cells[..., 3] for side in (1, 2)]
        )
        moments = (
            np.clip(np.where(mass > 0, part / mass, 0.5), 0, 1) for part in (one, other, cells[..., -1])
        )
        first, second, both = moments
        n = np.maximum(mass / ROW, 2)
        return (both - first * second) * n / (n - 1)


def drawn_again(kind: str, cells: Array, law: Law, miss: float = MISS) -> tuple[Array, Array]:
    """The twin: the spread of the estimate over noise that is taken off the released cells."""
    noise = noisy(np.zeros(cells.shape[-1]), law, 400, 1)
    estimates = estimated(kind, cells[:, np.newaxis] - noise)
    low, high = np.quantile(estimates, [miss / 2, 1 - miss / 2], axis=1)
    return np.minimum(low, estimated(kind, cells)), np.maximum(high, estimated(kind, cells))


def held(
    kind: str, data: str, n: int, epsilon: float, method: Callable[..., tuple[Array, Array]],
    gaussian: bool = False, repeats: int = REPEATS,
) -> Array:  # fmt: skip
    x, y = columns(data, n)
    law = Law(ROW / epsilon, gaussian)
    low, high = method(kind, noisy(cells_of(kind, x, y), law, repeats, n), law)
    truth = truth_of(kind, x, y)
    return (low <= truth + 1e-12) & (truth - 1e-12 <= high)


@pytest.mark.parametrize("gaussian", [False, True], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("kind", ["mean", "variance", "covariance"])
def test_functions_of_cells_for_every_data_set(kind: str, gaussian: bool) -> None:
    for data in DATA:
        for n in SIZES:
            for epsilon in (0.01, 0.1, 1.0, 30.0):
                if gaussian and epsilon in (0.01, 30.0):
                    continue
                check_covered(held(kind, data, n, epsilon, enclosed, gaussian, 300))


def draws_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(intervals, "mean", partial(drawn_again, "mean"))
    patch.setattr(intervals, "covariance", lambda cells, row, *law: drawn_again("covariance", cells, *law))


def enclosing(scene: Scene, given: tuple[Any, ...]) -> None:
    check_covered(held(*given, enclosed))


FEW = ("mean", "at a bound", 10, 0.1), ("mean", "tied", 2, 0.3), ("covariance", "both bounds", 50, 0.3)
for few in FEW:
    mend(15, f"the interval of a {few[0]}, values {few[1]}", twin=draws_again)(
        partial(enclosing, given=few)
    )


@pytest.mark.parametrize(("kind", "wider"), [("mean", 1.02), ("variance", 1.05), ("covariance", 1.05)])
def test_among_many_rows_they_are_hardly_wider(kind: str, wider: float) -> None:
    x, y = columns("spread", 30_000)
    law = Law(ROW, gaussian=False)
    cells = noisy(cells_of(kind, x, y), law, 300, 2)
    low, high = enclosed(kind, cells, law)
    around = estimated(kind, noisy(cells_of(kind, x, y), law, 200_000, 3))
    assert np.median(high - low) <= wider * np.subtract(*np.quantile(around, [1 - MISS / 2, MISS / 2]))


@pytest.mark.parametrize(
    ("partner", "n", "epsilon"),
    [
        ("opposite", 12, 10.0),
        ("opposite", 200, 1.0),
        ("independent", 50, 10.0),
        ("equal", 1000, 1.0),
        ("flat", 50, 9.0),
    ],
)
def test_correlations(partner: str, n: int, epsilon: float) -> None:
    rng = np.random.default_rng(n)
    x = rng.random(n)
    y = {"opposite": 1 - x, "independent": rng.random(n), "equal": x, "flat": np.full(n, 0.5)}[partner]
    law, repeats = Law(3 * ROW / epsilon, gaussian=False), 60
    blocks = [
        noisy(cells_of("variance", x, y), law, repeats, 1),
        noisy(cells_of("variance", y, x), law, repeats, 2),
        noisy(cells_of("covariance", x, y), law, repeats, 3),
    ]
    low, high = intervals.correlation(*blocks, ROW, law, MISS)
    truth = 0.0 if partner == "flat" else np.corrcoef(x, y)[0, 1]
    check_covered((low <= truth + 1e-9) & (truth - 1e-9 <= high))


# ------------------------------------------------------------------------------ questions, as they are asked


class Asked:
    """A question on some rows: the exact cells are found once, the noise as often as one likes."""

    def __init__(
        self, data: pd.DataFrame, columns: dict[str, Column], ask: Callable[[Any], Any], epsilon: float,
        delta: float = 0.0, unit: Unit | None = None, relation: str = "add_remove",
    ) -> None:  # fmt: skip
        unit = unit or Unit()
        schema = Schema(columns, unit=unit)
        self.context = Context(Relation(relation), unit, RandomSource(1), None, concentrated=False)
        source = connect(data, schema)
        ledger: Any = SimpleNamespace(budget=Budget(1e6, 0.5))
        batch = Table(source, source.table, schema, ledger, self.context).batch(epsilon=epsilon, delta=delta)
        ask(batch)
        self.statistic: Any = batch._asked[0].statistic
        self.share = batch._shares()[0]
        self.cells = measure(source, source.table, unit, self.statistic.measurements())
        source.close()

    def answers(self, repeats: int) -> Iterator[Answer]:
        for _ in range(repeats):
            yield self.statistic.with_noise(self.share, self.context).answer(self.cells)

    def covered(self, truth: Any, repeats: int, simultaneous: bool = False) -> Array:
        inside = []
        for answer in self.answers(repeats):
            low, high = (np.asarray(answer.show(end), float) for end in answer.interval(0.95, simultaneous))
            inside.append(np.ravel((low <= np.asarray(truth) + 1e-9) & (np.asarray(truth) - 1e-9 <= high)))
        found = np.array(inside)
        return found.all(axis=1) if simultaneous else found


VISITS = pd.DataFrame(
    {"who": [1, 1, 1, 2, 2, 3, 4, 4, 4, 4] * 40, "ok": [True, True, False, True, False] * 80}
)
VISITS["who"] += np.arange(400) // 10 * 10
WEIGHT = (1 / VISITS.groupby("who").who.transform("size")).clip(upper=1)
PERSON = {"ok": Column("boolean"), "age": Column("integer", bounds=(0, 3))}


def people_with_many_rows(name: str) -> None:
    """With one of her three rows true, a person counts a third: not 0 steps of a scale that has but one."""
    total = float((WEIGHT * VISITS.ok).sum())
    truth = total if name == "sum" else total / WEIGHT.sum()
    data = VISITS.assign(age=1)

    def ask(b: Any) -> Any:
        return getattr(b, name)("ok")

    check_covered(Asked(data, PERSON, ask, 2.0, unit=Unit("who", 1)).covered(truth, 150))


def test_the_mean_of_people_with_many_rows() -> None:
    people_with_many_rows("mean")


def rounds_people_away(patch: pytest.MonkeyPatch) -> None:
    """The twin: a scale that has one step for a row."""
    value_of = moments.value_of
    coarse = {"dense": "between", "dense_around_zero": "around_zero"}
    patch.setattr(moments, "value_of", lambda s, c, b, scale: value_of(s, c, b, coarse.get(scale, scale)))


@mend(15, "the sum of people with many rows", twin=rounds_people_away)
def sum_of_people(scene: Scene) -> None:
    people_with_many_rows("sum")


GROUPED = pd.DataFrame({"g": ["a"] * 3 + ["b"] * 40 + ["c"] * 12, "x": ([0.0] * 3 + [1.0] * 40 + [0.5] * 12)})
GROUPS = {"g": Column("category", categories=("a", "b", "c")), "x": Column("number", bounds=(0.0, 1.0))}


@pytest.mark.parametrize("delta", [0.0, 1e-6], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("simultaneous", [False, True], ids=["each", "all"])
def test_groups(simultaneous: bool, delta: float) -> None:
    mean, std = (Asked(GROUPED, GROUPS, ask, 1.0, delta) for ask in (
        lambda b: b.mean("x", by="g"), lambda b: b.std("x", by="g")
    ))  # fmt: skip
    check_covered(mean.covered([0.0, 1.0, 0.5], 150, simultaneous))
    check_covered(std.covered([0.0, 0.0, 0.0], 60, simultaneous))


@pytest.mark.parametrize("delta", [0.0, 1e-6], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
def test_tables_with_margins(epsilon: float, delta: float) -> None:
    data = GROUPED.assign(h=np.where(GROUPED.x > 0.6, "p", "q"))
    known = {**GROUPS, "h": Column("category", categories=("p", "q", "r"))}
    question = Asked(data, known, lambda b: b.crosstab(["g", "h"], margins=True), epsilon, delta)
    truth = pd.crosstab(data.g, data.h).reindex(columns=["p", "q", "r"], fill_value=0)
    truth.loc["All"], truth["All"] = truth.sum(), [3, 40, 12, 55]
    check_covered(question.covered(truth, 400))
    check_covered(question.covered(truth, 200, simultaneous=True))


def test_a_negative_sum_stays_inside_without_negative_numbers() -> None:
    data = pd.DataFrame({"x": np.full(50, -0.8)})
    question = Asked(data, {"x": Column("number", bounds=(-1.0, 1.0))}, lambda b: b.sum("x"), 1.0)
    inside = []
    for answer in question.answers(300):
        low, high = non_negative(answer).interval(0.95, False)
        inside.append(low <= -40 <= high)
    check_covered(inside)


# ------------------------------------------------------------------------------------------- quantiles


def ranked(name: str, n: int) -> Array:
    rng = np.random.default_rng(5)
    return {
        "spread": rng.integers(0, 101, n),
        "skewed": np.rint(100 * rng.random(n) ** 8).astype(int),
        "at the lower bound": np.zeros(n, int),
        "at the upper bound": np.full(n, 100),
        "two masses": np.where(np.arange(n) < n / 2, 30, 70),
    }[name]


RANKS = {"x": Column("integer", bounds=(0, 100))}
QUANTILES = [
    ("spread", 12, 0.5, 1.0), ("spread", 12, 0.5, 10.0), ("spread", 1, 0.5, 1.0), ("spread", 2, 0.9, 0.1),
    ("skewed", 50, 0.1, 1.0), ("skewed", 50, 0.9, 10.0), ("at the lower bound", 12, 0.5, 1.0),
    ("at the upper bound", 50, 0.5, 0.1), ("at the upper bound", 50, 0.1, 10.0), ("two masses", 50, 0.5, 1.0),
    ("two masses", 20_000, 0.5, 1.0), ("two masses", 20_001, 0.5, 10.0), ("spread", 2_000, 0.25, 1.0),
]  # fmt: skip
CONVENTIONS = ("inverted_cdf", "linear", "weibull", "hazen", "median_unbiased", "lower", "higher")


AIMED = (QUANTILES[0], QUANTILES[6], QUANTILES[10])
"""Quantiles for which ends that are not checked do not cover."""


@pytest.mark.parametrize(("name", "n", "q", "epsilon"), [each for each in QUANTILES if each not in AIMED])
def test_quantiles_for_every_data_set(name: str, n: int, q: float, epsilon: float) -> None:
    check_quantile(name, n, q, epsilon)


def check_quantile(name: str, n: int, q: float, epsilon: float) -> None:
    values = ranked(name, n)
    question = Asked(pd.DataFrame({"x": values}), RANKS, lambda b: b.quantile("x", q), epsilon)
    truths = [float(np.quantile(values, q, method=each)) for each in CONVENTIONS]
    inside = []
    for answer in question.answers(150):
        low, high = (float(answer.show(end)) for end in answer.interval(0.95, False))
        inside.append([low <= truth <= high for truth in truths])
    check_covered(inside)


class Aimed(Quantiles):
    """The twin: ends that were chosen for ranks some way before and after the quantile, and not checked."""

    def with_noise(self, share: Any, context: Any) -> Any:
        plain = Quantiles(self.axes, self.steps, self.fractions, self.scalar, None)
        noisy = plain.with_noise(share.of(0.8), context)
        choosers = plain.choosers(share, 0.1, context)
        away = np.array([selection._scale(one) * math.log(0.5 / 0.025) for one in choosers])

        def answered(cells: Any) -> Answer:
            answer = noisy.answer(cells)
            steps = cells[0].reshape(-1) * FRACTIONS
            low, high = (self.laid_out(self.chosen(steps, choosers, side * away)) for side in (-1, 1))
            ends = np.minimum(low, answer.values), np.maximum(high, answer.values)
            return Answer(answer.values, lambda *_: ends, answer.show)

        return SimpleNamespace(answer=answered)


def aims(patch: pytest.MonkeyPatch) -> None:
    """Ends that are not checked."""
    ask = Asked.__init__

    def asked(self: Asked, *given: Any, **more: Any) -> None:
        ask(self, *given, **more)
        known = self.statistic
        self.statistic = Aimed(known.axes, known.steps, known.fractions, True, 0.95)

    patch.setattr(Asked, "__init__", asked)


def checked_ends(scene: Scene, given: tuple[Any, ...]) -> None:
    check_quantile(*given)


for aimed in AIMED:
    mend(15, f"the interval of a quantile: {aimed[0]}, {aimed[1]} rows", twin=aims)(
        partial(checked_ends, given=aimed)
    )


def test_several_quantiles_by_group_and_person() -> None:
    data = pd.DataFrame({
        "who": np.repeat(np.arange(300), 3), "x": np.tile([10, 50, 90], 300),
        "g": np.repeat(["a", "b"], 450),
    })  # fmt: skip
    known = {**RANKS, "g": Column("category", categories=("a", "b", "c"))}
    question = Asked(data, known, lambda b: b.quantile("x", [0.1, 0.5], by="g"), 3.0, 1e-6, Unit("who", 2))
    found = question.covered([10, 50, 10, 50, 10, 50], 100)
    check_covered(found[:, :4])


def test_the_rows_between_the_cuts_move_by_one_row() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        groups = rng.integers(0, 5, (2, 30)) * FRACTIONS
        cuts = rng.integers(0, 31, (2, 2, 4))
        more = groups.copy()
        more[rng.integers(2), rng.integers(30)] += FRACTIONS
        parts, others = ranks.between(groups, cuts), ranks.between(more, cuts)
        assert parts.shape == (2, 9)
        assert (parts.sum(axis=1) == groups.sum(axis=1)).all()
        assert np.abs(others - parts).sum() == FRACTIONS


# ---------------------------------------------------------------------------------- groups and rounding


class Many(Axis):
    """An axis that is only counted."""

    def __init__(self, size: int) -> None:
        self.number = size

    @property
    def size(self) -> int:
        return self.number


def slack(sensitivity: float, reach: float, touched: int) -> float:
    """What is left of the sensitivity after a unit's own reach and rounding in each group it touches."""
    step = 2.0 ** grid_exponent(sensitivity, 1)
    return sensitivity - reach - touched * (step + TARGET_ROUNDED)


@pytest.mark.parametrize("groups", [1, 1000, 10**6, MOST_TOUCHED])
@pytest.mark.parametrize("q", [0.5, 0.99])
def test_rounding_in_every_group_is_allowed_for(groups: int, q: float) -> None:
    steps: Any = SimpleNamespace(size=101)
    for unit, relation in (
        (Unit("who", 3), "add_remove"),
        (Unit("who", 1), "replace_one"),
        (Unit(), "replace_one"),
    ):
        context = Context(Relation(relation), unit, RandomSource(1), None, concentrated=False)
        statistic = Quantiles((Many(groups),), steps, (q,), True, None)
        reach = q * unit.rows * (1 if relation == "add_remove" else 2)
        touched = statistic.touched(context)
        assert touched == (groups if unit.column else 2)
        assert slack(statistic._sensitivity(q, context), reach, touched) >= 0


def allows_by_group(patch: pytest.MonkeyPatch) -> None:
    """The twin: 2^−19 of the reach is allowed for each group, however many there are."""

    def sensitivity(self: Quantiles, fraction: float, context: Context) -> float:
        return 0.5 * (1 + self.touched(context) * 2.0**-19)

    patch.setattr(Quantiles, "_sensitivity", sensitivity)


@mend(15, "more groups than rounding allows", twin=allows_by_group)
def very_many_groups(scene: Scene) -> None:
    """Grouped quantiles of three million groups are refused, or have room for rounding in each group."""
    assert slack(0.5 * (1 + 10**6 * 2.0**-19), 0.5, 10**6) >= 0
    steps: Any = SimpleNamespace(size=101)
    context = Context(Relation("add_remove"), Unit("who", 1), RandomSource(1), None, concentrated=False)
    statistic = Quantiles((Many(3 * 10**6),), steps, (0.5,), True, None)
    with suppress(InvalidValue):
        touched = statistic.touched(context)
        left = slack(statistic._sensitivity(0.5, context), 0.5, touched)
        assert left >= 0, f"{-left} more than is allowed for"


def test_more_groups_than_rounding_allows_are_refused_before_the_charge() -> None:
    known = {"g": Column("integer", bounds=(0, 2047)), "h": Column("integer", bounds=(0, 1023)), **RANKS}
    data = pd.DataFrame({"g": [1], "h": [1], "x": [1], "who": ["a"]})
    with pytest.raises(InvalidValue, match="at most 1048576 groups"):
        Asked(data, known, lambda b: b.median("x", by=["g", "h"]), 1.0, unit=Unit("who", 2))


def in_floats(cells: Array, mass: int, fraction: float, offset: float, scale: float) -> Array:
    """The twin: scores in float64."""
    counts = cells / mass
    upto = np.cumsum(counts)
    away = np.abs(upto - counts / 2 - (fraction * upto[-1] + offset))
    return -np.maximum(0.0, away - np.maximum(0.0, counts / 2 - scale))


@mend(15, "scores of very many rows", twin=replacing(selection, "_scores", in_floats))
def scores_of_very_many_rows(scene: Scene) -> None:
    rng, worst = np.random.default_rng(9), 0.0
    for _ in range(200):
        cells = rng.integers(2**55, 2**57, 40)
        more = cells.copy()
        more[rng.integers(40)] += FRACTIONS
        q = float(rng.uniform(0.05, 0.95))
        before, after = (selection._scores(each, FRACTIONS, q, -33.3, 20.0) for each in (cells, more))
        worst = max(worst, float(np.abs(after - before).max()) - max(q, 1 - q))
    assert worst <= TARGET_ROUNDED, f"scores move {worst} farther than one row may move them"


# --------------------------------------------------------------------------------------- keys that are shown


def shown_keys(epsilon: float, threshold: int, count: int) -> tuple[mechanisms.DiscreteLaplace, Array]:
    rng = np.random.default_rng(count)
    chance = -math.expm1(-epsilon)
    seen = count + rng.geometric(chance, 2_000_000) - rng.geometric(chance, 2_000_000)
    return mechanisms.DiscreteLaplace(1, epsilon), seen[seen >= threshold][:50_000]


@pytest.mark.parametrize(("epsilon", "threshold"), [(0.1, 150), (0.5, 30), (2.0, 8)])
def test_counts_of_keys_given_that_they_are_shown(epsilon: float, threshold: int) -> None:
    for beyond in (-4, -1, 0, 1, 3, 10, 40, 400):
        noise, seen = shown_keys(epsilon, threshold, threshold + beyond)
        low, high = NoisyKeys.interval(noise, seen, threshold, MISS)
        check_covered((low <= threshold + beyond) & (threshold + beyond <= high))
        assert ((low <= seen) & (seen <= high)).all()


def as_if_all_were_shown(noise: Any, seen: Array, threshold: int, miss: float) -> tuple[Array, Array]:
    """The twin: the interval of a count that is shown whatever it is."""
    below, above = noise.interval()
    return seen + below, seen + above


@mend(15, "keys that are shown", twin=replacing(NoisyKeys, "interval", staticmethod(as_if_all_were_shown)))
def keys_that_are_shown(scene: Scene) -> None:
    noise, seen = shown_keys(0.5, 30, 25)
    low, high = NoisyKeys.interval(noise, seen, 30, MISS)
    check_covered((low <= 25) & (high >= 25))


# ----------------------------------------------------------------------------------------- tails of contrasts


@pytest.mark.parametrize(
    "weights", [(1.0, 1.0), (1.0, 0.02), (0.3, 0.3, 0.3, 0.3), (1.0, 0.7, 0.1), (0.2,) * 9]
)
@pytest.mark.parametrize("gaussian", [False, True], ids=["laplace", "gaussian"])
def test_tails_are_neither_short_nor_long(weights: tuple[float, ...], gaussian: bool) -> None:
    rng, law = np.random.default_rng(2), Law(1e6, gaussian)
    drawn = (rng.normal if gaussian else rng.laplace)(0, law.scale, (200_000, len(weights)))
    far = np.quantile(np.abs(drawn @ np.array(weights)), 1 - MISS)
    ends = np.array([0.97, 1.03]) * far
    assert surprising(law, np.array([weights] * 2), ends, MISS).tolist() == [False, True]
    reach = reach_of_sums([(Law(10.0, gaussian), weight, 1) for weight in weights], MISS)
    assert reach == pytest.approx(far / 1e5, rel=0.04)
