"""Ensembles of random decision trees with noisy leaves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tacit import _validate, accounting, events
from tacit.data.declared import declared_classes
from tacit.errors import InvalidValue
from tacit.estimators.blocks import PrivateRows, Rows, added
from tacit.estimators.coding import Coding, labelled, rows_to_predict
from tacit.estimators.counting import deviation_of, joint_noise, moved, shrunk
from tacit.estimators.private import PrivateEstimator, Public, Recipe
from tacit.estimators.trees.structure import Array, Tree
from tacit.mechanisms import Gaussian, Laplace, PermuteAndFlip
from tacit.randomness import Source, uniform
from tacit.relations import Relation, Unit

__all__ = ["RandomTrees"]

TREES = (1, 2, 4, 8, 16, 32, 64)
"""How many trees there may be, where it is not declared."""
USUAL_DEPTH, MOST_DEPTH = 8, 16
FEW, ENOUGH = 8, {True: 4, False: 6}
"""How deep trees have to be before there are more of them: up to :data:`FEW` trees (True), and beyond."""
SHARPNESS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
"""By how much the mean of the trees' log-odds may be multiplied."""


@dataclass(frozen=True)
class _ForestRecipe(Recipe):
    coding: Coding = dataclasses.field(kw_only=True)
    noise: _Noise | None = dataclasses.field(kw_only=True)


@dataclass(frozen=True)
class _Noise:
    """What pays for the sizes of the classes, the leaves of any number of trees, and the sharpness."""

    sizes: Laplace
    leaves: events.Laplace | events.Gaussian
    sharpening: PermuteAndFlip | None
    relation: Relation
    unit: Unit

    @property
    def event(self) -> events.Event:
        last = () if self.sharpening is None else (self.sharpening.event,)
        return events.Compose((self.sizes.event, self.leaves, *last))

    def of_leaves(self, counts: int) -> Laplace | Gaussian:
        """Noise for leaves in which each row is counted so often: the event is the same for any number."""
        l1, l2 = moved(self.relation, self.unit, counts)
        if isinstance(self.leaves, events.Gaussian):
            return Gaussian(l2, noise_multiplier=self.leaves.noise_multiplier)
        return Laplace(l1, scale=self.leaves.scale)


