"""Attacks on prompts: was this text among the demonstrations, and what do they say?

A prompt with private demonstrations leaks them through what the model answers, though no weight was ever
trained on them. The attacks here take probabilities, log-likelihoods and functions from text to text, and
know no model.

=====================  ================================================================================
:func:`calibrated`     membership: a signal of the prompted model, less that of models without the prompt
:func:`exposure`       how far up a planted secret ranks among others that might have been planted
:func:`extract`        a planted secret in what the model says when it is asked to go on
=====================  ================================================================================

Membership of a demonstration, by the probability of its label: Duan, Dziedzic, Papernot and Boenisch 2023.
Exposure: Carlini, Liu, Erlingsson, Kos and Song 2019, "The secret sharer".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit.errors import InvalidValue

__all__ = ["Exposure", "Extracted", "calibrated", "exposure", "extract"]

Array = NDArray[np.float64]


def calibrated(target: ArrayLike, references: ArrayLike) -> Array:
    """Scores of membership: how much surer the attacked model is of each example than models without it.

    ``target`` holds one signal for each example (:func:`tacit.attacks.signal`) from the model with the secret
    prompt; ``references`` those of the same model with no prompt, or with several prompts that the adversary
    made: (examples,) or (prompts, examples). What is easy for every prompt is no sign of membership.

    >>> calibrated([2.0, 2.0], [[0.0, 1.5], [1.0, 2.5]]).tolist()
    [1.5, 0.0]
    """
    seen = _finite("target", target)
    rest = np.atleast_2d(_finite("references", references))
    if seen.ndim != 1 or rest.ndim != 2 or rest.shape[1] != seen.size or not seen.size:
        raise InvalidValue("references", rest.shape, f"of shape (prompts, {seen.size}), as target")
    return np.asarray(seen - rest.mean(axis=0))


@dataclass(frozen=True)
class Exposure:
    """Where a planted secret ranks among ``candidates``, itself included; 1 is the most likely of them."""

    rank: int
    candidates: int

    @property
    def bits(self) -> float:
        """The exposure: 0 for the least likely of all, log₂ of the number of candidates for the likeliest."""
        return math.log2(self.candidates) - math.log2(self.rank)

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.candidates}, exposure {self.bits:.1f} bits"


def exposure(planted: float, others: ArrayLike) -> Exposure:
    """The rank of a planted secret by its log-likelihood, among others that were drawn as it was.

    A secret that is as likely as another ranks below it.

    >>> print(exposure(-3.0, [-9.0, -8.0, -7.5]))
    rank 1 of 4, exposure 2.0 bits
    """
    value = _validate.finite("planted", planted)
    rest = _finite("others", others)
    if rest.ndim != 1 or not rest.size:
        raise InvalidValue("others", rest.shape, "the log-likelihoods of other secrets, one or more")
    return Exposure(1 + int((rest >= value).sum()), 1 + rest.size)


@dataclass(frozen=True)
class Extracted:
    """What a model said when it was asked to go on, and whether the secret was in it."""

    found: bool
    attempts: int
    """How many prefixes were tried, up to the one that brought the secret up."""
    said: tuple[str, ...]


def extract(complete: Callable[[str], str], secret: Any, prefixes: Sequence[str]) -> Extracted:
    """Ask a model to go on after each of ``prefixes``, and look for the secret in what it says.

    ``complete(prefix)`` returns the text that the model goes on with. Blanks and capitals do not matter.

    >>> extract(lambda prefix: prefix + " PIN is 12 34.", "pin is 1234", ["My", "The"]).attempts
    1
    """
    wanted = _squeezed(secret)
    if not wanted:
        raise InvalidValue("secret", "empty", "a text")
    if isinstance(prefixes, (str, bytes)):
        raise InvalidValue("prefixes", "one text", "a list of texts", "Put it into brackets: [...].")
    said = []
    for prefix in prefixes:
        said.append(str(complete(prefix)))
        if wanted in _squeezed(said[-1]):
            return Extracted(True, len(said), tuple(said))
    return Extracted(False, len(said), tuple(said))


def _squeezed(text: Any) -> str:
    return "".join(str(text).lower().split())


def _finite(name: str, values: ArrayLike) -> Array:
    found = np.asarray(values, dtype=np.float64)
    if not np.isfinite(found).all():
        raise InvalidValue(name, "NaN or infinite", "finite")
    return found
