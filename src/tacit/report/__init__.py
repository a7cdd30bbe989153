"""Reports: what was planned, spent and promised, as numbers, plots and pages.

``planning`` computes what a plan costs; ``facts`` gathers what a model and its ledger say, ``membership``
computes the best attack on a guarantee; ``plots`` draws. ``page`` has the parts of which every page is made,
``numbers`` and ``wording`` say how it writes numbers, events and units; ``model``, with ``summary`` and
``coefficients``, is the page about a model. Drawing is imported where it is used, so that numbers alone cost
no plotting library.
"""

from tacit.report.page import Branch, Fold, Picture, Section, Summary, render
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
    "Branch",
    "Comparison",
    "EpochSpend",
    "Fold",
    "Picture",
    "Section",
    "Summary",
    "TrainingCost",
    "compare_accountants",
    "render",
    "rounded_up",
    "training_cost",
]
