"""Attributes of objects: the dictionary they are kept in, and slots outside of it.

Both are reached through the descriptors that the classes themselves have for them, so that what a class says
of its attributes, as by a property of the same name or a ``__getattribute__`` of its own, does not matter.
"""

from __future__ import annotations

import functools
import threading
import types
from typing import Any

UNSET = object()
"""Stands for the value of a slot that has none."""


@functools.cache
def slots(kind: type) -> tuple[types.MemberDescriptorType, ...]:
    """The slots for which the classes of an object made room, those of the same name in two of them too."""
    return tuple(
        member
        for each in kind.__mro__
        if "__slots__" in vars(each)
        for member in vars(each).values()
        if isinstance(member, types.MemberDescriptorType) and member.__objclass__ is each
    )


def slot(each: Any, member: types.MemberDescriptorType) -> Any:
    """What a slot of an object holds."""
    try:
        return member.__get__(each)
    except AttributeError:
        return UNSET


def put_slot(each: Any, member: types.MemberDescriptorType, value: Any) -> None:
    """Give a slot the value that it had, or none."""
    if value is UNSET:
        member.__delete__(each)
    else:
        member.__set__(each, value)


@functools.cache
def _dictionary(kind: type) -> Any:
    kinds = types.GetSetDescriptorType | types.MemberDescriptorType
    found = (vars(each).get("__dict__") for each in kind.__mro__)
    return next((each for each in found if isinstance(each, kinds)), None)


def attributes(each: Any) -> dict[str, Any] | None:
    """The dictionary in which an object keeps its attributes, if it has one."""
    if isinstance(each, threading.local):
        return threading.local.__getattribute__(each, "__dict__")  # type: ignore[no-any-return]
    descriptor = _dictionary(type(each))  # type: ignore[arg-type]
    held = None if descriptor is None else descriptor.__get__(each)
    return held if isinstance(held, dict) else None
