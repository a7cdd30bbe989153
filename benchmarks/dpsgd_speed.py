"""Throughput and memory of a private training step, beside the same step without privacy and Opacus's.

A step is the whole of it: per-example gradients clipped and summed, noise, the optimiser's update.
All modes run in one process and take turns; the best step of each counts, as a share of the
throughput of the non-private step. Inputs are random, SGD updates.

- *non-private*: forward, backward, update.
- *tacit*: :mod:`tacit.training`, with its own noise, which a second core draws beside the gradients of
  models of over 4,096 parameters.
- *hooks*, *functorch*, *ew*, *ghost*: Opacus's per-sample hooks, the same with functorch for every layer,
  ExpandedWeights, and ghost clipping, with its default noise. Its recurrent layer is its own DPLSTM.

Memory is what steps need on top of the loaded model, data and libraries: the largest resident set
during four steps after the first, in a process of its own, less the resident set before them.

    python benchmarks/dpsgd_speed.py --threads 1 --write
    python benchmarks/dpsgd_speed.py --models lstm mlp --rounds 10 --parts throughput
"""

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from _dpsgd_models import CASES, Case, Transformer, mlp, pixels, words
from torch import Tensor, nn
from torch.nn import functional as F

RESULTS = Path(__file__).parent / "results" / "dpsgd_speed.md"
CLIP, NOISE, RATE = 1.0, 1.0, 0.01
PARTS = ("throughput", "memory", "scaling")
MODES = ("non-private", "tacit", "hooks", "functorch", "ew", "ghost")
LARGEST = 5e9
# Takes a step and gives the seconds it took; drawing the batch is not part of it.
Step = Callable[[], float]


def tacit_step(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    """The trainer's step on the batch its sampler drew: all examples, at sampling rate 1."""
    from tacit.training import Plan, Trainer

    plan = Plan(
        population=len(targets),
        batch_size=len(targets),
        steps=10_000,
        clip_norm=CLIP,
        noise_multiplier=NOISE,
        delta=1e-5,
    )
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, plan)
    batches = trainer.batches((inputs, targets))
    drawn = [next(batches)]

    def step() -> float:
        batch = drawn.pop()
        start = time.perf_counter()
        trainer.step(*batch)
        taken = time.perf_counter() - start
        del batch
        drawn.append(next(batches))
        return taken

    return step


def timed(call: Callable[[], None]) -> Step:
    def step() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return step


def plain_step(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), RATE)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return timed(step)


