"""Private estimators with scikit-learn's interface.

The road of a fit: public parameters → a place where noise enters → its event → the charge → the rows,
clipped and scaled by what is public → weights, with their guarantee.
"""

from tacit.data.features import Features, Known, known
from tacit.data.preprocessor import Preprocessor
from tacit.estimators import registry as registry
from tacit.estimators.linear.models import LinearRegression, LinearSVC, LogisticRegression, Ridge

__all__ = [
    "Features",
    "Known",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "Preprocessor",
    "Ridge",
    "known",
]
