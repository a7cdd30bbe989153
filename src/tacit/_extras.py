"""Optional packages: which extra of tacit installs each, and the error where one is absent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tacit.errors import MissingExtra

__all__ = ["EXTRAS", "missing", "needed"]

EXTRAS = {
    "PIL": "images",
    "accelerate": "llm",
    "cryptography": "federated",
    "fastapi": "serve",
    "flwr": "federated",
    "gguf": "llm",
    "psycopg": "postgres",
    "pyspark": "spark",
    "ray": "simulation",
    "safetensors": "torch",
    "tokenizers": "llm",
    "torch": "torch",
    "transformers": "llm",
    "uvicorn": "serve",
}
"""The extra that installs each optional package, by the name under which the package is imported."""


def missing(error: ModuleNotFoundError, purpose: str, extra: str | None = None) -> MissingExtra | None:
    """The error that names the extra to install; None if the module that was not found is in no extra."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return MissingExtra(purpose, package, extra or EXTRAS[package])


@contextmanager
def needed(purpose: str, extra: str | None = None) -> Iterator[None]:
    """Within, an import of an optional package that is absent raises :class:`tacit.errors.MissingExtra`.

    ``purpose`` says in plural words what needs the package. ``extra`` names the extra where it is not that
    of the package: language models need PyTorch too, and ``llm`` brings both.

    >>> with needed("Pages of images"):
    ...     raise ModuleNotFoundError("No module named 'PIL'", name="PIL")
    Traceback (most recent call last):
    tacit.errors.MissingExtra: Pages of images need the package PIL, which ... pip install 'tacit[images]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        clear = missing(error, purpose, extra)
        if clear is None:
            raise
        raise clear from error
