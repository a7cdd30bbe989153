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
    from tacit import audit, estimators, tables, training
    from tacit.estimators import evaluate, load, save

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
    "errors",
    "estimators",
    "evaluate",
    "events",
    "load",
    "mechanisms",
    "save",
    "tables",
    "training",
]

_ON_FIRST_USE = {
    **{package: f"tacit.{package}" for package in ("audit", "estimators", "tables", "training")},
    **dict.fromkeys(("evaluate", "load", "save"), "tacit.estimators"),
}


def __getattr__(name: str) -> Any:
    """Packages that need more than everything else together are imported on first use."""
    if name in _ON_FIRST_USE:
        module = import_module(_ON_FIRST_USE[name])
        return module if module.__name__ == f"tacit.{name}" else getattr(module, name)
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")
