"""DP-SGD for PyTorch: the clipped sum of per-example gradients, in one backward pass.

:func:`clipped_gradient_sum` is the engine: everything private about a step of training is in the
sum it returns. :func:`check_model` refuses, before training, models in which one example reaches
another's gradient, and :func:`replace_batchnorm` mends the usual cause.

Needs the extra ``torch`` (``pip install 'tacit[torch]'``).
"""

from tacit.training.checking import check_model, replace_batchnorm
from tacit.training.engine import clipped_gradient_sum

__all__ = ["check_model", "clipped_gradient_sum", "replace_batchnorm"]
