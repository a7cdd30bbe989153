"""What the shell offers for the values of options: names that are known without opening any data.

Shells ask while somebody types: errors are not shown, and PyTorch is not imported.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

__all__ = ["architectures", "columns", "features", "models", "oracles", "students"]

ARCHITECTURES = ("linear", "mlp", "autoencoder", "cnn", "scattering", "patches", "resnet")
"""The names in ``tacit.training.networks.architectures.RECIPES``, which needs PyTorch; a test compares."""

FEATURES = ("efficientnet-lite0", "minilm", "scattering")
"""The names in ``tacit.training.features.registry``, which needs PyTorch; a test compares."""

STUDENTS = (
    "decision-tree", "extra-trees", "forest", "gaussian-nb", "gradient-boosting", "linear-svc", "logistic",
    "mlp", "neighbors", "ridge", "svc",
)  # fmt: skip
"""The classifiers in ``tacit.pate.student.KINDS``, which needs scikit-learn; a test compares."""


def architectures(incomplete: str) -> list[str]:
    """Architectures that begin so."""
    return [name for name in ARCHITECTURES if name.startswith(incomplete)]


def features(incomplete: str) -> list[str]:
    """Fixed features that begin so."""
    return [name for name in FEATURES if name.startswith(incomplete)]


def models(incomplete: str) -> list[str]:
    """Models that ``tacit fit`` knows and that begin so."""
    from tacit.estimators.registry import ESTIMATORS

    return [name for name in ESTIMATORS if name.startswith(incomplete)]


def columns(ctx: Any, incomplete: str) -> list[str]:
    """Columns of the schema that was named before, if it can be read."""
    given = ctx.params.get("schema")
    try:
        with Path(given).open("rb") as file:
            declared = tomllib.load(file).get("columns", {})
    except (OSError, TypeError, ValueError):
        return []
    return [str(name) for name in declared if str(name).startswith(incomplete)]


def students(incomplete: str) -> list[str]:
    """Classifiers that ``tacit pate fit`` knows as teachers and students, and that begin so."""
    return [name for name in STUDENTS if name.startswith(incomplete)]


def oracles(incomplete: str) -> list[str]:
    """Methods that ``tacit local randomize`` knows and that begin so."""
    from tacit.local.reports import METHODS

    return [name for name in ("recommended", *METHODS) if name.startswith(incomplete)]
