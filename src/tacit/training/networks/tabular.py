"""Networks of tables: what their outputs mean, from the declared target of a preprocessor.

A target with declared categories has one output for each class. A number has one output: bounds (l, h) are
declared, and the network learns 2(y − l)/(h − l) − 1, which lies in [−1, 1]; predictions are clipped to the
bounds. Nothing here is read from rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tacit.data.preprocessor import Preprocessor
from tacit.errors import InvalidValue

Float64 = NDArray[np.float64]

TITLES = {
    "linear": "linear regression",
    "mlp": "regression network with a hidden layer",
    "autoencoder": "regression on the codes of an auto-encoder",
}
"""What networks that predict a number are called."""


def declared_target(maker: Preprocessor) -> tuple[tuple[Any, ...], tuple[float, float] | None]:
    """The classes of the target, none for a number; and the bounds of a number."""
    classes, bounds = maker.classes, maker.target_bounds
    if classes is None and bounds is None:
        raise InvalidValue(
            f"target {maker.target!r}", maker.schema[maker.target].type, "declared with categories or bounds",
            "Declare categories in the schema to tell classes apart, or bounds to predict a number.",
        )  # fmt: skip
    if classes is not None and len(classes) < 2:
        raise InvalidValue(f"categories of {maker.target!r}", list(classes), "two or more, to tell apart")
    return (classes, None) if classes is not None else ((), bounds)


def scaled(values: Float64, bounds: tuple[float, float]) -> Float64:
    """Numbers as the network learns them; NaN where there is none."""
    low, high = bounds
    return np.clip(2 * (values - low) / (high - low) - 1, -1.0, 1.0)


def unscaled(outputs: Float64, bounds: tuple[float, float]) -> Float64:
    """Numbers within the bounds, as the network says them."""
    low, high = bounds
    return low + (np.clip(outputs, -1.0, 1.0) + 1) / 2 * (high - low)


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The squared error by example; 0, and so no gradient, for an example without a target (NaN)."""
    known = ~targets.isnan()
    return (outputs[:, 0] - targets.nan_to_num(0.0)).square() * known
