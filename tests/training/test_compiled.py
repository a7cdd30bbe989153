"""Compiled models train privately: as written, with the gradients and the names of the model itself."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

import tacit
from tacit.training import Plan, Trainer, clipped_gradient_sum
from tacit.training.saving import load_weights

pytestmark = pytest.mark.filterwarnings("ignore")
PLAN = Plan(population=40, batch_size=10, steps=4, clip_norm=1.0, noise_multiplier=1.0, delta=1e-5)


@pytest.fixture(autouse=True)
def compiled_anew() -> None:
    """The compiler gives up on code that it has compiled very often, in other tests too."""
    torch.compiler.reset()


class Backend:
    """Runs a graph as it is, and counts how often."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            self.runs += 1
            return graph(*args)

        return run


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 20), nn.Tanh(), nn.Sequential(nn.Linear(20, 4), nn.Tanh()), nn.Linear(4, 2)
    )


def _compiled(how: str, backend: Backend) -> nn.Module:
    net = _net()
    if how == "model":
        return torch.compile(net, backend=backend)  # type: ignore[return-value]
    if how == "layer":
        net[2] = torch.compile(net[2], backend=backend)  # type: ignore[assignment]
    else:
        net.compile(backend=backend)
    return net


def _rows() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(40, 3), torch.randint(0, 2, (40,))


@pytest.mark.parametrize("how", ["model", "layer", "in place"])
def test_gradients_are_those_of_the_model_itself(how: str) -> None:
    backend = Backend()
    model, rows = _compiled(how, backend), _rows()
    found, norms = clipped_gradient_sum(model, nn.CrossEntropyLoss(), *rows, 0.5)
    expected, own = clipped_gradient_sum(_net(), nn.CrossEntropyLoss(), *rows, 0.5)
    assert torch.equal(norms, own)
    assert all(torch.equal(*pair) for pair in zip(found.values(), expected.values(), strict=True))
    assert not backend.runs
    model(rows[0])
    # Outside private passes it runs compiled; the compiler leaves a Sequential compiled in place as it is.
    assert backend.runs or how == "in place"


@pytest.mark.parametrize("how", ["model", "layer", "in place"])
def test_a_run_is_that_of_the_model_itself(how: str, tmp_path: Path) -> None:
    backend = Backend()
    compiled, plain = _compiled(how, backend), _net()
    for name, model in (("compiled", compiled), ("plain", plain)):
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, PLAN, random_state=0)
        trainer.fit(_rows())
        tacit.save(trainer, tmp_path / name)
    assert not backend.runs
    files = [safe_open(tmp_path / name, "pt") for name in ("compiled", "plain")]
    assert [*files[0].keys()] == [*files[1].keys()]
    assert all(torch.equal(*(file.get_tensor(key) for file in files)) for key in files[0].keys())  # noqa: SIM118
    for model in (_net(), _compiled("model", backend), _compiled("layer", backend)):
        load_weights(tmp_path / "compiled", model)
        assert all(torch.equal(*pair) for pair in zip(model.parameters(), plain.parameters(), strict=True))


def test_compiled_losses_and_functions_run_as_written() -> None:
    backend = Backend()

    @torch.compile(backend=backend)
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    rows = _rows()
    found, _ = clipped_gradient_sum(_net(), loss, *rows, 0.5)
    expected, _ = clipped_gradient_sum(copy.deepcopy(_net()), nn.CrossEntropyLoss(), *rows, 0.5)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert not backend.runs
