"""Weights in safetensors files, with the guarantee and the digest of both in the file's metadata."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors import safe_open as _open
from safetensors.torch import save as _to_bytes
from torch import Tensor, nn

from tacit import _writing
from tacit.errors import InvalidValue, ModelUnreadable, TacitError
from tacit.guarantee import Guarantee, above
from tacit.models.claims import checked_guarantee
from tacit.models.container import Reading
from tacit.training import past
from tacit.training.isolation.checking import check_sound

PATH = str | os.PathLike[str]
FORMAT = "1"


def save_weights(model: nn.Module, path: PATH, guarantee: Guarantee, *, overwrite: bool = False) -> None:
    """Write a module's weights and buffers, and what may be promised about them, into one file.

    This is for weights that are not in the hands of a trainer any more; after a run, ``tacit.save(trainer,
    path)`` knows the guarantee. Any safetensors reader finds the weights; the guarantee is in the file's
    metadata, with a digest of the weights it is about, and with the runs that the weights come from
    (:mod:`tacit.training.past`). A guarantee that promises more than these runs do together is refused.
    """
    write(path, _state(model), kept_facts(model, guarantee), overwrite=overwrite)


def load_weights(path: PATH, model: nn.Module) -> Guarantee:
    """Put the weights of a file into a module of the same architecture, and return their guarantee.

    The file is one that :func:`tacit.save` wrote of a trainer or a network, or :func:`save_weights`. Raises
    :class:`tacit.errors.ModelUnreadable` for any other, for one that was altered, that holds no guarantee or
    states less than its event costs, and :class:`tacit.errors.InvalidValue` where the module has other
    parameters. Nothing is executed from the file. The module is marked with the private runs that its weights
    come from, so that a further run states what all of them promise together.
    """
    tensors, facts, guarantee = read_model(path)
    put(model, tensors)
    past.mark(model, runs_of(tensors, facts, guarantee))
    return guarantee


def kept_facts(
    model: nn.Module, guarantee: Guarantee, evaluations: Sequence[Mapping[str, Any]] = ()
) -> dict[str, str]:
    """What the metadata of a file says about a module's weights, with the module's own ``saved_facts()``."""
    check_sound(model)
    runs = past.marked(model)
    past.check(runs, guarantee)
    if runs and (len(runs) > 1 or runs[0].alone.event != guarantee.event or past.is_void(runs[0].number)):
        least = past.composed(runs, guarantee.delta)
        if guarantee.epsilon < least.epsilon * (1 - 1e-9) or guarantee.delta < least.delta:
            raise InvalidValue(
                "guarantee", f"ε = {guarantee.epsilon:.6g}, δ = {guarantee.delta:g}",
                f"at least ε = {above(least.epsilon, 6)} at δ = {above(least.delta, 6)}",
                f"The weights come from {len(runs)} private run{'s' * (len(runs) > 1)}: save what the last "
                "trainer promises.",
            )  # fmt: skip
    own: dict[str, str] = getattr(model, "saved_facts", dict)()
    facts = {**own, "guarantee": guarantee.to_json(), "past": past.packed(runs)}
    return facts | ({"evaluations": json.dumps(evaluations, ensure_ascii=False)} if evaluations else {})


def runs_of(
    tensors: Mapping[str, Tensor], facts: Mapping[str, str], guarantee: Guarantee
) -> tuple[past.Run, ...]:
    """The private runs that the weights of a file come from; one of its own for a file that names none."""
    runs = past.unpacked(facts["past"]) if "past" in facts else ()
    return runs or past.known([past.Run(f"file {_digest(tensors, facts)}", guarantee)])


def read_model(path: PATH) -> tuple[dict[str, Tensor], dict[str, str], Guarantee]:
    """Tensors, metadata and guarantee of a model's file, not of a checkpoint."""
    tensors, facts = read(path)
    if "guarantee" not in facts:
        raise ModelUnreadable(
            f"{os.fspath(path)!r} is the checkpoint of a run, not a model.",
            "Go on with the run, by tacit train --resume or fit(..., resume=True), and save its model.",
            path=path,
        )
    with Reading(path):
        return tensors, facts, checked_guarantee(facts["guarantee"])


