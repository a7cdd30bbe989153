"""PATE on MNIST at δ = 1e-5: a student from published votes, and the whole road from raw images.

    python benchmarks/pate_mnist.py [--seeds 5] [--jobs 2] [--only votes road neighbours] [--epsilon 0.5 1 2]
                                    [--features FILE.npz]

The public inputs are the first 9,000 test images without their labels, as in Papernot et al. 2017 and 2018,
and students are tested on the last 1,000 test images, which no one learns from.

``votes``: the votes of 250 teachers that were published with the papers, on those 9,000 images. The first
640 are asked; threshold 200, σ₁ = 150, σ₂ = 40, as in the paper of 2018, where these were chosen by looking
at votes. ``road``: ``PATEClassifier`` on the 60,000 training images, 250 teachers, threshold and noise
planned from public facts alone. ``neighbours``: ``PrivateNeighbors`` on the same images, with the number of
neighbours (300) and the sampling rate (0.15) of Zhu et al. 2020.

Images become scattering features, of which 256 principal components are kept; components and their scale
come from the 9,000 public images. Teachers and students are support vector machines with C = 3 and an RBF
kernel. The way the student learns (``discriminant-propagation``, components divided by the root of their
deviation, C) was chosen on 10,000 training images that stood in for the public ones, with 283 labels of
which about 6 % were replaced at random: not on test images, but on images of the same kind. Teachers were not
tuned.

Writes ``benchmarks/results/pate_mnist.md``.
"""

from __future__ import annotations

import argparse
import gzip
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from sklearn.svm import SVC

from tacit import pate
from tacit.pate.student import taught
from tacit.training import Scattering

RESULTS = Path(__file__).parent / "results"
DATA = Path(__file__).parents[2] / "shared" / "data"
DELTA, PUBLIC, COMPONENTS, TEACHERS = 1e-5, 9_000, 256, 250
ORDERS = np.concatenate([np.arange(1.5, 20, 0.25), np.arange(20, 100, 2.0)])
WAY = "discriminant-propagation"
DPSGD = {0.5: "98.49 ± 0.07", 1.0: "98.79 ± 0.03", 2.0: "99.03 ± 0.04"}
"""Softmax regression on scattering features by DP-SGD, all 10,000 test images: dpsgd_accuracy.md."""


def stored(name: str, offset: int) -> np.ndarray:
    with gzip.open(DATA / "mnist" / f"{name}-ubyte.gz") as stream:
        return np.frombuffer(stream.read(), np.uint8, offset=offset)


def images(name: str) -> np.ndarray:
    return stored(f"{name}-images-idx3", 16).reshape(-1, 28, 28)


def labels(name: str) -> np.ndarray:
    return stored(f"{name}-labels-idx1", 8).astype(int)


def scattered(pixels: np.ndarray) -> np.ndarray:
    filters = Scattering((28, 28))
    parts = (torch.from_numpy(part.astype(np.float32) / 255) for part in np.array_split(pixels, 100))
    return np.concatenate([filters(part).flatten(1).numpy() for part in parts])


class Components:
    """Principal components of public images, divided by the root of their deviations; rows of length 1."""

    def __init__(self, public: np.ndarray) -> None:
        self.mean = public.mean(axis=0)
        _, vectors = np.linalg.eigh(np.cov((public - self.mean).T))
        self.vectors = vectors[:, : -COMPONENTS - 1 : -1]
        self.scale = np.sqrt(((public - self.mean) @ self.vectors).std(axis=0))

    def __call__(self, features: np.ndarray) -> np.ndarray:
        made = (features - self.mean) @ self.vectors / self.scale
        return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), dtype=np.float64)


