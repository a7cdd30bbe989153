"""Classes of a target, which have to be declared: to read them off the rows would leak."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.errors import InvalidValue

__all__ = ["declared_classes"]


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
