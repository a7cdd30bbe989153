"""The experiment on MNIST: on generated images always, on the real ones where they are."""

from __future__ import annotations

import gzip
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit import accounting, events
from tacit.randomness import Source

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "privacy_utility.py"
FIGURES = ("accuracy.png", "cosine.png", "projection.png", "spread.png")


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files like MNIST's: a 0 is a bright ring, a 1 a bright bar, the other digits are noise."""
    folder = tmp_path_factory.mktemp("mnist")
    generator = np.random.default_rng(1)
    across, down = np.meshgrid(np.arange(28) - 13.5, np.arange(28) - 13.5)
    ring = (np.abs(np.hypot(across, down) - 8) < 2) * 200
    bar = ((np.abs(across) < 2) & (np.abs(down) < 10)) * 200
    for name, count in (("train", 1200), ("t10k", 300)):
        labels = generator.integers(0, 3, count, dtype=np.uint8)
        shapes = np.stack([ring, bar, np.zeros_like(bar)])[labels]
        images = (shapes + generator.integers(0, 50, shapes.shape)).astype(np.uint8)
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(8) + labels.tobytes()))
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(16) + images.tobytes()))
    return folder


def run(*arguments: str, expect: int = 0) -> str:
    command = [sys.executable, "-W", "error", str(EXAMPLE), *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == expect, process.stderr
    return process.stdout + process.stderr


def rows(text: str) -> list[list[str]]:
    """The cells of the printed table."""
    return [re.split(r"\s*│\s*", line.strip("│ ")) for line in text.splitlines() if line.startswith("│")]


def test_run_on_generated_images(generated: Path, tmp_path: Path) -> None:
    options = ["--data", str(generated), "--steps", "25", "--repetitions", "3", "--seed", "4"]
    text = run(*options, "--out", str(tmp_path))
    assert "SEEDED" in text
    table = rows(text)
    assert [row[1] for row in table] == ["0", *("1", "5", "7.5", "10") * 2]
    images = int(re.search(r"([\d,]+) images", text)[1].replace(",", ""))
    for reading, variance, multiplier, epsilon, _ in table[1:]:
        factor = {"on the sum": 1, "on the mean": 150}[reading]
        assert float(multiplier) == pytest.approx(factor * float(variance) ** 0.5, rel=1e-3)
        step = events.PoissonSampled(150 / images, events.Gaussian(factor * float(variance) ** 0.5))
        assert float(epsilon) == pytest.approx(accounting.epsilon(events.Repeat(step, 25), 1e-4), rel=2e-3)
    accuracy = [float(row[-1]) for row in table]
    assert min(accuracy[:5]) > 0.95
    for name in FIGURES:
        assert str(tmp_path / name) in text
        assert (tmp_path / name).stat().st_size > 10_000


def test_missing_data_are_named(tmp_path: Path) -> None:
    text = run("--data", str(tmp_path), "--out", str(tmp_path / "out"), expect=1)
    assert "MNIST is not in" in text
    assert "--data" in text
    assert "Traceback" not in text
    assert not (tmp_path / "out").exists()


def test_gradient_is_the_clipped_mean_and_its_noise(example: dict[str, Any]) -> None:
    """With every image in the batch: the sum by hand, and noise of the stated size."""
    generator = np.random.default_rng(2)
    rows, labels = generator.normal(size=(60, 5)), generator.integers(0, 2, 60).astype(float)
    data, weights = example["Digits"](rows, labels, rows, labels), generator.normal(size=5)
    total = np.zeros(5)
    for row, label in zip(rows, labels, strict=True):
        gradient = (1 / (1 + np.exp(-row @ weights)) - label) * row
        total += gradient / max(1.0, float(np.linalg.norm(gradient)))
    gradient = example["noisy_gradient"]
    source = Source(3)
    assert gradient(data, weights, 0.0, source) == pytest.approx(total / 150)
    noisy = np.array([gradient(data, weights, 7.0, source) for _ in range(4000)])
    assert noisy.std(axis=0) * 150 == pytest.approx(7.0, rel=0.1)
    assert noisy.mean(axis=0) * 150 == pytest.approx(total, abs=7.0 * 6 / 4000**0.5)


def test_batches_are_poisson_samples(example: dict[str, Any]) -> None:
    """Sizes have the mean and the variance of a binomial; the gradient of a constant row counts them."""
    rows = np.full((3000, 1), 0.5)
    data = example["Digits"](rows, np.zeros(3000), rows, np.zeros(3000))
    source = Source(5)
    sizes = [example["noisy_gradient"](data, np.zeros(1), 0.0, source)[0] * 150 / 0.25 for _ in range(2000)]
    assert np.mean(sizes) == pytest.approx(150, abs=6 * (142.5 / 2000) ** 0.5)
    assert np.var(sizes) == pytest.approx(142.5, rel=0.25)


def test_spread_narrows_with_epsilon(example: dict[str, Any], generated: Path) -> None:
    data = example["load"](generated, (0, 1)).coarse()
    assert data.rows.shape[1] == 50
    found = example["spread"](data, 8, Source(6))
    assert found[0.05].std() > 4 * found[5.0].std()


def test_same_seed_trains_the_same(example: dict[str, Any], generated: Path) -> None:
    data = example["load"](generated, (0, 1))
    first, again, other = (list(example["steps_of"](data, 2.0, 5, Source(seed)))[-1] for seed in (7, 7, 8))
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


def test_real_digits(example: dict[str, Any], shared_dir: Path) -> None:
    """Noise on the sum costs no accuracy; on the mean, at 150 times the noise, it does."""
    data = example["load"](shared_dir / "data" / "mnist", (0, 1))
    assert data.rows.shape == (12665, 785)
    source = Source(1)
    proper, printed = (example["trained"](data, 10.0, reading, 60, source) for reading in example["READINGS"])
    assert proper.accuracy[:, -1].min() > 0.99
    assert printed.accuracy[:, -1].max() < 0.95
    assert proper.epsilon > 100 * printed.epsilon