class RandomTrees(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """An ensemble of private random decision trees.

    Columns, thresholds and halves of categories are drawn at random, without the data; only the rows of each
    class in each leaf are counted, with noise (Jagannathan, Pillaipakkamnatt and Wright 2009). Leaves are
    drawn towards the nodes above by the size of their noise, the log-odds of the trees are averaged, and how
    far the average is stretched is chosen by how many rows it then classifies right, with a share of ε.

    Relation: ``add_remove`` or ``replace_one`` of one row, or of one unit of at most ``rows_per_unit`` rows.
    Sensitivity: a row is in one leaf of each of t trees, so all counts together move by t in ℓ1 and √t in ℓ2
    (2t and √(2t) where a row is replaced), by 1 where the trees have disjoint rows; a unit of k rows k times
    that. Disjoint rows are those that each row draws for itself, at random. The number of rows that are
    classified right moves by 1, for every sharpness in the same direction (a replaced row counts as one
    removed and one added).
    The sizes of the classes move by 1 in ℓ1 (2 where a row is replaced).
    Event: one ``Laplace`` for the sizes of the classes, one ``Laplace`` or ``Gaussian`` for all leaves, and
    one ``Pure`` (permute-and-flip) for the sharpness, composed.

    ``epsilon``, ``delta``
        the whole cost of ``fit``. ``epsilon=math.inf`` fits without noise.
    ``classes``
        all labels there may be; rows with others contribute nothing.
    ``bounds``, ``categories``
        what is publicly known of the features: (lower, upper) of numbers, and for each feature how many codes
        0 … k−1 it has, or None for a number. A :class:`~tacit.estimators.Preprocessor` before tells both.
    ``trees``, ``depth``
        how many trees there are and how deep each is; None, 1 to 64 of up to 8, by the noisy number of rows.
    ``data``
        ``"shared"``, all rows in each tree; or ``"disjoint"``, each row in one of them.
    ``vote``
        ``"average"`` of log-odds, or ``"majority"``.
    ``size_share``, ``sharpness_share``
        the parts of ε for the sizes of the classes, and for the sharpness of an average: without that, 0,
        probabilities are timid.
    ``bins``
        how many bins a number is cut into, between which thresholds lie.
    ``relation``, ``rows_per_unit``, ``ledger``, ``label``, ``verbose``, ``random_state``
        as for every estimator, see :mod:`tacit.estimators.private`.

    Released: ``columns_`` (trees, inner nodes) and ``routes_`` (trees, inner nodes, cells), ``class_count_``,
    ``counts_`` and ``log_shares_`` (trees, classes, leaves), ``log_prior_`` and ``sharpness_``.

    >>> rows = np.array([[1.0, 0], [9.0, 1], [2.0, 0], [8.0, 1]] * 100)
    >>> facts = {"classes": ["no", "yes"], "bounds": (0, 10), "categories": [None, 2]}
    >>> model = RandomTrees(2.0, trees=5, depth=3, random_state=1, **facts).fit(rows, ["no", "yes"] * 200)
    >>> model.predict([[1.5, 0], [9.0, 1]]).tolist()
    ['no', 'yes']
    >>> print(model.plan(2))
    ε = 2, δ = 0, add_remove of one row
      leaves       ε = 1.7
      sizes        ε = 0.1
      sharpness    ε = 0.2
      noise of deviation 4.159 on each leaf
    """

    title = "random decision trees"
    released = (
        "classes_", "coding_", "columns_", "routes_", "class_count_", "counts_", "log_shares_", "log_prior_",
        "sharpness_", "n_features_in_", "feature_names_in_",
    )  # fmt: skip
    predicts_from = (
        "classes_", "coding_", "columns_", "routes_", "log_shares_", "log_prior_", "sharpness_", "vote",
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
        trees: int | None = None,
        depth: int | None = None,
        data: str = "shared",
        vote: str = "average",
        size_share: float = 0.05,
        sharpness_share: float = 0.1,
        bins: int = 32,
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
        self.trees = trees
        self.depth = depth
        self.data = data
        self.vote = vote
        self.size_share = size_share
        self.sharpness_share = sharpness_share
        self.bins = bins
        self.relation = relation
        self.rows_per_unit = rows_per_unit
        self.ledger = ledger
        self.label = label
        self.verbose = verbose
        self.random_state = random_state

    def _recipe(self, public: Public) -> _ForestRecipe:
        declared_classes(self.classes)
        _validate.choice("vote", self.vote, ("average", "majority"))
        shared = _validate.choice("data", self.data, ("shared", "disjoint")) == "shared"
        coding = Coding.of(public, bounds=self.bounds, categories=self.categories, bins=self.bins)
        if self.trees is not None:
            _validate.count("trees", self.trees, 1)
        if self.depth is not None and not 1 <= _validate.count("depth", self.depth, 1) <= MOST_DEPTH:
            raise InvalidValue("depth", self.depth, f"at most {MOST_DEPTH}")
        shares = [self._share("size_share"), self._share("sharpness_share")]
        if self.vote == "majority":
            shares[1] = 0.0
        if shares[0] == 0 or sum(shares) >= 1:
            raise InvalidValue("size_share", self.size_share, "above 0, and below 1 with sharpness_share")
        if math.isinf(public.epsilon):
            return _ForestRecipe(
                events.WITHOUT_PRIVACY, "float64", (), ("no privacy",), coding=coding, noise=None
            )
        own = [share * public.epsilon for share in shares]
        possible = (TREES if self.trees is None else (self.trees,)) if shared else (1,)
        noise = _noise_of(public, own[0], own[1], possible[-1])
        parts = [("leaves", (1 - sum(shares)) * public.epsilon), ("sizes", shares[0] * public.epsilon)]
        if shares[1] > 0:
            parts.append(("sharpness", shares[1] * public.epsilon))
        deviation = deviation_of(noise.of_leaves(possible[0]))
        note = f"noise of deviation {deviation:.4g} on each leaf"
        note += " of one tree, more of more" if len(possible) > 1 else ""
        return _ForestRecipe(noise.event, "exact", tuple(parts), (note,), coding=coding, noise=noise)

    def _share(self, name: str) -> float:
        share = _validate.finite(name, getattr(self, name))
        if not 0 <= share < 1:
            raise InvalidValue(name, share, "in [0, 1)")
        return share

    def _carry_out(self, recipe: _ForestRecipe, rows: Rows, source: Source) -> None:
        classes, noise, coding = declared_classes(self.classes), recipe.noise, recipe.coding
        sizes = added(rows.each(lambda block: class_sizes(block, classes)))
        if noise is not None:
            sizes = dataclasses.replace(noise.sizes, random_state=source)(sizes)
        trees, depth = self._shape(noise, float(sizes.sum()))
        drawn = [random_splits(coding, depth, source) for _ in range(trees)]
        grown = [Tree.complete(*splits) for splits in drawn]
        disjoint = self.data == "disjoint"
        draw = source if disjoint else None
        counts = added(rows.each(lambda block: statistics(grown, coding, block, classes, draw)))
        leaves = None if noise is None else noise.of_leaves(1 if disjoint else trees)
        if leaves is not None:
            counts = dataclasses.replace(leaves, random_state=source)(counts)
        deviation, even = deviation_of(leaves), np.full((len(classes), 1), 1 / len(classes))
        prior = shrunk(sizes[:, None], even, deviation_of(None if noise is None else noise.sizes))
        shares = [
            tree.shares(own, deviation, towards=prior)[:, tree.leaves]
            for tree, own in zip(grown, counts, strict=True)
        ]
        self.classes_ = np.array(classes)
        self.coding_ = coding.to_dict()
        self.columns_ = np.stack([column for column, _ in drawn])
        self.routes_ = np.stack([route for _, route in drawn])
        self.class_count_, self.counts_ = sizes, counts
        self.log_shares_, self.log_prior_ = np.log(np.stack(shares)), np.log(prior[:, 0])
        self.sharpness_ = 1.0
        if self.vote == "average" and self.sharpness_share > 0:
            scores = added(rows.each(
                lambda block: correct(self._means(block.matrix), self.log_prior_, labelled(block, classes))
            ))  # fmt: skip
            select = None if noise is None or noise.sharpening is None else noise.sharpening
            best = int(np.argmax(scores))
            if select is not None:
                best = dataclasses.replace(select, random_state=source)(scores)
            self.sharpness_ = SHARPNESS[best]

    def _shape(self, noise: _Noise | None, rows: float) -> tuple[int, int]:
        """How many trees, and how deep, by the noisy number of rows: leaves that are not all noise.

        As many trees as can be :data:`ENOUGH` deep so that a leaf has, on average, half as many rows as
        its noise is large; and as deep as that allows. The noise of a leaf grows with the number of trees t
        (with √t for Gaussian noise), and the mean over t trees takes away only √t of it: where noise is all
        that matters, one tree is best, and each further one has to pay by the columns that it adds.
        What was declared is taken as it is.
        """
        disjoint, depth = self.data == "disjoint", 0
        tried = TREES if self.trees is None else (self.trees,)
        trees = tried[0]
        for trees in reversed(tried):
            deviation = 0.0 if noise is None else deviation_of(noise.of_leaves(1 if disjoint else trees))
            filled = 2 * max(rows, 1.0) / (trees if disjoint else 1) / max(deviation, 1.0)
            depth = min(max(int(math.log2(max(filled, 1.0))), 1), USUAL_DEPTH)
            if depth >= ENOUGH[trees <= FEW]:
                break
        return trees, depth if self.depth is None else self.depth

    def _means(self, matrix: NDArray[Any]) -> Array:
        """The mean over the trees, added one after the other, of log-shares or of votes: (rows, classes)."""
        codes = Coding.from_dict(self.coding_).codes(matrix)
        total = np.zeros((len(codes), len(self.classes_)))
        inner = self.columns_.shape[1]
        for column, route, logs in zip(self.columns_, self.routes_, self.log_shares_, strict=True):
            own = logs[:, Tree.complete(column, route).reached(codes) - inner].T
            if self.vote == "majority":
                own = (own.argmax(axis=1)[:, None] == np.arange(len(self.classes_))).astype(float)
            total += own
        return total / len(self.columns_)

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, by the mean log-odds of the trees, or by their votes."""
        check_is_fitted(self, "log_shares_")
        means = self._means(rows_to_predict(self, X))
        if self.vote == "majority":
            return means
        return np.asarray(softmax(sharpened(means, self.log_prior_, self.sharpness_), axis=1))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class, or that with the most votes."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def _facts(self) -> tuple[tuple[str, str], ...]:
        trees, _, leaves = self.log_shares_.shape
        return (
            ("features", str(self.n_features_in_)), ("trees", str(trees)), ("leaves of each", str(leaves)),
            ("data", f"{self.data} by the trees"), ("vote", str(self.vote)),
        )  # fmt: skip


def _noise_of(public: Public, sizes: float, sharpness: float, counts: int) -> _Noise:
    """The noise of all parts, ε being what is left of them for the leaves. ``counts`` decides on its kind."""
    rest = public.epsilon - sizes - sharpness
    leaves = joint_noise(*moved(public.relation, public.unit, counts), rest, public.delta).event
    if isinstance(leaves, events.Gaussian):
        factor = stretched(sizes, sharpness, leaves, public.epsilon, public.delta)
        leaves = events.Gaussian(leaves.noise_multiplier * factor)
        sizes, sharpness = sizes / factor, sharpness / factor
    rows = moved(public.relation, public.unit)[0]
    sharpening = PermuteAndFlip(rows, sharpness, monotone=True) if sharpness > 0 else None
    return _Noise(Laplace(rows, epsilon=sizes), leaves, sharpening, public.relation, public.unit)


@lru_cache(256)
def stretched(sizes: float, sharpness: float, leaves: events.Gaussian, epsilon: float, delta: float) -> float:
    """The smallest factor for the noise of all parts with which they cost (ε, δ) together."""

    def composed(factor: float) -> events.Event:
        last = (events.Pure(sharpness / factor),) if sharpness > 0 else ()
        gaussian = events.Gaussian(leaves.noise_multiplier * factor)
        return events.Compose((events.Laplace(factor / sizes), gaussian, *last))

    return accounting.calibrate(composed, epsilon=epsilon, delta=delta)


def random_splits(coding: Coding, depth: int, source: Source) -> tuple[Array, Array]:
    """The column and the route of every inner node of a complete binary tree; no row is read.

    A node draws a column among those of which two cells or more can still be reached, then for a number a
    threshold between them, for a category the half of them that goes left.
    """
    cells = coding.cells
    inner, widest = 2**depth - 1, max(cells)
    draws = source.uniforms(inner * (widest + 1)).reshape(inner, widest + 1)
    columns, routes = np.zeros(inner, dtype=np.int32), np.zeros((inner, widest), dtype=np.int8)
    reachable: list[dict[int, NDArray[np.int64]]] = [{}]
    for node, draw in enumerate(draws):
        own = reachable[node]
        able = [place for place, size in enumerate(cells) if len(own.get(place, range(size))) > 1]
        left = right = own
        if able:
            place = able[int(draw[0] * len(able))]
            open_ = own.get(place, np.arange(cells[place]))
            order = open_
            cut = 1 + int(draw[1] * (len(open_) - 1))
            if coding.columns[place].kind != "number":
                order, cut = open_[np.argsort(draw[1 : 1 + len(open_)])], len(open_) // 2
            columns[node] = place
            routes[node, order[cut:]] = 1
            left, right = {**own, place: np.sort(order[:cut])}, {**own, place: np.sort(order[cut:])}
        reachable += [left, right]
    return columns, routes


def class_sizes(rows: PrivateRows, classes: Sequence[Any]) -> Array:
    """How many rows there are of each class: a row adds 1 to one of them."""
    labels = labelled(rows, classes)
    return np.bincount(labels[labels >= 0], minlength=len(classes)).astype(np.float64)


def statistics(
    trees: Sequence[Tree], coding: Coding, rows: PrivateRows, classes: Sequence[Any], source: Source | None
) -> Array:
    """How many rows of each class reach each leaf: (trees, classes, leaves).

    A row adds 1 to one leaf of every tree; where there is a ``source``, of one tree that it draws.
    """
    labels = labelled(rows, classes)
    codes, labels = coding.codes(rows.matrix)[labels >= 0], labels[labels >= 0]
    own = None if source is None else uniform(source, len(trees), len(labels))
    found = []
    for place, tree in enumerate(trees):
        mine = slice(None) if own is None else own == place
        found.append(tree.leaf_counts(codes[mine], labels[mine], len(classes)))
    return np.stack(found)


def sharpened(means: Array, prior: Array, sharpness: float) -> Array:
    """Log-odds that are so many times as far from those of all rows as the trees' means are."""
    return np.asarray(prior + sharpness * (means - prior))


def correct(means: Array, prior: Array, labels: NDArray[np.int64]) -> Array:
    """How many rows the model classifies right, for each sharpness: a row adds 0 or 1 to each of them."""
    return np.array([
        np.count_nonzero(sharpened(means, prior, sharpness).argmax(axis=1) == labels)
        for sharpness in SHARPNESS
    ], dtype=np.float64)  # fmt: skip
