"""Which fitted models treat every row by itself: a closed table of classes, and a walk over a model's parts.

A class is in the table if its ``predict``, ``predict_proba``, ``decision_function`` or ``transform`` computes
the answer for a row from that row and from what was fitted, changes nothing in the model and draws nothing
at random. Rounding is another matter: a product of matrices may round a row by its place among the
others, so the parts that use products are listed here and put to the test in
:mod:`tacit.evaluation.alone`.

scikit-learn's classes are listed here. This library's own classes are registered (:func:`register_rowwise`)
by the package that defines them, and compute their products in one fixed order, so that they need no test.

The walk goes through everything that a model holds, down to arrays and numbers, and knows each by its exact
class. If one part is of another class (a subclass, be it of an array or a float, somebody's own estimator, a
function, a method that was replaced on the object), the model is not in the table.
Nearest neighbours by brute force are not in it: the rounding of a distance, which is a product, decides which
neighbour is nearer, and a test of the predictions, which are votes, would not show that it did.
"""

from __future__ import annotations

import datetime
import gc
import pathlib
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator

from tacit.data.preprocessor import Preprocessor
from tacit.errors import InvalidValue
from tacit.relations import Unit
from tacit.schema import About, Column, Dialect, Schema

__all__ = ["parts_with_products", "register_rowwise", "untouched"]

_registered: dict[type[Any], tuple[str, ...]] = {}
"""This library's own classes, each with the attributes that its answers are computed from."""

_WITH_PRODUCTS = {
    "sklearn.linear_model": """
        ARDRegression BayesianRidge ElasticNet ElasticNetCV GammaRegressor HuberRegressor Lars LarsCV Lasso
        LassoCV LassoLars LassoLarsCV LassoLarsIC LinearRegression LogisticRegression LogisticRegressionCV
        OrthogonalMatchingPursuit OrthogonalMatchingPursuitCV PassiveAggressiveClassifier
        PassiveAggressiveRegressor Perceptron PoissonRegressor QuantileRegressor Ridge RidgeCV
        RidgeClassifier RidgeClassifierCV SGDClassifier SGDRegressor TheilSenRegressor TweedieRegressor""",
    "sklearn.svm": "LinearSVC LinearSVR NuSVC NuSVR SVC SVR",
    "sklearn.naive_bayes": "BernoulliNB CategoricalNB ComplementNB GaussianNB MultinomialNB",
    "sklearn.discriminant_analysis": "LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis",
    "sklearn.neural_network": "MLPClassifier MLPRegressor",
    "sklearn.decomposition": "FactorAnalysis IncrementalPCA PCA TruncatedSVD",
    "sklearn.kernel_approximation": "Nystroem RBFSampler",
    "sklearn.preprocessing": """
        Normalizer PolynomialFeatures PowerTransformer QuantileTransformer SplineTransformer""",
}
"""Classes whose answer for a row goes through products or sums over its features, or a long formula."""

_OTHERS = {
    "sklearn.tree": "DecisionTreeClassifier DecisionTreeRegressor ExtraTreeClassifier ExtraTreeRegressor",
    "sklearn.ensemble": """
        AdaBoostClassifier AdaBoostRegressor BaggingClassifier BaggingRegressor ExtraTreesClassifier
        ExtraTreesRegressor GradientBoostingClassifier GradientBoostingRegressor
        HistGradientBoostingClassifier HistGradientBoostingRegressor RandomForestClassifier
        RandomForestRegressor StackingClassifier StackingRegressor VotingClassifier VotingRegressor""",
    "sklearn.ensemble._hist_gradient_boosting.binning": "_BinMapper",
    "sklearn.neighbors": "KNeighborsClassifier KNeighborsRegressor",
    "sklearn.dummy": "DummyRegressor DummyClassifier",
    "sklearn.pipeline": "FeatureUnion Pipeline",
    "sklearn.compose": "ColumnTransformer make_column_selector",
    "sklearn.preprocessing": """
        Binarizer FunctionTransformer KBinsDiscretizer LabelBinarizer LabelEncoder MaxAbsScaler MinMaxScaler
        OneHotEncoder OrdinalEncoder RobustScaler StandardScaler
        TargetEncoder""",
    "sklearn.impute": "MissingIndicator SimpleImputer",
    "sklearn.feature_selection": """
        GenericUnivariateSelect RFE RFECV SelectFdr SelectFpr SelectFromModel SelectFwe SelectKBest
        SelectPercentile VarianceThreshold""",
    "sklearn.calibration": """
        CalibratedClassifierCV _CalibratedClassifier _SigmoidCalibration _TemperatureScaling""",
    "sklearn.isotonic": "IsotonicRegression",
    "sklearn.multiclass": "OneVsOneClassifier OneVsRestClassifier _ConstantPredictor",
    "sklearn.model_selection": """
        FixedThresholdClassifier GridSearchCV RandomizedSearchCV TunedThresholdClassifierCV""",
    "sklearn.frozen": "FrozenEstimator",
}
"""Classes that compare, look up and add in one order, or hand the rows on to their parts."""

_NEVER_ASKED = {
    "_curve_scorer", "cv", "cv_results_", "param_distributions", "param_grid", "random_state", "refit",
    "score_func", "scorer_", "scoring",
}  # fmt: skip
"""Attributes that fitting reads and predicting does not. Functions that name features are asked in predicting
too, where the output is to be a frame."""

