"""interpret's side of benchmarks/classical.py: DP-EBM with its defaults, on the rows of the same files."""

from __future__ import annotations

import time
import warnings
from functools import lru_cache
from typing import Any

import pandas as pd
from _side import serve
from interpret.privacy import DPExplainableBoostingClassifier
from sklearn.metrics import roc_auc_score

warnings.filterwarnings("ignore")


@lru_cache(4)
def table(file: str, target: str, names: tuple[str, ...]) -> tuple[pd.DataFrame, pd.Series]:
    found = pd.read_csv(file, dtype=dict.fromkeys(names, str), keep_default_na=False)
    return found.drop(columns=target), found[target].astype(int)


def boosted(
    train: str,
    test: str,
    target: str,
    bounds: dict[str, list[float]],
    epsilon: float,
    delta: float,
    seed: int,
) -> tuple[float, Any]:
    """Test AUROC; the bounds of the numbers are given, categories are read off the rows, as it does."""
    start = time.perf_counter()
    names = tuple(name for name in pd.read_csv(train, nrows=0).columns if name not in (*bounds, target))
    (X, y), (other_X, other_y) = table(train, target, names), table(test, target, names)
    loading = time.perf_counter() - start
    model = DPExplainableBoostingClassifier(
        epsilon=epsilon, delta=delta, random_state=seed,
        feature_types=["continuous" if name in bounds else "nominal" for name in X.columns],
        privacy_bounds={name: tuple(map(float, pair)) for name, pair in bounds.items()},
    ).fit(X, y)  # fmt: skip
    return loading, float(roc_auc_score(other_y, model.predict_proba(other_X)[:, 1]))


if __name__ == "__main__":
    serve("interpret-core", {"boosted": boosted})
