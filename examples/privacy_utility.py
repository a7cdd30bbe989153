"""Privacy against utility: logistic regression on MNIST by DP-SGD, and what its noise does to gradients.

The experiment of section 5 of the tutorial "A friendly introduction to differential privacy": two digits,
pixels in [0, 1], steps η_t = 1/√t, batches of 150 expected images, δ = 1e-4, noise variances σ² = 1, 5,
7.5 and 10. Each image's gradient is clipped to ℓ2 norm α = 1, so that one image more or less changes the
*sum* over a batch by at most α. The spread of one coefficient against ε is after Fan and Tian,
"Differentially private machine learning", figure 5b.

What σ is. The tutorial writes the update as (1/|B|) Σ clipped gradients + N(0, σ²α²). Two readings differ
by a factor of 150 in the noise multiplier, the standard deviation over the sensitivity, and both are run:

- on the sum: noise N(0, σ²α²) joins the sum, and the whole is divided by 150, as in Abadi et al. 2016
  ("Deep learning with differential privacy"). The noise multiplier is σ.
- on the mean: as it is written. The mean has sensitivity α/150, so the noise multiplier is 150·σ.

The ε the tutorial prints (17.9, 4.3, 3.0, 2.4) have the size of the first reading, at some tens of
thousands of steps; the accuracies it prints (95 % falling to 85 %) are those of the second, whose ε is
hundreds of times smaller. With the noise where it belongs, all four variances cost next to no accuracy.

Batches are Poisson samples and the divisor is 150, never the size of the batch, which is private. The
number of training images is taken as public, the unit is one image, the relation add_remove. The noise is
float64 noise. Accuracies and everything drawn come from the data without noise of their own: they are
for public data such as MNIST.

Prints σ², ε and accuracy; writes accuracy.png, cosine.png, projection.png and spread.png.
"""

from __future__ import annotations

import argparse
import gzip
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.special import expit, ndtri

from tacit import accounting, events, report
from tacit.randomness import Source
from tacit.report import plots

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data" / "mnist"
FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
BATCH = 150
DELTA = 1e-4
VARIANCES = (1.0, 5.0, 7.5, 10.0)
CLIP_NORM = 1.0
PENALTY = 1e-3
"""Weight of ‖θ‖²/2, which no image enters."""
READINGS = {"on the sum": 1, "on the mean": BATCH}
"""The noise multiplier over σ, in each reading."""
RUNS = 3
GRADIENTS = 1000
"""Noisy gradients in each histogram; a quarter of them in each projection."""
LATER = 100
"""Gradients are looked at before the first step, and after so many."""
EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
SPREAD_STEPS = 200
BLOCK = 4
"""The spread is that of a smaller model, on the means of 4 × 4 pixels: 49 coefficients and a constant."""
COLOURS = {1.0: "#E69F00", 5.0: "#009E73", 7.5: "#0072B2", 10.0: "#CC79A7"}
BLACK = "#222222"

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Digits:
    """Two digits, a row for each image, with a constant 1 at the end."""

    rows: Array
    labels: Array
    test_rows: Array
    test_labels: Array

    @cached_property
    def norms(self) -> Array:
        """Of the training rows."""
        return np.asarray(np.linalg.norm(self.rows, axis=1))

    @property
    def rate(self) -> float:
        """With this probability an image is in a batch."""
        return min(1.0, BATCH / len(self.rows))

    def accuracy(self, weights: Array) -> float:
        """On the test images."""
        return float(np.mean((self.test_rows @ weights > 0) == (self.test_labels > 0)))

    def coarse(self) -> Digits:
        """The same images with fewer pixels, each the mean of a square of them."""
        return Digits(_coarse(self.rows), self.labels, _coarse(self.test_rows), self.test_labels)


def _coarse(rows: Array) -> Array:
    side = math.isqrt(rows.shape[1] - 1)
    small = side // BLOCK
    squares = rows[:, :-1].reshape(len(rows), small, BLOCK, small, BLOCK).mean(axis=(2, 4))
    return np.hstack([squares.reshape(len(rows), -1), rows[:, -1:]])


