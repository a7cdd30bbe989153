"""PATE against the reference code of the 2018 paper, its tables, and the votes that were published with it.

The vectors were made by running tensorflow/privacy's research/pate_2018. Where that code or the paper is
wrong, a test says so. A few of the numbers stand here as well, for a checkout without the shared folder.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.pate import ConfidentGNMax, GNMax, bounds
from tacit.pate import local_sensitivity as local
from tacit.pate.sanitising import sanitising_cost, smooth_sensitivity

PUBLISHED_ORDERS = np.concatenate([np.arange(2, 100 + 1, 0.5), np.logspace(2, np.log10(500), 100)])
CLOSE = 1e-9


@pytest.fixture(scope="module")
def vectors(shared_dir: Path) -> dict[str, Any]:
    return json.loads((shared_dir / "vectors" / "pate.json").read_text())


@pytest.fixture(scope="module")
def mnist(shared_dir: Path) -> np.ndarray:
    path = shared_dir / "data" / "pate_votes" / "mnist_250_teachers.npy"
    if not path.exists():
        pytest.skip("needs the published votes of 250 teachers on MNIST")
    return np.load(path)


def log_q(votes: list[int], sigma: float) -> float:
    return float(bounds.log_q_gaussian(bounds.gaps_of(np.array([votes])), sigma)[0])


class TestInline:
    """Some of the vectors, as they are in the shared folder."""

    VOTES = (214, 4, 7, 6, 8, 4, 2, 0, 4, 1)

    def test_gnmax(self):
        assert log_q(list(self.VOTES), 40.0) == pytest.approx(-6.971876871189835, rel=CLOSE)
        found = bounds.gaussian_divergence(log_q(list(self.VOTES), 40.0), 40.0, [1.5, 14.0, 20.5, 64.0])[0]
        assert found == pytest.approx(
            [0.00026032098844058077, 0.0004629559587559376, 0.0007176848677311064, 0.025551859409749602],
            rel=CLOSE,
        )

    def test_tiny_probability(self):
        """q = e^−428 at σ = 5: divergences of 1e-183 keep their digits."""
        found = bounds.gaussian_divergence(log_q(list(self.VOTES), 5.0), 5.0, [1.5, 32.0, 64.0])[0]
        expected = [2.748613966298451e-183, 2.4358827941393402e-76, 1.5176653951719017]
        assert found == pytest.approx(expected, rel=CLOSE)

    def test_threshold(self):
        log = bounds.log_q_threshold(np.array([214]), 100.0, 20.0)
        found = bounds.gaussian_divergence(log, math.sqrt(2) * 20, [1.5, 64.0])[0]
        assert found == pytest.approx([4.149095353403798e-09, 0.015752951826566178], rel=CLOSE)

    def test_lnmax(self):
        gaps = bounds.gaps_of(np.array([self.VOTES]))
        found = bounds.pure_divergence(bounds.log_q_laplace(gaps, 0.05), 0.1, [1.5, 64.0])[0]
        assert found == pytest.approx([0.00016195529736447493, 0.005666383630666161], rel=CLOSE)

    def test_start_of_the_plateau(self):
        assert local.plateau_start(40.0, 14.0) == pytest.approx(-3.4029724173980505, rel=CLOSE)

    @pytest.mark.parametrize(("sigma", "held"), [(20.0, (True, False)), (30.0, (True, True))])
    def test_conditions(self, sigma: float, held: tuple[bool, bool]):
        assert local.Conditions(sigma, 10, 25.0, teachers=250).hold == held


class TestVectors:
    def test_gnmax(self, vectors):
        for row in vectors["gnmax"]:
            logs = log_q(row["votes"], row["sigma"])
            assert logs == pytest.approx(row["logq"], rel=CLOSE)
            found = bounds.gaussian_divergence(logs, row["sigma"], row["orders"])[0]
            assert found == pytest.approx(row["rdp"], rel=CLOSE, abs=1e-300)

    def test_theorem_6(self, vectors):
        for row in vectors["rdp_gaussian"]:
            found = bounds.gaussian_divergence(row["logq"], row["sigma"], row["orders"])[0]
            assert found == pytest.approx(row["rdp"], rel=CLOSE, abs=1e-300)

    def test_data_independent(self, vectors):
        for row in vectors["rdp_data_independent_gaussian"]:
            found = GNMax(row["sigma"]).rdp([[1, 0]], row["orders"]).divergences
            assert found == pytest.approx(row["rdp"], rel=CLOSE)

    def test_threshold(self, vectors):
        for row in vectors["threshold"]:
            logs = bounds.log_q_threshold(np.array([max(row["votes"])]), row["T"], row["sigma1"])
            found = bounds.gaussian_divergence(logs, math.sqrt(2) * row["sigma1"], row["orders"])[0]
            assert found == pytest.approx(row["rdp"], rel=CLOSE, abs=1e-300)

    def test_lnmax(self, vectors):
        for row in vectors["lnmax"]:
            logs = bounds.log_q_laplace(bounds.gaps_of(np.array([row["votes"]])), 1 / row["lmbd"])
            assert logs[0] == pytest.approx(row["logq"], rel=CLOSE)
            found = bounds.pure_divergence(logs, row["pure_eps"], row["orders"])[0]
            assert found == pytest.approx(row["rdp_pure_eps"], rel=CLOSE)

    def test_theorem_3(self, vectors):
        for row in vectors["rdp_pure_eps"]:
            found = bounds.pure_divergence(row["logq"], row["pure_eps"], row["orders"])[0]
            assert found == pytest.approx(row["rdp"], rel=CLOSE)

    def test_conversions(self, vectors):
        for row in vectors["compute_eps_from_delta"]:
            cost = GNMax(row["sigma"]).rdp([[1, 0]] * row["queries"], PUBLISHED_ORDERS)
            classic = cost.epsilon(row["delta"], conversion="classic")
            assert classic == pytest.approx(row["eps_classic"], rel=CLOSE)
            assert cost.order(row["delta"], conversion="classic") == row["order"]
            assert cost.epsilon(row["delta"]) == pytest.approx(row["eps_improved"], rel=CLOSE)
            assert cost.order(row["delta"]) == row["order_improved"]

    def test_local_sensitivity_of_answers(self, vectors):
        for row in vectors["ls_gnmax"]:
            teachers = sum(row["votes"])
            found = local.answer_sensitivity(np.array([row["votes"]]), teachers, row["sigma"], row["order"])[
                0
            ]
            head = np.array(row["ls_head"])
            assert found[: head.size] == pytest.approx(head, rel=CLOSE, abs=1e-18)
            assert (found[-1], found.max()) == pytest.approx((row["ls_last"], row["ls_max"]), rel=CLOSE)
            discounted = (found * np.exp(-0.0329 * np.arange(len(found)))).max()
            assert discounted == pytest.approx(row["discounted_max_beta0p0329"], rel=CLOSE)

    def test_local_sensitivity_of_tests_is_made_monotone(self, vectors):
        """The reference's list is not, so its sum over queries is not the largest within a distance."""
        assert any((np.diff(row["ls"]) < 0).any() for row in vectors["ls_threshold"])
        for row in vectors["ls_threshold"]:
            heights, teachers = np.array([max(row["votes"])]), sum(row["votes"])
            found = local.threshold_sensitivity(heights, teachers, row["T"], row["sigma"], row["order"])[0]
            right = np.maximum.accumulate(row["ls"])
            assert found[: right.size] == pytest.approx(right, rel=1e-7, abs=1e-15)

    def test_starts_of_plateaus(self, vectors):
        for row in vectors["logq0_gnmax"]:
            assert local.plateau_start(row["sigma"], row["order"]) == pytest.approx(row["logq0"], rel=CLOSE)

    def test_published_price_of_sanitising_is_too_low(self, vectors):
        """Theorem 23; tests/pate/test_sanitising.py integrates two Gaussians that exceed it."""
        for row in vectors["gnss_rdp"]:
            beta, scale, order = row["beta"], row["sigma"], row["order"]
            assert published_price(order, beta, scale) == pytest.approx(row["rdp"], rel=CLOSE)
            assert sanitising_cost([order], beta, scale)[0] > row["rdp"]


