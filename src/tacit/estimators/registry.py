"""The registry of estimators: the one place that knows every class.

Model files know a class by its tag, ``tacit fit --model`` by its name, evaluation by the attributes that it
predicts from; all of them, the reports and the battery of tests learn of an estimator here.

>>> sorted(ESTIMATORS)
['decision-tree', 'gradient-boosting', 'kmeans', 'linear', 'logistic', 'naive-bayes', 'pca', ...]
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tacit.estimators.bayes import NaiveBayes
from tacit.estimators.boosting.model import GradientBoosting
from tacit.estimators.clusters.model import KMeans
from tacit.estimators.components.model import PCA
from tacit.estimators.linear.classifiers import LinearSVC, LogisticRegression
from tacit.estimators.linear.regression import LinearRegression, Ridge
from tacit.estimators.private import PrivateEstimator
from tacit.estimators.synthetic import HistogramSynthesizer, MarginalSynthesizer
from tacit.estimators.synthetic.base import Synthesizer
from tacit.estimators.trees.decision import DecisionTree
from tacit.estimators.trees.random import RandomTrees
from tacit.evaluation.rowlocal import register_rowwise
from tacit.models.registry import register

__all__ = ["ESTIMATORS", "SYNTHESIZERS", "TAGS"]

_REGISTERED: tuple[tuple[str, str, type[PrivateEstimator]], ...] = (
    ("logistic", "logistic-regression", LogisticRegression),
    ("svc", "linear-svc", LinearSVC),
    ("linear", "linear-regression", LinearRegression),
    ("ridge", "ridge", Ridge),
    ("naive-bayes", "naive-bayes", NaiveBayes),
    ("decision-tree", "decision-tree", DecisionTree),
    ("random-trees", "random-trees", RandomTrees),
    ("gradient-boosting", "gradient-boosting", GradientBoosting),
    ("kmeans", "kmeans", KMeans),
    ("pca", "pca", PCA),
)
"""The name on the command line, the tag in model files, which never changes its meaning, and the class."""

ESTIMATORS: Mapping[str, type[PrivateEstimator]] = MappingProxyType(
    {name: estimator for name, _, estimator in _REGISTERED}
)
TAGS: Mapping[str, type[PrivateEstimator]] = MappingProxyType(
    {tag: estimator for _, tag, estimator in _REGISTERED}
)

SYNTHESIZERS: Mapping[str, type[Synthesizer]] = MappingProxyType(
    {"marginals": MarginalSynthesizer, "histogram": HistogramSynthesizer}
)
"""The name on the command line, for what makes tables and predicts nothing."""

for _name, _synthesizer in SYNTHESIZERS.items():
    register(f"{_name}-synthesizer", _synthesizer, _synthesizer.released)

for _tag, _estimator in TAGS.items():
    register(_tag, _estimator, _estimator.released)
    if _estimator.predicts_from:
        register_rowwise(_estimator, _estimator.predicts_from)
