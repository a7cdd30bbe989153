"""Answers of an ensemble: sensitivity on worst-case members, the road, and odd rows."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace

import numpy as np
import pytest

from tacit import Budget, Ledger, Unit, accounting, events
from tacit.errors import BudgetExceeded, InvalidValue, TacitError
from tacit.language.aggregating import EmbeddingMean, KeywordCounts, on_grid, words_of
from tacit.language.in_context import InContext
from tiny_language import decoder, encoder

TEMPLATE = "Q:{text}\nA:{label}\n"
TEXTS, ANSWERS = [f"question {i}" for i in range(9)], ["yes it is"] * 5 + ["no"] * 4
VOCABULARY = ("yes", "no", "maybe", "it", "is")


class Unseen:
    """A value whose class cannot be asked for."""

    @property
    def __class__(self):
        raise RuntimeError("private")


def made(**changed):
    given = {
        "template": TEMPLATE, "encoder": encoder(), "candidates": ["yes", "no", "perhaps"], "members": 3,
        "text_tokens": 16, "answer_tokens": 8, "epsilon": 4.0, "delta": 1e-5, "random_state": 1,
    }  # fmt: skip
    return InContext(decoder(), **given | changed)


def keywords(**changed):
    return made(
        **{"method": "keywords", "vocabulary": VOCABULARY, "words": 2, "top": 2, "candidates": None} | changed
    )


class TestEmbeddingMean:
    @pytest.mark.parametrize("scale", [1.0, 5.0, 1e100, 1e-3])
    def test_one_member_moves_the_sum_by_two_at_most(self, scale):
        rng = np.random.default_rng(1)
        rows = rng.normal(size=(6, 8))
        quiet = EmbeddingMean(6, 2.0**-30, random_state=1)
        other = rows.copy()
        rows[2], other[2] = scale * np.eye(8)[0], -scale * np.eye(8)[0]
        moved = 6 * np.linalg.norm(quiet(rows) - quiet(other))
        assert moved <= 2 + 1e-6
        assert moved == pytest.approx(2 * min(scale, 1.0), abs=1e-6)

    def test_what_is_not_finite_counts_as_zeros(self):
        quiet = EmbeddingMean(2, 2.0**-30, random_state=1)
        for odd in (np.nan, np.inf, -np.inf):
            assert np.abs(quiet([[odd, 1.0], [0.0, 0.0]])).max() < 1e-6

    def test_the_order_of_members_does_not_matter_to_a_bit(self):
        rng = np.random.default_rng(2)
        rows = on_grid(rng.normal(size=(500, 3)) / 10)
        assert np.array_equal(rows.sum(axis=0), rows[::-1].sum(axis=0))

    def test_nearest(self):
        assert EmbeddingMean.nearest(np.array([0.0, 2.0]), [[1.0, 0.0], [0.0, 1.0]]) == 1


class TestKeywordCounts:
    def test_one_member_moves_twice_the_words_at_most(self):
        vocabulary = tuple(f"w{i}" for i in range(40))
        quiet = KeywordCounts(vocabulary, 4, 2.0**-30, random_state=1)
        others = ["w1 w2"] * 5
        one = quiet([*others, " ".join(vocabulary[:20])])
        other = quiet([*others, " ".join(vocabulary[20:])])
        assert np.linalg.norm(one - other) == pytest.approx(math.sqrt(8), abs=1e-6)
        assert quiet._gaussian.sensitivity >= math.sqrt(8)

    def test_few_words_move_no_more_than_there_are(self):
        assert KeywordCounts(("a", "b"), 10, 1.0)._gaussian.sensitivity == pytest.approx(math.sqrt(2))

    def test_repeated_words_count_once_and_others_never(self):
        quiet = KeywordCounts(("a", "b"), 5, 2.0**-30, random_state=1)
        assert quiet(["a a A secret", None, 7]).round(3).tolist() == [1.0, 0.0]

    def test_every_word_of_the_vocabulary_has_noise(self):
        noisy = KeywordCounts(tuple(f"w{i}" for i in range(300)), 5, 1.0, random_state=1)([])
        assert (noisy != 0).all()

    @pytest.mark.parametrize(
        "vocabulary", [(), ("a",), ("a", "A"), "text", ("two words", "b"), ("", "b"), (1, 2)]
    )
    def test_vocabularies(self, vocabulary):
        with pytest.raises(InvalidValue):
            KeywordCounts(vocabulary)


@pytest.mark.parametrize("make", [made, keywords])
class TestTheRoad:
    def test_answers(self, make):
        found = make().answer(TEXTS, ANSWERS, ["is it?", "what?"])
        assert len(found.answers) == 2
        assert found.guarantee.epsilon <= 4.0
        assert found.guarantee.event == make().event(2)
        assert isinstance(found.guarantee.event, events.Repeat)
        assert accounting.epsilon(found.guarantee.event, 1e-5) == found.guarantee.epsilon
        assert not any(text in str(found) for text in TEXTS)
        assert any("questions are public" in each for each in found.guarantee.assumptions)

    def test_charged_before_rows_are_read(self, make, tmp_path):
        read = []

        def rows():
            read.append(len(ledger.entries()))
            return TEXTS, ANSWERS

        with Ledger.open(tmp_path / "poor.db", budget=Budget(epsilon=1.0, delta=1e-5)) as ledger:
            with pytest.raises(BudgetExceeded):
                make(ledger=ledger).answer_rows(rows, ["a"])
            assert not read
        with Ledger.open(tmp_path / "rich.db", budget=Budget(epsilon=5.0, delta=1e-5)) as ledger:
            make(ledger=ledger).answer_rows(rows, ["a"])
            assert read == [1]

    def test_a_ledger_of_people_with_several_rows_is_refused(self, make, tmp_path):
        given = {"budget": Budget(epsilon=5.0, delta=1e-5), "unit": Unit("patient", 4)}
        with Ledger.open(tmp_path / "ledger.db", **given) as ledger:
            with pytest.raises(TacitError, match="open a ledger whose unit is one row"):
                make(ledger=ledger).answer(TEXTS, ANSWERS, ["a"])
            assert not ledger.entries()

    def test_odd_rows(self, make):
        odd = [None, "", "\ud800", 7, "fine", b"x"]
        found = make().answer(odd, ["yes", "no", None, "no", "", "no"], ["a"])
        assert make().answer([], [], ["a"]).guarantee == found.guarantee

    def test_a_member_answers_from_its_own_demonstrations_alone(self, make):
        private = make()
        members = [[("a", "yes")], [("b", "no")], []]
        one = private._replies(members, "q")
        other = private._replies([members[0], [("zzz " * 50, "other")], []], "q")
        assert (one[0], one[2]) == (other[0], other[2])

    def test_a_model_that_fails_answers_all_the_same(self, make, monkeypatch):
        private = make()
        true = private.prompter.prompt

        def odd(demonstrations):
            if demonstrations:
                raise RuntimeError("a private text")
            return true(demonstrations)

        monkeypatch.setattr(private.prompter, "prompt", odd)
        assert len(private.answer(TEXTS, ANSWERS, ["a"]).answers) == 1


def test_a_reply_that_the_encoder_fails_on_counts_as_zeros(monkeypatch):
    """A tokenizer may know words that the model has no row for; no demonstration may cause an error."""
    words = copy.deepcopy(encoder().tokenizer)
    words.add_tokens(["[MASK]"])
    private = made(encoder=SimpleNamespace(model=encoder().model, tokenizer=words))
    assert not private.embedder.alone("take [MASK]").any()
    monkeypatch.setattr(private.prompter, "complete", lambda tokens: "take [MASK]")
    assert len(private.answer(TEXTS, ANSWERS, ["a"]).answers) == 1


def test_keywords_come_from_the_public_vocabulary():
    found = keywords().answer(["a"] * 9, ["confidential zanzibar"] * 9, ["what?"])
    assert set(found.keywords[0]) <= set(VOCABULARY)
    assert keywords(candidates=["yes it is", "no"]).answer(TEXTS, ANSWERS, ["a"]).answers[0] in (
        "yes it is",
        "no",
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"members": 0}, {"shots": 0}, {"shots": 50}, {"method": "both"}, {"candidates": None},
        {"encoder": None}, {"candidates": ["", "a"]}, {"epsilon": 0.0}, {"delta": 1.0}, {"relation": "x"},
        {"method": "keywords", "vocabulary": None},
        {"method": "keywords", "vocabulary": VOCABULARY, "candidates": ["yes", "perhaps"]},
        {"delta": 0.0}, {"encoder": "minilm"}, {"encoder": decoder()},
    ],
    ids=lambda changed: ", ".join(f"{name}={each!r:.30}" for name, each in changed.items()),
)  # fmt: skip
def test_bad_parameters(changed):
    """What is refused is the parameter that is wrong, or the one that it does not fit to."""
    with pytest.raises(InvalidValue) as refused:
        made(**changed)
    assert refused.value.name in changed


@pytest.mark.parametrize("questions", [[], [""], [None]])
def test_bad_questions(questions):
    with pytest.raises(InvalidValue):
        made().answer(TEXTS, ANSWERS, questions)


def test_words_of():
    assert words_of(None) == words_of(Unseen()) == []
    assert words_of("a_b c-d") == ["a", "b", "c", "d"]
