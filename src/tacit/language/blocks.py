"""A frozen transformer as a chain of blocks, with nothing in it that depends on the rows of a batch.

The ``forward`` of transformers looks at the values of the attention mask to choose a kernel, and keeps
caches; a private pass may do neither. So the layers of a model are called here one after the other: word
embeddings, then the blocks, then the last norm. What a position attends to is a mask of zeros and ones that
is built from the row's own mask, and a mask of virtual tokens that is the same for all rows.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import InvalidValue
from tacit.language.weights import base_of, positions_of

__all__ = ["Blocks", "blocks_of"]

SHORT = 128
"""Positions up to which attention in half precision is computed as plain products on a processor."""
ENCODERS, DECODERS = ("bert", "roberta"), ("llama", "qwen2")


class Blocks(nn.Module):
    """A frozen transformer: a copy of a model's layers that shares its numbers.

    Two modules that are trained on top of one model hold parameters of their own kind, so that what one run
    has cost is not counted for the other; the numbers themselves are in memory once.
    """

    is_decoder: bool
    queries_and_values: tuple[str, ...]
    """The names of the projections of queries and of values in an attention layer."""

    def __init__(self, base: Any) -> None:
        super().__init__()
        shared: dict[int, Any] = {
            id(each): nn.Parameter(each.detach(), requires_grad=False) for each in base.parameters()
        }
        self.base = copy.deepcopy(base, shared)
        self.base.eval()
        self.base.set_attn_implementation(_registered_attention())
        if hasattr(self.base, "pooler"):
            self.base.pooler = None
        self.config = self.base.config
        self.width = int(self.config.hidden_size)
        self.longest = positions_of(self.base, int(self.config.max_position_embeddings))

    def train(self, mode: bool = True) -> Blocks:
        """Stays in evaluation mode: a frozen transformer has no dropout."""
        return super().train(False)

    @property
    def layers(self) -> Sequence[Any]:
        """The blocks, from the bottom to the top."""
        raise NotImplementedError

    def words(self, input_ids: Tensor) -> Tensor:
        """The embedded words; a number that the model has no word for stands for its last word."""
        table = self.base.get_input_embeddings()
        embedded: Tensor = table(input_ids.clamp(0, table.num_embeddings - 1))
        return embedded

    def start(self, embedded: Tensor) -> Tensor:
        """What the first block is given, for embedded words."""
        raise NotImplementedError

    def through(
        self, hidden: Tensor, mask: Tensor, first: int = 0, last: int | None = None, prefix: Any = None
    ) -> Tensor:
        """Hidden states after the blocks from ``first`` up to ``last``.

        ``mask`` is 1 for each position of a row that is attended to, (rows, positions); with a ``prefix``
        its virtual tokens come first.
        """
        raise NotImplementedError

    def finish(self, hidden: Tensor) -> Tensor:
        """The hidden states after the last norm."""
        return hidden

    def projections(self, layer: int) -> dict[str, tuple[nn.Module, str]]:
        """The linear maps of a block by name: the module that holds each of them, and its attribute there.

        A map is named by the last part of its path in the block, or by the whole path where another map
        of the block ends alike: ``query``, but ``output.dense``.
        """
        block = self.layers[layer]
        paths = [path for path, each in block.named_modules() if isinstance(each, nn.Linear)]
        places = [path.rpartition(".") for path in paths]
        attributes = [attribute for _, _, attribute in places]
        return {
            attribute if attributes.count(attribute) == 1 else path: (block.get_submodule(owner), attribute)
            for path, (owner, _, attribute) in zip(paths, places, strict=True)
        }

    @property
    def heads(self) -> tuple[int, int]:
        """How many heads the keys and values of a block have, and how wide one is."""
        heads = int(self.config.num_attention_heads)
        kept = int(getattr(self.config, "num_key_value_heads", None) or heads)
        return kept, int(getattr(self.config, "head_dim", None) or self.width // heads)


class _Encoder(Blocks):
    """BERT and RoBERTa: every position of a row attends to every real position of the row."""

    is_decoder = False
    queries_and_values = ("query", "value")

    @property
    def layers(self) -> Sequence[Any]:
        found: Sequence[Any] = self.base.encoder.layer
        return found

    def start(self, embedded: Tensor) -> Tensor:
        hidden: Tensor = self.base.embeddings(inputs_embeds=embedded)
        return hidden

    def through(
        self, hidden: Tensor, mask: Tensor, first: int = 0, last: int | None = None, prefix: Any = None
    ) -> Tensor:
        seen = mask[:, None, None, :] > 0
        for layer in self.layers[first:last]:
            found = layer(hidden, seen, past_key_values=prefix)
            hidden = found[0] if isinstance(found, tuple) else found
        return hidden


class _Decoder(Blocks):
    """Llama and its kin: a position attends to the real positions before it and to itself."""

    is_decoder = True
    queries_and_values = ("q_proj", "v_proj")

    @property
    def layers(self) -> Sequence[Any]:
        found: Sequence[Any] = self.base.layers
        return found

    def start(self, embedded: Tensor) -> Tensor:
        return embedded

    def through(
        self, hidden: Tensor, mask: Tensor, first: int = 0, last: int | None = None, prefix: Any = None
    ) -> Tensor:
        long, before = hidden.shape[1], mask.shape[1] - hidden.shape[1]
        places = torch.arange(long, device=hidden.device)[None]
        turned = self.base.rotary_emb(hidden, position_ids=places)
        earlier = torch.ones(long, mask.shape[1], dtype=torch.bool, device=hidden.device).tril(before)
        seen = (mask[:, None, None, :] > 0) & earlier
        for layer in self.layers[first:last]:
            found = layer(hidden, attention_mask=seen, position_embeddings=turned, past_key_values=prefix)
            hidden = found[0] if isinstance(found, tuple) else found
        return hidden

    def finish(self, hidden: Tensor) -> Tensor:
        normed: Tensor = self.base.norm(hidden)
        return normed


def _registered_attention() -> str:
    """The name under which transformers finds :func:`_attention`."""
    from transformers import AttentionInterface

    AttentionInterface.register("tacit", _attention)
    return "tacit"


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    scaling: float | None = None, **options: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Attention of (rows, heads, positions, width), where ``attention_mask`` is true for what is attended to.

    PyTorch's fused kernel is best for float32, for accelerators and for long rows. On a processor in half
    precision its backward pass takes most of a training step over short rows, so these are computed as
    plain products of matrices, several times faster. What decides is public: precision, device, and the
    width that rows are padded to.
    """
    from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward

    half = query.dtype in (torch.bfloat16, torch.float16) and query.device.type == "cpu"
    short = half and key.shape[2] <= SHORT
    if not short or attention_mask is None:
        found: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **options
        )
        return found
    groups = int(getattr(module, "num_key_value_groups", 1))
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    scores = (query @ key.transpose(2, 3)) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
    return (weights @ value).transpose(1, 2).contiguous(), None


def blocks_of(model: Any) -> Blocks:
    """The blocks of a transformers model or a :class:`tacit.language.Pretrained`."""
    base = base_of(model)
    kind = getattr(getattr(base, "config", None), "model_type", None)
    if kind in ENCODERS:
        return _Encoder(base)
    if kind in DECODERS:
        return _Decoder(base)
    raise InvalidValue(
        "model", kind or type(model).__name__, f"a transformer of type {', '.join((*ENCODERS, *DECODERS))}",
        "Read one with tacit.language.pretrained('minilm'), or train another model with Trainer itself.",
    )  # fmt: skip
