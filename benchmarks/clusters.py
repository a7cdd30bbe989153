"""Private k-means and principal components beside diffprivlib's, in the same run on the same rows.

    python benchmarks/clusters.py [--seeds 5] [--rows 60000] [--only mnist blobs coarse pixels]

k-means: the inertia of all rows about the released centres, divided by that of scikit-learn's k-means (best
of 10 starts), on MNIST in 20 dimensions and on Gaussian blobs. The 20 dimensions are a non-private
projection, made once and given to everybody, as are the bounds. PCA: the variance that components
capture, divided by what as many best ones do: 10 of the 784 pixels, and 5 of 49 means of 4 × 4 pixels, where
diffprivlib answers in time. Mean ± standard deviation over seeds of the noise.

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


def of_clusters(rows: Array, bounds: tuple[Array, Array], title: str, seeds: int, peer: Peer) -> list[str]:
    """The table of k-means on some rows, with 10 clusters."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "rows.npy")
        np.save(file, rows)
        best = PlainKMeans(10, n_init=10, random_state=0).fit(rows).inertia_
        lines = table(
            f"Inertia / inertia without privacy: {title}, {len(rows):,} rows, 10 clusters",
            clustered(rows, 10, bounds, file, peer), lambda c: inertia(rows, c) / best, seeds,
        )  # fmt: skip
    asked = f"diffprivlib was asked for ε / {overspent(rows.shape[1]):.3f}, which truly spends ε."
    return [*lines, asked, ""]


def of_components(rows: Array, number: int, norm: float, seeds: int, peer: Peer) -> list[str]:
    """The table of principal components of some images."""
    centred = rows - rows.mean(axis=0)
    covariance = centred.T @ centred
    top = float(np.linalg.eigvalsh(covariance)[-number:].sum())
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "rows.npy")
        np.save(file, rows)
        return table(
            f"Captured variance / that of the best {number}: MNIST, {len(rows):,} rows × {rows.shape[1]}",
            projected(rows, number, norm, file, peer),
            lambda v: float(np.einsum("ij,jk,ik->", v, covariance, v)) / top, seeds,
        )  # fmt: skip


def mnist_clusters(rows: int, seeds: int, peer: Peer) -> list[str]:
    flat = PlainPCA(20, random_state=0).fit_transform(mnist(rows))
    wide = np.ceil(np.abs(flat).max(axis=0))
    return of_clusters(flat, (-wide, wide), "MNIST in 20 dimensions", seeds, peer)


def blobs(rows: int, seeds: int, peer: Peer) -> list[str]:
    made, _ = make_blobs(20_000, 10, centers=10, cluster_std=1.5, center_box=(-10, 10), random_state=3)
    bounds = np.full(10, -15.0), np.full(10, 15.0)
    return of_clusters(made, bounds, "Gaussian blobs in 10 dimensions", seeds, peer)


def coarse(rows: int, seeds: int, peer: Peer) -> list[str]:
    means = mnist(3000).reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49)
    return of_components(means, 5, 3.0, seeds, peer)


def pixels(rows: int, seeds: int, peer: Peer) -> list[str]:
    return of_components(mnist(rows), 10, 10.0, seeds, peer)


PARTS = {"mnist": mnist_clusters, "blobs": blobs, "coarse": coarse, "pixels": pixels}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    chosen = parser.parse_args()
    for part in chosen.only:
        with Peer("diffprivlib") as peer:
            lines = PARTS[part](chosen.rows, chosen.seeds, peer)
        told = f"`python benchmarks/clusters.py --only {part} --seeds {chosen.seeds} --rows {chosen.rows}`"
        replace(lines[0], "\n".join([lines[0], "", told, *lines[1:]]))


def replace(heading: str, text: str) -> None:
    """Put one section into the file of results, in place of an earlier one of the same heading."""
    before = RESULTS.read_text().split("\n## ") if RESULTS.exists() else ["# Clusters and components\n"]
    kept = [each for each in before if f"## {each}".split("\n")[0] != heading]
    sections = [*(each.rstrip() + "\n" for each in kept), text.removeprefix("## ")]
    RESULTS.write_text("\n## ".join(sections).rstrip() + "\n")


if __name__ == "__main__":
    main()
