"""Who is trusted, and what that costs: MNIST over 6,000 clients of 10 images, at δ = 1e-5.

    python benchmarks/federated.py [--seeds 3] [--speed] [--tune server 2]

Softmax regression on scattering features (``tacit.training.Scattering``, scaled by random drawings, see
``_public_images``). A client's update is the mean gradient of its ten images; about 600 of 6,000 clients take
part in a round. Clients are the unit, and images are dealt out at random ("iid") or so that a client has two
classes. The rows:

- ``central``: DP-SGD by ``tacit.training.Trainer``, where an example is a client with its ten images: the
  same event as "server", computed by other code.
- ``server``: ``tacit.federated.Rounds``, the server clips and adds the noise.
- ``aggregator``: encoded reports with shares of the noise at 18 bits a coordinate, added up modulo 2^18
  (masks cancel in the sum and are left out); cohorts are Poisson samples as for "server", and the second ε is
  the one against the server, which sees the cohorts. ``aggregator, rotation``: nothing is claimed for
  sampling; every client takes part in a tenth of the rounds, and the ε holds against the server too.
- ``nobody``: PrivUnit, one report of each client, in ten rounds.

Width, rate and clip_norm were chosen with ``--tune`` on training images alone, dealt out at random: 5,000
clients of the first 50,000 train, the last 10,000 images judge, at the sampling rate and noise of the plan.
The 60 rounds were not tuned. Parameters are averaged over the second half of the rounds. Writes
``benchmarks/results/federated.md`` and ``docs/pictures/federated.svg``.
"""

from __future__ import annotations

import argparse
import io
import itertools
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from _federated_data import CLIENTS, IMAGES, SPLITS, digits, narrowed, owners
from matplotlib import rc_context
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.federated import FederatedPlan, Rounds
from tacit.local import PrivUnit
from tacit.training import Plan, Trainer

RESULTS = Path(__file__).parent / "results"
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "federated.svg"
COHORT, DELTA, CLASSES = 600, 1e-5, 10
EPSILONS = (1.0, 2.0, 8.0)
Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Setting:
    """What was chosen on training images."""

    width: int
    rounds: int
    rate: float
    clip_norm: float


CHOSEN = {
    ("shared", 1.0): Setting(500, 60, 64.0, 0.15),
    ("shared", 2.0): Setting(500, 60, 64.0, 0.3),
    ("shared", 8.0): Setting(500, 60, 64.0, 0.3),
    ("nobody", 1.0): Setting(20, 10, 3.0, 0.3),
    ("nobody", 2.0): Setting(50, 10, 10.0, 0.3),
    ("nobody", 8.0): Setting(50, 10, 10.0, 0.3),
}


