"""The models of this package, known to model files."""

from __future__ import annotations

from tacit.local.learning import LocalLinearRegression, LocalLogisticRegression
from tacit.models.registry import register

__all__: list[str] = []

register("local-logistic-regression", LocalLogisticRegression, LocalLogisticRegression.released)
register("local-linear-regression", LocalLinearRegression, LocalLinearRegression.released)
