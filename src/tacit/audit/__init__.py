"""Audit: scores or counts of right and wrong guesses → a lower bound on ε, with a confidence.

An attack guesses whether something was in the data. Differential privacy limits how often it can be
right; guesses that are right more often prove that ε is at least so large. A bound below the claim
proves nothing; a bound above it refutes the claim, with the stated confidence.

=======================  ======================================  ========================================
function                 what was run                            assumes
=======================  ======================================  ========================================
:func:`clopper_pearson`  many runs on each of two neighbours     nothing
:func:`gaussian`         the same                                the mechanism is Gaussian
:func:`one_run`          one run with many canaries              a fair coin for each canary
:func:`one_run_fdp`      the same                                that, and that the mechanism is Gaussian
=======================  ======================================  ========================================

They take counts. :func:`from_scores` and :func:`from_canaries` take scores and the rule by which scores
become guesses: :class:`Fixed`, :class:`Split` or :class:`Bonferroni`, and :class:`Extremes` for canaries. A
threshold must not be chosen on the runs it is tested on, so no rule is a default.

:func:`audit_mechanism`, :func:`audit_estimator` and :func:`audit_training` make the runs too. They take any
callable, ours or not.
"""

from tacit.audit.bounds import clopper_pearson, gaussian, one_run
from tacit.audit.fdp import one_run_fdp
from tacit.audit.mechanism import audit_mechanism
from tacit.audit.models import audit_estimator, audit_training, neighbouring
from tacit.audit.result import AuditResult
from tacit.audit.scoring import from_canaries, from_scores
from tacit.audit.threshold import Bonferroni, Extremes, Fixed, Guesses, Split, choose_threshold

__all__ = [
    "AuditResult",
    "Bonferroni",
    "Extremes",
    "Fixed",
    "Guesses",
    "Split",
    "audit_estimator",
    "audit_mechanism",
    "audit_training",
    "choose_threshold",
    "clopper_pearson",
    "from_canaries",
    "from_scores",
    "gaussian",
    "neighbouring",
    "one_run",
    "one_run_fdp",
]
