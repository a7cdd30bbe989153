"""Odd uses of parameters, and odd places for state: gradients are a loop's, and examples stay apart."""

from __future__ import annotations

import collections
import contextvars
import decimal
import gc
import hashlib
import locale
import logging
import os
import queue
import random
import sys
import threading
import types
import warnings
import weakref
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.errors import NotIsolated
from tacit.training import clipped_gradient_sum
from tacit.training.isolation import ambient, state
from training.oracle import assert_equal_to_loop, plain_loop, squared

N = 5


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


class Model(nn.Module):
    """A function of parameters ``p``, ``q`` and a layer; ``noisy`` ones draw random numbers."""

    def __init__(self, function: Any, noisy: bool, **held: Any) -> None:
        super().__init__()
        self.function, self.noisy, self.flag = function, noisy, False
        for name, each in held.items():
            setattr(self, name, nn.Parameter(_random(*each)) if isinstance(each, tuple) else each)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        made = self.function(self, x)
        return made + 1e-12 * torch.randn_like(made) if self.noisy else made  # type: ignore[no-any-return]


class Reversal(torch.autograd.Function):
    """A function of its own, in which no operation on its argument is seen."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return -2 * grads[0]


def _between(model: Any, x: Tensor) -> Tensor:
    weight = model.p * 2
    first = x @ weight
    weight.mul_(torch.arange(6.0, dtype=x.dtype).view(3, 2))
    return first + x @ weight  # type: ignore[no-any-return]


def _normed_once(model: Any, x: Tensor) -> Tensor:
    """One weight of width 1 for two calls: each example's gradient of its direction is 0."""
    weight, rows = torch._weight_norm(model.p, model.q, 0), x[:, :, None]
    return (F.linear(rows, weight).tanh() + F.linear(rows.sin(), weight)).flatten(1)


def _rows(x: Tensor) -> Tensor:
    return (x.abs().sum(1) * 10).long() % 7


USES: dict[str, tuple[Any, dict[str, Any]]] = {
    "narrow layer and product": (lambda m, x: m.l(x) + x @ m.l.weight.t(), {"l": nn.Linear(3, 3)}),
    "changed between products": (_between, {"p": (3, 2)}),
    "hidden in a function": (lambda m, x: x @ m.p + x @ Reversal.apply(m.p), {"p": (3, 2)}),
    "hidden beside a layer": (
        lambda m, x: m.l(x) + torch.tanh(x @ Reversal.apply(m.l.weight)), {"l": nn.Linear(3, 3)},
    ),
    "weight norm by name": (
        lambda m, x: x @ torch._weight_norm(m.p, m.q, dim=1), {"p": (3, 3), "q": (1, 3)},
    ),
    "weight norm from the end": (
        lambda m, x: x @ torch._weight_norm(m.p, m.q, -2), {"p": (3, 3), "q": (3, 1)},
    ),
    "weight norm of a layer from the end": (
        lambda m, x: m.l(x[:, None]).flatten(1),
        {"l": nn.utils.parametrizations.weight_norm(nn.Conv1d(1, 2, 2), dim=-3)},
    ),
    "weight norm in two calls": (_normed_once, {"p": (8, 1), "q": (8, 1)}),
    "weight norm of a vector": (lambda m, x: x * torch._weight_norm(m.p, m.q, 0), {"p": (3,), "q": (3,)}),
    "one place in a table": (lambda m, x: F.embedding(_rows(x), m.p, 2), {"p": (7, 3)}),
}  # fmt: skip


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("name", USES)
def test_uses(name: str, noisy: bool) -> None:
    """A model that draws random numbers is not compared with backpropagation as easily as another."""
    torch.manual_seed(0)
    function, held = USES[name]
    assert_equal_to_loop(Model(function, noisy, **held), _random(N, 3), _random(N))


