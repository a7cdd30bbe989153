"""Features of images from the scattering transform, which needs no weights."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from torch import Tensor, nn

from tacit.training.features.fixed import ImageFeatures
from tacit.training.networks.scattering import Scattering

__all__ = ["ScatteringFeatures"]


class ScatteringFeatures(ImageFeatures):
    """Group-normalised :class:`~tacit.training.Scattering` features of images, scaled to norm 1.

    **Guarantee.** Wavelets are formulas, and a row is a function of its image alone
    (:class:`~tacit.training.features.fixed.FixedFeatures`): Fourier transforms round an image by its place
    among others, so a block is one image. Tramèr and Boneh 2021.
    """

    name = "scattering"
    title = "scattering"
    block = 1

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape, channels=(1, 3, 4))
        channels, height, width = self.shape
        transform = Scattering((height, width))
        maps = channels * transform.paths
        self.width = maps * math.prod(transform.map_shape)
        self._layers = nn.Sequential(transform, nn.GroupNorm(maps // 3, maps, affine=False), nn.Flatten())

    @property
    def settings(self) -> dict[str, Any]:
        """Nothing is chosen."""
        return {}

    @property
    def weights_digest(self) -> str:
        """Of no weights."""
        return hashlib.sha256(b"").hexdigest()

    @property
    def made_by(self) -> str:
        """The version of the filters."""
        return "1"

    def _computed(self, images: Tensor) -> Tensor:
        made: Tensor = self._layers(images)
        return made
