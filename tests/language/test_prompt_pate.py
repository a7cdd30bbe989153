"""PromptPATE: one demonstration moves one vote, the charge comes first, and no row decides an error."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tacit import Budget, Ledger, accounting
from tacit.errors import BudgetExceeded, InvalidValue
from tacit.language.prompt_pate import PromptPATE, in_turn
from tacit.pate import ConfidentGNMax, GNMax
from tacit.pate.answering import PrivateRows
from tacit.randomness import Source
from tiny_language import TEMPLATE, WINDOW, WORDS, decoder, encoder

TEXTS = [f"row {i} {'good' if i % 3 else 'bad'}" for i in range(40)]
LABELS = [int(i % 3 > 0) for i in range(40)]
PUBLIC = ["good thing", "bad thing", "other", "row", "fourth one", "fifth"]


GIVEN = ConfidentGNMax(threshold=7, sigma_threshold=12.0, sigma_answer=6.0)
"""An aggregator that is given, so that no noise has to be searched for."""


def made(**changed):
    given = {
        "model": encoder(), "template": TEMPLATE, "verbalizer": WORDS, "n_teachers": 12, "epsilon": 8.0,
        "delta": 1e-5, "shots": 2, "text_tokens": 20, "random_state": 1, "aggregator": GIVEN,
    }  # fmt: skip
    return PromptPATE(**given | changed)


class Keeps:
    """An aggregator that keeps the votes it is asked about."""

    def answer(self, votes, random_state):
        self.votes = votes
        return votes.argmax(axis=1)


def votes_of(model, texts, labels, teachers=None):
    """The votes, with a partition that is given: that of a draw which both neighbours share."""
    rows = model._rows(texts, labels, None, None, None)
    keeps = Keeps()
    plan = SimpleNamespace(teachers=model.n_teachers, aggregator=keeps)
    if teachers is not None:
        model._partition = lambda plan, rows, source: np.where(rows.labels >= 0, teachers, -1)
    model._answers(plan, np.array(PUBLIC, dtype=object), rows, Source(3), None)
    return keeps.votes


@pytest.mark.parametrize("model", [encoder(), decoder()], ids=["encoder", "decoder"])
class TestOneVote:
    @pytest.mark.parametrize("odd", ["a completely different text", "", None, "z" * 900, "\ud800", 5])
    def test_a_demonstration_moves_at_most_one_vote_of_each_query(self, model, odd):
        teachers = np.arange(24) % 12
        one = votes_of(made(model=model), TEXTS[:24], LABELS[:24], teachers)
        changed = [*TEXTS[:7], odd, *TEXTS[8:24]]
        other = votes_of(made(model=model), changed, [*LABELS[:7], 1 - LABELS[7], *LABELS[8:24]], teachers)
        assert (one.sum(axis=1) == 12).all()
        assert (other.sum(axis=1) == 12).all()
        assert (np.abs(one - other).sum(axis=1) <= 2).all()
        assert (np.abs(one - other).max(axis=1) <= 1).all()

    def test_teachers_without_rows_vote_as_the_model_without_a_prompt(self, model):
        private = made(model=model)
        votes = votes_of(private, [], [])
        prompted = private._prompted(2, PUBLIC)
        usual = prompted.probabilities((), prompted.prepare(PUBLIC)).argmax(axis=1)
        assert votes[np.arange(len(PUBLIC)), usual].tolist() == [12] * len(PUBLIC)

    def test_a_model_that_fails_or_says_nan_votes_all_the_same(self, model, monkeypatch):
        private = made(model=model)
        kind = type(private._prompted(1))
        true = kind.probabilities

        def odd(self, demonstrations, questions):
            if any("row 3" in text for text, _ in demonstrations):
                raise RuntimeError("a private text")
            found = true(self, demonstrations, questions)
            return found * np.nan if any("row 4" in text for text, _ in demonstrations) else found

        monkeypatch.setattr(kind, "probabilities", odd)
        assert (votes_of(private, TEXTS, LABELS).sum(axis=1) == 12).all()


def test_the_draw_of_a_teacher_is_blind_to_other_rows():
    """Each of many demonstrations is as likely to be with any teacher, whoever else is there."""
    model, plan = made(n_teachers=4), SimpleNamespace(teachers=4)
    labels = np.zeros(4000, dtype=np.int64)
    drawn = model._partition(plan, PrivateRows(np.empty(4000, object), labels, None), Source(5))
    assert np.bincount(drawn, minlength=4).min() > 850
    units = np.repeat(np.arange(1000), 4)
    together = model._partition(plan, PrivateRows(np.empty(4000, object), labels, units), Source(5))
    assert (together.reshape(1000, 4) == together.reshape(1000, 4)[:, :1]).all()


@pytest.mark.parametrize("model", [encoder(), decoder()], ids=["encoder", "decoder"])
def test_the_whole_road(model):
    private = made(model=model, aggregator=None, n_answers=4, n_queries=6).fit(TEXTS, LABELS, PUBLIC)
    assert private.guarantee_.epsilon <= 8.0
    assert private.guarantee_.epsilon == accounting.epsilon(private.event_, 1e-5)
    assert private.guarantee_.noise == "seeded"
    assert set(private.predict(["good", "bad"])) <= {0, 1}
    np.testing.assert_allclose(private.predict_proba(["x"]).sum(axis=1), 1.0)
    shown = {text for text, _ in private.prompt_.demonstrations}
    assert shown <= set(PUBLIC)
    assert not any(text in str(vars(private)) for text in TEXTS)
    assert "prompt" in str(private.describe())
    assert len(private.answer_rates()) == 2
    assert str(private.prompt_).count("L:") == len(private.prompt_.demonstrations)


def test_the_prompt_is_chosen_from_released_labels_alone():
    private = made(aggregator=GNMax(1.0), epsilon=1e6).fit(TEXTS, LABELS, PUBLIC)
    before, answers = private.prompt_.demonstrations, private.answers_.copy()
    assert private.teach().prompt_.demonstrations == before
    private.set_params(prompt_shots=None).teach()
    assert len(private.prompt_.demonstrations) == len(answers)
    private.set_params(prompt_shots=2, candidates=3).teach()
    assert len(private.prompt_.demonstrations) == min(2, len(answers))
    with pytest.raises(InvalidValue):
        private.teach("student")


@pytest.mark.parametrize("model", [encoder(), decoder()], ids=["encoder", "decoder"])
def test_a_prompt_of_all_labelled_texts_holds_those_that_fit(model):
    """More labelled texts than the window has room for: a decoder shows as many as fit, in any case."""
    public = [f"text {i} " + "long " * 9 for i in range(20)]
    private = made(
        model=model, aggregator=GNMax(1.0), epsilon=1e6, prompt_shots=None, candidates=2, shots=1
    ).fit(TEXTS, LABELS, public)
    room = private._prompted(1).room
    assert len(private.answers_) == 20
    assert len(private.prompt_.demonstrations) == min(room, 20)
    assert len(private.predict(["a"])) == 1
    if model is decoder():
        assert 1 <= room < 20
        full = private.prompt_.prompted
        assert full.longest <= WINDOW < full.longest + full.longest // room
        with pytest.raises(InvalidValue, match="at most 320 tokens"):
            private.set_params(prompt_shots=room + 1).fit_rows(public, lambda: pytest.fail("rows were read"))


def test_what_is_public_is_read_by_the_model_once(monkeypatch):
    private = made().fit(TEXTS, LABELS, PUBLIC)
    first = private.predict_proba(["good"])
    monkeypatch.setattr(type(private.prompt_.prompted), "shown", lambda *_: pytest.fail("read again"))
    assert np.array_equal(private.predict_proba(["good"]), first)


def test_without_an_answer_the_prompt_is_empty():
    strict = ConfidentGNMax(threshold=1e6, sigma_threshold=5.0, sigma_answer=5.0)
    private = made(aggregator=strict).fit(TEXTS, LABELS, PUBLIC)
    assert private.prompt_.demonstrations == ()
    assert len(private.predict(["a"])) == 1


def test_charged_before_rows_are_read(tmp_path):
    read = []

    def rows():
        read.append(len(ledger.entries()))
        return TEXTS, LABELS, None

    with Ledger.open(tmp_path / "poor.db", budget=Budget(epsilon=1.0, delta=1e-5)) as ledger:
        with pytest.raises(BudgetExceeded):
            made(ledger=ledger).fit_rows(PUBLIC, rows)
        assert not read
        assert not ledger.entries()
    with Ledger.open(tmp_path / "rich.db", budget=Budget(epsilon=9.0, delta=1e-5)) as ledger:
        made(ledger=ledger).fit_rows(PUBLIC, rows)
        assert read == [1]


@pytest.mark.parametrize(
    "changed",
    [
        {"verbalizer": None}, {"template": "x"}, {"model": None}, {"n_teachers": 0}, {"shots": 0},
        {"shots": 100, "model": decoder()}, {"shots": 0, "model": decoder()},
        {"prompt_shots": 0}, {"prior": 0.0}, {"calibrate": "both"}, {"candidates": 0}, {"epsilon": 0.0},
        {"text_tokens": 0}, {"aggregator": "gnmax"}, {"relation": "both"},
    ],
    ids=str,
)  # fmt: skip
def test_bad_parameters_are_refused_before_rows_are_read(changed):
    def rows():
        raise AssertionError("rows were read")

    with pytest.raises(InvalidValue):
        made(**changed).fit_rows(PUBLIC, rows)


@pytest.mark.parametrize("queries", [[], [""], [None], "text", ["a", 3]])
def test_bad_queries(queries):
    with pytest.raises(InvalidValue):
        made().fit(TEXTS, LABELS, queries)


def test_odd_rows_contribute_nothing_and_raise_nothing():
    texts = [None, 3.5, "", b"bytes", float("nan"), "fine", ["list"], "\ud800"]
    labels = [0, 1, 1, 0, 1, "unknown", 1, None]
    private = made(aggregator=GNMax(3.0)).fit(texts, labels, PUBLIC)
    assert (private.answers_ >= 0).all()


def test_classes_take_turns():
    labels = np.array([1, 1, 1, 0])
    order = in_turn(labels, np.array([1, 2, 3, 9], dtype=np.uint64))
    assert order.tolist() == [0, 3, 1, 2]