def prepared(kept: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Features of the training and of the test images; components come from the public ones."""
    if kept is not None and kept.exists():
        with np.load(kept) as stored:
            return stored["private"], stored["features"]
    raw = scattered(images("t10k"))
    components = Components(raw[:PUBLIC])
    parts = np.array_split(images("train"), 12)
    private, features = np.concatenate([components(scattered(part)) for part in parts]), components(raw)
    if kept is not None:
        np.savez(kept, private=private, features=features)
    return private, features


def seen(values: list[float], digits: int = 2) -> str:
    return f"{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}"


def from_votes(features: np.ndarray, truth: np.ndarray, seeds: int) -> list[str]:
    """Students of the published votes."""
    votes = np.load(DATA / "pate_votes" / "mnist_250_teachers.npy")[:640]
    aggregator = pate.ConfidentGNMax(threshold=200, sigma_threshold=150, sigma_answer=40, teachers=TEACHERS)
    found: dict[str, list[float]] = {
        name: [] for name in ("answers", "right", "published", "sound", "worst", "test")
    }
    for seed in range(seeds):
        answers = aggregator.answer(votes, random_state=seed)
        told = np.flatnonzero(answers >= 0)
        student = taught(
            SVC(C=3.0), features[:PUBLIC], told, answers[told], np.arange(10), semi_supervised=WAY, seed=seed
        )
        given: dict[str, Any] = {"data_dependent": True, "answered": answers >= 0}
        one = aggregator.rdp(votes, ORDERS, directions="one", **given)
        found["published"].append(one.epsilon(DELTA, conversion="classic"))
        found["sound"].append(aggregator.rdp(votes, ORDERS, **given).epsilon(DELTA))
        found["worst"].append(aggregator.rdp(votes, ORDERS, answered=answers >= 0).epsilon(DELTA))
        found["answers"].append(len(told))
        found["right"].append(100 * float(np.mean(answers[told] == truth[told])))
        found["test"].append(100 * float(np.mean(student.predict(features[PUBLIC:]) == truth[PUBLIC:])))
        print("votes", {name: round(values[-1], 3) for name, values in found.items()}, flush=True)
    reached = "reached" if np.mean(found["test"]) >= 97.5 else "missed"
    return [
        "| answers to 640 queries | right answers, % | ε as published | ε, both directions | ε, any votes "
        "| test accuracy, % | target | |",
        "|---:|---:|---:|---:|---:|---:|---:|---|",
        f"| {seen(found['answers'], 0)} | {seen(found['right'], 1)} | {seen(found['published'])} "
        f"| {seen(found['sound'])} | {seen(found['worst'])} | {seen(found['test'])} | 97.5 | {reached} |",
    ]


def fitted(make: Callable[[int], Any], name: str, epsilon: float, seeds: int, data: Any) -> str:
    """One line of a table: a classifier that was fitted several times."""
    private, targets, features, truth = data
    right, test, rates, asked, took = [], [], [], [], []
    for seed in range(seeds):
        began = time.perf_counter()
        model = make(seed).fit(private, targets, features[:PUBLIC])
        took.append(time.perf_counter() - began)
        right.append(100 * float(np.mean(model.answers_ == truth[model.answered_])))
        asked.append(len(model.asked_))
        rates.append(100 * len(model.answers_) / len(model.asked_))
        test.append(100 * float(np.mean(model.predict(features[PUBLIC:]) == truth[PUBLIC:])))
        print(
            name, epsilon, seed, model.guarantee_.epsilon, asked[-1], rates[-1], right[-1], test[-1], took[-1]
        )
        print(" ".join(f"{each.label}:{each.rate:.2f}" for each in model.answer_rates()), flush=True)
    return (
        f"| {name} | {epsilon:g} | {np.mean(asked):.0f} | {seen(rates, 1)} | {seen(right, 1)} | {seen(test)} "
        f"| {DPSGD[epsilon]} | {np.mean(took):.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--epsilon", nargs="+", type=float, default=list(DPSGD), choices=list(DPSGD))
    parser.add_argument("--features", type=Path, help="keep features here, or take them from here")
    parser.add_argument("--only", nargs="+", default=["votes", "road", "neighbours"])
    asked = parser.parse_args()
    began = time.perf_counter()
    torch.set_num_threads(asked.jobs)
    private, features = prepared(asked.features)
    truth, took = labels("t10k"), time.perf_counter() - began
    lines = [
        f"# PATE on MNIST, δ = {DELTA:g}", "",
        f"`python benchmarks/pate_mnist.py --seeds {asked.seeds} --jobs {asked.jobs}`, scikit-learn "
        f"{sklearn.__version__}, torch {torch.__version__}, {platform.machine()}. Mean ± standard deviation "
        "over seeds. The docstring of the script says what was tuned on what. With 1,000 test images the "
        "standard error of an accuracy of 98 % is 0.4.", "",
    ]  # fmt: skip
    if "votes" in asked.only:
        lines += [
            "## A student of the published votes", "",
            "ε *as published* is the data-dependent cost in one direction with the conversion of the papers, "
            "for the answers that were given; *both directions* is a sound bound with today's conversion; "
            "neither may be published without noise, as both are computed from the votes. ε for *any votes* "
            "holds for these numbers of queries and answers, whatever the votes are.", "",
            *from_votes(features, truth, asked.seeds), "",
        ]  # fmt: skip
    if {"road", "neighbours"} & set(asked.only):
        data = private, labels("train"), features, truth
        lines += [
            "## From raw images", "",
            f"Features took {took:.0f} s, once; seconds are those of one fit after that, on two cores "
            "that were busy with other work. ε is the data-independent one, and threshold and noise were "
            "planned from public facts. DP-SGD is softmax regression on scattering features, tested on all "
            "10,000 images (`dpsgd_accuracy.md`); it needs no public images.", "",
            "| | ε | queries | answered, % | right answers, % | test accuracy, % | DP-SGD, % | seconds |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
        ]  # fmt: skip
        for epsilon in asked.epsilon:
            common = {"epsilon": epsilon, "delta": DELTA, "classes": list(range(10)), "semi_supervised": WAY}

            def teachers(seed: int, common: Any = common) -> Any:
                return pate.PATEClassifier(
                    SVC(C=3.0),
                    SVC(C=3.0),
                    n_teachers=TEACHERS,
                    n_jobs=asked.jobs,
                    random_state=seed,
                    **common,
                )

            def neighbours(seed: int, common: Any = common) -> Any:
                return pate.PrivateNeighbors(
                    SVC(C=3.0),
                    n_neighbors=300,
                    sampling_rate=0.15,
                    n_queries=300,
                    random_state=seed,
                    **common,
                )

            if "road" in asked.only:
                lines.append(fitted(teachers, f"{TEACHERS} teachers", epsilon, asked.seeds, data))
            if "neighbours" in asked.only:
                lines.append(fitted(neighbours, "300 neighbours", epsilon, asked.seeds, data))
    lines += ["", f"All of it took {(time.perf_counter() - began) / 60:.1f} minutes."]
    text = "\n".join(lines) + "\n"
    print(text)
    (RESULTS / "pate_mnist.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
