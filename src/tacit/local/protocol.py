"""Learning linear models from local reports: one report per person, and nobody who holds the rows of all.

People are divided into as many groups as there are ``steps``, at random. In each step the collector
publishes the weights of the model so far, and every person of the next group computes the gradient of their
own loss at these weights, randomizes it with :class:`~tacit.local.PrivUnit`, and sends the report. The
collector moves the weights against the mean of the reports. The model is the average of the weights of the
second half of all steps.

**Relation and sensitivity.** ``replace_one`` of one person's row, features and label. The row has a part in
one gradient of one step, and in nothing else: the order of people and the questions of the collector depend
on public facts and on earlier reports alone. The gradient is clipped to ``clip_norm`` by PrivUnit, which is
ε-private for any two vectors. A person whose label is none of the declared ones, or whose values are all
missing, has the gradient zero, and sends a report like everybody else.

**Event.** ``Pure(ε)``: given the earlier reports, the report of a person is ε-private for any two rows, and
all later reports are computed from other people's rows and from earlier reports (sequential interactivity;
Duchi, Jordan and Wainwright 2018). What is learnt from the reports is post-processing.

**What it costs.** Every report has noise of its own, whose variance is about d·(π/2)·((e^ε + 1)/(e^ε − 1))²
times the square of ``clip_norm`` for d weights and small ε; a central model adds noise once, to a sum over
all rows. ``benchmarks/local_means.py`` compares both on Adult.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit import _validate
from tacit.data import given
from tacit.data.arithmetic import products
from tacit.data.features import Features, declared_width
from tacit.data.space import Space
from tacit.errors import BudgetExceeded, CannotLearn, InvalidValue
from tacit.guarantee import Guarantee
from tacit.ledger import Payment
from tacit.local.oracle import ASSUMPTIONS
from tacit.local.privunit import PrivUnit
from tacit.models.description import Description, Weight, numbered
from tacit.models.telling import Telling, refused_copy, tell_once
from tacit.randomness import Source
from tacit.relations import Relation, Unit

__all__ = ["LocalModel", "Protocol"]

Array = NDArray[np.float64]
Read = Callable[[], tuple[Any, Any]]
"""Reads the rows of all people: (X, y)."""

CHOSEN = "the parameters of the model were chosen without the data"
DROWNED = 0.5
"""Noise of the mean of all reports, as a part of ``clip_norm``, from which on nothing can be learnt."""


@dataclass(frozen=True)
class Protocol:
    """What people and the collector agree on before anybody reports; all of it is public."""

    mechanism: PrivUnit
    space: Space
    outputs: int
    steps: int
    learning_rate: float

    def groups(self, people: int, source: Source) -> list[NDArray[np.int64]]:
        """Who reports in which step: people in a random order, cut into equal parts."""
        order = np.argsort(source.words(people), kind="stable").astype(np.int64)
        return np.array_split(order, self.steps)

    def learn(self, ask: Callable[[int, Array], NDArray[np.float32]]) -> Array:
        """The weights (width, outputs) that the collector learns; ``ask(step, weights)`` collects reports."""
        weights = np.zeros((self.space.width, self.outputs))
        total, counted = np.zeros_like(weights), 0
        for step in range(self.steps):
            reports = ask(step, weights)
            if len(reports):
                mean = reports.mean(axis=0, dtype=np.float64).reshape(weights.shape)
                weights = weights - self.learning_rate * mean
            if step >= self.steps // 2:
                total, counted = total + weights, counted + 1
        return total / counted


class LocalModel(Telling):
    """Base of the linear models from local reports. Every person sends one report in all.

    Subclasses say what the loss is: :meth:`_targets`, :meth:`_residuals` and how many ``outputs`` it has.
    """

    title: ClassVar[str]
    """What the model is, in a few words."""
    released: ClassVar[tuple[str, ...]] = (
        "weights_", "coef_", "intercept_", "bounds_", "norm_", "n_features_in_", "feature_names_in_",
    )  # fmt: skip
    """The fitted attributes that are public or were released."""
    predicts_from: ClassVar[tuple[str, ...]] = ("weights_", "bounds_", "norm_", "fit_intercept")
    """What a prediction reads, which treats every row by itself."""
    reach: ClassVar[float]
    """The length of weights, for rows of length 1, that the learning rate is made for."""
    fastest: ClassVar[float]
    """The largest learning rate that is chosen."""

    epsilon: float
    bounds: Any
    norm: float | None
    steps: int
    clip_norm: float | None
    learning_rate: float | None
    fit_intercept: bool
    ledger: Any
    label: str | None
    random_state: int | None

    def _outputs(self) -> int:
        """How many scores a row has."""
        raise NotImplementedError

    def _usual_clip_norm(self) -> float:
        """The clip norm of gradients of rows of length 1, unless one is given."""
        raise NotImplementedError

    def _targets(self, y: NDArray[Any]) -> Array:
        """Targets (people, outputs), NaN for a person without one."""
        raise NotImplementedError

    def _residuals(self, scores: Array, targets: Array) -> Array:
        """The derivatives of each person's loss by the scores."""
        raise NotImplementedError

    def _keep(self, coefficients: Array, intercepts: Array) -> None:
        """Set ``coef_`` and ``intercept_`` in scikit-learn's shapes."""
        raise NotImplementedError

    def protocol(self, features: int | Features, population: int) -> Protocol:
        """What people and the collector agree on, for so many features and people. Reads no data.

        >>> from tacit.local import LocalLogisticRegression
        >>> model = LocalLogisticRegression(epsilon=2.0, norm=1.0, classes=[0, 1])
        >>> protocol = model.protocol(20, population=10_000)
        >>> protocol.steps, protocol.mechanism.dimension, protocol.mechanism.event
        (50, 21, Pure(epsilon=2.0))
        """
        known = features if isinstance(features, Features) else None
        width = len(known.names) if known is not None else _validate.count("features", features)
        space = Space.declared(
            width, bounds=self.bounds, norm=self.norm, features=known, intercept=bool(self.fit_intercept)
        )
        clip_norm = self._usual_clip_norm() if self.clip_norm is None else self.clip_norm
        outputs = self._outputs()
        mechanism = PrivUnit(
            dimension=max(2, space.width * outputs), epsilon=self.epsilon, clip_norm=clip_norm,
            random_state=self.random_state,
        )  # fmt: skip
        people = max(1, _validate.count("population", population))
        steps = min(_validate.count("steps", self.steps, 1), people)
        if self.learning_rate is not None:
            rate = _validate.positive("learning_rate", self.learning_rate)
        else:
            rate = min(self.fastest, self.reach * math.sqrt(people) / (mechanism.length * steps))
        return Protocol(mechanism, space, outputs, steps, rate)

    def fit(self, X: Any, y: Any) -> Any:
        """Ask every row once, as if it were a person with a device of their own; the charge comes first.

        A value that is not finite is missing, and counts as the middle of its bounds (as 0 where only a norm
        is known). A row with a target outside what is declared reports a randomized gradient of zero.
        """
        given.require_numbers(X)
        given.require_targets(y, getattr(self, "classes", None))
        matrix = given.declared_matrix(X, declared_width(self.bounds))
        targets = given.column("y", y, len(matrix))
        features = getattr(X, "features", None)
        aside = BaseEstimator()
        validate_data(aside, X if hasattr(X, "columns") else matrix, skip_check_array=True)
        return self._fit(
            features if isinstance(features, Features) else matrix.shape[1],
            len(matrix),
            lambda: (matrix, targets),
            vars(aside),
            given.assumed(X, declared_width(self.bounds)),
        )

    def fit_rows(self, features: int | Features, population: int, read: Read) -> Any:
        """Fit to rows that ``read`` fetches, once, and only after the charge.

        ``features`` and ``population``, the number of people, are public. A row of another length than there
        are features counts as missing.
        """
        width = len(features.names) if isinstance(features, Features) else features

        def rows() -> tuple[NDArray[Any], NDArray[Any]]:
            X, y = read()
            matrix = given.declared_matrix(X, width)
            if matrix.shape[1] != width:
                raise InvalidValue("X", f"{matrix.shape[1]} columns", f"{width} columns, as declared")
            return matrix, given.column("y", y, len(matrix))

        return self._fit(features, population, rows, {"n_features_in_": width}, (given.STORED,))

    def _fit(
        self, features: int | Features, population: int, read: Read, named: dict[str, Any],
        assumptions: tuple[str, ...],
    ) -> Any:  # fmt: skip
        payment = Payment.agreed(self.ledger, relation=Relation.REPLACE_ONE, unit=Unit(name="person"))
        protocol = self.protocol(features, population)
        mechanism = protocol.mechanism
        _validate.warn_if_weak(mechanism.epsilon, stacklevel=4)
        self._warn_if_drowned(mechanism, population)
        copied = getattr(self, "_copied", False)
        if copied:
            tell_once(payment.ledger is not None)
        try:
            charge = payment.charge(mechanism.event, self.label or self.title, noise=mechanism.noise)
        except BudgetExceeded as refused:
            raise (refused_copy(refused) if copied else refused) from None
        with charge:
            self._forget()
            try:
                matrix, targets = read()
                for name, fact in named.items():
                    setattr(self, name, fact)
                self._learn(protocol, matrix, self._targets(targets))
                self.event_ = mechanism.event
                made = features.assumptions if isinstance(features, Features) else ()
                self.guarantee_ = Guarantee(
                    mechanism.epsilon, 0.0, mechanism.event, payment.relation, payment.unit, mechanism.noise,
                    (CHOSEN, *ASSUMPTIONS, *assumptions, *made),
                )  # fmt: skip
            except BaseException:
                self._forget()
                raise
        return self

    def _warn_if_drowned(self, mechanism: PrivUnit, population: int) -> None:
        """Say, from public facts, that the reports of so few people cannot be learnt from."""
        longest = mechanism.clip_norm or 1.0
        noise = math.sqrt(mechanism.variance(0.0, max(1, population)))
        if noise > DROWNED * longest:
            enough = math.ceil(population * (noise / (0.1 * longest)) ** 2)
            warnings.warn(
                f"These reports cannot be expected to teach anything: the mean of {population} of them has "
                f"noise of norm {noise:.3g} beside a gradient of at most {longest:.3g}. About {enough} "
                "people would do, or a larger epsilon=, or fewer features.",
                CannotLearn,
                stacklevel=4,
            )

    def _learn(self, protocol: Protocol, matrix: NDArray[Any], targets: Array) -> None:
        space, mechanism = protocol.space, protocol.mechanism
        groups = protocol.groups(len(matrix), mechanism._source)

        def ask(step: int, weights: Array) -> NDArray[np.float32]:
            people = groups[step]
            return self._reports(protocol, weights, matrix[people], targets[people])

        weights = protocol.learn(ask)
        self.weights_ = weights
        self.bounds_ = None if np.isinf(space.lower).any() else np.array([space.lower, space.upper])
        self.norm_ = None if self.norm is None and self.bounds is not None else space.norm
        self._keep(*space.unscaled(weights))

    def _reports(
        self, protocol: Protocol, weights: Array, matrix: NDArray[Any], targets: Array
    ) -> NDArray[np.float32]:
        """What these people report when they are asked for their gradients at ``weights``."""
        rows = protocol.space.scaled(matrix)
        with np.errstate(over="ignore", invalid="ignore"):
            residuals = self._residuals(products(rows, weights), targets)
            residuals[np.isnan(targets).any(axis=1)] = 0.0
            gradients = (rows[:, :, None] * residuals[:, None, :]).reshape(len(rows), weights.size)
        spare = protocol.mechanism.dimension - gradients.shape[1]
        if spare:
            gradients = np.pad(gradients, ((0, 0), (0, spare)))
        return protocol.mechanism.randomize(gradients)[:, : gradients.shape[1] - spare]

    def _space(self) -> Space:
        """The space of the fitted model, from what was released."""
        width = self.n_features_in_
        lower, upper = (np.full(width, -np.inf), np.full(width, np.inf))
        if self.bounds_ is not None:
            lower, upper = np.reshape(self.bounds_, (2, width))
        return Space.of(lower, upper, self.norm_, intercept=bool(self.fit_intercept))

    def _scores(self, X: Any) -> Array:
        """The scores of each row, from that row alone."""
        check_is_fitted(self, "weights_")
        given.require_numbers(X)
        found = validate_data(
            self, X, dtype="numeric", reset=False, accept_sparse=False, ensure_all_finite=False
        )
        return products(self._space().scaled(found), np.asarray(self.weights_))

    def describe(self) -> Description:
        """What the fitted model says of itself; all of it is public or was released."""
        check_is_fitted(self, "guarantee_")
        names = tuple(getattr(self, "feature_names_in_", numbered(self.n_features_in_)))
        values = np.atleast_2d(self.coef_)
        classes = tuple(np.asarray(getattr(self, "classes_", ())).tolist())
        outputs = [str(label) for label in classes] if len(values) > 1 else [""]
        weights = [
            Weight(output, str(name), float(values[i, j]))
            for i, output in enumerate(outputs)
            for j, name in enumerate(names)
        ]
        ranked = tuple(sorted(weights, key=lambda one: -abs(one.value)))
        facts = (("steps", str(self.steps)), ("features", str(self.n_features_in_)))
        return replace(Description(self.title, facts, classes), weights=ranked)
