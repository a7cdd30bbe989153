"""GradientBoosting: private boosted trees over public bins, for classes and for numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit import _validate, events
from tacit.data.declared import declared_classes, declared_target_bounds
from tacit.data.given import places, real
from tacit.errors import InvalidValue
from tacit.estimators.blocks import PrivateRows, Rows
from tacit.estimators.boosting.layout import Codes, Layout
from tacit.estimators.boosting.residuals import Residuals
from tacit.estimators.boosting.rounds import Rounds
from tacit.estimators.boosting.shapes import Shape, shapes_of
from tacit.estimators.coding import Coding
from tacit.estimators.private import PrivateEstimator, Public, Recipe
from tacit.estimators.purchases import Purchases
from tacit.models.description import Description, Effects, Weight
from tacit.randomness import Source

__all__ = ["GradientBoosting"]

Array = NDArray[np.float64]

TASKS = ("classification", "regression")
USUAL_POPULATION = 10_000
"""The number of rows that is planned with until it has been bought."""
MOST_BINS = 255
"""With the cell of missing values, a cell's number fits in a byte."""
SLOPE = 0.5
"""How far a badly predicted row may pull, where that is not said."""


@dataclass(frozen=True)
class BoostingRecipe(Recipe):
    """How a boosted model will be fitted: the rounds, and what is bought before."""

    rounds: Rounds = None  # type: ignore[assignment]
    bought: Purchases | None = None


def _classifies(model: GradientBoosting) -> bool:
    return bool(model.task != "regression")


