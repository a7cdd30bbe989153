"""The file of a model: facts in JSON and arrays in a zip, sealed by a digest of every byte."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _writing
from tacit.errors import ModelUnreadable, TacitError

__all__ = ["FORMAT", "KINDS", "Reading", "read", "write"]

Array = NDArray[Any]

FORMAT = 1
"""The version of the format; a file says which one it has."""

KINDS = "biufU"
"""The kinds of arrays that are kept: numbers, truth values, text."""

LARGEST_FILE = 2**32
_LARGEST_FACTS, _MOST_ARRAYS, _LONGEST_HEADER = 2**26, 10_000, 10_000
_FACTS = "tacit.json"
_SEAL = b"tacit sha256 "
_PATH = str | os.PathLike[str]


class Reading:
    """A context in which whatever is wrong with the content of a file is reported as ModelUnreadable."""

    def __init__(self, path: _PATH) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, ModelUnreadable):
            told = f": {error}".rstrip(".") if isinstance(error, TacitError) else ""
            problem = f"{os.fspath(self.path)!r} is not a sound model file{told:.300}."
            raise ModelUnreadable(problem, "Get it again, or save the model again.", path=self.path) from None


def _sealed(facts: Mapping[str, Any], arrays: Sequence[Array]) -> bytes:
    """The bytes of a file; the same facts give the same bytes."""
    text = json.dumps(facts, sort_keys=True, allow_nan=False, indent=1)
    members = {_FACTS: text.encode(), **{_member(place): _npy(array) for place, array in enumerate(arrays)}}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            archive.writestr(entry, content)
        archive.comment = _SEAL + b"0" * 64
    body = file.getvalue()[:-64]
    return body + hashlib.sha256(body).hexdigest().encode()


def read(path: _PATH) -> tuple[dict[str, Any], list[Array]]:
    """The facts and arrays in a file, of which every byte is as it was written."""
    name, advice = os.fspath(path), "Name a file that tacit.save wrote."
    try:
        if os.path.getsize(path) > LARGEST_FILE:
            raise ModelUnreadable(f"{name!r} is larger than any model.", advice, path=path)
        content = Path(path).read_bytes()
    except OSError as error:
        raise ModelUnreadable(f"{name!r} cannot be read: {error.strerror}.", advice, path=path) from None
    body, seal = content[:-64], content[-64:]
    if not body.endswith(_SEAL) or hashlib.sha256(body).hexdigest().encode() != seal:
        problem = f"{name!r} is no model of tacit, or was altered or cut short after it was saved."
        raise ModelUnreadable(problem, "Get it again, or save the model again.", path=path)
    with Reading(path), zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        stored = all(
            entry.compress_type == zipfile.ZIP_STORED and entry.compress_size == entry.file_size
            for entry in entries.values()
        )
        whole = sum(entry.file_size for entry in entries.values()) <= len(content)
        if not stored or not whole or len(entries) != len(archive.infolist()):
            raise ValueError("compressed, repeated or overlapping members")
        if entries[_FACTS].file_size > _LARGEST_FACTS or len(entries) > _MOST_ARRAYS + 1:
            raise ValueError("absurd sizes")
        facts = _parsed(archive.read(_FACTS))
        if (found := facts["format"]) != FORMAT:
            problem = f"{name!r} is of format {found!r:.20}, this version of tacit reads {FORMAT}."
            raise ModelUnreadable(problem, "Update tacit.", path=path)
        members = [_member(place) for place in range(len(entries) - 1)]
        if facts["arrays"] != len(members) or set(entries) != {_FACTS, *members}:
            raise ValueError("unexpected members")
        return facts, [_array(archive.read(member)) for member in members]


def _member(place: int) -> str:
    return f"arrays/{place}.npy"


def _parsed(text: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            raise ValueError("a key twice")
        return made

    def refuse(word: str) -> Any:
        raise ValueError(word)

    facts = json.loads(text.decode(), object_pairs_hook=unique, parse_constant=refuse)
    if not isinstance(facts, dict):
        raise ValueError("no object")
    return facts


def _npy(array: Array) -> bytes:
    file = io.BytesIO()
    plain = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
    np.lib.format.write_array(file, plain, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def _array(content: bytes) -> Array:
    """An array from NumPy's format, if of the size its header claims; ``numpy.load`` allocates first."""
    file = io.BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("version")
    header = np.lib.format.read_array_header_1_0(file, max_header_size=_LONGEST_HEADER)
    shape, fortran, dtype = header
    rest = content[file.tell() :]
    sound = dtype.kind in KINDS and not fortran and all(length >= 0 for length in shape)
    if not sound or math.prod(shape) * dtype.itemsize != len(rest):
        raise ValueError("header")
    return np.frombuffer(rest, dtype=dtype).reshape(shape).copy()


def write(path: _PATH, facts: Mapping[str, Any], arrays: Sequence[Array], *, overwrite: bool) -> None:
    """Write a file, all of it or nothing; an existing one only with ``overwrite``."""
    _writing.write(path, _sealed(facts, arrays), overwrite=overwrite)
