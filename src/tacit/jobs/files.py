"""Files that a job writes: tried before anything is spent, and kept somewhere else rather than lost."""

from __future__ import annotations

import glob
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.errors import TacitError
from tacit.jobs.job import Say
from tacit.ledger import Ledger

__all__ = ["elsewhere", "files_of", "kept", "rescued", "reserved", "spare", "writable"]


def spare(out: Path, overwrite: bool, *used: object) -> None:
    """Refuse a file that exists, unless it may be overwritten; and in any case one that the job uses itself.

    ``used`` are the ledgers and files of the job, as they were given: an answer in the place of the ledger
    would forget what was spent.
    """
    if out.exists() and not out.is_dir() and not overwrite:
        raise TacitError(f"{out} exists and was left as it is.", "Name another file, or add overwrite=True.")
    if any(os.path.realpath(out) in files_of(one) for one in used):
        raise TacitError(f"{out} is used by the job itself, and was left as it is.", "Name another file.")


def files_of(used: object) -> set[str]:
    """The files meant by a ledger, a path or a pattern; none for anything else."""
    if isinstance(used, Ledger):
        used = used.location
    if not isinstance(used, str | os.PathLike):
        return set()
    place = re.sub("^sqlite[^:]*:///", "", os.fsdecode(used))
    return {os.path.realpath(file) for file in (place, *glob.glob(place, recursive=True))}


def writable(out: Path, overwrite: bool, *used: object) -> None:
    """Find out that a file can be written before anything is spent, and leave no trace."""
    spare(out, overwrite, *used)
    target = Path(os.path.realpath(out))
    new = not target.exists()
    _try(out)
    if new:
        target.unlink()


@contextmanager
def reserved(out: Path | None) -> Iterator[None]:
    """See that a file can be written before anything is spent; if the body fails, no new file is left."""
    if out is None:
        yield
        return
    target = Path(os.path.realpath(out))
    new = not target.exists()
    _try(out)
    try:
        yield
    except BaseException:
        if new:
            target.unlink(missing_ok=True)
        raise


def _try(out: Path) -> None:
    try:
        with out.open("ab"):
            pass
    except OSError as error:
        raise TacitError(
            f"{out} cannot be written: {error.strerror}. Nothing was charged.", "Name another file."
        ) from None


def kept(
    write: Callable[[Path, bool], None], out: Path, overwrite: bool, warn: Say, what: str = "model"
) -> Path:
    """Write what was paid for, and return where; if the file cannot be written, write another elsewhere.

    An interruption, or an error that is not about the file, goes on once the model is written elsewhere.
    """
    try:
        write(out, overwrite)
    except BaseException as error:
        place = elsewhere(out.name)
        write(place, True)
        problem = error.problem if isinstance(error, TacitError) else f"{out} was not written."
        warn(f"{problem} The {what} was written to {place} instead.")
        if not isinstance(error, TacitError):
            raise
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