_AS_THEY_ARE = (
    type(None), bool, int, float, complex, str, bytes, slice, range, datetime.date, type(pathlib.Path()),
)  # fmt: skip
_CHECKED = ("n_features_in_", "feature_names_in_")
"""What scikit-learn compares rows with before any estimator predicts: code of its own kind would be run."""
_HELD = {
    "numpy": "ndarray memmap",
    "numpy.random": "Generator RandomState",
    "pandas": "Index RangeIndex",
    "scipy.interpolate": "BSpline interp1d",
}
"""Classes of other libraries that fitted models hold: arrays, names, curves, generators used in fitting."""


def register_rowwise(cls: type[Any], attributes: Sequence[str]) -> None:
    """Put a class of this library into the table; the estimators' registry does, and nobody else need.

    Whoever registers a class vouches for it: its answer for a row is computed from that row and from the
    ``attributes``, to the last bit, wherever the row stands and whatever stands beside it. The class is
    matched exactly. A subclass, or an object on which a method was replaced, is not in the table.
    """
    if not isinstance(cls, type):
        raise InvalidValue("cls", type(cls).__name__, "a class")
    if _registered.setdefault(cls, tuple(attributes)) != tuple(attributes):
        raise InvalidValue("attributes", list(attributes), f"{list(_registered[cls])}, as registered before")


def parts_with_products(model: Any) -> list[Any] | None:
    """The parts of a model whose rounding has to be tested; None if the model is not in the table."""
    found: list[Any] = []
    return found if _walked(model, found, set()) else None


def _walked(value: Any, found: list[Any], seen: set[int]) -> bool:
    kind = type(value)
    if kind in _AS_THEY_ARE or id(value) in seen:
        return True
    seen.add(id(value))
    if kind is MappingProxyType:
        return _walked(gc.get_referents(value), found, seen)
    if kind in (list, tuple, set, frozenset):
        return all(_walked(each, found, seen) for each in value)
    if kind is dict or (issubclass(kind, dict) and _of_a_library(kind)):
        return all(_walked(each, found, seen) for pair in value.items() for each in pair)
    if issubclass(kind, type):
        return kind is type and _of_a_library(value)
    if issubclass(kind, (np.generic, np.dtype)) or issparse(value):
        return _of_a_library(kind)
    if _listed(kind, _HELD):
        stored = isinstance(value, np.ndarray) and value.dtype.kind == "O"
        return not stored or _walked(value.ravel().tolist(), found, seen)
    if kind in _registered:
        held = [value.__dict__.get(name) for name in (*_registered[kind], *_CHECKED)]
        return untouched(value) and _walked(held, found, seen)
    if isinstance(value, BaseEstimator) or _listed(kind, _OTHERS):
        products = _listed(kind, _WITH_PRODUCTS)
        if not (products or _listed(kind, _OTHERS)) or not untouched(value) or _excepted(value):
            return False
        if products:
            found.append(value)
        return _walked_parts(value, found, seen)
    known = kind.__module__.startswith("sklearn.") and _of_a_library(kind)
    return known and _walked_parts(value, found, seen)


def _walked_parts(value: Any, found: list[Any], seen: set[int]) -> bool:
    held = {name: each for name, each in getattr(value, "__dict__", {}).items() if name not in _NEVER_ASKED}
    if type(value).__name__ == "FunctionTransformer" and _only_checks(held.get("func")):
        del held["func"]
    return all(_walked(each, found, seen) for each in held.values())


def _only_checks(function: Any) -> bool:
    """Whether a function is scikit-learn's own check of an array, which changes no value."""
    from sklearn.utils import check_array

    return type(function) is partial and function.func is check_array


def _listed(kind: type, table: dict[str, str]) -> bool:
    """Whether a class is the one that a module of the table holds under a listed name."""
    return any(
        kind.__name__ in names.split() and getattr(sys.modules.get(module), kind.__name__, None) is kind
        for module, names in table.items()
    )


def _of_a_library(kind: type) -> bool:
    """Whether a class is NumPy's, SciPy's, pandas' or scikit-learn's, and not merely said to be."""
    module = kind.__module__.partition(".")[0]
    if module not in ("numpy", "scipy", "pandas", "sklearn", "builtins"):
        return False
    if not kind.__flags__ & (1 << 9):
        return True
    return getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind


def untouched(value: Any) -> bool:
    """Whether no method was replaced on the object."""
    return not any(callable(getattr(type(value), name, None)) for name in value.__dict__)


def _excepted(value: Any) -> bool:
    """Settings with which a class of the table draws at random, or runs somebody's own code."""
    name = type(value).__name__
    if name == "DummyClassifier":
        return value.strategy not in ("prior", "most_frequent", "constant")
    if name.startswith("KNeighbors") and value._fit_method not in ("ball_tree", "kd_tree"):
        return True
    return any(callable(each) for each in _settings(value))


def _settings(value: Any) -> Iterable[Any]:
    return (
        each
        for name, each in value.__dict__.items()
        if name in ("kernel", "metric", "func", "inverse_func", "weights", "activation", "transform_func")
        and not (name == "func" and _only_checks(each))
    )


register_rowwise(Preprocessor, ("schema", "target", "norm", "transforms", "exclude"))
for _kind in (Schema, Column, Unit, Dialect, About):
    register_rowwise(_kind, tuple(_kind.__dataclass_fields__))
