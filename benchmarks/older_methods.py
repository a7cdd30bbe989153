"""AdLM and dPA in their sound forms, beside plain DP-SGD, on MNIST: test accuracy at the same ε.

    python benchmarks/older_methods.py [--data ../shared/data] [--out benchmarks/results/older_methods.md]

- *DP-SGD*: a perceptron 784-128-10, tanh.
- *dPA, jointly*: :class:`tacit.training.AutoEncoder` 784-128-64 with its head, cross-entropy and
  reconstruction together.
- *dPA, by layers*: the same network, first the two layers, each by its reconstruction, then the head, as in
  the published method. The three runs compose to ε.
- *AdLM*: :class:`tacit.local.AdaptiveLaplaceRecords`, δ = 0, and a linear discriminant on the records. Each
  record is randomized by itself, so this is the utility of local differential privacy. Pixels are first
  averaged in blocks, a public map, since the noise on a feature grows with the number of features. The
  discriminant takes all classes for equally frequent: test rows have no noise.

The methods differ in what they protect from: AdLM's records may be published, or come from people who trust
nobody; DP-SGD and dPA need a curator who sees the rows. Their relation differs too: ``replace_one`` for AdLM,
``add_remove`` for the others.

No setting is chosen by test rows. DP-SGD and AdLM have a few candidates (:data:`CANDIDATES`); the run first
takes the best of them with the first 50,000 training rows, measured on the other 10,000, at ε = 2 (AdLM: at
ε = 8; at 2 its candidates cannot be told apart). dPA takes the learning rate that was best for DP-SGD. That
choice is not covered by any ε here; MNIST is public. One run each;
several processes share the work, so nothing is timed.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor, nn

from labels import images
from tacit.local import AdaptiveLaplaceRecords
from tacit.training import AutoEncoder, Plan, Trainer, architecture

DELTA, EPOCHS, BATCH, CLIP_NORM = 1e-5, 6, 1024, 0.1
CANDIDATES: dict[str, list[dict[str, Any]]] = {
    "DP-SGD": [{"rate": 4.0}, {"rate": 8.0}],
    "dPA, jointly": [{"rate": 8.0, "weight": 1.0}],
    "dPA, by layers": [{"rate": 8.0}],
    "AdLM": [{"block": block, "share": share} for block in (4, 7) for share in (0.3, 0.5)],
}
CHOSEN_AT = {"AdLM": 8.0}
Data = tuple[np.ndarray, np.ndarray]
Result = tuple[float, float, float]
"""Accuracy, spent ε, and the share of the pixels' variance that is not returned (NaN where nothing is)."""


def run(stage: nn.Module, rows: tuple[Tensor, Tensor], plan: Plan, rate: float) -> Trainer:
    """One run of DP-SGD with momentum, and the mean of the weights over its second half."""
    loss = stage.loss if isinstance(stage, AutoEncoder) else nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(stage.parameters(), lr=rate, momentum=0.9)
    trainer = Trainer(stage, loss, optimizer, plan, average="tail", progress=False, random_state=0)
    return trainer.fit(rows)


def network(
    name: str, epsilon: float, train: Data, test: Data, *, rate: float, weight: float = 1.0
) -> Result:
    """A network trained on some rows and measured on others."""
    rows = torch.from_numpy(train[0]), torch.from_numpy(train[1])
    facts = {"population": len(train[0]), "batch_size": BATCH, "clip_norm": CLIP_NORM, "delta": DELTA}
    whole = Plan(**facts, epochs=EPOCHS, epsilon=epsilon)
    torch.manual_seed(0)
    coded = AutoEncoder((784,), 10, reconstruction=weight)
    model: nn.Module = coded
    if name == "DP-SGD":
        model = architecture("mlp", (784,), 10)
        trainer = run(model, rows, whole, rate)
    elif name == "dPA, jointly":
        trainer = run(coded.stage(), rows, whole, rate)
    else:
        # Three runs of a third of the epochs cost as much as one of all epochs with the same noise.
        third = Plan(**facts, epochs=EPOCHS / 3, noise_multiplier=whole.noise_multiplier)
        for part in (0, 1, "head"):
            trainer = run(coded.stage(part), rows, third, rate)
    inputs = torch.from_numpy(test[0])
    with torch.no_grad():
        right = float((model(inputs).argmax(1).numpy() == test[1]).mean())
        all_of_it = (inputs - inputs.mean(0)).square().mean()
        left = float((coded.reconstruct(inputs) - inputs).square().mean() / all_of_it)
    return right, trainer.guarantee.epsilon, left if model is coded else float("nan")


