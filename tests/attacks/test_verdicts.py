"""What is said about an attack: intervals that cover, and a verdict that calls no leaky model safe."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.stats import binom, norm

from tacit import attacks, events
from tacit.attacks import MembershipScores
from tacit.audit.bounds import rate_bound
from tacit.guarantee import Guarantee
from tacit.relations import Unit
from tacit.report.attack import attack_page, found_table, verdict


def normal(members: int, others: int, apart: float, seed: int) -> MembershipScores:
    generator = np.random.default_rng(seed)
    return MembershipScores.of(generator.normal(size=members) + apart, generator.normal(size=others))


@pytest.mark.parametrize(("rows", "apart", "allowed"), [(400, 1.0, 0.01), (300, 1.0, 0.001), (100, 1.0, 0.1)])
def test_intervals_cover_although_the_threshold_is_not_known(rows: int, apart: float, allowed: float) -> None:
    """95 % intervals, 300 times; the interval that takes the threshold for known misses far more often."""
    truth = float(norm.sf(norm.isf(allowed) - apart))
    missed = naive = 0
    for seed in range(300):
        found = normal(rows, rows, apart, seed).found(allowed)
        assert found.low <= found.rate <= found.high
        missed += not found.low <= truth <= found.high
        high = float(rate_bound(found.members_found, rows, 0.025))
        low = 1 - float(rate_bound(rows - found.members_found, rows, 0.025))
        naive += not low <= truth <= high
    most = binom.isf(1e-6, 300, 0.05)
    assert missed <= most
    assert naive > most


def test_intervals_cover_where_scores_are_equal() -> None:
    """Scores of three values: the highest, and by a draw an eighth of the middle one, at 10 % of alarms."""
    generator = np.random.default_rng(1)
    missed = 0
    for _ in range(300):
        members = generator.choice(3, 200, p=[0.3, 0.4, 0.3])
        others = generator.choice(3, 200, p=[0.55, 0.4, 0.05])
        found = MembershipScores.of(members, others).found(0.1)
        missed += not found.low <= 0.35 <= found.high
    assert missed <= binom.isf(1e-6, 300, 0.05)


def test_the_ends_of_the_false_alarms() -> None:
    scores = normal(50, 70, 1.0, 1)
    none, everybody = scores.found(0.0), scores.found(1.0)
    assert (none.low, none.false_alarms) == (0.0, 0)
    assert (everybody.members_found, everybody.false_alarms, everybody.high) == (50, 70, 1.0)
    assert everybody.low <= 1.0


def test_the_interval_of_the_auroc_covers() -> None:
    truth = float(norm.cdf(0.5 / np.sqrt(2)))
    intervals = [normal(60, 200, 0.5, seed).auroc_interval() for seed in range(300)]
    assert sum(not low <= truth <= high for low, high in intervals) <= binom.isf(1e-6, 300, 0.05)
    low, high = MembershipScores.of(np.ones(50), np.zeros(50)).auroc_interval()
    assert 0.9 < low < high == 1.0


def test_a_leak_that_shows_only_at_many_false_alarms_is_called_one() -> None:
    """A forest is sure of all members, and of a third of the others even more."""
    scores = MembershipScores.of(np.ones(300), np.repeat([0.0, 2.0], [200, 100]))
    assert scores.found(0.1).members_found == 0
    assert scores.auroc > 0.6
    assert verdict(scores).startswith("The model gives members away")


def test_equal_scores_are_told_apart_by_a_draw() -> None:
    """All members and a third of the others have one score: 10 % of alarms find three in ten."""
    scores = MembershipScores.of(np.ones(900), np.repeat([0.0, 1.0], [600, 300]))
    found = scores.found(0.1)
    assert found.false_alarms == 90
    assert abs(found.rate - 0.3) < 0.12
    assert found.low < 0.3 < found.high


def test_what_few_rows_cannot_show_is_said() -> None:
    told = verdict(normal(20, 20, 0.3, 1))
    assert "did not tell" in told
    assert "cannot be ruled out" in told
    assert "Members score lower" in verdict(normal(400, 400, -1.0, 2))


def test_no_signal_is_seldom_called_a_leak() -> None:
    told = [verdict(normal(200, 200, 0.0, seed)) for seed in range(300)]
    assert sum(not each.startswith("This attack did not") for each in told) <= binom.isf(1e-6, 300, 0.06)


def test_a_guarantee_for_labels_allows_any_attack_on_membership() -> None:
    labels = Guarantee(0.1, 0.0, events.Pure(0.1), relation="replace_one", unit=Unit(part="label"))
    rows = Guarantee(0.1, 0.0, events.Pure(0.1))
    scores = normal(500, 500, 3.0, 3)
    assert [bound for _, bound in found_table(scores, labels)] == [1.0, 1.0, 1.0]
    assert max(bound or 1 for _, bound in found_table(scores, rows)) < 0.2
    assert "more than the guarantee allows" in verdict(scores, rows)
    assert "more than the guarantee allows" not in verdict(scores, labels)
    page = re.sub(r"\s+", " ", attack_page(scores, labels, name="m", signal="s"))
    assert "promises nothing about membership" in page


def test_the_scaled_logit_keeps_what_a_confident_network_says() -> None:
    """1 − p is 0 in float64, but the other classes' probabilities are not."""
    sure = attacks.signal([[1.0, 1e-14], [1.0, 1e-18], [1.0, 1e-25]], [0, 0, 0])
    assert (np.diff(sure) > 5).all()
    assert attacks.signal([[1.0, 1e-18]]).item() == pytest.approx(18 * np.log(10))


def test_the_offline_ratio_treats_the_population_as_the_examples() -> None:
    """With the same estimate of p for x and z, examples like the population have uniform scores."""
    generator = np.random.default_rng(4)
    shadows, target = generator.beta(2, 2, size=(8, 2000)), generator.beta(2, 2, size=2000)
    nobody = np.zeros((8, 1000), dtype=bool)
    scores = attacks.rmia(
        target[:1000], shadows[:, :1000], nobody, population=target[1000:],
        population_shadows=shadows[:, 1000:], ratio=1.0, mode="offline",
    )  # fmt: skip
    assert abs(scores.mean() - 0.5) < 0.08
    assert np.unique(scores).size == 1000  # equal shares are told apart
