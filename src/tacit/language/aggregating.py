"""Answers of an ensemble, aggregated: the mean of their embeddings, or counts of their keywords, with noise.

An ensemble is a fixed number of *members*, each of which answers a question by its own demonstrations. One
demonstration belongs to one member, so that under both relations one member's answer is replaced by another:

==========================  ==============================  =====================================
what is released            of one member                   ℓ2 sensitivity
==========================  ==============================  =====================================
:class:`EmbeddingMean`      a vector of length 1 at most    2/members of the mean
:class:`KeywordCounts`      ``words`` keywords at most      √(2·words) of the counts
==========================  ==============================  =====================================

A member that is left without demonstrations still answers, by the model without a prompt: the number of
members is public, and the mean is divided by it and by nothing that was counted.

The vocabulary of keywords is public. One that is gathered from the answers is not: a word that only one
person's demonstration brings up would appear in the list, whatever noise its count gets.

Wu, Panda, Wang and Mittal 2024, "Privacy-preserving in-context learning for large language models".
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate, events
from tacit.errors import InvalidValue
from tacit.language.template import is_text, several
from tacit.mechanisms import Gaussian
from tacit.mechanisms._base import Mechanism

__all__ = ["EmbeddingMean", "KeywordCounts", "on_grid", "words_of"]

Float64 = NDArray[np.float64]

GRID = 2.0**-30
"""Private vectors are rounded towards zero to multiples of this, so that sums of up to 2²² of them are exact
in float64 in any order, and no vector becomes longer."""
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def on_grid(vectors: Float64) -> Float64:
    """Numbers rounded towards zero to the grid, on which sums do not depend on their order."""
    return np.trunc(vectors / GRID) * GRID


def words_of(text: Any) -> list[str]:
    """The different words of a text in small letters, in the order in which they appear.

    >>> words_of("The cat's cradle, the CAT.")
    ['the', "cat's", 'cradle', 'cat']
    """
    return list(dict.fromkeys(WORD.findall(str.lower(text)))) if is_text(text) else []


@dataclass(frozen=True)
class EmbeddingMean(Mechanism):
    """The mean of the members' embeddings with Gaussian noise: embedding space aggregation.

    Relation: one member's embedding is replaced, under ``add_remove`` as under ``replace_one``. Sensitivity:
    embeddings are scaled to length 1 at most, each by itself, so their mean moves by 2/members. Event:
    ``Gaussian(noise_multiplier)``. The noise is exact. An embedding that is not finite counts as zeros.

    The nearest public candidate to the noisy mean is post-processing: :meth:`nearest`.

    >>> mean = EmbeddingMean(members=100, noise_multiplier=2.0, random_state=1)
    >>> answers = np.tile([[1.0, 0.0, 0.0]], (100, 1))
    >>> mean.nearest(mean(answers), np.eye(3)), mean.event
    (0, Gaussian(noise_multiplier=2.0))
    """

    members: int
    noise_multiplier: float
    event: events.Gaussian = field(init=False, repr=False, compare=False)
    _gaussian: Gaussian = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("members", _validate.count("members", self.members, 1))
        noise = Gaussian(2.0, noise_multiplier=self.noise_multiplier, random_state=self._source)
        self._keep("_gaussian", noise)
        self._keep("event", noise.event)

    def __call__(self, embeddings: Any) -> Float64:
        """The noisy mean of embeddings of shape (members, width)."""
        vectors = np.asarray(embeddings, dtype=np.float64)
        if vectors.ndim != 2 or len(vectors) != self.members:
            raise InvalidValue("embeddings", vectors.shape, f"of shape ({self.members}, width)")
        with np.errstate(all="ignore"):
            lengths = np.sqrt((vectors**2).sum(axis=1, keepdims=True)) * (1 + 2.0**-40)
            scaled = vectors / np.maximum(lengths, 1.0)
        whole = np.isfinite(scaled).all(axis=1, keepdims=True)
        summed = on_grid(np.where(whole, scaled, 0.0)).sum(axis=0)
        return np.asarray(self._gaussian(summed) / self.members)

    @staticmethod
    def nearest(mean: Float64, candidates: Any) -> int:
        """The public candidate whose direction is nearest to a released mean."""
        return int(np.argmax(np.asarray(candidates) @ mean))


@dataclass(frozen=True)
class KeywordCounts(Mechanism):
    """How many members use each word of a public vocabulary, with Gaussian noise: keyword space aggregation.

    Relation: one member's answer is replaced, under ``add_remove`` as under ``replace_one``. Sensitivity:
    of each answer the first ``words`` different words of the vocabulary count, once each; two answers
    differ in 2·words counts by 1 at most, √(2·words) in ℓ2. Event: ``Gaussian(noise_multiplier)`` for all
    counts together. The noise is exact, on every word of the vocabulary, whether or not a member used it.

    The most frequent words are read off the noisy counts, which is post-processing: :meth:`top`. (Wu et al.
    select them by a joint exponential mechanism or by propose-test-release, from the words of the answers.)

    >>> counts = KeywordCounts(("dogs", "cats", "birds"), words=2, noise_multiplier=1.0, random_state=1)
    >>> counts.top(counts(["Dogs and cats"] * 30 + ["cats"] * 30), 1)
    ['cats']
    """

    vocabulary: tuple[str, ...]
    words: int = 10
    noise_multiplier: float = 1.0
    event: events.Gaussian = field(init=False, repr=False, compare=False)
    _gaussian: Gaussian = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.vocabulary
        declared = () if isinstance(given, str) else tuple(given)
        listed = tuple(each.lower() if isinstance(each, str) else "" for each in declared)
        if (
            len(listed) < 2
            or len(set(listed)) < len(listed)
            or any(words_of(each) != [each] for each in listed)
        ):
            advice = "List words that are public: not those of the answers."
            raise InvalidValue(
                "vocabulary", f"{len(listed)} words", "two different single words or more", advice
            )
        self._keep("vocabulary", listed)
        self._keep("words", _validate.count("words", self.words, 1))
        moved = math.sqrt(min(2 * self.words, len(listed)))
        noise = Gaussian(
            math.nextafter(moved, math.inf), noise_multiplier=self.noise_multiplier, random_state=self._source
        )
        self._keep("_gaussian", noise)
        self._keep("event", noise.event)

    def __call__(self, answers: Sequence[Any]) -> Float64:
        """The noisy number of members' answers that use each word of the vocabulary."""
        places = {word: place for place, word in enumerate(self.vocabulary)}
        counts = np.zeros(len(places))
        for answer in several("answers", answers):
            used = [places[word] for word in words_of(answer) if word in places][: self.words]
            counts[used] += 1
        return self._gaussian(counts)

    def top(self, counts: Float64, most: int) -> list[str]:
        """The most frequent words by released counts, in falling order."""
        order = np.argsort(-counts, kind="stable")[:most]
        return [self.vocabulary[place] for place in order.tolist()]
