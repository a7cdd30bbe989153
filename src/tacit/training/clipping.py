"""How an example's gradient is scaled before it enters the sum.

Every rule here gives each example a factor for each parameter such that its scaled gradient, over
all parameters together, has norm at most ``clip_norm``. Adding or removing an example then moves
the sum by at most ``clip_norm``, and replacing one by twice that. An example whose gradient is not
finite adds exactly 0.

===========  ===========================================  ==========================================
rule         factor of a gradient g                       paper
===========  ===========================================  ==========================================
flat         min(1, C/‖g‖)                                Abadi et al. 2016
per-layer    min(1, (C/√k)/‖g_j‖) for each of k parts     McMahan et al. 2018
automatic    C/(‖g‖ + 0.01)                               Bu et al. 2023 (AUTO-S)
quantile     flat, with a C that follows a quantile       Andrew et al. 2021
===========  ===========================================  ==========================================

A plan names a rule without needing PyTorch; only applying the rule to gradients needs it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tacit import _validate
from tacit.errors import InvalidValue

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.training.gradients.pieces import Weights

LEAST, MOST = 1e-9, 1e9
CLIPPINGS = ("flat", "per-layer", "automatic")
_STABILITY = 0.01


@dataclass(frozen=True)
class Quantile:
    """A clip_norm that follows a quantile of the gradient norms, privately.

    Each step also releases how many gradients were within the current clip_norm, and multiplies clip_norm
    by exp(−``learning_rate`` × (share within − ``share``)). The first clip_norm is the plan's.

    Guarantee: the count enters as 1[‖g‖ ≤ C] − ½ for each example, so that adding or removing one
    moves it by ½ and replacing one by 1. With noise of standard deviation ``count_noise`` × batch_size on
    the count, and z₁ on the sum, both are together a Gaussian of noise multiplier
    (z₁⁻² + (2·count_noise·batch_size)⁻²)^−½, and z₁ is chosen so that this is the plan's noise multiplier:
    the event of a step does not change, and the count is paid for by a little more noise on the sum
    (Andrew et al. 2021, theorem 1).

    >>> Quantile(share=0.5).noise_for_sum(1.0, batch_size=256)
    1.0007...
    """

    share: float = 0.5
    learning_rate: float = 0.2
    count_noise: float = 0.05

    def __post_init__(self) -> None:
        _validate.open_probability("share", self.share)
        _validate.positive("learning_rate", self.learning_rate)
        _validate.positive("count_noise", self.count_noise)

    def noise_for_sum(self, noise_multiplier: float, batch_size: int) -> float:
        """The noise multiplier of the sum with which sum and count together have ``noise_multiplier``."""
        left = noise_multiplier**-2 - (2 * self.count_noise * batch_size) ** -2
        if left <= 0:
            raise InvalidValue(
                "count_noise", self.count_noise, f"above {noise_multiplier / (2 * batch_size):.3g} here",
                "The count alone would cost more than a step may.",
            )  # fmt: skip
        return 1 / math.sqrt(left)

    def moved(self, clip_norm: float, noisy_count: float, batch_size: int) -> float:
        """The next clip_norm, from the noisy sum of 1[‖g‖ ≤ C] − ½."""
        within = min(max(noisy_count / batch_size + 0.5, 0.0), 1.0)
        moved = clip_norm * math.exp(-self.learning_rate * (within - self.share))
        return min(max(moved, LEAST), MOST)


class Clipping(Protocol):
    """A rule: from the squared norms of each parameter's gradients to the factors they are scaled by."""

    def factors(
        self, squares: Mapping[str, Tensor], clip_norm: float, parameters: int
    ) -> tuple[dict[str, Weights], Tensor]:
        """The factors by parameter, and each example's norm over all ``parameters`` that are trained."""


class Flat:
    """min(1, C/‖g‖)."""

    def factors(
        self, squares: Mapping[str, Tensor], clip_norm: float, parameters: int
    ) -> tuple[dict[str, Weights], Tensor]:
        """The same factors for every parameter, and each example's norm."""
        norms = _norms(squares)
        weights = _finite(norms.clamp(min=clip_norm).reciprocal_().mul_(clip_norm), norms)
        return dict.fromkeys(squares, weights), norms


class Automatic:
    """C/(‖g‖ + 0.01): all gradients but the smallest are given about the same length."""

    def factors(
        self, squares: Mapping[str, Tensor], clip_norm: float, parameters: int
    ) -> tuple[dict[str, Weights], Tensor]:
        """The same factors for every parameter, and each example's norm."""
        norms = _norms(squares)
        weights = _finite(clip_norm / (norms + _STABILITY), norms)
        return dict.fromkeys(squares, weights), norms


class PerLayer:
    """The gradient of each of the model's k parameters to C/√k, so that the whole has norm at most C.

    k counts all parameters that are trained, whether this batch uses them or not: k must not depend on
    other examples.
    """

    def factors(
        self, squares: Mapping[str, Tensor], clip_norm: float, parameters: int
    ) -> tuple[dict[str, Weights], Tensor]:
        """Factors for each parameter of its own, and each example's norm."""
        norms = _norms(squares)
        each = clip_norm / math.sqrt(parameters)
        return {
            name: _finite(each / square.sqrt().clamp(min=each), norms) for name, square in squares.items()
        }, norms


def checked_clip_norm(clip_norm: float) -> float:
    """A clip_norm within the range in which float32 computes norms precisely enough to clip to it."""
    value = _validate.positive("clip_norm", clip_norm)
    if not LEAST <= value <= MOST:
        raise InvalidValue(
            "clip_norm", clip_norm, f"between {LEAST:g} and {MOST:g}", "Scale the loss instead."
        )
    return value


def clipping_of(clipping: str | Quantile) -> Clipping:
    """The rule of this name."""
    if clipping == "per-layer":
        return PerLayer()
    return Automatic() if clipping == "automatic" else Flat()


def _norms(squares: Mapping[str, Tensor]) -> Tensor:
    found = list(squares.values())
    return sum(found[1:], found[0]).sqrt()


def _finite(factors: Tensor, norms: Tensor) -> Weights:
    """The factors, with those of examples whose gradient is not finite set to 0."""
    from tacit.training.gradients.pieces import Weights

    if math.isfinite(float(norms.sum())):
        return Weights(factors)
    dropped = ~norms.isfinite()
    return Weights(factors.masked_fill(dropped, 0.0), dropped)
