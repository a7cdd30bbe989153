"""Small features for tests: as cheap as they can be, and a twin that breaks the promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.training.features.fixed import FixedFeatures, ImageFeatures, Seen


class Letters(FixedFeatures):
    """How often each of four letters occurs in a text, by itself; ``version`` stands for other weights."""

    name, title, kind, width = "letters", "letters", "text", 4
    version = "1"

    @property
    def settings(self) -> dict[str, Any]:
        return {}

    @property
    def weights_digest(self) -> str:
        return self.version

    @property
    def made_by(self) -> str:
        return "1"

    def rows(self, examples: Any, seen: Seen | None = None) -> NDArray[np.float16]:
        counts = [[text.count(letter) for letter in "abcd"] for text in map(str, examples)]
        found = np.array(counts, dtype=float).reshape(-1, 4)
        return (found / np.maximum(1, np.linalg.norm(found, axis=1, keepdims=True))).astype(np.float16)

    def contents(self, examples: Any) -> list[bytes]:
        return [str(text).encode() for text in examples]


class PaddedToLongest(Letters):
    """The broken twin: frequencies among as many letters as the longest text of the call has."""

    def rows(self, examples: Any, seen: Seen | None = None) -> NDArray[np.float16]:
        longest = max((len(str(text)) for text in examples), default=1) or 1
        counts = [[text.count(letter) / longest for letter in "abcd"] for text in map(str, examples)]
        return np.array(counts, dtype=np.float16).reshape(-1, 4)


class Pixels(ImageFeatures):
    """The first four pixels of an image."""

    name, title, width, block = "pixels", "pixels", 4, 8

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape, channels=(1,))
        self.calls = 0

    @property
    def settings(self) -> dict[str, Any]:
        return {}

    @property
    def weights_digest(self) -> str:
        return "none"

    @property
    def made_by(self) -> str:
        return "1"

    def _computed(self, images: Tensor) -> Tensor:
        self.calls += 1
        return images.flatten(1)[:, :4] + torch.tensor(0.25)
