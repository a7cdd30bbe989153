"""Files that a job writes: tried before anything is spent, and kept somewhere else rather than lost."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.errors import TacitError
from tacit.jobs.job import Say

__all__ = ["elsewhere", "kept", "rescued", "reserved", "spare", "writable"]


def spare(out: Path, overwrite: bool) -> None:
    """Refuse a file that exists, unless it may be overwritten."""
    if out.exists() and not overwrite:
        raise TacitError(f"{out} exists and was left as it is.", "Name another file, or add overwrite=True.")


def writable(out: Path, overwrite: bool) -> None:
    """Find out that a file can be written before anything is spent, and leave no trace."""
    spare(out, overwrite)
    new = not out.exists()
    _try(out)
    if new:
        out.unlink()


@contextmanager
def reserved(out: Path | None) -> Iterator[None]:
    """See that a file can be written before anything is spent; if the body fails, no new file is left."""
    if out is None:
        yield
        return
    new = not out.exists()
    _try(out)
    try:
        yield
    except BaseException:
        if new:
            out.unlink(missing_ok=True)
        raise


def _try(out: Path) -> None:
    try:
        with out.open("ab"):
            pass
    except OSError as error:
        raise TacitError(
            f"{out} cannot be written: {error.strerror}. Nothing was charged.", "Name another file."
        ) from None


def kept(write: Callable[[Path, bool], None], out: Path, overwrite: bool, warn: Say) -> Path:
    """Write what was paid for, and return where; if the file cannot be written, write another elsewhere."""
    try:
        write(out, overwrite)
    except TacitError as error:
        place = elsewhere(out.name)
        write(place, True)
        warn(f"{error.problem} The model was written to {place} instead.")
        return place
    return out


@contextmanager
def rescued(write: Callable[[Path], None], place: Path | None, name: str, warn: Say) -> Iterator[None]:
    """If the body fails and the model has no file yet, write it somewhere before the error goes on."""
    try:
        yield
    except BaseException:
        if place is None:
            place = elsewhere(name)
            write(place)
            warn(f"What was paid for was written to {place}.")
        raise


def elsewhere(name: str) -> Path:
    """A file in a new temporary folder."""
    return Path(tempfile.mkdtemp(prefix="tacit-")) / name
