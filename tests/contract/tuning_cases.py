"""Tuned transformers in the registry: one step of each way to tune one, on a tiny random BERT.

Every release is the noisy gradient of one step on all rows. With a learning rate of 0 the weights stay as
they are, so that the steps of one run are as many independent runs of one step. The trainer tests its
gradients in the first of them only; that it does so in more is tested with the trainer.

The broken twin does not clip what a row adds. How the noise of a step is distributed is looked at in the
cases of training, and not here again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from contract.registry import FEW_FRESH, SECRET, Case, Make, Pair, register
from contract.training_cases import DELTA
from tacit import events
from tacit.errors import InvalidValue
from tacit.language import LastLayers, LoRA, Prefix, SoftPrompt, Tuned
from tacit.language.texts import Texts
from tacit.randomness import Source
from tacit.training import Plan, Trainer, step
from tacit.training.clipping import Flat
from tacit.training.gradients.pieces import Weights

SIZES: dict[str, Any] = {
    "vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 16, "max_position_embeddings": 16,
}  # fmt: skip
CLIP_NORM = 0.01
"""Small, so that a gradient that is not clipped is many times as long."""
RUNS = 280


class Letters:
    """A tokenizer of one letter a token, as much of one as Texts asks for."""

    pad_token_id = 0

    def __call__(self, texts: list[str], *, max_length: int, **_: Any) -> Mapping[str, list[list[int]]]:
        return {"input_ids": [[1 + ord(each) % 19 for each in text][:max_length] for text in texts]}


def soft_prompt(base: Any) -> Tuned:
    return SoftPrompt(base, tokens=2, classes=2)


def lora(base: Any) -> Tuned:
    return LoRA(base, rank=2, classes=2)


def prefix(base: Any) -> Tuned:
    return Prefix(base, tokens=2, classes=2)


def last_layers(base: Any) -> Tuned:
    return LastLayers(base, layers=1, classes=2)


WAYS = {"soft_prompt": soft_prompt, "lora": lora, "prefix": prefix, "last_layers": last_layers}


def texts(rows: Any) -> Texts:
    """Rows are pairs of a text and a label."""
    return Texts(
        [row[0] for row in rows], [row[1] for row in rows],
        tokenizer=Letters(), max_length=8, classes=["no", "yes"],
    )  # fmt: skip


@dataclass(frozen=True)
class Tuning:
    """A run of the trainer as a mechanism: from texts to the noisy gradient of a step, all numbers of it."""

    make: Any
    source: Source
    clipped: bool = True
    _left: list[np.ndarray] = field(default_factory=list)

    @property
    def plan(self) -> Plan:
        return Plan(
            population=3, batch_size=3, steps=1, clip_norm=CLIP_NORM, noise_multiplier=1.0, delta=DELTA
        )

    @property
    def event(self) -> events.Event:
        return self.plan.event

    @property
    def noise(self) -> str:
        return "seeded" if self.source.seeded else "float64"

    def model(self) -> Tuned:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return self.make(BertModel(BertConfig(**SIZES))).double()

    def trainer(self, steps: int = 1, ledger: Any = None, **options: Any) -> Trainer:
        model = self.model()
        trained = [each for each in model.parameters() if each.requires_grad]
        seed = self.source.bits(63) if self.source.seeded else None
        plan = Plan(
            population=3, batch_size=3, steps=steps, clip_norm=CLIP_NORM, noise_multiplier=1.0, delta=DELTA
        )
        return Trainer(
            model, nn.CrossEntropyLoss(), torch.optim.SGD(trained, lr=0.0), plan, ledger,
            random_state=seed, progress=False, physical_batch=8, **options,
        )  # fmt: skip

    def steps(self, rows: Any, count: int) -> np.ndarray:
        """The released gradients of so many steps, in units of clip_norm."""
        seen: list[np.ndarray] = []
        trainer = self.trainer(count)
        optimizer = trainer.optimizer
        taken = optimizer.step

        def look(*given: Any, **options: Any) -> Any:
            grads = [each.grad for group in optimizer.param_groups for each in group["params"]]
            seen.append(torch.cat([grad.flatten() for grad in grads]).numpy() * 3 / CLIP_NORM)
            return taken(*given, **options)

        optimizer.step = look  # type: ignore[method-assign]
        with mock.patch.object(step, "_TESTS", 1), _clipping(self.clipped):
            trainer.fit(texts(rows))
        return np.array(seen)

    def __call__(self, rows: Any) -> np.ndarray:
        """The next step of a run of several, since a run has to prove its first pass anew."""
        if not self._left:
            self._left.extend(self.steps(rows, FEW_FRESH))
        return self._left.pop()


def _not_clipped(rule: Any, squares: Mapping[str, Tensor], clip_norm: float, parameters: int) -> Any:
    norms = torch.stack(list(squares.values())).sum(0).sqrt()
    return dict.fromkeys(squares, Weights(torch.ones_like(norms))), norms


@contextmanager
def _clipping(sound: bool) -> Iterator[None]:
    if sound:
        yield
        return
    with (
        mock.patch.object(Flat, "factors", _not_clipped),
        mock.patch.object(step, "check_clipping", return_value=None),
    ):
        yield


def making(make: Any, *, clipped: bool = True) -> Make:
    def made(random_state: Any) -> Tuning:
        source = random_state if isinstance(random_state, Source) else Source(random_state)
        return Tuning(make, source, clipped)

    return made


def runs(make: Make, rows: Any, times: int, seed: int | None) -> np.ndarray:
    return make(seed).steps(rows, times)


OTHERS = (("abc", "no"), ("a longer one", "yes"))
VICTIM = ("", "yes")
"""The empty text, with a label; without it the rows are two."""


def along(make: Any) -> Any:
    """How far a release moved along the victim's gradient, in units of its noise."""
    direction: list[np.ndarray] = []

    def score(outputs: np.ndarray) -> np.ndarray:
        if not direction:
            model = Tuning(make, Source(0)).model()
            inputs, targets = next(next(texts([VICTIM]).batches([np.zeros(1, np.int64)], 1)))
            loss = nn.functional.cross_entropy(model(**inputs), targets)
            grads = torch.autograd.grad(loss, [each for each in model.parameters() if each.requires_grad])
            flat = torch.cat([grad.flatten() for grad in grads]).numpy()
            direction.append(flat / np.linalg.norm(flat))
        return outputs @ direction[0]

    return score


