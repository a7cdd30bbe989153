"""Several labels at once, and numbers: sensitivities by search, answers by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit import accounting, events
from tacit.errors import InvalidValue, TacitError
from tacit.ledger import Budget, Ledger
from tacit.pate import GNMax, MeanVote, MedianVote, MultiLabel, sanitise
from tacit.randomness import Source
from tacit.relations import LABEL

GENERATOR = np.random.default_rng(7)


class Seen(MultiLabel):
    """Keeps the counts that get the noise."""

    def _noisy(self, counts, source):
        self._keep("counts", counts)
        return counts


@pytest.mark.parametrize(("method", "clip_norm"), [("counts", None), ("clipped", 1.0), ("clipped", 1.7)])
def test_sensitivity_of_labels(method, clip_norm):
    """One teacher predicts anything else, 300 times; the worst pair is reached."""
    labels = 6
    aggregator = Seen(labels, 1.0, method=method, clip_norm=clip_norm, teachers=3)
    worst = 0.0
    for trial in range(300):
        here = GENERATOR.integers(0, 2, size=(3, 1, labels))
        there = here.copy()
        there[1] = 1 - here[1] if trial % 2 else GENERATOR.integers(0, 2, size=(1, labels))
        aggregator.answer(here)
        before = aggregator.counts
        aggregator.answer(there)
        worst = max(worst, float(np.sqrt(np.square(aggregator.counts - before).sum())))
    assert 0.7 * aggregator.sensitivity < worst <= aggregator.sensitivity
    if method == "counts":
        assert worst == pytest.approx(math.sqrt(labels))


class TestMultiLabel:
    PREDICTIONS = np.tile([[1, 0, 1], [0, 1, 0]], (100, 1, 1))

    @pytest.mark.parametrize("how", [{}, {"method": "powerset"}, {"method": "clipped", "clip_norm": 2.0}])
    def test_agreement(self, how):
        answer = MultiLabel(3, 3.0, **how, teachers=100).answer(self.PREDICTIONS, random_state=1)
        assert answer.tolist() == [[1, 0, 1], [0, 1, 0]]

    def test_other_values_count_as_no(self):
        odd = np.full((100, 1, 2), np.nan)
        odd[:, :, 1] = 7.0
        assert MultiLabel(2, 3.0, teachers=100).answer(odd, random_state=1).tolist() == [[0, 0]]

    def test_events(self):
        event = MultiLabel(16, 8.0, teachers=9).event(asked=5)
        assert event == events.Repeat(events.Gaussian(event.event.noise_multiplier), 5)
        assert event.event.noise_multiplier == pytest.approx(2.0)
        assert event.event.noise_multiplier <= 2.0
        assert MultiLabel(5, 8.0, method="powerset", teachers=9)._answer_event().noise_multiplier == (
            pytest.approx(8 / math.sqrt(2))
        )

    def test_release(self, tmp_path):
        aggregator = MultiLabel(3, 40.0, teachers=100)
        with Ledger.open(tmp_path / "study.db", Budget(3.0, 1e-5)) as ledger:
            given = aggregator.release(lambda: self.PREDICTIONS, asked=2, ledger=ledger, delta=1e-6)
            assert [entry.event for entry in ledger.entries()] == [aggregator.event(asked=2)]
            with pytest.raises(InvalidValue, match="shape"):
                aggregator.release(self.PREDICTIONS[:50], ledger=ledger, delta=1e-6)
            assert len(ledger.entries()) == 1
        assert given.asked == 2
        assert given.guarantee.noise == "exact"
        assert given.guarantee.epsilon == accounting.epsilon(aggregator.event(asked=2), 1e-6)


class TestNumbers:
    def test_mean_is_clipped(self):
        predictions = np.array([[2.0, 100.0, np.nan], [4.0, -100.0, np.inf]])
        means = MeanVote((0.0, 10.0), 1e-6, teachers=2).answer(predictions, random_state=1)
        assert means == pytest.approx([3.0, 5.0, 7.5], abs=1e-4)

    def test_noise_of_the_mean(self):
        """Sensitivity (upper − lower)/teachers; five standard errors of a deviation."""
        runs = 20_000
        values = MeanVote((-2.0, 8.0), 3.0, teachers=5).answer(np.zeros((5, runs)), random_state=2)
        assert np.std(values) == pytest.approx(3.0 * 10 / 5, rel=5 / math.sqrt(2 * runs))

    def test_one_teacher_moves_the_sum_by_the_range(self):
        aggregator = MeanVote((-2.0, 8.0), 1.0, teachers=1)
        ends = aggregator._steps(np.array([[-1e300, -2.0, 8.0, 1e300, np.nan]]))[0]
        assert ends.tolist() == [0, 0, 2**20, 2**20, 2**19]

    def test_median(self):
        predictions = np.concatenate([np.full((60, 1), 2.0), np.full((40, 1), 9.0)])
        aggregator = MedianVote((0.0, 10.0), 2.0, 101, teachers=100)
        assert aggregator.answer(predictions, random_state=1) == pytest.approx([2.0])

    def test_scores_of_the_median_move_by_one(self):
        """The chances of every candidate, from one prediction to any other, within e^ε."""
        aggregator = MedianVote((0.0, 1.0), 0.8, 5, teachers=3)
        runs, source = 10_000, Source(5)
        counts = []
        for last in (0.0, 0.3, 1.0):
            predictions = np.repeat([[0.2], [0.7], [last]], runs, axis=1)
            drawn = np.rint(aggregator.answer(predictions, random_state=source) * 4).astype(int)
            counts.append(np.bincount(drawn, minlength=5))
        for here in counts:
            for there in counts:
                assert (here <= there * math.exp(0.8) + 6 * np.sqrt(here + there)).all()

    @pytest.mark.parametrize("bounds", [(1.0, 0.0), (0.0,), None, (0.0, math.nan), "ab"])
    def test_bad_bounds(self, bounds):
        with pytest.raises(InvalidValue, match="bounds"):
            MeanVote(bounds, teachers=2)


def test_a_ledger_for_labels_protects_no_rows_unasked(tmp_path):
    """Teachers see whole rows: that only labels are protected is said by whoever releases, or refused."""
    votes, predictions = [[3, 1]], [[0.5]] * 4
    released = (
        lambda **more: GNMax(9.0).release(votes, delta=1e-5, **more),
        lambda **more: MeanVote((0, 1), 9.0, teachers=4).release(predictions, delta=1e-5, **more),
        lambda **more: sanitise(
            GNMax(9.0, teachers=4), votes, order=2.0, cost=0.3, delta=1e-5, random_state=1, **more
        ),
    )
    with Ledger.open(tmp_path / "labels.db", Budget(99.0, 0.1), relation="replace_one", unit=LABEL) as ledger:
        for release in released:
            with pytest.raises(TacitError, match="LABEL"):
                release(ledger=ledger)
        assert not ledger.entries()
        for number, release in enumerate(released[:2], 1):
            assert release(ledger=ledger, unit=LABEL).guarantee.unit == LABEL
            assert len(ledger.entries()) == number
