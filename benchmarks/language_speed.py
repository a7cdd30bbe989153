"""Throughput and memory of a private step of prompt tuning, beside the same step without privacy.

The model is all-MiniLM-L6-v2, frozen; trained are a soft prompt, a prefix, LoRA or the last layers, each
with a head of two classes. A step is the whole of it: forward and backward, and for tacit also clipping,
noise and every check that it makes. Both run in one process and take turns; the best step of each counts.

Memory is the largest resident set during three steps after the first, in a process of its own, less the
resident set before them.

    python benchmarks/language_speed.py --write
    python benchmarks/language_speed.py --methods "soft prompt" --rows 64 --width 32 --rounds 5

What tacit adds to a step is mostly the same for few rows and for many: the record of what was computed.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tacit.language import LastLayers, LoRA, Prefix, SoftPrompt, Tuned, pretrained
from tacit.training import Plan, Trainer

RESULTS = Path(__file__).parent / "results" / "language_speed.md"
METHODS: dict[str, Callable[[Any], Tuned]] = {
    "soft prompt": lambda model: SoftPrompt(model, tokens=20, classes=2),
    "prefix": lambda model: Prefix(model, tokens=20, classes=2),
    "LoRA": lambda model: LoRA(model, rank=8, classes=2),
    "last layers": lambda model: LastLayers(model, layers=2, classes=2),
}
PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16}


def drawn(rows: int, width: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    torch.manual_seed(0)
    lengths = torch.randint(width // 2, width + 1, (rows, 1))
    mask = (torch.arange(width) < lengths).long()
    return {"input_ids": torch.randint(1000, 20_000, (rows, width)) * mask, "attention_mask": mask}, (
        torch.randint(0, 2, (rows,))
    )


def private(model: Tuned, rows: int, width: int, autocast: torch.dtype | None) -> Callable[[], float]:
    inputs, targets = drawn(rows, width)
    plan = Plan(population=rows, batch_size=rows, steps=10_000, noise_multiplier=1.0, delta=1e-5)
    trained = [each for each in model.parameters() if each.requires_grad]
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), torch.optim.SGD(trained, 0.01), plan,
        physical_batch=rows, autocast=autocast, progress=False,
    )  # fmt: skip
    data = torch.utils.data.StackDataset(torch.utils.data.StackDataset(**inputs), targets)
    batches = trainer.batches(data)
    waiting = [next(batches)]

    def step() -> float:
        batch = waiting.pop()
        start = time.perf_counter()
        trainer.step(*batch)
        taken = time.perf_counter() - start
        del batch
        waiting.append(next(batches))
        return taken

    return step


def plain(model: Tuned, rows: int, width: int, autocast: torch.dtype | None) -> Callable[[], float]:
    inputs, targets = drawn(rows, width)
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], 0.01)

    def step() -> float:
        start = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
            loss = F.cross_entropy(model(**inputs), targets)
        loss.backward()
        optimizer.step()
        return time.perf_counter() - start

    return step


SIDES = {"tacit": private, "non-private": plain}


def peak(side: str, method: str, rows: int, width: int, precision: str) -> float:
    """Bytes that steps need beyond what was there before them, in a process of its own."""
    line = json.dumps([side, method, rows, width, precision])
    # Memory that is given back counts as given back.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, __file__, "--peak", line]
    found = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(found.stdout.split()[-1])


def measured_peak(line: str) -> None:
    side, method, rows, width, precision = json.loads(line)
    step = SIDES[side](METHODS[method](pretrained("minilm")), rows, width, PRECISIONS[precision])
    gc.collect()
    before = _resident("VmRSS")
    step()
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(3):
        step()
    print(_resident("VmHWM") - before)


def _resident(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(field))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    options.add_argument("--precisions", nargs="+", default=list(PRECISIONS), choices=PRECISIONS)
    options.add_argument("--rows", type=int, nargs="+", default=[64, 256])
    options.add_argument("--width", type=int, default=32)
    options.add_argument("--rounds", type=int, default=6)
    options.add_argument("--no-memory", action="store_true")
    options.add_argument("--write", action="store_true")
    options.add_argument("--peak", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.peak:
        measured_peak(given.peak)
        return
    base = pretrained("minilm")
    lines = ["| method | precision | rows | throughput ÷ non-private | memory ÷ non-private |",
             "|---|---|---:|---:|---:|"]  # fmt: skip
    for rows, method in itertools.product(given.rows, given.methods):
        for precision in given.precisions:
            steps = {
                side: make(METHODS[method](base), rows, given.width, PRECISIONS[precision])
                for side, make in SIDES.items()
            }
            best = dict.fromkeys(steps, float("inf"))
            for number in range(given.rounds + 1):
                for side, step in steps.items():
                    taken = step()
                    if number:
                        best[side] = min(best[side], taken)
            ratio = best["non-private"] / best["tacit"]
            memory = "not measured"
            if not given.no_memory:
                needs = {side: peak(side, method, rows, given.width, precision) for side in SIDES}
                memory = f"{needs['tacit'] / needs['non-private']:.2f}"
            lines.append(f"| {method} | {precision} | {rows} | {ratio:.2f} | {memory} |")
            print(lines[-1], {side: round(value, 3) for side, value in best.items()}, flush=True)
    if given.write:
        command = " ".join(["python benchmarks/language_speed.py", *sys.argv[1:]])
        intro = (
            "# Speed of private prompt tuning\n\n"
            f"all-MiniLM-L6-v2, rows of up to {given.width} tokens, "
            f"best of {given.rounds} interleaved steps, {torch.get_num_threads()} threads, "
            f"{platform.machine()}, PyTorch {torch.__version__}. Made by `{command}`.\n\n"
        )
        RESULTS.write_text(intro + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
