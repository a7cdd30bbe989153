"""A black box on two neighbours: run it often, learn to tell the outputs apart, test what was learned.

The runs are of three kinds, and none serves twice. *Searching* runs, where there are several pairs of
neighbours, say which pair is told apart best. *Choosing* runs on that pair make the score (a likelihood
ratio of a histogram) and the threshold. *Tested* runs alone are counted. So the bound keeps its confidence,
whatever was searched and chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.audit.result import AuditResult
from tacit.audit.scoring import MANY_RUNS
from tacit.audit.threshold import best_threshold, guesses_at
from tacit.errors import InvalidValue

__all__ = ["audit_mechanism"]

Array = NDArray[np.float64]
Score = Callable[[Array], Array]

_BINS = 32
_COORDINATES = 4
"""Beside the discriminant, so many single coordinates are tried as scores."""


def audit_mechanism(
    mechanism: Callable[[Any], Any],
    neighbours: tuple[Any, Any] | Sequence[tuple[Any, Any]],
    *,
    runs: int,
    delta: float,
    confidence: float,
    method: str = "clopper_pearson",
    claimed: float | None = None,
    score: Callable[[Any], float] | None = None,
    relation: str | None = None,
    unit: str | None = None,
) -> AuditResult:
    """A lower bound on the ε of any callable, from ``runs`` runs on each of two neighbouring data sets.

    ``mechanism(data)`` returns a number, or an array of numbers of one shape; it must draw fresh noise in
    every call. ``neighbours`` is a pair of data sets, best the worst case, or a list of pairs, on each of
    which a tenth of ``runs`` searches for the pair that is told apart best. ``score(output)`` turns an
    output into a number, and a fifth of the runs chooses its threshold; without it, half of the runs choose
    among likelihood ratios of histograms: of a linear discriminant, and of the coordinates that differ most.
    ``method`` is ``"clopper_pearson"``, which assumes nothing, or ``"gaussian"``.

    Guarantee: if the calls are independent, an (ε, δ)-differentially private mechanism yields a result above
    its ε with probability at most 1 − ``confidence``. A small result proves nothing: another pair or score
    may tell more.

    >>> from tacit import mechanisms
    >>> noisy = mechanisms.Laplace(sensitivity=1.0, epsilon=1.0, random_state=1)
    >>> result = audit_mechanism(noisy, (0.0, 1.0), runs=4000, delta=0.0, confidence=0.95, claimed=1.0)
    >>> print(f"{result.epsilon:.1f}", result.verdict)
    0.7 the audit is consistent with the claim of ε = 1; it proves no such claim
    >>> twin = mechanisms.Laplace(1.0, epsilon=2.0, random_state=1)  # half of the noise
    >>> audit_mechanism(twin, (0.0, 1.0), runs=4000, delta=0.0, confidence=0.95).contradicts(1.0)
    True
    """
    total = _validate.count("runs", runs, 20)
    bound = MANY_RUNS[_validate.choice("method", method, tuple(MANY_RUNS))]
    level = _validate.open_probability("confidence", confidence)
    # Options that the bound or its result would refuse are refused before the runs, which may take long.
    empty = {"true_positives": 0, "positives": 1, "false_positives": 0, "negatives": 1}
    facts: dict[str, Any] = {"relation": relation, "unit": unit, "claimed": claimed}
    replace(bound(**empty, delta=delta, confidence=level), **facts)
    pairs = _pairs(neighbours)
    run = partial(_outputs, mechanism, score)
    pair = pairs[0] if len(pairs) == 1 else _searched(run, pairs, max(total // 10, 10))
    choosing = total // 2 if score is None else total // 5
    found, threshold = _learned(run(pair[0], choosing), run(pair[1], choosing), delta, level)
    inside, outside = (found(run(data, total - choosing)) for data in pair)
    guesses = guesses_at(threshold, inside, outside)
    result = bound(**guesses.counts(), delta=delta, confidence=level)
    told = "a score and a threshold chosen on other runs than those that are tested"
    return replace(result, rule=told, **facts)


def _pairs(neighbours: Any) -> list[tuple[Any, Any]]:
    """One pair is a tuple of two data sets; several are a list."""
    found = [neighbours] if isinstance(neighbours, tuple) else list(neighbours)
    if not found or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in found):
        raise InvalidValue("neighbours", type(neighbours), "a pair (data, neighbour), or a list of pairs")
    return found


def _searched(
    run: Callable[[Any, int], Array], pairs: Sequence[tuple[Any, Any]], runs: int
) -> tuple[Any, Any]:
    """The pair on which the discriminant separates a few runs best."""
    separations = []
    for pair in pairs:
        inside, outside = (run(data, runs) for data in pair)
        projected = _discriminant(inside, outside)
        first, second = projected(inside), projected(outside)
        spread = np.sqrt(first.var() + second.var())
        separations.append(abs(first.mean() - second.mean()) / spread if spread > 0 else np.inf)
    return pairs[int(np.argmax(np.nan_to_num(separations, nan=0.0, posinf=np.finfo(float).max)))]


def _outputs(
    mechanism: Callable[[Any], Any], score: Callable[[Any], Any] | None, data: Any, runs: int
) -> Array:
    """One row of numbers per run."""
    outputs = (mechanism(data) for _ in range(runs))
    scored = outputs if score is None else map(score, outputs)
    rows = [np.ravel(np.asarray(each, dtype=np.float64)) for each in scored]
    _require_one_shape({row.size for row in rows})
    found = np.array(rows)
    if not np.isfinite(found).all():
        raise InvalidValue("outputs of the mechanism", "NaN or infinite", "finite", "Give score=.")
    return found


def _require_one_shape(sizes: set[int]) -> None:
    if len(sizes) != 1:
        advice = "Give score=, a function from an output to a number."
        raise InvalidValue("outputs of the mechanism", "of several shapes", "arrays of one shape", advice)


def _learned(inside: Array, outside: Array, delta: float, level: float) -> tuple[Score, float]:
    """The score, and its threshold, that prove most on runs that are not tested."""
    _require_one_shape({inside.shape[1], outside.shape[1]})
    differing = np.abs(inside.mean(axis=0) - outside.mean(axis=0))
    spread = np.sqrt(inside.var(axis=0) + outside.var(axis=0))
    apart = np.divide(differing, spread, out=np.where(differing > 0, np.inf, 0.0), where=spread > 0)
    best = np.argsort(-apart, kind="stable")[:_COORDINATES]
    projections: list[Score] = [_discriminant(inside, outside)] if inside.shape[1] > 1 else []
    projections += [lambda rows, place=int(place): rows[:, place] for place in best]  # type: ignore[misc]
    options = []
    for projection in projections:
        score = _ratio(projection, projection(inside), projection(outside))
        threshold, proven = best_threshold(score(inside), score(outside), delta, level)
        options.append((proven, threshold, score))
    _, threshold, score = max(options, key=lambda option: option[0])
    return score, threshold


def _discriminant(inside: Array, outside: Array) -> Score:
    """Fisher's linear discriminant, with a ridge so that few runs suffice."""
    spread = np.sqrt((inside.var(axis=0) + outside.var(axis=0)) / 2)
    scale = np.where(spread > 0, spread, 1.0)
    first, second = inside / scale, outside / scale
    within = (np.atleast_2d(np.cov(first.T)) + np.atleast_2d(np.cov(second.T))) / 2
    ridge = 0.1 + inside.shape[1] / len(inside)
    weights = np.linalg.solve(within + ridge * np.eye(len(within)), first.mean(axis=0) - second.mean(axis=0))
    return lambda rows: np.asarray((rows / scale) @ weights)


def _ratio(projection: Score, inside: Array, outside: Array) -> Score:
    """The log-likelihood ratio of histograms with cells of equal count, half a run added to each cell.

    A value that many runs share is an edge of its own cell, so that outputs on a grid and labels are counted
    one by one.
    """
    both = np.concatenate([inside, outside])
    values = np.unique(both)
    edges = values if values.size <= _BINS else np.unique(np.quantile(both, np.linspace(0, 1, _BINS + 1)))
    cells = edges.size + 1
    first, second = (
        np.bincount(np.searchsorted(edges, side, side="right"), minlength=cells) / side.size
        for side in (inside, outside)
    )
    logs = np.log(first + 0.5 / inside.size) - np.log(second + 0.5 / outside.size)
    return lambda rows: np.asarray(logs[np.searchsorted(edges, projection(rows), side="right")])
