"""Channels last in memory while the tape runs, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tacit.training import clipped_gradient_sum
from tacit.training.gradients import layout, rules
from training.oracle import assert_equal_to_loop, squared

# What a model holds is put back after every pass; what is outside of it is not.
SEEN: list[bool] = []


class Watched(nn.Module):
    """Notes whether the images it was called on had their channels last."""

    def __init__(self, reshape: bool) -> None:
        super().__init__()
        self.reshape = reshape
        self.first, self.second = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 3, 3)
        self.head = nn.Linear(3 * 16, 2)

    def forward(self, images: Tensor) -> Tensor:
        made = self.second(self.first(images).relu())
        SEEN.append(made.is_contiguous(memory_format=torch.channels_last))
        return self.head(made.flatten(1) if self.reshape else made.view(len(made), -1))


@pytest.mark.parametrize("reshape", [True, False])
def test_a_model_runs_with_channels_last_unless_it_views_them(reshape: bool) -> None:
    torch.manual_seed(0)
    model = Watched(reshape).double()
    images, targets = torch.randn(5, 1, 8, 8).double(), torch.randn(5).double()
    assert_equal_to_loop(model, images, targets)
    SEEN.clear()
    total, _ = clipped_gradient_sum(model, squared, images, targets, 1.0)
    assert [reshape] == SEEN
    assert all(each.is_contiguous() for each in total.values())
    assert not model.first._forward_pre_hooks
    model(images)
    assert SEEN[-1] is False


def test_what_fails_in_both_orders_leaves_no_mark() -> None:
    class Broken(Watched):
        def forward(self, images: Tensor) -> Tensor:
            if images.shape[0] > 3:
                raise RuntimeError("no room")
            return super().forward(images)

    model = Broken(True)
    with pytest.raises(RuntimeError, match="no room"):
        clipped_gradient_sum(model, squared, torch.randn(4, 1, 8, 8), torch.randn(4), 1.0)
    clipped_gradient_sum(model, squared, torch.randn(3, 1, 8, 8), torch.randn(3), 1.0)
    assert SEEN[-1]


def test_a_convolution_under_vmap_is_left_alone() -> None:
    class Mapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 3, 3)

        def forward(self, images: Tensor) -> Tensor:
            return torch.vmap(lambda image: self.conv(image[None])[0])(images)

    torch.manual_seed(0)
    assert_equal_to_loop(Mapped().double(), torch.randn(3, 2, 5, 5).double(), torch.randn(3).double())


def test_patches_of_large_images_are_written_out_in_rows() -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(3, 2, 7, padding=3, dilation=2).double()
    assert 3 * 49 * 64 * 64 > 2 * (1 << 18)
    assert_equal_to_loop(model, torch.randn(2, 3, 70, 70).double(), torch.randn(2).double())


@pytest.mark.parametrize("bias", [True, False])
def test_products_with_narrow_matrices_are_turned(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    turned = []
    narrow = layout._narrow

    def spy(layer: nn.Linear, input: Tensor) -> Tensor:
        turned.append(input.numel() >= layout._LARGE and not input.requires_grad)
        return narrow(layer, input)

    monkeypatch.setattr(layout, "_narrow", spy)
    model = nn.Sequential(nn.Linear(7000, 10, bias), nn.Tanh(), nn.Linear(10, 2)).double()
    assert_equal_to_loop(model, torch.randn(10, 7000).double(), torch.randn(10).double())
    assert True in turned
    assert False in turned
    assert all("forward" not in layer.__dict__ for layer in model)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_statistics_of_a_group_norm_are_computed_once(
    first: bool, offset: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    known = []
    by_statistics = rules.group_norm_by

    def spy(*args: Any) -> Any:
        known.append(args[0])
        return by_statistics(*args)

    monkeypatch.setattr(rules, "group_norm_by", spy)
    norm, conv = nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 3)
    nn.init.normal_(norm.weight)
    model = nn.Sequential(norm, conv) if first else nn.Sequential(conv, norm)
    model = nn.Sequential(model, nn.Flatten(), nn.Linear(4 * 9, 2)).double()
    assert_equal_to_loop(model, offset + torch.randn(5, 4, 5, 5).double(), torch.randn(5).double())
    assert known
    assert all("forward" not in layer.__dict__ for layer in model.modules())
    known.clear()
    clipped_gradient_sum(nn.GroupNorm(2, 4), squared, torch.randn(5, 4, 6), torch.randn(5), 1.0)
    assert not known
