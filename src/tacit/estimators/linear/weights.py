"""How much each row counts: weights between 0 and a public bound, from the caller and from the classes.

The objective is Σ wᵢ·ℓᵢ + λ/2‖Θ‖². Weights are clipped to [0, B], B being public, and divided by it, and λ
with them: u = w/B in [0, 1] leaves the minimum where it is. So a weighted row is a row that counts at most
once, and the sensitivity of every place of noise is the one that it has without weights:

============  ==========================================================================================
place         one row of weight u ≤ 1
============  ==========================================================================================
objective     shifts the gradient by u·slope·x, of norm ≤ L, and has curvature u·w ≤ that of the loss, so
              it raises ln det of the Hessian by no more than before
output        shifts the gradient by u·slope·x, of norm ≤ L: the minimum moves by at most L/λ
gradient      adds u times its clipped gradient, of norm ≤ ``clip_norm``
statistics,   adds u·xxᵀ and u·xs: the moments of the row (√u·x, √u·s), which also has ‖√u·x‖ ≤ 1 and
functional    |√u·s| ≤ 1
adaptive      adds u times its part of the centre, of the histograms and of every step; in moments as above
input         is counted with probability u, by a coin of its own: given the coins of the others, the counts
              move by 1 or by nothing, and a mixture of two ε-private outputs is ε-private
exponential   adds u·loss to the total of every point, which spans at most u·R ≤ R
============  ==========================================================================================

A weight that is not finite makes its row count nothing. What a row weighs depends on that row, on public
parameters and, for ``class_weight="balanced"``, on class counts that were bought (:class:`ClassPurchase`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate, events
from tacit.data.given import places, real
from tacit.errors import InvalidValue
from tacit.mechanisms import DiscreteLaplace
from tacit.randomness import Source
from tacit.relations import Relation, Unit, histogram_sensitivity

__all__ = [
    "BALANCED",
    "CLASS_SHARE",
    "ClassPurchase",
    "class_counts",
    "class_weights",
    "largest_weight",
    "row_weights",
]

Array = NDArray[np.float64]

BALANCED = "balanced"
CLASS_SHARE = 0.05
"""The part of ε that ``class_weight="balanced"`` spends on the sizes of the classes."""


@dataclass(frozen=True)
class ClassPurchase:
    """The number of rows of each class, with discrete Laplace noise, for ``class_weight="balanced"``.

    A row is in one class at most: one more or less moves the counts by 1 in ℓ1, one replaced by 2, a unit by
    that times its rows. The event is Pure(ε). The weight of a class is the inverse of its noisy count, at
    least 1, divided by the largest of these inverses: post-processing.

    >>> ClassPurchase(0.5, classes=(0, 1)).buy(np.array([900, 100]), Source(1)).round(2)
    array([0.11, 1.  ])
    """

    epsilon: float
    classes: tuple[Any, ...]
    relation: Relation = Relation.ADD_REMOVE
    unit: Unit = field(default_factory=Unit)

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", Relation.of(self.relation))
        _validate.epsilon(self.epsilon)

    @property
    def _mechanism(self) -> DiscreteLaplace:
        return DiscreteLaplace(int(self.unit.rows * histogram_sensitivity(self.relation, 1)), self.epsilon)

    @property
    def event(self) -> events.Event:
        """The event of the purchase."""
        return self._mechanism.event

    def buy(self, counts: NDArray[np.int64], source: Source) -> Array:
        """The weight of each class, the largest 1. Called once, after the event was charged.

        ``counts`` are those of :func:`class_counts`.
        """
        return inverses(np.asarray(replace(self._mechanism, random_state=source)(counts)))


def class_counts(
    targets: NDArray[Any], keep: NDArray[np.bool_] | None, classes: Sequence[Any]
) -> NDArray[np.int64]:
    """How many rows there are of each class: private."""
    found = places(np.asarray(targets), classes)
    counted = found >= 0 if keep is None else (found >= 0) & keep
    return np.bincount(found[counted], minlength=len(classes))


def inverses(counts: NDArray[Any]) -> Array:
    """Balanced weights of classes of these sizes, the largest 1."""
    inverse = 1.0 / np.maximum(counts.astype(float), 1.0)
    return np.asarray(inverse / inverse.max())


def class_weights(given: Any, classes: Sequence[Any]) -> Array | None:
    """The declared weight of each class, None where all weigh the same or the weights are to be bought.

    >>> class_weights({"yes": 3}, ["no", "yes"])
    array([1., 3.])
    """
    if given is None or (isinstance(given, str) and given == BALANCED):
        return None
    if not isinstance(given, Mapping):
        needed = "a dictionary from label to weight, 'balanced' or None"
        raise InvalidValue("class_weight", given, needed)
    unknown = [label for label in given if label not in classes]
    if unknown:
        raise InvalidValue("class_weight", unknown[0], f"for declared classes alone: {list(classes)!r:.100}")
    found = np.array([_validate.non_negative("class_weight", given.get(label, 1.0)) for label in classes])
    if not found.max() > 0:
        raise InvalidValue("class_weight", dict(given), "above 0 for one class at least")
    return found


def row_weights(
    rows: int, sample_weight: NDArray[Any] | None, bound: float, classes: Array | None, of_row: Any
) -> Array | None:
    """u in [0, 1] for each row: the given weight clipped to the bound, times that of its class, normalised.

    ``of_row`` are the places of the rows' labels among the classes, −1 for none.
    """
    if sample_weight is None and classes is None:
        return None
    found = np.ones(rows)
    if sample_weight is not None:
        values = real(sample_weight)
        found = np.where(np.isfinite(values), np.clip(np.nan_to_num(values), 0.0, bound) / bound, 0.0)
    if classes is not None:
        shares = np.append(classes / classes.max(), 0.0)
        found = found * shares[of_row]
    return np.minimum(found, 1.0)


def largest_weight(bound: Any, classes: Array | None) -> float:
    """B: the most that a row can weigh."""
    most = _validate.positive("weight_bound", bound) * (1.0 if classes is None else float(classes.max()))
    if not math.isfinite(most):
        raise InvalidValue("weight_bound", bound, "finite")
    return most
