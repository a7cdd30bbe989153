"""The adaptive Laplace mechanism: noise on each record once, less of it on features that matter.

Phan, Wu, Hu and Dou 2017, "Adaptive Laplace mechanism: differential privacy preservation in deep learning"
(AdLM), train a network from an input layer with noise and a loss with noisy coefficients. They spend ε1 on
the relevance of each feature, ε2 on inputs, of which a relevant feature gets more, and ε3 on labels.

**What does not hold in the published form.**

1. *Relevance.* The average relevance of a feature is given the sensitivity 2d/n. That holds for a fixed
   network. Theirs was trained on the same rows, and one row may turn the relevance in every other row.
2. *Inputs.* One draw of noise is shared by all rows of a batch, and divided by the number of rows. That hides
   a row in the sum of the batch. A network computes with each row, though, and the difference of two inputs
   has no noise at all: no finite ε holds.
3. *Labels.* The coefficients of the loss get noise once. They depend on the features of the last layer, which
   training moves, and the same noise cancels in the difference of two steps.

``tests/local/test_adaptive_laplace.py`` computes each of the three.

**What holds.** Every record gets noise of its own, once, before anything is learnt: feature j, which lies
between bounds that are r_j apart, gets Laplace noise of scale d·r_j/(β_j·ε2) with Σβ_j = d; the label is
randomized by randomized response with ε3. Neighbours differ in one record (``replace_one``), and
Σ_j |x_j − x'_j|·β_j/(d·r_j) ≤ 1, so the records are ε2-private, labels ε3-private, and any training on both
is post-processing. The relevance β is public, was released before, or is bought here: the relevance of each
row, by a function that was made without these rows, is divided by its sum, so that replacing a row moves the
total by at most 2 in ℓ1, and Laplace noise of scale 2/ε1 pays for it.

**What it costs.** This is the noise of local differential privacy: that of a feature grows with the number of
features, and n records lessen it only as they are averaged over. Where somebody may be trusted with the rows,
DP-SGD (:class:`tacit.training.Trainer`) adds noise to a sum over many rows instead of to each of them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate, events
from tacit.data import given
from tacit.data.declared import declared_classes
from tacit.data.features import box, declared_width
from tacit.errors import InvalidValue
from tacit.local.response import RandomizedResponse
from tacit.mechanisms import Laplace
from tacit.mechanisms._base import Float64, Int64, Mechanism
from tacit.randomness import Source

__all__ = ["AdaptiveLaplace", "weights_of"]

Explain = Callable[[Float64], Any]
"""The relevance of each feature for one row, whose features it is given."""

PARTS = 2**20
"""The relevance of a row is counted in whole millionths or so, which add up exactly."""
LARGEST_FLOOR = 1.0
LEAST_WEIGHT = 2.0**-20
"""β of every feature is above this, since the noise on the feature grows with 1/β."""


def weights_of(relevance: Any, width: int, floor: float) -> Float64:
    """β: shares of relevance with mean 1, of which ``floor`` is spread evenly over all features.

    The sign of a relevance does not matter. Where all of them are 0, β is 1.

    >>> weights_of([3.0, -1.0], 2, floor=0.0).tolist()
    [1.5, 0.5]
    """
    if not 0 <= _validate.finite("floor", floor) <= LARGEST_FLOOR:
        raise InvalidValue("floor", floor, "between 0 and 1")
    if relevance is None:
        return np.ones(width)
    try:
        found = np.abs(np.asarray(relevance, dtype=np.float64))
    except (TypeError, ValueError):
        raise InvalidValue("relevance", type(relevance), "a number for each feature") from None
    if found.shape != (width,) or not np.isfinite(found).all():
        raise InvalidValue("relevance", relevance, f"a finite number for each of {width} features")
    largest = float(found.max(initial=0.0))
    if largest == 0:
        return np.ones(width)
    shares = found / largest
    beta = floor + (1 - floor) * width * shares / shares.sum()
    if not (beta > LEAST_WEIGHT).all():
        raise InvalidValue(
            "floor", floor, "above 0 where a feature has no relevance", "Or leave that feature out."
        )
    return np.asarray(beta)


@dataclass(frozen=True)
class AdaptiveLaplace(Mechanism):
    """What a person runs on their own record: Laplace noise by relevance, and a randomized label.

    Relation: ``replace_one`` of one person's record, features and label. Sensitivity: 1 in ℓ1, of features
    that are scaled to [0, β_j/d]. Event: ``Laplace(1/ε2)``, with ``RandomizedResponse(ε3, K)`` where there
    are
    ``classes``; ε = ε2 + ε3. :mod:`tacit.local.adaptive` has the argument, and what was wrong with the
    published mechanism. Noise is exact, on a grid; records are computed from it.

    ``epsilon``
        of one record, which is randomized once.
    ``bounds``
        (lower, upper) of the features, numbers or one per feature; ``features`` says how many there are where
        the bounds do not.
    ``relevance``
        a number for each feature: public, or released under a guarantee of its own, such as the coefficients
        of a private model. Left out, all features get the same noise.
    ``classes``, ``label_share``
        all labels there may be, and the part ε3/ε of them; left out where there are no labels.
    ``floor``
        the part of ε2 that is spread evenly, so that no feature drowns.

    A number outside its bounds counts as the nearer bound, what is no number as the middle, and a label that
    is none of the classes is drawn uniformly. No value raises an error.

    >>> people = AdaptiveLaplace(epsilon=4.0, bounds=([0, 0], [1, 100]), relevance=[3, 1], classes=[0, 1],
    ...                          random_state=1)
    >>> records, labels = people.randomize([[0.5, 70.0]] * 2000, [1] * 2000)
    >>> people.scales.round(2).tolist(), people.weights.round(2).tolist()
    ([0.49, 129.87], [1.45, 0.55])
    >>> records.mean(axis=0).round(1).tolist(), people.event
    ([0.5, 69.5], Compose(events=(Laplace(scale=0.357...), RandomizedResponse(epsilon=1.19..., ...))))
    """

    epsilon: float = field(kw_only=True)
    bounds: Any = field(kw_only=True)
    features: int | None = field(default=None, kw_only=True)
    relevance: Any = field(default=None, kw_only=True)
    classes: Any = field(default=None, kw_only=True)
    label_share: float = field(default=0.3, kw_only=True)
    floor: float = field(default=0.1, kw_only=True)
    weights: Float64 = field(init=False, repr=False, compare=False)
    """β of each feature; their mean is 1."""
    _lower: Float64 = field(init=False, repr=False, compare=False)
    _upper: Float64 = field(init=False, repr=False, compare=False)
    _noise: Laplace = field(init=False, repr=False, compare=False)
    _response: RandomizedResponse | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        epsilon = _validate.epsilon(self.epsilon)
        width = _width(self.bounds, self.features)
        lower, upper = box(self.bounds, width)
        beta = weights_of(self.relevance, width, self.floor)
        labelled = 0.0
        if self.classes is not None:
            labelled = epsilon * _validate.open_probability("label_share", self.label_share) * (1 - 1e-12)
        sensitivity = math.nextafter(math.fsum(beta / width), math.inf)
        noise = Laplace(sensitivity, epsilon=(epsilon - labelled) * (1 - 1e-12), random_state=self._source)
        response = None
        if self.classes is not None:
            known = len(declared_classes(self.classes))
            response = RandomizedResponse(categories=known, epsilon=labelled, random_state=self._source)
        kept = {
            "epsilon": epsilon, "weights": beta, "_lower": lower, "_upper": upper, "_noise": noise,
            "_response": response,
        }  # fmt: skip
        for name, value in kept.items():
            self._keep(name, value)

    @property
    def event(self) -> events.Event:
        """What one record costs."""
        parts = () if self._response is None else (self._response.event,)
        return events.Compose((self._noise.event, *parts)) if parts else self._noise.event

    def told(self, relevance: Any) -> AdaptiveLaplace:
        """The same mechanism, at the same cost, with a relevance that was released in between."""
        return replace(self, relevance=relevance, random_state=self._source)

    @property
    def scales(self) -> Float64:
        """The scale of the noise on each feature, in its own units; the deviation is √2 times it."""
        apart = 2 * (self._upper / 2 - self._lower / 2)
        return np.asarray(apart / self._shares() * (self._noise.sensitivity * self._noise.event.scale))

    def randomize(self, X: Any, y: Any = None) -> tuple[Float64, Int64 | None]:
        """Records and labels with noise; each row is another person's. Labels are numbers of classes."""
        matrix = given.declared_matrix(X, self.weights.size)
        if matrix.shape[1] != self.weights.size:
            raise InvalidValue("X", f"{matrix.shape[1]} columns", f"{self.weights.size} columns")
        if (y is None) is not (self._response is None):
            raise InvalidValue("y", "left out" if y is None else "given", "given just if classes= are")
        labels = None
        if self._response is not None:
            codes = given.places(given.column("y", y, len(matrix)), declared_classes(self.classes))
            labels = self._response.randomize(codes)
        noisy = self._noise.each(self._scaled(matrix) * self._shares())
        return self._unscaled(noisy / self._shares()), labels

    def clipped(self, X: NDArray[Any]) -> Float64:
        """Rows within the bounds, the middle where a value is missing: what the mechanism makes of them."""
        return self._unscaled(self._scaled(X))

    def _shares(self) -> Float64:
        return np.asarray(self.weights / self.weights.size)

    def _scaled(self, matrix: NDArray[Any]) -> Float64:
        """Features in [0, 1], the bounds at the ends; 1/2 for what is no number."""
        numbers = given.real(matrix.ravel()).reshape(matrix.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            found = (numbers / 2 - self._lower / 2) / (self._upper / 2 - self._lower / 2)
        return np.clip(np.where(np.isnan(found), 0.5, found), 0.0, 1.0)

    def _unscaled(self, numbers: Float64) -> Float64:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self._lower + numbers * (self._upper / 2 - self._lower / 2) * 2)


