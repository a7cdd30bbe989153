"""Naive Bayes from noisy counts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tacit import _validate, events
from tacit.data.declared import declared_classes
from tacit.estimators.blocks import PrivateRows, Rows, added
from tacit.estimators.coding import Coding, labelled, rows_to_predict
from tacit.estimators.counting import deviation_of, joint_noise, shrunk
from tacit.estimators.private import PrivateEstimator, Public, Recipe
from tacit.mechanisms import Gaussian, Laplace
from tacit.models.description import Weight
from tacit.randomness import Source
from tacit.relations import Relation

__all__ = ["NaiveBayes"]

Array = NDArray[np.float64]

GRID = 2**20
"""Scaled numbers are rounded to multiples of 1/GRID, so that their sums are exact."""
_MOMENTS = {1: 1.5, 2: 1.25}
"""The largest |x| + |x² − ½| and x² + (x² − ½)² for x in [−1, 1], at x = ±1."""
_REPLACED = {1: 1.5, 2: 2.0}
"""Half of how far apart (x, x² − ½) and (y, y² − ½) can be: 9/4 < 3 in ℓ1, 4 = 2² in squared ℓ2, at ±1."""


@dataclass(frozen=True)
class _Layout:
    """Which numbers a row adds to, and how much of the budget each kind gets."""

    cells: tuple[int, ...]
    """Cells of the columns that are counted by cell."""
    numbers: int
    """How many columns have a mean and a variance instead."""
    weight: float
    """The weight of the counts of the classes, 0 where they are not asked for by themselves."""

    @classmethod
    def of(cls, cells: tuple[int, ...], numbers: int, norm: int) -> _Layout:
        return cls(cells, numbers, count_weight(cells, numbers, norm))

    def sensitivity(self, relation: Relation, norm: int) -> float:
        """How far one row moves the joint vector, in ℓ1 or ℓ2; a replaced row leaves one and enters another.

        Two rows of different classes share no number, so what they move (squared, in ℓ2) adds up. Two of the
        same class move as much in the cells, nothing in the sizes of the classes, and up to 4 in squared ℓ2
        in (x, x² − ½), at ±1, which is more than 2 · 5/4: the larger of the two is taken for each part.
        """
        replaced = relation is Relation.REPLACE_ONE
        moments = self.numbers * (_REPLACED if replaced else _MOMENTS)[norm]
        own = (len(self.cells) + moments + self.weight**norm) * (2 if replaced else 1)
        return own if norm == 1 else math.sqrt(own)


def count_weight(cells: tuple[int, ...], numbers: int, norm: int) -> float:
    """The weight w ≥ 0 of separately asked class counts for which the error of the log-odds is least.

    With noise of deviation 1 per unit of sensitivity, a cell has variance R(w)², R = √(m + 5g/4 + w²) for m
    counted columns and g with moments (m + 3g/2 + w in ℓ1). The size of a class is known from the weighted
    count and from each counted column's sum over its s cells, together with variance R²/(w² + A),
    A = Σ 1/s. It enters the log-odds of a row m − 1 times, and the moments through their division by
    it: D = (m − 1)² + 1 + g/2 for numbers spread over their bounds; a cell enters with s² (a cell holds
    1/s of the class) and a pair of moments with 1/v + 1/2v², 7.5 at the variance v = 1/3. The error is
    R²·(D/(w² + A) + Σ s² + 7.5g); the minimum is looked up among multiples of 1/32, for which w times a
    count is exact in float64, so that one row more adds w and no rounding. Without moments it is at w = 0: by
    the power-mean inequality Σ s² ≥ m³/A², so the sums over cells already tell enough.

    >>> count_weight((17, 9, 16), 0, 2), round(count_weight((), 8, 2), 2)
    (0.0, 0.97)
    """
    tried = np.arange(129) / 32
    known = sum(1 / size for size in cells)
    rest = sum(size**2 for size in cells) + 7.5 * numbers
    times = max(len(cells) - 1, 0) ** 2 + (1 + numbers / 2 if numbers else 0)
    if known == 0:
        tried = tried[1:]
    spent = len(cells) + numbers * _MOMENTS[norm] + tried**norm
    error = (spent if norm == 2 else spent**2) * (times / (tried**2 + known) + rest)
    return float(tried[int(np.argmin(error))])


@dataclass(frozen=True)
class _BayesRecipe(Recipe):
    coding: Coding = dataclasses.field(kw_only=True)
    counted: tuple[int, ...] = dataclasses.field(kw_only=True)
    """The places of the columns that are counted by cell."""
    numbers: tuple[int, ...] = dataclasses.field(kw_only=True)
    layout: _Layout = dataclasses.field(kw_only=True)
    mechanism: Laplace | Gaussian | None = dataclasses.field(kw_only=True)


class NaiveBayes(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Private naive Bayes for categories, numbers and both, from one table of noisy counts.

    Every column is counted by cell and class: a category by its declared values, a number by ``bins`` of
    equal width between its bounds, or with ``numbers="gaussian"`` by count, sum and sum of squares.

    Relation: ``add_remove`` or ``replace_one`` of one row, or of one unit of at most ``rows_per_unit`` rows.
    Sensitivity: one row adds 1 to one cell of every column, so all counts together, as one vector of m
    columns, move by m in ℓ1 and √m in ℓ2; a row that is replaced moves 2m and √(2m); a unit of k rows k times
    that. A number x, scaled to [−1, 1], with sums of x and x² − ½ adds up to 3/2 and 5/4 in place of 1
    (3/2 and 2 where it is replaced). Numbers are rounded to a grid first, so that sums are exact.
    Event: one ``Laplace(1/ε)`` for δ = 0, one ``Gaussian`` for δ > 0 where that is smaller.
    Paper: Vaidya, Shafiq, Basu and Hong 2013, corrected (one record changes every column's
    count, and the size of a class is private), with the joint vector in place of a budget for each column.

    What is done with the noisy counts costs nothing: sizes of classes come from the sums over cells (asking
    for them separately only pays beside moments, see ``count_weight`` in the source), shares of the classes
    in a cell are drawn towards those around it by as many rows as the noise is large, and for numbers
    first in halves, then in quarters, down to the bins. Variances have a public floor.

    ``epsilon``, ``delta``
        the whole cost of ``fit``. ``epsilon=math.inf`` fits without noise.
    ``classes``
        all labels there may be; rows with others contribute nothing.
    ``bounds``, ``categories``
        what is publicly known of the features: (lower, upper) of numbers, and for each feature how many codes
        0 … k−1 it has, or None for a number. A :class:`~tacit.estimators.Preprocessor` before tells both.
    ``numbers``
        ``"histogram"`` or ``"gaussian"``.
    ``bins``
        how many bins a number is cut into, a power of two for even halves.
    ``variance_floor``
        the smallest variance, as a share of the square of half the range.
    ``relation``, ``rows_per_unit``, ``ledger``, ``label``, ``verbose``, ``random_state``
        as for every estimator, see :mod:`tacit.estimators.private`.

    Released: ``counts_`` (classes, cells of all columns in a row), ``class_count_``, ``theta_`` and ``var_``
    (classes, numbers) of scaled numbers, and ``feature_log_odds_``, which predictions add up.

    >>> rows = np.array([[1.0, 0], [9.0, 1], [2.0, 0], [8.0, 1]] * 50)
    >>> model = NaiveBayes(1.0, classes=["no", "yes"], bounds=(0, 10), categories=[None, 2], random_state=1)
    >>> model.fit(rows, ["no", "yes"] * 100).predict([[1.5, 0], [9.0, 1]]).tolist()
    ['no', 'yes']
    >>> model.event_
    Laplace(scale=1.0)
    """

    title = "naive Bayes"
    released = (
        "classes_", "coding_", "counts_", "class_count_", "theta_", "var_", "feature_log_odds_",
        "class_log_prior_", "n_features_in_", "feature_names_in_",
    )  # fmt: skip
    predicts_from = (
        "classes_", "coding_", "theta_", "var_", "feature_log_odds_", "class_log_prior_",
    )  # fmt: skip
    fits_without_noise = True
    fits_tables = True

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        classes: Any = None,
        bounds: Any = None,
        categories: Any = None,
        numbers: str = "histogram",
        bins: int = 16,
        variance_floor: float = 0.01,
        relation: Any = "add_remove",
        rows_per_unit: int = 1,
        ledger: Any = None,
        label: str | None = None,
        verbose: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.bounds = bounds
        self.categories = categories
        self.numbers = numbers
        self.bins = bins
        self.variance_floor = variance_floor
        self.relation = relation
        self.rows_per_unit = rows_per_unit
        self.ledger = ledger
        self.label = label
        self.verbose = verbose
        self.random_state = random_state

    def _recipe(self, public: Public) -> _BayesRecipe:
        declared_classes(self.classes)
        _validate.positive("variance_floor", self.variance_floor)
        coding = Coding.of(public, bounds=self.bounds, categories=self.categories, bins=self.bins)
        counted, numbers = _divided(coding, self.numbers)
        cells = tuple(coding.columns[place].cells for place in counted)
        layouts = {norm: _Layout.of(cells, len(numbers), norm) for norm in (1, 2)}
        if math.isinf(public.epsilon):
            return _BayesRecipe(
                events.WITHOUT_PRIVACY, "float64", (), ("no privacy",),
                coding=coding, counted=counted, numbers=numbers, layout=layouts[2], mechanism=None,
            )  # fmt: skip
        sizes = [public.unit.rows * layouts[norm].sensitivity(public.relation, norm) for norm in (1, 2)]
        mechanism = joint_noise(sizes[0], sizes[1], public.epsilon, public.delta)
        layout = layouts[2 if isinstance(mechanism, Gaussian) else 1]
        note = f"{len(counted)} columns of {sum(cells)} cells"
        note += f", {len(numbers)} of count, sum and sum of squares" if numbers else ""
        return _BayesRecipe(
            mechanism.event, "exact", (("counts", public.epsilon),),
            (f"{note}; noise of deviation {deviation_of(mechanism):.4g} on each count",),
            coding=coding, counted=counted, numbers=numbers, layout=layout, mechanism=mechanism,
        )  # fmt: skip

    def _carry_out(self, recipe: _BayesRecipe, rows: Rows, source: Source) -> None:
        classes = declared_classes(self.classes)
        exact = added(rows.each(lambda block: statistics(recipe, block, classes)))
        noisy = exact
        if recipe.mechanism is not None:
            noisy = dataclasses.replace(recipe.mechanism, random_state=source)(exact)
        self.classes_ = np.array(classes)
        self.coding_ = recipe.coding.to_dict()
        self._learn(recipe, noisy.reshape(len(classes), -1))

    def _learn(self, recipe: _BayesRecipe, noisy: Array) -> None:
        """Set what is released from the noisy statistics alone."""
        deviation, layout = deviation_of(recipe.mechanism), recipe.layout
        cells, width = layout.cells, sum(layout.cells)
        own, counts = noisy[:, 0], noisy[:, 1 : 1 + width]
        moments = noisy[:, 1 + width :].reshape(len(noisy), -1, 2)
        sums = np.array([part.sum(axis=1) for part in _parts(counts, cells)]).reshape(-1, len(noisy)).T
        shares = 1 / np.array(cells, dtype=float)
        certainty = layout.weight**2 + shares.sum()
        total = (layout.weight * own + (sums * shares).sum(axis=1)) / certainty
        parts = [
            part + ((total - found) / size)[:, None]
            for part, found, size in zip(_parts(counts, cells), sums.T, cells, strict=True)
        ]
        even = np.full((len(noisy), 1), 1 / len(noisy))
        prior = shrunk(total[:, None], even, deviation / math.sqrt(certainty))
        odds = [
            np.log(_posterior(part, prior, deviation, recipe.coding.columns[place].kind == "number"))
            - np.log(prior)
            for part, place in zip(parts, recipe.counted, strict=True)
        ]
        self.counts_, self.class_count_ = counts, total
        self.class_log_prior_ = np.log(prior[:, 0])
        self.feature_log_odds_ = np.concatenate([*odds, np.zeros((len(noisy), 0))], axis=1)
        size = np.maximum(total, deviation + 1.0)[:, None]
        self.theta_ = np.clip(moments[:, :, 0] / size, -1.0, 1.0)
        spread = moments[:, :, 1] / size + 0.5 - self.theta_**2
        self.var_ = np.clip(spread, self.variance_floor, 1.0)

    def _places(self, coding: Coding) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return _divided(coding, "gaussian" if self.theta_.shape[1] else "histogram")

    def _joint_log_likelihood(self, X: Any) -> Array:
        """log P(class) + Σ log P(class | cell)/P(class), and the densities of numbers, column by column."""
        check_is_fitted(self, "feature_log_odds_")
        matrix = rows_to_predict(self, X)
        coding = Coding.from_dict(self.coding_)
        counted, numbers = self._places(coding)
        scores = np.repeat(np.reshape(self.class_log_prior_, (1, -1)), len(matrix), axis=0)
        start = 0
        for place in counted:
            column = coding.columns[place]
            scores += self.feature_log_odds_[:, start + column.codes(matrix)].T
            start += column.cells
        for which, place in enumerate(numbers):
            values = 2.0 * coding.columns[place].shares(matrix) - 1.0
            for label in range(len(self.classes_)):
                mean, variance = float(self.theta_[label, which]), float(self.var_[label, which])
                scores[:, label] -= 0.5 * (math.log(variance) + (values - mean) ** 2 / variance)
        return np.asarray(scores)

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithm of the probability of each class."""
        scores = self._joint_log_likelihood(X)
        return np.asarray(scores - logsumexp(scores, axis=1, keepdims=True))

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class."""
        best = self._joint_log_likelihood(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def _facts(self) -> tuple[tuple[str, str], ...]:
        cells = str(self.feature_log_odds_.shape[1])
        return (("features", str(self.n_features_in_)), ("cells", cells), ("numbers", str(self.numbers)))

    def _weights(self, names: Sequence[str]) -> tuple[Weight, ...]:
        """Log-odds of a class: in each category, the largest of a code, between the halves of a number."""
        coding = Coding.from_dict(self.coding_)
        labels = self.classes_.tolist()
        shown = [(len(labels) - 1, "")] if len(labels) == 2 else [(i, str(x)) for i, x in enumerate(labels)]
        found, start = [], 0
        for place in self._places(coding)[0]:
            column = coding.columns[place]
            odds = self.feature_log_odds_[:, start : start + column.cells]
            start += column.cells
            for label, output in shown:
                if column.kind == "one-hot":
                    pairs = zip(names[column.first :], odds[label, : column.width].tolist(), strict=False)
                    found += [Weight(output, name, value) for name, value in pairs]
                    continue
                half, own = column.cells // 2, odds[label]
                value = own[-half:].mean() - own[:half].mean()
                if column.kind == "code":
                    value = own[np.abs(own).argmax()]
                found.append(Weight(output, names[column.first], float(value)))
        return tuple(sorted(found, key=lambda one: -abs(one.value)))


def statistics(recipe: _BayesRecipe, rows: PrivateRows, classes: Sequence[Any]) -> Array:
    """The exact statistics: for each class its weighted count, its cells, (Σx, Σx² − ½) of its numbers.

    All are multiples of 1/GRID, or of 1/32 for the weighted counts, so those of blocks add up exactly.
    """
    labels = labelled(rows, classes)
    counts = labels >= 0
    labels = labels[counts]
    found = np.zeros((len(classes), 1 + sum(recipe.layout.cells) + 2 * len(recipe.numbers)))
    found[:, 0] = recipe.layout.weight * np.bincount(labels, minlength=len(classes))
    start = 1
    for place in recipe.counted:
        column = recipe.coding.columns[place]
        flat = labels * column.cells + column.codes(rows.matrix)[counts]
        table = np.bincount(flat, minlength=len(classes) * column.cells)
        found[:, start : start + column.cells] = table.reshape(len(classes), column.cells)
        start += column.cells
    for place in recipe.numbers:
        values = 2.0 * recipe.coding.columns[place].shares(rows.matrix)[counts] - 1.0
        whole = np.rint(values * GRID).astype(np.int64)
        square = (whole * whole + GRID // 2) // GRID - GRID // 2
        for label in range(len(classes)):
            own = labels == label
            found[label, start] = whole[own].sum() / GRID
            found[label, start + 1] = square[own].sum() / GRID
        start += 2
    return found.ravel()


def _divided(coding: Coding, numbers: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The places of columns that are counted by cell, and of those with moments."""
    how = _validate.choice("numbers", numbers, ("histogram", "gaussian"))
    moments = tuple(
        place for place, column in enumerate(coding.columns) if how == "gaussian" and column.kind == "number"
    )
    return tuple(place for place in range(len(coding.columns)) if place not in moments), moments


def _parts(table: Array, cells: Sequence[int]) -> list[Array]:
    return np.split(table, np.cumsum(cells)[:-1], axis=1) if cells else []


def _posterior(counts: Array, prior: Array, deviation: float, ordered: bool) -> Array:
    """P(class | cell): (classes, cells). Cells in order are first drawn together in halves, quarters, …"""
    size = counts.shape[1]
    shares, groups = prior, 2
    while ordered and groups < size:
        edges = np.arange(groups + 1) * size // groups
        merged = np.add.reduceat(counts, edges[:-1], axis=1)
        around = shares[:, np.arange(groups) * shares.shape[1] // groups]
        shares = shrunk(merged, around, deviation * np.sqrt(np.diff(edges)))
        groups *= 2
    return shrunk(counts, shares[:, np.arange(size) * shares.shape[1] // size], deviation)
