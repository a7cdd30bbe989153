"""Models run as they are written while their passes are recorded, compiled or not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


@contextmanager
def as_written() -> Iterator[None]:
    """Within, attention runs through layers that can be watched, and what was compiled runs as written.

    What compiled code does with its examples cannot be followed, and need not be what the code says: the
    guarantee is about what is computed, so that the operations of the code itself are recorded and proved.
    Models, layers, losses and functions that ``torch.compile`` has wrapped all run so.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        # Nothing was compiled if the compiler was never imported, which takes a second.
        loaded = "torch._dynamo" in sys.modules
        with torch.compiler.set_stance("force_eager") if loaded else nullcontext():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
