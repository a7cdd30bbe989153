"""Checkpoints: a federation written down, so that a server that was killed goes on with no unpaid round.

The file is written when a round has been claimed, before its cohort is asked, and again when the round is
finished, before its result is handed out. It holds the plan, the rounds taken, the clip_norm, how often each
client was asked under rotation, the last released update and arrays of the caller's (the model, the state of
a server optimiser). All of it was released or is public, but for the counts under rotation, which are the
server's. It holds no client's update and no cohort. NumPy's format without pickle; a digest finds damage.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _writing
from tacit.errors import ModelUnreadable

__all__ = ["Checkpoint"]

_DIGEST = 32
_FORMAT = "tacit federation 1"


@dataclass
class Checkpoint:
    """What is in the file of a federation."""

    run: str
    plan: dict[str, Any]
    shapes: tuple[tuple[int, ...], ...]
    number: int
    clip_norm: float
    asked: NDArray[np.int64]
    noise: str = "exact"
    update: NDArray[np.float64] | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    state: dict[str, NDArray[Any]] = field(default_factory=dict)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Replace the file, all of it or nothing."""
        facts = {
            "format": _FORMAT, "run": self.run, "plan": self.plan, "shapes": self.shapes,
            "number": self.number, "clip_norm": self.clip_norm, "noise": self.noise, "metrics": self.metrics,
        }  # fmt: skip
        arrays = {f"state {name}": np.asarray(value) for name, value in self.state.items()}
        arrays["asked"] = self.asked
        if self.update is not None:
            arrays["update"] = self.update
        file = io.BytesIO()
        np.savez(file, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)  # type: ignore[arg-type]
        content = file.getvalue()
        _writing.write(path, hashlib.sha256(content).digest() + content, overwrite=True)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """The checkpoint in a file; :class:`tacit.errors.ModelUnreadable` where there is none."""
        try:
            whole = Path(path).read_bytes()
            digest, content = whole[:_DIGEST], whole[_DIGEST:]
            if hashlib.sha256(content).digest() != digest:
                raise ValueError("digest")
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                facts = json.loads(arrays["facts"].tobytes())
                if facts.pop("format") != _FORMAT:
                    raise ValueError("format")
                facts["shapes"] = tuple(tuple(shape) for shape in facts["shapes"])
                state = {name[6:]: arrays[name] for name in arrays.files if name.startswith("state ")}
                update = arrays["update"] if "update" in arrays.files else None
                return cls(**facts, asked=arrays["asked"], update=update, state=state)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelUnreadable(
                f"{os.fspath(path)!r} is not the checkpoint of a federation, or was damaged.",
                "Name another file, or remove it to start another run, which is charged again.", path=path,
            ) from error  # fmt: skip


def place_of(path: str | os.PathLike[str]) -> str:
    """A digest of the file's path, which tells this file apart from its copies."""
    return hashlib.sha256(str(Path(path).resolve()).encode()).hexdigest()[:16]
