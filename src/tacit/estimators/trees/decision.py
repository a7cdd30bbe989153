"""One decision tree whose splits are chosen privately."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tacit import _gaussian, _validate, events
from tacit.data.declared import declared_classes
from tacit.drawing import trees
from tacit.errors import InvalidValue
from tacit.estimators.blocks import PrivateRows, Rows, added
from tacit.estimators.coding import Coding, labelled, rows_to_predict
from tacit.estimators.counting import deviation_of, moved
from tacit.estimators.private import PrivateEstimator, Public, Recipe
from tacit.estimators.trees import drawing, growing
from tacit.estimators.trees.criteria import CRITERIA, MOST, gain, level_sensitivity, sensitivity
from tacit.estimators.trees.structure import Array, Tree
from tacit.mechanisms import Gaussian, Laplace, PermuteAndFlip
from tacit.models.description import Description, Weight
from tacit.randomness import Source

__all__ = ["DecisionTree"]

MOST_DEPTH = 16
Noise = Laplace | Gaussian


@dataclass(frozen=True)
class _TreeRecipe(Recipe):
    coding: Coding = dataclasses.field(kw_only=True)
    depth: int = dataclasses.field(kw_only=True)
    most: int = dataclasses.field(kw_only=True)
    splits: PermuteAndFlip | Noise | None = dataclasses.field(kw_only=True)
    """What pays for a level: a selection for each node, or noise on all counts; None without noise."""
    leaves: Noise | None = dataclasses.field(kw_only=True)


class DecisionTree(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A private decision tree.

    The tree grows level by level. A category is split into all of its values, once on a path (ID3); a number
    at one of the edges of ``bins`` equal bins between its bounds. Then the rows of each class in each leaf
    are counted with noise; all that follows is computed from these counts: subtrees whose parts differ by no
    more than noise are pruned, and leaves are drawn towards the nodes above by the size of their noise.

    Relation: ``add_remove`` or ``replace_one`` of one row, or of one unit of at most ``rows_per_unit`` rows.
    Sensitivity, of a level: a row is at one node. ``choice="exponential"`` (Friedman and Schuster 2010): a
    row moves the score of each split of that node by at most Δ, all of them in one direction:
    :mod:`tacit.estimators.trees.criteria` derives Δ = log₂(classes · most) + 1/ln 2 for ``"entropy"``, 2 for
    ``"gini"`` and 1 for ``"max"``. k rows, wherever they are, cost at most k times that of one, and a
    replaced row that of two: scores count as if they moved by 2kΔ. ``choice="noisy_gain"`` (Blum, Dwork,
    McSherry and Nissim 2005): the counts by class and cell of all nodes and m columns together move by m in
    ℓ1 and √m in ℓ2 (2m and √(2m) where a row is replaced). Of the leaves: 1 (2 and √2).
    Event: ``depth`` times ``Pure`` for the levels and a ``Laplace`` for the leaves: splits are drawn by
    permute-and-flip, which at the same ε never errs more than the exponential mechanism (McKenna and Sheldon
    2020). With ``"noisy_gain"``: ``Laplace`` for both, or ``Gaussian`` for δ > 0 where that is smaller.
    Nodes that no row reaches are treated like all others.

    ``epsilon``, ``delta``
        the whole cost of ``fit``. ``epsilon=math.inf`` fits without noise: ID3 for ``"entropy"``.
    ``classes``
        all labels there may be; rows with others contribute nothing.
    ``bounds``, ``categories``
        what is publicly known of the features: (lower, upper) of numbers, and for each feature how many codes
        0 … k−1 it has, or None for a number. A :class:`~tacit.estimators.Preprocessor` before tells both.
    ``criterion``
        ``"entropy"``, ``"gini"`` or ``"max"``.
    ``choice``
        ``"exponential"`` or ``"noisy_gain"``.
    ``depth``
        how many splits a path has at most; each level costs.
    ``split_share``
        the part of ε for the splits; the rest is for the leaves.
    ``prune``
        whether subtrees that say no more than noise are cut off.
    ``population``
        a public bound on the rows of a class, for ``"entropy"``: more are not counted.
    ``bins``
        how many bins a number is cut into.
    ``relation``, ``rows_per_unit``, ``ledger``, ``label``, ``verbose``, ``random_state``
        as for every estimator, see :mod:`tacit.estimators.private`.

    Released: ``tree_`` (column, first child, route of each cell and parent of each node), ``counts_`` and
    ``shares_`` (classes, nodes). :meth:`export_text` and :meth:`export_svg` draw the tree.

    >>> rows = np.array([[1.0, 0], [9.0, 1], [2.0, 1], [8.0, 0]] * 50)
    >>> facts = {"classes": ["no", "yes"], "bounds": (0, 10), "categories": [None, 2], "bins": 4}
    >>> model = DecisionTree(4.0, depth=1, random_state=1, **facts).fit(rows, ["no", "yes"] * 100)
    >>> print(model.export_text(["age", "smokes"]))
    age < 5: no (99 %)
    age ≥ 5: yes (99 %)
    """

    title = "decision tree"
    released = ("classes_", "coding_", "tree_", "counts_", "shares_", "n_features_in_", "feature_names_in_")
    predicts_from = ("classes_", "coding_", "tree_", "shares_")
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
        criterion: str = "gini",
        choice: str = "exponential",
        depth: int = 4,
        split_share: float = 0.5,
        prune: bool = True,
        population: int | None = None,
        bins: int = 16,
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
        self.criterion = criterion
        self.choice = choice
        self.depth = depth
        self.split_share = split_share
        self.prune = prune
        self.population = population
        self.bins = bins
        self.relation = relation
        self.rows_per_unit = rows_per_unit
        self.ledger = ledger
        self.label = label
        self.verbose = verbose
        self.random_state = random_state

    def _recipe(self, public: Public) -> _TreeRecipe:
        classes = len(declared_classes(self.classes))
        criterion = _validate.choice("criterion", self.criterion, tuple(CRITERIA))
        choice = _validate.choice("choice", self.choice, ("exponential", "noisy_gain"))
        share = _validate.open_probability("split_share", self.split_share)
        most = MOST if self.population is None else _validate.count("population", self.population, 1)
        depth = _validate.count("depth", self.depth, 1)
        if depth > MOST_DEPTH:
            raise InvalidValue("depth", depth, f"at most {MOST_DEPTH}")
        if not isinstance(self.prune, bool):
            raise InvalidValue("prune", self.prune, "True or False")
        coding = Coding.of(public, bounds=self.bounds, categories=self.categories, bins=self.bins)
        if math.isinf(public.epsilon):
            return _TreeRecipe(
                events.WITHOUT_PRIVACY, "float64", (), ("no privacy",),
                coding=coding, depth=depth, most=most, splits=None, leaves=None,
            )  # fmt: skip
        rows = moved(public.relation, public.unit)
        splits: PermuteAndFlip | Noise
        leaves: Noise
        if choice == "exponential":
            of_a_row = sensitivity(criterion, classes, max(coding.cells), most)
            moves = level_sensitivity(rows[0], of_a_row, growing.MOST_NODES)
            splits = PermuteAndFlip(moves, share * public.epsilon / depth, monotone=True)
            leaves = Laplace(rows[0], epsilon=public.epsilon - share * public.epsilon)
            how = f"splits chosen as if scores moved by {moves:.4g}"
        else:
            wide = moved(public.relation, public.unit, len(coding.columns))
            splits, leaves = _counting(wide, rows, depth, share, public.epsilon, public.delta)
            how = f"noise of deviation {deviation_of(splits):.4g} on the counts that splits are chosen by"
        notes = (how, f"noise of deviation {deviation_of(leaves):.4g} on the counts of the leaves")
        parts = (("splits", share * public.epsilon), ("leaves", (1 - share) * public.epsilon))
        event = events.Compose((events.Repeat(splits.event, depth), leaves.event))
        return _TreeRecipe(
            event, "exact", parts, notes,
            coding=coding, depth=depth, most=most, splits=splits, leaves=leaves,
        )  # fmt: skip

    def _carry_out(self, recipe: _TreeRecipe, rows: Rows, source: Source) -> None:
        classes = declared_classes(self.classes)

        def coded(block: PrivateRows) -> growing.Coded:
            labels = labelled(block, classes)
            return recipe.coding.codes(block.matrix)[labels >= 0], labels[labels >= 0]

        blocks = rows.each(coded)
        release, choose = self._chooser(recipe, source)
        tree = growing.grown(blocks, len(classes), recipe.coding, recipe.depth, release, choose)
        counts = added(tree.leaf_counts(*block, len(classes)) for block in blocks)
        if recipe.leaves is not None:
            counts = dataclasses.replace(recipe.leaves, random_state=source)(counts)
        self._keep(recipe, tree, counts, classes)

    def _chooser(self, recipe: _TreeRecipe, source: Source) -> tuple[growing.Release, growing.Choose]:
        splits = recipe.splits
        if isinstance(splits, PermuteAndFlip):
            select = dataclasses.replace(splits, random_state=source)
            return lambda exact: exact, growing.choose_by_score(self.criterion, recipe.most, select)
        choose = growing.choose_by_gain(self.criterion, deviation_of(splits))
        if splits is None:
            return lambda exact: exact, choose
        return partial(_noisy, dataclasses.replace(splits, random_state=source)), choose

    def _keep(self, recipe: _TreeRecipe, tree: Tree, counts: Array, classes: Sequence[Any]) -> None:
        """Set what is released from the tree and the noisy counts of its leaves alone."""
        deviation = deviation_of(recipe.leaves)
        shares = tree.shares(counts, deviation, 1e-9 if recipe.leaves is None else 1.0)
        totals = tree.totals(counts)
        if self.prune:
            tree, kept = tree.without(worthless(tree, counts, deviation))
            shares, totals = shares[:, kept], totals[:, kept]
        self.classes_ = np.array(classes)
        self.coding_ = recipe.coding.to_dict()
        self.tree_ = tree.to_dict()
        self.counts_, self.shares_ = totals, shares

    def predict_proba(self, X: Any) -> Array:
        """The shares of the classes in the leaf that a row reaches."""
        check_is_fitted(self, "shares_")
        codes = Coding.from_dict(self.coding_).codes(rows_to_predict(self, X))
        return np.asarray(self.shares_[:, Tree.from_dict(self.tree_).reached(codes)].T)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most frequent class in the leaf that a row reaches."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def structure(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """The tree as nested dictionaries: of every node ``class``, ``shares`` and ``rows``, which are noisy.

        A node that splits has its ``column`` too, and ``children``: pairs of a condition and a node.
        """
        tree, labels = Tree.from_dict(self.tree_), self.classes_.tolist()
        return drawing.nested(self._nodes(names), tree, self.counts_, self.shares_, labels)

    def export_text(self, names: Sequence[str] | None = None) -> str:
        """The tree in lines of text."""
        return trees.text(self._nodes(names))

    def export_svg(self, names: Sequence[str] | None = None) -> str:
        """The tree as a drawing, the text of an SVG file."""
        return trees.svg(self._nodes(names))

    def describe(self, names: Sequence[str] | None = None) -> Description:
        """As for every estimator, with the tree."""
        return dataclasses.replace(super().describe(names), tree=self._nodes(names))

    def _nodes(self, names: Sequence[str] | None) -> trees.Node:
        check_is_fitted(self, "shares_")
        coding, tree = Coding.from_dict(self.coding_), Tree.from_dict(self.tree_)
        labels = self.classes_.tolist()
        return drawing.nodes(tree, coding, self.counts_, self.shares_, labels, self._names(names))

    def _facts(self) -> tuple[tuple[str, str], ...]:
        tree = Tree.from_dict(self.tree_)
        return (
            ("features", str(self.n_features_in_)), ("criterion", str(self.criterion)),
            ("choice", str(self.choice)), ("nodes", str(len(tree.column))), ("leaves", str(len(tree.leaves))),
        )  # fmt: skip

    def _weights(self, names: Sequence[str]) -> tuple[Weight, ...]:
        """What the splits by each column gain, by noisy counts, as a share of all rows."""
        coding, tree = Coding.from_dict(self.coding_), Tree.from_dict(self.tree_)
        counts = np.maximum(self.counts_, 0.0)
        rows = max(float(counts[:, 0].sum()), 1.0)
        found: dict[str, float] = {}
        for node in np.flatnonzero(tree.column >= 0):
            parts = counts[:, list(tree.children(int(node)))]
            name = coding.columns[tree.column[node]].name(names)
            found[name] = found.get(name, 0.0) + float(gain(self.criterion, parts)) * parts.sum() / rows
        weights = [Weight("", name, float(value)) for name, value in found.items()]
        return tuple(sorted(weights, key=lambda one: -abs(one.value)))


def worthless(tree: Tree, counts: Array, deviation: float) -> NDArray[np.bool_]:
    """The inner nodes below which no split has parts that differ by more than the noise of the leaves.

    The counts of the parts are compared with what they would be with the shares of their node. Noise alone
    makes the squares of the differences add up to about one variance for each count; twice that is required.
    """
    totals = tree.totals(counts)
    leaves = tree.totals(np.ones((1, len(tree.leaves))))[0]
    useful = np.zeros(len(tree.column), dtype=bool)
    for node in np.flatnonzero(tree.column >= 0)[::-1].tolist():
        below = list(tree.children(node))
        own = np.maximum(totals[:, node], 0.0)
        size = max(float(own.sum()), 1.0)
        apart = totals[:, below] - totals[:, below].sum(axis=0) * (own / size)[:, None]
        noise = 2.0 * len(counts) * float(leaves[below].sum()) * deviation**2
        useful[node] = bool(useful[below].any()) or float((apart**2).sum()) > noise + 1e-9 * size
    return (tree.column >= 0) & ~useful


def _noisy(mechanism: Noise, tables: list[Array]) -> list[Array]:
    """All counts of a level, with noise as one vector."""
    flat = mechanism(np.concatenate([table.ravel() for table in tables]))
    edges = np.cumsum([table.size for table in tables])[:-1]
    return [part.reshape(table.shape) for part, table in zip(np.split(flat, edges), tables, strict=True)]


def _counting(
    wide: tuple[float, float],
    rows: tuple[float, float],
    depth: int,
    share: float,
    epsilon: float,
    delta: float,
) -> tuple[Noise, Noise]:
    """Noise for the counts of each level and for the leaves; that for the levels is to be small."""
    splits = Laplace(wide[0], epsilon=share * epsilon / depth)
    leaves = Laplace(rows[0], epsilon=epsilon - share * epsilon)
    if delta == 0:
        return splits, leaves
    whole = _gaussian.noise_multiplier(epsilon, delta) * (1 + 1e-9)
    gaussian = Gaussian(wide[1], noise_multiplier=whole / math.sqrt(share / depth))
    if deviation_of(gaussian) >= deviation_of(splits):
        return splits, leaves
    return gaussian, Gaussian(rows[1], noise_multiplier=whole / math.sqrt(1 - share))