def released(ledger: Any, made: Tuning, data_access: Any) -> Any:
    """The trainer charges its ledger itself, before the first row is read."""

    class Later(list):  # type: ignore[type-arg]
        read = cached_property(lambda self: data_access())

        def __len__(self) -> int:
            return 3

        def __getitem__(self, place: Any) -> Any:
            return self.read[place][0]

    rows = Texts(Later(), ["no", "yes", "yes"], tokenizer=Letters(), max_length=8, classes=["no", "yes"])
    return made.trainer(ledger=ledger).fit(rows)


BASE = BertModel(BertConfig(**SIZES))
BAD = tuple(
    (what, call, InvalidValue)
    for what, call in {
        "no tokens": partial(SoftPrompt, BASE, tokens=0, classes=2),
        "one class": partial(SoftPrompt, BASE, tokens=2, classes=1),
        "no rank": partial(LoRA, BASE, rank=0, classes=2),
        "no tokens of a prefix": partial(Prefix, BASE, tokens=0, classes=2),
        "more layers than blocks": partial(LastLayers, BASE, layers=99, classes=2),
        "no classes declared": partial(Texts, [SECRET], [SECRET], tokenizer=Letters()),
        "labels of another number": partial(
            Texts, [SECRET], [SECRET, SECRET], tokenizer=Letters(), classes=["no", "yes"]
        ),
        "a length of 0": partial(Texts, [SECRET], tokenizer=Letters(), max_length=0),
    }.items()
)

for name, make in WAYS.items():
    register(
        Case(
            name=f"tuning_{name}",
            event=events.Repeat(events.Gaussian(1.0), 1),
            delta=DELTA,
            make=making(make),
            broken=making(make, clipped=False),
            data=(*OTHERS, VICTIM),
            pair=Pair((*OTHERS, VICTIM), OTHERS, along(make), runs, (RUNS, RUNS)),
            bad_inputs=BAD,
            release=released,
            covers=frozenset({"Trainer"}),
            left_out={"noise": "the noise of a step is looked at in the cases of training"},
        )
    )
