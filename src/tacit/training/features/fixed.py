"""Fixed features: public functions of one example each, so that a small private model has less to learn."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import InvalidValue, TacitError

__all__ = ["FixedFeatures", "ImageFeatures", "Seen", "missing"]

Array = NDArray[Any]
Seen = Callable[[int, int], None]
"""Is told how many examples are done, and how many there are; for the curator's terminal alone."""


class FixedFeatures(ABC):
    """A public function from one example to a row of numbers, computed many rows at a time.

    **Guarantee.** The function is fixed before the data are seen: its weights come from an installed package
    or from formulas, and ``settings`` are declared. Row i of a call depends on example i alone, to the last
    bit: examples are computed in blocks of one public shape, filled up with constants, since products of
    matrices round a row by the number of rows. So whoever adds, removes or replaces one example changes that
    example's row and no other, and what is trained on the rows has the event, the relation and the
    sensitivity that it has on the examples. Features cost nothing. They are as private as their examples, and
    are computed after the charge.

    A row is rounded to float16, and its ℓ2 norm is at most ``norm``. An example that is not as declared
    (numbers that are not finite, no text) follows a public rule of its subclass, and no example raises.

    Subclasses say ``name``, ``title``, ``width``, ``norm``, ``kind`` (``"image"`` or ``"text"``) and compute.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    kind: ClassVar[str]
    width: int
    norm: float = 1.001
    """A bound on the ℓ2 norm of a row: 1, and what rounding may add."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What it was made with, of types that JSON has."""

    @property
    @abstractmethod
    def weights_digest(self) -> str:
        """A digest of the numbers that the function is made of."""

    @property
    @abstractmethod
    def made_by(self) -> str:
        """The version of what is done around the weights; another one makes another function."""

    @property
    def digest(self) -> str:
        """Of everything that decides a row: name, weights, version and settings."""
        known = [self.name, self.made_by, self.weights_digest, sorted(self.settings.items())]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()

    @abstractmethod
    def rows(self, examples: Any, seen: Seen | None = None) -> NDArray[np.float16]:
        """One row of ``width`` numbers for each example."""

    @abstractmethod
    def contents(self, examples: Any) -> list[bytes]:
        """What decides the row of each example, as bytes: equal bytes have equal rows."""

    def __call__(self, examples: Any) -> Tensor:
        """One row for each example, float32."""
        return torch.from_numpy(self.rows(examples)).float()


class ImageFeatures(FixedFeatures):
    """Features of images of one shape, (channels, height, width): bytes, or numbers from 0 to 1.

    Numbers beyond 0 and 1 are clipped. An image with a number that is not finite has a row of NaN, whose
    gradient then adds nothing. ``mirrored`` averages the row of an image and that of its mirror image, left
    and right exchanged, and scales the mean to norm 1: a function of the same image, for twice the time.
    """

    kind = "image"
    block: ClassVar[int]
    """How many images are computed together, always so many."""
    mirrored = False

    def __init__(self, shape: Sequence[int], channels: tuple[int, ...]) -> None:
        sides = tuple(shape)
        if len(sides) != 3 or sides[0] not in channels:
            several = " or ".join(map(str, channels))
            raise InvalidValue(
                "shape", sides, f"that of images with {several} channels, (channels, height, width), for "
                f"features {self.name!r}", "Use other features, or none.",
            )  # fmt: skip
        self.shape = sides

    @abstractmethod
    def _computed(self, images: Tensor) -> Tensor:
        """Rows of a block of images, float32 from 0 to 1."""

    def rows(self, examples: Any, seen: Seen | None = None) -> NDArray[np.float16]:
        """One row for each image; blocks have one size, so that the others do not show in a row."""
        images = self._checked(examples)
        made = np.empty((len(images), self.width), np.float16)
        with torch.inference_mode():
            for start in range(0, len(images), self.block):
                part = torch.from_numpy(np.ascontiguousarray(images[start : start + self.block]))
                ready = part.float() / 255 if part.dtype == torch.uint8 else part.float()
                finite = ready.flatten(1).isfinite().all(1)
                ready = torch.where(finite[:, None, None, None], ready, 0.0).clamp(0, 1)
                filled = ready.new_zeros(self.block, *self.shape)
                filled[: len(ready)] = ready
                found = unit_rows(self._computed(filled)).half()
                if self.mirrored:
                    other = unit_rows(self._computed(filled.flip(3))).half()
                    found = unit_rows(found.float() + other.float()).half()
                found = found[: len(ready)]
                found[~finite] = torch.nan
                made[start : start + len(ready)] = found.numpy()
                if seen is not None:
                    seen(start + len(ready), len(images))
        return made

    def contents(self, examples: Any) -> list[bytes]:
        """The bytes of each image, with their type."""
        images = self._checked(examples)
        kind = f"{images.dtype} {self.shape} ".encode()
        return [kind + np.ascontiguousarray(image).tobytes() for image in images]

    def _checked(self, examples: Any) -> Array:
        values = examples.numpy() if isinstance(examples, Tensor) else np.asarray(examples)
        if values.shape[1:] != self.shape:
            raise InvalidValue("examples", values.shape[1:], f"images of the shape {self.shape}")
        if values.dtype == np.uint8:
            return values
        with np.errstate(all="ignore"):
            return values.astype(np.float32)


def unit_rows(rows: Tensor) -> Tensor:
    """Rows scaled to norm 1, each by itself; a row of zeros stays one."""
    lengths = rows.square().sum(1, keepdim=True).sqrt()
    return rows / lengths.clamp(min=1e-12)


def missing(title: str, package: str, command: str) -> TacitError:
    """The error for features whose package is not installed."""
    problem = f"{title} needs the package {package}, which is not installed."
    return TacitError(problem, f"Install it: {command}", package=package)
