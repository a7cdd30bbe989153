"""The skeleton of every private estimator: public parameters in, a model with its guarantee out.

The road of a fit is the same for all of them, and is walked here, in :meth:`PrivateEstimator.fit`:

1. **plan**: public parameters and public facts about the features make a :class:`Recipe`, whose event is the
   cost of the fit. No row is read.
2. **agreement**: relation and unit are those of the ledger, or the fit is refused
   (:class:`tacit.ledger.Payment`).
3. **charge**: the event is charged, durably.
4. **rows**: only now are the private rows read, and those of a unit bounded in number.
5. **fit**: the recipe is carried out on the rows, and sets the attributes that are released.
6. **guarantee**: ``event_``, ``guarantee_`` and :meth:`PrivateEstimator.describe`.

A subclass writes an ``__init__`` with its public parameters, :meth:`PrivateEstimator._recipe` (step 1),
:meth:`PrivateEstimator._carry_out` (step 5), a ``title`` and the names of the ``released`` attributes. An
entry in :mod:`tacit.estimators.registry` makes it known to model files, evaluation and the command line.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit import _validate, events
from tacit.data import given
from tacit.data.features import Features, declared_width
from tacit.data.units import bounded_units
from tacit.errors import BudgetExceeded, CannotLearn, InvalidValue
from tacit.estimators.telling import refused_copy, tell_once, telling
from tacit.guarantee import Guarantee
from tacit.ledger import Payment
from tacit.models.description import Description, Profiles, Sizes, Weight
from tacit.randomness import Source
from tacit.relations import Relation, Unit

__all__ = ["Planned", "PrivateEstimator", "PrivateRows", "Public", "Read", "Recipe"]

Read = Callable[[], tuple[Any, Any, Any]]
"""Reads the private rows: (X, y, units), with None for a target or units that there are none of."""

CHOSEN = "the parameters of the model were chosen without the data"
"""An assumption of every fit."""
FOLDS = "which rows were handed to fit depended on no other row, unlike folds by position or by label"
"""An assumption of the fit of a copy, as cross-validation makes them."""
NEVER_SAVED = ("ledger", "random_state")
"""Parameters that stay out of model files."""


@dataclass(frozen=True)
class Public:
    """The facts that a plan is made from. None of them was read off the rows."""

    epsilon: float
    """ε of the whole fit; infinite where a model is to be fitted without noise."""
    delta: float
    relation: Relation
    unit: Unit
    width: int
    """The number of features."""
    features: Features | None = None
    """Names and bounds of the features, where a :class:`~tacit.data.preprocessor.Preprocessor` knows them."""


@dataclass(frozen=True)
class Recipe:
    """What a fit will do, decided from public facts. Subclasses add what they need to carry it out."""

    event: events.Event
    """What the whole fit costs, purchases included."""
    kind: str
    """The kind of noise, one of :data:`tacit.guarantee.NOISE_KINDS`."""
    parts: tuple[tuple[str, float], ...] = ()
    """What ε is spent on."""
    notes: tuple[str, ...] = ()
    """Lines for the reader of a plan: what was chosen, and how much noise there will be."""
    expected: tuple[str, ...] = field(default=(), kw_only=True)
    """How good the fit can be expected to be, where theory tells from public facts."""
    doubts: tuple[str, ...] = field(default=(), kw_only=True)
    """Why, by public facts alone, the fit cannot learn anything; empty where it can."""


@dataclass(frozen=True)
class Planned:
    """What a fit will do and cost, known before any data are: print it."""

    epsilon: float
    delta: float
    relation: Relation
    unit: Unit
    parts: tuple[tuple[str, float], ...]
    notes: tuple[str, ...]
    event: events.Event
    kind: str
    expected: tuple[str, ...] = ()
    """How good the fit can be expected to be, where theory tells from public facts."""
    doubts: tuple[str, ...] = ()
    """Why, by public facts alone, the fit cannot learn anything: ``fit`` warns of it before the charge."""

    @classmethod
    def of(cls, public: Public, recipe: Recipe) -> Planned:
        """The part of a plan that may be shown."""
        return cls(
            public.epsilon, public.delta, public.relation, public.unit,
            recipe.parts, recipe.notes, recipe.event, recipe.kind, recipe.expected, recipe.doubts,
        )  # fmt: skip

    def __str__(self) -> str:
        lines = [f"ε = {self.epsilon:g}, δ = {self.delta:g}, {self.relation} of one {self.unit}"]
        lines += [f"  {part:<12} ε = {cost:.4g}" for part, cost in self.parts]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


@dataclass(frozen=True)
class PrivateRows:
    """Rows as they were read, inside the charge. They must not be kept on the estimator."""

    matrix: NDArray[Any]
    """Numbers (rows, features), NaN for what is no number."""
    targets: NDArray[Any] | None
    """One per row; None where there are none."""
    keep: NDArray[np.bool_] | None
    """The rows that count, so that no unit has too many; None where all do."""
    weights: NDArray[Any] | None = None
    """How much each row is to count, as it was handed over; None where no weights were."""

    @property
    def used(self) -> int:
        """How many rows count: private."""
        return len(self.matrix) if self.keep is None else int(self.keep.sum())


@dataclass(frozen=True)
class _Taken:
    """X, y and units in the form that everything after them relies on, and what that form assumes."""

    described: int | Features
    named: Mapping[str, Any]
    """``n_features_in_`` and, where X has names, ``feature_names_in_``."""
    matrix: NDArray[Any]
    targets: NDArray[Any] | None
    units: NDArray[Any] | None
    assumptions: tuple[str, ...]
    weights: NDArray[Any] | None = None


class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of the private estimators, with scikit-learn's interface. Only ``fit`` sees private rows.

    Every subclass has the parameters ``epsilon``, ``delta``, ``relation``, ``rows_per_unit``, ``ledger``,
    ``label``, ``verbose`` and ``random_state``. ``fit`` sets ``event_``, ``guarantee_`` and what is released.
    """

    title: ClassVar[str]
    """What the model is, in a few words."""
    released: ClassVar[tuple[str, ...]]
    """The fitted attributes that are public or were released: the ones that a model file holds."""
    predicts_from: ClassVar[tuple[str, ...]] = ()
    """The released attributes that a prediction reads, where it treats every row by itself, bit by bit."""
    supervised: ClassVar[bool] = True
    """Whether ``fit`` needs a target."""
    fits_without_noise: ClassVar[bool] = False
    """Whether ``epsilon=math.inf`` is allowed, for comparison."""
    buys_population: ClassVar[bool] = False
    """Whether ``population="dp"`` is allowed, which buys the number of rows."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Have ``score``, where a mixin brings one, say that no guarantee covers it."""
        super().__init_subclass__(**options)
        score = getattr(cls, "score", None)
        if score is not None and not hasattr(score, "_tells"):
            cls.score = telling(score)

    def __sklearn_clone__(self) -> Any:
        """A copy that is not fitted, with the same ledger, which knows that it is a copy."""
        made = super().__sklearn_clone__()
        made._copied = True
        return made

    def _recipe(self, public: Public) -> Recipe:
        """What the fit will do, from parameters and public facts. Refuses what cannot be done."""
        raise NotImplementedError

    def _carry_out(self, recipe: Any, rows: PrivateRows, source: Source) -> None:
        """Set the released attributes. Called once, inside the charge; raises nothing that rows decide."""
        raise NotImplementedError

    def _declared_width(self) -> int | None:
        """The number of features that the parameters declare, None where they declare none."""
        return declared_width(getattr(self, "bounds", None), getattr(self, "categories", None))

    def _usual_label(self) -> str:
        """What the ledger calls the charge if no ``label`` was given."""
        return self.title

    def _facts(self) -> tuple[tuple[str, str], ...]:
        """Settings worth telling in a report, as pairs of words."""
        return ()

    def _weights(self, names: Sequence[str]) -> tuple[Weight, ...]:
        """Released numbers worth showing beside the ``names`` of the features, the largest first."""
        return ()

    def _sizes(self) -> Sizes | None:
        """How large the parts of the model are, where it has clusters or components."""
        return None

    def _profiles(self, names: Sequence[str]) -> Profiles | None:
        """What the clusters or components are, by the ``names`` of the features."""
        return None

    def plan(self, features: int | Features) -> Planned:
        """What ``fit`` on this many features will do and cost. Reads no data.

        >>> from tacit.estimators import LogisticRegression
        >>> print(LogisticRegression(epsilon=1.0, norm=1.0, classes=[0, 1]).plan(4))
        ε = 1, δ = 0, add_remove of one row
          objective    ε = 1
          penalty 1.768, noise 1.768 per weight of the gradient
        """
        public = self._public(features, self._agreed(self._by_unit()))
        return Planned.of(public, self._recipe(public))

    def fit(self, X: Any, y: Any = None, units: Any = None) -> Any:
        """Fit to private rows in memory; the charge is made before they are used.

        A value that is not finite is missing, and is read by a public rule. Rows with a target outside what
        is declared contribute nothing. ``units`` names the unit of each row, of which at most
        ``rows_per_unit`` rows, chosen at random, are used. In a list, a row of another length than the bounds
        declare, or than most rows have, contributes nothing either.
        """
        return self._fit_taken(self._taken(X, y, units))

    def _fit_taken(self, taken: _Taken) -> Any:
        return self._fit(taken.described, taken.units is not None, lambda: taken, ())

    def fit_rows(self, features: int | Features, read: Read, *, assumptions: Sequence[str] = ()) -> Any:
        """Fit to private rows that ``read`` fetches, once, and only after the charge.

        ``features`` is what is public about them, and all that is known until then. ``read`` returns
        (X, y, units): units are expected where the ledger's unit is a column, or where ``rows_per_unit`` is
        above 1. ``assumptions`` are added to those of the guarantee.
        """
        return self._fit(features, self._by_unit(), lambda: self._taken(*read()), assumptions)

    def _fit(
        self, described: int | Features, by_unit: bool, read: Callable[[], _Taken], assumptions: Sequence[str]
    ) -> Any:
        payment = self._agreed(by_unit)
        public = self._public(described, payment)
        recipe = self._recipe(public)
        planned = Planned.of(public, recipe)
        if self.verbose:
            print(planned)
        source = Source(self.random_state)
        kind = "seeded" if source.seeded else planned.kind
        label = self.label or self._usual_label()
        copied = getattr(self, "_copied", False)
        if copied:
            tell_once(payment.ledger is not None)
        for doubt in planned.doubts:
            warnings.warn(doubt, CannotLearn, stacklevel=3)
        try:
            charge = payment.charge(planned.event, label, noise=kind, delta=planned.delta)
        except BudgetExceeded as refused:
            raise (refused_copy(refused) if copied else refused) from None
        with charge:
            self._forget()
            try:
                taken = read()
                if (found := taken.matrix.shape[1]) != public.width:
                    raise InvalidValue("X", f"{found} columns", f"{public.width}, as was planned")
                if (taken.units is not None) is not by_unit:
                    needed = "one per row, as the ledger or rows_per_unit= says" if by_unit else "left out"
                    raise InvalidValue("units", "given" if taken.units is not None else None, needed)
                keep = None if taken.units is None else bounded_units(taken.units, public.unit.rows, source)
                for name, fact in taken.named.items():
                    setattr(self, name, fact)
                rows = PrivateRows(taken.matrix, taken.targets, keep, taken.weights)
                self._carry_out(recipe, rows, source)
                self.event_ = planned.event
                self.guarantee_ = Guarantee(
                    planned.epsilon, planned.delta, planned.event, planned.relation, planned.unit, kind,
                    (CHOSEN, *taken.assumptions, *assumptions, *((FOLDS,) if copied else ())),
                )  # fmt: skip
            except BaseException:
                self._forget()
                raise
        return self

    def _forget(self) -> None:
        """Drop what an earlier fit set: its event paid for none of this one, and this one for none of it.

        A fit that fails midway leaves nothing either. One that the ledger refuses leaves the model as it was.
        """
        for name in [each for each in vars(self) if each.endswith("_") and not each.startswith("_")]:
            delattr(self, name)
        self.__dict__.pop("_evaluations", []).clear()

    def _taken(self, X: Any, y: Any, units: Any, weights: Any = None) -> _Taken:
        """The rows in one form, by their types and shapes alone."""
        width = self._declared_width()
        given.require_numbers(X)
        if self.supervised:
            given.require_targets(y, getattr(self, "classes", None))
        matrix = given.declared_matrix(X, width)
        aside = BaseEstimator()
        validate_data(aside, X if hasattr(X, "columns") else matrix, skip_check_array=True)
        features = getattr(X, "features", None)
        return _Taken(
            features if isinstance(features, Features) else matrix.shape[1],
            vars(aside),
            matrix,
            given.column("y", y, len(matrix)) if self.supervised else None,
            None if units is None else given.column("units", units, len(matrix)),
            given.assumed(X, width),
            None if weights is None else given.column("sample_weight", weights, len(matrix)),
        )

    def _by_unit(self) -> bool:
        """Whether rows will come with the name of their unit, as far as parameters tell."""
        column = None if self.ledger is None else getattr(getattr(self.ledger, "unit", None), "column", None)
        return column is not None or _validate.count("rows_per_unit", self.rows_per_unit, 1) > 1

    def _agreed(self, by_unit: bool) -> Payment:
        most = _validate.count("rows_per_unit", self.rows_per_unit, 1)
        unit = Unit("unit", most) if by_unit else Unit()
        return Payment.agreed(self.ledger, relation=Relation.of(self.relation), unit=unit, named=False)

    def _public(self, described: int | Features, payment: Payment) -> Public:
        features = described if isinstance(described, Features) else None
        width = len(features.names) if features is not None else _validate.count("features", described, 1)
        epsilon, delta = self._epsilon(), _validate.delta(self.delta)
        _validate.warn_if_weak(epsilon, delta, getattr(self, "population", None), stacklevel=5)
        return Public(epsilon, delta, payment.relation, payment.unit, width, features)

    def _epsilon(self) -> float:
        if self.fits_without_noise and isinstance(self.epsilon, float) and self.epsilon == math.inf:
            return math.inf
        return _validate.epsilon(self.epsilon)

    def describe(self, names: Sequence[str] | None = None) -> Description:
        """What the fitted model says of itself; all of it is public or was released.

        ``names`` are those of the features, for whoever knows them better than the model does: a pipeline
        whose first step made the features.
        """
        check_is_fitted(self, "guarantee_")
        classes = np.asarray(getattr(self, "classes_", ())).tolist()
        told = self._names(names)
        return Description(
            self.title, self._facts(), tuple(classes), self._weights(told),
            sizes=self._sizes(), profiles=self._profiles(told),
        )  # fmt: skip

    def _names(self, names: Sequence[str] | None) -> tuple[str, ...]:
        known = getattr(self, "feature_names_in_", None) if names is None else names
        if known is None:
            return tuple(f"feature {place}" for place in range(self.n_features_in_))
        if len(known) != self.n_features_in_:
            raise InvalidValue("names", len(known), f"one for each of {self.n_features_in_} features")
        return tuple(map(str, known))

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Parameters and released attributes, for a model file."""
        params = {name: each for name, each in self.get_params(deep=False).items() if name not in NEVER_SAVED}
        found = {name: getattr(self, name) for name in self.released if hasattr(self, name)}
        return {"params": params, "attributes": found}, {}

    @classmethod
    def _from_saved(cls, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
        if set(NEVER_SAVED) & set(state["params"]):
            raise ValueError("a parameter that is not saved")
        model = cls(**state["params"])
        for name, value in state["attributes"].items():
            if name not in cls.released:
                raise ValueError("an attribute that is not saved")
            setattr(model, name, value)
        return model
