"""Inversion of a model: the input that a class stands for, and the attribute of a person it was told of.

Fredrikson, Jha and Ristenpart (2015) climbed the score of a class until a face appeared; Fredrikson et al.
(2014) found the genotype of a patient from the dose that a model advised. Both need only what the model
answers; with its gradient the first is faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit.errors import InvalidValue

__all__ = ["Inverted", "infer_attribute", "invert"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Inverted:
    """The input that was found, its score, and how many inputs the model was asked about."""

    input: Array
    score: float
    questions: int


def invert(
    score: Callable[[Array], ArrayLike],
    start: ArrayLike,
    *,
    lower: float = 0.0,
    upper: float = 1.0,
    gradient: Callable[[Array], ArrayLike] | None = None,
    process: Callable[[Array], Array] | None = None,
    steps: int = 200,
    rate: float = 0.1,
    probes: int = 32,
    seed: int = 0,
) -> Inverted:
    """Climb the ``score`` of a class from ``start``, within [lower, upper] in every coordinate.

    ``score(rows)`` returns one number for each of several flattened inputs, say the logarithm of the
    probability of a class. With ``gradient(row)``, its gradient at one input, the attack is one of the white
    box; without it, the gradient is estimated from ``probes`` pairs of random directions (a black box).
    ``process`` is applied to the input after each step, for instance to smooth an image. Steps have length
    ``rate``, falling to a tenth of it; the best input seen is returned. The model is asked about inputs
    within [lower, upper] alone. Where no probe changes the score, as within a leaf of a tree, the next step
    probes twice as far.

    >>> found = invert(lambda rows: -((rows - 0.3) ** 2).sum(axis=1), [0.9, 0.1], steps=100)
    >>> found.input.round(1).tolist()
    [0.3, 0.3]
    """
    if not lower < upper:
        raise InvalidValue("upper", upper, f"above lower={lower}")
    point = np.asarray(start, dtype=np.float64).ravel()
    if not np.isfinite(point).all() or not point.size:
        raise InvalidValue("start", point.shape, "finite numbers")
    total, pairs = _validate.count("steps", steps, 1), _validate.count("probes", probes, 1)
    size = _validate.positive("rate", rate)
    generator = np.random.default_rng(_validate.count("seed", seed))
    width, widest = 1e-2 * (upper - lower), (upper - lower) / 2
    point = np.clip(point, lower, upper)
    best, highest, asked = point, _one(score, point), 1
    for step in range(total):
        if gradient is None:
            ways = generator.choice([-1.0, 1.0], size=(pairs, point.size))
            up = np.asarray(score(np.clip(point + width * ways, lower, upper)), dtype=np.float64)
            down = np.asarray(score(np.clip(point - width * ways, lower, upper)), dtype=np.float64)
            risen = np.subtract(up, down, where=np.isfinite(up) & np.isfinite(down), out=np.zeros_like(up))
            slope = risen @ ways / (2 * width * pairs)
            asked += 2 * pairs
            if not slope.any():
                width = min(2 * width, widest)
                continue
        else:
            slope = np.asarray(gradient(point), dtype=np.float64).ravel()
        length = float(np.linalg.norm(slope))
        if not np.isfinite(length) or length == 0:
            break
        point = np.clip(point + size * 0.1 ** (step / total) * slope / length, lower, upper)
        if process is not None:
            point = np.clip(process(point), lower, upper)
        reached = _one(score, point)
        asked += 1
        if reached > highest:
            best, highest = point, reached
    return Inverted(best, highest, asked)


def infer_attribute(
    probabilities: Callable[[Array], ArrayLike],
    rows: ArrayLike,
    labels: ArrayLike,
    *,
    column: int,
    values: ArrayLike,
    prior: ArrayLike | None = None,
) -> NDArray[np.intp]:
    """For each row, which of ``values`` its secret ``column`` most likely has; their places are returned.

    The adversary knows the other columns and the true label (the place of its class), and asks the model for
    ``probabilities`` (rows, classes) at every candidate: the most likely value v is the one with the largest
    ``prior``(v)·P(label | row with v) (Fredrikson et al. 2014). Without a ``prior`` all are equally likely.

    >>> model = lambda rows: np.column_stack([1 - 0.8 * rows[:, 1], 0.8 * rows[:, 1]])
    >>> infer_attribute(model, [[5.0, 0.0], [6.0, 0.0]], [1, 0], column=1, values=[0.0, 1.0]).tolist()
    [1, 0]
    """
    known, told = np.asarray(rows, dtype=np.float64), np.asarray(labels)
    candidates = np.asarray(values, dtype=np.float64).ravel()
    if known.ndim != 2 or told.shape != (len(known),) or told.dtype.kind not in "iu":
        needed = f"the place of the true class for each of {len(known)} rows"
        raise InvalidValue("labels", f"{told.dtype} of shape {told.shape}", needed)
    place = _validate.count("column", column)
    if place >= known.shape[1] or candidates.size < 2:
        raise InvalidValue("values", candidates.size, "two or more, of a column that the rows have")
    share = np.ones(candidates.size) if prior is None else np.asarray(prior, dtype=np.float64).ravel()
    if share.size != candidates.size or not (share >= 0).all():
        raise InvalidValue("prior", share.size, "a share of 0 or more for each of the values")
    likely = np.empty((len(known), candidates.size))
    for which, value in enumerate(candidates):
        guess = known.copy()
        guess[:, place] = value
        table = np.asarray(probabilities(guess), dtype=np.float64)
        fits = table.ndim == 2 and 0 <= told.min() <= told.max() < table.shape[1]
        if not fits or not np.isfinite(table).all():
            needed = "finite, of shape (rows, classes), with a column for every label"
            raise InvalidValue("probabilities", table.shape, needed)
        likely[:, which] = share[which] * table[np.arange(len(known)), told]
    return np.asarray(likely.argmax(axis=1))


def _one(score: Callable[[Array], ArrayLike], point: Array) -> float:
    found = np.ravel(np.asarray(score(point[None]), dtype=np.float64))
    if found.size != 1:
        raise InvalidValue("score", found.size, "one number for each input")
    return float(found[0])
