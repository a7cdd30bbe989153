"""Audits of whole fits and training runs, ours or anybody's, given as callables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit.audit.mechanism import audit_mechanism
from tacit.audit.result import AuditResult
from tacit.audit.scoring import from_canaries, most_of
from tacit.audit.threshold import Bonferroni, Extremes
from tacit.errors import InvalidValue
from tacit.relations import Relation

__all__ = ["audit_estimator", "audit_training", "neighbouring"]


def neighbouring(
    X: ArrayLike, y: ArrayLike | None, row: ArrayLike, target: Any = None, *, relation: str
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Two neighbouring data sets: ``row`` with its ``target`` is added to (X, y), or replaces the last row.

    >>> more, fewer = neighbouring([[0.0], [0.1]], [0, 1], [1.0], 1, relation="add_remove")
    >>> more[0].tolist(), fewer[0].tolist()
    ([[0.0], [0.1], [1.0]], [[0.0], [0.1]])
    """
    rows, one = np.asarray(X), np.asarray(row)[None]
    replaced = Relation.of(relation) is Relation.REPLACE_ONE
    if replaced and not len(rows):
        raise InvalidValue("X", "no rows", "one row or more, of which the last is replaced")
    kept = rows[:-1] if replaced else rows
    changed = np.concatenate([kept, one])
    if y is None:
        return (changed,), (rows,)
    labels, last = np.asarray(y), np.asarray([target])
    mixed = (labels.dtype.kind in "US") != (last.dtype.kind in "US") and labels.dtype != object
    if target is None or mixed:
        raise InvalidValue("target", type(target).__name__, f"a target such as those of y, {labels.dtype}")
    told = np.concatenate([labels[: len(kept)], last])
    return (changed, told), (rows, labels.astype(told.dtype))


def audit_estimator(
    make: Callable[[], Any],
    neighbours: tuple[Any, Any] | Sequence[tuple[Any, Any]],
    *,
    runs: int,
    delta: float,
    confidence: float,
    method: str = "clopper_pearson",
    claimed: float | None = None,
    released: Callable[[Any], Any] | None = None,
    relation: str | None = None,
    unit: str | None = None,
) -> AuditResult:
    """A lower bound on the ε of an estimator with scikit-learn's interface, from many fits.

    ``make()`` returns an estimator that is not fitted and draws fresh noise; ``neighbours`` is a pair of
    data sets, each the tuple of arguments that ``fit`` takes (:func:`neighbouring` makes them), or a list of
    pairs. ``released(model)`` returns the numbers that are published; without it they are all arrays of
    numbers among the fitted attributes, those whose name ends in an underscore.

    The guarantee of the result is that of :func:`audit_mechanism`.

    >>> from tacit.estimators import LinearRegression
    >>> one, none = neighbouring(np.zeros((0, 1)), np.zeros(0), [1.0], 1.0, relation="add_remove")
    >>> make = lambda: LinearRegression(1.0, bounds=(-1, 1), target_bounds=(-1, 1), fit_intercept=False)
    >>> audit_estimator(make, (one, none), runs=60, delta=0.0, confidence=0.95).contradicts(1.0)
    False
    """
    told = numbers_of if released is None else released
    return audit_mechanism(
        lambda data: told(make().fit(*data)), neighbours, runs=runs, delta=delta, confidence=confidence,
        method=method, claimed=claimed, relation=relation, unit=unit,
    )  # fmt: skip


def numbers_of(model: Any) -> NDArray[np.float64]:
    """All numbers among the fitted attributes of a model, in the order of their names."""
    found = []
    for name in sorted(vars(model)):
        if name.endswith("_") and not name.startswith("_"):
            value = getattr(model, name)
            if isinstance(value, (float, int, np.ndarray, np.number)):
                array = np.asarray(value)
                if array.dtype.kind in "fiub":
                    found.append(np.ravel(array).astype(np.float64))
    if not found:
        raise InvalidValue("model", type(model).__name__, "one with fitted numbers", "Give released=.")
    return np.concatenate(found)


def audit_training(
    train: Callable[[NDArray[np.bool_]], ArrayLike],
    *,
    canaries: int,
    rule: Extremes | Bonferroni,
    method: str,
    delta: float,
    confidence: float,
    runs: int = 1,
    claimed: float | None = None,
    high: str = "in",
    relation: str | None = None,
    unit: str | None = None,
    seed: int | None = None,
) -> AuditResult:
    """A lower bound on the ε of a training run, from canaries that coins put in.

    ``train(included)`` trains once on the data and those canaries for which ``included`` is true, and
    returns a score for every canary, in or not: its loss for an audit of the black box (``high="out"``), or
    how far the weights moved along its gradient for one of the white box (``high="in"``). ``canaries`` is
    how many there are, ``rule`` which of their scores become guesses, ``method`` ``"one_run"`` or
    ``"one_run_fdp"``. The coins come from the operating system, or from ``seed``.

    With several ``runs``, each tosses its own coins, has an equal share of 1 − ``confidence``, and the best
    result counts.

    Guarantee: an (ε, δ)-differentially private training run, each canary being one unit under
    ``add_remove``, yields a result above its ε with probability at most 1 − ``confidence``. A claim under
    ``replace_one`` is about other neighbours: to audit it, ``train`` must put another row in the place of
    each canary that is left out, so that the number of rows is always the same, and ``relation`` says so.

    >>> def train(included):  # noise of deviation 1 on each coordinate: Gaussian, μ = 1
    ...     return included + np.random.default_rng(3).normal(size=included.size)
    >>> rule = Extremes(300, 300)
    >>> result = audit_training(train, canaries=2000, rule=rule, method="one_run_fdp", delta=1e-5,
    ...                         confidence=0.95, claimed=4.377, seed=1)
    >>> print(f"{result.epsilon:.2f}", result.contradicts(4.377))
    2.70 False
    """
    total, times = _validate.count("canaries", canaries, 1), _validate.count("runs", runs, 1)
    level = _validate.open_probability("confidence", confidence)
    if claimed is not None:
        _validate.non_negative("claimed", claimed)
    generator = np.random.default_rng(None if seed is None else _validate.count("seed", seed))
    share = 1 - (1 - level) / times
    results = []
    for _ in range(times):
        included = generator.random(total) < 0.5
        scores, ties = train(included.copy()), int(generator.integers(2**63))
        found = from_canaries(
            scores, included, rule=rule, method=method, delta=delta, confidence=share, high=high, seed=ties
        )
        results.append(found)
    best = max(results, key=lambda each: each.epsilon)
    hypotheses = sum(each.hypotheses for each in results)
    return replace(
        best, confidence=level, hypotheses=hypotheses, most=most_of(results), claimed=claimed,
        relation=relation, unit=unit,
    )  # fmt: skip
