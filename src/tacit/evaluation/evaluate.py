"""Evaluation: how good a model is on hold-out rows, bought with budget, or free on public rows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate, events, mechanisms
from tacit.data.given import assumed, column
from tacit.data.units import bounded_units
from tacit.errors import InvalidValue, TacitError
from tacit.evaluation import figures as made
from tacit.evaluation.tally import Task, task_of
from tacit.guarantee import Guarantee
from tacit.ledger import Ledger
from tacit.randomness import Source
from tacit.relations import Relation, Unit

__all__ = ["Evaluation", "evaluate"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Evaluation:
    """How good a model is, with intervals; made by :func:`evaluate`.

    ``figures`` and ``intervals`` are by name: ``"accuracy"``, ``"auroc"``, ``"sex=Male: accuracy"``, ``"sex:
    accuracy gap"``. A figure is None where the noisy counts leave nothing to divide by. An interval covers
    what the figure would be on the population that the rows are a sample of, each with probability
    ``confidence``; it includes the privacy noise. ``guarantee`` is None for public rows.
    """

    kind: str
    figures: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float, float]]
    guarantee: Guarantee | None = None
    confidence: float = 0.95
    label: str = "evaluation"
    rows: float | None = None
    reliability: tuple[Mapping[str, float | None], ...] = ()
    classes: tuple[Any, ...] = ()
    confusion: tuple[tuple[float, ...], ...] | None = None
    groups: Mapping[str, Mapping[str, Mapping[str, float | None]]] = field(default_factory=dict)

    @property
    def accuracy(self) -> float | None:
        """The share of rows whose class is predicted."""
        return self.figures.get("accuracy")

    @property
    def auroc(self) -> float | None:
        """The probability that a row of the second class scores higher than one of the first."""
        return self.figures.get("auroc")

    @property
    def calibration(self) -> dict[str, Any] | None:
        """The expected calibration error and the table of predicted and observed shares it comes from."""
        if "calibration error" not in self.figures:
            return None
        return {"error": self.figures["calibration error"], "table": list(self.reliability)}

    def to_dict(self) -> dict[str, Any]:
        """In JSON's terms; an end of an interval that is infinite is None."""
        guarantee = None if self.guarantee is None else json.loads(self.guarantee.to_json())
        return {
            "kind": self.kind,
            "figures": dict(self.figures),
            "intervals": {
                name: [end if math.isfinite(end) else None for end in ends]
                for name, ends in self.intervals.items()
            },
            "guarantee": guarantee,
            "confidence": self.confidence,
            "label": self.label,
            "rows": self.rows,
            "reliability": [dict(line) for line in self.reliability],
            "classes": list(self.classes),
            "confusion": None if self.confusion is None else [list(line) for line in self.confusion],
            "groups": {name: {k: dict(v) for k, v in each.items()} for name, each in self.groups.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Evaluation:
        """The evaluation that :meth:`to_dict` described."""
        try:
            rest = dict(data)
            guarantee, confusion = rest.pop("guarantee"), rest.pop("confusion")
            ends = {
                name: (-math.inf if low is None else float(low), math.inf if high is None else float(high))
                for name, (low, high) in rest.pop("intervals").items()
            }
            return cls(
                intervals=ends,
                guarantee=None if guarantee is None else Guarantee.from_json(json.dumps(guarantee)),
                confusion=None if confusion is None else tuple(tuple(line) for line in confusion),
                classes=tuple(rest.pop("classes")),
                reliability=tuple(rest.pop("reliability")),
                **rest,
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidValue("evaluation", type(data).__name__, "as to_dict() makes it") from None

    def __str__(self) -> str:
        source = "public rows, exact" if self.guarantee is None else "private rows"
        lines = [f"{self.label}: {self.kind}, on {source}; {self.confidence:.0%} intervals"]
        wide = max(map(len, self.figures), default=0)
        for name, value in self.figures.items():
            low, high = self.intervals[name]
            shown = "unknown" if value is None else f"{value:.4f}"
            lines.append(f"  {name:<{wide}}  {shown}  ({low:.4g} to {high:.4g})")
        return "\n".join([*lines, *([] if self.guarantee is None else [str(self.guarantee)])])


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
    groups_of: Mapping[str, tuple[Any, Sequence[Any]]] | None = None,
    bins: int = 50,
    bounds: Any = None,
    target_bounds: tuple[float, float] | None = None,
    confidence: float = 0.95,
    random_state: int | None = None,
    relation: Relation | str = "add_remove",
    rows: int | None = None,
    groups: Any = None,
    rows_per_group: int = 1,
) -> Evaluation:
    """Evaluate a fitted classifier or regressor on hold-out rows.

    Give ``epsilon`` (and ``delta``) if the rows are private, or ``public=True``: then all is exact and free.
    ``groups_of`` asks for figures by declared group: ``{"sex": (labels, ["Female", "Male"])}``.
    ``rows`` is the number of rows, if that is public. ``groups`` names the unit of each row, if a unit may
    have several, of which ``rows_per_group``, chosen at random, are used.

    Guarantee: everything comes from one vector of noisy counts over fixed cells, charged before the rows are
    looked at. A row falls into one cell of each block, so between neighbours the vector moves by 1
    (``replace_one``: 2) per block in ℓ1, and by the root of that in all in ℓ2; ``rows_per_group`` times as
    much for units of several rows. The blocks are: for two classes, score bin × true class; for more,
    confidence bin × rightness, and true × predicted class; and for each name in ``groups_of``, group ×
    prediction × class (group × rightness). The noise is discrete Laplace, charged as ``Pure(epsilon)``, or
    discrete Gaussian where ``delta`` makes that the smaller. Labels that are no class of the model, scores
    that are not finite, rows with a non-finite value and rows for which the model fails fall into a cell
    of their own, which no figure uses. The number of rows is not read: accuracy is noisy right over noisy
    total. Of two classes, the second is predicted where its score is above ½.

    A regressor needs ``target_bounds`` (l, h): targets and predictions are clipped to them. With w = h − l,
    residuals r and u = 2(y − l)/w − 1, the sums of 1, |r|/w, (r/w)², (r/w)⁴, u and u² are released, each
    value at most 1 in size: one row moves the vector by 6 in ℓ1 (``replace_one``: also 6, n being the same
    and u moving by 2) and by √6 (√8) in ℓ2. Values are rounded to multiples of 2⁻²⁰, so sums are exact.

    The cell of a row depends on that row alone (see :mod:`tacit.evaluation.alone`): scikit-learn's own
    classes, and pipelines of them, are called with blocks of one size in which a row's place and neighbours
    make no difference to its score, not even in the last bit; any other model is copied for each row, which
    takes longer, and must be one that can be copied. What a model raises or warns of is not shown.
    ``bounds`` (lower, upper) are publicly known bounds of the columns, to which values are clipped first.

    Intervals are found by simulation from the noisy counts alone: other rows from the same source, and the
    noise again. They take rows as independent. Calibration error and gaps, which noise pushes up, are
    corrected by the median of the simulated error.

    >>> from sklearn.linear_model import LogisticRegression
    >>> x = np.linspace(-3, 3, 2000)[:, None]
    >>> y = (x[:, 0] > 0).astype(int)
    >>> result = evaluate(LogisticRegression().fit(x, y), x, y, epsilon=1.0, random_state=1)
    >>> result.accuracy > 0.97, result.auroc > 0.97, result.guarantee.epsilon
    (True, True, 1.0)
    """
    if (epsilon is None) == (not public):
        given = "public rows and epsilon" if public else None
        advice = "epsilon=0.5, say, for private rows; public=True for rows that anyone may see."
        raise InvalidValue("epsilon or public", given, "given, exactly one of them", advice)
    source = Source(random_state)
    relation_of = Relation.of(relation)
    targets = column("y", y)
    task = task_of(model, bins, groups_of or {}, target_bounds, targets, public)
    given_groups = {
        name: column(f"labels of {name!r}", labels) for name, (labels, _) in (groups_of or {}).items()
    }
    for name, values in {**given_groups, **({} if groups is None else {"groups": groups})}.items():
        if len(column(name, values)) != len(targets):
            raise InvalidValue(name, f"{len(values)} values", "as many as there are targets")
    level = _validate.open_probability("confidence", confidence)
    if rows is not None and _validate.count("rows", rows) >= 0 and groups is not None:
        raise InvalidValue("rows", rows, "left out with groups=, of which some rows may not be used")
    unit = _unit(ledger, relation_of, groups, _validate.count("rows_per_group", rows_per_group, 1), public)
    noise = None if public else _noise(task, _validate.epsilon(epsilon), delta, relation_of, unit, source)
    paid = 0.0 if noise is None or isinstance(noise.event, events.Pure) else _validate.delta(delta)
    asked = task.asked(model, bounds)
    asked.check(X, len(targets))
    charge: AbstractContextManager[Any] = nullcontext()
    if noise is not None and ledger is not None:
        charge = ledger.charge(noise.event, label, delta=paid or None, noise=noise.noise)
    with charge:
        keep = None if groups is None else bounded_units(column("groups", groups), unit.rows, source)
        exact, free = task.measure(model, X, targets, given_groups, keep, public, bounds)
        released = exact if noise is None else noise(exact)
    guarantee = None
    if noise is not None:
        guarantee = Guarantee(
            float(epsilon or 0.0), paid, noise.event, relation_of, unit, noise.noise,
            ("bins, classes, groups and bounds were chosen without the rows",
             *assumed(X, getattr(model, "n_features_in_", None)), *asked.assumed(X)),
        )  # fmt: skip
    if rows is not None:
        released = task.with_total(released, rows)
    return _evaluation(task, released, free, noise, source, level, guarantee, label)


def _evaluation(
    task: Task, vector: Array, free: Mapping[str, float], noise: Any, source: Source, confidence: float,
    guarantee: Guarantee | None, label: str,
) -> Evaluation:  # fmt: skip
    """Figures and intervals from what was released; everything from here on is post-processing."""
    truth, drawn = task.simulated(vector, noise, source)
    centre, draws = task.figures(truth), task.figures(drawn)
    values = {name: free.get(name, float(found)) for name, found in task.figures(vector).items()}
    intervals = task.intervals(vector, values, truth, drawn, confidence)
    figures: dict[str, float | None] = {}
    for name, value in values.items():
        pushed = noise is not None and name.endswith((" gap", "calibration error"))
        shown = value - made.median_error(float(centre[name]), draws[name]) if pushed else value
        figures[name] = None if math.isnan(shown) else float(np.clip(shown, *task.limits(name)))
    blocks = task.split(vector)
    main = next(iter(blocks.values()))
    scored = task.kind == "two classes" and task.scored == "probability"
    confusion = None
    if task.kind == "more classes":
        table = blocks["confusion"][:-1].reshape(len(task.classes), -1)
        confusion = tuple(tuple(float(cell) for cell in line) for line in table)
    return Evaluation(
        task.kind, figures, intervals, guarantee, confidence, label,
        rows=float(main[0] if task.kind == "regression" else main[:-1].sum()),
        reliability=tuple(made.reliability(main, task.bins)) if scored else (),
        classes=tuple(value.item() if isinstance(value, np.generic) else value for value in task.classes),
        confusion=confusion,
        groups=task.by_group(figures),
    )  # fmt: skip


def _unit(ledger: Ledger | None, relation: Relation, groups: Any, most: int, public: bool) -> Unit:
    """Whom the evaluation protects; the ledger must say the same."""
    unit = Unit() if groups is None else Unit("group", most)
    if ledger is None or public:
        return unit
    if not isinstance(ledger, Ledger):
        raise InvalidValue("ledger", type(ledger).__name__, "a tacit.Ledger")
    if ledger.relation is not relation:
        problem = f"The ledger promises privacy under {ledger.relation}, not {relation}."
        raise TacitError(problem, f"Set relation={str(ledger.relation)!r}, or open another ledger.")
    if (ledger.unit.column is None) != (groups is None) or ledger.unit.rows != unit.rows:
        problem = f"The ledger protects one {ledger.unit}, not one {unit}."
        raise TacitError(problem, "Give the groups= that its unit names, and as many rows_per_group.")
    return ledger.unit


def _noise(
    task: Task, epsilon: float, delta: float, relation: Relation, unit: Unit, source: Source
) -> mechanisms.DiscreteLaplace | mechanisms.DiscreteGaussian:
    """Of discrete Laplace and, with δ, discrete Gaussian noise the one of smaller variance."""
    reach = math.ceil(task.sensitivity(relation, 1)) * unit.rows
    laplace = mechanisms.DiscreteLaplace(reach, epsilon, random_state=source)
    if _validate.delta(delta) == 0:
        return laplace
    length = math.nextafter(task.sensitivity(relation, 2) * unit.rows, math.inf)
    gaussian = mechanisms.DiscreteGaussian(length, epsilon, delta, random_state=source)
    smaller = length**2 / (2 * gaussian.event.rho) < 2 * (reach / epsilon) ** 2
    return gaussian if smaller else laplace
