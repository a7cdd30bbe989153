"""Language models: private prompts, private fine-tuning, and private in-context learning.

Everything here needs the extra ``llm`` (``pip install 'tacit[llm]'``). transformers and PyTorch are
imported with the first name that needs them. Models are read from disk and never downloaded
(:func:`pretrained`).

==========================  =========================================================================
:class:`SoftPrompt`         trained virtual tokens before the input of a frozen transformer
:class:`Prefix`             trained keys and values before those of every attention layer
:class:`LoRA`               trained low-rank updates of attention; :class:`LastLayers` trains the last blocks
:class:`Texts`              texts and labels for :class:`tacit.training.Trainer`
:func:`start_on_public`     what is trained learns from public texts first, which costs nothing
:class:`PromptPATE`         a public prompt, from public texts that private prompts voted on
:class:`InContext`          free answers to public questions, from a noisy aggregate of private ones:
                            :class:`EmbeddingMean` or :class:`KeywordCounts`
:class:`PrivateGenerator`   synthetic demonstrations, from noisy next-token probabilities
:class:`Decoder`            class probabilities of a decoder with a prompt
:class:`Prototypes`         the same of an encoder, by mean embeddings; :class:`Embedder`
:class:`ExposedPrompt`      a prompt as an adversary sees it, for :mod:`tacit.attacks`
==========================  =========================================================================
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tacit._extras import needed as _needed

if TYPE_CHECKING:
    from tacit.language.aggregating import EmbeddingMean, KeywordCounts
    from tacit.language.decoder import Decoder, Prompter
    from tacit.language.encoder import Embedder, Prototypes
    from tacit.language.exposed import ExposedPrompt
    from tacit.language.generation import PrivateGenerator, Synthetic, TokenVote
    from tacit.language.in_context import InContext, InContextAnswers
    from tacit.language.prompt_pate import PromptPATE
    from tacit.language.public_prompt import PublicPrompt
    from tacit.language.saving import TunedPart
    from tacit.language.starting import start_on_public
    from tacit.language.template import Template
    from tacit.language.texts import Texts
    from tacit.language.tuning import LastLayers, LoRA, Prefix, SoftPrompt, Tuned
    from tacit.language.weights import Pretrained, pretrained

__all__ = [
    "Decoder",
    "Embedder",
    "EmbeddingMean",
    "ExposedPrompt",
    "InContext",
    "InContextAnswers",
    "KeywordCounts",
    "LastLayers",
    "LoRA",
    "Prefix",
    "Pretrained",
    "PrivateGenerator",
    "PromptPATE",
    "Prompter",
    "Prototypes",
    "PublicPrompt",
    "SoftPrompt",
    "Synthetic",
    "Template",
    "Texts",
    "TokenVote",
    "Tuned",
    "TunedPart",
    "pretrained",
    "start_on_public",
]

_ON_FIRST_USE = {
    "Decoder": "decoder",
    "Embedder": "encoder",
    "EmbeddingMean": "aggregating",
    "ExposedPrompt": "exposed",
    "InContext": "in_context",
    "InContextAnswers": "in_context",
    "KeywordCounts": "aggregating",
    "LastLayers": "tuning",
    "LoRA": "tuning",
    "Prefix": "tuning",
    "Pretrained": "weights",
    "PrivateGenerator": "generation",
    "PromptPATE": "prompt_pate",
    "Prompter": "decoder",
    "Prototypes": "encoder",
    "PublicPrompt": "public_prompt",
    "SoftPrompt": "tuning",
    "Synthetic": "generation",
    "Template": "template",
    "Texts": "texts",
    "TokenVote": "generation",
    "Tuned": "tuning",
    "TunedPart": "saving",
    "pretrained": "weights",
    "start_on_public": "starting",
}
"""The module of each name."""


def __getattr__(name: str) -> Any:
    """Names that need transformers are imported on first use."""
    if name in _ON_FIRST_USE:
        with _needed("Language models", extra="llm"):
            return getattr(import_module(f"tacit.language.{_ON_FIRST_USE[name]}"), name)
    raise AttributeError(f"module 'tacit.language' has no attribute {name!r}")
