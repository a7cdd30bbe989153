"""What each of two processes does for ``test_distributed``; run by ``torchrun``."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, distributed, nn
from torch.utils.data import Dataset

import tacit
from tacit.training import Plan, Quantile, Trainer, step
from tacit.training.noise import normal
from tacit.training.parallel.distributed import TorchProcesses

CLIP = 0.5
ROWS = 31
WIDE = (50, 40)
STEPS = 20
COUNTS = 200
TYPICAL = 1.3
QUANTILE = Quantile(count_noise=0.2)


class Network(nn.Module):
    """Layers with rules, attention, and a parameter that only the fallback knows."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(2)
        )
        self.scale = nn.Parameter(torch.ones(8))
        self.head = nn.Linear(8, 3)

    def forward(self, words: Tensor) -> Tensor:
        values = self.words(words)
        values = values + self.attention(values, values, values)[0]
        for block in self.blocks:
            values = values + block(values)
        return self.head(values.mean(1) * self.scale)  # type: ignore[no-any-return]


def network() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    return Network(), torch.randint(0, 11, (ROWS, 7)), torch.randint(0, 3, (ROWS,))


def plan(rows: int, size: int, steps: int, **more: Any) -> Plan:
    given = {"noise_multiplier": 5.0, "clip_norm": CLIP} | more
    return Plan(population=rows, batch_size=size, steps=steps, delta=1e-5, **given)  # type: ignore[arg-type]


def weights(model: nn.Module) -> Tensor:
    whole = [each.full_tensor() if hasattr(each, "full_tensor") else each for each in model.parameters()]
    return torch.cat([each.detach().flatten() for each in whole])


def sgd(model: nn.Module, rate: float = 1.0) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=rate)


def points(rows: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 4, generator=draw)
    return inputs, (inputs.sum(1) > 0).long()


def linear(made: Plan, ledger: Any = None, **more: Any) -> Trainer:
    model = nn.Linear(4, 2)
    return Trainer(model, nn.CrossEntropyLoss(), sgd(model, 0.1), made, ledger, **more)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    def zeros(source: Any, count: int, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
        return torch.zeros(count, dtype=dtype)

    with (
        mock.patch.object(step, "normal", zeros),
        mock.patch.object(step, "check_noise"),
        mock.patch.object(step, "_GRID_BITS", 60),
    ):
        yield


def error_of(act: Callable[[], Any]) -> str:
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def without_joining(rank: int, folder: Path) -> dict[str, Any]:
    return {"error": error_of(lambda: linear(plan(10, 5, 1)))}


def same_sum(rank: int, folder: Path) -> dict[str, Any]:
    model, words, targets = network()
    optimizer, found = sgd(model), []

    def keep(*_: Any) -> None:
        found.extend(each.grad.flatten() * ROWS for each in model.parameters() if each.grad is not None)

    optimizer.register_step_pre_hook(keep)
    with quiet():
        trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, plan(ROWS, ROWS, 1), physical_batch=5)
        trainer.fit((words, targets))
    return {"total": torch.cat(found)}


def noise(rank: int, folder: Path) -> dict[str, Any]:
    """Gradients are 0, so the updates are noise; then with too much and too little of it."""

    def drawn(**more: Any) -> Tensor:
        model = nn.Linear(*WIDE, bias=False)
        made = plan(20, 10, STEPS)
        trainer = Trainer(model, lambda out, aim: 0 * out.sum(1), sgd(model), made, **more)
        found = []

        def keep(progress: Any) -> None:
            found.append(weights(model))

        trainer.callbacks = (keep,)
        trainer.fit((torch.randn(20, WIDE[0]), torch.zeros(20)))
        spread = made.noise_multiplier * made.sensitivity / made.batch_size
        return torch.stack(found).diff(dim=0) / spread

    def only_first(*args: Any) -> Tensor:
        return normal(*args) * (rank == 0)

    made = {"sound": drawn(), "seeded": drawn(random_state=3)}
    with mock.patch.object(step, "math", SimpleNamespace(**{**vars(math), "sqrt": lambda size: 1.0})):
        made["whole shares"] = drawn()
    with mock.patch.object(step, "normal", only_first), mock.patch.object(step, "check_noise"):
        made["one share"] = drawn()
    with mock.patch.object(TorchProcesses, "seed", lambda self, random_state: random_state):
        made["same shares"] = drawn(random_state=3)
    return made


