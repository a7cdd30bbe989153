"""Time per sample of tacit's exact noise and OpenDP's, side by side in one process.

Both draw exact discrete noise with a cryptographic generator. *integers*: OpenDP's vector
measurement on 64-bit integers against ``tacit.randomness``. *reals*: its vector measurement on
float64 against ``tacit.mechanisms``. *one real*: both called with a single number. The two sides
alternate, and the best of several rounds counts for each. Writes ``benchmarks/results/samplers.md``.

    python benchmarks/samplers.py
"""

import os
import platform
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import opendp.prelude as dp

from tacit.mechanisms import Gaussian, Laplace
from tacit.randomness import Source, discrete_gaussian, discrete_laplace

OURS, THEIRS, SINGLES, ROUNDS = 200_000, 2_000, 200, 7
SCALES = [("10", 10.0), ("1000.5", 1000.5), ("2^30", 2.0**30), ("2^40", 2.0**40)]
RESULTS = Path(__file__).parent / "results" / "samplers.md"
Timed = tuple[Callable[[], Any], int]


def microseconds(call: Callable[[], Any], samples: int) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) / samples * 1e6


def opendp_measurement(law: str, kind: str, scale: float, vector: bool) -> Any:
    atom = dp.atom_domain(T="i64") if kind == "i64" else dp.atom_domain(T="f64", nan=False)
    distance = kind if law == "Laplace" else "f64"
    if vector:
        metric = dp.l1_distance(T=distance) if law == "Laplace" else dp.l2_distance(T=distance)
        space = dp.vector_domain(atom), metric
    else:
        space = atom, dp.absolute_distance(T=distance)
    make = dp.m.make_laplace if law == "Laplace" else dp.m.make_gaussian
    return make(*space, scale=scale)


def integers(law: str, scale: float) -> tuple[Timed, Timed]:
    measurement, zeros = opendp_measurement(law, "i64", scale, True), [0] * THEIRS
    source, exact = Source(), Fraction(scale)
    if law == "Laplace":
        return (lambda: discrete_laplace(source, exact, OURS), OURS), (lambda: measurement(zeros), THEIRS)
    return (lambda: discrete_gaussian(source, exact**2, OURS), OURS), (lambda: measurement(zeros), THEIRS)


def mechanism(law: str, scale: float) -> Any:
    return Laplace(1.0, scale=scale) if law == "Laplace" else Gaussian(1.0, noise_multiplier=scale)


def reals(law: str, scale: float) -> tuple[Timed, Timed]:
    measurement, zeros = opendp_measurement(law, "f64", scale, True), [0.0] * THEIRS
    release, values = mechanism(law, scale), np.zeros(OURS)
    return (lambda: release(values), OURS), (lambda: measurement(zeros), THEIRS)


def one_real(law: str, scale: float) -> tuple[Timed, Timed]:
    measurement, release = opendp_measurement(law, "f64", scale, False), mechanism(law, scale)
    ours = lambda: [release(0.0) for _ in range(SINGLES)]  # noqa: E731
    return (ours, SINGLES), (lambda: [measurement(0.0) for _ in range(SINGLES)], SINGLES)


def main() -> None:
    dp.enable_features("contrib")
    cases = [("integers", integers, SCALES), ("reals", reals, SCALES[:2]), ("one real", one_real, SCALES[:1])]
    rows = []
    for what, make, scales in cases:
        for law in ("Laplace", "Gaussian"):
            for name, scale in scales:
                ours, theirs = make(law, scale)
                ours[0](), theirs[0]()
                times = [(microseconds(*ours), microseconds(*theirs)) for _ in range(ROUNDS)]
                mine, other = (min(each) for each in zip(*times, strict=True))
                rows.append(f"| {law} | {what} | {name} | {mine:.3f} | {other:.1f} | {other / mine:.1f}× |")
                print(rows[-1], flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        "# Exact noise: microseconds per sample\n\n"
        f"`python benchmarks/samplers.py`: Python {platform.python_version()}, OpenDP {dp.__version__}, "
        f"{os.cpu_count()} cores ({platform.machine()}). Best of {ROUNDS} alternating rounds of {OURS:,} "
        f"(tacit) and {THEIRS:,} (OpenDP) samples in one call, or of {SINGLES} calls with one number.\n\n"
        "| noise | on | scale | tacit | OpenDP | ratio |\n|---|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
