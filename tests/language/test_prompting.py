"""Templates, decoders and encoders with a prompt: what an output depends on, and what odd text does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tacit.errors import InvalidValue
from tacit.language.decoder import Decoder, Prompter
from tacit.language.encoder import Embedder, Prototypes
from tacit.language.template import Template, clean_text, declared_words
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
