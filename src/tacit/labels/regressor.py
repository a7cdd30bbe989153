"""Any regression, fitted to randomized labels."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin, clone, is_regressor

from tacit import _validate, events
from tacit.data.declared import declared_target_bounds
from tacit.data.given import real
from tacit.errors import InvalidValue
from tacit.labels.bins import ResponseOnBins, bought_prior, cell_of
from tacit.labels.private import PRIOR, LabelPrivateEstimator
from tacit.labels.response import Float64
from tacit.randomness import Source

__all__ = ["LabelPrivateRegressor"]


class LabelPrivateRegressor(RegressorMixin, LabelPrivateEstimator):  # type: ignore[misc]
    """A regression whose training labels are private, and whose features are not: RR on bins.

    Relation: ``replace_one`` of one label. Event: with a public ``prior``, ``RandomizedResponse(ε, d)`` for d
    bins (:class:`tacit.labels.ResponseOnBins`). With ``prior="dp"`` a histogram of the labels is bought
    first, with the part ``prior_share`` of ε (counts, ℓ1 sensitivity 2), and the bins are made of it:
    ``Compose((Pure(share·ε), Pure((1 − share)·ε)))``. Both see all labels, so their ε's add up.

    The base is fitted to features and responses alone, which is post-processing. A label outside
    ``target_bounds`` is clipped to them, and one that is no number is randomized as a uniform response.

    Parameters. ``base``: any scikit-learn regression. ``target_bounds``: between which values labels are
    known to lie. ``cells``: how many equal cells the bins are made of; a public prior has its own number.
    ``unbiased``: whether responses are mapped so that their mean is the centre of the label's bin; without it
    the squared error of each is smaller, and their mean is pulled to the middle.

    Paper: Ghazi et al. 2023.

    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> X = np.linspace(0, 1, 2000)[:, None]
    >>> y = 1 + 8 * X[:, 0]
    >>> model = LabelPrivateRegressor(LinearRegression(), 4.0, target_bounds=(0, 10), random_state=1)
    >>> model = model.fit(X, y)
    >>> model.predict([[0.0], [1.0]]).round(1).tolist(), model.event_
    ([1.2, 8.7], Compose(events=(Pure(epsilon=0.5), Pure(epsilon=3.5))))
    """

    title = "regression with private labels"

    def __init__(
        self,
        base: Any,
        epsilon: float = 1.0,
        *,
        target_bounds: Any = None,
        prior: Any = "dp",
        prior_share: float = 0.125,
        cells: int = 64,
        unbiased: bool = True,
        ledger: Any = None,
        label: str | None = None,
        random_state: int | None = None,
    ) -> None:
        self.base = base
        self.epsilon = epsilon
        self.target_bounds = target_bounds
        self.prior = prior
        self.prior_share = prior_share
        self.cells = cells
        self.unbiased = unbiased
        self.ledger = ledger
        self.label = label
        self.random_state = random_state

    def _planned(self, X: Any, rows: int) -> tuple[float, float, events.Event]:
        if not (hasattr(self.base, "get_params") and hasattr(self.base, "fit") and is_regressor(self.base)):
            advice = "For example sklearn.linear_model.Ridge()."
            raise InvalidValue(
                "base", type(self.base).__name__, "a regression with scikit-learn's interface", advice
            )
        epsilon = _validate.epsilon(self.epsilon)
        bounds = declared_target_bounds(self.target_bounds)
        _validate.count("cells", self.cells, 2)
        if not self._buys():
            return epsilon, 0.0, ResponseOnBins(epsilon, bounds, self.prior).event
        share, rest = self._split()
        return epsilon, 0.0, events.Compose((events.Pure(share), events.Pure(rest)))

    def _buys(self) -> bool:
        if isinstance(self.prior, str):
            _validate.choice("prior", self.prior, ("dp",))
            return True
        return False

    def _split(self) -> tuple[float, float]:
        """ε of the prior and ε of the responses, which add up to no more than ε."""
        share = float(self.epsilon) * _validate.open_probability("prior_share", self.prior_share)
        rest = float(self.epsilon) - share
        within = Fraction(share) + Fraction(rest) <= Fraction(self.epsilon)
        return share, rest if within else math.nextafter(rest, 0.0)

    def _learn(self, X: Any, labels: NDArray[Any], source: Source) -> None:
        bounds, numbers = declared_target_bounds(self.target_bounds), real(labels)
        if self._buys():
            share, rest = self._split()
            prior = bought_prior(cell_of(numbers, bounds, self.cells), self.cells, share, source)
            randomizer = ResponseOnBins(rest, bounds, prior)
        else:
            randomizer = ResponseOnBins(float(self.epsilon), bounds, self.prior)
        responses = randomizer.respond(numbers, source)
        del numbers, labels
        targets = randomizer.unbiased(responses) if self.unbiased else randomizer.values[responses]
        self.bins_ = randomizer.values
        self.base_ = clone(self.base).fit(X, targets)

    def predict(self, X: Any) -> Float64:
        """The predicted label of each row, between the bounds."""
        found: Float64 = np.clip(
            self.base_.predict(self._checked(X)), *declared_target_bounds(self.target_bounds)
        )
        return found

    def _assumptions(self) -> tuple[str, ...]:
        return () if self._buys() else (PRIOR,)

    def _facts(self) -> tuple[tuple[str, str], ...]:
        return ("bins", str(len(self.bins_))), ("base", type(self.base).__name__)
