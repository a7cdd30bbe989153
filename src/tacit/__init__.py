"""tacit: differentially private machine learning whose guarantee is computed, charged and kept."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tacit._version import __version__

if TYPE_CHECKING:
    from tacit import (
        accounting,
        attacks,
        audit,
        data,
        datasets,
        errors,
        estimators,
        evaluation,
        events,
        federated,
        jobs,
        labels,
        language,
        local,
        mechanisms,
        models,
        pate,
        tables,
        training,
    )
    from tacit.errors import BudgetExceeded, TacitError
    from tacit.evaluation import evaluate
    from tacit.guarantee import Guarantee
    from tacit.ledger import Budget, Ledger
    from tacit.models import load, save
    from tacit.relations import Relation, Unit
    from tacit.schema import Column, Dialect, Schema
    from tacit.serve.client import connect

__all__ = [
    "Budget",
    "BudgetExceeded",
    "Column",
    "Dialect",
    "Guarantee",
    "Ledger",
    "Relation",
    "Schema",
    "TacitError",
    "Unit",
    "__version__",
    "accounting",
    "attacks",
    "audit",
    "connect",
    "data",
    "datasets",
    "errors",
    "estimators",
    "evaluate",
    "evaluation",
    "events",
    "federated",
    "jobs",
    "labels",
    "language",
    "load",
    "local",
    "mechanisms",
    "models",
    "pate",
    "save",
    "tables",
    "training",
]

_HOMES = {
    "Budget": "tacit.ledger",
    "BudgetExceeded": "tacit.errors",
    "Column": "tacit.schema",
    "Dialect": "tacit.schema",
    "Guarantee": "tacit.guarantee",
    "Ledger": "tacit.ledger",
    "Relation": "tacit.relations",
    "Schema": "tacit.schema",
    "TacitError": "tacit.errors",
    "Unit": "tacit.relations",
    "connect": "tacit.serve.client",
    "evaluate": "tacit.evaluation",
    "load": "tacit.models",
    "save": "tacit.models",
}
"""Where each name lives that is no package or module of tacit."""


def __getattr__(name: str) -> Any:
    """Every export is imported when it is first used, so that ``import tacit`` and the command start fast."""
    if name not in __all__:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name) if name in _HOMES else import_module(f"tacit.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
