"""What is refused, and what is left as it was."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.errors import InvalidValue
from tacit.training import Plan, Trainer, check_model, clipped_gradient_sum, replace_batchnorm
from training.oracle import assert_equal_to_loop, squared
from training.zoo import ZOO


def state(model: nn.Module) -> list[Any]:
    """Everything about a model that a call must leave alone."""
    return [
        [(name, each.requires_grad, each.clone(), each.grad) for name, each in model.named_parameters()],
        [
            (
                name,
                layer.training,
                "forward" in layer.__dict__,
                *(
                    len(hooks)
                    for hooks in (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks)
                ),
            )
            for name, layer in model.named_modules()
        ],
        [(name, each.clone()) for name, each in model.named_buffers()],
        torch.random.get_rng_state(),
    ]


def assert_same(one: Any, two: Any) -> None:
    if isinstance(one, Tensor):
        assert torch.equal(one, two)
    elif isinstance(one, list | tuple):
        assert len(one) == len(two)
        for left, right in zip(one, two, strict=True):
            assert_same(left, right)
    else:
        assert one == two


class Scaled(nn.Module):
    """A linear model of ``x``, each output times the mean of numbers that came beside the tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: Tensor, factors: Any) -> Tensor:
        made: Tensor = self.layer(x) * float(np.mean(factors))
        return made


@pytest.mark.parametrize("factors", [[1.0] * 4, np.ones(4), {"of": [1.0] * 4}, [{"one": "a"}] * 4])
def test_examples_outside_of_tensors_are_refused(factors: Any) -> None:
    """Their rows cannot be followed: one person's number would move the gradients of all."""
    with pytest.raises(InvalidValue, match=r"without tensors.*Make a tensor"):
        clipped_gradient_sum(Scaled(), squared, (torch.randn(4, 3), factors), torch.randn(4), 1.0)


def test_a_constant_beside_tensors() -> None:
    clipped_gradient_sum(Scaled(), squared, (torch.randn(4, 3), 2.0), torch.randn(4), 1.0)


@pytest.mark.parametrize("name", ["lstm", "transformer", "class token", "gpt", "frozen parts", "weight norm"])
@pytest.mark.parametrize("fails", [False, True])
def test_model_left_as_it_was(name: str, fails: bool) -> None:
    make, draw = ZOO[name]
    model = make()
    first = next(each for each in model.parameters() if each.requires_grad)
    first.grad = torch.ones_like(first)
    inputs, targets = draw(), torch.randn(5)

    def broken(outputs: Any, targets: Tensor) -> Tensor:
        raise ZeroDivisionError

    before = state(model)
    if fails:
        with pytest.raises(ZeroDivisionError):
            clipped_gradient_sum(model, broken, inputs, targets, 1.0)
    else:
        clipped_gradient_sum(model, squared, inputs, targets, 1.0)
    assert_same(before, state(model))


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), nn.SyncBatchNorm(4), nn.BatchNorm1d(4, affine=False)])
def test_batchnorm_refused_by_name(norm: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(norm), nn.Linear(4, 2))
    with pytest.raises(InvalidValue, match=r"layer '1\.0' .*BatchNorm.*replace_batchnorm"):
        check_model(model)
    with pytest.raises(InvalidValue, match=r"layer '1\.0'"):
        clipped_gradient_sum(model, squared, torch.randn(5, 3), torch.randn(5), 1.0)


def test_batchnorm_without_statistics_is_refused_in_any_mode() -> None:
    with pytest.raises(InvalidValue, match="BatchNorm1d"):
        check_model(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False)).eval())