def records(epsilon: float, train: Data, test: Data, *, block: int, share: float) -> Result:
    """A linear discriminant on randomized records."""

    def blocks(pixels: np.ndarray) -> np.ndarray:
        side = 28 // block
        return pixels.reshape(-1, side, block, side, block).mean(axis=(2, 4)).reshape(-1, side * side)

    made = AdaptiveLaplaceRecords(
        epsilon, bounds=(0, 1), classes=range(10), label_share=share, random_state=0
    ).fit(blocks(train[0]), train[1])
    model = LinearDiscriminantAnalysis(priors=np.full(10, 0.1)).fit(made.records_, made.labels_)
    right = float(np.mean(model.predict(blocks(test[0])) == test[1]))
    return right, made.guarantee_.epsilon, float("nan")


def measured(name: str, epsilon: float, train: Data, test: Data, settings: dict[str, Any]) -> Result:
    """The result of a method with these settings."""
    if name == "AdLM":
        return records(epsilon, train, test, **settings)
    return network(name, epsilon, train, test, **settings)


def chosen(name: str, train: Data) -> tuple[dict[str, Any], str]:
    """The best candidate on held-out training rows, and what all of them reached, in words."""
    if len(CANDIDATES[name]) == 1:
        return CANDIDATES[name][0], f"- {name}: nothing was chosen"
    first, rest = (train[0][:50_000], train[1][:50_000]), (train[0][50_000:], train[1][50_000:])
    epsilon = CHOSEN_AT.get(name, 2.0)
    found = [measured(name, epsilon, first, rest, each)[0] for each in CANDIDATES[name]]
    told = "; ".join(
        f"{', '.join(f'{key} {value:g}' for key, value in each.items())}: {right:.4f}"
        for each, right in zip(CANDIDATES[name], found, strict=True)
    )
    return CANDIDATES[name][int(np.argmax(found))], f"- {name}, ε = {epsilon:g}: {told}"


def lines_of(name: str, epsilons: list[float], data: Path) -> tuple[list[str], str]:
    """The lines of one method, and how its settings were chosen."""
    torch.set_num_threads(1)
    train, test = images(data, "mnist", "train"), images(data, "mnist", "t10k")
    settings, told = chosen(name, train)
    lines = []
    for epsilon in epsilons:
        right, spent, left = measured(name, epsilon, train, test, settings)
        shown = "" if np.isnan(left) else f"{left:.2f}"
        delta = 0.0 if name == "AdLM" else DELTA
        cells = (name, f"{epsilon:g}", f"{delta:g}", f"{spent:.4f}", f"{right:.4f}", shown)
        lines.append(f"| {' | '.join(cells)} |")
    return lines, told


def main() -> None:
    """Choose, train, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0, 2.0, 8.0])
    parser.add_argument("--methods", nargs="*", default=[*CANDIDATES])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    lines = [
        "| method | ε | δ | spent ε | test accuracy | variance not returned |",
        "|---|---|---|---|---|---|",
    ]
    choices = ["Accuracy on held-out training rows, by which settings were chosen:", ""]
    print("\n".join(lines), flush=True)
    work = partial(lines_of, epsilons=options.epsilons, data=options.data)
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        for more, told in pool.map(work, options.methods):
            print("\n".join([*more, told]), flush=True)
            lines += more
            choices.append(told)
    if options.out is not None:
        options.out.write_text("\n".join([*lines, "", *choices]) + "\n")


if __name__ == "__main__":
    main()
