"""From scores to guesses: the threshold, and the rule by which it was chosen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit.audit.bounds import rate_bound, rates_epsilon
from tacit.errors import InvalidValue

__all__ = ["Bonferroni", "Extremes", "Fixed", "Guesses", "Split", "choose_threshold"]

_CANDIDATES = 1024


@dataclass(frozen=True)
class Fixed:
    """The threshold is ``value``, known before any score was seen; all scores are tested."""

    value: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _validate.finite("value", self.value))


@dataclass(frozen=True)
class Split:
    """A random half of the scores chooses the threshold, and the other half alone is tested.

    ``seed`` fixes the halves.
    """

    seed: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", _validate.count("seed", self.seed))


@dataclass(frozen=True)
class Extremes:
    """For a run with many canaries: guess "in" for the ``highest`` scores and "out" for the ``lowest``.

    Both numbers are fixed before any score is seen. Between equal scores a draw decides that knows nothing
    of which canaries were in.
    """

    highest: int
    lowest: int = 0

    def __post_init__(self) -> None:
        _validate.count("highest", self.highest)
        _validate.count("lowest", self.lowest)
        if self.highest + self.lowest == 0:
            raise InvalidValue("highest", 0, "such that at least one guess is made")


@dataclass(frozen=True)
class Bonferroni:
    """Every one of ``options`` is tested, at an equal share of 1 − confidence, and the best result counts.

    ``options`` are thresholds, or :class:`Extremes` for a run with many canaries. They are the whole grid,
    written down before any score is seen: a grid that is made from the scores, or from which thresholds
    are left out afterwards, raises false alarms more often than stated.

    >>> Bonferroni([0.0, 1.0, 2.0]).options
    (0.0, 1.0, 2.0)
    """

    options: tuple[float, ...] | tuple[Extremes, ...]

    def __post_init__(self) -> None:
        found = tuple(self.options)
        if not found:
            raise InvalidValue("options", (), "one threshold or more")
        if not all(isinstance(each, Extremes) for each in found):
            found = tuple(_validate.finite("threshold", each) for each in found)
        object.__setattr__(self, "options", found)


@dataclass(frozen=True)
class Guesses:
    """Counts of the guesses "in" (score ≥ ``threshold``) among the scores that are tested."""

    threshold: float
    true_positives: int
    positives: int
    false_positives: int
    negatives: int

    def counts(self) -> dict[str, int]:
        """The four counts, under the names that :func:`tacit.audit.clopper_pearson` takes."""
        return {
            "true_positives": self.true_positives,
            "positives": self.positives,
            "false_positives": self.false_positives,
            "negatives": self.negatives,
        }


def choose_threshold(
    scores_in: ArrayLike, scores_out: ArrayLike, *, rule: Fixed | Split, delta: float, confidence: float
) -> Guesses:
    """Turn scores, of which high ones mean "in", into guesses.

    Guarantee: the threshold is independent of the scores that are counted, so that bounds computed
    from the counts keep their confidence. Chosen on the very scores it is tested on, a threshold
    raises a false alarm several times as often as stated.

    Under :class:`Split` it is the one at which :func:`tacit.audit.clopper_pearson` proves most, at
    this ``delta`` and ``confidence``, on the half that is not tested. A score equal to the threshold
    is a guess "in"; NaN and infinities are refused.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> guesses = choose_threshold(rng.normal(2, 1, 4000), rng.normal(0, 1, 4000),
    ...                            rule=Split(seed=1), delta=0.0, confidence=0.95)
    >>> guesses.positives, guesses.negatives
    (2000, 2000)
    """
    inside, outside = scores_of("scores_in", scores_in), scores_of("scores_out", scores_out)
    dlt, level = _validate.delta(delta), _validate.open_probability("confidence", confidence)
    if isinstance(rule, Fixed):
        return guesses_at(rule.value, inside, outside)
    if not isinstance(rule, Split):
        raise InvalidValue("rule", rule, "Fixed(value) or Split(seed)", "There is no default.")
    if min(inside.size, outside.size) < 2:
        raise InvalidValue("scores", (inside.size, outside.size), "two or more of each, to be split")
    generator = np.random.default_rng(rule.seed)
    choosing_in, tested_in = _halves(inside, generator)
    choosing_out, tested_out = _halves(outside, generator)
    return guesses_at(best_threshold(choosing_in, choosing_out, dlt, level)[0], tested_in, tested_out)


def best_threshold(
    inside: NDArray[np.float64], outside: NDArray[np.float64], delta: float, confidence: float
) -> tuple[float, float]:
    """The threshold at which these scores prove most, and what they prove: for scores that are not tested."""
    candidates = np.unique(np.concatenate([inside, outside]))
    if candidates.size > _CANDIDATES:
        candidates = candidates[np.linspace(0, candidates.size - 1, _CANDIDATES).astype(int)]
    missed = np.searchsorted(np.sort(inside), candidates, side="left")
    alarms = outside.size - np.searchsorted(np.sort(outside), candidates, side="left")
    share = (1 - confidence) / 2
    proven = rates_epsilon(
        rate_bound(missed, inside.size, share), rate_bound(alarms, outside.size, share), delta
    )
    best = int(np.argmax(proven))
    return float(candidates[best]), float(proven[best])


def guesses_at(threshold: float, inside: NDArray[np.float64], outside: NDArray[np.float64]) -> Guesses:
    """The guesses that a threshold makes of scores."""
    hits, alarms = (int(np.count_nonzero(scores >= threshold)) for scores in (inside, outside))
    return Guesses(threshold, hits, inside.size, alarms, outside.size)


def _halves(
    scores: NDArray[np.float64], generator: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    shuffled = generator.permutation(scores)
    return shuffled[: scores.size // 2], shuffled[scores.size // 2 :]


def scores_of(name: str, scores: ArrayLike) -> NDArray[np.float64]:
    """Finite scores, one per run, or a clear error."""
    try:
        array = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidValue(name, type(scores), "numbers, one per run") from None
    if array.ndim != 1 or not array.size:
        raise InvalidValue(name, f"an array of shape {array.shape}", "one score per run, at least one")
    if not np.isfinite(array).all():
        raise InvalidValue(name, "NaN or infinite", "finite", "Decide what such a run's guess is.")
    return array
