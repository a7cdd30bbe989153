"""Throughput of a private step whose parameters are used outside layers with a rule.

Such a parameter is served in the one backward pass, from its input and output gradient
(:mod:`tacit.training.gradients.products`); *second pass* is the same step with every such parameter left to
the fallback, which runs the model once more, example by example. Steps of each mode take turns in one
process; the best of each counts, as a share of the throughput of the step without privacy.

    python benchmarks/routes_speed.py --threads 1 --write
"""

import argparse
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from _dpsgd_models import Case, pixels, words
from dpsgd_speed import Step, plain_step, tacit_step
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from tacit.training.gradients import direct, watching

RESULTS = Path(__file__).parent / "results" / "routes_speed.md"


class Bare(nn.Module):
    """Two products with plain parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(784, 500) / 28)
        self.second = nn.Parameter(torch.randn(500, 10) / 22)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.first) @ self.second


class Contracted(nn.Module):
    """A projection of sequences into heads by ``torch.einsum``."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = (
            nn.Parameter(torch.randn(4, 48, 192) / 14),
            nn.Parameter(torch.randn(192, 10) / 14),
        )

    def forward(self, x: Tensor) -> Tensor:
        made = torch.tanh(torch.einsum("btd,hed->bthe", x, self.into)).flatten(2)
        return torch.einsum("btd,do->bto", made, self.out).mean(1)


class Pair(nn.Module):
    """``nn.Bilinear`` of the two halves of an input."""

    def __init__(self) -> None:
        super().__init__()
        self.pair, self.head = nn.Bilinear(64, 64, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.pair(*x.chunk(2, 1))))


class Tied(nn.Module):
    """A table of words that is the output layer too, by ``F.linear``."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.inner = nn.Embedding(200, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(torch.tanh(self.inner(self.embed(x))).mean(1), self.embed.weight)


def _bag() -> nn.Module:
    return nn.Sequential(nn.EmbeddingBag(2500, 64, mode="sum"), nn.Linear(64, 10))


def _normed_mlp() -> nn.Module:
    return nn.Sequential(weight_norm(nn.Linear(784, 256)), nn.ReLU(), weight_norm(nn.Linear(256, 10)))


def _normed_cnn() -> nn.Module:
    return nn.Sequential(
        weight_norm(nn.Conv2d(1, 16, 8, 2, padding=3)), nn.ReLU(), nn.MaxPool2d(2, 1),
        weight_norm(nn.Conv2d(16, 32, 4, 2)), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip


CASES = {
    "bare": Case("x @ p, 784-500-10", Bare, pixels(784), 256),
    "einsum": Case("einsum into heads, T=32", Contracted, pixels(32, 192), 64),
    "bilinear": Case("nn.Bilinear 64×64→64", Pair, pixels(128), 256),
    "bag": Case("nn.EmbeddingBag, 2500 words, 32 in a bag", _bag, words(2500, 32), 256),
    "tied": Case("tied table, F.linear", Tied, words(200, 16), 64),
    "normed-mlp": Case("weight_norm MLP 784-256-10", _normed_mlp, pixels(784), 256),
    "normed-cnn": Case("weight_norm MNIST CNN", _normed_cnn, pixels(1, 28, 28), 256),
}


@contextmanager
def _second_pass() -> Iterator[None]:
    """Within, no call is understood in which a parameter is used outside a layer with a rule."""
    before = watching.kind
    watching.kind = lambda *_: None
    try:
        yield
    finally:
        watching.kind = before


def _steps(case: Case) -> dict[str, Step]:
    torch.manual_seed(0)
    inputs, targets = case.draw(case.batch), torch.randint(0, 10, (case.batch,))
    steps = {"non-private": plain_step(case.make(), inputs, targets)}
    steps["tacit"] = tacit_step(case.make(), inputs, targets)
    step = tacit_step(case.make(), inputs, targets)

    def slow() -> float:
        with _second_pass():
            return step()

    return steps | {"second pass": slow}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=6.0, help="time of a model, about")
    parser.add_argument("--write", action="store_true", help=f"to {RESULTS.name}")
    options = parser.parse_args()
    assert direct.kind is watching.kind
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    lines = [
        "# Speed of parameters used outside layers",
        "",
        f"`python benchmarks/routes_speed.py --threads {options.threads}`: torch {torch.__version__}."
        " Throughput as a share of that of the step without privacy; the best step of each mode, which take"
        " turns in one process.",
        "",
        "| | non-private step | tacit | second pass | tacit / second pass |",
        "|---|---:|---:|---:|---:|",
    ]
    print("\n".join(lines), flush=True)
    for name in options.models:
        case = CASES[name]
        steps = _steps(case)
        best = {mode: min(step(), step()) for mode, step in steps.items()}
        end = time.perf_counter() + options.seconds
        for number in range(options.rounds):
            if time.perf_counter() > end and number > 2:
                break
            for mode, step in steps.items():
                best[mode] = min(best[mode], step())
        plain, ours, slow = best.values()
        lines.append(
            f"| {case.title}, batch {case.batch} | {plain * 1e3:.2f} ms | {plain / ours:.2f} |"
            f" {plain / slow:.3f} | {slow / ours:.1f} |"
        )
        print(lines[-1], flush=True)
    if options.write:
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