def one_release(rank: int, folder: Path) -> dict[str, Any]:
    """Correlated noise, made independent again by the band matrix; and who pays for which gradients."""
    made = plan(20, 4, STEPS, sampling="cyclic", noise="correlated", bands=3)
    model, found = nn.Linear(*WIDE, bias=False), []
    trainer = Trainer(model, lambda out, aim: 0 * out.sum(1), sgd(model), made)
    trainer.callbacks = (lambda progress: found.append(weights(model)),)
    start = weights(model).clone()
    trainer.fit((torch.randn(20, WIDE[0]), torch.zeros(20)))
    released = torch.stack([start, *found]).diff(dim=0).double()
    fresh = released.clone()
    for place, coefficient in enumerate(made.correlation.coefficients[1:], 1):
        fresh[place:] += coefficient * released[:-place]
    spread = made.step_noise * made.sensitivity / made.batch_size
    slope, moved = nn.Linear(9, 1, bias=False), []
    nn.init.zeros_(slope.weight)
    own = plan(9, 1, 200, accounting="individual", participations=2, noise_multiplier=1.0)
    with quiet():
        paying = Trainer(slope, lambda out, aim: out[:, 0], sgd(slope), own)
        paying.callbacks = (lambda progress: moved.append(weights(slope)),)
        paying.fit((torch.eye(9), torch.zeros(9)))
    added = torch.stack([torch.zeros(9), *moved]).diff(dim=0) / CLIP
    return {
        "fresh": fresh[1:] / spread, "released": released[1:] / spread,
        "squares": added.square().sum(0), "spent": torch.from_numpy(paying.private_costs.spent),
    }  # fmt: skip


def quantile(rank: int, folder: Path) -> dict[str, Any]:
    """The count of two processes without its noise, and the noise by itself."""
    counts: list[float] = []

    def keep(self: Quantile, clip_norm: float, noisy_count: float, batch_size: int) -> float:
        counts.append(noisy_count)
        return clip_norm

    with mock.patch.object(Quantile, "moved", keep):
        made = plan(10, 10, COUNTS, clipping=Quantile(count_noise=0.5))
        model = nn.Linear(4, 2)
        Trainer(model, lambda out, aim: 0 * out.sum(1), sgd(model), made).fit(points(10))
    with quiet():
        moved = linear(plan(ROWS, ROWS, 1, clipping=QUANTILE, clip_norm=TYPICAL))
        with torch.no_grad():
            moved.model.weight.zero_()
            moved.model.bias.zero_()
        moved.fit(points(ROWS))
    return {"counts": torch.tensor(counts), "clip_norm": moved.clip_norm}


def samples(rank: int, folder: Path) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for sampling in ("poisson", "shuffle"):
        seen: list[int] = []
        trainer = linear(plan(101, 20, 50, sampling=sampling))
        trainer.callbacks = (lambda progress, seen=seen: seen.append(progress.private_diagnostics.examples),)
        trainer.fit(points(101))
        made[sampling] = torch.tensor(seen)
    return made


class Watched(Dataset[Any]):
    """Rows, of which it is known which were read; one may be unreadable."""

    def __init__(self, rows: int, broken: int | None = None) -> None:
        self.inputs, self.targets = points(rows)
        self.read: set[int] = set()
        self.broken = broken

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        if row == self.broken:
            raise OSError("unreadable")
        self.read.add(row)
        return self.inputs[row], self.targets[row]


def charges(rank: int, folder: Path) -> dict[str, Any]:
    torch.manual_seed(rank)
    made = plan(40, 40, 5, noise_multiplier=0.0, epsilon=1.0)
    ledger = tacit.Ledger.open(folder / "ledger.db", budget=tacit.Budget(epsilon=1.5, delta=2e-5))
    trainer, rows = linear(made, ledger, random_state=1), Watched(40)
    trainer.fit(rows)
    tacit.save(trainer, folder / "model.safetensors")
    distributed.barrier()
    refused, unread = linear(made, ledger), Watched(40)
    return {
        "weights": weights(trainer.model),
        "read": sorted(rows.read),
        "entries": len(ledger.entries()),
        "epsilon": trainer.guarantee.epsilon,
        "noise": trainer.guarantee.noise,
        "refused": error_of(lambda: refused.fit(unread)),
        "unread": len(unread.read),
    }


def stopping(rank: int, folder: Path) -> dict[str, Any]:
    """Stopped by one process, gone on with from the checkpoint of the other."""
    path = folder / "run.safetensors"
    ledger = tacit.Ledger.open(folder / "stopped.db", budget=tacit.Budget(epsilon=100, delta=1e-4))
    first = linear(plan(40, 8, 9), ledger, checkpoint=path, checkpoint_every=2)
    first.callbacks = (lambda progress: progress.stop() if progress.step == 3 and rank else None,)
    first.fit(points(40))
    steps = first.step_number
    again = linear(plan(40, 8, 9), ledger, checkpoint=path)
    again.fit(points(40), resume=True)
    labels = [entry.label.split("]")[1] for entry in ledger.entries()]
    return {
        "steps": steps,
        "again": again.step_number,
        "labels": labels,
        "weights": weights(again.model),
        "others": error_of(
            lambda: linear(plan(40, 8, 9), ledger, checkpoint=path).fit(points(40), resume=True)
        ),
    }


