"""A prompt as an adversary sees it: the model with the prompt answers whoever asks.

This is the adapter between language models and :mod:`tacit.attacks`, which takes arrays and functions. It
adds no noise and charges nothing: it is for trying attacks on prompts, secret ones and published ones alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tacit import attacks
from tacit.errors import InvalidValue
from tacit.language.decoder import Decoder, Prompter
from tacit.language.encoder import Prototypes
from tacit.language.template import Demonstration

__all__ = ["ExposedPrompt"]

Float64 = NDArray[np.float64]


class ExposedPrompt:
    """A model with a prompt that anybody may ask, for probabilities, completions and likelihoods.

    ``demonstrations`` are texts with the places of their classes, none for the model without a prompt.
    """

    def __init__(self, prompted: Decoder | Prototypes, demonstrations: Sequence[Demonstration] = ()) -> None:
        self.prompted = prompted
        self.demonstrations = list(demonstrations)

    def probabilities(self, texts: Sequence[str]) -> Float64:
        """Class probabilities of texts, one row for each."""
        return self.prompted.probabilities(self.demonstrations, self.prompted.prepare(texts))

    def signal(self, texts: Sequence[str], places: Sequence[int]) -> Float64:
        """One number for each text: how sure the model is of its class (:func:`tacit.attacks.signal`)."""
        return attacks.signal(self.probabilities(texts), np.asarray(places))

    def complete(self, prefix: str) -> str:
        """What the decoder says after its prompt and ``prefix``, word by word the likeliest."""
        decoder = self._decoder()
        return decoder.complete([*decoder.prompt(self.demonstrations), *decoder.text(prefix)])

    def likelihood(self, text: str, *, after: str = "") -> float:
        """ln of the probability of a text after the prompt and, if given, after the words ``after``."""
        decoder = self._decoder()
        tokens = [*decoder.prompt(self.demonstrations), *decoder.text(after)]
        return decoder.likelihood(tokens, decoder.text(text))

    def _decoder(self) -> Prompter:
        if not isinstance(self.prompted, Prompter):
            raise InvalidValue("prompted", type(self.prompted).__name__, "a decoder, which writes text")
        return self.prompted