def opacus_step(mode: str, model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    from opacus.grad_sample import GradSampleModule, GradSampleModuleExpandedWeights
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import (
        GradSampleModuleFastGradientClipping as Ghost,
    )
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    if mode == "ghost":
        wrapped: Any = Ghost(model, max_grad_norm=CLIP, use_ghost_clipping=True)
    elif mode == "ew":
        wrapped = GradSampleModuleExpandedWeights(model)
    else:
        wrapped = GradSampleModule(model, force_functorch=mode == "functorch")
    kind = DPOptimizerFastGradientClipping if mode == "ghost" else DPOptimizer
    optimizer = kind(
        torch.optim.SGD(wrapped.parameters(), RATE),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        expected_batch_size=len(targets),
    )
    criterion: Any = nn.CrossEntropyLoss()
    if mode == "ghost":
        criterion = DPLossFastGradientClipping(wrapped, optimizer, criterion)

    def step() -> None:
        optimizer.zero_grad()
        criterion(wrapped(inputs), targets).backward()
        optimizer.step()

    return timed(step)


def make_step(case: Case, mode: str, batch: int) -> Step:
    torch.manual_seed(0)
    inputs, targets = case.draw(batch), torch.randint(0, 10, (batch,))
    if mode == "non-private":
        return plain_step(case.make(), inputs, targets)
    if mode == "tacit":
        return tacit_step(case.make(), inputs, targets)
    return opacus_step(mode, (case.peer or case.make)(), inputs, targets)


def too_large(case: Case, mode: str, batch: int) -> bool:
    """Whether a mode that holds every per-example gradient would need more room than there is."""
    if mode in ("non-private", "tacit", "ghost"):
        return False
    return 4.0 * batch * sum(each.numel() for each in case.make().parameters()) > LARGEST


def times(
    case: Case, modes: tuple[str, ...], rounds: int, seconds: float, batch: int = 0
) -> dict[str, float]:
    """Best time of a step by mode, the modes taking turns; a mode that cannot run is left out."""
    steps: dict[str, Step] = {}
    best: dict[str, float] = {}
    batch = batch or case.batch
    for mode in modes:
        if too_large(case, mode, batch):
            continue
        try:
            step = make_step(case, mode, batch)
            step()
            best[mode] = step()
            steps[mode] = step
        except Exception as error:
            print(f"  {case.title}, {mode}: {type(error).__name__}: {str(error)[:90]}", file=sys.stderr)
    for number in range(rounds):
        for mode, step in steps.items():
            if best[mode] * number > seconds and number > 1:
                continue
            for _ in range(max(1, min(10, int(0.02 / best[mode])))):
                best[mode] = min(best[mode], step())
    del steps
    gc.collect()
    return best


def _resident(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return float(line.split()[1]) / 1024
    raise RuntimeError(f"no {field} in /proc/self/status")


def case_of(name: str, width: int) -> Case:
    """A case by name, at its own width (0) or another."""
    if width and name == "mlp":
        return Case(f"MLP 784-{width}-10", lambda: mlp(width), pixels(784), 256)
    if width and name == "transformer":
        return Case(f"transformer of width {width}", lambda: Transformer(width), words(2500, 64), 64)
    return CASES[name]


def measure_memory(name: str, mode: str, batch: str, width: str) -> None:
    """Print the mebibytes four steps need; run in a process of its own."""
    case = case_of(name, int(width))
    make_step(case, mode, 2)()
    step = make_step(case, mode, int(batch))
    gc.collect()
    before = _resident("VmRSS")
    step()
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(4):
        step()
    print(json.dumps(_resident("VmHWM") - before))


def memory(
    name: str, modes: tuple[str, ...], threads: int, batch: int = 0, width: int = 0
) -> dict[str, float]:
    found = {}
    case = case_of(name, width)
    batch = batch or case.batch
    for mode in modes:
        if too_large(case, mode, batch):
            continue
        command = [sys.executable, __file__, "--measure", name, mode, str(batch), str(width)]
        command += ["--threads", str(threads)]
        # Memory that is given back counts as given back.
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            found[mode] = json.loads(done.stdout.splitlines()[-1])
    return found


def speed_row(title: str, best: dict[str, float]) -> str:
    plain, ours = best["non-private"], best["tacit"]
    shares = [f"{plain / best[mode]:.2f}" if mode in best else "–" for mode in MODES[1:]]
    peers = [best[mode] for mode in MODES[2:] if mode in best]
    over = f"{min(peers) / ours:.2f}" if peers else "–"
    return f"| {title} | {plain * 1e3:.2f} ms | {shares[0]} | {' | '.join(shares[1:])} | {over} |"


def memory_row(title: str, found: dict[str, float]) -> str:
    cells = [f"{found[mode]:.0f}" if mode in found else "–" for mode in MODES]
    return f"| {title} | {' | '.join(cells)} | {found['tacit'] / found['non-private']:.2f} |"


SPEED = (
    "| | non-private step | tacit | Opacus hooks | functorch | ew | ghost | tacit / best Opacus |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|"
)
MEMORY = (
    "| | non-private | tacit | Opacus hooks | functorch | ew | ghost | tacit / non-private |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|"
)


def show(lines: list[str], *more: str) -> None:
    lines.extend(more)
    print("\n".join(more), flush=True)


BATCHES = [(name, batch, 0) for name in ("mlp", "mnist-cnn") for batch in (64, 256, 1024, 4096)]
WIDTHS = [("mlp", 0, width) for width in (250, 1000, 4000)] + [
    ("transformer", 0, width) for width in (64, 128, 256)
]


def scaling(lines: list[str], options: argparse.Namespace) -> None:
    """How throughput and memory go with batch and width."""
    modes = tuple(options.modes)
    for what, cases in (("batch size", BATCHES), ("width", WIDTHS)):
        show(lines, "", f"## Throughput by {what}", "", SPEED)
        titles = []
        for name, batch, width in cases:
            case = case_of(name, width)
            titles.append(f"{case.title}, batch {batch or case.batch}")
            best = times(case, modes, options.rounds // 2, options.seconds / 2, batch)
            show(lines, speed_row(titles[-1], best))
        show(lines, "", f"## Memory by {what}, MiB", "", MEMORY)
        chosen = tuple(mode for mode in modes if mode in ("non-private", "tacit", "ghost"))
        for title, each in zip(titles, cases, strict=True):
            name, batch, width = each
            show(lines, memory_row(title, memory(name, chosen, options.threads, batch, width)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=40, help="turns of each mode, at most")
    parser.add_argument("--seconds", type=float, default=8.0, help="time of a mode on a model, about")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--write", action="store_true", help=f"to {RESULTS.name}")
    parser.add_argument(
        "--measure", nargs=4, metavar=("MODEL", "MODE", "BATCH", "WIDTH"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    if options.measure:
        measure_memory(*options.measure)
        return
    modes = tuple(options.modes)
    command = " ".join(["python", "benchmarks/dpsgd_speed.py", *sys.argv[1:]])
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "opacus"))
    lines: list[str] = []
    show(
        lines,
        "# Speed and memory of private training",
        "",
        f"`{command}`: {packages}, {platform.machine()}, threads: {options.threads}. Whole steps: clip,"
        " noise, update. Throughput as a share of the non-private step's; best step of each mode, the modes"
        " taking turns in one process.",
        "",
    )
    if "throughput" in options.parts:
        show(lines, "## Throughput", "", SPEED)
        for name in options.models:
            case = CASES[name]
            best = times(case, modes, options.rounds, options.seconds)
            show(lines, speed_row(f"{case.title}, batch {case.batch}", best))
    if "memory" in options.parts:
        show(lines, "", "## Memory of the steps, MiB", "", MEMORY)
        for name in options.models:
            title = f"{CASES[name].title}, batch {CASES[name].batch}"
            show(lines, memory_row(title, memory(name, modes, options.threads)))
    if "scaling" in options.parts:
        scaling(lines, options)
    if options.write:
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
