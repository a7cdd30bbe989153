"""The examples of attacks run, print a table for every protection, and write their pictures."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "attacks"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "showing")
HEADLINE = ("unprotected", "ε = 8", "ε = 1", "ε = 0.1")
PROMPTS = ("secret prompt", "PromptPATE, ε = 2", "generated, ε = 2")
"""What the example of prompts compares instead; it draws no picture."""


def test_every_attack_has_an_example() -> None:
    modules = {"membership", "inversion", "gradients", "gan", "extraction", "linkage", "prompts"}
    assert modules | {"counts"} == set(EXAMPLES)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "prompts"])
def test_runs_and_draws(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("COLUMNS", "160")
    try:
        runpy.run_path(str(FOLDER / f"{name}.py"))["main"](["--quick", "--out", str(tmp_path)])
    finally:
        sys.modules.pop("showing", None)
    told = capsys.readouterr().out
    assert all(protection in told for protection in HEADLINE)
    (picture,) = tmp_path.iterdir()
    assert picture.name == f"attack_{name}.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 10_000


def test_prompts_give_demonstrations_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("COLUMNS", "160")
    try:
        runpy.run_path(str(FOLDER / "prompts.py"))["main"](["--quick", "--out", str(tmp_path)])
    finally:
        sys.modules.pop("showing", None)
    told = capsys.readouterr().out
    assert all(each in told for each in PROMPTS)
