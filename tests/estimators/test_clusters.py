"""KMeans: sensitivity on worst-case rows, noise, audits of passes with broken twins, and what it finds."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from tacit import accounting, audit, events
from tacit.estimators import KMeans
from tacit.estimators.ball import Ball
from tacit.estimators.clusters.aggregate import Round, displacements
from tacit.estimators.clusters.coreset import Tree, packed, weighted_centres
from tacit.estimators.clusters.passes import GRID, Nearest, Pass, tallies
from tacit.estimators.private import PrivateRows, Public
from tacit.mechanisms import Gaussian, Laplace
from tacit.randomness import Source
from tacit.relations import Relation, Unit

BOTH = list(Relation)


def ball(width: int = 3, **facts: Any) -> Ball:
    public = Public(1.0, 0.0, Relation.ADD_REMOVE, Unit(), width)
    return Ball.of(public, **{"bounds": (-1, 1), "norm": None, **facts})


def rows_of(matrix: Any, keep: Any = None) -> PrivateRows:
    return PrivateRows(np.atleast_2d(np.asarray(matrix, dtype=float)), None, keep)


def reading(within: Ball, square: float = 0.5, gaussian: bool = True) -> Pass:
    noise = Gaussian(1.0, noise_multiplier=1.0) if gaussian else Laplace(1.0, epsilon=1.0)
    return Pass(within, Pass.weight(within, gaussian), square, noise)


def vector(one: Pass, cells: Any, rows: Any) -> np.ndarray:
    """The joint vector that noise is added to."""
    found = tallies(one, cells, rows_of(rows) if len(rows) else PrivateRows(np.zeros((0, 3)), None, None))
    scale = np.full(found.shape[1], 1 / GRID)
    scale[0] = one.count_weight
    scale[4:] *= one.square_weight
    return found * scale


CORNERS = np.array([[1, 1, 1], [-1, -1, -1], [1, -1, 1], [1, 0, 0], [-1, 0, 0], [0.3, -0.2, 0.9]])


class TestSensitivity:
    @pytest.mark.parametrize("facts", [{}, {"bounds": None, "norm": 1.0}])
    @pytest.mark.parametrize("relation", BOTH)
    @pytest.mark.parametrize("norm", [1, 2])
    @pytest.mark.parametrize("square", [0.0, 0.5])
    def test_of_a_pass(self, facts: Any, relation: Relation, norm: int, square: float) -> None:
        """No pair of neighbours among corners and random rows is farther apart, and one comes close."""
        within = ball(**facts)
        one = reading(within, square, gaussian=norm == 2)
        random = np.random.default_rng(1)
        points = np.vstack([CORNERS, random.normal(size=(30, 3)) * 5])
        split = Nearest(np.array([[0.4, 0.0, 0.0], [-0.4, 0.0, 0.0]]))
        whole = Nearest(np.zeros((1, 3)))
        bound = Pass.sensitivity(within, relation, one.count_weight, square, norm)
        largest = 0.0
        for cells in (split, whole):
            alone = [vector(one, cells, [each]) for each in points]
            for first in alone:
                others = alone if relation is Relation.REPLACE_ONE else [np.zeros_like(first)]
                found = max(float(np.linalg.norm((first - each).ravel(), norm)) for each in others)
                largest = max(largest, found)
        assert 0.85 * bound <= largest <= bound

    @pytest.mark.parametrize("gaussian", [True, False])
    def test_a_row_moves_the_weighted_count_by_its_weight(self, gaussian: bool) -> None:
        """However many others there are: rounding of w·n once moved it by up to 4e-7 more than was told."""
        for width in (1, 2, 3, 7, 100):
            weight = Pass.weight(ball(width), gaussian)
            numbers = np.array([2**25 + 1, 2**29 + 7, 2**32 + 5])
            assert ((numbers + 1) * weight - numbers * weight == weight).all()

    @pytest.mark.parametrize("gaussian", [True, False])
    def test_the_weight_of_counts_is_the_best(self, gaussian: bool) -> None:
        """The error of a centre, as a function of w, is least at the weight that is used."""
        within = ball(8)
        best = Pass.weight(within, gaussian)

        def error(weight: float) -> float:
            norm = 2 if gaussian else 1
            size = Pass.sensitivity(within, Relation.ADD_REMOVE, weight, 0.0, norm)
            return (8 + 0.25 / weight**2) * size**2

        assert error(best) < min(error(best * 1.1), error(best / 1.1))

    def test_of_a_round(self) -> None:
        """One row changes what its block says, and nothing else."""
        random = np.random.default_rng(2)
        rows = random.uniform(-1, 1, size=(40, 3))
        drawn = random.integers(0, 5, size=40)
        centres = packed(2, 3, Source(1))
        one = Round(ball(), 5, 0.2, Gaussian(1.0, noise_multiplier=1.0))
        for place in range(40):
            changed = rows.copy()
            changed[place] = [1e6, -1e6, np.nan]
            apart = displacements(one, centres, rows_of(rows), drawn) - displacements(
                one, centres, rows_of(changed), drawn
            )
            assert np.linalg.norm(apart * (one.reach / GRID)) <= 2 * one.reach
        far = displacements(one, centres, rows_of(np.full((9, 3), 1.0)), np.zeros(9, dtype=int))
        assert np.linalg.norm(far) > 0.99 * GRID

    def test_rows_do_not_round_each_other(self) -> None:
        """The tally of all rows is, bit by bit, the sum of the tallies of any blocks of them."""
        random = np.random.default_rng(3)
        rows = random.normal(size=(500, 3))
        one, cells = reading(ball()), Nearest(packed(4, 3, Source(1)))
        whole = tallies(one, cells, rows_of(rows))
        for cut in (1, 7, 250, 499):
            parts = tallies(one, cells, rows_of(rows[:cut])) + tallies(one, cells, rows_of(rows[cut:][::-1]))
            assert (whole == parts).all()

    def test_rows_that_do_not_count(self) -> None:
        one, cells = reading(ball()), Nearest(np.zeros((1, 3)))
        rows = rows_of([[np.nan] * 3, [1, 1, np.nan], [1, 1, 1]], np.array([True, True, False]))
        found = tallies(one, cells, rows)
        assert found[0, 0] == 1
        assert found[0, 3] == 0


RUNS = 20_000


def told(width: int, noise: float, present: bool, source: Source) -> np.ndarray:
    """What two passes say for a row at a corner, by the likelihoods of Laplace noise, in many runs."""
    public = Public(1.0, 0.0, Relation.ADD_REMOVE, Unit(), width)
    recipe = KMeans(1.0, n_clusters=1, method="lloyd", passes=2, bounds=(-1, 1))._recipe(public)
    total = np.zeros(RUNS)
    for one in recipe.lloyd:
        row = tallies(one, Nearest(np.zeros((1, width))), rows_of(np.ones(width)))[0] / GRID
        row[0] = one.count_weight
        less = dataclasses.replace(
            one.mechanism, sensitivity=one.mechanism.sensitivity * noise, random_state=source
        )
        values = less(np.tile(row * present, (RUNS, 1)))
        total += (np.abs(values) - np.abs(values - row)).sum(axis=1)
    return total


def found_by_audit(present: np.ndarray, absent: np.ndarray) -> float:
    """A lower bound on ε that is wrong once in a million times."""
    rule, level = audit.Split(seed=0), 1 - 1e-6
    guesses = audit.choose_threshold(present, absent, rule=rule, delta=0.0, confidence=level)
    return float(audit.clopper_pearson(**guesses.counts(), delta=0.0, confidence=level).epsilon)


class TestAudit:
    @pytest.mark.parametrize("width", [1, 30])
    def test_two_passes_cost_what_is_claimed(self, width: int) -> None:
        """The audit stays below ε = 1, and finds half of the noise in one dimension, for 6 of 6 seeds."""
        source = Source(1)
        bounds = [
            found_by_audit(told(width, noise, True, source), told(width, noise, False, source))
            for noise in (1.0, 1 / 2)
        ]
        assert bounds[0] <= 1.0
        assert width > 1 or bounds[1] > 1.0

    def test_a_split_that_is_swapped_overspends(self) -> None:
        """As in diffprivlib: the count with 1, each of d sums with c parts of ε/(d + c), not the reverse.

        A row at a corner moves every number by its sensitivity, so the losses of all add up.
        """
        for width, times in ((10, 1.21), (100, 2.66)):
            part = float(np.cbrt(4 * width * 0.225**2))
            first, each = events.Laplace(width + part), events.Laplace((width + part) / part)
            spent = accounting.epsilon(events.Compose((first, events.Repeat(each, width))), 0.0)
            assert spent == pytest.approx(times, abs=0.01)
            ours = KMeans(1.0, method="lloyd", bounds=(-1, 1)).plan(width).event
            assert accounting.epsilon(ours, 0.0) <= 1.0


class TestBudget:
    @pytest.mark.parametrize("method", ["tree", "lloyd", "aggregate"])
    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_shares_add_up(self, method: str, delta: float) -> None:
        for passes in (1, 3, 7):
            model = KMeans(0.7, delta, n_clusters=4, method=method, passes=passes, bounds=(0, 1))
            assert 0.699 <= accounting.epsilon(model.plan(5).event, delta) <= 0.7 * (1 + 1e-9)

    def test_the_noise_has_its_scale(self) -> None:
        """The counts of empty cells are noise alone: 3,000 of them, at the stated deviation."""
        public = Public(1.0, 1e-6, Relation.ADD_REMOVE, Unit(), 3)
        (one, *_) = KMeans(1.0, 1e-6, method="lloyd", bounds=(-1, 1))._recipe(public).lloyd
        cells = Nearest(np.random.default_rng(1).normal(size=(1000, 3)) * 0.1)
        told = one(cells, [PrivateRows(np.zeros((0, 3)), None, None)], Source(1))
        assert told.sums.std() == pytest.approx(one.deviation, rel=0.06)
        assert (told.counts * one.count_weight).std() == pytest.approx(one.deviation, rel=0.12)


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(4)
    centres = np.array([[2.0, 2.0], [8.0, 2.0], [5.0, 8.0]])
    return centres, centres[random.integers(0, 3, size=6000)] + random.normal(size=(6000, 2)) * 0.4


class TestResult:
    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_blobs_are_found(self, blobs: Any, delta: float) -> None:
        centres, rows = blobs
        model = KMeans(2.0, delta, n_clusters=3, bounds=(0, 10), random_state=1).fit(rows)
        apart = np.linalg.norm(model.cluster_centers_[:, None] - centres, axis=2)
        assert (apart.min(axis=0) < 0.5).all()
        assert model.cluster_sizes_.sum() == pytest.approx(6000, abs=600)
        assert not hasattr(model, "inertia_")
        assert not hasattr(model, "labels_")

    @pytest.mark.parametrize("method", ["lloyd", "aggregate"])
    def test_other_methods_move_towards_the_rows(self, blobs: Any, method: str) -> None:
        centres, rows = blobs
        model = KMeans(8.0, 1e-6, n_clusters=3, method=method, bounds=(0, 10), random_state=2).fit(rows)
        assert np.linalg.norm(model.cluster_centers_[:, None] - centres, axis=2).min(axis=1).max() < 2.5

    def test_an_empty_cluster_stays(self) -> None:
        """More clusters than rows: no shape, error or number of passes changes."""
        for rows in (np.zeros((0, 2)), np.zeros((1, 2)), np.full((50, 2), 3.0)):
            model = KMeans(1.0, 1e-6, n_clusters=9, bounds=(0, 10), random_state=1).fit(rows)
            assert model.cluster_centers_.shape == (9, 2)
            assert ((model.cluster_centers_ >= 0) & (model.cluster_centers_ <= 10)).all()

    def test_a_prediction_depends_on_its_row_alone(self, blobs: Any) -> None:
        _, rows = blobs
        model = KMeans(1.0, 1e-6, n_clusters=3, bounds=(0, 10), random_state=1).fit(rows)
        together = model.predict(rows[:200])
        assert together.tolist() == [int(model.predict(each[None])[0]) for each in rows[:200]]

    def test_pages_and_files_say_centres_in_units(self, blobs: Any) -> None:
        model = KMeans(1.0, 1e-6, n_clusters=3, bounds=(0, 10), random_state=1).fit(blobs[1])
        said = model.describe(["age", "height"])
        assert said.profiles is not None
        assert said.sizes is not None
        assert [name for name, _ in said.profiles.rows] == ["age", "height"]
        assert len(said.sizes.values) == 3


class TestCoreset:
    def test_a_row_is_in_one_leaf(self) -> None:
        tree = Tree()
        tree.divide(0, 1, 0.25)
        tree.depth = 1
        tree.divide(2, 0, -0.5)
        tree.depth = 2
        rows = np.array([[0.0, 0.0], [0.0, 0.5], [-0.9, 0.5]]) * GRID
        assert tree.places(rows).tolist() == [0, 2, 1]
        assert tree.number == 3

    def test_centres_of_weighted_points(self) -> None:
        points = np.array([[0.0, 0.0], [0.1, 0.0], [0.9, 0.0], [0.0, 0.9]])
        found = weighted_centres(points, np.array([1.0, 3.0, 1.0, 1.0]), 3, Source(1))
        assert np.sort(found[:, 0]).round(3).tolist() == [0.0, 0.075, 0.9]

    def test_no_weight_at_all(self) -> None:
        assert weighted_centres(np.zeros((2, 2)), np.zeros(2), 3, Source(1)).shape == (3, 2)


def test_no_row_makes_fit_predict_raise() -> None:
    """Rows that are no numbers, or too short, are missing to ``fit``, and to the answers."""
    rows = [[0.5, 0.1], ["a word", None], [0.2], [math.nan, math.inf], [-0.5, "0.25"]]
    found = KMeans(1.0, n_clusters=2, bounds=([-1, -1], [1, 1]), random_state=1).fit_predict(rows)
    assert found.shape == (5,)
    assert set(found.tolist()) <= {0, 1}
    plain = np.array([[0.5, 0.1], [-0.5, 0.25]])
    model = KMeans(1.0, n_clusters=2, bounds=([-1, -1], [1, 1]), random_state=1)
    assert model.fit_predict(plain).tolist() == model.predict(plain).tolist()
    assert model.fit_predict(np.zeros((0, 2))).shape == (0,)