def load(folder: Path, digits: tuple[int, int]) -> Digits:
    """Two digits of MNIST, from its four files."""
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise SystemExit(
            f"MNIST is not in {folder}: no {', '.join(missing)}. Name the folder that holds its four .gz "
            "files with --data."
        )
    parts: list[Array] = []
    for images, labels in (FILES[:2], FILES[2:]):
        known = np.frombuffer(gzip.decompress((folder / labels).read_bytes()), np.uint8, offset=8)
        pixels = np.frombuffer(gzip.decompress((folder / images).read_bytes()), np.uint8, offset=16)
        chosen = np.isin(known, digits)
        rows = pixels.reshape(len(known), -1)[chosen] / 255.0
        parts += [np.hstack([rows, np.ones((len(rows), 1))]), (known[chosen] == digits[1]).astype(float)]
    return Digits(*parts)


def noisy_gradient(data: Digits, weights: Array, noise_multiplier: float, source: Source) -> Array:
    """One Poisson batch: the sum of clipped gradients and its noise, over the expected size."""
    threshold = np.uint32(min(int(data.rate * 2**32), 2**32 - 1))
    drawn = np.flatnonzero(source.words(len(data.rows), np.uint32) < threshold)
    rows = data.rows[drawn]
    slopes = expit(rows @ weights) - data.labels[drawn]
    total = (slopes / np.maximum(1.0, np.abs(slopes) * data.norms[drawn] / CLIP_NORM)) @ rows
    if noise_multiplier:
        total += noise_multiplier * CLIP_NORM * ndtri(source.uniforms(total.size))
    return np.asarray(total / BATCH)


def steps_of(data: Digits, noise_multiplier: float, steps: int, source: Source) -> Iterator[Array]:
    """The weights after each step of DP-SGD."""
    weights = np.zeros(data.rows.shape[1])
    for step in range(1, steps + 1):
        gradient = noisy_gradient(data, weights, noise_multiplier, source) + PENALTY * weights
        weights = weights - gradient / math.sqrt(step)
        yield weights


def training_event(rate: float, noise_multiplier: float, steps: int) -> events.Event:
    """What a run costs."""
    return events.Repeat(events.PoissonSampled(rate, events.Gaussian(noise_multiplier)), steps)


@dataclass(frozen=True)
class Trained:
    """Several runs with the same noise, and how they went."""

    variance: float
    reading: str
    epsilon: float
    """Of one run."""
    looks: tuple[int, ...]
    accuracy: Array
    """A row for each run, a column for each look."""

    @property
    def name(self) -> str:
        if not self.variance:
            return "no noise"
        return f"σ² = {self.variance:g}, ε = {report.rounded_up(self.epsilon, 2)}"


def trained(data: Digits, variance: float, reading: str, steps: int, source: Source) -> Trained:
    """Runs whose accuracy is looked at about fifty times, evenly on a logarithmic scale."""
    multiplier = math.sqrt(variance) * READINGS[reading]
    looks = sorted({int(step) for step in np.geomspace(1, steps, 50).round()})
    accuracy = [
        [
            data.accuracy(weights)
            for step, weights in enumerate(steps_of(data, multiplier, steps, source), start=1)
            if step in looks
        ]
        for _ in range(RUNS)
    ]
    event = training_event(data.rate, multiplier, steps) if multiplier else None
    epsilon = accounting.epsilon(event, DELTA) if event else math.inf
    return Trained(variance, reading, epsilon, tuple(looks), np.array(accuracy))


