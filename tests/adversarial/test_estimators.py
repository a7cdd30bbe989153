"""Attacks on fits: one entry that decides how others are read, and rows on which a solver gives up."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contract.mends import Scene, mend, replacing
from tacit import Column, Schema
from tacit.data import given
from tacit.data import space as prepared
from tacit.data.arithmetic import lengths
from tacit.data.preprocessor import Preprocessor
from tacit.data.units import bounded_units, unit_numbers
from tacit.errors import CalibrationError, InvalidValue
from tacit.estimators import LinearRegression, LinearSVC, LogisticRegression
from tacit.estimators.linear import certified, newton
from tacit.estimators.linear.losses import HuberHinge, Logistic, SmoothedHinge
from tacit.estimators.linear.noise import PLACES, objective, output
from tacit.estimators.linear.rows import ScaledRows, Space
from tacit.evaluation import evaluate
from tacit.randomness import Source

X = np.random.default_rng(1).normal(size=(60, 2))
Y = (X[:, 0] > 0).astype(int)
BOUNDS = ([-3.0, -3.0], [3.0, 3.0])


class Odd:
    """Nothing can be done with it that does not raise."""

    def __float__(self) -> float:
        raise RuntimeError("secret")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("secret")

    def __hash__(self) -> int:
        raise RuntimeError("secret")

    def __len__(self) -> int:
        raise RuntimeError("secret")


ODD = [
    0, [0], (0,), [[0]], [], [0, 1], np.array([0]), np.array([[0]]), np.array([0, 1]), np.array(0), "0",
    "zero", "", b"0", None, math.nan, math.inf, -math.inf, 10**400, -(10**400), Decimal("0.1"),
    Decimal("sNaN"), Fraction(1, 3), 1j, Odd(), {}, {0}, pd.NA, pd.NaT, pd.Timestamp("2020-01-01"),
    np.datetime64("NaT"), np.float32(1), True, object(),
]  # fmt: skip
NAMES = [f"{place}: {type(odd).__name__}" for place, odd in enumerate(ODD)]


# ----------------------------------------------------------------- one entry among labels, rows and groups


@pytest.mark.parametrize("odd", ODD, ids=NAMES)
@pytest.mark.parametrize("usual", [int, lambda y: [int(y)], str, float, np.int8, lambda y: np.array([y])])
def test_one_label_of_another_kind_leaves_the_others_as_they_are(odd: Any, usual: Any) -> None:
    labels = [usual(y) for y in Y]
    model = LogisticRegression(classes=[0, 1])
    for place in (0, 30, 60):
        read = model._targets(given.column("y", [*labels[:place], odd, *labels[place:]], 61))
        others = np.delete(read, place, axis=0)
        assert others.tolist() == [[float(y)] for y in Y]
    targets = LinearRegression(target_bounds=(0, 1))._targets(given.column("y", [*labels, odd]))
    assert targets[:60, 0].tolist() == [2.0 * y - 1 for y in Y]


@pytest.mark.parametrize("entry", ["none", "x", "1.5"])
def test_a_label_that_turns_a_column_into_text(entry: str) -> None:
    """As ``pd.read_csv`` does; what the others say is the same in both columns."""
    stored, text = pd.Series(Y), pd.Series([*map(str, Y), entry])
    for classes in ([0, 1], ["0", "1"], [False, True]):
        model = LogisticRegression(classes=classes)
        with_it, without = (model._targets(given.column("y", each)) for each in (text, stored))
        assert with_it[:60].tolist() == without.tolist()
        assert np.isnan(with_it[60]).all()
    truths = pd.Series(["True", "False", "?"]), pd.Series([True, False])
    model = LogisticRegression(classes=[False, True])
    assert [model._targets(given.column("y", each))[:2].tolist() for each in truths] == [[[1.0], [0.0]]] * 2


def test_classes_that_are_the_same_number_are_told_apart() -> None:
    values = given.column("y", ["1", "1.0", 1, "01"])
    assert given.places(values, ["1", "1.0"]).tolist() == [0, 1, -1, -1]


@pytest.mark.parametrize("odd", [*ODD, [1.0], [1, 2, 3], "ab", X, np.zeros(3), ["a", "b", "c"]])
def test_one_row_of_another_length_or_type(odd: Any) -> None:
    rows = [list(map(float, row)) for row in X]
    model = LogisticRegression(1e6, bounds=BOUNDS, classes=[0, 1], random_state=1)
    for place in (0, 30, 60):
        mixed = [*rows[:place], odd, *rows[place:]]
        objects = np.empty(61, dtype=object)
        for i, row in enumerate(mixed):
            objects[i] = row
        for handed in (mixed, tuple(mixed), objects):
            read = given.declared_matrix(handed, 2)
            assert np.delete(read, place, axis=0).tolist() == X.tolist()
            assert read.shape == (61, 2)
    fitted = model.fit([odd, *rows], [0, *Y])
    assert fitted.coef_.shape == (1, 2)
    if np.isnan(given.declared_matrix([odd], 2)).any():
        assert fitted.coef_ == pytest.approx(model.fit(X, Y).coef_, abs=0.3)
    found = evaluate(fitted, [*rows, odd], [*Y, 0], epsilon=1e6, random_state=1)
    assert found.accuracy == pytest.approx(fitted.score(X, Y), abs=0.02)


def test_a_list_whose_width_is_not_declared_says_what_it_assumes() -> None:
    rows = [list(row) for row in X]
    for odd in ([1.0], [1.0, 2.0, 3.0], 3, "ab", np.array(5), Odd()):
        for handed in ([odd, *rows], [*rows, odd]):
            fitted = LogisticRegression(norm=3.0, classes=[0, 1], random_state=1).fit(handed, np.zeros(61))
            assert fitted.coef_.shape == (1, 2)
            assert given.LISTED in fitted.guarantee_.assumptions
    declared = LogisticRegression(bounds=BOUNDS, classes=[0, 1], random_state=1).fit([[1.0], *rows], [0, *Y])
    assert given.LISTED not in declared.guarantee_.assumptions


@pytest.mark.parametrize("odd", [[1.0], [1, 2, 3], 5, "ab", None, (), [None, None], [[1], [2]]], ids=str)
def test_one_row_of_a_table_in_a_list(odd: Any) -> None:
    columns = {"age": Column("integer", bounds=(0, 99)), "sex": Column("category", categories=("F", "M"))}
    maker = Preprocessor(Schema(columns))
    rows = [[30, "F"], [50, "M"]]
    expected = maker.transform(rows).tolist()
    for place in range(3):
        made = maker.transform([*rows[:place], odd, *rows[place:]]).tolist()
        assert made[:place] + made[place + 1 :] == expected
    by_name = {"age": [30, 50, odd], "sex": ["F", "M", odd]}
    assert maker.transform(by_name).tolist()[:2] == expected


def test_one_group_of_another_kind() -> None:
    """Somebody who is 7 in one row and [7] in another is one person."""
    for same in ([7, [7], (7,), 7.0, np.array([7])], ["a", ["a"]]):
        groups = given.column("groups", [*same, "somebody else"])
        assert len(set(unit_numbers(groups).tolist())) == 2
        assert bounded_units(groups, 1, Source(1)).sum() == 2
    times = np.array(["2020-01-01", "NaT", "2020-01-01T00:00:00.000000001"], dtype="datetime64[ns]")
    assert unit_numbers(times).tolist()[1] == -1
    assert len(set(unit_numbers(times).tolist())) == 3


def converts_all_at_once(patch: pytest.MonkeyPatch) -> None:
    """The twin: one entry decides the type of all the others."""

    def together(values: Any) -> Any:
        single = all(isinstance(value, (list, tuple)) and len(value) == 1 for value in values)
        array = np.empty(len(values), dtype=object)
        for i, value in enumerate(values):
            array[i] = value[0] if single else value
        return array

    patch.setattr(given, "_objects", together)
    patch.setattr(given, "single", lambda value: value)


def stacks_rows(patch: pytest.MonkeyPatch) -> None:
    """The twin: rows are made into a matrix together, and one of another length is an error."""
    patch.setattr(given, "declared_matrix", lambda rows, width: given.matrix(rows))


@mend(10, "one label of another shape", twin=converts_all_at_once)
def another_label(scene: Scene) -> None:
    """``0`` among ``[0]``."""
    test_one_label_of_another_kind_leaves_the_others_as_they_are(0, lambda y: [int(y)])


@mend(10, "one row of another length", twin=stacks_rows, shows=InvalidValue)
def another_row(scene: Scene) -> None:
    test_one_row_of_another_length_or_type([1.0])


# ------------------------------------------------------------------ rows on which a solver gives up


def hard_rows() -> dict[str, tuple[Any, Any]]:
    generator = np.random.default_rng(2)
    plain, thin = generator.uniform(-1, 1, (300, 3)), np.ones((300, 3))
    thin[:, 1] = np.linspace(-1, 1, 300) * 1e-7
    copies = np.repeat(generator.uniform(-1, 1, (3, 3)), 100, axis=0)
    return {
        "separable": (plain, (plain[:, 0] > 0).astype(int)),
        "noise": (plain, generator.integers(0, 2, 300)),
        "copies that contradict each other": (copies, np.tile([0, 1], 150)),
        "tiny": (plain * 1e-6, (plain[:, 0] > 0).astype(int)),
        "a thin slice": (thin, (thin[:, 1] > 0).astype(int)),
        "one row": (plain[:1], np.array([1])),
        "zeros": (np.zeros((5, 3)), np.array([0, 1, 1, 0, 1])),
        "none": (np.zeros((0, 3)), np.zeros(0, int)),
        "beyond float64": (plain * np.array([1e308, 1e-308, 1.0]), generator.integers(0, 2, 300)),
    }


HARD = hard_rows()
SOLVED = [
    (LinearSVC, {"corner": 0.5}), (LinearSVC, {"corner": 1e-2}), (LinearSVC, {"corner": 1e-4}),
    (LinearSVC, {"corner": 1e-8}), (LogisticRegression, {}), (LogisticRegression, {"classes": [0, 1, 2]}),
]  # fmt: skip


def gradients_left(monkeypatch: pytest.MonkeyPatch, kind: type, options: Any, x: Any, y: Any) -> list[float]:
    """Gradients where the solver stopped, in parts of what the guarantee allows, for many penalties."""
    left = []

    def certified(*given: Any) -> Any:
        found = newton.minimise(*given)
        left.append(newton._Objective(*given[:4]).size(found) / given[4])
        return found

    monkeypatch.setattr(objective, "certified", certified)
    monkeypatch.setattr(output, "certified", certified)
    settings: dict[str, Any] = {"classes": [0, 1], "bounds": (-1, 1), "random_state": 1, **options}
    for noise in ("output", "objective"):
        for C in (None, 1.0, 1e3, 1e6, 1e9):
            for delta in (0.0, 1e-6):
                model = kind(epsilon=50.0, delta=delta, noise=noise, C=C, **settings)
                try:
                    model.plan(3)
                except (InvalidValue, CalibrationError):
                    continue
                model.fit(x, y)
    return left


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize(("kind", "options"), SOLVED, ids=str)
def test_the_solver_reaches_what_the_guarantee_needs(
    name: str, kind: type, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = gradients_left(monkeypatch, kind, options, *HARD[name])
    assert left
    assert max(left) <= 1


def gives_up(patch: pytest.MonkeyPatch) -> None:
    """The twin: a few steps, straight towards the minimum."""
    patch.setattr(newton, "MOST_STEPS", 20)
    patch.setattr(newton, "_stages", lambda *given: iter(()))


@mend(9, "rows on which a solver gives up", twin=gives_up)
def hard_to_solve(scene: Scene) -> None:
    left = gradients_left(scene.patch, LinearSVC, {"corner": 1e-4}, *HARD["separable"])
    assert 0 < max(left) <= 1, f"stopped at {max(left)} times the gradient that the guarantee allows"


def test_penalties_that_float64_cannot_serve_are_refused_by_what_is_public() -> None:
    model = LinearSVC(1.0, noise="output", classes=[0, 1], bounds=(-1, 1), corner=1e-8, C=1e9)
    with pytest.raises(InvalidValue, match="corner larger"):
        model.plan(3)
    with pytest.raises(InvalidValue, match="corner larger"):
        model.fit(X, Y)


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("place", PLACES)
def test_no_rows_make_any_place_fail(name: str, place: str) -> None:
    x, y = HARD[name]
    for kind, options in (
        (LogisticRegression, {"classes": [0, 1]}), (LinearRegression, {"target_bounds": (0, 1)}),
    ):  # fmt: skip
        for delta in (0.0, 1e-6):
            model = kind(1.0, delta, noise=place, bounds=(-1, 1), population=300, random_state=1, **options)
            try:
                model.plan(2)
            except InvalidValue:
                continue
            fitted = model.fit(x[:, :2], y)
            assert np.isfinite(fitted.coef_).all()


# --------------------------------------------------------------------------------- norms of rows


def norms_along_rows(rows: Any) -> Any:
    """The broken twin on rows in Fortran order: the order of a sum depends on the number of rows."""
    return np.sqrt(np.square(np.asfortranarray(rows)).sum(axis=1))


def scaled_otherwise(raw: Any) -> int:
    """How many rows are scaled otherwise among all rows than alone."""
    space = Space.of(np.full(23, -np.inf), np.full(23, np.inf), 1.0, intercept=False)
    together = next(iter(ScaledRows(raw, np.zeros((200, 1)), space).blocks()))[0]
    alone = [
        next(iter(ScaledRows(raw[i : i + 1], np.zeros((1, 1)), space).blocks()))[0][0] for i in range(200)
    ]
    return sum(one.tobytes() != row.tobytes() for one, row in zip(alone, together, strict=True))


@mend(7, "norms of rows in Fortran order", twin=replacing(prepared, "lengths", norms_along_rows))
def norms_by_row(scene: Scene) -> None:
    raw = np.random.default_rng(5).normal(size=(200, 23))
    for each in (raw, np.asfortranarray(raw)):
        assert scaled_otherwise(each) == 0
        assert lengths(each) == pytest.approx(np.linalg.norm(each, axis=1), rel=1e-14)


# -------------------------------------------------- values that raise wherever they are looked at


class NoClass:
    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("secret")


class NoLength(list):  # type: ignore[type-arg]
    def __len__(self) -> int:
        raise RuntimeError("secret")


class NoEntry(tuple):  # type: ignore[type-arg]
    def __getitem__(self, place: Any) -> Any:
        raise RuntimeError("secret")


class NoSign(int):
    def __float__(self) -> float:
        raise OverflowError

    def __gt__(self, other: Any) -> bool:
        raise RuntimeError("secret")


class NoPart(complex):
    @property
    def imag(self) -> Any:
        raise RuntimeError("secret")


class NoShape(np.ndarray):  # type: ignore[type-arg]
    @property
    def size(self) -> Any:
        raise RuntimeError("secret")

    @property
    def shape(self) -> Any:
        raise RuntimeError("secret")


UNFIT = {
    "class": NoClass(), "length": NoLength([1]), "entry": NoEntry((1,)), "sign": NoSign(1),
    "part": NoPart(1), "shape": np.zeros(1).view(NoShape), "nested": [1, [2, 3]], "ragged": [[1, 2], [3]],
    "masked": np.ma.masked, "range": range(2), "series": pd.Series([1.0, 2.0]), "small": Decimal("1e-999999"),
    "large": Decimal("1e999999"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
@pytest.mark.filterwarnings("error")
def test_no_value_raises_wherever_it_stands(name: str) -> None:
    odd = UNFIT[name]
    rows, labels = [list(row) for row in X], np.empty(60, dtype=object)
    labels[:] = Y.tolist()
    labels[0] = odd
    cells = X.astype(object)
    cells[0, 0] = odd

    def fitted(x: Any, y: Any, **more: Any) -> Any:
        model = LogisticRegression(norm=3.0, classes=[0, 1], random_state=1)
        return model.fit(x, y, **more)

    for handed in (labels, labels.tolist()):
        model = fitted(X, handed)
        fitted(X, Y, units=handed)
        LinearRegression(norm=3.0, target_bounds=(0, 1), random_state=1).fit(X, handed)
        evaluate(model, X, handed, epsilon=1.0, random_state=1)
        evaluate(model, X, Y, epsilon=1.0, random_state=1, units=handed)
        evaluate(model, X, Y, epsilon=1.0, random_state=1, groups={"sex": (handed, [0, 1])})
    for rows_ in ([odd, *rows[1:]], [[odd, 1.0], *rows[1:]], [[0.0, 0.0], [odd, odd], *rows[2:]], cells):
        assert fitted(rows_, Y).coef_.shape == (1, 2)
        evaluate(model, rows_, Y, epsilon=1.0, random_state=1)
    for column in (Column("number", bounds=(0, 1)), Column("boolean")):
        maker = Preprocessor(Schema({"a": column, "b": Column("number", bounds=(0, 1))}))
        assert len(maker.transform([[odd, 1.0], odd, *rows[1:]])) == 61


def test_groups_are_told_apart_exactly() -> None:
    many = Decimal("1." + "0" * 40 + "1E+500")
    noon = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC)
    for one, other in ((many, Decimal("1E+500")), (("a", "1"), ("a", 1)), (b"a", "a"), (("a", None), ("a",))):
        assert len(set(unit_numbers(given._objects([one, other])).tolist())) == 2
    for one, other in (
        (10**500, Decimal("1E+500")), ((1, 2), [1.0, True + 1]), (-0.0, 0),
        (Decimal("1E-99999999"), Decimal("10E-100000000")),
        (noon, noon.astimezone(datetime.timezone(datetime.timedelta(hours=5)))),
    ):  # fmt: skip
        numbers = unit_numbers(given._objects([one, other])).tolist()
        assert numbers == [0, 0]


# ------------------------------------------------------------------ many classes, and sharp corners


def sharp() -> dict[str, tuple[Any, Any, Any]]:
    generator = np.random.default_rng(3)
    x = generator.uniform(-1, 1, (1000, 2))
    mixed, others = generator.random(1000) < 0.3, generator.integers(0, 5, 1000)
    labels, lonely = np.where(mixed, others, x[:, 0] > 0), np.where(mixed, others, 0)
    far = np.full((1000, 2), 1e-9)
    far[0] = 1
    copies = np.repeat(generator.uniform(-1, 1, (5, 30)), 200, axis=0)
    small = x * 10.0 ** generator.uniform(-8, 0, size=(1000, 1))
    return {
        "one far from the others": (far, lonely, {"corner": 1e-5, "epsilon": 1.1}),
        "rows of all sizes": (small, labels, {"corner": 1e-5, "epsilon": 6.5, "delta": 1e-6}),
        "signs": (np.sign(x), labels, {"corner": 1e-5, "epsilon": 2.3, "delta": 1e-6}),
        "copies": (copies, labels, {"corner": 1e-4, "epsilon": 90.0, "delta": 1e-6}),
    }


SHARP = sharp()


def left(monkeypatch: pytest.MonkeyPatch, name: str) -> float:
    """The gradient where the solver stopped, in parts of what the guarantee allows."""
    found = []

    def certified(*given: Any) -> Any:
        theta = newton.minimise(*given)
        found.append(newton._Objective(*given[:4]).size(theta) / given[4])
        return theta

    monkeypatch.setattr(output, "certified", certified)
    x, y, options = SHARP[name]
    LinearSVC(noise="output", classes=range(5), bounds=(-1, 1), random_state=1, **options).fit(x, y)
    return float(found[0])


def steps_for_all_classes_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(newton, "minimise", newton._minimum)
    patch.setattr(newton, "_stages", lambda *given: iter(()))


@mend(9, "many classes and sharp corners", twin=steps_for_all_classes_at_once)
def sharp_corners(scene: Scene) -> None:
    """One step for all classes stopped at 10⁵ to 10⁶ times the gradient that the guarantee allows."""
    worst = max(left(scene.patch, name) for name in SHARP)
    assert worst <= 1, f"stopped at {worst} times the gradient that the guarantee allows"


@pytest.mark.parametrize("corner", [1e-8, 1e-3, 0.5, 10.0])
def test_a_smoothed_hinge_comes_near_the_hinge(corner: float) -> None:
    scores = np.concatenate([np.linspace(-20, 20, 401), 1 + np.linspace(-2, 2, 401) * corner])[:, None]
    sharp, targets = HuberHinge(1, corner), np.ones_like(scores)
    for barrier in (1.0, 1e-6, 1e-18):
        smooth = SmoothedHinge(1, corner, barrier=barrier)
        slope = smooth.slope(scores, targets)
        assert (np.abs(slope - sharp.slope(scores, targets)) <= 2 * math.sqrt(barrier / corner) + 1e-9).all()
        assert ((smooth.weights(scores, targets) >= 0) & np.isfinite(slope)).all()


# ------------------------------------------------------------------ a first solver that fails

FAILING: dict[str, Any] = {
    "zeros": lambda loss, rows, penalty, tilt, tolerance: np.zeros_like(tilt),
    "no numbers": lambda loss, rows, penalty, tilt, tolerance: np.full_like(tilt, np.nan),
    "nearly there": lambda *given: newton_minimise(*given) + 1e-3,
}
newton_minimise = newton.minimise


def distances(monkeypatch: pytest.MonkeyPatch, kind: type, options: Any, x: Any, y: Any) -> list[float]:
    """How far weights are from the exact minimum, in parts of the distance that the noise is made for."""
    found = []
    real = certified.certified

    def checked(loss: Any, rows: Any, penalty: Any, tilt: Any, tolerance: float) -> Any:
        made = real(loss, rows, penalty, tilt, tolerance)
        exact = newton_minimise(loss, rows, penalty, tilt, tolerance * 1e-4)
        found.append(float(np.linalg.norm(made - exact)) * float(penalty.min()) / tolerance)
        return made

    monkeypatch.setattr(objective, "certified", checked)
    monkeypatch.setattr(output, "certified", checked)
    settings = {"classes": [0, 1], "bounds": (-1, 1), "random_state": 1, **options}
    for noise in ("output", "objective"):
        for delta in (0.0, 1e-6):
            kind(epsilon=2.0, delta=delta, noise=noise, **settings).fit(x, y)
    return found


SECOND = [
    (LinearSVC, {"corner": 0.5}), (LinearSVC, {"corner": 1e-2}), (LinearSVC, {"classes": [0, 1, 2]}),
    (LogisticRegression, {}), (LogisticRegression, {"slope": 0.3}),
    (LogisticRegression, {"classes": [0, 1, 2]}),
]  # fmt: skip


@pytest.mark.parametrize("failing", FAILING)
@pytest.mark.parametrize(("kind", "options"), SECOND, ids=str)
def test_where_newton_fails_the_weights_are_still_certified(
    kind: type, options: Any, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certified, "minimise", FAILING[failing])
    rows = ("separable", "noise") if failing == "zeros" else ("copies that contradict each other",)
    for name in rows:
        x, y = HARD[name]
        left = distances(monkeypatch, kind, options, x[::3], y[::3])
        assert len(left) == 4
        assert max(left) <= 1


@pytest.mark.parametrize("name", HARD)
def test_the_second_method_raises_and_warns_for_no_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certified, "minimise", FAILING["zeros"])
    for kind in (LogisticRegression, LinearSVC):
        model = kind(2.0, noise="output", classes=[0, 1], bounds=(-1, 1), random_state=1).fit(*HARD[name])
        assert np.isfinite(model.coef_).all()


def test_the_twin_that_releases_zeros_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was released before: zeros, where the first solver fails."""
    monkeypatch.setattr(certified, "minimise", FAILING["zeros"])
    monkeypatch.setattr(certified, "_descended", lambda gradient, tolerance: np.zeros_like(gradient.tilt))
    assert max(distances(monkeypatch, LogisticRegression, {}, *HARD["separable"])) > 1e3