def noisy_relevance(explain: Explain, rows: Float64, laplace: Laplace, source: Source) -> Float64:
    """The summed relevance of the features, of sensitivity 2 under ``replace_one``, with noise.

    Each row is handed to ``explain`` alone. An error, a warning or a number that is not finite is that row's
    own matter, and counts as no relevance.
    """
    total = np.zeros(rows.shape[1], np.int64)
    for row in rows:
        total += _parts(explain, row.copy())
    mechanism = Laplace(laplace.sensitivity, epsilon=laplace.epsilon, random_state=source)
    return np.maximum(mechanism(total / PARTS), 0.0)


def _parts(explain: Explain, row: Float64) -> Int64:
    """The relevance of one row in parts of its sum, rounded down: at most :data:`PARTS` in all."""
    nothing = np.zeros(row.size, np.int64)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = np.abs(np.asarray(explain(row), dtype=np.float64)).ravel()
            if found.shape != row.shape:
                return nothing
            found = np.where(np.isfinite(found), found, 0.0)
            shares = found / found.max()
            parts = np.floor(shares / shares.sum() * (PARTS * (1 - 2.0**-30)))
    except Exception:
        return nothing
    return parts.astype(np.int64) if np.isfinite(parts).all() else nothing


def _width(bounds: Any, features: int | None) -> int:
    known = declared_width(bounds)
    if known is None:
        return _validate.count("features", 1 if features is None else features, 1)
    if features is not None and features != known:
        raise InvalidValue("features", features, f"{known}, as the bounds say")
    return known
