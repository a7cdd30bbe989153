"""Files are written whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from tacit.errors import TacitError

__all__ = ["write"]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def write(
    path: str | os.PathLike[str], content: str | bytes, *, overwrite: bool, private: bool = False
) -> None:
    """Write a file, all of it or nothing; an existing one only with ``overwrite``.

    A new file that is ``private`` is readable by its owner alone from the start (mode 0600).
    """
    place, target = repr(os.fspath(path)), Path(os.path.realpath(path))
    if target.exists() and not overwrite:
        advice = "Name another file, or add overwrite=True."
        raise TacitError(f"{place} exists and was left as it is.", advice, path=path)
    draft = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(os.open(draft, _NEW, 0o600 if private else 0o666), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        if target.exists():
            shutil.copymode(target, draft)
        os.replace(draft, target)
    except OSError as error:
        problem = f"{place} cannot be written: {error.strerror}."
        raise TacitError(problem, "Name another file.", path=path) from None
    finally:
        with suppress(OSError):
            draft.unlink()
