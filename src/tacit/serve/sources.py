"""Where the rows of a dataset are: files inside the folder of data, and nothing else.

A curator names a file, or a pattern of several, relative to that folder. URLs, absolute paths, ways out by
``..`` and links that lead out are refused, when a dataset is registered and again whenever it is read. Files
are known by their identity, size and time: if one was replaced or written to, questions are refused until the
curator confirms that the rows are still of those people whom the budget protects.
"""

from __future__ import annotations

import glob
import json
import os
from pathlib import PurePosixPath

from tacit.errors import InvalidValue
from tacit.serve.service import Service, refused
from tacit.serve.store.holdings import Dataset

__all__ = ["checked", "found", "pattern", "stamp"]


def found(service: Service, source: str) -> list[str]:
    """The files that a source means, all of them inside the folder of data."""
    path = PurePosixPath(source)
    odd = not source.isprintable() or "://" in source or "\\" in source or source.startswith("~")
    if odd or not source.strip() or len(source) > 500 or path.is_absolute() or ".." in path.parts:
        advice = "Put the file into the folder of data, and name it relative to that."
        raise InvalidValue("source", source, "the name of a file in the folder of data", advice)
    root = os.path.realpath(service.data)
    place = os.path.join(root, source)
    files = [place] if os.path.isfile(place) else sorted(glob.glob(pattern(service, source), recursive=True))
    files = [file for file in files if os.path.isfile(file)]
    if not files:
        raise InvalidValue("source", source, "a file that is there", "Look into the folder of data.")
    for file in files:
        if os.path.commonpath([root, os.path.realpath(file)]) != root:
            raise InvalidValue("source", source, "inside the folder of data, and no link out of it")
    return files


def pattern(service: Service, source: str) -> str:
    """The source as a pattern of files."""
    return os.path.join(glob.escape(os.path.realpath(service.data)), source)


def stamp(files: list[str]) -> str:
    """What changes when a file is replaced or written to. It tells sizes, so it is for the curator alone."""
    seen = {}
    for file in files:
        facts = os.stat(file)
        seen[file] = [facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns]
    return json.dumps(seen, sort_keys=True)


def checked(service: Service, dataset: Dataset) -> list[str]:
    """The files of a dataset, if they are still those that the curator registered or confirmed."""
    try:
        files = found(service, dataset.source)
        same = stamp(files) == dataset.stamp
    except (InvalidValue, OSError):
        same = False
    if not same:
        raise refused(
            503, f"The files of {dataset.name!r} are not those that were registered.",
            "Nothing was charged. The curator has to confirm them.",
        )  # fmt: skip
    return files
