"""tacit: differentially private machine learning whose guarantee is computed, charged and kept."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tacit import accounting, errors, events, mechanisms
from tacit.errors import BudgetExceeded, TacitError
from tacit.guarantee import Guarantee
from tacit.ledger import Budget, Ledger
from tacit.relations import Relation, Unit
from tacit.schema import Column, Schema

if TYPE_CHECKING:
    from tacit import audit, data, estimators, evaluation, jobs, models, tables, training
    from tacit.evaluation import evaluate
    from tacit.models import load, save

__all__ = [
    "Budget",
    "BudgetExceeded",
    "Column",
    "Guarantee",
    "Ledger",
    "Relation",
    "Schema",
    "TacitError",
    "Unit",
    "accounting",
    "audit",
    "data",
    "errors",
    "estimators",
    "evaluate",
    "evaluation",
    "events",
    "jobs",
    "load",
    "mechanisms",
    "models",
    "save",
    "tables",
    "training",
]

_PACKAGES = ("audit", "data", "estimators", "evaluation", "jobs", "models", "tables", "training")
_ON_FIRST_USE = {"evaluate": "tacit.evaluation", "load": "tacit.models", "save": "tacit.models"}


def __getattr__(name: str) -> Any:
    """Packages that need scikit-learn, Ibis or PyTorch are imported on first use."""
    if name in _PACKAGES:
        return import_module(f"tacit.{name}")
    if name in _ON_FIRST_USE:
        return getattr(import_module(_ON_FIRST_USE[name]), name)
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")
