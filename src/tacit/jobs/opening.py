"""Model files, opened by a job: of tables or of networks."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import TacitError

if TYPE_CHECKING:
    from tacit.data.preprocessor import Preprocessor

__all__ = ["is_network", "model_at", "need_named", "need_torch", "preprocessor_of"]


def need_torch() -> None:
    """Say how to install what networks need, if it is not there."""
    for name, package in (("torch", "PyTorch"), ("safetensors", "safetensors")):
        if find_spec(name) is None:
            raise TacitError(
                f"Networks need {package}, which is not installed.", "Install it: pip install 'tacit[torch]'"
            )


def model_at(path: str | os.PathLike[str]) -> Any:
    """The model in a file, of a fit or of a training run."""
    if is_network(Path(path)):
        need_torch()
        from tacit.training.networks.network import network_at

        return network_at(path)
    from tacit import load

    return load(path)


def is_network(path: Path) -> bool:
    """Whether a file of a model holds a network, in safetensors, by its first bytes."""
    try:
        with path.open("rb") as file:
            first = file.read(9)
    except OSError:
        return path.suffix == ".safetensors"
    return len(first) == 9 and first[8:] == b"{" and not first.startswith(b"PK")


def preprocessor_of(fitted: Any, path: Path) -> Preprocessor:
    """The preprocessor in a saved pipeline."""
    from tacit.data.preprocessor import Preprocessor

    steps = [step for _, step in getattr(fitted, "steps", ())]
    if not steps or not isinstance(steps[0], Preprocessor):
        advice = "Use it from Python: tacit.load(...).predict(X)."
        raise TacitError(f"{path} has no schema of a table in it.", advice)
    return steps[0]


def need_named(network: Any, path: Path) -> Any:
    """The network, if its file names its architecture."""
    from tacit.training.networks.network import Network

    if not isinstance(network, Network):
        advice = "Put its weights into a model of your own with tacit.training.load."
        raise TacitError(f"{path} does not name its architecture.", advice)
    return network
