"""What has to be declared about a target, since reading it off the rows would leak."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.data.features import box
from tacit.errors import InvalidValue

__all__ = ["declared_classes", "declared_target_bounds"]


def declared_classes(classes: Any) -> list[Any]:
    """All labels there may be, two or more.

    >>> declared_classes(["no", "yes"])
    ['no', 'yes']
    """
    if classes is None:
        advice = "List all labels there may be; to read them off the data would leak."
        raise InvalidValue("classes", None, "declared", advice)
    found = list(np.asarray(classes).ravel().tolist())
    if len(found) < 2 or len(set(found)) != len(found):
        raise InvalidValue("classes", classes, "two different labels or more")
    return found


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
