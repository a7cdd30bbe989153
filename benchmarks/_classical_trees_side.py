"""diffprivlib's side of benchmarks/_classical_trees.py: from a file of rows to the shares of the classes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from _side import serve
from diffprivlib import models


def fitted(kind: str, file: str, epsilon: float, seed: int) -> tuple[float, Any]:
    with np.load(file) as found:
        parts = {name: found[name] for name in found.files}
    bounds = (parts["lower"], parts["upper"])
    if kind == "GaussianNB":
        model = models.GaussianNB(epsilon=epsilon, bounds=bounds, random_state=seed)
    else:
        model = models.RandomForestClassifier(
            epsilon=epsilon, bounds=bounds, classes=parts["classes"], random_state=seed
        )
    model.fit(np.clip(parts["X"], *bounds), parts["y"])
    shares = np.nan_to_num(model.predict_proba(np.clip(parts["test_X"], *bounds)))
    whole = np.zeros((len(shares), len(parts["classes"])))
    whole[:, np.asarray(model.classes_, dtype=int)] = shares
    return 0.0, whole.tolist()


CASES = {
    kind: lambda kind=kind, **asked: fitted(kind, **asked)
    for kind in ("GaussianNB", "RandomForestClassifier")
}

if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    serve("diffprivlib", CASES)
