"""Private estimators with scikit-learn's interface.

The road of a fit: public parameters → a place where noise enters → its event → the charge → the rows,
clipped and scaled by what is public → weights, with their guarantee.
"""

from tacit.estimators.facts import Features, Known, known
from tacit.estimators.linear import LinearRegression, LinearSVC, LogisticRegression, Ridge

__all__ = [
    "Features",
    "Known",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "Ridge",
    "known",
]