def accuracy_figure(found: list[Trained], data: Digits, digits: tuple[int, int], steps: int) -> Figure:
    """Accuracy against steps in both readings: the mean of the runs, and from the worst to the best."""
    titles = ("Noise on the sum: noise multiplier σ", f"Noise on the mean, as printed: {BATCH}·σ")
    figure, panels = plots.new_figure("steps", f"test accuracy, {digits[0]} against {digits[1]}", *titles)
    most = 1 - 0.5 / len(data.test_labels)
    plain = next(each for each in found if not each.variance)
    for axes, reading in zip(panels, READINGS, strict=True):
        for each in [*(each for each in found if each.variance and each.reading == reading), plain]:
            colour = COLOURS.get(each.variance, BLACK)
            shown = np.clip(each.accuracy, 1 - most, most)
            axes.fill_between(
                each.looks, shown.min(axis=0), shown.max(axis=0), color=colour, alpha=0.15, linewidth=0
            )
            axes.plot(
                each.looks,
                shown.mean(axis=0),
                color=colour,
                linestyle="-" if each.variance else (0, (4, 3)),
                linewidth=1.8,
                label=each.name,
            )
        axes.legend(
            frameon=False, loc="lower right", fontsize=9, title=f"after {steps:,} steps, δ = {DELTA:g}"
        )
    _logarithmic(panels[0])
    panels[0].set_yscale("logit")
    ticks = (0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
    panels[0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    panels[0].set_ylim(0.005, 0.9998)
    for axes in panels:
        axes.yaxis.set_minor_locator(NullLocator())
    return figure


def _logarithmic(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def cosine_distances(data: Digits, weights: Array, multiplier: float, source: Source) -> Array:
    """Between noisy gradients and the true one, that of the mean loss of all images."""
    true = (expit(data.rows @ weights) - data.labels) @ data.rows
    noisy = np.array([noisy_gradient(data, weights, multiplier, source) for _ in range(GRADIENTS)])
    return np.asarray(1 - noisy @ true / (np.linalg.norm(noisy, axis=1) * np.linalg.norm(true)))


def cosine_figure(data: Digits, later: Array, source: Source) -> Figure:
    """How far noise turns the gradient, where training starts and later."""
    figure, panels = plots.new_figure(
        "cosine distance to the true gradient",
        f"of {GRADIENTS} noisy gradients",
        "At the start",
        f"After {LATER} steps without noise",
    )
    bins = np.linspace(0.0, 1.2, 121)
    for axes, weights in zip(panels, (np.zeros_like(later), later), strict=True):
        for variance in (0.0, *VARIANCES):
            axes.hist(
                cosine_distances(data, weights, math.sqrt(variance), source),
                bins=bins.tolist(),
                color=COLOURS.get(variance, BLACK),
                alpha=0.55,
                label=f"σ² = {variance:g}" if variance else "batch, no noise",
            )
        axes.axvline(1.0, color=BLACK, linewidth=1.0, linestyle=":")
        axes.annotate(
            "right angle", (1.0, 0.97), (-4, 0), xycoords=("data", "axes fraction"),
            textcoords="offset points", va="top", ha="right",
        )  # fmt: skip
    panels[1].legend(frameon=False, loc="upper left")
    panels[0].set_xlim(bins[0], bins[-1])
    panels[0].set_ylim(0, 1.12 * panels[0].get_ylim()[1])
    return figure


def projection_figure(data: Digits, weights: Array, source: Source) -> Figure:
    """Noisy gradients at one point, in the plane in which gradients without noise differ most."""
    count = GRADIENTS // 4
    plain = np.array([noisy_gradient(data, weights, 0.0, source) for _ in range(count)])
    centre = plain.mean(axis=0)
    plane = np.linalg.svd(plain - centre, full_matrices=False)[2][:2]
    figure, panels = plots.new_figure(
        "first principal direction",
        "second principal direction",
        *(f"σ² = {variance:g}" for variance in VARIANCES),
    )
    figure.set_size_inches(10.6, 3.2)
    for axes, variance in zip(panels, VARIANCES, strict=True):
        noisy = [noisy_gradient(data, weights, math.sqrt(variance), source) for _ in range(count)]
        for points, colour, label in (
            (noisy, COLOURS[variance], "noisy"),
            (plain, BLACK, "without noise"),
        ):
            x, y = plane @ (np.array(points) - centre).T
            axes.scatter(x, y, s=9, color=colour, alpha=0.7, linewidths=0, label=label)
        axes.set_aspect("equal")
    panels[0].legend(frameon=False, loc="upper left", handletextpad=0.1, borderaxespad=0.1)
    reach = max(abs(limit) for limit in (*panels[0].get_xlim(), *panels[0].get_ylim()))
    panels[0].set_xlim(-reach, reach)
    panels[0].set_ylim(-reach, reach)
    return figure


def spread(data: Digits, repetitions: int, source: Source) -> dict[float, Array]:
    """One coefficient, that of the middle of the image, of many runs at each ε; inf is without noise."""
    middle = (data.rows.shape[1] - 1) // 2
    found = {}
    for epsilon in (*EPSILONS, math.inf):
        multiplier = 0.0
        if math.isfinite(epsilon):
            multiplier = accounting.calibrate(
                lambda noise: training_event(data.rate, noise, SPREAD_STEPS), epsilon=epsilon, delta=DELTA
            )
        ends = []
        for _ in range(repetitions):
            *_, weights = steps_of(data, multiplier, SPREAD_STEPS, source)
            ends.append(weights[middle])
        found[epsilon] = np.array(ends)
    return found


def spread_figure(found: dict[float, Array], source: Source) -> Figure:
    """The estimates as points, and what 80 % of them lie between."""
    repetitions = len(found[math.inf])
    figure, (axes,) = plots.new_figure(
        "ε",
        "coefficient of the middle of the image",
        f"One coefficient in {repetitions} runs of DP-SGD at each ε ({SPREAD_STEPS} steps, δ = {DELTA:g})",
    )
    places = np.array(EPSILONS)
    low, middle, high = np.quantile([found[epsilon] for epsilon in EPSILONS], [0.1, 0.5, 0.9], axis=1)
    axes.fill_between(places, low, high, color="#0072B2", alpha=0.2, linewidth=0, label="80 % of the runs")
    axes.plot(places, middle, color="#0072B2", label="median")
    for epsilon in EPSILONS:
        beside = epsilon * np.exp(0.1 * (source.uniforms(repetitions) - 0.5))
        axes.scatter(beside, found[epsilon], s=8, color="#D55E00", alpha=0.6, linewidths=0, zorder=3)
    plain = float(np.mean(found[math.inf]))
    axes.axhline(plain, color=BLACK, linewidth=1.2, linestyle=(0, (4, 3)), label="without noise")
    axes.legend(frameon=False, loc="upper right")
    _logarithmic(axes)
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axes.minorticks_off()
    return figure


def main(arguments: list[str] | None = None) -> None:
    """Train, print the table and draw."""
    parser = argparse.ArgumentParser(description="Privacy against utility, on MNIST.")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with MNIST's four .gz files")
    parser.add_argument("--out", type=Path, default=Path("out/privacy_utility"), help="folder to write to")
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--digits", type=int, nargs=2, default=(0, 1), metavar=("A", "B"))
    parser.add_argument("--repetitions", type=int, default=50, help="runs at each ε, for spread.png")
    parser.add_argument("--seed", type=int, help="for a reproducible run without privacy")
    options = parser.parse_args(arguments)
    if options.steps < 1 or options.repetitions < 2:
        parser.error("--steps must be 1 or more and --repetitions 2 or more")
    digits = (options.digits[0], options.digits[1])
    data, source = load(options.data, digits), Source(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)

    found = [trained(data, 0.0, "on the sum", options.steps, source)]
    found += [
        trained(data, variance, reading, options.steps, source)
        for reading in READINGS
        for variance in VARIANCES
    ]
    table = Table("noise", "σ²", "noise multiplier", f"ε at δ = {DELTA:g}", f"accuracy, mean of {RUNS}")
    for column in table.columns[1:]:
        column.justify = "right"
    for each in found:
        table.add_row(
            each.reading if each.variance else "none",
            f"{each.variance:g}",
            f"{math.sqrt(each.variance) * READINGS[each.reading]:.4g}",
            report.rounded_up(each.epsilon, 4),
            f"{each.accuracy[:, -1].mean():.4f}",
        )
    console.print(
        f"{len(data.rows):,} images of {digits[0]} and {digits[1]}, {options.steps:,} steps, expected batch "
        f"{BATCH}, sampling rate {data.rate:.4g}, clip norm {CLIP_NORM:g}; "
        f"{'SEEDED noise, no privacy' if source.seeded else 'float64 noise'}.",
        markup=False,
    )
    console.print(table)

    *_, later = steps_of(data, 0.0, LATER, source)
    figures = {
        "accuracy.png": accuracy_figure(found, data, digits, options.steps),
        "cosine.png": cosine_figure(data, later, source),
        "projection.png": projection_figure(data, later, source),
        "spread.png": spread_figure(spread(data.coarse(), options.repetitions, source), source),
    }
    for name, figure in figures.items():
        plots.save(figure, options.out / name)
        console.print(str(options.out / name), markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
