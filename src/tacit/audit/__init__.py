"""Audit: scores or counts of right and wrong guesses → a lower bound on ε, with a confidence.

An attack guesses whether something was in the data. Differential privacy limits how often it can be
right; guesses that are right more often prove that ε is at least so large. A bound below the claim
proves nothing; a bound above it refutes the claim, with the stated confidence.

======================  ======================================  ================================
function                what was run                            assumes
======================  ======================================  ================================
:func:`clopper_pearson`  many runs on each of two neighbours      nothing
:func:`gaussian`         the same                                 the mechanism is Gaussian
:func:`one_run`          one run with many canaries               a fair coin for each canary
======================  ======================================  ================================

A threshold on scores must not be chosen on the runs it is tested on: :func:`choose_threshold` takes
the rule, :class:`Fixed` or :class:`Split`, and has no default.
"""

from tacit.audit.bounds import clopper_pearson, gaussian, one_run
from tacit.audit.result import AuditResult
from tacit.audit.threshold import Fixed, Guesses, Split, choose_threshold

__all__ = [
    "AuditResult",
    "Fixed",
    "Guesses",
    "Split",
    "choose_threshold",
    "clopper_pearson",
    "gaussian",
    "one_run",
]
