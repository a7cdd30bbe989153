"""The deep private auto-encoder (dPA): an auto-encoder with a softmax head, trained with DP-SGD.

Phan, Wang, Wu and Dou 2016, "Differential privacy preservation for deep auto-encoders: an application of
human behavior prediction", train stacked auto-encoders by the functional mechanism: reconstruction error and
cross-entropy are replaced by polynomials of degree 2 in the weights, and the coefficients, which are sums
over rows, get Laplace noise once. All steps of the minimisation are then said to be post-processing.

**What does not hold in the published form.** The coefficients of a linear or logistic regression are sums
of functions of rows alone. Those of an auto-encoder are not: the polynomial of the reconstruction error has
the coefficients Σ_i (½ − x_i)hᵢᵀ and Σ_i hᵢhᵢᵀ/8, with the hidden units h_i = σ(W·x_i), and W is what is
trained. After every step the coefficients are other functions of the private rows, so

1. *noise drawn once* is the same in all steps. The difference of two steps tells the difference of
   two exact sums: whoever sees the weights after each step can tell neighbours apart with certainty, whatever
   the scale of the noise. No finite ε holds;
2. *noise drawn anew* is one release in every step, and costs T·ε after T steps. Every further layer and the
   head come on top: all of them see the same rows.

``tests/training/test_autoencoder.py`` computes both.

**What holds.**

- :class:`AutoEncoder`, trained by :class:`tacit.training.Trainer`. The loss of an example is that of its
  label plus its own reconstruction error, so that its gradient depends on this example alone, and is clipped;
  noise is paid for in every step. Layers may be trained jointly, in one run, or one after the other, from
  below: these runs compose (:mod:`tacit.training.past`), and every layer pays.
- A *linear* auto-encoder needs no steps: the best one with k units is the projection on k principal
  components, and :class:`tacit.estimators.PCA` takes these from noisy second moments, which depend on rows
  alone and are released once. ``transform`` is its encoder, ``inverse_transform`` its decoder.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit import _validate
from tacit.errors import InvalidValue

HIDDEN = (128, 64)
"""Units of the hidden layers, from below, unless they are given."""
RECONSTRUCTION = 1.0
ALL, HEAD, SCORES = "all", "head", "scores"

Loss = Callable[[Any, Tensor], Tensor]
"""A loss of outputs and targets, one number for each example."""


def cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy by example; 0, and so no gradient, for an example with the label −1."""
    return F.cross_entropy(scores, targets, ignore_index=-1, reduction="none")


def combined(learnt: Loss = cross_entropy, weight: float = RECONSTRUCTION) -> Loss:
    """The loss of scores and reconstruction errors: that of the labels plus ``weight`` times the errors."""

    def losses(outputs: Any, targets: Tensor) -> Tensor:
        scores, errors = outputs
        total: Tensor = learnt(scores, targets) + weight * errors
        return total

    return losses


