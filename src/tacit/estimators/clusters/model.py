"""KMeans: private clusters."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from tacit import _gaussian, _validate, events
from tacit.data import given
from tacit.errors import InvalidValue
from tacit.estimators.ball import FINE, Ball
from tacit.estimators.clusters.aggregate import Round, reaches
from tacit.estimators.clusters.coreset import grown, packed, weighted_centres
from tacit.estimators.clusters.passes import Nearest, Pass
from tacit.estimators.coding import rows_to_predict
from tacit.estimators.counting import deviation_of
from tacit.estimators.private import PrivateEstimator, PrivateRows, Public, Recipe
from tacit.mechanisms import Gaussian, Laplace
from tacit.models.description import Profiles, Sizes
from tacit.randomness import Source

__all__ = ["KMeans"]

Array = NDArray[np.float64]



@dataclass(frozen=True)
class _Setting:
    """How ``method="tree"`` divides its budget, tuned on two sets of blobs and on Fashion-MNIST."""

    leaves: int
    """Leaves for each cluster, at least."""
    passes: int
    share: float
    """The part of the budget that the tree gets; the passes of Lloyd's algorithm after it get the rest."""
    certain: float
    """How well the means of the halves of a cell must be known for it to be cut, in radii."""


SETTINGS = {"gaussian": _Setting(8, 3, 0.5, 0.1), "laplace": _Setting(2, 1, 0.7, 0.4)}
"""By the kind of noise: Laplace noise grows with the number of passes, Gaussian noise with its root."""
SQUARES = 0.5
"""The weight of squares beside sums in the passes of the tree."""
SPREAD = 0.15
"""How far a centre may be expected to move in a pass, in radii."""
PASSES = {"lloyd": 5, "aggregate": 4}
"""How often the centres are moved by the other methods, where ``passes`` is left out."""
LARGEST_DEPTH = 12


@dataclass(frozen=True)
class _KMeansRecipe(Recipe):
    ball: Ball = dataclasses.field(kw_only=True)
    tree: tuple[Pass, ...] = dataclasses.field(kw_only=True)
    certain: float = dataclasses.field(kw_only=True)
    lloyd: tuple[Pass, ...] = dataclasses.field(kw_only=True)
    rounds: tuple[Round, ...] = dataclasses.field(kw_only=True)


