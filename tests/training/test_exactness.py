"""Clipped sums and norms equal a plain loop over examples."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tacit.training import tree
from training.oracle import assert_equal_to_loop
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
