"""Every warning of torch every time; nothing is collected where torch is not installed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("torch") else ["*.py"]


@pytest.fixture(autouse=True)
def _same_in_any_order() -> Iterator[None]:
    """Torch warns once per process by default, so a warning would fail whichever test came first."""
    import torch

    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    warnings.filterwarnings("ignore", "Using padding='same' with even kernel lengths")
    yield
    torch.set_warn_always(always)
