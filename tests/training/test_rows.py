"""Models in which rows of a layer are not examples, and numbers that float32 cannot see."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tacit.errors import InvalidValue
from tacit.training import clipped_gradient_sum

CLIP = 1.0


def size(total: dict[str, Tensor]) -> float:
    return math.sqrt(sum(float(each.double().square().sum()) for each in total.values()))


def summed(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.flatten(1).sum(1) * targets


def distance(one: dict[str, Tensor], two: dict[str, Tensor]) -> float:
    return size({name: one[name] - two[name] for name in one})


class Masked(nn.Module):
    """A head on the marked positions alone, whoever they belong to."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        made = x.new_zeros(*x.shape[:2], 3)
        made[mask] = self.head(x[mask])
        return made


class Sorted(nn.Module):
    """Puts its rows in order of length, and back."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        order = x.norm(dim=1).argsort()
        hidden: Tensor = self.first(x[order]).tanh()
        made: Tensor = self.second(hidden[order.argsort()])
        return made


class Windows(nn.Module):
    """Attention over as many windows as the data have."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        count = int(x[:, 0, 0].sum())
        windows = x.reshape(count, -1, 4)
        made: Tensor = self.attention(windows, windows, windows)[0]
        return made.reshape(x.shape)


def test_rows_chosen_by_value_are_bounded() -> None:
    model = Masked()
    examples, positions = 6, 6
    x = 10 * torch.randn(examples, positions, 4)
    benign = torch.eye(examples, dtype=torch.bool)
    crowded = torch.zeros(examples, positions, dtype=torch.bool)
    crowded[0] = True
    ones = torch.ones(examples)
    clipped_gradient_sum(model, summed, (x, benign), ones, CLIP)
    total, norms = clipped_gradient_sum(model, summed, (x, crowded), ones, CLIP)
    assert len(norms) == examples
    assert size(total) <= CLIP * 1.0001


@pytest.mark.parametrize("examples", [2, 3, 8])
def test_rows_put_in_another_order_keep_their_factors(examples: int) -> None:
    torch.manual_seed(2)
    model = Sorted()
    x, targets = torch.randn(examples, 4) * torch.logspace(-2, 2, examples)[:, None], torch.ones(examples)
    total, _ = clipped_gradient_sum(model, summed, x, targets, CLIP)
    for left in range(examples):
        kept = [row for row in range(examples) if row != left]
        other, _ = clipped_gradient_sum(model, summed, x[kept], targets[kept], CLIP)
        assert distance(total, other) <= CLIP * 1.0001


def test_windows_counted_by_value_are_bounded() -> None:
    model = Windows()
    for count in (1, 4, 16):
        x = torch.randn(1, 16, 4)
        x[0, 0, 0] = count
        total, norms = clipped_gradient_sum(model, summed, x, torch.ones(1) * 100, CLIP)
        assert norms.shape == (1,)
        assert size(total) <= CLIP * 1.0001


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.TransformerEncoderLayer(4, 2, 8, batch_first=False), (5, 3, 4)),
        (nn.LSTM(4, 4), (5, 3, 4)),
        (nn.LSTM(4, 4), (5, 4)),
        (nn.GRU(4, 4), (5, 4)),
    ],
    ids=["encoder", "lstm", "flat lstm", "flat gru"],
)
def test_examples_that_would_be_a_sequence_are_refused(model: nn.Module, shape: tuple[int, ...]) -> None:
    def loss(outputs: Any, targets: Tensor) -> Tensor:
        values = outputs[0] if isinstance(outputs, tuple) else outputs
        return values.flatten(1).sum(1)

    with pytest.raises(InvalidValue, match="batch_first"):
        clipped_gradient_sum(model, loss, torch.randn(shape), torch.ones(5), CLIP)


