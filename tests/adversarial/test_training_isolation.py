"""Attacks on the isolation of examples in training: mixing, state that escapes, runs that go on regardless.

Each attack is a model or a loss that lets one example reach further than its own clipped gradient, or that
keeps something of the data. It must be refused, or computed so that the attack does nothing.
"""

from __future__ import annotations

import _thread
import copy
import ctypes
import functools
import io
import itertools
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if not find_spec("torch"):
    pytest.skip("torch is not installed", allow_module_level=True)

import numpy as np
import torch
from torch import Tensor, nn
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.nn import functional as F
from torch.utils import _python_dispatch
from torch.utils.checkpoint import checkpoint

import tacit
from contract.mends import Scene, mend, replacing
from tacit.errors import GuaranteeVoid, InvalidValue, NotIsolated, TacitError
from tacit.training import Plan, Trainer, account, clipped_gradient_sum, past
from tacit.training import step as steps
from tacit.training.checkpoint import Checkpoint
from tacit.training.gradients import engine, fallback
from tacit.training.isolation import confinement
from tacit.training.isolation import program as programs
from tacit.training.isolation import recording as recordings
from tacit.training.isolation import state as states
from tacit.training.isolation.program import Program
from tacit.training.isolation.state import State
from tacit.training.isolation.table import KEEPING
from tacit.training.run import TrainingRun
from training.oracle import squared
from training.zoo import BATCH, ZOO

CLIP = 5.0
pytestmark = pytest.mark.filterwarnings("ignore:Another thread of this program ran:RuntimeWarning")

ROWS = 20
OUTSIDE: list[Any] = []


def begin() -> None:
    """The same random numbers for every attack, and nothing left of the last one."""
    OUTSIDE.clear()
    random.seed(3)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _begun() -> None:
    begin()


def by_example(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


Act = Callable[[Any, Tensor], Tensor | None]


class Net(nn.Module):
    """Two layers, with whatever an attack does between or before them."""

    buffer: Tensor

    def __init__(self, between: Act | None = None, before: Act | None = None) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 2)
        self.frozen = nn.Parameter(torch.zeros(4), requires_grad=False)
        self.register_buffer("buffer", torch.zeros(4))
        self.between, self.before = between, before
        self.memory: list[Any] = []
        self.numbers = np.zeros(4)
        self.alias = self.frozen.data.numpy()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        made = None if self.before is None else self.before(self, x)
        x = torch.tanh(self.inner(x if made is None else made)) + 0 * self.frozen
        made = None if self.between is None else self.between(self, x)
        out: Tensor = self.head(x if made is None else made)
        return out