def test_the_twin_that_takes_too_few_steps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certified, "minimise", FAILING["zeros"])
    monkeypatch.setattr(certified, "_steps", lambda condition, distance: 20)
    assert max(distances(monkeypatch, LogisticRegression, {}, *HARD["separable"])) > 1


def test_the_gradients_are_as_exact_as_is_said() -> None:
    """Against fractions, near a minimum and a sharp corner."""
    generator = np.random.default_rng(9)
    x = generator.uniform(-1, 1, (40, 3))
    space = Space.of(np.full(3, -1.0), np.full(3, 1.0), None, intercept=True)
    signs = np.where(generator.random((40, 1)) < 0.5, -1.0, 1.0)
    loss, rows, penalty = HuberHinge(1, 1e-3), ScaledRows(x, signs, space), np.full(4, 0.5)
    near = newton.minimise(loss, rows, penalty, np.zeros((4, 1)), 1e-9)
    point = near, near * 1e-17
    found = certified._Gradient(loss, rows, penalty, np.zeros((4, 1)))(point)
    theta = [Fraction(float(a)) + Fraction(float(b)) for a, b in zip(near[:, 0], point[1][:, 0], strict=True)]
    exact = [Fraction(1, 2) * each for each in theta]
    corner = Fraction(loss.corner)
    for row, sign in zip(next(rows.blocks())[0], signs[:, 0], strict=True):
        values = [Fraction(float(each)) for each in row]
        slack = 1 - int(sign) * sum(a * b for a, b in zip(values, theta, strict=True))
        slope = -int(sign) * min(max((slack + corner) / (2 * corner), Fraction(0)), Fraction(1))
        exact = [total + value * slope for total, value in zip(exact, values, strict=True)]
    allowed = 2.0**-53 * (40 * 40 + 4 * 0.5 * float(np.linalg.norm(near)))
    assert math.dist(found[:, 0], [float(each) for each in exact]) <= allowed
    fast, error = certified._Gradient(loss, rows, penalty, np.zeros((4, 1))).fast(near)
    assert math.dist(fast[:, 0], [float(each) for each in exact]) <= error + 1e-15 * 40 / loss.corner
    assert 0 < error < 1e-9


def test_the_fast_gradient_is_that_of_long_sums() -> None:
    generator = np.random.default_rng(10)
    x = generator.uniform(-1, 1, (70_001, 3))
    space = Space.of(np.full(3, -1.0), np.ones(3), None, intercept=True)
    rows = ScaledRows(x, (x[:, :1] > 0) * 1.0, space)
    theta, penalty = generator.normal(size=(4, 1)) * 10, np.full(4, 0.5)
    gradient = certified._Gradient(Logistic(), rows, penalty, np.ones((4, 1)))
    fast, error = gradient.fast(theta)
    slow = gradient((theta, np.zeros_like(theta)))
    assert np.linalg.norm(fast - slow) <= error < 1e-7
