"""Four ways to tune a frozen transformer, each a module that :class:`tacit.training.Trainer` trains.

==============  ================================================================  =========================
class           what is trained, besides the head                                 paper
==============  ================================================================  =========================
`SoftPrompt`    virtual tokens before the embedded words: tokens × width numbers  Lester et al. 2021
`Prefix`        virtual keys and values in every attention layer                  Li and Liang 2021
`LoRA`          low-rank updates of attention projections                         Hu et al. 2021
`LastLayers`    all weights of the last blocks                                    Li et al. 2022
==============  ================================================================  =========================

With DP-SGD the first is PromptDPSGD (Duan et al. 2023). The frozen transformer is public: it was trained on
public text. The guarantee is the trainer's own and covers everything that is trained. Which numbers are
frozen, the number of classes and all sizes are public facts.

A row's output depends on the row alone: positions behind its mask are attended to by nobody and are not
pooled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit import _validate
from tacit.errors import InvalidValue
from tacit.language.blocks import blocks_of
from tacit.language.weights import Pretrained, digest_of

__all__ = ["METHODS", "LastLayers", "LoRA", "Prefix", "SoftPrompt", "Tuned"]

if TYPE_CHECKING:
    from tacit.language.texts import Texts

CHUNK = 192
"""Rows that are computed together, always so many; tiles of matrix products divide 2⁶·3."""
POOLINGS = ("mean", "first", "last")


class Tuned(nn.Module):
    """A frozen transformer with a trained part and a linear head: what the four methods share.

    Inputs are ``input_ids`` and ``attention_mask``, both (rows, positions), padded on the right; the output
    is one score for each class. With ``hidden`` in place of ``input_ids`` a pass begins above the frozen
    blocks that :meth:`lower` computed. ``pooling`` says which hidden state a row is judged by: "mean"
    over its real tokens, which is the default for encoders, its "first" token, or its "last", which is the
    default for decoders. Of a row of more than :attr:`longest` positions the first so many are read, so
    that no long text makes a run fail.

    ``state_dict`` holds what is trained and a digest of the frozen transformer, and nothing else; loading it
    into a module on another transformer is refused.
    """

    method = ""

    def __init__(self, model: Any, *, classes: int, pooling: str | None = None) -> None:
        super().__init__()
        self.classes = _validate.count("classes", classes, 2)
        self.transformer = blocks_of(model)
        self.digest = model.digest if isinstance(model, Pretrained) else digest_of(model)
        usual = "last" if self.transformer.is_decoder else "mean"
        self.pooling = _validate.choice("pooling", pooling or usual, POOLINGS)
        self.head = nn.Linear(self.transformer.width, self.classes)
        self.frozen_blocks = 0

    @property
    def blocks(self) -> int:
        """How many blocks the transformer has."""
        return len(self.transformer.layers)

    @property
    def longest(self) -> int:
        """The most positions that a row may have."""
        return self.transformer.longest

    @property
    def facts(self) -> dict[str, Any]:
        """The public facts that the module is made of, besides the frozen transformer."""
        return {"method": self.method, "classes": self.classes, "pooling": self.pooling}

    def saved_facts(self) -> dict[str, str]:
        """What a file says about the trained part, besides its guarantee."""
        return {"tuned": json.dumps({**self.facts, "transformer": self.digest})}

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        hidden: Tensor | None = None,
    ) -> Tensor:
        """The scores of each class, (rows, classes)."""
        if attention_mask is None or (input_ids is None) == (hidden is None):
            raise InvalidValue("inputs", "others", "input_ids or hidden, with attention_mask")
        attention_mask = attention_mask[:, : self.longest]
        if hidden is None:
            hidden = self.lower(input_ids[:, : self.longest], attention_mask)  # type: ignore[index]
        hidden = hidden[:, : self.longest]
        states = self.transformer.finish(self._upper(hidden, attention_mask))
        scores: Tensor = self.head(_pooled(states, attention_mask, self.pooling))
        return scores

    def lower(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Hidden states above the ``frozen_blocks`` lowest blocks, which nothing that is trained changes."""
        hidden = self.transformer.start(self.transformer.words(input_ids))
        return self.transformer.through(hidden, attention_mask, 0, self.frozen_blocks)

    def _upper(self, hidden: Tensor, mask: Tensor) -> Tensor:
        return self.transformer.through(hidden, mask, self.frozen_blocks)

    def _last(self, layers: int | None) -> range:
        """The last so many blocks, all by default; the blocks below them are frozen."""
        count = self.blocks if layers is None else _validate.count("layers", layers, 0)
        if count > self.blocks:
            raise InvalidValue("layers", layers, f"at most the {self.blocks} blocks of the model")
        self.frozen_blocks = self.blocks - count
        return range(self.frozen_blocks, self.blocks)

    def predict_proba(self, texts: Texts, autocast: torch.dtype | None = None) -> NDArray[np.float64]:
        """The probability of each class for each text, (rows, classes).

        Rows are computed in blocks of a fixed number, filled up with padding, so that the answer for a text
        does not depend on the others.
        """
        found = np.zeros((len(texts), self.classes))
        for rows, inputs in texts.by_width(CHUNK):
            full = {name: _filled(each, CHUNK) for name, each in inputs.items()}
            with torch.no_grad(), precision(autocast):
                scores = self(**full)[: len(rows)]
            found[rows] = scores.double().softmax(1).numpy()
        return found

    def predict(self, texts: Texts, autocast: torch.dtype | None = None) -> NDArray[np.int64]:
        """The place of the most probable class of each text."""
        best: NDArray[np.int64] = self.predict_proba(texts, autocast).argmax(1)
        return best

    def get_extra_state(self) -> Tensor:
        """The digest of the frozen transformer and of the public facts, as bytes."""
        made = hashlib.sha256(json.dumps([self.digest, self.facts], sort_keys=True).encode())
        return torch.frombuffer(bytearray(made.digest()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Refuse what was trained on another frozen transformer, or in another way."""
        if not torch.equal(state.cpu(), self.get_extra_state()):
            raise InvalidValue(
                "model", f"{type(self).__name__} on a transformer {self.digest[:12]}…",
                "the frozen transformer and the method that the saved part was trained with",
                "Its numbers mean nothing on another model: read the same weights, from the same package or "
                "folder.",
            )  # fmt: skip

    def state_dict(self, *args: Any, prefix: str = "", **options: Any) -> Any:
        """What is trained, and the digest."""
        made = super().state_dict(*args, prefix=prefix, **options)
        for name in self._frozen():
            made.pop(prefix + name, None)
        return made

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name, each in self._frozen().items():
            state_dict[prefix + name] = each.detach()
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _frozen(self) -> dict[str, Tensor]:
        trained = {name for name, each in self.named_parameters() if each.requires_grad}
        every = nn.Module.state_dict(self.transformer, prefix="transformer.")
        return {name: each for name, each in every.items() if name not in trained}


class SoftPrompt(Tuned):
    """Virtual tokens before the embedded words of a frozen transformer: PromptDPSGD (Duan et al. 2023).

    The prompt has ``tokens`` × width numbers. It starts as embeddings of words drawn at random from the
    model's own table by ``seed``, which is public. A row may have as many tokens less.

    >>> from transformers import BertConfig, BertModel
    >>> tiny = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
    ...                   intermediate_size=64, max_position_embeddings=40)
    >>> prompt = SoftPrompt(BertModel(tiny), tokens=5, classes=2)
    >>> ids = torch.tensor([[4, 7, 9, 0]])
    >>> prompt(ids, torch.tensor([[1, 1, 1, 0]])).shape, sorted(prompt.state_dict())
    (torch.Size([1, 2]), ['_extra_state', 'head.bias', 'head.weight', 'prompt'])
    """

    method = "soft prompt"

    def __init__(
        self, model: Any, tokens: int = 20, *, classes: int, pooling: str | None = None, seed: int = 0
    ) -> None:
        super().__init__(model, classes=classes, pooling=pooling)
        self.tokens = _validate.count("tokens", tokens, 1)
        if self.tokens >= self.transformer.longest:
            raise InvalidValue(
                "tokens", tokens, f"fewer than the {self.transformer.longest} positions of the model"
            )
        table = self.transformer.base.get_input_embeddings().weight
        chosen = torch.randint(len(table), (self.tokens,), generator=torch.Generator().manual_seed(seed))
        self.prompt = nn.Parameter(table[chosen].detach().clone())

    @property
    def longest(self) -> int:
        """The most positions that a row may have beside the prompt."""
        return self.transformer.longest - self.tokens

    @property
    def facts(self) -> dict[str, Any]:
        """The public facts that the module is made of, besides the frozen transformer."""
        return {**super().facts, "tokens": self.tokens}

    def lower(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The embedded words, before which the prompt is put."""
        return self.transformer.words(input_ids)

    def _upper(self, hidden: Tensor, mask: Tensor) -> Tensor:
        rows = hidden.shape[0]
        prompt = self.prompt.expand(rows, self.tokens, self.transformer.width)
        whole = torch.cat([prompt.to(hidden.dtype), hidden], 1)
        seen = torch.cat([mask.new_ones(rows, self.tokens), mask], 1)
        states = self.transformer.through(self.transformer.start(whole), seen)
        return states[:, self.tokens :]


class Prefix(Tuned):
    """Virtual keys and values before those of every attention layer: prefix tuning (Li and Liang 2021).

    Each block has ``tokens`` keys and values for each of its heads, which start as normal numbers of
    standard deviation ``spread``, drawn by ``seed``.
    """

    method = "prefix"

    def __init__(
        self, model: Any, tokens: int = 20, *, classes: int, pooling: str | None = None,
        layers: int | None = None, spread: float = 0.1, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(model, classes=classes, pooling=pooling)
        self.tokens = _validate.count("tokens", tokens, 1)
        heads, wide = self.transformer.heads
        drawn = torch.Generator().manual_seed(seed)
        self._layers = len(self._last(layers))
        scale = _validate.positive("spread", spread)

        def new() -> nn.ParameterList:
            shape = (heads, self.tokens, wide)
            return nn.ParameterList(
                nn.Parameter(scale * torch.randn(shape, generator=drawn)) for _ in range(self._layers)
            )

        self.keys, self.values = new(), new()

    @property
    def facts(self) -> dict[str, Any]:
        """The public facts that the module is made of, besides the frozen transformer."""
        return {**super().facts, "tokens": self.tokens, "layers": self._layers}

    def _upper(self, hidden: Tensor, mask: Tensor) -> Tensor:
        rows = hidden.shape[0]
        seen = torch.cat([mask.new_ones(rows, self.tokens), mask], 1)
        before = _Before(list(self.keys), list(self.values), rows, self.frozen_blocks)
        return self.transformer.through(hidden, seen, self.frozen_blocks, prefix=before)


class _Before:
    """Puts the virtual keys and values of a block before its own, in the way of a cache of transformers."""

    def __init__(self, keys: Sequence[Tensor], values: Sequence[Tensor], rows: int, first: int) -> None:
        self.keys, self.values, self.rows, self.first = keys, values, rows, first

    def update(self, key: Tensor, value: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Keys and values of a block, behind the virtual ones."""
        number = layer - self.first
        return self._joined(self.keys[number], key), self._joined(self.values[number], value)

    def _joined(self, virtual: Tensor, real: Tensor) -> Tensor:
        spread = virtual.expand(self.rows, *virtual.shape)
        return torch.cat([spread.to(real.dtype), real], 2)


class LoRA(Tuned):
    """Low-rank updates of linear maps in the last ``layers`` blocks (Hu et al. 2021).

    A map W becomes W + (alpha ÷ rank) · B·A, with A of ``rank`` rows, random by ``seed``, and B zero at the
    start. ``targets`` are names of maps: query, key, value, attention.output.dense, intermediate.dense and
    output.dense of BERT, q_proj and so on of Llama. By default they are the projections of queries and
    values; "all" stands for every linear map of a block. All maps with a small rank have a sixteenth of the
    numbers of :class:`LastLayers`, so that a batch of a quarter of the size has as little noise for what it
    learns. The blocks below are frozen, so that their output can be kept for each row:
    :class:`tacit.language.Texts`.
    """

    method = "LoRA"

    def __init__(
        self, model: Any, rank: int = 8, *, classes: int, layers: int | None = None,
        alpha: float | None = None, targets: Sequence[str] | None = None, pooling: str | None = None,
        seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(model, classes=classes, pooling=pooling)
        self.rank = _validate.count("rank", rank, 1)
        self.alpha = float(2 * self.rank) if alpha is None else _validate.positive("alpha", alpha)
        drawn = torch.Generator().manual_seed(seed)
        self.targets = self._named(targets)
        for number in self._last(layers):
            found = self.transformer.projections(number)
            for owner, attribute in map(found.__getitem__, self.targets):
                low = _LowRank(getattr(owner, attribute), self.rank, self.alpha / self.rank, drawn)
                setattr(owner, attribute, low)

    def _named(self, targets: Sequence[str] | None) -> tuple[str, ...]:
        known = tuple(self.transformer.projections(0))
        targets = self.transformer.queries_and_values if targets is None else targets
        given = known if targets == "all" else (targets,) if isinstance(targets, str) else tuple(targets)
        for name in given or ("",):
            if name not in known or given.count(name) > 1:
                raise InvalidValue("targets", name, f'"all", or some of {", ".join(known)}, each once')
        return given

    @property
    def facts(self) -> dict[str, Any]:
        """The public facts that the module is made of, besides the frozen transformer."""
        own = {"rank": self.rank, "alpha": self.alpha, "targets": list(self.targets)}
        return {**super().facts, **own, "layers": self.blocks - self.frozen_blocks}


class _LowRank(nn.Module):
    def __init__(self, base: nn.Linear, rank: int, scale: float, drawn: torch.Generator) -> None:
        super().__init__()
        self.base, self.scale = base, scale
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        with torch.no_grad():
            self.down.weight.copy_(
                torch.randn(self.down.weight.shape, generator=drawn) / base.in_features**0.5
            )
            self.up.weight.zero_()

    def forward(self, values: Tensor) -> Tensor:
        made: Tensor = self.base(values) + self.scale * self.up(self.down(values))
        return made


class LastLayers(Tuned):
    """All weights of the last ``layers`` blocks, and of the norm above them; with 0, the head alone.

    Only the trained blocks are computed with gradients (Li et al. 2022 fine-tune all of them). Below
    them the transformer is frozen, so that its output can be kept for each row:
    :class:`tacit.language.Texts`.
    """

    method = "last layers"

    def __init__(self, model: Any, layers: int = 2, *, classes: int, pooling: str | None = None) -> None:
        super().__init__(model, classes=classes, pooling=pooling)
        trained: list[nn.Module] = [self.transformer.layers[number] for number in self._last(layers)]
        if trained and hasattr(self.transformer.base, "norm"):
            trained.append(self.transformer.base.norm)
        for module in trained:
            for owner in module.modules():
                for name, each in owner._parameters.items():
                    if each is not None:
                        setattr(owner, name, nn.Parameter(each.detach().clone()))

    @property
    def facts(self) -> dict[str, Any]:
        """The public facts that the module is made of, besides the frozen transformer."""
        return {**super().facts, "layers": self.blocks - self.frozen_blocks}


def _filled(values: Tensor, rows: int) -> Tensor:
    """The rows, and ones behind them up to so many rows."""
    return torch.cat([values, values.new_ones(rows - len(values), *values.shape[1:])])


def precision(autocast: torch.dtype | None) -> Any:
    """A context in which layers run in this precision, or in their own."""
    return torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None)


METHODS: Mapping[str, type[Tuned]] = {each.method: each for each in (SoftPrompt, Prefix, LoRA, LastLayers)}
"""The methods, by their names in files."""


def _pooled(states: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """One vector for each row, from its real tokens alone."""
    real = mask.to(states.dtype)
    if pooling == "first":
        return states[:, 0]
    if pooling == "last":
        # The last real position is the one with exactly one real position from there on.
        real = real * (real.flip(1).cumsum(1).flip(1) == 1)
        return (states * real[:, :, None]).sum(1)
    return (states * real[:, :, None]).sum(1) / real.sum(1, keepdim=True).clamp(min=1)
