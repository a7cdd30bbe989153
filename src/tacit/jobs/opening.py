"""Model files, opened by a job: pipelines of tables, or networks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import TacitError

if TYPE_CHECKING:
    from tacit.data.preprocessor import Preprocessor

__all__ = ["named_network", "opened_model"]


def opened_model(path: str | os.PathLike[str]) -> tuple[Any, Preprocessor | None]:
    """The model in a file, and what makes its features from a table; None for images and arrays."""
    from tacit import load
    from tacit.data.preprocessor import Preprocessor
    from tacit.models import description_of

    fitted = load(path)
    steps = [step for _, step in getattr(fitted, "steps", ())]
    if steps and isinstance(steps[0], Preprocessor):
        return fitted, steps[0]
    if description_of(fitted).tensors:
        return fitted, None
    advice = "Use it from Python: tacit.load(...).predict(X)."
    raise TacitError(f"{os.fspath(path)} has no schema of a table in it.", advice)


def named_network(network: Any, path: Path) -> Any:
    """The network, if its file names its architecture."""
    from tacit.training.networks.network import Network

    if not isinstance(network, Network):
        advice = "Put its weights into a model of your own with tacit.training.load_weights."
        raise TacitError(f"{path} does not name its architecture.", advice)
    return network
