"""The image data sets of the benchmarks, from the folder of shared data."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

DATA = Path(__file__).parents[2] / "shared" / "data"


def images_of(data: str, part: str) -> tuple[Tensor, Tensor]:
    """Images with values in [0, 1], and labels; ``part`` is "train" or "t10k"."""
    return _cifar(part) if data == "cifar10" else _idx(data, part)


def _idx(data: str, part: str) -> tuple[Tensor, Tensor]:
    pixels, labels = (
        np.frombuffer(gzip.decompress((DATA / data / f"{part}-{kind}.gz").read_bytes()), np.uint8)
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )
    images = torch.tensor(pixels[16:].reshape(-1, 28, 28)).float() / 255
    return images, torch.tensor(labels[8:], dtype=torch.long)


def _cifar(part: str) -> tuple[Tensor, Tensor]:
    """CIFAR-10, kept as differences of the green plane, and of red and blue to green."""
    names = [f"train{number}" for number in range(1, 6)] if part == "train" else ["test"]
    images = []
    for name in names:
        kept = np.frombuffer(lzma.decompress((DATA / "cifar10" / f"{name}.u8d.xz").read_bytes()), np.uint8)
        planes = kept.reshape(3, -1, 32, 32).cumsum(3, dtype=np.uint8).cumsum(2, dtype=np.uint8)
        images.append(np.stack([planes[0] + planes[1], planes[0], planes[0] + planes[2]], 1))
    labels = np.load(DATA / "cifar10" / "labels.npz")["train" if part == "train" else "test"]
    return torch.from_numpy(np.concatenate(images)).float() / 255, torch.tensor(labels, dtype=torch.long)
