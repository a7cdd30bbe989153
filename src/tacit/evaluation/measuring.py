"""How good a model is on hold-out rows: bought with budget, or exact and free on public rows.

The road of an evaluation: public facts (model, classes, bins, declared groups) → the cells of a
:class:`~tacit.evaluation.tally.Tally` → noise of its sensitivity, and the event → the charge → the rows, each
scored by itself → noisy counts → figures with intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate, events, mechanisms
from tacit.data.given import assumed, column, require_targets
from tacit.data.units import bounded_units
from tacit.errors import InvalidValue
from tacit.evaluation import figures as made
from tacit.evaluation.public import PublicRows
from tacit.evaluation.result import Evaluation
from tacit.evaluation.scoring import Scorer
from tacit.evaluation.tally import Tally, tally_of
from tacit.guarantee import Guarantee
from tacit.ledger import Ledger
from tacit.ledger.payment import Payment
from tacit.randomness import Source
from tacit.relations import Relation, Unit

__all__ = ["ReadRows", "evaluate", "evaluate_rows", "noise_for"]

Array = NDArray[Any]

ReadRows = Callable[[], tuple[Any, Any, Any, Mapping[str, Any] | None]]
"""Reads rows: X, the targets, the unit of each row or None, the labels of groups by name or None."""


def evaluate(
    model: Any,
    X: Any,
    y: Any,
    *,
    epsilon: float | None = None,
    delta: float = 0.0,
    public: bool = False,
    ledger: Ledger | None = None,
    label: str = "evaluation",
    groups: Any = None,
    bins: int = 50,
    bounds: Any = None,
    target_bounds: tuple[float, float] | None = None,
    confidence: float = 0.95,
    random_state: int | None = None,
    relation: Relation | str = "add_remove",
    population: int | None = None,
    units: Any = None,
    rows_per_unit: int = 1,
) -> Evaluation:
    """Evaluate a fitted classifier or regressor on hold-out rows.

    Give ``epsilon`` (and ``delta``) if the rows are private, or ``public=True``: then all is exact and free.
    ``groups`` asks for figures by declared group: ``{"sex": (labels, ["Female", "Male"])}``.
    ``population`` is the number of rows, if that is public. ``units`` names the unit of each row, if a unit
    may have several rows, of which ``rows_per_unit``, chosen at random, are used.

    Guarantee: ``relation`` of one row, or of one unit. Everything comes from one vector of noisy counts over
    fixed cells, charged to the ``ledger``, if there is one, before the rows are looked at.

    Sensitivity: a row falls into one cell of each block, so between neighbours the vector moves by 1 per
    block in ℓ1 (``replace_one``: 2) and, for b blocks, by √b in ℓ2 (``replace_one``: √(2b)); for units of
    several rows, ``rows_per_unit`` times as far. The blocks are: for two classes, score bin × true class; for
    more, confidence bin × whether right, and true × predicted class; and for each name in ``groups``,
    group × prediction × class (for more than two classes, group × whether right).

    Event: discrete Laplace noise, charged as ``Pure(epsilon)``; or discrete Gaussian noise (Canonne, Kamath
    and Steinke 2020), charged as ``ZeroConcentrated``, where ``delta`` makes that the smaller.

    A ``y`` stored in another type than the classes, text for numbers say, is refused before the charge.
    Labels that are no class of the model, scores that are not finite, rows with a non-finite value and rows
    for which the model fails fall into a cell of their own, which no figure uses. The number of rows is not
    read: accuracy is the noisy number of right predictions over the noisy total. Of two classes, the second
    is predicted where its score is above ½.

    A regressor needs ``target_bounds`` (l, h): targets and predictions are clipped to them. With w = h − l,
    residuals r and u = 2(y − l)/w − 1, the sums of 1, ``|r|/w``, (r/w)², (r/w)⁴, u and u² are released, each
    value at most 1 in size: one row moves the vector by 6 in ℓ1 (``replace_one``: also 6, n being the same
    and u moving by 2) and by √6 (√8) in ℓ2. Values are rounded to multiples of 2⁻²⁰, so sums are exact.

    The cell of a row depends on that row alone (see :mod:`tacit.evaluation.alone`): scikit-learn's own
    classes, and pipelines of them, are called with blocks of one size in which a row's place and neighbours
    make no difference to its score, not even in the last bit; any other model is copied for each row, which
    takes longer, and must be one that can be copied. What a model raises or warns of is not shown.
    ``bounds`` (lower, upper) are publicly known bounds of the columns, to which values are clipped first.

    Intervals are found by simulation from the noisy counts alone: other rows from the same source, and the
    noise again. They take rows as independent. An r² whose interval has no lower end, as the noise on the
    spread of the targets is as large as that spread, is None: it is not determined at this ε. Calibration
    error and gaps, which noise pushes up, are corrected by the median of the simulated error.

    >>> from sklearn.linear_model import LogisticRegression
    >>> x = np.linspace(-3, 3, 2000)[:, None]
    >>> y = (x[:, 0] > 0).astype(int)
    >>> result = evaluate(LogisticRegression().fit(x, y), x, y, epsilon=1.0, random_state=1)
    >>> result.accuracy > 0.97, result.auroc > 0.97, result.guarantee.epsilon
    (True, True, 1.0)
    """
    _one_of(epsilon, public)
    if groups is not None and not isinstance(groups, Mapping):
        advice = "The unit that each row belongs to is given by units=."
        raise InvalidValue("groups", type(groups).__name__, "declared groups by name", advice)
    for name, pair in (groups or {}).items():
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not len(pair[1]):
            example = "groups={'sex': (labels, ['Female', 'Male'])}."
            raise InvalidValue(f"groups[{name!r}]", type(pair).__name__, "labels and categories", example)
    rows = _Rows.of(X, y, units, {name: labels for name, (labels, _) in (groups or {}).items()})
    categories = {name: declared for name, (_, declared) in (groups or {}).items()}
    tally = tally_of(model, bins, categories, target_bounds, rows.targets if public else None)
    require_targets(y, tally.classes or None)
    job = _Job.of(
        model, tally, epsilon, delta, ledger, label, bounds, confidence, random_state, relation, population,
        units is not None, rows_per_unit,
    )  # fmt: skip
    job.scorer.check(X, len(rows.targets))
    return job.run(lambda: rows)


def evaluate_rows(
    model: Any, read: ReadRows, *,
    epsilon: float | None = None, delta: float = 0.0, public: bool = False,
    ledger: Ledger | None = None, label: str = "evaluation",
    groups: Mapping[str, Sequence[Any]] | None = None, bins: int = 50, bounds: Any = None,
    target_bounds: tuple[float, float] | None = None, confidence: float = 0.95,
    random_state: int | None = None, relation: Relation | str = "add_remove",
    population: int | None = None, units: bool = False, rows_per_unit: int = 1,
) -> Evaluation:  # fmt: skip
    """Evaluate a fitted model on rows that ``read`` brings, once they are paid for.

    As :func:`evaluate`, for rows that are not in memory yet: ``read`` is called once, and for private rows
    only after the charge. It returns X, the targets, the unit of each row (None without ``units``) and the
    labels of each group by name (None without ``groups``). What is public about the rows is declared:
    ``groups`` are the categories alone, ``{"sex": ["Female", "Male"]}``, and ``units`` says whether a unit
    may have several rows.

    >>> from sklearn.linear_model import LogisticRegression
    >>> x = np.linspace(-3, 3, 2000)[:, None]
    >>> model = LogisticRegression().fit(x, x[:, 0] > 0)
    >>> result = evaluate_rows(model, lambda: (x, x[:, 0] > 0, None, None), epsilon=1.0, random_state=1)
    >>> result.accuracy > 0.97, result.guarantee.epsilon
    (True, 1.0)
    """
    _one_of(epsilon, public)
    categories = dict(groups or {})

    def checked() -> _Rows:
        X, y, whose, labels = read()
        if (whose is not None) != units:
            given = "the units of rows" if whose is not None else "no units"
            raise InvalidValue("read()", given, "to give units exactly if units=True was declared")
        if set(labels or ()) != set(categories):
            raise InvalidValue("read()", sorted(labels or ()), f"to give labels of {sorted(categories)}")
        return _Rows.of(X, y, whose, dict(labels or {}))

    early = checked() if public else None
    tally = tally_of(model, bins, categories, target_bounds, None if early is None else early.targets)
    job = _Job.of(
        model, tally, epsilon, delta, ledger, label, bounds, confidence, random_state, relation, population,
        units, rows_per_unit,
    )  # fmt: skip
    if early is not None:
        job.scorer.check(early.X, len(early.targets))
        return job.run(lambda: early)
    job.scorer.check_unread()

    def rows() -> _Rows:
        found = checked()
        job.scorer.check(found.X, len(found.targets))
        return found

    return job.run(rows)


@dataclass(frozen=True)
class _Rows:
    """Rows to evaluate on, of which each column is as long as the targets."""

    X: Any
    targets: Array
    units: Array | None
    labels: Mapping[str, Array]

    @classmethod
    def of(cls, X: Any, y: Any, units: Any, labels: Mapping[str, Any]) -> _Rows:
        targets = column("y", y)
        whose = None if units is None else column("units", units)
        named = {name: column(f"labels of {name!r}", values) for name, values in labels.items()}
        for name, values in {**named, **({} if whose is None else {"units": whose})}.items():
            if len(values) != len(targets):
                raise InvalidValue(name, "another number of values", "as many as there are targets")
        return cls(X, targets, whose, named)


@dataclass(frozen=True)
class _Job:
    """An evaluation that is planned: everything about it is public but the rows."""

    model: Any
    tally: Tally
    scorer: Scorer
    payment: Payment
    noise: mechanisms.DiscreteLaplace | mechanisms.DiscreteGaussian | None
    epsilon: float
    delta: float
    label: str
    bounds: Any
    confidence: float
    population: int | None
    source: Source

    @classmethod
    def of(
        cls, model: Any, tally: Tally, epsilon: float | None, delta: float, ledger: Ledger | None, label: str,
        bounds: Any, confidence: float, random_state: int | None, relation: Relation | str,
        population: int | None, units: bool, rows_per_unit: int,
    ) -> _Job:  # fmt: skip
        """Check the parameters and make the noise; without ``epsilon`` there is none, and no charge."""
        source = Source(random_state)
        level = _validate.open_probability("confidence", confidence)
        most = _validate.count("rows_per_unit", rows_per_unit, 1)
        if population is not None and _validate.count("population", population) >= 0 and units:
            advice = "left out with units=, of which some rows may not be used"
            raise InvalidValue("population", population, advice)
        unit = Unit("unit", most) if units else Unit()
        payment = Payment.agreed(
            None if epsilon is None else ledger, relation=Relation.of(relation), unit=unit, named=False
        )
        noise, paid = None, 0.0
        if epsilon is not None:
            noise = noise_for(
                tally, _validate.epsilon(epsilon), delta, payment.relation, payment.unit, source
            )
            paid = 0.0 if isinstance(noise.event, events.Pure) else _validate.delta(delta)
        return cls(
            model, tally, tally.scorer(model, bounds), payment, noise, float(epsilon or 0.0), paid, label,
            bounds, level, population, source,
        )  # fmt: skip

    def run(self, read: Callable[[], _Rows]) -> Evaluation:
        """Charge, read, count, add the noise; then figures and intervals."""
        if self.noise is None:
            rows = read()
            released, free = self._counted(rows)
        else:
            with self.payment.charge(
                self.noise.event, self.label, noise=self.noise.noise, delta=self.delta
            ):
                rows = read()
                exact, free = self._counted(rows)
                released = self.noise(exact)
        guarantee = None
        if self.noise is not None:
            guarantee = Guarantee(
                self.epsilon, self.delta, self.noise.event, self.payment.relation, self.payment.unit,
                self.noise.noise,
                ("bins, classes, groups and bounds were chosen without the rows",
                 *assumed(rows.X, getattr(self.model, "n_features_in_", None)),
                 *self.scorer.assumed(rows.X)),
            )  # fmt: skip
        if self.population is not None:
            released = self.tally.with_total(released, self.population)
        return _evaluation(
            self.tally, released, free, self.noise, self.source, self.confidence, guarantee, self.label
        )

    def _counted(self, rows: _Rows) -> tuple[Array, PublicRows]:
        """The exact counts; of each unit, as many rows as the guarantee is for."""
        keep = None if rows.units is None else bounded_units(rows.units, self.payment.unit.rows, self.source)
        return self.tally.measure(
            self.model, rows.X, rows.targets, rows.labels, keep, self.noise is None, self.bounds
        )


def _one_of(epsilon: float | None, public: bool) -> None:
    """Refuse rows that are neither declared public nor paid for, or both."""
    if (epsilon is None) == (not public):
        given = "public rows and epsilon" if public else None
        advice = "epsilon=0.5, say, for private rows; public=True for rows that anyone may see."
        raise InvalidValue("epsilon or public", given, "given, exactly one of them", advice)


def _evaluation(
    tally: Tally, vector: Array, free: PublicRows, noise: Any, source: Source, confidence: float,
    guarantee: Guarantee | None, label: str,
) -> Evaluation:  # fmt: skip
    """Figures and intervals from the released vector: post-processing, which costs nothing."""
    truth, drawn = tally.simulated(vector, noise, source)
    centre, draws = tally.figures(truth), tally.figures(drawn)
    values = {name: free.figures.get(name, float(found)) for name, found in tally.figures(vector).items()}
    intervals = tally.intervals(vector, values, truth, drawn, confidence)
    if noise is None:
        known = tally.of_public(vector, values, truth, drawn, confidence)
        for name, (low, high) in {**known, **free.intervals(confidence)}.items():
            least, most = tally.limits(name)
            intervals[name] = max(low, least), min(high, most)
    figures: dict[str, float | None] = {}
    for name, value in values.items():
        pushed = noise is not None and name.endswith((" gap", "calibration error"))
        shown = value - made.median_error(float(centre[name]), draws[name]) if pushed else value
        unknown = noise is not None and not all(map(math.isfinite, intervals[name]))
        figures[name] = None if unknown or math.isnan(shown) else float(np.clip(shown, *tally.limits(name)))
    blocks = tally.split(vector)
    main = next(iter(blocks.values()))
    scored = tally.kind == "two classes" and tally.scored == "probability"
    confusion = None
    if tally.kind == "more classes":
        table = blocks["confusion"][:-1].reshape(len(tally.classes), -1)
        confusion = tuple(tuple(float(cell) for cell in line) for line in table)
    return Evaluation(
        tally.kind, figures, intervals, guarantee, confidence, label,
        rows=float(main[0] if tally.kind == "regression" else main[:-1].sum()),
        reliability=tuple(made.reliability(main, tally.bins)) if scored else (),
        classes=tuple(value.item() if isinstance(value, np.generic) else value for value in tally.classes),
        confusion=confusion,
        groups=tally.by_group(figures),
    )  # fmt: skip


def noise_for(
    tally: Tally, epsilon: float, delta: float, relation: Relation, unit: Unit, source: Source | None = None
) -> mechanisms.DiscreteLaplace | mechanisms.DiscreteGaussian:
    """Discrete Laplace noise, or with δ discrete Gaussian noise, whichever has the smaller variance."""
    reach = math.ceil(tally.sensitivity(relation, 1)) * unit.rows
    laplace = mechanisms.DiscreteLaplace(reach, epsilon, random_state=source)
    if _validate.delta(delta) == 0:
        return laplace
    length = math.nextafter(tally.sensitivity(relation, 2) * unit.rows, math.inf)
    gaussian = mechanisms.DiscreteGaussian(length, epsilon, delta, random_state=source)
    smaller = length**2 / (2 * gaussian.event.rho) < 2 * (reach / epsilon) ** 2
    return gaussian if smaller else laplace
