"""Tiny language models with random weights and a tokenizer of bytes, made in a moment."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WINDOW = 320
TEMPLATE = "T:{text}\nL:{label}\n"
WORDS = {0: "no", 1: "yes"}


@cache
def tokenizer() -> Any:
    """One token for each byte, and one that ends a text."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<end>": 0, **{letter: place + 1 for place, letter in enumerate(letters)}}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", pad_token="<end>")


@cache
def decoder(seed: int = 0) -> Any:
    """A decoder that reacts to its prompt: its random weights are large."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=257, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=WINDOW, initializer_range=0.3, bos_token_id=None, eos_token_id=0,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    return SimpleNamespace(model=model, tokenizer=tokenizer(), is_decoder=True)


@cache
def encoder(seed: int = 0) -> Any:
    """An encoder with random weights."""
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=257, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=128, initializer_range=0.3,
    )  # fmt: skip
    model = BertModel(config).eval().requires_grad_(False)
    return SimpleNamespace(model=model, tokenizer=tokenizer(), is_decoder=False)
