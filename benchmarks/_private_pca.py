"""A private principal component projection, composed with the training that follows (Abadi et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit import accounting, events
from tacit.mechanisms import Gaussian


@dataclass(frozen=True)
class PrivateProjection:
    """Onto the main directions of images, found from their second moments under Gaussian noise.

    Every image is scaled to unit ℓ2 norm, so adding or removing one moves the sum of outer products by at
    most 1 in Frobenius norm: one Gaussian release of sensitivity 1. Averaging the noisy matrix with its
    transpose, the directions and the projection are post-processing (Dwork et al. 2014, Analyze Gauss).
    """

    dimensions: int
    noise_multiplier: float

    @property
    def event(self) -> events.Event:
        """What finding the directions costs."""
        return events.Gaussian(self.noise_multiplier)

    def directions(self, images: Tensor) -> Tensor:
        """Columns of unit norm, the most important first."""
        rows = images.flatten(1).double()
        rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-6)
        release = Gaussian(sensitivity=1.0, noise_multiplier=self.noise_multiplier)
        noisy = np.asarray(release((rows.T @ rows).numpy()))
        _, vectors = np.linalg.eigh((noisy + noisy.T) / 2)
        return torch.tensor(vectors[:, ::-1][:, : self.dimensions].copy()).float()

    def noise_for_training(self, sampling_rate: float, steps: int, epsilon: float, delta: float) -> float:
        """The least noise_multiplier of DP-SGD at which it and the projection together cost at most ε."""

        def both(noise: float) -> events.Event:
            step = events.PoissonSampled(sampling_rate, events.Gaussian(noise))
            return events.Compose((self.event, events.Repeat(step, steps)))

        return accounting.calibrate(both, epsilon=epsilon, delta=delta)

    def epsilon_with(self, training: events.Event, delta: float) -> float:
        """ε of the projection and the training together."""
        return accounting.epsilon(events.Compose((self.event, training)), delta)
