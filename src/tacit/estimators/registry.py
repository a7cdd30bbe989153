"""Each estimator's tag and released attributes, for model files; what it predicts from, for evaluation."""

from __future__ import annotations

from tacit.estimators.linear.models import LinearRegression, LinearSVC, LogisticRegression, Ridge
from tacit.evaluation.rowlocal import register_rowwise
from tacit.models.registry import register

_LINEAR = (
    "coef_", "intercept_", "coef_error_", "intercept_error_", "bounds_",
    "n_features_in_", "feature_names_in_",
)  # fmt: skip

register("logistic-regression", LogisticRegression, (*_LINEAR, "classes_"))
register("linear-svc", LinearSVC, (*_LINEAR, "classes_"))
register("linear-regression", LinearRegression, _LINEAR)
register("ridge", Ridge, _LINEAR)
for cls in (LogisticRegression, LinearSVC, LinearRegression, Ridge):
    register_rowwise(cls, ("coef_", "intercept_", "bounds_", "classes_"))
