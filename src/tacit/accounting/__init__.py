"""Accounting: events → curves → ε, δ. Pure functions; every answer is a valid upper bound.

``epsilon``, ``delta`` and ``compare`` answer for what is fixed in advance or composed; ``calibrate``
inverts; ``check_claim`` compares what is stated with what is computed; ``filters`` stop an adaptive
sequence of choices in time.
"""

from tacit.accounting import filters
from tacit.accounting.api import METHODS, calibrate, compare, delta, epsilon, group
from tacit.accounting.claims import check_claim

__all__ = ["METHODS", "calibrate", "check_claim", "compare", "delta", "epsilon", "filters", "group"]