class GradientBoosting(PrivateEstimator):
    """Private gradient boosting: trees with public splits, and noisy sums of residuals in every round.

    The trees are fixed beforehand, over bins that public bounds and declared categories make: a number has a
    binary tree over its bins, a category one leaf for each of its values. In every round the residuals of
    all rows are added up over every split of every tree, noise is added, and all splits move a step; a split
    whose sums do not stand out from the noise stays at 0. So the model is a sum of one function per column,
    its :attr:`shape_functions_`, as in DP-EBM (Nori et al. 2021), and with ``interactions`` of one per pair
    of columns, chosen privately.

    Relation: ``add_remove`` or ``replace_one`` of one row, or of one unit of at most ``rows_per_unit`` rows.

    Sensitivity: given the model so far, a row adds r ⊗ (1, A₁[:, c₁], A₂[:, c₂], …) to the sums of a round. r
    is its residual, shortened to b in ℓ2, cⱼ its cell in column j, and Aⱼ[:, c] says on which side of each
    split of column j the cell c lies. A row is in one cell of each column, so the ℓ2 norm of what it adds is
    at most Δ = b·√(1 + Σⱼ maxₖ‖Aⱼ[:, k]‖²). A row more or less moves the sums by Δ, a replaced one by 2Δ, a
    unit by that times its rows. Residuals are whole multiples of 2⁻²⁰, so their sums are exact, and the
    noise is exact, too.

    Event: ``Repeat(Gaussian)`` over the rounds for δ > 0, composed with one ``Gaussian`` where pairs are
    chosen (by noisy sums over the splits of all pairs); ``Laplace`` on the ℓ1 sensitivity in its place for
    δ = 0; and what is bought. The number of rounds is fixed beforehand, or by the number of rows that was
    bought: then the event is one ``Gaussian`` (or ``Pure``), which is what any number of rounds costs.

    Papers: Friedman (2001) for boosting; Maddock, Cormode, Wang, Maple and Jha (2022) for private boosting
    with splits that do not depend on the data; Abadi et al. (2016) for rounds of noisy sums.

    ``epsilon``, ``delta``
        the whole cost of ``fit``. δ = 0 takes more noise. ``epsilon=math.inf`` fits without noise.
    ``task``
        ``"classification"``, of ``classes``, or ``"regression"``, of a number within ``target_bounds``.
    ``classes``, ``target_bounds``
        all labels there may be, or the bounds of the target: declared. Rows with other labels contribute
        nothing; numbers beyond the bounds are clipped.
    ``bounds``, ``categories``
        what is publicly known of the features: (lower, upper), numbers or one per feature; and one entry per
        feature, None for a number, k for a code 0 … k−1. A :class:`~tacit.estimators.Preprocessor` before it
        in a pipeline hands both over. With ``bounds="dp"`` a tenth of ε buys bounds.
    ``population``
        the number of rows: given if it is public; ``"dp"``, the default, buys it with a fiftieth of ε, and
        the number of rounds and the depth of the trees are chosen by what was bought.
    ``interactions``
        how many pairs of columns have a term of their own. With 0 the model is a sum of functions of one
        column each, and can be read.
    ``bins``
        the number of bins of a number, at most 255.
    ``rounds``, ``learning_rate``
        chosen to suit the noise if left out.
    ``slope``
        how hard a badly predicted row may pull: b for two classes and for a target that is scaled to [−1, 1];
        b is √2 times that for more classes. ½ if left out.
    ``relation``, ``rows_per_unit``
        who is protected from what; the units of the rows are given to ``fit``.
    ``ledger``, ``label``
        where it is charged, and under which name.

    A value that is not finite, or a category that is not declared, contributes nothing to its column, in
    ``fit`` and in ``predict``; the row still counts for the others.

    >>> import numpy as np
    >>> X = np.random.default_rng(1).uniform(-1, 1, size=(2000, 2)); y = np.abs(X[:, 0]) > 0.5
    >>> model = GradientBoosting(1.0, 1e-6, bounds=(-1, 1), classes=[False, True], random_state=1).fit(X, y)
    >>> model.score(X, y) > 0.9, model.guarantee_.epsilon
    (True, 1.0)
    """

    title = "gradient boosting"
    fits_without_noise = True
    fits_tables = True
    buys_population = True
    released = (
        "effects_", "intercept_", "coding_", "pairs_", "rounds_", "classes_", "target_bounds_",
        "n_features_in_", "feature_names_in_",
    )  # fmt: skip
    predicts_from = (
        "effects_", "intercept_", "coding_", "pairs_", "classes_", "target_bounds_", "task",
    )  # fmt: skip

    def __init__(
        self, epsilon: float = 1.0, delta: float = 0.0, *, task: str = "classification", classes: Any = None,
        target_bounds: Any = None, bounds: Any = None, categories: Any = None, population: int | str = "dp",
        interactions: int = 0, bins: int = 255, rounds: int | None = None,
        learning_rate: float | None = None, slope: float | None = None, relation: str = "add_remove",
        rows_per_unit: int = 1, ledger: Any = None, label: str | None = None, verbose: bool = False,
        random_state: int | None = None,
    ) -> None:  # fmt: skip
        self.epsilon, self.delta, self.task = epsilon, delta, task
        self.classes, self.target_bounds, self.bounds = classes, target_bounds, bounds
        self.categories = categories
        self.population, self.interactions, self.bins = population, interactions, bins
        self.rounds, self.learning_rate, self.slope = rounds, learning_rate, slope
        self.relation, self.rows_per_unit, self.ledger, self.label = relation, rows_per_unit, ledger, label
        self.verbose, self.random_state = verbose, random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        if _classifies(self):
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        return tags

    def _recipe(self, public: Public) -> BoostingRecipe:
        residuals = self._residuals()
        if _validate.count("bins", self.bins, 2) > MOST_BINS:
            raise InvalidValue("bins", self.bins, f"at most {MOST_BINS}")
        bounds = (-1.0, 1.0) if isinstance(self.bounds, str) else self.bounds
        layout = Layout(Coding.of(public, bounds=bounds, categories=self.categories, bins=self.bins))
        bought = None
        epsilon, delta = public.epsilon, public.delta
        population = USUAL_POPULATION
        if not isinstance(self.population, str):
            population = _validate.count("population", self.population, 1)
        if math.isfinite(public.epsilon):
            bought = Purchases.of(public, population=self.population, bounds=self.bounds)
            epsilon, delta = bought.epsilon, bought.delta
        rounds = Rounds(
            layout, residuals, epsilon, delta, public.relation, public.unit, population,
            None if self.rounds is None else _validate.count("rounds", self.rounds, 1),
            None if self.learning_rate is None else _validate.positive("learning_rate", self.learning_rate),
            _validate.count("interactions", self.interactions), later=isinstance(self.population, str),
        )  # fmt: skip
        if bought is None:
            return BoostingRecipe(rounds.event, "float64", (), ("no privacy",), rounds)
        event = events.Compose((rounds.event, *bought.costs)) if bought.costs else rounds.event
        guessed = f", if there are {population:,} rows" if rounds.later else ""
        notes = (
            f"{rounds.steps} rounds, trees of {rounds.levels} levels, {len(layout.cells)} columns{guessed}",
            f"noise {rounds.deviation:.4g} per split in each round, of residuals up to {residuals.bound:.4g}",
            *([f"{rounds.chosen} pairs of columns, chosen privately"] if rounds.chosen else []),
        )
        parts = (("boosting", epsilon), *bought.parts)
        return BoostingRecipe(event, "exact", parts, notes, rounds, bought)

    def _residuals(self) -> Residuals:
        task = _validate.choice("task", self.task, TASKS)
        bound = SLOPE if self.slope is None else _validate.probability("slope", self.slope)
        if bound < 2.0**-10:
            raise InvalidValue("slope", self.slope, "at least 2^-10")
        if task == "regression":
            declared_target_bounds(self.target_bounds)
            return Residuals(0, bound)
        classes = len(declared_classes(self.classes))
        return Residuals(classes, bound * (math.sqrt(2) if classes > 2 else 1.0))

    def _carry_out(self, recipe: BoostingRecipe, rows: Rows, source: Source) -> None:
        plan = recipe.rounds
        layout, population = plan.layout, plan.population
        if recipe.bought is not None:
            if (found := recipe.bought.buy_bounds(rows, source)) is not None:
                layout = layout.within(*found)
            if (bought := recipe.bought.buy_population(rows, source)) is not None:
                population = bought
        elif isinstance(self.population, str):
            population = max(1, rows.used)

        def coded(block: PrivateRows) -> tuple[Codes, Array]:
            targets, taken = self._targets(np.asarray(block.targets))
            if block.keep is not None:
                taken = taken & block.keep
            return layout.codes(block.matrix, taken), targets[taken]

        plan = plan.with_facts(layout, population)
        boosted = plan.carry_out(*joined(rows.each(coded, keep=True)), source)
        self.effects_ = np.concatenate(boosted.effects)
        self.intercept_ = boosted.constant
        self.coding_ = layout.coding.to_dict()
        self.pairs_ = np.array(boosted.pairs, dtype=np.int64).reshape(len(boosted.pairs), 2)
        self.rounds_ = plan.steps
        if _classifies(self):
            self.classes_ = np.array(declared_classes(self.classes))
        else:
            self.target_bounds_ = np.array(declared_target_bounds(self.target_bounds))

    def _targets(self, y: NDArray[Any]) -> tuple[Array, NDArray[np.bool_]]:
        """Class numbers, or numbers in [−1, 1], and which rows have one."""
        if _classifies(self):
            found = places(y, declared_classes(self.classes))
            return found.astype(float), found >= 0
        lower, upper = declared_target_bounds(self.target_bounds)
        values = real(y)
        taken = np.isfinite(values)
        inside = np.clip(np.where(taken, values, lower), lower, upper)
        return (inside / 2 - lower / 2 - (upper / 2 - inside / 2)) / (upper / 2 - lower / 2), taken

    def _layout(self) -> Layout:
        return Layout(Coding.from_dict(self.coding_))

    def _scores(self, X: Any) -> Array:
        """The scores of each row, from that row alone: looked up and added, term by term."""
        check_is_fitted(self, "effects_")
        matrix = validate_data(
            self, X, dtype="numeric", reset=False, accept_sparse=False, ensure_all_finite=False
        )
        layout = self._layout()
        codes = layout.codes(matrix)
        scores = np.tile(self.intercept_, (len(matrix), 1))
        start = 0
        for column, cells in enumerate(layout.cells):
            scores += self.effects_[start + codes[:, column].astype(np.intp)]
            start += cells + 1
        for first, second in self.pairs_.tolist():
            scores += self.effects_[start + layout.paired(codes, first, second)]
            start += layout.side(first) * layout.side(second) + 1
        return scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the highest score, or the number."""
        scores = self._scores(X)
        if not _classifies(self):
            lower, upper = self.target_bounds_
            share = (np.clip(scores[:, 0], -1.0, 1.0) + 1) / 2
            return np.asarray(lower * (1 - share) + upper * share)
        best = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[best])

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Array:
        """Scores: one per row for two classes (positive for the second), else one per class."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """The probability of each class."""
        scores = self._scores(X)
        return Residuals(len(self.classes_), 1.0).probabilities(scores)

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Array:
        """The logarithm of the probability of each class."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy, or R²; on rows that may be looked at."""
        measure = accuracy_score if _classifies(self) else r2_score
        return float(measure(y, self.predict(X), sample_weight=sample_weight))

    @property
    def shape_functions_(self) -> tuple[Shape, ...]:
        """The effect of each column, and of each pair, on the score: see :class:`~.shapes.Shape`."""
        check_is_fitted(self, "effects_")
        return self._shapes(self._names(None))

    def _shapes(self, names: Sequence[str]) -> tuple[Shape, ...]:
        classes = tuple(map(str, np.asarray(getattr(self, "classes_", ())).tolist()))
        pairs = [(first, second) for first, second in self.pairs_.tolist()]
        return shapes_of(self._layout(), self.effects_, pairs, names, classes)

    def describe(self, names: Sequence[str] | None = None) -> Description:
        """As every estimator does, with the shape functions of single columns."""
        said = super().describe(names)
        shapes = [
            Effects(shape.columns[0], label, shape.cells, edges, tuple(shape.effects[:, output].tolist()))
            for shape in self._shapes(self._names(names))
            if len(shape.columns) == 1
            for edges in [None if shape.edges is None else tuple(shape.edges.tolist())]
            for output, label in enumerate(shape.outputs)
        ]
        return replace(said, shapes=tuple(sorted(shapes, key=lambda one: -one.spread)))

    def _facts(self) -> tuple[tuple[str, str], ...]:
        return (
            ("task", self.task),
            ("rounds", str(self.rounds_)),
            ("columns", str(len(self.coding_["columns"]))),
            ("pairs of columns", str(len(self.pairs_))),
        )

    def _weights(self, names: Sequence[str]) -> tuple[Weight, ...]:
        """Of a feature that is a category its effect; of another one how far its effects are apart."""
        found = []
        for shape in self._shapes(names):
            for output, label in enumerate(shape.outputs):
                effects = shape.effects[..., output]
                several = len(shape.features) > 1
                values = effects.tolist() if several else [float(np.ptp(effects))]
                found += [
                    Weight(label, feature, value)
                    for feature, value in zip(shape.features, values, strict=False)
                ]
        return tuple(sorted(found, key=lambda one: -abs(one.value)))


def joined(blocks: Iterable[tuple[Codes, Array]]) -> tuple[Codes, Array]:
    """The cells and the targets of all blocks: as many bytes for each row as there are columns, and 8."""
    codes, targets = zip(*blocks, strict=True)
    return (codes[0], targets[0]) if len(codes) == 1 else (np.concatenate(codes), np.concatenate(targets))
