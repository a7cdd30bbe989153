"""Code in the README and the guides runs, and prints what is shown.

Blocks of ``python`` in a file share one namespace and one temporary folder; a ``text`` block right
after one shows its output. In a ``console`` block every line that starts with ``$ tacit`` is run, and
the lines after it are its output.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_code_prints_what_is_shown(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = path.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    namespace: dict[str, object] = {"__name__": path.stem}
    printed: tuple[int, str] | None = None
    for block in blocks:
        kind, body = block.groups()
        if kind == "python":
            output = io.StringIO()
            line = text.count("\n", 0, block.start(2))
            with contextlib.redirect_stdout(output):
                exec(compile("\n" * line + body, str(path), "exec"), namespace)
            printed = (block.end(), output.getvalue())
        elif kind == "text" and printed and not text[printed[0] : block.start()].strip():
            assert lines(printed[1]) == lines(body)
        elif kind == "console":
            check_session(body, tmp_path)


def check_session(body: str, folder: Path) -> None:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        words = shlex.split(command)
        if words[0] != "tacit":
            continue
        process = subprocess.run(
            [sys.executable, "-m", "tacit.cli", *words[1:]],
            cwd=folder, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if shown.strip():
            assert lines(process.stdout + process.stderr) == lines(shown)
        else:
            assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    missing = [
        target
        for target in LINK.findall(path.read_text(encoding="utf-8"))
        if not (path.parent / target).exists()
    ]
    assert not missing
