"""The road of a fit that protects labels: agreement, charge, labels, guarantee.

Only labels are secret. Features, the number of rows and which rows there are count as public, and are read
before the charge. The relation is ``replace_one`` of one label; a ledger that protects rows is refused, and
so is a ledger of labels anywhere else (:class:`tacit.ledger.Payment`).

1. **plan**: parameters, features and the number of rows make an event. No label is read. 2. **charge**: the
event is charged to the ledger, durably. 3. **labels**: only now are labels read, and each is randomized at
once. The labels themselves are not kept. 4. **learning**: the base estimator is fitted to the features and to
what was released of the labels. It may do
   whatever it likes with them, raise errors included: that is post-processing, since it gets nothing else.
5. **guarantee**: ``event_``, ``guarantee_``, with :data:`tacit.relations.LABEL` as the unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from tacit import _validate, events
from tacit.data import given
from tacit.errors import BudgetExceeded
from tacit.guarantee import Guarantee
from tacit.ledger import Payment
from tacit.models.description import Description
from tacit.models.telling import Telling, refused_copy, tell_once
from tacit.randomness import Source
from tacit.relations import LABEL, Relation

__all__ = ["PRIOR", "LabelPrivateEstimator", "ReadLabels"]

ReadLabels = Callable[[], Any]
"""Reads the private labels, one for each row."""

CHOSEN = "the parameters of the model were chosen without the labels"
PRIOR = "the prior was made without these labels"
"""An assumption of a fit with a public prior."""
FEATURES = "features, the rows that there are and their order may be known to anybody, and depend on no label"


class LabelPrivateEstimator(Telling):
    """Base of the estimators that protect labels alone, with scikit-learn's interface.

    Every subclass has the parameters ``ledger``, ``label`` and ``random_state``, and writes
    :meth:`_planned` (step 1) and :meth:`_learn` (steps 3 and 4).
    """

    title: ClassVar[str]
    """What the model is, in a few words."""
    base_: Any
    """The fitted base."""
    ledger: Any
    label: str | None
    random_state: int | None

    def _planned(self, X: Any, rows: int) -> tuple[float, float, events.Event]:
        """ε, δ and the event of the fit, from public facts. Refuses what cannot be done."""
        raise NotImplementedError

    def _learn(self, X: Any, labels: NDArray[Any], source: Source) -> None:
        """Randomize the labels and learn from that. Called once, inside the charge."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any) -> Any:
        """Fit to public features and private labels; the charge is made before the labels are used.

        A label outside what is declared, or a missing one, is randomized by a public rule, like any other.
        """
        given.require_targets(y, getattr(self, "classes", None))
        rows = self._features(X)
        column = given.column("y", y, rows)
        return self._fit(X, rows, lambda: column)

    def fit_labels(self, X: Any, read: ReadLabels) -> Any:
        """Fit to labels that ``read`` fetches, once, and only after the charge."""
        rows = self._features(X)
        return self._fit(X, rows, lambda: given.column("y", read(), rows))

    def _assumptions(self) -> tuple[str, ...]:
        """What the guarantee assumes beyond what every fit does."""
        return ()

    def _features(self, X: Any) -> int:
        """The number of rows of X, which has to be a matrix."""
        if not hasattr(X, "columns"):
            X = check_array(X, accept_sparse=True, dtype=None, ensure_all_finite=False, ensure_min_samples=2)
        return int(X.shape[0])

    def _fit(self, X: Any, rows: int, read: Callable[[], NDArray[Any]]) -> Any:
        payment = Payment.agreed(self.ledger, relation=Relation.REPLACE_ONE, unit=LABEL)
        epsilon, delta, event = self._planned(X, rows)
        _validate.warn_if_weak(epsilon, delta, rows, stacklevel=4)
        source = Source(self.random_state)
        noise = "seeded" if source.seeded else "exact"
        copied = getattr(self, "_copied", False)
        if copied:
            tell_once(payment.ledger is not None)
        try:
            charge = payment.charge(event, self.label or self.title, noise=noise, delta=delta)
        except BudgetExceeded as refused:
            raise (refused_copy(refused) if copied else refused) from None
        with charge:
            self._forget()
            try:
                validate_data(self, X, skip_check_array=True)
                X = X if hasattr(X, "columns") or hasattr(X, "dtype") else np.asarray(X)
                self._learn(X, read(), source)
                self.event_ = event
                assumed = (CHOSEN, FEATURES, *self._assumptions())
                self.guarantee_ = Guarantee(
                    epsilon, delta, event, payment.relation, payment.unit, noise, assumed
                )
            except BaseException:
                self._forget()
                raise
        return self

    def _checked(self, X: Any) -> Any:
        """X for a prediction, with as many features as were fitted."""
        check_is_fitted(self, "guarantee_")
        validate_data(self, X, reset=False, skip_check_array=True)
        return X if hasattr(X, "columns") or hasattr(X, "dtype") else np.asarray(X)

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Parameters, released attributes and the fitted base, for a model file."""
        from tacit.labels.saving import to_saved

        return to_saved(self), {}

    @classmethod
    def _from_saved(cls, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
        from tacit.labels.saving import from_saved

        return from_saved(cls, state)

    def _facts(self) -> tuple[tuple[str, str], ...]:
        """Settings worth telling in a report, as pairs of words."""
        return ()

    def describe(self) -> Description:
        """What the fitted model says of itself; all of it is public or was released."""
        check_is_fitted(self, "guarantee_")
        classes = np.asarray(getattr(self, "classes_", ())).tolist()
        return Description(self.title, self._facts(), tuple(classes))
