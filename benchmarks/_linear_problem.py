"""A problem of benchmarks/linear.py, and its file for the processes of the peers; needs nothing but NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """Training and test rows, and what is public about them."""

    name: str
    features: tuple[str, ...]
    X: Array
    y: Array
    test_X: Array
    test_y: Array
    lower: Array
    upper: Array
    """Bounds of each feature."""
    norm: float
    """A bound on the ℓ2 norm of a row, without a constant."""
    target: tuple[float, float] | None = None
    """Bounds of the target of a regression; a classification has labels 0 and 1."""

    def save(self, folder: Path) -> Path:
        """Write the problem as a file for the processes of the peers."""
        file = folder / f"{self.name}.npz"
        np.savez(file, **{**vars(self), "target": np.array(self.target or ())})
        return file

    @classmethod
    def load(cls, file: str | Path) -> Problem:
        """The problem that :meth:`save` wrote."""
        with np.load(Path(file)) as found:
            parts = {name: found[name] for name in found.files}
        return cls(**{
            **parts,
            "name": str(parts["name"]),
            "features": tuple(parts["features"].tolist()),
            "norm": float(parts["norm"]),
            "target": tuple(parts["target"].tolist()) or None,
        })  # fmt: skip

    @property
    def target_bounds(self) -> tuple[float, float]:
        """The bounds of the target, of a regression."""
        if self.target is None:
            raise ValueError(f"{self.name} is a classification")
        return self.target