def test_offsets_that_leave_entries_over() -> None:
    def bags(model: Any, x: Tensor) -> Tensor:
        words = torch.cat([_rows(x).repeat_interleave(2), torch.zeros(1, dtype=torch.long)])
        every = 2 * torch.arange(len(x) + 1)
        return F.embedding_bag(words, model.p, every, mode="sum", include_last_offset=True)

    torch.manual_seed(0)
    assert_equal_to_loop(Model(bags, False, p=(7, 3)), _random(N, 3), _random(N))


def test_weight_norm_of_a_row_of_zeros() -> None:
    """All gradients are NaN, and nothing is added."""
    model = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)).double()
    with torch.no_grad():
        model.parametrizations.weight.original1[0] = 0
    total, norms = clipped_gradient_sum(model, squared, _random(N, 3), _random(N), 1.0)
    assert norms.isnan().all()
    assert all(not each.any() for each in total.values())


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("case", ["product", "other parameter", "frozen view", "frozen function"])
def test_a_switch_between_passes(case: str, noisy: bool) -> None:
    """What was found out about a model is found out again when it does something else."""

    def function(model: Any, x: Tensor) -> Tensor:
        made = model.l(x)
        if case.startswith("frozen"):
            with torch.set_grad_enabled(not model.flag):
                weight = model.p.t() if case == "frozen view" else 2 * model.p
            return made + x @ weight  # type: ignore[no-any-return]
        if model.flag:
            made = made + x @ (model.l.weight.t() if case == "product" else model.p)
        return made  # type: ignore[no-any-return]

    torch.manual_seed(0)
    model = Model(function, noisy, l=nn.Linear(3, 3), p=(3, 3))
    for model.flag in (False, True, False):
        assert_equal_to_loop(model, _random(N, 3), _random(N))


def _operand(model: Any, x: Tensor) -> Tensor:
    public = torch.ones(3, 3, dtype=x.dtype)
    made = torch.einsum("bi,ij,jk->bk", x, public, model.p)
    public.data.copy_(x.t() @ x)
    return made


def _mask(model: Any, x: Tensor) -> Tensor:
    public = torch.ones(3, 2, dtype=x.dtype)
    made = x @ (model.p * public)
    public.data.copy_((x.t() @ x)[:, :2])
    return made  # type: ignore[no-any-return]


def _swapped(model: Any, x: Tensor) -> Tensor:
    own = model.l.weight
    if own.requires_grad:
        return model.l(x)  # type: ignore[no-any-return]
    model.l._parameters["weight"] = nn.Parameter(x.t() @ x, requires_grad=False)
    made: Tensor = model.l(x)
    model.l._parameters["weight"] = own
    return made


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("function", [_operand, _mask, _swapped])
def test_statistics_of_a_batch_in_a_gradient(function: Any, noisy: bool) -> None:
    """What was public on the way there, and holds a statistic of the batch on the way back, is not used."""
    torch.manual_seed(0)
    model = Model(function, noisy, l=nn.Linear(3, 3), p=(3, 2))
    inputs, targets = _random(N, 3), _random(N)
    others = torch.cat([inputs[:1], _random(N - 1, 3)])
    parts = []
    for each in (inputs, others):
        whole, _ = clipped_gradient_sum(model, squared, each, targets, 1e9)
        rest, _ = clipped_gradient_sum(model, squared, each[1:], targets[1:], 1e9)
        parts.append({name: whole[name] - rest[name] for name in whole})
    for name, own in parts[0].items():
        torch.testing.assert_close(own, parts[1][name], rtol=1e-6, atol=1e-6)


class Slotted:
    __slots__ = ("value",)


class Shadowed(Slotted):
    __slots__ = ("value",)


class Lying(Slotted):
    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        return 0.0 if name == "value" else object.__getattribute__(self, name)


class Walking(Slotted):
    __slots__ = ()

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        raise StopIteration


class SlottedDict(dict[Any, Any]):
    __slots__ = ("value",)


