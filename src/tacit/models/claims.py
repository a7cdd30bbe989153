"""What files state about privacy: a guarantee, or a stored evaluation, must not state less than it cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tacit.accounting import check_claim
from tacit.errors import InvalidValue
from tacit.guarantee import Guarantee

__all__ = ["checked_evaluations", "checked_guarantee", "evaluation_dicts"]


def checked_guarantee(stated: Mapping[str, Any] | str) -> Guarantee:
    """The guarantee that a file states, which must not be less than its event costs."""
    guarantee = Guarantee.from_json(stated if isinstance(stated, str) else json.dumps(stated))
    check_claim(guarantee)
    return guarantee


def checked_evaluations(stored: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Stored evaluations, as they are, none of which may state less than it cost.

    ``None`` as the guarantee of an evaluation says that its rows were public.
    """
    found = tuple(stored)
    for each in found:
        if each["guarantee"] is not None:
            checked_guarantee(each["guarantee"])
    return found


def evaluation_dicts(evaluations: Iterable[Any]) -> tuple[Mapping[str, Any], ...]:
    """Evaluations as they are stored: dictionaries, which :mod:`tacit.evaluation` makes and reads."""
    found = tuple(each if isinstance(each, Mapping) else each.to_dict() for each in evaluations)
    if not all("guarantee" in each for each in found):
        raise InvalidValue("evaluations", "something else", "what tacit.evaluate returns")
    return found