@pytest.mark.parametrize(
    ("model", "inputs", "targets"),
    [
        (nn.Linear(16, 4096, bias=False), torch.full((1, 16), 4e18), torch.full((1,), 2.5e-23)),
        (nn.Linear(512, 2048, bias=False), torch.full((1, 64, 512), 7.4e17), torch.full((1,), 2.6e-23)),
        (
            nn.Conv2d(64, 64, 3, padding=1, bias=False),
            torch.full((1, 64, 4, 4), 3e17),
            torch.full((1,), 2e-23),
        ),
    ],
    ids=["vector", "gram", "convolution"],
)
@pytest.mark.parametrize("clip_norm", [1e-4, 1.0])
def test_gradients_too_small_to_square_are_not_taken_for_none(
    model: nn.Module, inputs: Tensor, targets: Tensor, clip_norm: float
) -> None:
    total, _ = clipped_gradient_sum(model, summed, inputs, targets, clip_norm)
    assert size(total) <= clip_norm * 1.0001


class Counting(nn.Module):
    """Keeps a running mean of what it sees."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.mean += x.mean(0)
        made: Tensor = self.layer(x)
        return made


def test_buffers_that_remember_the_data_are_refused() -> None:
    with pytest.raises(InvalidValue, match="buffer 'mean'"):
        clipped_gradient_sum(Counting(), summed, torch.randn(3, 4), torch.ones(3), CLIP)


def test_a_loss_that_uses_parameters_is_refused() -> None:
    model = nn.Linear(4, 2)
    with pytest.raises(InvalidValue, match="weight_decay"):
        clipped_gradient_sum(
            model, lambda o, t: o.sum(1) + model.weight.square().sum(), torch.randn(3, 4), torch.ones(3), CLIP
        )


def test_complex_parameters_are_refused() -> None:
    with pytest.raises(InvalidValue, match="real"):
        clipped_gradient_sum(
            nn.Linear(4, 2, dtype=torch.complex64), summed, torch.randn(3, 4), torch.ones(3), CLIP
        )


def test_the_callers_autocast_does_not_round_the_sum() -> None:
    model = nn.Linear(16, 4)
    x, targets = torch.randn(515, 16), torch.full((515,), 100.0)
    with torch.autocast("cpu", torch.bfloat16):
        total, _ = clipped_gradient_sum(model, summed, x, targets, CLIP)
        fewer, _ = clipped_gradient_sum(model, summed, x[1:], targets[1:], CLIP)
    assert all(each.dtype == torch.float32 for each in total.values())
    assert distance(total, fewer) <= CLIP * 1.001


@pytest.mark.parametrize("eval_mode", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_masks_do_not_decide_whether_it_runs(eval_mode: bool, left: bool) -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 1)
    model.train(not eval_mode)
    mask = torch.zeros(3, 5, dtype=torch.bool)
    mask[:, -1] = True
    if left:
        mask[1] = torch.tensor([True, False, False, False, False])
    inputs = {"src": torch.randn(3, 5, 4), "src_key_padding_mask": mask}
    _, norms = clipped_gradient_sum(model, summed, inputs, torch.ones(3), CLIP)
    assert norms.isfinite().all()


class Reduced(nn.Module):
    """Spreads a parameter over the examples and averages it again."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(4))
        self.layer = nn.Linear(3, 4)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        count = len(x)
        if self.how == "mean":
            return x * self.scale.expand(count, -1).mean(0)
        if self.how == "first":
            return x * self.scale.expand(count, -1)[0]
        if self.how == "layer":
            return x * self.layer(torch.ones(count, 3)).mean(0)
        if self.how == "backwards":
            hidden = x[torch.arange(count - 1, -1, -1)] * self.scale
            return hidden[torch.arange(count - 1, -1, -1)]
        if self.how == "rolled":
            hidden = torch.cat([x, x])[1 : count + 1] * self.scale
            return torch.cat([hidden, hidden])[count - 1 : 2 * count - 1]
        raise ValueError(self.how)


