"""What the examples of attacks share: their data, their arguments, a table, and a picture in out/."""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

import tacit
from tacit import datasets
from tacit.estimators import Preprocessor

__all__ = [
    "COLOURS", "EPSILONS", "Array", "Labels", "adult", "arguments", "digits", "images", "lines", "printed",
    "saved", "title_of",
]  # fmt: skip

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

EPSILONS = (None, 8.0, 1.0, 0.1)
"""Every attack is run against no protection, then against these ε."""
COLOURS = ("#222222", "#D55E00", "#0072B2", "#009E73")
"""One colour for each of them, told apart by people who are colour-blind."""
MNIST = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "mnist"


def title_of(epsilon: float | None) -> str:
    """The name of a protection in tables and pictures."""
    return "unprotected" if epsilon is None else f"ε = {epsilon:g}"


def arguments(about: str | None, argv: Sequence[str] | None) -> argparse.Namespace:
    """The folder for the picture, and whether sizes are to be tiny."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    return parser.parse_args(argv)


def adult(rows: int) -> tuple[Array, Labels, list[str]]:
    """The first rows of Adult, scaled by public bounds: features, classes 0 and 1, names of the features."""
    files = datasets.adult()
    people = pd.read_csv(files.train, nrows=rows)
    maker = Preprocessor(tacit.Schema.load(files.schema), target="income")
    features = np.asarray(maker.fit_transform(people), dtype=np.float64)
    classes = (maker.target_values(people) == (maker.classes or ())[1]).astype(np.int64)
    return features, classes, list(maker.get_feature_names_out())


def digits(rows: int, *, large: bool = False) -> tuple[Array, Labels]:
    """Digits with pixels in [0, 1]: MNIST if ``large`` and it is there, else scikit-learn's of 8 × 8."""
    names = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
    if large and all((MNIST / name).exists() for name in names):
        pixels, classes = (gzip.decompress((MNIST / name).read_bytes()) for name in names)
        pictures = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 28, 28)[:rows] / 255
        return pictures, np.frombuffer(classes, np.uint8, offset=8)[:rows].astype(np.int64)
    if large:
        print(f"MNIST is not at {MNIST}; scikit-learn's digits of 8 × 8 pixels are used instead.")
    small = load_digits()
    order = np.random.default_rng(0).permutation(len(small.target))[:rows]
    return small.images[order] / 16, small.target[order].astype(np.int64)


def printed(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A small table."""
    table = Table(*header, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def saved(figure: Figure, folder: Path, name: str) -> Path:
    """Write a picture, and say where."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"wrote {path}")
    return path


def lines(
    ax: Any, across: Sequence[float] | Array, curves: Sequence[Sequence[float] | Array], names: Sequence[str]
) -> None:
    """One curve for each protection, with a legend."""
    for curve, name, colour in zip(curves, names, COLOURS, strict=False):
        ax.plot(across, curve, marker="o", markersize=4, color=colour, label=name)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)


def images(
    rows: Sequence[Sequence[Array]], titles: Sequence[str], names: Sequence[str], *, about: str
) -> Figure:
    """A grid of images, each with values in [0, 1]: one row for each name, one column for each title."""
    figure = Figure(figsize=(1.5 * len(titles) + 1.2, 1.5 * len(rows) + 0.6))
    for place, (row, name) in enumerate(zip(rows, names, strict=True)):
        for column, picture in enumerate(row):
            ax = figure.add_subplot(len(rows), len(titles), place * len(titles) + column + 1)
            ax.imshow(np.clip(picture, 0, 1), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
            ax.set_xticks([])
            ax.set_yticks([])
            if place == 0:
                ax.set_title(titles[column], fontsize=9)
            if column == 0:
                ax.set_ylabel(name, fontsize=9)
    figure.suptitle(about, fontsize=10, y=0.97)
    return figure
