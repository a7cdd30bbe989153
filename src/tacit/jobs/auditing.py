"""An audit from files of scores: one number per run, or one per canary of a single run."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import audit
from tacit.errors import InvalidValue, SourceMissing

__all__ = ["About", "audit_canaries", "audit_scores"]

Place = str | os.PathLike[str]


@dataclass(frozen=True)
class About:
    """What an audit is about: the ε that was claimed, and how the two data sets differed."""

    claimed: float | None = None
    relation: str | None = None
    unit: str | None = None


def audit_scores(scores_in: Place, scores_out: Place, *, about: About, **options: Any) -> audit.AuditResult:
    """:func:`tacit.audit.from_scores` on two files, of runs with and without the unit."""
    inside, outside = _numbers(scores_in), _numbers(scores_out)
    return replace(audit.from_scores(inside, outside, **options), **asdict(about))


def audit_canaries(canaries: Place, *, about: About, **options: Any) -> audit.AuditResult:
    """:func:`tacit.audit.from_canaries` on a file with two columns: the score, and 1 or 0 for in or out."""
    table = _numbers(canaries, 2)
    included = table[:, 1]
    if not np.isin(included, (0.0, 1.0)).all():
        raise InvalidValue("second column", "other numbers", "1 for a canary that was in, else 0")
    return replace(audit.from_canaries(table[:, 0], included == 1, **options), **asdict(about))


def _numbers(path: Place, columns: int = 1) -> NDArray[np.float64]:
    """The numbers of an .npy file, or of a text file with so many columns, which may have a heading."""
    place = Path(path)
    try:
        if place.suffix == ".npy":
            found = np.load(place, allow_pickle=False).astype(np.float64)
        else:
            lines = [line for line in place.read_text(encoding="utf-8").splitlines() if line.strip()]
            rows = [line.split(",") for line in lines]
            if rows and not _is_number(rows[0][0]):
                rows = rows[1:]
            found = np.array([[float(cell) for cell in row] for row in rows], dtype=np.float64)
    except OSError as error:
        raise SourceMissing(f"{place} cannot be read: {error.strerror}.", "Name a file of scores.") from None
    except (ValueError, TypeError):
        raise InvalidValue(str(place), "something else", f"{columns} numbers in each line") from None
    if not found.size:
        raise InvalidValue(str(place), "no numbers", f"{columns} numbers in each line")
    found = found.reshape(found.shape[0] if found.ndim else 1, -1)
    if found.shape[1] != columns:
        raise InvalidValue(str(place), f"{found.shape[1]} columns", f"{columns} numbers in each line")
    return np.asarray(found[:, 0] if columns == 1 else found)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
