"""Tiny random transformers and a tokenizer of a few words, made here and not read from anywhere."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2Model,
    RobertaConfig,
    RobertaModel,
)

from tacit.language import LastLayers, LoRA, Prefix, SoftPrompt, Tuned

SIZES: dict[str, Any] = {
    "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 80,
}  # fmt: skip
WORDS = [f"w{number}" for number in range(40)]


def bert(seed: int = 0, **changed: Any) -> Any:
    torch.manual_seed(seed)
    return BertModel(BertConfig(**{**SIZES, **changed})).eval()


def llama(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2)).eval()


def roberta(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return RobertaModel(RobertaConfig(**SIZES)).eval()


def qwen(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return Qwen2Model(Qwen2Config(**SIZES, num_key_value_heads=2)).eval()


MODELS = {"bert": bert, "llama": llama, "roberta": roberta, "qwen2": qwen}


def soft_prompt(model: Any) -> Tuned:
    return SoftPrompt(model, tokens=3, classes=2)


def prefix(model: Any) -> Tuned:
    return Prefix(model, tokens=3, classes=2)


def lora(model: Any) -> Tuned:
    made = LoRA(model, rank=2, classes=2, targets="all")
    # Not zero, so that every part of it has a gradient.
    for name, each in made.named_parameters():
        if name.endswith("up.weight"):
            nn.init.normal_(each, std=0.1)
    return made


def last_layer(model: Any) -> Tuned:
    return LastLayers(model, layers=1, classes=2)


METHODS = {"soft prompt": soft_prompt, "prefix": prefix, "LoRA": lora, "last layers": last_layer}


def tokenizer(*, special: bool = True) -> Any:
    """A tokenizer of the words w0 … w39; without ``special`` tokens an empty text has no token at all."""
    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, **{word: 4 + n for n, word in enumerate(WORDS)}}
    made = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    if special:
        made.post_processor = TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]")


def batch(rows: int = 6, width: int = 8) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Rows of different lengths, and targets."""
    drawn = torch.Generator().manual_seed(1)
    ids = torch.randint(4, 50, (rows, width), generator=drawn)
    lengths = torch.tensor([8, 3, 1, 5, 8, 2, 7])[:rows]
    mask = (torch.arange(width) < lengths[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}, torch.arange(rows) % 2
