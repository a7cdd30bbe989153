"""Frequency oracles: the variance of their estimates against theory, and their speed against two libraries.

*Variance.* All categories are equally frequent, the reports are drawn again and again, and the mean squared
error of the estimates of all categories is divided by the variance that the oracle states. The number of
repetitions makes (repetitions × categories) at least 40,000; the standard error of the ratio is computed from the
spread of the squared errors between repetitions, or between categories where there are few repetitions.

*Speed.* Encode and estimate, from 10^6 values to the frequencies. pure-ldp and multi-freq-ldpy run in an
environment of their own (``_side.py``), value by value, as their interfaces have it. Where 10^6 reports of theirs
would take minutes, fewer are made and the seconds are multiplied; the table says so. tacit's random numbers are
cryptographic and its probabilities exact; theirs are pseudo-random numbers in floating point.

    python benchmarks/local.py [variance] [speed]
"""

from __future__ import annotations

import math
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np
from _side import Peer, Refused

from tacit.local import HadamardResponse, recommend
from tacit.local.recommending import ORACLES

CATEGORIES = (2, 4, 16, 100, 1000, 10_000)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
SQUARES = 40_000
RESULTS = Path(__file__).parent / "results"
REPORTS, ROUNDS = 1_000_000, 3
SPEED = [(100, 1.0), (1000, 1.0)]
THEIRS = {"LocalHashing": 2_000_000, "SubsetSelection": 50_000_000, "HadamardResponse": 20_000_000}
"""The peers make so many reports × categories at most, 10^8 for other oracles."""


def ratio(kind: type, categories: int, epsilon: float) -> tuple[float, float]:
    """Mean squared error ÷ stated variance, and its standard error."""
    oracle = kind(categories=categories, epsilon=epsilon)
    reports = max(500, 2 * categories)
    repetitions = -(-SQUARES // categories)
    values = np.arange(reports) % categories
    truth = np.bincount(values, minlength=categories) / reports
    if isinstance(oracle, HadamardResponse):
        block = np.arange(categories) % oracle.blocks
        stated = oracle.variance(truth, reports, block=np.bincount(block, weights=truth)[block])
    else:
        stated = oracle.variance(truth, reports)
    scores = []
    batch = max(1, 40_000_000 // (reports * max(8, categories // 8)))
    for start in range(0, repetitions, batch):
        together = min(batch, repetitions - start)
        drawn = oracle.randomize(np.tile(values, together))
        for part in np.split(drawn, together):
            scores.append((oracle.estimate(part).value - truth) ** 2 / stated)
    squares = np.array(scores)
    independent = squares.mean(axis=1) if repetitions >= 100 else squares.reshape(-1)
    return float(squares.mean()), float(independent.std() / math.sqrt(independent.size))


def variances() -> str:
    rows, worst, largest = [], 0.0, 0.0
    for kind in ORACLES:
        for categories in CATEGORIES:
            cells = [ratio(kind, categories, epsilon) for epsilon in EPSILONS]
            worst = max(worst, *(abs(found - 1) for found, _ in cells))
            largest = max(largest, *(error for _, error in cells))
            text = " | ".join(f"{found:.3f} ± {error:.3f}" for found, error in cells)
            rows.append(f"| {kind.__name__} | {categories:,} | {text} |")
            print(rows[-1], flush=True)
    verdict = "met" if worst <= 0.05 else "missed"
    heads = " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS)
    return (
        "## Empirical variance ÷ theory\n\n"
        f"Equal frequencies; max(500, 2k) reports a repetition; ± one standard error, at most {largest:.3f}. The "
        f"farthest ratio is {worst:.3f} from 1: the target of 5 % is {verdict}.\n\n"
        f"| oracle | k | {heads} |\n|---|---|{'---|' * len(EPSILONS)}\n" + "\n".join(rows) + "\n"
    )


def ours(kind: type, categories: int, epsilon: float) -> float:
    values = np.random.default_rng(0).integers(0, categories, REPORTS)
    best = math.inf
    for _ in range(ROUNDS):
        oracle = kind(categories=categories, epsilon=epsilon)
        start = time.perf_counter()
        oracle.estimate(oracle.randomize(values))
        best = min(best, time.perf_counter() - start)
    return best


def theirs(peer: Peer, library: str, oracle: str, categories: int, epsilon: float) -> tuple[float, int] | None:
    most = THEIRS.get(oracle, 100_000_000)
    reports = min(REPORTS, most // categories)
    try:
        timed = peer.ask(library, oracle=oracle, categories=categories, epsilon=epsilon, reports=reports)
    except Refused as refusal:
        print(f"{library} {oracle}: {refusal}", flush=True)
        return None
    return timed.compute * REPORTS / reports, reports


def speeds() -> str:
    rows = []
    with Peer("frequency_oracles") as peer:
        for categories, epsilon in SPEED:
            for kind in ORACLES:
                name = kind.__name__
                mine = ours(kind, categories, epsilon)
                cells = []
                for library in ("pure_ldp", "multi_freq_ldpy"):
                    found = theirs(peer, library, name, categories, epsilon)
                    if found is None:
                        cells += ["–", "–"]
                        continue
                    seconds, made = found
                    scaled = "" if made == REPORTS else f" (from {made:,})"
                    cells += [f"{seconds:.1f}{scaled}", f"{seconds / mine:.0f}×"]
                rows.append(f"| {name} | {categories:,} | {mine:.2f} | {' | '.join(cells)} |")
                print(rows[-1], flush=True)
    return (
        f"## Seconds to encode and estimate {REPORTS:,} reports, ε = 1\n\n"
        f"tacit: best of {ROUNDS}; the peers run once, after their compilation; *(from n)*: measured with n reports "
        "and multiplied.\n\n"
        "| oracle | k | tacit | pure-ldp | ratio | multi-freq-ldpy | ratio |\n|---|---|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


def recommended() -> str:
    heads = " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS)
    rows = []
    for categories in CATEGORIES:
        names = [type(recommend(categories=categories, epsilon=e).oracle).__name__ for e in EPSILONS]
        rows.append(f"| {categories:,} | {' | '.join(names)} |")
    return (
        "## What `recommend` answers\n\n"
        f"| k | {heads} |\n|---|{'---|' * len(EPSILONS)}\n" + "\n".join(rows) + "\n"
    )


def main() -> None:
    parts = sys.argv[1:] or ["variance", "speed"]
    made = [recommended()]
    if "variance" in parts:
        made.append(variances())
    if "speed" in parts:
        made.append(speeds())
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "local.md").write_text(
        "# Local differential privacy: frequency oracles\n\n"
        f"`python benchmarks/local.py {' '.join(parts)}`: Python {platform.python_version()}, NumPy "
        f"{np.__version__}, {os.cpu_count()} cores ({platform.machine()}), one thread.\n\n" + "\n".join(made),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
