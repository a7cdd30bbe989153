"""Reports: what was planned, spent and promised, as numbers, plots and pages.

``planning`` computes what a plan costs; ``facts`` gathers what a model and its ledger say, ``membership``
computes the best attack on a guarantee; ``plots`` draws; ``model`` and ``page`` write a self-contained HTML
page. Drawing is imported where it is used, so that numbers alone cost no plotting library.
"""

from tacit.report.page import Section, render
from tacit.report.planning import (
    ACCOUNTANTS,
    Comparison,
    EpochSpend,
    TrainingCost,
    compare_accountants,
    rounded_up,
    training_cost,
)

__all__ = [
    "ACCOUNTANTS",
    "Comparison",
    "EpochSpend",
    "Section",
    "TrainingCost",
    "compare_accountants",
    "render",
    "rounded_up",
    "training_cost",
]