@dataclass(frozen=True)
class Problem:
    """The images of each client, and those that judge."""

    images: Matrix
    labels: NDArray[np.int64]
    test: Matrix
    test_labels: NDArray[np.int64]

    def gradients(self, cohort: tuple[int, ...], weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean gradient of each client's images, one row for a client, downhill."""
        rows = self.images[list(cohort)]
        scores = rows @ weights.astype(np.float32)
        scores -= scores.max(axis=2, keepdims=True)
        shares = np.exp(scores)
        shares /= shares.sum(axis=2, keepdims=True)
        np.subtract.at(
            shares, (np.arange(len(rows))[:, None], np.arange(IMAGES)[None], self.labels[list(cohort)]), 1.0
        )
        return np.matmul(rows.transpose(0, 2, 1), -shares / IMAGES).astype(np.float64)

    def accuracy(self, weights: NDArray[np.float64]) -> float:
        """Per cent right."""
        return 100 * float(np.mean((self.test @ weights).argmax(axis=1) == self.test_labels))


def problem(split: str, width: int, seed: int, *, judged_by: str = "test") -> Problem:
    """All clients and the test images; or those of the first 50,000 images, and the other 10,000."""
    found = digits()
    last = len(found.labels) if judged_by == "test" else 50_000
    train = narrowed(found.train, width)
    places = owners(found.labels[:last], split, seed)
    if judged_by == "test":
        judges = narrowed(found.test, width), found.test_labels
    else:
        judges = train[last:], found.labels[last:]
    return Problem(train[places], found.labels[places], *judges)


def plan_of(trust: str, epsilon: float, setting: Setting) -> FederatedPlan:
    more = {
        "server": {},
        "aggregator": {"sampling": "poisson"},
        "aggregator, rotation": {},
        "nobody": {"randomizer": "privunit"},
    }[trust]
    return FederatedPlan(
        clients=CLIENTS, cohort=COHORT, rounds=setting.rounds, clip_norm=setting.clip_norm, epsilon=epsilon,
        delta=DELTA, trust=trust.partition(",")[0], **more,
    )  # fmt: skip


def federated(plan: FederatedPlan, data: Problem, setting: Setting) -> float:
    """Per cent right after a whole federation."""
    weights = np.zeros((setting.width, CLASSES))
    rounds = Rounds(plan, [weights.shape])
    kept = []
    while not rounds.finished:
        one = rounds.begin()
        updates = data.gradients(one.cohort, weights)
        if plan.trust == "aggregator":
            encoder, mask = one.encoder(), np.uint64((1 << plan.bits) - 1)
            total = np.zeros(encoder.width, np.uint64)
            for client, update in zip(one.cohort, updates, strict=True):
                source = rounds.client_source(one.number, client)
                total += encoder.encode(one.reports.vector([update]), source, cohort=len(one.cohort))
            one.opened(total & mask, one.cohort)
        for client, update in zip(one.cohort, updates, strict=True):
            if plan.trust == "nobody":
                source = rounds.client_source(one.number, client)
                report = one.reports.randomized(one.reports.vector([update]), source)
                one.receive(client, rounds.updates.unflatten(report))
            elif plan.trust == "server":
                one.receive(client, [update])
        weights = weights + setting.rate * one.finish()[0]
        if rounds.number > plan.rounds // 2:
            kept.append(weights)
    return data.accuracy(np.mean(kept, axis=0))


def central(epsilon: float, data: Problem, setting: Setting) -> float:
    """Per cent right after DP-SGD whose examples are clients."""
    plan = Plan(
        population=CLIENTS, batch_size=COHORT, steps=setting.rounds, clip_norm=setting.clip_norm,
        epsilon=epsilon, delta=DELTA,
    )  # fmt: skip
    model = nn.Linear(setting.width, CLASSES, bias=False)
    nn.init.zeros_(model.weight)

    def loss(scores: Tensor, labels: Tensor) -> Tensor:
        each = nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none")
        return each.view(labels.shape).mean(1)

    optimizer = torch.optim.SGD(model.parameters(), lr=setting.rate)
    trainer = Trainer(model, loss, optimizer, plan, average="tail", progress=False)
    trainer.fit((torch.from_numpy(data.images), torch.from_numpy(data.labels)))
    return data.accuracy(model.weight.detach().numpy().T.astype(np.float64))


def tuned(epsilon: float, trust: str, split: str) -> None:
    """Accuracies on held-out training images, with the noise of the plan; nothing is released here."""
    grid = (
        itertools.product((20, 50), (10,), (1.0, 3.0, 10.0), (0.3, 0.6))
        if trust == "nobody"
        else itertools.product((500,), (60,), (16.0, 32.0, 64.0), (0.15, 0.3))
    )
    generator = np.random.default_rng(0)
    found = []
    for chosen in grid:
        setting = Setting(*chosen)
        data = problem(split, setting.width, 0, judged_by="training images")
        weights, kept = np.zeros((setting.width, CLASSES)), []
        plan = plan_of(trust, epsilon, setting)
        leaning = PrivUnit(
            epsilon=plan.report_epsilon or 1.0, dimension=weights.size, clip_norm=setting.clip_norm
        )
        order = generator.permutation(len(data.images))
        for number in range(setting.rounds):
            if trust == "nobody":
                size = len(order) // setting.rounds
                cohort = tuple(order[number * size : (number + 1) * size])
            else:
                cohort = tuple(np.flatnonzero(generator.random(len(order)) < COHORT / CLIENTS))
            updates = data.gradients(cohort, weights)
            norms = np.sqrt(np.einsum("nij,nij->n", updates, updates))
            updates *= np.minimum(1.0, setting.clip_norm / np.maximum(norms, 1e-12))[:, None, None]
            if trust == "nobody":
                total = leaning.randomize(updates.reshape(len(updates), -1)).sum(axis=0, dtype=np.float64)
                total = total.reshape(weights.shape) / size
            else:
                noise = generator.normal(size=weights.shape) * plan.noise_multiplier * setting.clip_norm
                total = (updates.sum(axis=0) + noise * len(order) / CLIENTS) / (len(order) * COHORT / CLIENTS)
            weights = weights + setting.rate * total
            if number >= setting.rounds // 2:
                kept.append(weights)
        found.append((data.accuracy(np.mean(kept, axis=0)), setting))
        print(f"{trust} {epsilon:g} {split} {found[-1][0]:.2f} {setting}", flush=True)
    print("best:", *max(found, key=lambda each: each[0]), flush=True)


def speed(clients: int = 1000, numbers: int = 100_000, repetitions: int = 5) -> str:
    """A plain round beside the same round with a trusted server's privacy: CPU seconds, best of several.

    In the plain round each client's arrays are written to bytes and read from them, as Flower sends them
    (NumPy's format), and averaged. The private one does the same, and checks, clips and adds noise.
    """
    generator = np.random.default_rng(0)
    updates = [generator.normal(size=numbers).astype(np.float32) for _ in range(20)]

    def arrived(client: int) -> NDArray[np.float32]:
        file = io.BytesIO()
        np.save(file, updates[client % 20])
        return np.load(io.BytesIO(file.getvalue()), allow_pickle=False)

    plan = FederatedPlan(
        clients=clients, cohort=clients, rounds=repetitions, noise_multiplier=2.0, delta=DELTA, trust="server"
    )
    rounds = Rounds(plan, [(numbers,)])
    plain, private = [], []
    for _ in range(repetitions):
        start = time.process_time()
        total = np.zeros(numbers)
        for client in range(clients):
            total += arrived(client)
        total /= clients
        middle = time.process_time()
        one = rounds.begin()
        for client in one.cohort:
            one.receive(client, [arrived(client)])
        one.finish()
        plain.append(middle - start)
        private.append(time.process_time() - middle)
    return (
        f"{clients:,} clients × {numbers:,} numbers in one process (`--speed`), CPU seconds, best of "
        f"{repetitions}: a plain round (write, read, add up) {min(plain):.2f}; with a trusted server's "
        f"privacy (check, clip, noise) {min(private):.2f}, {min(private) / min(plain):.2f} times as much."
    )


HEADER = "| split | ε | trust | ε against the server | test accuracy, % | rounds | numbers | seconds a run |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--tune", nargs=2, metavar=("TRUST", "EPSILON"), help="'server' or 'nobody', and ε")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.tune:
        tuned(float(arguments.tune[1]), arguments.tune[0], "iid")
        return
    if arguments.speed:
        print(speed())
        return
    lines: list[str] = []
    found: dict[tuple[str, float, str], list[float]] = {}
    print(HEADER, flush=True)
    for split, epsilon in itertools.product(SPLITS, EPSILONS):
        for trust in ("central", "server", "aggregator", "aggregator, rotation", "nobody"):
            setting = CHOSEN["nobody" if trust == "nobody" else "shared", epsilon]
            seeds = 1 if trust == "aggregator, rotation" else arguments.seeds
            start = time.perf_counter()
            accuracies = []
            against = ""
            for seed in range(seeds):
                data = problem(split, setting.width, seed)
                if trust == "central":
                    accuracies.append(central(epsilon, data, setting))
                    continue
                plan = plan_of(trust, epsilon, setting)
                accuracies.append(federated(plan, data, setting))
                if plan.trust == "aggregator":
                    against = f"{plan.guarantee_against_server().epsilon:.2f}"
            seconds = (time.perf_counter() - start) / seeds
            found[split, epsilon, trust] = accuracies
            spread = f" ± {np.std(accuracies):.2f}" if seeds > 1 else ""
            lines.append(
                f"| {split} | {epsilon:g} | {trust} | {against} | {np.mean(accuracies):.2f}{spread} "
                f"| {setting.rounds} | {setting.width * CLASSES} | {seconds:.0f} |"
            )
            print(lines[-1], flush=True)
    write(lines, found, arguments.seeds)