class AutoEncoder(nn.Module):
    """A stacked auto-encoder with a linear head: the sound form of the deep private auto-encoder (dPA).

    Each layer encodes the one below it, tanh(W·h + b), and has a decoder of its own; the head gives one score
    for each class. Called with examples, the module returns scores. What :class:`tacit.training.Trainer`
    trains is a :meth:`stage` of it:

    =================  ==================================================================================
    ``stage()``        everything at once: cross-entropy of the scores plus ``reconstruction`` times the
                       mean squared error with which the decoders return the example
    ``stage(k)``       layer k and its decoder (0 is the lowest): the error with which the layer below
                       is returned. Labels are not looked at
    ``stage("head")``  the head alone, on the features as they are: cross-entropy
    =================  ==================================================================================

    Guarantee: that of the trainer. Relation: the plan's. Sensitivity: the loss of an example is computed from
    this example alone, and its gradient is clipped to ``clip_norm``. Event: the plan's; stages that are
    trained one after the other on the same people compose, and the guarantee of the last one covers all of
    them. A layer below the one that is trained was released already. An example with the label −1 has no
    cross-entropy, and is reconstructed all the same. Phan et al. 2016 claimed less noise;
    :mod:`tacit.training.networks.autoencoder` says why that does not hold.

    ``shape`` is that of one example, ``hidden`` the units of each layer, ``classes`` the number of classes.
    All of it is public.

    >>> import torch
    >>> from tacit.training import AutoEncoder, Plan, Trainer
    >>> rows = torch.randn(200, 6); labels = (rows[:, 0] > 0).long()
    >>> model = AutoEncoder((6,), classes=2, hidden=(5, 3))
    >>> plan = Plan(population=200, batch_size=50, epochs=2, clip_norm=1.0, noise_multiplier=4.0, delta=1e-5)
    >>> for part in (0, 1, "head"):
    ...     stage = model.stage(part)
    ...     trainer = Trainer(stage, stage.loss, torch.optim.SGD(stage.parameters(), lr=0.1), plan)
    ...     trainer = trainer.fit((rows, labels))
    >>> print(f"one stage ε = {plan.epsilon:.2f}, all three ε = {trainer.guarantee.epsilon:.2f}")
    one stage ε = 0.73, all three ε = 1.26
    >>> model(rows).shape, model.encode(rows).shape, model.reconstruct(rows).shape
    (torch.Size([200, 2]), torch.Size([200, 3]), torch.Size([200, 6]))
    """

    def __init__(
        self, shape: Sequence[int], classes: int, hidden: Sequence[int] = HIDDEN, *,
        reconstruction: float = RECONSTRUCTION,
    ) -> None:  # fmt: skip
        super().__init__()
        self.shape = tuple(_validate.count("shape", side, 1) for side in shape)
        widths = [math.prod(self.shape), *(_validate.count("hidden", units, 1) for units in hidden)]
        if len(widths) < 2:
            raise InvalidValue("hidden", tuple(hidden), "the units of one layer or more")
        self.reconstruction = _validate.finite("reconstruction", reconstruction)
        if self.reconstruction < 0:
            raise InvalidValue("reconstruction", reconstruction, "0 or more")
        pairs = list(pairwise(widths))
        self.encoders = nn.ModuleList(nn.Linear(below, above) for below, above in pairs)
        self.decoders = nn.ModuleList(nn.Linear(above, below) for below, above in pairs)
        self.head = nn.Linear(widths[-1], _validate.count("classes", classes, 1))
        self.part: int | str = SCORES

    def stage(self, part: int | str = ALL) -> AutoEncoder:
        """What to train: these layers under these names, with the outputs that its :attr:`loss` takes.

        Parameters of all other parts are frozen, in this module too, until another stage is chosen.
        """
        if isinstance(part, bool) or part not in (ALL, HEAD, *range(len(self.encoders))):
            layers = f"the number of a layer, 0 to {len(self.encoders) - 1}, 'head' or 'all'"
            raise InvalidValue("part", part, layers)
        trained: list[nn.Module] = [self.head] if part == HEAD else []
        if isinstance(part, int):
            trained = [self.encoders[part], self.decoders[part]]
        self.requires_grad_(part == ALL)
        for layer in trained:
            layer.requires_grad_(True)
        stage = copy.copy(self)
        stage.part = part
        return stage

    @property
    def loss(self) -> Loss:
        """The loss of this stage, one number for each example."""
        if self.part == ALL:
            return combined(weight=self.reconstruction)
        return cross_entropy if self.part in (HEAD, SCORES) else _errors_alone

    def forward(self, inputs: Tensor) -> Any:
        """Scores; of a stage, what its loss takes: errors, scores, or both."""
        if self.part == ALL:
            codes = self.encode(inputs)
            return self.head(codes), _errors(self._decoded(codes), inputs.flatten(1))
        if isinstance(self.part, int):
            below = self.encode(inputs, self.part)
            codes = torch.tanh(self.encoders[self.part](below))
            return _errors(self._decoded_once(codes, self.part), below)
        return self.head(self.encode(inputs))

    def encode(self, inputs: Tensor, layers: int | None = None) -> Tensor:
        """The codes of examples: the output of the highest layer, or of the first so many."""
        codes = inputs.flatten(1)
        for layer in list(self.encoders)[:layers]:
            codes = torch.tanh(layer(codes))
        return codes

    def decode(self, codes: Tensor) -> Tensor:
        """Examples, as far as the decoders can tell them from their codes."""
        return self._decoded(codes).reshape(-1, *self.shape)

    def reconstruct(self, inputs: Tensor) -> Tensor:
        """Examples, encoded and decoded."""
        return self.decode(self.encode(inputs))

    def _decoded(self, codes: Tensor) -> Tensor:
        for layer in reversed(range(len(self.decoders))):
            codes = self._decoded_once(codes, layer)
        return codes

    def _decoded_once(self, codes: Tensor, layer: int) -> Tensor:
        """What is below a layer: numbers of examples below the lowest, outputs of tanh below the others."""
        below: Tensor = self.decoders[layer](codes)
        return torch.tanh(below) if layer else below


def learning(network: nn.Sequential) -> nn.Sequential:
    """The same network, or one of the same layers in which an auto-encoder is ready to be trained."""
    if not any(isinstance(layer, AutoEncoder) for layer in network):
        return network
    return nn.Sequential(*(layer.stage() if isinstance(layer, AutoEncoder) else layer for layer in network))


def _errors(found: Tensor, true: Tensor) -> Tensor:
    """The mean squared error of each example; no other example has a part in it."""
    return (found - true).square().mean(1)


def _errors_alone(errors: Tensor, targets: Tensor) -> Tensor:
    return errors
