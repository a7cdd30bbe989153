"""Label differential privacy on MNIST and Fashion-MNIST: test accuracy of a perceptron 784-256-10.

    python benchmarks/labels.py [--data ../shared/data] [--method subset …] [--out FILE]

Only labels are private. No setting was chosen by test rows: dropout, epochs and learning rate were chosen
with the first 50,000 training rows, whose labels were randomized, and the true labels of the other 10,000.
The choice is not covered by the guarantee of a fit; here the data are public. Every fit is one run.
``results/labels.md`` lists what was compared, with two caveats.
"""

from __future__ import annotations

import argparse
import gzip
import time
from pathlib import Path

import numpy as np
import torch

from tacit.labels import LabelPrivateClassifier, Perceptron

SETTINGS = {
    ("mnist", 1.0): {"dropout": 0.5, "learning_rate": 0.001, "epochs": 15},
    ("mnist", 2.0): {"dropout": 0.5, "learning_rate": 0.003, "epochs": 15},
    ("mnist", 4.0): {"dropout": 0.3, "learning_rate": 0.003, "epochs": 15},
    ("fashion-mnist", 1.0): {"dropout": 0.2, "learning_rate": 0.003, "epochs": 15},
    ("fashion-mnist", 2.0): {"dropout": 0.0, "learning_rate": 0.001, "epochs": 10},
    ("fashion-mnist", 4.0): {"dropout": 0.2, "learning_rate": 0.001, "epochs": 15},
}
"""What was chosen for each data set and ε on the validation part."""
BEST = {1.0: "subset", 2.0: "response", 4.0: "response"}
TARGETS = {
    ("mnist", 1.0): 0.935, ("mnist", 2.0): 0.960, ("mnist", 4.0): 0.974,
    ("fashion-mnist", 1.0): 0.835, ("fashion-mnist", 2.0): 0.857, ("fashion-mnist", 4.0): 0.873,
}  # fmt: skip


def images(folder: Path, name: str, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Pixels / 255 and labels of the rows of one part, ``train`` or ``t10k``."""
    pixels, labels = (
        np.frombuffer(gzip.decompress((folder / name / f"{part}-{kind}-ubyte.gz").read_bytes()), np.uint8)
        for kind in ("images-idx3", "labels-idx1")
    )
    return (pixels[16:].reshape(-1, 784) / 255).astype(np.float32), labels[8:].astype(np.int64)


def run(folder: Path, name: str, epsilon: float, method: str) -> str:
    """One line of the table."""
    X, y = images(folder, name, "train")
    settings = SETTINGS[name, epsilon]
    base = Perceptron((256,), random_state=0, **settings)
    model = LabelPrivateClassifier(base, epsilon, method=method, classes=range(10), random_state=0)
    began = time.perf_counter()
    model.fit(X, y)
    took = time.perf_counter() - began
    test, truth = images(folder, name, "t10k")
    accuracy, target = float(np.mean(model.predict(test) == truth)), TARGETS[name, epsilon]
    reached = "yes" if accuracy >= target else "no"
    chosen = ", ".join(f"{key} {value:g}" for key, value in settings.items())
    cells = (name, f"{epsilon:g}", method, chosen, f"{accuracy:.4f}", f"{target:.3f}", reached, f"{took:.0f}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Fit, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--names", nargs="*", default=["mnist", "fashion-mnist"])
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0, 2.0, 4.0])
    parser.add_argument("--method", nargs="*", default=None, help="in place of the best method for each ε")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        "| data | ε | method | settings | test accuracy | target | reached | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for name in options.names:
        for epsilon in options.epsilons:
            for method in options.method or [BEST[epsilon]]:
                lines.append(run(options.data, name, epsilon, method))
                print(lines[-1], flush=True)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
