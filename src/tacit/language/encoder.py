"""An encoder with a prompt: sentence embeddings, and classes by the nearest prototype.

The encoder form of few-shot prompting: a prompt's demonstrations are averaged class by class, together with
the embedding of the class's word, and a text belongs to the class whose average is nearest. Without
demonstrations only the words are left, which is the encoder's zero-shot classifier.

**What a prompt's output depends on.** Private texts are embedded one at a time, in a call of their own, so
that an embedding is a function, bit by bit, of its text. Public texts are embedded in batches.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.language.decoder import softmax
from tacit.language.template import (
    CHARACTERS,
    Demonstration,
    Template,
    attempted,
    clean_text,
    declared_words,
    several,
)
from tacit.language.weights import positions_of

__all__ = ["Embedder", "Prototypes"]

Float64 = NDArray[np.float64]

BATCH = 32
"""So many public texts are embedded at once."""
SHARPNESS = 20.0
"""The logarithm of a class's probability grows by this much from similarity 0 to similarity 1."""


class Embedder:
    """Unit vectors for texts: the mean of an encoder's last hidden states, divided by its length.

    ``text_tokens`` is how many tokens of each text are read, with the tokens that the encoder puts around it.
    What is no text, what the tokenizer fails on, and an embedding that is not finite become zeros, and so
    does a private text that the encoder fails on.
    """

    def __init__(self, model: Any, *, text_tokens: int = 128) -> None:
        advice = 'Read one: tacit.language.pretrained("minilm").'
        if not hasattr(model, "model") or not hasattr(model, "tokenizer"):
            raise InvalidValue("encoder", type(model).__name__, "a pretrained language model", advice)
        self.network, self.tokenizer = model.model, model.tokenizer
        if getattr(self.network, "get_output_embeddings", lambda: None)() is not None:
            raise InvalidValue("encoder", "a decoder", "an encoder, without a head for tokens", advice)
        window = positions_of(self.network, 512)
        self.text_tokens = _validate.count("text_tokens", text_tokens, 3)
        if self.text_tokens > window:
            raise InvalidValue("text_tokens", text_tokens, f"at most {window}, what the encoder can read")

    @property
    def width(self) -> int:
        """How many numbers an embedding has."""
        return int(self.network.config.hidden_size)

    def public(self, texts: Sequence[Any]) -> Float64:
        """Embeddings of public texts, in batches of similar length; a text that comes twice is read once."""
        cleaned = [clean_text(text) for text in several("texts", texts)]
        different = {text: place for place, text in enumerate(dict.fromkeys(cleaned))}
        tokens = [self._tokens(text) for text in different]
        found = np.zeros((len(tokens), self.width))
        order = sorted((place for place in range(len(tokens)) if tokens[place]), key=lambda i: len(tokens[i]))
        for start in range(0, len(order), BATCH):
            places = order[start : start + BATCH]
            found[places] = self._embedded([tokens[place] for place in places])
        return found[[different[text] for text in cleaned]] if cleaned else found

    def alone(self, text: Any) -> Float64:
        """The embedding of one private text, from that text alone."""
        tokens, zeros = self._tokens(text), np.zeros(self.width)
        return attempted(lambda: self._embedded([tokens])[0], zeros) if tokens else zeros

    def _tokens(self, text: Any) -> list[int]:
        cleaned = clean_text(text)
        if not cleaned:
            return []
        some, cut = cleaned[: CHARACTERS * self.text_tokens], {"max_length": self.text_tokens}
        found: Sequence[Any] = attempted(
            lambda: self.tokenizer(some, truncation=True, **cut)["input_ids"], []
        )
        return [int(each) for each in found]

    @torch.inference_mode()
    def _embedded(self, tokens: Sequence[Sequence[int]]) -> Float64:
        width = max(len(each) for each in tokens)
        mask = torch.tensor([[1] * len(each) + [0] * (width - len(each)) for each in tokens])
        padded = torch.tensor([[*each, *[0] * (width - len(each))] for each in tokens])
        hidden = self.network(input_ids=padded, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        means = ((hidden * weights).sum(dim=1) / weights.sum(dim=1)).double().numpy()
        return unit(means)


class Prototypes:
    """An encoder, a template and a verbalizer: class probabilities given some demonstrations.

    The prototype of a class is the mean of the embeddings of its demonstrations and of its word, as the
    template writes it with an empty text; the word counts as ``prior`` demonstrations. Probabilities are a
    softmax of cosine similarities.
    """

    def __init__(
        self,
        model: Any,
        template: Template | str,
        verbalizer: Any,
        *,
        shots: int = 1,
        text_tokens: int = 128,
        prior: float = 1.0,
    ) -> None:
        self.embedder = model if isinstance(model, Embedder) else Embedder(model, text_tokens=text_tokens)
        self.template, self.words = Template.of(template), declared_words(verbalizer)
        self.shots = _validate.count("shots", shots, 1)
        self.prior = _validate.positive("prior", prior)
        written = [" ".join(self.template.shot("", word).split()) for word in self.words.values()]
        self._words = self.embedder.public(written)

    @property
    def classes(self) -> list[Any]:
        """The declared classes."""
        return list(self.words)

    @property
    def room(self) -> int:
        """How many demonstrations a prompt may have: as many as there are, since they are averaged."""
        return sys.maxsize

    def prepare(self, texts: Sequence[Any]) -> Any:
        """Public texts as embeddings."""
        return self.embedder.public(texts)

    def shown(self, demonstrations: Sequence[Demonstration], *, public: bool = False) -> Any:
        """The prototypes, one row for each class: what the encoder makes of a prompt, for ``answers``.

        The texts of a ``public`` prompt are embedded in batches, those of any other one at a time.
        """
        sums, used = self.prior * self._words, demonstrations[: self.shots]
        texts = [text for text, _ in used]
        vectors = self.embedder.public(texts) if public else map(self.embedder.alone, texts)
        for vector, (_, place) in zip(vectors, used, strict=True):
            sums[place] += vector
        return unit(sums)

    def answers(self, shown: Any, questions: Any) -> Float64:
        """Class probabilities by given prototypes, one row for each question."""
        return softmax(SHARPNESS * questions @ shown.T)

    def probabilities(self, demonstrations: Sequence[Demonstration], questions: Any) -> Float64:
        """Class probabilities, one row for each question."""
        return self.answers(self.shown(demonstrations), questions)


def unit(vectors: Float64) -> Float64:
    """Rows divided by their lengths, and never longer than 1; zeros for a row that is not finite."""
    with np.errstate(all="ignore"):
        lengths = np.sqrt((vectors**2).sum(axis=-1, keepdims=True))
        made = vectors / (lengths * (1 + 2.0**-40))
    return np.where(np.isfinite(made).all(axis=-1, keepdims=True), made, 0.0)