class KMeans(ClusterMixin, PrivateEstimator):  # type: ignore[misc]
    """Private k-means: centres from noisy counts and sums, in a fixed number of passes over the rows.

    ``method="tree"``, the default, first makes a private coreset. A tree cuts the space at noisy means,
    across the coordinate with the largest noisy variance; the counts and means of its leaves, which are noisy
    too, are a small weighted data set in place of the rows, on which ordinary k-means runs as often as
    it likes. Then ``passes`` steps of Lloyd's algorithm on the rows improve the centres. It is a tree of
    noisy counts as in Chang, Ghazi, Kumar and Manurangsi 2021, with cuts that follow the data, not hashes.
    ``method="lloyd"`` starts from public points that are spread out and only makes steps of Lloyd's algorithm
    (Blum, Dwork, McSherry and Nissim 2005; Su et al. 2016). ``method="aggregate"`` draws small blocks of
    rows, moves the centres in each of them, and averages the moves with noise (Nissim, Raskhodnikova and
    Smith 2007, with a public bound on a block's move in place of one that is read off the blocks).

    Relation: ``add_remove`` or ``replace_one`` of one row, or of one unit of at most ``rows_per_unit`` rows.
    Sensitivity: rows lie in a ball of public radius. In a pass, a row adds (w, x) to its own cell and
    nothing to the others, so all cells together move by √(w² + 1) radii in ℓ2, and by
    w + ‖x‖₁ in ℓ1 (the tree adds squares to that; ``tacit.estimators.clusters.passes`` has the proof and how
    w is chosen). In a round of ``aggregate``, a row moves the sum over blocks by twice the public bound.
    Event: ``Compose`` of one ``Gaussian`` for each pass for δ > 0, one ``Laplace`` for each for δ = 0. The
    number of passes is public. Rows are on a grid of integers, so that sums are exact.

    ``epsilon``, ``delta``
        the whole cost of ``fit``.
    ``n_clusters``
        how many centres there are to be.
    ``method``, ``passes``
        see above; left out, ``passes`` is 3 after a tree (1 for δ = 0), 5 for Lloyd and 4 for blocks.
    ``depth``
        of the tree: how often the space is cut. Left out, there are up to 8 leaves a cluster, 2 for δ = 0.
    ``blocks``
        how many blocks ``method="aggregate"`` makes.
    ``bounds``, ``norm``
        what is publicly known of the features: (lower, upper), and of a row: its largest ℓ2 norm. Longer rows
        are shortened. A :class:`~tacit.estimators.Preprocessor` or :class:`~tacit.estimators.PCA` before
        tells both. Distances are those of the features as they are: scale them before.
    ``relation``, ``rows_per_unit``, ``ledger``, ``label``, ``verbose``, ``random_state``
        as for every estimator, see :mod:`tacit.estimators.private`.

    Released: ``cluster_centers_`` and ``cluster_sizes_``, the noisy number of rows of each centre in the last
    pass (not with ``aggregate``). There is no ``inertia_`` and there are no ``labels_``: both would be read
    off private rows. A centre that no row is near to stays where it was.

    >>> rows = np.repeat([[1.0, 1.0], [9.0, 9.0]], 500, axis=0)
    >>> model = KMeans(1.0, 1e-6, n_clusters=2, bounds=(0, 10), random_state=1).fit(rows)
    >>> np.sort(model.cluster_centers_, axis=0).round().tolist()
    [[1.0, 1.0], [9.0, 9.0]]
    >>> model.predict([[0.0, 2.0]]).tolist() == model.predict([[2.0, 0.0]]).tolist()
    True
    """

    title = "k-means clustering"
    supervised = False
    fits_tables = True
    released = (
        "cluster_centers_", "cluster_sizes_", "bounds_", "origin_", "radius_",
        "n_features_in_", "feature_names_in_",
    )  # fmt: skip
    predicts_from = ("cluster_centers_", "bounds_", "origin_", "radius_")

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        n_clusters: int = 8,
        method: str = "tree",
        passes: int | None = None,
        depth: int | None = None,
        blocks: int = 500,
        bounds: Any = None,
        norm: float | None = None,
        relation: Any = "add_remove",
        rows_per_unit: int = 1,
        ledger: Any = None,
        label: str | None = None,
        verbose: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.n_clusters = n_clusters
        self.method = method
        self.passes = passes
        self.depth = depth
        self.blocks = blocks
        self.bounds = bounds
        self.norm = norm
        self.relation = relation
        self.rows_per_unit = rows_per_unit
        self.ledger = ledger
        self.label = label
        self.verbose = verbose
        self.random_state = random_state

    def _recipe(self, public: Public) -> _KMeansRecipe:
        ball = Ball.of(public, bounds=self.bounds, norm=self.norm)
        method = _validate.choice("method", self.method, ("tree", *PASSES))
        number = _validate.count("n_clusters", self.n_clusters, 1)
        blocks = _validate.count("blocks", self.blocks, 1)
        setting = SETTINGS["gaussian" if public.delta > 0 else "laplace"]
        moves = PASSES.get(method, setting.passes)
        if self.passes is not None:
            moves = _validate.count("passes", self.passes, 1)
        depth = min(math.ceil(math.log2(setting.leaves * number)), LARGEST_DEPTH)
        if self.depth is not None:
            depth = _validate.count("depth", self.depth, 1)
        tree: tuple[Pass, ...] = ()
        lloyd: tuple[Pass, ...] = ()
        rounds: tuple[Round, ...] = ()
        if method == "aggregate":
            rounds = tuple(_rounds(public, ball, number, moves, blocks))
            mechanism = rounds[-1].mechanism
            event: events.Event = events.Repeat(mechanism.event, moves)
            parts: tuple[tuple[str, float], ...] = (("rounds", public.epsilon),)
            noise = deviation_of(mechanism) / blocks
            note = f"{moves} rounds of {blocks} blocks; noise of deviation {noise:.4g} radii on each centre"
        else:
            share = setting.share if method == "tree" else 0.0
            lloyd = (_pass(public, ball, (1 - share) / moves, 0.0),) * moves
            event = events.Repeat(lloyd[0].mechanism.event, moves)
            parts = (("passes", (1 - share) * public.epsilon),)
            if method == "tree":
                tree = (_pass(public, ball, share / (depth + 1), SQUARES),) * (depth + 1)
                event = events.Compose((events.Repeat(tree[0].mechanism.event, depth + 1), event))
                parts = (("tree", share * public.epsilon), *parts)
            made = f"a tree {depth} deep, then " if method == "tree" else ""
            told = "1 pass" if moves == 1 else f"{moves} passes"
            note = f"{made}{told}; noise of deviation {lloyd[0].deviation:.4g} radii on each sum"
        return _KMeansRecipe(
            event, "exact", parts, (f"{note}, the radius being {ball.radius:.4g}",),
            ball=ball, tree=tree, certain=setting.certain, lloyd=lloyd, rounds=rounds,
        )  # fmt: skip

    def _carry_out(self, recipe: _KMeansRecipe, rows: Any, source: Source) -> None:
        ball, number = recipe.ball, self.n_clusters
        blocks: Iterable[PrivateRows] = rows.each(lambda block: block)
        if recipe.tree:
            centres = weighted_centres(*grown(recipe.tree, recipe.certain, blocks, source), number, source)
        else:
            centres = packed(number, ball.lower.size, source)
        centres = ball.inside(centres)
        for reading in recipe.lloyd:
            found = reading(Nearest(centres), blocks, source)
            centres = ball.inside(found.centres(centres, SPREAD))
            self.cluster_sizes_ = found.counts
        for round_ in recipe.rounds:
            centres = round_(centres, rows, source)
        for name, fact in ball.facts.items():
            setattr(self, name, fact)
        self.cluster_centers_ = ball.raw(centres)

    def _require_tables(self) -> None:
        super()._require_tables()
        if self.method == "aggregate":
            needed = "another one for a table, for its small blocks of rows are drawn in memory"
            raise InvalidValue("method", self.method, needed, 'Use method="tree", or fit.')

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The number of the nearest centre. Rows are clipped to what is publicly known, as in ``fit``."""
        check_is_fitted(self, "cluster_centers_")
        return self._nearest(rows_to_predict(self, X))

    def _nearest(self, matrix: NDArray[Any]) -> NDArray[np.int64]:
        ball = Ball.fitted(self)
        nearest = Nearest((np.asarray(self.cluster_centers_) - ball.origin) / ball.radius, FINE)
        return nearest.places(ball.whole(matrix, FINE))

    def fit_predict(self, X: Any, y: Any = None, units: Any = None) -> NDArray[np.int64]:
        """As :meth:`fit`, then the number of the nearest centre of each row.

        No guarantee covers the answers for private rows. Rows are read as :meth:`fit` reads them, so that no
        value makes this raise: what is no number is missing, as in :meth:`predict`.
        """
        self.fit(X, y, units)
        return self._nearest(given.declared_matrix(X, int(self.n_features_in_)))

    def _facts(self) -> tuple[tuple[str, str], ...]:
        return (
            ("features", str(self.n_features_in_)), ("clusters", str(len(self.cluster_centers_))),
            ("method", str(self.method)),
        )  # fmt: skip

    def _sizes(self) -> Sizes | None:
        found = getattr(self, "cluster_sizes_", None)
        if found is None:
            return None
        about = "How many rows are nearest to each centre, counted with noise in the last pass."
        names = tuple(f"cluster {place}" for place in range(len(found)))
        return Sizes("Clusters", about, names, tuple(np.maximum(found, 0.0).round().tolist()))

    def _profiles(self, names: Sequence[str]) -> Profiles:
        about = "The centre of each cluster, in the units of the features; of a category, its share."
        heads = tuple(f"cluster {place}" for place in range(len(self.cluster_centers_)))
        rows = tuple(zip(names, map(tuple, np.asarray(self.cluster_centers_).T.tolist()), strict=True))
        return Profiles("Centres", about, heads, rows, in_units=True)


def _mechanism(public: Public, share: float, l1: float, l2: float) -> Gaussian | Laplace:
    """The noise of a release that may cost this share: of ε, or of 1/noise_multiplier² for Gaussian noise."""
    rows = public.unit.rows
    if public.delta == 0:
        return Laplace(rows * l1, epsilon=public.epsilon * share * (1 - 1e-12))
    whole = _gaussian.noise_multiplier(public.epsilon, public.delta)
    return Gaussian(rows * l2, noise_multiplier=whole / math.sqrt(share) * (1 + 1e-12))


def _pass(public: Public, ball: Ball, share: float, squares: float) -> Pass:
    weight = Pass.weight(ball, public.delta > 0)
    l1, l2 = (Pass.sensitivity(ball, public.relation, weight, squares, norm) for norm in (1, 2))
    return Pass(ball, weight, squares, _mechanism(public, share, l1, l2))


def _rounds(public: Public, ball: Ball, number: int, moves: int, blocks: int) -> list[Round]:
    coordinates = math.sqrt(number * ball.lower.size)
    return [
        Round(ball, blocks, reach, _mechanism(public, 1 / moves, 2 * reach * coordinates, 2 * reach))
        for reach in reaches(number, moves)
    ]
