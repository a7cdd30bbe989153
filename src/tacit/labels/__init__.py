"""Label differential privacy: the labels are secret, the features are not.

A guarantee of this package is about *one label* (``replace_one`` of :data:`tacit.relations.LABEL`): it holds
between two data sets with the same rows and features that differ in the label of one row. It says nothing of
whether a row was in the data or of its features, and is never added up with the guarantee of rows: a ledger
of labels takes no charge for rows, nor the other way round.

================================  ==========================================================================
:class:`LabelPrivateClassifier`   any classifier, by ALIBI, LP-1ST, LP-2ST and others
:class:`LabelPrivateRegressor`    any regression, by randomized response on bins
:class:`PATEFM`                   teachers that share all features and no label, and a student
:class:`Perceptron`               a network that learns from responses (PyTorch)
:class:`ResponseLoss`             the forward-corrected loss, for networks of one's own (PyTorch)
:class:`SoftTargetLoss`           the posterior as the target of a cross-entropy, as ALIBI has it (PyTorch)
:class:`DebiasedLoss`             the unbiased estimate of the loss of the true labels (PyTorch)
================================  ==========================================================================

Underneath are the randomizers, each with an ``event``, ``respond`` and ``log_likelihood``: :class:`Response`,
:class:`ResponseWithPrior`, :class:`SubsetResponse`, :class:`NoisyOneHot` and :class:`ResponseOnBins`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tacit._extras import needed as _needed
from tacit.labels.alibi import NoisyOneHot
from tacit.labels.bins import ResponseOnBins
from tacit.labels.classifier import METHODS, LabelPrivateClassifier
from tacit.labels.prior import ResponseWithPrior, denoised
from tacit.labels.regressor import LabelPrivateRegressor
from tacit.labels.response import Response, posterior
from tacit.labels.subset import SubsetResponse
from tacit.labels.teachers import PATEFM

if TYPE_CHECKING:
    from tacit.labels.loss import DebiasedLoss, ResponseLoss, SoftTargetLoss
    from tacit.labels.network import Perceptron

__all__ = [
    "METHODS",
    "PATEFM",
    "DebiasedLoss",
    "LabelPrivateClassifier",
    "LabelPrivateRegressor",
    "NoisyOneHot",
    "Perceptron",
    "Response",
    "ResponseLoss",
    "ResponseOnBins",
    "ResponseWithPrior",
    "SoftTargetLoss",
    "SubsetResponse",
    "denoised",
    "posterior",
]

_WITH_TORCH = {
    "DebiasedLoss": "loss",
    "ResponseLoss": "loss",
    "SoftTargetLoss": "loss",
    "Perceptron": "network",
}


def __getattr__(name: str) -> Any:
    """What needs PyTorch is imported when it is first used."""
    if name not in _WITH_TORCH:
        raise AttributeError(f"module 'tacit.labels' has no attribute {name!r}")
    with _needed("Networks that learn from responses"):
        return getattr(import_module(f"tacit.labels.{_WITH_TORCH[name]}"), name)
