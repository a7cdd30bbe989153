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

:meth:`PrivateEstimator.fit_table` walks it too: its rows stay in a table of an engine, and step 5 passes over
them block by block (:mod:`tacit.estimators.blocks`).

A subclass writes an ``__init__`` with its public parameters, :meth:`PrivateEstimator._recipe` (step 1),
:meth:`PrivateEstimator._carry_out` (step 5), a ``title`` and the names of the ``released`` attributes. An
entry in :mod:`tacit.estimators.registry` makes it known to model files, evaluation and the command line.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit import _validate
from tacit.data import given
from tacit.data.features import Features, declared_width
from tacit.data.units import bounded_units
from tacit.errors import BudgetExceeded, CannotLearn, InvalidValue
from tacit.estimators.blocks import PrivateRows, Rows, TableRows
from tacit.estimators.recipe import Planned, Public, Recipe
from tacit.guarantee import Guarantee
from tacit.ledger import Payment
from tacit.models.description import Description, Profiles, Sizes, Weight
from tacit.models.telling import Telling, refused_copy, tell_once
from tacit.randomness import Source
from tacit.relations import Relation, Unit

if TYPE_CHECKING:
    from tacit.tables import Table

__all__ = ["Planned", "PrivateEstimator", "PrivateRows", "Public", "Read", "Recipe", "Rows"]

Read = Callable[[], tuple[Any, Any, Any]]
"""Reads the private rows: (X, y, units), with None for a target or units that there are none of."""

CHOSEN = "the parameters of the model were chosen without the data"
"""An assumption of every fit."""
FOLDS = "which rows were handed to fit depended on no other row, unlike folds by position or by label"
"""An assumption of the fit of a copy, as cross-validation makes them."""
NEVER_SAVED = ("ledger", "random_state")
"""Parameters that stay out of model files."""


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


@dataclass(frozen=True)
class _Found:
    """The rows of a fit, what the fitted estimator says of its features, and what both assume."""

    rows: Rows
    named: Mapping[str, Any]
    assumptions: tuple[str, ...]


