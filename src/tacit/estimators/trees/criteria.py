"""How good a split is, as a score of the rows themselves, and how far one row can move it.

A split divides the rows of a node into parts; n_c is the number of rows of class c in a part, N = Σ n_c.
All scores add up over the parts, and are largest for parts of one class:

============  ==========================  ==================================
criterion     score of a part             a row moves it by at most
============  ==========================  ==================================
``entropy``   Σ n_c log₂ n_c − N log₂ N   log₂(classes · most) + 1/ln 2
``gini``      Σ n_c²/N − N                2
``max``       max n_c                     1
============  ==========================  ==================================

``entropy`` is −N times the conditional entropy, so that the best split is the one with the largest
information gain. Friedman and Schuster 2010 give these bounds; here is why they hold, and why all scores
move the same way.

A row is added to class c of one part. *Entropy*: with φ(x) = (x+1) log₂(x+1) − x log₂ x, which increases from
φ(0) = 0, the score changes by φ(n_c) − φ(N) ∈ [−φ(N), 0], and φ(N) = log₂(N+1) + N log₂(1 + 1/N)
≤ log₂(N+1) + 1/ln 2. N is private, so each n_c is counted up to ``most``, a public number, and no further:
then N + 1 ≤ classes · most. *Gini*: with S = Σ n², the score changes by −(N² + S − 2 n_c N)/(N(N+1)). That
is at most 0, since S ≥ n_c² makes a square of the numerator, and more than −2, as S ≤ N². *Max*: 0 or 1.
So an added row moves the scores of all splits down (``max``: up), a removed one the other way, and the
mechanisms that select may be told that scores are ``monotone``. A row that is replaced is one removed and one
added; the rows of a unit come one by one.

Scores are computed in float64, as sums of classes · parts numbers of together at most 2z = 2 · parts ·
classes · most (times log₂(classes · most) for entropy), each of which is rounded three times: so a score is
off by at most e = 2^−52 · (parts + classes + 3) · z, and the change of a score from one neighbour to the
other by 2e. Selection only looks at differences of scores, so a common shift by 2e makes all changes go one
way again: the sensitivity is enlarged by 4e.

Selection rounds scores to a grid of g ≤ 2^−21 of the sensitivity that it is told. At a node where j rows come
or go, scores then move by at most j·(Δ + 4e)/g + 2 steps against each other: one more step down and one more
up. For all nodes of a level, and for rows that come and go, that is one allowance for each node, not one in
all: :func:`level_sensitivity` adds them, 2 steps for each row or, where these are fewer, for each choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CRITERIA", "MOST", "gain", "level_sensitivity", "score", "sensitivity"]

Array = NDArray[np.float64]

MOST = 2**31
"""The number of rows up to which each class is counted, where the population is not declared."""


def _x_log_x(counts: Array) -> Array:
    return counts * np.log2(np.maximum(counts, 1e-300))


def _entropy(counts: Array) -> Array:
    return np.asarray(_x_log_x(counts).sum(axis=-2) - _x_log_x(counts.sum(axis=-2)))


def _gini(counts: Array) -> Array:
    total = counts.sum(axis=-2)
    return np.asarray((counts * (counts / np.maximum(total, 1e-300)[..., None, :])).sum(axis=-2) - total)


def _largest(counts: Array) -> Array:
    return np.asarray(counts.max(axis=-2))


CRITERIA: Mapping[str, Callable[[Array], Array]] = {"entropy": _entropy, "gini": _gini, "max": _largest}
"""The score of every part, (…, parts), from counts (…, classes, parts), none of them negative."""


def score(criterion: str, counts: Any) -> Array:
    """The score of splits from their counts (…, classes, parts): the sum over the parts.

    >>> score("max", [[3, 0], [1, 5]]), score("gini", [[2, 0], [0, 5]])
    (array(8.), array(0.))
    """
    return np.asarray(CRITERIA[criterion](np.asarray(counts, dtype=np.float64)).sum(axis=-1))


def gain(criterion: str, counts: Any) -> Array:
    """What a split gains over none, per row, from counts (…, classes, parts): the information gain in bits.

    >>> gain("entropy", [[3, 1], [0, 2]]).round(3).item()
    0.459
    """
    table = np.asarray(counts, dtype=np.float64)
    whole = table.sum(axis=-1, keepdims=True)
    rows = np.maximum(whole.sum(axis=-2)[..., 0], 1.0)
    return np.asarray((score(criterion, table) - score(criterion, whole)) / rows)


def sensitivity(criterion: str, classes: int, parts: int, most: int) -> float:
    """How far one row, added or removed, can move the score of a split, rounding included."""
    bits = math.log2(classes * most)
    exact = {"entropy": bits + 1 / math.log(2), "gini": 2.0, "max": 1.0}[criterion]
    size = parts * classes * most * {"entropy": bits, "gini": 1.0, "max": 0.0}[criterion]
    return exact + 4 * 2.0**-52 * (parts + classes + 3) * size


def level_sensitivity(rows: float, of_a_row: float, choices: int) -> float:
    """How far so many rows, added or removed, move scores at all nodes of a level, the grid included.

    With S = rows · of_a_row · (1 + r·2^−19), r ≤ 2^19 being the allowances of two steps, 2r·g ≤ r·2^−20·S is
    less than what was added. ``choices`` bounds the nodes of a level that split.

    >>> level_sensitivity(1.0, 2.0, 1000)
    2.0000038...
    """
    return rows * of_a_row * (1 + min(rows, 2.0 * choices) * 2.0**-19)
