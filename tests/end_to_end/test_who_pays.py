"""The example of fairness: gaps between groups against ε, and gradient norms by group."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytest.importorskip("torch")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "who_pays.py"


def test_groups_and_their_gradients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(EXAMPLE))["main"]
    main(["--out", str(tmp_path), "--rows", "500", "--seeds", "1"])
    told = capsys.readouterr().out
    assert "gap: race" in told
    assert "Female" in told
    page = (tmp_path / "who_pays.html").read_text(encoding="utf-8")
    assert "Groups of sex" in page
