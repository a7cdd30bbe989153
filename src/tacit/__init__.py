"""tacit: differentially private machine learning whose guarantee is computed, charged and kept."""

from tacit import events
from tacit.guarantee import Guarantee
from tacit.relations import Relation, Unit

__all__ = ["Guarantee", "Relation", "Unit", "events"]