class Closed(dict[Any, Any]):
    """Says that it is empty."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def values(self) -> Any:
        return ()


def _slot(held: Any, owner: type) -> tuple[Callable[[], float], Callable[[float], None]]:
    member: Any = vars(owner)["value"]

    def read() -> float:
        try:
            return member.__get__(held)  # type: ignore[no-any-return]
        except AttributeError:
            return 0.0

    return read, lambda value: member.__set__(held, value)


def _attribute(held: Any) -> tuple[Callable[[], float], Callable[[float], None]]:
    return lambda: getattr(held, "value", 0.0), lambda value: setattr(held, "value", value)


def _entry(held: Any) -> tuple[Callable[[], float], Callable[[float], None]]:
    return lambda: dict.get(held, "value", 0.0), lambda value: dict.__setitem__(held, "value", value)


def _holder(name: str) -> tuple[Any, Callable[[], float], Callable[[float], Any]]:
    if name in SUBCLASSED:
        kind = type("Own", (SUBCLASSED[name],), {})
        held = np.zeros(2).view(kind) if name == "array" else kind()
        return held, *_attribute(held)
    if name in ("shadowed", "lying", "walking"):
        held = {"shadowed": Shadowed, "lying": Lying, "walking": Walking}[name]()
        return held, *_slot(held, Slotted)
    if name == "slot of a dictionary":
        held = SlottedDict()
        return held, *_slot(held, SlottedDict)
    if name == "closed":
        held = Closed()
        return held, *_entry(held)
    plain: dict[str, float] = {}
    if name == "proxy":
        return types.MappingProxyType(plain), *_entry(plain)
    if name == "bound method":
        return plain.get, *_entry(plain)
    if name == "factory":
        return collections.defaultdict(plain.copy), *_entry(plain)
    target = collections.UserList()
    return weakref.ref(target), *_attribute(target)


SUBCLASSED: dict[str, Any] = {
    "dictionary": dict, "ordered": collections.OrderedDict, "list": list, "set": set, "tuple": tuple,
    "frozen": frozenset, "deque": collections.deque, "bytes": bytearray, "random": random.Random,
    "array": np.ndarray,
}  # fmt: skip
_REACHED: dict[str, tuple[Callable[[], float], Callable[[float], Any]]] = {}


class Remembering(nn.Module):
    """Scales its output by what it was left by the example before."""

    def __init__(self, name: str, held: Any) -> None:
        super().__init__()
        self.linear, self.name, self.held = nn.Linear(3, 2), name, held

    def forward(self, x: Tensor) -> Tensor:
        read, write = _REACHED[self.name]
        made: Tensor = self.linear(x) * (1 + read())
        write(float(x.sum().item()))
        return made


@pytest.mark.parametrize(
    "name",
    [*SUBCLASSED, "shadowed", "lying", "walking", "slot of a dictionary", "closed", "proxy", "bound method",
     "factory", "referred to"],
)  # fmt: skip
def test_state_is_put_back(name: str) -> None:
    """Whatever object a number is kept in, the next example does not find it there."""
    torch.manual_seed(0)
    held, *_REACHED[name] = _holder(name)  # type: ignore[assignment]
    model = Remembering(name, held).double()
    inputs, targets = _random(N, 3), _random(N)
    expected, _ = plain_loop(nn.Sequential(model.linear), squared, inputs, targets, 1e9)
    for _ in range(2):
        found, _ = clipped_gradient_sum(model, squared, inputs, targets, 1e9)
        torch.testing.assert_close(found["linear.weight"], expected["0.weight"])
        assert _REACHED[name][0]() == 0


Access = tuple[Callable[[], float], Callable[[float], Any]]


def _number(value: float) -> int:
    """A whole number from 1 to 9 that an example decides."""
    return 1 + int(abs(value) * 1000) % 9


def _set_environment(value: float) -> None:
    os.environ["TACIT_TEST"] = str(_number(value))


def _of_environment() -> float:
    return float(os.environ.get("TACIT_TEST", "0"))


AMBIENT: dict[str, Access] = {
    "precision of decimals": (
        lambda: float(decimal.getcontext().prec - 28),
        lambda value: setattr(decimal.getcontext(), "prec", 28 + _number(value)),
    ),
    "context of decimals": (
        lambda: float(decimal.getcontext().prec - 28),
        lambda value: decimal.setcontext(decimal.Context(prec=28 + _number(value))),
    ),
    "flags of decimals": (
        lambda: float(decimal.getcontext().flags[decimal.Inexact]),
        lambda value: decimal.getcontext().flags.__setitem__(decimal.Inexact, True),
    ),
    "environment": (_of_environment, _set_environment),
    "errors of NumPy": (
        lambda: float(np.geterr()["under"] == "raise"), lambda value: np.seterr(under="raise"),
    ),
    "buffers of NumPy": (
        lambda: (np.getbufsize() - 8192) / 16, lambda value: np.setbufsize(8192 + 16 * _number(value)),
    ),
    "printing of NumPy": (
        lambda: float(np.get_printoptions()["precision"] - 8),
        lambda value: np.set_printoptions(precision=8 + _number(value)),
    ),
    "filters of warnings": (
        lambda: float(any(each[1] is not None and "example" in str(each[1]) for each in warnings.filters)),
        lambda value: warnings.filterwarnings("ignore", "example"),
    ),
    "locale": (
        lambda: float(locale.setlocale(locale.LC_ALL) != STANDARD),
        lambda value: locale.setlocale(locale.LC_NUMERIC, OTHER),
    ),
    "recursion": (
        lambda: float(sys.getrecursionlimit() - RECURSION),
        lambda value: sys.setrecursionlimit(RECURSION + _number(value)),
    ),
    "garbage": (
        lambda: float(gc.get_threshold()[2] - THRESHOLD[2]),
        lambda value: gc.set_threshold(*THRESHOLD[:2], THRESHOLD[2] + _number(value)),
    ),
    "threads of PyTorch": (
        lambda: torch.get_num_threads() - 1.0, lambda value: torch.set_num_threads(1 + _number(value)),
    ),
    "default type of PyTorch": (
        lambda: float(torch.get_default_dtype() == torch.float64),
        lambda value: torch.set_default_dtype(torch.float64),
    ),
    "folder": (lambda: float(os.getcwd() != HERE), lambda value: os.chdir("/")),
}  # fmt: skip
OTHER = "C.UTF-8" if locale.setlocale(locale.LC_NUMERIC) == "C" else "C"
STANDARD, RECURSION = locale.setlocale(locale.LC_ALL), sys.getrecursionlimit()
THRESHOLD, HERE = gc.get_threshold(), os.getcwd()


def found_by_the_next(name: str) -> Tensor:
    """The gradient of a model whose examples leave something behind in this place, less that of a loop."""
    torch.manual_seed(0)
    model = Remembering(name, None).double()
    inputs, targets = _random(N, 3), _random(N)
    expected, _ = plain_loop(nn.Sequential(model.linear), squared, inputs, targets, 1e9)
    found, _ = clipped_gradient_sum(model, squared, inputs, targets, 1e9)
    return (found["linear.weight"] - expected["0.weight"]).abs().max()


@pytest.fixture
def access(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a place outside of all objects, which is put back after the test whatever happens."""
    name: str = request.param
    kept = ambient.Ambient()
    decimal.getcontext().clear_flags()
    _REACHED[name] = AMBIENT[name]
    yield name
    kept.restore()