def write(lines: list[str], found: dict[tuple[str, float, str], list[float]], seeds: int) -> None:
    """The table, and how far apart the rows that ought to be close are."""
    gaps = []
    for split, epsilon in itertools.product(SPLITS, EPSILONS):
        central, server, aggregator = (
            float(np.mean(found[split, epsilon, trust])) for trust in ("central", "server", "aggregator")
        )
        to_central, to_server = server - central, aggregator - server
        verdict = ["reached" if gap >= -0.5 else "missed" for gap in (to_central, to_server)]
        gaps.append(
            f"| {split} | {epsilon:g} | {to_central:+.2f} | {verdict[0]} | {to_server:+.2f} | {verdict[1]} |"
        )
    text = (
        f"# Federated learning, by who is trusted\n\n`python benchmarks/federated.py --seeds {seeds}`, NumPy "
        f"{np.__version__}, torch {torch.__version__}, {platform.machine()}. MNIST over {CLIENTS:,} clients "
        f"of {IMAGES} images, cohorts of {COHORT}, δ = {DELTA:g}, unit: a client. Mean ± standard deviation "
        f"over seeds, which also deal out the images; one seed for rotation.\n\n{HEADER}\n"
        "|---|---:|---|---:|---:|---:|---:|---:|\n"
        + "\n".join(lines)
        + "\n\nDifferences in points; the target is at most 0.5 below.\n\n"
        "| split | ε | server − central | | aggregator − server | |\n|---|---:|---:|---|---:|---|\n"
        + "\n".join(gaps)
        + f"\n\n{speed()}\n"
    )
    (RESULTS / "federated.md").write_text(text, encoding="utf-8")
    draw(found)


