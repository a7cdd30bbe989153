"""MNIST as a federation: scattering features, computed once and kept in a file, split over clients."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from _image_data import images_of
from _public_images import Whitened, strokes, upright
from numpy.typing import NDArray

WIDEST = 500
CLIENTS, IMAGES = 6000, 10
CACHE = Path(tempfile.gettempdir()) / f"tacit-mnist-scattering-{WIDEST}.npz"
SPLITS = ("iid", "two classes")


class Digits(NamedTuple):
    """Features, each image of length 1, and labels."""

    train: NDArray[np.float32]
    labels: NDArray[np.int64]
    test: NDArray[np.float32]
    test_labels: NDArray[np.int64]


def digits() -> Digits:
    """All images; nothing about the features was learned from any of them."""
    if not CACHE.exists():
        transform = Whitened(upright(strokes(8000, torch.Generator().manual_seed(0))), WIDEST)
        found = []
        for part in ("train", "t10k"):
            images, labels = images_of("mnist", part)
            found += [transform(upright(images)).numpy().astype(np.float32), labels.numpy()]
        np.savez(CACHE, *found)
    with np.load(CACHE) as kept:
        return Digits(*(kept[name] for name in kept.files))


def narrowed(features: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """The first so many directions, each image again of length 1."""
    part = features[:, :width]
    return part / np.linalg.norm(part, axis=1, keepdims=True)


def owners(labels: NDArray[np.int64], split: str, seed: int) -> NDArray[np.int64]:
    """The images of each client, as rows of ``IMAGES`` places; as many clients as the labels fill."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(labels))
    clients = len(labels) // IMAGES
    if split == "iid":
        return order[: clients * IMAGES].reshape(clients, IMAGES)
    # Sorted by class and cut into halves of a client, which are dealt out two to a client.
    halves = order[np.argsort(labels[order], kind="stable")][: clients * IMAGES].reshape(2 * clients, -1)
    return halves[generator.permutation(2 * clients)].reshape(clients, IMAGES)
