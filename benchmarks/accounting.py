"""Accounting beside its peers, in one process: speed as ratios, tightness as differences.

    python benchmarks/accounting.py

Needs the ``peers`` extra: dp-accounting, opacus, prv-accountant. Writes results/accounting.md.
"""

from __future__ import annotations

import resource
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import dp_accounting
from dp_accounting.pld import privacy_loss_distribution as peer_pld
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from opacus.accountants import PRVAccountant as OpacusPRV
from prv_accountant import PRVAccountant as PRV
from prv_accountant.privacy_random_variables import PoissonSubsampledGaussianMechanism

from tacit import accounting, events
from tacit.accounting import composition, pld, rdp

warnings.filterwarnings("ignore")
RATE, STEPS, DELTA = 256 / 60000, 3510, 1e-5
SETTINGS = [
    (1e-5, 0.5, 1_000_000, 1e-6),
    (1e-4, 0.8, 100_000, 1e-6),
    (1e-3, 0.6, 10_000, 1e-5),
    (256 / 60000, 1.1, 3510, 1e-5),
    (0.01, 4.0, 10_000, 1e-5),
    (0.05, 1.0, 200, 1e-6),
    (0.2, 5.0, 1000, 1e-7),
    (0.5, 20.0, 10_000, 1e-5),
    (1.0, 20.0, 100, 1e-5),
    (0.01, 0.7, 1, 1e-6),
]


def run(rate: float, noise: float, steps: int) -> events.Event:
    return events.Repeat(events.PoissonSampled(rate, events.Gaussian(noise)), steps)


def interleaved(repeats: int, *sides: Callable[[], object]) -> list[tuple[float, object]]:
    """Best time and last answer of each side, the sides taking turns."""
    best = [float("inf")] * len(sides)
    answers: list[object] = [None] * len(sides)
    for _ in range(repeats):
        for index, side in enumerate(sides):
            start = time.perf_counter()
            answers[index] = side()
            best[index] = min(best[index], time.perf_counter() - start)
    return list(zip(best, answers, strict=True))


def peer_event(noise: float) -> dp_accounting.DpEvent:
    step = dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(noise))
    return dp_accounting.SelfComposedDpEvent(step, STEPS)


def calibration() -> list[str]:
    def ours() -> float:
        return accounting.calibrate(lambda z: run(RATE, z, STEPS), epsilon=2.0, delta=DELTA)

    def peer() -> float:
        return dp_accounting.calibrate_dp_mechanism(PLDAccountant, peer_event, 2.0, DELTA)

    (mine, z), (theirs, peer_z) = interleaved(3, ours, peer)
    check = PLDAccountant().compose(peer_event(float(z))).get_epsilon(DELTA)  # type: ignore[arg-type]
    return [
        "## Calibration: rate 256/60000, 3510 steps, ε = 2, δ = 1e-5",
        "",
        "| | noise multiplier | time | ratio |",
        "|---|---|---|---|",
        f"| tacit | {z:.5f} | {mine:.3f} s | 1 |",
        f"| dp-accounting, PLD | {peer_z:.5f} | {theirs:.2f} s | {theirs / mine:.0f}× slower |",
        "",
        f"dp-accounting's own ε of our noise multiplier: {check:.5f} (its grid, 1e-4, is coarser).",
        "",
    ]


def one_epsilon() -> list[str]:
    def ours() -> float:
        for cached in (rdp._one, composition.single, pld.profile_of):
            cached.cache_clear()
        return accounting.epsilon(run(RATE, 1.1, STEPS), DELTA)

    def peer() -> float:
        accountant = OpacusPRV()
        accountant.history = [(1.1, RATE, STEPS)]
        return float(accountant.get_epsilon(DELTA))

    (mine, epsilon), (theirs, peer_epsilon) = interleaved(5, ours, peer)
    return [
        "## One ε: rate 256/60000, noise multiplier 1.1, 3510 steps, δ = 1e-5",
        "",
        "| | ε | time | ratio |",
        "|---|---|---|---|",
        f"| tacit, tightest of all accountants | {epsilon:.5f} | {mine:.3f} s | 1 |",
        f"| Opacus, PRV | {peer_epsilon:.5f} | {theirs:.3f} s | {theirs / mine:.1f}× slower |",
        "",
    ]


def fine_grid(rate: float, noise: float, steps: int, delta: float) -> tuple[float, float]:
    """dp-accounting's ε on the finest grid that fits into memory, and that grid's interval."""
    interval = min(1e-4, rate / 10)
    while True:
        try:
            step = peer_pld.from_gaussian_mechanism(
                noise, sampling_prob=rate, value_discretization_interval=interval
            )
            composed = step.self_compose(steps, tail_mass_truncation=delta * 1e-4)
            return float(composed.get_epsilon_for_delta(delta)), interval
        except MemoryError:
            interval *= 3


def lower_bound(rate: float, noise: float, steps: int, delta: float) -> float | None:
    try:
        step = PoissonSubsampledGaussianMechanism(noise_multiplier=noise, sampling_probability=rate)
        accountant = PRV(step, max_self_compositions=steps, eps_error=0.05, delta_error=delta / 1000)
        return float(accountant.compute_epsilon(delta, steps)[0])
    except Exception as error:
        print("prv-accountant:", type(error).__name__, str(error)[:90])
        return None


def tightness() -> list[str]:
    lines = [
        "## Ten settings: never below prv-accountant's lower bound, at most 0.5 % above the fine grid",
        "",
        "| rate | noise | steps | δ | tacit ε | time | prv lower bound | dp-accounting (interval) | excess |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for rate, noise, steps, delta in SETTINGS:
        start = time.perf_counter()
        epsilon = accounting.epsilon(run(rate, noise, steps), delta)
        spent = time.perf_counter() - start
        low = lower_bound(rate, noise, steps, delta)
        fine, interval = fine_grid(rate, noise, steps, delta)
        lines.append(
            f"| {rate:.3g} | {noise} | {steps} | {delta:g} | {epsilon:.5f} | {spent:.2f} s "
            f"| {'failed' if low is None else f'{low:.5f}'} | {fine:.5f} ({interval:.1g}) "
            f"| {(epsilon / fine - 1) * 100:+.3f} % |"
        )
        print(lines[-1], flush=True)
        if low is not None and epsilon < low:
            lines.append("| | | | | **below the lower bound** | | | | |")
    return [*lines, ""]


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (14 << 30, 14 << 30))
    lines = ["# Accounting", "", *one_epsilon(), *calibration(), *tightness()]
    text = "\n".join(lines)
    print(text)
    target = Path(__file__).parent / "results" / "accounting.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text(text + "\n")


if __name__ == "__main__":
    main()
