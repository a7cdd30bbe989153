"""Private k-means and principal components beside diffprivlib's, in the same run on the same rows.

    python benchmarks/clusters.py [--seeds 5] [--rows 60000]

k-means: the inertia of all rows about the released centres, divided by that of scikit-learn's k-means (best
of 10 starts), on MNIST in 20 dimensions and on Gaussian blobs. The 20 dimensions are a non-private
projection, made once and given to everybody, as are the bounds. PCA: the variance that 10 components capture
of MNIST's 784 pixels, divided by what the best 10 do. Mean ± standard deviation over seeds of the noise.

diffprivlib's KMeans splits its budget the wrong way round: counts get 1 and each of d sums c parts of ε/(d +
c), c = ∛(4d·0.225²), so that ε(1 + dc)/(d + c) is spent. It is asked for as much less, so that all spend the
ε of the column. It knows δ = 0 only; so there is a line of ours for δ = 0 too.
Writes ``benchmarks/results/clusters.md``.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from _linear_data import DATA
from _side import Peer, Refused
from sklearn.cluster import KMeans as PlainKMeans
from sklearn.datasets import make_blobs
from sklearn.decomposition import PCA as PlainPCA

from tacit import accounting
from tacit.estimators import PCA, KMeans

RESULTS = Path(__file__).parent / "results" / "clusters.md"
EPSILONS = (0.5, 1.0, 4.0)
DELTA = 1e-6
LIMIT = 40
"""Seconds that diffprivlib's PCA may take for one fit."""
Array = Any
Fit = Callable[[float, int], tuple[Array, float]]
"""From ε and a seed to what was released, and the ε that was spent."""


def mnist(rows: int) -> Array:
    packed = (DATA / "mnist" / "train-images-idx3-ubyte.gz").read_bytes()
    images = np.frombuffer(gzip.decompress(packed), np.uint8, offset=16)
    return images.reshape(-1, 784)[:rows].astype(float) / 255


def inertia(rows: Array, centres: Array) -> float:
    squares = np.square(rows).sum(axis=1)[:, None] - 2 * rows @ centres.T + np.square(centres).sum(axis=1)
    return float(squares.min(axis=1).sum())


def overspent(width: int) -> float:
    """What diffprivlib's KMeans spends, as a multiple of the ε that it was given."""
    part = float(np.cbrt(4 * width * 0.225**2))
    return (1 + width * part) / (width + part)


def clustered(rows: Array, number: int, bounds: tuple[Array, Array], file: str, peer: Peer) -> dict[str, Fit]:
    def ours(method: str, delta: float) -> Fit:
        def fit(epsilon: float, seed: int) -> tuple[Array, float]:
            model = KMeans(
                epsilon, delta, n_clusters=number, method=method, bounds=bounds, random_state=seed
            ).fit(rows)
            return model.cluster_centers_, accounting.epsilon(model.event_, delta)

        return fit

    def theirs(epsilon: float, seed: int) -> tuple[Array, float]:
        told = {"file": file, "clusters": number, "bounds": [each.tolist() for each in bounds], "seed": seed}
        asked = epsilon / overspent(rows.shape[1])
        return np.array(peer.ask("clustered", epsilon=asked, **told).answer), epsilon

    return {
        "tacit, tree, δ = 1e-6": ours("tree", DELTA),
        "tacit, lloyd, δ = 1e-6": ours("lloyd", DELTA),
        "tacit, aggregate, δ = 1e-6": ours("aggregate", DELTA),
        "tacit, tree, δ = 0": ours("tree", 0.0),
        "tacit, lloyd, δ = 0": ours("lloyd", 0.0),
        f"diffprivlib {peer.version}, δ = 0": theirs,
    }


def projected(rows: Array, number: int, norm: float, file: str, peer: Peer) -> dict[str, Fit]:
    def ours(delta: float, **facts: Any) -> Fit:
        def fit(epsilon: float, seed: int) -> tuple[Array, float]:
            model = PCA(epsilon, delta, n_components=number, mean="dp", random_state=seed, **facts)
            model.fit(rows)
            return model.components_, accounting.epsilon(model.event_, delta)

        return fit

    def theirs(epsilon: float, seed: int) -> tuple[Array, float]:
        told = {"file": file, "number": number, "bounds": [0.0, 1.0], "norm": norm, "limit": LIMIT}
        told |= {"seed": seed}
        return np.array(peer.ask("components", epsilon=epsilon, **told).answer), epsilon

    return {
        f"tacit, norm {norm:g}, δ = 1e-6": ours(DELTA, norm=norm),
        "tacit, bounds alone, δ = 1e-6": ours(DELTA, bounds=(0.0, 1.0)),
        f"tacit, Wishart, norm {norm:g}, δ = 0": ours(0.0, norm=norm),
        f"tacit, exponential, norm {norm:g}, δ = 0": ours(0.0, norm=norm, method="exponential"),
        f"diffprivlib {peer.version}, norm {norm:g}, δ = 0": theirs,
    }


