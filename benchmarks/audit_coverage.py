"""How often audits raise a false alarm, and how much they prove: simulations with known answers.

    python benchmarks/audit_coverage.py [--simulations 2000]

Three worlds. *No signal*: scores say nothing, so that every ε above 0 is a false alarm. *Gaussian*: scores
are those of Gaussian noise with μ = 1, whose ε at δ = 1e-5 is 4.377. *Randomized response*: every canary
answers truthfully with the probability that ε = 1 allows, and attacks see nothing else. A false alarm is a
result above the true ε; at a confidence of 95 % it may happen in 5 % of the simulations. Writes
``benchmarks/results/audit_coverage.md``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

from tacit import audit

RESULTS = Path(__file__).parent / "results" / "audit_coverage.md"
DELTA = 1e-5
TRUE_GAUSSIAN = 4.377178
SIDE = 500
"""Runs on each side, or half of the canaries."""
GRID = audit.Bonferroni(tuple(np.linspace(-2.0, 3.0, 11)))
ENDS = audit.Bonferroni(tuple(audit.Extremes(n, n) for n in (20, 50, 100, 200)))
RULES: dict[str, dict[str, Any]] = {
    "clopper_pearson": {"fixed": audit.Fixed(0.5), "split": audit.Split(seed=0), "Bonferroni": GRID},
    "gaussian": {"fixed": audit.Fixed(0.5), "split": audit.Split(seed=0), "Bonferroni": GRID},
    "one_run": {"extremes": audit.Extremes(100, 100), "Bonferroni": ENDS},
    "one_run_fdp": {"extremes": audit.Extremes(100, 100), "Bonferroni": ENDS},
}
Scores = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def normal(apart: float) -> Scores:
    """Normal scores, so far apart."""
    return lambda generator, included: generator.normal(size=included.size) + apart * included


def response(epsilon: float) -> Scores:
    """Randomized response with random confidence: nothing but a bit that is true as often as ε allows."""
    truth = 1 / (1 + np.exp(-epsilon))

    def scores(generator: np.random.Generator, included: np.ndarray) -> np.ndarray:
        told = np.where(generator.random(included.size) < truth, included, ~included)
        return np.where(told, 1.0, -1.0) * generator.random(included.size)

    return scores


WORLDS: tuple[tuple[str, Scores, float, tuple[str, ...]], ...] = (
    ("no signal", normal(0.0), 0.0, tuple(RULES)),
    ("Gaussian, μ = 1", normal(1.0), TRUE_GAUSSIAN, tuple(RULES)),
    ("randomized response, ε = 1", response(1.0), 1.0, ("clopper_pearson", "one_run")),
)


def simulated(method: str, rule: Any, world: Scores, simulations: int, seed: int) -> tuple[np.ndarray, float]:
    """The bounds that so many audits give, and seconds for each."""
    generator = np.random.default_rng(seed)
    options: dict[str, Any] = {"rule": rule, "method": method, "delta": DELTA, "confidence": 0.95}
    found = np.empty(simulations)
    began = time.process_time()
    for place in range(simulations):
        if method.startswith("one_run"):
            included = generator.random(2 * SIDE) < 0.5
            found[place] = audit.from_canaries(world(generator, included), included, **options).epsilon
        else:
            included = np.arange(2 * SIDE) < SIDE
            scores = world(generator, included)
            found[place] = audit.from_scores(scores[included], scores[~included], **options).epsilon
    return found, (time.process_time() - began) / simulations


def main() -> None:
    """Simulate, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=2000)
    simulations = parser.parse_args().simulations
    most = int(binom.isf(0.001, simulations, 0.05))
    lines = [
        "# False alarms and power of audits",
        "",
        f"`python benchmarks/audit_coverage.py --simulations {simulations}`: {SIDE} runs a side, or "
        f"{2 * SIDE} canaries; δ = {DELTA:g}, confidence 95 %. Up to {most} false alarms of {simulations} "
        "are sampling error (once in a thousand).",
        "",
        "| world | method | rule | false alarms | mean ε proven | true ε | ms |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for title, world, true, methods in WORLDS:
        for method in methods:
            for name, rule in RULES[method].items():
                found, seconds = simulated(method, rule, world, simulations, seed=len(lines))
                alarms = int((found > true + 1e-9).sum())
                mark = "" if alarms <= most else " **too many**"
                lines.append(
                    f"| {title} | {method} | {name} | {alarms / simulations:.2%}{mark} | {found.mean():.2f} "
                    f"| {true:.2f} | {1000 * seconds:.2f} |"
                )
                print(lines[-1], flush=True)
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
