"""PCA: private principal components."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from tacit import _validate, accounting, events
from tacit.data import given
from tacit.data.features import Features, Known, known
from tacit.errors import InvalidValue
from tacit.estimators.ball import FINE, Ball, on_grid
from tacit.estimators.components.bingham import directions
from tacit.estimators.components.moments import COUNT, MEAN, ROUNDING, NoisyTrace, NoisyTriangle, moments
from tacit.estimators.counting import deviation_of
from tacit.estimators.private import PrivateEstimator, Public, Recipe, Rows
from tacit.mechanisms import Laplace
from tacit.models.description import Profiles, Sizes
from tacit.randomness import Source
from tacit.relations import Relation

__all__ = ["PCA"]

Array = NDArray[np.float64]

METHODS = ("auto", "analyze_gauss", "wishart", "sulq", "exponential")
MEAN_SHARE, VARIANCE_SHARE = 0.1, 0.15
"""The parts of ε that buy the mean and the variances with ``method="exponential"``."""


@dataclass(frozen=True)
class _Drawing:
    """The exponential mechanism: what each of its releases costs."""

    number: int
    scale: float
    """The factor on vᵀAv for rows of length 1."""
    mean: Laplace | None
    """The noise on Σx and n; None where the mean is the origin."""
    variances: Laplace
    """The noise on vᵀAv of each component, on what is left of the trace, and on n."""
    kind = "float64"


@dataclass(frozen=True)
class _PCARecipe(Recipe):
    ball: Ball = dataclasses.field(kw_only=True)
    number: int = dataclasses.field(kw_only=True)
    release: NoisyTriangle | NoisyTrace | _Drawing = dataclasses.field(kw_only=True)


class PCA(TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """Private principal component analysis, for use alone or before another private estimator.

    The second moments Σxxᵀ of rows in a ball are released with symmetric noise, and its eigenvectors taken:
    ``method="analyze_gauss"`` with Gaussian noise for δ > 0 (Dwork, Talwar, Thakurta and Zhang 2014),
    ``"wishart"`` with :class:`~tacit.mechanisms.Wishart` noise for δ = 0, ``"sulq"`` with independent noise
    of one size on the triangle, Gaussian or Laplace (Blum, Dwork, McSherry and Nissim 2005, made symmetric).
    ``"exponential"`` draws each component v from the density ∝ exp(s·vᵀΣxxᵀv) (Chaudhuri, Sarwate and Sinha
    2013), by an exact sampler instead of a Markov chain, and the next one orthogonal to those before.
    ``"auto"``, the default, is ``"analyze_gauss"`` for δ > 0 and ``"wishart"`` for δ = 0.

    Relation: ``add_remove`` or ``replace_one`` of one row, or of one unit of at most ``rows_per_unit`` rows.
    Sensitivity: rows divided by the radius have ‖x‖ ≤ 1, so xxᵀ has Frobenius and trace norm at most 1, and
    xxᵀ − yyᵀ at most √2 and 2; the number of rows, and the mean where it is bought, are parts of
    the same release (:mod:`tacit.estimators.components.moments` has the proof). vᵀxxᵀv lies in [0, 1], so
    with s = ε the privacy loss of a drawn direction spans an interval of length ε where a row is added, and
    with s = ε/2 where one is replaced.
    Event: one ``Gaussian``, ``Pure`` or ``Laplace``; with ``"exponential"`` a ``BoundedRange`` for each
    component and a ``Laplace`` for the variances, 15 % of ε.

    ``epsilon``, ``delta``
        the whole cost of ``fit``.
    ``n_components``
        how many components there are to be.
    ``method``
        see above.
    ``mean``
        what rows are centred at: ``"midpoint"`` of the bounds (zero where a norm is known), which costs
        nothing, or ``"dp"``, the mean, which is then part of the release. Unless the midpoint is close to the
        mean, the first component about it points to the mean.
    ``bounds``, ``norm``
        what is publicly known of the features: (lower, upper), and of a row: its largest ℓ2 norm. Longer rows
        are shortened. A :class:`~tacit.estimators.Preprocessor` before tells both. Features keep their units.
    ``relation``, ``rows_per_unit``, ``ledger``, ``label``, ``verbose``, ``random_state``
        as for every estimator, see :mod:`tacit.estimators.private`.

    Released: ``components_``, ``mean_``, ``explained_variance_`` and ``explained_variance_ratio_``. Variances
    come from the same noisy matrix, less what the noise is expected to add to an eigenvalue; one that is
    not larger than noise makes is 0.

    This is also the private linear auto-encoder: :meth:`transform` encodes and :meth:`inverse_transform`
    decodes. Without noise, no linear encoder and decoder with as many units return the rows with a smaller
    squared error (Baldi and Hornik 1989). An auto-encoder of several layers is
    :class:`tacit.training.AutoEncoder`.

    What :meth:`transform` returns carries its public bounds to the next step, so that an estimator after it
    needs none; :func:`tacit.estimators.share_budget` splits one ε between the steps of a pipeline.

    >>> random = np.random.default_rng(1)
    >>> rows = random.normal(size=(5000, 1)) * [3.0, 4.0] + random.normal(size=(5000, 2)) * 0.1
    >>> model = PCA(1.0, 1e-6, n_components=1, bounds=(-20, 20), random_state=1).fit(rows)
    >>> model.components_.round(1).tolist(), model.event_
    ([[0.6, 0.8]], Gaussian(noise_multiplier=4.22...))
    >>> model.transform([[3.0, 4.0]]).round().tolist()
    [[5.0]]
    """

    title = "principal component analysis"
    supervised = False
    fits_tables = True
    released = (
        "components_", "mean_", "explained_variance_", "explained_variance_ratio_",
        "bounds_", "origin_", "radius_", "n_features_in_", "feature_names_in_",
    )  # fmt: skip
    predicts_from = ("components_", "mean_", "bounds_", "origin_", "radius_")

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        n_components: int = 2,
        method: str = "auto",
        mean: str = "midpoint",
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
        self.n_components = n_components
        self.method = method
        self.mean = mean
        self.bounds = bounds
        self.norm = norm
        self.relation = relation
        self.rows_per_unit = rows_per_unit
        self.ledger = ledger
        self.label = label
        self.verbose = verbose
        self.random_state = random_state

    def _recipe(self, public: Public) -> _PCARecipe:
        ball = Ball.of(public, bounds=self.bounds, norm=self.norm)
        number = _validate.count("n_components", self.n_components, 1)
        if number > public.width:
            raise InvalidValue("n_components", number, f"at most {public.width}, the number of features")
        method = _validate.choice("method", self.method, METHODS)
        if method == "auto":
            method = "analyze_gauss" if public.delta > 0 else "wishart"
        if method == "analyze_gauss" and public.delta == 0:
            advice = 'Set delta=, or method="wishart".'
            raise InvalidValue("method", method, "another one where delta is 0", advice)
        bought = _validate.choice("mean", self.mean, ("midpoint", "dp")) == "dp"
        if method == "exponential":
            return _drawn(public, ball, number, bought)
        ratio = MEAN if bought else 0.0
        release: NoisyTriangle | NoisyTrace = (
            NoisyTrace.of(public, ratio)
            if method == "wishart"
            else NoisyTriangle.of(public, ball, ratio, math.sqrt(2) if method == "analyze_gauss" else 1.0)
        )
        noise = 2 * release.deviation * math.sqrt(public.width)
        note = f"noise of up to {noise:.4g} squared radii on an eigenvalue of Σxxᵀ"
        return _PCARecipe(
            release.event, release.kind, (("moments", public.epsilon),),
            (f"{note}, the radius being {ball.radius:.4g}",), ball=ball, number=number, release=release,
        )  # fmt: skip

    def _carry_out(self, recipe: _PCARecipe, rows: Rows, source: Source) -> None:
        ball, release = recipe.ball, recipe.release
        exact = moments(ball, rows)
        if isinstance(release, _Drawing):
            mean, axes, seen, total, count = _draw(release, exact, source)
        else:
            noisy = release(exact, source)
            count, mean = max(noisy.count, 1.0), np.zeros(ball.lower.size)
            if release.ratio > 0:
                mean = _within(noisy.vector / count)
            matrix = noisy.matrix - count * np.outer(mean, mean)
            values, vectors = np.linalg.eigh(matrix)
            axes = vectors[:, ::-1].T[: recipe.number]
            seen = _cleaned(values[::-1][: recipe.number], release.deviation * math.sqrt(len(values)))
            total = float(np.trace(matrix))
        largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
        for name, fact in ball.facts.items():
            setattr(self, name, fact)
        self.components_ = axes * np.where(largest < 0, -1.0, 1.0)
        self.mean_ = ball.raw(mean)
        self.explained_variance_ = seen * (ball.radius**2 / count)
        self.explained_variance_ratio_ = seen / max(total, float(seen.sum()), 1e-9)

    @property
    def features_(self) -> Features:
        """What is publicly known of the output of :meth:`transform`: names, bounds and norm."""
        check_is_fitted(self, "components_")
        ball = Ball.fitted(self)
        far = ball.radius + math.hypot(*(np.asarray(self.mean_) - ball.origin))
        number = len(self.components_)
        return Features(tuple(self.get_feature_names_out()), (-far,) * number, (far,) * number, far,
                        paid=self.guarantee_.price)  # fmt: skip

    def transform(self, X: Any) -> Known:
        """The rows along the components, from :attr:`mean_`, with the public facts about them.

        Rows are clipped to what is publicly known, as in ``fit``. Each is treated by itself. In a pipeline
        they are private, so they are read value by value, as in ``fit``: whatever a value is, and however
        few rows there are, nothing is raised.
        """
        check_is_fitted(self, "components_")
        ball = Ball.fitted(self)
        given.require_numbers(X)
        matrix = given.declared_matrix(X, self.n_features_in_)
        validate_data(self, X if hasattr(X, "columns") else matrix, reset=False, skip_check_array=True)
        whole = ball.whole(matrix, FINE)
        axes = np.asarray(self.components_)
        along = whole @ on_grid(axes, FINE).T * (ball.radius / FINE**2)
        shift = ((np.asarray(self.mean_) - ball.origin) * axes).sum(axis=1)
        return known(along - shift, self.features_)

    def inverse_transform(self, X: Any) -> Array:
        """The points with these coordinates along the components, in the units of the features."""
        check_is_fitted(self, "components_")
        points = check_array(X, dtype=np.float64)
        return np.asarray(np.asarray(self.mean_) + points @ self.components_)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The names of the components; ``input_features`` is ignored."""
        check_is_fitted(self, "components_")
        return np.array([f"component {place}" for place in range(len(self.components_))], dtype=object)

    def _facts(self) -> tuple[tuple[str, str], ...]:
        told = f"{float(np.sum(self.explained_variance_ratio_)):.0%} of the variance, by the noisy figures"
        return (
            ("features", str(self.n_features_in_)), ("components", str(len(self.components_))),
            ("explain", told), ("method", str(self.method)), ("mean", str(self.mean)),
        )  # fmt: skip

    def _sizes(self) -> Sizes:
        about = "The share of the variance that each component explains, by the noisy figures."
        shares = np.asarray(self.explained_variance_ratio_).tolist()
        return Sizes("Explained variance", about, tuple(self.get_feature_names_out()), tuple(shares))

    def _profiles(self, names: Sequence[str]) -> Profiles:
        about = "The weight of each feature in each component; the squares of a component's add up to 1."
        rows = tuple(zip(names, map(tuple, np.asarray(self.components_).T.tolist()), strict=True))
        return Profiles("Components", about, tuple(self.get_feature_names_out()), rows)


