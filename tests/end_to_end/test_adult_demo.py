"""The demo on Adult runs, spends what it says and gets what it should; and Adult is what its schema says."""

from __future__ import annotations

import csv
import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from tacit import Ledger, Schema, datasets
from tacit.models import load

DEMO = Path(__file__).resolve().parents[2] / "examples" / "adult_income.py"


def test_demo(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(DEMO), "--random-state", "1"]
    process = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False, env=None
    )
    assert process.returncode == 0, process.stderr
    assert "SEEDED" in process.stdout
    for half, spent in (("people to fit", 1.4), ("people to test on", 2.0)):
        with Ledger.open(tmp_path / "out" / "adult.db", dataset=half) as ledger:
            ledger.verify()
            assert len(ledger.entries()) == 3
            assert spent - 0.2 < ledger.spent().epsilon <= spent
            assert f"ε = {ledger.spent().epsilon:.4g} of" in process.stdout
    model = load(tmp_path / "out" / "income.tacit")
    guarantee = model.steps[-1][1].guarantee_
    assert (guarantee.epsilon, guarantee.delta) == (1.0, 1e-6)
    row = next(line for line in process.stdout.splitlines() if line.startswith("│   1 │"))
    auroc, accuracy = (float(cell) for cell in row.strip("│").split("│")[3:5])
    assert auroc > 0.89
    assert accuracy > 0.83
    page = (tmp_path / "out" / "income.html").read_text(encoding="utf-8")
    assert "Each point is a model of its own" in page
    assert "By race" in page
    assert "http" not in page


@pytest.mark.parametrize(("half", "rows"), [("train", 32561), ("test", 16281)])
def test_adult_is_what_its_schema_says(half: str, rows: int) -> None:
    """So that nothing is clipped or taken for missing by mistake; the bounds themselves are public."""
    files = datasets.adult()
    schema = Schema.load(files.schema)
    with gzip.open(getattr(files, half), "rt", encoding="utf-8", newline="") as stream:
        table = list(csv.DictReader(stream))
    assert len(table) == rows
    assert list(table[0]) == list(schema)
    for name, column in schema.columns.items():
        values = {row[name] for row in table}
        may_be_missing = name in ("workclass", "occupation", "native_country")
        assert ("" in values) == may_be_missing
        if column.categories is not None:
            assert values - {""} <= set(column.categories)
        else:
            assert column.bounds is not None
            assert all(column.bounds[0] <= int(value) <= column.bounds[1] for value in values)


def test_adult_is_small() -> None:
    files = datasets.adult()
    assert files.train.stat().st_size + files.test.stat().st_size < 400_000
