"""The demo runs, tells the story with right numbers, and writes what it says."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tacit import Ledger

DEMO = Path(__file__).resolve().parents[2] / "examples" / "noisy_counting.py"


def run(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", str(DEMO), *arguments]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which the demo ran with a seed, and what it told."""
    folder = tmp_path_factory.mktemp("demo")
    return folder, run(folder, "--random-state", "3")


def test_the_same_seed_tells_the_same_story(seeded: tuple[Path, str], tmp_path: Path) -> None:
    assert run(tmp_path, "--random-state", "3") == seeded[1]


def test_demo_twice_in_one_folder(seeded: tuple[Path, str]) -> None:
    folder, first = seeded
    assert "4 answers" in first
    assert "BudgetExceeded" in first
    assert "35.36" in first  # 50 answers, added up
    assert "SEEDED" in first
    second = " ".join(run(folder).split())
    assert "exact noise" in second
    with Ledger.open(folder / "out" / "study.db") as ledger:
        assert len(ledger.entries()) == 4
        ledger.verify()
    page = (folder / "out" / "noisy_counting.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "http" not in page
    assert (folder / "out" / "noisy_counting.png").stat().st_size > 10_000


@pytest.mark.parametrize("answers", [1, 4, 50])
def test_probability_of_an_average(answers: int) -> None:
    """The exact distribution of the average, against simulation."""
    demo = runpy.run_path(str(DEMO))
    noise = np.random.default_rng(answers).laplace(scale=2**0.5, size=(100_000, answers))
    for distance in (0.2, 0.5, 1.5):
        simulated = np.mean(np.abs(noise.mean(axis=1)) <= distance)
        assert demo["probability_within"](distance, answers) == pytest.approx(simulated, abs=0.008)
