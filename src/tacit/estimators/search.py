"""Hyper-parameter search that pays for itself: the best of a random number of private fits."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tacit import _validate, accounting, events
from tacit._stopping import Poisson, Stopping
from tacit.accounting.filters import WORTH_A_DELTA
from tacit.errors import InvalidValue
from tacit.estimators.private import PrivateEstimator, PrivateRows, Public, Recipe
from tacit.estimators.trials import PrivateScore, best_of, drawn, held_out, stopping_of
from tacit.evaluation.rowlocal import register_rowwise
from tacit.guarantee import NOISE_KINDS
from tacit.models.description import Description
from tacit.randomness import Source, uniform

__all__ = ["PrivateSearch"]

MOST_CANDIDATES = 1000
OWN = (
    "epsilon", "delta", "relation", "rows_per_unit", "ledger", "label", "verbose", "random_state", "classes",
    "target_bounds", "task",
)  # fmt: skip
"""Parameters that are the search's, or the same for all candidates."""
BELOW = 1 - 1e-9
"""ε of a trial is rounded down by this share, for the rounding of the parts that it is split into."""


@dataclass(frozen=True)
class _Candidate:
    """One entry of the grid."""

    params: Mapping[str, Any]
    model: PrivateEstimator
    recipe: Recipe


@dataclass(frozen=True, kw_only=True)
class _SearchRecipe(Recipe):
    candidates: tuple[_Candidate, ...]
    stopping: Stopping
    score: PrivateScore
    test_share: float


@dataclass(frozen=True)
class _Trial:
    """What one trial releases, if it is the best."""

    params: Mapping[str, Any]
    model: PrivateEstimator
    score: float


def _best_has(name: str) -> Callable[[Any], bool]:
    """Whether the estimator that is searched, or the best one, has a method."""
    return lambda search: hasattr(getattr(search, "best_estimator_", search.estimator), name)