def table(title: str, fits: Mapping[str, Fit], figure: Callable[[Array], float], seeds: int) -> list[str]:
    """One line for each way to fit, one column for each ε."""
    lines = [
        f"## {title}", "",
        f"| | largest spent ε / asked ε | {' | '.join(f'ε = {each:g}' for each in EPSILONS)} | seconds |",
        "|---|---:|" + "---:|" * (len(EPSILONS) + 1),
    ]  # fmt: skip
    for name, fit in fits.items():
        cells, spent, start, runs = [], 0.0, time.perf_counter(), 0
        for epsilon in EPSILONS:
            try:
                made = [fit(epsilon, seed) for seed in range(seeds)]
            except Refused as refusal:
                cells.append(f"failed: {refusal}")
                continue
            figures = [figure(released) for released, _ in made]
            spent, runs = max(spent, *(cost / epsilon for _, cost in made)), runs + seeds
            cells.append(f"{np.mean(figures):.3f} ± {np.std(figures):.3f}")
            print(f"  {title}: {name}, ε = {epsilon:g}: {cells[-1]}", flush=True)
        seconds = (time.perf_counter() - start) / max(runs, 1)
        lines.append(f"| {name} | {spent:.4f} | {' | '.join(cells)} | {seconds:.1f} |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=60_000)
    chosen = parser.parse_args()
    images = mnist(chosen.rows)
    flat = PlainPCA(20, random_state=0).fit_transform(images)
    blobs, _ = make_blobs(20_000, 10, centers=10, cluster_std=1.5, center_box=(-10, 10), random_state=3)
    wide = np.ceil(np.abs(flat).max(axis=0))
    problems = {
        f"MNIST in 20 dimensions, {len(flat):,} rows, 10 clusters": (flat, (-wide, wide)),
        f"Gaussian blobs in 10 dimensions, {len(blobs):,} rows, 10 clusters": (
            blobs, (np.full(10, -15.0), np.full(10, 15.0)),
        ),
    }  # fmt: skip
    lines = [
        "# Clusters and components", "",
        f"`python benchmarks/clusters.py --seeds {chosen.seeds} --rows {chosen.rows}`; "
        "1 thread. See the script for what is compared.", "",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, Peer("diffprivlib") as peer:
        for place, (title, (rows, bounds)) in enumerate(problems.items()):
            file = str(Path(folder) / f"{place}.npy")
            np.save(file, rows)
            best = PlainKMeans(10, n_init=10, random_state=0).fit(rows).inertia_
            fits = clustered(rows, 10, bounds, file, peer)
            about = f"Inertia / inertia without privacy: {title}"
            lines += table(about, fits, lambda c, r=rows, b=best: inertia(r, c) / b, chosen.seeds)
            lines += [
                f"diffprivlib was asked for ε / {overspent(rows.shape[1]):.3f}, which truly spends ε.", ""
            ]
            RESULTS.write_text("\n".join(lines))
        small = images[:3000].reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49)
        for number, norm, rows, seeds in ((5, 3.0, small, chosen.seeds), (10, 10.0, images, 3)):
            file = str(Path(folder) / f"images{number}.npy")
            np.save(file, rows)
            centred = rows - rows.mean(axis=0)
            covariance = centred.T @ centred
            top = float(np.linalg.eigvalsh(covariance)[-number:].sum())
            lines += table(
                f"Captured variance / that of the best {number}: "
                f"MNIST, {len(rows):,} rows × {rows.shape[1]}, {seeds} seeds",
                projected(rows, number, norm, file, peer),
                lambda v, c=covariance, t=top: float(np.einsum("ij,jk,ik->", v, c, v)) / t,
                seeds,
            )
            RESULTS.write_text("\n".join(lines))
    RESULTS.write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()