def _drawn(public: Public, ball: Ball, number: int, bought: bool) -> _PCARecipe:
    """The recipe of the exponential mechanism: each component, the variances and the mean have their ε."""
    units = public.unit.rows
    replaced = public.relation is Relation.REPLACE_ONE
    shares = (VARIANCE_SHARE, MEAN_SHARE if bought else 0.0)
    whole = _whole(public.epsilon, public.delta, public.relation, shares, number)
    each = whole * (1 - sum(shares)) / number
    factor = (2 if replaced else 1) * ROUNDING * units
    mean = Laplace(factor * (MEAN * ball.largest_l1 + COUNT), epsilon=whole * shares[1]) if bought else None
    variances = Laplace(factor * (1 + COUNT), epsilon=whole * shares[0])
    drawing = _Drawing(number, each / (factor / ROUNDING), mean, variances)
    costs: tuple[events.Event, ...] = (events.Repeat(events.BoundedRange(each), number), variances.event)
    parts: tuple[tuple[str, float], ...] = (
        ("components", public.epsilon * (1 - sum(shares))), ("variances", public.epsilon * shares[0]),
    )  # fmt: skip
    if mean is not None:
        costs, parts = (*costs, mean.event), (*parts, ("mean", public.epsilon * shares[1]))
    note = f"each component is drawn with ε = {each:.4g} per squared radius, a radius being {ball.radius:.4g}"
    return _PCARecipe(
        events.Compose(costs), drawing.kind, parts, (note,), ball=ball, number=number, release=drawing
    )


