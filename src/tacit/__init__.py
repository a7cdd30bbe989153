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
    from tacit import audit, tables

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
    "events",
    "mechanisms",
    "tables",
]

_ON_FIRST_USE = ("audit", "tables")



def __getattr__(name: str) -> Any:
    """Packages that need more than everything else together are imported on first use."""
    if name in _ON_FIRST_USE:
        return import_module(f"tacit.{name}")
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")