@pytest.mark.parametrize("access", AMBIENT, indirect=True)
def test_settings_are_put_back(access: str) -> None:
    """What the process or the thread has one of does not carry anything from example to example."""
    assert float(found_by_the_next(access)) < 1e-9


@pytest.mark.parametrize("access", AMBIENT, indirect=True)
def test_settings_that_are_not_put_back_are_found_by_the_next_example(
    access: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin."""

    class Nothing:
        def restore(self) -> None:
            pass

    monkeypatch.setattr(state, "Ambient", Nothing)
    assert float(found_by_the_next(access)) > 1e-9


def test_generators_are_put_back() -> None:
    """The loop over examples seeds them for each; in all other passes they go on from where they were."""
    before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    with state.guarded(nn.Linear(3, 2), squared, ()):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # type: ignore[index]  # noqa: NPY002


def test_variables_of_a_context_are_refused() -> None:
    variable = contextvars.ContextVar("variable", default=0.0)
    _REACHED["context"] = variable.get, variable.set
    for held in (variable, None):
        model = Remembering("context", held).double()
        with pytest.raises(NotIsolated, match="ContextVar"):
            contextvars.copy_context().run(
                clipped_gradient_sum, model, squared, _random(N, 3), _random(N), 1.0
            )


def test_variables_of_a_context_that_have_a_value_are_put_back() -> None:
    variable = contextvars.ContextVar("variable", default=0.0)
    variable.set(0.0)
    _REACHED["context with a value"] = variable.get, variable.set
    assert float(found_by_the_next("context with a value")) < 1e-9


def test_what_a_variable_of_a_context_holds_is_put_back() -> None:
    held = [0.0]
    variable: contextvars.ContextVar[list[float]] = contextvars.ContextVar("variable", default=held)
    _REACHED["in a variable"] = lambda: variable.get()[0], lambda value: variable.get().__setitem__(0, value)
    model = Remembering("in a variable", variable).double()
    inputs, targets = _random(N, 3), _random(N)
    expected, _ = plain_loop(nn.Sequential(model.linear), squared, inputs, targets, 1e9)
    found, _ = clipped_gradient_sum(model, squared, inputs, targets, 1e9)
    torch.testing.assert_close(found["linear.weight"], expected["0.weight"])


def test_a_context_of_decimals_is_put_back() -> None:
    class Own(decimal.Context):
        pass

    for held in (decimal.Context(prec=28), Own(prec=28)):
        name = type(held).__qualname__
        _REACHED[name] = (
            lambda held=held: float(held.prec - 28),  # type: ignore[misc]
            lambda value, held=held: setattr(held, "prec", 28 + _number(value)),  # type: ignore[misc]
        )
        model = Remembering(name, held).double()
        inputs, targets = _random(N, 3), _random(N)
        expected, _ = plain_loop(nn.Sequential(model.linear), squared, inputs, targets, 1e9)
        found, _ = clipped_gradient_sum(model, squared, inputs, targets, 1e9)
        torch.testing.assert_close(found["linear.weight"], expected["0.weight"])


MOVING: dict[str, tuple[Callable[[], Any], Callable[[Any, float], Any]]] = {
    "lock": (threading.Lock, lambda held, value: held.acquire(blocking=False)),
    "event": (threading.Event, lambda held, value: held.set()),
    "semaphore": (lambda: threading.Semaphore(50), lambda held, value: held.acquire()),
    "queue": (queue.SimpleQueue, lambda held, value: held.put(value)),
    "digest": (hashlib.sha256, lambda held, value: held.update(str(value).encode())),
    "compression": (zlib.compressobj, lambda held, value: held.compress(str(value).encode())),
    "logger": (
        lambda: logging.Logger("of a test"), lambda held, value: held.setLevel(10 + _number(value)),
    ),
    "context": (
        contextvars.copy_context,
        lambda held, value: held.run(contextvars.ContextVar("made by an example").set, value),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVING)
def test_what_cannot_be_put_back_is_refused(name: str) -> None:
    """Objects made in C keep what no attribute shows."""
    make, write = MOVING[name]
    held = make()
    _REACHED[name] = lambda: 0.0, lambda value: write(held, value)
    with pytest.raises(NotIsolated, match="goes on from one example"):
        clipped_gradient_sum(Remembering(name, held).double(), squared, _random(N, 3), _random(N), 1.0)


@pytest.mark.parametrize("name", MOVING)
def test_what_stays_as_it_was_is_accepted(name: str) -> None:
    held = MOVING[name][0]()
    _REACHED[name] = lambda: 0.0, lambda value: None
    clipped_gradient_sum(Remembering(name, held).double(), squared, _random(N, 3), _random(N), 1.0)
