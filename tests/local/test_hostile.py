"""Attacks on local reports: hostile senders, files that lie, floats that tell, intervals that miss."""

from __future__ import annotations

import csv
import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit import local
from tacit.errors import InvalidValue, TacitError
from tacit.local import Reports
from tacit.local.oracle import shares_interval


class Hostile:
    """Raises whatever is asked of it, even its class."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise RuntimeError

    def __str__(self) -> str:
        raise RuntimeError


def rappor() -> Any:
    return local.Rappor(epsilon=4.0, bits=16, cohorts=2, random_state=1)


ROWS = {
    "unary": local.OptimizedUnary(categories=10, epsilon=3.0, random_state=1),
    "subset": local.SubsetSelection(categories=10, epsilon=1.0, random_state=1),
    "hitters": local.HeavyHitters(bits=2, step=1, epsilon=3.0, random_state=1),
    "rappor": rappor(),
}
WRONG = (
    np.zeros(1, dtype=np.uint8), np.zeros(40, dtype=np.uint8), np.zeros((2, 2), dtype=np.uint8), None, "x",
    b"", b"x" * 40, [], [[1], [2]], [10**30] * 3, np.full(2, np.nan), np.array(["a", "b"]), Hostile(),
)  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_one_hostile_row_of_a_list_costs_no_other_report(name: str) -> None:
    mechanism = ROWS[name]
    rows = mechanism.randomize([1] * 300)
    more = {"candidates": [1, 2]} if name == "rappor" else {}
    found = mechanism.estimate([*rows, *WRONG], **more)
    alone = mechanism.estimate(rows, **more)
    assert (found.reports, found.refused) == (alone.reports, alone.refused + len(WRONG))
    np.testing.assert_array_equal(found.value, alone.value)
    with pytest.raises(InvalidValue, match=r"at least one"):
        mechanism.estimate(list(WRONG), **more)


@pytest.mark.parametrize("reports", [None, 5, "12", np.zeros((2, 2))])
@pytest.mark.parametrize(
    "mechanism",
    [local.RandomizedResponse(categories=3, epsilon=1.0), local.Duchi(bounds=(0, 1), epsilon=1.0)],
)
def test_what_is_no_sequence_of_reports_is_refused_in_words(mechanism: Any, reports: Any) -> None:
    with pytest.raises(InvalidValue, match="reports must be a sequence, one report of each person"):
        mechanism.estimate(reports)


def test_no_value_makes_a_client_raise() -> None:
    assert rappor().randomize([Hostile(), "a"]).shape == (2, 4)
    with pytest.raises(InvalidValue, match="one value of each person"):
        local.HeavyHitters(bits=4, step=2, epsilon=1.0).randomize(np.zeros((3, 2)))


def test_the_law_of_no_value_is_the_average_of_all_laws() -> None:
    hitters = local.HeavyHitters(bits=2, step=1, epsilon=1.0, random_state=1)
    laws = [hitters.law(value) for value in range(4)]
    for nothing in (None, math.nan, 4, "x"):
        mixed = hitters.law(nothing)
        assert all(mixed[report] == sum(law[report] for law in laws) / Fraction(4) for report in laws[0])


def test_bounds_near_the_largest_float_give_an_interval() -> None:
    for bounds in ((-1.7e308, 1.7e308), (1e308, 1.0000000000000002e308)):
        mechanism = local.Hybrid(bounds=bounds, epsilon=1.0, random_state=1)
        found = mechanism.estimate(mechanism.randomize([bounds[0], bounds[1], 0.0, math.inf] * 50))
        low, high = found.interval()
        assert bounds[0] <= low <= high <= bounds[1]


class TestSharesInterval:
    """P(miss) by enumeration, for Bernoulli variables that are not alike."""

    @staticmethod
    def miss(chances: list[float], side: float) -> float:
        law = np.ones(1)
        for chance in chances:
            law = np.convolve(law, [1 - chance, chance])
        n = len(chances)
        low, high = shares_interval(np.arange(n + 1), n, 2 * side)
        mean = sum(chances) / n
        return float(max(law[low > mean].sum(), law[high < mean].sum()))

    @pytest.mark.parametrize("side", [0.25, 0.19, 0.025, 1e-3])
    def test_covers_whatever_the_variables_are(self, side: float) -> None:
        grid = (0.0, side / 3, side / 2, 0.5, 1 - side / 2, 1.0)
        for n in (1, 2, 3, 5):
            for chances in itertools.combinations_with_replacement(grid, n):
                assert self.miss(list(chances), side) <= side * (1 + 1e-9), chances

    def test_one_variable_unlike_the_others_was_missed_by_clopper_and_pearson(self) -> None:
        n, side = 50, 0.19
        mean = -math.expm1(math.log1p(-side) / n) * (1 - 1e-9)
        unlike = [n * mean] + [0.0] * (n - 1)
        assert n * mean > 1.1 * side  # the chance of one report, which Clopper and Pearson take to be 0.19
        assert self.miss(unlike, side) <= side
        assert self.miss([1 - chance for chance in unlike], side) <= side


def test_intervals_of_chosen_heavy_hitters_allow_for_the_choice() -> None:
    """They are those of all values that somebody may have and of all candidates that nobody has."""
    hitters = local.HeavyHitters(bits=4, step=2, kept=1, epsilon=2.0, random_state=3)
    reports = hitters.randomize([5] * 900 + [6] * 100)
    found = hitters.estimate(reports)
    last = reports[reports[:, 0] == 1]
    p, q = float(hitters.keep), 1 / hitters.hash_range
    supporting = round(len(last) * (q + (p - q) * found.value[0]))
    low, high = shares_interval(np.array([supporting]), len(last), (1 - 0.95) / (4 + 16))
    assert found.categories[0] == 5
    np.testing.assert_allclose(np.array(found.interval(0.95))[:, 0], [
        np.clip((end[0] - q) / (p - q), 0, 1) for end in (low, high)
    ], rtol=1e-9)  # fmt: skip


def test_a_small_cap_does_not_show_the_direction_by_its_floats() -> None:
    """The sine of the angle between a report and the true direction has all its digits, however small."""
    mechanism = local.PrivUnit(dimension=2, epsilon=80.0, random_state=1)
    beside = np.abs(mechanism.randomize(np.tile([[1.0, 0.0]], (1000, 1)))[:, 1])
    assert beside.min() > 0
    assert beside.max() < 1e-10
    assert len(np.unique(beside)) > 990
    across = mechanism.cap.products(1000, mechanism._source)[0]
    assert len(np.unique(np.sqrt(1 - across**2))) == 1  # what the cosine alone would have told


class TestFiles:
    @staticmethod
    def saved(place: Path, oracle: Any, values: list[Any], column: str = "report") -> Reports:
        reports = Reports(oracle, oracle.randomize(values), column)
        reports.save(place)
        return reports

    @pytest.mark.parametrize(
        "categories",
        [["a\r", "b"], ["\r\n", "\n"], ["", '"'], ["=1+1", "a,b"], [np.int64(3), np.int64(4)], ["\0", " "]],
    )
    @pytest.mark.parametrize("column", ["report", "\ufeffc", 'a\r"b,'])
    def test_whatever_is_written_is_read_again(self, tmp_path: Path, categories: Any, column: str) -> None:
        oracle = local.RandomizedResponse(categories=categories, epsilon=3.0, random_state=1)
        written = self.saved(tmp_path / "r.csv", oracle, categories * 50, column)
        read = Reports.load(tmp_path / "r.csv")
        assert read.unreadable == 0
        assert read.oracle.categories == oracle.categories
        np.testing.assert_array_equal(read.values, written.values)

    @pytest.mark.parametrize(
        "categories", [[1, "1"], [True, "true"], [None, "a"], [(1,), 2], ["\ud800", "a"]]
    )
    def test_categories_that_a_file_cannot_hold_are_refused_before_anything_is_written(
        self, tmp_path: Path, categories: Any
    ) -> None:
        oracle = local.RandomizedResponse(categories=categories, epsilon=3.0, random_state=1)
        with pytest.raises(InvalidValue, match="categories"):
            self.saved(tmp_path / "r.csv", oracle, categories)
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("line", [b"\xff\xfe", b'"abc', b"x" * 200_000, b"\0", b"", b"\xc2\xb2", b"-1"])
    @pytest.mark.parametrize("kind", [local.LocalHashing, local.SymmetricUnary, local.RandomizedResponse])
    def test_one_hostile_line_costs_no_other_report(self, tmp_path: Path, kind: Any, line: bytes) -> None:
        oracle = kind(categories=["a", "b", "c"], epsilon=3.0, random_state=1)
        place, limit = tmp_path / "r.csv", csv.field_size_limit()
        written = self.saved(place, oracle, ["a", "b"] * 50)
        lines = place.read_bytes().split(b"\n")
        place.write_bytes(b"\n".join([*lines[:40], line, *lines[40:]]))
        read = Reports.load(place)
        assert read.unreadable == 1
        assert csv.field_size_limit() == limit
        np.testing.assert_array_equal(read.values, written.values)

    def test_a_refused_file_leaves_no_description_beside_other_reports(self, tmp_path: Path) -> None:
        (tmp_path / "old.csv").write_text("report\nx\n")
        oracle = local.SymmetricUnary(categories=2, epsilon=1.0, random_state=1)
        with pytest.raises(TacitError, match="exists"):
            self.saved(tmp_path / "old.csv", oracle, [0, 1])
        assert [file.name for file in tmp_path.iterdir()] == ["old.csv"]
        (tmp_path / "new.csv.toml").write_text("x")
        with pytest.raises(TacitError, match="exists"):
            self.saved(tmp_path / "new.csv", oracle, [0, 1])
        assert not (tmp_path / "new.csv").exists()

    def test_an_interruption_never_leaves_reports_with_the_description_of_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = tmp_path / "r.csv"
        self.saved(place, local.SymmetricUnary(categories=2, epsilon=1.0, random_state=1), [0, 1])
        oracle = local.SymmetricUnary(categories=8, epsilon=2.0, random_state=1)
        reports, real = Reports(oracle, oracle.randomize([0, 1])), local.reports.write
        for step in range(2):
            left = iter(range(step))

            def failing(*args: Any, left: Any = left, **options: Any) -> None:
                if next(left, None) is None:
                    raise KeyboardInterrupt
                real(*args, **options)

            monkeypatch.setattr(local.reports, "write", failing)
            with pytest.raises(KeyboardInterrupt):
                reports.save(place, overwrite=True)
            with pytest.raises(TacitError, match="is not there"):
                Reports.load(place)


def test_rows_of_another_width_are_refused_in_words() -> None:
    model = local.LocalLogisticRegression(epsilon=4.0, norm=1.0, classes=[0, 1], random_state=1)
    with pytest.raises(InvalidValue, match="3 columns, as declared"):
        model.fit_rows(3, 2000, lambda: (np.zeros((2000, 5)), np.zeros(2000)))
