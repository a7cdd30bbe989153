"""Local means and local learning: variance against theory, speed, and what local privacy costs on Adult.

    python benchmarks/local_means.py [--data ../shared/data] [--out benchmarks/results/local_means.md]

Three parts. (1) The empirical variance of every mechanism beside its theory. The relative standard error of
an empirical variance of n reports is √((κ − 1)/n), κ being the kurtosis of a report, which is estimated from
the same reports; n is chosen so that it stays below 2 %, and the table prints the largest. (2) Seconds of CPU
time. (3) Logistic regression from local reports beside ``tacit.estimators.LogisticRegression`` of the same ε
and δ = 0, and without privacy, on Adult's test rows, which no setting was chosen by: steps, clip norm and
learning rate of the local model were chosen on 26,000 of Adult's training rows with the other 6,561 for
validation, and that choice is covered by no guarantee; here the data are public.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from _linear_data import adult

from tacit.errors import CannotLearn
from tacit.estimators import LogisticRegression
from tacit.local import Duchi, Hybrid, LocalLogisticRegression, Piecewise, PrivUnit

EPSILONS = (0.5, 1.0, 2.0, 4.0)
NUMBERS = (-1.0, -0.3, 0.0, 0.5, 1.0)
REPORTS = 400_000
DIMENSIONS = (2, 10, 100, 1000)


def spread(values: np.ndarray, truth: float) -> tuple[float, float]:
    """The empirical variance about a known mean, and its relative standard error."""
    squares = np.square(values - truth)
    return float(squares.mean()), float(squares.std() / squares.mean() / math.sqrt(squares.size))


def published(name: str, epsilon: float, number: float) -> float:
    """The variance that the papers state, for a number in [−1, 1]."""
    root, power = math.exp(epsilon / 2), math.exp(epsilon)
    duchi = ((power + 1) / (power - 1)) ** 2 - number**2
    piecewise = number**2 / (root - 1) + (root + 3) / (3 * (root - 1) ** 2)
    if name == "Duchi" or (name == "Hybrid" and epsilon < 0.61):
        return duchi
    share = 1 - 1 / root
    return piecewise if name == "Piecewise" else share * piecewise + (1 - share) * duchi


def variances_of_numbers() -> list[str]:
    """The worst ratios over numbers, one line for each mechanism and ε."""
    lines = [
        "| mechanism | ε | empirical / theory, of 5 numbers | theory / paper | standard error |",
        "|---|---|---|---|---|",
    ]
    for kind in (Duchi, Piecewise, Hybrid):
        for epsilon in EPSILONS:
            mechanism = kind(bounds=(-1, 1), epsilon=epsilon)
            ratios, papers, errors = [], [], []
            for number in NUMBERS:
                reports = mechanism.randomize(np.full(REPORTS, number))
                found, error = spread(mechanism.values(reports), number)
                theory = mechanism.variance(number)
                ratios.append(found / theory)
                papers.append(theory / published(kind.__name__, epsilon, number))
                errors.append(error)
            lines.append(
                f"| {kind.__name__} | {epsilon:g} | {min(ratios):.3f} to {max(ratios):.3f} | "
                f"{min(papers):.4f} to {max(papers):.4f} | {max(errors):.2%} |"
            )
    return lines


def variances_of_vectors() -> list[str]:
    """PrivUnit: the squared distance of a report from the vector, of norm 1 and of norm ½.

    All reports have one length, so that distance tells little unless the mean along the vector is right too.
    """
    lines = [
        "| dimension | ε | empirical / theory, norm 1 | norm ½ | standard error | variance of a report | "
        "mean along a vector of norm 1 |",
        "|---|---|---|---|---|---|---|",
    ]
    for dimension in DIMENSIONS:
        for epsilon in EPSILONS:
            mechanism = PrivUnit(dimension=dimension, epsilon=epsilon, clip_norm=1.0)
            direction = np.ones(dimension) / math.sqrt(dimension)
            count = max(20_000, min(REPORTS, 20_000_000 // dimension))
            cells, errors, along = [], [], np.empty(0)
            for norm in (1.0, 0.5):
                reports = mechanism.randomize(np.broadcast_to(norm * direction, (count, dimension)))
                along = reports @ direction.astype(np.float32) if norm == 1.0 else along
                distances = np.square(reports - norm * direction, dtype=np.float64).sum(axis=1)
                cells.append(distances.mean() / mechanism.variance(norm))
                errors.append(distances.std() / distances.mean() / math.sqrt(count))
            mean, error = along.mean(dtype=np.float64), along.std(dtype=np.float64) / math.sqrt(count)
            lines.append(
                f"| {dimension} | {epsilon:g} | {cells[0]:.3f} | {cells[1]:.3f} | {max(errors):.2%} | "
                f"{mechanism.variance(1.0):.4g} | {mean:.3f} ± {error:.3f} |"
            )
    return lines


def speed() -> list[str]:
    """CPU seconds to randomize and to estimate."""
    lines = ["| what | reports | randomize, s | estimate, s |", "|---|---|---|---|"]
    rng = np.random.default_rng(0)
    numbers = rng.uniform(size=1_000_000)
    table = rng.uniform(size=(1_000_000, 20))
    vectors = rng.standard_normal((10_000, 10_000), dtype=np.float32)
    runs: tuple[tuple[str, Any, Any], ...] = (
        ("Duchi", Duchi(bounds=(0, 1), epsilon=1.0), numbers),
        ("Piecewise", Piecewise(bounds=(0, 1), epsilon=1.0), numbers),
        ("Hybrid", Hybrid(bounds=(0, 1), epsilon=1.0), numbers),
        ("Hybrid, 20 attributes", Hybrid(bounds=([0] * 20, 1), epsilon=1.0), table),
        ("PrivUnit, dimension 10,000", PrivUnit(dimension=10_000, epsilon=4.0), vectors),
    )
    for name, mechanism, values in runs:
        began = time.process_time()
        reports = mechanism.randomize(values)
        between = time.process_time()
        mechanism.estimate(reports)
        ended = time.process_time()
        lines.append(f"| {name} | {len(values):,} | {between - began:.2f} | {ended - between:.2f} |")
    return lines


def learning(folder: Path, seeds: int) -> list[str]:
    """Test accuracy on Adult, local beside central."""
    data = adult(folder)
    majority = float(max(data.test_y.mean(), 1 - data.test_y.mean()))
    plain = LogisticRegression(math.inf, norm=data.norm, classes=[0, 1]).fit(data.X, data.y)
    exact = float(np.mean(plain.predict(data.test_X) == data.test_y))
    lines = [
        f"{len(data.X):,} people, {data.X.shape[1]} features, {seeds} seeds: mean (least to most). "
        f"Always the larger class: {majority:.3f}. Without privacy: {exact:.3f}.",
        "",
        "| ε | local, one report per person | central, δ = 0 | points lost by local |",
        "|---|---|---|---|",
    ]
    for epsilon in (1.0, 2.0, 4.0, 8.0):
        scores: dict[str, list[float]] = {"local": [], "central": []}
        for seed in range(seeds):
            common: dict[str, Any] = {"norm": data.norm, "classes": [0, 1], "random_state": seed}
            models = {
                "local": LocalLogisticRegression(epsilon, **common),
                "central": LogisticRegression(epsilon, relation="replace_one", **common),
            }
            for name, model in models.items():
                model.fit(data.X, data.y)
                scores[name].append(float(np.mean(model.predict(data.test_X) == data.test_y)))
        means = {name: float(np.mean(found)) for name, found in scores.items()}
        cells = [f"{means[name]:.3f} ({min(each):.3f} to {max(each):.3f})" for name, each in scores.items()]
        lost = 100 * (means["central"] - means["local"])
        lines.append(f"| {epsilon:g} | {' | '.join(cells)} | {lost:.1f} |")
    return lines


def main() -> None:
    """Measure, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore", CannotLearn)
    parts = {
        "Logistic regression on Adult": learning(options.data, options.seeds),
        "Variance of numbers": variances_of_numbers(),
        "Variance of vectors (PrivUnit)": variances_of_vectors(),
        "Seconds of CPU time, one thread": speed(),
    }
    text = ["# Local means and local learning", "", "Made by `python benchmarks/local_means.py`.", ""]
    for title, lines in parts.items():
        text += [f"## {title}", "", *lines, ""]
    print("\n".join(text))
    if options.out is not None:
        options.out.write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
