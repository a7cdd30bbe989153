"""Local differential privacy: every person randomizes their own value, and nobody else need be trusted.

A person runs ``randomize`` on their own value, and the collector runs ``estimate`` on the reports of all.

============================  ==================================================  ===========================
frequencies of k categories   the report                                          bits of a report
============================  ==================================================  ===========================
:class:`RandomizedResponse`   a category                                          log2 k
:class:`HadamardResponse`     a number of a block of a Hadamard matrix            about log2 k + 1
:class:`LocalHashing`         a hash function and a hash                          log2 k + O(ε)
:class:`SubsetSelection`      a set of about k/(e^ε + 1) categories               at most k
:class:`OptimizedUnary`       a bit for each category, the true one a fair coin   k
:class:`SymmetricUnary`       a bit for each category, all flipped alike          k
============================  ==================================================  ===========================

:func:`recommend` compares them. :class:`HeavyHitters` finds the frequent values of a domain that is too
large to be listed, and :class:`Rappor` answers again and again about the same value.

==================================  =========================================================================
means                               the report
==================================  =========================================================================
:class:`Duchi`                      a bit: one of the two bounds
:class:`Piecewise`                  a cell near the number, or any other cell
:class:`Hybrid`                     one of these two, drawn at random: the least variance for every number
:class:`PrivUnit`                   a direction that leans towards that of the vector
:class:`LocalLogisticRegression`    the randomized gradient of one person, for a classifier
:class:`LocalLinearRegression`      the same for least squares
==================================  =========================================================================

:class:`AdaptiveLaplace` and :class:`AdaptiveLaplaceRecords` randomize whole records, with less noise on
features that matter (AdLM), so that any learner may be fitted to them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.local.adaptive import AdaptiveLaplace
    from tacit.local.columns import frequencies_of
    from tacit.local.duchi import Duchi
    from tacit.local.hadamard import HadamardResponse
    from tacit.local.hashing import LocalHashing
    from tacit.local.heavy_hitters import HeavyHitters
    from tacit.local.hybrid import Hybrid
    from tacit.local.learning import LocalLinearRegression, LocalLogisticRegression
    from tacit.local.means import Means
    from tacit.local.oracle import FrequencyOracle, LocalMechanism
    from tacit.local.piecewise import Piecewise
    from tacit.local.privunit import PrivUnit
    from tacit.local.rappor import Rappor
    from tacit.local.recommending import Recommendation, recommend
    from tacit.local.records import AdaptiveLaplaceRecords
    from tacit.local.release import Frequencies
    from tacit.local.reports import Reports
    from tacit.local.response import RandomizedResponse
    from tacit.local.subset import SubsetSelection
    from tacit.local.unary import OptimizedUnary, SymmetricUnary

__all__ = [
    "AdaptiveLaplace",
    "AdaptiveLaplaceRecords",
    "Duchi",
    "Frequencies",
    "FrequencyOracle",
    "HadamardResponse",
    "HeavyHitters",
    "Hybrid",
    "LocalHashing",
    "LocalLinearRegression",
    "LocalLogisticRegression",
    "LocalMechanism",
    "Means",
    "OptimizedUnary",
    "Piecewise",
    "PrivUnit",
    "RandomizedResponse",
    "Rappor",
    "Recommendation",
    "Reports",
    "SubsetSelection",
    "SymmetricUnary",
    "frequencies_of",
    "recommend",
]

_HOMES = {
    "AdaptiveLaplace": "adaptive",
    "AdaptiveLaplaceRecords": "records",
    "Duchi": "duchi",
    "Frequencies": "release",
    "FrequencyOracle": "oracle",
    "HadamardResponse": "hadamard",
    "HeavyHitters": "heavy_hitters",
    "Hybrid": "hybrid",
    "LocalHashing": "hashing",
    "LocalLinearRegression": "learning",
    "LocalLogisticRegression": "learning",
    "LocalMechanism": "oracle",
    "Means": "means",
    "OptimizedUnary": "unary",
    "Piecewise": "piecewise",
    "PrivUnit": "privunit",
    "RandomizedResponse": "response",
    "Rappor": "rappor",
    "Recommendation": "recommending",
    "Reports": "reports",
    "SubsetSelection": "subset",
    "SymmetricUnary": "unary",
    "frequencies_of": "columns",
    "recommend": "recommending",
}
"""The module of each exported name."""


def __getattr__(name: str) -> Any:
    """Every export is imported when it is first used: a client needs neither pandas nor Ibis."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tacit.local' has no attribute {name!r}")
    value = getattr(import_module(f"tacit.local.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
