"""Entries of dictionaries, lists and sets, as they are, whatever a class of one's own says that they are."""

from __future__ import annotations

import operator
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_KINDS = (list, deque, set, tuple, frozenset)


def items(each: dict[Any, Any]) -> dict[Any, Any]:
    """The entries of a dictionary, in their order."""
    plain: Any = OrderedDict if isinstance(each, OrderedDict) else dict
    return {key: plain.__getitem__(each, key) for key in plain.__iter__(each)}


def same_items(now: Mapping[Any, Any], before: dict[Any, Any]) -> bool:
    """Whether two dictionaries have the same keys in the same order, and the very same values."""
    plain: Any = _plain(now)
    if plain.__len__(now) != len(before):
        return False
    return all(map(operator.is_, plain.values(now), before.values())) and all(
        map(operator.is_, plain.__iter__(now), before)
    )


def put_items(now: dict[Any, Any], before: dict[Any, Any]) -> None:
    """Give a dictionary the entries that it had."""
    plain = _plain(now)
    plain.clear(now)
    for key, value in before.items():
        plain.__setitem__(now, key, value)


def _plain(each: Any) -> Any:
    if isinstance(each, dict):
        return OrderedDict if isinstance(each, OrderedDict) else dict
    return type(each)


def entries(each: Any) -> Iterator[Any]:
    """The entries of a list, a deque, a set or a tuple."""
    if type(each) in _KINDS:
        return iter(each)
    plain: Any = next(kind for kind in _KINDS if isinstance(each, kind))
    return plain.__iter__(each)  # type: ignore[no-any-return]


def same_entries(now: Any, kept: Sequence[Any]) -> bool:
    """Whether a list, a deque, a set or a tuple has these very entries."""
    found = list(entries(now))
    return len(found) == len(kept) and all(map(operator.is_, found, kept))


def put_entries(now: Any, kept: list[Any]) -> None:
    """Give a list, a deque or a set the entries that it had."""
    plain: Any = next(kind for kind in (list, deque, set) if isinstance(now, kind))
    plain.clear(now)
    plain.update(now, kept) if plain is set else plain.extend(now, kept)
