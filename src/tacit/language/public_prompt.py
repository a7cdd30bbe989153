"""A prompt that may be published: public texts with released labels, and the model that reads it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.errors import InvalidValue
from tacit.language.decoder import Decoder
from tacit.language.encoder import Embedder, Prototypes
from tacit.language.template import Demonstration, Template, declared_words
from tacit.language.weights import digest_of

__all__ = ["PublicPrompt", "prompted_by"]

Float64 = NDArray[np.float64]


def prompted_by(
    model: Any,
    template: Template | str,
    verbalizer: Any,
    *,
    shots: int,
    text_tokens: int,
    prior: float = 1.0,
    calibrate: bool | Sequence[str] = True,
) -> Decoder | Prototypes:
    """A decoder with a prompt, or an encoder with prototypes, whichever the model is.

    ``prior`` is for the prototypes of an encoder, ``calibrate`` for a decoder.
    """
    if isinstance(model, Embedder) or not getattr(model, "is_decoder", True):
        return Prototypes(model, template, verbalizer, shots=shots, text_tokens=text_tokens, prior=prior)
    if not hasattr(model, "model") or not hasattr(model, "tokenizer"):
        advice = 'Read one: tacit.language.pretrained("smollm2").'
        raise InvalidValue("model", type(model).__name__, "a pretrained language model", advice)
    return Decoder(model, template, verbalizer, shots=shots, text_tokens=text_tokens, calibrate=calibrate)


def digest_of_reader(network: Any) -> str:
    """SHA-256 of the weights that read a prompt: those of the transformer, and of a head that has its own.

    The tokenizer is not part of it.
    """
    found = hashlib.sha256(digest_of(network).encode())
    head = getattr(network, "get_output_embeddings", lambda: None)()
    if head is not None and not torch.equal(head.weight, network.get_input_embeddings().weight):
        plain = head.weight.detach().to("cpu").contiguous()
        found.update(f"head {plain.dtype} {tuple(plain.shape)}".encode())
        found.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


@dataclass(frozen=True, eq=False)
class PublicPrompt:
    """A prompt that may be published: public texts with released labels.

    ``str(prompt)`` is the prompt as text. ``prompted`` is the model that reads it, None for a prompt from a
    file that has not been put onto its model yet; ``digest`` is then that of the model it belongs to.
    """

    template: Template
    words: Mapping[Any, str]
    demonstrations: tuple[Demonstration, ...]
    prompted: Decoder | Prototypes | None = None
    digest: str | None = None

    @property
    def reader(self) -> str | None:
        """The digest of the model that reads the prompt, computed anew where the model is there."""
        if self.prompted is None:
            return self.digest
        within = self.prompted.embedder if isinstance(self.prompted, Prototypes) else self.prompted
        return digest_of_reader(within.network)

    def read_by(self, prompted: Decoder | Prototypes) -> PublicPrompt:
        """The same prompt, read by this model, which must be the one that it was chosen for."""
        found = replace(self, prompted=prompted)
        if found.reader != self.reader:
            raise InvalidValue(
                "model", f"one of digest {str(found.reader)[:12]}…",
                f"the one that the prompt was chosen for, {str(self.reader)[:12]}…",
                "Read the same weights in the same precision. str(prompt) is the text for any other model.",
            )  # fmt: skip
        return found

    def probabilities(self, texts: Sequence[Any]) -> Float64:
        """Class probabilities of texts, one row for each; even where the model's numbers are not finite."""
        if self.prompted is None:
            advice = "Put the loaded prompt onto its model: loaded.onto(tacit.language.pretrained(...))."
            raise InvalidValue("model", None, "the language model that reads this prompt", advice)
        found = self.prompted.answers(self._shown, self.prompted.prepare(texts))
        return np.where(np.isfinite(found).all(axis=1, keepdims=True), found, 1 / found.shape[1])

    @cached_property
    def _shown(self) -> Any:
        """What the model makes of the prompt, kept for all questions: nothing of it is private."""
        return None if self.prompted is None else self.prompted.shown(self.demonstrations, public=True)

    def __str__(self) -> str:
        words = list(declared_words(self.words).values())
        shots = [self.template.shot(text, words[place]) for text, place in self.demonstrations]
        return self.template.instruction + "".join(shots)
