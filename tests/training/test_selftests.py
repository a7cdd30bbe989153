"""How often a run tests itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tacit.randomness import Source
from tacit.training import Plan
from tacit.training.step import PrivateStep
from training.oracle import squared

RUNS = [(1, 1), (4, 4), (10, 10), (11, 10), (19, 10), (20, 10), (95, 10)]


@pytest.mark.parametrize(("steps", "expected"), RUNS)
def test_a_run_tests_itself_ten_times(steps: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first step, and then evenly over the run; a run of fewer steps does so at each of them."""
    plan = Plan(population=40, batch_size=8, steps=steps, noise_multiplier=4.0, delta=1e-5)
    core = PrivateStep(nn.Linear(2, 1), squared, plan, Source(1))
    taken: list[int] = []

    def summed(parts: Any) -> Any:
        if core._test_due:
            core._test_due = False
            taken.append(core._releases)
        return {}, torch.empty(0), torch.empty(0)

    monkeypatch.setattr(core, "_summed", summed)
    for _ in range(steps):
        core.release([])
    assert len(taken) == expected
    assert taken[0] == 0
    gaps = [later - earlier for earlier, later in zip(taken, [*taken[1:], steps], strict=True)]
    assert max(gaps) <= -(-steps // 10) + 1