@lru_cache(256)
def _whole(
    epsilon: float, delta: float, relation: Relation, shares: tuple[float, float], number: int
) -> float:
    """The sum of the ε of all releases: ε for δ = 0, and what composition allows beyond it for δ > 0."""
    if delta == 0:
        return epsilon * (1 - 1e-12)

    def composed(factor: float) -> events.Event:
        laplace = tuple(events.Laplace(factor / share) for share in shares if share > 0)
        each = (1 - sum(shares)) / number / factor
        return events.Compose((events.Repeat(events.BoundedRange(each), number), *laplace))

    found = accounting.calibrate(composed, epsilon=epsilon, delta=delta, relation=relation)
    return max(1 / found, epsilon) * (1 - 1e-12)


def _draw(drawing: _Drawing, exact: Any, source: Source) -> tuple[Array, Array, Array, float, float]:
    """Mean, components, their variances, all of the variance, and the number of rows.

    About a mean m that was released, a row is at most r = 1 + ‖m‖ long: directions are drawn with 1/r² of the
    scale. Of a row, the (vᵀx)² of orthonormal directions and what is left of ‖x‖² add up to at most r².
    """
    width = len(exact.matrix)
    mean = np.zeros(width)
    if drawing.mean is not None:
        told = np.append(exact.vector * MEAN, exact.count * COUNT)
        noisy = dataclasses.replace(drawing.mean, random_state=source)(told)
        mean = _within(noisy[:-1] / MEAN / max(float(noisy[-1]) / COUNT, 1.0))
    square = (1 + float(np.sqrt(np.square(mean).sum()))) ** 2
    matrix = exact.about(mean)
    axes = directions(matrix, drawing.scale / square, drawing.number, source)
    along = np.einsum("ij,jk,ik->i", axes, matrix, axes)
    told = np.concatenate([along, [np.trace(matrix) - along.sum()]]) / square
    noisy = dataclasses.replace(drawing.variances, random_state=source)(np.append(told, exact.count * COUNT))
    deviation = deviation_of(drawing.variances)
    seen = np.where(noisy[:-2] > deviation, noisy[:-2], 0.0) * square
    total = float(noisy[:-1].sum()) * square
    return mean, axes, seen, total, max(float(noisy[-1]) / COUNT, 1.0)


def _within(mean: Array) -> Array:
    """A mean as it can be: in the unit ball."""
    return np.asarray(mean / max(1.0, float(np.sqrt(np.square(mean).sum()))))


def _cleaned(values: Array, noise: float) -> Array:
    """Eigenvalues without what noise adds to them.

    Symmetric noise with entries of deviation σ moves an eigenvalue λ > σ√d to λ + σ²d/λ, and makes values of
    up to 2σ√d by itself (Benaych-Georges and Nadakuditi 2011). ``noise`` is σ√d.
    """
    above = np.maximum(values, 2 * noise)
    found = (above + np.sqrt(above**2 - 4 * noise**2)) / 2
    return np.asarray(np.where(values > 2 * noise, found, 0.0) if noise > 0 else np.maximum(values, 0.0))
