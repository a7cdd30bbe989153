"""The example that goes from a raw CSV with semicolons to a report, with no schema edits but bounds."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tacit import Ledger, Schema
from tacit.evaluation import evaluations_of
from tacit.models import load

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "semicolon_csv.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("clinic")
    process = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE), "--random-state", "1"],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return folder / "out", process.stdout


def test_the_file_is_as_spreadsheets_write_it(made: tuple[Path, str]) -> None:
    text = (made[0] / "clinic.csv").read_bytes()
    first, second, *_ = text.split(b"\n")
    assert first == "age;Größe (cm);pressure;visits;smoker;returned".encode("latin-1")
    assert re.search(rb";\d+,\d;", second)
    assert b";;" in text
    with pytest.raises(UnicodeDecodeError):
        text.decode("utf-8")


def test_only_bounds_were_written_into_the_schema(made: tuple[Path, str]) -> None:
    schema = Schema.load(made[0] / "clinic.toml")
    assert (schema.csv.delimiter, schema.csv.decimal) == (";", ",")
    assert [column.type for column in schema.columns.values()] == [
        "integer", "number", "number", "integer", "boolean", "boolean",
    ]  # fmt: skip
    assert all(column.bounds for column in schema.columns.values() if column.type != "boolean")


def test_the_answers_and_the_model_are_of_the_rows(made: tuple[Path, str]) -> None:
    """Nothing useless: every value was read, so the counts and the model tell what was put in."""
    folder, printed = made
    counts = {word: int(count) for word, count in re.findall(r"│ (False|True) +│ +(\d+) │", printed)}
    assert 3950 < sum(counts.values()) < 4050
    assert 1100 < counts["True"] < 1300
    model = load(folder / "clinic.tacit")
    assert evaluations_of(model)[0].figures["auroc"] > 0.75
    with Ledger.open(folder / "clinic.db", dataset="default") as ledger:
        assert ledger.spent().epsilon <= 2
        assert len(ledger.entries()) == 2


def test_the_page_names_the_patients_and_who_answers_for_them(made: tuple[Path, str]) -> None:
    page = html.unescape((made[0] / "clinic.html").read_text(encoding="utf-8"))
    assert "one patient (one row is one patient)" in page
    assert "Data office of the clinic" in page
    assert "spent on them in all, in 2 charges to “default”" in page
    assert "Größe (cm)" in page
