"""DP-SGD for PyTorch: any network, trained with a guarantee that is charged and kept.

A :class:`Plan` holds the public facts of a run and turns them into noise; a :class:`Trainer` runs it,
charged to a ledger; :func:`tacit.save` keeps the guarantee with the weights, and :func:`load_weights` puts
them into a module again. Under it,
:func:`clipped_gradient_sum` is the engine: everything private about a step is in the sum it returns.
:func:`check_model` refuses, before training, models in which one example reaches another's gradient,
and :func:`replace_batchnorm` mends the usual cause.

Needs the extra ``torch`` (``pip install 'tacit[torch]'``).
"""

from tacit.training.clipping import Quantile
from tacit.training.gradients.engine import clipped_gradient_sum
from tacit.training.isolation.checking import check_model, replace_batchnorm
from tacit.training.networks.architectures import architecture
from tacit.training.networks.scattering import Scattering
from tacit.training.plan import Plan
from tacit.training.progress import Progress
from tacit.training.saving import load_weights, save_weights
from tacit.training.step import Seen
from tacit.training.trainer import Trainer

__all__ = [
    "Plan",
    "Progress",
    "Quantile",
    "Scattering",
    "Seen",
    "Trainer",
    "architecture",
    "check_model",
    "clipped_gradient_sum",
    "load_weights",
    "replace_batchnorm",
    "save_weights",
]
