"""The four ways to tune: their gradients, their rows kept apart, and that nothing frozen moves."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from torch import Tensor, nn

from language import tiny
from tacit.errors import InvalidValue
from tacit.language import LastLayers, LoRA, Prefix, SoftPrompt, Tuned, blocks
from tacit.training import Plan, Trainer, clipped_gradient_sum
from tacit.training.gradients import engine
from tacit.training.gradients.losses import per_example

CASES = [(model, method) for method in tiny.METHODS for model in ("bert", "llama")]
CASES += [("roberta", "soft prompt"), ("qwen2", "prefix")]
LOSS = nn.CrossEntropyLoss()
EACH = per_example(LOSS)


def trained(model: Tuned) -> dict[str, nn.Parameter]:
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


def looped(model: Tuned, inputs: dict[str, Tensor], targets: Tensor, clip_norm: float) -> dict[str, Tensor]:
    """The clipped sum from plain backpropagation, one row at a time and without any padding."""
    own = trained(model)
    total = {name: torch.zeros_like(each) for name, each in own.items()}
    each_loss = per_example(LOSS)
    for row in range(len(targets)):
        long = int(inputs["attention_mask"][row].sum())
        alone = {name: values[row : row + 1, :long] for name, values in inputs.items()}
        grads = torch.autograd.grad(each_loss(model(**alone), targets[row : row + 1])[0], list(own.values()))
        factor = min(1.0, clip_norm / float(sum(grad.square().sum() for grad in grads)) ** 0.5)
        for name, grad in zip(own, grads, strict=True):
            total[name] += factor * grad
    return total


@pytest.mark.parametrize(("model", "method"), CASES)
def test_gradients_are_those_of_rows_alone(model: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proved, by the fast routes, and equal to a loop in which no row has padding or company."""
    tuned = tiny.METHODS[method](tiny.MODELS[model]())
    inputs, targets = tiny.batch()
    routes: list[Any] = []
    pieces = engine._pieces

    def seen(*given: Any) -> Any:
        routes.append(given[4])
        return pieces(*given)

    monkeypatch.setattr(engine, "_pieces", seen)
    total, norms = clipped_gradient_sum(tuned, LOSS, inputs, targets, clip_norm=2.5)
    assert not routes[-1].fallback
    assert not routes[-1].program.alone
    assert (norms > 2.5).any()
    for name, expected in looped(tuned, inputs, targets, 2.5).items():
        torch.testing.assert_close(total[name], expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(("model", "method"), CASES)
def test_gradients_in_half_precision(model: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proved, whichever way attention is computed, and the same by both but for rounding."""
    tuned = tiny.METHODS[method](tiny.MODELS[model]())
    inputs, targets = tiny.batch()
    found, routes, pieces = [], [], engine._pieces

    def seen(*given: Any) -> Any:
        routes.append(given[4])
        return pieces(*given)

    monkeypatch.setattr(engine, "_pieces", seen)
    for short in (blocks.SHORT, 0):
        monkeypatch.setattr(blocks, "SHORT", short)
        found.append(engine.clipped_gradients(tuned, EACH, inputs, targets, 2.5, autocast=torch.bfloat16))
        assert not routes[-1].fallback
        assert not routes[-1].program.alone
    for name, expected in looped(tuned, inputs, targets, 2.5).items():
        for each in found:
            torch.testing.assert_close(each.total[name], expected, rtol=0.1, atol=0.1)


def test_attention_as_products_is_attention() -> None:
    """In half precision, with fewer heads of keys than of queries, over masked positions."""
    torch.manual_seed(0)
    query = torch.randn(3, 4, 5, 8)
    key, value, weights = torch.randn(3, 2, 7, 8), torch.randn(3, 2, 7, 8), torch.randn(3, 5, 4, 8)
    mask = (torch.rand(3, 1, 5, 7) > 0.4) | (torch.arange(7) == 0)
    module = nn.Module()
    module.num_key_value_groups = 2

    def attended(kind: torch.dtype) -> list[Tensor]:
        given = [each.to(kind).requires_grad_() for each in (query, key, value)]
        made, _ = blocks._attention(module, *given, mask)
        return [made, *torch.autograd.grad((made * weights).sum(), given)]

    assert blocks.SHORT >= 7
    for half, single in zip(attended(torch.bfloat16), attended(torch.float32), strict=True):
        torch.testing.assert_close(half.float(), single, rtol=0.05, atol=0.05)


@pytest.mark.parametrize(("model", "method"), CASES)
def test_padding_changes_nothing(model: str, method: str) -> None:
    """Neither how much padding a row has, nor the words that stand there."""
    tuned = tiny.METHODS[method](tiny.MODELS[model]())
    inputs, _ = tiny.batch()
    with torch.no_grad():
        scores = tuned(**inputs)
        junk = {**inputs, "input_ids": torch.where(inputs["attention_mask"] > 0, inputs["input_ids"], 17)}
        torch.testing.assert_close(tuned(**junk), scores, rtol=0, atol=0)
        wider = {name: nn.functional.pad(each, (0, 5)) for name, each in inputs.items()}
        torch.testing.assert_close(tuned(**wider), scores, rtol=1e-5, atol=1e-5)


class Attended(SoftPrompt):
    """A broken twin: padding is attended to, so that the width of a row changes its gradient."""

    def _upper(self, hidden: Tensor, mask: Tensor) -> Tensor:
        return super()._upper(hidden, torch.ones_like(mask))


def test_padding_that_is_attended_is_found() -> None:
    tuned = Attended(tiny.bert(), tokens=3, classes=2)
    inputs, targets = tiny.batch()
    total, _ = clipped_gradient_sum(tuned, LOSS, inputs, targets, clip_norm=2.0)
    expected = looped(SoftPrompt(tiny.bert(), tokens=3, classes=2), inputs, targets, 2.0)
    assert not torch.allclose(total["prompt"], expected["prompt"], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("method", tiny.METHODS)
def test_a_run_moves_what_is_trained_and_nothing_else(method: str) -> None:
    base = tiny.bert()
    before = {name: each.clone() for name, each in base.state_dict().items()}
    tuned = tiny.METHODS[method](base)
    first = {name: each.detach().clone() for name, each in tuned.named_parameters()}
    plan = Plan(population=7, batch_size=4, steps=2, clip_norm=1.0, noise_multiplier=1.0, delta=1e-5)
    optimizer = torch.optim.SGD(trained(tuned).values(), lr=0.1)
    trainer = Trainer(tuned, LOSS, optimizer, plan, progress=False, random_state=3)
    inputs, targets = tiny.batch(7)
    trainer.fit(torch.utils.data.StackDataset(torch.utils.data.StackDataset(**inputs), targets))
    for name, each in tuned.named_parameters():
        assert torch.equal(each, first[name]) != each.requires_grad, name
    assert all(torch.equal(each, before[name]) for name, each in base.state_dict().items())
    assert not any(each.requires_grad for each in tuned.transformer.parameters()) or method in (
        "LoRA", "last layers",
    )  # fmt: skip


def test_two_runs_on_one_transformer_are_two_runs() -> None:
    """What one prompt has cost is not counted for another, which shares only frozen weights with it."""
    base, (inputs, targets) = tiny.bert(), tiny.batch(7)
    data = torch.utils.data.StackDataset(torch.utils.data.StackDataset(**inputs), targets)
    for _ in range(2):
        tuned = tiny.soft_prompt(base)
        plan = Plan(population=7, batch_size=4, steps=1, clip_norm=1.0, noise_multiplier=1.0, delta=1e-5)
        optimizer = torch.optim.SGD(trained(tuned).values(), lr=0.1)
        trainer = Trainer(tuned, LOSS, optimizer, plan, progress=False, random_state=3).fit(data)
        assert trainer.guarantee.epsilon == plan.epsilon


def test_lora_begins_as_the_model_itself() -> None:
    base = tiny.bert()
    torch.manual_seed(0)
    plain = LastLayers(base, layers=0, classes=2)
    lora = LoRA(base, rank=4, classes=2)
    lora.head.load_state_dict(plain.head.state_dict())
    inputs, _ = tiny.batch()
    torch.testing.assert_close(lora(**inputs), plain(**inputs))


def test_pooling() -> None:
    inputs, _ = tiny.batch()
    mask = inputs["attention_mask"]
    for base, pooling, usual in (
        (tiny.bert(), "mean", True),
        (tiny.llama(), "last", True),
        (tiny.bert(), "first", False),
    ):
        tuned = LastLayers(base, layers=0, classes=2, pooling=None if usual else pooling)
        assert tuned.pooling == pooling
        with torch.no_grad():
            states = base.base_model(**inputs).last_hidden_state
            if pooling == "mean":
                pooled = torch.stack(
                    [row[: int(m.sum())].mean(0) for row, m in zip(states, mask, strict=True)]
                )
            else:
                place = mask.sum(1) - 1 if pooling == "last" else torch.zeros(len(mask), dtype=torch.long)
                pooled = states[torch.arange(len(mask)), place]
            torch.testing.assert_close(tuned(**inputs), tuned.head(pooled), rtol=1e-4, atol=1e-5)


def test_what_is_refused() -> None:
    base = tiny.bert()
    with pytest.raises(InvalidValue, match="classes"):
        SoftPrompt(base, classes=1)
    with pytest.raises(InvalidValue, match="fewer than the 80"):
        SoftPrompt(base, tokens=80, classes=2)
    with pytest.raises(InvalidValue, match="pooling"):
        Prefix(base, classes=2, pooling="max")
    with pytest.raises(InvalidValue, match="at most the 2 blocks"):
        LastLayers(base, layers=3, classes=2)
    for wrong in (("q_proj",), ("query", "query"), (), "dense"):
        with pytest.raises(InvalidValue, match=r"some of query, key, value, attention\.output\.dense"):
            LoRA(base, classes=2, targets=wrong)
    with pytest.raises(InvalidValue, match="a transformer of type"):
        SoftPrompt(nn.Linear(2, 2), classes=2)


def test_the_maps_that_low_ranks_are_added_to() -> None:
    """Queries and values unless others are named; the file says which."""
    assert LoRA(tiny.bert(), classes=2).facts["targets"] == ["query", "value"]
    assert LoRA(tiny.llama(), classes=2).facts["targets"] == ["q_proj", "v_proj"]
    named = LoRA(tiny.bert(), classes=2, layers=1, targets=("key", "output.dense"))
    moved = {name.rpartition(".up.")[0] for name, _ in named.named_parameters() if ".up." in name}
    assert {each.partition("layer.1.")[2] for each in moved} == {"attention.self.key", "output.dense"}
    every = LoRA(tiny.llama(), classes=2, targets="all").facts["targets"]
    assert every == ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def test_a_word_that_the_model_does_not_have() -> None:
    """It counts as the last word: no row makes a pass fail."""
    tuned, (inputs, _) = tiny.soft_prompt(tiny.bert()), tiny.batch()
    odd, last = dict(inputs), dict(inputs)
    odd["input_ids"], last["input_ids"] = inputs["input_ids"].clone(), inputs["input_ids"].clone()
    odd["input_ids"][0, 0], last["input_ids"][0, 0] = 10_000, 49
    torch.testing.assert_close(tuned(**odd), tuned(**last))
