"""Private estimators with scikit-learn's interface.

The road of a fit is that of :mod:`tacit.estimators.private`: public parameters → plan → charge → rows,
clipped and scaled by what is public → a model with its guarantee. :mod:`tacit.estimators.noise` has the
places where noise can enter a linear model.
"""

from tacit.data.features import Features, Known, known
from tacit.data.preprocessor import Preprocessor
from tacit.estimators.bayes import NaiveBayes
from tacit.estimators.boosting.model import GradientBoosting
from tacit.estimators.budget import share_budget
from tacit.estimators.clusters.model import KMeans
from tacit.estimators.components.model import PCA
from tacit.estimators.linear import noise
from tacit.estimators.linear.classifiers import LinearSVC, LogisticRegression
from tacit.estimators.linear.regression import LinearRegression, Ridge
from tacit.estimators.private import Planned, PrivateEstimator
from tacit.estimators.registry import ESTIMATORS, SYNTHESIZERS
from tacit.estimators.search import PrivateSearch
from tacit.estimators.synthetic import HistogramSynthesizer, MarginalSynthesizer
from tacit.estimators.trees.decision import DecisionTree
from tacit.estimators.trees.random import RandomTrees

__all__ = [
    "ESTIMATORS",
    "PCA",
    "SYNTHESIZERS",
    "DecisionTree",
    "Features",
    "GradientBoosting",
    "HistogramSynthesizer",
    "KMeans",
    "Known",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "MarginalSynthesizer",
    "NaiveBayes",
    "Planned",
    "Preprocessor",
    "PrivateEstimator",
    "PrivateSearch",
    "RandomTrees",
    "Ridge",
    "known",
    "noise",
    "share_budget",
]