class PrivateSearch(PrivateEstimator):
    """The best of a random number of private fits, for the price of about two.

    A trial draws an entry of the grid, fits it privately, and scores it privately on rows that it was not
    fitted to. The number of trials K is random and secret; the trial with the best noisy score is released
    with that score, all others are forgotten. A search that pays for every fit costs K times a trial. This
    one costs (2 + η) times a trial in ε where δ = 0, however many entries the grid has and however many
    trials there are: 2 for a logarithmic K (η = 0), 3 for a geometric one (η = 1).
    ``epsilon`` and ``delta`` are of the whole search; the ε of a trial is calibrated to them.

    Papers: Liu and Talwar 2019, "Private selection from private candidates"; Papernot and Steinke 2022,
    "Hyperparameter tuning with Rényi differential privacy". The bounds are derived in :mod:`tacit._stopping`.

    **Relation**: ``add_remove`` or ``replace_one`` of one row, or of one unit with its rows.

    **Sensitivity and event.** A coin of probability ``test_share`` puts each unit, with all of its rows,
    among the rows that score or among those that are fitted, for all trials alike. It depends on no row. Fix
    the coins of all units; a replaced unit keeps the coin of the one before it, and where a unit is added or
    removed, the coins of all others are the same in both data sets. Fix also the entry of the grid that a
    trial draws. If the unit is among the rows that are fitted, then the scoring rows are the same in both, so
    the trial is a fit and post-processing: it costs the event of that fit. Otherwise the fitted model has the
    same distribution in both, and the trial costs the event of the score. So a trial costs the worst of these
    (``OneOf`` of the fits of all entries and the score), whatever the draws; and because no draw depends on
    the data, so does the trial without them fixed. The output of a trial (parameters, model, noisy score) is
    what the best is selected from, by a part of it. Hence the event ``BestOf`` (``BestOfPoisson`` for a
    Poisson K) of that ``OneOf``, charged once and before any row is read. The fits inside charge nothing.

    **Not released**: K, the trials that lost and their scores, which rows scored. K decides how long ``fit``
    takes, and so do the entries that were drawn: whoever can time a fit learns of K, which the proof takes as
    secret. Do not publish running times.

    **No fit to all rows follows.** To fit the best parameters once more, to all rows, is another release,
    which costs its own ε: give it a part of the budget if it is worth that.

    ``estimator``
        a private estimator with its public facts (classes, bounds). Its own ``epsilon``, ``delta``,
        ``relation``, ``rows_per_unit`` and ``random_state`` are those of the search; a ``ledger`` that the
        search is not given is refused, as it would not be charged. A ``population`` is that of all
        rows; the candidates are told the share of it that is fitted.
    ``grid``
        lists of values by parameter, all combinations of which are candidates, or a list of such grids. It
        is public, and chosen without the data.
    ``epsilon``, ``delta``
        the whole cost of ``fit``.
    ``trials``
        the expected number of trials, 1 or more. More of them cost nothing at δ = 0, and little at δ > 0; but
        they take time, and their best score is the more an accident of noise. Expect several for each
        candidate: the plan says how probably one of them, be it the best, is never tried.
    ``stopping``
        the distribution of K: ``"logarithmic"``, ``"geometric"``, ``"poisson"``, or η of a truncated negative
        binomial, above −1. The smaller η, the cheaper, and the more often there is one trial only. A Poisson
        K may be 0: then a model of no rows is released.
    ``scoring``
        ``"accuracy"``, or ``"auroc"`` for two classes; ``"r2"`` of a regression, which is clipped to [−1, 1].
    ``test_share``
        the expected share of the rows that score. Both parts pay with the same ε, as no unit is in both.
    ``relation``, ``rows_per_unit``, ``ledger``, ``label``, ``verbose``, ``random_state``
        as for every estimator, see :mod:`tacit.estimators.private`.

    Released: ``best_estimator_``, ``best_params_`` and ``best_score_``, which is noisy and, as the best of
    several, rather too high. The search predicts with its best estimator, and that is what :func:`tacit.save`
    writes, with the guarantee of the search.

    >>> from tacit.estimators import NaiveBayes
    >>> rows = np.random.default_rng(1).uniform(-1, 1, size=(4000, 2)); labels = np.abs(rows[:, 0]) > 0.5
    >>> model = NaiveBayes(classes=[False, True], bounds=(-1, 1))
    >>> search = PrivateSearch(model, {"bins": [2, 16]}, 1.0, trials=8, random_state=2)
    >>> print(search.plan(2))
    ε = 1, δ = 0, add_remove of one row
      each trial   ε = 0.519
      2 candidates, 8 trials expected: truncated negative binomial with η = 0, γ = 0.03634
      each is fitted to about 80% of the rows and scored by accuracy on the others
      with probability 0.2, a given candidate is never tried
    >>> search = search.fit(rows, labels)
    >>> search.best_params_, search.best_score_ > 0.9, search.guarantee_.epsilon
    ({'bins': 16}, True, 1.0)
    """

    title = "private search"
    released = ("best_estimator_", "best_params_", "best_score_", "n_features_in_", "feature_names_in_")
    chosen = "the grid of the search and the parameters outside it were chosen without the data"

    def __init__(
        self,
        estimator: Any,
        grid: Any,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        trials: float = 10.0,
        stopping: str | float = "logarithmic",
        scoring: str | None = None,
        test_share: float = 0.2,
        relation: Any = "add_remove",
        rows_per_unit: int = 1,
        ledger: Any = None,
        label: str | None = None,
        verbose: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.grid = grid
        self.epsilon = epsilon
        self.delta = delta
        self.trials = trials
        self.stopping = stopping
        self.scoring = scoring
        self.test_share = test_share
        self.relation = relation
        self.rows_per_unit = rows_per_unit
        self.ledger = ledger
        self.label = label
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        own = getattr(self.estimator, "__sklearn_tags__", None)
        if own is not None:
            inner = own()
            tags.estimator_type, tags.target_tags = inner.estimator_type, inner.target_tags
            tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
            tags.input_tags = inner.input_tags
        return tags

    @property
    def classes(self) -> Any:
        """The labels that the estimator declares."""
        return getattr(self.estimator, "classes", None)

    @property
    def population(self) -> Any:
        """The public number of rows that the estimator declares."""
        return getattr(self.estimator, "population", None)

    @property
    def classes_(self) -> Any:
        """The classes of the best estimator."""
        return self.best_estimator_.classes_

    def _declared_width(self) -> int | None:
        return self._searched()._declared_width()

    def _searched(self) -> PrivateEstimator:
        """The estimator that is searched, which must be a private one with a target."""
        found = self.estimator
        if isinstance(found, PrivateEstimator) and not isinstance(found, PrivateSearch) and found.supervised:
            if getattr(found, "ledger", None) not in (None, self.ledger):
                advice = "Give the ledger to the search, which charges once for all fits."
                needed = "left out, or that of the search"
                raise InvalidValue("ledger of the estimator", "another", needed, advice)
            return found
        advice = "Put a Preprocessor before the search, in a pipeline, and not inside it."
        raise InvalidValue("estimator", type(found).__name__, "a private classifier or regression", advice)

    def _combinations(self) -> list[dict[str, Any]]:
        """Every candidate's parameters."""
        searched = self._searched()
        grids = [self.grid] if isinstance(self.grid, Mapping) else self.grid
        shape = "lists of values by parameter, or a list of such grids"
        if not isinstance(grids, Sequence) or isinstance(grids, str) or not grids:
            raise InvalidValue("grid", type(self.grid).__name__, shape)
        known = set(searched.get_params(deep=False)) - set(OWN)
        found: list[dict[str, Any]] = []
        for grid in grids:
            if not isinstance(grid, Mapping):
                raise InvalidValue("grid", type(grid).__name__, shape)
            for name, values in grid.items():
                if name not in known:
                    advice = f"Its parameters are {', '.join(sorted(known))}."
                    raise InvalidValue("grid", name, f"a parameter of {type(searched).__name__}", advice)
                if not isinstance(values, (list, tuple, np.ndarray)) or not len(values):
                    raise InvalidValue(f"grid[{name!r}]", type(values).__name__, "a list of values")
            if math.prod(len(values) for values in grid.values()) + len(found) > MOST_CANDIDATES:
                raise InvalidValue("grid", "more candidates", f"at most {MOST_CANDIDATES}")
            found += [dict(zip(grid, each, strict=True)) for each in itertools.product(*grid.values())]
        return found

    def _recipe(self, public: Public) -> _SearchRecipe:
        stopping = stopping_of(self.stopping, self.trials)
        share = _validate.open_probability("test_share", self.test_share)
        combinations = self._combinations()
        models = [self._candidate(params, share) for params in combinations]
        delta = public.delta / (2 * stopping.mean)
        made: dict[float, tuple[tuple[Recipe, ...], PrivateScore]] = {}

        def trial(epsilon: float) -> events.Event:
            if epsilon not in made:
                inner = dataclasses.replace(public, epsilon=epsilon, delta=delta)
                for model in models:
                    model.set_params(epsilon=epsilon, delta=delta)
                recipes = tuple(model._recipe(inner) for model in models)
                made.clear()
                made[epsilon] = recipes, PrivateScore.of(models[0], self.scoring, inner)
            recipes, score = made[epsilon]
            parts = dict.fromkeys([*(recipe.event for recipe in recipes), score.noise.event])
            return best_of(events.OneOf(tuple(parts)), stopping)

        def without_delta(epsilon: float) -> float:
            return accounting.epsilon(trial(epsilon), 0.0, relation=public.relation)

        pure = own = _pure_trial(stopping, public.epsilon)
        if public.delta > 0:
            own = 1 / accounting.calibrate(
                lambda noise: trial(1 / noise),
                epsilon=public.epsilon, delta=public.delta, relation=public.relation,
            )  # fmt: skip
            hardly_more = without_delta(own) <= WORTH_A_DELTA * public.epsilon
            own = pure if hardly_more and without_delta(pure) <= public.epsilon else own
        event = trial(own)
        recipes, score = made[own]
        candidates = tuple(_Candidate(*each) for each in zip(combinations, models, recipes, strict=True))
        law = "Poisson"
        if not isinstance(stopping, Poisson):
            law = f"truncated negative binomial with η = {stopping.eta:.4g}, γ = {stopping.gamma:.4g}"
        fitted = f"{100 * (1 - share):.3g}%"
        notes = (
            f"{len(candidates)} candidates, {stopping.mean:.4g} trials expected: {law}",
            f"each is fitted to about {fitted} of the rows and scored by {score.figure} on the others",
            f"with probability {stopping.missed(1 / len(candidates)):.2g}, a given candidate is never tried",
        )
        doubts = recipes[0].doubts if all(recipe.doubts for recipe in recipes) else ()
        kinds = [score.noise.noise, *(recipe.kind for recipe in recipes)]
        return _SearchRecipe(
            event, max(kinds, key=NOISE_KINDS.index), (("each trial", own),), notes, candidates=candidates,
            stopping=stopping, score=score, test_share=share, doubts=doubts,
        )  # fmt: skip

    def _candidate(self, params: Mapping[str, Any], share: float) -> PrivateEstimator:
        """The estimator with one entry of the grid, for the rows that are fitted."""
        model: PrivateEstimator = clone(self._searched())
        model.set_params(**params, ledger=None, label=None, verbose=False, random_state=None)
        model.set_params(relation=self.relation, rows_per_unit=self.rows_per_unit)
        population = getattr(model, "population", None)
        if isinstance(population, int) and population > 0:
            model.set_params(population=max(1, round(population * (1 - share))))
        return model

    def _carry_out(self, recipe: _SearchRecipe, rows: PrivateRows, source: Source) -> None:
        test = held_out(rows, recipe.test_share, source)
        fitted, scored = rows.part(~test), rows.part(test)
        best: _Trial | None = None
        for _ in range(drawn(recipe.stopping, source)):
            found = self._trial(recipe, fitted, scored, source)
            best = found if best is None or found.score > best.score else best
        if best is None:
            nobody = rows.part(np.zeros(len(rows.matrix), dtype=bool))
            best = self._trial(recipe, nobody, nobody, source)
        self.best_params_ = dict(best.params)
        self.best_estimator_, self.best_score_ = best.model, best.score

    def _trial(
        self, recipe: _SearchRecipe, fitted: PrivateRows, scored: PrivateRows, source: Source
    ) -> _Trial:
        """The base mechanism: an entry drawn uniformly, fitted to one part and scored on the other."""
        candidate = recipe.candidates[int(uniform(source, len(recipe.candidates), 1)[0])]
        model = copy.copy(candidate.model)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        model._carry_out(candidate.recipe, fitted, source)
        return _Trial(candidate.params, model, recipe.score(model, scored, source))

    def _fit(self, *arguments: Any) -> Any:
        super()._fit(*arguments)
        self.best_estimator_.event_, self.best_estimator_.guarantee_ = self.event_, self.guarantee_
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """What the best estimator predicts."""
        check_is_fitted(self, "best_estimator_")
        return np.asarray(self.best_estimator_.predict(X))

    @available_if(_best_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """The probability of each class, by the best estimator."""
        check_is_fitted(self, "best_estimator_")
        return np.asarray(self.best_estimator_.predict_proba(X))

    @available_if(_best_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[Any]:
        """The decision of the best estimator for each row."""
        check_is_fitted(self, "best_estimator_")
        return np.asarray(self.best_estimator_.decision_function(X))

    def score(self, X: Any, y: Any) -> float:
        """The accuracy or r² of the best estimator, without noise: no guarantee covers it."""
        check_is_fitted(self, "best_estimator_")
        return float(self.best_estimator_.score(X, y))

    def describe(self, names: Sequence[str] | None = None) -> Description:
        """What the best estimator says of itself."""
        check_is_fitted(self, "guarantee_")
        described: Description = self.best_estimator_.describe(names)
        return described

    def _saved_as(self) -> Any:
        """What is written in place of the search: its best estimator, with the search's guarantee."""
        return getattr(self, "best_estimator_", self)


@lru_cache(256)
def _pure_trial(stopping: Stopping, epsilon: float) -> float:
    """ε of a trial of which the best is ``epsilon``-DP."""

    def search(noise: float) -> events.Event:
        return best_of(events.Pure(1 / noise), stopping)

    return BELOW / accounting.calibrate(search, epsilon=epsilon, delta=0.0)


register_rowwise(PrivateSearch, ("best_estimator_",))
