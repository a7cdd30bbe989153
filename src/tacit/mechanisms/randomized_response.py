"""Randomized response."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate, events
from tacit.errors import InvalidValue
from tacit.mechanisms._base import Float64, Int64, Mechanism, tail
from tacit.randomness import bernoulli, exp_bounds, uniform

_BITS = 60


@dataclass(frozen=True)
class FrequencyEstimate:
    """Estimated frequencies of the true answers, one per category, with intervals.

    ``frequencies`` is unbiased and may leave [0, 1]; ``low`` and ``high`` are clipped to it.
    """

    categories: tuple[Hashable, ...]
    frequencies: Float64
    low: Float64
    high: Float64
    respondents: int


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """Keeps each answer with odds of at most e^ε : 1 against each other category (Warner 1965).

    ``categories`` is the public list of possible answers, or their number k for answers 0 … k−1.
    Called with many answers, each counts as another respondent's and is randomized on its own.

    Guarantee: ε-differential privacy for each respondent, without trust in whoever collects the
    responses. The probability of keeping an answer is the largest multiple of 2^−60 not above
    e^ε/(e^ε + k − 1), drawn exactly, so the odds never exceed e^ε, to the last bit.

    Answers outside the categories raise :class:`~tacit.errors.InvalidValue`, which does not
    show the answer; map them to a category of their own beforehand.

    >>> ask = RandomizedResponse(epsilon=1.0, categories=["no", "yes"], random_state=1)
    >>> ask("yes"), ask.event
    ('no', RandomizedResponse(epsilon=1.0, categories=2))
    >>> responses = ask(["yes"] * 300 + ["no"] * 700)
    >>> estimate = ask.estimate(responses)
    >>> estimate.frequencies.round(2).tolist(), bool(estimate.low[1] < 0.3 < estimate.high[1])
    ([0.65, 0.35], True)
    """

    epsilon: float
    categories: Sequence[Hashable] | int = 2
    event: events.RandomizedResponse = field(init=False, repr=False, compare=False)
    keep_probability: Fraction = field(init=False, repr=False, compare=False)
    _codes: dict[Hashable, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("epsilon", _validate.epsilon(self.epsilon))
        if self.epsilon < 2.0**-30:
            raise InvalidValue("epsilon", self.epsilon, "at least 2^-30")
        if isinstance(self.categories, Iterable) and not isinstance(self.categories, str):
            self._keep("categories", tuple(self.categories))
            names = self.categories
        else:
            names = tuple(range(_validate.count("categories", self.categories, 2)))
        try:
            self._keep("_codes", {name: code for code, name in enumerate(names)})
        except TypeError:
            raise InvalidValue("categories", self.categories, "hashable") from None
        if not 2 <= len(self._codes) <= 2**20 or len(self._codes) != len(names) or any(n != n for n in names):
            raise InvalidValue("categories", self.categories, "between 2 and 2^20 distinct values")
        self._keep("event", events.RandomizedResponse(self.epsilon, len(names)))
        self._keep("keep_probability", favoured(self.epsilon, 1, len(names) - 1))

    def __call__(self, answers: Any) -> Any:
        """A response for each answer: a category for a single one, else an array of the same shape."""
        codes, scalar = self._encode("answers", answers)
        k = len(self._codes)
        kept = bernoulli(self._source, self.keep_probability, codes.size)
        other = 1 + uniform(self._source, k - 1, codes.size)
        responses = (codes.ravel() + np.where(kept, 0, other)) % k
        names = list(self._codes)
        if scalar:
            return names[int(responses[0])]
        if len({type(name) for name in names}) == 1 and isinstance(names[0], (str, int, float)):
            table = np.array(names)
        else:
            table = np.empty(k, dtype=object)
            table[:] = names
        return table[responses].reshape(codes.shape)

    def estimate(
        self, responses: Any, confidence: float = 0.95, *, coordinates: int = 1
    ) -> FrequencyEstimate:
        """Frequencies of the true answers among the respondents, from their responses.

        A category with true frequency f is reported by a fraction of mean q + (p − q)·f, where p
        is the probability of keeping and q = (1 − p)/(k − 1). Each interval holds with at least this
        ``confidence``, or ``coordinates`` of them at once: it collects the means m that the Chernoff
        bound exp(−n·KL(reported‖m)), valid for any independent responses, does not exclude.
        """
        miss = tail(confidence, coordinates)
        codes, _ = self._encode("responses", responses)
        if not codes.size:
            raise InvalidValue("responses", "none", "at least one response")
        k = len(self._codes)
        keep = float(self.keep_probability)
        other = float((1 - self.keep_probability) / (k - 1))
        reported = np.bincount(codes.ravel(), minlength=k) / codes.size
        radius = math.log(2 / miss) / codes.size
        low, high = _chernoff(reported, np.zeros(k), radius), _chernoff(reported, np.ones(k), radius)
        frequencies, low, high = ((share - other) / (keep - other) for share in (reported, low, high))
        return FrequencyEstimate(
            tuple(self._codes), frequencies, np.clip(low, 0, 1), np.clip(high, 0, 1), codes.size
        )

    def _encode(self, name: str, answers: Any) -> tuple[Int64, bool]:
        if isinstance(answers, (str, bytes, tuple)) or not isinstance(answers, Iterable):
            return np.array([self._code(name, answers)]), True
        array = None if isinstance(answers, list) else np.asarray(answers)
        items = answers if array is None else array.ravel().tolist()
        codes = np.array([self._code(name, item) for item in items], dtype=np.int64)
        return codes if array is None else codes.reshape(array.shape), False

    def _code(self, name: str, answer: Any) -> int:
        try:
            return self._codes[answer]
        except (KeyError, TypeError):
            requirement = f"among the {len(self._codes)} categories"
            raise InvalidValue(name, "another", requirement, "Map other answers to one of them.") from None


def favoured(epsilon: float | Fraction, these: int, others: int) -> Fraction:
    """The probability of a set of ``these`` outcomes, each at most e^ε times as likely as each of ``others``.

    It is the largest multiple of 2^−60 that is not above these·e^ε/(these·e^ε + others).
    """
    precision = 160
    _, high = exp_bounds(Fraction(epsilon), precision)
    return Fraction((these << (_BITS + precision)) // ((these << precision) + others * high), 1 << _BITS)


def _chernoff(share: Float64, end: Float64, radius: float) -> Float64:
    """The mean between ``share`` and ``end`` with KL(share‖mean) = radius, rounded outwards."""
    inside, outside = share.copy(), end
    for _ in range(60):
        middle = (inside + outside) / 2
        reached = _divergence(share, middle) > radius
        inside, outside = np.where(reached, inside, middle), np.where(reached, middle, outside)
    return outside


def _divergence(share: Float64, mean: Float64) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(share > 0, share * np.log(share / mean), 0.0)
        second = np.where(share < 1, (1 - share) * np.log((1 - share) / (1 - mean)), 0.0)
    result: NDArray[np.float64] = first + second
    return result
