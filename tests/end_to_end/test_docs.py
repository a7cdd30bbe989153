"""Code in the README and the guides runs, and prints what is shown.

Blocks of ``python`` in a file share one namespace, and all files share one temporary folder; a ``text`` block
right after one shows its output. In a ``console`` block every line that starts with ``$ tacit`` is run, and
the lines after it are its output.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
import subprocess
from pathlib import Path

import pytest

from commands import Run, commands

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
GUIDES = [DOCS / name for name in LINK.findall((DOCS / "index.md").read_text(encoding="utf-8"))]
"""The guides in the order in which they are to be read."""
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", DOCS / "index.md", *GUIDES]
SECOND = [pytest.param(2, path, marks=pytest.mark.audit) for path in GUIDES]
READINGS = [(1, ROOT / "README.md"), *((1, path) for path in GUIDES), *SECOND]
"""The README, and then all guides; ``make audit`` reads the guides twice."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one folder in which everything is read."""
    return tmp_path_factory.mktemp("reading")


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def test_the_index_lists_every_guide_and_the_readme_does_in_the_same_order() -> None:
    assert sorted(GUIDES) == sorted(path for path in DOCS.glob("*.md") if path.name != "index.md")
    listed = [ROOT / name for name in LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))]
    assert list(dict.fromkeys(path for path in listed if path in GUIDES)) == GUIDES


@pytest.mark.parametrize(("time", "path"), READINGS, ids=lambda value: getattr(value, "name", str(value)))
def test_code_prints_what_is_shown(
    time: int,
    path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All are read in one folder. None touches the files of another, so that none stands in its way, and the
    first block of a guide removes all that the guide left, so that it can be read again."""
    monkeypatch.chdir(folder)
    text = path.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    namespace: dict[str, object] = {}
    printed: tuple[int, str] | None = None
    before = {} if time == 2 else files(folder)
    begun: set[str] | None = None
    for block in blocks:
        kind, body = block.groups()
        if kind == "python":
            printed = (block.end(), run(block, path, namespace))
            begun = set(files(folder)) if begun is None else begun
        elif kind == "text" and printed and not text[printed[0] : block.start()].strip():
            assert lines(printed[1]) == lines(body)
        elif kind == "console":
            check_session(body, commands(monkeypatch, capsys))
    after = files(folder)
    assert before.items() <= after.items(), "files of another guide were changed or removed"
    if begun is not None and path in GUIDES:
        again: dict[str, object] = {}
        run(next(block for block in blocks if block.group(1) == "python"), path, again)
        for service in (each for each in again.values() if isinstance(each, subprocess.Popen)):
            service.terminate()
            service.communicate()
        assert set(files(folder)) == begun, "the first block does not remove what the guide leaves"


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """The names in a folder, with the time and size that tell whether a file was written again."""
    found = {each.name: each.stat() for each in folder.iterdir()}
    return {name: (stat.st_mtime_ns, stat.st_size) for name, stat in found.items()}


def run(block: re.Match[str], path: Path, namespace: dict[str, object]) -> str:
    """What a block prints; lines of errors are those of the guide."""
    output = io.StringIO()
    line = block.string.count("\n", 0, block.start(2))
    namespace.setdefault("__name__", path.stem)
    with contextlib.redirect_stdout(output):
        exec(compile("\n" * line + block.group(2), str(path), "exec"), namespace)
    return output.getvalue()


def check_session(body: str, command: Run) -> None:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        typed, _, shown = part.partition("\n")
        words = shlex.split(typed)
        if words[0] != "tacit":
            continue
        found = command(*words[1:])
        if shown.strip():
            assert lines(found.out + found.err) == lines(shown)
        else:
            found.good()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    missing = [
        target
        for target in LINK.findall(path.read_text(encoding="utf-8"))
        if not (path.parent / target).exists()
    ]
    assert not missing


def test_the_first_example_of_the_readme_is_short() -> None:
    """From a CSV to a saved model in under 15 lines; what ε means, and a picture, come before."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = next(block for block in BLOCK.finditer(text) if block.group(1) == "python")
    assert "jobs.fit(" in first.group(2)
    assert len(first.group(2).strip().splitlines()) < 15
    before = text[: first.start()]
    assert before.index("**What ε means.**") < before.index("<picture>")
    assert text.count("pip install") == 1


def test_the_picture_of_the_readme_is_drawn_by_its_script(tmp_path: Path) -> None:
    pictures = DOCS / "pictures"
    runpy.run_path(str(pictures / "epsilon.py"))["main"](["--out", str(tmp_path)])
    for name in ("epsilon-light.svg", "epsilon-dark.svg"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (pictures / name).read_text(encoding="utf-8")