class PrivateEstimator(Telling):
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
    chosen: ClassVar[str] = CHOSEN
    """What is assumed about the parameters."""
    fits_without_noise: ClassVar[bool] = False
    """Whether ``epsilon=math.inf`` is allowed, for comparison."""
    buys_population: ClassVar[bool] = False
    """Whether ``population="dp"`` is allowed, which buys the number of rows."""

    fits_tables: ClassVar[bool] = False
    """Whether ``_carry_out`` reads its rows by :meth:`Rows.each` alone, so that ``fit_table`` is allowed."""

    def _recipe(self, public: Public) -> Recipe:
        """What the fit will do, from parameters and public facts. Refuses what cannot be done."""
        raise NotImplementedError

    def _carry_out(self, recipe: Any, rows: Any, source: Source) -> None:
        """Set the released attributes. Called once, inside the charge; raises nothing that rows decide.

        ``rows`` are :class:`PrivateRows`, and any :class:`Rows` where the class says ``fits_tables``.
        """
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
        by_unit = taken.units is not None
        return self._fit(self._agreed(by_unit), taken.described, lambda: taken, by_unit)

    def fit_rows(self, features: int | Features, read: Read, *, assumptions: Sequence[str] = ()) -> Any:
        """Fit to private rows that ``read`` fetches, once, and only after the charge.

        ``features`` is what is public about them, and all that is known until then. ``read`` returns
        (X, y, units): units are expected where the ledger's unit is a column, or where ``rows_per_unit`` is
        above 1. ``assumptions`` are added to those of the guarantee.
        """
        by_unit = self._by_unit()
        payment = self._agreed(by_unit)
        return self._fit(payment, features, lambda: self._taken(*read()), by_unit, assumptions)

    def fit_table(
        self,
        table: Table,
        target: str | None = None,
        *,
        exclude: Sequence[str] = (),
        transforms: Mapping[str, str] | None = None,
        norm: float | None = None,
    ) -> Any:
        """Fit to the rows of a private table, where they are: in files, on DuckDB or on Spark.

        ``table`` is one of :func:`tacit.tables.open`, with its filters and derived columns. The fit is
        charged to the ledger of the table, under its relation and for its unit, before a row is read;
        ``ledger``, ``relation`` and ``rows_per_unit`` of the estimator are left out, or say the same.
        Features and ``target`` are made by a :class:`~tacit.estimators.Preprocessor` of the table's schema,
        to which ``exclude``, ``transforms`` and ``norm`` are handed; the unit's column makes no feature.

        Returned is a pipeline of that preprocessor and this estimator, which is fitted then. With the same
        ``random_state`` it is the model that ``fit`` makes of the same rows in memory: bit by bit where the
        rows are added up in counts and whole numbers, up to rounding for linear models. Where a unit has more
        rows than count, both choose at random, and may choose others.

        Guarantee: that of ``fit``. Of each unit at most as many rows count as the table says, chosen by a
        keyed hash (:func:`tacit.data.reading.chosen_rows`). Memory holds one block of rows at a time;
        :class:`~tacit.estimators.GradientBoosting` keeps one or two bytes for each row and column.

        >>> import pandas as pd, pathlib, tacit, tempfile
        >>> from tacit.estimators import NaiveBayes
        >>> people = pd.DataFrame({"age": [20, 70] * 500, "ill": ["no", "yes"] * 500})
        >>> ill = tacit.Column("category", categories=("no", "yes"))
        >>> schema = tacit.Schema({"age": tacit.Column("integer", bounds=(0, 100)), "ill": ill})
        >>> place = pathlib.Path(tempfile.mkdtemp()) / "study.db"
        >>> ledger = tacit.Ledger.open(place, budget=tacit.Budget(1.0))
        >>> with tacit.tables.open(people, schema=schema, ledger=ledger) as table:
        ...     model = NaiveBayes(0.5, classes=["no", "yes"]).fit_table(table, "ill")
        >>> model.predict(pd.DataFrame({"age": [15, 90]})).tolist(), ledger.spent().epsilon
        (['no', 'yes'], 0.5)
        >>> ledger.close()
        """
        from sklearn.pipeline import Pipeline

        from tacit.data.preprocessor import Preprocessor

        if self.supervised and target is None:
            raise InvalidValue("target", None, "a column", "Name the column that is to be predicted.")
        if not self.supervised and target is not None:
            raise InvalidValue("target", target, "left out", "To make no feature of the column, exclude it.")
        excluded = [*exclude, *(name for name in table.schema if name == table.unit.column)]
        maker = Preprocessor(table.schema, target=target, norm=norm, transforms=transforms, exclude=excluded)
        maker.fit(dict.fromkeys(maker.columns, ()))
        self._fit_view(table, maker.features, TableRows.prepared(table.source, table.expression, maker))
        return Pipeline([("preprocessor", maker), ("model", self)])

    def _fit_view(self, table: Table, described: int | Features, rows: TableRows) -> Any:
        """Fit to ``rows`` of a table, with its conditions in the label of the charge."""
        self._require_tables()
        payment = self._agreed_with(table)
        table.source.require_open()
        conditions = [f"({one})" if " or " in one.lower() else one for one in table.conditions]
        about = f" where {' and '.join(conditions)}" if conditions else ""
        return self._fit(payment, described, lambda: rows, False, table.assumptions, about, rows.whole)

    def fit_blocks(
        self, features: int | Features, read: Callable[[], TableRows], *, assumptions: Sequence[str] = ()
    ) -> Any:
        """As :meth:`fit_rows`, for rows that stay on an engine, whose units are those of the ledger."""
        self._require_tables()
        return self._fit(self._agreed(self._by_unit()), features, read, False, assumptions)

    def _fit(
        self,
        payment: Payment,
        described: int | Features,
        read: Callable[[], _Taken | TableRows],
        by_unit: bool,
        assumptions: Sequence[str] = (),
        about: str = "",
        whole: bool = True,
    ) -> Any:
        public = self._public(described, payment, whole)
        made = described.assumptions if isinstance(described, Features) else ()
        recipe = self._recipe(public)
        planned = Planned.of(public, recipe)
        if self.verbose:
            print(planned)
        source = Source(self.random_state)
        kind = "seeded" if source.seeded else planned.kind
        label = (self.label or self._usual_label()) + about
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
                found = _bounded(read(), public, by_unit, source.apart())
                for name, fact in found.named.items():
                    setattr(self, name, fact)
                self._carry_out(recipe, found.rows, source)
                self.event_ = planned.event
                self.guarantee_ = Guarantee(
                    planned.epsilon, planned.delta, planned.event, planned.relation, planned.unit, kind,
                    (self.chosen, *found.assumptions, *made, *assumptions, *((FOLDS,) if copied else ())),
                )  # fmt: skip
            except BaseException:
                self._forget()
                raise
        return self

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

    def _fits_tables(self) -> bool:
        """Whether the model, with its parameters, needs no more of the rows than sums over blocks."""
        return self.fits_tables

    def _require_tables(self) -> None:
        """Refuse to fit to a table where the model needs more of the rows than sums over blocks."""
        if not self._fits_tables():
            needed = "an estimator that fits from sums and counts"
            advice = "Read the rows with tacit.data.reading.private_rows, and use fit."
            raise InvalidValue("estimator", type(self).__name__, needed, advice)

    def _agreed_with(self, table: Table) -> Payment:
        """The payment of a fit to a table: what the estimator's parameters say must not contradict it."""
        if self.ledger is not None and self.ledger is not table.ledger:
            raise InvalidValue("ledger", self.ledger, "left out, or the ledger of the table")
        relation, most = Relation.of(self.relation), _validate.count("rows_per_unit", self.rows_per_unit, 1)
        unit = None if most == 1 else Unit(table.unit.column or "unit", most)
        said = None if relation is Relation.ADD_REMOVE else relation
        return Payment.agreed(table.ledger, relation=said, unit=unit, required=True)

    def _by_unit(self) -> bool:
        """Whether rows will come with the name of their unit, as far as parameters tell."""
        column = None if self.ledger is None else getattr(getattr(self.ledger, "unit", None), "column", None)
        return column is not None or _validate.count("rows_per_unit", self.rows_per_unit, 1) > 1

    def _agreed(self, by_unit: bool) -> Payment:
        most = _validate.count("rows_per_unit", self.rows_per_unit, 1)
        unit = Unit("unit", most) if by_unit else Unit()
        return Payment.agreed(self.ledger, relation=Relation.of(self.relation), unit=unit, named=False)

    def _public(self, described: int | Features, payment: Payment, whole: bool = True) -> Public:
        features = described if isinstance(described, Features) else None
        width = len(features.names) if features is not None else _validate.count("features", described, 1)
        epsilon, delta = self._epsilon(), _validate.delta(self.delta)
        _validate.warn_if_weak(epsilon, delta, getattr(self, "population", None), stacklevel=5)
        return Public(epsilon, delta, payment.relation, payment.unit, width, features, whole)

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


def _bounded(taken: _Taken | TableRows, public: Public, by_unit: bool, draw: Source) -> _Found:
    """The rows with at most as many of a unit as count; ``draw`` chooses them."""
    if isinstance(taken, TableRows):
        named = {"n_features_in_": public.width, **taken.named}
        return _Found(taken.bounded(public.unit, draw), named, ())
    if (found := taken.matrix.shape[1]) != public.width:
        raise InvalidValue("X", f"{found} columns", f"{public.width}, as was planned")
    if (taken.units is not None) is not by_unit:
        needed = "one per row, as the ledger or rows_per_unit= says" if by_unit else "left out"
        raise InvalidValue("units", "given" if taken.units is not None else None, needed)
    keep = None if taken.units is None else bounded_units(taken.units, public.unit.rows, draw)
    rows = PrivateRows(taken.matrix, taken.targets, keep, taken.weights, taken.units)
    return _Found(rows, taken.named, taken.assumptions)
