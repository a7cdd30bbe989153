"""Clipped sums and norms equal a plain loop over examples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tacit.errors import InvalidValue
from tacit.training import clipped_gradient_sum
from tacit.training.batches import tree
from tacit.training.gradients import routes
from tacit.training.gradients.norms import row_norms
from tacit.training.gradients.pieces import half_gram
from tacit.training.gradients.routes import Parts, routes_for
from training.oracle import assert_equal_to_loop, squared
from training.zoo import BATCH, ZOO

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


def doubled(leaf: object) -> object:
    return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("examples", [BATCH, 1])
def test_zoo(name: str, examples: int) -> None:
    torch.manual_seed(1)
    make, draw = ZOO[name]
    model = make().double()
    inputs = tree.mapped(lambda leaf: doubled(leaf)[:examples], draw())
    targets = torch.randn(examples, dtype=torch.float64)
    norms = assert_equal_to_loop(model, inputs, targets)
    assert norms.shape == (examples,)
    assert (norms > 0).all()


def test_zoo_is_large() -> None:
    assert len(ZOO) >= 60


sizes = st.integers(1, 6)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.lists(sizes, max_size=2), sizes, sizes, st.booleans(), st.integers(0, 10**6))
def test_linear(examples: int, positions: list[int], width: int, height: int, bias: bool, seed: int) -> None:
    torch.manual_seed(seed)
    model = nn.Linear(width, height, bias).double()
    inputs = torch.randn(examples, *positions, width, dtype=torch.float64)
    assert_equal_to_loop(model, inputs, torch.randn(examples, dtype=torch.float64))


@pytest.mark.parametrize(("positions", "width"), [(47, 100), (48, 100), (51, 110), (130, 270)])
def test_long_sequences(positions: int, width: int) -> None:
    """Norms from Gram matrices, of which half is computed in blocks."""
    torch.manual_seed(positions)
    blocks = len(half_gram(torch.zeros(1, positions, 1)))
    assert blocks == {47: 1, 48: 2, 51: 2, 130: 4}[positions]
    model = nn.Linear(width, width, dtype=torch.float64)
    inputs = torch.randn(2, positions, width, dtype=torch.float64)
    assert_equal_to_loop(model, inputs, torch.randn(2, dtype=torch.float64))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_conv(data: st.DataObject) -> None:
    draw = data.draw
    torch.manual_seed(draw(st.integers(0, 10**6)))
    dimensions, groups = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    kernel = [draw(st.integers(1, 3)) for _ in range(dimensions)]
    same = draw(st.booleans())
    dilation = [draw(st.integers(1, 2)) for _ in range(dimensions)]
    stride = 1 if same else [draw(st.integers(1, 2)) for _ in range(dimensions)]
    padding = "same" if same else [draw(st.integers(0, 1)) for _ in range(dimensions)]
    mode = draw(st.sampled_from(["zeros", "circular", "replicate"]))
    model = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1](
        groups * draw(st.integers(1, 2)),
        groups * draw(st.integers(1, 3)),
        kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        bias=draw(st.booleans()),
        padding_mode=mode,
    ).double()
    examples = draw(st.integers(1, 4))
    sizes = [draw(st.integers(5, 6)) for _ in range(dimensions)]
    inputs = torch.randn(examples, model.in_channels, *sizes, dtype=torch.float64)
    assert_equal_to_loop(model, inputs, torch.randn(examples, dtype=torch.float64))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 5),
    st.lists(sizes, max_size=2),
    st.integers(1, 9),
    sizes,
    st.booleans(),
    st.integers(0, 10**6),
)
def test_embedding(
    examples: int, positions: list[int], rows: int, width: int, padded: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    model = nn.Embedding(rows, width, padding_idx=rows - 1 if padded else None).double()
    indices = torch.randint(0, rows, (examples, *positions))
    assert_equal_to_loop(model, indices, torch.randn(examples, dtype=torch.float64))


@pytest.mark.parametrize(
    "name",
    ["class token", "gpt", "positions, cut", "positions, in place", "scales together", "token expanded",
     "learned start", "lstm", "transposed conv", "batch norm, evaluating", "recomputed", "bare product",
     "mixed uses", "product, turned", "product on the left", "product by head", "product with a vector",
     "linear, bare", "linear, frozen weight", "addmm", "einsum", "einsum, dots", "einsum by head",
     "einsum of three", "einsum, two places", "einsum, in another order", "low rank", "bilinear",
     "bilinear, sequence", "weight norm", "weight norm, sequence", "weight norm, columns",
     "weight norm, used again", "weight norm of a convolution", "weight norm, same padding",
     "weight norm by hooks", "spectral norm, evaluating", "orthogonal", "masked weight", "bag of words",
     "bag, sum", "bag, mean with padding", "bag, weighted", "bag, learned weights", "bag, offsets",
     "bag, all offsets", "table, bare", "tied embedding, bare"],
)  # fmt: skip
def test_no_second_pass(name: str) -> None:
    """Common ways to use a parameter outside layers are served, and proved, without the fallback."""
    make, draw = ZOO[name]
    model, inputs = make(), draw()
    targets = torch.randn(BATCH)
    clipped_gradient_sum(model, squared, inputs, targets, 1.0)

    def made(*_: Any) -> bool:
        pytest.fail("The routes were made anew.")

    routes = routes_for(Parts(model), squared, inputs, targets, made, made)
    assert routes.fallback == ()
    assert not routes.program.alone


def test_spectral_norm_is_put_back() -> None:
    """Its vectors move with every pass, by the weights alone: all examples begin at the same ones."""
    torch.manual_seed(0)
    model = nn.utils.parametrizations.spectral_norm(nn.Linear(30, 20)).double()
    buffers = {name: each.clone() for name, each in model.named_buffers()}
    inputs, targets = torch.randn(BATCH, 30).double(), torch.randn(BATCH).double()
    found, _ = clipped_gradient_sum(model, squared, inputs, targets, 1e9)
    assert all(torch.equal(each, buffers[name]) for name, each in model.named_buffers())
    squared(model(inputs), targets).sum().backward()
    for name, each in model.named_parameters():
        torch.testing.assert_close(found[name], each.grad)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_weight_norm_of_gradients_along_the_weight(shape: tuple[int, ...]) -> None:
    """The part along the weight is taken away: hardly anything is left of an example that lies along it."""
    torch.manual_seed(0)
    model = nn.utils.parametrizations.weight_norm(nn.Linear(40, 30)).double()
    inputs = torch.randn(BATCH, *shape, 40, dtype=torch.float64)
    inputs[0] = model.weight[0].detach() * 1e6
    with torch.no_grad():
        model.parametrizations.weight.original1[1:] = model.parametrizations.weight.original1[0]
    norms = assert_equal_to_loop(model, inputs, torch.randn(BATCH, dtype=torch.float64))
    assert norms[0] > 100 * norms[1:].max()


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("values", [(1, 2, 2), (2, 2, 2), (5, 6, 1)])
def test_bag_of_one_word_again_and_again(mode: str, values: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model = nn.EmbeddingBag(7, 4, mode=mode, padding_idx=2).double()
    inputs = torch.tensor([values, (0, 0, 0), (3, 0, 2)])
    assert_equal_to_loop(model, inputs, torch.randn(3).double())


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_recurrence(data: st.DataObject) -> None:
    draw = data.draw
    torch.manual_seed(draw(st.integers(0, 10**6)))
    kind = draw(st.sampled_from([nn.LSTM, nn.GRU, nn.RNN]))
    first = draw(st.booleans())
    options = {"num_layers": draw(st.integers(1, 2)), "bias": draw(st.booleans())}
    options |= {"bidirectional": draw(st.booleans()), "batch_first": first}
    if kind is nn.LSTM and draw(st.booleans()):
        options["proj_size"] = 2
    inner = kind(draw(sizes), draw(st.integers(3, 6)), **options)
    examples, length = draw(st.integers(1, 4)), draw(st.integers(1, 30))
    inputs = torch.randn(examples, length, inner.input_size, dtype=torch.float64)
    assert_equal_to_loop(Timed(inner).double(), inputs, torch.randn(examples, dtype=torch.float64))


class Timed(nn.Module):
    """All outputs and last states of a recurrence."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values, last = self.inner(x if self.inner.batch_first else x.transpose(0, 1))
        values = values if self.inner.batch_first else values.transpose(0, 1)
        states = last if isinstance(last, tuple) else (last,)
        flat = [each.transpose(0, 1).flatten(1) for each in states]
        return torch.cat([values.flatten(1), *flat], 1)


