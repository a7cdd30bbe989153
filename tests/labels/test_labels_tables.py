"""Every randomizer's table of P(response | label), exactly: no ratio of any pair is above e^ε."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pytest

from tacit import events
from tacit.errors import InvalidValue
from tacit.labels import (
    NoisyOneHot,
    Response,
    ResponseOnBins,
    ResponseWithPrior,
    SubsetResponse,
    denoised,
    posterior,
)
from tacit.randomness import Source, exp_bounds

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "labels.json").read_text())
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0)
UNTOLD = -1
Table = Sequence[Sequence[Fraction]]


def at_most(epsilon: float, ratio: Fraction) -> bool:
    """Whether a ratio is at most e^ε, decided with 200 bits."""
    _, high = exp_bounds(Fraction(epsilon), 200)
    return ratio <= Fraction(1 << 200, high)


def require_private(table: Table, epsilon: float) -> None:
    for line in table:
        assert sum(line) == 1
        assert min(line) >= 0
    for one, other in permutations(table, 2):
        for a, b in zip(one, other, strict=True):
            assert (a == 0) == (b == 0)
            assert b == 0 or at_most(epsilon, a / b)


def priors(categories: int) -> np.ndarray:
    rng = np.random.default_rng(categories)
    drawn = rng.dirichlet(np.full(categories, 0.4), 12)
    return np.vstack([drawn, np.full(categories, 1 / categories), np.eye(categories)[0]])


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("categories", [2, 3, 10])
def test_response(categories: int, epsilon: float) -> None:
    require_private(Response(categories, epsilon).table(), epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("categories", [2, 5, 10])
def test_response_with_prior(categories: int, epsilon: float) -> None:
    mechanism = ResponseWithPrior(epsilon, priors(categories))
    for row in range(len(mechanism.prior)):
        require_private(mechanism.table(row), epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("shape", ["uniform", "one peak", "two peaks", "one cell"])
def test_response_on_bins(shape: str, epsilon: float) -> None:
    cells = np.arange(24)
    prior = {
        "uniform": np.ones(24),
        "one peak": np.exp(-((cells - 5.0) ** 2) / 8),
        "two peaks": np.exp(-((cells - 4.0) ** 2)) + np.exp(-((cells - 20.0) ** 2)),
        "one cell": (cells == 3).astype(float),
    }[shape]
    require_private(ResponseOnBins(epsilon, (0.0, 1.0), prior / prior.sum()).table(), epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("categories", [2, 3, 10])
def test_subset_response(categories: int, epsilon: float) -> None:
    mechanism = SubsetResponse(categories, epsilon)
    inside, outside, untold = mechanism.chances()
    sets = list(combinations(range(categories), mechanism.size))
    table = [[inside if label in chosen else outside for chosen in sets] for label in range(categories)]
    require_private([*table, [untold] * len(sets)], epsilon)


def test_a_size_that_is_chosen_with_the_label_is_caught() -> None:
    """RRWithPrior with k large enough to hold the label, whatever the prior says: its supports differ."""
    prior = np.array([0.9, 0.05, 0.03, 0.02])
    honest = ResponseWithPrior(1.0, prior)
    assert honest.sizes.tolist() == [1]

    def line(label: int) -> tuple[Fraction, ...]:
        size = max(int(honest.sizes[0]), label + 1)
        chances = (Fraction(1),) if size == 1 else Response(size, 1.0).table()[label]
        return (*chances, *(Fraction(0),) * (4 - size))

    with pytest.raises(AssertionError):
        require_private([line(label) for label in range(4)], 1.0)


def test_a_response_at_two_thirds_of_its_noise_is_caught() -> None:
    with pytest.raises(AssertionError):
        require_private(Response(10, 1.5).table(), 1.0)


# ------------------------------------------------------------------------------ golden values


@pytest.mark.parametrize("case", GOLDEN["rr"], ids=lambda case: f"K={case['K']}, eps={case['eps']}")
def test_how_often_a_label_is_kept(case: dict[str, float]) -> None:
    keep = Response(int(case["K"]), case["eps"]).table()[0][0]
    assert math.isclose(keep, case["keep"], rel_tol=1e-12)


@pytest.mark.parametrize("case", GOLDEN["rr_with_prior"])
def test_how_many_classes_a_prior_leaves(case: dict[str, float]) -> None:
    prior = np.array(case["prior"])
    mechanism = ResponseWithPrior(case["eps"], prior)
    assert mechanism.sizes.tolist() == [case["k"]]
    correct = sum(p * mechanism.table()[c][c] for c, p in enumerate(prior.tolist()))
    assert math.isclose(correct, case["expected_correct"], rel_tol=1e-12)


def test_the_published_off_by_one_is_not_reproduced() -> None:
    """The published code adds up one class too few, and takes k = 1 for a uniform prior at ε = 0.5."""
    wrong = [case for case in GOLDEN["rr_with_prior"] if case["k"] != case["k_google_code"]]
    assert len(wrong) >= 4
    for case in wrong:
        best = ResponseWithPrior(case["eps"], np.array(case["prior"])).sizes[0]
        assert best == case["k"] != case["k_google_code"]


@pytest.mark.parametrize("case", GOLDEN["alibi"])
def test_the_scale_of_alibi(case: dict[str, float]) -> None:
    assert NoisyOneHot(10, case["eps"]).scale == case["laplace_b"]
    assert NoisyOneHot(10, case["eps"]).event == events.Laplace(1 / case["eps"])


# -------------------------------------------------------------- what responses say, and how they are drawn


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_the_likelihood_of_a_noisy_row_is_that_of_its_density(delta: float) -> None:
    """Against the densities themselves, whose noise is independent in every entry."""
    mechanism = NoisyOneHot(4, 0.7, delta)
    rows = np.random.default_rng(1).normal(size=(50, 4)) * mechanism.scale
    away = rows[:, None, :] - np.eye(4)
    scale = mechanism.scale
    exact = -(np.abs(away) / scale if not delta else away**2 / (2 * scale**2)).sum(axis=2)
    found = mechanism.log_likelihood(rows)
    np.testing.assert_allclose(found - found[:, :1], exact - exact[:, :1], atol=1e-12)
    if delta:
        wrong = rows / scale
        assert not np.allclose(wrong - wrong[:, :1], exact - exact[:, :1], atol=1e-3), "x/σ, as published"


@pytest.mark.parametrize("label", [0, 2, UNTOLD])
def test_responses_are_drawn_as_the_tables_say(label: int) -> None:
    """Chernoff bounds of 1e-7 for each of a dozen frequencies; the twin at ε = 1.5 is outside."""
    rows = 40_000
    codes = np.full(rows, label)
    prior = np.array([0.5, 0.3, 0.15, 0.05])
    mechanisms = (Response(4, 1.0), ResponseWithPrior(1.0, prior))
    allowed = math.sqrt(math.log(2 / 1e-7) / (2 * rows))
    for mechanism in mechanisms:
        shares = np.bincount(mechanism.respond(codes, Source(3)), minlength=4) / rows
        assert np.abs(shares - np.array(mechanism.table()[label], dtype=float)).max() <= allowed
    shares = np.bincount(Response(4, 1.5).respond(codes, Source(3)), minlength=4) / rows
    if label >= 0:
        assert np.abs(shares - np.array(Response(4, 1.0).table()[label], dtype=float)).max() > allowed


@pytest.mark.parametrize("label", [0, 3, UNTOLD])
def test_subsets_are_drawn_as_their_chances_say(label: int) -> None:
    rows, mechanism = 40_000, SubsetResponse(6, 1.0)
    members = mechanism.respond(np.full(rows, label), Source(5))
    assert (members.sum(axis=1) == mechanism.size).all()
    inside, outside, untold = (float(chance) for chance in mechanism.chances())
    allowed = math.sqrt(math.log(2 / 1e-8) / (2 * rows))
    for chosen in combinations(range(6), mechanism.size):
        found = members[:, chosen].all(axis=1).mean()
        expected = untold if label < 0 else inside if label in chosen else outside
        assert abs(found - expected) <= allowed


def test_the_posterior_is_that_of_bayes() -> None:
    mechanism, prior = Response(3, 1.0), np.array([0.2, 0.5, 0.3])
    table = np.array(mechanism.table()[:3], dtype=float)
    for response in range(3):
        joint = prior * table[:, response]
        found = posterior(mechanism.log_likelihood(np.array([response])), prior)[0]
        np.testing.assert_allclose(found, joint / joint.sum(), rtol=1e-12)


def test_the_likelihood_of_a_response_with_a_prior_is_that_of_its_table() -> None:
    mechanism = ResponseWithPrior(1.0, np.array([0.5, 0.3, 0.15, 0.05]))
    table = np.array(mechanism.table()[:4], dtype=float)
    for response in np.flatnonzero(table[0]):
        found = np.exp(mechanism.log_likelihood(np.array([response])))[0]
        np.testing.assert_allclose(found, table[:, response], rtol=1e-12)


def test_a_prior_is_denoised_exactly() -> None:
    """p̃ = p·M for the table M of randomized response, inverted."""
    truth = np.array([[0.7, 0.2, 0.1], [1.0, 0.0, 0.0]])
    reported = truth @ np.array(Response(3, 1.0).table()[:3], dtype=float)
    np.testing.assert_allclose(denoised(reported, 1.0), truth, atol=1e-12)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_bins_are_the_best_of_all(epsilon: float) -> None:
    """Every way to part 8 cells into intervals, by brute force, with the value of each interval free."""
    rng = np.random.default_rng(1)
    prior = rng.dirichlet(np.ones(8))
    mechanism = ResponseOnBins(epsilon, (0.0, 8.0), prior)

    def loss(starts: tuple[int, ...], values: np.ndarray) -> float:
        count, grown = len(starts), math.exp(epsilon)
        errors = (mechanism.midpoints[:, None] - values) ** 2
        own = np.searchsorted(starts, np.arange(8), side="right") - 1
        kept = (grown - 1) * errors[np.arange(8), own] + errors.sum(axis=1)
        return float(prior @ kept / (grown + count - 1))

    best = math.inf
    for count in range(8):
        for cut in combinations(range(1, 8), count):
            starts, grown = (0, *cut), math.exp(epsilon)
            own = np.searchsorted(starts, np.arange(8), side="right") - 1
            weights = np.array([prior * ((grown - 1) * (own == each) + 1) for each in range(count + 1)])
            values = weights @ mechanism.midpoints / weights.sum(axis=1)
            best = min(best, loss(starts, values))
    assert math.isclose(loss(mechanism.edges, mechanism.values), best, rel_tol=1e-9)


def test_unbiased_numbers_have_the_centre_of_the_bin_as_their_mean() -> None:
    mechanism = ResponseOnBins(2.0, (0.0, 10.0), np.ones(20) / 20)
    table = np.array(mechanism.table(), dtype=float)
    numbers = mechanism.unbiased(np.arange(len(mechanism.values)))
    own = mechanism.bin_of(np.arange(20))
    np.testing.assert_allclose(table[:20] @ numbers, mechanism.centres[own], atol=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ResponseWithPrior(1.0, [[0.5, -0.5]]),
        lambda: ResponseWithPrior(1.0, [[0.5, np.nan]]),
        lambda: ResponseWithPrior(0.0, [[0.5, 0.5]]),
        lambda: ResponseOnBins(1.0, (0.0, 1.0), [1.0]),
        lambda: SubsetResponse(1, 1.0),
        lambda: ResponseWithPrior(1.0, np.ones((2, 3))).respond(np.zeros(3, dtype=int), Source(1)),
    ],
)
def test_what_is_refused(make: object) -> None:
    with pytest.raises(InvalidValue):
        make()  # type: ignore[operator]


def test_subsets_refuse_an_epsilon_below_the_step_of_their_probabilities():
    """At ε = 1e-19 and 3 classes the ratio would be e^2.6e-18."""
    with pytest.raises(InvalidValue, match="epsilon"):
        SubsetResponse(3, 1e-19)