COLOURS = {
    "central": "#555555", "server": "#0072b2", "aggregator": "#009e73", "aggregator, rotation": "#56b4e9",
    "nobody": "#d55e00",
}  # fmt: skip


def draw(found: dict[tuple[str, float, str], list[float]]) -> None:
    """Accuracy by ε, a line for each trust level, a panel for each split."""
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    for axes, split in zip(figure.subplots(1, len(SPLITS), sharey=True), SPLITS, strict=True):
        for trust, colour in COLOURS.items():
            heights = [float(np.mean(found[split, epsilon, trust])) for epsilon in EPSILONS]
            style = "--" if trust in ("central", "aggregator, rotation") else "-"
            axes.plot(EPSILONS, heights, style, marker="o", color=colour, label=trust, markersize=4)
        axes.set_xscale("log", base=2)
        axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        axes.set_xlabel("ε of one client")
        axes.set_title({"iid": "images dealt out at random"}.get(split, "two classes a client"), fontsize=10)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.axes[0].set_ylabel("test accuracy, %")
    figure.axes[1].legend(frameon=False, fontsize=8, title="who is trusted", title_fontsize=8)
    PICTURE.parent.mkdir(exist_ok=True)
    with rc_context({"svg.hashsalt": "tacit", "svg.fonttype": "path"}):
        figure.savefig(PICTURE, metadata={"Date": None}, facecolor="#ffffff")


if __name__ == "__main__":
    main()