class Turning(nn.Module):
    """Uses its parameter in one way for small batches and in another for large ones."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = nn.Linear(3, 3), nn.Parameter(torch.randn(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.inner(x)) * self.scale
        return x + torch.softmax(self.scale, 0) if len(x) > 3 else x


def test_uses_that_depend_on_the_batch() -> None:
    torch.manual_seed(0)
    model = Turning().double()
    # Each example as a batch of one, as in the loop.
    assert_equal_to_loop(model, torch.randn(BATCH, 3).double(), torch.randn(BATCH).double())


@pytest.mark.parametrize("frozen", [True, False])
def test_compiled(frozen: bool) -> None:
    """All of it runs as written: what compiled code does with its examples cannot be followed."""
    torch.manual_seed(0)
    runs = []

    def backend(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            runs.append(len(args))
            return graph(*args)

        return run

    inner = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh()).double().requires_grad_(not frozen)
    model = nn.Sequential(torch.compile(inner, backend=backend), nn.Linear(4, 2).double())
    inputs, targets = torch.randn(BATCH, 3).double(), torch.randn(BATCH).double()
    assert_equal_to_loop(model, inputs, targets)
    runs.clear()
    clipped_gradient_sum(model, squared, inputs, targets, 1.0)
    assert not runs


@pytest.mark.parametrize("wrap", [torch.jit.script, nn.DataParallel])
@pytest.mark.filterwarnings("ignore")
def test_layers_out_of_reach_are_refused(wrap: Any) -> None:
    model = nn.Sequential(nn.Tanh(), wrap(nn.Linear(3, 2)))
    with pytest.raises(InvalidValue, match=r"layer '1'.*module it was made from"):
        clipped_gradient_sum(model, squared, torch.randn(BATCH, 3), torch.randn(BATCH), 1.0)


@pytest.mark.parametrize("turned", [False, True])
def test_long_rows_do_not_come_out_short(turned: bool) -> None:
    """Squares too small to move a large float32 sum count all the same."""
    rows = torch.full((3, 150_528), 2**-12.2)
    rows[:, :8] = 1.0
    rows = rows.t().contiguous().t() if turned else rows
    exact = rows.double().norm(dim=1)
    assert ((row_norms(rows) / exact - 1).abs() < 5e-6).all()
    assert (torch.linalg.vector_norm(rows, dim=1) / exact - 1).min() < -1e-4
    model = nn.Linear(150_528, 1, bias=False)
    _, norms = clipped_gradient_sum(model, lambda out, _: out[:, 0], rows, torch.zeros(3), 1.0)
    assert (norms > exact * (1 - 1e-5)).all()


def _rooted(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """One more than a root, whose derivative at 0 is no number."""
    return outputs.abs().sum(1).sqrt() + 1


def _hinge(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs[:, 0] - 100 * targets).clamp(min=-50) + 60


def _weighted(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return squared(outputs, targets) * (1 - targets)


@pytest.mark.parametrize("row", [0, 10, 19])
@pytest.mark.parametrize("loss", [_rooted, _hinge, _weighted])
def test_a_row_without_a_gradient_does_not_choose_how_all_are_computed(loss: Any, row: int) -> None:
    """An example that adds nothing tells nothing about the routes, and must not leave all to the fallback."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2, bias=False)
    inputs, targets = torch.randn(20, 4), torch.zeros(20)
    inputs[row], targets[row] = 0, 1
    _, norms = clipped_gradient_sum(model, loss, inputs, targets, 1.0)
    assert not 1e-15 < norms[row] < torch.inf
    assert [each.fallback for each in routes._ROUTES[model].values()] == [()]
