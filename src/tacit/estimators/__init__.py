"""Private estimators with scikit-learn's interface.

The road of a fit: public parameters → a place where noise enters → its event → the charge → the rows,
clipped and scaled by what is public → weights, with their guarantee.
"""

from tacit.estimators.evaluation import Evaluation, evaluate
from tacit.estimators.facts import Features, Known, known
from tacit.estimators.linear import LinearRegression, LinearSVC, LogisticRegression, Ridge
from tacit.estimators.preprocessor import Preprocessor
from tacit.estimators.saving import describe, load, register, save

__all__ = [
    "Evaluation",
    "Features",
    "Known",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "Preprocessor",
    "Ridge",
    "describe",
    "evaluate",
    "known",
    "load",
    "register",
    "save",
]