def published_price(order: float, beta: float, scale: float) -> float:
    spread = beta * order - 0.5 * math.log(1 - 2 * order * beta)
    return order * math.exp(2 * beta) / scale**2 + spread / (order - 1)


class TestPublishedVotes:
    """Threshold 200, deviations 150 and 40, 640 queries, expected cost, δ = 1e-5."""

    AGGREGATOR = ConfidentGNMax(threshold=200, sigma_threshold=150, sigma_answer=40, teachers=250)

    def cost(self, votes: np.ndarray, **how: Any) -> Any:
        return self.AGGREGATOR.rdp(votes[:640], PUBLISHED_ORDERS, answered="expected", **how)

    def test_confident(self, mnist, vectors):
        row = vectors["vote_files_confident_gnmax"][0]
        dependent = self.cost(mnist, data_dependent=True, directions="one")
        classic = dependent.epsilon(1e-5, conversion="classic")
        assert classic == pytest.approx(row["eps_data_dep_expected"], rel=CLOSE)
        assert dependent.order(1e-5, conversion="classic") == row["order"]
        assert dependent.epsilon(1e-5) == pytest.approx(row["eps_data_dep_improved_conv"], rel=CLOSE)
        independent = self.cost(mnist)
        found = independent.epsilon(1e-5, conversion="classic")
        assert found == pytest.approx(row["eps_data_indep_expected"], rel=CLOSE)
        assert not dependent.releasable
        assert not independent.releasable  # the expectation is over probabilities that the votes have
        chances = self.AGGREGATOR._test_chances(self.AGGREGATOR._checked(mnist[:640]), None)
        assert chances.sum() == pytest.approx(row["expected_answered"], rel=CLOSE)

    def test_both_directions(self, mnist, vectors):
        found = self.cost(mnist, data_dependent=True).epsilon(1e-5, conversion="classic")
        assert found == pytest.approx(vectors["two_sided"]["mnist"], rel=CLOSE)

    def test_sanitised_as_published(self, mnist, vectors):
        """The table's 2.516 ± 0.385 is reproduced; at the true price of the noise it is 3.604."""
        row = vectors["smooth_sensitivity_table"][0]
        beta, scale, order = row["beta"], row["sigma_ss"], row["order"]
        cost, smooth = smooth_sensitivity(
            self.AGGREGATOR, mnist[:640], order=order, beta=beta, answered="expected", directions="one"
        )
        before = cost + math.log(1e5) / (order - 1)
        assert before == pytest.approx(row["eps_before"], abs=5e-4)
        assert smooth == pytest.approx(row["ss"], rel=2e-3)  # β is printed with three digits
        assert smooth * scale == pytest.approx(row["sd"], abs=1e-3)
        assert before + published_price(order, beta, scale) == pytest.approx(row["eps_with_gnss"], abs=1.5e-3)
        sound = before + sanitising_cost([order], beta, scale)[0]
        assert sound == pytest.approx(3.604, abs=1e-3)

    def test_lnmax_2017(self, mnist, shared_dir, vectors):
        indices = np.load(
            shared_dir / "data" / "pate_votes" / "mnist_250_teachers_100_indices_used_by_student.npy"
        )
        votes = mnist[indices].astype(np.int64)
        for row in vectors["vote_files_lnmax"]:
            logs = bounds.log_q_laplace(bounds.gaps_of(votes), row["gamma"])
            for orders, key in (
                (np.arange(2, 10), "eps_moments1to8"),
                (np.arange(2, 200), "eps_orders_2_199"),
            ):
                spent = bounds.pure_divergence(logs, 2 * row["gamma"], orders).sum(axis=0)
                found = (spent + math.log(1e5) / (orders - 1)).min()
                assert found == pytest.approx(row[key], rel=CLOSE)

    def test_realised_answers(self, mnist):
        """One run: about 283 answers, charged as they were given; the rest is public arithmetic."""
        votes = mnist[:640]
        labels = self.AGGREGATOR.answer(votes, random_state=0)
        answered = int((labels >= 0).sum())
        assert 230 < answered < 335  # 282.7 ± 4.8 standard deviations of at most 11
        given = self.AGGREGATOR.rdp(votes, PUBLISHED_ORDERS, answered=labels >= 0)
        assert given.releasable
        assert given.epsilon(1e-5, conversion="classic") == pytest.approx(
            np.min(
                PUBLISHED_ORDERS * (640 / (2 * 150**2) + answered / 40**2)
                + math.log(1e5) / (PUBLISHED_ORDERS - 1)
            ),
            rel=CLOSE,
        )


def test_reference_needs_float_orders():
    """The reference's rdp_pure_eps casts infinity to an integer at whole orders and returns −9.2e18."""
    whole = bounds.pure_divergence(-0.5, 0.05, np.array([2, 8, 64]))
    assert np.array_equal(whole, bounds.pure_divergence(-0.5, 0.05, np.array([2.0, 8.0, 64.0])))
    assert (whole > 0).all()