@pytest.mark.parametrize("how", ["mean", "first", "layer", "backwards", "rolled"])
@pytest.mark.parametrize("examples", [2, 3, 40])
def test_rows_that_are_nobodys_are_bounded(how: str, examples: int) -> None:
    torch.manual_seed(3)
    model = Reduced(how)
    x, targets = torch.randn(examples, 4), torch.randn(examples)
    total, norms = clipped_gradient_sum(model, summed, x, targets, 0.1)
    alone = [clipped_gradient_sum(model, summed, x[[i]], targets[[i]], 0.1) for i in range(examples)]
    assert torch.allclose(norms, torch.cat([each for _, each in alone]), rtol=1e-4)
    added = {name: sum(each[name] for each, _ in alone) for name in total}
    assert distance(total, added) < 1e-4  # type: ignore[arg-type]


def test_a_layer_called_by_the_chunk_is_exact() -> None:
    class Chunked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(4, 3, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([self.layer(x[at : at + 4])[0] for at in range(0, len(x), 4)])

    model = Chunked()
    for examples in (3, 4, 5, 8):
        x, targets = torch.randn(examples, 2, 4), torch.ones(examples)
        total, norms = clipped_gradient_sum(model, summed, x, targets, 0.1)
        alone = [clipped_gradient_sum(model, summed, x[[i]], targets[[i]], 0.1) for i in range(examples)]
        assert torch.allclose(norms, torch.cat([each for _, each in alone]), rtol=1e-4)
        assert distance(total, {k: sum(each[k] for each, _ in alone) for k in total}) < 1e-4  # type: ignore[misc]


aten = torch.ops.aten


def _channels(x: Tensor) -> Tensor:
    """Each number of each example as a channel of one image."""
    return x.reshape(1, -1, 1)


def _by_running(x: Tensor) -> Tensor:
    """Channels of one example divided by the deviations of others."""
    spread = (10 * x[:, 1]).square().repeat(3) + 0.01
    centre = torch.zeros(spread.shape, dtype=x.dtype)
    given = _channels(x), _channels(x), None, centre, spread, None, None
    return aten.native_batch_norm_backward(*given, False, 1e-5, [True, False, False])[0].view_as(x)


def _by_saved(x: Tensor) -> Tensor:
    spread = (10 * x[:, 1]).square().repeat(3) + 0.01
    centre = torch.zeros(spread.shape, dtype=x.dtype)
    given = _channels(x), _channels(x), None, None, None, centre, spread
    return aten.native_batch_norm_backward(*given, True, 1e-5, [True, False, False])[0].view_as(x)


def _by_norms(x: Tensor) -> Tensor:
    """Three means for each example, where one for each is read."""
    given = x, x.sin(), [3], 2 * x, x + 1, None, None
    return aten.native_layer_norm_backward(*given, [True, False, False])[0]


def _by_scores(x: Tensor) -> Tensor:
    """One logarithm for each example, where three for each are read."""
    values, few = x[:, None, :, None], x[:, 0].repeat(4)[: len(x)].view(-1, 1, 1)
    found, _ = aten._scaled_dot_product_flash_attention_for_cpu(values, values, values)
    given = found, values, values, values, found, few, 0.0, False
    return aten._scaled_dot_product_flash_attention_for_cpu_backward(*given)[0].view_as(x)


class Backwards(nn.Module):
    """Calls what PyTorch computes on the way back with numbers that never came out on the way there."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function, self.out = function, nn.Linear(3, 2).double()

    def forward(self, x: Tensor) -> Tensor:
        made = self.out(x + self.function(x))
        return made + 1e-12 * torch.randn_like(made)  # type: ignore[no-any-return]


@pytest.mark.parametrize("function", [_by_running, _by_saved, _by_norms, _by_scores])
def test_statistics_of_other_examples_on_the_way_back(function: Any) -> None:
    torch.manual_seed(0)
    model, inputs, ones = Backwards(function), torch.randn(6, 3, dtype=torch.float64), torch.ones(6)
    whole, _ = clipped_gradient_sum(model, summed, inputs, ones, 1e9)
    alone = [clipped_gradient_sum(model, summed, inputs[row : row + 1], ones[:1], 1e9)[0] for row in range(6)]
    apart = {name: torch.stack([each[name] for each in alone]).sum(0) for name in whole}
    assert distance(whole, apart) < 1e-6