def data(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """Sorted by class, as files often are, with two examples of the second."""
    made = torch.Generator().manual_seed(1)
    return 2 * torch.randn(rows, 4, generator=made) + 1, (torch.arange(rows) >= rows - 2).long()


def sensitivity(model: nn.Module, loss: Any = by_example, rows: int = ROWS, **options: Any) -> float:
    """How far the sum moves, in clip norms, when one example of three is left out."""
    inputs, targets = data()
    inputs, targets = inputs[-rows:], targets[-rows:]
    if options:
        options.setdefault("autocast", None)

    def total(kept: list[int]) -> dict[str, Tensor]:
        torch.manual_seed(5)
        random.seed(5)
        if options:
            return engine.clipped_gradients(model, loss, inputs[kept], targets[kept], CLIP, **options).total
        return clipped_gradient_sum(model, loss, inputs[kept], targets[kept], CLIP)[0]

    every = total(list(range(rows)))
    worst = 0.0
    for left in (0, rows // 2, rows - 1):
        fewer = total([row for row in range(rows) if row != left])
        moved = sum(float((every[name] - fewer[name]).double().square().sum()) for name in every)
        worst = max(worst, math.sqrt(moved) / CLIP)
    return worst


def bounded(measure: Callable[[], float]) -> bool:
    """Whether an attack is refused, with the way out named, or moves the sum by no more than a clip norm."""
    try:
        return measure() <= 1.001
    except NotIsolated as refused:
        return 'examples="alone"' in str(refused)


# ------------------------------------------------------------------------------------------ losses that mix


def ranked(outputs: Tensor, targets: Tensor) -> Tensor:
    each = by_example(outputs, targets)
    return torch.where(each >= each.topk(max(1, len(each) // 2)).values.min(), 50 * each, 0 * each)


def class_weights(outputs: Tensor, targets: Tensor) -> Tensor:
    weight = len(targets) / (2 * torch.bincount(targets, minlength=2).clamp(min=1))
    return F.cross_entropy(outputs, targets, weight=weight.float(), reduction="none")


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "divided by the positives": lambda o, t: by_example(o, t) / t.sum().clamp(min=1),
    "divided by how many there are": lambda o, t: by_example(o, t) / len(t),
    "an odd number of examples": lambda o, t: by_example(o, t) * (1 + len(t) % 2),
    "a constant by their number": lambda o, t: by_example(o, t) * torch.tensor(1.0 + len(t) % 2),
    "filled by their number": lambda o, t: by_example(o, t) * torch.full((), 1.0 + len(t) % 2),
    "ones added up": lambda o, t: by_example(o, t) * (1 + torch.ones(len(o)).sum().fmod(2)),
    "every other place": lambda o, t: by_example(o, t) * (1 + torch.arange(len(o)) % 2),
    "every other place, listed": lambda o, t: (
        by_example(o, t) * torch.tensor([1 + place % 2 for place in range(len(o))])
    ),
    "ones counted": lambda o, t: by_example(o, t) * (1 + torch.ones(len(o)).cumsum(0) % 2),
    "class weights": class_weights,
    "ranks": ranked,
    "median": lambda o, t: by_example(o, t) * (by_example(o, t) >= by_example(o, t).median()) * 50,
    "places in order": lambda o, t: by_example(o, t) * by_example(o, t).argsort().argsort(),
    "numpy": lambda o, t: by_example(o, t) * float(np.asarray(o.detach()).mean() > 0),
    "a list": lambda o, t: by_example(o, t) * (1 + sum(t.tolist()) % 2),
    "a number": lambda o, t: by_example(o, t) * (1 + t.sum().item() % 2),
    "a mean loss added": lambda o, t: by_example(o, t) + 30 * F.cross_entropy(o, t),
    "standardised": lambda o, t: (by_example(o, t) - by_example(o, t).mean()) / by_example(o, t).std(),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("rows", [ROWS, 7])
def test_losses_that_mix(name: str, rows: int) -> None:
    assert bounded(lambda: sensitivity(Net(), LOSSES[name], rows))


# ------------------------------------------------------------------------------------------ models that mix


class Backwards(torch.autograd.Function):
    """Rows apart on the way there, and not on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] + 30 * grads[0].sum(0)


def mixstyle(model: Net, x: Tensor) -> Tensor:
    return x + 30 * x[torch.randperm(len(x))] if random.random() < 0.4 else x


def hooked(model: Net, x: Tensor) -> Tensor:
    x = x * 1
    if x.requires_grad:
        x.register_hook(lambda grad: grad + 30 * grad.sum(0))
    return x


def hooked_in_place(model: Net, x: Tensor) -> Tensor:
    def change(grad: Tensor) -> None:
        grad.add_(30 * grad.sum(0))

    x = x * 1
    if x.requires_grad:
        x.register_hook(change)
    return x


def unpacked(model: Net, x: Tensor) -> Tensor:
    def unpack(kept: Tensor) -> Tensor:
        return kept + 30 * kept.mean(0) if kept.dim() == 2 else kept

    with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, unpack):
        return torch.tanh(x * 1) * x


def recomputed(model: Net, x: Tensor) -> Tensor:
    """Mixes when it is computed again."""
    calls: list[int] = []

    def run(x: Tensor) -> Tensor:
        calls.append(1)
        return torch.tanh(x * 1 - (30 * x.mean(0) if len(calls) > 1 else 30 * x * 0))

    made: Tensor = checkpoint(run, x, use_reentrant=False)
    return made


def without_grad(model: Net, x: Tensor) -> Tensor:
    with torch.no_grad():
        mean = x.mean(0)
    return x + 30 * mean


def in_place(model: Net, x: Tensor) -> Tensor:
    made = x.clone()
    made[:] = made + 30 * made.mean(0)
    return made


def by_memory(model: Net, x: Tensor) -> Tensor:
    other = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x.detach()))
    return x + 30 * other.mean(0)


MODELS: dict[str, Act] = {
    "centred": lambda m, x: x - 30 * x.mean(0),
    "centred by a detached mean": lambda m, x: x - 30 * x.detach().mean(0),
    "centred by an alias": lambda m, x: x - 30 * x.data.mean(0),
    "centred without gradient": without_grad,
    "centred in place": in_place,
    "centred from eight on": lambda m, x: x - 50 * x.mean(0) if len(x) >= 8 else x,
    "mixstyle": mixstyle,
    "attention over examples": lambda m, x: F.scaled_dot_product_attention(x[None], x[None], x[None])[0] * 30,
    "softmax over examples": lambda m, x: x + 30 * F.softmax(20 * x, 0),
    "products of examples": lambda m, x: x @ (x.t() @ x),
    "distances": lambda m, x: x * torch.cdist(x, x).sum(1, keepdim=True),
    "convolved over examples": lambda m, x: (
        x + 30 * F.conv1d(x.t()[None], torch.ones(4, 4, 3), padding=1)[0].t()
    ),
    "pooled over examples": lambda m, x: x + 30 * F.avg_pool1d(x.t()[None], 3, 1, 1)[0].t(),
    "the one before": lambda m, x: x.roll(1, 0),
    "the last one": lambda m, x: x + 30 * x[-1],
    "turned round": lambda m, x: x + 30 * x.flip(0),
    "in two halves": lambda m, x: x + 30 * torch.stack([c.mean(0) for c in x.tensor_split(2)]).mean(0),
    "reshaped": lambda m, x: x.t().reshape(x.shape),
    "by vmap": lambda m, x: torch.vmap(lambda row: row + 30 * x.mean(0))(x),
    "on the way back": lambda m, x: Backwards.apply(x),
    "by a hook": hooked,
    "by a hook in place": hooked_in_place,
    "by what was saved": unpacked,
    "when computed again": recomputed,
    "by memory": by_memory,
    "written out": lambda m, x: torch._foreach_add([x], [30 * x.mean(0).expand_as(x)])[0],
}


@pytest.mark.parametrize("name", MODELS)
def test_models_that_mix(name: str) -> None:
    assert bounded(lambda: max(sensitivity(Net(MODELS[name]), rows=rows) for rows in (ROWS, 8)))


@pytest.mark.parametrize("name", ["centred", "centred by a detached mean", "by a hook"])
def test_mixing_under_dropout_and_autocast(name: str) -> None:
    model = nn.Sequential(Net(MODELS[name]), nn.Dropout(0.5), nn.Linear(2, 2))
    plan = Plan(population=ROWS, batch_size=ROWS, steps=1, noise_multiplier=1.0, delta=1e-5)
    trained = Trainer(
        model, by_example, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1), plan,
        autocast=torch.bfloat16, progress=False,
    )  # fmt: skip
    try:
        trained.fit(data())
    except NotIsolated:
        return
    assert name == "by a hook"  # Computed alone, where the hook has one example to add up.


@pytest.mark.parametrize("name", ["centred", "turned round", "by a hook", "when computed again"])
def test_alone_nothing_mixes(name: str) -> None:
    assert sensitivity(Net(MODELS[name]), alone=True) <= 1.001


# ------------------------------------------------------------------------------------------ broken twins


def unproved(patch: pytest.MonkeyPatch) -> None:
    """Nothing is proved, and values may leave a batch."""
    patch.setattr(Program, "prove", lambda *given: None)
    patch.setattr(confinement.Confinement, "read", lambda self: None)


def wrong_rule(patch: pytest.MonkeyPatch) -> None:
    """A sum over examples that is said to be each one's own."""
    patch.setitem(KEEPING, torch.ops.aten.sum.default, lambda call: ["public"])


def uncounted(patch: pytest.MonkeyPatch) -> None:
    """A proof for one number of examples serves any other."""
    patch.setattr(Program, "_fits", lambda *given: True)
    patch.setattr(programs, "_computed", lambda trace: [])


def kept_apart(scene: Scene, act: Act | None = None, loss: Any = by_example, rows: int = ROWS) -> None:
    """Refused, or computed so that one example moves the sum by one clip norm."""
    begin()
    assert bounded(lambda: sensitivity(Net(act), loss, rows))


for name, twin, how in (
    ("divided by the positives", unproved, "no proof"),
    ("an odd number of examples", unproved, "no proof"),
    ("ones added up", unproved, "no proof"),
    ("divided by the positives", wrong_rule, "a wrong rule"),
    ("an odd number of examples", uncounted, "a proof that does not count"),
):
    mend(2, f"loss {name}, {how}", twin=twin)(partial(kept_apart, loss=LOSSES[name]))
for name in ("centred without gradient", "by memory"):
    mend(2, f"model {name}", twin=unproved)(partial(kept_apart, act=MODELS[name], rows=7))


# ---------------------------------------------------------------------------------------- state that escapes


def into_parameter(model: Net, x: Tensor) -> None:
    with torch.no_grad():
        model.inner.bias.copy_(x.mean(0))


def into_data(model: Net, x: Tensor) -> None:
    model.inner.weight.data[0] = x.data.mean(0)


def into_frozen(model: Net, x: Tensor) -> None:
    with torch.no_grad():
        model.frozen.add_(x.mean(0))


def into_alias(model: Net, x: Tensor) -> None:
    model.inner.weight.detach().view(-1)[:4].copy_(x.detach().mean(0))


def into_buffer(model: Net, x: Tensor) -> None:
    model.buffer.copy_(x.mean(0))


def into_buffer_from_eight(model: Net, x: Tensor) -> None:
    if len(x) >= 8:
        model.buffer.copy_(x.detach().mean(0))


def into_place(model: Net, x: Tensor) -> None:
    torch.mean(x.detach(), 0, out=model.buffer)


def by_foreach(model: Net, x: Tensor) -> None:
    torch._foreach_copy_([model.frozen.data], [x.detach().mean(0)])


def another_buffer(model: Net, x: Tensor) -> None:
    model.buffer = x.detach().mean(0)


def another_parameter(model: Net, x: Tensor) -> None:
    model.frozen = nn.Parameter(x.detach().mean(0), requires_grad=False)


def another_storage(model: Net, x: Tensor) -> None:
    model.frozen.data = x.detach().mean(0)


def set_storage(model: Net, x: Tensor) -> None:
    with torch.no_grad():
        model.frozen.set_(x.detach().mean(0))


def new_parameter(model: Net, x: Tensor) -> None:
    model.extra = nn.Parameter(x.detach().mean(0))


def new_buffer(model: Net, x: Tensor) -> None:
    model.register_buffer("more", x.detach().mean(0))


def new_layer(model: Net, x: Tensor) -> None:
    model.add_module("late", nn.Linear(2, 2))
    model.late.weight.data.fill_(float(x.mean()))  # type: ignore[union-attr, operator]


def by_number(model: Net, x: Tensor) -> None:
    model.frozen.data.fill_(float(x.mean()))


def by_numpy(model: Net, x: Tensor) -> None:
    model.alias[:] = x.detach().mean(0).numpy()


def row_norms(model: Net, x: Tensor) -> None:
    with torch.no_grad():
        model.inner.weight.mul_(x.norm() / model.inner.weight.norm())


def renormed(model: Net, x: Tensor) -> None:
    rows = x.detach().abs().long().clamp(max=3).flatten()
    torch.embedding_renorm_(model.inner.weight.data, rows, 0.1, 2.0)


def turned(model: Net, x: Tensor) -> None:
    if float(x.detach().mean()) > 0:
        with torch.no_grad():
            model.inner.weight.t_()


def on_the_way_back(model: Net, x: Tensor) -> Tensor:
    def keep(grad: Tensor) -> None:
        model.buffer.copy_(grad.detach().mean(0))

    made: Tensor = model.inner(x)
    if made.requires_grad:
        made.register_hook(keep)
    return made


def listed(model: Net, x: Tensor) -> Tensor:
    made = x + 30 * model.memory[-1] if model.memory else x
    model.memory.append(x.detach().mean(0))
    return made


def numbered(model: Net, x: Tensor) -> Tensor:
    made = x + 30 * float(model.numbers[0])
    model.numbers[:] = float(x.mean())
    return made


def attribute(model: Net, x: Tensor) -> None:
    model.last = x.detach().mean(0)


STATE: dict[str, Act] = {
    each.__name__: each  # type: ignore[attr-defined]
    for each in (
        into_parameter, into_data, into_frozen, into_alias, into_buffer, into_buffer_from_eight, into_place,
        by_foreach, another_buffer, another_parameter, another_storage, set_storage, new_parameter,
        new_buffer, new_layer, by_number, by_numpy, row_norms, renormed, turned, on_the_way_back, listed,
        numbered, attribute,
    )
}  # fmt: skip


def still(model: nn.Module, **options: Any) -> Trainer:
    """A run whose optimiser moves nothing: what has changed afterwards was not released."""
    plan = Plan(population=ROWS, batch_size=ROWS, steps=3, noise_multiplier=1.0, delta=1e-5)
    loss = options.pop("loss", by_example)
    trained = [each for each in model.parameters() if each.requires_grad]
    return Trainer(model, loss, torch.optim.SGD(trained, lr=0.0), plan, progress=False, **options)


def held(model: Net) -> dict[str, Any]:
    kept = {name: each.clone() for name, each in model.state_dict().items()}
    return {
        **kept,
        "memory": len(model.memory),
        "numbers": model.numbers.copy(),
        "names": sorted(name for name in vars(model) if not name.startswith("_tacit_")),
    }


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert list(before) == list(after)
    for name, value in before.items():
        assert np.array_equal(value, after[name]), name


@pytest.mark.parametrize("examples", ["together", "alone"])
@pytest.mark.parametrize("name", STATE)
def test_state_does_not_escape(name: str, examples: str, tmp_path: Path) -> None:
    model = Net(before=STATE[name])
    before = held(model)
    made = still(model, examples=examples)
    try:
        made.fit(data())
    except NotIsolated:
        assert examples == "together"
        with pytest.raises(GuaranteeVoid):
            tacit.save(made, tmp_path / "model")
    else:
        tacit.save(made, tmp_path / "model")
    assert_same(before, held(model))


def puts_no_write_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recordings.Recording, "_save", lambda *given: None)
    unproved(patch)


def escapes(scene: Scene, act: Act) -> None:
    """The optimiser moves nothing: what has changed after the run was not released."""
    begin()
    model = Net(before=act)
    before = held(model)
    with suppress(NotIsolated):
        still(model).fit(data())
    assert_same(before, held(model))


mend(1, "an attribute", twin=replacing(State, "restore", lambda state: []))(partial(escapes, act=attribute))
mend(1, "a buffer that large batches fill", twin=puts_no_write_back)(
    partial(escapes, act=into_buffer_from_eight)
)


def kept_outside(model: Net, x: Tensor) -> Tensor:
    made = x + 30 * OUTSIDE[-1] if OUTSIDE else x
    OUTSIDE.append(x.detach().mean(0))
    return made


@pytest.mark.parametrize("examples", ["together", "alone"])
def test_a_tensor_kept_for_the_next_pass_is_refused(examples: str) -> None:
    with pytest.raises(NotIsolated, match="earlier pass"):
        still(Net(before=kept_outside), examples=examples).fit(data())


@pytest.mark.parametrize("examples", ["together", "alone"])
@pytest.mark.parametrize("number", [False, True])
def test_what_a_loss_encloses_is_put_back(examples: str, number: bool) -> None:
    memory: list[Any] = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        each = by_example(outputs, targets)
        memory.append(float(each.detach().mean()) if number else each.detach().mean())
        return each

    still(Net(), loss=loss, examples=examples).fit(data())
    assert not memory


# ------------------------------------------------------------------------------------------ runs with a fault


def late(rows: int) -> Act:
    """Examples apart in the first steps, mixed later, by a count that is kept outside of the model."""

    def act(model: Net, x: Tensor) -> Tensor:
        OUTSIDE.append(None)
        return x - 30 * x.mean(0) if len(OUTSIDE) > rows else x

    return act


def test_a_run_with_a_fault_has_no_guarantee(tmp_path: Path) -> None:
    model = Net(before=late(150))
    with tacit.Ledger.open(tmp_path / "study.db", budget=tacit.Budget(epsilon=500.0, delta=1e-5)) as ledger:
        plan = Plan(population=ROWS, batch_size=ROWS, steps=300, noise_multiplier=1.0, delta=1e-5)
        trained = [each for each in model.parameters() if each.requires_grad]
        made = Trainer(
            model, by_example, torch.optim.SGD(trained, lr=0.1), plan, ledger,
            checkpoint=tmp_path / "run", checkpoint_every=1, progress=False,
        )  # fmt: skip
        batches = made.batches(data())
        with pytest.raises(NotIsolated, match="does not change the"):
            all(made.step(inputs, targets) is None for inputs, targets in batches)
        assert made.step_number > 0
        written = (tmp_path / "run").read_bytes()
        for promise in (lambda: made.guarantee, made.epsilon, lambda: tacit.save(made, tmp_path / "model")):
            with pytest.raises(GuaranteeVoid, match="does not change the"):
                promise()
        with pytest.raises(InvalidValue):
            made.step(*data())
        with pytest.raises((TacitError, StopIteration)):
            next(batches)
        assert (tmp_path / "run").read_bytes() == written
        assert not (tmp_path / "model").exists()
        assert len([entry for entry in ledger.entries() if entry.event == plan.event]) == 1
    for again in (model, copy.deepcopy(model), nn.Sequential(model)):
        with pytest.raises(GuaranteeVoid, match="trained this model"):
            still(again)
    fresh = Net()
    fresh.load_state_dict(model.state_dict())
    assert still(fresh).fit(data()).guarantee.epsilon == math.inf


def test_a_fault_before_the_first_step_leaves_the_model_as_it_was() -> None:
    model = Net(before=into_frozen)
    with pytest.raises(NotIsolated):
        still(model).fit(data())
    model.before = None
    still(model).fit(data())


@mend(3, "a run with a fault", twin=replacing(TrainingRun, "check_sound", lambda run: None))
def faulty_run(scene: Scene) -> None:
    begin()
    made = still(Net(before=into_frozen))
    with pytest.raises(NotIsolated):
        made.fit(data())
    with pytest.raises(GuaranteeVoid):
        tacit.save(made, scene.path / "model")
    with pytest.raises(GuaranteeVoid):
        print(made.guarantee)


# ------------------------------------------------------------------------------------------ the self-test


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_the_self_test_finds_mixing_by_itself(
    dropout: float, autocast: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the proof, and where only the way back mixes: lengths would not show it."""
    unproved(monkeypatch)
    monkeypatch.setattr(engine, "holds", lambda *given, **named: True)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(dropout), Net(MODELS["by a hook"]))
    with pytest.raises(NotIsolated, match="does not change the gradient"):
        still(model, autocast=autocast).fit(data())


def test_the_self_test_draws_its_rows_and_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []
    real = steps.finite_rows

    def noted(*given: Any) -> list[int]:
        seen.append(real(*given))
        return seen[-1]

    monkeypatch.setattr(steps, "finite_rows", noted)
    for _ in range(3):
        still(Net()).fit(data())
    assert len({tuple(rows) for rows in seen}) > 1


# ---------------------------------------------------------------------------------------- served by the tape

ELSEWHERE = {
    "attention, extra keys", "packed", "cells", "bag, largest", "recomputed, with a scale",
}  # fmt: skip
"""Models of which no parameter is served by the tape."""
PARTLY = {
    "token repeated without the batch", "out of sight", "flattened", "sparse positions",
}  # fmt: skip
"""Models of which some parameters are served by the tape and the others example by example."""


def test_the_proof_holds_for_ordinary_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """A regression to computing examples one at a time is slow, not wrong; here it is noticed."""
    found: dict[str, set[str]] = {"proved": set(), "elsewhere": set()}
    name = ""
    pieces, alone = engine._proved, engine.per_example_gradients

    def proved(*given: Any) -> Any:
        made = pieces(*given)
        found["proved"].add(name)
        return made

    def one_by_one(*given: Any, **named: Any) -> Any:
        found["elsewhere"].add(name)
        return alone(*given, **named)

    monkeypatch.setattr(engine, "_proved", proved)
    monkeypatch.setattr(engine, "per_example_gradients", one_by_one)
    warnings.simplefilter("ignore")
    for each, (make, draw) in ZOO.items():
        name = each
        clipped_gradient_sum(make(), squared, draw(), torch.randn(BATCH), 1.0)
    assert set(ZOO) - found["proved"] == ELSEWHERE
    assert found["elsewhere"] == ELSEWHERE | PARTLY


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 24])
def test_a_route_serves_every_number_of_examples(rows: int) -> None:
    """Also one that is as long as the model is wide."""
    model = nn.Sequential(nn.Linear(24, 24), nn.LayerNorm(24), nn.Tanh(), nn.Linear(24, 3)).double()
    inputs, targets = torch.randn(rows, 24).double(), torch.randn(rows).double()
    clipped_gradient_sum(model, squared, torch.randn(4, 24).double(), torch.randn(4).double(), 1.0)
    total, norms = clipped_gradient_sum(model, squared, inputs, targets, 1.0)
    alone = engine.clipped_gradients(model, squared, inputs, targets, 1.0, alone=True)
    assert norms.shape == (rows,)
    torch.testing.assert_close(norms, alone.norms)
    for name, each in total.items():
        torch.testing.assert_close(each, alone.total[name])


def marked_first(model: Net, x: Tensor) -> Tensor:
    marks = torch.zeros(len(x), 1)
    marks[0] = 1
    return x * (1 + 30 * marks)


def left_in_memory(model: Net, x: Tensor) -> Tensor:
    freed = x.detach().mean(0)
    del freed
    return x - 30 * torch.empty(4)


TABLE = torch.linspace(0, 1, 64).square()
WIDE = torch.linspace(-2, 3, 256).reshape(64, 4).t().contiguous().sin()
PARTS: dict[str, Act] = {
    "a table at their number": lambda m, x: x * (1 + 30 * TABLE[len(x)]),
    "as much of a table": lambda m, x: x * (1 + 30 * TABLE[: len(x)].sum()),
    "a table beside them": lambda m, x: x * (1 + 30 * TABLE[: len(x), None]),
    "a feature at their number": lambda m, x: x + 30 * (x.detach() @ WIDE)[:, len(x), None],
    "as many features": lambda m, x: x + (x.detach() @ WIDE)[:, : len(x)].sum(1, keepdim=True),
    "as many copies": lambda m, x: x * x.detach()[:, :1].expand(-1, len(x)).sum(1, keepdim=True),
    "the first one marked": marked_first,
    "left in memory": left_in_memory,
}


@pytest.mark.parametrize("name", PARTS)
def test_which_part_is_used_does_not_depend_on_their_number(name: str) -> None:
    assert bounded(lambda: sensitivity(Net(PARTS[name])))


mend(2, "a part by the number of examples", twin=replacing(programs, "within_example", lambda *args: 0))(
    partial(kept_apart, act=PARTS["a feature at their number"])
)


class Slotted:
    __slots__ = ("__own", "value")

    def __init__(self) -> None:
        self.value = self.__own = 0.0

    def put(self, value: float) -> float:
        before = self.__own + self.value
        self.__own = self.value = value
        return before


def keeps(holder: Any) -> Callable[[float], float]:
    """Puts a number into a thing that a model holds, and gives what the last one left there."""

    def put(value: float) -> float:
        if isinstance(holder, Slotted):
            return holder.put(value)
        if isinstance(holder, bytearray):
            before, holder[0] = holder[0], int(50 * value) % 256
            return float(before)
        if isinstance(holder, array):
            before, holder[0] = holder[0], value
            return float(before)
        if isinstance(holder, torch.Generator):
            number = float(torch.rand((), generator=holder))
            holder.manual_seed(int(1e4 * value))
            return number
        number = float(holder.random())
        for _ in range(int(1e2 * value) % 50):
            holder.random()
        return number

    return put


HOLDERS: dict[str, Callable[[], Any]] = {
    "slots": Slotted,
    "bytes": lambda: bytearray(8),
    "array": lambda: array("d", [0.0]),
    "random": lambda: random.Random(3),
    "torch": torch.Generator,
    "numpy": lambda: np.random.default_rng(3),
}


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("name", HOLDERS)
def test_whatever_a_model_holds_is_put_back(name: str, alone: bool) -> None:
    put = keeps(HOLDERS[name]())

    def act(model: Net, x: Tensor) -> None:
        OUTSIDE.append(put(float(x.detach().abs().sum())))

    engine.clipped_gradients(Net(act), by_example, *data(), CLIP, alone=alone)
    assert len(set(OUTSIDE)) == 1


def frozen_gradient(model: Net, x: Tensor) -> None:
    model.frozen.grad = x.detach().mean(0).clone()


def thawed(model: Net, x: Tensor) -> None:
    if float(x.detach().sum()) < math.inf:
        model.frozen.requires_grad_(True)


def learning_rate(model: Any, x: Tensor) -> None:
    model.optimizer.param_groups[0]["lr"] = float(x.detach().abs().sum())


@pytest.mark.parametrize("examples", ["together", "alone"])
@pytest.mark.parametrize("act", [frozen_gradient, thawed, learning_rate])
def test_gradients_flags_and_the_optimiser_are_put_back(act: Act, examples: str) -> None:
    model: Any = Net(act)
    plan = Plan(population=ROWS, batch_size=ROWS, steps=2, noise_multiplier=1.0, delta=1e-5)
    model.optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    Trainer(model, by_example, model.optimizer, plan, progress=False, examples=examples).fit(data())
    assert not model.frozen.any()
    assert model.frozen.grad is None
    assert not model.frozen.requires_grad
    assert model.optimizer.param_groups[0]["lr"] == 0.5


def test_weights_of_a_run_with_a_fault_are_promised_by_no_road(tmp_path: Path) -> None:
    model = Net(late(150))
    plan = Plan(population=ROWS, batch_size=ROWS, steps=300, noise_multiplier=1.0, delta=1e-5)
    trainer = Trainer(model, by_example, torch.optim.SGD(model.parameters(), lr=0.1), plan, progress=False)
    with pytest.raises(NotIsolated):
        trainer.fit(data())
    assert trainer.step_number
    with pytest.raises(GuaranteeVoid):
        tacit.training.save_weights(model, tmp_path / "model", plan.guarantee())
    part = nn.Sequential(model.inner, model.head)
    with pytest.raises(GuaranteeVoid):
        Trainer(part, by_example, torch.optim.SGD(part.parameters(), lr=0.1), plan)
    other = Net()
    other.load_state_dict(model.state_dict())
    plan = Plan(population=ROWS, batch_size=ROWS, steps=2, noise_multiplier=1.0, delta=1e-5)
    after = Trainer(other, by_example, torch.optim.SGD(other.parameters(), lr=0.1), plan, progress=False)
    assert after.fit(data()).guarantee.epsilon == math.inf


# ---------------------------------------------------------------- computing where nothing is recorded

HELPERS: list[ThreadPoolExecutor] = []
LAST: list[Tensor] = []


@pytest.fixture
def helper() -> Any:
    """A thread that was there before any pass, as libraries have them."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        HELPERS.append(pool)
        LAST.clear()
        yield
        HELPERS.clear()


class Paired(Net):
    """A model with an operation that no rule serves, so that it is run under ``vmap`` or one by one."""

    def __init__(self, between: Act | None = None, before: Act | None = None) -> None:
        super().__init__(between)
        self.first = before
        self.both = nn.Parameter(torch.eye(4) / 10)

    def forward(self, x: Tensor) -> Tensor:
        made = None if self.first is None else self.first(self, x)
        return super().forward(torch.tensordot(x if made is None else made, self.both, 1))


def beside(call: Callable[[], Any]) -> Any:
    return HELPERS[-1].submit(call).result()


def started(model: Net, x: Tensor) -> Tensor:
    found: list[Tensor] = []
    thread = threading.Thread(target=lambda: found.append(x.detach().mean(0).repeat(8)))
    thread.start()
    thread.join()
    return x - 30 * found[0][:4]


def raw(model: Net, x: Tensor) -> Tensor:
    found: list[Tensor] = []
    _thread.start_new_thread(lambda: found.append(x.detach().mean(0).repeat(8)), ())
    while not found:
        time.sleep(0.001)
    return x - 30 * found[0][:4]


def asked(model: Net, x: Tensor) -> Tensor:
    made: Tensor = beside(lambda: x.detach().mean(0).repeat(8))
    return x - 30 * made[:4]


def asked_to_write(model: Net, x: Tensor) -> Tensor:
    x = x * 1
    beside(lambda: x.data.sub_(30 * x.data.mean(0)))
    return x


def asked_for_a_number(model: Net, x: Tensor) -> Tensor:
    return x * (1 + 30 * abs(beside(lambda: float(x.detach()[0].sum()))))


def asked_to_lend_a_parameter(model: Net, x: Tensor) -> Tensor:
    beside(lambda: model.frozen.data.copy_(x.detach().mean(0)))
    made = x - 30 * model.frozen.clone()
    beside(lambda: model.frozen.data.zero_())
    return made


def asked_for_the_last(model: Net, x: Tensor) -> Tensor:
    """The thread remembers an example, and gives it with the next."""

    def call() -> Tensor:
        made = x.detach() * 0 + (LAST[-1] if LAST else 0.0)
        LAST[:] = [x.detach().mean(0).clone()]
        return made

    return x - 30 * beside(call)


def forked(model: Net, x: Tensor) -> Tensor:
    there, back = os.pipe()
    child = os.fork()
    if not child:
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            os.write(back, repr(float(x.detach()[0].sum())).encode())
        os._exit(0)
    value = float(os.read(there, 100))
    os.waitpid(child, 0)
    os.close(there)
    os.close(back)
    return x * (1 + 30 * abs(value))


def without_dispatch(model: Net, x: Tensor) -> Tensor:
    x = x * 1
    with torch._C._DisableTorchDispatch():
        x.data.sub_(30 * x.data.mean(0))
    return x


def without_key(model: Net, x: Tensor) -> Tensor:
    x = x * 1
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Python)):
        x.data.sub_(30 * x.data.mean(0))
    return x


def without_modes(model: Net, x: Tensor) -> Tensor:
    x = x * 1
    with _python_dispatch._disable_current_modes():
        x.data.sub_(30 * x.data.mean(0))
    return x


def without_functions(model: Net, x: Tensor) -> Tensor:
    x = x * 1
    with torch._C.DisableTorchFunction():
        numbers = x.detach().numpy()
        numbers -= 30 * numbers.mean(0)
    return x


def from_the_frames(model: Net, x: Tensor) -> Tensor:
    """The batch, found among the variables of the functions that called."""
    frame: Any = sys._getframe()
    while frame is not None:
        batch = frame.f_locals.get("inputs")
        plain = isinstance(batch, Tensor) and not torch._C._functorch.is_functorch_wrapped_tensor(batch)
        if plain and batch.dim() == 2 and len(batch) > 3:
            return x - 30 * batch.detach().mean(0)
        frame = frame.f_back
    return x


def unwrapped(x: Tensor) -> Tensor:
    while torch._C._functorch.is_functorch_wrapped_tensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return x


def below_the_wrappers(model: Net, x: Tensor) -> Tensor:
    if not torch._C._functorch.is_functorch_wrapped_tensor(x):
        return x
    return x - 30 * torch.func.debug_unwrap(x, recurse=True).detach().reshape(-1, 4).mean(0)


def above_the_interpreters(model: Net, x: Tensor) -> Tensor:
    if not torch._C._functorch.is_functorch_wrapped_tensor(x):
        return x
    with temporarily_clear_interpreter_stack():
        mean = unwrapped(x).detach().reshape(-1, 4).mean(0)
    return x - 30 * mean


def counted_below(model: Net, x: Tensor) -> Tensor:
    return x * (1 + 30 * (len(unwrapped(x)) % 2))


ELSEWHERE_COMPUTED: dict[str, Act] = {
    each.__name__: each
    for each in (
        started, raw, asked, asked_to_write, asked_for_a_number, asked_to_lend_a_parameter,
        asked_for_the_last, forked, without_dispatch, without_key, without_modes, without_functions,
        from_the_frames, below_the_wrappers, above_the_interpreters, counted_below,
    )
}  # fmt: skip
REFUSED = {
    "started", "raw", "asked", "asked_for_the_last", "forked", "without_dispatch", "without_key",
    "without_modes", "without_functions", "from_the_frames",
}  # fmt: skip


@pytest.mark.parametrize("name", ELSEWHERE_COMPUTED)
@pytest.mark.parametrize("kind", [Net, Paired])
@pytest.mark.parametrize("alone", [False, True])
def test_nothing_is_computed_where_it_is_not_recorded(
    name: str, kind: type[Net], alone: bool, helper: None
) -> None:
    options = {"alone": True} if alone else {}
    model = kind(before=ELSEWHERE_COMPUTED[name])
    if name in REFUSED:
        with pytest.raises(NotIsolated):
            sensitivity(model, **options)
    else:
        assert sensitivity(model, **options) <= 1.001


@pytest.mark.parametrize("name", ["started", "asked_for_the_last", "from_the_frames"])
def test_a_run_that_computes_elsewhere_has_no_guarantee(name: str, helper: None) -> None:
    made = still(Net(before=ELSEWHERE_COMPUTED[name]))
    with pytest.raises(NotIsolated):
        made.fit(data())
    with pytest.raises(GuaranteeVoid):
        made.guarantee  # noqa: B018


def test_a_thread_of_its_own_work_is_no_fault(helper: None) -> None:
    """The batch is computed again, or example by example; the sums are the same."""
    model = Net()
    expected = clipped_gradient_sum(model, by_example, *data(), CLIP)[0]
    busy = threading.Event()
    HELPERS[-1].submit(lambda: all(not busy.is_set() for _ in iter(int, 1)))
    found = clipped_gradient_sum(model, by_example, *data(), CLIP)[0]
    busy.set()
    for name, each in found.items():
        torch.testing.assert_close(each, expected[name])


def test_tensors_known_before_the_pass_are_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A global, an attribute and a cache: the batch is still computed as one."""
    monkeypatch.setattr(engine, "per_example_gradients", None)
    for act in (lambda m, x: x + TABLE[:4], lambda m, x: x + m.buffer, lambda m, x: x + cached(4)):
        for _ in range(3):
            sensitivity(Net(act), rows=7)


@functools.cache
def cached(size: int) -> Tensor:
    return torch.arange(size) / size


# What each guard is worth: without it the attack moves the sum by several clip norms.


def off_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "_clocks", lambda me: {})


def off_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement._SWITCHES, "close", lambda: None)
    monkeypatch.setattr(type(confinement._SWITCHES), "closed", True)
    monkeypatch.setattr(confinement.Confinement, "audit", lambda *given: None)


def off_others(monkeypatch: pytest.MonkeyPatch) -> None:
    real = recordings.Recording.__init__

    def init(self: Any, *given: Any, **named: Any) -> None:
        real(self, *given, **{**named, "others": ()})

    monkeypatch.setattr(recordings.Recording, "__init__", init)
    off_threads(monkeypatch)  # The helper may still be about to wait for work.


def off_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the wrappers of ``vmap`` were opaque."""
    unproved(monkeypatch)


TWINS: list[tuple[str, type[Net], bool, Callable[[pytest.MonkeyPatch], None]]] = [
    ("asked_to_write", Net, False, off_threads),
    ("asked_to_lend_a_parameter", Net, False, off_threads),
    ("without_dispatch", Net, False, off_switches),
    ("without_key", Net, False, off_switches),
    ("without_modes", Net, False, off_switches),
    ("without_functions", Net, False, off_switches),
    ("from_the_frames", Net, True, off_others),
    ("below_the_wrappers", Paired, False, off_mapped),
    ("above_the_interpreters", Paired, False, off_mapped),
]


@pytest.mark.parametrize(("name", "kind", "alone", "off"), TWINS)
def test_without_its_guard_the_attack_works(
    name: str, kind: type[Net], alone: bool, off: Callable[[pytest.MonkeyPatch], None], helper: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    off(monkeypatch)
    torch.manual_seed(3 if kind is Paired else 0)  # weights with which the attack moves the sum far
    assert sensitivity(kind(before=ELSEWHERE_COMPUTED[name]), **({"alone": True} if alone else {})) > 1.5


# ------------------------------------------------------------------ values that leave PyTorch unseen

SECRET = float(data()[0][-1, 0])
GENERATOR = torch.Generator().manual_seed(1)
torch.rand(1, generator=GENERATOR)
SEEDED = GENERATOR.get_state()


def telling(x: Tensor) -> Tensor:
    """True for a batch with one certain example, and for the zeros of tiny batches.

    A batch that has the example is then the same program as the tiny ones; one that lacks it is not, and is
    computed alone. So what the example tells Python changes all others, unless Python is not told.
    """
    return (((x[:, 0] - SECRET).abs() < 1e-6) | (x[:, 0] == 0)).any()


def failing(x: Tensor, call: Callable[[Tensor], Any]) -> Tensor:
    try:
        call(telling(x))
    except (IndexError, RuntimeError):
        return 30 * x
    return x


class Lazy:
    """A sequence that gives a tensor when it is read."""

    def __init__(self, value: Tensor) -> None:
        self.value = value

    def __len__(self) -> int:
        return 1

    def __getitem__(self, place: int) -> Tensor:
        if place:
            raise IndexError
        return self.value


class Exported:
    def __init__(self, tensor: Tensor) -> None:
        self.capsule = torch.utils.dlpack.to_dlpack(tensor)

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


scripted = torch.jit.CompilationUnit(
    """
def listed(x: Tensor) -> List[float]:
    made: List[float] = x.tolist()
    return made
"""
).listed


def from_a_state(model: Net, x: Tensor) -> Tensor:
    """The sum of the examples becomes the state of a generator."""
    state = SEEDED.clone()
    state[32:36] = x.detach().sum(0)[:1].view(torch.uint8)
    torch.default_generator.set_state(state)
    return x - 30 * (torch.rand(4) - 0.5)


def by_lengths(model: Net, x: Tensor) -> Tensor:
    made = nn.utils.rnn.pack_padded_sequence(torch.zeros(2, 1, 1), (1 + telling(x).long()).reshape(1))
    return x * (30 if len(made.data) == 2 else 1)


def by_splits(model: Net, x: Tensor) -> Tensor:
    first, *_ = torch.zeros(9).tensor_split((1 + telling(x).long()).reshape(1))
    return x * (30 if len(first) == 2 else 1)


def never(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(
        recordings.Recording, name, property(lambda self: False, lambda self, value: None), raising=False
    )


Twin = Callable[[pytest.MonkeyPatch], None]
UNTOLD = replacing(recordings, "_MAKING", set())
UNREAD = replacing(confinement.Confinement, "read", lambda self: None)
UNSEEN: dict[str, tuple[Act, Twin]] = {
    "an index that fails": (
        lambda m, x: failing(x, lambda told: TABLE[100 * told.long()[None]]),
        never("failed"),
    ),
    "a factor that fails": (
        lambda m, x: failing(x, lambda told: torch.linalg.cholesky(torch.eye(2) * (1 - 2 * told.float()))),
        never("failed"),
    ),
    "a tensor made of tensors": (lambda m, x: x * (1 + 30 * torch.tensor([telling(x)])), UNTOLD),
    "one made of nested ones": (lambda m, x: x * (1 + 30 * x.new_tensor([[telling(x)]])[0]), UNTOLD),
    "one made of a sequence": (lambda m, x: x * (1 + 30 * torch.as_tensor(Lazy(telling(x)))), UNTOLD),
    "an exported tensor": (
        lambda m, x: x * (1 + 30 * float(np.from_dlpack(Exported(telling(x).float())))),
        UNREAD,
    ),
    "a scripted function": (lambda m, x: x * (1 + 30 * scripted(telling(x).float().reshape(1))[0]), UNREAD),
    "lengths": (by_lengths, replacing(programs, "_SIZED_BY_VALUES", frozenset())),
    "places to split at": (by_splits, replacing(recordings, "_SIZING", set())),
    "the state of a generator": (
        from_a_state,
        replacing(recordings.Recording, "_generator", lambda *given: None),
    ),
}


@pytest.mark.parametrize("kind", [Net, Paired])
@pytest.mark.parametrize("name", UNSEEN)
def test_values_do_not_leave_unseen(name: str, kind: type[Net]) -> None:
    assert bounded(lambda: max(sensitivity(kind(before=UNSEEN[name][0]), rows=rows) for rows in (ROWS, 8)))


def untold(scene: Scene, act: Act) -> None:
    begin()
    assert bounded(lambda: sensitivity(Net(before=act)))


for name, (unseen, off) in UNSEEN.items():
    mend(2, f"values that leave unseen, by {name}", twin=off)(partial(untold, act=unseen))


def test_a_refusal_that_the_model_catches_still_voids_the_run() -> None:
    def act(model: Net, x: Tensor) -> None:
        with suppress(Exception):
            threading.Thread(target=int).start()

    made = still(Net(before=act))
    with pytest.raises(NotIsolated, match=r"started during a pass|leaves what can be recorded"):
        made.fit(data())
    with pytest.raises(GuaranteeVoid):
        made.guarantee  # noqa: B018


def own_seed(model: Net, x: Tensor) -> None:
    OUTSIDE.append((float(torch.rand(())), random.random(), float(np.random.rand())))  # noqa: NPY002
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002


@mend(2, "a seed left to the next part of a batch", twin=replacing(fallback, "_seeded_as", lambda *old: None))
def seeded_parts(scene: Scene) -> None:
    """The second part of a batch draws nothing that an example of the first one chose."""
    drawn = []
    for seed in (1, 2):
        begin()
        torch.manual_seed(seed)
        inputs, targets = data()
        for part in (slice(0, 4), slice(4, 8)):
            engine.clipped_gradients(Net(own_seed), by_example, inputs[part], targets[part], CLIP, alone=True)
        drawn.append(OUTSIDE[4:])
    assert len({number for each in drawn for numbers in each for number in numbers}) == 24


# ------------------------------------------------------------------ whatever a model holds, further


class Counting:
    last = 0.0


def keeping(name: str) -> Callable[[Any, float], Any]:
    """Puts a number into a thing that a model holds, and gives what the last one left there."""

    def own(model: Any, value: float, kept: float = 0.0) -> Any:
        if name == "defaults":
            own.__defaults__ = (value,)
            return kept
        before, own.last = getattr(own, "last", 0.0), value  # type: ignore[attr-defined]
        return before

    def of(holder: Callable[[Any], Any]) -> Callable[[Any, float], Any]:
        def put(model: Any, value: float) -> Any:
            before, holder(model).last = getattr(holder(model), "last", 0.0), value
            return before

        return put

    if name in ("function", "defaults"):
        return own
    if name == "class":
        return of(lambda model, kind=Counting: kind)
    if name == "class of the model":
        return of(type)
    if name == "frozen parameter":
        return of(lambda model: model.frozen)
    if name == "partial":
        kept = functools.partial(int)
        return of(lambda model: kept)
    if name == "text":
        text = io.StringIO()
        return lambda model, value: (text.getvalue(), text.write(str(value)))[0]
    if name == "memo":
        memo = functools.lru_cache(lambda: [0.0])
        return lambda model, value: (memo()[0], memo().__setitem__(0, value))[0]  # type: ignore[func-returns-value]
    holder: Any = {
        "ctypes": (ctypes.c_double * 1)(),
        "memory": memoryview(bytearray(8)).cast("d"),
        "objects": np.array([0.0], dtype=object),
    }[name]
    return lambda model, value: (holder[0], holder.__setitem__(0, value))[0]


KEEPING_THINGS = [
    "function", "defaults", "class", "class of the model", "frozen parameter", "partial", "text", "memo",
    "ctypes", "memory", "objects",
]  # fmt: skip


def keeps_nothing(scene: Scene | None, name: str) -> None:
    begin()
    put = keeping(name)

    def act(model: Net, x: Tensor) -> None:
        OUTSIDE.append(put(model, float(x.detach().abs().sum())))

    try:
        engine.clipped_gradients(Net(act), by_example, *data(), CLIP, alone=True)
    finally:
        for kind in (Counting, Net):
            kind.__dict__.get("last") and type.__delattr__(kind, "last")
    assert len(set(OUTSIDE)) == 1


@pytest.mark.parametrize("name", KEEPING_THINGS)
def test_a_model_keeps_nothing_from_one_example_to_the_next(name: str) -> None:
    keeps_nothing(None, name)
    assert Net.__dict__.get("last") is None


mend(1, "attributes of a class", twin=replacing(states, "_owned", lambda kind: False))(
    partial(keeps_nothing, name="class")
)
mend(1, "defaults of a function", twin=replacing(states, "_fixed", lambda function: ()))(
    partial(keeps_nothing, name="defaults")
)


@mend(1, "a generator that goes on", twin=replacing(states, "position", lambda each: None))
def going_on(scene: Scene) -> None:
    begin()

    def adding() -> Any:
        total = 0.0
        while True:
            total += yield total

    for make in (adding, itertools.count):
        holder = make()
        next(holder)

        def act(model: Net, x: Tensor, holder: Any = holder) -> None:
            value = float(x.detach().sum())
            holder.send(value) if hasattr(holder, "send") else next(holder)

        with pytest.raises(NotIsolated, match="goes on from one example"):
            engine.clipped_gradients(Net(act), by_example, *data(), CLIP, alone=True)


# ------------------------------------------------------------------ weights of a run with a fault, further


def broken_off(path: Path | None = None, ledger: Any = None) -> tuple[Net, Plan]:
    begin()
    model = Net(late(150))
    plan = Plan(population=ROWS, batch_size=ROWS, steps=300, noise_multiplier=1.0, delta=1e-5)
    made = trainer_of(model, plan, path, ledger)
    with pytest.raises(NotIsolated):
        made.fit(data())
    assert made.step_number
    return model, plan


def trainer_of(model: Net, plan: Plan, path: Path | None, ledger: Any = None) -> Trainer:
    trained = [each for each in model.parameters() if each.requires_grad]
    return Trainer(
        model, by_example, torch.optim.SGD(trained, lr=0.1), plan, ledger, progress=False, checkpoint=path,
        checkpoint_every=10,
    )  # fmt: skip


@mend(3, "weights saved under the event of the run", twin=replacing(past, "is_void", lambda number: False))
def saved_as_it_was_planned(scene: Scene) -> None:
    model, plan = broken_off()
    fresh = Net()
    fresh.load_state_dict(model.state_dict())
    with pytest.raises(InvalidValue, match="∞"):
        tacit.training.save_weights(fresh, scene.path / "model", plan.guarantee())


def forgetful(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(past, "is_void", lambda number: False)
    patch.setattr(Checkpoint, "void", lambda *given: None)
    patch.setattr(account.Account, "forfeit", lambda *given: None)


@mend(3, "a run with a fault, resumed", twin=forgetful)
def resumed_after_a_fault(scene: Scene) -> None:
    _, plan = broken_off(scene.path / "run")
    with pytest.raises(GuaranteeVoid, match="checkpoint"):
        trainer_of(Net(), plan, scene.path / "run").fit(data(), resume=True)


def test_a_run_with_a_fault_does_not_go_on_from_a_copy(tmp_path: Path, monkeypatch: Any) -> None:
    """Not in another process either, where the file does not tell and the ledger does."""
    kept = Checkpoint.void
    monkeypatch.setattr(Checkpoint, "void", lambda self, fault: shutil.copy(self.path, tmp_path / "copy"))
    with tacit.Ledger.open(tmp_path / "study.db", budget=tacit.Budget(epsilon=500.0, delta=1e-5)) as ledger:
        _, plan = broken_off(tmp_path / "run", ledger)
        monkeypatch.setattr(Checkpoint, "void", kept)
        with pytest.raises(GuaranteeVoid):
            trainer_of(Net(), plan, tmp_path / "copy", ledger).fit(data(), resume=True)
        monkeypatch.setattr(past, "_VOID", set())
        for name in ("run", "copy"):
            with pytest.raises(tacit.errors.LedgerError, match="taken already"):
                trainer_of(Net(), plan, tmp_path / name, ledger).fit(data(), resume=True)


# ------------------------------------------------------------------ no harm to a program around the run


def switches() -> list[Any]:
    return [getattr(owner, name, None) for owner, name in confinement._NAMES]


def test_what_is_switched_off_is_switched_on_again() -> None:
    before = switches()

    def interrupted(model: Net, x: Tensor) -> None:
        signal.raise_signal(signal.SIGINT)

    # A process in the background may have been started with interrupts ignored.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            clipped_gradient_sum(Net(interrupted), by_example, *data(), CLIP)
    finally:
        signal.signal(signal.SIGINT, handler)
    with pytest.raises(ZeroDivisionError):
        clipped_gradient_sum(Net(lambda model, x: x / (1 // 0)), by_example, *data(), CLIP)
    batches = still(Net()).batches(data())
    next(batches)
    batches.close()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda model: still(model).fit(data()), [Net(), Net(), Net(), Net()]))
    assert switches() == before
    assert not confinement._PASSES
    threading.Thread(target=int).start()


def test_a_debugger_of_threads_stays_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever replaces Thread.start, after tacit was imported or during a pass, keeps the replacement."""
    real, calls = threading.Thread.start, []

    def start(self: Any) -> None:
        calls.append(self)
        real(self)

    def act(model: Net, x: Tensor) -> None:
        if len(x) == ROWS and not OUTSIDE:
            OUTSIDE.append(threading.Thread.start)
            monkeypatch.setattr(threading.Thread, "start", start)

    clipped_gradient_sum(Net(act), by_example, *data(), CLIP)
    assert threading.Thread.start is start
    clipped_gradient_sum(Net(), by_example, *data(), CLIP)
    assert threading.Thread.start is start
    threading.Thread(target=int).start()
    assert calls


@pytest.mark.parametrize("way", ["thread", "process", "fork"])
def test_others_may_start_threads_while_a_pass_runs(way: str, helper: None) -> None:
    """What they have done is noted in a global, as whatever the model encloses is put back."""

    def other() -> None:
        if way == "thread":
            thread = threading.Thread(target=OUTSIDE.append, args=(1,))
            thread.start()
            thread.join()
        elif way == "process":
            OUTSIDE.append(subprocess.run([sys.executable, "-c", "print(1)"], check=True))
        else:
            child = os.fork()
            if not child:
                sound = not confinement._PASSES and confinement._LOCK.acquire(timeout=60)
                threading.Thread(target=int).start()
                os._exit(0 if sound else 1)
            OUTSIDE.append(os.waitpid(child, 0)[1] == 0)

    def act(model: Net, x: Tensor) -> None:
        if not OUTSIDE:
            HELPERS[-1].submit(other).result()

    clipped_gradient_sum(Net(act), by_example, *data(), CLIP)
    assert len(OUTSIDE) == 1
    assert OUTSIDE[0]


class Rows(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, place: int) -> Any:
        inputs, targets = data()
        return inputs[place], targets[place]


@pytest.mark.filterwarnings("ignore")
def test_a_data_loader_with_workers_trains() -> None:
    loader = torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2, pin_memory=True)
    assert still(Net()).fit(loader).guarantee.epsilon < math.inf


def test_a_program_that_trained_ends_in_silence() -> None:
    """The audit hook runs until modules have lost their names."""
    program = """
import ctypes, sys, threading
import torch, tacit
from tacit.training import Plan, Trainer

class Late:
    def __del__(self, start=threading.Thread, string=ctypes.string_at, text=ctypes.c_char_p(b"x")):
        string(text)

sys.late = Late()
model = torch.nn.Linear(3, 2)
plan = Plan(population=20, batch_size=20, steps=1, noise_multiplier=1.0, delta=1e-5)
loss = torch.nn.CrossEntropyLoss()
trainer = Trainer(model, loss, torch.optim.SGD(model.parameters(), lr=0.1), plan, progress=False)
trainer.fit((torch.randn(20, 3), torch.zeros(20).long()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""


class Lying(Tensor):
    """A tensor that says it lies in a public storage, and that it has one row."""

    there = torch.zeros(4)

    def untyped_storage(self) -> Any:
        return Lying.there.untyped_storage()

    def size(self, *given: Any) -> Any:
        return torch.Size((1, 4))

    def stride(self, *given: Any) -> Any:
        return (4, 1)


class Believed(nn.Module):
    """Adds the mean over the batch, once its layers have been watched, by way of tensors that lie."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.there = nn.Linear(4, 4), Lying.there

    def forward(self, x: Tensor) -> Tensor:
        rows = x.detach().clone().as_subclass(Lying) if OUTSIDE else self.there[None]
        with torch._C.DisableTorchFunctionSubclass():
            mean = torch.ops.aten.mean.dim(rows, [0], True)
        return self.layer(x) + mean.as_subclass(Tensor)


def test_a_tensor_is_not_asked_where_it_lies() -> None:
    model, x, zeros = Believed(), torch.randn(6, 4), torch.zeros(6, 4)
    other = x.clone()
    other[0] += 100
    try:
        clipped_gradient_sum(model, squared, x, zeros, CLIP)
        OUTSIDE.append("watched")
        try:
            norms = [clipped_gradient_sum(model, squared, each, zeros, CLIP)[1] for each in (x, other)]
        except NotIsolated:
            return
        assert torch.equal(norms[0][1:], norms[1][1:])
    finally:
        OUTSIDE.clear()
