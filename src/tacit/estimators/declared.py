"""What has to be declared about a target, since reading it off the rows would leak."""

from __future__ import annotations

from typing import Any

from tacit.data.declared import declared_classes
from tacit.data.features import box
from tacit.errors import InvalidValue

__all__ = ["declared_classes", "declared_target_bounds"]


def declared_target_bounds(bounds: Any) -> tuple[float, float]:
    """(lower, upper) of a target that is a number.

    >>> declared_target_bounds((0, 10))
    (0.0, 10.0)
    """
    if bounds is None:
        advice = "Say between which values the target is known to lie."
        raise InvalidValue("target_bounds", None, "given", advice)
    lower, upper = box(bounds, 1)
    return float(lower[0]), float(upper[0])
