"""PCA: sensitivity on worst-case rows, the exact sampler, broken twins, pipelines with one ε."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi2, kstest
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, make_pipeline

import tacit
from tacit import Budget, Ledger, accounting, audit
from tacit.data.features import PAID_APART
from tacit.errors import InvalidValue
from tacit.estimators import PCA, KMeans, LogisticRegression, Preprocessor, share_budget
from tacit.estimators.ball import Ball
from tacit.estimators.components.bingham import bingham, directions
from tacit.estimators.components.moments import COUNT, GRID, MEAN, Moments, NoisyTrace, NoisyTriangle, moments
from tacit.estimators.private import PrivateRows, Public
from tacit.models import guarantee_of
from tacit.pate import PATEClassifier
from tacit.randomness import Source
from tacit.relations import Relation, Unit

NO_ROWS = PrivateRows(np.zeros((0, 3)), None, None)


def public(epsilon: float = 1.0, delta: float = 1e-6, relation: Any = "add_remove", width: int = 3) -> Public:
    return Public(epsilon, delta, Relation.of(relation), Unit(), width)


def ball(width: int = 3) -> Ball:
    return Ball.of(public(width=width), bounds=None, norm=1.0)


def of(rows: Any) -> Moments:
    return moments(ball(), PrivateRows(np.atleast_2d(np.asarray(rows, dtype=float)), None, None))


class TestSensitivity:
    @pytest.mark.parametrize("relation", list(Relation))
    @pytest.mark.parametrize("ratio", [0.0, MEAN])
    @pytest.mark.parametrize("norm", [1, 2])
    def test_of_the_triangle(self, relation: Relation, ratio: float, norm: int) -> None:
        """No pair among many is farther apart than the bound; the worst come close to it."""
        bound = NoisyTriangle.sensitivity(ball(), relation, ratio, norm)
        between = math.sqrt(2) if norm == 2 else 1.0
        random = np.random.default_rng(1)
        worst = 1 / math.sqrt(3)
        angle = -ratio**2 / 2
        tilted = [angle, math.sqrt(1 - angle**2), 0]
        points = np.vstack([
            [[1, 0, 0], [0, 1, 0], tilted, [worst] * 3, [-worst, worst, worst], [np.nan] * 3],
            random.normal(size=(40, 3)),
        ])  # fmt: skip
        upper = np.triu_indices(3)
        weights = np.where(upper[0] == upper[1], 1.0, between)
        vectors = [
            np.concatenate([one.matrix[upper] * weights, one.vector * ratio, [one.count * COUNT]])
            for one in map(of, points)
        ]
        others = vectors if relation is Relation.REPLACE_ONE else [np.zeros_like(vectors[0])]
        largest = max(float(np.linalg.norm(a - b, norm)) for a in vectors for b in others)
        assert 0.9 * bound <= largest <= bound if norm == 2 else largest <= bound

    def test_frobenius_is_one_and_root_two(self) -> None:
        bounds = [NoisyTriangle.sensitivity(ball(), each, 0.0, 2) for each in Relation]
        assert bounds == [pytest.approx(math.sqrt(1 + COUNT**2)), pytest.approx(math.sqrt(2))]

    @pytest.mark.parametrize("ratio", [0.0, MEAN])
    def test_of_the_trace(self, ratio: float) -> None:
        random = np.random.default_rng(2)
        for relation in Relation:
            bound = NoisyTrace.of(public(delta=0.0, relation=relation), ratio).mechanism.sensitivity
            largest = 0.0
            for first, second in random.normal(size=(60, 2, 3)) * 3:
                one, other = of(first), of(second if relation is Relation.REPLACE_ONE else np.full(3, np.nan))
                whole = np.zeros((2, 4, 4))
                for place, each in enumerate((one, other)):
                    whole[place, :3, :3] = each.matrix
                    whole[place, :3, 3] = whole[place, 3, :3] = ratio * each.vector
                    whole[place, 3, 3] = max(ratio, COUNT) ** 2 * each.count
                largest = max(largest, float(np.abs(np.linalg.eigvalsh(whole[0] - whole[1])).sum()))
            assert 0.8 * bound <= largest <= bound

    def test_moments_of_blocks_add_up(self) -> None:
        rows = np.random.default_rng(3).normal(size=(300, 3))
        whole, parts = of(rows), [of(rows[:7]), of(rows[7:][::-1])]
        assert (whole.matrix == parts[0].matrix + parts[1].matrix).all()
        assert (whole.vector == parts[0].vector + parts[1].vector).all()


class TestSampler:
    """Draws against the density, integrated numerically; each p-value is below 1e-6 once in a million."""

    @pytest.mark.parametrize("strength", [0.0, 0.7, 4.0, 30.0])
    def test_on_the_circle(self, strength: float) -> None:
        matrix = strength * np.array([[1.0, 0.3], [0.3, -0.5]])
        source = Source(1)
        found = np.array([bingham(matrix, source) for _ in range(3000)])
        angles = np.arctan2(found[:, 1], found[:, 0])

        def density(angle: float) -> float:
            v = np.array([math.cos(angle), math.sin(angle)])
            return math.exp(v @ matrix @ v - strength)

        edges = np.linspace(-math.pi, math.pi, 41)
        masses = np.array([quad(density, a, b)[0] for a, b in pairwise(edges)])
        masses /= masses.sum()
        grid = np.concatenate([[0.0], np.cumsum(masses)])
        uniform = np.interp(angles, edges, grid)
        counts, _ = np.histogram(angles, edges)
        expected = 3000 * masses
        busy = expected > 5
        statistic = float(((counts - expected)[busy] ** 2 / expected[busy]).sum())
        assert chi2.sf(statistic, busy.sum() - 1) > 1e-6
        assert kstest(uniform, "uniform").pvalue > 1e-6 or strength > 4

    def test_on_the_sphere(self) -> None:
        """In three dimensions, the coordinate along an axis of symmetry: exp(a·z²) on [−1, 1]."""
        strength, source = 3.0, Source(2)
        axis = np.array([1.0, 2.0, 2.0]) / 3
        found = np.array([bingham(strength * np.outer(axis, axis), source) for _ in range(3000)]) @ axis
        whole = quad(lambda z: math.exp(strength * z * z), -1, 1)[0]
        places = np.linspace(-1, 1, 201)
        steps = [quad(lambda z: math.exp(strength * z * z), a, b)[0] for a, b in pairwise(places)]
        distribution = np.concatenate([[0.0], np.cumsum(steps)]) / whole
        assert kstest(found, lambda z: np.interp(z, places, distribution)).pvalue > 1e-6
        flat = np.array([bingham(np.zeros((3, 3)), source) for _ in range(1000)]) @ axis
        assert kstest(flat, lambda z: np.interp(z, places, distribution)).pvalue < 1e-6

    def test_directions_are_orthonormal(self) -> None:
        random = np.random.default_rng(1).normal(size=(5, 5))
        found = directions(random @ random.T, 2.0, 5, Source(1))
        assert np.abs(found @ found.T - np.eye(5)).max() < 1e-12
        strong = directions(np.diag([9.0, 5.0, 1.0, 0.0, 0.0]), 1e6, 2, Source(1))
        assert np.abs(strong[:, :2]).round(2).tolist() == [[1.0, 0.0], [0.0, 1.0]]

    @pytest.mark.parametrize("relation", list(Relation))
    def test_the_loss_spans_epsilon(self, relation: Relation) -> None:
        """The densities on the circle of two neighbours, for every direction: the loss spans ε at most."""
        model = PCA(0.8, n_components=1, method="exponential", norm=1.0, relation=relation)
        recipe = model._recipe(dataclasses.replace(public(0.8, 0.0, relation), width=2))
        scale, event = recipe.release.scale, recipe.event.events[0].event  # type: ignore[union-attr]
        angles = np.linspace(0, math.pi, 2001)
        v = np.stack([np.cos(angles), np.sin(angles)])
        replaced = relation is Relation.REPLACE_ONE
        spans = []
        for turn in np.linspace(0, math.pi, 9):
            x, y = np.array([1.0, 0.0]), np.array([math.cos(turn), math.sin(turn)]) * replaced
            spans.append(np.ptp(scale * ((x @ v) ** 2 - (y @ v) ** 2)))
        assert max(spans) == pytest.approx(event.epsilon, rel=1e-6)


RUNS, CLAIMED, DELTA = 40_000, 4.0, 1e-5


def scores(noise: float, symmetric: bool, present: bool) -> np.ndarray:
    """What a release of 4 × 4 second moments says for a row with equal coordinates, in many runs."""
    facts = dataclasses.replace(public(CLAIMED, DELTA), width=4)
    made = NoisyTriangle.of(facts, ball(4), 0.0, math.sqrt(2))
    exact = moments(ball(4), PrivateRows(np.full((1, 4), 0.5), None, None))
    upper = np.triu_indices(4)
    off = upper[0] != upper[1]
    weights = np.where(off, made.between, 1.0)
    row = np.append(exact.matrix[upper] * weights, COUNT)
    if not symmetric:
        row = np.append(row, row[:-1][off])
    mechanism = dataclasses.replace(
        made.mechanism, sensitivity=made.mechanism.sensitivity * noise, random_state=Source(1 + present)
    )
    return np.asarray(mechanism(np.tile(row * present, (RUNS, 1))) @ row)


def audited(noise: float, symmetric: bool = True) -> float:
    """A lower bound on ε, wrong once in a million times."""
    inside, outside = (scores(noise, symmetric, present) for present in (True, False))
    rule, level = audit.Fixed((1 + COUNT**2) / 2), 1 - 1e-6
    guesses = audit.choose_threshold(inside, outside, rule=rule, delta=DELTA, confidence=level)
    return float(audit.gaussian(**guesses.counts(), delta=DELTA, confidence=level).epsilon)


class TestAudit:
    def test_the_release_costs_what_is_claimed(self) -> None:
        assert audited(1.0) <= CLAIMED

    def test_two_thirds_of_the_noise_are_found(self) -> None:
        assert audited(2 / 3) > CLAIMED

    def test_noise_that_is_not_symmetric_is_found(self) -> None:
        """The entries below the diagonal with noise of their own tell a second time of those above it."""
        assert audited(1.0, symmetric=False) > CLAIMED

    def test_the_released_matrix_is_symmetric_and_noisy(self) -> None:
        """Noise of deviation σ on the diagonal and σ/√2 off it; the triangles are the same numbers."""
        facts = dataclasses.replace(public(), width=60)
        made = NoisyTriangle.of(facts, ball(60), 0.0, math.sqrt(2))
        empty = Moments(np.zeros((60, 60)), np.zeros(60), 0.0)
        found = made(empty, Source(1)).matrix
        assert (found == found.T).all()
        upper = found[np.triu_indices(60, 1)]
        assert upper.std() == pytest.approx(made.deviation, rel=0.1)
        assert np.diag(found).std() == pytest.approx(made.deviation * math.sqrt(2), rel=0.5)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    random = np.random.default_rng(5)
    turned = np.linalg.qr(random.normal(size=(6, 6)))[0]
    return np.clip(0.2 + random.normal(size=(8000, 6)) * [0.4, 0.2, 0.05, 0.05, 0.05, 0.05] @ turned, -1, 1)


class TestResult:
    @pytest.mark.parametrize("method", ["auto", "wishart", "sulq", "exponential"])
    @pytest.mark.parametrize("mean", ["midpoint", "dp"])
    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_the_main_directions_are_found(self, rows: Any, method: str, mean: str, delta: float) -> None:
        model = PCA(4.0, delta, n_components=2, method=method, mean=mean, bounds=(-1, 1), random_state=1)
        model.fit(rows)
        centre = rows.mean(axis=0) if mean == "dp" else np.zeros(6)
        matrix = (rows - centre).T @ (rows - centre) / len(rows)
        best = np.linalg.eigvalsh(matrix)[-2:].sum()
        captured = np.trace(model.components_ @ matrix @ model.components_.T)
        assert captured > 0.9 * best
        assert model.explained_variance_.sum() == pytest.approx(best, rel=0.25)
        assert 0 < model.explained_variance_ratio_.sum() <= 1
        if mean == "dp":
            assert np.abs(model.mean_ - centre).max() < 0.05

    def test_more_noise_than_data(self) -> None:
        model = PCA(0.01, 1e-6, n_components=2, bounds=(-1, 1), random_state=1).fit(np.zeros((5, 4)))
        assert model.explained_variance_.tolist() == [0.0, 0.0]

    def test_output_carries_its_bounds(self, rows: Any) -> None:
        model = PCA(1.0, 1e-6, n_components=2, mean="dp", bounds=(-1, 1), random_state=1).fit(rows)
        odd = np.vstack([rows[:50], np.full((1, 6), 1e9), np.full((1, 6), np.nan)])
        out = model.transform(odd)
        assert out.features.norm is not None
        assert np.linalg.norm(np.asarray(out), axis=1).max() <= out.features.norm
        assert out.features.names == ("component 0", "component 1")
        alone = np.vstack([model.transform(each[None]) for each in odd])
        assert (np.asarray(out) == alone).all()
        back = model.inverse_transform(np.asarray(out))
        assert back.shape == (52, 6)


class TestPipeline:
    def test_one_epsilon_for_two_steps(self, rows: Any, tmp_path: Path) -> None:
        """Both steps are charged to one ledger, the second needs no bounds, and the file says the sum."""
        labels = (rows[:, 0] > 0.2).astype(int)
        with Ledger.open(tmp_path / "ledger.db", Budget(2.0, delta=1e-5)) as ledger:
            steps = make_pipeline(
                PCA(n_components=2, bounds=(-1, 1)), LogisticRegression(classes=[0, 1])
            )
            shares = {"pca": 0.25, "logisticregression": 0.75}
            whole = share_budget(steps, 2.0, 1e-5, shares=shares, ledger=ledger)
            whole.fit(rows, labels)
            assert len(ledger.entries()) == 2
            assert ledger.spent().epsilon <= 2.0 * (1 + 1e-9)
        told = guarantee_of(whole)
        assert (told.epsilon, told.delta) == (pytest.approx(2.0), pytest.approx(1e-5))
        assert accounting.epsilon(told.event, told.delta) <= told.epsilon
        tacit.save(whole, tmp_path / "whole.tacit")
        again = tacit.load(tmp_path / "whole.tacit")
        assert guarantee_of(again) == told
        assert again.predict(rows[:9]).tolist() == whole.predict(rows[:9]).tolist()

    def test_clusters_after_components(self, rows: Any) -> None:
        made = share_budget(make_pipeline(PCA(bounds=(-1, 1)), KMeans(n_clusters=2)), 1.0, 1e-6)
        assert made.fit(rows).predict(rows[:5]).shape == (5,)

    def test_steps_that_protect_others_are_refused(self, rows: Any) -> None:
        made = make_pipeline(PCA(bounds=(-1, 1)), KMeans(n_clusters=2, relation="replace_one")).fit(rows)
        with pytest.raises(InvalidValue, match="one relation"):
            guarantee_of(made)

    @pytest.mark.parametrize(
        "shares", [{"pca": 0.5}, {"pca": 0.7, "kmeans": 0.7}, {"pca": 0.0, "kmeans": 1.0}]
    )
    def test_bad_shares(self, shares: dict[str, float]) -> None:
        with pytest.raises(InvalidValue):
            share_budget(make_pipeline(PCA(), KMeans()), 1.0, shares=shares)

    def test_bad_pipelines(self) -> None:
        with pytest.raises(InvalidValue):
            share_budget(make_pipeline(Preprocessor({"a": tacit.Column("boolean")})), 1.0)
        with pytest.raises(InvalidValue):
            share_budget(PCA(), 1.0)  # type: ignore[arg-type]

    @pytest.mark.parametrize("around", [
        lambda step: make_pipeline(step),
        lambda step: FeatureUnion([("part", step)]),
        lambda step: ColumnTransformer([("part", step, slice(0, 6))]),
    ])  # fmt: skip
    def test_private_steps_inside_other_steps_count(self, rows: Any, around: Any) -> None:
        """They were overlooked: ε = 1 was stated where 6 had been spent, and a share was set for one."""
        steps = make_pipeline(around(PCA(5.0, 1e-6, bounds=(-1, 1))), KMeans(n_clusters=2, bounds=(-3, 3)))
        with pytest.raises(InvalidValue, match="spends no ε"):
            share_budget(steps, 1.0)
        told = guarantee_of(steps.fit(rows))
        assert (told.epsilon, told.delta) == (6.0, 1e-6)

    @pytest.mark.parametrize("rows", [
        np.array([[0, 0], [0, "ill"]], dtype=object), [[0.0, 0.0], [1.0]],
        np.array([[0, 1j], [0, None]], dtype=object), np.zeros((0, 2)),
    ], ids=["text", "short", "complex", "none"])  # fmt: skip
    def test_no_row_makes_a_pipeline_raise(self, rows: Any) -> None:
        """``fit`` took them, but ``transform`` of the same rows raised, and quoted the value."""
        steps = make_pipeline(PCA(1.0, bounds=([-1, -1], [1, 1])), KMeans(n_clusters=2))
        assert guarantee_of(steps.fit(rows)).epsilon == 2.0

    def test_steps_without_a_share_are_refused(self) -> None:
        student = PATEClassifier(None, None, epsilon=3.0, delta=1e-6, classes=[0, 1])
        with pytest.raises(InvalidValue, match="spends no ε"):
            share_budget(make_pipeline(PCA(), student), 1.0)
        twice = PCA()
        with pytest.raises(InvalidValue, match="of its own"):
            share_budget(make_pipeline(twice, twice), 1.0, shares={"pca-1": 0.1, "pca-2": 0.9})

    def test_shares_never_exceed_the_whole(self) -> None:
        for epsilon in (0.1, 0.3, 1.0, 1 / 3, 7.7):
            made = share_budget(make_pipeline(PCA(), PCA(), KMeans()), epsilon, epsilon / 1e6)
            assert math.fsum(step.epsilon for _, step in made.steps) <= epsilon
            assert math.fsum(step.delta for _, step in made.steps) <= epsilon / 1e6


def test_the_cost_of_components_is_not_forgotten() -> None:
    """A model of components says that their cost comes on top; a pipeline counts it."""
    generator = np.random.default_rng(1)
    X, y = generator.uniform(-1, 1, (200, 3)), generator.integers(0, 2, 200)
    pca = PCA(5.0, 1e-6, n_components=2, bounds=(-1, 1))
    model = LogisticRegression(1.0, classes=[0, 1])
    alone = LogisticRegression(1.0, classes=[0, 1]).fit(pca.fit(X).transform(X), y)
    told = f"{PAID_APART}ε = 5, δ = 1e-06"
    assert told in alone.guarantee_.assumptions
    together = make_pipeline(pca, model).fit(X, y)
    assert guarantee_of(together).epsilon == 6
    assert not any(each.startswith(PAID_APART) for each in guarantee_of(together).assumptions)
    pca.set_params(epsilon=0.1).fit(X)
    assert told in guarantee_of(together).assumptions


class TestLinearAutoEncoder:
    """The sound linear form of the deep private auto-encoder: no second one is written."""

    def rows(self) -> np.ndarray:
        random = np.random.default_rng(5)
        few, each = random.normal(size=(3000, 3)), random.normal(size=(3000, 8))
        return np.asarray(few @ random.normal(size=(3, 8)) + each)

    def test_it_returns_rows_as_the_best_linear_encoder_and_decoder_do(self) -> None:
        rows = self.rows()
        with pytest.warns(UserWarning, match="ε"):
            model = PCA(1e12, 1e-6, n_components=3, norm=30.0, random_state=1).fit(rows)
        returned = model.inverse_transform(model.transform(rows))
        left, values, right = np.linalg.svd(rows, full_matrices=False)
        best = left[:, :3] * values[:3] @ right[:3]  # Eckart and Young: none of rank 3 is closer
        np.testing.assert_allclose(returned, best, rtol=0, atol=30.0 / GRID)  # rows are moved to a grid

        random = np.random.default_rng(6)
        encoder, decoder = random.normal(size=(8, 3)), random.normal(size=(3, 8))
        for _ in range(200):  # alternating least squares: each is the best for the other
            decoder = np.linalg.lstsq(rows @ encoder, rows, rcond=None)[0]
            encoder = np.linalg.pinv(decoder)
        learnt = rows @ encoder @ decoder
        np.testing.assert_allclose(((rows - returned) ** 2).mean(), ((rows - learnt) ** 2).mean(), rtol=1e-6)

    def test_noise_costs_reconstruction_and_nothing_else_is_paid(self) -> None:
        rows, errors = self.rows(), []
        for epsilon in (0.05, 1.0, 8.0):
            model = PCA(epsilon, 1e-6, n_components=3, norm=20.0, random_state=1).fit(rows)
            errors.append(((rows - model.inverse_transform(model.transform(rows))) ** 2).mean())
            assert type(model.event_).__name__ == "Gaussian"
        assert errors[0] > errors[1] > errors[2] * 0.999