def write(path: PATH, tensors: Mapping[str, Tensor], facts: Mapping[str, str], *, overwrite: bool) -> None:
    """Write tensors and facts, all or nothing."""
    plain = {name: each.detach().to("cpu").contiguous().clone() for name, each in tensors.items()}
    metadata = {**facts, "tacit": FORMAT}
    metadata["digest"] = _digest(plain, metadata)
    _writing.write(path, _to_bytes(plain, metadata), overwrite=overwrite)


def read(path: PATH) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and facts of a file, as they were written."""
    name = os.fspath(path)
    try:
        with _open(name, framework="pt") as file:
            facts = dict(file.metadata() or {})
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelUnreadable(
            f"{name!r} cannot be read as safetensors: {error}.",
            "Name a file that tacit.save wrote of a trainer or a network.",
            path=path,
        ) from None
    digest = facts.pop("digest", None)
    if facts.get("tacit") != FORMAT or digest is None:
        raise ModelUnreadable(
            f"{name!r} holds weights but no guarantee.",
            "Weights of unknown origin are not loaded; save them with tacit.save(trainer, path).",
            path=path,
        )
    if _digest(tensors, facts) != digest:
        raise ModelUnreadable(
            f"{name!r} was altered after it was saved.", "Get it again, or save it again.", path=path
        )
    facts.pop("tacit")
    return tensors, facts


def _digest(tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> str:
    found = hashlib.sha256(json.dumps(dict(facts), sort_keys=True).encode())
    for name in sorted(tensors):
        each = tensors[name]
        found.update(f"{name} {each.dtype} {tuple(each.shape)}".encode())
        found.update(each.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _state(model: nn.Module) -> dict[str, Tensor]:
    state = {name: each for name, each in model.state_dict().items() if isinstance(each, Tensor)}
    return under_plain_names(state)


def under_plain_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by the names that they have in the module as written, before ``torch.compile`` wrapped it.

    A file is thus the same whether the model, or a part of it, was compiled or not.
    """
    return {_plain_name(name): each for name, each in state.items()}


def _plain_name(name: str) -> str:
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def put(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put weights into a model of the same parameters, compiled or not."""
    own = {_plain_name(name): name for name in model.state_dict()}
    named = {own.get(_plain_name(name), name): each for name, each in tensors.items()}
    try:
        model.load_state_dict(named)
    except RuntimeError as error:
        raise InvalidValue(
            "model", type(model).__name__, "of the same parameters as the saved one",
            " ".join(str(error).split())[:300],
        ) from None  # fmt: skip


def packed(value: Any, tensors: dict[str, Tensor], name: str) -> Any:
    """A tree of plain values and tensors as JSON, its tensors put aside under names."""
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, Counter):
        return {"counter": [[key, count] for key, count in value.items()]}
    if isinstance(value, Mapping):
        return {"map": [[key, packed(each, tensors, f"{name}.{key}")] for key, each in value.items()]}
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [packed(each, tensors, f"{name}.{place}") for place, each in enumerate(value)]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TacitError(
        f"The state of {name!r} holds a {type(value).__name__}, which a checkpoint cannot.",
        "Use an optimiser and a schedule whose state is numbers and tensors.",
    )


def unpacked(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The tree that :func:`packed` put away."""
    if not isinstance(value, dict):
        return value
    (kind, content), *_ = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "counter":
        return Counter(dict(content))
    if kind == "map":
        return {key: unpacked(each, tensors) for key, each in content}
    made = [unpacked(each, tensors) for each in content]
    return tuple(made) if kind == "tuple" else made
