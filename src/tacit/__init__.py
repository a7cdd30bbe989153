"""tacit: differentially private machine learning whose guarantee is computed, charged and kept."""

from tacit import accounting, errors, events, mechanisms
from tacit.errors import BudgetExceeded, TacitError
from tacit.guarantee import Guarantee
from tacit.ledger import Budget, Ledger
from tacit.relations import Relation, Unit

__all__ = [
    "Budget",
    "BudgetExceeded",
    "Guarantee",
    "Ledger",
    "Relation",
    "TacitError",
    "Unit",
    "accounting",
    "errors",
    "events",
    "mechanisms",
]
