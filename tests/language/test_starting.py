"""A public start: what is trained learns, nothing frozen moves, and no guarantee is touched."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

import torch
from torch import nn

from language import tiny
from tacit.errors import InvalidValue
from tacit.language import LastLayers, Texts, start_on_public
from tacit.training import Plan, Trainer

PUBLIC = ["w1 w2", "w3", "w2 w1 w1", "w3 w4 w3"] * 4
LABELS = [0, 1, 0, 1] * 4


def texts(labels: list[int] | None = LABELS) -> Texts:
    classes = [0, 1] if labels is not None else None
    return Texts(PUBLIC, labels, tokenizer=tiny.tokenizer(), max_length=16, classes=classes)


def test_it_learns_the_public_texts_and_moves_nothing_frozen() -> None:
    tuned = LastLayers(tiny.bert(), 1, classes=2)
    frozen = {name: each.clone() for name, each in tuned.named_parameters() if not each.requires_grad}
    start_on_public(tuned, texts(), epochs=30, batch_size=8, rate=5e-3)
    assert (tuned.predict(texts()) == LABELS).all()
    for name, each in tuned.named_parameters():
        if name in frozen:
            assert torch.equal(each, frozen[name])
        assert each.grad is None


def test_a_private_run_after_it_has_the_guarantee_of_its_own_plan() -> None:
    tuned = start_on_public(LastLayers(tiny.bert(), 1, classes=2), texts())
    trained = [each for each in tuned.parameters() if each.requires_grad]
    plan = Plan(population=16, batch_size=8, epochs=1, clip_norm=1.0, epsilon=1.0, delta=1e-5)
    trainer = Trainer(
        tuned, nn.CrossEntropyLoss(), torch.optim.SGD(trained, lr=0.1), plan, progress=False, random_state=0
    )
    trainer.fit(texts())
    assert trainer.guarantee.event == plan.event
    assert trainer.guarantee.epsilon <= 1.0


def test_what_it_cannot_learn_from_is_refused() -> None:
    tuned = LastLayers(tiny.bert(), 1, classes=2)
    with pytest.raises(InvalidValue, match="labels"):
        start_on_public(tuned, texts(None))
    empty = Texts([], [], tokenizer=tiny.tokenizer(), max_length=16, classes=[0, 1])
    with pytest.raises(InvalidValue, match="no rows"):
        start_on_public(tuned, empty)
