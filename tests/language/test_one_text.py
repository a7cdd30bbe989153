"""One text where several are asked for is refused before any charge: Python takes it for many letters."""

from __future__ import annotations

from functools import partial

import pytest

from tacit import Budget, Ledger
from tacit.errors import InvalidValue
from tacit.language import (
    Decoder,
    Embedder,
    ExposedPrompt,
    InContext,
    KeywordCounts,
    PrivateGenerator,
    PromptPATE,
    Prototypes,
    Texts,
)
from tacit.language.embedding import texts_of
from tacit.pate import GNMax
from tiny_language import TEMPLATE, WORDS, decoder, encoder, tokenizer

SECRET = "secret"
BY_EMBEDDING = {"encoder": encoder(), "candidates": ["yes", "no"]}
BY_WORDS = {"method": "keywords", "vocabulary": ("yes", "no")}


def answering(**changed):
    return InContext(decoder(), TEMPLATE, **BY_EMBEDDING | {"members": 2, "text_tokens": 8} | changed)


def voting(**changed):
    given = {"n_teachers": 3, "aggregator": GNMax(3.0), "epsilon": 50.0, "delta": 1e-5, "text_tokens": 8}
    return PromptPATE(encoder(), TEMPLATE, WORDS, **given | changed)


def predicting(one):
    return voting(random_state=1).fit(["a", "b"], [0, 1], ["c", "d"]).predict(one)


def generating(one, labels):
    made = PrivateGenerator(
        decoder(), "L:{label}\nT:{text}\n", WORDS, sampling_rate=0.5, tokens=1, noise_multiplier=1.0
    )
    return made.generate(one, labels)


PLACES = {
    "questions of InContext": lambda one: answering().answer(["a"], ["b"], one),
    "texts of InContext": lambda one: answering().answer(one, ["b"] * len(one), ["q"]),
    "answers of InContext": lambda one: answering().answer(["b"] * len(one), one, ["q"]),
    "candidates of InContext": lambda one: answering(candidates=one),
    "vocabulary of InContext": lambda one: answering(**BY_WORDS | {"vocabulary": one}),
    "vocabulary of KeywordCounts": KeywordCounts,
    "answers of KeywordCounts": lambda one: KeywordCounts(("s", "e"))(one),
    "texts of PromptPATE": lambda one: voting().fit(one, [0] * len(one), ["q"]),
    "labels of PromptPATE": lambda one: voting().fit(["a"] * len(one), one, ["q"]),
    "queries of PromptPATE": lambda one: voting().fit(["a"], [0], one),
    "predictions of PromptPATE": predicting,
    "texts of PrivateGenerator": lambda one: generating(one, [0] * len(one)),
    "labels of PrivateGenerator": lambda one: generating(["a"] * len(one), one),
    "questions of Prototypes": lambda one: Prototypes(encoder(), TEMPLATE, WORDS).prepare(one),
    "questions of Decoder": lambda one: Decoder(decoder(), TEMPLATE, WORDS).prepare(one),
    "questions of ExposedPrompt": lambda one: ExposedPrompt(
        Prototypes(encoder(), TEMPLATE, WORDS)
    ).signal(one, [0]),
    "texts of Embedder": lambda one: Embedder(encoder()).public(one),
    "texts of MiniLM": partial(texts_of, letters=10),
    "texts of Texts": lambda one: Texts(one, tokenizer=tokenizer()),
    "labels of Texts": lambda one: Texts(["a"] * len(one), one, tokenizer=tokenizer(), classes=["a", "b"]),
    "classes of Texts": lambda one: Texts(["a"], ["b"], tokenizer=tokenizer(), classes=one),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("one", [SECRET, SECRET.encode()], ids=["text", "bytes"])
def test_one_text_is_no_list(place, one):
    with pytest.raises(InvalidValue) as refused:
        PLACES[place](one)
    assert SECRET not in str(refused.value)


def test_it_is_refused_before_the_charge(tmp_path):
    with Ledger.open(tmp_path / "study.db", budget=Budget(epsilon=60.0, delta=1e-4)) as ledger:
        for refuse in (
            lambda: answering(ledger=ledger).answer_rows(lambda: pytest.fail("rows were read"), SECRET),
            lambda: voting(ledger=ledger).fit_rows(SECRET, lambda: pytest.fail("rows were read")),
        ):
            with pytest.raises(InvalidValue):
                refuse()
        assert not ledger.entries()
