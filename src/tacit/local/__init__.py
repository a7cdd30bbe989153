"""Local differential privacy: every person randomizes their own value, and nobody else need be trusted.

A person runs ``randomize`` on their own value, and the collector runs ``estimate`` on the reports of all.

=========================  ==========================================================  ====================
frequency oracle           the report                                                  bits of a report
=========================  ==========================================================  ====================
:class:`RandomizedResponse`  a category                                                log2 k
:class:`OptimizedUnary`    a bit per category, the true one a fair coin                k
:class:`SymmetricUnary`    a bit per category, all flipped with the same chance        k
=========================  ==========================================================  ====================
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.local.duchi import Duchi
    from tacit.local.hybrid import Hybrid
    from tacit.local.learning import LocalLinearRegression, LocalLogisticRegression
    from tacit.local.means import Means
    from tacit.local.oracle import FrequencyOracle, LocalMechanism
    from tacit.local.piecewise import Piecewise
    from tacit.local.privunit import PrivUnit
    from tacit.local.release import Frequencies
    from tacit.local.response import RandomizedResponse
    from tacit.local.unary import OptimizedUnary, SymmetricUnary

__all__ = [
    "Duchi",
    "Frequencies",
    "FrequencyOracle",
    "Hybrid",
    "LocalLinearRegression",
    "LocalLogisticRegression",
    "LocalMechanism",
    "Means",
    "OptimizedUnary",
    "Piecewise",
    "PrivUnit",
    "RandomizedResponse",
    "SymmetricUnary",
]

_HOMES = {
    "Duchi": "duchi",
    "Frequencies": "release",
    "FrequencyOracle": "oracle",
    "Hybrid": "hybrid",
    "LocalLinearRegression": "learning",
    "LocalLogisticRegression": "learning",
    "LocalMechanism": "oracle",
    "Means": "means",
    "OptimizedUnary": "unary",
    "Piecewise": "piecewise",
    "PrivUnit": "privunit",
    "RandomizedResponse": "response",
    "SymmetricUnary": "unary",
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
