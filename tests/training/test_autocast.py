"""Under autocast gradients are compared as well: a wrong route is found, and sound ones are used."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tacit.errors import SelfTestFailed
from tacit.training.clipping import Flat
from tacit.training.gradients import engine, rules
from tacit.training.isolation import selftest, trial
from training.oracle import squared
from training.zoo import BATCH, ZOO

MODELS = (
    "perceptron", "convolutional net", "class token", "transformer", "lstm", "tied embedding", "group norm",
)  # fmt: skip
KIND = torch.bfloat16


def perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def tried(model: nn.Module, inputs: Any, patch: pytest.MonkeyPatch) -> list[bool]:
    """What the trials of the routes find, on the way to a clipped sum under autocast."""
    found: list[bool] = []
    real = trial.holds

    def noted(*given: Any, **named: Any) -> bool:
        found.append(real(*given, **named))
        return found[-1]

    patch.setattr(engine, "holds", noted)
    engine.clipped_gradients(model, squared, inputs, torch.randn(BATCH), 1.0, autocast=KIND)
    return found


@pytest.mark.parametrize("name", [name for name in MODELS if name in ZOO])
def test_sound_routes_are_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    make, draw = ZOO[name]
    assert tried(make(), draw(), monkeypatch) == [True]


def too_long(inputs: Tensor) -> float:
    """Wrong by a hundredth, which bfloat16 would hide."""
    return 1.01


def too_long_when_rounded(inputs: Tensor) -> float:
    """Wrong only where the numbers were rounded by autocast."""
    return 1.1 if torch.equal(inputs, inputs.to(KIND).to(inputs.dtype)) else 1.0


def wrong(patch: pytest.MonkeyPatch, factor: Callable[[Tensor], float]) -> None:
    """The rule of a linear layer finds gradients that are too long."""
    sound = rules.RULES[nn.Linear.forward]

    def make(layer: Any, inputs: Tensor, grad: Tensor, dimension: int) -> Any:
        return sound.make(layer, inputs * factor(inputs), grad, dimension)

    patch.setitem(rules.RULES, nn.Linear.forward, dataclasses.replace(sound, make=make))


@pytest.mark.parametrize("factor", [too_long, too_long_when_rounded])
def test_a_wrong_route_is_not_used(factor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under autocast gradients were compared with nothing."""
    wrong(monkeypatch, factor)
    assert tried(perceptron(), torch.randn(BATCH, 4), monkeypatch) == [False]


@pytest.mark.parametrize("factor", [too_long, too_long_when_rounded])
def test_without_the_comparison_it_is_used(factor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin, which accepts any gradient that comes from one example."""
    wrong(monkeypatch, factor)
    monkeypatch.setattr(trial, "_tolerances", lambda dtype, device: (float("inf"), 0.0))
    assert tried(perceptron(), torch.randn(BATCH, 4), monkeypatch) == [True]


def test_a_fault_of_one_precision_is_found_in_that_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twins with one of the two trials: a hundredth is seen in float32, the other fault under autocast."""
    real = trial._hold
    for factor, cast, expected in (
        (too_long, False, False), (too_long, True, True),
        (too_long_when_rounded, False, True), (too_long_when_rounded, True, False),
    ):  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            wrong(patch, factor)

            def one(*given: Any, cast: bool = cast, **named: Any) -> bool:
                return real(*given, **named) if torch.is_autocast_enabled("cpu") is cast else True

            patch.setattr(trial, "_hold", one)
            assert tried(perceptron(), torch.randn(BATCH, 4), patch) == [expected]


def test_a_model_that_runs_under_autocast_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of two precisions: the trial in float32 is left out, and the other one is made."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3).to(KIND))
    with pytest.raises(RuntimeError):
        model(torch.randn(2, 4))
    assert tried(model, torch.randn(BATCH, 4), monkeypatch) == [True]


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("name", ["perceptron", "transformer", "convolutional net"])
def test_clipping_is_compared_under_autocast(name: str, alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient twice as long as it is raises, and the gradient as it is does not."""
    torch.manual_seed(2)
    make, draw = ZOO[name]
    given = make(), squared, draw(), torch.randn(BATCH), 1, Flat(), 0.5, alone, KIND
    selftest.check_clipping(*given)
    real = engine.clipped_gradients

    def half(*found: Any, **named: Any) -> Any:
        made = real(*found, **named)
        return dataclasses.replace(made, total={key: each / 2 for key, each in made.total.items()})

    monkeypatch.setattr(selftest, "clipped_gradients", half)
    with pytest.raises(SelfTestFailed):
        selftest.check_clipping(*given)
