"""Private generation: the sample, the sum, the shortlist, and the published cost."""

from __future__ import annotations

import numpy as np
import pytest

from tacit import Budget, Ledger, accounting, events
from tacit.errors import BudgetExceeded, InvalidValue
from tacit.language.generation import PrivateGenerator, TokenVote, _simplex
from tacit.randomness import Source
from tiny_language import WORDS, decoder

TEMPLATE = "L:{label}\nT:{text}\n"
TEXTS, LABELS = [f"row {i}" for i in range(30)], [i % 2 for i in range(30)]


def made(**changed):
    """The noise is given, so that it is not searched for in every test."""
    given = {
        "sampling_rate": 0.2, "tokens": 6, "top_k": 20, "noise_multiplier": 3.0, "delta": 1e-5,
        "text_tokens": 16, "random_state": 1,
    }  # fmt: skip
    return PrivateGenerator(decoder(), TEMPLATE, WORDS, **given | changed)


@pytest.mark.parametrize(("sigma", "epsilon"), [(0.51, 0.965), (0.46, 1.789), (0.39, 3.815), (0.31, 7.967)])
def test_the_published_cost_of_ag_news(sigma, epsilon):
    """The cost of Tang et al. 2024 for AG News, recomputed by an accountant of privacy loss distributions.

    For each token 20 of 30,000 demonstrations of a class are sampled, 100 tokens make one text of each of
    four classes, which are disjoint, and δ is 1/30,000.
    """
    private = PrivateGenerator(
        decoder(), TEMPLATE, dict(enumerate("abcd")), sampling_rate=20 / 30_000, tokens=100,
        noise_multiplier=sigma, delta=1 / 30_000,
    )  # fmt: skip
    found = accounting.epsilon(private.event, 1 / 30_000, relation="add_remove")
    assert found == pytest.approx(epsilon, abs=6e-4)


def test_the_event_counts_every_token_of_every_text():
    private = made(texts_per_class=3, epsilon=4.0, noise_multiplier=None)
    one = private.event.events[0]
    assert len(private.event.events) == 2
    assert one.times == 18
    assert one.event == events.PoissonSampled(0.2, events.Gaussian(private.vote.noise_multiplier))
    assert accounting.epsilon(private.event, 1e-5) <= 4.0
    other = made(relation="replace_one", epsilon=4.0, noise_multiplier=None)
    assert accounting.epsilon(other.event, 1e-5, relation="replace_one") <= 4.0


class TestTokenVote:
    @pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
    def test_a_demonstration_moves_the_sum_by_its_own_vector(self, relation):
        every = TokenVote(1.0, 2.0**-30, relation)
        rows = np.random.default_rng(1).dirichlet(np.ones(5), 9)
        more = np.vstack([rows, np.eye(5)[:1]])
        summed = every(9, lambda place: rows[place], 5, Source(1))
        np.testing.assert_allclose(
            every(10, lambda place: more[place], 5, Source(1)) - summed, np.eye(5)[0], atol=1e-6
        )
        np.testing.assert_allclose(summed, rows.sum(axis=0), atol=1e-6)

    def test_the_noise_is_twice_as_large_where_one_is_replaced(self):
        def spread(relation):
            vote = TokenVote(0.5, 1.0, relation)
            return np.std(vote(0, lambda place: np.zeros(4000), 4000, Source(1)))

        assert spread("replace_one") / spread("add_remove") == pytest.approx(2.0, rel=0.1)

    def test_an_empty_sample_is_an_ordinary_one(self):
        vote = TokenVote(1e-9, 1.0)
        found = vote(100, lambda place: pytest.fail("asked"), 7, Source(1))
        assert found.shape == (7,)
        assert (found != 0).all()

    def test_the_sample_is_poisson_and_fresh(self):
        """Sizes of the samples vary as those of independent draws do, and each token has its own."""
        asked: list[list[int]] = []
        vote = TokenVote(0.2, 1.0)
        for _ in range(400):
            sample: list[int] = []
            vote(
                100,
                lambda place, sample=sample: (sample.append(place), np.zeros(2))[1],
                2,
                source := Source(len(asked)),
            )
            assert source.seeded
            asked.append(sample)
        sizes = np.array([len(each) for each in asked])
        assert 18.5 < sizes.mean() < 21.5
        assert 11 < sizes.var() < 22
        assert asked[0] != asked[1]

    @pytest.mark.parametrize(
        "odd", [[np.nan, 1.0], [np.inf, 0.0], [-1.0, 2.0], [1.0], [5.0, 5.0], [1.0, 1.0], [0.5, 0.5 + 1e-12]]
    )
    def test_no_vector_is_longer_than_one(self, odd):
        found = _simplex(np.array(odd), 2)
        assert found.shape == (2,)
        assert (found >= 0).all()
        assert found.sum() <= 1

    @pytest.mark.parametrize("given", [(0.0, 1.0), (1.5, 1.0), (0.5, 0.0), (0.5, np.nan)])
    def test_parameters(self, given):
        with pytest.raises(InvalidValue):
            TokenVote(*given)


