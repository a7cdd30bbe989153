"""PATE with PyTorch: small convolutional networks vote on digits, and another learns what they agree about.

The private images are the first 20,000 training images of MNIST, the public ones the first 3,000 test images,
without labels; the student is tested on the last 1,000. ``--data`` names the folder with the four files of
MNIST.

Prints the plan, the guarantee and the accuracy. Takes about a minute on an idle core.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

import numpy as np
from torch import nn

from tacit import pate


def network() -> nn.Module:
    """Two convolutions and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 7 * 7, 10),
    )  # fmt: skip


def mnist(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images and labels, and those of the test, as rows of numbers between 0 and 1."""

    def stored(name: str, offset: int) -> np.ndarray:
        with gzip.open(folder / f"{name}-ubyte.gz") as stream:
            return np.frombuffer(stream.read(), np.uint8, offset=offset)

    images = [stored(f"{part}-images-idx3", 16).reshape(-1, 784) / 255 for part in ("train", "t10k")]
    labels = [stored(f"{part}-labels-idx1", 8).astype(int) for part in ("train", "t10k")]
    return images[0][:20_000], labels[0][:20_000], images[1], labels[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/mnist"))
    parser.add_argument("--teachers", type=int, default=100)
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--random-state", type=int)
    given = parser.parse_args()
    private, labels, others, truth = mnist(given.data)
    public, tested = others[:3000], others[-1000:]
    made = pate.Network(network, epochs=6, batch_size=20, learning_rate=3e-3, shape=(1, 28, 28))
    model = pate.PATEClassifier(
        made, made, n_teachers=given.teachers, epsilon=given.epsilon, delta=1e-5, classes=list(range(10)),
        n_answers=200, semi_supervised="propagation", random_state=given.random_state,
    )  # fmt: skip
    print(model.plan(len(public)), "\n")
    model.fit(private, labels, public)
    print(model.guarantee_, "\n")
    print(f"{len(model.asked_)} queries were asked, and {len(model.answers_)} answered.")
    right = np.mean(model.predict(tested) == truth[-1000:])
    print(f"The student is right for {right:.1%} of {len(tested)} other images.")


if __name__ == "__main__":
    main()
