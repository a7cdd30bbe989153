"""A prompt as an adversary sees it; and that PromptPATE leaves nothing of a planted text in the prompt."""

from __future__ import annotations

import pytest

from tacit import attacks, language
from tacit.errors import InvalidValue
from tiny_language import TEMPLATE, WORDS, decoder, encoder

CANARY = "canary 31415"


def test_a_text_in_the_prompt_gets_a_surer_answer():
    """What the attack rests on: showing a text with its class raises the signal of that text."""
    prompted = language.Prototypes(encoder(), TEMPLATE, WORDS, shots=1)
    texts, places = [f"text number {i} {i * i}" for i in range(10)], [i % 2 for i in range(10)]
    plain = language.ExposedPrompt(prompted)
    for text, place in zip(texts, places, strict=True):
        secret = language.ExposedPrompt(prompted, [(text, place)])
        assert attacks.calibrated(secret.signal([text], [place]), plain.signal([text], [place]))[0] > 0


def test_likelihood_and_completion_follow_the_prompt():
    prompted = language.Decoder(decoder(), TEMPLATE, WORDS, shots=1, text_tokens=20)
    one, other = language.ExposedPrompt(prompted), language.ExposedPrompt(prompted, [(CANARY, 0)])
    assert one.likelihood("31415", after="canary") != other.likelihood("31415", after="canary")
    assert other.likelihood("31415", after="canary") < 0
    assert isinstance(other.complete("canary"), str)
    with pytest.raises(InvalidValue):
        language.ExposedPrompt(language.Prototypes(encoder(), TEMPLATE, WORDS)).complete("a")


def test_a_planted_text_is_in_no_public_prompt():
    public = ["one", "two", "three", "four"]
    private = language.PromptPATE(
        encoder(), TEMPLATE, WORDS, n_teachers=10, epsilon=20.0, delta=1e-5, prompt_shots=None, random_state=1
    ).fit([CANARY] * 30, [1] * 30, public)
    prompt = str(private.prompt_)
    assert CANARY not in prompt
    assert set(prompt.replace("T:", "").replace("L:", "").split()) <= {*public, "yes", "no"}


def test_every_name_is_exported():
    for name in language.__all__:
        assert getattr(language, name).__doc__
    with pytest.raises(AttributeError):
        _ = language.Nothing