def test_refused_after_it_was_accepted() -> None:
    """Going back to training mode is noticed."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()
    clipped_gradient_sum(model, squared, torch.randn(5, 3), torch.randn(5), 1.0)
    with pytest.raises(InvalidValue, match="BatchNorm1d"):
        clipped_gradient_sum(model.train(), squared, torch.randn(5, 3), torch.randn(5), 1.0)


@pytest.mark.parametrize(
    ("layer", "fix"),
    [
        (nn.InstanceNorm1d(4, affine=True, track_running_stats=True), "track_running_stats=False"),
        (nn.Embedding(3, 4, max_norm=1.0), "max_norm=None"),
        (nn.Embedding(3, 4, scale_grad_by_freq=True), "scale_grad_by_freq=False"),
        (nn.ReLU(), "requires_grad"),
    ],
)
def test_other_refusals(layer: nn.Module, fix: str) -> None:
    with pytest.raises(InvalidValue, match=fix):
        check_model(layer)


def test_replace_batchnorm() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.Sequential(nn.BatchNorm2d(6, affine=False))
    )
    fixed = replace_batchnorm(model, groups=4)
    assert isinstance(model[1], nn.BatchNorm2d)
    assert (fixed[1].num_groups, fixed[2][0].affine) == (2, False)
    check_model(fixed)
    assert_equal_to_loop(fixed.double(), torch.randn(5, 1, 5, 5).double(), torch.randn(5).double())
    assert isinstance(replace_batchnorm(nn.BatchNorm1d(4)), nn.GroupNorm)
    with pytest.raises(InvalidValue, match="groups"):
        replace_batchnorm(model, groups=0)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_reducing_modules_are_taken_by_example(reduction: str) -> None:
    """As by the Trainer; a function that reduces is refused, whatever the number of examples."""
    model, inputs, targets = nn.Linear(3, 2), torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    each, norms = clipped_gradient_sum(model, nn.CrossEntropyLoss(reduction="none"), inputs, targets, 1.0)
    found, same = clipped_gradient_sum(model, nn.CrossEntropyLoss(reduction=reduction), inputs, targets, 1.0)
    assert torch.equal(norms, same)
    assert all(torch.equal(each[name], found[name]) for name in each)

    def reducing(outputs: Any, aims: Any) -> Any:
        return getattr(nn.CrossEntropyLoss(reduction="none")(outputs, aims), reduction)()

    for size in (1, 4):
        with pytest.raises(InvalidValue, match='reduction="none"'):
            clipped_gradient_sum(model, reducing, inputs[:size], targets[:size], 1.0)


def test_reducing_loss_refused_on_the_fallback() -> None:
    with pytest.raises(InvalidValue, match='reduction="none"'):
        clipped_gradient_sum(
            nn.Bilinear(2, 2, 2), lambda out, aims: nn.CrossEntropyLoss(reduction="none")(out, aims).mean(),
            (torch.randn(4, 2),) * 2, torch.zeros(4).long(), 1.0,
        )  # fmt: skip


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, float("nan"), float("inf"), "1"])
def test_clip_norm_checked(clip_norm: Any) -> None:
    with pytest.raises(InvalidValue, match="clip_norm"):
        clipped_gradient_sum(nn.Linear(3, 2), squared, torch.randn(4, 3), torch.randn(4), clip_norm)


def test_sizes_must_agree() -> None:
    with pytest.raises(InvalidValue, match="first dimension"):
        clipped_gradient_sum(nn.Linear(3, 2), squared, torch.randn(4, 3), torch.randn(5), 1.0)


@pytest.mark.parametrize("name", ["linear", "gpt", "lstm", "frozen parts"])
def test_empty_batch(name: str) -> None:
    make, draw = ZOO[name]
    model = make()
    total, norms = clipped_gradient_sum(model, squared, draw()[:0], torch.randn(0), 1.0)
    assert norms.shape == (0,)
    assert list(total) == [each for each, parameter in model.named_parameters() if parameter.requires_grad]
    assert all((each == 0).all() for each in total.values())


def test_empty_batch_of_a_refused_model() -> None:
    with pytest.raises(InvalidValue, match="BatchNorm1d"):
        clipped_gradient_sum(nn.BatchNorm1d(3), squared, torch.randn(0, 3), torch.randn(0), 1.0)


def test_dropout_is_one_mask_for_sum_and_norm() -> None:
    """With dropout, the sum of one clipped example is still of norm clip_norm exactly."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2)).double()
    total, _ = clipped_gradient_sum(model, squared, torch.randn(1, 3).double(), torch.ones(1).double(), 1e-3)
    assert float(torch.sqrt(sum(each.square().sum() for each in total.values()))) == pytest.approx(1e-3)


def test_unused_parameter_gets_zeros() -> None:
    model = nn.ModuleDict({"used": nn.Linear(3, 2), "unused": nn.Linear(3, 2)})
    model.forward = lambda x: model["used"](x)
    total, _ = clipped_gradient_sum(model, squared, torch.randn(4, 3), torch.randn(4), 1.0)
    assert (total["unused.weight"] == 0).all()
    assert (total["used.weight"] != 0).any()


class Fickle(nn.Module):
    """Calls its layer as often as the data say."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        return self.layer(x) if len(x) > 3 else x


def test_calls_that_depend_on_the_batch_are_made_example_by_example() -> None:
    model, inputs, targets = Fickle(), torch.randn(5, 3), torch.randn(5)
    total, norms = clipped_gradient_sum(model, squared, inputs, targets, 1.0)
    alone = [clipped_gradient_sum(model, squared, inputs[[i]], targets[[i]], 1.0) for i in range(5)]
    assert torch.allclose(norms, torch.cat([each for _, each in alone]))
    assert torch.allclose(total["layer.weight"], sum(each["layer.weight"] for each, _ in alone), atol=1e-6)


def test_torch_is_not_imported_with_tacit() -> None:
    code = "import sys, tacit; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("kind", ["a class", "a word"])
def test_a_number_out_of_bounds_is_not_told(kind: str, place: int) -> None:
    inputs, targets = torch.zeros(4, 1).long(), torch.zeros(4).long()
    model: nn.Module = nn.Sequential(nn.Embedding(3, 2), nn.Flatten())
    (inputs if kind == "a word" else targets)[place] = 98765
    plan = Plan(population=4, batch_size=4, steps=1, noise_multiplier=1.0, delta=0.05)
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=1.0), plan, progress=False
    )
    with pytest.raises((InvalidValue, IndexError)) as caught:
        trainer.fit((inputs, targets))
    error: BaseException | None = caught.value
    while error is not None:
        assert "98765" not in str(error)
        error = None if error.__suppress_context__ else error.__context__