def few(rank: int, folder: Path) -> dict[str, Any]:
    """One row, so that one process has none, and mostly empty batches; in a loop of its own."""
    trainer = linear(plan(100, 1, 10))
    for inputs, targets in trainer.batches(points(1)):
        trainer.step(inputs, targets)
    return {"weights": weights(trainer.model), "steps": trainer.step_number}


class Centred(nn.Module):
    """Mixes examples, in one process only."""

    def __init__(self, mixes: bool) -> None:
        super().__init__()
        self.layer, self.mixes = nn.Linear(4, 2), mixes

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs - inputs.mean(0) if self.mixes else inputs)  # type: ignore[no-any-return]


def failures(rank: int, folder: Path) -> dict[str, Any]:
    made, rows = plan(40, 20, 5), points(40)
    mixing = Centred(rank == 1)

    def raising(progress: Any) -> None:
        if rank == 0 and progress.step == 2:
            raise RuntimeError("a callback")

    def broken_loop(ranks: tuple[int, ...], path: Path | None = None) -> None:
        trainer = linear(made, checkpoint=path)
        for number, batch in enumerate(trainer.batches(rows)):
            if number == 2 and rank in ranks:
                break
            trainer.step(*batch)

    return {
        "mixing": error_of(lambda: Trainer(mixing, nn.CrossEntropyLoss(), sgd(mixing), made).fit(rows)),
        "unreadable": error_of(lambda: linear(plan(40, 40, 5)).fit(Watched(40, broken=6))),
        "callback": error_of(lambda: linear(made, callbacks=[raising]).fit(rows)),
        "loop": error_of(lambda: broken_loop((1,))),
        "loops": error_of(lambda: broken_loop((0, 1), folder / "left.safetensors")),
        "stream": error_of(lambda: linear(made).fit(rows if rank else 3)),
    }


def refusals(rank: int, folder: Path) -> dict[str, Any]:
    fixed = plan(40, 20, 5, sampling="fixed", relation="replace_one")
    wrapped = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))
    made = plan(40, 20, 5)
    return {
        "rows": error_of(lambda: linear(made).fit(points(40 + rank))),
        "plan": error_of(lambda: linear(plan(40, 20, 5 + rank)).fit(points(40))),
        "fixed": error_of(lambda: linear(fixed).fit(points(40))),
        "wrapped": error_of(lambda: Trainer(wrapped, nn.CrossEntropyLoss(), sgd(wrapped), made)),
    }


def sharded(rank: int, folder: Path) -> dict[str, Any]:
    """FSDP2, by block and at the root, stopped and gone on with."""
    from torch.distributed.fsdp import fully_shard

    def shards() -> nn.Module:
        model: Any = network()[0]
        for part in (*model.blocks, model.words):
            fully_shard(part)
        return fully_shard(model)  # type: ignore[return-value]

    _, words, targets = network()
    path, made = folder / "sharded.safetensors", plan(ROWS, ROWS, 4)
    for resume in (False, True):
        model = shards()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
        with quiet():
            trainer = Trainer(
                model,
                nn.CrossEntropyLoss(),
                optimizer,
                made,
                checkpoint=path,
                physical_batch=5 if rank else 40,
            )
            if not resume:
                trainer.callbacks = (lambda progress: progress.stop() if progress.step == 2 else None,)
            trainer.fit((words, targets), resume=resume)
    tacit.save(trainer, folder / "whole.safetensors")
    noisy = nn.Linear(*WIDE, bias=False)
    fully_shard(noisy)
    before = weights(noisy)
    Trainer(noisy, lambda out, aim: 0 * out.sum(1), sgd(noisy), plan(20, 10, 1)).fit(
        (torch.randn(20, WIDE[0]), torch.zeros(20))
    )
    partly = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    fully_shard(partly[1])
    one_by_one = torch.optim.SGD(partly.parameters(), lr=0.1, foreach=False)
    return {
        "partly": error_of(
            lambda: Trainer(partly, nn.CrossEntropyLoss(), one_by_one, plan(20, 10, 1)).fit(
                (torch.randn(20, 3), torch.zeros(20).long())
            )
        ),
        "kind": type(next(model.parameters())).__name__,
        "weights": weights(model),
        "noise": (weights(noisy) - before) / (5 * CLIP / 10),
        "average": error_of(
            lambda: Trainer(model, nn.CrossEntropyLoss(), optimizer, made, average=0.9),
        ),
    }


SCENES = (
    same_sum, noise, one_release, quantile, samples, charges, stopping, few, failures, refusals, sharded,
)  # fmt: skip


def main(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    made = {"without_joining": without_joining(rank, folder)}
    distributed.init_process_group("gloo", timeout=timedelta(seconds=300))
    for scene in SCENES:
        made[scene.__name__] = scene(rank, folder)
        distributed.barrier()
    torch.save(made, folder / f"{rank}.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
