"""Records that may be published and learnt from: the adaptive Laplace mechanism, charged and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit import _validate, events
from tacit.data import given
from tacit.data.declared import declared_classes
from tacit.data.features import Features, declared_width
from tacit.errors import BudgetExceeded, InvalidValue
from tacit.guarantee import Guarantee
from tacit.ledger import Payment
from tacit.local.adaptive import LEAST_WEIGHT, AdaptiveLaplace, noisy_relevance
from tacit.mechanisms import Laplace
from tacit.models.description import Description, Weight, numbered
from tacit.models.registry import register
from tacit.models.telling import Telling, refused_copy, tell_once
from tacit.randomness import Source
from tacit.relations import Relation, Unit

__all__ = ["AdaptiveLaplaceRecords"]

Read = Callable[[], tuple[Any, Any]]
"""Reads the records of all people: (X, y), with None for labels that there are none of."""

COUNTED = "how many records there are, and in which order, is not hidden"
CHOSEN = "the parameters of the mechanism were chosen without the data"
RELEVANCE = "the relevance that was given is public, or its cost comes on top"
EXPLAINED = "the function of relevance was made without these records, and keeps nothing of them"
NEVER_SAVED = ("ledger", "random_state")


class AdaptiveLaplaceRecords(Telling):
    """Private records, randomized once by :class:`AdaptiveLaplace` (AdLM), for any learner there is.

    Relation: ``replace_one`` of one record, features and label; how many records there are is public.
    Sensitivity and event: ``Laplace(1/ε2)`` for the features and ``RandomizedResponse(ε3, K)`` for the
    labels, as in :class:`AdaptiveLaplace`; where relevance is bought, also ``Laplace(1/ε1)`` for a sum of
    sensitivity 2. ε = ε1 + ε2 + ε3. Each record is randomized in one ``fit`` alone: a second one pays, and is
    charged, again. Whatever is trained on ``records_`` and ``labels_``, for as long as one likes, is
    post-processing.

    :mod:`tacit.local.adaptive` says what was wrong with the published mechanism (Phan et al. 2017), which
    promised the same ε for far less noise.

    ``epsilon``
        the whole cost.
    ``bounds``, ``classes``, ``label_share``, ``floor``
        as in :class:`AdaptiveLaplace`. A :class:`~tacit.estimators.Preprocessor` before it tells the bounds.
        Without ``classes`` there are no labels.
    ``relevance``
        None; a number for each feature, public or paid for apart; or a function from one row to a number for
        each feature, such as the relevance propagated through a *public* network, whose sum is bought with
        ``relevance_share`` of ε. The function sees one row at a time.
    ``ledger``, ``label``, ``random_state``
        where it is charged, and under which name; a seed, for tests.

    Released: ``records_``, in the units of the features, which leave the bounds; ``labels_``, which are
    classes;
    ``weights_``, β of each feature; ``scales_``, the scale of the noise on each.

    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, public = np.random.default_rng(1).uniform(-1, 1, size=(2, 20000, 2)); y = X[:, 0] > 0
    >>> made = AdaptiveLaplaceRecords(
    ...     epsilon=4.0, bounds=(-1, 1), relevance=[1, 0], classes=[False, True], random_state=1
    ... ).fit(X, y)
    >>> model = LogisticRegression().fit(made.records_, made.labels_)
    >>> bool(np.mean(model.predict(public) == (public[:, 0] > 0)) > 0.9)
    True
    >>> made.scales_.round(1).tolist(), made.guarantee_.price
    ([0.8, 14.3], 'ε = 4, δ = 0')
    """

    title = "records with adaptive Laplace noise"
    released = (
        "records_", "labels_", "classes_", "weights_", "scales_", "n_features_in_", "feature_names_in_",
    )  # fmt: skip

    def __init__(
        self, epsilon: float = 1.0, *, bounds: Any = None, classes: Any = None, relevance: Any = None,
        relevance_share: float = 0.1, label_share: float = 0.3, floor: float = 0.1, ledger: Any = None,
        label: str | None = None, random_state: int | None = None,
    ) -> None:  # fmt: skip
        self.epsilon, self.bounds, self.classes, self.relevance = epsilon, bounds, classes, relevance
        self.relevance_share, self.label_share, self.floor = relevance_share, label_share, floor
        self.ledger, self.label, self.random_state = ledger, label, random_state

    def fit(self, X: Any, y: Any = None) -> AdaptiveLaplaceRecords:
        """Randomize every record once; the charge is made before they are read."""
        given.require_numbers(X)
        matrix = given.declared_matrix(X, declared_width(self.bounds))
        aside = BaseEstimator()
        validate_data(aside, X if hasattr(X, "columns") else matrix, skip_check_array=True)
        labels = None
        if self.classes is not None:
            given.require_targets(y, self.classes)
            labels = given.column("y", y, len(matrix))
        features = getattr(X, "features", None)
        assumptions = given.assumed(X, declared_width(self.bounds))
        known = features if isinstance(features, Features) else matrix.shape[1]
        return self._fit(known, lambda: (matrix, labels), vars(aside), assumptions)

    def fit_rows(self, features: int | Features, read: Read) -> AdaptiveLaplaceRecords:
        """Randomize records that ``read`` fetches, once, and only after the charge."""
        width = len(features.names) if isinstance(features, Features) else features

        def rows() -> tuple[NDArray[Any], Any]:
            X, y = read()
            matrix = given.declared_matrix(X, width)
            return matrix, None if self.classes is None else given.column("y", y, len(matrix))

        return self._fit(features, rows, {"n_features_in_": width}, (given.STORED,))

    def _fit(
        self, described: int | Features, read: Read, named: Mapping[str, Any], assumptions: tuple[str, ...]
    ) -> AdaptiveLaplaceRecords:
        payment = Payment.agreed(self.ledger, relation=Relation.REPLACE_ONE, unit=Unit(name="person"))
        source = Source(self.random_state)
        bought, mechanism = self._mechanisms(described, source)
        event = _composed(() if bought is None else (bought.event,), mechanism.event)
        _validate.warn_if_weak(float(self.epsilon), stacklevel=4)
        copied = getattr(self, "_copied", False)
        if copied:
            tell_once(payment.ledger is not None)
        try:
            charge = payment.charge(event, self.label or self.title, noise=mechanism.noise)
        except BudgetExceeded as refused:
            raise (refused_copy(refused) if copied else refused) from None
        with charge:
            self._forget()
            try:
                self._release(bought, mechanism, *read())
                for name, fact in named.items():
                    setattr(self, name, fact)
                self.event_ = event
                made = described.assumptions if isinstance(described, Features) else ()
                about = EXPLAINED if bought is not None else RELEVANCE
                told = () if self.relevance is None else (about,)
                self.guarantee_ = Guarantee(
                    float(self.epsilon), 0.0, event, payment.relation, payment.unit, mechanism.noise,
                    (CHOSEN, COUNTED, *told, *assumptions, *made),
                )  # fmt: skip
            except BaseException:
                self._forget()
                raise
        return self

    def _mechanisms(
        self, described: int | Features, source: Source
    ) -> tuple[Laplace | None, AdaptiveLaplace]:
        """The noise on the relevance, where that is bought, and what every person runs then."""
        epsilon, bounds = _validate.epsilon(self.epsilon), self.bounds
        features = described if isinstance(described, Features) else None
        width = len(features.names) if features is not None else _validate.count("features", described, 1)
        if bounds is None and features is not None:
            bounds = (list(features.lower), list(features.upper))
        bought = None
        if callable(self.relevance):
            share = _validate.open_probability("relevance_share", self.relevance_share)
            if not _validate.finite("floor", self.floor) > LEAST_WEIGHT:
                raise InvalidValue(
                    "floor", self.floor, "above 0 where relevance is bought",
                    "With noise, the relevance of any feature may turn out to be 0.",
                )  # fmt: skip
            bought = Laplace(2.0, epsilon=epsilon * share * (1 - 1e-12))
            epsilon = epsilon * (1 - share) * (1 - 1e-12)
        return bought, AdaptiveLaplace(
            epsilon=epsilon, bounds=bounds, features=width, classes=self.classes,
            relevance=None if bought is not None else self.relevance, label_share=self.label_share,
            floor=self.floor, random_state=source,
        )  # fmt: skip

    def _release(self, bought: Laplace | None, mechanism: AdaptiveLaplace, matrix: Any, labels: Any) -> None:
        if matrix.shape[1] != mechanism.weights.size:
            raise InvalidValue("X", f"{matrix.shape[1]} columns", f"{mechanism.weights.size} columns")
        if bought is not None:
            source = mechanism._source
            found = noisy_relevance(self.relevance, mechanism.clipped(matrix), bought, source)
            mechanism = mechanism.told(found)
        records, codes = mechanism.randomize(matrix, labels)
        self.records_, self.weights_, self.scales_ = records, mechanism.weights, mechanism.scales
        if codes is not None:
            self.classes_ = np.array(declared_classes(self.classes))
            self.labels_ = self.classes_[codes]

    def describe(self) -> Description:
        """What was released, in words; all of it is public or was released."""
        check_is_fitted(self, "guarantee_")
        names = getattr(self, "feature_names_in_", None)
        told = numbered(self.n_features_in_) if names is None else tuple(map(str, names))
        ranked = sorted(zip(told, self.weights_.tolist(), strict=True), key=lambda pair: -pair[1])
        facts = (("records", str(len(self.records_))), ("features", str(self.n_features_in_)))
        classes = tuple(np.asarray(getattr(self, "classes_", ())).tolist())
        weights = tuple(Weight("", name, value) for name, value in ranked)
        return Description(self.title, facts, classes, weights)

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Parameters, but for a function of relevance, and what was released."""
        left_out = (*NEVER_SAVED, "relevance") if callable(self.relevance) else NEVER_SAVED
        params = {name: each for name, each in self.get_params(deep=False).items() if name not in left_out}
        return {
            "params": params,
            "attributes": {name: getattr(self, name) for name in self.released if hasattr(self, name)},
        }, {}

    @classmethod
    def _from_saved(cls, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
        if set(NEVER_SAVED) & set(state["params"]) or not set(state["attributes"]) <= set(cls.released):
            raise ValueError("a name that is not saved")
        made = cls(**state["params"])
        for name, value in state["attributes"].items():
            setattr(made, name, value)
        return made


def _composed(first: tuple[events.Event, ...], event: events.Event) -> events.Event:
    """One composition of all parts."""
    rest = event.events if isinstance(event, events.Compose) else (event,)
    return events.Compose((*first, *rest)) if len(first) + len(rest) > 1 else event


register("adaptive-laplace-records", AdaptiveLaplaceRecords, AdaptiveLaplaceRecords.released)
