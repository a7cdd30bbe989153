"""Naive Bayes and trees of benchmarks/classical.py, beside diffprivlib's, on the same rows and public facts.

    python benchmarks/_classical_trees.py [--seeds 10] [--only adult car mushroom pima]

Test AUROC (two classes) and accuracy, mean over seeds. Categories are codes 0 … k−1, one more for a missing
value; bounds and numbers of codes are constants of this file, from what is published about the data. Adult
has test rows of its own; elsewhere a quarter, drawn by the seed, is for testing. diffprivlib is run as it is
shipped: ``GaussianNB`` and ``RandomForestClassifier`` (10 trees of depth 5), with the same bounds; both know
δ = 0 only, so they are set beside tacit at δ = 0 and at δ = 1e-6. Writes
``benchmarks/results/classical_trees.md``.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _linear_data import (
    ADULT_BOUNDS,
    ADULT_CATEGORIES,
    ADULT_COLUMNS,
    ADULT_LOGARITHMS,
    DATA,
    divided,
    scaled,
)
from _side import Peer, environment
from scipy.stats import rankdata

from tacit.estimators import DecisionTree, NaiveBayes, RandomTrees

RESULTS = Path(__file__).parent / "results" / "classical_trees.md"
DELTA = 1e-6
CAR_SIZES = (4, 4, 4, 3, 3, 3)
MUSHROOM_CODES = (
    "bcxfks", "fgys", "nbcgrpuewy", "tf", "alcyfmnps", "adfn", "cwd", "bn", "knbhgropuewy", "et", "bcuezr?",
    "fyks", "fyks", "nbcgopewy", "nbcgopewy", "pu", "nowy", "not", "ceflnpsz", "knbhrouwy", "acnsvy",
    "glmpuwd",
)  # fmt: skip
"""The values that the description of the data lists for each attribute (agaricus-lepiota.names)."""
PIMA_BOUNDS = ((0, 20), (0, 200), (0, 130), (0, 100), (0, 900), (0, 70), (0, 2.5), (18, 90))


@dataclass(frozen=True)
class Rows:
    """Training and test rows of codes and numbers, and what is public about them."""

    name: str
    X: np.ndarray
    y: np.ndarray
    test_X: np.ndarray
    test_y: np.ndarray
    sizes: tuple[int | None, ...]
    """How many codes each feature has, None for a number."""
    lower: np.ndarray
    upper: np.ndarray
    classes: tuple[int, ...]

    def facts(self) -> dict[str, Any]:
        return {
            "classes": list(self.classes), "bounds": (self.lower, self.upper), "categories": list(self.sizes),
        }  # fmt: skip

    def save(self, folder: Path, seed: int) -> Path:
        file = folder / f"{self.name}-{seed}.npz"
        parts = ("X", "y", "test_X", "test_y", "lower", "upper", "classes")
        np.savez(file, **{part: np.asarray(getattr(self, part)) for part in parts})
        return file


def adult(seed: int) -> Rows:
    parts = []
    for name, skipped in (("adult.data.xz", 0), ("adult.test.xz", 1)):
        table = pd.read_csv(
            DATA / "adult" / name, names=ADULT_COLUMNS, skipinitialspace=True, na_values="?", skiprows=skipped
        )
        columns = []
        for column, listed in ADULT_CATEGORIES.items():
            labels = listed.split()
            codes = pd.Categorical(table[column], categories=labels).codes.astype(int)
            columns.append(np.where(codes < 0, len(labels), codes))
        for column, bounds in ADULT_BOUNDS.items():
            columns.append(scaled(table[column], bounds, (-1.0, 1.0), column in ADULT_LOGARITHMS))
        parts += [np.column_stack(columns), table["income"].str.startswith(">").to_numpy(dtype=int)]
    sizes = tuple(len(listed.split()) for listed in ADULT_CATEGORIES.values())
    lower = np.array([0.0] * len(sizes) + [-1.0] * len(ADULT_BOUNDS))
    upper = np.array([float(size) for size in sizes] + [1.0] * len(ADULT_BOUNDS))
    return Rows("adult", *parts, (*sizes, *[None] * len(ADULT_BOUNDS)), lower, upper, (0, 1))


def _drawn(name: str, matrix: np.ndarray, labels: np.ndarray, sizes: Any, bounds: Any, seed: int) -> Rows:
    train, test = divided(len(matrix), seed)
    lower, upper = (np.array(side, dtype=float) for side in zip(*bounds, strict=True))
    classes = tuple(range(int(labels.max()) + 1))
    return Rows(name, matrix[train], labels[train], matrix[test], labels[test], sizes, lower, upper, classes)


def car(seed: int) -> Rows:
    table = pd.read_csv(DATA / "car" / "car.data")
    labels = table.pop("Evaluation").astype("category").cat.codes.to_numpy(dtype=int)
    matrix = table.apply(lambda column: column.astype("category").cat.codes).to_numpy(dtype=float)
    return _drawn("car", matrix, labels, CAR_SIZES, [(0, size) for size in CAR_SIZES], seed)


def mushroom(seed: int) -> Rows:
    table = pd.read_csv(DATA / "mushroom" / "agaricus-lepiota.data.xz", header=None)
    labels = (table.pop(0) == "p").to_numpy(dtype=int)
    columns = [
        pd.Categorical(table[place + 1], categories=list(codes)).codes.astype(float)
        for place, codes in enumerate(MUSHROOM_CODES)
    ]
    sizes = tuple(len(codes) for codes in MUSHROOM_CODES)
    matrix = np.column_stack(columns)
    matrix = np.where(matrix < 0, np.array(sizes, dtype=float), matrix)
    return _drawn("mushroom", matrix, labels, sizes, [(0, size) for size in sizes], seed)


def pima(seed: int) -> Rows:
    table = np.loadtxt(DATA / "pima-diabetes" / "pima-indians-diabetes.csv", delimiter=",")
    return _drawn("pima", table[:, :8], table[:, 8].astype(int), (None,) * 8, PIMA_BOUNDS, seed)


PROBLEMS: dict[str, Callable[[int], Rows]] = {"adult": adult, "car": car, "mushroom": mushroom, "pima": pima}
MODELS: dict[str, Callable[..., Any]] = {
    "NaiveBayes": NaiveBayes, "DecisionTree": DecisionTree, "RandomTrees": RandomTrees,
}  # fmt: skip
PEERS = {"NaiveBayes": "GaussianNB", "RandomTrees": "RandomForestClassifier"}


def auroc(labels: np.ndarray, scores: np.ndarray) -> float:
    positive = labels > 0
    count = int(positive.sum())
    ranks = rankdata(scores)[positive].sum()
    return float((ranks - count * (count + 1) / 2) / (count * (len(labels) - count)))


def measured(rows: Rows, shares: np.ndarray) -> dict[str, float]:
    """AUROC, for two classes, and accuracy."""
    found = {"accuracy": float((shares.argmax(axis=1) == rows.test_y).mean())}
    return found if len(rows.classes) > 2 else {**found, "auroc": auroc(rows.test_y, shares[:, 1])}


def of_tacit(model: str, rows: Rows, epsilon: float, delta: float, seed: int) -> dict[str, float]:
    made = MODELS[model](epsilon, delta, random_state=seed, **rows.facts()).fit(rows.X, rows.y)
    return measured(rows, made.predict_proba(rows.test_X))


class ClassicalPeer(Peer):
    """diffprivlib, running ``_classical_trees_side.py``."""

    def __init__(self) -> None:
        script = Path(__file__).parent / "_classical_trees_side.py"
        self.name = "diffprivlib"
        self._process = subprocess.Popen(
            [str(environment("diffprivlib")), str(script)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.version = self.ask("version").answer


def row(name: str, model: str, epsilon: float, found: dict[str, list[dict[str, float]]]) -> list[str]:
    """One line of the table for each figure of merit."""
    lines = []
    for figure in sorted({each for results in found.values() for one in results for each in one}):
        cells = []
        for results in found.values():
            values = [one[figure] for one in results]
            cells.append(f"{np.mean(values):.3f} ± {np.std(values):.3f}" if values else "–")
        lines.append(f"| {name} | {model} | {epsilon:g} | {figure} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="*", choices=list(PROBLEMS), default=list(PROBLEMS))
    options = parser.parse_args()
    with ClassicalPeer() as peer, tempfile.TemporaryDirectory() as folder:
        head = f"diffprivlib {peer.version}"
        lines = [
            f"| data | model | ε | figure | tacit, δ = 1e-6 | tacit, δ = 0 | {head} |",
            "|---|---|---|---|---|---|---|",
        ]
        for name in options.only:
            for epsilon in (0.1, 0.5, 1.0, 2.0, 10.0) if name == "adult" else (0.1, 1.0, 10.0):
                found: dict[str, dict[str, list[dict[str, float]]]] = {
                    model: {"approximate": [], "pure": [], "peer": []} for model in MODELS
                }
                for seed in range(options.seeds):
                    rows = PROBLEMS[name](seed)
                    file = rows.save(Path(folder), seed)
                    for model in MODELS:
                        for kind, delta in (("approximate", DELTA), ("pure", 0.0)):
                            found[model][kind].append(of_tacit(model, rows, epsilon, delta, seed))
                        if model in PEERS:
                            asked = {"file": str(file), "epsilon": epsilon, "seed": seed}
                            shares = np.array(peer.ask(PEERS[model], **asked).answer)
                            found[model]["peer"].append(measured(rows, shares))
                for model in MODELS:
                    made = row(name, model, epsilon, found[model])
                    lines += made
                    print("\n".join(made), flush=True)
    RESULTS.write_text("\n".join(["# Naive Bayes and trees", "", *lines, ""]))


if __name__ == "__main__":
    main()
