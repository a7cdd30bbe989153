"""Feature rows on disk, so that examples are not computed twice.

A row is kept under a digest of everything that decides it: the features (weights, settings, version), the
version of PyTorch, and the bytes of the example. An example that changed has another digest, so no row is
ever stale, and the order of the examples does not matter.

**What is in it is private.** A feature row tells much of its example. The folder belongs with the data: it is
readable by its owner alone (mode 0700, files 0600), and is to be deleted with them. It is no release. How
long a run takes shows the curator how many rows were kept, and nobody else.

Rows are written in files of a few thousand, each whole or not at all. Their names are random: the digest of
rows would tell whoever sees a list of files whether an example that can be guessed is among them. A file
begins with the digest of the rest. One that does not match, or holds what no features make, is removed, and
its rows are computed again. Whoever could write into the folder could choose rows, so a folder of another
user, one that others may write to, or a link to elsewhere, is refused.

A row that cannot be kept, because the disk is full, is computed again the next time: what was paid for is not
lost with it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from tacit import _writing
from tacit.errors import TacitError
from tacit.training.features.fixed import FixedFeatures, Seen

__all__ = ["FeatureCache", "rows_of", "usual_folder"]

Rows = NDArray[np.float16]

_PER_FILE = 2048
_ENDING = ".features"
_SIZE = hashlib.sha256().digest_size


def usual_folder() -> Path:
    """The folder of the user's caches: ``$XDG_CACHE_HOME/tacit/features``, or below ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "tacit" / "features"


class FeatureCache:
    """Rows of features in a folder. PRIVATE: see the module."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def check(self, features: FixedFeatures) -> None:
        """Make the folder of these features, and raise if it is not ours alone; no example is read."""
        if not self._usable(self._place(features)):
            advice = "Name a folder of your own that nobody else may write to with cache=, or 'none'."
            raise TacitError(f"Features cannot be kept in {str(self.folder)!r}.", advice)

    def _usable(self, place: Path) -> bool:
        """Whether rows can be kept here; the folder is made if there is none, and others are locked out."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            place.mkdir(mode=0o700, exist_ok=True)
            above, own = self.folder.stat(), place.lstat()
            if not stat.S_ISDIR(own.st_mode) or _of_others(above) or not _mine(own):
                return False
            if own.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return False  # Others may have put rows there already.
            if stat.S_IMODE(own.st_mode) & 0o077:
                place.chmod(0o700)
            return os.access(place, os.W_OK | os.X_OK)
        except OSError:
            return False

    def rows(self, features: FixedFeatures, examples: Any, seen: Seen | None = None) -> Rows:
        """The rows of the examples: those that are kept, and the others computed and then kept."""
        place = self._place(features)
        if not self._usable(place):
            return features.rows(examples, seen)
        keys = self._keys(features, examples)
        made = np.empty((len(keys), features.width), np.float16)
        left = self._filled(made, keys, place, features.norm)
        done = len(keys) - len(left)
        for start in range(0, len(left), _PER_FILE):
            chosen = left[start : start + _PER_FILE]
            count = _counter(seen, done + start, len(keys))
            made[chosen] = features.rows(_picked(examples, chosen), count)
            self._keep(place, [keys[row] for row in chosen], made[chosen])
        return made

    def _keys(self, features: FixedFeatures, examples: Any) -> list[bytes]:
        start = hashlib.sha256(f"{features.digest} {torch.__version__} ".encode())
        keys = []
        for content in features.contents(examples):
            each = start.copy()
            each.update(content)
            keys.append(each.digest())
        return keys

    def _place(self, features: FixedFeatures) -> Path:
        return self.folder / f"{features.name}-{features.digest[:16]}"

    def _filled(self, made: Rows, keys: list[bytes], place: Path, norm: float) -> NDArray[np.intp]:
        """Put in the rows that are kept; which examples are left."""
        wanted: dict[bytes, list[int]] = {}
        for row, key in enumerate(keys):
            wanted.setdefault(key, []).append(row)
        for path in sorted(place.glob(f"*{_ENDING}")) if wanted else ():
            kept = _read(path, made.shape[1], norm)
            if kept is None:
                with suppress(OSError):
                    path.unlink()
                continue
            for key, row in zip(*kept, strict=True):
                for where in wanted.pop(key.tobytes(), ()):
                    made[where] = row
        return np.array(sorted(row for rows in wanted.values() for row in rows), dtype=np.intp)

    def _keep(self, place: Path, keys: list[bytes], rows: Rows) -> None:
        packed = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, _SIZE)
        content = save({"keys": np.ascontiguousarray(packed), "rows": np.ascontiguousarray(rows)})
        path = place / f"{secrets.token_hex(16)}{_ENDING}"
        with suppress(TacitError):
            _writing.write(path, hashlib.sha256(content).digest() + content, overwrite=False, private=True)


def rows_of(
    features: FixedFeatures, examples: Any, cache: FeatureCache | None, seen: Seen | None = None
) -> Rows:
    """The rows of the examples, through the cache if there is one."""
    return features.rows(examples, seen) if cache is None else cache.rows(features, examples, seen)


def _read(path: Path, width: int, norm: float) -> tuple[NDArray[np.uint8], Rows] | None:
    """Keys and rows of a file; None if it is not what was written."""
    try:
        written = path.read_bytes()
        digest, content = written[:_SIZE], written[_SIZE:]
        if hashlib.sha256(content).digest() != digest:
            return None
        tensors = load(content)
        keys, rows = tensors["keys"], tensors["rows"]
    except (OSError, KeyError, ValueError, SafetensorError):
        return None
    if keys.ndim != 2 or rows.shape != (len(keys), width) or rows.dtype != np.float16:
        return None
    # A row of NaN stands for an example that is not finite.
    usable = np.linalg.norm(rows.astype(np.float64), axis=1) <= norm
    return (keys, rows) if (usable | np.isnan(rows).all(axis=1)).all() else None


def _mine(known: os.stat_result) -> bool:
    """Whether a folder belongs to this user; so it does where there is no such thing."""
    return not hasattr(os, "getuid") or known.st_uid == os.getuid()


def _of_others(known: os.stat_result) -> bool:
    """Whether anybody may rename what is in a folder: all may write to it, and to all of it."""
    return bool(known.st_mode & stat.S_IWOTH) and not known.st_mode & stat.S_ISVTX


def _picked(examples: Any, chosen: NDArray[np.intp]) -> Any:
    return examples[chosen] if isinstance(examples, np.ndarray) else [examples[row] for row in chosen]


def _counter(seen: Seen | None, before: int, total: int) -> Callable[[int, int], None] | None:
    if seen is None:
        return None
    return lambda done, _: seen(before + done, total)