def test_the_whole_road():
    found = made(texts_per_class=2).generate(TEXTS, LABELS)
    assert found.labels == (0, 0, 1, 1)
    assert found.guarantee.event == made(texts_per_class=2).event
    assert found.demonstrations([0, 1])[0][1] == 0
    assert all(len(text) <= 6 for text in found.texts)
    assert str(found).count("\n") >= 4


def test_a_demonstration_is_read_for_its_own_class_alone(monkeypatch):
    private = made(sampling_rate=1.0, tokens=1)
    asked = []
    true = private.prompter.next_token

    def watched(tokens, among=None):
        asked.append(private.prompter.decode(tokens))
        return true(tokens, among)

    monkeypatch.setattr(private.prompter, "next_token", watched)
    private.generate(["alpha", "beta"], [0, 1])
    with_rows = [each for each in asked if "alpha" in each or "beta" in each]
    assert len(with_rows) == 2
    assert all(("alpha" in each) == ("no" in each) for each in with_rows)


def test_charged_before_rows_are_read(tmp_path):
    read = []

    def rows():
        read.append(len(ledger.entries()))
        return TEXTS, LABELS

    with Ledger.open(tmp_path / "poor.db", budget=Budget(epsilon=0.01, delta=1e-5)) as ledger:
        with pytest.raises(BudgetExceeded):
            made(ledger=ledger).generate_rows(rows)
        assert not read
    with Ledger.open(tmp_path / "rich.db", budget=Budget(epsilon=5.0, delta=1e-5)) as ledger:
        made(ledger=ledger).generate_rows(rows)
        assert read == [1]


def test_odd_rows_add_nothing_and_raise_nothing(monkeypatch):
    odd = [None, "", "\ud800", 7, "fine", "x" * 4000, b"x"]
    labels = [0, 1, 0, 1, "unknown", 1, 0]
    assert len(made(sampling_rate=0.9).generate(odd, labels).texts) == 2
    assert len(made().generate([], []).texts) == 2
    private = made(sampling_rate=0.9)
    true = private.prompter.next_token

    def fails_on_rows(tokens, among=None):
        if among is not None:
            raise RuntimeError("a private text")
        return true(tokens)

    monkeypatch.setattr(private.prompter, "next_token", fails_on_rows)
    assert len(private.generate(TEXTS, LABELS).texts) == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"sampling_rate": 0.0}, {"tokens": 0}, {"top_k": 1}, {"top_k": 1000}, {"noise_multiplier": None},
        {"epsilon": 1.0}, {"prior": -1.0}, {"text_tokens": 0}, {"tokens": 400},
        {"texts_per_class": 0}, {"relation": "x"}, {"delta": 0.0},
    ],
    ids=str,
)  # fmt: skip
def test_bad_parameters(changed):
    with pytest.raises(InvalidValue):
        made(**changed)


@pytest.mark.parametrize("template", ["{text}{label}", "{label}", "", None])
def test_bad_templates(template):
    with pytest.raises(InvalidValue):
        PrivateGenerator(decoder(), template, WORDS, sampling_rate=0.1, epsilon=1.0)
