"""The example in which forests teach a forest: it runs, spends what it says, and learns."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tacit import Ledger

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pate_forest.py"


@pytest.mark.audit
def test_forests_teach_a_forest(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE), "--random-state", "1"],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    found = re.search(r"right for ([\d.]+)%", process.stdout)
    assert found is not None
    assert float(found[1]) > 78
    with Ledger.open(tmp_path / "out" / "study.db") as ledger:
        assert len(ledger.entries()) == 1
        assert ledger.spent().epsilon <= 2.0
