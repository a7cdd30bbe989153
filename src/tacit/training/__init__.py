"""DP-SGD for PyTorch: any network, trained with a guarantee that is charged and kept.

A :class:`Plan` holds the public facts of a run and turns them into noise; a :class:`Trainer` runs it,
charged to a ledger; :func:`tacit.save` keeps the guarantee with the weights, and :func:`load_weights` puts
them into a module again. Under it,
:func:`clipped_gradient_sum` is the engine: everything private about a step is in the sum it returns.
:func:`check_model` refuses, before training, models in which one example reaches another's gradient,
and :func:`replace_batchnorm` mends the usual cause.

The road of a run, with the module to read for each part of it::

    plan        public facts ──▶ noise, event, guarantee           plan, sampling, clipping (no PyTorch)
      │
    account     the event is charged, the steps are claimed        account; past: what the weights have cost
      │
    trainer     what users call                                    trainer; progress: what callbacks see
      │
    run         draw, step, checkpoint, over and over              run; state, checkpoint, averages, schedules
      │
    batches     the rows that were drawn, read and augmented       batches/
      │
    step        one private step                                   step
      ├── gradients    per-example norms and sums                  gradients/
      │     └── isolation   no example changes what another adds   isolation/
      ├── clipping     each gradient scaled to clip_norm           clipping
      └── noise        Gaussian, from cryptographic bits           noise
      │
    optimiser   post-processing of the noisy gradient              torch.optim
      │
    guarantee   ε, δ, event and assumptions, kept in the file      account, saving

Several processes and sharded models are in ``parallel/``, networks by name in ``networks/``, fixed features
for them in ``features/``.

Everything but :class:`Plan` and :class:`Quantile` needs the extra ``torch`` (``pip install 'tacit[torch]'``).
PyTorch is imported with the first name that needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tacit._extras import needed as _needed
from tacit.training.clipping import Quantile
from tacit.training.plan import Plan

if TYPE_CHECKING:
    from tacit.training.asymmetry import GroupNorms, norms_by_group
    from tacit.training.batches.units import ByUnit
    from tacit.training.gradients.engine import clipped_gradient_sum
    from tacit.training.isolation.checking import check_model, replace_batchnorm
    from tacit.training.networks.architectures import architecture
    from tacit.training.networks.autoencoder import AutoEncoder
    from tacit.training.networks.patches import Patches
    from tacit.training.networks.scattering import Scattering
    from tacit.training.progress import Progress
    from tacit.training.saving import load_weights, save_weights
    from tacit.training.schedules import PublicMetric
    from tacit.training.step import PrivateDiagnostics
    from tacit.training.trainer import Trainer

__all__ = [
    "AutoEncoder",
    "ByUnit",
    "GroupNorms",
    "Patches",
    "Plan",
    "PrivateDiagnostics",
    "Progress",
    "PublicMetric",
    "Quantile",
    "Scattering",
    "Trainer",
    "architecture",
    "check_model",
    "clipped_gradient_sum",
    "load_weights",
    "norms_by_group",
    "replace_batchnorm",
    "save_weights",
]

_ON_FIRST_USE = {
    "AutoEncoder": "networks.autoencoder",
    "ByUnit": "batches.units",
    "GroupNorms": "asymmetry",
    "Patches": "networks.patches",
    "PrivateDiagnostics": "step",
    "Progress": "progress",
    "PublicMetric": "schedules",
    "Scattering": "networks.scattering",
    "Trainer": "trainer",
    "architecture": "networks.architectures",
    "check_model": "isolation.checking",
    "clipped_gradient_sum": "gradients.engine",
    "load_weights": "saving",
    "norms_by_group": "asymmetry",
    "replace_batchnorm": "isolation.checking",
    "save_weights": "saving",
}


def __getattr__(name: str) -> Any:
    """Names that need PyTorch are imported on first use."""
    if name in _ON_FIRST_USE:
        with _needed("Private networks"):
            return getattr(import_module(f"tacit.training.{_ON_FIRST_USE[name]}"), name)
    raise AttributeError(f"module 'tacit.training' has no attribute {name!r}")
