"""tacit: differentially private machine learning whose guarantee is computed, charged and kept."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tacit import accounting, errors, events, mechanisms
from tacit.errors import BudgetExceeded, TacitError
from tacit.guarantee import Guarantee
from tacit.ledger import Budget, Ledger
from tacit.relations import Relation, Unit

if TYPE_CHECKING:
    from tacit import audit

__all__ = [
    "Budget",
    "BudgetExceeded",
    "Guarantee",
    "Ledger",
    "Relation",
    "TacitError",
    "Unit",
    "accounting",
    "audit",
    "errors",
    "events",
    "mechanisms",
]


def __getattr__(name: str) -> Any:
    """``tacit.audit`` on first use: it needs more of SciPy than everything else together."""
    if name == "audit":
        return import_module("tacit.audit")
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")
