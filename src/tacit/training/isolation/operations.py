"""Sets of operations by what they do to memory: views, new tensors without values of others, writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

_aten = torch.ops.aten


def overloads(names: str) -> frozenset[Any]:
    """The overloads of these operations of aten, but those with ``out``; ``name.overload`` is one alone."""
    found: set[Any] = set()
    for name in names.split():
        packet, _, one = name.partition(".")
        if not hasattr(_aten, packet):
            continue
        group = getattr(_aten, packet)
        chosen = [one] if one else [each for each in group.overloads() if "out" not in each]
        found.update(getattr(group, each) for each in chosen if each in group.overloads())
    return frozenset(found)


VIEWS = overloads(
    "view _unsafe_view _reshape_alias alias detach t transpose.int permute expand select.int slice.Tensor "
    "unsqueeze squeeze split.Tensor split_with_sizes unbind.int unfold diagonal as_strided view_as_real "
    "view_as_complex as_strided_ unsqueeze_ squeeze_ transpose_ t_ detach_"
) | {
    torch.ops.profiler._record_function_enter_new.default,
    torch.ops.profiler._record_function_exit._RecordFunction,
}
"""Operations that compute nothing: their results, if any, are parts of their argument's storage."""

MAKES = overloads(
    "zeros ones empty full rand randn zeros_like ones_like empty_like full_like rand_like randn_like "
    "new_zeros new_ones new_empty new_full empty_strided new_empty_strided scalar_tensor eye arange linspace "
    "randint randperm tril_indices triu_indices empty_permuted randint_like hann_window _fused_sdp_choice"
)
"""Operations whose results hold no value of their arguments."""

EMPTY = overloads("empty empty_like new_empty empty_strided new_empty_strided empty_permuted")
"""Operations that make room without filling it."""

_WRITTEN: dict[Any, tuple[tuple[int, str], ...]] = {}


def _places(func: Any) -> tuple[tuple[int, str], ...]:
    places = _WRITTEN.get(func)
    if places is None:
        arguments = func._schema.arguments
        places = tuple(
            (number, each.name)
            for number, each in enumerate(arguments)
            if each.alias_info is not None and each.alias_info.is_write
        )
        if func._schema.name == "aten::native_batch_norm":
            places += ((3, "running_mean"), (4, "running_var"))
        _WRITTEN[func] = places
    return places


class Kind(NamedTuple):
    """What the recording asks of an operation, looked up once."""

    func: Any
    view: bool
    makes: bool
    empty: bool
    writes: bool
    draws: bool


# By the identity of the operation, which costs less than its hash; the kind keeps the operation alive.
KINDS: dict[int, Kind] = {}


def kind(func: Any) -> Kind:
    """What the recording asks of an operation, from now on also in :data:`KINDS`."""
    draws = torch.Tag.nondeterministic_seeded in func.tags
    found = Kind(func, func in VIEWS, func in MAKES, func in EMPTY, bool(_places(func)), draws)
    KINDS[id(func)] = found
    return found


def written(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The arguments that an operation changes."""
    places = _WRITTEN.get(func)
    if places is None:
        places = _places(func)
    if not places or (func._schema.name == "aten::native_batch_norm" and not args[5]):
        return []
    found: list[Tensor] = []
    for number, name in places:
        value = args[number] if number < len(args) else kwargs.get(name)
        parts: Iterable[Any] = value if isinstance(value, list | tuple) else (value,)
        found.extend(each for each in parts if isinstance(each, Tensor))
    return found


def written_refs(entry: Any) -> list[Any]:
    """The same of an operation in a trace."""
    func, given, named, _ = entry
    found: list[Any] = []
    if func._schema.name == "aten::native_batch_norm" and not given[5]:
        return found
    for number, name in _places(func):
        value = given[number] if number < len(given) else dict(named).get(name)
        found.extend(each for each in (value if type(value) is tuple else (value,)) if each is not None)
    return found
