"""Federated learning: clients keep their rows, a server learns from what they send over Flower.

:class:`FederatedPlan` holds the public facts of a federation and turns them into noise, event and guarantee;
who is trusted decides where the noise goes. :class:`Rounds` is what a server does, whatever carries the
messages, and :func:`simulate` a whole federation in one process.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tacit._extras import needed as _needed
from tacit.federated.metrics import Metric
from tacit.federated.plan import FederatedPlan
from tacit.federated.trusting import CLIENT
from tacit.training.clipping import Quantile

if TYPE_CHECKING:
    from tacit.federated.flower import clipped, private
    from tacit.federated.optimizers import Adam, Averaging, Momentum
    from tacit.federated.process import Federation, RoundProgress, simulate
    from tacit.federated.rounds import PrivateCounts, Round, Rounds
    from tacit.federated.silo import Silo
    from tacit.federated.updates import Updates

__all__ = [
    "CLIENT",
    "Adam",
    "Averaging",
    "FederatedPlan",
    "Federation",
    "Metric",
    "Momentum",
    "PrivateCounts",
    "Quantile",
    "Round",
    "RoundProgress",
    "Rounds",
    "Silo",
    "Updates",
    "clipped",
    "private",
    "simulate",
]

_ON_FIRST_USE = {
    "Adam": "optimizers",
    "Averaging": "optimizers",
    "Federation": "process",
    "Momentum": "optimizers",
    "PrivateCounts": "rounds",
    "RoundProgress": "process",
    "Silo": "silo",
    "simulate": "process",
    "Round": "rounds",
    "Rounds": "rounds",
    "Updates": "updates",
    "clipped": "flower",
    "private": "flower",
}


def __getattr__(name: str) -> Any:
    """Names that need more than a plan are imported on first use."""
    if name in _ON_FIRST_USE:
        with _needed("Silos" if name == "Silo" else "Federations"):
            return getattr(import_module(f"tacit.federated.{_ON_FIRST_USE[name]}"), name)
    raise AttributeError(f"module 'tacit.federated' has no attribute {name!r}")
