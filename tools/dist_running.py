"""What the checks of a wheel share: how a command is run, and the first example of a page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

__all__ = ["ROOT", "Failed", "bare", "first_example", "run", "words_of"]

ROOT = Path(__file__).resolve().parents[1]
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
"""What Flower and Ray would send to their makers stays here; small computations take one thread."""


class Failed(SystemExit):
    """A check that failed; the message says which."""


def bare() -> dict[str, str]:
    """The environment of this process without what would lead to another tacit."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {**kept, **QUIET}


def run(*words: str | Path, cwd: Path, code: int | None = 0, seconds: float = 600) -> str:
    """The output of a command, which must end with ``code``."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=bare(),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if code is not None and done.returncode != code:
        raise Failed(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def words_of(road: str) -> list[tuple[str, ...]]:
    """The words of each command of a road; an indented line goes on with the line above."""
    return [tuple(shlex.split(line)) for line in road.replace("\n    ", " ").strip().splitlines()]


def first_example(page: str) -> tuple[str, str]:
    """The Python of a page up to the first output that the page shows, and that output."""
    blocks = re.findall(
        r"^```(python|text)\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    kinds = [kind for kind, _ in blocks]
    if "text" not in kinds[1:]:
        raise Failed(f"{page} begins with no example that is followed by what it prints")
    end = kinds.index("text")
    return "".join(body for _, body in blocks[:end]), blocks[end][1]
